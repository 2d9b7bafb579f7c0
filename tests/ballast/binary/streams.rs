//! What streams of HTTP/2 cost the process: descriptors and memory are shared out as by connections, and who waits holds little.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::peers::{connect, fresh_address, server};
use crate::process::{Process, folder, limited};
use support::raw::{self, Event, INITIAL_WINDOW, Raw};

/// A table of http frontends, each with a bind, an endpoint, and fields of its own and of its service.
fn table(frontends: &[(SocketAddr, SocketAddr, &str, &str)]) -> String {
    let (mut binds, mut services) = (Vec::new(), Vec::new());
    for (at, (bind, endpoint, frontend, service)) in frontends.iter().enumerate() {
        binds.push(format!(
            "{{name: f{at}, bind: [\"{bind}\"], protocol: http, default: {{service: s{at}}}{frontend}}}"
        ));
        services.push(format!(
            "{{name: s{at}{service}, endpoints: [{{address: \"{endpoint}\"}}]}}"
        ));
    }
    let (binds, services) = (binds.join(", "), services.join(", "));
    format!("version: 1\nfrontends: [{binds}]\nservices: [{services}]\n")
}

fn serve(limits: &str, table: &str) -> (Process, TempDir) {
    let folder = folder(table);
    let path = folder.path().to_str().unwrap().to_owned();
    let run = [
        "run",
        "--threads",
        "1",
        "--admin",
        "127.0.0.1:0",
        "--table",
        &path,
    ];
    let process = Process::spawn(&mut limited(limits, &run));
    process.until_answers("/readyz", 200);
    (process, folder)
}

/// Its resident memory in bytes.
fn resident(process: &Process) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: usize = line
        .unwrap()
        .trim()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kilobytes << 10
}

/// The value to which this comes when it no longer changes by much.
fn settled(value: impl Fn() -> usize, tolerance: usize) -> usize {
    let begun = Instant::now();
    let (mut last, mut since) = (value(), Instant::now());
    while since.elapsed() < Duration::from_secs(2) && begun.elapsed() < Duration::from_secs(60) {
        support::pause(Duration::from_millis(100));
        let now = value();
        if now.abs_diff(last) > tolerance {
            (last, since) = (now, Instant::now());
        }
    }
    value()
}

/// Reads the head of a request. `None`: the connection has ended.
fn head(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(head)
}

/// A server of HTTP/1 that answers once the lock is open, and counts its connections.
fn halting(lock: &Arc<RwLock<()>>, connections: &Arc<AtomicUsize>) -> SocketAddr {
    let (lock, connections) = (Arc::clone(lock), Arc::clone(connections));
    server(move |mut client| {
        connections.fetch_add(1, Ordering::SeqCst);
        while head(&mut client).is_some() {
            drop(lock.read());
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved";
            if client.write_all(answer).is_err() {
                return;
            }
        }
    })
}

#[test]
fn streams_of_a_few_clients_leave_descriptors_for_others() {
    let lock = Arc::new(RwLock::new(()));
    let closed = lock.write().unwrap();
    let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let slow = halting(&lock, &counts[0]);
    let fast = halting(&Arc::default(), &counts[1]);
    let binds = [fresh_address(), fresh_address()];
    let table = table(&[(binds[0], slow, "", ""), (binds[1], fast, "", "")]);
    let (process, _folder) = serve("ulimit -n 400", &table);
    let mut clients: Vec<_> = (0..5)
        .map(|_| {
            let mut client = Raw::to(binds[0]);
            let streams = client.ask_for_many();
            (client, streams)
        })
        .collect();
    let connections = settled(|| counts[0].load(Ordering::SeqCst), 0);
    println!("{connections} connections to the slow endpoint");

    for round in 0..20 {
        let begun = Instant::now();
        let mut other = connect(binds[1]).unwrap();
        other
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut heard = [0; 12];
        let read = other.read_exact(&mut heard);
        let took = begun.elapsed();
        assert!(
            read.is_ok(),
            "client {round} of another frontend: {read:?} after {took:?}"
        );
        assert_eq!(
            &heard, b"HTTP/1.1 200",
            "client {round} of another frontend"
        );
        // A second is promised; the rest is for a busy machine.
        assert!(
            took < Duration::from_secs(3),
            "client {round} of another frontend: {took:?}"
        );
    }
    let metrics = process.metrics();
    assert!(
        !metrics.contains("ballast_accept_errors_total{"),
        "{metrics}"
    );

    drop(closed);
    let (mut served, mut refused) = (0, 0);
    for (client, streams) in &mut clients {
        for stream in streams {
            let response = client.message(*stream);
            match (response.status(), response.reset) {
                (200, None) => served += 1,
                (503, None) | (_, Some(raw::REFUSED_STREAM)) => refused += 1,
                _ => panic!("stream {stream}: {response:?}"),
            }
        }
    }
    println!("{served} streams served, {refused} refused");
    assert!(served > 0);
}

