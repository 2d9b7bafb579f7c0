//! A number that rises and falls, and the highest value that it had.

use std::sync::atomic::{AtomicU32, Ordering};

/// A number of connections, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    current: AtomicU32,
    peak: AtomicU32,
}

impl Gauge {
    pub(crate) fn current(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Resets the peak to the current number.
    pub(crate) fn forget_peak(&self) {
        self.peak.store(self.current(), Ordering::Relaxed);
    }

    /// Adds 1, unless the number is `max` already. Returns the new number. The peak is the caller's to note.
    pub(crate) fn add_below(&self, max: u32) -> Option<u32> {
        let mut held = self.current();
        loop {
            if held >= max {
                return None;
            }
            let taken = self.current.compare_exchange_weak(
                held,
                held + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => return Some(held + 1),
                Err(now) => held = now,
            }
        }
    }

    /// Adds 1, and notes the peak.
    pub(crate) fn add(&self) {
        self.note(self.current.fetch_add(1, Ordering::Relaxed) + 1);
    }

    /// Subtracts 1. With `SeqCst`, a later look at those who wait for room is ordered after it.
    pub(crate) fn subtract(&self, ordering: Ordering) {
        self.current.fetch_sub(1, ordering);
    }

    /// Makes `reached` the peak if it is higher. Most calls only read.
    pub(crate) fn note(&self, reached: u32) {
        if reached > self.peak() {
            self.peak.fetch_max(reached, Ordering::Relaxed);
        }
    }
}
