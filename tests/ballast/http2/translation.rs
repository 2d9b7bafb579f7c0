//! A message that goes from one version of HTTP to the other is the same message there, in any form in which it may come.

use std::time::Duration;

use crate::http2::site::{Gate, H2, table};
use crate::http2::strict::{self, Http1, ok};
use support::Ballast;
use support::raw::{self, END_STREAM, HEADERS, Raw, field, request};

/// A piece of a body, and how much padding it has.
type Piece = (&'static [u8], Option<u8>);

/// Bodies whose end is a frame without a byte of them, and others.
const BODIES: [&[Piece]; 7] = [
    &[(b"", None)],
    &[(b"", Some(7))],
    &[(b"hello", None), (b"", None)],
    &[(b"hello", None), (b"", Some(0))],
    &[
        (b"hello", Some(3)),
        (b"", None),
        (b"", Some(9)),
        (b"", None),
    ],
    &[(b"", None), (b"hello", None)],
    &[(b"hel", None), (b"", None), (b"lo", Some(255))],
];

/// Sends these pieces; the last one ends the stream.
fn send_pieces(raw: &mut Raw, stream: u32, pieces: &[Piece]) {
    for (at, (bytes, padding)) in pieces.iter().enumerate() {
        let ends = at + 1 == pieces.len();
        match padding {
            Some(padding) => raw.padded(stream, bytes, *padding, ends),
            None => raw.data(stream, bytes, ends),
        }
    }
}

fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|(bytes, _)| *bytes)
        .copied()
        .collect()
}

/// A second last chunk is the beginning of the next request on that connection, which may be another client's.
#[test]
fn a_request_that_ends_with_an_empty_frame_has_one_last_chunk() {
    let endpoint = strict::Endpoint::answering(|request| ok(&request.body));
    let ballast = Ballast::serve(&table("", &[("s", "", &[endpoint.address])]), 1);
    let mut client = Raw::to(ballast.address());
    let mut expected = Vec::new();
    for (stream, pieces) in (1..).step_by(2).zip(BODIES) {
        client.head(stream, &request("POST", "/s"), false);
        send_pieces(&mut client, stream, pieces);
        let response = client.message(stream);
        // What comes behind a request is seen by the next one.
        assert_eq!(response.status(), 200, "{pieces:?}");
        assert_eq!(response.body, bytes_of(pieces), "{pieces:?}");
        expected.push(bytes_of(pieces));
    }
    client.get(99, "/s");
    assert_eq!(client.message(99).status(), 200);
    expected.push(Vec::new());
    let heard: Vec<_> = endpoint.heard().into_iter().map(|one| one.body).collect();
    assert_eq!(heard, expected);
    assert_eq!(
        endpoint.connections(),
        1,
        "each request could be sent by the first one"
    );
}

#[test]
fn a_response_that_ends_with_an_empty_frame_has_one_last_chunk() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let at: usize = heard
                .path()
                .trim_start_matches('/')
                .parse()
                .expect("a number");
            raw.head(heard.stream, &[(":status", "200")], false);
            send_pieces(raw, heard.stream, BODIES[at]);
        }
    });
    let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
    let mut client = Http1::to(ballast.address());
    for (at, pieces) in BODIES.into_iter().enumerate().chain([(0, BODIES[0])]) {
        let response = client.get(&format!("/{at}"));
        assert_eq!(response.status(), 200, "{pieces:?}");
        assert_eq!(response.body, bytes_of(pieces), "{pieces:?}");
        // A body that is known to be empty has a length and no chunks.
        let trailers = response.trailers.unwrap_or_default();
        assert_eq!(trailers, Vec::new(), "{pieces:?}");
    }
}

