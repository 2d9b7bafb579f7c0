//! Requests for another host than the one that a connection was made for.

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::client::{Tls, config};
use crate::tls::h2_client::H2Client;
use crate::tls::https::{answer, in_tls, plain};
use support::papers::Papers;
use support::{Ballast, run};

#[test]
fn a_host_that_is_relayed_unopened_is_not_served_by_another_connection() {
    let papers = papers();
    let ballast = Ballast::serve(&table(&papers, "", DB, in_tls(&papers, "db")), 1);
    let config = config(&papers);
    let mut tls = connect(&ballast, config.clone(), "www.star.test");
    assert_eq!(get(&mut tls, "www.star.test").0, 200);
    let (status, body) = get(&mut tls, "DB.star.test:443");
    assert_eq!(status, 421);
    assert!(body.contains("made for another site"), "{body}");
    // The connection goes on.
    assert_eq!(get(&mut tls, "other.star.test").0, 200);
    assert_eq!(get(&mut tls, "127.0.0.1").0, 200);
    // What the client does next: the endpoint behind the route sees the request as it was sent.
    let mut own = connect(&ballast, config.clone(), "db.star.test");
    let (status, body) = get(&mut own, "db.star.test");
    assert_eq!(status, 200);
    assert!(!body.contains("X-Forwarded-For"), "{body}");

    run(async {
        let client = H2Client::connect(ballast.address(), config, "www.star.test").await;
        for (host, expected) in [
            ("www.star.test", 200),
            ("db.star.test", 421),
            ("db.star.test:443", 421),
            ("other.star.test", 200),
            ("WWW.star.test", 200),
        ] {
            let (status, body) = client.get(&format!("https://{host}/")).await;
            assert_eq!(status, expected, "{host}: {body}");
            assert_eq!(body.contains("made for another site"), status == 421);
        }
    });
    let denied = "haproxy_frontend_requests_denied_total{proxy=\"f\"} 3\n";
    ballast.until(|ballast| ballast.metrics().contains(denied));
}

#[test]
fn a_route_for_one_protocol_is_for_connections_of_that_protocol() {
    let papers = papers();
    let route = ", {host: db.star.test, alpn: [h2], passthrough: true, service: db}";
    let ballast = Ballast::serve(&table(&papers, "", route, in_tls(&papers, "db")), 1);
    let config = config(&papers);
    let mut tls = connect(&ballast, config.clone(), "www.star.test");
    assert_eq!(get(&mut tls, "db.star.test").0, 200);
    run(async {
        let client = H2Client::connect(ballast.address(), config, "www.star.test").await;
        assert_eq!(client.get("https://db.star.test/").await.0, 421);
        assert_eq!(client.get("https://www.star.test/").await.0, 200);
    });
}

#[test]
fn a_host_whose_handshake_would_be_refused_is_refused() {
    let papers = papers();
    for (unknown, expected) in [("default", 200), ("refuse", 421)] {
        let tls = format!(", unknown-name: {unknown}");
        let ballast = Ballast::serve(&table(&papers, &tls, "", plain()), 1);
        let config = config(&papers);
        let mut tls = connect(&ballast, config.clone(), "www.star.test");
        for (host, expected) in [
            ("other.star.test", 200),
            ("a.b.star.test", expected),
            ("other.test", expected),
            // Who asks for an address is never refused.
            ("127.0.0.1:8443", 200),
            ("[::1]", 200),
        ] {
            assert_eq!(get(&mut tls, host).0, expected, "{host}, {unknown}");
        }
        run(async {
            let client = H2Client::connect(ballast.address(), config, "www.star.test").await;
            assert_eq!(client.get("https://other.test/").await.0, expected);
            assert_eq!(client.get("https://other.star.test/").await.0, 200);
        });
    }
}

