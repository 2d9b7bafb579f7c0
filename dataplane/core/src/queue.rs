//! Clients that wait while every endpoint of their service is full: first come, first served.
//!
//! A [`Queue`] is part of [`ServiceState`], so it survives swaps. A dial that was told [`Full`](crate::pick::Unavailable::Full)
//! takes a [`Ticket`], and picks again whenever the ticket says that its turn has come. Whatever may have made room
//! (a lease dropped, an endpoint recovered, a swap) calls [`Queue::wake_head`]. Nobody else needs the lock: while
//! nobody waits, all of this costs one load.
//!
//! Nobody is stranded, because each side writes before it reads: who waits enters the queue and then looks for room,
//! who leaves makes room and then looks at the queue. One of the two sees the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::service::ServiceState;

/// The clients that wait for one service.
#[derive(Debug, Default)]
pub struct Queue {
    len: AtomicUsize,
    peak: AtomicUsize,
    line: Mutex<Line>,
}

impl Queue {
    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// The most that ever waited at once.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets that there were ever more than now.
    pub(crate) fn forget_peak(&self) {
        self.peak.store(self.len(), Ordering::Relaxed);
    }

    /// There may be room, or nothing may be as it was: whoever waits longest should look.
    pub fn wake_head(&self) {
        if self.is_empty() {
            return;
        }
        let waker = self.line().call_head();
        wake(waker);
    }

    fn enter(&self, max: usize) -> Option<u64> {
        let mut line = self.line();
        if line.waiting.len() >= max {
            return None;
        }
        let id = line.next_id;
        line.next_id += 1;
        line.waiting.push_back(Waiter {
            id,
            waker: None,
            // What made the queue necessary may be over by now, so the first look is free.
            called: true,
        });
        let len = self.len.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(len, Ordering::Relaxed);
        Some(id)
    }

    fn poll_turn(&self, id: u64, cx: &Context<'_>) -> Poll<()> {
        let mut line = self.line();
        let Ok(place) = line.place(id) else {
            return Poll::Ready(());
        };
        let Some(waiter) = line.waiting.get_mut(place) else {
            return Poll::Ready(());
        };
        if place == 0 && waiter.called {
            waiter.called = false;
            drop(line);
            // The look at the endpoints that follows must not happen before this waiter was in the queue.
            fence(Ordering::SeqCst);
            return Poll::Ready(());
        }
        match &mut waiter.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn leave(&self, id: u64) {
        let mut line = self.line();
        let Ok(place) = line.place(id) else {
            return;
        };
        let left = line.waiting.remove(place);
        self.len.fetch_sub(1, Ordering::SeqCst);
        // There may be more room than the one that just left has taken, or it was called and gave up.
        let next = if place == 0 { line.call_head() } else { None };
        drop(line);
        drop(left);
        wake(next);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue of one service. Dropping it leaves the queue and passes the turn on.
#[derive(Debug)]
#[must_use = "dropping the ticket gives up the place"]
pub struct Ticket {
    service: Arc<ServiceState>,
    id: u64,
}

impl Ticket {
    /// Takes the last place in the queue of `service`; `None` where `max` are waiting already.
    #[must_use]
    pub fn take(service: &Arc<ServiceState>, max: usize) -> Option<Self> {
        let id = service.queue().enter(max)?;
        Some(Self {
            service: Arc::clone(service),
            id,
        })
    }

    /// Ready when nobody waits longer and something may have changed since the last time it was ready: pick now,
    /// and on [`Full`](crate::pick::Unavailable::Full) poll again.
    pub fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        self.service.queue().poll_turn(self.id, cx)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.service.queue().leave(self.id);
    }
}

#[derive(Debug, Default)]
struct Line {
    next_id: u64,
    /// In the order of their ids.
    waiting: VecDeque<Waiter>,
}

impl Line {
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |waiter| waiter.id)
    }

    fn call_head(&mut self) -> Option<Waker> {
        let head = self.waiting.front_mut()?;
        head.called = true;
        head.waker.take()
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    waker: Option<Waker>,
    /// Whether something may have changed since it last looked.
    called: bool,
}

/// Only without the lock: a waker may run anything.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Client {
        ticket: Ticket,
        woken: Arc<Woken>,
    }

    impl Client {
        fn join(service: &Arc<ServiceState>) -> Self {
            Self {
                ticket: Ticket::take(service, 100).unwrap(),
                woken: Arc::default(),
            }
        }

        fn has_turn(&self) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.ticket
                .poll_turn(&Context::from_waker(&waker))
                .is_ready()
        }

        fn wakes(&self) -> u32 {
            self.woken.0.load(Ordering::SeqCst)
        }
    }

    fn service() -> Arc<ServiceState> {
        Arc::new(ServiceState::new("s", 1))
    }

    #[test]
    fn the_first_look_is_free_and_the_next_needs_a_reason() {
        let service = service();
        let client = Client::join(&service);
        assert!(client.has_turn());
        assert!(!client.has_turn());
        assert_eq!(client.wakes(), 0);
        service.queue().wake_head();
        assert_eq!(client.wakes(), 1);
        assert!(client.has_turn());
        assert!(!client.has_turn());
    }

    #[test]
    fn a_release_between_the_look_and_the_wait_is_not_lost() {
        let service = service();
        let client = Client::join(&service);
        assert!(client.has_turn());
        service.queue().wake_head();
        assert!(client.has_turn(), "it must look once more");
    }

    #[test]
    fn only_the_head_has_a_turn() {
        let service = service();
        let (first, second, third) = (
            Client::join(&service),
            Client::join(&service),
            Client::join(&service),
        );
        assert!(first.has_turn());
        assert!(!second.has_turn());
        assert!(!third.has_turn());
        service.queue().wake_head();
        assert_eq!((second.wakes(), third.wakes()), (0, 0));
        drop(first);
        assert_eq!((second.wakes(), third.wakes()), (1, 0));
        assert!(second.has_turn());
        assert!(!third.has_turn());
    }

    #[test]
    fn who_gives_up_passes_the_turn_on() {
        let service = service();
        let (first, second) = (Client::join(&service), Client::join(&service));
        assert!(first.has_turn());
        assert!(!first.has_turn() && !second.has_turn());
        service.queue().wake_head();
        drop(first);
        assert_eq!(second.wakes(), 1);
        assert!(second.has_turn());
    }

    #[test]
    fn who_gives_up_in_the_middle_disturbs_nobody() {
        let service = service();
        let (first, second, third) = (
            Client::join(&service),
            Client::join(&service),
            Client::join(&service),
        );
        assert!(first.has_turn());
        assert!(!first.has_turn() && !second.has_turn() && !third.has_turn());
        drop(second);
        assert_eq!((first.wakes(), third.wakes()), (0, 0));
        assert_eq!(service.queue().len(), 2);
        drop(first);
        assert!(third.has_turn());
    }

    #[test]
    fn a_full_queue_takes_nobody() {
        let service = service();
        assert!(Ticket::take(&service, 0).is_none());
        let first = Ticket::take(&service, 1).unwrap();
        assert!(Ticket::take(&service, 1).is_none());
        drop(first);
        let again = Ticket::take(&service, 1);
        assert!(again.is_some());
        assert_eq!((service.queue().len(), service.queue().peak()), (1, 1));
        drop(again);
        assert!(service.queue().is_empty());
    }
}
