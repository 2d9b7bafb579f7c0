//! Tables that change under open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::http::wire::{Endpoint, Wire, ok, response, routed, service_of, table};
use support::Ballast;
use support::peers::{End, is_for_figures};

/// Swaps under load: 3 s, unless the machine is busy.
const SWAPS: usize = 300;
const CLIENTS: u64 = 32;

#[test]
fn no_request_fails_while_tables_change() {
    let endpoints: Vec<_> = ["a", "b", "c", "d"]
        .into_iter()
        .map(Endpoint::saying)
        .collect();
    let text = |generation: usize| {
        // The service of the route changes, and so do the endpoints of both.
        let [one, other] = [generation % 4, (generation + 1) % 4].map(|at| endpoints[at].address);
        let service = ["even", "odd"][generation % 2];
        let table = routed(
            &format!(
                ", routes: [{{path: /x, service: {service}, rewrite: /y}}], default: {{service: {service}}}"
            ),
            &[
                &service_of("even", "", &[one, other]),
                &service_of("odd", "", &[other, one]),
            ],
        );
        format!("{table}generation: {generation}\n")
    };
    let ballast = Ballast::serve(&text(0), 2);
    let (over, served) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let (address, over, served) =
                (ballast.address(), Arc::clone(&over), Arc::clone(&served));
            thread::spawn(move || {
                // A balancer does not share its cores with its clients.
                rustix::process::nice(10).ok();
                let mut client = Wire::to(address);
                while !over.load(Ordering::Relaxed) {
                    let response = match index % 4 {
                        0 => client.post("/x/1", "hello"),
                        1 => client.get("/"),
                        _ => client.get("/x/2?q"),
                    };
                    assert_eq!(response.status, 200, "{}", response.head);
                    assert!(["a", "b", "c", "d"].contains(&response.text().as_str()));
                    assert!(!response.closes());
                    served.fetch_add(1, Ordering::Relaxed);
                    support::pause(Duration::from_millis(15));
                }
            })
        })
        .collect();
    let begun = Instant::now();
    for generation in 1..=SWAPS {
        ballast.swap(&text(generation));
        // 100 a second at most. On a busy machine there are fewer, because requests go before swaps.
        let due = Duration::from_millis(10 * generation as u64);
        support::pause(due.saturating_sub(begun.elapsed()));
    }
    let took = begun.elapsed();
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    println!(
        "{} requests, {SWAPS} swaps in {took:?}",
        served.load(Ordering::Relaxed)
    );
    // Each client sent requests while tables changed.
    assert!(served.load(Ordering::Relaxed) > 10 * CLIENTS);
    let per_second = SWAPS as f64 / took.as_secs_f64();
    assert!(!is_for_figures() || per_second > 99.0, "{per_second}");
    ballast.until(|ballast| ballast.in_flight() == 0);
    let status = &ballast.running.shared().status;
    ballast.until(|_| status.retired.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_table_that_closes_a_frontend_to_clients_closes_their_connections_to_it() {
    let endpoint = Endpoint::saying("a");
    let open = table("", "", &[&endpoint]);
    let ranges = |range| table(&format!(", source-ranges: [\"{range}\"]"), "", &[&endpoint]);
    let ballast = Ballast::serve(&open, 2);
    let served = || {
        let mut client = Wire::to(ballast.address());
        assert_eq!(client.get("/").text(), "a");
        client
    };
    let (mut idle, mut fresh) = (served(), Wire::to(ballast.address()));
    ballast.swap(&ranges("127.0.0.0/8"));
    assert_eq!(idle.get("/").text(), "a", "it is one of those");
    ballast.swap(&ranges("192.0.2.0/24"));
    idle.assert_ends(End::Clean, "it was let in before");
    fresh.assert_ends(End::Clean, "it had not asked yet");
    ballast.swap(&open);
    let mut idle = served();
    let relayed = open.replace(
        "protocol: http, default: {service: s}",
        "protocol: tcp, service: s",
    );
    ballast.swap(&relayed);
    idle.assert_ends(End::Clean, "there is no HTTP any more");
    ballast.swap(&open);
    let mut idle = served();
    ballast.swap("version: 1");
    idle.assert_ends(End::Clean, "the frontend is gone");
    assert!(endpoint.heard().len() >= 4);
}

#[test]
fn the_next_request_of_an_open_connection_is_served_by_the_new_table() {
    let (a, b) = (Endpoint::saying("a"), Endpoint::saying("b"));
    let text = |frontend: &str| {
        routed(
            frontend,
            &[
                &service_of("a", "", &[a.address]),
                &service_of("b", "", &[b.address]),
            ],
        )
    };
    let ballast = Ballast::serve(&text(", default: {service: a}"), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "a");
    ballast.swap(&text(", default: {service: b}"));
    assert_eq!(client.get("/").text(), "b");
    ballast.swap(&text(
        ", default: {service: b}, routes: [{path: /a, service: a}]",
    ));
    assert_eq!(client.get("/a").text(), "a");
    ballast.swap(&text(", default: {redirect: {scheme: https}}"));
    assert_eq!(client.get("/").status, 301);
    ballast.swap(&text(", http: {max-headers: 2}, default: {service: a}"));
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nZ: z\r\n\r\n");
    assert_eq!(client.response().status, 431);
    client.assert_ends(End::Clean, "after 431");
}

#[test]
fn a_connection_between_requests_keeps_no_table_alive() {
    let endpoint = Endpoint::saying("served");
    let text = |generation: u32| {
        let table = table("", "", &[&endpoint]);
        format!("{table}generation: {generation}\n")
    };
    let ballast = Ballast::serve(&text(1), 2);
    let mut clients: Vec<_> = (0..8).map(|_| Wire::to(ballast.address())).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "served");
    }
    for generation in 2..6 {
        ballast.swap(&text(generation));
    }
    let status = &ballast.running.shared().status;
    ballast.until(|_| status.retired.load(Ordering::Relaxed) == 0);
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "served");
    }
}

