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

fn state() -> Arc<AdmitState> {
    Arc::new(AdmitState::new(1))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const NOW: Moment = Moment(10_000);

#[test]
fn a_denied_client_counts_nowhere() {
    let state = state();
    let limits = Limits {
        sources: Some(PrefixSet::new(["192.0.2.0/24".parse().unwrap()])),
        rate: Some(1),
        connections_per_client: Some(1),
        ..Limits::default()
    };
    let admit = |client| state.admit(&limits, ip(client), NOW, None);
    for client in ["198.51.100.1", "2001:db8::1"] {
        assert_eq!(admit(client).unwrap_err(), Refusal::SourceRange);
    }
    assert_eq!((state.current(), state.peak()), (0, 0));
    let admission = admit("::ffff:192.0.2.9").unwrap();
    assert_eq!(state.current(), 1);
    drop(admission);
    assert_eq!((state.current(), state.peak()), (0, 1));
}

#[test]
fn a_permit_that_nobody_came_for_is_no_peak() {
    let state = state();
    let limits = Limits {
        connections: Some(2),
        ..Limits::default()
    };
    let permit = || match state.may_accept(&limits, NOW, Waker::noop()) {
        Accept::Now(permit) => permit,
        other => panic!("{other:?}"),
    };
    let first = permit().used();
    drop(permit());
    assert_eq!((state.current(), state.peak()), (1, 1));
    drop(first);
}

#[test]
fn a_full_frontend_refuses_until_somebody_leaves() {
    let state = state();
    let limits = Limits {
        connections: Some(2),
        ..Limits::default()
    };
    let admit = || state.admit(&limits, ip("10.0.0.1"), NOW, None);
    let (first, second) = (admit().unwrap(), admit().unwrap());
    assert_eq!(admit().unwrap_err(), Refusal::MaxConnections);
    drop(first);
    let third = admit().unwrap();
    assert_eq!(admit().unwrap_err(), Refusal::MaxConnections);
    drop((second, third));
    assert_eq!(state.current(), 0);
}

#[test]
fn a_rate_that_is_exceeded_holds_no_place() {
    let state = state();
    let limits = Limits {
        rate: Some(2),
        ..Limits::default()
    };
    let admit = |now| state.admit(&limits, ip("10.0.0.1"), now, None);
    let held = (admit(NOW).unwrap(), admit(NOW).unwrap());
    assert_eq!(admit(NOW).unwrap_err(), Refusal::MaxConnections);
    assert_eq!(state.current(), 2);
    drop(held);
    assert!(admit(NOW).is_err(), "a rate counts beginnings");
    assert!(admit(Moment(NOW.0 + 500)).is_ok());
}

#[test]
fn limits_per_client_are_each_clients_own() {
    let state = state();
    let limits = Limits {
        connections_per_client: Some(2),
        rate_per_client: Some(3),
        ..Limits::default()
    };
    let admit = |client| state.admit(&limits, ip(client), NOW, None);
    let (first, second) = (admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap());
    assert_eq!(
        admit("2001:db8::3").unwrap_err(),
        Refusal::MaxConnectionsPerClient
    );
    let other = admit("2001:db8:0:1::3").unwrap();
    drop(first);
    let third = admit("2001:db8::4").unwrap();
    drop(third);
    assert_eq!(
        admit("2001:db8::5").unwrap_err(),
        Refusal::MaxConnectionRatePerClient
    );
    drop((second, other));
    assert_eq!(state.current(), 0);
}

#[test]
fn a_client_over_its_limit_uses_up_nothing_of_the_others() {
    let state = state();
    let limits = Limits {
        rate: Some(10),
        connections_per_client: Some(1),
        ..Limits::default()
    };
    let greedy = state.admit(&limits, ip("10.0.0.1"), NOW, None).unwrap();
    for _ in 0..100 {
        assert!(state.admit(&limits, ip("10.0.0.1"), NOW, None).is_err());
    }
    for n in 2..=10 {
        let client = IpAddr::from([10, 0, 0, n]);
        drop(state.admit(&limits, client, NOW, None).unwrap());
    }
    drop(greedy);
}

#[test]
fn a_client_that_was_refused_by_the_frontend_is_not_counted() {
    let state = state();
    let limits = Limits {
        connections: Some(0),
        connections_per_client: Some(1),
        ..Limits::default()
    };
    for _ in 0..3 {
        let refused = state.admit(&limits, ip("10.0.0.1"), NOW, None);
        assert_eq!(refused.unwrap_err(), Refusal::MaxConnections);
    }
    assert_eq!(state.clients.get().unwrap().len(), 0);
}

#[test]
fn clients_without_connections_are_forgotten() {
    let state = state();
    let limits = Limits {
        connections_per_client: Some(1),
        ..Limits::default()
    };
    let held: Vec<_> = (0..200)
        .map(|n| state.admit(&limits, IpAddr::from([10, 0, 0, n]), NOW, None))
        .collect();
    assert_eq!(state.clients.get().unwrap().len(), 200);
    drop(held);
    assert_eq!(state.clients.get().unwrap().len(), 0);
}

#[test]
fn a_peer_is_judged_once_it_says_who_its_client_is() {
    let state = state();
    let limits = Limits {
        sources: Some(PrefixSet::new(["192.0.2.0/24".parse().unwrap()])),
        connections_per_client: Some(1),
        ..Limits::default()
    };
    let mut first = state.admit_peer(&limits, NOW, None).unwrap();
    assert_eq!(
        first.identify(&limits, ip("10.0.0.1"), NOW),
        Err(Refusal::SourceRange)
    );
    assert_eq!(first.identify(&limits, ip("192.0.2.1"), NOW), Ok(()));
    let mut second = state.admit_peer(&limits, NOW, None).unwrap();
    assert_eq!(
        second.identify(&limits, ip("192.0.2.1"), NOW),
        Err(Refusal::MaxConnectionsPerClient)
    );
    drop(first);
    assert_eq!(second.identify(&limits, ip("192.0.2.1"), NOW), Ok(()));
    drop(second);
    assert_eq!(state.clients.get().unwrap().len(), 0);
}

#[test]
fn a_waiting_loop_is_woken_by_every_release() {
    let state = state();
    let limits = Limits {
        connections: Some(1),
        ..Limits::default()
    };
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let Accept::Now(permit) = state.may_accept(&limits, NOW, &waker) else {
        panic!("there is room");
    };
    for round in 1..=3 {
        let asked = state.may_accept(&limits, NOW, &waker);
        assert!(matches!(asked, Accept::WhenReleased(_)));
        let admission = if round == 1 {
            state.admit(&limits, ip("10.0.0.1"), NOW, None)
        } else {
            Err(Refusal::Failed)
        };
        assert!(admission.is_err());
        assert_eq!(woken.0.load(Ordering::SeqCst), round - 1);
        state.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), round);
    }
    let asked = state.may_accept(&limits, NOW, &waker);
    assert!(matches!(asked, Accept::WhenReleased(_)));
    drop(permit.used());
    assert_eq!(woken.0.load(Ordering::SeqCst), 4);
    assert!(matches!(
        state.may_accept(&limits, NOW, &waker),
        Accept::Now(_)
    ));
}

