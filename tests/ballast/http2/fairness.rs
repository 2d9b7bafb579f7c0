//! What one peer does costs the others nothing: responses that nobody reads, messages that are small and many, and floods.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use socket2::SockRef;
use tokio::task::spawn_local;

use crate::http2::peers::send_all;
use crate::http2::site::{Gate, H2, table};
use crate::http2::strict::{self, Http1, ok};
use support::peers::{Lateness, forgiven};
use support::raw::{self, Event, INITIAL_WINDOW, PREFACE, Raw, frame, request, settings_frame};
use support::{Ballast, run};

/// More than the windows of a connection, and than its socket's buffers.
const ENDLESS: usize = 64 << 20;
const LARGE: usize = 1 << 20;

/// An endpoint of HTTP/2, many of whose requests share a connection: `/endless` has 64 MiB, `/large` one of them.
fn endpoint() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.set_nonblocking(true).expect("an option");
    let address = listener.local_addr().expect("an address");
    let body = Bytes::from(vec![0; ENDLESS]);
    thread::spawn(move || {
        run(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((socket, _)) = listener.accept().await {
                spawn_local(serve(socket, body.clone()));
            }
        });
    });
    address
}

async fn serve(socket: tokio::net::TcpStream, body: Bytes) {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1_000);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let body = match request.uri().path() {
            "/large" => body.slice(..LARGE),
            _ => body.clone(),
        };
        spawn_local(async move {
            let mut send = respond.send_response(Response::new(()), false).ok()?;
            send_all(&mut send, body, true).await.ok()
        });
    }
}

/// A client that lets nothing of its responses come, for want of a window.
fn closed_client(address: SocketAddr, streams: u32) -> Raw {
    let mut client = Raw::with(address, &[(INITIAL_WINDOW, 0)]);
    for stream in (1..).step_by(2).take(streams as usize) {
        client.get(stream, "/endless");
    }
    client.seek(|event| matches!(event, Event::Head { .. }).then_some(()));
    client
}

/// A client of HTTP/1 that reads its response's head only.
fn stuck_client(address: SocketAddr) -> Http1 {
    let client = TcpStream::connect(address).expect("a connection");
    let buffer = SockRef::from(&client).set_recv_buffer_size(4 << 10);
    buffer.expect("an option");
    let mut client = Http1::over(client);
    client.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head(false).expect("a head");
    client
}

#[test]
fn responses_that_are_not_read_hold_up_no_other_clients() {
    let mut stalled = Vec::new();
    for (clients, streams, of_http1) in [(4, 1, 0), (90, 1, 0), (1, 90, 0), (0, 0, 6)] {
        let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint()])]), 1);
        let address = ballast.address();
        let closed: Vec<_> = (0..clients)
            .map(|_| closed_client(address, streams))
            .collect();
        let stuck: Vec<_> = (0..of_http1).map(|_| stuck_client(address)).collect();
        let mut reader = Raw::to(address);
        let begun = Instant::now();
        let mut heard = 0;
        // It reads whatever comes, for as long as that may take.
        reader.patience(Duration::from_secs(10));
        for (stream, expected) in [(1, LARGE), (3, 2 * LARGE), (5, 3 * LARGE)] {
            reader.get(stream, "/large");
            heard += until_silent(&mut reader, stream);
            if heard < expected {
                break;
            }
        }
        println!(
            "{clients} × {streams}, {of_http1}: {heard} bytes in {:?}",
            begun.elapsed()
        );
        if heard < 3 * LARGE {
            stalled.push(format!(
                "{clients} clients of {streams} streams, {of_http1} of HTTP/1: only {heard} bytes"
            ));
        }
        drop((closed, stuck));
    }
    assert!(stalled.is_empty(), "{stalled:#?}");
}

/// How many bytes of this response come before its end, or before nothing comes.
fn until_silent(reader: &mut Raw, of: u32) -> usize {
    let mut heard = 0;
    while let Some(event) = reader.try_event() {
        match event {
            Event::Data {
                stream,
                bytes,
                ends,
            } if stream == of => {
                heard += bytes.len();
                if ends {
                    break;
                }
            }
            Event::Reset { .. } | Event::End => break,
            _ => {}
        }
    }
    heard
}

/// As of gRPC, or of server-sent events.
const MESSAGE: &[u8] = b"forty bytes, as a small message may have";
const MESSAGES: usize = 5_000;

/// Waits until this counts no further, or has come to its end.
fn until_still(count: &AtomicUsize) {
    let mut before = usize::MAX;
    loop {
        let now = count.load(Ordering::SeqCst);
        if now == MESSAGES || now == before {
            return;
        }
        before = now;
        support::pause(Duration::from_millis(700));
    }
}

