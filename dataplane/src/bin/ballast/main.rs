//! The program `ballast`: arguments and exit codes.

use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ballast::config::Access;
use ballast::show::{self, Outcome, Paint, Server, Unanswered};
use ballast::{
    Checked, Config, EarlyAdmin, FirstTable, GOES_ON, GivenUp, Inherited, Rights, Running,
    StartError, VERSION, Verdict, demo, is_served, log,
};
use ballast_core::table::schema;
use ballast_import::{ImportError, import};
use clap::CommandFactory;
use tikv_jemallocator::Jemalloc;

mod cli;
mod man;
mod out;
mod service_manager;
mod signals;
mod upgrade;
mod wait;

use cli::{Cli, Command, Ctl, Output, Run, Show};
use out::{ended, print, say};
use signals::Signals;
use wait::{Begin, Begun, Wait};

/// A connection makes three aligned allocations, which the system's allocator serves slowly and with fragmentation.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return not_begun(&error),
    };
    match cli.command {
        Command::Check(tables) => check(&tables),
        Command::Schema => ended(print(schema().as_bytes()), 0),
        Command::Import {
            files,
            mut file,
            output,
        } => {
            file.extend(files);
            import_command(&file, output.as_deref())
        }
        Command::Demo => {
            let log = (log::Format::Text, log::Level::Info);
            serve(log, None, Ok(GivenUp::default()), Demo)
        }
        Command::Show(show) => show_command(&show),
        Command::Ctl(ctl) => send_commands(&ctl),
        Command::Version => {
            let line = format!("ballast {}\n", *VERSION);
            ended(print(line.as_bytes()), 0)
        }
        Command::Completions { shell } => {
            // The generator would panic where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ballast", &mut script);
            ended(print(&script), 0)
        }
        Command::Man { folder } => match man::write(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                        "name a folder that is there"
                    }
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "make room there, or name another folder"
                    }
                    _ => "name a folder in which files may be written",
                };
                say(&format!(
                    "ballast: {}: the manual pages cannot be written: {error}; {remedy}",
                    folder.display()
                ));
                ExitCode::from(FAULT)
            }
        },
        Command::Upgrade(wanted) => upgrade::upgrade(&wanted),
        Command::Run(run) => {
            let given_up = rights(&run).give_up_others(&config(&run));
            serve((run.log_format, run.log_level), run.wait, given_up, *run)
        }
    }
}

/// Prints help, the version, or what is wrong with the arguments.
fn not_begun(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        if let Some(variable) = cli::variable(error) {
            say(&format!("The value is that of the variable {variable}."));
        }
        return ExitCode::from(USAGE);
    }
    // Help and version are no errors.
    ended(printed.and_then(|()| print(b"")), 0)
}

/// Says of each table what is wrong with it. The worst one decides about the exit code.
fn check(check: &cli::Check) -> ExitCode {
    let admin = cli::admin(&check.admin);
    let mut printed = Ok(());
    let verdicts = check.paths.iter().map(|path| {
        let Checked {
            verdict,
            summary,
            problems,
            warnings,
        } = ballast::check(path, &admin);
        if verdict == Verdict::Good {
            let line = format!("{summary}\n");
            if printed.is_ok() {
                printed = print(line.as_bytes());
            }
        } else {
            say(&[&[summary], &*problems].concat().join("\n"));
        }
        for warning in warnings {
            say(&format!("warning: {warning}"));
        }
        verdict
    });
    let code = match verdicts.max() {
        None | Some(Verdict::Good) => 0,
        Some(Verdict::Unreadable) => UNREADABLE,
        Some(Verdict::Refused) => USAGE,
    };
    ended(printed, code)
}

/// The table goes to its file or to standard output, and what is to be said of it to standard error.
fn import_command(files: &[PathBuf], output: Option<&Path>) -> ExitCode {
    let imported = match import(files, output) {
        Ok(imported) => imported,
        Err(error) => {
            say(&format!("ballast: {error}"));
            return ExitCode::from(match error {
                ImportError::Source { .. } => USAGE,
                ImportError::Output { .. } => FAULT,
            });
        }
    };
    let printed = match output {
        None => print(imported.table.as_bytes()),
        Some(_) => Ok(()),
    };
    let folder = output
        .and_then(Path::parent)
        .unwrap_or_else(|| Path::new(""));
    let words = imported.in_words(folder);
    if !words.is_empty() {
        say(words.trim_end_matches('\n'));
    }
    let code = match imported.report.unlike() {
        0 => 0,
        _ => LEFT_OUT,
    };
    ended(printed, code)
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
    match output {
        Ok(text) => ended(print(text.as_bytes()), 0),
        Err(error) => unanswered(&error, FAULT),
    }
}

/// Sends each line of the arguments or, without any, of standard input.
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
    let arguments = ctl.command.join(" ");
    let mut commands: Box<dyn Iterator<Item = Result<String, Unanswered>>> =
        if ctl.command.is_empty() {
            Box::new(show::lines(io::stdin().lock()))
        } else if arguments.trim().contains('\n') {
            Box::new(show::lines(arguments.as_bytes()))
        } else {
            // An empty one is answered with help.
            Box::new(std::iter::once(Ok(arguments.trim().to_owned())))
        };
    // Commands after one that failed are sent, too.
    let outcome = commands.try_fold(Outcome::Done, |before, line| {
        let outcome = send(line?)?;
        Ok(if before == Outcome::Failed {
            before
        } else {
            outcome
        })
    });
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(REFUSED),
        Err(error) => unanswered(&error, NOBODY),
    }
}

