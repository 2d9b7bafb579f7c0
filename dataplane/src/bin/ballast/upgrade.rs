//! `ballast upgrade`: starts the next process beside the one that runs, as that one was started, and waits until it serves.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ballast::{GOES_ON, Holder, LockName, Predecessor, RELEASES_WITHIN, TakenOver, VERSION};

use crate::FAULT;
use crate::cli::Upgrade;
use crate::out::{ended, print, say};

mod limits;
mod streams;

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
        Outcome::Serves(words) if replaces(&words, &upgrade.handover, old.pid) => {
            let line = format!("pid {} serves {}\n", next.id(), in_place(&words, old.pid));
            ended(print(line.as_bytes()), 0)
        }
        Outcome::Serves(_) => {
            say(&format!(
                "ballast: pid {} serves, and the process with pid {} goes on: it was not asked for its sockets; end one of them, and name the same --handover in the arguments of the next one",
                next.id(),
                old.pid
            ));
            ExitCode::from(FAULT)
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

/// Whether the process that ran has handed over or has ended. One that reports no sockets has not asked, where the other one still
/// answers at the path.
fn replaces(words: &str, handover: &Path, old: u32) -> bool {
    !words.starts_with(NOTHING) || !matches!(pid_at(handover), Ok(Some(pid)) if pid == old)
}

/// What the next process reports, with the process that it replaces. One of an earlier version does not name that.
fn in_place(words: &str, old: u32) -> String {
    match words.starts_with(IN_PLACE) {
        true => words.to_owned(),
        false => format!("{IN_PLACE}{old}: {words}"),
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
        let Some(pid) = pid_at(&upgrade.handover)? else {
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
            asks_there(upgrade)?;
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
        let environment: Vec<(OsString, OsString)> = environment.collect();
        let folder = fs::read_link(at("cwd"))?;
        let mut arguments = arguments.into_iter();
        let named = arguments.next().unwrap_or_default();
        let paths = environment.iter().find(|(name, _)| name == "PATH");
        let paths = paths.map(|(_, paths)| paths.as_os_str());
        let program = match program_of(&named, &folder, paths) {
            Some(program) => program,
            None => running(&fs::read_link(at("exe"))?),
        };
        Ok(Self {
            pid,
            program,
            arguments: arguments.collect(),
            environment: Some(environment),
            folder: Some(folder),
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
        let [out, err] = streams::of_next(self.pid);
        command
            .args(&self.arguments)
            .env(REPORTS, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(out)
            .stderr(err)
            // A signal to this command's group is none to it.
            .process_group(0);
        let next = command.spawn().map_err(failed)?;
        Ok((next, report))
    }
}

/// The process that hands over at this path; `None`: it is in another pid namespace. An error is why there is none.
fn pid_at(path: &Path) -> Result<Option<u32>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot be asked: {error}"))?;
    let lock = LockName::Socket(path.into());
    match runtime.block_on(answer_at(&lock)) {
        (Holder::Serves, Some(holder)) => Ok(holder.pid()),
        (Holder::Ends, _) => Err(
            "the process there is ending; start the next one when it has ended".into(),
        ),
        (Holder::Hangs, holder) => {
            let who = holder.and_then(|holder| holder.pid());
            let who = who.map(|pid| format!(" (pid {pid})"));
            Err(format!(
                "the process there{} does not answer, so it cannot hand over; look whether it is stopped or its machine overloaded, try again, or end it and start the next one",
                who.unwrap_or_default()
            ))
        }
        _ => Err(
            "no ballast of this user hands over there; name the path of the one that runs; of another user's, start the next one yourself, by `ballast run` with the same flags as that user".into(),
        ),
    }
}

/// What the holder of the lock does. One that has just taken over answers in a moment: until then the one before has closed its socket,
/// and it has not opened its own.
async fn answer_at(lock: &LockName) -> (Holder, Option<Predecessor>) {
    let until = Instant::now() + RELEASES_WITHIN;
    loop {
        let answer = Predecessor::ask(lock).await;
        if answer.0 != Holder::Silent || Instant::now() >= until {
            return answer;
        }
        tokio::time::sleep(ASKS_EVERY).await;
    }
}

/// Refuses arguments by which the next process would not ask the one that runs for its sockets, and serve beside it.
fn asks_there(upgrade: &Upgrade) -> Result<(), String> {
    let path = &upgrade.handover;
    let mut words = upgrade.arguments.iter();
    let mut named = None;
    while let Some(word) = words.next() {
        if word == HANDOVER {
            named = words.next().map(PathBuf::from);
        } else if let Some(value) = word.as_bytes().strip_prefix(b"--handover=") {
            named = Some(OsStr::from_bytes(value).into());
        }
    }
    let named = named.or_else(|| std::env::var_os("BALLAST_HANDOVER").map(Into::into));
    let lock = |path: &Path| LockName::Socket(path.into());
    match named {
        Some(named) if lock(&named).is_same(&lock(path)) => Ok(()),
        Some(named) => Err(format!(
            "the arguments behind `--` name another path, {}, so that the next process would serve beside the one that runs and not in its place; name the same one in both",
            named.display()
        )),
        None => Err(format!(
            "the arguments behind `--` have no --handover, so that the next process would serve beside the one that runs and not in its place; add --handover {} to them",
            path.display()
        )),
    }
}

/// The program that a process was told to start as, by its first word: a path from its folder, or a name that is looked for in its
/// PATH. A link leads to the version that it names now. `None`: there is no such program.
fn program_of(named: &OsStr, folder: &Path, paths: Option<&OsStr>) -> Option<PathBuf> {
    if named.is_empty() {
        return None;
    }
    let is_program = |path: &PathBuf| {
        let file = fs::metadata(path);
        file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if named.as_bytes().contains(&b'/') {
        return Some(folder.join(named)).filter(is_program);
    }
    let mut all = std::env::split_paths(paths?).map(|path| folder.join(path).join(named));
    all.find(is_program)
}

/// The path of the program of a process, by its link `exe`: what is there now, where it was replaced.
fn running(exe: &Path) -> PathBuf {
    let bytes = exe.as_os_str().as_bytes();
    let there = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    OsStr::from_bytes(there).into()
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

/// Tells the command that started this process that it serves, and what it has taken over. `None`: the process before had ended.
pub(crate) fn report(taken: Option<&TakenOver>) {
    if std::env::var_os(REPORTS).is_none() {
        return;
    }
    let version = &*VERSION;
    let line = match taken {
        Some(taken) => {
            let TakenOver {
                sockets,
                of,
                program,
                ..
            } = taken;
            let pid = taken.pid.map(|pid| format!("{IN_PLACE}{pid}: "));
            let pid = pid.unwrap_or_default();
            format!("{pid}inherited {sockets} of {of} sockets; version {program} -> {version}\n")
        }
        None => {
            format!("{NOTHING}: that one had ended meanwhile; version {version}\n")
        }
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
/// Begins what the next process reports where it knows whom it replaces.
const IN_PLACE: &str = "in place of pid ";
/// Begins what it reports where it has taken over from nobody.
const NOTHING: &str = "inherited nothing";
const HANDOVER: &str = "--handover";
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The pause between two questions to a process that has not answered yet.
const ASKS_EVERY: Duration = Duration::from_millis(10);
