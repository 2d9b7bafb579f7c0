//! Checks by https: whom they believe, and what is said of an endpoint whose TLS is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::tls::server as tls_server;
use support::skip::skip;

#[test]
fn an_https_check_believes_whom_it_is_told_to_believe() {
    let Some(papers) = Papers::issue() else {
        return;
    };
    let (ours, theirs) = (papers.path("ca.pem"), papers.path("other.pem"));
    let own = papers.path("shop.pem");
    let good = papers.server(b"", b"HTTP/1.1 200 OK\r\n\r\nfine");
    let cases = [
        (good, String::new(), "L7OK", None),
        (good, ", body: fine".into(), "L7OK", None),
        (
            good,
            format!(", tls: {{sni: shop.test, ca: {ours}}}"),
            "L7OK",
            None,
        ),
        (
            good,
            format!(", tls: {{ca: {ours}}}"),
            "L6RSP",
            Some("its certificate is for another name"),
        ),
        (
            good,
            format!(", tls: {{sni: shop.test, ca: {theirs}}}"),
            "L6RSP",
            Some("its certificate is by nobody in tls.ca"),
        ),
        // The certificate itself, in place of its authority; and another name than is asked for.
        (
            good,
            format!(", tls: {{sni: shop.test, ca: {own}}}"),
            "L7OK",
            None,
        ),
        (
            good,
            format!(", tls: {{verified-name: off, ca: {own}}}"),
            "L7OK",
            None,
        ),
        (
            good,
            format!(", tls: {{sni: x.test, verified-name: shop.test, ca: {ours}}}"),
            "L7OK",
            None,
        ),
        (
            good,
            format!(", tls: {{ca: {own}}}"),
            "L6RSP",
            Some("its certificate is for another name"),
        ),
        (
            papers.server(b"", b"HTTP/1.1 503 No\r\n\r\n"),
            ", tls: {sni: shop.test}".into(),
            "L7STS",
            None,
        ),
        (
            well(),
            String::new(),
            "L6RSP",
            Some("it does not speak TLS"),
        ),
        (
            server(|mut client| {
                // It takes everything, and says nothing.
                while client.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
            }),
            String::new(),
            "L6TOUT",
            None,
        ),
        (server(reset), String::new(), "L6RSP", None),
    ];
    for (endpoint, more, word, said) in cases {
        let ballast = Ballast::serve(&by_https(&more, "", endpoint), 1);
        ballast.until(|ballast| known(ballast, 0).is_some_and(|known| known.last.is_some()));
        let last = monitor(&ballast, 0).last.unwrap().outcome;
        assert_eq!(last.word(), word, "{more}: {last:?}");
        if said.is_some() {
            assert_eq!(last.info(), said, "{more}");
        }
        end(ballast);
    }
}

#[test]
fn an_https_check_introduces_itself_in_the_clear() {
    let Some(papers) = Papers::issue() else {
        return;
    };
    let endpoint = papers.server(b"PROXY TCP4 127.0.0.1 ", b"HTTP/1.1 200 OK\r\n\r\n");
    let ballast = Ballast::serve(&by_https("", ", send-proxy: v1", endpoint), 1);
    ballast.until(|ballast| known(ballast, 0).is_some_and(|known| known.last.is_some()));
    assert_eq!(last_word(&monitor(&ballast, 0)), "L7OK");
}

#[test]
fn authorities_that_come_late_or_change_are_believed_from_then_on() {
    let Some(papers) = Papers::issue() else {
        return;
    };
    let endpoint = papers.server(b"", b"HTTP/1.1 200 OK\r\n\r\n");
    let late = papers.path("late.pem");
    let trust = format!(", tls: {{sni: shop.test, ca: {late}}}");
    let ballast = Ballast::serve(&by_https(&trust, "", endpoint), 1);
    let said = |ballast: &Ballast| {
        let last = known(ballast, 0)?.last?.outcome;
        Some((last.word(), last.info()))
    };
    // That says nothing about the endpoint.
    ballast.until(|ballast| said(ballast) == Some(("SOCKERR", Some("tls.ca cannot be read"))));
    assert!(endpoint_is_up(&ballast));
    fs::copy(papers.path("ca.pem"), &late).unwrap();
    ballast.until(|ballast| said(ballast) == Some(("L7OK", None)));
    fs::copy(papers.path("other.pem"), &late).unwrap();
    ballast.until(|ballast| !endpoint_is_up(ballast));
}

fn endpoint_is_up(ballast: &Ballast) -> bool {
    endpoint(ballast, 0).is_passing()
}

fn by_https(health: &str, service: &str, endpoint: SocketAddr) -> String {
    let health = format!(", health: {{mode: https, {QUICK}{health}}}");
    table("", &format!("{health}{service}"), &[endpoint])
}

/// An authority, another one, and the certificate of shop.test by the first.
struct Papers(tempfile::TempDir);

impl Papers {
    /// `None`, aloud: there is no openssl.
    fn issue() -> Option<Self> {
        if let Err(error) = Command::new("openssl").arg("version").output() {
            skip(&format!(
                "openssl, which makes the certificates, cannot be run: {error}"
            ));
            return None;
        }
        let papers = Self(tempfile::tempdir().expect("a folder"));
        papers.make("ca", &[]);
        papers.make("other", &[]);
        let names = ["-addext", "subjectAltName=DNS:shop.test"];
        let by = ["-CA", "ca.pem", "-CAkey", "ca.key"];
        let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
        papers.make(
            "shop",
            &[names, leaf]
                .concat()
                .into_iter()
                .chain(by)
                .collect::<Vec<_>>(),
        );
        Some(papers)
    }

    fn make(&self, name: &str, more: &[&str]) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-subj", &format!("/CN={name}")])
            .args(["-keyout", &key, "-out", &certificate])
            .args(more)
            .current_dir(self.0.path())
            .output()
            .expect("openssl");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// A server that wants to hear this in the clear first, and answers the first request by TLS.
    fn server(&self, before: &'static [u8], answer: &'static [u8]) -> SocketAddr {
        let serve = move |mut client: tls_server::Session| {
            if client.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {
                client.write_all(answer).ok();
                client.conn.send_close_notify();
                client.flush().ok();
            }
        };
        let config = serving(&self.file("shop.pem"), &self.file("shop.key"));
        tls_server::serving(config, tls_server::line(before), serve)
    }
}

fn serving(certificate: &Path, key: &Path) -> ServerConfig {
    let chain = CertificateDer::pem_file_iter(certificate).expect("a file");
    let chain = chain.collect::<Result<_, _>>().expect("a chain");
    tls_server::plain((chain, PrivateKeyDer::from_pem_file(key).expect("a key")))
}
