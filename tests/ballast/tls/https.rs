//! HTTP in TLS: it ends at the frontend, or is relayed unopened, and begins towards endpoints.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::tls::client::{Tls, config, showing};
use crate::tls::server as tls_server;
use support::Ballast;
use support::papers::Papers;

#[test]
fn requests_in_tls_reach_plain_endpoints() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let ballast = Ballast::serve(&table(&papers, "", "", "", plain()), 2);
    let config = Arc::new(offering(config(&papers)));
    let mut tls = Tls::connect(ballast.address(), &config, "shop.test").unwrap();
    assert_eq!(tls.0.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    // One connection, many requests.
    for path in ["/a", "/b", "/c"] {
        let (head, body) = get(&mut tls, path, "");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(body.contains(&format!("GET {path} HTTP/1.1\r\n")), "{body}");
        assert!(
            body.to_ascii_lowercase()
                .contains("x-forwarded-proto: https"),
            "{body}"
        );
    }
    // The close is announced.
    let (_, body) = get(&mut tls, "/d", "Connection: close\r\n");
    assert!(body.contains("GET /d "), "{body}");
    assert_eq!(tls.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_body_of_many_records_arrives_whole() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let ballast = Ballast::serve(&table(&papers, "", "", "", plain()), 1);
    let mut tls = Tls::connect(ballast.address(), &Arc::new(config(&papers)), "shop.test").unwrap();
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
    write!(
        tls.0,
        "POST /echo HTTP/1.1\r\nHost: shop.test\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    tls.0.write_all(&body).unwrap();
    tls.0.flush().unwrap();
    let (head, heard) = answer(&mut tls);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(heard == body);
}

#[test]
fn endpoints_are_told_whose_certificate_it_is_and_believe_no_client() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("guest", &[]);
    let auth = format!(
        ", client-auth: {{ca: {}, mode: optional}}",
        papers.named("ca.pem")
    );
    let ballast = Ballast::serve(&table(&papers, &auth, "", "", plain()), 1);
    let lie = "X-SSL-Client-DN: CN=admin\r\n";
    for (config, expected) in [
        (config(&papers), None),
        (
            showing(&papers, &papers, "guest"),
            Some(r"O=Shop\, Inc.,CN=guest"),
        ),
    ] {
        let mut tls = Tls::connect(ballast.address(), &Arc::new(config), "shop.test").unwrap();
        let (_, body) = get(&mut tls, "/", lie);
        let told = body
            .lines()
            .find_map(|line| line.strip_prefix("X-SSL-Client-DN: "));
        assert!(!body.contains("CN=admin"), "{body}");
        match expected {
            Some(subject) => assert!(told.is_some_and(|told| told.starts_with(subject)), "{body}"),
            None => assert_eq!(told, None),
        }
    }
}

#[test]
fn a_connection_without_a_certificate_ends_when_the_table_asks_for_one() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("guest", &[]);
    let open = table(&papers, "", "", "", plain());
    let auth = format!(
        ", client-auth: {{ca: {}, mode: required}}",
        papers.named("ca.pem")
    );
    let closed = table(&papers, &auth, "", "", plain());
    let ballast = Ballast::serve(&open, 1);
    let come = |config: ClientConfig| {
        let mut tls = Tls::connect(ballast.address(), &Arc::new(config), "shop.test").unwrap();
        assert!(get(&mut tls, "/", "").0.starts_with("HTTP/1.1 200"));
        tls
    };
    let mut nobody = come(config(&papers));
    ballast.swap(&closed);
    let mut guest = come(showing(&papers, &papers, "guest"));
    assert_eq!(
        nobody.0.read(&mut [0]).unwrap(),
        0,
        "it is closed while it is idle"
    );
    // Another description of the same rules.
    ballast.swap(&format!("generation: 2\n{closed}"));
    assert!(get(&mut guest, "/", "").0.starts_with("HTTP/1.1 200"));
    ballast.swap(&open);
    assert!(get(&mut guest, "/", "").0.starts_with("HTTP/1.1 200"));
}

