//! What `check` and the log say of certificates that are not valid any more, or not yet.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::peers::{fresh_address, get, server};
use crate::process::{Process, ballast, folder, replace};
use support::papers::Papers;

#[test]
fn check_warns_of_certificates_by_their_dates_and_their_names() {
    let papers = Papers::new();
    papers.issue_for("good", &["good.test"], (0, now() + 90 * DAY));
    papers.issue_for("soon", &["soon.test"], (0, now() + 6 * DAY));
    papers.issue_for("early", &["early.test"], (4_102_444_800, 4_133_980_800));
    let many = ["a.test", "b.test", "c.test", "d.test", "e.test"];
    papers.issue_for("old", &many, (1_577_836_800, 1_609_459_199));
    let entries = [
        papers.entry("good"),
        papers.entry("soon"),
        papers.entry("early"),
        papers.entry("old"),
        papers
            .entry("good")
            .replace('}', ", hosts: [good.test, x.test]}"),
    ];
    let folder = folder(&table(fresh_address(), &entries));
    let ended = ballast([Path::new("check"), folder.path()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended
            .out
            .ends_with(": 1 frontend (1 https), 0 services, 0 endpoints\n")
    );
    let lines: Vec<&str> = ended.err.lines().collect();
    let line = |name: &str, rest: &str| {
        let file = papers.named(&format!("{name}.crt"));
        format!("warning: frontend web: certificate {file} {rest}")
    };
    assert_eq!(lines.len(), 4, "{ended:?}");
    assert!(
        lines[0].starts_with(&line("soon", "(soon.test) expires at 2")),
        "{ended:?}"
    );
    let served = "and is served all the same";
    let early = format!("(early.test) is not valid before 2100-01-01T00:00:00Z, {served}");
    assert_eq!(lines[1], line("early", &early));
    let old =
        format!("(a.test, b.test, c.test and 2 more) expired at 2020-12-31T23:59:59Z, {served}");
    assert_eq!(lines[2], line("old", &old));
    let foreign = "(good.test, x.test) is offered for x.test, which it does not name, so that clients refuse it";
    assert_eq!(lines[3], line("good", foreign));
}

#[test]
fn check_warns_of_a_certificate_that_nobody_has_a_use_for() {
    let papers = Papers::new();
    papers.issue_for("a", &["a.test"], (0, now() + 90 * DAY));
    papers.issue_for("b", &["b.test"], (0, now() + 90 * DAY));
    papers.issue_for("star", &["*.c.test"], (0, now() + 90 * DAY));
    let entries = ["a", "b", "star"].map(|name| papers.entry(name)).join(", ");
    for (routes, unused) in [
        (
            "routes: [{host: a.test, status: 200}]",
            &["b.crt", "star.crt"][..],
        ),
        (
            "routes: [{host: b.test, status: 200}, {host: x.c.test, status: 200}]",
            &[],
        ),
        ("routes: [{host: \"*.c.test\", status: 200}]", &["b.crt"]),
        (
            "routes: [{host: a.test, status: 200}, {path: /x, status: 200}]",
            &[],
        ),
        (
            "routes: [{host: a.test, status: 200}], default: {status: 404}",
            &[],
        ),
    ] {
        let folder = folder(&format!(
            "version: 1\nfrontends:\n  - {{name: web, bind: [\"127.0.0.1:443\"], protocol: https, tls: {{certificates: [{entries}]}}, {routes}}}\n"
        ));
        let ended = ballast([Path::new("check"), folder.path()]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let lines: Vec<&str> = ended.err.lines().collect();
        assert_eq!(lines.len(), unused.len(), "{routes}: {ended:?}");
        for (line, name) in lines.iter().zip(unused) {
            let file = papers.named(name);
            assert!(line.starts_with(&format!("warning: frontend web: certificate {file} (")));
            assert!(line.contains("is for no host of a route"), "{line}");
        }
    }
}

#[test]
fn the_log_warns_once_when_a_certificate_expires_and_no_more_when_it_was_replaced() {
    let papers = Papers::new();
    let end = now() + 4;
    papers.issue_for("shop", &["shop.test"], (end - DAY, end));
    let (address, entries) = (fresh_address(), [papers.entry("shop")]);
    let folder = folder(&table(address, &entries));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    let subject = format!(
        "frontend web: certificate {} (shop.test)",
        papers.named("shop.crt")
    );
    // Nothing else happens: the time alone makes the difference.
    let expired = format!("{subject} expired at ");
    process.until_said(&expired);
    let series = "ballast_certificate_expiry_seconds{frontend=\"web\"";
    assert!(process.metrics().contains(series));

    let next = now() + 90 * DAY;
    papers.issue_for("shop", &["shop.test"], (0, next));
    process.until("the new certificate", || {
        process.metrics().contains(&format!("}} {next}\n"))
    });
    // A second table, after which the log would say it again.
    replace(
        &folder,
        &format!("generation: 7\n{}", table(address, &entries)),
    );
    process.until_said("generation=7");
    assert_eq!(process.err.times(&expired), 1);
    assert!(process.err.times(&format!("{subject} expires at ")) <= 1);
}

#[test]
fn the_log_says_why_there_is_no_tls_with_an_endpoint() {
    let plain = server(|mut client| {
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
    });
    let address = fresh_address();
    let folder = folder(&format!(
        "version: 1
frontends: [{{name: web, bind: [\"{address}\"], protocol: http, default: {{service: shop}}}}]
services: [{{name: shop, tls: {{sni: shop.test}}, endpoints: [{{address: \"{plain}\"}}]}}]
"
    ));
    let process = Process::run(folder.path(), &[]);
    process.until_answers("/readyz", 200);
    for _ in 0..3 {
        assert_eq!(get(address, "/").unwrap().0, 502);
    }
    let fields = [
        "TLS with an endpoint failed".into(),
        format!("endpoint={plain}"),
        "service=shop".into(),
        "name=\"shop.test\"".into(),
        "why=\"it does not speak TLS\"".into(),
    ];
    process.until_said(&fields[0]);
    let text = process.err.text();
    let line = text.lines().find(|line| line.contains(&fields[0])).unwrap();
    assert!(line.contains(" WARN "), "{line}");
    assert!(fields.iter().all(|field| line.contains(field)), "{line}");
    assert_eq!(process.err.times(&fields[0]), 1, "once a minute");
}

fn table(address: SocketAddr, certificates: &[String]) -> String {
    format!(
        "version: 1
frontends:
  - name: web
    bind: [\"{address}\"]
    protocol: https
    tls: {{certificates: [{}]}}
    default: {{status: 404}}
",
        certificates.join(", ")
    )
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

const DAY: u64 = 86_400;
