//! `ballast`: the admin address over plain sockets: what is answered where, to whom, and what operators change there.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod actions;
pub(crate) mod client;
mod events;
mod load;
mod logins;

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ballast::config::Admin;
use ballast::{Config, StartError};
use client::{Request, get, many};
use support::crowd::serve_as;
use support::{Ballast, echo_server, free_port, table};

#[test]
fn every_address_answers_in_its_form() {
    let ballast = Ballast::serve(&table("", "", &[echo_server()]), 1);
    let admin = ballast.running.admin()[0];
    for (address, kind, begins) in [
        ("/", "text/html; charset=utf-8", "<!DOCTYPE html>\n"),
        (
            "/haproxy?stats",
            "text/html; charset=utf-8",
            "<!DOCTYPE html>\n",
        ),
        ("/?scope=s", "text/html; charset=utf-8", "<!DOCTYPE html>\n"),
        (
            "/;up;no-maint;norefresh",
            "text/html; charset=utf-8",
            "<!DOCTYPE html>\n",
        ),
        ("/;csv", "text/plain", "# pxname,svname,"),
        ("/;csv;norefresh", "text/plain", "# pxname,svname,"),
        ("/haproxy?stats;csv", "text/plain", "# pxname,svname,"),
        ("/;typed", "text/plain", "F."),
        ("/;json", "application/json", "[[{\"objType\":\"Frontend\""),
        ("/api/snapshot", "application/json", "{\"info\":{"),
        (
            "/metrics",
            "text/plain; version=0.0.4; charset=utf-8",
            "# HELP ",
        ),
        (
            "/metrics?scope=backend",
            "text/plain; version=0.0.4; charset=utf-8",
            "# HELP haproxy_backend_",
        ),
        ("/healthz", "text/plain; charset=utf-8", "ok\n"),
        ("/readyz", "text/plain; charset=utf-8", "ready\n"),
    ] {
        let got = get(admin, address);
        assert_eq!(got.status, 200, "{address}: {got:?}");
        assert_eq!(got.header("content-type"), Some(kind), "{address}");
        assert_eq!(got.header("cache-control"), Some("no-cache"), "{address}");
        assert!(got.body.starts_with(begins), "{address}: {}", got.body);

        let head = Request::new("HEAD", address).send(admin);
        assert_eq!(head.status, 200, "{address}");
        assert_eq!(head.header("content-type"), Some(kind), "{address}");
        assert_eq!(head.body, "", "{address}");

        // Who knows nothing of chunks gets the same, to the end of the connection.
        let old = Request::new("GET", address).version("1.0").send(admin);
        assert_eq!(old.status, 200, "{address}");
        assert_eq!(old.header("transfer-encoding"), None, "{address}");
        assert!(old.body.starts_with(begins), "{address}");
    }
}

