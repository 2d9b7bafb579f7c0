//! Trailers from HTTP/1 to HTTP/1: they may say nothing that Ballast says in heads, and bodies in chunks arrive as they were sent.

use ballast_core::rng::Rng;

use crate::http2::strict::{Endpoint, Http1, ok};
use support::Ballast;
use support::crowd::below;

/// They frame a message, say where it goes, or say who sent it.
const NOT_IN_TRAILERS: [&str; 14] = [
    "Content-Length",
    "Transfer-Encoding",
    "Host",
    "Connection",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Upgrade",
    "X-Forwarded-For",
    "x-forwarded-proto",
    "X-FORWARDED-HOST",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X_Forwarded_For",
];

fn table(endpoint: &Endpoint) -> String {
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: http, default: {{service: s}}}}]\nservices: [{{name: s, endpoints: [{{address: \"{}\"}}]}}]\n",
        endpoint.address
    )
}

/// Sends these bytes in parts of any size.
fn send_in_parts(wire: &mut Http1, bytes: &[u8], rng: &mut Rng) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = [3, 50, 5_000, 100_000][below(rng, 4)];
        let (part, later) = rest.split_at(rest.len().min(1 + below(rng, most)));
        wire.send(part);
        rest = later;
    }
}

/// A body, and the same in chunks of any sizes with these trailers.
fn in_chunks(length: usize, trailers: &str, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let body: Vec<u8> = (0..length)
        .map(|_| rng.next_u64().to_le_bytes()[0])
        .collect();
    let (mut rest, mut chunks) = (body.as_slice(), Vec::new());
    while !rest.is_empty() {
        let most = [1, 20, 300, 70_000][below(rng, 4)];
        let (chunk, later) = rest.split_at(rest.len().min(1 + below(rng, most)));
        let size = match rng.below(3) {
            0 => format!("{:x}\r\n", chunk.len()),
            1 => format!("{:X}\r\n", chunk.len()),
            _ => format!("{:05x}\r\n", chunk.len()),
        };
        chunks.extend_from_slice(&[size.as_bytes(), chunk, b"\r\n"].concat());
        rest = later;
    }
    chunks.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    (body, chunks)
}

fn rng() -> Rng {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    Rng::new(seed)
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    fields.iter().map(owned).collect()
}

#[test]
fn trailers_of_requests_say_nothing_that_is_for_heads() {
    let endpoint = Endpoint::answering(|_| ok("served"));
    let ballast = Ballast::serve(&table(&endpoint), 1);
    let mut client = Http1::to(ballast.address());
    for name in NOT_IN_TRAILERS {
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-One: 1\r\n{name}: 6\r\nX-Two: 2\r\n\r\n"
        ));
        assert_eq!(client.response("POST").unwrap().text(), "served", "{name}");
        let request = endpoint.heard().pop().unwrap();
        assert_eq!(request.body, b"hello", "{name}");
        let trailers = request.trailers.unwrap();
        assert_eq!(trailers, owned(&[("X-One", "1"), ("X-Two", "2")]), "{name}");
    }
    assert_eq!(
        endpoint.connections(),
        1,
        "no request was different for its endpoint"
    );
}

#[test]
fn trailers_of_responses_pass_but_for_those_that_frame() {
    let endpoint = Endpoint::answering(|request| {
        let name = request.second().trim_start_matches('/');
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-One: 1\r\n{name}: 6\r\nX-Two: 2\r\n\r\n"
        )
        .into_bytes()
    });
    let ballast = Ballast::serve(&table(&endpoint), 1);
    let mut client = Http1::to(ballast.address());
    for name in [
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
    ] {
        let response = client.get(&format!("/{name}"));
        assert_eq!(response.text(), "hello", "{name}");
        let trailers = response.trailers.unwrap();
        assert_eq!(trailers, owned(&[("X-One", "1"), ("X-Two", "2")]), "{name}");
    }
}

#[test]
fn bodies_in_chunks_of_any_sizes_arrive_with_their_trailers() {
    let mut rng = rng();
    let trailers = "X-Checksum: 17\r\nServer-Timing: a;dur=1\r\n";
    let expected = owned(&[("X-Checksum", "17"), ("Server-Timing", "a;dur=1")]);
    let (large, in_response) = in_chunks(2_000_000, trailers, &mut rng);
    let endpoint = Endpoint::answering(move |_| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        [&head[..], &in_response].concat()
    });
    let ballast = Ballast::serve(&table(&endpoint), 1);
    let mut client = Http1::to(ballast.address());
    for length in [0, 1, 2, 15, 16, 17, 1_000, 16_384, 65_536, 300_000] {
        let (body, chunks) = in_chunks(length, trailers, &mut rng);
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        send_in_parts(&mut client, &[&head[..], &chunks].concat(), &mut rng);
        let response = client.response("POST").unwrap();
        assert!(response.body == large, "{length}");
        assert_eq!(response.trailers.unwrap(), expected, "{length}");
        let request = endpoint.heard().pop().unwrap();
        assert!(request.body == body, "{length}");
        assert_eq!(request.trailers.unwrap(), expected, "{length}");
    }
    assert_eq!(endpoint.connections(), 1);
}
