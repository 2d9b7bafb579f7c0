//! Counters that cost a worker one plain addition, and their one declaration.
//!
//! Every counter has one cell for each worker. A cell is allocated when its worker first counts there, and the cells are summed
//! when the counter is read. Only its worker writes a cell; any thread may read it.
//!
//! [`counters!`](crate::counters!) declares the cells of a worker together with their sums, and with what renderings need to
//! know of each counter. Adding a counter is adding a line there; a counter for which haproxy has a column is also named in
//! the line of that column.

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

    /// Continues from this number. Only its worker may call this, or who knows that it counts nothing yet.
    pub fn resume(&self, kind: Kind, number: u64) {
        self.0
            .store(kind.both(self.value(), number), Ordering::Relaxed);
    }

    /// Resets the cell. Only its worker may call this.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The present value.
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
    pub fn new(workers: usize) -> Self {
        Self((0..workers.max(1)).map(|_| OnceLock::new()).collect())
    }

    /// The cells of `worker`. A number out of range shares the last worker's cells.
    pub fn of(&self, worker: WorkerId) -> &T {
        let last = self.0.len() - 1;
        self.0[worker.0.min(last)].get_or_init(Box::default)
    }

    /// The cells of `worker`, if it has ever counted.
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

/// How the numbers of two workers become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are added. What had been counted when counters were cleared is subtracted.
    Sum,
    /// The largest is taken. Workers forget it when counters are cleared, so nothing is subtracted.
    Most,
}

impl Kind {
    /// One number of two.
    #[inline]
    pub const fn both(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Sum => one.wrapping_add(other),
            Self::Most if other > one => other,
            Self::Most => one,
        }
    }

    /// What was counted since the counters were cleared.
    #[inline]
    pub const fn since(self, now: u64, cleared: u64) -> u64 {
        match self {
            Self::Sum => now.saturating_sub(cleared),
            Self::Most => now,
        }
    }
}

/// The declaration of one counter, which is a field of the sums `C`.
#[derive(Debug)]
pub struct Counter<C> {
    /// Its field in `C`, which is its key in JSON as well.
    pub name: &'static str,
    /// Whether JSON has it under its name. What has another name or another place there is written by hand.
    pub in_json: bool,
    /// The name and the meaning of its family of metrics, if it has one of its own.
    pub metric: Option<(&'static str, &'static str)>,
    /// Its word among the failures, if it counts one. The failures of a counter by reason are called by their reasons.
    pub failure: Option<&'static str>,
    /// Its value.
    pub read: for<'a> fn(&'a C) -> Reading<'a>,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// One number, or one for each reason.
    pub counts: &'a [u64],
    /// What the reason at a place of `counts` is called; `None`: it is not counted by reason.
    pub reason: Option<fn(usize) -> &'static str>,
}

impl<'a> Reading<'a> {
    /// Each reason and its count. Without reasons it is one count, called `name`.
    pub fn each(self, name: &'static str) -> impl Iterator<Item = (&'static str, u64)> + 'a {
        let reason = move |place| self.reason.map_or(name, |reason| reason(place));
        let counts = self.counts.iter().enumerate();
        counts.map(move |(place, count)| (reason(place), *count))
    }
}

impl<C> Counter<C> {
    /// A counter that no rendering shows by itself.
    pub const fn new(name: &'static str, read: for<'a> fn(&'a C) -> Reading<'a>) -> Self {
        Self {
            name,
            in_json: false,
            metric: None,
            failure: None,
            read,
        }
    }

    /// JSON has it under its name.
    #[must_use]
    pub const fn json(mut self) -> Self {
        self.in_json = true;
        self
    }

    /// It is a family of metrics.
    #[must_use]
    pub const fn metric(mut self, name: &'static str, help: &'static str) -> Self {
        self.metric = Some((name, help));
        self
    }

    /// It counts failures, which are called so.
    #[must_use]
    pub const fn failure(mut self, word: &'static str) -> Self {
        self.failure = Some(word);
        self
    }
}

/// The sums of counters over all workers. Only [`counters!`](crate::counters!) implements it.
pub trait Counts: Copy + Default + 'static {
    /// What one worker counts.
    type Cells: Default;

