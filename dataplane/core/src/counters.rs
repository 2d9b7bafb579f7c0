//! Counters that cost a worker one plain addition.
//!
//! Every counter is a cell per worker, allocated when that worker first counts there, and summed when somebody
//! looks. A cell has one writer, its worker; readers may be anywhere.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One worker's share of a count. Only its worker adds to it, so a load and a store are enough.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes `n` away, for cells that hold a level.
    pub fn take(&self, n: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_sub(n), Ordering::Relaxed);
    }

    /// Forgets what this worker has counted. Like counting, that is for this worker alone.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// What this worker has counted.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which worker counts. Worker numbers run from 0; nobody else counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId(pub usize);

/// A `T` for each worker, made when that worker first asks for it.
#[derive(Debug)]
pub struct PerWorker<T>(Box<[OnceLock<Box<T>>]>);

impl<T: Default> PerWorker<T> {
    /// Room for `workers` workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| OnceLock::new()).collect())
    }

    /// The cells of `worker`; a number out of range shares the last ones.
    pub fn of(&self, worker: WorkerId) -> &T {
        let last = self.0.len() - 1;
        self.0[worker.0.min(last)].get_or_init(Box::default)
    }

    /// The cells of `worker`, if it has ever counted.
    #[must_use]
    pub fn if_any(&self, worker: WorkerId) -> Option<&T> {
        self.0.get(worker.0)?.get().map(Box::as_ref)
    }

    /// What all workers hold, of those that ever counted.
    pub fn each(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|cell| cell.get().map(Box::as_ref))
    }

    /// The sum of one counter over all workers.
    pub fn sum(&self, counter: impl Fn(&T) -> &Cell) -> u64 {
        self.each()
            .fold(0, |sum, cells| sum.wrapping_add(counter(cells).value()))
    }
}
