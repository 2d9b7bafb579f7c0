//! The queue of a service: clients wait while every endpoint is full; first come, first served.
//!
//! A [`Queue`] is part of [`ServiceState`], so it survives swaps. A dial that got [`Full`](crate::pick::Unavailable::Full)
//! takes a [`Ticket`], and picks again whenever its turn comes. Every event that may make room (a dropped lease, a recovered
//! endpoint, a swap) calls [`Queue::wake_head`]. While no client waits, that costs one load and no lock.
//!
//! A client that has tried some endpoints without success waits for the other endpoints only, and does not delay clients that
//! could use the first ones. When there may be room, the first of each group of clients that wait for the same endpoints picks,
//! in order of arrival.
//!
//! No wake-up is lost, because each side writes before it reads: a waiting client enters the queue and then checks for room; a
//! leaving client makes room and then checks the queue. One of the two sees the other.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::pick::Tried;
use crate::service::ServiceState;

/// The clients that wait for one service.
#[derive(Debug, Default)]
pub struct Queue {
    len: AtomicUsize,
    peak: AtomicUsize,
    waiters: Mutex<Waiters>,
}

impl Queue {
    /// Whether no client waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of waiting clients.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// The highest number of waiting clients so far.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Resets the peak to the present number.
    pub(crate) fn forget_peak(&self) {
        self.peak.store(self.len(), Ordering::Relaxed);
    }

    /// Whether a new client takes nothing from the waiting ones: all of these have tried some endpoints without success and
    /// wait for others that are full, and the new client may use the first ones.
    pub(crate) fn admits_newcomer(&self) -> bool {
        self.is_empty() || self.waiters().admits_newcomer()
    }

    /// Wakes the first waiting client, because there may be room, or the plan may have changed.
    pub fn wake_head(&self) {
        if self.is_empty() {
            return;
        }
        let waker = self.waiters().call();
        wake(waker);
    }

    fn enter(&self, max: usize, tried: u64) -> Option<u64> {
        let mut waiters = self.waiters();
        if waiters.waiting.len() >= max {
            return None;
        }
        let id = waiters.enter(tried);
        let len = self.len.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(len, Ordering::Relaxed);
        Some(id)
    }

    fn poll_turn(&self, id: u64, cx: &Context<'_>) -> Poll<()> {
        let mut waiters = self.waiters();
        let Ok(place) = waiters.place(id) else {
            return Poll::Ready(());
        };
        let may_pick = waiters.may_pick(place);
        let Some(waiter) = waiters.waiting.get_mut(place) else {
            return Poll::Ready(());
        };
        if may_pick {
            (waiter.called, waiter.is_picking) = (false, true);
            drop(waiters);
            // The following look at the endpoints must not be reordered before this waiter's entry into the queue.
            fence(Ordering::SeqCst);
            return Poll::Ready(());
        }
        match &mut waiter.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let was_picking = mem::take(&mut waiter.is_picking);
        // This waiter found no room. There may be room for others behind it.
        let next = if was_picking { waiters.next() } else { None };
        drop(waiters);
        wake(next);
        Poll::Pending
    }

