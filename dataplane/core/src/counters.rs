//! Counters that cost a worker one plain addition.
//!
//! Every counter has one cell for each worker. A cell is allocated when its worker first counts there, and the cells are summed
//! when the counter is read. Only its worker writes a cell; any thread may read it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// One worker's part of a counter. Only its worker writes it, so a load and a store are enough.
#[derive(Debug, Default)]
pub struct Cell(AtomicU64);

impl Cell {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts `n`, for cells that hold a level.
    pub fn take(&self, n: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_sub(n), Ordering::Relaxed);
    }

    /// Resets the cell. Only its worker may call this.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The present value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of a worker, from 0. Only workers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId(pub usize);

/// A `T` for each worker, created when the worker first needs it.
#[derive(Debug)]
pub struct PerWorker<T>(Box<[OnceLock<Box<T>>]>);

impl<T: Default> PerWorker<T> {
    /// Creates room for `workers` workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| OnceLock::new()).collect())
    }

    /// The cells of `worker`. A number out of range shares the last worker's cells.
    pub fn of(&self, worker: WorkerId) -> &T {
        let last = self.0.len() - 1;
        self.0[worker.0.min(last)].get_or_init(Box::default)
    }

    /// The cells of `worker`, if it has ever counted.
    #[must_use]
    pub fn if_any(&self, worker: WorkerId) -> Option<&T> {
        self.0.get(worker.0)?.get().map(Box::as_ref)
    }

    /// The cells of all workers that have ever counted.
    pub fn each(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|cell| cell.get().map(Box::as_ref))
    }

    /// The sum of one counter over all workers.
    pub fn sum(&self, counter: impl Fn(&T) -> &Cell) -> u64 {
        self.each()
            .fold(0, |sum, cells| sum.wrapping_add(counter(cells).value()))
    }
}
