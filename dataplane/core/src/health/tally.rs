//! What checks have made of a service as a whole.
//!
//! Kept with the service's other state. [`super::Checks`] writes it, whoever shows services reads it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A service's own record of its checks; it survives swaps, and endpoints that leave.
#[derive(Debug, Default)]
pub struct Tally {
    nobody_left: AtomicBool,
    flaps: AtomicU64,
}

impl Tally {
    /// Whether there are endpoints, but none that clients are sent to has checks that pass.
    #[must_use]
    pub fn nobody_left(&self) -> bool {
        self.nobody_left.load(Ordering::Relaxed)
    }

    /// How often an endpoint went down within a minute of having come back.
    #[must_use]
    pub fn flaps(&self) -> u64 {
        self.flaps.load(Ordering::Relaxed)
    }

    /// Notes whether anybody is left. Says whether that is news.
    pub(super) fn note(&self, nobody_left: bool) -> bool {
        self.nobody_left.swap(nobody_left, Ordering::Relaxed) != nobody_left
    }

    pub(super) fn flapped(&self) {
        self.flaps.fetch_add(1, Ordering::Relaxed);
    }
}
