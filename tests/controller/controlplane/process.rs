//! Runs programs whose words go to a file, and ends them.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
pub(crate) use support::comes_within;

/// Waits for something that must come.
pub(crate) fn until(what: &str, come: impl FnMut() -> bool) {
    assert!(comes_within(PATIENCE, come), "it never came: {what}");
}

/// A program that a test runs. It is killed when it is dropped; if the test fails, its last words are shown.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it, in the network of this thread. Its words are added to the log.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        let (out, err) = log_ends(log);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
            log: log.to_owned(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Ends it in order, and says its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        let mut ended = None;
        until("the end of a process", || {
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn crash(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }

    /// Processor time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self.proc("stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks = ticks.map(|ticks| ticks.parse::<u64>().expect("ticks"));
        Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS_PER_SECOND)
    }

    /// The most memory that it has ever had, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") / 1024
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("it runs")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            let log = self.log();
            let last = log.lines().rev().take(40).collect::<Vec<_>>();
            eprintln!("--- the end of {}:", self.log.display());
            for line in last.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

/// A program that several tests use: it dies with this process too, however that ends.
pub(crate) struct Companion {
    guard: Child,
    /// Closed when this process is no more.
    leash: Option<ChildStdin>,
}

impl Companion {
    pub(crate) fn start(program: &Path, args: &[String], log: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", HELD, "held"]).arg(program);
        if !support::peers::is_for_figures() {
            // Programs of the control plane are written in Go. They look for garbage a quarter as often as they do by themselves:
            // in tests, memory is less scarce than processors.
            command.env("GOGC", "400");
        }
        Self::hold(command.args(args), log)
    }

    /// Nothing but the removal of a folder in the end.
    pub(crate) fn remove_in_the_end(folder: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", REMOVED]).arg(folder);
        Self::hold(&mut command, Path::new("/dev/null"))
    }

    /// Starts a program that ends by itself when its standard input does.
    pub(crate) fn hold(command: &mut Command, log: &Path) -> Self {
        let (out, err) = log_ends(log);
        let mut guard = command
            // What a terminal tells this process is not for the guard: it has to tidy up.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let leash = guard.stdin.take();
        Self { guard, leash }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.leash.take();
        self.guard.wait().ok();
    }
}

fn log_ends(log: &Path) -> (File, File) {
    let file = File::options().create(true).append(true).open(log);
    let out = file.unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    let err = out.try_clone().expect("a descriptor");
    (out, err)
}

/// Runs a program until standard input ends.
const HELD: &str = r#""$@" </dev/null & read -r _; kill -KILL $!; wait"#;
/// Removes a folder when standard input ends. Programs that write there may end at the same time.
const REMOVED: &str = r#"read -r _; rm -rf "$0" || { sleep 1; rm -rf "$0"; }"#;
/// For what must come: long, because machines may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// As Linux tells them to programs, on every machine.
const TICKS_PER_SECOND: u64 = 100;
