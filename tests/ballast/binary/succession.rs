//! A `ballast` that begins beside the one before it: it takes over, and the other one finishes its connections.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::peers::{connect, echo_server, fresh_address, fresh_admin_port, ping};
use crate::process::{BALLAST, Process, Signal, ack, command, folder, replace, table, to_its_end};

#[test]
fn one_that_comes_while_another_is_ending_takes_over_at_once() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
    first.until_answers("/readyz", 200);
    let mut client = place.client();
    first.signal(Signal::TERM);
    // Until another one comes, the process that is ending can be asked how far it is.
    first.until_answers("/readyz", 503);

    let second = Process::spawn(&mut place.run(&[]));
    second.until_said(&format!(
        "taking over from the process with pid {}",
        first.pid()
    ));
    second.until_answers("/readyz", 200);
    first.until_said("the next process has the admin addresses");
    assert_eq!(place.pid(), second.pid().to_string());
    drop(place.client());

    ping(&mut client).unwrap();
    drop(client);
    assert_eq!(first.ends(), Some(0));
    assert_eq!(place.pid(), second.pid().to_string(), "its socket is there");
    drop(place.client());
}

#[test]
fn one_that_waits_before_the_other_is_told_to_end_takes_over_without_a_gap() {
    for admin in ["none", "127.0.0.1:0"] {
        let admin = admin.replace(":0", &format!(":{}", fresh_admin_port()));
        let place = Place::new(&admin);
        let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
        first.until_said("table applied");
        let mut run = place.run(&[]);
        run.env("BALLAST_WAIT", "1h");
        let second = Process::spawn(&mut run);
        second.until_said(&format!(
            "waiting for the end of the process with pid {}",
            first.pid()
        ));

        let clients = Clients::of(place.frontend);
        let mut client = place.client();
        support::pause(Duration::from_millis(200));
        assert!(!second.has_said("table applied"), "the first one serves");
        first.signal(Signal::TERM);
        second.until_said("table applied");
        support::pause(Duration::from_millis(300));
        let (served, failed) = clients.end();
        assert!(served > 20, "{served}");
        // A client whose handshake ends between the last accept and the close of a socket may be reset.
        assert!(failed * 50 <= served, "{failed} of {served} failed");

        ping(&mut client).unwrap();
        drop(client);
        assert_eq!(first.ends(), Some(0));
        drop(place.client());
    }
}

#[test]
fn the_delay_before_the_end_is_over_when_the_next_one_serves() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let first = Process::spawn(&mut place.run(&["--shutdown-delay", "1h"]));
    first.until_answers("/readyz", 200);
    first.signal(Signal::TERM);
    first.until_answers("/readyz", 503);
    drop(place.client());
    let mut second = Process::spawn(&mut place.run(&[]));
    second.until_answers("/readyz", 200);
    let mut first = first;
    assert_eq!(first.ends(), Some(0));

    // The last word about the table is the new one's.
    let instance = ack(place.folder.path()).unwrap()["instance"].clone();
    assert!(second.metrics().contains("ballast_"));
    replace(&place.folder, &table(&[(place.frontend, echo_server())]));
    second.until("the new table is acknowledged", || {
        ack(place.folder.path()).is_some_and(|ack| ack["instance"] == instance)
    });
    assert!(second.is_running());
}

#[test]
fn one_that_takes_over_and_goes_before_it_serves_costs_nobody_the_ports() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&["--shutdown-delay", "1h"]));
    first.until_answers("/readyz", 200);
    first.signal(Signal::TERM);
    first.until_answers("/readyz", 503);

    // Without a table it is never ready.
    let empty = tempfile::tempdir().unwrap();
    for round in 1..=2 {
        let mut second = command(BALLAST);
        second.args(["run", "--admin", &place.admin, "--table"]);
        let mut second = Process::spawn(second.arg(empty.path()));
        second.until_said("taking over from");
        first.until_said("the next process has the admin addresses");
        drop(place.client());
        second.signal(Signal::KILL);
        assert_eq!(second.ends(), None);
        first.until("the end of the next process was seen", || {
            first.err.times("is gone before it served") == round
        });
        drop(place.client());
        assert!(first.is_running(), "it was told to accept for an hour");
    }

    let third = Process::spawn(&mut place.run(&[]));
    third.until_said(&format!(
        "taking over from the process with pid {}",
        first.pid()
    ));
    third.until_answers("/readyz", 200);
    assert_eq!(first.ends(), Some(0), "the next one serves");
    drop(place.client());
}