    /// All counters, in the order of their declaration.
    const COUNTERS: &'static [Counter<Self>];

    /// Adds what one worker has counted.
    fn add(&mut self, cells: &Self::Cells);

    /// Adds what was counted elsewhere.
    fn merge(&mut self, other: &Self);

    /// What was counted since the counters were `cleared`.
    fn subtract(&mut self, cleared: &Self);

    /// Continues a counter of these cells, into which no worker counts yet, from the numbers of another process.
    fn resume(cells: &Self::Cells, counter: &str, numbers: &[u64]);

    /// What all workers have counted.
    fn of(all: Option<&PerWorker<Self::Cells>>) -> Self {
        let mut sum = Self::default();
        for cells in all.into_iter().flat_map(PerWorker::each) {
            sum.add(cells);
        }
        sum
    }

    /// What failed, and how often.
    fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Self::COUNTERS.iter().flat_map(|counter| {
            let failure = counter.failure.into_iter();
            failure.flat_map(|word| (counter.read)(self).each(word))
        })
    }

    /// How much failed in all.
    fn failed(&self) -> u64 {
        self.failures().map(|(_, count)| count).sum()
    }
}

/// Declares what one worker counts for one thing, and what all workers together have counted for it: two structs, the
/// second of which is [`Counts`]. A line is a name, how the numbers of two workers become one, for
/// a counter by reason the reasons in brackets, and behind `=>` where it is shown: see the methods of
/// [`Counter`]. A number under `besides` has no cells: the reader of the counters fills it in.
#[macro_export]
macro_rules! counters {
    (@cell) => { $crate::counters::Cell };
    (@cell [$reason:ty]) => { [$crate::counters::Cell; <$reason>::ALL.len()] };
    (@count) => { u64 };
    (@count [$reason:ty]) => { [u64; <$reason>::ALL.len()] };
    (@each $this:ident $other:ident $name:ident |$one:ident, $two:ident| $both:expr) => {{
        let ($one, $two) = (&mut $this.$name, &$other.$name);
        $both
    }};
    (@each $this:ident $other:ident $name:ident [$reason:ty] |$one:ident, $two:ident| $both:expr) => {
        for ($one, $two) in $this.$name.iter_mut().zip(&$other.$name) {
            $both
        }
    };
    (@resume $cells:ident $name:ident $kind:ident $numbers:ident) => {
        if let Some(number) = $numbers.first() {
            $cells.$name.resume($crate::counters::Kind::$kind, *number);
        }
    };
    (@resume $cells:ident $name:ident $kind:ident [$reason:ty] $numbers:ident) => {
        for (cell, number) in $cells.$name.iter().zip($numbers) {
            cell.resume($crate::counters::Kind::$kind, *number);
        }
    };
    (@counter $name:ident) => {
        $crate::counters::Counter::<Self>::new(stringify!($name), |counts| $crate::counters::Reading {
            counts: ::std::slice::from_ref(&counts.$name),
            reason: None,
        })
    };
    (@counter $name:ident [$reason:ty]) => {
        $crate::counters::Counter::<Self>::new(stringify!($name), |counts| $crate::counters::Reading {
            counts: &counts.$name[..],
            reason: Some(|place| <$reason>::ALL.get(place).map_or("", |reason| reason.word())),
        })
    };
    (
        $(#[$of_cells:meta])* $vis:vis $cells:ident,
        $(#[$of_counts:meta])* $counts:ident
        { $($(#[$doc:meta])* $name:ident: $kind:ident $([$reason:ty])? $(=> $($shown:ident($($text:literal),*)),+)?;)* }
        $(besides { $($(#[$more_doc:meta])* $more:ident: $more_kind:ident $([$more_reason:ty])? $(=> $($more_shown:ident($($more_text:literal),*)),+)?;)* })?
    ) => {
        $(#[$of_cells])*
        #[derive(Debug, Default)]
        $vis struct $cells { $($(#[$doc])* pub $name: $crate::counters!(@cell $([$reason])?),)* }

        $(#[$of_counts])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $counts {
            $($(#[$doc])* pub $name: $crate::counters!(@count $([$reason])?),)*
            $($($(#[$more_doc])* pub $more: $crate::counters!(@count $([$more_reason])?),)*)?
        }

        impl $crate::counters::Counts for $counts {
            type Cells = $cells;

            const COUNTERS: &'static [$crate::counters::Counter<Self>] = &[
                $($crate::counters!(@counter $name $([$reason])?)$($(.$shown($($text),*))+)?,)*
                $($($crate::counters!(@counter $more $([$more_reason])?)$($(.$more_shown($($more_text),*))+)?,)*)?
            ];

            fn add(&mut self, cells: &$cells) {
                use $crate::counters::Kind;
                $($crate::counters!(@each self cells $name $([$reason])? |sum, cell| *sum = Kind::$kind.both(*sum, cell.value()));)*
            }

            fn resume(cells: &$cells, counter: &str, numbers: &[u64]) {
                match counter {
                    $(stringify!($name) => $crate::counters!(@resume cells $name $kind $([$reason])? numbers),)*
                    _ => {}
                }
            }

            fn merge(&mut self, other: &Self) {
                use $crate::counters::Kind;
                $($crate::counters!(@each self other $name $([$reason])? |one, two| *one = Kind::$kind.both(*one, *two));)*
                $($($crate::counters!(@each self other $more $([$more_reason])? |one, two| *one = Kind::$more_kind.both(*one, *two));)*)?
            }

            fn subtract(&mut self, cleared: &Self) {
                use $crate::counters::Kind;
                $($crate::counters!(@each self cleared $name $([$reason])? |now, then| *now = Kind::$kind.since(*now, *then));)*
                $($($crate::counters!(@each self cleared $more $([$more_reason])? |now, then| *now = Kind::$more_kind.since(*now, *then));)*)?
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Why {
        Late,
        Broken,
    }

    impl Why {
        const ALL: [Self; 2] = [Self::Late, Self::Broken];

        fn word(self) -> &'static str {
            ["late", "broken"][self as usize]
        }
    }

    counters! {
        /// What one worker counts.
        Cells,
        /// What all have counted.
        Sums {
            /// All that came.
            came: Sum => json(), metric("came_total", "What came.");
            /// All that failed.
            failed: Sum[Why] => failure("");
            /// All that was lost.
            lost: Sum => failure("lost");
            /// The longest.
            longest: Most;
        }
        besides {
            /// Filled in by the reader.
            downs: Sum;
        }
    }

    fn counted() -> PerWorker<Cells> {
        let all = PerWorker::<Cells>::new(3);
        for (worker, longest) in [(0, 7), (2, 5)] {
            let cells = all.of(WorkerId(worker));
            cells.came.add(10);
            cells.failed[Why::Broken as usize].add(2);
            cells.lost.add(1);
            cells.longest.add(longest);
        }
        all
    }

    #[test]
    fn what_is_declared_once_is_summed_and_described() {
        let sums = Sums::of(Some(&counted()));
        let expected = Sums {
            came: 20,
            failed: [0, 4],
            lost: 2,
            longest: 7,
            downs: 0,
        };
        assert_eq!(sums, expected);
        assert_eq!(Sums::of(None), Sums::default());
        let failures: Vec<_> = sums.failures().collect();
        assert_eq!(failures, [("late", 0), ("broken", 4), ("lost", 2)]);
        assert_eq!(sums.failed(), 6);
        let names: Vec<_> = Sums::COUNTERS.iter().map(|one| one.name).collect();
        assert_eq!(names, ["came", "failed", "lost", "longest", "downs"]);
        let came = &Sums::COUNTERS[0];
        assert!(came.in_json && came.metric == Some(("came_total", "What came.")));
        assert_eq!((came.read)(&sums).counts, [20]);
    }

    #[test]
    fn cleared_sums_are_subtracted_and_the_largest_stays() {
        let cleared = Sums {
            came: 15,
            failed: [1, 1],
            lost: 2,
            longest: 7,
            downs: 1,
        };
        let mut sums = Sums::of(Some(&counted()));
        sums.downs = 3;
        sums.subtract(&cleared);
        assert_eq!((sums.came, sums.failed, sums.lost), (5, [0, 3], 0));
        assert_eq!((sums.longest, sums.downs), (7, 2));
        sums.merge(&cleared);
        assert_eq!((sums.came, sums.failed, sums.longest), (20, [1, 4], 7));
    }
}
