//! `ballast`: services that lead to frontends of the same table: chains are served, loops are refused at their first step.

use std::io::{Error, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use support::netns::{PLACE, Site};
use support::{Ballast, ask, free_port, named_server};

/// Frontends `(name, protocol, bind)`, each with a service of its name and these endpoints.
fn table(frontends: &[(&str, &str, String, &[SocketAddr])]) -> String {
    let mut table = String::from("version: 1\nfrontends:\n");
    for (name, protocol, bind, _) in frontends {
        table += &format!(
            "  - {{name: {name}, protocol: {protocol}, bind: ['{bind}'], service: {name}}}\n"
        );
    }
    table += "services:\n";
    for (name, _, _, endpoints) in frontends {
        let endpoints: Vec<String> = endpoints
            .iter()
            .map(|address| format!("{{address: '{address}'}}"))
            .collect();
        table += &format!(
            "  - {{name: {name}, endpoints: [{}]}}\n",
            endpoints.join(", ")
        );
    }
    table
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The sum of the lines of `/metrics` that begin so.
fn sum(ballast: &Ballast, begin: &str) -> u64 {
    let metrics = ballast.metrics();
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(begin));
    lines
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn refused(ballast: &Ballast, frontend: &str) -> u64 {
    let labels = format!("{{frontend=\"{frontend}\",reason=\"loop\"}}");
    sum(
        ballast,
        &format!("ballast_connections_refused_total{labels}"),
    )
}

fn accepted(ballast: &Ballast) -> u64 {
    sum(ballast, "ballast_worker_accepted_total")
}

/// A client of this address is reset without a byte: while it reads, or sooner.
fn is_turned_away(address: SocketAddr) {
    let ended = TcpStream::connect(address).and_then(|mut client| client.read(&mut [0; 16]));
    let is_reset = |error: &Error| error.kind() == ErrorKind::ConnectionReset;
    assert!(ended.as_ref().is_err_and(is_reset), "{ended:?}");
}

#[test]
fn one_client_of_a_loop_is_one_connection_and_is_reset() {
    let _turn = crate::turn();
    let port = free_port();
    let star = format!("*:{port}");
    let looping = table(&[("a", "tcp", star.clone(), &[local(port)])]);
    let ballast = Ballast::serve(&looping, 2);
    is_turned_away(local(port));
    assert_eq!((refused(&ballast, "a"), accepted(&ballast)), (1, 1));
    let plan = ballast.running.shared().live.plan();
    assert!(
        plan.services()[0].endpoints()[0]
            .live()
            .all_counters()
            .is_none()
    );

    // Another endpoint is used, and always that one.
    let server = named_server("server");
    ballast.swap(&table(&[("a", "tcp", star, &[local(port), server])]));
    for _ in 0..4 {
        assert_eq!(ask(local(port)).expect("an answer"), "server");
    }
    assert_eq!((refused(&ballast, "a"), accepted(&ballast)), (1, 5));

    ballast.swap(&looping);
    is_turned_away(local(port));
    assert_eq!((refused(&ballast, "a"), accepted(&ballast)), (2, 6));
}

#[test]
fn a_chain_is_served_until_a_table_makes_a_loop_of_it_and_again_after() {
    let _turn = crate::turn();
    let (first, second) = (free_port(), free_port());
    let server = named_server("server");
    let with = |last: SocketAddr| {
        let bind = |port| format!("127.0.0.1:{port}");
        table(&[
            ("a", "tcp", bind(first), &[local(second)]),
            ("b", "tcp", bind(second), &[last]),
        ])
    };
    let ballast = Ballast::serve(&with(server), 1);
    assert_eq!(ask(local(first)).expect("an answer"), "server");
    assert_eq!(accepted(&ballast), 2);

    ballast.swap(&with(local(first)));
    is_turned_away(local(first));
    is_turned_away(local(second));
    assert_eq!((refused(&ballast, "a"), refused(&ballast, "b")), (1, 1));
    assert_eq!(accepted(&ballast), 4);

    ballast.swap(&with(server));
    assert_eq!(ask(local(first)).expect("an answer"), "server");
    assert_eq!((refused(&ballast, "a"), refused(&ballast, "b")), (1, 1));
}

#[test]
fn one_datagram_into_a_loop_is_dropped_once() {
    let _turn = crate::turn();
    let port = free_port();
    let frontends = [("a", "udp", format!("127.0.0.1:{port}"), &[local(port)][..])];
    let ballast = Ballast::serve(&table(&frontends), 2);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let dropped = "ballast_udp_dropped_total{frontend=\"a\",reason=\"loop\"}";
    for count in 1..=3 {
        client.send_to(b"?", local(port)).expect("it is sent");
        ballast.until(|ballast| sum(ballast, dropped) >= count);
        assert_eq!(sum(&ballast, dropped), count);
    }
    assert_eq!(sum(&ballast, "ballast_udp_flows_created_total"), 0);
    assert_eq!(sum(&ballast, "ballast_udp_datagrams_total"), 0);
}

#[test]
fn an_address_that_the_host_gets_makes_a_loop_and_one_that_it_loses_ends_it() {
    let _turn = crate::turn();
    let Some(site) = Site::build(0) else {
        return;
    };
    // Nobody answers there before the host has it.
    let moving = SocketAddr::from(([10, 77, 0, 9], 7000));
    let down = SocketAddr::from(([10, 77, 0, 10], 7001));
    let own = SocketAddr::from((PLACE, 7002));
    site.place.ip("link add unused type veth peer name unused0");
    site.place.ip("address add 10.77.0.10/32 dev unused");
    let ballast = site.place.within(|| {
        Ballast::serve(
            &table(&[
                ("moving", "tcp", "*:7000".to_owned(), &[moving]),
                ("down", "tcp", "*:7001".to_owned(), &[down]),
                ("own", "tcp", "*:7002".to_owned(), &[own]),
            ]),
            1,
        )
    });
    let closing = |ballast: &Ballast| -> Vec<bool> {
        let plan = ballast.running.shared().live.plan();
        let endpoints = plan.services().iter().flat_map(|one| one.endpoints());
        endpoints.map(|endpoint| endpoint.closes_loop()).collect()
    };
    // An address of an interface that is down counts as foreign: kube-proxy keeps the addresses of Services on such a one.
    assert_eq!(closing(&ballast), [false, false, true]);
    site.place.ip("address add 10.77.0.9/32 dev switch");
    ballast.until(|ballast| closing(ballast) == [true, false, true]);
    site.place.within(|| is_turned_away(moving));
    site.place.ip("address del 10.77.0.9/32 dev switch");
    ballast.until(|ballast| closing(ballast) == [false, false, true]);
}
