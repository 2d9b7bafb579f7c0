//! `ballast run --handover PATH`: the next process gets the sockets of the one that runs, and no client is lost.

use std::fs;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use support::papers::Papers;
use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, get, ping, server};
use crate::process::{
    AS_NOBODY, BALLAST, Process, Signal, ack, command, folder, for_everybody, permitted, replace,
    to_its_end,
};

mod failures;
mod figures;
mod flows;
mod state;
mod stopped;
mod upgrade;

#[test]
fn ten_hand_overs_under_load_fail_no_client() {
    let place = Place::new();
    // By default flows last for as long as the test waits for the end of their descriptors.
    let with_short_flows = place.table(&[]).replace(
        "protocol: udp, service: u",
        "protocol: udp, service: u, timeouts: {idle: 5s}",
    );
    replace(&place.folder, &with_short_flows);
    let run = || Process::spawn(&mut place.run(&["--threads", "2"]));
    let mut first = run();
    first.until_answers("/readyz", 200);
    let mut lasting = connect(place.tcp).unwrap();
    let mut running = run();
    running.until_said("table applied");
    // It stays with the process that accepted it.
    ping(&mut lasting).unwrap();
    drop(lasting);
    assert_eq!(first.ends(), Some(0));
    let descriptors = open(&running);

    let mut clients = Clients::of(&place);
    let admin = place.admin.parse().unwrap();
    clients.begin("readyz", move || match get(admin, "/readyz")? {
        (200, _) => Ok(()),
        (_, why) => Err(std::io::Error::other(why)),
    });
    for _ in 0..10 {
        let next = run();
        next.until_said("table applied");
        let words = format!(
            "inherited 11 of 11 sockets from the process with pid {} ",
            running.pid()
        );
        assert!(next.has_said(&words), "{}", next.err.text());
        running.until_said("the next process serves");
        assert_eq!(place.pid(), next.pid().to_string());
        let ack = ack(place.folder.path()).unwrap();
        assert!(ack["served"].is_object(), "{ack}");
        // A process that is dropped is killed: it finishes the clients that it has.
        let mut before = std::mem::replace(&mut running, next);
        assert_eq!(before.ends(), Some(0));
    }
    clients.end_without_failure();
    if support::peers::is_for_figures() {
        print_failures_of_taking_turns();
    }
    let came_back = support::comes_within(PATIENCE, || open(&running) <= descriptors);
    assert!(
        came_back,
        "{} descriptors, and {descriptors} after the first hand-over:\n{}",
        open(&running),
        sockets(&running)
    );
    assert_eq!(running.err.times("error"), 0, "{}", running.err.text());
    running.signal(Signal::TERM);
    assert_eq!(running.ends(), Some(0));
    assert!(!place.handover().exists() && !place.socket().exists());
}

