//! Bytes behind a message: a client's belong to its next request, an endpoint's to nobody.

use std::io::Write;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, ok, response, table};
use support::Ballast;

#[test]
fn ten_requests_at_once_are_answered_in_order() {
    let endpoint = Endpoint::answering(|request| {
        // The first ones take longest.
        let target = request.target().trim_start_matches('/');
        let number: u64 = target.parse().expect("a number");
        support::pause(Duration::from_millis(20 - 2 * number));
        ok(&format!(
            "{number}: {}",
            String::from_utf8_lossy(&request.body)
        ))
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut requests = String::new();
    for number in 0..10 {
        requests += &match number % 3 {
            0 => format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
            1 => format!("POST /{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /"),
            _ => format!(
                "\r\nPUT /{number} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nGE\r\n3\r\nT /\r\n0\r\n\r\n"
            ),
        };
    }
    let mut client = Wire::to(ballast.address());
    // Whole, and in pieces that cut each request somewhere.
    for size in [requests.len(), 37] {
        for piece in requests.as_bytes().chunks(size) {
            client.send(piece);
        }
        for number in 0..10 {
            let body = if number % 3 == 0 { "" } else { "GET /" };
            assert_eq!(client.response().text(), format!("{number}: {body}"));
        }
    }
    assert_eq!(endpoint.heard().len(), 20);
    assert_eq!(endpoint.connections(), 1);
}

/// Answers with `first`, and with `later` a moment afterwards, in the first connection. In all others it serves.
fn overfull(first: Vec<u8>, later: &'static [u8]) -> (Endpoint, mpsc::Receiver<()>) {
    let (told, sent) = mpsc::channel();
    let told = Arc::new(Mutex::new(told));
    let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
        while endpoint.hear(wire, connection).is_some() {
            if connection > 0 {
                wire.send(ok("served"));
                continue;
            }
            wire.send(&first);
            if !later.is_empty() {
                support::pause(Duration::from_millis(20));
                wire.stream.write_all(later).ok();
            }
            told.lock().expect("no panic").send(()).ok();
        }
    });
    (endpoint, sent)
}

const EVIL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn bytes_behind_a_response_are_nobodys() {
    let fine = ok("fine");
    let bodiless = |status: &str| response(status, "", "");
    let no_length = |status: &str| format!("HTTP/1.1 {status}\r\n\r\n").into_bytes();
    for (what, method, first, later) in [
        ("at once", "GET", [&fine, EVIL].concat(), &b""[..]),
        ("one byte", "GET", [&fine[..], b"\n"].concat(), b""),
        ("later", "GET", fine.clone(), EVIL),
        ("to HEAD", "HEAD", fine.clone(), b""),
        ("to HEAD, later", "HEAD", bodiless("200 OK"), EVIL),
        (
            "204",
            "GET",
            [&no_length("204 No Content"), EVIL].concat(),
            b"",
        ),
        ("204, later", "GET", no_length("204 No Content"), EVIL),
        (
            "304",
            "GET",
            [&no_length("304 Not Modified"), EVIL].concat(),
            b"",
        ),
        (
            "chunks",
            "GET",
            [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
                EVIL,
            ]
            .concat(),
            b"",
        ),
    ] {
        let (endpoint, sent) = overfull(first, later);
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        let response = client.ask(method, "/");
        assert!(response.status < 400, "{what}: {response:?}");
        sent.recv().unwrap();
        let mut other = Wire::to(ballast.address());
        assert_eq!(other.get("/").text(), "served", "{what}");
        assert_eq!(client.get("/").text(), "served", "{what}");
        assert_eq!(endpoint.connections(), 2, "{what}");
    }
}

#[test]
fn a_connection_whose_response_says_close_is_not_used_again() {
    for fields in ["Connection: close\r\n", "Connection: x, Close\r\n"] {
        let endpoint = Endpoint::answering(move |_| response("200 OK", fields, "fine"));
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        for _ in 0..3 {
            let response = client.get("/");
            assert_eq!(response.text(), "fine");
            // What the endpoint says of its connection does not concern the client's.
            assert_eq!(response.field("Connection"), None);
        }
        assert_eq!(endpoint.connections(), 3);
    }
    let endpoint =
        Endpoint::answering(|_| b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nfine".to_vec());
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(endpoint.connections(), 2);
}

#[test]
fn the_rest_of_a_response_that_its_client_did_not_wait_for_is_nobodys() {
    let (told, halfway) = mpsc::channel();
    let told = Arc::new(Mutex::new(told));
    let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
        while let Some(request) = endpoint.hear(wire, connection) {
            if request.target() != "/half" {
                wire.send(ok("served"));
                continue;
            }
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
            told.lock().expect("no panic").send(()).ok();
            support::pause(Duration::from_millis(50));
            wire.stream.write_all(b"later").ok();
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for _ in 0..3 {
        let mut client = Wire::to(ballast.address());
        client.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
        halfway.recv().unwrap();
        support::peers::reset(client.stream);
        let mut other = Wire::to(ballast.address());
        for _ in 0..3 {
            assert_eq!(other.get("/").text(), "served");
            support::pause(Duration::from_millis(30));
        }
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}
