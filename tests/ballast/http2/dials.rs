//! What becomes of connections to endpoints that are being made when their requests go.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::limits::{late_endpoint, leave_early};
use super::site::{Gate, sessions, table};
use support::Ballast;
use support::crowd::serve_as;
use support::papers::Papers;
use support::peers::{ShutDoor, dials_towards};
use support::raw::{CANCEL, Raw};

const PATIENT: &str = ", timeouts: {connect: 60s}";

#[test]
fn a_dial_that_no_other_client_may_use_ends_with_its_request() {
    for service in [
        ", http: {reuse: never}",
        ", http: {version: h2, reuse: never}",
        ", http: {version: h2}, send-proxy: v2",
        ", send-proxy: v2",
    ] {
        for by_http2 in [true, false] {
            let door = ShutDoor::new();
            let fields = format!("{PATIENT}{service}");
            let services: [(_, _, &[_]); 1] = [("s", fields.as_str(), &[door.address()])];
            let ballast = Ballast::serve(&table("", &services), 1);
            for _ in 0..5 {
                leave_early(ballast.address(), by_http2, || {
                    ballast.until(|ballast| ballast.in_flight() > 0);
                });
            }
            ballast.until(|ballast| sessions(ballast) == 0);
            let dials = || dials_towards(door.address());
            support::until(format!("no dial{service}, {by_http2}"), || dials() == 0);
        }
    }
}

#[test]
fn a_dial_goes_on_while_another_request_of_its_client_waits_for_it() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let gate = Gate::default();
    let (endpoint, counts) = late_endpoint(&papers, "h2", &gate);
    let fields = format!("{PATIENT}, tls: {{insecure: true}}, http: {{version: h2, reuse: never}}");
    let ballast = Ballast::serve(&table("", &[("s", fields.as_str(), &[endpoint])]), 1);
    let mut client = Raw::to(ballast.address());
    client.get(1, "/");
    ballast.until(|_| counts[0].load(Ordering::SeqCst) == 1);
    client.get(3, "/");
    ballast.until(|ballast| ballast.in_flight() == 2);
    client.reset(1, CANCEL);
    ballast.until(|ballast| ballast.in_flight() == 1);
    assert!(client.ping([3; 8]));
    gate.open();
    assert_eq!(client.message(3).text(), "served");
    assert_eq!(counts[0].load(Ordering::SeqCst), 1, "the same connection");
}

/// Each service has an endpoint of its own, whose dials serve no other service.
#[test]
fn dials_that_others_may_use_are_left_behind_as_far_as_the_process_has_room() {
    for version in ["", ", http: {version: h2}"] {
        let doors: Vec<_> = (0..4).map(|_| ShutDoor::new()).collect();
        let addresses: Vec<[SocketAddr; 1]> = doors.iter().map(|door| [door.address()]).collect();
        let fields = format!("{PATIENT}{version}");
        let services: Vec<(_, _, &[_])> = ["a", "b", "c", "d"]
            .into_iter()
            .zip(&addresses)
            .map(|(name, address)| (name, fields.as_str(), &address[..]))
            .collect();
        let text = table("", &services);
        let ballast = serve_as(&text, 1, |config| config.max_connections = Some(MOST));
        for (name, ..) in &services {
            let mut client = Raw::to(ballast.address());
            for stream in 0..STREAMS {
                client.get(1 + 2 * stream, &format!("/{name}"));
            }
            let all = || ballast.in_flight() == STREAMS;
            // Where those that are left behind have taken the room, they wait.
            support::comes_within(Duration::from_secs(2), all);
            drop(client);
            ballast.until(|ballast| sessions(ballast) == 0);
        }
        let doors = doors.iter();
        let left: usize = doors.map(|door| dials_towards(door.address())).sum();
        let least = if version.is_empty() { 20 } else { 4 };
        assert!(left >= least, "{left} are left: the next requests use them");
        assert!(left <= MOST as usize, "{left} are left{version}");
    }
}

const MOST: u32 = 60;
const STREAMS: u32 = 40;
