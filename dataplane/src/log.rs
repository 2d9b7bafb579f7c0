//! Event lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// How event lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Begins to log. `level` is error, warn, info, debug or trace.
pub fn begin(format: Format, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|_| {
        format!("--log-level: {level:?} is no level; expected error, warn, info, debug or trace")
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false);
    match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).init(),
        Format::Json => lines.json().init(),
    }
    Ok(())
}
