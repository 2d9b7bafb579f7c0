//! `ballast`: arguments, logs, signals, exit codes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ballast::config::{Admin, DRAIN_TIMEOUT, MAX_CHECKS};
use ballast::{Config, StartError, demo, log, runtime};
use ballast_core::table::parse_duration;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// A userspace load balancer for the edge: one routing table, swapped under load.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Try `ballast demo` first: it needs no file and no privileges."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a routing table, and every newer one that takes its place
    Run(Run),
    /// Say everything that is wrong with a table, without serving it
    Check {
        /// The table: a file, or a folder with table.json or table.yaml
        path: PathBuf,
    },
    /// Serve two small built-in backends through a table, to look at
    Demo,
}

#[derive(Debug, Args)]
struct Run {
    /// The table: a file, or a folder with table.json or table.yaml; watched
    #[arg(long, env = "BALLAST_TABLE", value_name = "PATH")]
    table: PathBuf,
    /// Where to answer what became of a table [default: ack.json in the table's folder, if --table is a folder]
    #[arg(long, env = "BALLAST_ACK", value_name = "PATH")]
    ack: Option<PathBuf>,
    /// Worker threads [default: the cores that this process may use]
    #[arg(long, env = "BALLAST_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Where health and metrics are answered, or `none`; repeatable [default: the table's stats.bind, else 127.0.0.1:1936]
    #[arg(
        long,
        env = "BALLAST_ADMIN",
        value_name = "ADDR",
        value_delimiter = ','
    )]
    admin: Vec<String>,
    /// Connections at once [default: what descriptors and memory allow; the log says how]
    #[arg(long, env = "BALLAST_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: Option<u32>,
    /// Active checks a second; above it their intervals stretch, with a warning
    #[arg(long, env = "BALLAST_MAX_CHECKS", value_name = "N", default_value_t = MAX_CHECKS, value_parser = clap::value_parser!(u32).range(1..))]
    max_checks: u32,
    /// After SIGTERM: /readyz fails, and accepting goes on for so long
    #[arg(long, env = "BALLAST_SHUTDOWN_DELAY", value_name = "D", default_value = "0s", value_parser = duration)]
    shutdown_delay: Duration,
    /// Then: connections may take so long to finish before they are cut; a bare number is seconds
    #[arg(long, env = "BALLAST_DRAIN_TIMEOUT", value_name = "D", default_value = DRAIN, value_parser = duration)]
    drain_timeout: Duration,
    #[command(flatten)]
    log: Log,
}

#[derive(Debug, Args)]
struct Log {
    /// How lines on stderr look
    #[arg(long, env = "BALLAST_LOG_FORMAT", value_enum, default_value_t)]
    log_format: log::Format,
    /// error, warn, info, debug or trace
    #[arg(
        long,
        env = "BALLAST_LOG_LEVEL",
        value_name = "L",
        default_value = "info"
    )]
    log_level: String,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes.
            let code = if error.use_stderr() { USAGE } else { 0 };
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    let ended = match cli.command {
        Command::Check { path } => return check(&path),
        Command::Demo => log::begin(log::Format::Text, "warn")
            .map_err(StartError::Table)
            .and_then(|()| demo::begin()),
        Command::Run(run) => begin(run),
    };
    match ended.map_err(anyhow::Error::from).and_then(wait) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn begin(run: Run) -> Result<ballast::Running, StartError> {
    log::begin(run.log.log_format, &run.log.log_level).map_err(StartError::Table)?;
    ballast::start(Config {
        admin: admin(&run.admin).map_err(StartError::Table)?,
        table: run.table,
        ack: run.ack,
        threads: run.threads.map(usize::from),
        max_connections: run.max_connections,
        max_checks: run.max_checks,
        shutdown_delay: run.shutdown_delay,
        drain_timeout: run.drain_timeout,
    })
}

/// Serves until a signal says to end; a second one ends at once.
fn wait(running: ballast::Running) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("signals")?;
    runtime.block_on(async {
        let (mut term, mut int, mut hup) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        );
        loop {
            tokio::select! {
                _ = term.recv() => break,
                _ = int.recv() => break,
                _ = hup.recv() => running.reread(),
            }
        }
        tracing::info!("ending: connections may finish");
        tokio::select! {
            _ = running.stop() => Ok(ExitCode::SUCCESS),
            _ = term.recv() => Ok(ExitCode::from(FAULT)),
            _ = int.recv() => Ok(ExitCode::from(FAULT)),
        }
    })
}

fn check(path: &Path) -> ExitCode {
    match runtime::check(path) {
        Ok(table) => {
            println!("{}: {}", path.display(), table.summary());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(USAGE)
        }
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("ballast: {error}");
    match error.downcast_ref() {
        Some(StartError::Table(_)) => ExitCode::from(USAGE),
        _ => ExitCode::from(FAULT),
    }
}

fn admin(words: &[String]) -> Result<Admin, String> {
    match words {
        [] => Ok(Admin::FromTable),
        [none] if none == "none" => Ok(Admin::At(Vec::new())),
        addresses => addresses
            .iter()
            .map(|word| {
                let word = word
                    .strip_prefix("*:")
                    .map_or_else(|| word.clone(), |port| format!("0.0.0.0:{port}"));
                word.parse::<SocketAddr>().map_err(|_| {
                    format!("--admin: {word:?} is not an address; expected IP:PORT or none")
                })
            })
            .collect::<Result<_, _>>()
            .map(Admin::At),
    }
}

/// A duration as the table has it; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    if text == "0s" {
        return Ok(Duration::ZERO);
    }
    parse_duration(text).map_err(|wrong| wrong.to_string())
}

const DRAIN: &str = "30s";
const _: () = assert!(DRAIN_TIMEOUT.as_secs() == 30, "the help says so");
const USAGE: u8 = 64;
const FAULT: u8 = 1;
