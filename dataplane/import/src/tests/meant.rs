//! Lines that another line, a backend or another form of a criterion gives another meaning, as haproxy 2.6 was seen to do.

use ballast_core::table::{Format, parse};

use super::import;
use super::lines::{assert_left_out, table};
use super::tried::{assert_closed, has, of};

fn assert_unlimited(text: &str) {
    let made = import(text).table;
    for limit in ["max-connections", "max-connection-rate"] {
        assert!(!made.contains(&format!("{limit}-per-client: ")), "{made}");
    }
}

#[test]
fn what_counts_clients_by_another_key_is_not_forgotten() {
    let text = |track: &str, criterion: &str| {
        let reject = format!(" tcp-request connection reject if {{ {criterion} gt 10 }}");
        let lines = format!("{track}\n{reject}\n default_backend b");
        of("tcp", &lines)
            + "backend st\n stick-table type ip size 10k expire 10s store conn_cur,conn_rate(1s)\n"
            + "backend other\n stick-table type ip size 10k expire 10s store conn_cur\n"
    };
    let src = " tcp-request connection track-sc0 src table st";
    for (track, line) in [
        (
            " tcp-request connection track-sc0 src,ipmask(32,64) table st".to_owned(),
            6,
        ),
        (
            " tcp-request content track-sc0 req.ssl_sni table st".to_owned(),
            6,
        ),
        // The first line of a number is the one that counts.
        (
            format!(" tcp-request connection track-sc0 src() table st\n{src}"),
            7,
        ),
        (format!(".if feature(QUIC)\n{src}\n.endif"), 8),
    ] {
        let text = text(&track, "sc0_conn_rate");
        let text = match track.contains("content") {
            true => text.replace("connection reject", "content reject"),
            false => text,
        };
        assert_left_out(&text, line, "what this line denies is served");
        assert_unlimited(&text);
    }
    has(&text(src, "sc0_conn_cur"), "max-connections-per-client: 10");
    has(
        &text(src, "sc0_conn_cur(st)"),
        "max-connections-per-client: 10",
    );
    let other = text(src, "sc0_conn_cur(other)");
    assert_left_out(&other, 6, "looks at another one");
    assert_unlimited(&other);
}

/// A backend that denies some of those who are sent to it, or all of them, does so where no route leads to it.
#[test]
fn who_is_sent_to_a_backend_that_denies_him_is_denied() {
    let text = |mode: &str, chosen: &str, lines: &str| {
        let text = of(
            mode,
            &format!(" use_backend dead if {chosen}\n default_backend b"),
        );
        format!("{text}backend dead\n{lines}\n server s 10.0.0.9:80\n")
    };
    let ten = "{ src 10.0.0.0/8 }";
    let all_but_ten = "\"8.0.0.0/7\", \"11.0.0.0/8\"";
    for lines in [
        " http-request deny if { src 10.0.0.0/8 }",
        " http-request deny if { src 10.0.0.0/9 }\n http-request deny if { src 10.128.0.0/9 }",
        " http-request allow unless { src 10.0.0.0/8 }\n http-request deny",
        " http-request return status 403",
        " tcp-request content reject if { src 10.0.0.0/8 }",
    ] {
        let text = text("http", ten, lines);
        has(&text, all_but_ten);
        table(&text);
    }
    has(
        &text(
            "http",
            ten,
            " http-request deny deny_status 404 if { src 10.0.0.0/7 }",
        ),
        "denied: {status: 404}",
    );
    let tcp = text(
        "tcp",
        ten,
        " tcp-request content reject if { src 10.0.0.0/8 }",
    );
    has(&tcp, all_but_ten);
    // Of a part, the others are told.
    let some = text("http", ten, " http-request deny if { src 10.0.0.0/9 }");
    has(&some, "\"10.128.0.0/9\"");
    assert!(!import(&some).table.contains("\"8.0.0.0/5\""), "{some}");
    assert_left_out(&some, 5, "go elsewhere");
    let by_path = text("http", ten, " http-request deny if { path_beg /x }");
    assert_left_out(&by_path, 5, "go elsewhere");
    let denied = parse(import(&by_path).table.as_bytes(), Format::Yaml).expect("a table");
    let denied = denied.frontends[0].routes.iter();
    let mut denied = denied.filter(|route| route.path() == "/x");
    assert!(denied.any(|route| route.source_ranges.is_some()));
    let but_path = text(
        "http",
        ten,
        " http-request allow if { path /x }\n http-request deny",
    );
    assert_left_out(&but_path, 5, "whatever they ask for");
    has(&but_path, all_but_ten);
    let by_host = text(
        "http",
        "{ src 10.0.0.0/8 } { hdr(host) -i a.example }",
        " http-request deny if { src 10.0.0.0/8 }",
    );
    has(&by_host, "default: {service: b}");
    has(&by_host, all_but_ten);
}