#[test]
fn what_is_not_there_and_what_is_not_done_is_said() {
    let ballast = Ballast::serve("version: 1\n", 1);
    let admin = ballast.running.admin()[0];
    for address in [
        "/nothing",
        "/csv",
        "/haproxy",
        "/metrics/",
        "/favicon.ico",
        "/%2e%2e/",
    ] {
        let got = get(admin, address);
        assert_eq!(got.status, 404, "{address}");
        assert!(got.body.contains("/metrics"), "{address}: {}", got.body);
    }
    for (method, address, allowed) in [
        ("PUT", "/", "GET, HEAD, POST"),
        ("DELETE", "/;csv", "GET, HEAD, POST"),
        ("OPTIONS", "/", "GET, HEAD, POST"),
        ("POST", "/metrics", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/readyz", "GET, HEAD"),
        ("TRACE", "/events", "GET, HEAD"),
    ] {
        let got = Request::new(method, address).send(admin);
        assert_eq!(got.status, 405, "{method} {address}");
        assert_eq!(got.header("allow"), Some(allowed), "{method} {address}");
    }
}

#[test]
fn the_page_has_haproxys_anchors_and_row_classes_and_no_markup_of_others() {
    let text = r#"version: 1
frontends:
  - {name: "web:1", bind: ["127.0.0.1:0"], protocol: tcp, service: pool, description: "<script>alert(1)</script>"}
services:
  - name: pool
    labels: {team: "a\"b<i>"}
    endpoints:
      - {address: "127.9.0.1:1", name: one}
      - {address: "127.9.0.2:1", name: two, state: backup}
      - {address: "127.9.0.3:1", name: three, state: draining}
      - {address: "127.9.0.4:1", name: four, state: disabled}
      - {address: "127.9.0.5:1", weight: 0}
"#;
    let ballast = Ballast::serve(text, 1);
    let got = get(ballast.running.admin()[0], "/");
    for part in [
        r#"<title>Statistics Report for Ballast on "#,
        r#"<a name="web:1/Frontend">"#,
        r#"<a name="pool">"#,
        r#"<a name="pool/one">"#,
        r#"<a name="pool/127.9.0.5:1">"#,
        r#"<a name="pool/Backend">"#,
        r#" class="frontend">"#,
        r#" class="active_no_check">"#,
        r#" class="backup_no_check">"#,
        r#" class="active_draining">"#,
        r#" class="maintain">"#,
        r#" class="backend">"#,
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ] {
        assert!(got.body.contains(part), "{part}");
    }
    assert!(!got.body.contains("<script>alert"));
    assert!(!got.body.contains(r#"type="checkbox""#), "it is read-only");
    let policy = got.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    // A part of an address that comes back is made harmless.
    let got = get(ballast.running.admin()[0], "/?q=%22%3E%3Cscript%3Ex");
    assert!(got.body.contains("&quot;&gt;&lt;script&gt;x"));
    assert!(!got.body.contains("<script>x"));
}

#[test]
fn a_large_table_is_shown_in_pages_and_searched_on_the_server() {
    let ballast = Ballast::serve(&many(120, 3), 1);
    let admin = ballast.running.admin()[0];
    let shown = |address: &str| -> Vec<String> {
        let body = get(admin, address).body;
        let heads = body.split(r#"class="head"#).skip(1);
        heads
            .map(|head| {
                let (_, name) = head.split_once("<a name=\"").unwrap();
                name.split('"').next().unwrap().to_owned()
            })
            .collect()
    };
    assert_eq!(shown("/").len(), 50);
    assert_eq!(shown("/")[0], "s0");
    assert_eq!(shown("/?p=2")[0], "s50");
    assert_eq!(shown("/?p=3").len(), 20);
    assert_eq!(shown("/?p=99")[0], "s100", "the last page");
    assert_eq!(shown("/?q=s11").len(), 11);
    assert_eq!(shown("/?q=S119"), ["s119"]);
    assert_eq!(shown("/?scope=s119"), ["s119"]);
    assert_eq!(
        shown("/?q=127.1.7.2"),
        ["s7"],
        "by the address of an endpoint"
    );
    assert_eq!(shown("/?q=nobody").len(), 0);
    assert_eq!(shown("/?show=wrong").len(), 0);
    let body = get(admin, "/?p=2&q=s").body;
    assert!(
        body.contains(r#"<a href="/?q=s&amp;p=3">Next</a>"#),
        "{body}"
    );
}

#[test]
fn what_is_wrong_is_found_without_the_rest() {
    let dead = support::nobody();
    let text = format!(
        "version: 1\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: bad}}]\nservices: [{{name: good, endpoints: [{{address: \"{dead}\"}}]}}, {{name: bad, ejection: {{failures: 1, first: 10m, longest: 10m}}, endpoints: [{{address: \"{dead}\"}}, {{address: \"{}\", name: fine}}]}}]\n",
        support::named_server("a")
    );
    let ballast = Ballast::serve(&text, 1);
    let admin = ballast.running.admin()[0];
    for _ in 0..2 {
        support::ask(ballast.address()).unwrap();
    }
    ballast.until(|_| get(admin, "/?show=wrong").body.contains("active_down"));
    let body = get(admin, "/?show=wrong").body;
    assert!(body.contains(r#"<a name="bad">"#) && !body.contains(r#"<a name="good">"#));
    assert!(
        !body.contains(r#"<a name="bad/fine">"#),
        "only what is wrong"
    );
    assert!(body.contains("with 1 that are not shown"), "{body}");
    // Its only endpoint is down, but then there is no other: the last one is never kept out.
    let all = get(admin, "/").body;
    assert!(all.contains(r#"<a name="good">"#) && all.contains(r#"<a name="bad/fine">"#));
}

#[test]
fn a_refused_table_is_shown_until_there_is_a_good_one() {
    let good = table("", "", &[echo_server()]);
    let ballast = Ballast::serve(&good, 1);
    let admin = ballast.running.admin()[0];
    assert!(!get(admin, "/").body.contains("was refused"));
    ballast.swap(&format!("{good}colour: \"<b>\"\n"));
    let body = get(admin, "/").body;
    assert!(body.contains("The latest table was refused"), "{body}");
    assert!(
        body.contains("colour") && !body.contains("\"<b>\""),
        "{body}"
    );
    ballast.swap(&format!("{good}generation: 7\n"));
    let body = get(admin, "/").body;
    assert!(
        !body.contains("was refused") && body.contains("table 7, "),
        "{body}"
    );
}

#[test]
fn with_a_file_everything_but_health_asks_who_it_is() {
    let ballast = guarded(&table("", "", &[echo_server()]));
    let admin = ballast.running.admin()[0];
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(admin, path).status, 200, "{path}");
    }
    for path in [
        "/",
        "/;csv",
        "/haproxy?stats;csv",
        "/;json",
        "/metrics",
        "/api/snapshot",
        "/events",
        "/nothing",
    ] {
        for credentials in [
            None,
            Some(("anna", "wrong")),
            Some(("nobody", "secret")),
            Some(("", "")),
        ] {
            let got = Request::new("GET", path)
                .credentials(credentials)
                .send(admin);
            assert_eq!(got.status, 401, "{path} {credentials:?}");
            let realm = got.header("www-authenticate").unwrap();
            assert!(realm.starts_with("Basic realm=\"Ballast\""), "{realm}");
            assert!(!got.body.contains("pxname"), "{path}");
        }
        if ["/events", "/nothing"].contains(&path) {
            continue;
        }
        for person in [client::ANNA, client::VIKTOR] {
            let got = Request::new("GET", path)
                .credentials(Some(person))
                .send(admin);
            assert_eq!(got.status, 200, "{path} {person:?}");
        }
    }
    let page = |person| {
        Request::new("GET", "/")
            .credentials(Some(person))
            .send(admin)
            .body
    };
    assert!(page(client::ANNA).contains(r#"value="drain""#));
    assert!(!page(client::VIKTOR).contains(r#"value="drain""#));
}

#[test]
fn a_bad_file_starts_nothing_and_every_mistake_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (table, users) = (
        folder.path().join("table.yaml"),
        folder.path().join("users"),
    );
    fs::write(&table, "version: 1\n").unwrap();
    fs::write(&users, "anna\nbert:x:owner\ncora:x\ncora:y\n").unwrap();
    let refused = |users: &std::path::Path| {
        let config = Config {
            admin: Admin::At(vec![SocketAddr::from(([127, 0, 0, 1], free_port()))]),
            stats_auth_file: Some(users.into()),
            ..Config::new(table.clone())
        };
        match ballast::start(config) {
            Err(StartError::Auth(words)) => words,
            other => panic!("{other:?}"),
        }
    };
    let words = refused(&users);
    for line in ["users:1: ", "users:2: ", "users:4: "] {
        assert!(words.contains(line), "{line}: {words}");
    }
    let words = refused(&folder.path().join("missing"));
    assert!(words.contains("missing: cannot be read: "), "{words}");
}

#[test]
fn healthz_alone_is_answered_where_the_table_says_and_follows_it() {
    let [one, two, admin] = [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let text = |healthz: &str| format!("version: 1\nstats: {{bind: [\"{admin}\"]{healthz}}}\n");
    let ballast = Ballast::serve_from_table(&text(&format!(", healthz: [\"{one}\"]")));
    assert_eq!(status(one, "/healthz"), Some(200));
    for path in ["/", "/readyz", "/metrics", "/;csv", "/events"] {
        assert_eq!(status(one, path), Some(404), "{path}");
    }
    assert_eq!(Request::new("POST", "/").send(one).status, 404);
    assert_eq!(
        ballast.running.admin(),
        [admin],
        "that is no place for the rest"
    );

    ballast.swap(&text(&format!(", healthz: [\"{two}\"]")));
    ballast.until(|_| status(two, "/healthz") == Some(200) && status(one, "/healthz").is_none());
    ballast.swap(&text(""));
    ballast.until(|_| status(two, "/healthz").is_none());
    assert_eq!(status(admin, "/healthz"), Some(200));
}

#[test]
fn one_address_becomes_all_of_them_and_one_again_at_once() {
    let port = free_port();
    let text = |bind: &str| format!("version: 1\nstats: {{bind: [\"{bind}:{port}\"]}}\n");
    let ballast = Ballast::serve_from_table(&text("127.0.0.1"));
    let ready = |host: [u8; 4]| status(SocketAddr::from((host, port)), "/readyz");
    assert_eq!(
        (ready([127, 0, 0, 1]), ready([127, 0, 0, 2])),
        (Some(200), None)
    );
    for (bind, elsewhere) in [("*", Some(200)), ("127.0.0.1", None), ("*", Some(200))] {
        let begun = Instant::now();
        ballast.swap(&text(bind));
        ballast.until(|_| (ready([127, 0, 0, 1]), ready([127, 0, 0, 2])) == (Some(200), elsewhere));
        // What cannot be had at first is tried again after five seconds: it must not come to that.
        assert!(begun.elapsed() < Duration::from_secs(4), "{bind}");
    }
}

/// The status that this address answers; `None`: there is no answer. A client in the queue of a closed address is reset, which is no answer.
fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = client::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// With a file that knows an admin and a viewer. One that is gone later changes nothing.
fn guarded(table: &str) -> Ballast {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, client::USERS).unwrap();
    serve_as(table, 1, |config| config.stats_auth_file = Some(users))
}
