//! The command line of `ballast`: commands, flags, their values and their help.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use ballast::VERSION;
use ballast::account::{User, group, user};
use ballast::config::{Admin, DRAIN_TIMEOUT, Level, MAX_CHECKS};
use ballast::log;
use ballast::show::What;
use ballast_core::table::parse_duration;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::wait::{self, Wait};

/// A userspace load balancer for the edge: one routing table, swapped under load.
#[derive(Debug, Parser)]
#[command(
    version = VERSION.as_str(),
    after_help = "Try `ballast demo` first: it needs no file and no privileges."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The arguments of this process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut matches = Self::command().try_get_matches()?;
        let asks_two = asks_two(&matches);
        let cli = Self::from_arg_matches_mut(&mut matches)
            .map_err(|error| error.format(&mut Self::command()))?;
        let wrong = match &cli.command {
            Command::Check(check) => none_and_others("--admin", &check.admin),
            Command::Run(run) => none_and_others("--admin", &run.admin)
                .or_else(|| none_and_others("--healthz", &run.healthz))
                .or_else(|| one_path_twice(run))
                .or_else(|| user_without_group(run)),
            Command::Show(_) if asks_two => Some(ASKS_TWO.into()),
            _ => None,
        };
        match wrong {
            None => Ok(cli),
            Some(wrong) => Err(Self::command().error(ErrorKind::ValueValidation, wrong)),
        }
    }
}

fn none_and_others(flag: &str, args: &[AdminArg]) -> Option<String> {
    let has_none = args.iter().any(|arg| matches!(arg, AdminArg::Nowhere));
    (has_none && args.len() > 1).then(|| {
        format!("{flag}: `none` stands beside an address; give `none` alone, or the addresses without it")
    })
}

fn one_path_twice(run: &Run) -> Option<String> {
    let paths = [
        ("--socket", run.socket.as_ref()),
        ("--monitor-socket", run.monitor_socket.as_ref()),
        ("--handover", run.handover.as_ref()),
    ];
    paths.iter().enumerate().find_map(|(place, (flag, path))| {
        let path = (*path)?;
        let mut before = paths.iter().take(place);
        let (first, _) = before.find(|(_, other)| *other == Some(path))?;
        Some(format!(
            "{flag} {}: is the path of {first}, too; choose another one",
            path.display()
        ))
    })
}

fn user_without_group(run: &Run) -> Option<String> {
    let user = run.user.as_ref()?;
    let is_unknown = user.group.is_none() && run.group.is_none();
    is_unknown.then(|| {
        format!(
            "--user {}: has no line in /etc/passwd that says its group; give --group, too",
            user.number
        )
    })
}

/// Whether `show` is given an address and a socket. A socket that is the variable's gives way to the address.
fn asks_two(matches: &ArgMatches) -> bool {
    let Some(("show", show)) = matches.subcommand() else {
        return false;
    };
    let is_given = |flag| show.value_source(flag) == Some(ValueSource::CommandLine);
    is_given("admin") && is_given("socket")
}

