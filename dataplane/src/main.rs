//! The program `ballast`: arguments and exit codes.

use std::io::{self, BufRead, IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ballast::config::{Admin, DRAIN_TIMEOUT, MAX_CHECKS};
use ballast::show::{self, Outcome, Paint, Server, Unanswered, What};
use ballast::{Config, Running, StartError, demo, log};
use ballast_core::table::{parse_duration, schema};
use ballast_import::{ImportError, import};
use clap::{Args, Parser, Subcommand};
use tikv_jemallocator::Jemalloc;

mod service_manager;
mod signals;
mod wait;

use signals::Signals;
use wait::Wait;

/// A connection makes three aligned allocations, which the system's allocator serves slowly and with fragmentation.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

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
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Say everything that is wrong with a table, without serving it
    #[command(after_help = "Exit codes: 0 the table is good; 64 it is missing or refused.")]
    Check {
        /// The table: a file, or a folder with table.json or table.yaml
        path: PathBuf,
    },
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
}

#[derive(Debug, Args)]
struct Ctl {
    /// The command, such as show info; without it, each line of standard input is one
    #[arg(allow_negative_numbers = true)]
    command: Vec<String>,
    /// The runtime socket
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    socket: PathBuf,
    /// Ask for the answer as JSON, where the command has one
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// What to show
    #[arg(value_enum)]
    what: What,
    /// How
    #[arg(short, long, value_name = "F", value_enum, default_value_t)]
    output: Output,
    /// The admin address to ask [default: 127.0.0.1:1936]
    #[arg(long, value_name = "ADDR", conflicts_with = "socket")]
    admin: Option<SocketAddr>,
    /// The runtime socket to ask instead
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// How `show` looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
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
    #[arg(long, env = "BALLAST_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: Option<u16>,
    /// Where page, metrics and health are answered, or `none`; repeatable [default: the table's stats.bind, else 127.0.0.1:1936]
    #[arg(
        long,
        env = "BALLAST_ADMIN",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = admin_arg
    )]
    admin: Vec<AdminArg>,
    /// Where /healthz alone is answered, or `none`; repeatable [default: the table's stats.healthz, else none]
    #[arg(
        long,
        env = "BALLAST_HEALTHZ",
        value_name = "ADDR",
        value_delimiter = ',',
        value_parser = admin_arg
    )]
    healthz: Vec<AdminArg>,
    /// Who may see the admin address, and change things there: lines of user:secret[:viewer|:admin]
    #[arg(long, env = "BALLAST_STATS_AUTH_FILE", value_name = "PATH")]
    stats_auth_file: Option<PathBuf>,
    /// Where commands are taken, by haproxy's line protocol: a unix socket for its owner only
    #[arg(long, env = "BALLAST_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
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
    /// Where another ballast that is ending has the admin port, the table or the socket: wait for its end, and then begin
    #[arg(long, env = "BALLAST_WAIT", value_name = "D", num_args = 0..=1, require_equals = true, default_missing_value = wait::FOREVER, value_parser = Wait::parse)]
    wait: Option<Wait>,
    /// How lines on stderr look
    #[arg(
        long,
        env = "BALLAST_LOG_FORMAT",
        value_name = "F",
        value_enum,
        default_value_t
    )]
    log_format: log::Format,
    /// Which lines there are on stderr: these, and all that matter more
    #[arg(
        long,
        env = "BALLAST_LOG_LEVEL",
        value_name = "L",
        value_enum,
        default_value_t
    )]
    log_level: log::Level,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are not errors.
            let code = if error.use_stderr() { USAGE } else { 0 };
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    match cli.command {
        Command::Check { path } => check(&path),
        Command::Schema => {
            // A reader that ends early, such as `head`, has read enough.
            io::stdout().write_all(schema().as_bytes()).ok();
            ExitCode::SUCCESS
        }
        Command::Import {
            files,
            mut file,
            output,
        } => {
            file.extend(files);
            import_command(&file, output.as_deref())
        }
        Command::Demo => serve((log::Format::Text, log::Level::Info), None, demo::begin),
        Command::Show(show) => show_command(&show),
        Command::Ctl(ctl) => send_commands(&ctl),
        Command::Run(run) => {
            let begin = || Ok((ballast::start(config(&run)?)?, ()));
            serve((run.log_format, run.log_level), run.wait, begin)
        }
    }
}

