//! The process's own log on standard error: the form of its lines, which lines are shown, and how often a repeated line is
//! shown.
//!
//! `main` starts it; every part of the process writes to it through `tracing`. While `run` or `demo` serves, only one thread
//! each writes to standard error and to standard output, so a full pipe or disk stops no other thread.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use ballast_core::moment::Moment;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::threads::lock;

mod line_queue;

pub(crate) use line_queue::{LineQueue, start, to_stream, to_udp, to_unix};

/// How event lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one object a line
    Json,
}

/// Which event lines are shown: these, and all that matter more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// What does not work
    Error,
    /// What may not be meant so
    Warn,
    /// What happens to tables and to the process
    #[default]
    Info,
    /// Details of single connections
    Debug,
    /// Everything
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

/// The log of the process. Dropping it, at the end of the process, waits a short time for the last lines to be written.
#[derive(Debug)]
pub struct Log(());

/// Starts the log. May be called once in a process.
pub fn begin(format: Format, level: Level) -> io::Result<Log> {
    let mut write = to_stream(io::stderr());
    let mut reported = 0;
    start(&*STDERR, "log", move |lines| {
        let failed = write(lines);
        let lost = STDERR.lost();
        if failed == 0 && lost > reported {
            let lines = lost - reported;
            tracing::warn!(
                lines,
                "lines of this log were lost: they were not read, or not written"
            );
            reported = lost;
        }
        failed
    })?;
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| ToLog)
        // Otherwise it would write to standard error itself, and panic if that fails.
        .log_internal_errors(false)
        .with_target(false);
    // The library that speaks HTTP/2 would report each frame.
    let own = Targets::new()
        .with_default(LevelFilter::from(level))
        .with_target("h2", LevelFilter::OFF);
    match format {
        Format::Text => {
            let lines = lines.with_ansi(io::stderr().is_terminal());
            lines.finish().with(own).init();
        }
        Format::Json => lines.json().flatten_event(true).finish().with(own).init(),
    }
    Ok(Log(()))
}

/// Writes lines to standard error as they are, without time and level.
pub fn plain(lines: &str) {
    STDERR.add(format!("{lines}\n").as_bytes());
}

/// The number of lost lines of the log: dropped from a full queue, or not written.
pub(crate) fn lost() -> u64 {
    STDERR.lost()
}

/// Waits for the queued lines of the log to be written, but not longer than `within`.
pub(crate) fn flush(within: Duration) {
    STDERR.flush(within);
}

/// The queue for standard output.
pub(crate) fn stdout() -> io::Result<&'static LineQueue> {
    static IS_STARTED: Mutex<bool> = Mutex::new(false);
    let mut is_started = lock(&IS_STARTED);
    if !*is_started {
        start(&*STDOUT, "stdout", to_stream(io::stdout()))?;
        *is_started = true;
    }
    Ok(&STDOUT)
}

/// The number of lost lines for standard output.
pub(crate) fn lost_at_stdout() -> u64 {
    STDOUT.lost()
}

impl Drop for Log {
    fn drop(&mut self) {
        let began = Instant::now();
        STDERR.flush(FLUSH_TIME);
        STDOUT.flush(FLUSH_TIME.saturating_sub(began.elapsed()));
    }
}

/// Receives each line of `tracing` as a whole.
struct ToLog;

impl io::Write for ToLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        STDERR.add(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

static STDERR: LazyLock<LineQueue> = LazyLock::new(|| LineQueue::new(Arc::default()));
static STDOUT: LazyLock<LineQueue> = LazyLock::new(|| LineQueue::new(Arc::default()));
/// Time for the last lines to be written at the end of the process.
const FLUSH_TIME: Duration = Duration::from_secs(2);

/// Limits a log line that may occur many times a second to one a second.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    next: AtomicU64,
    suppressed: AtomicU64,
}

impl LogLimiter {
    pub(crate) const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Whether to log this time. `Some` has the number of lines suppressed since the last one.
    pub(crate) fn allow(&self, now: Moment) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.after(INTERVAL).0;
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

const INTERVAL: Duration = Duration::from_secs(1);

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
