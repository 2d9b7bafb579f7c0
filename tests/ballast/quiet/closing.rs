//! `ballast`: clients that wait at a socket when it is closed.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use support::Ballast;
use support::crowd::{Client, serve_as, servers};

/// A closing socket admits few clients above the limit of the process, however often it closes, and counts them.
#[test]
fn the_limit_of_the_process_holds_though_sockets_close_again_and_again() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let address = loopback(1);
    let table = |endpoints: &str| {
        format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"{address}\"], protocol: tcp, service: s}}]\nservices: [{{name: s, endpoints: [{endpoints}]}}]\n"
        )
    };
    let open = table(&format!("{{address: \"{server}\"}}"));
    let ballast = serve_as(&open, 2, |settings| settings.max_connections = Some(20));
    let shared = ballast.running.shared();
    let mut clients = Vec::new();
    for round in 1..=3 {
        for _ in 0..100 {
            clients.push(Client::from([127, 0, 0, 1], address).unwrap());
        }
        if round == 1 {
            ballast.until(|_| shared.connections() == 20);
        }
        ballast.swap(&table(""));
        assert_eq!(shared.connections(), 52, "round {round}");
        assert!(shared.admit.current() >= 52, "round {round}");
        let refused = format!(
            "ballast_connections_refused_total{{frontend=\"f\",reason=\"max-connections\"}} {}\n",
            100 * round - 52
        );
        assert!(ballast.metrics().contains(&refused), "{refused}");
        ballast.swap(&open);
    }
    drop(clients);
    ballast.until(|_| shared.connections() == 0);
    let mut next = Client::from([127, 0, 0, 1], address).unwrap();
    assert_eq!(next.ask().unwrap(), server);
}

/// Clients that wait for room at a frontend whose socket was closed.
#[test]
fn who_waits_at_a_closed_socket_is_judged_by_the_table_in_force() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let (old, new) = (loopback(2), loopback(3));
    let table = |bind: SocketAddr, fields: &str, endpoints: &str| {
        format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"{bind}\"], protocol: tcp, service: s, max-connections: 1{fields}}}]\nservices: [{{name: s, endpoints: [{endpoints}]}}]\n"
        )
    };
    let endpoint = format!("{{address: \"{server}\"}}");
    let ballast = Ballast::serve(&table(old, "", &endpoint), 1);
    let shared = ballast.running.shared();
    let mut first = Client::from([127, 0, 0, 1], old).unwrap();
    first.ask().unwrap();
    let come = |host| {
        let mut client = Client::from([127, 0, 0, host], old).unwrap();
        client.stream.write_all(b"?").unwrap();
        client
    };
    let (mut denied, left, mut stays, mut late) = (come(9), come(1), come(1), come(1));

    let only = ", source-ranges: [\"127.0.0.1/32\"]";
    ballast.swap(&table(new, only, &endpoint));
    assert!(denied.answer().is_err());
    assert!(stays.still_waits() && late.still_waits());
    // Each that waits counts in the process, and for its end.
    ballast.until(|_| shared.connections() == 4);
    drop(left);
    ballast.until(|_| shared.connections() == 3);
    drop(first);
    assert_eq!(stays.answer().unwrap(), server);
    assert!(late.still_waits());

    let began = Instant::now();
    ballast.swap(&table(new, "", ""));
    assert!(late.answer().is_err());
    assert!(began.elapsed() < Duration::from_secs(4), "refused at once");
    ballast.until(|_| shared.connections() == 1);
    let metrics = ballast.metrics();
    for reason in ["source-range", "no-endpoint"] {
        let counted =
            format!("ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} 1\n");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn who_waits_at_a_closed_socket_waits_for_a_few_seconds() {
    let _turn = crate::turn();
    let server = servers(1)[0];
    let table = |bind: SocketAddr| {
        format!(
            "version: 1\nfrontends: [{{name: f, bind: [\"{bind}\"], protocol: tcp, service: s, max-connections: 1}}]\nservices: [{{name: s, endpoints: [{{address: \"{server}\"}}]}}]\n"
        )
    };
    let (old, new) = (loopback(4), loopback(5));
    let ballast = Ballast::serve(&table(old), 1);
    let shared = ballast.running.shared();
    let mut first = Client::from([127, 0, 0, 1], old).unwrap();
    first.ask().unwrap();
    let mut waiting = Client::from([127, 0, 0, 1], old).unwrap();
    waiting.stream.write_all(b"?").unwrap();
    ballast.swap(&table(new));
    let began = Instant::now();
    assert!(waiting.answer().is_err());
    assert!(began.elapsed() > Duration::from_secs(3));
    ballast.until(|_| shared.connections() == 1);
    assert_eq!(first.ask().unwrap(), server);
}

/// An address that nobody uses, on a host of its own.
fn loopback(host: u8) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 33, 0, host), 0)).expect("a listener");
    listener.local_addr().expect("an address")
}
