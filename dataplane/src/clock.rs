//! The one clock of the process: turns the kernel's monotonic time into [`Moment`]s and back.

use std::time::Duration;

use ballast_core::moment::Moment;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};
use tokio::time::Instant;

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_millis: u64,
    /// How far apart the kernel's ticks are.
    tick: Timespec,
}

impl Clock {
    /// A clock whose zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            start_millis: millis(clock_gettime(ClockId::Monotonic)),
            tick: clock_getres(ClockId::MonotonicCoarse),
        }
    }

    /// The time. Never behind the runtime's timers: once one has fired, its moment has come.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.moment(clock_gettime(ClockId::Monotonic))
    }

    /// The end of the kernel's next tick, for a third of the price: some milliseconds ahead of the time, so that no timer counts
    /// from too early, and not behind it even where a tick comes late.
    #[must_use]
    pub fn soon(&self) -> Moment {
        self.moment(clock_gettime(ClockId::MonotonicCoarse) + self.tick + self.tick)
    }

    fn moment(&self, time: Timespec) -> Moment {
        Moment(millis(time).saturating_sub(self.start_millis))
    }

    /// `moment` as the runtime's timers want it.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + Duration::from_millis(moment.0)
    }
}

/// Read at once, where the standard library makes an `Instant`, a `Duration` and a quotient of 128 bits of it: connections
/// ask often.
fn millis(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a kernel with a hundred a second.
    const TWO_TICKS: Duration = Duration::from_millis(21);

    #[tokio::test]
    async fn the_moment_of_a_timer_that_fired_has_come() {
        let clock = Clock::start();
        for wait in [1, 2, 5, 9] {
            let moment = clock.now().after(Duration::from_millis(wait));
            tokio::time::sleep_until(clock.instant(moment)).await;
            assert!(clock.now() >= moment);
            assert!(clock.soon() <= clock.now().after(TWO_TICKS));
        }
    }
}
