//! Requests that two readers could understand differently: each is refused, and the endpoint sees nothing of it.

use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, table};
use support::Ballast;
use support::peers::End;

/// What is sent, and the status of the answer. Each request is followed by [`SMUGGLED`].
#[rustfmt::skip]
pub(crate) const MALFORMED: &[(&[u8], u16)] = &[
    // Two lengths
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
    // Lengths that are none
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\nhello", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400),
    // Codings
    (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello", 501),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    // Chunks
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloxx\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGET /x HTTP/1.1\r\n\r\n", 400),
    // Fields
    (b"GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX y: z\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: y\0\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400),
    (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    // Hosts
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n", 400),
    (b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    // Request lines
    (b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /\r\n\r\n", 400),
    (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405),
    (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 200-ok\r\n\r\nhello", 417),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
];

/// Would be the next request, if the one before it ended where its sender wants it to end.
pub(crate) const SMUGGLED: &[u8] = b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn a_malformed_request_is_answered_and_never_forwarded() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for (bytes, status) in MALFORMED {
        let mut client = Wire::to(ballast.address());
        client.send([bytes, SMUGGLED].concat());
        let context = bytes.escape_ascii().to_string();
        assert_refused(&mut client, *status, &context);
    }
    assert_eq!(endpoint.connections(), 0, "{:?}", endpoint.heard());
    assert_eq!(Wire::to(ballast.address()).get("/").text(), "served");
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_malformed_request_after_good_ones_ends_the_connection() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for (bytes, status) in MALFORMED {
        let mut client = Wire::to(ballast.address());
        client.send(
            [
                b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
                *bytes,
                SMUGGLED,
            ]
            .concat(),
        );
        assert_eq!(client.response().text(), "served");
        assert_eq!(client.response().text(), "served");
        let context = bytes.escape_ascii().to_string();
        assert_refused(&mut client, *status, &context);
    }
    assert_eq!(endpoint.heard().len(), 2 * MALFORMED.len());
    assert!(
        endpoint
            .heard()
            .iter()
            .all(|request| request.target() != "/admin")
    );
}

/// The head of such a request has been forwarded, so the endpoint sees how its connection is reset, and no whole request.
#[test]
fn a_body_that_turns_out_to_be_malformed_is_never_whole() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for rest in [
        "x\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
    ] {
        let mut client = Wire::to(ballast.address());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        ballast.until(|ballast| ballast.in_flight() == 1);
        client.send([rest.as_bytes(), SMUGGLED].concat());
        assert_refused(&mut client, 400, rest);
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
    assert!(endpoint.heard().is_empty(), "{:?}", endpoint.heard());
}

#[test]
fn heads_over_the_limits_are_refused() {
    let endpoint = Endpoint::saying("served");
    let http = ", http: {max-header-bytes: 4KiB, max-headers: 20}";
    let ballast = Ballast::serve(&table(http, "", &[&endpoint]), 1);
    let long = "x".repeat(5_000);
    let many = "X: y\r\n".repeat(20);
    for (bytes, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            431,
        ),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
    ] {
        let mut client = Wire::to(ballast.address());
        client.send(bytes);
        assert_refused(&mut client, status, "a head over the limits");
    }
    assert_eq!(endpoint.connections(), 0);

    // The default limits, from below.
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let long = "x".repeat(60_000);
    let many = "X: y\r\n".repeat(126);
    let mut client = Wire::to(ballast.address());
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nY: {long}\r\n{many}\r\n"
    ));
    assert_eq!(client.response().text(), "served");
    assert_eq!(endpoint.last().fields("X").len(), 126);
    assert_eq!(endpoint.last().field("Y").map(str::len), Some(60_000));
}

#[test]
fn a_request_is_understood_the_same_in_whatever_pieces_it_comes() {
    let endpoint = Endpoint::answering(|request| {
        crate::http::wire::ok(&format!("{}{}", request.target(), request.body.len()))
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    let request = b"\r\nPOST /a?b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: u\r\n\r\n";
    for split in 1..request.len() {
        let (first, second) = request.split_at(split);
        client.send(first);
        support::pause(Duration::from_micros(500));
        client.send(second);
        assert_eq!(client.response().text(), "/a?b5", "split at {split}");
    }
    for byte in request {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "/a?b5");
}

#[test]
fn a_malformed_response_is_a_502() {
    let rows: [&[u8]; 9] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX : y\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
        b"220 mail.example ESMTP\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
    ];
    for bytes in rows {
        let endpoint = Endpoint::answering(move |_| bytes.to_vec());
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        let context = bytes.escape_ascii().to_string();
        assert_eq!(client.get("/").status, 502, "{context}");
        assert_eq!(client.get("/").status, 502, "{context}");
        // The endpoint's connection is not used again.
        assert_eq!(endpoint.connections(), 2, "{context}");
    }
}

#[test]
fn a_response_whose_body_turns_out_to_be_malformed_is_cut_by_a_reset() {
    for bytes in [
        &b"+5\r\nhello\r\n0\r\n\r\n"[..],
        b"5\r\nhello!\r\n0\r\n\r\n",
    ] {
        let endpoint = Endpoint::scripted(move |wire, _, _| {
            let Some(request) = wire.request_head() else {
                return;
            };
            wire.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
            // The client has that before it sends its body.
            wire.request_body(&request);
            wire.send(bytes);
            wire.rest();
        });
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(client.line().unwrap(), "HTTP/1.1 200 OK");
        while !client.line().unwrap().is_empty() {}
        assert_eq!(client.take(8).unwrap(), b"3\r\nabc\r\n");
        client.send("hi");
        assert_eq!(client.rest().1, End::Reset);
        assert_eq!(endpoint.connections(), 1);
    }
}

/// What an endpoint sends in one segment, behind the line of the status.
const BROKEN: [&str; 4] = [
    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloxx\r\n",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n+1\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0\r\nno trailer\r\n\r\n",
];

#[test]
fn a_response_whose_body_is_broken_from_the_start_is_answered_for_with_502() {
    for broken in BROKEN {
        for before in ["", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
            let endpoint = Endpoint::answering(move |_| {
                format!("{before}HTTP/1.1 200 OK\r\n{broken}").into_bytes()
            });
            let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
            for version in ["1.1", "1.0"] {
                let mut client = Wire::to(ballast.address());
                client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
                let mut response = client.response();
                if response.status == 103 {
                    response = client.response();
                }
                assert_eq!(response.status, 502, "{version}: {broken}");
            }
            // To HEAD there is no body.
            let mut client = Wire::to(ballast.address());
            let mut response = client.ask("HEAD", "/");
            if response.status == 103 {
                response = client.response_to("HEAD");
            }
            assert_eq!(response.status, 200, "{broken}");
            ballast.until(|ballast| ballast.in_flight() == 0);
            assert!(endpoint.connections() >= 3, "none of them serves again");
        }
    }
}

fn assert_refused(client: &mut Wire, status: u16, context: &str) {
    let response = client.try_response("GET");
    let response = response.unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(response.status, status, "{context}");
    assert!(response.closes(), "{context}: {}", response.head);
    client.assert_ends(End::Clean, context);
}
