//! The addresses that the announcer of this host holds, as the page shows them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::crowd::serve_as;
use support::{Ballast, get, named_server, table};

use super::browser::Browser;
use super::{no_complaints, origin};

#[test]
fn held_addresses_are_listed_with_their_age_their_way_and_why_others_are_not_held() {
    let (ballast, path, _folder) = beside_an_announcer();
    replace(&path, &ack());
    let page = page(&ballast, "/");
    for words in [
        "<small>1 of 5 held here</small>",
        "<b>192.0.2.10</b><small class=\"narrow\"></small></td><td class=\"status\"><b class=\"st open\">HELD</b></td><td>L2</td><td class=\"n\">2 min</td><td class=\"w\">edge1</td>",
        "<b>192.0.2.11</b><small class=\"narrow\">edge2 is to hold it</small></td><td class=\"status\"><b class=\"st\">ELSEWHERE</b></td><td>L2</td>",
        "edge2 is to hold it",
        ">NOT READY</b></td><td>BGP</td>",
        "the data plane is not ready",
        "<b>2001:db8::10</b><small class=\"narrow\">&lt;b&gt;no interface&lt;/b&gt;</small></td><td class=\"status\"><b class=\"st stop\">NO INTERFACE</b></td>",
        "&lt;b&gt;no interface&lt;/b&gt;",
        ">CONFLICT</b>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("does not run"), "{page}");
    // What needs a look comes first.
    let place = |words: &str| page.find(words).unwrap_or_default();
    assert!(place(">CONFLICT</b>") < place(">HELD</b>"));
    // A search, and what is wrong.
    let found = self::page(&ballast, "/?q=edge2");
    assert!(
        found.contains("<b>192.0.2.11</b>") && !found.contains("<b>192.0.2.10</b>"),
        "{found}"
    );
    let wrong = self::page(&ballast, "/?show=wrong");
    assert!(
        wrong.contains(">CONFLICT</b>") && !wrong.contains(">HELD</b>"),
        "{wrong}"
    );
    // Without the flag there is nothing of it.
    let without = Ballast::serve(&table("", "", &[named_server("a")]), 1);
    let page = self::page(&without, "/");
    assert!(!page.contains("id=\"addresses\""), "{page}");
}

#[test]
fn an_ack_that_is_not_there_or_old_or_none_is_said_and_clients_are_served() {
    let (ballast, path, folder) = beside_an_announcer();
    let says = |what: &str, words: &str| {
        let said = support::comes_within(PATIENCE, || page(&ballast, "/").contains(words));
        assert!(said, "{what}: {words}: {}", page(&ballast, "/"));
        assert!(support::ask(ballast.address()).is_ok(), "{what}");
    };
    says("none", "is not there: see that the announcer of this host");
    replace(&path, &json!({"version": 1, "addresses": "secret words"}));
    says("another file", "is no ack of an announcer");
    assert!(!page(&ballast, "/").contains("secret words"));
    replace(&path, &json!({"version": 2, "addresses": []}));
    says(
        "a newer one",
        "is of version 2, and this page reads version 1",
    );
    let mut refused = ack();
    refused["refused"] = json!({"problems": [{"at": "addresses[0].mode", "why": "is l3"}]});
    replace(&path, &refused);
    says("a refused file", "addresses[0].mode: is l3");
    let hour = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_modified(hour))
        .unwrap();
    says(
        "an old one",
        "The announcer of this host does not run: this is what it said last, 1 h 0 min ago",
    );
    assert!(!page(&ballast, "/").contains("st open\">HELD"));
    // What would block, or never end.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    says("a device", "is a device, not a file");
    fs::remove_file(&path).unwrap();
    let large = fs::File::create(&path).unwrap();
    large.set_len(9 << 20).unwrap();
    says("a large one", "has more than 8 MiB");
    drop(folder);
}

#[test]
fn an_address_that_moves_is_seen_without_a_reload() {
    let Some(browser) = Browser::open() else {
        return;
    };
    let (ballast, path, _folder) = beside_an_announcer();
    replace(&path, &ack());
    browser.go(&origin(&ballast));
    browser.until("document.getElementById('live').className === 'on'");
    browser.value("window.same = true");
    let of = |address: &str| {
        format!("document.getElementById('a{address}')?.querySelector('.status').innerText")
    };
    browser.until(&format!("{} === 'HELD'", of("192.0.2.10")));
    let mut moved = ack();
    moved["addresses"][0]["state"] = json!("not-ours");
    moved["addresses"][0]["owner"] = json!("edge3");
    replace(&path, &moved);
    browser.until(&format!("{} === 'ELSEWHERE'", of("192.0.2.10")));
    browser.until("document.querySelector('#addresses h2').innerText.includes('0 of 5')");
    fs::remove_file(&path).unwrap();
    browser.until("document.getElementById('announcer')?.innerText.includes('is not there')");
    replace(&path, &ack());
    browser.until("!document.getElementById('announcer')");
    // The columns of long words and times fit, too: none is cut off by the edge of the table.
    let mut long = ack();
    long["addresses"][1]["since"] =
        json!(long["addresses"][1]["since"].as_u64().unwrap() - DAYS_12);
    long["addresses"][2]["mode"] = json!("bgp");
    long["addresses"][3]["address"] = json!("2001:db8:1234:5678:9abc:def0:1234:5678");
    replace(&path, &long);
    browser.until("document.getElementById('addresses').innerText.includes('12 d 22 h')");
    for width in [400, 375, 360] {
        let phone = json!({"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": true});
        browser.command("Emulation.setDeviceMetricsOverride", &phone);
        let page = browser.value("document.documentElement.scrollWidth");
        assert!(page.as_u64() <= Some(width), "{page} of {width}");
        let hidden = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('#addresses .scroll'))";
        assert_eq!(browser.value(hidden), 0, "{width}");
    }
    assert_eq!(browser.value("window.same"), true);
    no_complaints(&browser);
}

/// A data plane that looks at the ack of an announcer.
fn beside_an_announcer() -> (Ballast, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("announce-ack.json");
    let named = Some(path.clone());
    let text = table("", "", &[named_server("a")]);
    let ballast = serve_as(&text, 1, |config| config.announce_ack = named);
    (ballast, path, folder)
}

fn page(ballast: &Ballast, address: &str) -> String {
    get(ballast.running.admin()[0], address).1
}

/// As the announcer writes it.
fn replace(path: &Path, ack: &Value) {
    let new = path.with_extension("new");
    fs::write(&new, ack.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

fn ack() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let since = u64::try_from(now.as_millis()).unwrap() - 150_000;
    let one = |address: &str, state: &str, owner: Option<&str>, detail: &str, mode: &str| json!({"address": address, "state": state, "owner": owner, "since": since, "detail": detail, "mode": mode});
    json!({
        "version": 1,
        "file-digest": "sha256:ab",
        "refused": null,
        "addresses": [
            one("192.0.2.10", "held", Some("edge1"), "", "l2"),
            one("192.0.2.11", "not-ours", Some("edge2"), "", "l2"),
            one("192.0.2.12", "not-ready", None, "the data plane is not ready", "bgp"),
            one("2001:db8::10", "no-interface", Some("edge1"), "<b>no interface</b>", "l2"),
            one("2001:db8::11", "conflict", Some("edge1"), "02:00:00:00:00:07 has it", "l2"),
        ],
    })
}

const PATIENCE: Duration = Duration::from_secs(10);
/// 12 days and 22 hours, in milliseconds.
const DAYS_12: u64 = (12 * 24 + 22) * 3_600_000;