/// Without a method haproxy takes what holds or does not as it is, whatever stands behind it.
#[test]
fn what_holds_or_does_not_is_compared_by_a_method_alone() {
    for (criterion, holds) in [
        ("ssl_fc", false),
        ("ssl_fc()", false),
        ("ssl_fc 0", false),
        ("ssl_fc -m bool 0", false),
        ("ssl_fc -m int 0", true),
        ("always_true 0", true),
        ("always_false 1", false),
        ("always_false -m int 0 1", true),
    ] {
        let made = import(&of(
            "http",
            &format!(" http-request deny if {{ {criterion} }}\n default_backend b"),
        ))
        .table;
        assert_eq!(made.contains("service: b"), !holds, "{criterion}\n{made}");
    }
    for criterion in [
        "ssl_fc -m found",
        "ssl_fc -m str 0",
        "ssl_fc -m int 0:1",
        "always_false -m found",
    ] {
        assert_closed(&of(
            "http",
            &format!(" http-request deny if {{ {criterion} }}\n default_backend b"),
        ));
        let chosen = format!(" use_backend c if {{ {criterion} }}\n default_backend b");
        assert_left_out(&of("http", &chosen), 5, "no effect");
    }
}

#[test]
fn how_tls_begins_is_asked_in_several_forms() {
    for criterion in [
        "req.ssl_hello_type()",
        "req_ssl_hello_type",
        "req.ssl_hello_type,lower",
    ] {
        let text = of(
            "tcp",
            &format!(
                " tcp-request inspect-delay 5s\n tcp-request content reject if !{{ {criterion} 1 }}\n default_backend b"
            ),
        );
        assert_eq!(
            table(&text).frontends[0].protocol.to_string(),
            "tls",
            "{criterion}"
        );
    }
    let found =
        " tcp-request content reject if !{ req.ssl_hello_type -m len 1 }\n default_backend b";
    assert_closed(&of("tcp", found));
}

/// haproxy reads the requests of a section in mode tcp that go on in mode http, and asks all its rules.
#[test]
fn rules_about_requests_in_mode_tcp_are_asked_before_a_backend_in_mode_http() {
    let text = |lines: &str, mode: &str| {
        let text = of("tcp", &format!("{lines}\n default_backend h"));
        format!("{text}backend h\n mode {mode}\n server s 10.0.0.9:80\n")
    };
    for line in [
        "http-request deny if { path /x }",
        "http-request deny if { src 10.0.0.0/8 }",
        "redirect location /y if { path /x }",
        "monitor-uri /x",
    ] {
        let upgraded = text(&format!(" {line}"), "http");
        assert_closed(&upgraded);
        assert_left_out(&upgraded, 5, "haproxy asks it");
        let plain = text(&format!(" {line}"), "tcp");
        has(&plain, "service: h");
        let switched = text(
            &format!(" {line}\n tcp-request content switch-mode http"),
            "tcp",
        );
        assert_closed(&switched);
    }
    let block = ".if feature(QUIC)\n tcp-request content switch-mode http\n.endif\n http-request deny if { path /x }";
    assert_closed(&text(block, "tcp"));
    let edits = text("", "http").replace("mode http", "mode http\n option forwardfor");
    assert_left_out(&edits, 3, "in mode tcp they pass as they are");
    assert_closed(
        &text("", "http").replace("mode http", "mode http\n http-request deny if { path /x }"),
    );
}

