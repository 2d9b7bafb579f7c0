//! Who is waited for, and how long.

use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

use crate::http::wire::{Endpoint, Wire, ok, table};
use support::Ballast;
use support::peers::{End, reset};

fn ballast(frontend: &str, service: &str, endpoint: &Endpoint) -> Ballast {
    let frontend = format!(", timeouts: {{{frontend}}}");
    let service = format!(", retries: 0, timeouts: {{{service}}}");
    Ballast::serve(&table(&frontend, &service, &[endpoint]), 1)
}

/// Asserts that `milliseconds` have passed since then, and not many more.
fn assert_took(begun: Instant, milliseconds: u64, context: &str) {
    let took = begun.elapsed();
    // Timers may be early by the granularity of the clock that the worker reads once per wake-up.
    assert!(
        took + Duration::from_millis(20) >= Duration::from_millis(milliseconds),
        "{context}: {took:?}"
    );
    assert!(
        took < Duration::from_millis(milliseconds + 3_000),
        "{context}: {took:?}"
    );
}

#[test]
fn a_head_that_drips_is_answered_at_the_request_timeout() {
    let endpoint = Endpoint::saying("served");
    let ballast = ballast(
        "request: 700ms, client: 300ms, keep-alive: 5s",
        "",
        &endpoint,
    );
    // The first request of a connection, and a later one.
    for requests in [0, 1] {
        let mut client = Wire::to(ballast.address());
        for _ in 0..requests {
            assert_eq!(client.get("/").text(), "served");
            support::pause(Duration::from_millis(400));
        }
        let begun = Instant::now();
        let dripping = client.stream.try_clone().unwrap();
        thread::spawn(move || {
            let mut dripping = Wire::over(dripping);
            for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX: slow and slow and slow" {
                if std::io::Write::write_all(&mut dripping.stream, &[*byte]).is_err() {
                    return;
                }
                support::pause(Duration::from_millis(100));
            }
        });
        let response = client.response();
        assert_took(begun, 700, "a dripping head");
        assert_eq!(response.status, 408);
        assert!(response.closes());
        client.assert_ends(End::Clean, "after 408");
    }
    assert_eq!(endpoint.heard().len(), 1);
}

#[test]
fn a_connection_between_requests_ends_without_an_answer() {
    let endpoint = Endpoint::saying("served");
    let ballast = ballast("request: 5s, keep-alive: 400ms", "", &endpoint);
    let mut client = Wire::to(ballast.address());
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "served");
        support::pause(Duration::from_millis(200));
    }
    assert_eq!(client.get("/").text(), "served");
    let begun = Instant::now();
    client.assert_ends(End::Clean, "an idle connection");
    assert_took(begun, 400, "keep-alive");
    // Also after an answer of Ballast's own.
    let mut client = Wire::to(ballast.address());
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response();
    let begun = Instant::now();
    client.assert_ends(End::Clean, "an idle connection");
    assert_took(begun, 400, "keep-alive");
}

#[test]
fn a_connection_without_a_byte_ends_without_an_answer() {
    let endpoint = Endpoint::saying("served");
    let ballast = ballast("request: 400ms, keep-alive: 10s", "", &endpoint);
    let begun = Instant::now();
    let mut client = Wire::to(ballast.address());
    client.assert_ends(End::Clean, "a silent client");
    assert_took(begun, 400, "request");
}

#[test]
fn a_body_that_stalls_is_answered_with_408() {
    for (client_timeout, server_timeout) in [("400ms", "50s"), ("400ms", "100ms")] {
        let endpoint = Endpoint::saying("served");
        let ballast = ballast(
            &format!("client: {client_timeout}"),
            &format!("server: {server_timeout}"),
            &endpoint,
        );
        for head in [
            "Content-Length: 5\r\n\r\nhel",
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
        ] {
            let mut client = Wire::to(ballast.address());
            let begun = Instant::now();
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}"));
            let response = client.response();
            assert_eq!(response.status, 408, "{head}");
            assert_took(begun, 400, "a stalled body");
            assert!(response.closes());
            client.assert_ends(End::Clean, "after 408");
        }
        assert!(endpoint.heard().is_empty());
    }
}

