//! Certificates that the table offers for names of its own choice.

use std::sync::Arc;

use crate::tls::client::{config, visit};
use crate::tls::{exceptions, table_of};
use support::papers::Papers;
use support::{Ballast, echo_server};

#[test]
fn a_certificate_is_offered_for_the_names_that_the_table_says() {
    let papers = Papers::new();
    papers.issue("first", &["first.test", "c.star.test"]);
    papers.issue("star", &["*.star.test", "star.test"]);
    papers.issue("next", &["a.star.test", "b.star.test"]);
    let entries = [
        papers.entry("first"),
        offered(&papers, "star", "a.star.test, '*.star.test'"),
        offered(&papers, "next", "B.star.test"),
    ];
    for unknown in ["default", "refuse"] {
        let more = format!(", unknown-name: {unknown}");
        let ballast = Ballast::serve(&table_of(&entries, &more, echo_server()), 1);
        let shown = |name: &str| shown(&ballast, &papers, name);
        for (name, expected) in [
            // It is in two certificates, and offered by one.
            ("a.star.test", "star"),
            ("b.star.test", "next"),
            // The exact name goes first, as always: it is read from the certificate.
            ("c.star.test", "first"),
            ("x.star.test", "star"),
        ] {
            let (chain, _) = papers.pair(expected);
            assert!(shown(name).unwrap() == chain[0].to_vec(), "{name}");
        }
        // This name is in a certificate, and is not offered.
        let failed = shown("star.test").unwrap_err().to_string();
        let expected = match unknown {
            "default" => "not valid for name",
            _ => "AccessDenied",
        };
        assert!(failed.contains(expected), "{failed}");
        assert_eq!(exceptions(&ballast), [""; 0]);
    }
}

#[test]
fn of_two_certificates_for_one_name_the_first_one_that_fits_is_shown() {
    let papers = Papers::new();
    papers.issue("one", &["*.star.test"]);
    papers.issue("two", &["*.star.test"]);
    let hosts = ["a.star.test, b.star.test", "b.star.test, c.star.test"];
    let entries = [
        offered(&papers, "one", hosts[0]),
        offered(&papers, "two", hosts[1]),
    ];
    let ballast = Ballast::serve(&table_of(&entries, "", echo_server()), 1);
    for (name, expected) in [
        ("a.star.test", "one"),
        ("b.star.test", "one"),
        ("c.star.test", "two"),
        ("d.star.test", "one"),
    ] {
        let (chain, _) = papers.pair(expected);
        let shown = shown(&ballast, &papers, name).unwrap();
        assert!(shown == chain[0].to_vec(), "{name}");
    }
    // Other names are another configuration, though the files are the same.
    let entries = [
        offered(&papers, "one", hosts[1]),
        offered(&papers, "two", hosts[0]),
    ];
    ballast.swap(&table_of(&entries, "", echo_server()));
    let (chain, _) = papers.pair("two");
    ballast.until(|ballast| {
        let shown = shown(ballast, &papers, "a.star.test");
        shown.expect("a visit") == chain[0].to_vec()
    });
}

#[test]
fn the_names_of_a_certificate_that_cannot_be_read_are_refused() {
    let papers = Papers::new();
    papers.issue("good", &["good.test"]);
    papers.issue("bad", &["bad.test", "other.test"]);
    papers.write("bad.crt", b"garbage");
    let entries = [papers.entry("good"), offered(&papers, "bad", "bad.test")];
    let ballast = Ballast::serve(&table_of(&entries, "", echo_server()), 1);
    let shown = |name: &str| shown(&ballast, &papers, name);
    shown("good.test").unwrap();
    let why = shown("bad.test").unwrap_err().to_string();
    assert!(why.contains("AccessDenied"), "{why}");
    // Without `hosts` nobody could know its names, and the first certificate would be for them.
    let why = shown("other.test").unwrap_err().to_string();
    assert!(why.contains("not valid for name"), "{why}");
    let why = exceptions(&ballast);
    assert!(
        why.len() == 1 && why[0].contains("bad.crt: has no certificate"),
        "{why:?}"
    );
    papers.issue("bad", &["bad.test"]);
    ballast.until(|_| shown("bad.test").is_ok());
    ballast.until(|ballast| exceptions(ballast).is_empty());
}

/// The entry of `certificates` with these names.
fn offered(papers: &Papers, name: &str, hosts: &str) -> String {
    let entry = papers.entry(name);
    let open = entry.strip_suffix('}').expect("an entry");
    format!("{open}, hosts: [{hosts}]}}")
}

/// The certificate that a client of this name is shown.
fn shown(ballast: &Ballast, papers: &Papers, name: &str) -> std::io::Result<Vec<u8>> {
    let config = Arc::new(config(papers));
    visit(ballast.address(), &config, name).map(|tls| tls.certificate())
}
