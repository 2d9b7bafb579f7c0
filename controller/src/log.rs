//! The log of this process, written by `ballast-log`, and the count of panics. Started by `main`; all modules log through `tracing`.

use std::io;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;

pub(crate) use ballast_log::lost;
pub use ballast_log::{Format, Level, Log, plain};

/// Starts the log. May be called once in a process.
pub fn begin(format: Format, level: Level) -> io::Result<Log> {
    let shown = LevelFilter::from(level);
    // These crates log every failed request, at any level. The callers log each failure once.
    let libraries = match shown >= LevelFilter::DEBUG {
        true => shown,
        false => LevelFilter::OFF,
    };
    let names = [
        "kube_client",
        "kube_runtime",
        "hickory_net",
        "hickory_proto",
        "hickory_resolver",
    ];
    let libraries = names.map(|name| (name, libraries));
    let log = ballast_log::begin(format, level, &libraries)?;
    panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        tracing::error!("a task panicked: {panic}");
    }));
    Ok(log)
}

/// The number of panics so far.
pub(crate) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

static PANICS: AtomicU64 = AtomicU64::new(0);
