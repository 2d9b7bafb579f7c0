//! Any sequence of frames is the same message on the other side, in both directions; what is HTTP/1 there is read by a parser that
//! is not ours. SEED replays a run.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ballast_core::rng::Rng;

use crate::http2::site::{H2, table};
use crate::http2::strict::{self, Http1, No};
use support::Ballast;
use support::crowd::below;
use support::raw::{self, Fields, INITIAL_WINDOW, Raw, request};

mod messages;

use messages::{Body, End, Framing, Reply, any_bytes, any_trailers, lower, rng_of};

/// How long each test looks for what is wrong, and how often at least and at most.
const TIME: Duration = Duration::from_secs(3);
const LEAST: u64 = 40;
const MOST: u64 = 300;

fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u64::from(now.subsec_nanos()));
    let seed = std::env::var("SEED").map_or(now, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    seed
}

/// Several requests at once, whose frames come in any order.
#[test]
fn what_a_client_of_http2_says_an_endpoint_of_http1_hears() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let endpoint = strict::Endpoint::scripted(move |wire, endpoint, connection| {
        let mut rng = Rng::new(seed ^ connection as u64);
        while let Some(request) = endpoint.hear(wire) {
            let most: usize = request
                .field("x-most")
                .and_then(|most| most.parse().ok())
                .unwrap_or(0);
            let reply = Reply::to(seed, request.second(), most);
            wire.send(reply.bytes(request.line.starts_with("HEAD "), &mut rng));
            if reply.framing == Framing::Close {
                return;
            }
        }
    });
    let ballast = Ballast::serve(&table("", &[("s", "", &[endpoint.address])]), 1);
    let begun = Instant::now();
    let (mut number, mut rounds) = (0_u64, 0);
    while rounds < LEAST || (rounds < MOST && begun.elapsed() < TIME) {
        rounds += 1;
        let window = [17, 100, 1_000, 65_535][below(&mut rng, 4)];
        let most = usize::try_from(window * 40).expect("a small number");
        let mut client = Raw::with(ballast.address(), &[(INITIAL_WINDOW, window)]);
        client.until_settings();
        let mut open = Vec::new();
        let mut sent = Vec::new();
        for stream in (1..).step_by(2).take(1 + below(&mut rng, 4)) {
            number += 1;
            let body = Body::any(&mut rng);
            let method = ["POST", "PUT", "GET", "HEAD"][below(&mut rng, 4)];
            let path = format!("/s/{number}");
            let mut fields = request(method, &path);
            fields.push(("x-most", most.to_string()));
            body.add_length(&mut fields);
            client.head(stream, &fields, body.end == End::Head);
            open.push((stream, body.frames(&mut rng)));
            sent.push((stream, method, path, body));
        }
        while !open.is_empty() {
            let at = below(&mut rng, open.len());
            let (stream, frames) = &mut open[at];
            match frames.pop_front() {
                Some(frame) => frame.send(&mut client, *stream),
                None => drop(open.swap_remove(at)),
            }
        }
        for (stream, method, path, body) in sent {
            let context =
                format!("SEED={seed}, round {rounds}, {method} {path}, window {window}: {body:?}");
            if body.end == End::Reset {
                continue;
            }
            let response = client.message(stream);
            assert!(!response.is_cut, "{context}");
            if !body.is_whole() {
                let is_told = response.reset.is_some() || response.status() >= 400;
                assert!(is_told, "{context}: {response:?}");
                continue;
            }
            let reply = Reply::to(seed, &path, most);
            assert_eq!(response.status(), reply.status, "{context}: {response:?}");
            let expected = if method == "HEAD" {
                Vec::new()
            } else {
                reply.body
            };
            assert!(response.body == expected, "{context}: {response:?}");
            assert_eq!(response.reset, None, "{context}");
            let expected = if method == "HEAD" {
                Fields::new()
            } else {
                reply.trailers
            };
            assert_eq!(response.trailers.unwrap_or_default(), expected, "{context}");
            let heard: Vec<_> = endpoint
                .heard()
                .into_iter()
                .filter(|one| one.second() == path)
                .collect();
            assert_eq!(heard.len(), 1, "{context}");
            let heard = &heard[0];
            assert!(heard.body == body.bytes(), "{context}: {heard:?}");
            // HTTP/1 has trailers behind chunks alone.
            if heard.trailers.is_some() || body.declared.is_none() {
                let trailers = lower(&heard.trailers.clone().unwrap_or_default());
                assert_eq!(trailers, body.trailers, "{context}");
            }
            assert!(heard.line.starts_with(method), "{context}: {heard:?}");
        }
    }
    println!(
        "{rounds} rounds, {number} requests, {} connections to the endpoint",
        endpoint.connections()
    );
    assert_none_of_the_broken(&endpoint, number);
}

/// A request that its client has broken off is none for the endpoint.
fn assert_none_of_the_broken(endpoint: &strict::Endpoint, number: u64) {
    let mut paths: Vec<_> = endpoint
        .heard()
        .iter()
        .map(|one| one.second().to_owned())
        .collect();
    let all = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), all, "a request came twice");
    assert!(
        (all as u64) < number,
        "requests that were broken off came as whole ones"
    );
}