fn check(path: &Path) -> ExitCode {
    match ballast::check(path) {
        Ok(ballast::Checked { table, warnings }) => {
            let line = format!("{}: {}\n", path.display(), table.summary());
            io::stdout().write_all(line.as_bytes()).ok();
            for warning in warnings {
                io::stderr()
                    .write_all(format!("warning: {warning}\n").as_bytes())
                    .ok();
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let lines = format!("{error}\n");
            io::stderr().write_all(lines.as_bytes()).ok();
            ExitCode::from(USAGE)
        }
    }
}

/// The table goes to its file or to standard output, and what is to be said of it to standard error.
fn import_command(files: &[PathBuf], output: Option<&Path>) -> ExitCode {
    let imported = match import(files, output) {
        Ok(imported) => imported,
        Err(error) => {
            let line = format!("ballast: {error}\n");
            io::stderr().write_all(line.as_bytes()).ok();
            return ExitCode::from(match error {
                ImportError::Source { .. } => USAGE,
                ImportError::Output { .. } => FAULT,
            });
        }
    };
    if output.is_none() {
        io::stdout().write_all(imported.table.as_bytes()).ok();
    }
    let folder = output
        .and_then(Path::parent)
        .unwrap_or_else(|| Path::new(""));
    let words = imported.in_words(folder);
    io::stderr().write_all(words.as_bytes()).ok();
    ExitCode::from(match imported.report.count(ballast_import::Kind::LeftOut) {
        0 => 0,
        _ => LEFT_OUT,
    })
}

fn show_command(show: &Show) -> ExitCode {
    let place = match (&show.socket, show.admin) {
        (_, Some(admin)) => Server::Admin(admin),
        (Some(socket), None) => Server::Socket(socket.clone()),
        (None, None) => Server::Admin(SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN_PORT))),
    };
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paint = if io::stdout().is_terminal() && !no_color {
        Paint::Coloured
    } else {
        Paint::Plain
    };
    let output = match show.output {
        Output::Text => show::for_people(show.what, &place, paint),
        Output::Json => show::for_programs(show.what, &place),
    };
    let output = output.map(|text| {
        // A reader that ends early has read enough.
        io::stdout().write_all(text.as_bytes()).ok();
    });
    match output {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => unanswered(&error, FAULT),
    }
}

/// Sends one command, or each line of standard input.
fn send_commands(ctl: &Ctl) -> ExitCode {
    let mut out = io::stdout().lock();
    let mut send = |line: String| {
        let line = if ctl.json {
            show::json_form(&line)?
        } else {
            line
        };
        show::pass(&ctl.socket, &line, &mut out)
    };
    let outcome = if ctl.command.is_empty() {
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        let mut commands = lines.filter(|line| !line.trim().is_empty());
        // Commands after one that failed are sent, too.
        commands.try_fold(Outcome::Done, |before, line| {
            let outcome = send(line)?;
            Ok(if before == Outcome::Failed {
                before
            } else {
                outcome
            })
        })
    } else {
        send(ctl.command.join(" "))
    };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(REFUSED),
        Err(error) => unanswered(&error, NOBODY),
    }
}

/// Says why there is no answer. Ends with `nobody` where nobody gave one.
fn unanswered(error: &Unanswered, nobody: u8) -> ExitCode {
    let line = format!("ballast: {error}\n");
    io::stderr().write_all(line.as_bytes()).ok();
    ExitCode::from(match error {
        Unanswered::At(..) => nobody,
        Unanswered::NeedsSocket | Unanswered::NoJson(_) => USAGE,
    })
}

