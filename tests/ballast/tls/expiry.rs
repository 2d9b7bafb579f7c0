//! Certificates that are not valid any more, or not yet: they are served, and everybody who looks sees it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::tls::client::{config, visit};
use crate::tls::{exceptions, table};
use support::papers::Papers;
use support::{Ballast, echo_server, get};

#[test]
fn certificates_are_served_whatever_their_dates_and_are_told_with_them() {
    let papers = Papers::new();
    let now = now();
    let periods = [
        ("good", (now - 90 * DAY, now + 90 * DAY), "valid"),
        ("soon", (now - 90 * DAY, now + 6 * DAY), "expires-soon"),
        ("old", (now - 90 * DAY, now - DAY), "expired"),
        ("early", (now + DAY, now + 90 * DAY), "not-yet-valid"),
        // It is replaced every few days.
        ("short", (now - DAY, now + 5 * DAY), "valid"),
    ];
    for (name, period, _) in periods {
        let hosts = hosts(name);
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        papers.issue_for(name, &hosts, period);
    }
    let names = periods.map(|(name, ..)| name);
    let with_label = |table: String| table.replace("{name: f,", "{name: f, labels: {app: shop},");
    let ballast = Ballast::serve(&with_label(table(&papers, &names, "", echo_server())), 1);

    let shown = certificates(&ballast);
    for (place, (name, period, validity)) in periods.iter().enumerate() {
        assert_eq!(
            shown[place],
            json!({
                "file": papers.named(&format!("{name}.crt")),
                "names": hosts(name),
                "not_before": period.0,
                "not_after": period.1,
                "validity": validity,
            })
        );
    }
    let metrics = ballast.metrics();
    assert!(metrics.contains("# TYPE ballast_certificate_expiry_seconds gauge\n"));
    for (name, (_, end), _) in periods {
        let file = papers.named(&format!("{name}.crt"));
        let series = format!(
            "\nballast_certificate_expiry_seconds{{frontend=\"f\",certificate=\"{file}\",name=\"{name}.test\",label_app=\"shop\"}} {end}\n"
        );
        assert!(metrics.contains(&series), "{series}{metrics}");
    }
    let page = page(&ballast);
    assert!(page.contains(">CERT EXPIRED</b>"), "{page}");
    assert!(
        page.contains("old.crt (old.test, www.old.test) expired at "),
        "{page}"
    );
    assert!(
        page.contains("To look at, too: 2 more of this frontend"),
        "{page}"
    );

    // Clients decide themselves.
    let config = Arc::new(config(&papers));
    let come = |name: &str| visit(ballast.address(), &config, name).map(drop);
    come("good.test").unwrap();
    come("soon.test").unwrap();
    for (name, why) in [("old.test", "expired"), ("early.test", "not valid yet")] {
        let refused = come(name).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(exceptions(&ballast), [""; 0], "it listens as asked");
}

#[test]
fn a_certificate_that_expires_while_it_is_served_is_told_until_it_is_replaced() {
    let papers = Papers::new();
    let end = now() + 3;
    papers.issue_for("shop", &["shop.test"], (end - DAY, end));
    let ballast = Ballast::serve(&table(&papers, &["shop"], "", echo_server()), 1);
    let validity = |ballast: &Ballast| certificates(ballast)[0]["validity"].clone();
    if now() <= end {
        assert_eq!(validity(&ballast), "expires-soon");
        assert!(page(&ballast).contains(">CERT EXPIRES SOON</b>") || now() > end);
    }
    ballast.until(|ballast| validity(ballast) == "expired");
    assert!(page(&ballast).contains(">CERT EXPIRED</b>"));
    let wrong = |ballast: &Ballast| get(ballast.running.admin()[0], "/?show=wrong").1;
    assert!(wrong(&ballast).contains(">CERT EXPIRED</b>"));

    let end = now() + 90 * DAY;
    papers.issue_for("shop", &["shop.test"], (now() - DAY, end));
    ballast.until(|ballast| validity(ballast) == "valid");
    assert!(!page(&ballast).contains("CERT EXPIRE"));
    assert!(!wrong(&ballast).contains("CERT EXPIRE"));
    let metrics = ballast.metrics();
    let family = "ballast_certificate_expiry_seconds{";
    let series: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with(family))
        .collect();
    assert!(
        matches!(series[..], [one] if one.ends_with(&format!("}} {end}"))),
        "{series:?}"
    );
}

#[test]
fn one_certificate_twice_is_one_series_and_one_that_cannot_be_used_is_none() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("bad", &["bad.test"]);
    papers.write("bad.key", b"garbage");
    let names = ["shop", "shop", "bad"];
    let ballast = Ballast::serve(&table(&papers, &names, "", echo_server()), 1);
    let family = "ballast_certificate_expiry_seconds{";
    let metrics = ballast.metrics();
    let series = metrics.lines().filter(|line| line.starts_with(family));
    assert_eq!(series.count(), 1, "{metrics}");
    assert_eq!(certificates(&ballast).as_array().unwrap().len(), 2);
    // A frontend without TLS says nothing of certificates.
    ballast.swap(&support::table("", "", &[echo_server()]));
    ballast.until(|ballast| certificates(ballast).is_null());
    assert!(!ballast.metrics().contains(family));
}

fn hosts(name: &str) -> Vec<String> {
    vec![format!("{name}.test"), format!("www.{name}.test")]
}

/// What `/api/snapshot` says of the certificates of the frontend.
fn certificates(ballast: &Ballast) -> Value {
    let (_, body) = get(ballast.running.admin()[0], "/api/snapshot");
    let mut snapshot: Value = serde_json::from_str(&body).expect("JSON");
    snapshot["frontends"][0]["certificates"].take()
}

fn page(ballast: &Ballast) -> String {
    get(ballast.running.admin()[0], "/").1
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a date after 1970").as_secs()
}

const DAY: u64 = 86_400;