#[test]
fn the_process_that_runs_goes_on_whatever_becomes_of_the_next_one() {
    let place = Place::new();
    let mut first = place.serving();
    let instance = ack(place.folder.path()).unwrap()["instance"].clone();
    let clients = Clients::of(&place);

    // It goes after it has connected, after it has asked, and after it has all sockets.
    drop(UnixStream::connect(place.handover()).unwrap());
    let mut asking = UnixStream::connect(place.handover()).unwrap();
    say(&mut asking, REQUEST);
    drop(asking);
    let mut asking = UnixStream::connect(place.handover()).unwrap();
    say(&mut asking, REQUEST);
    let offer = hear(&mut asking);
    assert!(offer.starts_with("{\"offer\":{\"version\":3,"), "{offer}");
    assert!(!receive_descriptors(&asking).is_empty());
    support::pause(Duration::from_millis(300));
    drop(asking);
    first.until("it is said", || {
        first.err.times("it has ended before it could serve") > 0
    });

    // One that was killed while it read a table for long, one whose table is refused, one without any.
    let broken = folder("version: 1\nfrontends: 7\n");
    let file = broken.path().join("table.yaml");
    let none = tempfile::tempdir().unwrap();
    for (table, code, words) in [
        (&*file, Some(64), "frontends"),
        (
            broken.path(),
            Some(75),
            "the table of this process cannot be served",
        ),
        (
            none.path(),
            Some(75),
            "the table of this process cannot be served",
        ),
    ] {
        let ended = to_its_end(&mut place.run_with(table, &[]));
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
    }
    for pause in [0, 20, 40, 80] {
        let mut next = Process::spawn(&mut place.run_with(none.path(), &[]));
        support::pause(Duration::from_millis(pause));
        next.signal(Signal::KILL);
        next.ends();
    }
    clients.end_without_failure();
    assert!(first.is_running());
    assert_eq!(place.pid(), first.pid().to_string());
    assert_eq!(ack(place.folder.path()).unwrap()["instance"], instance);
    first.until_answers("/readyz", 200);
    // The path still works.
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn another_number_of_threads_another_admin_address_and_another_table_are_followed() {
    let mut place = Place::new();
    let mut running = Process::spawn(&mut place.run(&["--threads", "1"]));
    running.until_answers("/readyz", 200);
    let clients = Clients::of(&place);
    for threads in ["4", "1", "3", "2"] {
        place.admin = format!("127.0.0.1:{}", fresh_admin_port());
        let next = Process::spawn(&mut place.run(&["--threads", threads]));
        next.until_said("table applied");
        next.until_answers("/readyz", 200);
        assert!(next.has_said("inherited"), "{}", next.err.text());
        running.until_said("the next process serves");
        // A process that is dropped is killed: it finishes the clients that it has.
        let mut before = std::mem::replace(&mut running, next);
        assert_eq!(before.ends(), Some(0));
    }
    clients.end_without_failure();

    // A frontend that the next table does not have, and one that it has in addition.
    let other = fresh_address();
    let text = place.table(&[other]);
    let next = folder(&text.replace("name: u, bind", "name: u2, bind"));
    let run = |table: &Path| Process::spawn(&mut place.run_with(table, &["--threads", "2"]));
    let second = run(next.path());
    second.until_said("table applied");
    ping(&mut connect(other).unwrap()).unwrap();
    ping(&mut connect(place.tcp).unwrap()).unwrap();
    let without = text.lines().filter(|line| !line.contains("name: t, bind"));
    let next = folder(&without.collect::<Vec<_>>().join("\n"));
    let third = run(next.path());
    third.until_said("table applied");
    // The UDP flows of clients keep it at the one socket that it had with one worker.
    let words = "inherited 14 of 18 sockets";
    assert!(third.has_said(words), "{}", third.err.text());
    third.until("nobody listens there", || connect(place.tcp).is_err());
    assert_eq!(running.ends(), Some(0));
    drop(second);
}

#[test]
fn an_idle_connection_of_http_ends_with_its_next_response_or_in_order() {
    let place = Place::new();
    let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "3s"]));
    first.until_answers("/readyz", 200);
    let [mut asks, mut is_idle] = [(); 2].map(|()| connect(place.at(1)).unwrap());
    for client in [&mut asks, &mut is_idle] {
        assert!(!ask(client).unwrap().contains("connection: close"));
    }
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    first.until_said("no more clients are accepted");
    support::pause(Duration::from_millis(300));
    assert!(ask(&mut asks).unwrap().contains("connection: close"));
    assert_eq!(asks.read(&mut [0]).unwrap(), 0, "closed in order");
    assert_eq!(is_idle.read(&mut [0]).unwrap(), 0, "closed in order");
    assert_eq!(first.ends(), Some(0));
    first.until_said("ended cut=0");
}

#[test]
fn a_process_that_stays_ends_by_a_signal_and_its_own_socket_says_which_one_serves() {
    let place = Place::new();
    let own = |name: &str| place.folder.path().join(name);
    let run = |name: &str| {
        let mut run = place.run(&["--stay", "--monitor-socket"]);
        Process::spawn(run.arg(own(name)))
    };
    // As the probes of a pod ask.
    let serves = |name: &str| {
        let mut ask = command(BALLAST);
        ask.args(["ctl", "show", "info"]);
        to_its_end(ask.env("BALLAST_SOCKET", own(name))).code == Some(0)
    };
    let mut first = run("one");
    first.until("it serves", || serves("one"));
    let mut second = run("two");
    second.until("it serves", || serves("two"));
    first.until_said("--stay: another process serves");
    assert!(first.is_running() && !serves("one"));
    // It has nothing any more that the next one needs.
    let third = run("three");
    third.until("it serves", || serves("three"));
    second.until_said("--stay: another process serves");
    for process in [&mut first, &mut second] {
        process.signal(Signal::TERM);
        assert_eq!(process.ends(), Some(0));
    }
    assert!(
        third.has_said("inherited 11 of 12 sockets"),
        "{}",
        third.err.text()
    );
    ping(&mut connect(place.tcp).unwrap()).unwrap();
}

