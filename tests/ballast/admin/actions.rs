//! What operators change on the page.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use ballast_core::overrides::OverrideChange;

use crate::admin::client::{ANNA, Request, VIKTOR, get};
use crate::admin::guarded;
use support::{Ballast, ask, named_server};

#[test]
fn a_drained_endpoint_stays_so_through_a_swap_until_it_is_undone() {
    let (a, b) = (named_server("a"), named_server("b"));
    let ballast = guarded(&pool(1, a, b));
    let admin = ballast.running.admin()[0];
    let act = |action: &str| post(admin, &format!("s=one&action={action}&b=pool"));
    assert_eq!(answered(&ballast), both());

    assert_eq!(act("drain"), "/;st=DONE");
    assert_eq!(status(admin, "one"), "DRAIN");
    assert_eq!(answered(&ballast), only("b"));
    assert!(page(admin, "/").contains(r#"class="hand""#));
    assert!(page(admin, "/?show=hand").contains(r#"<a name="pool/one">"#));
    assert!(!page(admin, "/?show=hand").contains(r#"<a name="pool/two">"#));

    ballast.swap(&pool(2, a, b));
    assert_eq!(status(admin, "one"), "DRAIN");
    assert_eq!(answered(&ballast), only("b"));

    for (action, word) in [
        ("ready", "no check"),
        ("maint", "MAINT"),
        ("enable", "no check"),
        ("disable", "MAINT"),
    ] {
        assert_eq!(act(action), "/;st=DONE", "{action}");
        assert_eq!(status(admin, "one"), word, "{action}");
    }
    assert_eq!(act("default"), "/;st=DONE");
    assert_eq!(status(admin, "one"), "no check");
    assert_eq!(answered(&ballast), both());
    assert!(!page(admin, "/").contains(r#"class="hand""#));
}

#[test]
fn a_limit_that_was_changed_by_hand_is_marked_and_undone() {
    let (a, b) = (named_server("a"), named_server("b"));
    let table = pool(1, a, b).replace("service: pool}", "service: pool, max-connections: 50}");
    let ballast = guarded(&table);
    let admin = ballast.running.admin()[0];
    let limit = || {
        let stats = ballast.running.stats();
        stats.snapshot().frontends[0].limit
    };
    let by_hand = |limit| {
        let name = "f".parse().expect("a name");
        let change = OverrideChange::MaxConnections(name, NonZeroU32::new(limit));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime
            .block_on(ballast.running.shared().change(vec![change]))
            .unwrap();
    };
    assert!(!page(admin, "/").contains("limit by hand"));
    by_hand(7);
    assert_eq!(limit(), 7);
    let marked = page(admin, "/?show=hand");
    assert!(marked.contains("limit to 7; the table says 50"), "{marked}");
    for (body, outcome) in [
        ("f=none&action=default", "ERRP"),
        ("f=f&action=drain", "ERRP"),
        ("f=f&action=default", "DONE"),
    ] {
        assert_eq!(post(admin, body), format!("/;st={outcome}"), "{body}");
    }
    assert_eq!(limit(), 50);
    assert!(!page(admin, "/").contains("limit by hand"));
}

#[test]
fn a_backup_that_is_enabled_is_a_backup_again() {
    let text = "version: 1\nservices: [{name: pool, endpoints: [{address: \"127.0.0.1:9\", name: one, state: backup}, {address: \"127.0.0.1:8\", name: two, state: disabled}]}]\n";
    let ballast = guarded(text);
    let admin = ballast.running.admin()[0];
    assert_eq!(post(admin, "s=one&action=maint&b=pool"), "/;st=DONE");
    assert!(!page(admin, "/").contains("backup_no_check"));
    assert_eq!(post(admin, "s=one&s=two&action=ready&b=pool"), "/;st=DONE");
    assert!(page(admin, "/").contains("backup_no_check"));
    assert_eq!(status(admin, "two"), "no check", "the table says disabled");
    assert_eq!(page(admin, "/").matches(r#"class="hand""#).count(), 1);
}

#[test]
fn forms_are_read_and_answered_as_haproxys_are() {
    let ballast = guarded(&pool(1, named_server("a"), named_server("b")));
    let admin = ballast.running.admin()[0];
    let iid = column(admin, "BACKEND", 27);
    let sid = column(admin, "two", 28);
    let too_much = format!("s=one&action=drain&b=pool&x={}", "x".repeat(15 * 1024));
    for (body, outcome) in [
        (format!("s=one&s=two&action=ready&b=%23{iid}"), "DONE"),
        (format!("s=%23{sid}&action=ready&b=pool"), "DONE"),
        ("b=pool&action=ready&s=one".into(), "DONE"),
        ("s=one&s=gone&action=ready&b=pool".into(), "PART"),
        ("s=gone&action=ready&b=pool".into(), "ERRP"),
        ("s=one&action=explode&b=pool".into(), "ERRP"),
        ("s=one&action=ready&b=gone".into(), "ERRP"),
        ("s=one&action=ready&b=%2399999".into(), "ERRP"),
        ("s=one&b=pool".into(), "ERRP"),
        ("action=ready&b=pool".into(), "NONE"),
        (String::new(), "NONE"),
        (too_much, "EXCD"),
        ("s=one&action=shutdown&b=pool".into(), "DONE"),
    ] {
        let words: String = body.chars().take(60).collect();
        assert_eq!(post(admin, &body), format!("/;st={outcome}"), "{words}");
    }
    let place = |address: &str| {
        let form = Request::form(address, "s=one&action=ready&b=pool", admin);
        let got = form.credentials(Some(ANNA)).send(admin);
        got.header("location").unwrap().to_owned()
    };
    assert_eq!(place("/haproxy?stats"), "/;st=DONE");
    assert_eq!(
        place("/;up;no-maint;norefresh?scope=po&p=1"),
        "/;st=DONE;up;no-maint;norefresh?scope=po"
    );
    assert_eq!(
        place("/;st=NONE?q=a&show=wrong"),
        "/;st=DONE?q=a&show=wrong"
    );
    let said = Request::new("GET", "/;st=DENY")
        .credentials(Some(ANNA))
        .send(admin);
    assert!(said.body.contains("Denied, nothing was changed"));

    let chunked = Request::new("POST", "/")
        .header("Origin", &format!("http://{admin}"))
        .header("Transfer-Encoding", "chunked")
        .credentials(Some(ANNA))
        .body("19\r\ns=one&action=drain&b=pool\r\n0\r\n\r\n")
        .send(admin);
    assert_eq!(chunked.header("location"), Some("/;st=IVAL"));
    assert_eq!(status(admin, "one"), "no check");
}

#[test]
fn only_an_admin_changes_something() {
    let ballast = guarded(&pool(1, named_server("a"), named_server("b")));
    let admin = ballast.running.admin()[0];
    let body = "s=one&action=drain&b=pool";
    for person in [None, Some(VIKTOR), Some(("anna", "wrong"))] {
        let got = Request::form("/", body, admin)
            .credentials(person)
            .send(admin);
        assert_eq!(got.status, 401, "{person:?}");
        assert!(got.header("www-authenticate").is_some(), "{person:?}");
        assert_eq!(status(admin, "one"), "no check", "{person:?}");
    }

    let open = Ballast::serve(&pool(1, named_server("a"), named_server("b")), 1);
    let admin = open.running.admin()[0];
    let got = Request::form("/", body, admin)
        .credentials(Some(ANNA))
        .send(admin);
    assert_eq!(got.status, 403);
    assert!(got.body.contains("--stats-auth-file"), "{}", got.body);
    assert!(get(admin, "/;csv").body.contains("pool,one"));
    assert!(!get(admin, "/;csv").body.contains("DRAIN"));
}

#[test]
fn a_form_of_another_site_changes_nothing() {
    let ballast = guarded(&pool(1, named_server("a"), named_server("b")));
    let admin = ballast.running.admin()[0];
    let own = format!("http://{admin}");
    let page = format!("{own}/?q=x");
    for headers in [
        &[][..],
        &[("Origin", "http://evil.example")],
        &[("Origin", "null")],
        &[("Referer", "http://evil.example/")],
        &[("Origin", "http://evil.example"), ("Referer", &page)],
        &[("Origin", &own), ("Sec-Fetch-Site", "cross-site")],
        &[("Origin", &own), ("Host", "evil.example")],
    ] {
        let form = Request::bare_form("/", "s=one&action=drain&b=pool");
        let form = headers
            .iter()
            .fold(form, |form, (name, value)| form.header(name, value));
        let got = form.credentials(Some(ANNA)).send(admin);
        assert_eq!(got.status, 303, "{headers:?}");
        assert_eq!(got.header("location"), Some("/;st=DENY"), "{headers:?}");
        assert_eq!(status(admin, "one"), "no check", "{headers:?}");
    }
    for headers in [
        &[("Referer", &*page)][..],
        &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
    ] {
        let form = Request::bare_form("/", "s=one&action=ready&b=pool");
        let form = headers
            .iter()
            .fold(form, |form, (name, value)| form.header(name, value));
        let got = form.credentials(Some(ANNA)).send(admin);
        assert_eq!(got.header("location"), Some("/;st=DONE"), "{headers:?}");
    }
}

fn pool(generation: u32, a: SocketAddr, b: SocketAddr) -> String {
    format!(
        "version: 1\ngeneration: {generation}\nfrontends: [{{name: f, bind: [\"127.0.0.1:0\"], protocol: tcp, service: pool}}]\nservices: [{{name: pool, endpoints: [{{name: one, address: \"{a}\"}}, {{name: two, address: \"{b}\"}}]}}]\n"
    )
}

/// Where the answer to a form of the page sends an admin.
fn post(admin: SocketAddr, body: &str) -> String {
    let got = Request::form("/", body, admin)
        .credentials(Some(ANNA))
        .send(admin);
    assert_eq!(got.status, 303, "{got:?}");
    assert_eq!(got.header("content-length"), Some("0"));
    got.header("location").unwrap().to_owned()
}

fn page(admin: SocketAddr, address: &str) -> String {
    Request::new("GET", address)
        .credentials(Some(ANNA))
        .send(admin)
        .body
}

fn status(admin: SocketAddr, endpoint: &str) -> String {
    column(admin, endpoint, 17)
}

/// A column of a row of the one service that there is.
fn column(admin: SocketAddr, endpoint: &str, place: usize) -> String {
    let csv = page(admin, "/;csv");
    let row = csv
        .lines()
        .find(|line| line.starts_with(&format!("pool,{endpoint},")));
    row.unwrap().split(',').nth(place).unwrap().to_owned()
}

/// Who answers.
fn answered(ballast: &Ballast) -> BTreeSet<String> {
    (0..8).map(|_| ask(ballast.address()).unwrap()).collect()
}

fn both() -> BTreeSet<String> {
    ["a", "b"].map(String::from).into()
}

fn only(name: &str) -> BTreeSet<String> {
    [name.to_owned()].into()
}
