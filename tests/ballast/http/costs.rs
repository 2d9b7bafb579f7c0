//! What connections cost that wait or are slow: the data plane is a process of its own here, whose memory and processor time are
//! nobody else's.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, ok, table};
use support::apart::Apart;
use support::connect;

const READERS: usize = 50;
const SIZE: usize = 20 << 20;
const MOST: usize = 16 << 20;

#[test]
fn fifty_slow_readers_of_twenty_megabytes_cost_little_memory() {
    if Apart::is_served_here() {
        return;
    }
    let block: Arc<[u8]> = vec![0x5a; 64 << 10].into();
    let endpoint = Endpoint::scripted(move |wire, _, _| {
        while let Some(request) = wire.request_head() {
            let in_chunks = request.target() == "/chunked";
            wire.send(if in_chunks {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
            } else {
                format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n")
            });
            for _ in 0..SIZE / block.len() {
                let written = if in_chunks {
                    write!(wire.stream, "{:x}\r\n", block.len())
                        .and_then(|()| wire.stream.write_all(&block))
                        .and_then(|()| wire.stream.write_all(b"\r\n"))
                } else {
                    wire.stream.write_all(&block)
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
        let mut serving = Apart::start(
            "http::costs::fifty_slow_readers_of_twenty_megabytes_cost_little_memory",
            &table("", "", &[&endpoint]),
            "",
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
            support::pause(Duration::from_millis(10));
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
    if Apart::is_served_here() {
        return;
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
    let mut serving = Apart::start(
        "http::costs::connections_that_wait_cost_no_processor_time",
        &table,
        "",
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
    support::pause(Duration::from_millis(700));
    let before = serving.cpu();
    support::pause(Duration::from_secs(1));
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
