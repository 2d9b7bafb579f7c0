//! Interim responses, and responses without a body.

use std::io::Write;
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, ok, response, table};
use support::Ballast;
use support::peers::End;

const EXPECTING: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

/// Asks for the body, which it gets only then.
fn inviting(invitation: &'static str) -> Endpoint {
    Endpoint::scripted(move |wire, endpoint, connection| {
        while let Some(mut request) = wire.request_head() {
            wire.send(invitation);
            let Some(body) = wire.request_body(&request) else {
                return;
            };
            request.body = body;
            request.connection = connection;
            endpoint.note(request.clone());
            wire.send(ok(&String::from_utf8_lossy(&request.body)));
        }
    })
}

#[test]
fn a_client_that_waits_for_100_is_not_the_slow_one() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while let Some(mut request) = wire.request_head() {
            support::pause(Duration::from_millis(900));
            wire.send("HTTP/1.1 100 Continue\r\n\r\n");
            let Some(body) = wire.request_body(&request) else {
                return;
            };
            request.body = body;
            request.connection = connection;
            endpoint.note(request);
            wire.send(ok("thanks"));
        }
    });
    let ballast = Ballast::serve(&table(", timeouts: {client: 300ms}", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(EXPECTING);
    assert_eq!(client.response().head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    // It is silent for as long again, but now nobody waits for the client.
    assert_eq!(client.response().text(), "thanks");
    client.send(EXPECTING);
    assert_eq!(client.response().head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(client.response().status, 408, "the endpoint has asked");
}

#[test]
fn a_client_that_waits_for_100_gets_it() {
    let endpoint = inviting("HTTP/1.1 100 Continue\r\n\r\n");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..3 {
        client.send(EXPECTING);
        let interim = client.response();
        assert_eq!(interim.head, "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello");
        assert_eq!(client.response().text(), "hello");
    }
    assert_eq!(endpoint.last().field("Expect"), Some("100-continue"));
    assert_eq!(endpoint.connections(), 1);
    // Chunks, too.
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.response().status, 100);
    client.send("5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "hello");
    // A client that does not wait.
    client.send(format!("{EXPECTING}hello"));
    assert_eq!(client.response().status, 100);
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn an_endpoint_may_refuse_a_body_that_nobody_has_sent() {
    let endpoint = Endpoint::scripted(|wire, _, _| {
        if wire.request_head().is_some() {
            wire.send(response("413 Too Large", "", "no"));
            wire.rest();
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send(EXPECTING);
    let refused = client.response();
    assert_eq!((refused.status, refused.text().as_str()), (413, "no"));
    // What the client sends now may be the body or a request.
    assert!(refused.closes(), "{}", refused.head);
    client.send("GET /");
    client.assert_ends(End::Clean, "after a refused body");
}

#[test]
fn any_number_of_interim_responses_passes_before_the_final_one() {
    let endpoint = inviting(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nLink: </b.css>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </c.css>\r\n\r\nHTTP/1.1 199 Who Knows\r\n\r\n",
    );
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().status, 100);
        let hints = client.response();
        assert_eq!(
            hints.head,
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nLink: </b.css>\r\n\r\n"
        );
        assert_eq!(client.response().field("Link"), Some("</c.css>"));
        assert_eq!(client.response().status, 199);
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(endpoint.connections(), 1);
}

#[test]
fn a_client_of_http_1_0_gets_the_final_response_alone() {
    let endpoint =
        inviting("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send("POST / HTTP/1.0\r\nContent-Length: 5\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\nhello");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    assert_eq!(response.field("Connection"), Some("keep-alive"));
    assert_eq!(endpoint.last().field("Expect"), None);
    client.send("GET / HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status, 200);
    client.assert_ends(End::Clean, "HTTP/1.0");
}

#[test]
fn chunks_reach_a_client_of_http_1_0_without_their_marks() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while endpoint.hear(wire, connection).is_some() {
            wire.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhel",
            );
            wire.send("lo\r\n1;a=b\r\n!\r\n");
            wire.send("0\r\nX: y\r\n\r\n");
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for request in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ] {
        let mut client = Wire::to(ballast.address());
        client.send(request);
        let response = client.response();
        assert_eq!(response.text(), "hello!");
        assert_eq!(response.field("Transfer-Encoding"), None);
        assert_eq!(response.field("Trailer"), None);
        assert!(response.closes());
    }
    assert_eq!(endpoint.connections(), 1);
    // With their trailers to others.
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (heard, end) = client.rest();
    let heard = String::from_utf8(heard).unwrap();
    let (_, body) = heard.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, "5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nX: y\r\n\r\n");
    assert_eq!(end, End::Clean);
}

#[test]
fn responses_without_a_body_leave_both_connections_usable() {
    let endpoint = Endpoint::answering(|request| {
        let fields = "ETag: \"x\"\r\nContent-Length: 5\r\n";
        match (request.method(), request.target()) {
            ("HEAD", "/chunked") => {
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
            }
            ("HEAD", "/nothing") => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            ("HEAD", _) => format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes(),
            (_, "/204") => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            (_, "/304") => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes(),
            _ => ok("hello"),
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for (method, path, status, length) in [
        ("HEAD", "/", 200, Some("5")),
        ("HEAD", "/chunked", 200, None),
        ("HEAD", "/nothing", 200, None),
        ("GET", "/204", 204, None),
        ("DELETE", "/204", 204, None),
        ("GET", "/304", 304, Some("5")),
        ("HEAD", "/304", 200, Some("5")),
    ] {
        let response = client.ask(method, path);
        assert_eq!(response.status, status, "{method} {path}");
        assert_eq!(response.field("Content-Length"), length, "{method} {path}");
        assert!(!response.closes(), "{method} {path}");
        assert_eq!(client.get("/").text(), "hello", "after {method} {path}");
    }
    assert_eq!(endpoint.connections(), 1);
    // Ballast's own.
    let ballast = Ballast::serve(
        "version: 1\nfrontends: [{name: f, bind: [\"127.0.0.1:0\"], protocol: http}]\nservices: []\n",
        1,
    );
    let mut client = Wire::to(ballast.address());
    let length = client.get("/").body.len().to_string();
    let head = client.ask("HEAD", "/");
    assert_eq!(
        (head.status, head.field("Content-Length")),
        (404, Some(length.as_str()))
    );
    assert_eq!(client.get("/").status, 404);
}

#[test]
fn a_response_until_the_close_ends_with_the_clients_connection() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send("HTTP/1.1 200 OK\r\n\r\nhello");
            wire.send(" again");
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    let response = client.get("/");
    assert_eq!(response.text(), "hello again");
    assert!(response.closes());
}

/// What is told of a failure must not stand in the middle of an interim response that was not sent whole.
#[test]
fn interim_responses_arrive_whole_whatever_follows() {
    const COUNT: usize = 200;
    // Each answer fails in another way: the endpoint closes, or says no more.
    for (path, timeout, expected) in [("/closes", "10s", Some(502)), ("/waits", "1s", None)] {
        let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
            while let Some(request) = endpoint.hear(wire, connection) {
                let hint = format!(
                    "HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n",
                    "x".repeat(60_000)
                );
                for _ in 0..COUNT {
                    if wire.stream.write_all(hint.as_bytes()).is_err() {
                        return;
                    }
                }
                match request.target() {
                    "/closes" => return,
                    _ => continue,
                }
            }
        });
        let timeouts = format!(", timeouts: {{client: {timeout}}}");
        let service = format!(", timeouts: {{server: {timeout}}}");
        let ballast = Ballast::serve(&table(&timeouts, &service, &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if expected.is_none() {
            // Longer than it may take to read nothing.
            support::pause(Duration::from_secs(4));
        }
        let mut interim = 0;
        let last = loop {
            match client.try_response("GET") {
                Ok(response) if response.status == 103 => {
                    assert_eq!(response.head.len(), 60_036, "{interim} before it");
                    interim += 1;
                }
                last => break last.ok().map(|last| last.status),
            }
        };
        assert_eq!(last, expected, "after {interim}");
        assert!(interim == COUNT || expected.is_none(), "{interim}");
    }
}

/// An endpoint that never comes to its answer takes neither memory nor the time of others.
#[test]
fn interim_responses_without_end_are_an_error() {
    let endless = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100);
            while wire.stream.write_all(hints.as_bytes()).is_ok() {}
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endless]), 1);
    // What was not sent when the error came is dropped.
    for (version, expected) in [("1.0", 0..=0), ("1.1", 1..=1_000)] {
        let mut client = Wire::to(ballast.address());
        client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
        let mut interim = 0;
        let status = loop {
            match client.response().status {
                103 => interim += 1,
                status => break status,
            }
        };
        assert_eq!(status, 502, "HTTP/{version}");
        assert!(expected.contains(&interim), "HTTP/{version}: {interim}");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}
