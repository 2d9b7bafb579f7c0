//! Hosts: accepted, refused and equal ones. Classes of statuses. Kinds of fields.

use super::{FieldKind, Host, StatusClass};

#[test]
fn accepted_hosts() {
    #[rustfmt::skip]
    let rows: [(&str, &str, Option<u16>); 13] = [
        ("example.com",             "example.com",           None),
        ("Example.COM:8080",        "Example.COM",           Some(8080)),
        ("example.com.",            "example.com.",          None),
        ("example.com:",            "example.com",           None),
        ("example.com:1",           "example.com",           Some(1)),
        ("example.com:65535",       "example.com",           Some(65535)),
        ("example.com:00080",       "example.com",           Some(80)),
        ("a_b-c.example",           "a_b-c.example",         None),
        ("192.0.2.1:80",            "192.0.2.1",             Some(80)),
        ("[::1]",                   "[::1]",                 None),
        ("[2001:DB8::1]:443",       "[2001:DB8::1]",         Some(443)),
        ("[::ffff:192.0.2.1]",      "[::ffff:192.0.2.1]",    None),
        ("[::1]:",                  "[::1]",                 None),
    ];
    for (text, name, port) in rows {
        assert_eq!(Host::parse(text), Some(Host { name, port }), "{text:?}");
    }
}

#[test]
fn refused_hosts() {
    let rows = [
        "",
        ":80",
        ".",
        ".example.com",
        "a..b",
        "a b",
        "a\tb",
        "user@example.com",
        "user:pass@example.com",
        "a#b",
        "a/b",
        "a?b",
        "a\\b",
        "a%41",
        "a,b",
        "a\"b",
        "ü.example",
        "example.com:0",
        "example.com:65536",
        "example.com:000080",
        "example.com:+80",
        "example.com:80:80",
        "[::1",
        "[::1]80",
        "[]",
        "[::1%eth0]",
        "[v1.a]",
        "[1.2.3.4]",
        "[example.com]",
        "::1",
        "[::1]:x",
        "a]",
    ];
    for text in rows {
        assert_eq!(Host::parse(text), None, "{text:?}");
    }
}

#[test]
fn the_same_host() {
    let same = |a, b, port| {
        let parse = |text| Host::parse(text).expect("a host");
        parse(a).is_same(parse(b), port)
    };
    assert!(same("example.com", "EXAMPLE.com", 80));
    assert!(same("example.com", "example.com:80", 80));
    assert!(same("example.com:443", "example.com", 443));
    assert!(same("[::A]", "[::a]:80", 80));
    assert!(!same("example.com", "example.com:443", 80));
    assert!(!same("example.com", "example.com.", 80));
    assert!(!same("a.example.com", "example.com", 80));
}

#[test]
fn classes_are_first_digits() {
    for (status, word) in [
        (100, "1xx"),
        (101, "1xx"),
        (200, "2xx"),
        (304, "3xx"),
        (499, "4xx"),
        (504, "5xx"),
        (600, "other"),
        (999, "other"),
    ] {
        assert_eq!(StatusClass::of(status).word(), word);
    }
    for (place, class) in StatusClass::ALL.into_iter().enumerate() {
        assert_eq!(class.index(), place);
    }
}

#[test]
fn fields_of_the_connection_are_known() {
    let of_connection = [
        "Connection",
        "Content-Length",
        "HTTP2-Settings",
        "keep-alive",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "transfer-encoding",
        "Upgrade",
    ];
    for name in of_connection {
        assert!(FieldKind::of(name).is_of_connection(), "{name}");
    }
    for name in [
        "grpc-status",
        "Host",
        "X-Checksum",
        "Connections",
        "X-Forwarded-For",
    ] {
        assert!(!FieldKind::of(name).is_of_connection(), "{name}");
    }
}
