//! `ballast`: the page in a real browser: what it shows, how it keeps up, what can be pressed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod addresses;
mod browser;

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::num::NonZeroU32;
use std::time::Instant;

use crate::admin::client::{Request, many};
use ballast_core::overrides::OverrideChange;
use browser::Browser;
use serde_json::json;
use support::crowd::serve_as;
use support::{Ballast, ask, named_server, nobody, table};

#[test]
fn routes_are_listed_and_found() {
    let a = named_server("a");
    let table = format!(
        "version: 1
frontends:
  - name: web
    bind: [\"127.0.0.1:0\"]
    protocol: http
    routes:
      - {{name: shop, host: shop.test, path: /cart, service: s}}
      - {{host: old.test, redirect: {{host: shop.test}}}}
    default: {{status: 404}}
  - {{name: other, bind: [\"127.0.0.2:0\"], protocol: tcp, service: none}}
services:
  - {{name: s, endpoints: [{{address: \"{a}\"}}]}}
  - {{name: none, endpoints: []}}
"
    );
    let ballast = Ballast::serve(&table, 1);
    let admin = ballast.running.admin()[0];
    let page = support::get(admin, "/").1;
    for words in [
        "<b>shop.test/cart</b><small>shop</small>",
        "redirect to //shop.test",
        "answers 404",
        "everything else",
        ">EMPTY</b>",
        "no endpoint",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    // A search for a route shows that route, and its frontend.
    let found = support::get(admin, "/?q=shop.test/cart").1;
    assert!(found.contains("<b>shop.test/cart</b>"), "{found}");
    assert!(found.contains("name=\"web/Frontend\""), "{found}");
    for words in ["old.test", "answers 404", "name=\"other/Frontend\""] {
        assert!(!found.contains(words), "{words}: {found}");
    }
}

#[test]
fn the_reason_of_a_loop_is_shown_where_there_is_little_room_too() {
    let port = support::free_port();
    let table = format!(
        "version: 1
frontends: [{{name: f, bind: [\"127.0.0.1:{port}\"], protocol: tcp, service: s}}]
services: [{{name: s, endpoints: [{{address: \"127.0.0.1:{port}\"}}]}}]
"
    );
    let ballast = Ballast::serve(&table, 1);
    let page = support::get(ballast.running.admin()[0], "/").1;
    assert!(
        page.contains("<small class=\"narrow\">a loop</small>"),
        "{page}"
    );
}

#[test]
fn a_reader_that_takes_gzip_gets_less() {
    let ballast = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    let admin = ballast.running.admin()[0];
    for address in ["/", "/;csv", "/;json", "/metrics", "/api/snapshot"] {
        let get = |taken: &str| {
            let mut stream = support::connect(admin);
            write!(
                stream,
                "GET {address} HTTP/1.0\r\nAccept-Encoding: {taken}\r\n\r\n"
            )
            .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            let head = answer
                .windows(4)
                .position(|end| end == b"\r\n\r\n")
                .unwrap();
            let body = answer.split_off(head + 4);
            (String::from_utf8(answer).unwrap().to_lowercase(), body)
        };
        let ((head, plain), (gzip_head, gzip)) = (get("identity"), get("br, gzip"));
        assert!(!head.contains("content-encoding"), "{head}");
        assert!(
            gzip_head.contains("\r\ncontent-encoding: gzip\r\n"),
            "{gzip_head}"
        );
        assert!(
            gzip_head.contains("\r\nvary: accept-encoding\r\n"),
            "{gzip_head}"
        );
        assert!(gzip.starts_with(b"\x1f\x8b"), "{address}");
        assert!(gzip.len() * 2 < plain.len(), "{address}: {}", gzip.len());
    }
}

#[test]
fn the_page_shows_everything_and_keeps_up_without_a_reload() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let (a, b) = (named_server("a"), named_server("b"));
    let ballast = Ballast::serve(&table("", "", &[a]), 1);
    let origin = origin(&ballast);
    browser.go(&origin);
    assert!(
        browser
            .text("document.title")
            .starts_with("Statistics Report for Ballast on ")
    );
    browser.until("document.getElementById('live').className === 'on'");
    let facts = browser.text("document.getElementById('facts').innerText");
    assert!(facts.contains("serving"), "{facts}");
    browser.value("window.same = true");

    (0..5).for_each(|_| drop(ask(ballast.address()).unwrap()));
    let sessions = "document.querySelector('#services tbody tr td:nth-child(10)').innerText";
    browser.until(&format!("{sessions} === '5'"));
    browser.until("document.querySelector('#frontends svg .area')");

    ballast.swap(&table("", "", &[a, b]));
    browser.until("document.querySelectorAll('#services tbody tr').length === 3");
    assert_eq!(browser.text(sessions), "5");
    ballast.swap(&format!("{}colour: red\n", table("", "", &[a, b])));
    browser.until("document.querySelector('#main .note.bad')?.innerText.includes('colour')");
    assert_eq!(
        browser.value("window.same"),
        true,
        "it was not loaded again"
    );

    let loaded = browser.value("performance.getEntriesByType('resource').map(one => one.name)");
    for name in loaded.as_array().unwrap() {
        assert!(name.as_str().unwrap().starts_with(&origin), "{name}");
    }
    no_complaints(&browser);
}

#[test]
fn the_end_of_the_process_is_seen() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ballast = Ballast::serve("version: 1\n", 1);
    browser.go(&origin(&ballast));
    browser.until("document.getElementById('live').className === 'on'");
    let Ballast { running, .. } = ballast;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(running.stop());
    browser.until("document.getElementById('live').className === 'off'");
}

#[test]
fn searching_filtering_and_paging_change_what_is_shown_and_the_address() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ballast = Ballast::serve(&many(120, 2), 1);
    browser.go(&origin(&ballast));
    let count = |number: usize| format!("document.querySelectorAll('.head').length === {number}");
    let first = |name: &str| format!("document.querySelector('.head .px')?.innerText === '{name}'");
    browser.until(&count(50));
    browser.value("window.same = true");
    browser.click("#main > .pages a");
    browser.until(&first("s50"));
    browser.type_into("#search [name=q]", "s11");
    browser.until(&count(11));
    browser.until("location.search === '?q=s11'");
    assert_eq!(
        browser.text("document.activeElement.name"),
        "q",
        "one may go on typing"
    );
    browser.type_into("#search [name=q]", "7");
    browser.until(&first("s117"));
    browser.click(".show a:nth-child(2)");
    browser
        .until("document.getElementById('services').innerText.includes('Nothing is wrong here')");
    assert_eq!(browser.text("location.search"), "?q=s117&show=wrong");
    browser.back();
    browser.until(&first("s117"));
    // What is searched for is heard of, and nothing else.
    browser.until("document.getElementById('live').className === 'on'");
    assert_eq!(
        browser.value("window.same"),
        true,
        "it was not loaded again"
    );
    no_complaints(&browser);
}

#[test]
fn what_goes_wrong_appears_among_what_is_wrong() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ejection = ", ejection: {failures: 1, first: 10m, longest: 10m}";
    let ballast = Ballast::serve(&table("", ejection, &[nobody(), named_server("a")]), 1);
    browser.go(&format!("{}/?show=wrong", origin(&ballast)));
    browser.until("document.getElementById('live').className === 'on'");
    assert_eq!(
        browser.value("document.querySelectorAll('.head').length"),
        0
    );
    (0..2).for_each(|_| drop(ask(ballast.address()).unwrap()));
    browser.until("document.querySelector('.active_down .st')?.innerText === 'DOWN'");
    let mark = "getComputedStyle(document.querySelector('.active_down .st'), '::before').content";
    assert_eq!(browser.text(mark), "\"✕\"", "it is told by its shape too");
    no_complaints(&browser);
}

#[test]
fn the_last_check_of_each_endpoint_is_shown() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let health = ", health: {mode: tcp, interval: 200ms}";
    let ballast = Ballast::serve(&table("", health, &[nobody(), named_server("a")]), 1);
    browser.go(&origin(&ballast));
    browser.until("document.querySelector('.active_down')?.innerText.includes('L4CON in ')");
    browser.until("document.querySelector('.active_up')?.innerText.includes('L4OK in ')");
    browser.until("document.querySelector('.head .meta')?.innerText.includes('1 of 2 usable')");
    no_complaints(&browser);
}

#[test]
fn an_operator_drains_an_endpoint_and_undoes_it() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ballast = guarded(&table("", "", &[named_server("a"), named_server("b")]));
    // A name and a secret in the address are no hindrance.
    let admin = ballast.running.admin()[0];
    browser.go(&format!("http://anna:secret@{admin}/"));
    browser.until("document.getElementById('live').className === 'on'");
    browser.value("window.same = true");
    let shown = "getComputedStyle(document.querySelector('.acts')).display";
    assert_eq!(browser.text(shown), "flex", "before one is chosen");
    browser.click("#services tbody tr:nth-child(1) input");
    browser.click(".acts [value=drain]");
    let row = "document.querySelector('#services tbody tr')";
    browser.until(&format!(
        "{row}.className === 'active_draining' && {row}.querySelector('.hand')"
    ));
    browser.until("document.querySelector('#main .note')?.innerText === 'Done.'");
    let csv = Request::new("GET", "/;csv")
        .credentials(Some(crate::admin::client::ANNA))
        .send(admin);
    assert!(csv.body.contains(",DRAIN,"), "{}", csv.body);
    (0..4).for_each(|_| assert_eq!(ask(ballast.address()).unwrap(), "b"));

    browser.click("#services tbody tr:nth-child(1) input");
    browser.click(".acts [value=default]");
    browser.until(&format!(
        "{row}.className === 'active_no_check' && !{row}.querySelector('.hand')"
    ));
    assert_eq!(
        browser.value("window.same"),
        true,
        "it was not loaded again"
    );
    no_complaints(&browser);
}

#[test]
fn datagrams_limits_by_hand_and_what_is_not_served_are_shown() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let endpoint = UdpSocket::bind("127.0.0.1:0").unwrap();
    let ballast = guarded(&format!(
        "version: 1\nfrontends:\n  - {{name: dns, bind: [\"127.0.0.1:0\"], protocol: udp, service: s}}\n  - {{name: idle, bind: [\"127.0.0.1:0\"], protocol: tcp, service: none}}\nservices:\n  - {{name: s, endpoints: [{{address: \"{}\"}}]}}\n  - {{name: none}}\n",
        endpoint.local_addr().unwrap()
    ));
    browser.go(&format!(
        "http://anna:secret@{}/",
        ballast.running.admin()[0]
    ));
    browser.until("document.getElementById('live').className === 'on'");
    browser.value("window.same = true");
    let noted = "document.querySelector('#main details.note')?.textContent ?? ''";
    let noted = browser.text(noted);
    assert!(noted.starts_with("One address is not served"), "{noted}");
    assert!(noted.contains("idle"), "{noted}");

    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listening = ballast.running.shared().status.listening();
    client
        .send_to(b"?", listening.values().next().unwrap())
        .unwrap();
    browser.until("document.querySelector('#datagrams tbody td:nth-child(2)')?.innerText === '1'");
    browser.until("document.querySelector('#datagrams tbody td:nth-child(5)')?.innerText === '1'");
    browser.until("document.getElementById('tiles').innerText.includes('and a flow')");
    // The process has its own graphs.
    browser.until("document.querySelectorAll('#tiles svg .area').length >= 1");

    let change = OverrideChange::MaxConnections("dns".parse().unwrap(), NonZeroU32::new(7));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(ballast.running.shared().change(vec![change]))
        .unwrap();
    browser.until("document.querySelector('#frontends .hand')");
    browser.click("#frontends .undo button");
    browser.until("document.querySelector('#main .note')?.innerText === 'Done.'");
    browser.until("!document.querySelector('#frontends .hand')");
    assert_eq!(
        browser.value("window.same"),
        true,
        "it was not loaded again"
    );
    no_complaints(&browser);
}

#[test]
fn everything_works_without_a_script() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ballast = guarded(&many(60, 2));
    let admin = ballast.running.admin()[0];
    browser.command(
        "Emulation.setScriptExecutionDisabled",
        &json!({"value": true}),
    );
    browser.go(&format!("http://anna:secret@{admin}/;norefresh"));
    browser.until("document.querySelectorAll('.head').length === 50");
    let has_run = "document.documentElement.classList.contains('script')";
    assert_eq!(browser.value(has_run), false, "the script has not run");
    browser.click("#main > .pages a");
    browser.until("document.querySelectorAll('.head').length === 10");
    browser.type_into("#search [name=q]", "s7");
    browser.click("#search button");
    browser.until("document.querySelectorAll('.head').length === 1");
    browser.click("#services tbody tr:nth-child(2) input");
    browser.click(".acts [value=maint]");
    browser.until("document.querySelector('#main .note')?.innerText === 'Done.'");
    browser.until(
        "document.querySelector('#services tbody tr:nth-child(2)')?.className === 'maintain'",
    );
    assert_eq!(
        browser.text("location.href.split('/').pop()"),
        ";st=DONE?q=s7"
    );
    no_complaints(&browser);
}

#[test]
fn it_fits_a_phone_and_has_a_dark_side() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let long = "n".repeat(150);
    let text = format!(
        "version: 1\nfrontends: [{{name: {long}, bind: [\"127.0.0.1:0\", \"[::1]:0\"], protocol: tcp, service: {long}}}]\nservices: [{{name: {long}, endpoints: [{{address: \"[2001:db8:1234:5678:9abc:def0:1234:5678]:65535\", node: {long}, state: draining}}, {{address: \"127.0.0.1:9\", name: {long}}}]}}]\n"
    );
    let ballast = guarded(&text);
    let phone = json!({"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": true});
    browser.command("Emulation.setDeviceMetricsOverride", &phone);
    browser.go(&format!(
        "http://anna:secret@{}/",
        ballast.running.admin()[0]
    ));
    browser.until("document.getElementById('live').className === 'on'");
    let width = browser.value("document.documentElement.scrollWidth");
    assert!(width.as_u64() <= Some(375), "{width}");

    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.text(ground);
    browser.click("#theme");
    let dark = browser.text(ground);
    assert_ne!(light, dark);
    browser.reload();
    assert_eq!(browser.text(ground), dark, "it is remembered");
    browser.click("#theme");
    assert_eq!(browser.text(ground), light);
    browser.value("localStorage.clear()");
    let prefers = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.command("Emulation.setEmulatedMedia", &prefers);
    browser.reload();
    assert_eq!(browser.text(ground), dark, "as the system has it");
    no_complaints(&browser);
}

#[test]
fn two_thousand_services_are_quick() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let ballast = Ballast::serve(&many(2000, 10), 1);
    let begun = Instant::now();
    browser.go(&origin(&ballast));
    browser.until("document.querySelectorAll('.head').length === 50");
    let loaded = begun.elapsed();
    browser.until("document.getElementById('live').className === 'on'");
    let begun = Instant::now();
    browser.type_into("#search [name=q]", "s1999");
    browser.until("document.querySelectorAll('.head').length === 1");
    println!(
        "2,000 services: loaded in {loaded:?}, searched in {:?}",
        begun.elapsed()
    );
    browser.until("document.getElementById('live').className === 'on'");
    no_complaints(&browser);
}

fn origin(ballast: &Ballast) -> String {
    format!("http://{}", ballast.running.admin()[0])
}

/// With a file that knows an admin.
fn guarded(table: &str) -> Ballast {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, crate::admin::client::USERS).unwrap();
    serve_as(table, 1, |config| config.stats_auth_file = Some(users))
}

fn no_complaints(browser: &Browser) {
    // Chromium's own pages complain now and then of themselves.
    let mut complaints = browser.console();
    complaints.retain(|line| !line.contains("chrome://"));
    assert_eq!(complaints, [""; 0]);
}