/// A server of HTTP/1 whose responses have a megabyte, of which the kernel holds little on this side.
fn megabytes_by_http1() -> SocketAddr {
    let listener = TcpListener::bind((crate::peers::fresh_ip(), 17_000)).unwrap();
    let address = listener.local_addr().unwrap();
    SockRef::from(&listener)
        .set_send_buffer_size(16 << 10)
        .unwrap();
    SockRef::from(&listener).listen(4_096).unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let body: Arc<[u8]> = vec![0; MEGABYTE].into();
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let body = Arc::clone(&body);
                tokio::spawn(async move {
                    let mut asked = [0; 4096];
                    while client.read(&mut asked).await.is_ok_and(|read| read > 0) {
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MEGABYTE}\r\n\r\n");
                        client.write_all(head.as_bytes()).await.ok()?;
                        client.write_all(&body).await.ok()?;
                    }
                    Some(())
                });
            }
        });
    });
    address
}

/// The same by HTTP/2, as the windows of each stream allow.
fn megabytes_by_http2() -> SocketAddr {
    let endpoint = raw::Endpoint::scripted(&[(raw::MAX_STREAMS, 1_000)], |raw, _, _| {
        let mut left = BTreeMap::new();
        loop {
            let moved = match raw.event() {
                Event::Head { stream, .. } => {
                    raw.head(stream, &[(":status", "200")], false);
                    left.insert(stream, MEGABYTE);
                    vec![stream]
                }
                Event::Window { stream: 0, .. } => left.keys().copied().collect(),
                Event::Window { stream, .. } => vec![stream],
                Event::Reset { stream, .. } => {
                    left.remove(&stream);
                    continue;
                }
                Event::End => return,
                _ => continue,
            };
            for stream in moved {
                send_some(raw, stream, &mut left);
            }
        }
    });
    endpoint.address
}

/// Sends what may be sent of this stream.
fn send_some(raw: &mut Raw, stream: u32, left: &mut BTreeMap<u32, usize>) {
    while let Some(rest) = left.get_mut(&stream) {
        let room = usize::try_from(raw.room(stream)).unwrap_or(0);
        let part = room.min(*rest).min(raw::MAX_FRAME);
        if part == 0 {
            return;
        }
        *rest -= part;
        let ends = *rest == 0;
        if ends {
            left.remove(&stream);
        }
        raw.data(stream, &vec![0; part], ends);
    }
}

/// haproxy takes 111 MiB for this.
#[test]
fn two_thousand_responses_that_nobody_reads_cost_little_memory() {
    let mut too_much = Vec::new();
    for (version, endpoint) in [("h1", megabytes_by_http1()), ("h2", megabytes_by_http2())] {
        // Either the client's windows are closed, or they are wide open and it does not read its socket.
        for window in [0, 1 << 24] {
            let bind = fresh_address();
            let service = format!(", http: {{version: {version}}}, timeouts: {{server: 10m}}");
            let table = table(&[(bind, endpoint, ", timeouts: {client: 10m}", &service)]);
            let (process, _folder) = serve(":", &table);
            // What a first response takes is not what those take that wait.
            let mut reader = Raw::to(bind);
            reader.get(1, "/");
            assert_eq!(reader.message(1).body.len(), MEGABYTE, "{version}");
            let before = settled(|| resident(&process), 1 << 20);
            let clients: Vec<_> = (0..20)
                .map(|_| {
                    let mut client = Raw::with(bind, &[(INITIAL_WINDOW, window)]);
                    client.grant(0, 1 << 30);
                    let streams = client.ask_for_many();
                    (client, streams)
                })
                .collect();
            let after = settled(|| resident(&process), 1 << 20);
            let streams: usize = clients.iter().map(|(_, streams)| streams.len()).sum();
            let grown = after.saturating_sub(before) >> 20;
            let what = format!("{streams} streams to {version}, windows of {window}: {grown} MiB");
            println!("{what}");
            too_much.extend((grown >= 60).then_some(what));
            // Others are served.
            reader.get(3, "/");
            assert_eq!(reader.message(3).body.len(), MEGABYTE, "{version}");
        }
    }
    assert!(too_much.is_empty(), "{too_much:#?}");
}

/// haproxy takes 6 KiB for each, nginx 2.
#[test]
fn a_connection_of_http2_that_is_idle_costs_little_memory() {
    let lock = Arc::default();
    let endpoint = halting(&lock, &Arc::default());
    let bind = fresh_address();
    let frontend = ", timeouts: {keep-alive: 10m}";
    let (process, _folder) = serve(":", &table(&[(bind, endpoint, frontend, "")]));
    let visit = || {
        let mut client = Raw::to(bind);
        client.get(1, "/");
        assert_eq!(client.message(1).text(), "served");
        client
    };
    let first: Vec<_> = (0..100).map(|_| visit()).collect();
    let before = settled(|| resident(&process), 64 << 10);
    let idle: Vec<_> = (0..IDLE).map(|_| visit()).collect();
    let after = settled(|| resident(&process), 64 << 10);
    let each = after.saturating_sub(before) / IDLE;
    println!("{each} bytes for each of {IDLE} idle connections");
    assert!(
        each <= 12 << 10,
        "{each} bytes for each of {IDLE} idle connections"
    );
    drop((first, idle));
}

const MEGABYTE: usize = 1_000_000;
const IDLE: usize = 2_000;