#[test]
fn who_is_sent_to_a_backend_without_a_server_in_use_is_denied() {
    let text = |lines: &str| {
        let text = of(
            "http",
            " use_backend m if { src 10.0.0.0/8 }\n default_backend b",
        );
        format!("{text}backend m\n{lines}\n")
    };
    let disabled = text(" server s 10.0.0.9:80 disabled\n server t 10.0.0.10:80 disabled");
    has(&disabled, "denied: {status: 503}");
    let redirects = text(" http-request redirect location /y");
    has(&redirects, "denied: {status: 503}");
    assert_left_out(&redirects, 5, "answers some of their requests otherwise");
    let answers = text(" http-request return status 200");
    has(&answers, "denied: {status: 200}");
    table(&answers);
    let replaced = of(
        "http",
        " http-response return status 503\n default_backend b",
    );
    assert_left_out(&replaced, 5, "are served");
}

/// A path in any case that lies across one in a certain case is left out, and closes where the line denies in one way or another.
#[test]
fn a_denial_by_a_path_that_routes_cannot_tell_apart_closes() {
    let text = |line: &str| {
        let both = " acl api path_beg /api\n acl old path -i /api/v1\n";
        of(
            "http",
            &format!("{both} {line} if api old\n default_backend b"),
        ) + "backend off\n server s 10.0.0.9:80 disabled\nbackend no\n http-request deny\n server s 10.0.0.9:80\n"
    };
    for line in [
        "use_backend nowhere",
        "use_backend off",
        "use_backend no",
        "http-request return status 410",
    ] {
        assert_closed(&text(line));
        assert_left_out(&text(line), 7, "lies across");
    }
    has(&text("use_backend c"), "default: {service: b}");
}

#[test]
fn addresses_of_ipv6_with_one_of_ipv4_inside_are_told_where_they_are_denied() {
    let text = |bind: &str, rule: &str| {
        of("http", &format!(" {rule}\n default_backend b")).replace("127.0.0.1:80", bind)
    };
    let both = "2002:cb00:7100::/40 ::203.0.113.0/120";
    for rule in ["http-request deny", "tcp-request connection reject"] {
        let denied = format!("{rule} if {{ src 203.0.113.0/24 }}");
        assert_left_out(&text("[::1]:80", &denied), 5, "6to4");
        assert_left_out(&text("127.0.0.1:80 accept-proxy", &denied), 5, "");
        table(&text("127.0.0.1:80", &denied));
        let whole = denied.replace(" }", &format!(" {both} }}"));
        table(&text("[::1]:80", &whole));
        table(&text(
            "[::1]:80",
            &format!("{rule} unless {{ src 203.0.113.0/24 }}"),
        ));
    }
}

#[test]
fn what_an_allow_ends_and_what_a_check_does_not_look_at_is_told() {
    let allow = "http-request allow if { path /x }";
    let set = "http-request set-header X-A 1";
    let text = |lines: &str| of("http", &format!(" {lines}\n default_backend b"));
    assert_left_out(&text(&format!("{allow}\n {set}")), 6, "asks no more lines");
    table(&text(&format!("{set}\n {allow}")));
    let check = of("tcp", " default_backend b").replace(
        "backend b\n server s 10.0.0.1:80",
        "backend b\n option ssl-hello-chk\n server s 10.0.0.1:80 check",
    );
    assert_left_out(&check, 7, "a TLS greeting is answered");
}