#[test]
fn a_place_wakes_one_who_waits_and_the_next_if_that_one_has_left() {
    let state = state();
    let limits = Limits {
        connections: Some(1),
        ..Limits::default()
    };
    let woken: Vec<_> = (0..3).map(|_| Arc::new(Woken::default())).collect();
    let Accept::Now(permit) = state.may_accept(&limits, NOW, Waker::noop()) else {
        panic!("there is room");
    };
    let mut waiting: Vec<_> = woken
        .iter()
        .map(|woken| state.may_accept(&limits, NOW, &Waker::from(Arc::clone(woken))))
        .collect();
    let called = || -> Vec<u32> {
        let count = |woken: &Arc<Woken>| woken.0.load(Ordering::SeqCst);
        woken.iter().map(count).collect()
    };
    drop(permit.used());
    assert_eq!(called(), [1, 0, 0]);
    drop(waiting.remove(0));
    assert_eq!(called(), [1, 1, 0], "the first was called and did not come");
    let Accept::WhenReleased(second) = waiting.remove(0) else {
        panic!("there was no room");
    };
    let call = second.finish().expect("it was called");
    call.consume();
    assert_eq!(called(), [1, 1, 0], "the second came");
    drop(waiting);
    assert_eq!(called(), [1, 1, 0], "the third left uncalled");
}

