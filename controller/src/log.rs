//! Event lines on standard error. Begun by `main`; written by whoever has something to tell, through `tracing`.

use std::io::{self, IsTerminal};
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How event lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one object a line
    Json,
}

/// Which event lines are shown: these, and all that matter more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// What does not work
    Error,
    /// What may not be meant so
    Warn,
    /// What is decided and written
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

/// The number of panics so far.
#[must_use]
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics, and writes them to the log.
fn install_panic_hook() {
    panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        tracing::error!("a task panicked: {panic}");
    }));
}

/// Begins to log. Once in a process.
pub fn begin(format: Format, level: Level) {
    let level = LevelFilter::from(level);
    // It tells of every request that fails, at whatever level; whoever made the request tells what matters, once.
    let clients = match level >= LevelFilter::DEBUG {
        true => level,
        false => LevelFilter::OFF,
    };
    let shown = Targets::new()
        .with_default(level)
        .with_target("kube_client", clients);
    let lines = fmt::layer()
        .with_writer(io::stderr)
        // A line that cannot be written is lost. Saying so would use the same standard error, and panic where that fails.
        .log_internal_errors(false)
        .with_target(false);
    let lines = match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(shown))
        .init();
    install_panic_hook();
}
