//! `ballast upgrade`: starts the next process beside the one that runs, as that one was started, and waits until it serves.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ballast::{GOES_ON, Holder, LockName, Predecessor};

use crate::FAULT;
use crate::cli::Upgrade;
use crate::out::{ended, print, say};

mod limits;

/// Replaces the process that answers at the path.
pub(crate) fn upgrade(upgrade: &Upgrade) -> ExitCode {
    let old = match Old::find(upgrade) {
        Ok(old) => old,
        Err(why) => {
            say(&format!(
                "ballast: --handover {}: {why}",
                upgrade.handover.display()
            ));
            return ExitCode::from(FAULT);
        }
    };
    let started = old.start();
    let (mut next, report) = match started {
        Ok(started) => started,
        Err(why) => {
            say(&format!(
                "ballast: {why}; the process with pid {} goes on",
                old.pid
            ));
            return ExitCode::from(GOES_ON);
        }
    };
    match outcome(&mut next, report) {
        Outcome::Serves(words) => {
            let line = format!(
                "pid {} serves in place of pid {}: {words}\n",
                next.id(),
                old.pid
            );
            ended(print(line.as_bytes()), 0)
        }
        Outcome::Ended(how) => {
            say(&format!(
                "ballast: the next process has ended ({how}), and its log says why; the process with pid {} goes on",
                old.pid
            ));
            ExitCode::from(GOES_ON)
        }
        Outcome::Unknown(why) => {
            say(&format!(
                "ballast: {why}; its log says what it does, and the process with pid {} goes on until the next one serves",
                old.pid
            ));
            ExitCode::from(FAULT)
        }
    }
}

/// What became of the next process.
enum Outcome {
    /// It serves, and reports this.
    Serves(String),
    Ended(ExitStatus),
    Unknown(String),
}

/// The process that runs, and how it was started.
struct Old {
    pid: u32,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// `None`: that of this command, and its folder.
    environment: Option<Vec<(OsString, OsString)>>,
    folder: Option<PathBuf>,
}

impl Old {
    /// The process that hands over at this path.
    fn find(upgrade: &Upgrade) -> Result<Self, String> {
        let path = &upgrade.handover;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot be asked: {error}"))?;
        let lock = LockName::Socket(path.clone());
        let pid = match runtime.block_on(Predecessor::ask(&lock)) {
            (Holder::Serves, Some(holder)) => holder.pid(),
            (Holder::Ends, _) => {
                return Err(
                    "the process there is ending; start the next one when it has ended".into(),
                );
            }
            (Holder::Hangs, holder) => {
                let who = holder.and_then(|holder| holder.pid());
                let who = who.map(|pid| format!(" (pid {pid})"));
                return Err(format!(
                    "the process there{} does not answer, so it cannot hand over; look whether it is stopped or its machine overloaded, try again, or end it and start the next one",
                    who.unwrap_or_default()
                ));
            }
            _ => {
                return Err(
                    "no ballast of this user hands over there; name the path of the one that runs; of another user's, start the next one yourself, by `ballast run` with the same flags as that user".into(),
                );
            }
        };
        let Some(pid) = pid else {
            return Err(
                "the process there is in another pid namespace; run this command there".into(),
            );
        };
        let program = upgrade.program.as_deref().map(|program| {
            // It is found from here, not from the folder of the process that runs.
            std::path::absolute(program).map_err(|error| format!("{}: {error}", program.display()))
        });
        let program = program.transpose()?;
        if let Some(program) = program.as_ref().filter(|_| !upgrade.arguments.is_empty()) {
            return Ok(Self {
                pid,
                program: program.clone(),
                arguments: upgrade.arguments.clone(),
                environment: None,
                folder: None,
            });
        }
        let old = Self::of(pid).map_err(|error| {
            format!("how the process with pid {pid} was started cannot be read: {error}; run this command as root, or name the program and, behind `--`, its arguments")
        })?;
        Ok(Self {
            program: program.unwrap_or(old.program),
            ..old
        })
    }

