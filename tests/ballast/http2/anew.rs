//! Requests that wait for a service which a new table removes: they go where their routes lead then.

use std::net::SocketAddr;

use crate::http2::site::{Gate, H2};
use crate::http2::strict::{self, Http1};
use support::Ballast;
use support::raw::{self, Raw, request};

/// Sends back each body; with a gate, once that is open.
fn endpoint(version: &str, gate: Option<&Gate>) -> SocketAddr {
    let gate = gate.cloned();
    if version == "h1" {
        let endpoint = strict::Endpoint::answering(move |request| {
            if let Some(gate) = &gate {
                gate.pass();
            }
            strict::ok(&request.body)
        });
        return endpoint.address;
    }
    let endpoint = raw::Endpoint::scripted(&[], |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            let body = if heard.ends {
                Vec::new()
            } else {
                raw.message(heard.stream).body
            };
            raw.respond(heard.stream, 200, &body);
        }
    });
    endpoint.address
}

fn table(frontend: &str, services: &str) -> String {
    format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: http{frontend}}}]\nservices: [{services}]\n"
    )
}

/// A client whose first request is served, and whose others wait for the same service, with half a body, and so does a client of HTTP/1.
fn waiting(gate: &Gate) -> (Ballast, Raw, Http1) {
    let slow = endpoint("h1", Some(gate));
    let ballast = Ballast::serve(
        &table(
            ", default: {service: s}",
            &format!(
                "{{name: s, timeouts: {{queue: 60s}}, endpoints: [{{address: \"{slow}\", max-connections: 1}}]}}"
            ),
        ),
        1,
    );
    let queued = |most: usize| {
        ballast.until(|ballast| {
            let plan = ballast.running.shared().live.plan();
            plan.services()[0].state().queue().len() == most
        });
    };
    let mut client = Raw::to(ballast.address());
    client.get(1, "/slow");
    ballast.until(|ballast| ballast.in_flight() == 1);
    client.head(3, &request("POST", "/some"), false);
    client.data(3, b"early ", false);
    client.get(5, "/some");
    queued(2);
    let mut other = Http1::to(ballast.address());
    other.send("POST /some HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 10\r\n\r\nearly ");
    queued(3);
    (ballast, client, other)
}

#[test]
fn requests_whose_service_goes_are_served_where_their_routes_lead_then() {
    for (version, fields) in [("h1", ""), ("h2", H2)] {
        let gate = Gate::default();
        let (ballast, mut client, mut other) = waiting(&gate);
        let there = endpoint(version, None);
        ballast.swap(&table(
            ", default: {service: t}",
            &format!("{{name: t{fields}, endpoints: [{{address: \"{there}\"}}]}}"),
        ));
        client.data(3, b"late", true);
        let response = client.message(3);
        assert_eq!(response.status(), 200, "{version}: {response:?}");
        assert_eq!(response.text(), "early late", "{version}");
        let response = client.message(5);
        assert_eq!(response.status(), 200, "{version}: {response:?}");
        other.send("late");
        let response = other.response("POST").unwrap();
        assert_eq!(response.text(), "early late", "{version}");
        gate.open();
        assert_eq!(client.message(1).status(), 200, "{version}");
        client.get(7, "/next");
        assert_eq!(client.message(7).status(), 200, "{version}");
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn requests_whose_service_goes_are_answered_as_new_ones_are() {
    for (text, status) in [
        (table(", routes: [{path: /some, status: 410}]", ""), 410),
        (table("", ""), 404),
        ("version: 1".to_owned(), 503),
    ] {
        let gate = Gate::default();
        let (ballast, mut client, mut other) = waiting(&gate);
        ballast.swap(&text);
        for stream in [3, 5] {
            assert_eq!(client.message(stream).status(), status);
        }
        assert_eq!(other.response("POST").unwrap().status(), status);
        gate.open();
        assert_eq!(client.message(1).status(), 200);
    }
}