#[test]
fn what_asks_wrongly_is_refused_with_words() {
    let place = Place::new();
    let mut first = place.serving();
    let mode = fs::metadata(place.handover()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    for (says, words) in [
        (
            r#"{"request":{"version":4,"oldest":4,"program":"0.4.0"}}"#,
            &["of version 3", "asks for version 4"][..],
        ),
        ("{}", &["is no message of a hand-over"]),
        (r#"{"ready":{}}"#, &["is not the one that comes next"]),
        ("\"yours\"", &["is not the one that comes next"]),
    ] {
        let mut asking = UnixStream::connect(place.handover()).unwrap();
        say(&mut asking, says);
        let refused = hear(&mut asking);
        assert!(refused.starts_with("{\"refused\":"), "{refused}");
        for word in words {
            assert!(refused.contains(word), "{refused}");
        }
    }
    // One that says nothing keeps nobody else waiting.
    let mut silent = UnixStream::connect(place.handover()).unwrap();
    let mut asking = UnixStream::connect(place.handover()).unwrap();
    asking.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(hear(&mut asking).contains("is no message of a hand-over"));
    assert!(hear(&mut silent).contains("it asks nothing for 2s"));
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
    assert_eq!(first.ends(), Some(0));
}

#[test]
fn two_at_once_do_not_share_the_sockets() {
    let place = Place::new();
    let first = place.serving();
    let mut asking = UnixStream::connect(place.handover()).unwrap();
    say(&mut asking, REQUEST);
    hear(&mut asking);
    let ended = to_its_end(&mut place.run(&[]));
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let words = format!(
        "another process is taking over now (pid {})",
        std::process::id()
    );
    assert!(ended.err.contains(&words), "{ended:?}");
    drop(asking);
    first.until("it is said", || {
        first.err.times("it has ended before it could serve") > 0
    });
    let second = Process::spawn(&mut place.run(&[]));
    second.until_said("table applied");
}

#[test]
fn a_message_that_breaks_off_or_lacks_descriptors_begins_nothing() {
    let table = folder("version: 1\n");
    let path = table.path().join("handover");
    let offer = r#"{"offer":{"version":2,"program":"9","sockets":[{"tcp":{"address":"127.0.0.1:17000"}}]}}"#;
    for (answer, words) in [
        (offer, "breaks off"),
        ("{\"offer\":", "is no message of a hand-over"),
        (
            r#"{"offer":{"version":4,"program":"9","sockets":[]}}"#,
            "this one knows version 3",
        ),
        (r#"{"refused":"no, not now"}"#, "no, not now"),
    ] {
        fs::remove_file(&path).ok();
        let listener = UnixListener::bind(&path).unwrap();
        let there = path.clone();
        let answering = thread::spawn(move || {
            let mut next = the_only_one(listener, &there);
            hear(&mut next);
            say(&mut next, answer);
        });
        let mut run = command(BALLAST);
        run.args(["run", "--admin", "none", "--table"])
            .arg(table.path());
        let ended = to_its_end(run.arg("--handover").arg(&path));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains(words), "{ended:?}");
        answering.join().unwrap();
    }
    // What a process that was killed left is replaced.
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"])
        .arg(table.path());
    let mut process = Process::spawn(run.arg("--handover").arg(&path));
    process.until_said("table applied");
    assert!(!process.has_said("inherited"));
    process.signal(Signal::TERM);
    assert_eq!(process.ends(), Some(0));
    assert!(!path.exists());
}

#[test]
fn another_users_process_gets_nothing() {
    let probe = [&AS_NOBODY[..], &["true"]].concat();
    if !permitted("another user's process cannot be run", &probe) {
        return;
    }
    let (everybody, program) = for_everybody();
    let place = Place::new();
    let path = everybody.path().join("handover");
    let mut run = command(BALLAST);
    run.args(["run", "--admin", "none", "--table"])
        .arg(place.folder.path())
        .arg("--handover")
        .arg(&path);
    let mut first = Process::spawn(&mut run);
    first.until_said("table applied");
    let table = everybody.path().join("table.yaml");
    fs::write(&table, "version: 1\n").unwrap();
    for (mode, words) in [
        (0o600, "cannot be asked: Permission denied"),
        // The next process does not believe a socket that is not its own user's, either.
        (0o666, "is another user's"),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut run = command(AS_NOBODY[0]);
        run.args(&AS_NOBODY[1..]).arg(&program);
        run.args(["run", "--admin", "none", "--table"]).arg(&table);
        let ended = to_its_end(run.arg("--handover").arg(&path));
        assert_eq!(ended.code, Some(75), "{ended:?}");
        let is_said = ended.err.contains(words) || first.has_said("another user's process");
        assert!(is_said, "{ended:?}");
    }
    assert!(first.is_running());
}

/// What the same clients notice of ten processes that take turns by `--wait`.
fn print_failures_of_taking_turns() {
    let place = Place::new();
    let run = || {
        let mut run = command(BALLAST);
        run.args(["run", "--wait", "--threads", "2", "--admin", &place.admin]);
        Process::spawn(run.arg("--table").arg(place.folder.path()))
    };
    let mut running = run();
    running.until_answers("/readyz", 200);
    let clients = Clients::of(&place);
    for _ in 0..10 {
        let next = run();
        next.until_said("waiting for the end of");
        running.signal(Signal::TERM);
        next.until_said("table applied");
        running.until_said("no more clients are accepted");
        running = next;
    }
    for (name, served, failed) in clients.end() {
        println!(
            "{name}: {served} served, {} failed by taking turns",
            failed.len()
        );
    }
}

/// What only one process at a time may have, with frontends of each kind.
struct Place {
    admin: String,
    tcp: SocketAddr,
    endpoints: [SocketAddr; 3],
    papers: Papers,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let papers = Papers::new();
        papers.issue("web", &["web.test"]);
        let mut place = Self {
            admin: format!("127.0.0.1:{}", fresh_admin_port()),
            tcp: fresh_address(),
            endpoints: [echo_server(), web_server(), echo_of_datagrams()],
            papers,
            folder: tempfile::tempdir().unwrap(),
        };
        place.folder = folder(&place.table(&[]));
        place
    }

    /// The address of a frontend: that of tcp and udp, of http, of https.
    fn at(&self, more: u16) -> SocketAddr {
        SocketAddr::new(self.tcp.ip(), self.tcp.port() + more)
    }

    fn table(&self, more: &[SocketAddr]) -> String {
        let [tcp, web, udp] = self.endpoints;
        let mut frontends = format!(
            "  - {{name: t, bind: [\"{}\"], protocol: tcp, service: t}}\n  - {{name: u, bind: [\"{}\"], protocol: udp, service: u}}\n  - {{name: h, bind: [\"{}\"], protocol: http, default: {{service: w}}}}\n  - {{name: s, bind: [\"{}\"], protocol: https, tls: {{certificates: [{}]}}, default: {{service: w}}}}\n",
            self.tcp,
            self.tcp,
            self.at(1),
            self.at(2),
            self.papers.entry("web")
        );
        for (index, address) in more.iter().enumerate() {
            frontends += &format!(
                "  - {{name: m{index}, bind: [\"{address}\"], protocol: tcp, service: t}}\n"
            );
        }
        format!(
            "version: 1\nfrontends:\n{frontends}services:\n  - {{name: t, endpoints: [{{address: \"{tcp}\"}}]}}\n  - {{name: u, endpoints: [{{address: \"{udp}\"}}]}}\n  - {{name: w, endpoints: [{{address: \"{web}\"}}]}}\n"
        )
    }

    fn handover(&self) -> PathBuf {
        self.folder.path().join("handover")
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn run(&self, args: &[&str]) -> Command {
        self.run_with(self.folder.path(), args)
    }

    /// A process that serves.
    fn serving(&self) -> Process {
        let process = Process::spawn(&mut self.run(&[]));
        process.until_answers("/readyz", 200);
        process
    }

    fn run_with(&self, table: &Path, args: &[&str]) -> Command {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", &self.admin, "--table"])
            .arg(table)
            .arg("--socket")
            .arg(self.socket())
            .arg("--handover")
            .arg(self.handover())
            .args(args);
        run
    }

    fn ask(&self, words: &str) -> String {
        let ended = to_its_end(
            command(BALLAST)
                .args(["ctl", words, "--socket"])
                .arg(self.socket()),
        );
        ended.out
    }

    /// The process that answers at the runtime socket.
    fn pid(&self) -> String {
        let shown = self.ask("show info");
        let pid = shown.lines().find_map(|line| line.strip_prefix("Pid: "));
        pid.unwrap_or_else(|| panic!("{shown:?}")).into()
    }
}

type Noticed = (&'static str, usize, Vec<String>);

/// Clients of each kind, that come as long as the test lasts.
struct Clients {
    is_over: Arc<AtomicBool>,
    counting: Vec<JoinHandle<Noticed>>,
}

impl Clients {
    fn of(place: &Place) -> Self {
        let mut clients = Self {
            is_over: Arc::default(),
            counting: Vec::new(),
        };
        let (tcp, http, https) = (place.tcp, place.at(1), place.at(2));
        for _ in 0..2 {
            clients.begin("tcp", move || {
                connect(tcp).and_then(|mut client| ping(&mut client))
            });
        }
        clients.begin("udp", move || {
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            client.set_read_timeout(Some(PATIENCE))?;
            client.connect(tcp)?;
            client.send(b"x")?;
            client.recv(&mut [0; 8]).map(drop)
        });
        let mut kept: Option<TcpStream> = None;
        clients.begin("http", move || {
            let mut client = match kept.take() {
                Some(client) => client,
                None => connect(http)?,
            };
            if !ask(&mut client)?.contains("connection: close") {
                kept = Some(client);
            }
            Ok(())
        });
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(place.papers.roots())
            .with_no_client_auth();
        let config = Arc::new(config);
        clients.begin("https", move || {
            let name = "web.test".try_into().unwrap();
            let session = rustls::ClientConnection::new(Arc::clone(&config), name)
                .map_err(std::io::Error::other)?;
            let mut client = rustls::StreamOwned::new(session, connect(https)?);
            ask(&mut client).map(drop)
        });
        clients
    }

    fn begin(
        &mut self,
        name: &'static str,
        mut visit: impl FnMut() -> std::io::Result<()> + Send + 'static,
    ) {
        let is_over = Arc::clone(&self.is_over);
        self.counting.push(thread::spawn(move || {
            let (mut served, mut failed) = (0, Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                match visit() {
                    Ok(()) => served += 1,
                    Err(error) => failed.push(error.to_string()),
                }
                support::pause(Duration::from_millis(1));
            }
            (name, served, failed)
        }));
    }

    /// What each kind of them noticed: how many were served, and why the others were not.
    fn end(self) -> Vec<Noticed> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.counting.into_iter().map(JoinHandle::join);
        ended.map(Result::unwrap).collect()
    }

    fn end_without_failure(self) {
        for (name, served, failed) in self.end() {
            println!("{name}: {served} served, {} failed", failed.len());
            assert!(failed.is_empty(), "{name}: {served} served, {failed:?}");
            assert!(served > 5, "{name}: {served}");
        }
    }
}

/// Asks once, and returns the head of the answer.
fn ask(client: &mut (impl Read + Write)) -> std::io::Result<String> {
    client.write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n")?;
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\nok") {
        let mut bytes = [0; 512];
        match client.read(&mut bytes)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => heard.extend_from_slice(&bytes[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&heard).to_lowercase())
}

/// A server of HTTP that keeps connections.
fn web_server() -> SocketAddr {
    server(|mut client| {
        let (mut heard, mut bytes) = (Vec::new(), [0; 1024]);
        while let Ok(read @ 1..) = client.read(&mut bytes) {
            heard.extend_from_slice(&bytes[..read]);
            if heard.ends_with(b"\r\n\r\n") {
                heard.clear();
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if client.write_all(answer).is_err() {
                    return;
                }
            }
        }
    })
}

fn echo_of_datagrams() -> SocketAddr {
    let echo = UdpSocket::bind(fresh_address()).unwrap();
    let address = echo.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, from)) = echo.recv_from(&mut datagram) {
            echo.send_to(&datagram[..length], from).ok();
        }
    });
    address
}