/// The bytes have gone on to the endpoint, so nobody holds them.
#[test]
fn a_request_that_waits_for_its_answer_holds_nothing_of_its_clients_window() {
    for (version, fields) in [("h1", ""), ("h2", H2)] {
        let gate = Gate::default();
        let slow = match version {
            "h1" => {
                let gate = gate.clone();
                strict::Endpoint::answering(move |request| {
                    gate.pass();
                    ok(request.body.len().to_string())
                })
                .address
            }
            _ => late_endpoint(gate.clone()),
        };
        let fast = strict::Endpoint::answering(|_| ok("fast"));
        let services: [(&str, &str, &[_]); 2] =
            [("slow", fields, &[slow]), ("fast", "", &[fast.address])];
        let ballast = Ballast::serve(&table("", &services), 1);
        let mut client = Raw::to(ballast.address());
        client.until_settings();
        client.patience(Duration::from_secs(10));
        let body = vec![b'x'; 16 << 10];
        let post = |client: &mut Raw, stream, path| {
            client.head(stream, &request("POST", path), false);
            // In one frame, which ends the stream.
            client.until_room(stream, body.len());
            client.data(stream, &body, true);
        };
        let slow: Vec<u32> = (1..129).step_by(2).collect();
        for stream in &slow {
            post(&mut client, *stream, "/slow");
        }
        post(&mut client, 129, "/fast");
        assert_eq!(client.message(129).text(), "fast", "{version}");
        gate.open();
        for stream in slow {
            assert_eq!(client.message(stream).text(), "16384", "{version}");
        }
    }
}

/// An endpoint of HTTP/2 that takes every request at once, and answers all of them once the gate is open, with the lengths of
/// their bodies.
fn late_endpoint(gate: Gate) -> std::net::SocketAddr {
    let endpoint = raw::Endpoint::scripted(&[(raw::INITIAL_WINDOW, 1 << 20)], move |raw, _, _| {
        raw.grant(0, 4 << 20);
        let (mut whole, mut length) = (Vec::new(), std::collections::BTreeMap::new());
        while whole.len() < 64 {
            match raw.event() {
                raw::Event::Data {
                    stream,
                    bytes,
                    ends,
                } => {
                    *length.entry(stream).or_insert(0) += bytes.len();
                    whole.extend(ends.then_some(stream));
                }
                raw::Event::End => return,
                _ => {}
            }
        }
        gate.pass();
        for stream in whole {
            let length = length.get(&stream).map_or(0, |length| *length);
            raw.respond(stream, 200, length.to_string().as_bytes());
        }
        raw.rest();
    });
    endpoint.address
}

/// Trailers that frame a message, say where it goes, or say who sent it: Ballast's own fields would be believed there.
const NOT_IN_TRAILERS: [&str; 12] = [
    "content-length",
    "transfer-encoding",
    "host",
    "connection",
    "te",
    "trailer",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
];

/// Those that a peer may write in HTTP/2, where fields about the connection are malformed.
fn may_be_in_http2(name: &str) -> bool {
    !["transfer-encoding", "connection", "te", "upgrade"].contains(&name)
}