/// Says why there is no answer. Ends with `nobody` where nobody gave one.
fn unanswered(error: &Unanswered, nobody: u8) -> ExitCode {
    say(&format!("ballast: {error}"));
    ExitCode::from(match error {
        Unanswered::At(..) => nobody,
        Unanswered::Unwritten(_) | Unanswered::Unread(_) => FAULT,
        Unanswered::NeedsSocket | Unanswered::NoJson(_) => USAGE,
    })
}

impl Begin for Run {
    type Read = FirstTable;
    type What = (Running, ());

    fn reader(&self) -> impl FnOnce() -> Result<FirstTable, StartError> + Send + 'static {
        let table = self.table.clone();
        move || {
            is_readable_again(&table)?;
            FirstTable::read(&table)
        }
    }

    fn is_current(&self, read: &FirstTable) -> bool {
        read.is_current()
    }

    fn early(&self) -> Option<EarlyAdmin> {
        EarlyAdmin::claim(&config(self))
    }

    fn handover(&self) -> Option<&Path> {
        self.handover.as_deref()
    }

    fn stays(&self) -> bool {
        self.stay
    }

    fn begin(
        &mut self,
        read: &mut FirstTable,
        early: Option<EarlyAdmin>,
        inherited: Option<Inherited>,
    ) -> Result<Self::What, StartError> {
        let running = ballast::start_on(config(self), read, early, inherited)?;
        Ok((running, ()))
    }
}

/// `ballast demo`, which makes its table itself.
struct Demo;

impl Begin for Demo {
    type Read = ();
    type What = (Running, demo::Folder);

    fn reader(&self) -> impl FnOnce() -> Result<(), StartError> + Send + 'static {
        || Ok(())
    }

    fn is_current(&self, (): &()) -> bool {
        true
    }

    fn early(&self) -> Option<EarlyAdmin> {
        None
    }

    fn handover(&self) -> Option<&Path> {
        None
    }

    fn begin(
        &mut self,
        (): &mut (),
        _: Option<EarlyAdmin>,
        _: Option<Inherited>,
    ) -> Result<Self::What, StartError> {
        demo::begin()
    }
}

fn is_readable_again(table: &Path) -> Result<(), StartError> {
    match table.metadata() {
        Ok(entry) if !entry.is_file() && !entry.is_dir() => Err(StartError::Table(format!(
            "{}: can be read only once, but is to be watched; save the table in a file",
            table.display()
        ))),
        _ => Ok(()),
    }
}

fn config(run: &Run) -> Config {
    Config {
        admin: cli::admin(&run.admin),
        healthz: cli::admin(&run.healthz),
        stats_auth_file: run.stats_auth_file.clone(),
        announce_ack: run.announce_ack.clone(),
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
        handover: run.handover.clone(),
        max_connections: run.max_connections,
        max_checks: run.max_checks,
        shutdown_delay: run.shutdown_delay,
        drain_timeout: run.drain_timeout,
    }
}

fn rights(run: &Run) -> Rights {
    Rights {
        user: run.user.clone(),
        group: run.group,
        sandbox: run.sandbox,
        sandbox_read: run.sandbox_read.clone(),
    }
}

/// Begins, serves until a signal asks to end, and ends. The value next to [`Running`] is dropped after it. `given_up`: the rights
/// of which the log says that they are gone; the thread that writes it must not have had them.
fn serve<T>(
    (format, level): (log::Format, log::Level),
    wait: Option<Wait>,
    given_up: Result<GivenUp, StartError>,
    beginning: impl Begin<What = (Running, T)>,
) -> ExitCode {
    log::append(io::stdout());
    log::append(io::stderr());
    // Dropped last, so that the last lines are written.
    let _log = match log::begin(format, level) {
        Ok(log) => log,
        Err(error) => {
            say(&format!(
                "ballast: cannot start the thread that writes the log: {error}"
            ));
            return ExitCode::from(FAULT);
        }
    };
    let handover = beginning.handover().map(Path::to_owned);
    let stays = beginning.stays();
    match given_up {
        Ok(given_up) => given_up.log(),
        Err(error) => return fail(&error.into(), format, handover.as_deref()),
    }
    let begun = Signals::new().and_then(|mut signals| {
        let begun = wait::begin(&mut signals, wait, beginning)?;
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
                *VERSION
            );
            signals.serve(running, predecessors, stays)
        }
        Ok((_, None)) => {
            tracing::info!("ended by a signal, before it began");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error, format, handover.as_deref()),
    }
}

/// Prints why the process did not start: as plain text, or as one JSON line. Where it was to take over from another one, that one
/// goes on.
fn fail(error: &anyhow::Error, format: log::Format, handover: Option<&Path>) -> ExitCode {
    let fault = match handover {
        Some(path) if is_served(path) => GOES_ON,
        _ => FAULT,
    };
    let (words, code) = match error.downcast_ref() {
        Some(error @ (StartError::Table(_) | StartError::Auth(_))) => (error.to_string(), USAGE),
        Some(error) => (error.to_string(), fault),
        None => (format!("{error:#}"), fault),
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