/// The variable that a wrong value comes from. `None`: it comes from the command line.
pub(crate) fn variable(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = arg.split([' ', '=', '[']).next()?;
    let name = flag.strip_prefix("--")?.to_uppercase().replace('-', "_");
    let name = format!("BALLAST_{name}");
    let mut args = std::env::args_os();
    let is_there = args.any(|arg| {
        let arg = arg.to_string_lossy();
        arg.strip_prefix(flag)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    });
    (!is_there && std::env::var_os(&name).is_some()).then_some(name)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a routing table, and every newer one that takes its place
    #[command(after_help = RUN_SHORT_HELP, after_long_help = RUN_HELP)]
    Run(Box<Run>),
    /// Replace the process that runs by a new one, started as that one was, without losing a client
    #[command(after_help = UPGRADE_HELP)]
    Upgrade(Upgrade),
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
        /// The same as FILE, as haproxy takes it (repeatable); files with -f are read before those without
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
pub(crate) struct Upgrade {
    /// The program to start [default: that of the process that runs, as it is on disk now]
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<PathBuf>,
    /// Where the process that runs hands over: the path of its --handover
    #[arg(long, env = "BALLAST_HANDOVER", value_name = "PATH")]
    pub(crate) handover: PathBuf,
    /// Its arguments, behind `--`: run, and the flags [default: those of the process that runs, in its environment and folder]
    #[arg(last = true, value_name = "ARGUMENT", requires = "program")]
    pub(crate) arguments: Vec<OsString>,
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
    #[arg(long, value_name = "ADDR", value_parser = address)]
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
    /// The ack of the announcer of this host: the page shows which addresses are held here
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_ANNOUNCE_ACK",
        value_name = "PATH"
    )]
    pub(crate) announce_ack: Option<PathBuf>,
    /// Where commands are taken, by haproxy's line protocol: a unix socket
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The mode of the file of --socket, in octal digits, such as 660
    #[arg(long, hide_short_help = true, env = "BALLAST_SOCKET_MODE", value_name = "MODE", default_value = "600", requires = "socket", value_parser = mode)]
    pub(crate) socket_mode: u32,
    /// The group of the file of --socket: a name or a number [default: that of the process]
    #[arg(long, hide_short_help = true, env = "BALLAST_SOCKET_GROUP", value_name = "GROUP", requires = "socket", value_parser = group)]
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
        default_value = "user",
        requires = "monitor_socket"
    )]
    pub(crate) monitor_level: Level,
    /// The group of the file of --monitor-socket: a name or a number [default: that of the process]
    #[arg(long, hide_short_help = true, env = "BALLAST_MONITOR_GROUP", value_name = "GROUP", requires = "monitor_socket", value_parser = group)]
    pub(crate) monitor_group: Option<u32>,
    /// Where this process hands its sockets over to the next one: a unix socket. One that is started with the same path takes
    /// over from it, and no client notices
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_HANDOVER",
        value_name = "PATH"
    )]
    pub(crate) handover: Option<PathBuf>,
    /// After a hand-over: stay until SIGTERM, without serving, as a container must that is started again when it ends
    #[arg(long, hide_short_help = true, env = "BALLAST_STAY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, overrides_with = "stay", requires = "handover", action = ArgAction::Set)]
    pub(crate) stay: bool,
    /// Go on as this user, by name or number: with the right to ports below 1024, and no other
    #[arg(long, hide_short_help = true, env = "BALLAST_USER", value_name = "USER", value_parser = user)]
    pub(crate) user: Option<User>,
    /// Go on with this group, by name or number [default: that of --user]
    #[arg(long, hide_short_help = true, env = "BALLAST_GROUP", value_name = "GROUP", value_parser = group)]
    pub(crate) group: Option<u32>,
    /// Open only the table's folder and what these flags name, and make only the system calls that serving takes
    #[arg(long, hide_short_help = true, env = "BALLAST_SANDBOX", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, overrides_with = "sandbox", action = ArgAction::Set)]
    pub(crate) sandbox: bool,
    /// With --sandbox: a folder that is read, too, for certificates and pages that tables name, or a file in it; repeatable
    #[arg(
        long,
        hide_short_help = true,
        env = "BALLAST_SANDBOX_READ",
        value_name = "PATH",
        value_delimiter = ',',
        requires = "sandbox"
    )]
    pub(crate) sandbox_read: Vec<PathBuf>,
    /// Connections at once [default: what descriptors and memory allow; the log says how]
    #[arg(long, hide_short_help = true, env = "BALLAST_MAX_CONNECTIONS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,
    /// Active checks a second; above it their intervals stretch, with a warning
    #[arg(long, hide_short_help = true, env = "BALLAST_MAX_CHECKS", value_name = "N", default_value_t = MAX_CHECKS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_checks: u32,
    /// After SIGTERM: the time for which clients are still accepted, while /readyz fails
    #[arg(long, hide_short_help = true, env = "BALLAST_SHUTDOWN_DELAY", value_name = "D", default_value = "0s", value_parser = duration)]
    pub(crate) shutdown_delay: Duration,
    /// After SIGTERM and --shutdown-delay: the time for connections to finish before they are cut; a bare number is seconds
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
    /// The least severe lines that are written to stderr
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

/// The value of `--admin` of `show`.
fn address(word: &str) -> Result<SocketAddr, String> {
    word.parse()
        .map_err(|_| "is no address; expected IP:PORT or [IP6]:PORT, such as 127.0.0.1:1936".into())
}

/// The addresses of all these arguments.
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
    mode.filter(|mode| *mode <= 0o777 && digits.len() == 3)
        .ok_or_else(|| "is no mode; expected three octal digits, such as 660".into())
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
Exit codes: 0 every table is good; 64 one is refused, or wrong usage; 66 one cannot be read, or a
file that it names cannot be used, and no table is refused; 1 the result cannot be written.";
const UPGRADE_HELP: &str = "\
Exit codes: 0 the new process serves in place of the other one; 75 it does not, and the process that ran
goes on; 1 there is no such process, the arguments name another path, or the new one serves beside the
other one or it is not known what became of it; 64 wrong usage.";
const RUN_SHORT_HELP: &str = "\
`ballast run --help` has every flag, the signals and the exit codes.";
const COMPLETIONS_HELP: &str = "\
For bash: ballast completions bash > /etc/bash_completion.d/ballast";
const MAN_HELP: &str = "\
Exit codes: 0 they are written; 1 they cannot be; 64 wrong usage.";
const RUN_HELP: &str = "\
Signals: SIGHUP reads the table again. SIGTERM and SIGINT end in order, a second one ends at once;
a second one within 100 ms of the first is ignored, because some programs send each signal twice.
SIGUSR1 ends in order without a drain timeout; a SIGTERM after it starts the drain timeout. SIGUSR2
is ignored, with a line in the log.
Exit codes: 0 an ordered end, also one that had to cut connections; 1 a fault, or a second signal;
75 it was to take over by --handover, and did not: the process there goes on; 64 wrong usage, or a
table that is missing or refused.";
const IMPORT_HELP: &str = "\
Each line that could not be translated is listed with its number and the reason. Names of hosts are
resolved now.
Exit codes: 0 every line was translated; 2 some lines were not, and are listed; 1 the table cannot
be written; 64 wrong usage, or a configuration that cannot be read.";
const ASK_HELP: &str = "\
Exit codes: 0 it was answered; 1 nobody answers, or the answer cannot be written; 64 wrong usage.";
const CTL_HELP: &str = "\
Exit codes: 0 each command was executed; 1 an answer is an error, such as No such server., or cannot
be written, or standard input cannot be read; 2 nobody answers; 64 wrong usage.";
const ASKS_TWO: &str =
    "--admin cannot be used with --socket: only one of them can be asked; leave one out";
const ADMIN_FORM: &str = "IP:PORT, [IP6]:PORT, *:PORT or none";
const DRAIN: &str = "30s";
const _: () = assert!(DRAIN_TIMEOUT.as_secs() == 30, "the help says so");
/// A larger number is a typing error: so many threads would only wait for each other.
const MAX_THREADS: i64 = 1024;
