//! How tests wait. A test that waits for something asks [`until`] for it and goes on as soon as it is there. Time that passes as a part
//! of the test is a [`pause`].

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until `come` says yes. Fails after 20 seconds, with these words.
pub fn until(what: impl Display, come: impl FnMut() -> bool) {
    until_within(PATIENCE, what, come);
}

/// The same with another patience.
pub fn until_within(patience: Duration, what: impl Display, come: impl FnMut() -> bool) {
    assert!(comes_within(patience, come), "it never came: {what}");
}

/// Whether something comes in this time.
pub fn comes_within(patience: Duration, mut come: impl FnMut() -> bool) -> bool {
    found_within(patience, || come().then_some(())).is_some()
}

/// The result of `find`, which is called until it finds something, or until this time is over.
pub fn found_within<T>(patience: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = find();
        if found.is_some() || begun.elapsed() > patience {
            return found;
        }
        thread::sleep(next_look(begun));
    }
}

/// As [`until`], on a runtime.
pub async fn until_async(what: impl Display, come: impl FnMut() -> bool) {
    let in_time = comes_within_async(PATIENCE, come).await;
    assert!(in_time, "it never came: {what}");
}

/// As [`comes_within`], on a runtime.
pub async fn comes_within_async(patience: Duration, mut come: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !come() {
        if begun.elapsed() > patience {
            return false;
        }
        tokio::time::sleep(next_look(begun)).await;
    }
    true
}

/// Time that passes because the test is about it: a peer is slow, events follow one another at a distance, or nothing may happen for
/// so long.
pub fn pause(time: Duration) {
    thread::sleep(time);
}

/// The same on a runtime.
pub async fn pause_async(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Short beside what has been waited so far, and long enough that looking costs little.
fn next_look(begun: Instant) -> Duration {
    (begun.elapsed() / 20).clamp(Duration::from_micros(200), Duration::from_millis(50))
}

const PATIENCE: Duration = Duration::from_secs(20);
