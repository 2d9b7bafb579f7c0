//! What is computed from one reading of the counters to the next: rates, means, times of change.
//!
//! Used by the observer only. Workers never count any of this.

use ballast_core::moment::Moment;
use serde::Serialize;

use super::snapshot::StatusKind;

/// How much of something came in the last second, and the most that ever came in one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// In the last whole second.
    pub now: u32,
    /// The most in any second.
    pub max: u32,
    #[serde(skip)]
    seen: u64,
}

impl Rate {
    /// A rate of what is counted from `seen` on.
    pub(super) fn since(seen: u64) -> Self {
        Self {
            seen,
            ..Self::default()
        }
    }

    /// Forgets that there was ever more than now.
    pub(super) fn forget_max(&mut self) {
        self.max = self.now;
    }

    /// The second is over: the count is `total` now, after `elapsed` milliseconds.
    pub(super) fn tick(&mut self, total: u64, elapsed: u64) {
        self.now = per_second(fresh(total, self.seen), elapsed);
        self.max = self.max.max(self.now);
        self.seen = total;
    }
}

/// How many came since the last reading. A count that went back has begun again.
pub(super) fn fresh(total: u64, seen: u64) -> u64 {
    total.checked_sub(seen).unwrap_or(total)
}

/// `count` in `elapsed` milliseconds, as a rate.
pub(super) fn per_second(count: u64, elapsed: u64) -> u32 {
    let rate = u128::from(count) * 1000 / u128::from(elapsed.max(1));
    u32::try_from(rate).unwrap_or(u32::MAX)
}

/// A mean over about the last [`WINDOW`] samples, from a sum and a count that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    mean: f32,
    /// Samples so far, up to [`WINDOW`].
    weight: u32,
    sum: u64,
    count: u64,
}

impl Mean {
    pub(super) fn look(&mut self, sum: u64, count: u64) {
        let (new_sum, new) = (fresh(sum, self.sum), fresh(count, self.count));
        (self.sum, self.count) = (sum, count);
        if new == 0 {
            return;
        }
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        self.weight = self.weight.saturating_add(new).min(WINDOW);
        let share = (as_float(new.into()) / as_float(self.weight.into())).min(1.0);
        let latest = as_float(new_sum) / as_float(new.into());
        self.mean += (latest - self.mean) * share;
    }

    /// Begins again.
    pub(super) fn forget(&mut self) {
        (self.mean, self.weight) = (0.0, 0);
    }

    /// In whole units.
    pub(super) fn rounded(self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and a mean of counts is not negative"
        )]
        let rounded = self.mean.round() as u32;
        rounded
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seven digits are enough for what is shown as whole milliseconds"
)]
fn as_float(number: u64) -> f32 {
    number as f32
}

/// What something is, since when, and how long it was down in all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    kind: StatusKind,
    changed: Moment,
    /// How often it went down.
    pub(super) downs: u64,
    down_ms: u64,
}

impl Since {
    pub(super) fn new(kind: StatusKind, now: Moment) -> Self {
        Self {
            kind,
            changed: now,
            downs: 0,
            down_ms: 0,
        }
    }

    pub(super) fn look(&mut self, kind: StatusKind, now: Moment) {
        if kind == self.kind {
            return;
        }
        if self.kind == StatusKind::Down {
            self.down_ms += self.lasted_ms(now);
        }
        self.downs += u64::from(kind == StatusKind::Down);
        (self.kind, self.changed) = (kind, now);
    }

    /// In whole seconds: how long it has been what it is.
    pub(super) fn lasted(&self, now: Moment) -> u32 {
        u32::try_from(self.lasted_ms(now) / 1000).unwrap_or(u32::MAX)
    }

    /// In whole seconds: how long it was down in all.
    pub(super) fn downtime(&self, now: Moment) -> u64 {
        let this_time = match self.kind {
            StatusKind::Down => self.lasted_ms(now),
            _ => 0,
        };
        (self.down_ms + this_time) / 1000
    }

    fn lasted_ms(&self, now: Moment) -> u64 {
        now.0.saturating_sub(self.changed.0)
    }
}

/// As many samples as haproxy's averages look back on.
const WINDOW: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_came_in_a_second_and_remembers_the_most() {
        let mut rate = Rate::default();
        rate.tick(10, 1000);
        rate.tick(15, 1000);
        assert_eq!((rate.now, rate.max), (5, 10));
        rate.tick(35, 2000);
        assert_eq!((rate.now, rate.max), (10, 10));
        rate.tick(3, 1000);
        assert_eq!(rate.now, 3, "the count began anew");
    }

    #[test]
    fn a_mean_is_exact_at_first_and_forgets_later() {
        let mut mean = Mean::default();
        assert_eq!(mean.rounded(), 0);
        mean.look(100, 10);
        mean.look(400, 20);
        assert_eq!(mean.rounded(), 20);
        mean.look(400 + 4 * 100_000, 20 + 100_000);
        assert_eq!(mean.rounded(), 4);
        mean.look(400 + 4 * 100_000, 20 + 100_000);
        assert_eq!(mean.rounded(), 4);
    }

    #[test]
    fn downtime_is_summed_and_runs_on() {
        let mut since = Since::new(StatusKind::Up, Moment(1_000));
        since.look(StatusKind::Down, Moment(5_000));
        assert_eq!(since.downtime(Moment(8_500)), 3);
        since.look(StatusKind::Up, Moment(9_000));
        since.look(StatusKind::Maintenance, Moment(20_000));
        assert_eq!(since.downtime(Moment(30_000)), 4);
        assert_eq!((since.lasted(Moment(30_000)), since.downs), (10, 1));
    }
}
