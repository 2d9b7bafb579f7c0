//! Responses whose body breaks the protocol, and how their clients learn that.

use crate::http2::site::{Gate, H2, table};
use crate::http2::strict::{self, Http1};
use support::Ballast;
use support::peers::{End, hear};
use support::raw::{self, DATA, END_HEADERS, END_STREAM, HEADERS, Raw, encode, frame};

#[test]
fn a_response_of_http1_that_is_broken_from_the_start_is_answered_for_with_502() {
    let broken = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let endpoint = strict::Endpoint::answering(|_| broken.to_vec());
    let services: [(_, _, &[_]); 1] = [("s", "", &[endpoint.address])];
    let ballast = Ballast::serve(&table("", &services), 1);
    let mut client = Raw::to(ballast.address());
    for stream in [1, 3] {
        client.get(stream, "/");
        let response = client.message(stream);
        assert_eq!(response.status(), 502, "{response:?}");
        assert_eq!(response.reset, None, "{response:?}");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// A response whose head states three bytes, and what comes behind it in the same segment.
fn behind_head(stream: u32, behind: &[u8]) -> Vec<u8> {
    let fields = encode(&[(":status", "200"), ("content-length", "3")]);
    let head = frame(HEADERS, END_HEADERS, stream, &fields);
    [&head[..], behind].concat()
}

#[test]
fn a_response_of_http2_that_is_broken_from_the_start_is_answered_for_with_502() {
    let trailers = encode(&[("x", "y")]);
    for (what, kind, flags, payload) in [
        ("more than it states", DATA, END_STREAM, &b"hello"[..]),
        ("more than it states, and more to come", DATA, 0, b"hello"),
        ("less than it states", DATA, END_STREAM, b"he"),
        (
            "trailers that are not the end",
            HEADERS,
            END_HEADERS,
            &trailers,
        ),
    ] {
        let sends = payload.to_vec();
        let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
            while let Some(heard) = endpoint.hear(raw, connection) {
                let behind = frame(kind, flags, heard.stream, &sends);
                raw.send(&behind_head(heard.stream, &behind));
            }
        });
        let services: [(_, _, &[_]); 1] = [("s", H2, &[endpoint.address])];
        let ballast = Ballast::serve(&table("", &services), 1);
        let mut client = Raw::to(ballast.address());
        let mut other = Http1::to(ballast.address());
        for stream in [1, 3] {
            client.get(stream, "/");
            let response = client.message(stream);
            assert_eq!(response.status(), 502, "{what}: {response:?}");
            assert_eq!(response.reset, None, "{what}: {response:?}");
            assert_eq!(other.get("/").status(), 502, "{what}");
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn a_response_of_http2_that_turns_out_to_be_broken_is_cut() {
    let gate = Gate::default();
    let passes = gate.clone();
    let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let begins = frame(DATA, 0, heard.stream, b"he");
            raw.send(&behind_head(heard.stream, &begins));
            passes.pass();
            raw.send(&frame(DATA, END_STREAM, heard.stream, b"llo"));
        }
    });
    let services: [(_, _, &[_]); 1] = [("s", H2, &[endpoint.address])];
    let ballast = Ballast::serve(&table("", &services), 1);
    let mut client = Http1::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert_eq!(client.head(false).unwrap().status(), 200);
    assert_eq!(client.take(2).unwrap(), b"he");
    gate.open();
    assert_eq!(hear(&mut client.stream), (Vec::new(), End::Reset));
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    let response = client.message(1);
    // The gate is open: it may all be there at once.
    assert!(
        response.status() == 502 || response.reset.is_some(),
        "{response:?}"
    );
    ballast.until(|ballast| ballast.in_flight() == 0);
}