#[test]
fn who_was_called_and_has_to_wait_elsewhere_passes_the_call_on() {
    let (process, frontend) = (state(), state());
    let limits = |connections| Limits {
        connections: Some(connections),
        ..Limits::default()
    };
    let place = |state: &Arc<AdmitState>, most, waker: &Waker| match state.may_accept(
        &limits(most),
        NOW,
        waker,
    ) {
        Accept::Now(permit) => Ok(permit.used()),
        Accept::WhenReleased(waiting) => Err(waiting),
        Accept::At(_) => unreachable!("there is no rate"),
    };
    let woken: Vec<_> = (0..3).map(|_| Arc::new(Woken::default())).collect();
    let wakers: Vec<_> = woken
        .iter()
        .map(|woken| Waker::from(Arc::clone(woken)))
        .collect();
    let called = || -> Vec<u32> {
        let count = |woken: &Arc<Woken>| woken.0.load(Ordering::SeqCst);
        woken.iter().map(count).collect()
    };
    let mut inside: Vec<_> = (0..2)
        .map(|_| place(&process, 2, Waker::noop()).unwrap())
        .collect();
    let mut line: Vec<_> = wakers
        .iter()
        .map(|waker| place(&process, 2, waker).unwrap_err())
        .collect();
    assert_eq!(process.waiting(), 3);

    // The first one takes the only room of its frontend, and one of the process.
    inside.pop();
    let call = line.remove(0).finish().expect("it was called");
    let _long = (
        place(&frontend, 1, &wakers[0]).unwrap(),
        place(&process, 2, &wakers[0]).unwrap(),
    );
    call.consume();
    assert_eq!(called(), [1, 0, 0]);

    // The second one is of the same frontend, and waits there from now on.
    inside.pop();
    let call = line.remove(0).finish();
    let _there = place(&frontend, 1, &wakers[1]).unwrap_err();
    assert_eq!(called(), [1, 1, 0]);
    drop(call);
    assert_eq!(
        called(),
        [1, 1, 1],
        "the third need not wait beside a free place"
    );
    assert!(line.remove(0).finish().is_some());
    assert!(place(&process, 2, &wakers[2]).is_ok());
}

#[test]
fn who_was_not_called_has_no_call_to_pass_on() {
    let state = state();
    let limits = Limits {
        connections: Some(0),
        ..Limits::default()
    };
    let Accept::WhenReleased(waiting) = state.may_accept(&limits, NOW, Waker::noop()) else {
        panic!("there is no room");
    };
    assert!(waiting.finish().is_none());
    assert_eq!(state.waiting(), 0);
}

#[test]
fn a_permit_that_is_not_used_gives_its_rate_back() {
    let state = state();
    let limits = Limits {
        rate: Some(1),
        ..Limits::default()
    };
    for _ in 0..5 {
        let asked = state.may_accept(&limits, NOW, Waker::noop());
        assert!(matches!(asked, Accept::Now(_)));
    }
    let Accept::Now(permit) = state.may_accept(&limits, NOW, Waker::noop()) else {
        panic!("there is one");
    };
    let admission = state
        .admit(&limits, ip("10.0.0.1"), NOW, Some(permit))
        .unwrap();
    let Accept::At(when) = state.may_accept(&limits, NOW, Waker::noop()) else {
        panic!("the rate is used up");
    };
    assert_eq!(when, Moment(NOW.0 + 1000));
    drop(admission);
    assert_eq!(state.current(), 0);
}

#[test]
fn two_loops_never_accept_for_one_place() {
    let state = state();
    let limits = Limits {
        connections: Some(2),
        ..Limits::default()
    };
    let most = AtomicU32::new(0);
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    if let Accept::Now(permit) = state.may_accept(&limits, NOW, Waker::noop()) {
                        let held = permit.used();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(held);
                    }
                }
            });
        }
    });
    assert!(most.into_inner() <= 2);
    assert_eq!(state.current(), 0);
}

