//! A log that cannot be written: nothing else may suffer, and what is lost is counted.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, get, ping, server};
use crate::process::{BALLAST, Process, Signal, command, folder, replace, table, to_its_end};

#[test]
fn a_log_on_a_full_disk_ends_nothing() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let mut node = Node::start(&[], full());
    node.until_lost();
    node.serves();
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ends(), Some(0));

    // Neither does it change how a start fails.
    let mut nothing = command(BALLAST);
    nothing.args(["run", "--table", "/nonexistent"]);
    let mut refused = Process::spawn_into(&mut nothing, full(), full());
    assert_eq!(refused.ends(), Some(64));
}

#[test]
fn a_log_whose_reader_leaves_ends_nothing() {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut node = Node::start(&[], writer.into());
    drop(reader);
    node.until_lost();
    node.serves();
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ends(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let (unread, full) = full_pipe();
    let mut node = Node::start(&[], full.into());
    // Endpoints that refuse are ejected, which is logged.
    let nobody = fresh_address();
    let (broken, added) = (fresh_address(), fresh_address());
    let echo = echo_server();
    let good = table(&[
        (node.frontend, echo),
        (broken, nobody),
        (added, echo_server()),
    ]);
    replace(&node.folder, &good);
    node.until_served(added);
    for _ in 0..20 {
        connect(broken)
            .and_then(|mut client| ping(&mut client))
            .ok();
    }
    // Each problem of a refused table is a line.
    replace(&node.folder, &format!("{good}{}", wrong()));
    node.until_lost();
    replace(&node.folder, &good);
    node.serves();
    let changed = to_its_end(command(BALLAST).args([
        "ctl",
        &format!("set server s0/{echo} state drain"),
        "--socket",
        node.socket().to_str().unwrap(),
    ]));
    assert_eq!(changed.code, Some(0), "{changed:?}");

    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ends(), Some(0));
    drop(unread);
}

#[test]
fn a_second_signal_ends_at_once_whatever_the_log_does() {
    let (unread, full) = full_pipe();
    let mut node = Node::start(&["--drain-timeout", "1h"], full.into());
    let mut client = connect(node.frontend).unwrap();
    ping(&mut client).unwrap();
    node.process.signal(Signal::TERM);
    node.until_answers("/readyz", 503);
    // One that comes within 100 ms of the first is the same one.
    support::pause(Duration::from_millis(200));
    assert!(node.process.is_running());
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ends(), Some(1));
    drop(unread);
}

#[test]
fn a_log_that_is_read_again_says_how_many_lines_were_lost() {
    let (unread, full) = full_pipe();
    let node = Node::start(&[], full.into());
    replace(&node.folder, &format!("version: 1\n{}", wrong()));
    node.until_lost();
    let lines = std::io::BufReader::new(File::from(unread));
    let told = std::io::BufRead::lines(lines)
        .map(Result::unwrap)
        .find(|line| line.contains("lines of this log were lost"))
        .unwrap();
    assert!(told.contains(" WARN "), "{told}");
    assert!(told.contains(" lines="), "{told}");
}

#[test]
fn a_standard_output_that_nobody_reads_costs_syslog_no_line() {
    const LINES: usize = 4_000;
    let folder = tempfile::tempdir().unwrap();
    let syslog = UnixDatagram::bind(folder.path().join("log.sock")).unwrap();
    syslog
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let heard = thread::spawn(move || {
        let mut line = [0; 1024];
        let received = (0..LINES).take_while(|_| syslog.recv(&mut line).is_ok());
        received.count()
    });
    let (unread, full) = full_pipe();
    let frontend = fresh_address();
    let text = table(&[(frontend, server(drop))]).replace(
        "version: 1\n",
        "version: 1\nlog: {access: haproxy, to: [stdout, \"unix:log.sock\"]}\n",
    );
    std::fs::write(folder.path().join("table.yaml"), text).unwrap();
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "127.0.0.1:0", "--table"]);
    let mut process = Process::spawn_into(run.arg(folder.path()), full.into(), Stdio::piped());
    process.until_answers("/readyz", 200);
    for _ in 0..LINES {
        connect(frontend).unwrap();
    }
    assert_eq!(heard.join().unwrap(), LINES);
    let lost = counted(&process.metrics(), "ballast_access_lines_dropped_total");
    assert!((1..LINES as u64).contains(&lost), "{lost} lost");
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    drop(unread);
}