/// The request that a client of HTTP/1 sends.
fn any_request(
    rng: &mut Rng,
    number: u64,
    is_new: bool,
) -> (&'static str, Vec<u8>, Vec<u8>, Fields) {
    let method = ["GET", "HEAD", "POST"][below(rng, 3)];
    let version = if is_new { "HTTP/1.1" } else { "HTTP/1.0" };
    let mut bytes = format!("{method} /s/{number} {version}\r\nHost: a\r\n").into_bytes();
    let (mut body, mut trailers) = (Vec::new(), Fields::new());
    if method == "POST" {
        body = any_bytes(rng);
        if is_new && rng.below(2) == 0 {
            trailers = any_trailers(rng);
            let reply = Reply {
                status: 200,
                framing: Framing::Chunks,
                body: body.clone(),
                trailers: trailers.clone(),
                has_interim: false,
            };
            let chunked = reply.bytes(false, rng);
            let behind = chunked.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
            bytes.extend_from_slice(&chunked[behind..]);
            return (method, bytes, body, trailers);
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    (method, bytes, body, trailers)
}

/// What an endpoint of HTTP/2 answers to the request of this number: a status, a body, and whether there is an interim response.
fn answer_to(seed: u64, path: &str) -> (u16, Body, bool, Rng) {
    let mut rng = rng_of(seed, path);
    let mut body = Body::any(&mut rng);
    let mut status = [200, 200, 404, 204, 304][below(&mut rng, 5)];
    if !body.is_whole() || !body.bytes().is_empty() || !body.trailers.is_empty() {
        status = 200;
    }
    if status != 200 {
        body.declared = None;
    }
    (status, body, rng.below(4) == 0, rng)
}

fn answer(raw: &mut Raw, seed: u64, stream: u32, path: &str, is_head: bool) {
    let (status, body, has_interim, mut rng) = answer_to(seed, path);
    if has_interim {
        raw.head(stream, &[(":status", "103"), ("link", "</a>")], false);
    }
    let mut fields = vec![(":status", status.to_string())];
    body.add_length(&mut fields);
    if is_head {
        return raw.head(stream, &fields, true);
    }
    raw.head(stream, &fields, body.end == End::Head);
    for frame in body.frames(&mut rng) {
        frame.send(raw, stream);
    }
}

#[test]
fn what_an_endpoint_of_http2_says_clients_of_http1_hear() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let (tell, told) = mpsc::channel();
    let tell = Arc::new(Mutex::new(tell));
    let endpoint = raw::Endpoint::scripted(
        &[(INITIAL_WINDOW, 700)],
        move |raw, endpoint, connection| {
            while let Some(heard) = endpoint.hear(raw, connection) {
                let message = if heard.ends {
                    raw::Message::default()
                } else {
                    raw.message(heard.stream)
                };
                // The head has been read before the message.
                let (body, trailers) = (message.body, message.fields);
                tell.lock()
                    .expect("no panic")
                    .send((heard.path().to_owned(), body, trailers))
                    .ok();
                let is_head = heard.method() == "HEAD";
                answer(raw, seed, heard.stream, heard.path(), is_head);
            }
        },
    );
    let ballast = Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1);
    let begun = Instant::now();
    let (mut number, mut kept) = (0, None);
    while number < LEAST || (number < MOST && begun.elapsed() < TIME) {
        number += 1;
        let is_new = rng.below(4) > 0;
        let mut client = match kept.take() {
            Some(client) if is_new => client,
            _ => Http1::to(ballast.address()),
        };
        let (method, bytes, up, trailers) = any_request(&mut rng, number, is_new);
        client.send(&bytes);
        let response = client.response(method);
        let path = format!("/s/{number}");
        let (status, body, ..) = answer_to(seed, &path);
        let context = format!(
            "SEED={seed}, {method} {path}, HTTP/1.1: {is_new}, answered {status}: {body:?}"
        );
        let heard = told
            .recv_timeout(Duration::from_secs(20))
            .expect("a request");
        assert_eq!(heard.0, path, "{context}");
        assert!(heard.1 == up, "{context}: {heard:?}");
        assert_eq!(heard.2, trailers, "{context}");
        let response = match response {
            Ok(response) => response,
            Err(No::More(_)) if !body.is_whole() => continue,
            Err(no) => panic!("{context}: {no:?}"),
        };
        if !body.is_whole() && method != "HEAD" {
            assert_eq!(response.status(), 502, "{context}: {response:?}");
            continue;
        }
        assert_eq!(response.status(), status, "{context}: {response:?}");
        let is_chunked = response.trailers.is_some();
        if method != "HEAD" {
            assert!(response.body == body.bytes(), "{context}: {response:?}");
            // HTTP/1.0 has no chunks, and without them there are no trailers.
            let has_trailers = is_new && body.declared.is_none() && !body.trailers.is_empty();
            let expected = match (is_new, has_trailers) {
                (false, _) => Some(false),
                (true, true) => Some(true),
                (true, false) => None,
            };
            assert!(
                expected.is_none_or(|is| is == is_chunked),
                "{context}: {response:?}"
            );
        }
        if is_chunked {
            let trailers = lower(&response.trailers.clone().unwrap_or_default());
            assert_eq!(trailers, body.trailers, "{context}");
        }
        let closes = response.field("Connection") == Some("close");
        kept = (is_new && !closes).then_some(client);
    }
    println!("{number} requests");
}