#[test]
fn without_a_server_name_a_host_that_is_relayed_unopened_is_refused_all_the_same() {
    let papers = papers();
    let ballast = Ballast::serve(&table(&papers, "", DB, in_tls(&papers, "db")), 1);
    let mut config = config(&papers);
    config.enable_sni = false;
    let mut tls = connect(&ballast, config.clone(), "www.star.test");
    assert_eq!(get(&mut tls, "www.star.test").0, 200);
    assert_eq!(get(&mut tls, "db.star.test").0, 421);
    run(async {
        let client = H2Client::connect(ballast.address(), config, "www.star.test").await;
        assert_eq!(client.get("https://db.star.test/").await.0, 421);
        assert_eq!(client.get("https://www.star.test/").await.0, 200);
    });
}

#[test]
fn a_name_told_by_another_proxy_is_not_what_the_client_asked_for_here() {
    let papers = papers();
    let table = table(&papers, "", DB, in_tls(&papers, "db")).replace(
        "protocol: https",
        "protocol: https\n    accept-proxy: {from: [127.0.0.0/8]}",
    );
    let ballast = Ballast::serve(&table, 1);
    let mut config = config(&papers);
    config.enable_sni = false;
    let mut socket = ballast.connect();
    let authority = b"\x02\0\x0cdb.star.test";
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x1b".to_vec();
    header.extend([192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb]);
    header.extend(authority);
    socket.write_all(&header).unwrap();
    let mut tls = Tls::over(socket, &Arc::new(config), "www.star.test").unwrap();
    assert_eq!(get(&mut tls, "www.star.test").0, 200);
    assert_eq!(get(&mut tls, "db.star.test").0, 421);
}

#[test]
fn a_new_table_leaves_a_connection_the_host_that_it_was_made_for() {
    let papers = papers();
    let db = in_tls(&papers, "db");
    let ballast = Ballast::serve(&table(&papers, "", "", db), 1);
    let config = config(&papers);
    let mut own = connect(&ballast, config.clone(), "db.star.test");
    let mut other = connect(&ballast, config, "www.star.test");
    for tls in [&mut own, &mut other] {
        assert_eq!(get(tls, "db.star.test").0, 200);
    }
    ballast.swap(&table(&papers, "", DB, db));
    let other = RefCell::new(other);
    ballast.until(|_| get(&mut other.borrow_mut(), "db.star.test").0 == 421);
    assert_eq!(get(&mut own, "db.star.test").0, 200);
    assert_eq!(get(&mut own, "www.star.test").0, 200);
}

const DB: &str = ", {host: db.star.test, passthrough: true, service: db}";

/// A certificate for all hosts of a domain, and one of an endpoint that ends TLS itself.
fn papers() -> Papers {
    let papers = Papers::new();
    papers.issue("star", &["*.star.test", "127.0.0.1"]);
    papers.issue("db", &["db.star.test"]);
    papers
}

/// A table whose requests all go to one service, but for what `routes` says.
fn table(papers: &Papers, tls: &str, routes: &str, db: SocketAddr) -> String {
    format!(
        "version: 1
frontends:
  - name: f
    bind: [\"127.0.0.1:0\"]
    protocol: https
    tls: {{certificates: [{}]{tls}}}
    routes: [{{path: /, service: s}}{routes}]
services:
  - {{name: s, endpoints: [{{address: \"{}\"}}]}}
  - {{name: db, endpoints: [{{address: \"{db}\"}}]}}
",
        papers.entry("star"),
        plain(),
    )
}

fn connect(ballast: &Ballast, config: rustls::ClientConfig, name: &str) -> Tls {
    Tls::connect(ballast.address(), &Arc::new(config), name).expect("a connection")
}

/// Status and body of the answer to a request for this host.
fn get(tls: &mut Tls, host: &str) -> (u16, String) {
    write!(tls.0, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("a request");
    tls.0.flush().expect("a request");
    let (head, body) = answer(tls);
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (
        status.expect("a status"),
        String::from_utf8(body).expect("text"),
    )
}
