//! The command line of `ballast`: commands, flags, their values and their help.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use ballast::config::{Admin, DRAIN_TIMEOUT, Level, MAX_CHECKS};
use ballast::log;
use ballast::show::What;
use ballast_core::table::parse_duration;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::wait::{self, Wait};

/// A userspace load balancer for the edge: one routing table, swapped under load.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Try `ballast demo` first: it needs no file and no privileges."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a routing table, and every newer one that takes its place
    #[command(after_help = RUN_SHORT_HELP, after_long_help = RUN_HELP)]
    Run(Run),
    /// Say everything that is wrong with a table, without serving it
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Print the JSON Schema of the table, by which editors complete and check tables
    Schema,
    /// Serve two small built-in backends through a table, to look at
    Demo,
    /// Translate a configuration of haproxy into a table
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// The configuration, such as /etc/haproxy/haproxy.cfg; a folder stands for its files *.cfg
        #[arg(required_unless_present = "file", value_name = "FILE")]
        files: Vec<PathBuf>,
        /// A file or folder of it, before those without -f, as for haproxy (repeatable)
        #[arg(short, long, value_name = "FILE")]
        file: Vec<PathBuf>,
        /// Where to write the table; pages of errorfile go beside it [default: standard output]
        #[arg(short, long, value_name = "PATH")]
        output: Option<PathBuf>,
    },
    /// Say what a running ballast does: aligned for people, or as JSON
    #[command(after_help = ASK_HELP)]
    Show(Show),
    /// Send commands to a running ballast's runtime socket, and print its answers
    #[command(after_help = CTL_HELP)]
    Ctl(Ctl),
    /// Print the version, as --version does
    Version,
    /// Print what completes commands and flags in a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write a manual page for ballast, and one for each of its commands
    #[command(after_help = MAN_HELP)]
    Man {
        /// The folder for them, such as /usr/share/man/man1
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The table: a file, or a folder with table.json or table.yaml; repeatable
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The admin address that `ballast run` will have, or `none`; repeatable [default: the table's stats.bind, else 127.0.0.1:1936]
    #[arg(
        long,
        env = "BALLAST_ADMIN",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = admin_arg
    )]
    pub(crate) admin: Vec<AdminArg>,
}

#[derive(Debug, Args)]
pub(crate) struct Ctl {
    /// The command, such as show info; without it, each line of standard input is one
    #[arg(allow_negative_numbers = true)]
    pub(crate) command: Vec<String>,
    /// The runtime socket
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Ask for the answer as JSON, where the command has one
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// What to show
    #[arg(value_enum)]
    pub(crate) what: What,
    /// How
    #[arg(short, long, value_name = "F", value_enum, default_value_t)]
    pub(crate) output: Output,
    /// The admin address to ask [default: 127.0.0.1:1936]
    #[arg(long, value_name = "ADDR", conflicts_with = "socket")]
    pub(crate) admin: Option<SocketAddr>,
    /// The runtime socket to ask instead
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// How `show` looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The table: a file, or a folder with table.json or table.yaml; watched
    #[arg(long, env = "BALLAST_TABLE", value_name = "PATH")]
    pub(crate) table: PathBuf,
    /// Where to answer what became of a table [default: ack.json in the table's folder, if --table is a folder]
    #[arg(long, hide_short_help = true, env = "BALLAST_ACK", value_name = "PATH")]
    pub(crate) ack: Option<PathBuf>,
    /// Worker threads [default: the cores that this process may use]
    #[arg(long, hide_short_help = true, env = "BALLAST_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    pub(crate) threads: Option<u16>,
    /// Where page, metrics and health are answered, or `none`; repeatable [default: the table's stats.bind, else 127.0.0.1:1936]
    #[arg(
        long,
        env = "BALLAST_ADMIN",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = admin_arg
    )]
    pub(crate) admin: Vec<AdminArg>,
    /// Where /healthz alone is answered, or `none`; repeatable [default: the table's stats.healthz, else none]
    #[arg(
        long, hide_short_help = true,
        env = "BALLAST_HEALTHZ",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = admin_arg
    )]
    pub(crate) healthz: Vec<AdminArg>,
    /// Who may see the admin address, and change things there: lines of user:secret[:viewer|:admin]
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_STATS_AUTH_FILE",
        value_name = "PATH"
    )]
    pub(crate) stats_auth_file: Option<PathBuf>,
    /// Where commands are taken, by haproxy's line protocol: a unix socket
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The mode of the file of --socket, in octal digits, such as 660
    #[arg(long, hide_short_help = true, env = "BALLAST_SOCKET_MODE", value_name = "MODE", default_value = "600", value_parser = mode)]
    pub(crate) socket_mode: u32,
    /// The group of the file of --socket: a name or a number [default: that of the process]
    #[arg(long, hide_short_help = true, env = "BALLAST_SOCKET_GROUP", value_name = "GROUP", value_parser = group)]
    pub(crate) socket_group: Option<u32>,
    /// A second runtime socket, for monitoring: commands of --monitor-level only; the file has mode 660
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_MONITOR_SOCKET",
        value_name = "PATH"
    )]
    pub(crate) monitor_socket: Option<PathBuf>,
    /// What may be asked at --monitor-socket
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_MONITOR_LEVEL",
        value_name = "LEVEL",
        value_enum,
        default_value = "user"
    )]
    pub(crate) monitor_level: Level,
    /// The group of the file of --monitor-socket: a name or a number [default: that of the process]
    #[arg(long, hide_short_help = true, env = "BALLAST_MONITOR_GROUP", value_name = "GROUP", value_parser = group)]
    pub(crate) monitor_group: Option<u32>,
    /// Connections at once [default: what descriptors and memory allow; the log says how]
    #[arg(long, hide_short_help = true, env = "BALLAST_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,
    /// Active checks a second; above it their intervals stretch, with a warning
    #[arg(long, hide_short_help = true, env = "BALLAST_MAX_CHECKS", value_name = "N", default_value_t = MAX_CHECKS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_checks: u32,
    /// After SIGTERM: /readyz fails, and accepting goes on for so long
    #[arg(long, hide_short_help = true, env = "BALLAST_SHUTDOWN_DELAY", value_name = "D", default_value = "0s", value_parser = duration)]
    pub(crate) shutdown_delay: Duration,
    /// Then: connections may take so long to finish before they are cut; a bare number is seconds
    #[arg(long, env = "BALLAST_DRAIN_TIMEOUT", value_name = "D", default_value = DRAIN, value_parser = duration)]
    pub(crate) drain_timeout: Duration,
    /// Where another ballast has the admin port, the table or the socket: wait until it is told to end, and take over from it
    #[arg(long, env = "BALLAST_WAIT", value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = wait::FOREVER, value_parser = Wait::parse)]
    pub(crate) wait: Option<Wait>,
    /// How lines on stderr look
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_LOG_FORMAT",
        value_name = "F",
        value_enum,
        default_value_t
    )]
    pub(crate) log_format: log::Format,
    /// Which lines there are on stderr: these, and all that matter more
    #[arg(
        long,
        env = "BALLAST_LOG_LEVEL",
        value_name = "L",
        value_enum,
        default_value_t
    )]
    pub(crate) log_level: log::Level,
}

