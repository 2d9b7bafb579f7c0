//! Requests that wait for a service which a new table removes or changes: they go where their routes lead then, as that table has it.

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
    let endpoint = raw::Endpoint::scripted(&[], move |raw, endpoint, connection| {
        while let Some(heard) = endpoint.hear(raw, connection) {
            if let Some(gate) = &gate {
                gate.pass();
            }
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

/// The service `s` with room for one request.
fn narrow(fields: &str, address: SocketAddr) -> String {
    format!(
        "{{name: s, timeouts: {{queue: 60s}}{fields}, endpoints: [{{address: \"{address}\", max-connections: 1}}]}}"
    )
}

/// A client whose first request is served, and whose others wait for the same service, with half a body, and so does a client of HTTP/1.
fn waiting(gate: &Gate) -> (Ballast, Raw, Http1) {
    let slow = endpoint("h1", Some(gate));
    wait_for(&narrow("", slow))
}

/// The same with this service.
fn wait_for(service: &str) -> (Ballast, Raw, Http1) {
    let ballast = Ballast::serve(&table(", default: {service: s}", service), 1);
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
    other.send(HALF);
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

/// What the endpoints of a service are to get of it: the PROXY header before the first request of a connection, and this field.
fn expecting(has_header: bool, field: Option<&'static str>) -> SocketAddr {
    let endpoint = strict::Endpoint::scripted(move |wire, endpoint, _| {
        if has_header
            && !wire
                .line()
                .is_ok_and(|line| line.starts_with("PROXY TCP4 "))
        {
            return;
        }
        while let Some(request) = endpoint.hear(wire) {
            if request.field("X-Set") == field {
                wire.send(strict::ok(&request.body));
            } else {
                wire.send(strict::ok("another head"));
            }
        }
    });
    endpoint.address
}

#[test]
fn requests_whose_service_changes_are_served_as_the_table_has_it_then() {
    const SET: &str = ", http: {request-headers: {set: {X-Set: \"1\"}}}";
    let plain = || expecting(false, None);
    for (what, before, after, there) in [
        ("to HTTP/2", "", H2, endpoint("h2", None)),
        ("to HTTP/1", H2, "", plain()),
        (
            "PROXY header",
            "",
            ", send-proxy: v1",
            expecting(true, None),
        ),
        ("no PROXY header", ", send-proxy: v1", "", plain()),
        ("a field", "", SET, expecting(false, Some("1"))),
        ("no field", SET, "", plain()),
        ("a cookie", "", ", affinity: {cookie: S}", plain()),
        ("nothing", "", "", plain()),
    ] {
        let gate = Gate::default();
        let slow = match before {
            H2 => endpoint("h2", Some(&gate)),
            ", send-proxy: v1" => behind_header(&gate),
            _ => endpoint("h1", Some(&gate)),
        };
        let (ballast, mut client, mut other) = wait_for(&narrow(before, slow));
        let there = narrow(after, there).replace(", max-connections: 1", "");
        ballast.swap(&table(", default: {service: s}", &there));
        client.data(3, b"late", true);
        other.send("late");
        let response = client.message(3);
        assert_eq!(response.status(), 200, "{what}: {response:?}");
        assert_eq!(response.text(), "early late", "{what}");
        let response = client.message(5);
        assert_eq!(response.status(), 200, "{what}: {response:?}");
        assert_eq!(response.text(), "", "{what}");
        let response = other.response("POST").unwrap();
        assert_eq!(response.text(), "early late", "{what}: {response:?}");
        assert_eq!(
            response.field("Set-Cookie").is_some(),
            after.contains("cookie"),
            "{what}"
        );
        gate.open();
        assert_eq!(client.message(1).status(), 200, "{what}");
        // Each has come once.
        let line = "haproxy_backend_sessions_total{proxy=\"s\"} 4\n";
        ballast.until(|ballast| ballast.metrics().contains(line));
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

/// Reads the PROXY header, and answers once the gate is open.
fn behind_header(gate: &Gate) -> SocketAddr {
    let gate = gate.clone();
    let endpoint = strict::Endpoint::scripted(move |wire, endpoint, _| {
        wire.line().ok();
        while let Some(request) = endpoint.hear(wire) {
            gate.pass();
            wire.send(strict::ok(&request.body));
        }
    });
    endpoint.address
}

/// Asserts what is counted of a request of so many bytes that `s` is serving, and of one of `sent` bytes that has gone to `t` instead.
fn assert_counted(ballast: &Ballast, what: &str, slow: usize, sent: usize) {
    for (series, labels, number) in [
        ("haproxy_frontend_http_requests_total", "proxy=\"f\"", 2),
        (
            "haproxy_frontend_bytes_in_total",
            "proxy=\"f\"",
            slow + sent,
        ),
        ("haproxy_backend_bytes_in_total", "proxy=\"t\"", sent),
        ("haproxy_backend_bytes_in_total", "proxy=\"s\"", slow),
        ("haproxy_backend_sessions_total", "proxy=\"t\"", 1),
        ("haproxy_backend_connection_errors_total", "proxy=\"s\"", 0),
        (
            "ballast_route_requests_total",
            "frontend=\"f\",route=\"one\"",
            0,
        ),
        (
            "ballast_route_requests_total",
            "frontend=\"f\",route=\"two\"",
            1,
        ),
        (
            "ballast_backend_choices_total",
            "frontend=\"f\",route=\"one\",service=\"t\"",
            0,
        ),
        (
            "ballast_backend_choices_total",
            "frontend=\"f\",route=\"two\",service=\"t\"",
            1,
        ),
    ] {
        let line = format!("\n{series}{{{labels}}} {number}\n");
        support::until(format!("{what}: {line}"), || {
            ballast.metrics().contains(&line)
        });
    }
}

#[test]
fn a_request_that_is_routed_anew_counts_once() {
    for (from, to) in [("h1", "h1"), ("h1", "h2"), ("h2", "h1"), ("h2", "h2")] {
        let what = format!("{from} to {to}");
        let fields = |version| if version == "h2" { H2 } else { "" };
        let gate = Gate::default();
        let s = narrow(fields(from), endpoint(from, Some(&gate)));
        let t = format!(
            "{{name: t{}, endpoints: [{{address: \"{}\"}}]}}",
            fields(to),
            endpoint(to, None)
        );
        let ballast = Ballast::serve(
            &table(
                ", routes: [{name: one, path: /some, backends: [{service: s}]}], default: {service: s}",
                &s,
            ),
            1,
        );
        let mut first = Http1::to(ballast.address());
        let slow = "GET /slow HTTP/1.1\r\nHost: shop.example\r\n\r\n";
        first.send(slow);
        ballast.until(|ballast| ballast.in_flight() == 1);
        let mut second = Http1::to(ballast.address());
        second.send(HALF);
        ballast.until(|ballast| {
            let plan = ballast.running.shared().live.plan();
            plan.services()[0].state().queue().len() == 1
        });
        // The route goes on, and is not the request's any more.
        let routes = ", routes: [{name: one, path: /other, backends: [{service: t}]}, {name: two, path: /some, backends: [{service: t}]}], default: {service: t}";
        ballast.swap(&table(routes, &t));
        second.send("late");
        assert_eq!(
            second.response("POST").unwrap().text(),
            "early late",
            "{what}"
        );
        // The service comes back while its first request is served: what it has counted is seen again.
        ballast.swap(&table(routes, &format!("{t}, {s}")));
        assert_counted(&ballast, &what, slow.len(), HALF.len() + "late".len());
        gate.open();
        assert_eq!(first.response("GET").unwrap().status(), 200, "{what}");
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

/// A request of HTTP/1 with a body of ten bytes, of which six are sent.
const HALF: &str = "POST /some HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 10\r\n\r\nearly ";
