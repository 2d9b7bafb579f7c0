//! Several services behind one udp frontend.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

use ballast_core::flow::FlowEnd;

use crate::udp::{client, ended, hear, named, say, send_until_refused};
use support::Ballast;

/// A table of one frontend with these backends, and services `a` and `b` with these endpoints.
fn table(bind: &str, backends: &str, endpoints: [&[SocketAddr]; 2]) -> String {
    let services = ["a", "b"].into_iter().zip(endpoints);
    let services = services.map(|(name, endpoints)| {
        let endpoints = endpoints.iter();
        let endpoints = endpoints.map(|address| format!("{{address: \"{address}\"}}"));
        let endpoints = endpoints.collect::<Vec<_>>().join(", ");
        format!("{{name: {name}, endpoints: [{endpoints}]}}")
    });
    let services = services.collect::<Vec<_>>().join(", ");
    format!(
        "{{version: 1, frontends: [{{name: f, bind: [\"{bind}\"], protocol: udp, {backends}}}], services: [{services}]}}"
    )
}

fn count(answers: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    answers.for_each(|answer| *counts.entry(answer).or_insert(0) += 1);
    counts
}

#[test]
fn flows_are_shared_out_by_weight_and_stay() {
    let (a, b) = (named("a"), named("b"));
    let bind = format!("127.0.0.1:{}", support::free_port());
    let (of_a, of_b) = ([a], [b]);
    let with = |weights: [u32; 2]| {
        let [a, b] = weights;
        let backends =
            format!("backends: [{{service: a, weight: {a}}}, {{service: b, weight: {b}}}]");
        table(&bind, &backends, [&of_a, &of_b])
    };
    let ballast = Ballast::serve(&with([3, 1]), 1);
    let clients: Vec<UdpSocket> = (0..100).map(|_| client(ballast.address())).collect();
    let first: Vec<String> = clients.iter().map(|client| say(client, "?")).collect();
    let shares = count(first.iter().cloned());
    assert_eq!((shares["a"], shares["b"]), (75, 25));
    // Flows stay, also with a service that gets nobody new.
    ballast.swap(&with([0, 1]));
    for (client, first) in clients.iter().zip(&first) {
        assert_eq!(&say(client, "?"), first);
    }
    assert_eq!(say(&client(ballast.address()), "?"), "b");
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 0);
    // A service that is not the frontend's any more loses its flows.
    ballast.swap(&table(&bind, "service: b", [&of_a, &of_b]));
    assert!(clients.iter().all(|client| say(client, "?") == "b"));
    assert_eq!(ended(&ballast, FlowEnd::Endpoint), 75);
}

#[test]
fn each_datagram_is_shared_out_where_there_are_no_flows() {
    let (a, b) = (named("a"), named("b"));
    let backends =
        "udp: {per-datagram: true}, backends: [{service: a, weight: 60}, {service: b, weight: 40}]";
    let ballast = Ballast::serve(&table("127.0.0.1:0", backends, [&[a], &[b]]), 1);
    let client = client(ballast.address());
    let shares = count((0..100).map(|_| say(&client, "?")));
    assert_eq!((shares["a"], shares["b"]), (60, 40));
}

#[test]
fn a_client_goes_to_another_service_when_the_only_endpoint_of_its_own_refuses() {
    let dead = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (dead_address, well) = (dead.local_addr().expect("an address"), named("well"));
    drop(dead);
    // All but a few flows begin at the one that refuses.
    let backends = "backends: [{service: a, weight: 99}, {service: b, weight: 1}]";
    let table = table("127.0.0.1:0", backends, [&[dead_address], &[well]]);
    let ballast = Ballast::serve(&table, 1);
    let client = client(ballast.address());
    send_until_refused(&ballast, &client);
    assert_eq!(hear(&client), b"well");
}
