//! TLS that is relayed unopened: the ClientHello chooses the service.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection};

use crate::tls::client::{Tls, config, visit};
use crate::tls::{assert_ends, handshakes, server as tls_server};
use support::papers::Papers;
use support::{Ballast, connect, echo_server, named_server, server};

#[test]
fn the_name_and_the_protocols_choose_the_service() {
    let papers = Papers::new();
    let routes = "
  - {host: shop.test, service: shop}
  - {host: '*.shop.test', service: star}
  - {host: shop.test, alpn: [h2], service: h2}";
    let ballast = Ballast::serve(&table(&papers, routes, "default: {service: other}"), 2);
    for (name, alpn, expected) in [
        ("shop.test", &[][..], "shop"),
        ("SHOP.test", &[], "shop"),
        ("a.shop.test", &[], "star"),
        ("a.b.shop.test", &[], "star"),
        ("unknown.test", &[], "other"),
        // An address is no name that is asked for.
        ("127.0.0.1", &[], "other"),
        ("shop.test", &["h2", "http/1.1"], "h2"),
        ("shop.test", &["http/1.1"], "shop"),
    ] {
        let config = Arc::new(offering(&papers, alpn));
        // The endpoint ends TLS: it shows its own certificate.
        let mut tls = visit(ballast.address(), &config, name).unwrap();
        assert!(
            tls.certificate() == papers.pair(expected).0[0].to_vec(),
            "{name}"
        );
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        assert!(tls.echo(&bytes).unwrap() == bytes);
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
}

#[test]
fn services_share_the_connections_of_a_name() {
    let papers = Papers::new();
    let routes = "
  - {host: shop.test, name: shop, backends: [{service: shop, weight: 3}, {service: star}]}";
    let default = "default: {backends: [{service: other}]}";
    let ballast = Ballast::serve(&table(&papers, routes, default), 1);
    let config = Arc::new(config(&papers));
    let shown = |name: &str| {
        visit(ballast.address(), &config, name)
            .unwrap()
            .certificate()
    };
    let of = |service: &str| papers.pair(service).0[0].to_vec();
    let (shop, star) = (of("shop"), of("star"));
    let seen: Vec<_> = (0..20).map(|_| shown("shop.test")).collect();
    let count = |certificate| seen.iter().filter(|one| **one == certificate).count();
    assert_eq!((count(shop), count(star)), (15, 5));
    assert!(shown("unknown.test") == of("other"));
    let metrics = ballast.metrics();
    for line in [
        "ballast_route_requests_total{frontend=\"f\",route=\"shop\"} 20\n",
        "ballast_backend_choices_total{frontend=\"f\",route=\"shop\",service=\"shop\"} 15\n",
        "ballast_backend_choices_total{frontend=\"f\",route=\"\",service=\"other\"} 1\n",
        "ballast_route_requests_total{frontend=\"f\",route=\"*\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn a_name_without_a_route_and_without_a_default_is_reset() {
    let papers = Papers::new();
    let ballast = Ballast::serve(
        &table(&papers, "\n  - {host: shop.test, service: shop}", ""),
        1,
    );
    let config = Arc::new(config(&papers));
    visit(ballast.address(), &config, "shop.test").unwrap();
    assert!(visit(ballast.address(), &config, "other.test").is_err());
    assert!(visit(ballast.address(), &config, "127.0.0.1").is_err());
    assert_eq!(handshakes(&ballast, "unknown-name"), 2);
    let mut plain = connect(ballast.address());
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_ends(plain.read(&mut [0]));
    assert_eq!(handshakes(&ballast, "not-tls"), 1);
}

#[test]
fn a_client_that_does_not_finish_its_hello_is_cut_off() {
    let papers = Papers::new();
    let table = table(&papers, "\n  - {host: shop.test, service: shop}", "").replace(
        "protocol: tls",
        "protocol: tls, timeouts: {preamble: 400ms}",
    );
    let ballast = Ballast::serve(&table, 1);
    let begun = Instant::now();
    let mut slow = connect(ballast.address());
    // It keeps sending, one byte of a long hello at a time.
    for byte in b"\x16\x03\x01\x3f\x00\x01\x00\x3e\xfc\x03\x03"
        .iter()
        .chain(&[0; 10_000])
    {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        support::pause(Duration::from_millis(5));
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_ends(slow.read(&mut [0]));
    ballast.until(|ballast| handshakes(ballast, "timeout") == 1);
}

#[test]
fn a_hello_in_many_pieces_reaches_the_endpoint_whole() {
    let papers = Papers::new();
    let ballast = Ballast::serve(
        &table(&papers, "\n  - {host: shop.test, service: shop}", ""),
        1,
    );
    // A proxy of this test's own cuts what the client sends first.
    let to = ballast.address();
    let through = server(move |mut client| {
        let mut to = connect(to);
        to.set_nodelay(true).ok();
        let mut bytes = [0; 4096];
        let read = client.read(&mut bytes).unwrap_or_default();
        for piece in bytes[..read].chunks(100) {
            to.write_all(piece).ok();
            support::pause(Duration::from_millis(1));
        }
        let (mut from, mut back) = (
            to.try_clone().expect("a copy"),
            client.try_clone().expect("a copy"),
        );
        std::thread::spawn(move || std::io::copy(&mut from, &mut back));
        std::io::copy(&mut client, &mut to).ok();
    });
    visit(through, &Arc::new(config(&papers)), "shop.test").unwrap();
}

#[test]
fn the_endpoint_is_told_the_name_in_a_proxy_header() {
    let papers = Papers::new();
    let routes = "\n  - {host: shop.test, service: told}";
    let ballast = Ballast::serve(&table(&papers, routes, ""), 1);
    let mut tls = Tls::connect(ballast.address(), &Arc::new(config(&papers)), "shop.test").unwrap();
    assert_eq!(tls.echo(b"hello").unwrap(), b"hello");
}

#[test]
fn a_client_whose_hello_is_not_whole_when_a_table_comes_belongs_to_that_table() {
    let papers = Papers::new();
    let [old, new] = ["old", "new"].map(named_server);
    let table = |sources: &str| {
        format!(
            "version: 1\nfrontends: [{{name: f, bind: ['127.0.0.1:0'], protocol: tls{sources}, routes: [{{host: shop.test, service: old}}]}}]\nservices: [{{name: old, endpoints: [{{address: '{old}'}}]}}, {{name: new, endpoints: [{{address: '{new}'}}]}}]\n"
        )
    };
    let ballast = Ballast::serve(&table(""), 1);
    let name = "shop.test".try_into().expect("a name");
    let mut session = ClientConnection::new(Arc::new(config(&papers)), name).expect("a session");
    let mut hello = Vec::new();
    session.write_tls(&mut hello).expect("a ClientHello");
    let (first, rest) = hello.split_at(hello.len() / 2);
    let moved = table("").replace("service: old", "service: new");
    let closed = table(", source-ranges: [192.0.2.0/24]");
    for (next, expected) in [(moved, Some("new")), (closed, None)] {
        let mut client = ballast.connect();
        client.write_all(first).expect("a write");
        ballast.until(|ballast| ballast.running.shared().connections() == 1);
        ballast.swap(&next);
        client.write_all(rest).expect("a write");
        // It may have been sent more than its endpoint reads: then the end is a reset.
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).ok();
        assert_eq!(heard, expected.unwrap_or_default().as_bytes(), "{next}");
        ballast.swap(&table(""));
    }
}

/// A table of a tls frontend with these routes, and services whose endpoints end TLS, each with a certificate of its own.
fn table(papers: &Papers, routes: &str, default: &str) -> String {
    let mut services = String::new();
    for name in ["shop", "star", "h2", "other", "told"] {
        papers.issue(
            name,
            &[
                "shop.test",
                "*.shop.test",
                "a.b.shop.test",
                "unknown.test",
                "127.0.0.1",
            ],
        );
        let (endpoint, more) = match name {
            "told" => (endpoint(papers, name, 28 + 12), ", send-proxy: v2"),
            _ => (endpoint(papers, name, 0), ""),
        };
        services +=
            &format!("  - {{name: {name}{more}, endpoints: [{{address: \"{endpoint}\"}}]}}\n");
    }
    // Nobody asks for it.
    services += &format!(
        "  - {{name: plain, endpoints: [{{address: \"{}\"}}]}}\n",
        echo_server()
    );
    let routes = format!(
        "routes: [{}]",
        routes
            .trim()
            .trim_start_matches("- ")
            .replace("\n  - ", ", ")
    );
    let more: Vec<&str> = [&*routes, default]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let more = more.join(", ");
    format!(
        "version: 1\nfrontends:\n  - {{name: f, bind: [\"127.0.0.1:0\"], protocol: tls, {more}}}\nservices:\n{services}"
    )
}

fn offering(papers: &Papers, alpn: &[&str]) -> ClientConfig {
    let mut config = config(papers);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// A server that hears a PROXY header of so many bytes, with the name shop.test, and echoes by TLS.
fn endpoint(papers: &Papers, name: &str, header: usize) -> SocketAddr {
    let before = move |client: &mut TcpStream| {
        let mut heard = vec![0; header];
        client.read_exact(&mut heard).expect("a header");
        assert!(
            header == 0 || heard.ends_with(b"\x02\0\x09shop.test"),
            "{heard:?}"
        );
    };
    tls_server::serving(
        tls_server::plain(papers.pair(name)),
        before,
        tls_server::echo,
    )
}