    fn leave(&self, id: u64) {
        let mut waiters = self.waiters();
        let Ok(place) = waiters.place(id) else {
            return;
        };
        let left = waiters.leave(place);
        self.len.fetch_sub(1, Ordering::SeqCst);
        // There may be more room than the leaving waiter has taken, or it was called and gave up.
        let was_first = place == 0 || left.as_ref().is_some_and(|left| left.tried != 0);
        let next = if was_first || waiters.retrying > 0 {
            waiters.call()
        } else {
            None
        };
        drop(waiters);
        drop(left);
        wake(next);
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's entry in the queue of one service. Dropping it leaves the queue and passes the turn on.
#[derive(Debug)]
#[must_use = "dropping the ticket leaves the queue"]
pub struct Ticket {
    service: Arc<ServiceState>,
    id: u64,
}

impl Ticket {
    /// Enters the queue of `service`, for the endpoints that are not in `tried`; `None` if `max` clients wait already.
    #[must_use]
    pub fn take(service: &Arc<ServiceState>, max: usize, tried: &Tried) -> Option<Self> {
        let id = service.queue().enter(max, tried.fingerprint())?;
        Some(Self {
            service: Arc::clone(service),
            id,
        })
    }

    /// Ready when it is this client's turn and something may have changed since it was last ready: pick now, and on
    /// [`Full`](crate::pick::Unavailable::Full) poll again.
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
struct Waiters {
    next_id: u64,
    /// Ordered by id.
    waiting: VecDeque<Waiter>,
    /// How many of them have tried some endpoints without success.
    retrying: usize,
}

impl Waiters {
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |waiter| waiter.id)
    }

    fn enter(&mut self, tried: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.retrying += usize::from(tried != 0);
        // There may be room again by now, so a new waiter may pick once, but not before those that wait for the same endpoints.
        let called = self.waiting.iter().all(|waiter| waiter.tried != tried);
        self.waiting.push_back(Waiter {
            id,
            waker: None,
            tried,
            called,
            is_picking: false,
        });
        id
    }

    fn leave(&mut self, place: usize) -> Option<Waiter> {
        let left = self.waiting.remove(place)?;
        self.retrying -= usize::from(left.tried != 0);
        Some(left)
    }

    /// Called waiters pick one after the other.
    fn may_pick(&self, place: usize) -> bool {
        let mut up_to = self.waiting.iter().take(place + 1);
        up_to.next_back().is_some_and(|waiter| waiter.called)
            && up_to.all(|ahead| !ahead.called && !ahead.is_picking)
    }

    fn admits_newcomer(&self) -> bool {
        self.retrying == self.waiting.len()
            && self
                .waiting
                .iter()
                .all(|waiter| !waiter.called && !waiter.is_picking)
    }

    /// Calls the first waiter. A waiter that has tried some endpoints without success may be unable to use the room, so the
    /// first of each group that waits for the same endpoints is called.
    fn call(&mut self) -> Option<Waker> {
        if self.retrying == 0 {
            self.waiting.front_mut()?.called = true;
        } else {
            let mut seen = Vec::new();
            for waiter in &mut self.waiting {
                if !seen.contains(&waiter.tried) {
                    seen.push(waiter.tried);
                    waiter.called = true;
                }
            }
        }
        self.next()
    }

    /// The waker of the first called waiter, unless an earlier one is still picking.
    fn next(&mut self) -> Option<Waker> {
        let next = self
            .waiting
            .iter_mut()
            .find(|waiter| waiter.called || waiter.is_picking)?;
        if next.is_picking {
            None
        } else {
            next.waker.take()
        }
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    waker: Option<Waker>,
    /// The fingerprint of the endpoints that it has tried; 0 if there are none.
    tried: u64,
    /// Whether something may have changed since it last picked. Set only for the first of those that wait for the same
    /// endpoints.
    called: bool,
    /// Whether it is picking now.
    is_picking: bool,
}

/// Called only without the lock, because a waker may run any code.
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
            Self::who_tried(service, 0)
        }

        fn who_tried(service: &Arc<ServiceState>, tried: u64) -> Self {
            let ticket = Ticket {
                service: Arc::clone(service),
                id: service.queue().enter(100, tried).unwrap(),
            };
            Self {
                ticket,
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

    fn take(service: &Arc<ServiceState>, max: usize) -> Option<Ticket> {
        Ticket::take(service, max, &Tried::default())
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
        assert!(take(&service, 0).is_none());
        let first = take(&service, 1).unwrap();
        assert!(take(&service, 1).is_none());
        drop(first);
        let again = take(&service, 1);
        assert!(again.is_some());
        assert_eq!((service.queue().len(), service.queue().peak()), (1, 1));
        drop(again);
        assert!(service.queue().is_empty());
    }

    #[test]
    fn who_tried_some_in_vain_holds_up_nobody_who_could_have_them() {
        let service = service();
        let queue = service.queue();
        let retrying = Client::who_tried(&service, 7);
        assert!(!queue.admits_newcomer(), "it has not looked yet");
        assert!(retrying.has_turn());
        assert!(!queue.admits_newcomer(), "it looks");
        assert!(!retrying.has_turn());
        assert!(queue.admits_newcomer(), "there is nothing for it");

        let plain = Client::join(&service);
        assert!(!queue.admits_newcomer());
        assert!(plain.has_turn(), "the first look is free behind it, too");
        assert!(!plain.has_turn());

        // There is room: the first waiter picks first, and then the other one, which may be able to use it.
        queue.wake_head();
        assert_eq!((retrying.wakes(), plain.wakes()), (1, 0));
        assert!(!plain.has_turn());
        assert!(retrying.has_turn());
        assert!(!plain.has_turn());
        assert!(!retrying.has_turn());
        assert_eq!((retrying.wakes(), plain.wakes()), (1, 1));
        assert!(plain.has_turn());
    }

    #[test]
    fn of_those_who_wait_for_the_same_one_looks() {
        let service = service();
        let waiters: Vec<_> = [0, 7, 7, 0, 9, 7]
            .map(|tried| Client::who_tried(&service, tried))
            .into();
        let picks = || -> Vec<bool> {
            let mut picks = Vec::new();
            for client in &waiters {
                picks.push(client.has_turn());
                client.has_turn();
            }
            picks
        };
        assert_eq!(picks(), [true, true, false, false, true, false]);
        assert_eq!(picks(), [false; 6]);
        service.queue().wake_head();
        assert_eq!(picks(), [true, true, false, false, true, false]);
    }

    #[test]
    fn who_gives_up_before_its_look_passes_the_turn_on_whatever_it_tried() {
        let service = service();
        let retrying = Client::who_tried(&service, 7);
        let plain = Client::join(&service);
        for client in [&retrying, &plain] {
            assert!(client.has_turn());
            assert!(!client.has_turn());
        }
        service.queue().wake_head();
        drop(retrying);
        assert_eq!(plain.wakes(), 1);
        assert!(plain.has_turn());
    }
}
