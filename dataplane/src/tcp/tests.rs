//! What happens at a certain moment of one connection, in a data plane that serves others: its task panics, or the table
//! changes.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream as StdTcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::os::panics::{panics, tests::one_at_a_time};
use crate::process::config::{Admin, Config};
use crate::runtime::{Running, start_faulty};
use crate::worker::{FaultInjection, Stage};

/// Panics at the stage that the client's address selects.
#[derive(Debug)]
struct PanicByAddress;

impl FaultInjection for PanicByAddress {
    fn reached(&self, stage: Stage, client: SocketAddr) {
        let doomed = match stage {
            Stage::Dialing => DIALING,
            Stage::Relaying => RELAYING,
        };
        assert!(client.ip() != IpAddr::from(doomed), "for the test");
    }
}

const DIALING: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 1);
const RELAYING: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 2);

#[test]
fn a_panic_ends_its_connection_alone_and_is_counted() {
    let _alone = one_at_a_time();
    let (endpoint, ends) = echo();
    let (running, folder) = serve(endpoint);
    let before = panics();
    let mut held = connect(&running, Ipv4Addr::LOCALHOST);
    ping(&mut held);
    let mut counted = 0;
    for place in [DIALING, RELAYING] {
        // There is room for two connections, and for one of this address: a leaked slot would fail the next round.
        for _ in 0..3 {
            let mut doomed = connect(&running, place);
            let heard = doomed.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(heard, Err(ErrorKind::ConnectionReset), "{place}");
            counted += 1;
            until(|| panics() == before + counted);
            if place == RELAYING {
                assert_eq!(next_end(&ends), End::Reset, "the endpoint is told, too");
            }
            until(|| is_all_that_is_left(&running));
            ping(&mut held);

            let mut next = connect(&running, NEXT);
            ping(&mut next);
            drop(next);
            assert_eq!(next_end(&ends), End::Clean);
            until(|| is_all_that_is_left(&running));
        }
    }
    let line = format!("ballast_task_panics_total {}\n", before + counted);
    assert!(metrics(&running).contains(&line), "{line}");
    ping(&mut held);
    drop(held);
    assert_eq!(next_end(&ends), End::Clean);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(running.stop()), 0, "nobody is cut");
    drop(folder);
}

/// Holds up the accept loop before it accepts: reports that, and waits for leave to go on.
#[derive(Debug)]
struct HoldUp(Mutex<(Sender<()>, Receiver<()>)>);

impl FaultInjection for HoldUp {
    fn reached(&self, _: Stage, _: SocketAddr) {}

    fn accepting(&self) {
        let channels = self.0.lock().unwrap();
        // The end of the test drops both channels.
        if channels.0.send(()).is_ok() {
            channels.1.recv().ok();
        }
    }
}