/// The number of descriptors that a process has.
fn open(process: &Process) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid()));
    descriptors.unwrap().count()
}

/// The connection of the process that comes first. Nobody listens when this returns.
fn the_only_one(listener: UnixListener, path: &Path) -> UnixStream {
    let (next, _) = listener.accept().unwrap();
    drop(listener);
    // A program that a test beside this one starts has the descriptor, too, until it is executed.
    support::until("nobody listens", || UnixStream::connect(path).is_err());
    next
}

/// What the sockets of the process are, for the message of a test that fails.
fn sockets(process: &Process) -> String {
    let listed = to_its_end(Command::new("ss").arg("-tuxanp"));
    let of_process = format!("pid={},", process.pid());
    let lines = listed.out.lines();
    let lines = lines.filter(|line| line.contains(&of_process));
    lines.collect::<Vec<_>>().join("\n")
}

fn say(to: &mut UnixStream, text: &str) {
    let length = u32::try_from(text.len()).unwrap();
    to.write_all(&length.to_be_bytes()).unwrap();
    to.write_all(text.as_bytes()).unwrap();
}

fn hear(from: &mut UnixStream) -> String {
    from.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut length = [0; 4];
    from.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The descriptors that come with the next byte.
fn receive_descriptors(from: &UnixStream) -> Vec<OwnedFd> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); 4096]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(from, into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let received = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    let received: Vec<_> = received.collect();
    assert_eq!(received.len(), usize::from(byte[0]));
    received
}

const REQUEST: &str = r#"{"request":{"version":3,"oldest":2,"program":"0.1.0"}}"#;
const READY: &str = r#"{"ready":{}}"#;
/// For what must come: long, because machines may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
