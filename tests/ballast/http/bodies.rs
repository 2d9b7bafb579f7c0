//! Large bodies in both directions: whole, in order, and through pipes where their length is known.

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, table};
use support::Ballast;
use support::peers::{End, narrow_client, noise};

const SIZE: usize = 20 << 20;

/// Sends back what it hears, as it came: with a length, or in chunks of many sizes.
fn echo() -> Endpoint {
    Endpoint::scripted(|wire, _, _| {
        while let Some(request) = wire.request() {
            let sent = match request.field("Transfer-Encoding") {
                Some(_) => {
                    wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    send_chunks(wire, &request.body)
                }
                None => {
                    let length = request.body.len();
                    wire.send(format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
                    ));
                    wire.stream.write_all(&request.body)
                }
            };
            if sent.is_err() {
                return;
            }
        }
    })
}

fn send_chunks(wire: &mut Wire, body: &[u8]) -> std::io::Result<()> {
    let mut rest = body;
    for size in [1, 10, 1_000, 16_384, 100_000, 3, 1_000_000]
        .into_iter()
        .cycle()
    {
        let (chunk, behind) = rest.split_at(size.min(rest.len()));
        write!(wire.stream, "{:x}\r\n", chunk.len())?;
        if chunk.is_empty() {
            break;
        }
        wire.stream.write_all(chunk)?;
        wire.stream.write_all(b"\r\n")?;
        rest = behind;
    }
    wire.stream.write_all(b"\r\n")
}

fn spliced(ballast: &Ballast) -> u64 {
    let metrics = ballast.metrics();
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("ballast_spliced_bytes_total "));
    line.expect("the metric").parse().expect("a number")
}

#[test]
fn twenty_megabytes_up_and_down_arrive_whole() {
    let endpoint = echo();
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let body = noise(SIZE, 14);
    let mut client = Wire::to(ballast.address());
    for in_chunks in [false, true, false] {
        let before = spliced(&ballast);
        if in_chunks {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            send_chunks(&mut client, &body).unwrap();
        } else {
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n"
            ));
            client.send(&body);
        }
        let response = client.response();
        assert_eq!(response.field("Transfer-Encoding").is_some(), in_chunks);
        assert!(response.body == body, "{} of {SIZE}", response.body.len());
        let spliced = spliced(&ballast) - before;
        if !in_chunks {
            assert!(spliced > SIZE as u64, "{spliced} of {}", 2 * SIZE);
        }
    }
    assert_eq!(endpoint.connections(), 1);
    let metrics = ballast.metrics();
    for of in [
        "frontend_bytes_in",
        "frontend_bytes_out",
        "backend_bytes_in",
        "backend_bytes_out",
    ] {
        let name = format!("haproxy_{of}_total");
        let line = metrics.lines().find(|line| line.starts_with(&name));
        let count = line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        // Heads, and what came with them, may count or not.
        let least = 3 * (SIZE as u64 - (64 << 10));
        assert!(count.is_some_and(|count| count >= least), "{line:?}");
    }
}

#[test]
fn the_end_of_a_body_that_was_spliced_is_not_passed() {
    let endpoint = echo();
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for size in [
        0,
        1,
        16_383,
        16_384,
        16_385,
        65_536,
        131_072,
        131_073,
        1 << 20,
        (1 << 20) + 1,
    ] {
        let body = noise(size, 3);
        // The next request is right behind the body.
        let mut bytes =
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n").into_bytes();
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        let mut sending = client.stream.try_clone().unwrap();
        let sent = thread::spawn(move || sending.write_all(&bytes).unwrap());
        assert!(client.response().body == body, "{size}");
        assert_eq!(client.response().text(), "hello", "{size}");
        sent.join().unwrap();
    }
    assert_eq!(endpoint.connections(), 1);
}

#[test]
fn slow_peers_lose_nothing() {
    let body: Arc<[u8]> = noise(3 << 20, 5).into();
    let sent = Arc::clone(&body);
    let endpoint = Endpoint::scripted(move |wire, _, _| {
        while let Some(request) = wire.request_head() {
            // It takes its time for the request, too.
            let length: usize = request
                .field("Content-Length")
                .and_then(|one| one.parse().ok())
                .unwrap_or(0);
            let mut heard = Vec::new();
            while heard.len() < length {
                heard.extend(
                    wire.take(131_072.min(length - heard.len()))
                        .expect("a body"),
                );
                support::pause(Duration::from_millis(3));
            }
            assert!(heard == sent[..], "{} bytes", heard.len());
            let answered = match request.target() {
                "/chunked" => {
                    wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    send_chunks(wire, &sent)
                }
                "/until-close" => {
                    wire.send("HTTP/1.1 200 OK\r\n\r\n");
                    wire.stream.write_all(&sent).expect("a client");
                    return;
                }
                _ => {
                    wire.send(format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                        sent.len()
                    ));
                    wire.stream.write_all(&sent)
                }
            };
            if answered.is_err() {
                return;
            }
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let clients: Vec<_> = ["/", "/chunked", "/until-close"]
        .into_iter()
        .flat_map(|path| [(path, "1.1"), (path, "1.0")])
        .map(|(path, version)| {
            let (address, body) = (ballast.address(), Arc::clone(&body));
            thread::spawn(move || {
                let mut client = Wire::over(narrow_client(address, 8 << 10));
                client.send(format!(
                    "PUT {path} HTTP/{version}\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                ));
                client.send(&body);
                support::pause(Duration::from_millis(200));
                let response = client.response();
                assert!(
                    response.body == body[..],
                    "{path} {version}: {} bytes",
                    response.body.len()
                );
                if path == "/until-close" || version == "1.0" {
                    client.assert_ends(End::Clean, path);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn both_bodies_pass_at_once() {
    let endpoint = Endpoint::scripted(|wire, _, _| {
        while wire.request_head().is_some() {
            wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            // Each chunk as it comes.
            loop {
                let Ok(size) = wire.line() else { return };
                let chunk = wire.line().expect("a chunk");
                wire.send(format!("{size}\r\n{chunk}\r\n"));
                if size == "0" {
                    break;
                }
            }
        }
    });
    let ballast = Ballast::serve(&table("", ", http: {reuse: always}", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(client.line().unwrap(), "HTTP/1.1 200 OK");
        while !client.line().unwrap().is_empty() {}
        for index in 0..50 {
            let word = format!("word{index}");
            client.send(format!("{:x}\r\n{word}\r\n", word.len()));
            assert_eq!(client.line().unwrap(), format!("{:x}", word.len()));
            assert_eq!(client.line().unwrap(), word);
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.take(5).unwrap(), b"0\r\n\r\n");
        // The head of the response said close, because the request had not ended by then.
        client = Wire::to(ballast.address());
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(endpoint.connections(), 1);
}
