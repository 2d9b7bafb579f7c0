//! The log of `ballast` and of `ballast-controller` on standard error: the form of its lines and which lines are shown.
//!
//! `main` starts it; every part of a process writes to it through `tracing`. Only one thread each writes to standard error and
//! to standard output, so a pipe or a disk that is full, or has no reader, stops no other thread.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::io::{self, IsTerminal};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

mod line_queue;

pub use line_queue::{Delivery, LineQueue, start, to_stream, to_udp, to_unix};

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
    /// Details
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

/// Starts the log. May be called once in a process. `libraries`: those whose lines are shown up to another level.
///
/// # Errors
/// The thread that writes cannot be started.
pub fn begin(
    format: Format,
    level: Level,
    libraries: &[(&'static str, LevelFilter)],
) -> io::Result<Log> {
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
    let shown = Targets::new()
        .with_default(LevelFilter::from(level))
        .with_targets(libraries.iter().copied());
    match format {
        Format::Text => {
            let lines = lines.with_ansi(io::stderr().is_terminal());
            lines.finish().with(shown).init();
        }
        Format::Json => lines.json().flatten_event(true).finish().with(shown).init(),
    }
    Ok(Log(()))
}

/// Writes lines to standard error as they are, without time and level.
pub fn plain(lines: &str) {
    STDERR.add(format!("{lines}\n").as_bytes());
}

/// The number of lost lines of the log: dropped from a full queue, or not written.
#[must_use]
pub fn lost() -> u64 {
    STDERR.lost()
}

/// Waits for the queued lines of the log to be written, but not longer than `within`.
pub fn flush(within: Duration) {
    STDERR.flush(within);
}

/// The queue for standard output.
///
/// # Errors
/// The thread that writes cannot be started.
pub fn stdout() -> io::Result<&'static LineQueue> {
    static IS_STARTED: Mutex<bool> = Mutex::new(false);
    let mut is_started = lock(&IS_STARTED);
    if !*is_started {
        start(&*STDOUT, "stdout", to_stream(io::stdout()))?;
        *is_started = true;
    }
    Ok(&STDOUT)
}

/// The number of lost lines for standard output.
#[must_use]
pub fn lost_at_stdout() -> u64 {
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

/// Locks a mutex, also after a thread has panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static STDERR: LazyLock<LineQueue> = LazyLock::new(|| LineQueue::new(Arc::default()));
static STDOUT: LazyLock<LineQueue> = LazyLock::new(|| LineQueue::new(Arc::default()));
/// Time for the last lines to be written at the end of the process.
const FLUSH_TIME: Duration = Duration::from_secs(2);