    fn of(pid: u32) -> std::io::Result<Self> {
        let at = |name: &str| format!("/proc/{pid}/{name}");
        let arguments = words(&fs::read(at("cmdline"))?);
        let environment = words(&fs::read(at("environ"))?)
            .into_iter()
            .filter_map(|word| {
                let bytes = word.as_bytes();
                let end = bytes.iter().position(|byte| *byte == b'=')?;
                let (name, value) = bytes.split_at(end);
                let value = value.get(1..)?;
                Some((
                    OsStr::from_bytes(name).into(),
                    OsStr::from_bytes(value).into(),
                ))
            });
        let program = fs::read_link(at("exe"))?;
        let bytes = program.as_os_str().as_bytes();
        // A program that was replaced on disk.
        let there = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        Ok(Self {
            pid,
            program: OsStr::from_bytes(there).into(),
            arguments: arguments.into_iter().skip(1).collect(),
            environment: Some(environment.collect()),
            folder: Some(fs::read_link(at("cwd"))?),
        })
    }

    /// Starts the next process. What it reports comes from the returned stream.
    fn start(&self) -> Result<(Child, UnixStream), String> {
        let program = &self.program;
        let failed =
            |error: std::io::Error| format!("{}: cannot be started: {error}", program.display());
        let (report, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(program);
        if let Some(environment) = &self.environment {
            command.env_clear().envs(environment.iter().cloned());
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        limits::follow(self.pid);
        command
            .args(&self.arguments)
            .env(REPORTS, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(self.stream(1))
            .stderr(self.stream(2))
            // A signal to this command's group is none to it.
            .process_group(0);
        let next = command.spawn().map_err(failed)?;
        Ok((next, report))
    }

    /// Where the process that runs writes, if that can be opened; else where this command does.
    fn stream(&self, number: u8) -> Stdio {
        let path = format!("/proc/{}/fd/{number}", self.pid);
        match File::options().append(true).open(path) {
            Ok(file) => file.into(),
            Err(_) => Stdio::inherit(),
        }
    }
}

fn words(bytes: &[u8]) -> Vec<OsString> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

/// Waits until the next process serves or has ended. One that hangs ends itself.
fn outcome(next: &mut Child, report: UnixStream) -> Outcome {
    let unknown = |error: std::io::Error| Outcome::Unknown(format!("cannot wait: {error}"));
    let until = Instant::now() + SERVES_WITHIN;
    if let Err(error) = report.set_read_timeout(Some(LOOK_EVERY)) {
        return unknown(error);
    }
    let mut report = BufReader::new(report);
    let mut words = String::new();
    while Instant::now() < until {
        // What was read before the time was over stays in `words`.
        let read = report.read_line(&mut words);
        if words.ends_with('\n') {
            return Outcome::Serves(words.trim_end().into());
        }
        match next.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Outcome::Ended(status),
            Err(error) => return unknown(error),
        }
        // Its end is noticed in a moment.
        if matches!(read, Ok(0)) {
            thread::sleep(LOOK_EVERY);
        }
    }
    Outcome::Unknown(format!(
        "the next process (pid {}) does not serve after {SERVES_WITHIN:?}",
        next.id()
    ))
}

/// Tells the command that started this process that it serves, and what it has inherited. `None`: the process before had ended.
pub(crate) fn report(numbers: Option<(usize, usize)>) {
    if std::env::var_os(REPORTS).is_none() {
        return;
    }
    let line = match numbers {
        Some((inherited, of)) => format!("inherited {inherited} of {of} sockets\n"),
        None => "inherited nothing: that one had ended meanwhile\n".to_owned(),
    };
    let Ok(stream) = std::io::stdin().as_fd().try_clone_to_owned() else {
        return;
    };
    // A command that has gone needs no report.
    UnixStream::from(stream).write_all(line.as_bytes()).ok();
}

/// Set where standard input is the stream of a command that waits for the report.
const REPORTS: &str = "UPGRADED_BALLAST_REPORTS";
/// Longer than a process that hangs goes on, with time to read a large table.
const SERVES_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);
