//! `ballast`: TLS from end to end: it ends at a frontend, or begins towards endpoints. Clients and endpoints are rustls' own, and the
//! certificates are made for each test.

mod client;
mod endpoints;
mod expiry;
mod h2_client;
mod hosts;
mod https;
mod misdirected;
mod passthrough;
pub(crate) mod server;
mod swaps;
mod trailers;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread;

use client::{Tls, config, config_of, showing, showing_with_key, visit};
use rustls::version::{TLS12, TLS13};
use support::papers::Papers;
use support::{Ballast, connect, echo_server, server};

#[test]
fn tls_ends_at_a_tcp_frontend_and_plain_bytes_go_on() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let ballast = Ballast::serve(&table(&papers, &["shop"], "", echo_server()), 2);
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(config_of(&papers, version));
        let mut tls = visit(ballast.address(), &config, "shop.test").unwrap();
        assert_eq!(tls.0.conn.protocol_version(), Some(version.version));
        // More than fits into one record, and than is read at once.
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        for size in [1, 100, 16_384, 16_385, bytes.len()] {
            assert!(tls.echo(&bytes[..size]).unwrap() == bytes[..size], "{size}");
        }
        if *version == TLS13 {
            let group = tls.0.conn.negotiated_key_exchange_group().unwrap();
            assert_eq!(format!("{:?}", group.name()), "X25519MLKEM768");
        }
        // The client ends its direction, and the endpoint does the same.
        tls.0.conn.send_close_notify();
        tls.0.flush().unwrap();
        let mut rest = Vec::new();
        tls.0.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    assert_eq!(handshakes(&ballast, "complete"), 2);
}

#[test]
fn much_goes_both_ways_at_once() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let ballast = Ballast::serve(&table(&papers, &["shop"], "", echo_server()), 1);
    let mut tls = visit(ballast.address(), &Arc::new(config(&papers)), "shop.test").unwrap();
    // The client writes all before it reads: what comes back meanwhile stops the endpoint, and then the client, unless it is
    // kept small.
    let bytes: Vec<u8> = (0..1_500_000_u32).map(|n| (n % 241) as u8).collect();
    for _ in 0..4 {
        assert!(tls.echo(&bytes).unwrap() == bytes);
    }
    let socket = tls.0.sock.try_clone().unwrap();
    drop(tls);
    socket.shutdown(Shutdown::Both).ok();
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn a_client_that_closes_without_a_notification_has_ended_all_the_same() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    // It answers only when the client has ended.
    let endpoint = server(|mut client| {
        let mut heard = Vec::new();
        if client.read_to_end(&mut heard).is_ok() {
            client.write_all(&heard).ok();
        }
    });
    let ballast = Ballast::serve(&table(&papers, &["shop"], "", endpoint), 1);
    let mut tls = Tls::connect(ballast.address(), &Arc::new(config(&papers)), "shop.test").unwrap();
    tls.0.write_all(b"question").unwrap();
    tls.0.flush().unwrap();
    tls.0.sock.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    tls.0.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"question");
}

#[test]
fn the_name_that_a_client_asks_for_chooses_the_certificate() {
    let papers = Papers::new();
    papers.issue("first", &["first.test", "10.0.0.1"]);
    papers.issue("star", &["*.star.test", "star.test"]);
    papers.issue("exact", &["exact.star.test"]);
    let names = ["first", "star", "exact"];
    let cases = [
        ("first.test", "first"),
        ("star.test", "star"),
        ("a.star.test", "star"),
        ("A.Star.Test", "star"),
        ("exact.star.test", "exact"),
    ];
    for unknown in ["default", "refuse"] {
        let more = format!(", unknown-name: {unknown}");
        let ballast = Ballast::serve(&table(&papers, &names, &more, echo_server()), 1);
        let config = Arc::new(config(&papers));
        for (name, expected) in cases {
            let tls = visit(ballast.address(), &config, name).unwrap();
            let (chain, _) = papers.pair(expected);
            assert!(tls.certificate() == chain[0].to_vec(), "{name}");
        }
        // An address is no name that is asked for: the default serves it.
        visit(ballast.address(), &config, "10.0.0.1").unwrap();
        // No wildcard has two labels.
        let failed = visit(ballast.address(), &config, "a.b.star.test")
            .err()
            .unwrap();
        match unknown {
            "default" => assert!(
                failed.to_string().contains("not valid for name"),
                "{failed}"
            ),
            _ => {
                assert!(failed.to_string().contains("AccessDenied"), "{failed}");
                ballast.until(|ballast| handshakes(ballast, "unknown-name") == 1);
            }
        }
    }
}

