//! The clock of the process: converts the kernel's monotonic time into [`Moment`]s and back.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_core::moment::Moment;
use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};
use tokio::time::Instant;

/// A clock that counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_millis: u64,
    /// The period of the kernel's tick.
    tick: Timespec,
}

impl Clock {
    /// Creates a clock that counts from now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            start_millis: millis(clock_gettime(ClockId::Monotonic)),
            tick: clock_getres(ClockId::MonotonicCoarse),
        }
    }

    /// The time. It is never behind the runtime's timers: once a timer has fired, its moment has come.
    pub fn now(&self) -> Moment {
        self.moment(clock_gettime(ClockId::Monotonic))
    }

    /// The time to the microsecond, for times that are shown.
    #[must_use]
    pub fn precisely(&self) -> Micros {
        let micros = micros(clock_gettime(ClockId::Monotonic));
        Micros(micros.saturating_sub(self.start_millis * 1_000))
    }

    /// The end of the kernel's next tick. It costs a third of [`now`](Self::now) and is some milliseconds ahead, so that no
    /// timeout begins too early, even if a tick comes late.
    pub fn soon(&self) -> Moment {
        self.moment(clock_gettime(ClockId::MonotonicCoarse) + self.tick + self.tick)
    }

    fn moment(&self, time: Timespec) -> Moment {
        Moment(millis(time).saturating_sub(self.start_millis))
    }

    /// `moment` in the form that the runtime's timers need.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + Duration::from_millis(moment.0)
    }
}

/// The date and time of the host, in seconds since 1970. Unlike a [`Moment`] it may jump.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Notices that somebody sets the host's date: deadlines are [`Moment`]s and stay, what shows a date follows.
#[derive(Debug)]
pub(crate) struct DateWatch {
    /// By how much the date was ahead of the monotonic clock, in seconds.
    ahead: i64,
}

impl DateWatch {
    pub(crate) fn start() -> Self {
        Self { ahead: ahead() }
    }

    /// By how many seconds the date was set forward since the last look; negative: backward. `None`: by few, as clocks are corrected.
    pub(crate) fn jump(&mut self) -> Option<i64> {
        let now = ahead();
        let by = now.saturating_sub(std::mem::replace(&mut self.ahead, now));
        (by.abs() > MOST_CORRECTED).then_some(by)
    }
}

fn ahead() -> i64 {
    let date = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
    date.saturating_sub(clock_gettime(ClockId::Monotonic).tv_sec)
}

/// Seconds within a second.
const MOST_CORRECTED: i64 = 5;

/// A moment in microseconds since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(u64);

impl Micros {
    /// The same moment in whole milliseconds.
    pub const fn moment(self) -> Moment {
        Moment(self.0 / 1_000)
    }

    /// The time since `earlier`; zero if that lies in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<Moment> for Micros {
    fn from(moment: Moment) -> Self {
        Self(moment.0 * 1_000)
    }
}

#[cfg(test)]
impl From<u64> for Micros {
    fn from(micros: u64) -> Self {
        Self(micros)
    }
}

/// Connections read the clock often. The standard library would compute an `Instant`, a `Duration` and a 128-bit quotient.
fn millis(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

/// This time in UTC, in this form: [`DATE`], or another one of `strftime`.
pub(crate) fn utc(time: SystemTime, form: &str) -> impl Display {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime(form)
}

/// haproxy's date: `21/Nov/2026:15:04:05.678`.
pub(crate) const DATE: &str = "%d/%b/%Y:%H:%M:%S.%3f";

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ticks of a kernel with 100 ticks per second.
    const TWO_TICKS: Duration = Duration::from_millis(21);

    #[test]
    fn microseconds_and_milliseconds_are_of_one_clock() {
        let clock = Clock::start();
        let (before, precise, after) = (clock.now(), clock.precisely(), clock.now());
        assert!(before <= precise.moment() && precise.moment() <= after);
        assert_eq!(Micros(2_500).since(Micros(500)), Duration::from_millis(2));
        assert_eq!(Micros(2_999).moment(), Moment(2));
    }

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
