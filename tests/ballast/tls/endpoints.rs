//! TLS to endpoints.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use crate::tls::{exceptions, server as tls_server};
use support::papers::Papers;
use support::{Ballast, connect, nobody, server, table};

#[test]
fn endpoints_are_believed_as_the_table_says() {
    let (papers, other) = (Papers::new(), Papers::new());
    papers.issue("db", &["db.test", "127.0.0.1"]);
    papers.issue("nameless", &["other.test"]);
    let (ours, theirs) = (papers.named("ca.pem"), other.named("ca.pem"));
    let good = endpoint(&papers, "db", false, b"");
    let nameless = endpoint(&papers, "nameless", false, b"");
    for (tls, endpoint, is_served) in [
        (format!("sni: db.test, ca: {ours}"), good, true),
        // The address is in the certificate.
        (format!("ca: {ours}"), good, true),
        (format!("ca: {ours}"), nameless, false),
        (format!("sni: shop.test, ca: {ours}"), good, false),
        (format!("sni: db.test, ca: {theirs}"), good, false),
        // Nobody of the system's authorities has signed it.
        ("sni: db.test".into(), good, false),
        ("insecure: true".into(), good, true),
        ("insecure: true".into(), nameless, true),
        ("insecure: true".into(), nobody(), false),
    ] {
        let ballast = Ballast::serve(&by_tls(&tls, "", &[endpoint]), 1);
        assert_eq!(is_echoed(&ballast), is_served, "{tls}");
        let errors = connect_errors(&ballast);
        assert_eq!(errors > 0, !is_served, "{tls}: {errors}");
    }
    // A missing file fails closed, and the ack says so.
    let ballast = Ballast::serve(&by_tls("ca: none.pem", "", &[good]), 1);
    assert!(!is_echoed(&ballast));
    let exceptions = exceptions(&ballast);
    assert!(exceptions[0].contains("none.pem"), "{exceptions:?}");
}

#[test]
fn a_certificate_among_the_authorities_is_trusted_as_such() {
    let papers = Papers::new();
    papers.sign_itself("self", &["db.test"], false);
    papers.sign_itself("old", &["db.test"], true);
    papers.sign_itself("other", &["db.test"], false);
    papers.sign_itself_alone("alone", &["db.test"]);
    papers.issue("db", &["db.test"]);
    let own = |name: &str| papers.named(&format!("{name}.crt"));
    for (tls, name, is_served) in [
        (format!("sni: db.test, ca: {}", own("self")), "self", true),
        (format!("sni: db.test, ca: {}", own("other")), "self", false),
        (format!("sni: x.test, ca: {}", own("self")), "self", false),
        (format!("ca: {}", own("self")), "self", false),
        // One that is no authority is trusted itself, but not what it signed.
        (format!("sni: db.test, ca: {}", own("alone")), "alone", true),
        (
            format!("sni: db.test, ca: {}", own("alone")),
            "of-alone",
            false,
        ),
        (format!("sni: db.test, ca: {}", own("old")), "old", false),
        // One that an authority has issued is as good.
        (format!("sni: db.test, ca: {}", own("db")), "db", true),
        (
            format!("verified-name: off, ca: {}", own("self")),
            "self",
            true,
        ),
        (
            format!("verified-name: off, ca: {}", own("old")),
            "old",
            false,
        ),
        (
            format!("sni: x.test, verified-name: db.test, ca: {}", own("self")),
            "self",
            true,
        ),
        (
            format!("sni: db.test, verified-name: x.test, ca: {}", own("self")),
            "self",
            false,
        ),
        (
            format!("verified-name: off, ca: {}", papers.named("ca.pem")),
            "db",
            true,
        ),
        (
            format!("verified-name: off, ca: {}", own("self")),
            "db",
            false,
        ),
    ] {
        let endpoint = endpoint(&papers, name, false, b"");
        let ballast = Ballast::serve(&by_tls(&tls, "", &[endpoint]), 1);
        assert_eq!(is_echoed(&ballast), is_served, "{tls}: {name}");
    }
}

