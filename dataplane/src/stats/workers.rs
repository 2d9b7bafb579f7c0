//! What each worker thread has to do: whether all of them have about the same.

use std::sync::atomic::Ordering;

use ballast_core::counters::WorkerId;

use crate::worker::Shared;

/// One worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneWorker {
    /// Connections that it serves now.
    pub current: u64,
    /// Connections that it accepted.
    pub accepted: u64,
    /// ... of those, given to a worker that had fewer.
    pub handed_over: u64,
}

/// All of them, in the order of their numbers.
pub(super) fn each(shared: &Shared) -> Vec<OneWorker> {
    let loads = shared.loads.iter().enumerate();
    loads
        .map(|(worker, load)| {
            let counters = shared.counters.if_any(WorkerId(worker));
            OneWorker {
                current: load.load(Ordering::Relaxed) as u64,
                accepted: counters.map_or(0, |counters| counters.accepted.value()),
                handed_over: counters.map_or(0, |counters| counters.handed_over.value()),
            }
        })
        .collect()
}
