//! Idle connections to endpoints: who may use them, and what happens when the endpoint closes one as a request comes.

use std::net::{Ipv4Addr, Shutdown};
use std::sync::mpsc;
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, ok, response, table};
use support::Ballast;
use support::crowd::Client;

#[test]
fn requests_of_all_clients_share_connections() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    for _ in 0..5 {
        let mut client = Wire::to(ballast.address());
        for _ in 0..5 {
            assert_eq!(client.get("/").text(), "served");
        }
    }
    assert_eq!(endpoint.connections(), 1);
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn an_endpoint_that_closes_after_every_response_fails_no_get() {
    for pause in [Duration::ZERO, Duration::from_millis(1)] {
        let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
            if endpoint.hear(wire, connection).is_some() {
                wire.send(ok("served"));
                support::pause(pause);
            }
        });
        let ballast = Ballast::serve(&table("", ", retries: 0", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        for request in 0..200 {
            assert_eq!(client.get("/").text(), "served", "request {request}");
            // So that requests meet every moment of the close.
            support::pause(Duration::from_micros(request * 10));
        }
        assert_eq!(endpoint.heard().len(), 200);
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

/// Closes each connection when its second request has come, without a byte of an answer.
fn closing_in_the_second() -> Endpoint {
    Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send(ok("served"));
            endpoint.hear(wire, connection);
        }
    })
}

#[test]
fn a_request_on_a_connection_that_is_just_being_closed_is_repeated_if_it_may_be() {
    for (method, is_repeated) in [
        ("GET", true),
        ("HEAD", true),
        ("OPTIONS", true),
        ("DELETE", true),
        ("POST", false),
        ("PATCH", false),
        ("PURGE", false),
        ("get", false),
    ] {
        let endpoint = closing_in_the_second();
        let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
        let mut client = Wire::to(ballast.address());
        assert_eq!(client.get("/").text(), "served");
        let response = client.ask(method, "/");
        let status = if is_repeated { 200 } else { 502 };
        assert_eq!(response.status, status, "{method}");
        let times = endpoint
            .heard()
            .iter()
            .filter(|one| one.method() == method)
            .count();
        let before = usize::from(method == "GET");
        assert_eq!(times - before, if is_repeated { 2 } else { 1 }, "{method}");
        assert_eq!(client.get("/").text(), "served", "after {method}");
    }
}

/// A body that was sent is gone.
#[test]
fn a_request_with_a_body_is_never_repeated() {
    let endpoint = closing_in_the_second();
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "served");
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 502);
    assert_eq!(endpoint.heard().len(), 2);
}

#[test]
fn a_response_that_has_begun_is_never_asked_for_again() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        if endpoint.hear(wire, connection).is_some() {
            wire.send(ok("served"));
            endpoint.hear(wire, connection);
            wire.send("HTTP/1.1 2");
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "served");
    assert_eq!(client.get("/").status, 502);
    assert_eq!(endpoint.heard().len(), 2);
}

/// Nor one on a new connection: there is no race that explains its end.
#[test]
fn a_request_on_a_new_connection_is_not_repeated() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        endpoint.hear(wire, connection);
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").status, 502);
    assert_eq!(endpoint.heard().len(), 1);
}

#[test]
fn the_first_request_of_a_client_takes_an_idle_connection_only_where_reuse_says_so() {
    for (reuse, post_takes_idle, get_takes_idle) in [
        ("", false, true),
        (", http: {reuse: safe}", false, true),
        (", http: {reuse: always}", true, true),
        (", http: {reuse: never}", false, false),
    ] {
        let endpoint = Endpoint::saying("served");
        let ballast = Ballast::serve(&table("", reuse, &[&endpoint]), 1);
        let mut before = Wire::to(ballast.address());
        assert_eq!(before.get("/").text(), "served");
        assert_eq!(endpoint.connections(), 1);
        let mut client = Wire::to(ballast.address());
        assert_eq!(client.post("/", "x").text(), "served");
        assert_eq!(
            endpoint.last().connection == 0,
            post_takes_idle,
            "POST: {reuse}"
        );
        // Its second request may use any that it could have made.
        let made = endpoint.connections();
        assert_eq!(client.post("/", "x").text(), "served");
        assert_eq!(endpoint.connections(), made, "the second POST: {reuse}");
        let mut client = Wire::to(ballast.address());
        assert_eq!(client.get("/").text(), "served");
        assert_eq!(
            endpoint.connections() == made,
            get_takes_idle,
            "GET: {reuse}"
        );
    }
}

#[test]
fn connections_of_reuse_never_end_with_their_client() {
    let (told, ended) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let told = std::sync::Arc::new(told);
    let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
        while endpoint.hear(wire, connection).is_some() {
            wire.send(ok("served"));
        }
        told.lock().expect("no panic").send(connection).ok();
    });
    let ballast = Ballast::serve(&table("", ", http: {reuse: never}", &[&endpoint]), 1);
    let mut clients = [Wire::to(ballast.address()), Wire::to(ballast.address())];
    for _ in 0..3 {
        for (index, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.get("/").text(), "served");
            assert_eq!(endpoint.last().connection, index);
        }
    }
    let [first, second] = clients;
    drop(first);
    assert_eq!(ended.recv_timeout(Duration::from_secs(3)), Ok(0));
    second.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ended.recv_timeout(Duration::from_secs(3)), Ok(1));
}

