//! Clients that wait while every endpoint of their service is full: first come, first served.
//!
//! A [`Queue`] is part of [`ServiceState`], so it survives swaps. A dial that was told [`Full`](crate::pick::Unavailable::Full)
//! takes a [`Ticket`], and picks again whenever the ticket says that its turn has come. Whatever may have made room
//! (a lease dropped, an endpoint recovered, a swap) calls [`Queue::wake_head`]. Nobody else needs the lock: while
//! nobody waits, all of this costs one load.
//!
//! Who has tried some endpoints in vain waits for the others only, and holds up nobody who could have the first ones: when
//! there may be room, each first one of those who wait for the same looks, in the order in which they came.
//!
//! Nobody is stranded, because each side writes before it reads: who waits enters the queue and then looks for room,
//! who leaves makes room and then looks at the queue. One of the two sees the other.

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

    /// Whether a client that comes now takes nothing from those that wait: they have tried some endpoints in vain, the
    /// others are full, and the client is free to take the first ones.
    pub(crate) fn lets_pass(&self) -> bool {
        self.is_empty() || self.line().lets_pass()
    }

    /// There may be room, or nothing may be as it was: whoever waits longest should look.
    pub fn wake_head(&self) {
        if self.is_empty() {
            return;
        }
        let waker = self.line().call();
        wake(waker);
    }

    fn enter(&self, max: usize, tried: u64) -> Option<u64> {
        let mut line = self.line();
        if line.waiting.len() >= max {
            return None;
        }
        let id = line.enter(tried);
        let len = self.len.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(len, Ordering::Relaxed);
        Some(id)
    }

    fn poll_turn(&self, id: u64, cx: &Context<'_>) -> Poll<()> {
        let mut line = self.line();
        let Ok(place) = line.place(id) else {
            return Poll::Ready(());
        };
        let may_look = line.may_look(place);
        let Some(waiter) = line.waiting.get_mut(place) else {
            return Poll::Ready(());
        };
        if may_look {
            (waiter.called, waiter.looks) = (false, true);
            drop(line);
            // The look at the endpoints that follows must not happen before this waiter was in the queue.
            fence(Ordering::SeqCst);
            return Poll::Ready(());
        }
        match &mut waiter.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let has_looked = mem::take(&mut waiter.looks);
        // There was nothing for this one. There may be something for others behind.
        let next = if has_looked { line.next() } else { None };
        drop(line);
        wake(next);
        Poll::Pending
    }

    fn leave(&self, id: u64) {
        let mut line = self.line();
        let Ok(place) = line.place(id) else {
            return;
        };
        let left = line.leave(place);
        self.len.fetch_sub(1, Ordering::SeqCst);
        // There may be more room than the one that just left has taken, or it was called and gave up.
        let was_first = place == 0 || left.as_ref().is_some_and(|left| left.tried != 0);
        let next = if was_first || line.choosy > 0 {
            line.call()
        } else {
            None
        };
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
    /// Takes the last place in the queue of `service`, for whatever is not in `tried`; `None` where `max` are waiting already.
    #[must_use]
    pub fn take(service: &Arc<ServiceState>, max: usize, tried: &Tried) -> Option<Self> {
        let id = service.queue().enter(max, tried.fingerprint())?;
        Some(Self {
            service: Arc::clone(service),
            id,
        })
    }

    /// Ready when nobody waits longer for the same and something may have changed since the last time it was ready: pick
    /// now, and on [`Full`](crate::pick::Unavailable::Full) poll again.
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
    /// How many of them have tried some endpoints in vain.
    choosy: usize,
}

impl Line {
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&id, |waiter| waiter.id)
    }

    fn enter(&mut self, tried: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.choosy += usize::from(tried != 0);
        // What made the queue necessary may be over by now, so the first look is free; but not past those who wait for
        // the same.
        let called = self.waiting.iter().all(|waiter| waiter.tried != tried);
        self.waiting.push_back(Waiter {
            id,
            waker: None,
            tried,
            called,
            looks: false,
        });
        id
    }

    fn leave(&mut self, place: usize) -> Option<Waiter> {
        let left = self.waiting.remove(place)?;
        self.choosy -= usize::from(left.tried != 0);
        Some(left)
    }

    /// Who was called looks, one after the other.
    fn may_look(&self, place: usize) -> bool {
        let mut up_to = self.waiting.iter().take(place + 1);
        up_to.next_back().is_some_and(|waiter| waiter.called)
            && up_to.all(|ahead| !ahead.called && !ahead.looks)
    }

    fn lets_pass(&self) -> bool {
        self.choosy == self.waiting.len()
            && self
                .waiting
                .iter()
                .all(|waiter| !waiter.called && !waiter.looks)
    }

    /// Calls whoever waits longest. One who has tried some endpoints in vain may have no use for the room that there is: so
    /// of those who wait for the same, whatever that is, each first one.
    fn call(&mut self) -> Option<Waker> {
        if self.choosy == 0 {
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

    /// Whom to wake: the first who was called, unless somebody before it has not looked yet.
    fn next(&mut self) -> Option<Waker> {
        let next = self
            .waiting
            .iter_mut()
            .find(|waiter| waiter.called || waiter.looks)?;
        match next.looks {
            true => None,
            false => next.waker.take(),
        }
    }
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    waker: Option<Waker>,
    /// What it has tried in vain, as a number; 0: nothing.
    tried: u64,
    /// Whether something may have changed since it last looked. Only of the first of those who wait for the same.
    called: bool,
    /// It looks now.
    looks: bool,
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
        let choosy = Client::who_tried(&service, 7);
        assert!(!queue.lets_pass(), "it has not looked yet");
        assert!(choosy.has_turn());
        assert!(!queue.lets_pass(), "it looks");
        assert!(!choosy.has_turn());
        assert!(queue.lets_pass(), "there is nothing for it");

        let plain = Client::join(&service);
        assert!(!queue.lets_pass());
        assert!(plain.has_turn(), "the first look is free behind it, too");
        assert!(!plain.has_turn());

        // There is room: who came first looks first, and then the other, who may have use for it.
        queue.wake_head();
        assert_eq!((choosy.wakes(), plain.wakes()), (1, 0));
        assert!(!plain.has_turn());
        assert!(choosy.has_turn());
        assert!(!plain.has_turn());
        assert!(!choosy.has_turn());
        assert_eq!((choosy.wakes(), plain.wakes()), (1, 1));
        assert!(plain.has_turn());
    }

    #[test]
    fn of_those_who_wait_for_the_same_one_looks() {
        let service = service();
        let line: Vec<_> = [0, 7, 7, 0, 9, 7]
            .map(|tried| Client::who_tried(&service, tried))
            .into();
        let looks = || -> Vec<bool> {
            let mut looks = Vec::new();
            for client in &line {
                looks.push(client.has_turn());
                client.has_turn();
            }
            looks
        };
        assert_eq!(looks(), [true, true, false, false, true, false]);
        assert_eq!(looks(), [false; 6]);
        service.queue().wake_head();
        assert_eq!(looks(), [true, true, false, false, true, false]);
    }

    #[test]
    fn who_gives_up_before_its_look_passes_the_turn_on_whatever_it_tried() {
        let service = service();
        let choosy = Client::who_tried(&service, 7);
        let plain = Client::join(&service);
        for client in [&choosy, &plain] {
            assert!(client.has_turn());
            assert!(!client.has_turn());
        }
        service.queue().wake_head();
        drop(choosy);
        assert_eq!(plain.wakes(), 1);
        assert!(plain.has_turn());
    }
}