#[test]
fn the_ports_stay_until_the_next_one_has_them_all_but_not_for_ever() {
    for is_freed in [true, false] {
        let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
        let one = place.frontend;
        let two = SocketAddr::from(([127, 0, 0, 1], fresh_admin_port()));
        let echo = echo_server();
        replace(&place.folder, &table(&[(one, echo), (two, echo)]));
        let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
        first.until_answers("/readyz", 200);
        let clients = [one, two].map(Clients::of);

        // A stranger has the second port at another address, so that no other one can have it at all addresses.
        let another = SocketAddr::from(([127, 77, 77, 77], two.port()));
        let stranger = TcpListener::bind(another).unwrap();
        let everywhere = SocketAddr::from(([0, 0, 0, 0], two.port()));
        let next = folder(&table(&[(one, echo), (everywhere, echo)]));
        let mut run = command(BALLAST);
        run.args(["run", "--wait", "--admin", &place.admin, "--table"]);
        let second = Process::spawn(run.arg(next.path()));
        second.until_said("waiting for the end of");
        first.signal(Signal::TERM);
        second.until_answers("/readyz", 200);
        second.until_said("address in use");
        support::pause(Duration::from_millis(300));
        drop(connect(two).expect("the first one still listens"));
        if is_freed {
            drop(stranger);
            second.until_said("listening after a retry");
        }
        assert_eq!(first.ends(), Some(0));
        let [of_one, of_two] = clients.map(Clients::end);
        for (served, failed) in [of_one, of_two].iter().take(if is_freed { 2 } else { 1 }) {
            assert!(failed * 50 <= *served, "{failed} of {served} failed");
        }
    }
}

#[test]
fn flows_of_udp_begin_anew_in_the_next_process() {
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let endpoint = echo.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((length, from)) = echo.recv_from(&mut datagram) {
            echo.send_to(&datagram[..length], from).ok();
        }
    });
    let mut place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let tcp = place.frontend;
    place.folder = folder(&format!(
        r#"{{"version": 1, "frontends": [
            {{"name": "t", "bind": ["{tcp}"], "protocol": "tcp", "service": "t"}},
            {{"name": "u", "bind": ["{tcp}"], "protocol": "udp", "service": "u"}}],
          "services": [
            {{"name": "t", "endpoints": [{{"address": "{}"}}]}},
            {{"name": "u", "endpoints": [{{"address": "{endpoint}"}}]}}]}}"#,
        echo_server()
    ));
    let first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
    first.until_answers("/readyz", 200);
    let _open = place.client();
    let clients: Vec<UdpSocket> = (0..32)
        .map(|_| {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(tcp).unwrap();
            client
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            client
        })
        .collect();
    let ask = |client: &UdpSocket| {
        client.send(b"x").ok();
        client.recv(&mut [0; 8]).is_ok()
    };
    assert!(clients.iter().all(ask));
    first.signal(Signal::TERM);
    let second = Process::spawn(&mut place.run(&[]));
    second.until_answers("/readyz", 200);
    // None of them is left with a socket of the process that begins no flow any more.
    second.until("every client is answered", || clients.iter().all(ask));
    assert!(clients.iter().all(ask));
}

#[test]
fn a_process_that_was_killed_is_replaced_by_the_one_that_waits() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let first = Process::spawn(&mut place.run(&[]));
    first.until_answers("/readyz", 200);
    let second = Process::spawn(&mut place.run(&["--wait"]));
    second.until_said("waiting for the end of");
    first.signal(Signal::KILL);
    second.until_answers("/readyz", 200);
    drop(place.client());
}

