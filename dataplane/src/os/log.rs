//! The log of this process, which is that of `ballast-log`, and how often a repeated line is shown.
//!
//! `main` starts it; every part of the process writes to it through `tracing`. While `run` or `demo` serves, only one thread
//! each writes to standard error and to standard output, so a full pipe or disk stops no other thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ballast_core::moment::Moment;
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat};
use tracing::level_filters::LevelFilter;

pub(crate) use ballast_log::{
    Delivery, LineQueue, flush, lost, lost_at_stdout, start, stdout, to_udp, to_unix,
};
pub use ballast_log::{Format, Level, Log, plain};

/// Starts the log. May be called once in a process.
///
/// # Errors
/// The thread that writes cannot be started.
pub fn begin(format: Format, level: Level) -> io::Result<Log> {
    // The library that speaks HTTP/2 would report each frame.
    ballast_log::begin(format, level, &[("h2", LevelFilter::OFF)])
}

/// Has lines go to the end of a file that a shell has opened by `>`: the process before, or the next one, may write to it, too.
pub fn append(stream: impl AsFd) {
    let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if fstat(&stream).is_ok_and(is_file)
        && let Ok(flags) = fcntl_getfl(&stream)
    {
        // Where it is not permitted, lines go where they went.
        fcntl_setfl(&stream, flags | OFlags::APPEND).ok();
    }
}

/// Limits a log line that may occur many times a second to one in each interval.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    interval: Duration,
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl LogLimiter {
    /// One line a second.
    pub(crate) const fn new() -> Self {
        Self::every(Duration::from_secs(1))
    }

    pub(crate) const fn every(interval: Duration) -> Self {
        Self {
            interval,
            next: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Whether to log this time. `Some` has the number of lines suppressed since the last one.
    pub(crate) fn allow(&self, now: Moment) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.after(self.interval).0;
        let said = now.0 >= next
            && self
                .next
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if said {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_once_a_second_with_the_number_of_times() {
        let limiter = LogLimiter::new();
        let said: Vec<_> = [0, 1, 999, 1000, 1001, 5000, 5001]
            .map(|millis| limiter.allow(Moment(millis)))
            .into();
        assert_eq!(
            said,
            [Some(0), None, None, Some(2), None, Some(1), None],
            "counted until it is said again"
        );
    }
}
