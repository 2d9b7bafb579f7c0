//! A frontend that moves to another bind: its connections of HTTP/2 go on, for as long as their requests take.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::http2::site::{Gate, H2, on};
use crate::http2::strict;
use support::raw;
use support::raw::{Event, Raw, request};
use support::{Ballast, free_port};

fn moved(port: u16, fields: &str, endpoint: SocketAddr) -> [String; 2] {
    ["*", "127.0.0.1"].map(|host| {
        let bind = format!("{host}:{port}");
        on(&bind, "", &[("s", fields, &[endpoint])])
    })
}

#[test]
fn a_kept_connection_of_a_frontend_that_moved_is_served() {
    let endpoint = strict::Endpoint::answering(|_| strict::ok("served"));
    let port = free_port();
    let [before, after] = moved(port, "", endpoint.address);
    let ballast = Ballast::serve(&before, 1);
    let mut client = Raw::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    client.get(1, "/");
    assert_eq!(client.message(1).text(), "served");
    ballast.swap(&after);
    for stream in [3, 5, 7] {
        client.get(stream, "/");
        let response = client.message(stream);
        assert_eq!(response.text(), "served", "{response:?}");
    }
    // Nobody has told it to go.
    let away = |event: &Event| match event {
        Event::GoAway { .. } => Some(true),
        Event::Pong(_) => Some(false),
        _ => None,
    };
    client.send(&raw::frame(raw::PING, 0, 0, &[5; 8]));
    assert!(!client.seek(away));
}

#[test]
fn requests_of_a_frontend_that_moved_take_as_long_as_they_need() {
    for (version, fields) in [("h1", ""), ("h2", H2)] {
        let gate = Gate::default();
        let endpoint = halting(version, &gate);
        let port = free_port();
        let [before, after] = moved(port, fields, endpoint);
        let ballast = Ballast::serve(&before, 1);
        let mut client = Raw::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        client.get(1, "/slow");
        client.head(3, &request("POST", "/slow"), false);
        client.data(3, b"early ", false);
        ballast.until(|ballast| ballast.in_flight() == 2);
        ballast.swap(&after);
        // The scenario is the time that passes, while other clients are served.
        support::pause(Duration::from_millis(3_500));
        client.data(3, b"late", true);
        gate.open();
        for (stream, expected) in [(1, ""), (3, "early late")] {
            let response = client.message(stream);
            assert_eq!(response.status(), 200, "{version}: {response:?}");
            assert_eq!(response.text(), expected, "{version}");
        }
        client.get(5, "/next");
        assert_eq!(client.message(5).status(), 200, "{version}");
    }
}

/// Sends back each body, once the gate is open.
fn halting(version: &str, gate: &Gate) -> SocketAddr {
    let gate = gate.clone();
    if version == "h1" {
        let endpoint = strict::Endpoint::answering(move |request| {
            gate.pass();
            strict::ok(&request.body)
        });
        return endpoint.address;
    }
    let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let body = if heard.ends {
                Vec::new()
            } else {
                raw.message(heard.stream).body
            };
            gate.pass();
            raw.respond(heard.stream, 200, &body);
        }
    });
    endpoint.address
}
