//! `ballast`, started in the test's own process, in tests that measure times, weigh this process or open as many connections as a
//! machine permits. Those of `intake` are here because tables are read at a low priority. `tests/all` runs nothing beside them.

mod closing;
mod fairness;
mod intake;
mod limits;
mod loops;
mod swap;
mod thousands;
mod udp_flood;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by each of these tests, so that they run one after another, however many threads there are.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
