//! Which requests are sent to an endpoint a second time: only those of which it certainly knows nothing, and those that nobody can
//! tell from one.

use std::net::Shutdown;

use crate::http2::site::{H2, table};
use crate::http2::strict::Http1;
use support::Ballast;
use support::raw::{self, ENHANCE_YOUR_CALM, Raw, request};

/// Does what the path says: `/CASE/reset/CODE` resets each request and `/CASE/refuses` refuses each; `/CASE/refused` refuses only the
/// first one of this path, `/CASE/above` says GOAWAY to that as if it had come too late, `/CASE/close` closes its connection, and
/// `/CASE/dies` each one of it. `/CASE/hold` gets no answer.
/// Every answer is the number of the connection.
fn endpoint() -> raw::Endpoint {
    with(&[])
}

/// The same with these settings.
fn with(settings: &'static [(u16, u32)]) -> raw::Endpoint {
    raw::Endpoint::scripted(settings, |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let mut words = heard.path().split('/').skip(2);
            let is_first = endpoint.count(heard.path()) == 1;
            match (words.next(), words.next()) {
                (Some("reset"), Some(code)) => {
                    raw.reset(heard.stream, code.parse().expect("a code"));
                }
                (Some("refused"), _) if is_first => raw.reset(heard.stream, raw::REFUSED_STREAM),
                (Some("refuses"), _) => raw.reset(heard.stream, raw::REFUSED_STREAM),
                (Some("above"), _) if is_first => {
                    raw.go_away(heard.stream.saturating_sub(2), raw::NO_ERROR);
                }
                (Some("close"), _) if is_first => {
                    raw.stream.shutdown(Shutdown::Both).ok();
                    return;
                }
                (Some("dies"), _) => {
                    raw.stream.shutdown(Shutdown::Both).ok();
                    return;
                }
                (Some("hold"), _) => {}
                _ => raw.respond(heard.stream, 200, connection.to_string().as_bytes()),
            }
        }
    })
}

fn serve(endpoint: &raw::Endpoint) -> Ballast {
    Ballast::serve(&table("", &[("s", H2, &[endpoint.address])]), 1)
}

/// The status of the response, 0 where it is a reset. There was another request before, on a connection that is used again.
fn ask(ballast: &Ballast, by_http2: bool, method: &str, path: &str, body: &str) -> u16 {
    if !by_http2 {
        let mut client = Http1::to(ballast.address());
        assert_eq!(client.get("/").status(), 200);
        let length = match body {
            "" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n{body}"
        ));
        return client.response(method).expect("a response").status();
    }
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    assert_eq!(client.message(1).status(), 200);
    client.head(3, &request(method, path), body.is_empty());
    if !body.is_empty() {
        client.data(3, body.as_bytes(), true);
    }
    let response = client.message(3);
    assert!(!response.is_cut, "{method} {path}: {response:?}");
    response.status()
}

/// It may have done all of it. An endpoint that sheds load would only get more.
#[test]
fn a_request_that_its_endpoint_resets_is_never_repeated() {
    let endpoint = endpoint();
    let ballast = serve(&endpoint);
    let mut repeated = Vec::new();
    for by_http2 in [false, true] {
        for code in [
            raw::NO_ERROR,
            raw::INTERNAL_ERROR,
            raw::CANCEL,
            ENHANCE_YOUR_CALM,
        ] {
            for (method, body) in [
                ("GET", ""),
                ("DELETE", ""),
                ("PUT", ""),
                ("PUT", "x"),
                ("POST", "x"),
            ] {
                let path = format!("/{by_http2}-{method}-{body}/reset/{code}");
                let status = ask(&ballast, by_http2, method, &path, body);
                let expected: &[u16] = if by_http2 { &[502, 0] } else { &[502] };
                assert!(expected.contains(&status), "{method} {path}: {status}");
                let times = endpoint.count(&path);
                if times != 1 {
                    repeated.push(format!("{method} {path}: {times} times"));
                }
            }
        }
    }
    assert!(repeated.is_empty(), "{repeated:#?}");
}

/// The endpoint has said that it knows nothing of it.
#[test]
fn a_request_that_its_endpoint_refuses_is_repeated() {
    let endpoint = endpoint();
    let ballast = serve(&endpoint);
    for by_http2 in [false, true] {
        for method in ["GET", "DELETE", "POST"] {
            for how in ["refused", "above"] {
                let path = format!("/{by_http2}-{method}/{how}");
                assert_eq!(
                    ask(&ballast, by_http2, method, &path, ""),
                    200,
                    "{method} {path}"
                );
                assert_eq!(endpoint.count(&path), 2, "{method} {path}");
            }
            // But not for ever.
            let path = format!("/{by_http2}-{method}/refuses");
            let status = ask(&ballast, by_http2, method, &path, "");
            assert!([0, 502, 503].contains(&status), "{method} {path}: {status}");
            let times = endpoint.count(&path);
            assert!((2..=10).contains(&times), "{method} {path}: {times} times");
        }
    }
}

/// docs/http.md: an idle connection that is closed just as a request is sent.
#[test]
fn a_request_on_a_connection_that_is_just_being_closed_is_repeated_if_it_may_be() {
    let endpoint = endpoint();
    let ballast = serve(&endpoint);
    for by_http2 in [false, true] {
        for (method, body, is_repeated) in [
            ("GET", "", true),
            ("DELETE", "", true),
            ("PUT", "", true),
            ("PUT", "x", false),
            ("POST", "", false),
        ] {
            let path = format!("/{by_http2}-{method}-{body}/close");
            let status = ask(&ballast, by_http2, method, &path, body);
            let (expected, times) = if is_repeated { (200, 2) } else { (502, 1) };
            assert_eq!(status, expected, "{method} {path}");
            assert_eq!(endpoint.count(&path), times, "{method} {path}");
        }
    }
}

/// A request that kills its endpoint kills no other connection than that, and the one that is made for it.
#[test]
fn a_request_is_repeated_once_at_most_whatever_connections_there_are() {
    let endpoint = with(&[(raw::MAX_STREAMS, 2)]);
    let ballast = serve(&endpoint);
    let mut client = Raw::to(ballast.address());
    // Three connections, each with one request under way and room for another.
    for (count, stream) in (1..).zip([1, 3, 5, 7, 9]) {
        client.head(stream, &request("POST", "/x/hold"), true);
        ballast.until(|_| endpoint.count("/x/hold") == count);
    }
    assert_eq!(endpoint.connections(), 3);
    for stream in [3, 7] {
        client.reset(stream, raw::CANCEL);
    }
    assert!(client.ping([1; 8]) && client.ping([2; 8]));
    client.head(11, &request("DELETE", "/x/dies"), true);
    assert_eq!(client.message(11).status(), 502);
    assert_eq!(endpoint.count("/x/dies"), 2);
}
