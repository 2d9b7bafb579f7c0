//! What connections cost that wait or are slow: the data plane is a process of its own here, whose memory and processor time are
//! nobody else's.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::{Ballast, connect};
use crate::peers::alone;
use crate::wire::{Endpoint, Wire, ok, table};

const READERS: usize = 50;
const SIZE: usize = 20 << 20;
const MOST: usize = 16 << 20;

#[test]
fn fifty_slow_readers_of_twenty_megabytes_cost_little_memory() {
    if let Ok(table) = env::var(TABLE_TO_SERVE) {
        return serve_in_this_process(&table);
    }
    let block: Arc<[u8]> = vec![0x5a; 64 << 10].into();
    let endpoint = Endpoint::scripted(move |wire, _, _| {
        while let Some(request) = wire.request_head() {
            let in_chunks = request.target() == "/chunked";
            wire.send(match in_chunks {
                true => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
                false => format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"),
            });
            for _ in 0..SIZE / block.len() {
                let written = match in_chunks {
                    true => write!(wire.stream, "{:x}\r\n", block.len())
                        .and_then(|()| wire.stream.write_all(&block))
                        .and_then(|()| wire.stream.write_all(b"\r\n")),
                    false => wire.stream.write_all(&block),
                };
                if written.is_err() {
                    return;
                }
            }
            if in_chunks {
                wire.send("0\r\n\r\n");
            }
        }
    });
    for path in ["/", "/chunked"] {
        let mut serving = Serving::start(
            "costs::fifty_slow_readers_of_twenty_megabytes_cost_little_memory",
            &table("", "", &[&endpoint]),
        );
        // What a first request takes is not what readers take.
        let mut first = Wire::over(connect(serving.address));
        first.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(first.response().body.len(), SIZE);
        let before = serving.resident();
        let mut readers: Vec<_> = (0..READERS)
            .map(|_| {
                let mut reader = Wire::over(connect(serving.address));
                reader.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                reader
            })
            .collect();
        // Each reads a little, in turn, so that bytes move and nobody is ready.
        let mut most = 0;
        for _ in 0..20 {
            for reader in &mut readers {
                reader.take(32 << 10).expect("a part of the body");
            }
            thread::sleep(Duration::from_millis(10));
            most = most.max(serving.resident().saturating_sub(before));
        }
        println!("{READERS} readers of {path}: {} KiB", most >> 10);
        assert!(most <= MOST, "{path}: {} KiB", most >> 10);
        // One of them gets the rest.
        let mut last = readers.pop().expect("a reader");
        let mut rest = SIZE - 20 * (32 << 10) - (64 << 10);
        while rest > 0 {
            rest -= last.take(rest.min(1 << 20)).expect("the rest").len();
        }
        drop((readers, last, first));
        serving.end();
    }
}

#[test]
fn connections_that_wait_cost_no_processor_time() {
    if let Ok(table) = env::var(TABLE_TO_SERVE) {
        return serve_in_this_process(&table);
    }
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while let Some(request) = endpoint.hear(wire, connection) {
            match request.target() {
                "/" => wire.send(ok("served")),
                "/half" => wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst"),
                "/half-and-end" => {
                    wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                    // Until nobody takes more.
                    wire.stream.write_all(&vec![b'x'; 100_000_000]).ok();
                }
                "/ended" => {
                    wire.stream.shutdown(Shutdown::Read).ok();
                }
                _ => {}
            }
        }
    });
    let table = table(
        ", timeouts: {client: 1m}",
        ", timeouts: {server: 1m}",
        &[&endpoint],
    );
    let mut serving = Serving::start(
        "costs::connections_that_wait_cost_no_processor_time",
        &table,
    );
    let mut clients = Vec::new();
    for (bytes, ends) in [
        // Between requests; before one; in its head; in its body.
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("", false),
        ("GET / HT", false),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
            false,
        ),
        // For a response, or the rest of one; with more requests behind it; after the client's end.
        ("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (
            "GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n",
            true,
        ),
        ("GET /half HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("GET /half HTTP/1.1\r\nHost: a\r\n\r\n", true),
        // For a client that does not read.
        ("GET /half-and-end HTTP/1.1\r\nHost: a\r\n\r\n", false),
        ("GET /half-and-end HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET /ended HTTP/1.1\r\nHost: a\r\n\r\n", false),
        // For a client to close.
        ("nonsense\r\n\r\n", false),
    ] {
        for _ in 0..5 {
            let mut client = Wire::to(serving.address);
            client.send(bytes);
            if ends {
                client.stream.shutdown(Shutdown::Write).unwrap();
            }
            clients.push(client);
        }
    }
    thread::sleep(Duration::from_millis(700));
    let before = serving.cpu();
    thread::sleep(Duration::from_secs(1));
    let took = serving.cpu() - before;
    println!(
        "{} connections: {took:?} of processor time in 1 s",
        clients.len()
    );
    // A connection that spins takes all of it.
    assert!(took < Duration::from_millis(100), "{took:?}");
    drop(clients);
    serving.end();
}

fn serve_in_this_process(table: &str) {
    let ballast = Ballast::serve(table, 1);
    println!("serving {}", ballast.address());
    // Until the test has no more use for it, or is gone.
    std::io::stdin()
        .read_to_end(&mut Vec::new())
        .expect("a read");
}

/// A data plane in a process of its own.
struct Serving {
    process: Child,
    address: std::net::SocketAddr,
}

impl Serving {
    /// Runs this test in another process, where it serves this table.
    fn start(test: &str, table: &str) -> Self {
        let alone = alone();
        let mut process = Command::new(env::current_exe().expect("a program"))
            .args([test, "--exact", "--nocapture"])
            .env(TABLE_TO_SERVE, table)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        drop(alone);
        let mut said = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let address = said
            .find_map(|line| Some(line.ok()?.split_once("serving ")?.1.to_owned()))
            .expect("an address");
        // What it says later must find room.
        thread::spawn(move || said.for_each(drop));
        Self {
            process,
            address: address.parse().expect("an address"),
        }
    }

    /// Its resident memory in bytes.
    fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
        kilobytes.expect("a number") << 10
    }

    /// The processor time that it has used, to 10 ms.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let stat = stat.expect("a process");
        let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
        // utime and stime are the 14th and 15th of all, and the name is the second.
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|one| one.parse::<u64>().expect("ticks")).sum();
        Duration::from_millis(ticks * 10)
    }

    fn end(&mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().expect("its end").success());
    }
}

const TABLE_TO_SERVE: &str = "HTTP_TEST_TABLE";
