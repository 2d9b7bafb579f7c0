//! The process's own log on standard error: how its lines look, which are shown, and how often the same thing is said.
//!
//! Begun by `main`; written to through `tracing` by every part of the process. While `run` or `demo` serves, standard error
//! and standard output are written by one thread each, the [`Outlet`]'s, and by nothing else: so a full pipe or disk stops
//! no other thread.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ballast_core::moment::Moment;
use tracing::level_filters::LevelFilter;

mod outlet;

pub(crate) use outlet::{Outlet, start, to_stream, to_udp, to_unix};

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

/// The log of the process. Dropped at its end, when the last lines get a moment to be written.
#[derive(Debug)]
pub struct Log(());

/// Begins to log. Once in a process.
pub fn begin(format: Format, level: Level) -> io::Result<Log> {
    let mut write = to_stream(io::stderr());
    let mut told = 0;
    start(&*STDERR, "log", move |lines| {
        let failed = write(lines);
        let lost = STDERR.lost();
        if failed == 0 && lost > told {
            let lines = lost - told;
            tracing::warn!(
                lines,
                "lines of this log were lost: they were not read, or not written"
            );
            told = lost;
        }
        failed
    })?;
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| ToLog)
        // It would write to standard error itself, and panic where that fails.
        .log_internal_errors(false)
        .with_target(false);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
    Ok(Log(()))
}

/// Writes lines to standard error as they are, without time and level.
pub fn plain(lines: &str) {
    STDERR.add(format!("{lines}\n").as_bytes());
}

/// Lines of the log that were lost: nobody read them in time, or they could not be written.
pub(crate) fn lost() -> u64 {
    STDERR.lost()
}

/// Gives the lines of the log that wait a moment to be written.
pub(crate) fn flush(within: Duration) {
    STDERR.flush(within);
}

/// Where lines go that are for standard output.
pub(crate) fn stdout() -> io::Result<&'static Outlet> {
    static IS_STARTED: Mutex<bool> = Mutex::new(false);
    let mut is_started = IS_STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_started {
        start(&*STDOUT, "stdout", to_stream(io::stdout()))?;
        *is_started = true;
    }
    Ok(&STDOUT)
}

/// Lines for standard output that were lost.
pub(crate) fn lost_at_stdout() -> u64 {
    STDOUT.lost()
}

impl Drop for Log {
    fn drop(&mut self) {
        let began = Instant::now();
        STDERR.flush(LAST_WORDS);
        STDOUT.flush(LAST_WORDS.saturating_sub(began.elapsed()));
    }
}

/// Takes each line of `tracing` whole.
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

static STDERR: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(Arc::default()));
static STDOUT: LazyLock<Outlet> = LazyLock::new(|| Outlet::new(Arc::default()));
/// For the last lines to be written, at the end of the process.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Something that may go wrong many times a second, and is said once a second at most.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    next: AtomicU64,
    unsaid: AtomicU64,
}

impl Rarely {
    pub(crate) const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            unsaid: AtomicU64::new(0),
        }
    }

    /// Whether to say it this time: then how often it happened unsaid since the last time.
    pub(crate) fn say(&self, now: Moment) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.after(AT_MOST_EVERY).0;
        let said = now.0 >= next
            && self
                .next
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if said {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

const AT_MOST_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_once_a_second_with_the_number_of_times() {
        let rarely = Rarely::new();
        let said: Vec<_> = [0, 1, 999, 1000, 1001, 5000, 5001]
            .map(|millis| rarely.say(Moment(millis)))
            .into();
        assert_eq!(
            said,
            [Some(0), None, None, Some(2), None, Some(1), None],
            "counted until it is said again"
        );
    }
}