/// A thread that waits like an accept loop: parked until it is woken.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn no_loop_sleeps_for_ever() {
    let state = state();
    let limits = Limits {
        connections: Some(1),
        ..Limits::default()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                let mut accepted = 0;
                while accepted < 2_000 {
                    match state.may_accept(&limits, NOW, &waker) {
                        Accept::Now(permit) => {
                            drop(permit.used());
                            accepted += 1;
                        }
                        Accept::WhenReleased(waiting) => {
                            std::thread::park();
                            waiting.finish().into_iter().for_each(Wakeup::consume);
                        }
                        Accept::At(_) => unreachable!("there is no rate"),
                    }
                }
            });
        }
    });
    assert_eq!((state.current(), state.peak()), (0, 1));
}

/// Of the room that connections leave, requests get three quarters, rounded up.
#[test]
fn requests_leave_room_for_connections_and_find_room_beside_many() {
    for (most, connections, requests) in [
        (20, 0, 15),
        (20, 1, 15),
        (20, 10, 8),
        (20, 16, 3),
        (20, 19, 1),
        (20, 20, 0),
        (1, 0, 1),
        (0, 0, 0),
        // The limit has fallen.
        (10, 12, 0),
    ] {
        let state = state();
        let limits = Limits::default();
        let admit = || state.admit_peer(&limits, NOW, None).unwrap();
        let _inside: Vec<_> = (0..connections).map(|_| admit()).collect();
        let served: Vec<_> = std::iter::from_fn(|| state.admit_request(most)).collect();
        assert_eq!(served.len(), requests, "{connections} of {most}");
        assert_eq!(state.current() as usize, connections + requests);
        drop(served);
        assert_eq!(state.current() as usize, connections);
    }
}

#[test]
fn a_waiting_request_is_woken_after_the_accept_loops() {
    let state = state();
    let limits = Limits {
        connections: Some(1),
        ..Limits::default()
    };
    let woken: Vec<_> = (0..3).map(|_| Arc::new(Woken::default())).collect();
    let [request, other, accept_loop] = [0, 1, 2].map(|at| Waker::from(Arc::clone(&woken[at])));
    let called = || [0, 1, 2].map(|at| woken[at].0.load(Ordering::SeqCst));
    let inside = state.admit_peer(&limits, NOW, None).unwrap();
    let waiting = state.may_request(1, &request).unwrap_err();
    let _behind = state.may_request(1, &other).unwrap_err();
    let Accept::WhenReleased(loops) = state.may_accept(&limits, NOW, &accept_loop) else {
        panic!("there is no room");
    };
    drop(inside);
    assert_eq!(called(), [0, 0, 1]);
    // There was no connection for it.
    drop(loops);
    assert_eq!(called(), [1, 0, 1]);
    waiting.finish().expect("it was called").consume();
    let admission = state.may_request(1, &request).unwrap();
    assert_eq!(called(), [1, 0, 1]);
    drop(admission);
    assert_eq!(called(), [1, 1, 1]);
}

#[test]
fn no_request_sleeps_for_ever_beside_accept_loops() {
    const MOST: u32 = 3;
    let state = state();
    let limits = Limits {
        connections: Some(MOST),
        ..Limits::default()
    };
    let accept = |waker: &Waker| match state.may_accept(&limits, NOW, waker) {
        Accept::Now(permit) => Ok(permit.used()),
        Accept::WhenReleased(waiting) => Err(waiting),
        Accept::At(_) => unreachable!("there is no rate"),
    };
    let request = |waker: &Waker| state.may_request(MOST, waker);
    let serve = |ask: &dyn Fn(&Waker) -> Result<Admission, Waiting>| {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut served = 0;
        while served < 2_000 {
            match ask(&waker) {
                Ok(admission) => {
                    std::thread::yield_now();
                    drop(admission);
                    served += 1;
                }
                Err(waiting) => {
                    std::thread::park();
                    waiting.finish().into_iter().for_each(Wakeup::consume);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| serve(&accept));
            scope.spawn(|| serve(&request));
        }
    });
    assert_eq!((state.current(), state.waiting()), (0, 0));
    assert!(state.peak() <= MOST);
}

#[test]
fn every_refusal_has_its_own_word_and_place() {
    for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
        assert_eq!(refusal.index(), place);
        let same = Refusal::ALL
            .iter()
            .filter(|other| other.word() == refusal.word());
        assert_eq!(same.count(), 1, "{refusal}");
    }
}