#[test]
fn clients_without_a_name_are_refused_where_the_table_says_so() {
    let papers = Papers::new();
    papers.issue("first", &["first.test", "10.0.0.1"]);
    let more = ", unknown-name: refuse, no-name: refuse";
    let ballast = Ballast::serve(&table(&papers, &["first"], more, echo_server()), 1);
    let config = Arc::new(config(&papers));
    visit(ballast.address(), &config, "first.test").unwrap();
    for name in ["10.0.0.1", "other.test"] {
        let failed = visit(ballast.address(), &config, name).err().unwrap();
        assert!(
            failed.to_string().contains("AccessDenied"),
            "{name}: {failed}"
        );
    }
    ballast.until(|ballast| handshakes(ballast, "unknown-name") == 2);
}

#[test]
fn clients_show_certificates_where_they_must() {
    let (papers, foreign) = (Papers::new(), Papers::new());
    papers.issue("shop", &["shop.test"]);
    papers.issue("guest", &[]);
    foreign.issue("guest", &[]);
    let nobody = Arc::new(config(&papers));
    let guest = Arc::new(showing(&papers, &papers, "guest"));
    let stranger = Arc::new(showing(&papers, &foreign, "guest"));
    for (mode, nobody_is_served) in [("required", false), ("optional", true)] {
        let more = format!(
            ", client-auth: {{ca: {}, mode: {mode}}}",
            papers.named("ca.pem")
        );
        let ballast = Ballast::serve(&table(&papers, &["shop"], &more, echo_server()), 1);
        let served = |config| visit(ballast.address(), config, "shop.test").map(drop);
        served(&guest).unwrap();
        assert_eq!(served(&nobody).is_ok(), nobody_is_served, "{mode}");
        let why = served(&stranger).unwrap_err().to_string();
        assert!(
            why.contains("UnknownCA") || why.contains("DecryptError"),
            "{why}"
        );
        let refused = 1 + u64::from(!nobody_is_served);
        ballast.until(|ballast| handshakes(ballast, "bad-client-certificate") == refused);
        let metrics = ballast.metrics();
        let errors = format!("haproxy_frontend_request_errors_total{{proxy=\"f\"}} {refused}\n");
        assert!(metrics.contains(&errors), "{metrics}");
    }
    // Without the authorities nobody can be believed, so nobody is served.
    let more = format!(", client-auth: {{ca: {}}}", papers.named("none.pem"));
    let ballast = Ballast::serve(&table(&papers, &["shop"], &more, echo_server()), 1);
    assert!(visit(ballast.address(), &guest, "shop.test").is_err());
    assert_eq!(exceptions(&ballast).len(), 1);
}

#[test]
fn a_client_may_show_a_certificate_of_the_file_itself() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.sign_itself("self", &[], false);
    papers.sign_itself("old", &[], true);
    papers.sign_itself("other", &[], false);
    papers.sign_itself_alone("alone", &[]);
    papers.issue("leaf", &[]);
    let read = |files: &[&str]| {
        let texts = files
            .iter()
            .map(|file| fs::read(papers.path(file)).unwrap());
        texts.collect::<Vec<_>>().concat()
    };
    papers.write("clients.pem", &read(&["self.crt", "old.crt", "alone.crt"]));
    papers.write("alone.pem", &read(&["alone.crt"]));
    for (ca, cases) in [
        (
            "clients.pem",
            &[
                ("self", true),
                ("alone", true),
                ("old", false),
                ("other", false),
                ("leaf", false),
                // Signed by a certificate that may sign nothing.
                ("of-alone", false),
            ][..],
        ),
        (
            "alone.pem",
            &[("alone", true), ("of-alone", false), ("self", false)],
        ),
    ] {
        let more = format!(", client-auth: {{ca: {}}}", papers.named(ca));
        let ballast = Ballast::serve(&table(&papers, &["shop"], &more, echo_server()), 1);
        for (name, is_served) in cases {
            let config = Arc::new(showing(&papers, &papers, name));
            let visited = visit(ballast.address(), &config, "shop.test");
            assert_eq!(visited.is_ok(), *is_served, "{ca}: {name}");
        }
        // The certificate of the file, with another key.
        let stolen = Arc::new(showing_with_key(&papers, "alone", "other"));
        assert!(visit(ballast.address(), &stolen, "shop.test").is_err());
        let refused = 1 + cases.iter().filter(|(_, is_served)| !is_served).count() as u64;
        ballast.until(|ballast| handshakes(ballast, "bad-client-certificate") == refused);
    }
}

