//! The program `ballast`: arguments and exit codes.

use std::io::{self, BufRead, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ballast::config::Access;
use ballast::show::{self, Outcome, Paint, Server, Unanswered};
use ballast::{Checked, Config, Running, StartError, Verdict, demo, log};
use ballast_core::table::schema;
use ballast_import::{ImportError, import};
use clap::{CommandFactory, Parser};
use tikv_jemallocator::Jemalloc;

mod cli;
mod service_manager;
mod signals;
mod wait;

use cli::{Cli, Command, Ctl, Output, Run, Show};
use signals::Signals;
use wait::{Begun, Wait};

/// A connection makes three aligned allocations, which the system's allocator serves slowly and with fragmentation.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

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
        Command::Check(tables) => check(&tables),
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
        Command::Version => {
            let line = format!("ballast {}\n", env!("CARGO_PKG_VERSION"));
            io::stdout().write_all(line.as_bytes()).ok();
            ExitCode::SUCCESS
        }
        Command::Completions { shell } => {
            // A reader that ends early has read enough, and the generator would panic.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ballast", &mut script);
            io::stdout().write_all(&script).ok();
            ExitCode::SUCCESS
        }
        Command::Man { folder } => match clap_mangen::generate_to(Cli::command(), &folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let line = format!(
                    "ballast: {}: the manual pages cannot be written: {error}; name a folder that is there\n",
                    folder.display()
                );
                io::stderr().write_all(line.as_bytes()).ok();
                ExitCode::from(FAULT)
            }
        },
        Command::Run(run) => {
            let begin = || Ok((ballast::start(config(&run)?)?, ()));
            serve((run.log_format, run.log_level), run.wait, begin)
        }
    }
}

/// Says of each table what is wrong with it. The worst one decides about the exit code.
fn check(check: &cli::Check) -> ExitCode {
    let admin = cli::admin(&check.admin);
    let verdicts = check.paths.iter().map(|path| {
        let Checked {
            verdict,
            summary,
            problems,
            warnings,
        } = ballast::check(path, &admin);
        if verdict == Verdict::Good {
            io::stdout()
                .write_all(format!("{summary}\n").as_bytes())
                .ok();
        } else {
            let lines = [&[summary], &*problems].concat().join("\n");
            io::stderr().write_all(format!("{lines}\n").as_bytes()).ok();
        }
        for warning in warnings {
            let line = format!("warning: {warning}\n");
            io::stderr().write_all(line.as_bytes()).ok();
        }
        verdict
    });
    match verdicts.max() {
        None | Some(Verdict::Good) => ExitCode::SUCCESS,
        Some(Verdict::Unreadable) => ExitCode::from(UNREADABLE),
        Some(Verdict::Refused) => ExitCode::from(USAGE),
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
        admin: cli::admin(&run.admin),
        healthz: cli::admin(&run.healthz),
        stats_auth_file: run.stats_auth_file.clone(),
        table: run.table.clone(),
        socket: run.socket.clone(),
        socket_access: Access {
            mode: run.socket_mode,
            group: run.socket_group,
        },
        monitor_socket: run.monitor_socket.clone().map(|path| {
            let access = Access {
                mode: MONITOR_MODE,
                group: run.monitor_group,
            };
            (path, access, run.monitor_level)
        }),
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
        Ok((
            signals,
            Some(Begun {
                what: (running, _beside),
                predecessors,
            }),
        )) => {
            let admin: Vec<String> = running.admin().iter().map(ToString::to_string).collect();
            tracing::info!(
                workers = running.shared().loads.len(),
                admin = admin.join(" "),
                "ballast {} runs",
                env!("CARGO_PKG_VERSION")
            );
            signals.serve(running, predecessors)
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

/// The default admin port.
const ADMIN_PORT: u16 = 1936;
/// The mode of the file of `--monitor-socket`.
const MONITOR_MODE: u32 = 0o660;
const USAGE: u8 = 64;
const FAULT: u8 = 1;
/// Of `check`: a table, or a file that it names, cannot be read.
const UNREADABLE: u8 = 66;
/// Of `ctl`: an answer is an error.
const REFUSED: u8 = 1;
/// Of `ctl`: nobody answers.
const NOBODY: u8 = 2;
/// Of `import`: the table does not say everything.
const LEFT_OUT: u8 = 2;
