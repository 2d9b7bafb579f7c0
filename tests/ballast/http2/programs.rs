//! HTTP/2 as other programs speak it: nghttp and h2load of nghttp2, curl, and the cases of h2spec.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http2::peers::{h1_endpoint, h2_endpoint, pattern};
use support::Ballast;
use support::papers::Papers;
use support::skip::skip;

#[test]
fn nghttp_and_curl_get_what_they_ask_for() {
    for (version, endpoint) in [
        ("h1", h1_endpoint()),
        ("h2", h2_endpoint(100, usize::MAX).0),
    ] {
        let ballast = Ballast::serve(&crate::http2::table("", version, endpoint), 1);
        let url = format!("http://{}/a?b=c", ballast.address());
        let large = format!("http://{}/large", ballast.address());
        for (program, options) in [
            ("nghttp", &["--timeout=10"][..]),
            ("curl", &["--http2-prior-knowledge", "-s", "-m", "10"]),
        ] {
            let Some(said) = run(Command::new(program).args(options).arg(&url)) else {
                continue;
            };
            let text = String::from_utf8_lossy(&said);
            assert!(text.contains("/a?b=c"), "{program} and {version}: {text}");
            let said = run(Command::new(program).args(options).arg(&large));
            assert!(said.is_some_and(|said| said == pattern(crate::http2::peers::LARGE)));
        }
    }
}

#[test]
fn curl_speaks_http2_in_tls() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let table = crate::http2::https_table(&papers, "h1", h1_endpoint());
    let ballast = Ballast::serve(&table, 1);
    let port = ballast.address().port();
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let mut curl = Command::new("curl");
        curl.args([
            option,
            "-s",
            "-m",
            "10",
            "-w",
            "%{http_version}",
            "--cacert",
        ])
        .arg(papers.path("ca.pem"))
        .args(["--resolve", &format!("shop.test:{port}:127.0.0.1")])
        .arg(format!("https://shop.test:{port}/a"));
        let Some(said) = run(&mut curl) else {
            return;
        };
        let text = String::from_utf8_lossy(&said);
        assert!(text.starts_with("GET /a HTTP/1.1\n"), "{text}");
        assert!(text.ends_with(&format!("\n{version}")), "{text}");
    }
}

#[test]
fn h2load_loses_no_request() {
    for (version, endpoint) in [
        ("h1", h1_endpoint()),
        ("h2", h2_endpoint(100, usize::MAX).0),
    ] {
        let ballast = Ballast::serve(&crate::http2::table("", version, endpoint), 2);
        let url = format!("http://{}/", ballast.address());
        let mut h2load = Command::new("h2load");
        let Some(said) = run(h2load
            .args(["-n", "3000", "-c", "10", "-m", "20"])
            .arg(&url))
        else {
            return;
        };
        let text = String::from_utf8_lossy(&said);
        assert!(
            text.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"),
            "{text}"
        );
        assert!(text.contains("3000 2xx"), "{text}");
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn every_case_of_h2spec_passes() {
    let Some(h2spec) = built("h2spec") else {
        return;
    };
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let tables = [
        crate::http2::table("", "h1", h1_endpoint()),
        crate::http2::https_table(&papers, "h1", h1_endpoint()),
    ];
    // Without TLS, what is no preface of HTTP/2 is a request of HTTP/1, and its answer is no frame.
    let failures: [&[&str]; 2] = [&["2: Sends invalid connection preface"], &[]];
    for ((table, options), failures) in tables.iter().zip([&[][..], &["-t", "-k"]]).zip(failures) {
        let ballast = Ballast::serve(table, 1);
        assert_fails(&h2spec, options, ballast.address(), failures);
    }
}

/// A program that `tests/ballast/http2/make` builds into the folder HTTP2_PROGRAMS. `None`: the folder is not named, and a SKIP is printed.
pub(crate) fn built(program: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("HTTP2_PROGRAMS");
    if folder.is_none() {
        skip(&format!(
            "there is no {program}: HTTP2_PROGRAMS=$(tests/ballast/http2/make) names its folder"
        ));
    }
    folder.map(|folder| Path::new(&folder).join(program))
}

/// Whether exactly these cases fail.
fn assert_fails(h2spec: &Path, options: &[&str], address: SocketAddr, expected: &[&str]) {
    let output = Command::new(h2spec)
        .args(["-h", &address.ip().to_string()])
        .args(["-p", &address.port().to_string()])
        .args(["-P", "/", "-o", "5"])
        .args(options)
        .output()
        .expect("h2spec");
    let text = String::from_utf8_lossy(&output.stdout);
    let failures = text
        .split_once("Failures:")
        .map_or("", |(_, failures)| failures);
    let failed: Vec<&str> = failures
        .lines()
        .filter_map(|line| line.split_once('×'))
        .map(|(_, case)| case.trim())
        .collect();
    assert_eq!(failed, expected, "{text}");
    let passed = CASES - expected.len();
    let sum = format!("{CASES} tests, {passed} passed, 0 skipped, ");
    assert!(text.contains(&sum), "{text}");
}

/// What the program writes. `None`: it is not there, which is said.
fn run(program: &mut Command) -> Option<Vec<u8>> {
    match program.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program:?}: {errors}");
            Some(output.stdout)
        }
        Err(error) => {
            skip(&format!("{program:?}: {error}"));
            None
        }
    }
}

const CASES: usize = 145;