/// The value of one `--admin` or `--healthz`.
#[derive(Clone, Debug)]
pub(crate) enum AdminArg {
    Nowhere,
    At(Vec<SocketAddr>),
}

fn admin_arg(word: &str) -> Result<AdminArg, String> {
    if word == "none" {
        return Ok(AdminArg::Nowhere);
    }
    let wrong = || format!("is not an address; expected {ADMIN_FORM}");
    if let Some(port) = word.strip_prefix("*:") {
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let mut addresses = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() {
            addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        }
        return Ok(AdminArg::At(addresses));
    }
    let address: SocketAddr = word.parse().map_err(|_| wrong())?;
    Ok(AdminArg::At(vec![address]))
}

/// The addresses of all these arguments. `none` beside an address has no effect.
pub(crate) fn admin(args: &[AdminArg]) -> Admin {
    if args.is_empty() {
        return Admin::FromTable;
    }
    let addresses = args.iter().flat_map(|arg| match arg {
        AdminArg::Nowhere => &[][..],
        AdminArg::At(addresses) => addresses,
    });
    Admin::At(addresses.copied().collect())
}

/// The mode of a file, in octal digits.
fn mode(digits: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(digits, 8).ok();
    mode.filter(|mode| *mode <= 0o777)
        .ok_or_else(|| "is no mode; expected three octal digits, such as 660".into())
}

/// The number of a group of this host, by its name or its number.
fn group(word: &str) -> Result<u32, String> {
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
    let mut named = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((name, fields.nth(1)?))
    });
    let found = named.find(|(name, _)| *name == word);
    found
        .and_then(|(_, number)| number.parse().ok())
        .ok_or_else(|| format!("is no group of {GROUPS}; expected its name or its number"))
}

/// A duration in the table's form; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        if seconds == 0 {
            return Ok(Duration::ZERO);
        }
        return parse_duration(&format!("{seconds}s")).map_err(|wrong| wrong.to_string());
    }
    if text == "0s" {
        return Ok(Duration::ZERO);
    }
    parse_duration(text).map_err(|wrong| wrong.to_string())
}

const CHECK_HELP: &str = "\
Exit codes: 0 every table is good; 64 one is refused, or wrong usage; 66 one, or a file that it
names, is missing or cannot be read, and nothing else is wrong.";
const RUN_SHORT_HELP: &str = "\
`ballast run --help` has every flag, the signals and the exit codes.";
const COMPLETIONS_HELP: &str = "\
For bash: ballast completions bash > /etc/bash_completion.d/ballast";
const MAN_HELP: &str = "\
Exit codes: 0 they are written; 1 they cannot be; 64 wrong usage.";
const RUN_HELP: &str = "\
Signals: SIGHUP reads the table again. SIGTERM and SIGINT end in order, a second one ends at once;
one within 100 ms of the first is the same one, passed on twice. SIGUSR1 ends in order without a
drain timeout; SIGTERM after it begins that. SIGUSR2 is ignored, with a line in the log.
Exit codes: 0 an ordered end, also one that had to cut connections; 1 a fault, or a second signal;
64 wrong usage, or a table that is missing or refused.";
const IMPORT_HELP: &str = "\
Each line that the table does not say is named with its number and the reason. Names of hosts are
resolved now.
Exit codes: 0 the table says everything; 2 it does not say some lines, which are named; 1 it cannot
be written; 64 wrong usage, or a configuration that cannot be read.";
const ASK_HELP: &str = "\
Exit codes: 0 it was answered; 1 nobody answers; 64 wrong usage.";
const CTL_HELP: &str = "\
Exit codes: 0 each command was executed; 1 an answer is an error, such as No such server.;
2 nobody answers; 64 wrong usage.";
/// The groups of this host.
const GROUPS: &str = "/etc/group";
const ADMIN_FORM: &str = "IP:PORT, [IP6]:PORT, *:PORT or none";
const DRAIN: &str = "30s";
const _: () = assert!(DRAIN_TIMEOUT.as_secs() == 30, "the help says so");
/// A larger number is a typing error: so many threads would only wait for each other.
const MAX_THREADS: i64 = 1024;