/// A worker that is held up between reading the plan and accepting serves the client by the plan of the moment of accepting.
#[test]
fn who_comes_after_a_swap_is_served_by_the_new_table() {
    let _alone = one_at_a_time();
    for is_renamed in [false, true] {
        let (old, new) = (named("old"), named("new"));
        let (held_up, waits) = channel();
        let (leave, leaves) = channel();
        let address = free_address();
        let table = |frontend: &str, endpoint: SocketAddr| {
            format!(
                "version: 1
frontends: [{{name: {frontend}, bind: [\"{address}\"], protocol: tcp, service: s, max-connections: 2, on-limit: wait}}]
services: [{{name: s, endpoints: [{{address: \"{endpoint}\"}}]}}]
"
            )
        };
        let (running, folder) = serve_with(&table("f", old), HoldUp(Mutex::new((held_up, leaves))));

        let mut first = connect(&running, Ipv4Addr::LOCALHOST);
        waits.recv_timeout(PATIENCE).unwrap();
        leave.send(()).unwrap();

        // The backlog is empty, and the worker is about to find that out by the plan that it has read.
        waits.recv_timeout(PATIENCE).unwrap();
        let frontend = if is_renamed { "g" } else { "f" };
        let generation = running.shared().status.swaps().count;
        fs::write(folder.path().join("draft"), table(frontend, new)).unwrap();
        fs::rename(
            folder.path().join("draft"),
            folder.path().join("table.yaml"),
        )
        .unwrap();
        until(|| running.shared().status.swaps().count > generation);
        let mut second = connect(&running, Ipv4Addr::LOCALHOST);
        drop(waits);
        leave.send(()).unwrap();
        assert_eq!(name_heard(&mut first), "old");
        assert_eq!(name_heard(&mut second), "new", "renamed: {is_renamed}");
        drop((first, second));
        until(|| running.shared().connections() == 0);
    }
}

/// An endpoint that says its name to each client.
fn named(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            client.write_all(name.as_bytes()).ok();
        }
    });
    address
}

fn name_heard(client: &mut StdTcpStream) -> String {
    let mut name = String::new();
    client.read_to_string(&mut name).unwrap();
    name
}

/// Whether exactly one connection is left, wherever connections are counted.
fn is_all_that_is_left(running: &Running) -> bool {
    let shared = running.shared();
    let plan = shared.live.plan();
    let endpoint = plan.services()[0].endpoints()[0].live();
    let counters = endpoint.all_counters().unwrap();
    let sessions = counters.sum(|counters| &counters.sessions);
    let ended = counters.sum(|counters| &counters.ended);
    // The numbers of admitted connections are not compared: the accept loop holds permits while it waits. That they were
    // released shows in the admission of the next client.
    endpoint.in_flight() == 1 && shared.connections() == 1 && sessions == ended + 1
}

/// A data plane with one worker and room for two connections, but for only one of each client.
fn serve(endpoint: SocketAddr) -> (Running, TempDir) {
    let table = format!(
        "version: 1
frontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: s, max-connections: 2, max-connections-per-client: 1}}]
services: [{{name: s, endpoints: [{{address: \"{endpoint}\", max-connections: 2}}]}}]
"
    );
    serve_with(&table, PanicByAddress)
}

/// A data plane with one worker and room for two connections.
fn serve_with(table: &str, faults: impl FaultInjection + 'static) -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("table.yaml"), table).unwrap();
    let config = Config {
        threads: Some(1),
        admin: Admin::At(vec![free_address()]),
        max_connections: Some(2),
        ..Config::new(folder.path().into())
    };
    let running = start_faulty(config, Box::new(faults)).unwrap();
    // The table is counted last, once it is in force.
    until(|| running.shared().status.swaps().count > 0);
    (running, folder)
}

/// An address at which nobody listens.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A client from this address.
fn connect(running: &Running, from: Ipv4Addr) -> StdTcpStream {
    let listening = running.shared().status.listening();
    let to = *listening.values().next().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

fn ping(client: &mut StdTcpStream) {
    client.write_all(b"!").unwrap();
    let mut echo = [0];
    client.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"!");
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Clean,
    Reset,
}

/// An endpoint that echoes, and a channel that tells how each of its connections ends.
fn echo() -> (SocketAddr, Receiver<End>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, ends) = channel();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let told = told.clone();
            thread::spawn(move || {
                let mut byte = [0];
                let end = loop {
                    match client.read(&mut byte) {
                        Ok(0) => break End::Clean,
                        // The kernel reports a reset only once, to the first call.
                        Ok(_) if client.write_all(&byte).is_ok() => {}
                        Ok(_) | Err(_) => break End::Reset,
                    }
                };
                told.send(end).ok();
            });
        }
    });
    (address, ends)
}

fn next_end(ends: &Receiver<End>) -> End {
    ends.recv_timeout(PATIENCE).unwrap()
}

fn metrics(running: &Running) -> String {
    let mut admin = StdTcpStream::connect(running.admin()[0]).unwrap();
    write!(admin, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).unwrap();
    answer
}

fn until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never came");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A client whose task never panics.
const NEXT: Ipv4Addr = Ipv4Addr::new(127, 66, 0, 3);
const PATIENCE: Duration = Duration::from_secs(20);