#[test]
fn small_messages_that_a_client_does_not_read_yet_end_no_connection() {
    for streams in [1, 50] {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
            let mut open = Vec::new();
            while open.len() < streams {
                let Some(heard) = endpoint.hear(raw, connection) else {
                    return;
                };
                raw.head(heard.stream, &[(":status", "200")], false);
                open.push(heard.stream);
            }
            // In turn, as each of them has room.
            for message in 0..MESSAGES {
                let stream = open[message % streams];
                raw.until_room(stream, MESSAGE.len());
                raw.data(stream, MESSAGE, message + streams >= MESSAGES);
                count.fetch_add(1, Ordering::SeqCst);
            }
            while let Some(heard) = endpoint.hear(raw, connection) {
                raw.respond(heard.stream, 200, b"next");
            }
        });
        let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
        let mut client = Raw::with(ballast.address(), &[(INITIAL_WINDOW, 0)]);
        let numbers: Vec<u32> = (1..).step_by(2).take(streams).collect();
        for stream in &numbers {
            client.get(*stream, "/messages");
        }
        ballast.until(|_| endpoint.heard().len() == streams);
        until_still(&sent);
        for stream in &numbers {
            client.grant(*stream, 1 << 20);
        }
        for stream in &numbers {
            let response = client.message(*stream);
            let length = response.body.len();
            let expected = MESSAGES / streams * MESSAGE.len();
            assert_eq!(length, expected, "{streams} streams: {:?}", response.reset);
            assert_eq!(response.reset, None);
        }
        let mut other = Raw::to(ballast.address());
        other.get(1, "/next");
        assert_eq!(other.message(1).text(), "next");
        assert_eq!(
            endpoint.connections(),
            1,
            "the connection to the endpoint has ended"
        );
    }
}

#[test]
fn small_messages_that_an_endpoint_does_not_read_yet_end_no_connection() {
    for streams in [1, 50] {
        let gate = Gate::default();
        let opening = gate.clone();
        let endpoint =
            raw::Endpoint::scripted(&[(INITIAL_WINDOW, 0)], move |raw, endpoint, connection| {
                let mut open = Vec::new();
                while open.len() < streams {
                    let Some(heard) = endpoint.hear(raw, connection) else {
                        return;
                    };
                    open.push(heard.stream);
                }
                opening.pass();
                raw.grant(0, 1 << 20);
                for stream in &open {
                    raw.grant(*stream, 1 << 20);
                }
                for stream in open {
                    let length = raw.message(stream).body.len();
                    raw.respond(stream, 200, length.to_string().as_bytes());
                }
                raw.rest();
            });
        let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
        let mut client = Raw::to(ballast.address());
        client.until_settings();
        let numbers: Vec<u32> = (1..).step_by(2).take(streams).collect();
        for stream in &numbers {
            client.head(*stream, &request("POST", "/messages"), false);
        }
        ballast.until(|_| endpoint.heard().len() == streams);
        let mut sent = 0;
        // As many as the windows let pass.
        while sent < MESSAGES {
            let stream = numbers[sent % streams];
            if client.room(stream) < 40 {
                break;
            }
            client.data(stream, MESSAGE, sent + streams >= MESSAGES);
            sent += 1;
        }
        println!("{streams} streams: {sent} messages before the endpoint reads");
        assert!(client.ping([1; 8]), "the client's connection has ended");
        gate.open();
        for message in sent..MESSAGES {
            let stream = numbers[message % streams];
            client.until_room(stream, MESSAGE.len());
            client.data(stream, MESSAGE, message + streams >= MESSAGES);
        }
        let expected = (MESSAGES / streams * MESSAGE.len()).to_string();
        for stream in &numbers {
            let response = client.message(*stream);
            assert_eq!(response.text(), expected, "{streams} streams: {response:?}");
        }
    }
}

/// They are lawful, and a connection that many share lives long.
#[test]
fn frames_without_bytes_among_others_end_no_connection() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let body = raw.message(heard.stream).body;
            raw.head(heard.stream, &[(":status", "200")], false);
            raw.data(heard.stream, b"", false);
            raw.data(heard.stream, &body, true);
        }
    });
    let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
    let mut client = Raw::to(ballast.address());
    for stream in (1..).step_by(2).take(300) {
        client.head(stream, &request("POST", "/"), false);
        client.data(stream, b"", false);
        client.data(stream, b"hello", true);
        let response = client.message(stream);
        assert_eq!(response.text(), "hello", "stream {stream}: {response:?}");
    }
    assert_eq!(
        endpoint.connections(),
        1,
        "the connection to the endpoint has ended"
    );
}