#[test]
fn a_destination_that_takes_no_access_lines_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let (frontend, nobody) = (fresh_address(), fresh_address());
    let log = format!("log: {{access: haproxy, to: [\"unix:none.sock\", \"udp:{nobody}\"]}}\n");
    let text = format!("{}{log}", table(&[(frontend, echo_server())]));
    std::fs::write(folder.path().join("table.yaml"), text).unwrap();
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    process.until("both errors", || {
        let mut client = connect(frontend).unwrap();
        ping(&mut client).unwrap();
        drop(client);
        let said = process.err.text();
        said.contains("log.to: unix:none.sock: No such file or directory")
            && said.contains(&format!("log.to: udp:{nobody}: Connection refused"))
    });
    assert_eq!(process.err.times("log.to: unix:none.sock"), 1);
    assert_eq!(process.err.times("log.to: udp:"), 1);
}

#[test]
fn connections_that_the_end_cuts_have_their_access_lines() {
    let frontend = fresh_address();
    let text = table(&[(frontend, echo_server())])
        .replace("version: 1\n", "version: 1\nlog: {access: haproxy}\n");
    let folder = folder(&text);
    let mut process = Process::run(folder.path(), &["--drain-timeout", "0"]);
    process.until_answers("/readyz", 200);
    let mut clients: Vec<_> = (0..100).map(|_| connect(frontend).unwrap()).collect();
    for client in &mut clients {
        ping(client).unwrap();
    }
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    assert_eq!(process.out.times(" KD "), 100, "{}", process.out.text());
}

/// A process whose log is not heard.
struct Node {
    process: Process,
    admin: SocketAddr,
    frontend: SocketAddr,
    folder: TempDir,
}

impl Node {
    fn start(args: &[&str], err: Stdio) -> Self {
        let frontend = fresh_address();
        let folder = folder(&table(&[(frontend, echo_server())]));
        let admin = SocketAddr::from(([127, 0, 0, 1], fresh_admin_port()));
        let mut run: Command = command(BALLAST);
        run.args(["run", "--admin", &admin.to_string(), "--table"])
            .arg(folder.path())
            .arg("--socket")
            .arg(socket(folder.path()))
            .args(args);
        let node = Self {
            process: Process::spawn_into(&mut run, Stdio::null(), err),
            admin,
            frontend,
            folder,
        };
        node.until_answers("/readyz", 200);
        node.serves();
        node
    }

    fn socket(&self) -> std::path::PathBuf {
        socket(self.folder.path())
    }

    fn serves(&self) {
        ping(&mut connect(self.frontend).unwrap()).unwrap();
    }

    fn until_served(&self, frontend: SocketAddr) {
        self.process.until("another frontend", || {
            connect(frontend).is_ok_and(|mut client| ping(&mut client).is_ok())
        });
    }

    fn until_answers(&self, path: &str, status: u16) {
        self.process.until(path, || {
            get(self.admin, path).is_ok_and(|(answered, _)| answered == status)
        });
    }

    /// Has the node say what is wrong with its table, or that nothing is, until a line of the log is lost.
    fn until_lost(&self) {
        self.process.until("a lost line", || {
            self.process.signal(Signal::HUP);
            let metrics = get(self.admin, "/metrics").unwrap().1;
            counted(&metrics, "ballast_log_lines_dropped_total") > 0
        });
    }
}

fn socket(folder: &Path) -> std::path::PathBuf {
    folder.join("socket")
}

fn counted(metrics: &str, name: &str) -> u64 {
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

/// A part of a table with many mistakes, each of which is a line.
fn wrong() -> String {
    (0..900)
        .map(|number| format!("unknown-{number}: a mistake\n"))
        .collect()
}

/// A pipe that takes nothing, and its end for reading.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}
