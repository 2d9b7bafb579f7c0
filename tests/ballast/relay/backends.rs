//! Several services behind one tcp frontend.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use support::{Ballast, ask, free_port, named_server};

/// A table of one frontend on this port, whose services have these endpoints.
fn table(port: u16, weights: [u32; 2], service: &str, endpoints: [&[SocketAddr]; 2]) -> String {
    let services = ["a", "b"].into_iter().zip(endpoints);
    let services = services.map(|(name, endpoints)| {
        let endpoints = endpoints.iter();
        let endpoints = endpoints.map(|address| format!("{{address: \"{address}\"}}"));
        let endpoints = endpoints.collect::<Vec<_>>().join(", ");
        format!("{{name: {name}{service}, endpoints: [{endpoints}]}}")
    });
    let services = services.collect::<Vec<_>>().join(", ");
    let [a, b] = weights;
    format!(
        "{{version: 1, frontends: [{{name: f, bind: [\"127.0.0.1:{port}\"], protocol: tcp, backends: [{{service: a, weight: {a}}}, {{service: b, weight: {b}}}]}}], services: [{services}]}}"
    )
}

fn heard(address: SocketAddr, times: usize) -> BTreeMap<String, usize> {
    let mut heard = BTreeMap::new();
    for _ in 0..times {
        let answer = ask(address).expect("an answer");
        *heard.entry(answer).or_insert(0) += 1;
    }
    heard
}

#[test]
fn connections_are_shared_out_by_weight() {
    let (a, b) = (named_server("a"), named_server("b"));
    let port = free_port();
    let ballast = Ballast::serve(&table(port, [70, 30], "", [&[a], &[b]]), 2);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let shares = heard(address, 100);
    assert_eq!((shares["a"], shares["b"]), (70, 30));
    let metrics = ballast.metrics();
    for (service, count) in [("a", 70), ("b", 30)] {
        let line = format!(
            "ballast_backend_choices_total{{frontend=\"f\",route=\"\",service=\"{service}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line}");
    }
    // One service without an endpoint, then none with one.
    ballast.swap(&table(port, [70, 30], "", [&[], &[b]]));
    assert_eq!(heard(address, 10)["b"], 10);
    ballast.swap(&table(port, [70, 30], "", [&[], &[]]));
    ballast.until(|_| ask(address).is_err());
    let ack = ballast.ack().expect("an ack");
    assert_eq!(ack.exceptions.len(), 1, "it does not listen");
    ballast.swap(&table(port, [70, 30], "", [&[a], &[]]));
    ballast.until(|_| ask(address).is_ok());
    assert_eq!(heard(address, 10)["a"], 10);
}

#[test]
fn a_client_stays_with_its_service() {
    let (a, b) = (named_server("a"), named_server("b"));
    let port = free_port();
    let sticky = ", affinity: {client-ip: 1h}";
    let ballast = Ballast::serve(&table(port, [1, 0], sticky, [&[a], &[b]]), 2);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(heard(address, 3)["a"], 3);
    ballast.swap(&table(port, [0, 1], sticky, [&[a], &[b]]));
    assert_eq!(heard(address, 10)["a"], 10);
    ballast.swap(&table(port, [0, 1], sticky, [&[], &[b]]));
    assert_eq!(heard(address, 3)["b"], 3);
    ballast.swap(&table(port, [1, 1], sticky, [&[a], &[b]]));
    assert_eq!(heard(address, 10)["b"], 10, "it is b's client now");
}
