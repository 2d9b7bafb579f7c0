//! The results of the checks of a whole service.
//!
//! Kept with the service's other state. [`Checks`](crate::health::Checks) writes it; the statistics read it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The record of a service's checks. It survives swaps and the removal of endpoints.
#[derive(Debug, Default)]
pub struct ServiceChecks {
    nobody_left: AtomicBool,
    flaps: AtomicU64,
}

impl ServiceChecks {
    /// Whether there are endpoints, but no eligible one has passing checks.
    #[must_use]
    pub fn nobody_left(&self) -> bool {
        self.nobody_left.load(Ordering::Relaxed)
    }

    /// How often an endpoint went down within a minute of having come back.
    pub fn flaps(&self) -> u64 {
        self.flaps.load(Ordering::Relaxed)
    }

    /// Notes whether no endpoint is left. Returns whether that has changed.
    pub(crate) fn note(&self, nobody_left: bool) -> bool {
        self.nobody_left.swap(nobody_left, Ordering::Relaxed) != nobody_left
    }

    pub(crate) fn flapped(&self) {
        self.flaps.fetch_add(1, Ordering::Relaxed);
    }
}