#[test]
fn one_that_waits_has_read_its_table_once_and_reads_it_again_where_it_changed() {
    for changes in [false, true] {
        let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
        let text = fs::read_to_string(place.folder.path().join("table.yaml")).unwrap();
        let text = format!("{text}{}", "# a long comment\n".repeat(COMMENTS));
        replace(&place.folder, &text);
        let mut first = Process::spawn(&mut place.run(&["--drain-timeout", "1h"]));
        first.until_answers("/readyz", 200);
        let second = Process::spawn(&mut place.run(&["--wait"]));
        second.until_said("waiting for the end of");
        if changes {
            replace(&place.folder, &format!("{text}# another\n"));
        }
        first.signal(Signal::TERM);
        second.until_answers("/readyz", 200);
        let io = fs::read_to_string(format!("/proc/{}/io", second.pid())).unwrap();
        let read = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        let read: usize = read.unwrap().parse().unwrap();
        // Once before it waited, and once by what applies it. A little is read beside it: what the process reads of the system.
        let times = read / text.len();
        assert_eq!(
            times,
            if changes { 3 } else { 2 },
            "{read} of {}",
            text.len()
        );
        assert_eq!(first.ends(), Some(0));
    }
}

#[test]
fn without_wait_nobody_begins_beside_one_that_serves() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&[]));
    first.until_answers("/readyz", 200);
    let refused = to_its_end(&mut place.run(&[]));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("another ballast runs"), "{refused:?}");
    assert!(refused.err.contains("--wait"), "{refused:?}");
    let usage = to_its_end(&mut place.run(&["--wait=soon"]));
    assert_eq!(usage.code, Some(64), "{usage:?}");
    assert!(first.is_running());
    drop(place.client());
}

#[test]
fn waiting_ends_with_its_time_and_with_a_signal() {
    let place = Place::new(&format!("127.0.0.1:{}", fresh_admin_port()));
    let mut first = Process::spawn(&mut place.run(&[]));
    first.until_answers("/readyz", 200);

    let began = Instant::now();
    let mut second = Process::spawn(&mut place.run(&["--wait=300ms"]));
    assert_eq!(second.ends(), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(300));
    second.until_said(&format!("ballast: the process with pid {}", first.pid()));
    second.until_said("does not end; that took longer than --wait allows");

    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let mut third = Process::spawn(&mut place.run(&["--wait"]));
        third.until_said("waiting for the end of");
        third.signal(signal);
        assert_eq!(third.ends(), Some(0));
    }
    // Those that waited and have gone keep nobody waiting.
    let began = Instant::now();
    first.signal(Signal::TERM);
    assert_eq!(first.ends(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Clients that come one after the other, each with one question.
struct Clients {
    is_over: Arc<AtomicBool>,
    counting: JoinHandle<(usize, usize)>,
}

impl Clients {
    fn of(frontend: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let counting = thread::spawn(move || {
            let (mut served, mut failed) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                match connect(frontend).and_then(|mut client| {
                    client.write_all(b"x")?;
                    client.read_exact(&mut [0])
                }) {
                    Ok(()) => served += 1,
                    Err(_) => failed += 1,
                }
                support::pause(Duration::from_millis(1));
            }
            (served, failed)
        });
        Self { is_over, counting }
    }

    /// How many were served, and how many were not.
    fn end(self) -> (usize, usize) {
        self.is_over.store(true, Ordering::Relaxed);
        self.counting.join().unwrap()
    }
}

/// What only one process at a time may have.
struct Place {
    admin: String,
    frontend: SocketAddr,
    folder: TempDir,
}

impl Place {
    fn new(admin: &str) -> Self {
        let frontend = fresh_address();
        Self {
            admin: admin.into(),
            frontend,
            folder: folder(&table(&[(frontend, echo_server())])),
        }
    }

    fn run(&self, args: &[&str]) -> Command {
        let mut run = command(BALLAST);
        run.args(["run", "--admin", &self.admin, "--table"])
            .arg(self.folder.path())
            .arg("--socket")
            .arg(self.folder.path().join("socket"))
            .args(args);
        run
    }

    /// The process that answers at the runtime socket.
    fn pid(&self) -> String {
        let shown = to_its_end(
            command(BALLAST)
                .args(["ctl", "show info", "--socket"])
                .arg(self.folder.path().join("socket")),
        );
        let pid = shown
            .out
            .lines()
            .find_map(|line| line.strip_prefix("Pid: "));
        pid.unwrap_or_else(|| panic!("{shown:?}")).into()
    }

    fn client(&self) -> TcpStream {
        let mut client = connect(self.frontend).unwrap();
        ping(&mut client).unwrap();
        client
    }
}

/// Lines that make a table large, and are read quickly.
const COMMENTS: usize = 200_000;
