//! When checks are due: spread evenly, never synchronised, and limited in rate.
//!
//! Each check has a phase, which is a fixed part of its interval, and keeps to it while its state is steady. So checks that
//! came together once (at the start, when a switch failed, or when the process stalled) do not stay together. Phases are
//! assigned by the golden ratio, which always fills the largest gap, and each check comes early by a small random time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::moment::{Moment, whole_millis};
use crate::rng::Rng;

/// The due times. `T` is the id of a check.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    due: BinaryHeap<Reverse<(Moment, T)>>,
    next_phase: u32,
    pace: Pace,
}

/// The phase of a check within its interval, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase(u32);

impl<T: Ord + Copy> Schedule<T> {
    /// Creates a schedule of at most `rate` checks a second.
    pub(super) fn new(rate: u32, rng: &mut Rng) -> Self {
        Self {
            due: BinaryHeap::new(),
            next_phase: u32::try_from(rng.below(1 << 32)).unwrap_or(0),
            pace: Pace::new(rate),
        }
    }

    /// The phase of a new check.
    pub(super) fn phase(&mut self) -> Phase {
        self.next_phase = self.next_phase.wrapping_add(GOLDEN);
        Phase(self.next_phase)
    }

    pub(super) fn push(&mut self, due: Moment, check: T) {
        self.due.push(Reverse((due, check)));
    }

    /// The next check that is due at `now` and still wanted, with its due time.
    pub(super) fn pop(
        &mut self,
        now: Moment,
        is_wanted: impl Fn(&T) -> bool,
    ) -> Option<(Moment, T)> {
        loop {
            let Reverse((due, check)) = *self.due.peek()?;
            if is_wanted(&check) {
                if due > now || !self.pace.take(now) {
                    return None;
                }
                self.due.pop();
                return Some((due, check));
            }
            self.due.pop();
        }
    }

    /// Removes checks that are no longer wanted, if there are many in addition to `wanted` others.
    pub(super) fn tidy(&mut self, wanted: usize, is_wanted: impl Fn(&T) -> bool) {
        if self.due.len() > 2 * wanted + FEW {
            self.due.retain(|Reverse((_, check))| is_wanted(check));
        }
    }

    /// When to call [`pop`](Self::pop) again; it may still return nothing then.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let Reverse((due, _)) = self.due.peek()?;
        Some((*due).max(self.pace.free_at()))
    }

    /// How late the earliest check is.
    pub(super) fn late(&self, now: Moment) -> Duration {
        self.due
            .peek()
            .map_or(Duration::ZERO, |Reverse((due, _))| now.since(*due))
    }
}

impl Phase {
    /// The first due time after `now`, within `interval`.
    pub(super) fn first(self, interval: Duration, now: Moment) -> Moment {
        self.at_or_after(interval, now)
    }

    /// The due time after `last`, while the state is steady.
    pub(super) fn steady(self, interval: Duration, last: Moment, rng: &mut Rng) -> Moment {
        let half = Moment(last.0.saturating_add(whole_millis(interval) / 2));
        early(self.at_or_after(interval, half), interval, rng)
    }

    fn at_or_after(self, interval: Duration, moment: Moment) -> Moment {
        let interval = whole_millis(interval).max(1);
        let part = (u128::from(interval) * u128::from(self.0)) >> 32;
        let part = u64::try_from(part).unwrap_or(0);
        let rounds = moment.0.saturating_sub(part).div_ceil(interval);
        Moment(rounds.saturating_mul(interval).saturating_add(part))
    }
}

/// The due time after `last`, while the state is changing.
pub(super) fn soon(interval: Duration, last: Moment, rng: &mut Rng) -> Moment {
    early(last.after(interval), interval, rng)
}

/// Moves a due time forward by up to a twentieth of the interval.
fn early(due: Moment, interval: Duration, rng: &mut Rng) -> Moment {
    let most = whole_millis(interval) / 20;
    Moment(due.0.saturating_sub(rng.below(most + 1)))
}