#[test]
fn trailers_of_http2_say_nothing_that_is_for_heads() {
    let seen = strict::Endpoint::answering(|request| {
        let trailers = request.trailers.clone().unwrap_or_default();
        ok(format!("{trailers:?}"))
    });
    let h2 = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let trailers = raw.message(heard.stream).fields;
            raw.respond(heard.stream, 200, format!("{trailers:?}").as_bytes());
        }
    });
    for (fields, address) in [("", seen.address), (H2, h2.address)] {
        let ballast = Ballast::serve(&table("", &[("s", fields, &[address])]), 1);
        let mut client = Raw::to(ballast.address());
        let mut trailers = vec![("x-checksum", "up"), ("grpc-status", "0")];
        let not: Vec<_> = NOT_IN_TRAILERS
            .into_iter()
            .filter(|name| may_be_in_http2(name))
            .collect();
        trailers.extend(not.iter().map(|name| (*name, "6")));
        client.head(1, &request("POST", "/s"), false);
        client.data(1, b"hello", false);
        client.send(&raw::frame(
            HEADERS,
            END_STREAM | raw::END_HEADERS,
            1,
            &raw::encode(&trailers),
        ));
        let seen = client.message(1);
        assert_eq!(seen.status(), 200, "{}", seen.text());
        let seen = seen.text();
        assert!(seen.contains(r#"("x-checksum", "up")"#), "{seen}");
        assert!(seen.contains(r#"("grpc-status", "0")"#), "{seen}");
        for name in not {
            assert!(
                !seen.to_lowercase().contains(&format!("\"{name}\"")),
                "{name}: {seen}"
            );
        }
    }
}

#[test]
fn trailers_of_http1_say_nothing_that_is_for_heads() {
    let h2 = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let message = raw.message(heard.stream);
            assert_eq!(message.body, b"hello");
            raw.respond(
                heard.stream,
                200,
                format!("{:?}", message.fields).as_bytes(),
            );
        }
    });
    let ballast = Ballast::serve(&table("", &[("s", H2, &[h2.address])]), 1);
    let mut client = Http1::to(ballast.address());
    let lies: String = NOT_IN_TRAILERS
        .map(|name| format!("{name}: 6\r\n"))
        .concat();
    client.send(format!(
        "POST /s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Checksum: up\r\n{lies}\r\n"
    ));
    let seen = client.response("POST").unwrap().text();
    assert!(seen.contains(r#"("x-checksum", "up")"#), "{seen}");
    for name in NOT_IN_TRAILERS {
        assert!(!seen.contains(&format!("\"{name}\"")), "{name}: {seen}");
    }
}

/// A field that nobody may believe is no reason to hide the others.
#[test]
fn trailers_of_responses_pass_but_for_those_that_frame() {
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            raw.head(heard.stream, &[(":status", "200")], false);
            raw.data(heard.stream, b"hello", false);
            let trailers = [
                ("x-checksum", "down"),
                ("content-length", "6"),
                ("host", "b"),
            ];
            raw.head(heard.stream, &trailers, true);
        }
    });
    let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
    let mut client = Http1::to(ballast.address());
    for _ in 0..2 {
        let response = client.get("/");
        assert_eq!(response.text(), "hello");
        let trailers = response.trailers.unwrap();
        assert_eq!(trailers, [("x-checksum".to_owned(), "down".to_owned())]);
    }
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    let response = client.message(1);
    assert_eq!(response.text(), "hello");
    assert_eq!(
        field(&response.trailers.unwrap(), "x-checksum"),
        Some("down")
    );
}

/// A body whose length is known may have trailers in HTTP/2, too.
#[test]
fn no_trailer_beside_a_length_takes_the_place_of_a_field_of_the_table() {
    let (told, heard) = std::sync::mpsc::channel();
    let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
        while let Some(request) = endpoint.hear(raw, connection) {
            // The head has been read, so the next one is that of the trailers.
            told.send(raw.message(request.stream).fields).ok();
            let head = [(":status", "200"), ("content-length", "5")];
            raw.head(request.stream, &head, false);
            raw.data(request.stream, b"hello", false);
            let trailers = [("x-inside", "secret"), ("x-checksum", "7")];
            raw.head(request.stream, &trailers, true);
        }
    });
    let service = ", http: {version: h2, request-headers: {set: {X-Tenant: ours}}, response-headers: {remove: [X-Inside]}}";
    let services: [(_, _, &[_]); 1] = [("s", service, &[endpoint.address])];
    let ballast = Ballast::serve(&table("", &services), 1);
    let mut client = Raw::to(ballast.address());
    let length = ("content-length", "5".to_owned());
    client.head(1, &[request("POST", "/s"), vec![length]].concat(), false);
    client.data(1, b"hello", false);
    client.head(1, &[("x-tenant", "theirs"), ("x-checksum", "7")], true);
    let response = client.message(1);
    let expected = vec![("x-checksum".to_owned(), "7".to_owned())];
    assert_eq!(response.status(), 200, "{response:?}");
    assert_eq!(heard.recv().unwrap(), expected);
    assert_eq!(response.trailers, Some(expected));
}