#[test]
fn a_frontend_that_leaves_the_table_ends_its_connections_with_their_next_request() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    assert_eq!(client.get("/").text(), "served");
    ballast.swap("version: 1\nfrontends: []\nservices: []\n");
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    std::io::Write::write_all(&mut client.stream, request).ok();
    // There is none if the table was in force before the connection began to wait for a request.
    if let Ok(response) = client.try_response("GET") {
        assert_eq!(response.status, 503);
        assert!(response.closes());
    }
}

/// An endpoint that sends the beginning of its response, and the end of it when it is told so. It tells when a connection ends.
fn halting() -> (Endpoint, mpsc::Sender<()>, mpsc::Receiver<usize>) {
    let (go, going) = mpsc::channel();
    let (told, ended) = mpsc::channel();
    let going = Arc::new(std::sync::Mutex::new(going));
    let told = Arc::new(std::sync::Mutex::new(told));
    let endpoint = Endpoint::scripted(move |wire, endpoint, connection| {
        while let Some(request) = endpoint.hear(wire, connection) {
            if request.target() == "/whole" {
                wire.send(ok("whole"));
                continue;
            }
            wire.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
            going.lock().expect("no panic").recv().ok();
            if std::io::Write::write_all(&mut wire.stream, b"later").is_err() {
                break;
            }
        }
        told.lock().expect("no panic").send(connection).ok();
    });
    (endpoint, go, ended)
}

#[test]
fn a_removed_endpoint_is_cut_where_the_table_says_so() {
    let (endpoint, go, ended) = halting();
    let other = Endpoint::saying("other");
    let service = ", on-removed: close";
    let ballast = Ballast::serve(&table("", service, &[&endpoint]), 1);
    // One connection in the middle of a response, and an idle one.
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| endpoint.heard().len() == 1);
    let mut idle = Wire::to(ballast.address());
    assert_eq!(idle.get("/whole").text(), "whole");
    // And one that waits for a response.
    ballast.swap(&table("", service, &[&other]));
    let (heard, end) = client.rest();
    assert!(heard.ends_with(b"first"), "{}", heard.escape_ascii());
    assert_eq!(end, End::Reset);
    assert_eq!(
        ended.recv_timeout(Duration::from_secs(3)),
        Ok(1),
        "the idle one"
    );
    go.send(()).unwrap();
    assert_eq!(ended.recv_timeout(Duration::from_secs(3)), Ok(0));
    assert_eq!(idle.get("/").text(), "other");
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_removed_endpoint_may_finish_and_gets_no_other_request() {
    let (endpoint, go, ended) = halting();
    let other = Endpoint::saying("other");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| endpoint.heard().len() == 1);
    ballast.swap(&table("", "", &[&other]));
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "firstlater");
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "other");
    }
    assert_eq!(endpoint.heard().len(), 1);
    // Its connection is of no use any more.
    assert_eq!(ended.recv_timeout(Duration::from_secs(8)), Ok(0));
}

/// Its words are those of the endpoint's table when the request came.
#[test]
fn a_request_in_flight_goes_on_as_it_began() {
    let endpoint = Endpoint::answering(|_| {
        support::pause(Duration::from_millis(300));
        response("302 Found", "Location: /there\r\n", "slow")
    });
    let text = |route: &str| {
        routed(
            &format!(", routes: [{{path: /svc, {route}}}]"),
            &[&service_of("s", "", &[endpoint.address])],
        )
    };
    let ballast = Ballast::serve(&text("service: s, rewrite: /"), 1);
    let mut client = Wire::to(ballast.address());
    client.send("GET /svc HTTP/1.1\r\nHost: a\r\n\r\n");
    ballast.until(|_| endpoint.heard().len() == 1);
    ballast.swap(&text("status: 410"));
    let response = client.response();
    assert_eq!(response.field("Location"), Some("/svc/there"));
    assert_eq!(client.get("/svc").status, 410);
}
