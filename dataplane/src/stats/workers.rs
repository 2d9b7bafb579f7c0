//! What each worker thread has to do: whether all of them have about the same.

use std::sync::atomic::Ordering;

use ballast_core::counters::{Counts, WorkerId};

use crate::worker::{Shared, WorkerCounts};

/// One worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneWorker {
    /// Connections that it serves now.
    pub current: u64,
    /// What it has counted.
    pub counts: WorkerCounts,
}

/// All of them, in the order of their numbers.
pub(super) fn each(shared: &Shared) -> Vec<OneWorker> {
    let loads = shared.loads.iter().enumerate();
    loads
        .map(|(worker, load)| {
            let mut counts = WorkerCounts::default();
            if let Some(cells) = shared.counters.if_any(WorkerId(worker)) {
                counts.add(cells);
            }
            OneWorker {
                current: load.load(Ordering::Relaxed) as u64,
                counts,
            }
        })
        .collect()
}