#[test]
fn what_is_no_handshake_is_counted_by_its_reason() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let more = ", min-version: \"1.3\"";
    let table = table(&papers, &["shop"], more, echo_server()).replace(
        "protocol: tcp",
        "protocol: tcp, timeouts: {preamble: 300ms}",
    );
    let ballast = Ballast::serve(&table, 1);
    let old = Arc::new(config_of(&papers, &TLS12));
    let why = visit(ballast.address(), &old, "shop.test").err().unwrap();
    assert!(why.to_string().contains("ProtocolVersion"), "{why}");
    let mut plain = connect(ballast.address());
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_ends(plain.read(&mut [0]));
    // One that says nothing, and one that stops in the middle.
    let mut silent = connect(ballast.address());
    assert_ends(silent.read(&mut [0]));
    let mut half = connect(ballast.address());
    half.write_all(b"\x16\x03\x01\x02").unwrap();
    assert_ends(half.read(&mut [0]));
    let mut leaving = connect(ballast.address());
    leaving.write_all(b"\x16\x03\x01\x02").unwrap();
    drop(leaving);
    // A probe of the port is no failure.
    drop(connect(ballast.address()));
    // Who believes another authority says so.
    let other = Arc::new(config(&Papers::new()));
    let why = visit(ballast.address(), &other, "shop.test").err().unwrap();
    assert!(why.to_string().contains("UnknownIssuer"), "{why}");
    for (result, count) in [
        ("no-shared-cipher", 1),
        ("not-tls", 1),
        ("timeout", 2),
        ("closed", 1),
        ("refused", 1),
        ("complete", 0),
        ("other", 0),
    ] {
        ballast.until(|ballast| handshakes(ballast, result) == count);
    }
}

#[test]
fn a_trusted_peer_names_the_client_before_tls_and_the_endpoint_hears_the_name_asked_for() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let endpoint = server(|mut client| {
        let mut bytes = [0; 256];
        while let Ok(read @ 1..) = client.read(&mut bytes) {
            client.write_all(&bytes[..read]).ok();
        }
    });
    let table = table(&papers, &["shop"], "", endpoint)
        .replace(
            "protocol: tcp",
            "protocol: tcp, accept-proxy: {from: [127.0.0.0/8]}",
        )
        .replace("name: s,", "name: s, send-proxy: v2,");
    let ballast = Ballast::serve(&table, 1);
    let config = Arc::new(config(&papers));
    let mut socket = connect(ballast.address());
    socket
        .write_all(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n")
        .unwrap();
    let mut tls = Tls::over(socket, &config, "shop.test").unwrap();
    tls.0.write_all(b"hello").unwrap();
    tls.0.flush().unwrap();
    let authority = b"\x02\0\x09shop.test";
    let mut heard = vec![0; 28 + authority.len() + 5];
    tls.0.read_exact(&mut heard).unwrap();
    assert_eq!(heard[16..20], [192, 0, 2, 1]);
    assert_eq!(heard[28..], [&authority[..], b"hello"].concat());
}

#[test]
fn many_clients_at_once_are_served_by_every_worker() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let ballast = Ballast::serve(&table(&papers, &["shop"], "", echo_server()), 2);
    let config = Arc::new(config(&papers));
    let address = ballast.address();
    let clients: Vec<_> = (0..20_u8)
        .map(|n| {
            let config = Arc::clone(&config);
            thread::spawn(move || {
                let mut tls = visit(address, &config, "shop.test").expect("a visit");
                let bytes = vec![n; 50_000];
                for _ in 0..5 {
                    assert!(tls.echo(&bytes).expect("an echo") == bytes);
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    assert_eq!(handshakes(&ballast, "complete"), 20);
}

fn assert_ends(read: std::io::Result<usize>) {
    match read {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// A table of a frontend with TLS, with the certificates of these names and `more`, and one endpoint.
fn table(papers: &Papers, names: &[&str], more: &str, endpoint: SocketAddr) -> String {
    let certificates: Vec<String> = names.iter().map(|name| papers.entry(name)).collect();
    table_of(&certificates, more, endpoint)
}

/// The same with these entries of `certificates`.
fn table_of(certificates: &[String], more: &str, endpoint: SocketAddr) -> String {
    let certificates = certificates.join(", ");
    let tls = format!(", tls: {{certificates: [{certificates}]{more}}}");
    support::table(&tls, "", &[endpoint])
}

/// How many handshakes ended so.
fn handshakes(ballast: &Ballast, result: &str) -> u64 {
    let metrics = ballast.metrics();
    let start = "ballast_tls_handshakes_total{";
    let word = format!("result=\"{result}\"");
    let line = metrics
        .lines()
        .find(|line| line.starts_with(start) && line.contains(&word));
    let (_, count) = line.expect("a line").rsplit_once(' ').expect("a count");
    count.parse().expect("a number")
}

/// Why what does not listen as asked does not.
fn exceptions(ballast: &Ballast) -> Vec<String> {
    let exceptions = ballast.ack().expect("an ack").exceptions;
    exceptions
        .into_iter()
        .map(|exception| exception.why)
        .collect()
}