#[test]
fn one_port_ends_tls_for_some_names_and_relays_others() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("db", &["db.test"]);
    let routes = ", {host: db.test, passthrough: true, service: db}";
    let db = in_tls(&papers, "db");
    let service = format!("  - {{name: db, endpoints: [{{address: \"{db}\"}}]}}\n");
    let ballast = Ballast::serve(&table(&papers, "", routes, &service, plain()), 1);
    let config = Arc::new(config(&papers));
    for (name, is_relayed) in [("shop.test", false), ("db.test", true)] {
        let mut tls = Tls::connect(ballast.address(), &config, name).unwrap();
        let shown = if is_relayed { "db" } else { "shop" };
        assert!(
            tls.certificate() == papers.pair(shown).0[0].to_vec(),
            "{name}"
        );
        let (_, body) = get(&mut tls, "/", "");
        let is_changed = body.to_ascii_lowercase().contains("x-forwarded-for");
        assert_eq!(is_changed, !is_relayed, "{body}");
    }
}

#[test]
fn endpoints_in_tls_keep_their_connections() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("inside", &["inside.test"]);
    let endpoint = in_tls(&papers, "inside");
    let tls = format!(
        "tls: {{sni: inside.test, ca: {}}}, ",
        papers.named("ca.pem")
    );
    let table =
        table(&papers, "", "", "", endpoint).replace("name: s, ", &format!("name: s, {tls}"));
    let ballast = Ballast::serve(&table, 1);
    let config = Arc::new(config(&papers));
    for client in 0..2 {
        let mut tls = Tls::connect(ballast.address(), &config, "shop.test").unwrap();
        for request in 0..5 {
            let (head, body) = get(&mut tls, "/x", "");
            assert!(
                head.starts_with("HTTP/1.1 200") && body.contains("GET /x "),
                "{client} {request}"
            );
        }
    }
    let plan = ballast.running.shared().live.plan();
    let counters = plan.services()[0].endpoints()[0]
        .live()
        .all_counters()
        .unwrap();
    let dials = counters.sum(|counters| &counters.dials);
    assert!(dials <= 2, "{dials} connections for ten requests");
    assert_eq!(counters.sum(|counters| &counters.connect_errors), 0);
}

fn table(papers: &Papers, tls: &str, routes: &str, services: &str, endpoint: SocketAddr) -> String {
    format!(
        "version: 1
frontends:
  - name: f
    bind: [\"127.0.0.1:0\"]
    protocol: https
    tls: {{certificates: [{}]{tls}}}
    routes: [{{path: /, service: s}}{routes}]
services:
  - {{name: s, endpoints: [{{address: \"{endpoint}\"}}]}}
{services}",
        papers.entry("shop")
    )
}

fn offering(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn get(tls: &mut Tls, path: &str, more: &str) -> (String, String) {
    let host = "Host: shop.test\r\n";
    write!(tls.0, "GET {path} HTTP/1.1\r\n{host}{more}\r\n").expect("a request");
    tls.0.flush().expect("a request");
    let (head, body) = answer(tls);
    (head, String::from_utf8(body).expect("text"))
}

/// The head of an answer, and its body by its length.
pub(crate) fn answer(from: &mut Tls) -> (String, Vec<u8>) {
    read_message(&mut from.0).expect("an answer")
}

/// A message with a length, or none if nothing comes.
fn read_message(from: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match from.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    let head = String::from_utf8(head).expect("text");
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse().expect("a length"))
    });
    let mut body = vec![0; length.unwrap_or(0)];
    from.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Answers each request with its head or, if it has one, with its body.
fn serve(mut client: impl Read + Write) {
    while let Some((head, body)) = read_message(&mut client) {
        let body = if body.is_empty() {
            head.into_bytes()
        } else {
            body
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let sent = client.write_all(&[head.as_bytes(), &body].concat());
        if sent.and_then(|()| client.flush()).is_err() {
            return;
        }
    }
}

pub(crate) fn plain() -> SocketAddr {
    support::server(serve)
}

pub(crate) fn in_tls(papers: &Papers, name: &str) -> SocketAddr {
    tls_server::serving(tls_server::plain(papers.pair(name)), |_| {}, serve)
}