#[test]
fn an_endpoint_without_tls_is_left_for_another() {
    let papers = Papers::new();
    papers.issue("db", &["db.test"]);
    let plain = server(|mut client| {
        client.write_all(b"220 hello\r\n").ok();
        let mut heard = [0; 100];
        while client.read(&mut heard).is_ok_and(|read| read > 0) {}
    });
    let good = endpoint(&papers, "db", false, b"");
    let tls = format!("sni: db.test, ca: {}", papers.named("ca.pem"));
    let ballast = Ballast::serve(&by_tls(&tls, "", &[plain, good]), 1);
    for _ in 0..4 {
        assert!(is_echoed(&ballast));
    }
}

#[test]
fn ballast_shows_its_own_certificate() {
    let papers = Papers::new();
    papers.issue("db", &["db.test"]);
    papers.issue("ballast", &[]);
    let strict = endpoint(&papers, "db", true, b"");
    let trust = format!("sni: db.test, ca: {}", papers.named("ca.pem"));
    let (cert, key) = (papers.named("ballast.crt"), papers.named("ballast.key"));
    let shown = format!("{trust}, cert: {cert}, key: {key}");
    let table = by_tls(&shown, "", &[strict]);
    let ballast = Ballast::serve(&table, 1);
    assert!(is_echoed(&ballast));
    // While the key is not that of the certificate, the last pair is shown, and the ack says so.
    papers.issue("other", &[]);
    fs::copy(papers.path("other.key"), papers.path("ballast.key")).expect("a key");
    ballast.swap(&format!("{table}# again\n"));
    ballast.until(|ballast| exceptions(ballast).len() == 1);
    assert!(is_echoed(&ballast));
    let ballast = Ballast::serve(&by_tls(&trust, "", &[strict]), 1);
    assert!(!is_echoed(&ballast));
}

#[test]
fn a_proxy_header_is_sent_in_the_clear_before_tls() {
    let papers = Papers::new();
    papers.issue("db", &["db.test"]);
    let endpoint = endpoint(&papers, "db", false, b"PROXY TCP4 127.0.0.1 ");
    let tls = format!("sni: db.test, ca: {}", papers.named("ca.pem"));
    let ballast = Ballast::serve(&by_tls(&tls, ", send-proxy: v1", &[endpoint]), 1);
    assert!(is_echoed(&ballast));
}

fn by_tls(tls: &str, more: &str, endpoints: &[SocketAddr]) -> String {
    let quick = ", retries: 1, timeouts: {connect: 2s}";
    table("", &format!(", tls: {{{tls}}}{quick}{more}"), endpoints)
}

/// Whether a client's bytes come back from an endpoint.
fn is_echoed(ballast: &Ballast) -> bool {
    let mut client = connect(ballast.address());
    let bytes = vec![9; 100_000];
    let mut heard = vec![0; bytes.len()];
    client.write_all(&bytes).is_ok() && client.read_exact(&mut heard).is_ok() && heard == bytes
}

fn connect_errors(ballast: &Ballast) -> u64 {
    let plan = ballast.running.shared().live.plan();
    let counters = plan.services()[0].endpoints()[0].live().all_counters();
    counters.map_or(0, |counters| {
        counters.sum(|counters| &counters.connect_errors)
    })
}

/// A server that wants to hear this in the clear first, and then echoes by TLS.
fn endpoint(papers: &Papers, name: &str, strict: bool, before: &'static [u8]) -> SocketAddr {
    let (chain, key) = papers.pair(name);
    let config = if strict {
        ServerConfig::builder()
            .with_client_cert_verifier(
                WebPkiClientVerifier::builder(papers.roots())
                    .build()
                    .expect("a verifier"),
            )
            .with_single_cert(chain, key)
            .expect("a certificate with its key")
    } else {
        tls_server::plain((chain, key))
    };
    tls_server::serving(config, tls_server::line(before), tls_server::echo)
}