fn config(run: &Run) -> Result<Config, StartError> {
    if let Ok(entry) = run.table.metadata()
        && !entry.is_file()
        && !entry.is_dir()
    {
        return Err(StartError::Table(format!(
            "{}: can be read only once, but is to be watched; save the table in a file",
            run.table.display()
        )));
    }
    Ok(Config {
        admin: admin(&run.admin),
        healthz: admin(&run.healthz),
        stats_auth_file: run.stats_auth_file.clone(),
        table: run.table.clone(),
        socket: run.socket.clone(),
        ack: run.ack.clone(),
        threads: run.threads.map(usize::from),
        max_connections: run.max_connections,
        max_checks: run.max_checks,
        shutdown_delay: run.shutdown_delay,
        drain_timeout: run.drain_timeout,
    })
}

/// Starts, serves until a signal asks to end, and ends. The value beside [`Running`] is dropped after it.
fn serve<T>(
    (format, level): (log::Format, log::Level),
    wait: Option<Wait>,
    begin: impl FnMut() -> Result<(Running, T), StartError>,
) -> ExitCode {
    // Dropped last, so that the last lines are written.
    let _log = match log::begin(format, level) {
        Ok(log) => log,
        Err(error) => {
            let line = format!("ballast: cannot start the thread that writes the log: {error}\n");
            io::stderr().write_all(line.as_bytes()).ok();
            return ExitCode::from(FAULT);
        }
    };
    let begun = Signals::new().and_then(|mut signals| {
        let begun = wait::begin(&mut signals, wait, begin)?;
        Ok((signals, begun))
    });
    match begun {
        Ok((signals, Some((running, _beside)))) => {
            let admin: Vec<String> = running.admin().iter().map(ToString::to_string).collect();
            tracing::info!(
                workers = running.shared().loads.len(),
                admin = admin.join(" "),
                "ballast {} runs",
                env!("CARGO_PKG_VERSION")
            );
            signals.serve(running)
        }
        Ok((_, None)) => {
            tracing::info!("ended by a signal, before it began");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, format),
    }
}

/// Prints why the process did not start: as plain text, or as one JSON line.
fn fail(error: &anyhow::Error, format: log::Format) -> ExitCode {
    let (words, code) = match error.downcast_ref() {
        Some(error @ (StartError::Table(_) | StartError::Auth(_))) => (error.to_string(), USAGE),
        Some(error) => (error.to_string(), FAULT),
        None => (format!("{error:#}"), FAULT),
    };
    match format {
        log::Format::Text => log::plain(&format!("ballast: {words}")),
        log::Format::Json => tracing::error!("{words}"),
    }
    ExitCode::from(code)
}

/// The value of one `--admin` or `--healthz`.
#[derive(Clone, Debug)]
enum AdminArg {
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
fn admin(args: &[AdminArg]) -> Admin {
    if args.is_empty() {
        return Admin::FromTable;
    }
    let addresses = args.iter().flat_map(|arg| match arg {
        AdminArg::Nowhere => &[][..],
        AdminArg::At(addresses) => addresses,
    });
    Admin::At(addresses.copied().collect())
}

/// A duration in the table's form; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
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
/// The default admin port.
const ADMIN_PORT: u16 = 1936;
const ADMIN_FORM: &str = "IP:PORT, [IP6]:PORT, *:PORT or none";
const DRAIN: &str = "30s";
const _: () = assert!(DRAIN_TIMEOUT.as_secs() == 30, "the help says so");
/// A larger number is a typing error: so many threads would only wait for each other.
const MAX_THREADS: i64 = 1024;
const USAGE: u8 = 64;
const FAULT: u8 = 1;
/// Of `ctl`: an answer is an error.
const REFUSED: u8 = 1;
/// Of `ctl`: nobody answers.
const NOBODY: u8 = 2;
/// Of `import`: the table does not say everything.
const LEFT_OUT: u8 = 2;