/// Limits the rate, with bursts of at most a twentieth of a second's checks, so that waiting checks do not run all at once.
#[derive(Debug)]
struct Pace {
    /// In nanoseconds.
    price: u64,
    /// When all checks so far are paid for, in nanoseconds.
    paid_at: u64,
}

impl Pace {
    fn new(rate: u32) -> Self {
        Self {
            price: SECOND / u64::from(rate.max(1)),
            paid_at: 0,
        }
    }

    fn take(&mut self, now: Moment) -> bool {
        let now = now.0.saturating_mul(MILLISECOND);
        if self.paid_at > now.saturating_add(AT_ONCE) {
            return false;
        }
        self.paid_at = self.paid_at.max(now).saturating_add(self.price);
        true
    }

    fn free_at(&self) -> Moment {
        Moment(self.paid_at.saturating_sub(AT_ONCE).div_ceil(MILLISECOND))
    }
}

/// 2^32 divided by the golden ratio.
const GOLDEN: u32 = 0x9e37_79b9;
const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const AT_ONCE: u64 = SECOND / 20;
/// This many unwanted checks cost less than removing them.
const FEW: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_comes_once_in_each_interval() {
        let interval = Duration::from_secs(2);
        let phase = Phase(u32::MAX / 4);
        assert_eq!(phase.first(interval, Moment(0)), Moment(499));
        assert_eq!(phase.first(interval, Moment(499)), Moment(499));
        assert_eq!(phase.first(interval, Moment(500)), Moment(2499));
        let mut rng = Rng::new(1);
        let mut last = Moment(499);
        for round in 1..1000 {
            let due = phase.steady(interval, last, &mut rng);
            let exact = 499 + 2000 * round;
            assert!(due.0 <= exact && due.0 >= exact - 100, "{due:?}, {exact}");
            last = due;
        }
    }

    #[test]
    fn odd_intervals_are_harmless() {
        let mut rng = Rng::new(2);
        for interval in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            for phase in [Phase(0), Phase(u32::MAX)] {
                let due = phase.steady(interval, Moment(u64::MAX), &mut rng);
                assert!(due.0 > 0);
                assert!(phase.first(interval, Moment(7)) >= Moment(7));
                assert!(soon(interval, Moment(7), &mut rng) >= Moment(7));
            }
        }
    }

    #[test]
    fn a_crowd_is_let_through_at_the_pace() {
        let mut rng = Rng::new(3);
        let mut schedule = Schedule::new(1000, &mut rng);
        for check in 0..5000 {
            schedule.push(Moment(100), check);
        }
        let mut began = Vec::new();
        let mut now = Moment(0);
        while let Some(due) = schedule.next_due() {
            now = now.max(due);
            while schedule.pop(now, |_| true).is_some() {
                began.push(now.0);
            }
        }
        assert_eq!(began.len(), 5000);
        for second in began.windows(1051) {
            assert!(second[1050] - second[0] >= 1000, "{second:?}");
        }
        assert!(began[4999] <= 5100, "no slower than it must be");
    }

    #[test]
    fn who_is_wanted_no_more_is_passed_over_and_costs_nothing() {
        let mut schedule = Schedule::new(1, &mut Rng::new(4));
        for check in 0..100 {
            schedule.push(Moment(check), check);
        }
        assert_eq!(
            schedule.pop(Moment(99), |check| *check == 99),
            Some((Moment(99), 99))
        );
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn who_is_wanted_no_more_takes_no_room_for_long() {
        let mut schedule = Schedule::new(1, &mut Rng::new(5));
        for check in 0..10_000 {
            schedule.push(Moment(check), check);
            schedule.tidy(1, |other| *other == check);
        }
        assert!(schedule.due.len() <= 2 * FEW);
        assert_eq!(
            schedule.pop(Moment(9_999), |check| *check == 9_999),
            Some((Moment(9_999), 9_999))
        );
    }
}
