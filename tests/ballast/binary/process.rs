//! Runs `ballast`, hears what it says, sends it signals.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use crate::peers;
use support::skip::skip;

/// What a process that ended by itself left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `ballast` with these arguments to its end.
pub(crate) fn ballast<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ended {
    to_its_end(command(BALLAST).args(args))
}

/// Runs a command to its end.
pub(crate) fn to_its_end(command: &mut Command) -> Ended {
    let mut process = Process::spawn(command);
    let code = process.ends();
    Ended {
        code,
        out: process.out.text(),
        err: process.err.text(),
    }
}

/// A command without settings of whoever runs the tests.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BALLAST_") {
            command.env_remove(name);
        }
    }
    command
}

/// A shell that sets limits and then becomes `ballast` with these arguments.
pub(crate) fn limited(limits: &str, args: &[&str]) -> Command {
    let mut shell = command("sh");
    shell
        .arg("-c")
        .arg(format!("{limits}; exec \"$0\" \"$@\""))
        .arg(BALLAST)
        .args(args);
    shell
}

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) out: Heard,
    pub(crate) err: Heard,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_into(command, Stdio::piped(), Stdio::piped())
    }

    /// With other streams than those that are heard.
    pub(crate) fn spawn_into(command: &mut Command, out: Stdio, err: Stdio) -> Self {
        Self::spawn_on(command, Stdio::null(), out, err)
    }

    /// With this as its standard input.
    pub(crate) fn spawn_from(command: &mut Command, input: Stdio) -> Self {
        Self::spawn_on(command, input, Stdio::piped(), Stdio::piped())
    }

    fn spawn_on(command: &mut Command, input: Stdio, out: Stdio, err: Stdio) -> Self {
        let mut child = command
            .stdin(input)
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap();
        let out = child.stdout.take().map(Heard::from).unwrap_or_default();
        let err = child.stderr.take().map(Heard::from).unwrap_or_default();
        Self { child, out, err }
    }

    /// `ballast run` with this table and these arguments; its admin side at any port.
    pub(crate) fn run(table: &Path, args: &[&str]) -> Self {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", "127.0.0.1:0", "--table"]);
        Self::spawn(run.arg(table).args(args))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for something that must come.
    pub(crate) fn until(&self, what: &str, come: impl Fn() -> bool) {
        let in_time = support::comes_within(PATIENCE, come);
        assert!(in_time, "it never came: {what}\n{}", self.err.text());
    }

    /// Waits until its log has these words.
    pub(crate) fn until_said(&self, words: &str) {
        self.until(words, || self.err.text().contains(words));
    }

    pub(crate) fn has_said(&self, words: &str) -> bool {
        self.err.text().contains(words)
    }

    /// Where its admin side answers, by its log.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.until_said(" admin=");
        let text = self.err.text();
        let (_, address) = text.split_once(" admin=\"").unwrap();
        address.split('"').next().unwrap().parse().unwrap()
    }

    /// Waits until its admin side answers so.
    pub(crate) fn until_answers(&self, path: &str, status: u16) {
        let admin = self.admin();
        self.until(&format!("{path} {status}"), || {
            peers::get(admin, path).is_ok_and(|(answered, _)| answered == status)
        });
    }

    pub(crate) fn metrics(&self) -> String {
        peers::get(self.admin(), "/metrics").unwrap().1
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; `None`: a signal killed it.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let ended = support::found_within(PATIENCE, || self.child.try_wait().unwrap());
        let status = ended.unwrap_or_else(|| panic!("it does not end:\n{}", self.err.text()));
        self.out.all_of_it();
        self.err.all_of_it();
        status.code()
    }

    /// Seconds of a core that it has used.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks: Vec<f64> = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse().unwrap())
            .collect();
        (ticks[0] + ticks[1]) / TICKS_A_SECOND
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a process has written so far; nothing where that goes elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Heard {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut bytes) {
                heard.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Self {
            text,
            reader: Some(reader),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// How often these words were said.
    pub(crate) fn times(&self, words: &str) -> usize {
        self.text().matches(words).count()
    }

    fn all_of_it(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }
}

/// A folder with this table in it.
pub(crate) fn folder(table: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("table.yaml"), table).unwrap();
    folder
}

/// Replaces a folder's table by a rename.
pub(crate) fn replace(folder: &TempDir, table: &str) {
    let draft = folder.path().join("draft");
    fs::write(&draft, table).unwrap();
    fs::rename(draft, folder.path().join("table.yaml")).unwrap();
}

/// What the folder's ack says now.
pub(crate) fn ack(folder: &Path) -> Option<serde_json::Value> {
    let text = fs::read(folder.join("ack.json")).ok()?;
    Some(serde_json::from_slice(&text).unwrap())
}

/// A table of one frontend for each pair of a bind and an endpoint.
pub(crate) fn table(pairs: &[(SocketAddr, SocketAddr)]) -> String {
    use std::fmt::Write;

    let (mut frontends, mut services) = (String::new(), String::new());
    for (index, (bind, endpoint)) in pairs.iter().enumerate() {
        writeln!(
            frontends,
            "  - {{name: f{index}, bind: [\"{bind}\"], protocol: tcp, service: s{index}}}"
        )
        .unwrap();
        writeln!(
            services,
            "  - {{name: s{index}, endpoints: [{{address: \"{endpoint}\"}}]}}"
        )
        .unwrap();
    }
    format!("version: 1\nfrontends:\n{frontends}services:\n{services}")
}

/// A folder that everybody may enter, with a `ballast` that everybody may run.
pub(crate) fn for_everybody() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("ballast");
    fs::copy(BALLAST, &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, program)
}

/// The words that make what follows run without any right.
pub(crate) const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
];

/// Whether the test goes on: where the machine permits what it needs. A test that is left out says why, and is a
/// failure where everything must be tested.
pub(crate) fn permitted(why: &str, probe: &[&str]) -> bool {
    let (program, args) = probe.split_first().unwrap();
    let quiet = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if quiet.is_ok_and(|status| status.success()) {
        return true;
    }
    skip(why);
    false
}

pub(crate) const BALLAST: &str = env!("CARGO_BIN_EXE_ballast");
/// For what must come: long, because machines may be busy.
const PATIENCE: Duration = Duration::from_secs(60);
/// As Linux tells them to programs, on every machine.
const TICKS_A_SECOND: f64 = 100.0;
