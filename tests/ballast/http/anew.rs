//! Requests that wait for a service which a new table removes: they go where their routes lead then.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::http::wire::{Endpoint, Wire, ok, routed, service_of};
use support::Ballast;

/// Answers with the target and the body; `/slow` when it is told to.
fn endpoint() -> (Endpoint, mpsc::Sender<()>) {
    let (go, going) = mpsc::channel();
    let going = Arc::new(Mutex::new(going));
    let endpoint = Endpoint::answering(move |request| {
        if request.target() == "/slow" {
            going.lock().expect("no panic").recv().ok();
        }
        let body = String::from_utf8_lossy(&request.body);
        ok(&format!("{} {body}", request.target()))
    });
    (endpoint, go)
}

/// A service with room for one request.
fn narrow(name: &str, queue: &str, endpoint: &Endpoint) -> String {
    let address = endpoint.address;
    format!(
        "{{name: {name}, timeouts: {{queue: {queue}}}, endpoints: [{{address: \"{address}\", max-connections: 1}}]}}"
    )
}

/// How many clients wait for the first service.
fn waiting(ballast: &Ballast) -> usize {
    ballast.running.shared().live.plan().services()[0]
        .state()
        .queue()
        .len()
}

/// A client whose request is served by the service `s`, and another one whose request waits for it.
struct Waiting {
    ballast: Ballast,
    first: Wire,
    go: mpsc::Sender<()>,
    second: Wire,
}

fn wait_with(request: &str) -> Waiting {
    let (endpoint, go) = endpoint();
    let text = routed(", default: {service: s}", &[&narrow("s", "60s", &endpoint)]);
    let ballast = Ballast::serve(&text, 1);
    let mut first = Wire::to(ballast.address());
    first.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| endpoint.heard().len() == 1);
    let mut second = Wire::to(ballast.address());
    second.send(request);
    ballast.until(|ballast| waiting(ballast) == 1);
    Waiting {
        ballast,
        first,
        go,
        second,
    }
}

#[test]
fn a_request_whose_service_goes_is_served_where_its_route_leads_then() {
    let next = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    for (what, head, rest) in [
        ("no body", "GET /some HTTP/1.1\r\nHost: a\r\n\r\n", ""),
        (
            "a body that is here",
            "POST /some HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "",
        ),
        (
            "a body that is still to come",
            "POST /some HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
            "hello",
        ),
        (
            "chunks, of which some are here",
            "POST /some HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nl",
            "o\r\n0\r\n\r\n",
        ),
    ] {
        let pipelined = if rest.is_empty() { next } else { "" };
        let mut scene = wait_with(&[head, pipelined].concat());
        let (other, _go) = endpoint();
        scene.ballast.swap(&routed(
            ", routes: [{path: /some, service: t, rewrite: /there}], default: {service: t}",
            &[&service_of("t", "", &[other.address])],
        ));
        scene.second.send(rest);
        let body = if what == "no body" { "" } else { "hello" };
        let response = scene.second.response();
        assert_eq!(response.text(), format!("/there {body}"), "{what}");
        if pipelined.is_empty() {
            scene.second.send(next);
        }
        assert_eq!(scene.second.response().text(), "/next ", "{what}");
        assert_eq!(other.heard().len(), 2, "{what}");
        scene.go.send(()).unwrap();
        assert_eq!(scene.first.response().text(), "/slow ", "{what}");
        let counted = "haproxy_frontend_http_requests_total{proxy=\"f\"} 3\n";
        let metrics = scene.ballast.metrics();
        assert!(metrics.contains(counted), "{what}: {metrics}");
        scene.ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn a_request_whose_service_goes_is_answered_as_a_new_one_is() {
    let (other, _go) = endpoint();
    let open = service_of("t", "", &[other.address]);
    let none = service_of("t", "", &[]);
    for (what, table, status) in [
        (
            "no route",
            routed(", routes: [{path: /x, service: t}]", &[&open]),
            404,
        ),
        (
            "a redirect",
            routed(", routes: [{path: /some, redirect: {path: /y}}]", &[]),
            301,
        ),
        (
            "no endpoint",
            routed(", default: {service: t}", &[&none]),
            503,
        ),
        (
            "a head over the limits",
            routed(
                ", http: {max-header-bytes: 4KiB}, default: {service: t}",
                &[&open],
            ),
            431,
        ),
        (
            "closed to the client",
            routed(
                ", source-ranges: [\"192.0.2.0/24\"], default: {service: t}",
                &[&open],
            ),
            503,
        ),
        ("no frontend", "version: 1".into(), 503),
    ] {
        let long = if status == 431 { 5_000 } else { 5 };
        let long = "x".repeat(long);
        let mut scene = wait_with(&format!(
            "GET /some HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"
        ));
        scene.ballast.swap(&table);
        let response = scene.second.response();
        assert_eq!(response.status, status, "{what}");
        if [404, 301].contains(&status) {
            // Its connection goes on.
            assert_eq!(scene.second.get("/some").status, status, "{what}");
        }
        scene.go.send(()).unwrap();
        assert_eq!(scene.first.response().text(), "/slow ", "{what}");
    }
    assert!(other.heard().is_empty());
}

#[test]
fn the_time_in_the_queue_counts_from_the_first_service_that_a_request_waited_for() {
    let ((s, _go_s), (t, _go_t)) = (endpoint(), endpoint());
    let both = [narrow("s", "3s", &s), narrow("t", "3s", &t)];
    let text = routed(
        ", routes: [{path: /slow, service: t}], default: {service: s}",
        &both.each_ref().map(String::as_str),
    );
    let ballast = Ballast::serve(&text, 1);
    let mut clients = [(); 3].map(|()| Wire::to(ballast.address()));
    clients[0].send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| t.heard().len() == 1);
    clients[1].send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    ballast.until(|ballast| ballast.in_flight() == 2);
    let begun = Instant::now();
    clients[2].send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|ballast| waiting(ballast) == 1);
    support::pause(Duration::from_secs(2));
    ballast.swap(&routed(", default: {service: t}", &[&both[1]]));
    ballast.until(|ballast| waiting(ballast) == 1);
    assert_eq!(clients[2].response().status, 503);
    let waited = begun.elapsed();
    // Three seconds more, if the second wait were one of its own.
    let times = Duration::from_millis(2_950)..Duration::from_millis(4_800);
    assert!(times.contains(&waited), "{waited:?}");
    let line = "ballast_connections_refused_total{frontend=\"f\",reason=\"queue-timeout\"} 1\n";
    ballast.until(|ballast| ballast.metrics().contains(line));
}
