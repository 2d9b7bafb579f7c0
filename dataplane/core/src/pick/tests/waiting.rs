use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::queue::Ticket;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Like a dial: picks, and while all endpoints are full, waits for its turn. `None` if the client gave up.
fn pick_or_wait(
    service: &Service,
    n: u32,
    tried: &Tried,
    patience: u32,
    rng: &mut Rng,
) -> Option<Picked> {
    match service.pick(&client(n), tried, NOW, rng) {
        Ok(picked) => return Some(picked),
        Err(why) => assert_eq!(why, Unavailable::Full),
    }
    let ticket = Ticket::take(service.state(), usize::MAX, tried)?;
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut wakes = 0;
    loop {
        match ticket.poll_turn(&Context::from_waker(&waker)) {
            Poll::Ready(()) => {
                if let Ok(picked) = service.pick_in_turn(&client(n), tried, NOW, rng) {
                    return Some(picked);
                }
            }
            Poll::Pending if wakes == patience => return None,
            Poll::Pending => {
                std::thread::park();
                wakes += 1;
            }
        }
    }
}

#[test]
fn a_newcomer_does_not_overtake() {
    let service = service("", &[r#""max-connections": 1"#]);
    let mut rng = Rng::new(1);
    let held = service
        .pick(&client(1), &Tried::default(), NOW, &mut rng)
        .unwrap();
    let waits = Ticket::take(service.state(), 9, &Tried::default()).unwrap();
    drop(held);
    assert_eq!(
        index(&service, &client(2), &mut rng),
        Err(Unavailable::Full)
    );
    let cx = Context::from_waker(Waker::noop());
    assert!(waits.poll_turn(&cx).is_ready());
    let held = service
        .pick_in_turn(&client(1), &Tried::default(), NOW, &mut rng)
        .unwrap();
    drop((waits, held));
    assert!(index(&service, &client(2), &mut rng).is_ok());
}

#[test]
fn who_failed_at_one_endpoint_and_waits_for_another_leaves_the_first_to_others() {
    let service = service("", &["", r#""max-connections": 1"#]);
    let mut rng = Rng::new(1);
    let failed_at = |index: usize| {
        let mut tried = Tried::default();
        tried.note(&service.endpoints()[index], Failure::Refused);
        tried
    };
    let tried = failed_at(0);
    let held = service.pick(&client(1), &tried, NOW, &mut rng).unwrap();
    assert_eq!(held.index, 1);
    let full = service.pick(&client(2), &tried, NOW, &mut rng);
    assert_eq!(full.unwrap_err(), Unavailable::Full);

    let waits = Ticket::take(service.state(), 9, &tried).unwrap();
    let cx = Context::from_waker(Waker::noop());
    for n in 3..13 {
        // Each connection that ends is a reason to pick again.
        assert!(waits.poll_turn(&cx).is_ready());
        let looked = service.pick_in_turn(&client(2), &tried, NOW, &mut rng);
        assert_eq!(looked.unwrap_err(), Unavailable::Full);
        assert!(waits.poll_turn(&cx).is_pending());
        assert_eq!(index(&service, &client(n), &mut rng), Ok(0), "it has room");
    }
    assert!(waits.poll_turn(&cx).is_ready());
    assert!(waits.poll_turn(&cx).is_pending());

    // But not the endpoints that the waiting client waits for.
    drop(held);
    assert_eq!(
        index(&service, &client(13), &mut rng),
        Err(Unavailable::Full)
    );
    assert!(waits.poll_turn(&cx).is_ready());
    let picked = service.pick_in_turn(&client(2), &tried, NOW, &mut rng);
    assert_eq!(picked.unwrap().index, 1);
}

#[test]
fn a_recovered_endpoint_calls_who_waits() {
    let service = service("", &[r#""max-connections": 1"#, ""]);
    fail_checks(&service, 1);
    let mut rng = Rng::new(1);
    let held = service
        .pick(&client(1), &Tried::default(), NOW, &mut rng)
        .unwrap();
    let waits = Ticket::take(service.state(), 9, &Tried::default()).unwrap();
    let cx = Context::from_waker(Waker::noop());
    assert!(waits.poll_turn(&cx).is_ready());
    let look = |rng: &mut Rng| service.pick_in_turn(&client(2), &Tried::default(), NOW, rng);
    assert_eq!(look(&mut rng).unwrap_err(), Unavailable::Full);
    assert!(waits.poll_turn(&cx).is_pending());
    service.endpoints()[1].live().set_passing(true, NOW);
    assert!(waits.poll_turn(&cx).is_ready());
    assert_eq!(look(&mut rng).unwrap().index, 1);
    drop((held, waits));
}

/// No client waits for ever, no limit is exceeded, and every count returns to zero, although some clients give up.
#[test]
fn five_hundred_clients_share_three_places() {
    for name in ALGORITHMS {
        let service = service(&algorithm(name), &[r#""max-connections": 1"#; 3]);
        let inside: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
        let (served, gave_up, next) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for worker in 0..8_u64 {
                let (service, inside, served, gave_up, next) =
                    (&service, &inside, &served, &gave_up, &next);
                scope.spawn(move || {
                    let mut rng = Rng::new(worker);
                    loop {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if n >= 500 {
                            return;
                        }
                        let patience = if n % 5 == 0 { 1 } else { u32::MAX };
                        // Some clients try again, because one endpoint failed, and wait for the others.
                        let mut tried = Tried::default();
                        if let Some(failed) = service.endpoints().get((n % 7) as usize) {
                            tried.note(failed, Failure::Refused);
                        }
                        let picked = pick_or_wait(service, n, &tried, patience, &mut rng);
                        let Some(picked) = picked else {
                            gave_up.fetch_add(1, Ordering::SeqCst);
                            continue;
                        };
                        let inside = &inside[picked.index];
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(picked);
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(served.into_inner() + gave_up.into_inner(), 500, "{name}");
        assert!(service.state().queue().is_empty());
        for endpoint in service.endpoints() {
            assert_eq!(endpoint.live().in_flight(), 0, "{name}");
            assert!(endpoint.live().peak() <= 1, "{name}");
        }
    }
}
