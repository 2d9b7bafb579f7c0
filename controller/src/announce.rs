//! The commands `announce` and `addresses`: flags, and what they print. Everything else of them is in `ballast-announce`.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use ballast_announce::ack::Ack;
use ballast_announce::shell::{Options, check, parse_admin, run, table};
use ballast_controller::log::{Format, Level};
use ballast_controller::settings::WrongFlag;
use ballast_core::table::{Problem, located};
use clap::{ArgAction, Args};

#[derive(Debug, Args)]
pub(super) struct Announce {
    /// The announcer's file; watched
    #[arg(long, value_name = "PATH", env = "BALLAST_ANNOUNCE_FILE")]
    file: PathBuf,
    /// Where the ack is written [default: announce-ack.json beside the file]
    #[arg(long, value_name = "PATH", env = "BALLAST_ANNOUNCE_ACK")]
    ack: Option<PathBuf>,
    /// Where /healthz, /readyz, /metrics and /addresses are answered, or `none`
    #[arg(
        long,
        value_name = "ADDR",
        env = "BALLAST_ANNOUNCE_ADMIN",
        default_value = "127.0.0.1:1938"
    )]
    admin: String,
    /// Whose names of metrics /metrics has beside its own
    #[arg(
        long,
        value_name = "FAMILY",
        env = "BALLAST_ANNOUNCE_COMPAT",
        value_enum
    )]
    compat: Option<Compat>,
    /// Say what is wrong with the file, and do nothing else
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    check: bool,
    /// How event lines look
    #[arg(
        long,
        value_name = "FORMAT",
        env = "BALLAST_LOG_FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: Format,
    /// The least severe event lines that are written
    #[arg(
        long,
        value_name = "LEVEL",
        env = "BALLAST_LOG_LEVEL",
        value_enum,
        default_value_t
    )]
    log_level: Level,
}

/// A program whose names of metrics dashboards use.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Compat {
    /// MetalLB's speaker.
    Metallb,
}

impl Announce {
    /// How the log looks, where there is one.
    pub(super) fn lines(&self) -> Option<(Format, Level)> {
        (!self.check).then_some((self.log_format, self.log_level))
    }
}

#[derive(Debug, Args)]
pub(super) struct Addresses {
    /// The announcer's file, beside which its ack is
    #[arg(long, value_name = "PATH", conflicts_with = "admin")]
    file: Option<PathBuf>,
    /// The announcer's ack, if it is not beside the file
    #[arg(long, value_name = "PATH", conflicts_with = "admin")]
    ack: Option<PathBuf>,
    /// The admin address of the announcer, which is asked if no file and no ack is named
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:1938")]
    admin: SocketAddr,
}

/// Announces, or checks the file.
pub(super) fn announce(flags: &Announce) -> anyhow::Result<()> {
    let admin = parse_admin(&flags.admin).map_err(|why| WrongFlag {
        flag: "--admin",
        why: format!("{}: {why}", flags.admin),
    })?;
    if !flags.check {
        return Ok(run(&Options {
            file: flags.file.clone(),
            ack: flags.ack.clone(),
            admin,
            has_metallb_names: flags.compat.is_some(),
        })?);
    }
    let path = flags.file.display();
    let wanted = check(&flags.file).map_err(|problems| {
        let mut why = format!("{path} is refused");
        let lines = match fs::read(&flags.file) {
            Ok(text) => located(&text, &problems),
            // `problems` says why the file cannot be read.
            Err(_) => problems.iter().map(Problem::to_string).collect(),
        };
        for line in lines {
            // Writing to a String cannot fail.
            write!(why, "\n{line}").ok();
        }
        WrongFlag {
            flag: "--file",
            why,
        }
    })?;
    if let Some(warning) = &wanted.warning {
        writeln!(std::io::stderr(), "warning: {warning}").ok();
    }
    let count = wanted.file.addresses.len();
    let addresses = if count == 1 { "address" } else { "addresses" };
    print(&format!("{path}: {count} {addresses}\n"))
}

/// Prints which node holds each address.
pub(super) fn addresses(flags: &Addresses) -> anyhow::Result<()> {
    let beside = |file: &PathBuf| file.with_file_name("announce-ack.json");
    let Some(path) = flags
        .ack
        .clone()
        .or_else(|| flags.file.as_ref().map(beside))
    else {
        let asked = ask(flags.admin);
        return print(&asked.with_context(|| format!("--admin {}", flags.admin))?);
    };
    let what = || {
        format!(
            "cannot read {}; see that an announcer of this file runs, name its ack with --ack, or ask it with --admin",
            path.display()
        )
    };
    let bytes = fs::read(&path).with_context(what)?;
    let ack: Ack = serde_json::from_slice(&bytes).with_context(what)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    print(&table(&ack, since.unwrap_or_default()))?;
    let written = fs::metadata(&path).and_then(|ack| ack.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    match age.filter(|age| *age > Ack::OLDEST) {
        None => Ok(()),
        Some(age) => Err(anyhow!(
            "the announcer does not run: {} is {} s old, and the table above shows what was then; see that an announcer of this file runs",
            path.display(),
            age.as_secs()
        )),
    }
}

fn ask(admin: SocketAddr) -> anyhow::Result<String> {
    let connected = TcpStream::connect_timeout(&admin, PATIENCE);
    let mut stream =
        connected.context("no announcer answers there: it does not run, or has another --admin")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /addresses HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.take(LARGEST).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(anyhow!(
            "what answers there is no announcer; give the address of --admin of `ballast-controller announce`"
        )),
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("standard output")
}

pub(super) const HELP: &str = "\
Signals: SIGTERM and SIGINT end in order; other nodes take the addresses, and the last node removes them.
Exit codes: 0 an ordered end, or with --check a good file; 1 a fault; 64 wrong usage, or with --check a file that is refused.";

pub(super) const ADDRESSES_HELP: &str = "\
Columns: OWNER is the node that is to hold the address, as this node sees it; HERE is what the address is on this node, and FOR since when.
Exit codes: 0 the addresses were printed; 1 a fault: the announcer does not run (the table shows its last ack), or there is no ack; 64 wrong usage.";

const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: u64 = 16 << 20;
