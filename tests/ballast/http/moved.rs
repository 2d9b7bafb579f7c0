//! A frontend that moves to another bind: its connections belong to it by its name, so they go on, and nobody who was let into
//! the old socket's backlog is sent away.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};

use crate::http::wire::{Endpoint, Wire, ok, table};
use support::{Ballast, free_port};

/// A bind and where it is reached, before and after.
struct Move {
    binds: [String; 2],
    addresses: [SocketAddr; 2],
}

fn moves() -> [Move; 3] {
    let [any, one, other] = [(); 3].map(|()| free_port());
    let last = free_port();
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let of = |binds: [(&str, u16); 2]| Move {
        binds: binds.map(|(host, port)| format!("{host}:{port}")),
        addresses: binds.map(|(_, port)| local(port)),
    };
    [
        of([("*", any), ("127.0.0.1", any)]),
        of([("127.0.0.1", one), ("*", one)]),
        of([("127.0.0.1", other), ("127.0.0.1", last)]),
    ]
}

impl Move {
    fn tables(&self, frontend: &str, endpoint: &Endpoint) -> [String; 2] {
        let text = table(frontend, "", &[endpoint]);
        self.binds
            .each_ref()
            .map(|bind| text.replace("127.0.0.1:0", bind))
    }
}

/// Answers when it is told to, once for each time; `/at-once` at once.
fn halting() -> (Endpoint, mpsc::Sender<()>) {
    let (go, going) = mpsc::channel();
    let going = Arc::new(Mutex::new(going));
    let endpoint = Endpoint::answering(move |request| {
        if request.target() != "/at-once" {
            going.lock().expect("no panic").recv().ok();
        }
        ok("served")
    });
    (endpoint, go)
}

#[test]
fn a_kept_connection_of_a_frontend_that_moved_is_served() {
    for one in moves() {
        let endpoint = Endpoint::saying("served");
        let [before, after] = one.tables("", &endpoint);
        let ballast = Ballast::serve(&before, 1);
        let mut kept = Wire::to(one.addresses[0]);
        assert_eq!(kept.get("/").text(), "served");
        ballast.swap(&after);
        assert_eq!(Wire::to(one.addresses[1]).get("/").text(), "served");
        for _ in 0..2 {
            let response = kept.get("/");
            assert_eq!(response.status, 200, "{:?}: {}", one.binds, response.head);
            assert!(!response.closes(), "{:?}: {}", one.binds, response.head);
        }
    }
}

#[test]
fn a_connection_of_a_frontend_that_moved_is_served_though_it_asked_for_nothing_yet() {
    for one in moves() {
        let endpoint = Endpoint::saying("served");
        let [before, after] = one.tables("", &endpoint);
        let ballast = Ballast::serve(&before, 1);
        let mut silent = Wire::to(one.addresses[0]);
        let mut half = Wire::to(one.addresses[0]);
        half.send("GET / HTTP/1.1\r\n");
        let both = "haproxy_frontend_current_sessions{proxy=\"f\"} 2\n";
        ballast.until(|ballast| ballast.metrics().contains(both));
        ballast.swap(&after);
        assert_eq!(silent.get("/").text(), "served", "{:?}", one.binds);
        half.send("Host: a\r\n\r\n");
        assert_eq!(half.response().text(), "served", "{:?}", one.binds);
    }
}

#[test]
fn a_request_of_a_frontend_that_moved_is_answered_and_so_is_the_next_one() {
    for one in moves() {
        let (endpoint, go) = halting();
        let [before, after] = one.tables("", &endpoint);
        let ballast = Ballast::serve(&before, 1);
        let mut client = Wire::to(one.addresses[0]);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        ballast.until(|_| endpoint.heard().len() == 1);
        ballast.swap(&after);
        go.send(()).unwrap();
        assert_eq!(client.response().text(), "served", "{:?}", one.binds);
        let next = client.get("/at-once");
        assert_eq!(next.text(), "served", "{:?}: {}", one.binds, next.head);
    }
}

/// A client in the backlog believes that it is connected, and its request is on its way.
#[test]
fn clients_in_the_backlog_of_a_frontend_that_moved_are_served() {
    for one in moves() {
        let (endpoint, go) = halting();
        let [before, after] = one.tables(", max-connections: 1", &endpoint);
        let ballast = Ballast::serve(&before, 1);
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut inside = Wire::to(one.addresses[0]);
        inside.send(request);
        ballast.until(|_| endpoint.heard().len() == 1);
        let mut waiting: Vec<_> = (0..6).map(|_| Wire::to(one.addresses[0])).collect();
        for client in &mut waiting {
            client.send(request);
        }
        ballast.swap(&after);
        for _ in 0..=waiting.len() {
            go.send(()).unwrap();
        }
        assert_eq!(inside.response().text(), "served", "{:?}", one.binds);
        for client in &mut waiting {
            let response = client.try_response("GET");
            let status = response.as_ref().map(|response| response.status);
            assert_eq!(status.ok(), Some(200), "{:?}: {response:?}", one.binds);
        }
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}