/// Does this again and again until the flag is set.
fn flood(is_over: &Arc<AtomicBool>, step: impl Fn(&AtomicBool) + Send + 'static) {
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            step(&is_over);
        }
    });
}

/// Writes this again and again to a new connection that began so, until that ends.
fn pour(
    address: SocketAddr,
    first: &[u8],
    again: &[u8],
    poured: &AtomicUsize,
    is_over: &AtomicBool,
) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let timeout = Some(Duration::from_secs(10));
    stream.set_write_timeout(timeout).expect("an option");
    let mut written = stream.write_all(first);
    while !is_over.load(Ordering::Relaxed) && written.is_ok() {
        written = stream.write_all(again);
        poured.fetch_add(again.len(), Ordering::Relaxed);
    }
}

/// The 99th percentile of how long requests of HTTP/1 take by one connection.
fn p99(address: SocketAddr) -> Duration {
    let mut client = Http1::to(address);
    let mut took: Vec<Duration> = (0..REQUESTS)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(client.get("/fast").text(), "fast");
            begun.elapsed()
        })
        .collect();
    took.sort();
    println!(
        "median {:?}, worst {:?}",
        took[REQUESTS / 2],
        took[REQUESTS - 1]
    );
    took[REQUESTS * 99 / 100 - 1]
}

/// Asserts that others on the worker wait for no more than a moment while this goes on.
fn assert_others_are_served(address: SocketAddr, poured: &AtomicUsize, what: &str) {
    support::until_within(
        Duration::from_secs(30),
        format_args!("{what}: it flows"),
        || poured.load(Ordering::Relaxed) >= 4 << 20,
    );
    let lateness = Lateness::watch();
    // Floods have moments in which they ebb.
    let took = [(); ROUNDS].map(|()| p99(address)).into_iter().max();
    let (took, late) = (took.unwrap_or_default(), lateness.end());
    let allowed = Duration::from_millis(50) + forgiven(late);
    println!("{what}: p99 {took:?}, this machine was late by {late:?}");
    assert!(took < allowed, "{what}: p99 {took:?}, not {allowed:?}");
}

#[test]
fn two_clients_that_send_frames_of_no_known_type_delay_nobody() {
    let fast = strict::Endpoint::answering(|_| ok("fast"));
    let ballast = Ballast::serve(&table("", &[("fast", "", &[fast.address])]), 1);
    let (is_over, poured) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let address = ballast.address();
    for _ in 0..2 {
        let poured = Arc::clone(&poured);
        flood(&is_over, move |is_over| {
            let first = [PREFACE, &settings_frame(&[])].concat();
            let frames = frame(0xfa, 0, 0, &[7; raw::MAX_FRAME]).repeat(64);
            pour(address, &first, &frames, &poured, is_over);
        });
    }
    assert_others_are_served(address, &poured, "frames");
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn clients_of_http10_that_read_chunked_responses_without_an_end_delay_nobody() {
    let fast = strict::Endpoint::answering(|_| ok("fast"));
    let (is_over, poured) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_done, pouring) = (Arc::clone(&is_over), Arc::clone(&poured));
    let endless = strict::Endpoint::scripted(move |wire, endpoint, _| {
        if endpoint.hear(wire).is_none() {
            return;
        }
        wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunks = [&b"4000\r\n"[..], &[7; 0x4000], b"\r\n"]
            .concat()
            .repeat(64);
        while !is_done.load(Ordering::Relaxed) && wire.stream.write_all(&chunks).is_ok() {
            pouring.fetch_add(chunks.len(), Ordering::Relaxed);
        }
    });
    let services: [(&str, &str, &[_]); 2] = [
        ("fast", "", &[fast.address]),
        ("endless", "", &[endless.address]),
    ];
    let ballast = Ballast::serve(&table("", &services), 1);
    let address = ballast.address();
    for _ in 0..2 {
        flood(&is_over, move |is_over| {
            let mut client = TcpStream::connect(address).expect("a connection");
            client
                .write_all(b"GET /endless HTTP/1.0\r\n\r\n")
                .expect("a request");
            let mut bytes = vec![0; 256 << 10];
            while !is_over.load(Ordering::Relaxed)
                && client.read(&mut bytes).is_ok_and(|read| read > 0)
            {}
        });
    }
    assert_others_are_served(address, &poured, "chunks");
    is_over.store(true, Ordering::Relaxed);
}

const REQUESTS: usize = 200;
const ROUNDS: usize = 4;