/// The endpoint takes every request of such a connection for one of the client in the header.
#[test]
fn clients_behind_a_proxy_header_never_share_a_connection() {
    for (reuse, kept) in [
        ("", true),
        (", http: {reuse: always}", true),
        (", http: {reuse: never}", true),
    ] {
        let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
            let Ok(header) = wire.line() else { return };
            let source = header.split(' ').nth(2).unwrap_or_default().to_owned();
            while endpoint.hear(wire, connection).is_some() {
                wire.send(ok(&source));
            }
        });
        let service = format!(", send-proxy: v1{reuse}");
        let ballast = Ballast::serve(&table("", &service, &[&endpoint]), 1);
        let mut clients: Vec<_> = (1..=5)
            .map(|host| {
                let source = Ipv4Addr::new(127, 0, 1, host);
                let client = Client::from(source.octets(), ballast.address()).unwrap();
                (source.to_string(), Wire::over(client.stream))
            })
            .collect();
        for round in 0..4 {
            for (source, client) in &mut clients {
                assert_eq!(client.get("/").text(), *source, "round {round}");
                assert_eq!(client.post("/", "x").text(), *source, "round {round}");
            }
        }
        assert_eq!(endpoint.connections() == clients.len(), kept, "{reuse}");
    }
}

#[test]
fn a_connection_without_a_proxy_header_serves_no_request_where_a_new_table_wants_one() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        let Some(first) = wire.request_head() else {
            return;
        };
        wire.send(ok(first.line()));
        while endpoint.hear(wire, connection).is_some() {
            wire.send(ok("once more"));
        }
    });
    let table = |more: &str| {
        let service = format!(", http: {{reuse: never}}{more}");
        table("", &service, &[&endpoint])
    };
    let ballast = Ballast::serve(&table(""), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "GET / HTTP/1.1");
    assert_eq!(client.get("/").text(), "once more");
    ballast.swap(&table(", send-proxy: v1"));
    let first = client.get("/").text();
    assert!(first.starts_with("PROXY TCP4 127.0.0.1 "), "{first}");
    assert_eq!(client.get("/").text(), "once more");
    ballast.swap(&table(""));
    assert_eq!(client.get("/").text(), "GET / HTTP/1.1");
}

#[test]
fn a_raced_connection_with_a_proxy_header_is_replaced_with_its_header() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        let Ok(header) = wire.line() else { return };
        if endpoint.hear(wire, connection).is_some() {
            wire.send(ok(&header));
            endpoint.hear(wire, connection);
        }
    });
    let ballast = Ballast::serve(&table("", ", send-proxy: v1", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..3 {
        let header = client.get("/").text();
        assert!(
            header.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "),
            "{header}"
        );
    }
}

#[test]
fn requests_take_turns_at_endpoints_and_are_counted_one_by_one() {
    let endpoints = [Endpoint::saying("a"), Endpoint::saying("b")];
    let ballast = Ballast::serve(&table("", "", &[&endpoints[0], &endpoints[1]]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..10 {
        let mut both = [client.get("/").text(), client.get("/").text()];
        both.sort();
        assert_eq!(both, ["a", "b"]);
    }
    for endpoint in &endpoints {
        assert_eq!(endpoint.connections(), 1);
    }
}

/// An endpoint that answers before it has read the request, and goes on reading, has a usable connection in the end.
#[test]
fn a_connection_is_used_again_after_an_early_response_whose_request_was_read() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while let Some(request) = wire.request_head() {
            wire.send(response("200 OK", "", "early"));
            if wire.request_body(&request).is_none() {
                return;
            }
            endpoint.note(crate::http::wire::Request {
                connection,
                ..request
            });
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    for _ in 0..3 {
        assert_eq!(client.post("/", "hello").text(), "early");
        assert_eq!(client.get("/").text(), "early");
    }
    assert_eq!(endpoint.connections(), 1);
}

/// An interim response shows that the endpoint has begun to serve the request.
#[test]
fn a_request_with_an_interim_response_is_not_repeated() {
    let endpoint = Endpoint::scripted(|wire, endpoint, connection| {
        while let Some(request) = endpoint.hear(wire, connection) {
            if request.target() == "/begun" {
                return wire.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
            }
            wire.send(ok("served"));
        }
    });
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "served");
    assert_eq!(client.get("/begun").status, 103);
    assert_eq!(client.response().status, 502);
    let begun = endpoint.heard();
    let begun = begun.iter().filter(|request| request.target() == "/begun");
    assert_eq!(begun.count(), 1);
}
