//! Event lines on standard error: how they look, which are shown, and how often the same thing is said.
//!
//! Begun by `main`; written by whoever has something to tell, through `tracing`.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ballast_core::moment::Moment;
use tracing::level_filters::LevelFilter;

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

/// Begins to log. Once in a process.
pub fn begin(format: Format, level: Level) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_target(false);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
}

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