#[test]
fn a_body_that_drips_is_waited_for() {
    let endpoint = Endpoint::saying("served");
    let ballast = ballast("client: 400ms, request: 200ms", "server: 400ms", &endpoint);
    let mut client = Wire::to(ballast.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n");
    for _ in 0..10 {
        support::pause(Duration::from_millis(100));
        client.send("x");
    }
    assert_eq!(client.response().text(), "served");
}

#[test]
fn an_endpoint_that_stalls_is_answered_for_with_504() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while let Some(request) = endpoint.hear(wire, connection) {
            match request.target() {
                "/half-head" => wire.send("HTTP/1.1 200 OK\r\nContent-"),
                "/interim" => wire.send("HTTP/1.1 100 Continue\r\n\r\n"),
                _ => {}
            }
        }
    });
    // The client's timeout does not count while nothing is expected of it.
    let ballast = ballast("client: 100ms", "server: 500ms", &endpoint);
    let mut client = Wire::to(ballast.address());
    for path in ["/", "/half-head"] {
        let begun = Instant::now();
        assert_eq!(client.get(path).status, 504, "{path}");
        assert_took(begun, 500, path);
    }
    client.send("GET /interim HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 100);
    assert_eq!(client.response().status, 504);
    // After a body the connection goes on as well, because the endpoint was sent all of it.
    assert_eq!(client.post("/", "hello").status, 504);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// It stalls while it is sent the request: the client is ready to send more.
#[test]
fn an_endpoint_that_reads_nothing_is_answered_for_with_504() {
    let endpoint = Endpoint::scripted(|wire, _, _| {
        wire.request_head();
        support::pause(Duration::from_secs(10));
    });
    let ballast = ballast("client: 300ms", "server: 600ms", &endpoint);
    let mut client = Wire::to(ballast.address());
    let mut sending = Wire::over(client.stream.try_clone().unwrap());
    let begun = Instant::now();
    thread::spawn(move || {
        let body = vec![b'x'; 30 << 20];
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        sending.send(head);
        // It is cut short.
        std::io::Write::write_all(&mut sending.stream, &body).ok();
    });
    assert_eq!(client.response().status, 504);
    assert_took(begun, 600, "an endpoint that reads nothing");
}

#[test]
fn a_response_that_stalls_is_cut_by_a_reset() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
            wire.rest();
        }
    });
    let ballast = ballast("", "server: 400ms", &endpoint);
    let mut client = Wire::to(ballast.address());
    let begun = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (heard, end) = client.rest();
    assert!(
        heard.ends_with(b"\r\n\r\nhello"),
        "{}",
        heard.escape_ascii()
    );
    assert_eq!(end, End::Reset);
    assert_took(begun, 400, "a stalled response");
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_response_that_is_cut_short_is_no_whole_one() {
    for body in [
        "Content-Length: 10\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
            if endpoint.hear(wire, connection).is_some() {
                wire.send(format!("HTTP/1.1 200 OK\r\n{body}"));
            }
        });
        let ballast = ballast("", "", &endpoint);
        let mut client = Wire::to(ballast.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let (heard, end) = client.rest();
        assert!(
            heard.starts_with(b"HTTP/1.1 200 OK\r\n"),
            "{}",
            heard.escape_ascii()
        );
        assert_eq!(end, End::Reset, "{body}");
    }
}

#[test]
fn a_client_that_leaves_frees_its_endpoint() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.rest();
        }
    });
    let ballast = ballast("", "", &endpoint);
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| endpoint.heard().len() == 1);
    assert_eq!(ballast.in_flight(), 1);
    reset(client.stream);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

/// As `nc -N` does.
#[test]
fn a_client_that_ends_its_direction_gets_its_answers() {
    let endpoint = Endpoint::answering(|request| {
        support::pause(Duration::from_millis(100));
        ok(request.target())
    });
    let ballast = ballast("", "", &endpoint);
    let mut client = Wire::to(ballast.address());
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.response().text(), "/1");
    assert_eq!(client.response().text(), "/2");
    client.assert_ends(End::Clean, "after the last answer");
}

#[test]
fn a_client_that_does_not_read_its_response_is_cut_at_the_clients_timeout() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            let body = vec![b'x'; 30 << 20];
            wire.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                body.len()
            ));
            // It is cut short.
            std::io::Write::write_all(&mut wire.stream, &body).ok();
        }
    });
    let ballast = ballast("client: 500ms", "", &endpoint);
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|ballast| ballast.in_flight() == 1);
    let begun = Instant::now();
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(client.rest().1, End::Reset);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_body_sends_no_whole_request() {
    for end in [Shutdown::Write, Shutdown::Both] {
        let endpoint = Endpoint::saying("served");
        let ballast = ballast("", "", &endpoint);
        let mut client = Wire::to(ballast.address());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
        ballast.until(|ballast| ballast.in_flight() == 1);
        client.stream.shutdown(end).unwrap();
        ballast.until(|ballast| ballast.in_flight() == 0);
        assert!(endpoint.heard().is_empty());
    }
}

#[test]
fn a_client_that_resets_is_not_waited_for_until_a_timeout() {
    for begins in [
        "",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n",
        "HTTP/1.1 200 OK\r\n\r\nbegun",
    ] {
        let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
            endpoint.hear(wire, connection);
            wire.send(begins);
            wire.rest();
        });
        let ballast = ballast("client: 5m", "server: 5m", &endpoint);
        let mut client = Wire::to(ballast.address());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        ballast.until(|_| endpoint.heard().len() == 1);
        if !begins.is_empty() {
            client.take(begins.len()).unwrap();
        }
        assert_eq!(ballast.in_flight(), 1, "{begins}");
        reset(client.stream);
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}
