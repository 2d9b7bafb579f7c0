//! A host without Kubernetes: a folder of manifests, a folder for the table, and both programs.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use support::free_port;
use support::program::program;

/// The host. What runs on it is killed when it is dropped.
pub(crate) struct Host {
    pub(crate) manifests: TempDir,
    pub(crate) table: TempDir,
    /// Everything else.
    pub(crate) folder: TempDir,
    pub(crate) controller: Option<Program>,
    dataplane: Option<Program>,
    flags: Vec<String>,
    /// Where the data plane answers.
    pub(crate) stats: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Host {
    pub(crate) fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            manifests: folder(),
            table: folder(),
            folder: folder(),
            controller: None,
            dataplane: None,
            flags: Vec::new(),
            stats: here(free_port()),
            admin: here(free_port()),
        }
    }

    /// What the controller is told beside where everything is.
    pub(crate) fn flags(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|&flag| flag.to_owned()).collect();
    }

    /// Puts a manifest in its place, by a rename.
    pub(crate) fn manifest(&self, name: &str, text: &str) {
        let draft = self.folder.path().join("draft");
        fs::write(&draft, text).expect("a file");
        fs::rename(draft, self.manifests.path().join(name)).expect("a rename");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.manifests.path().join(name)).expect("a file");
    }

    /// Starts both programs.
    pub(crate) fn start(&mut self) {
        self.start_controller();
        // The table says where the data plane answers.
        let table = self.table.path().join("table.json");
        until("a table", || table.exists());
        let mut command = program("ballast");
        command.args(["run", "--threads", "1", "--drain-timeout", "1s", "--table"]);
        command.arg(self.table.path());
        self.dataplane = Some(Program::start(&mut command, self.log("ballast")));
    }

    pub(crate) fn start_controller(&mut self) {
        let path = self.log("controller");
        let log = File::options().create(true).append(true).open(path);
        let log = log.expect("a log");
        self.start_controller_into(log.into());
    }

    /// With another log than a file.
    pub(crate) fn start_controller_into(&mut self, log: Stdio) {
        let mut command = program("ballast-controller");
        command
            .args(["run", "--stats-port", &self.stats.port().to_string()])
            .args(["--admin", &self.admin.to_string(), "--manifests"])
            .arg(self.manifests.path())
            .arg("--table-dir")
            .arg(self.table.path())
            .args(&self.flags);
        self.controller = Some(Program::start_into(&mut command, log));
    }

    /// What a client hears there.
    pub(crate) fn ask(&self, port: u16) -> io::Result<String> {
        self.ask_at((Ipv4Addr::LOCALHOST, port).into())
    }

    pub(crate) fn ask_at(&self, address: SocketAddr) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut heard = String::new();
        stream.read_to_string(&mut heard)?;
        Ok(heard)
    }

    pub(crate) fn until_says(&self, port: u16, word: &str) {
        until(&format!("{word} at port {port}\n{}", self.logs()), || {
            self.ask(port).is_ok_and(|heard| heard == word)
        });
    }

    pub(crate) fn until_logged(&self, words: &str) {
        until(words, || self.logs().contains(words));
    }

    /// Waits until the controller answers so.
    pub(crate) fn until_answers(&self, path: &str, status: u16) {
        let head = format!("HTTP/1.1 {status} ");
        until(&head, || {
            get(self.admin, path).is_ok_and(|answer| answer.starts_with(&head))
        });
    }

    /// Waits until a number of the controller is so.
    pub(crate) fn until_metric(&self, name: &str, is_so: impl Fn(u64) -> bool) {
        let name = format!("ballast_controller_{name} ");
        until(&name, || {
            let answer = get(self.admin, "/metrics").unwrap_or_default();
            let value = answer.lines().find_map(|line| line.strip_prefix(&name));
            value
                .and_then(|value| value.parse().ok())
                .is_some_and(&is_so)
        });
    }

    pub(crate) fn logs(&self) -> String {
        let read = |name| fs::read_to_string(self.log(name)).unwrap_or_default();
        format!("{}{}", read("controller"), read("ballast"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }
}

/// A program that runs. It is killed when it is dropped.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Self {
        let log = File::options().create(true).append(true).open(log);
        Self::start_into(command, log.expect("a log").into())
    }

    fn start_into(command: &mut Command, log: Stdio) -> Self {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Self(child.expect("a program"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// As a crash would.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("a child");
    }

    /// Waits for its end.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let mut ended = None;
        until("the end of a program", || {
            ended = self.0.try_wait().expect("a child");
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

pub(crate) fn signal(program: &Program, signal: Signal) {
    kill_process(Pid::from_child(&program.0), signal).expect("it runs");
}

/// Runs the controller to its end: its code, and what it said.
pub(crate) fn to_its_end(flags: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let file = |path: &Path| File::create(path).expect("a file");
    let mut command = program("ballast-controller");
    command.args(flags).stdin(Stdio::null());
    let child = command.stdout(file(&out)).stderr(file(&err)).spawn();
    let code = Program(child.expect("a program")).ends();
    let text = |path: &Path| fs::read_to_string(path).expect("a file");
    (code, text(&out), text(&err))
}

/// An endpoint that says one word to everybody.
pub(crate) struct Answers {
    pub(crate) port: u16,
}

impl Answers {
    pub(crate) fn start(word: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                stream
                    .and_then(|mut stream| stream.write_all(word.as_bytes()))
                    .ok();
            }
        });
        Self { port }
    }
}

/// The whole answer to a request.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, come: impl FnMut() -> bool) {
    support::until_within(PATIENCE, what, come);
}

const PATIENCE: Duration = Duration::from_secs(60);
