//! What haproxy 2.6 was seen to do with a configuration, and what the table does in its place.

use super::import;
use super::lines::{assert_left_out, remarks, table};

const BACKENDS: &str =
    "backend b\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\nbackend nowhere\n";

/// A frontend with these lines.
fn of(mode: &str, lines: &str) -> String {
    format!("defaults\n mode {mode}\nfrontend f\n bind 127.0.0.1:80\n{lines}\n{BACKENDS}")
}

fn has(text: &str, part: &str) {
    let made = import(text).table;
    assert!(made.contains(part), "{text}\n{made}");
}

fn assert_closed(text: &str) {
    let made = import(text).table;
    assert!(!made.contains("\nfrontends:"), "{text}\n{made}");
}

/// One of `defaults` is for the rules of `defaults` alone, and one of a section for its own rules.
#[test]
fn acls_of_defaults_are_not_those_of_a_section() {
    let text = |own: &str, rule: &str| {
        format!(
            "defaults d\n mode http\n acl ok src 10.0.0.0/8\n http-request deny deny_status 429 unless ok\nfrontend f from d\n bind 127.0.0.1:80\n{own} http-request {rule}\n default_backend b\ndefaults\n mode http\n{BACKENDS}"
        )
    };
    let both = text(" acl ok src 192.0.2.0/24\n", "deny deny_status 429 if ok");
    has(&both, "source-ranges: [\"10.0.0.0/8\"]");
    assert_closed(&text("", "deny if ok"));
    assert_left_out(&text("", "deny if ok"), 7, "\"ok\" in this section");
}

#[test]
fn an_allow_spares_nobody_from_a_backend_without_servers() {
    for allow in ["before", "behind"] {
        let denied = " use_backend nowhere if { src 10.0.0.0/8 }\n";
        let allowed = " http-request allow if { src 10.0.0.0/8 }\n";
        let lines = match allow {
            "before" => format!("{allowed}{denied}"),
            _ => format!("{denied}{allowed}"),
        };
        let made = table(&of("http", &format!("{lines} default_backend b")));
        let default = made.frontends[0].default.as_ref().expect("a route");
        let ranges = default.source_ranges.as_ref().expect("ranges");
        assert!(
            ranges
                .iter()
                .all(|net| !net.contains(&"10.0.0.0/8".parse::<ipnet::IpNet>().expect("a net"))),
            "{ranges:?}"
        );
    }
}

/// haproxy answers 503 for a disabled backend, and what the rules of the other one say.
#[test]
fn clients_who_are_sent_to_a_backend_that_serves_nobody_are_denied() {
    for (line, answer) in [
        ("disabled", "denied: {status: 503}"),
        ("http-request deny deny_status 404", "denied: {status: 404}"),
        ("tcp-request content reject", "source-ranges"),
    ] {
        let text = of(
            "http",
            " use_backend c unless { src 10.0.0.0/8 }\n default_backend b",
        );
        let text = text.replace("backend c\n", &format!("backend c\n {line}\n"));
        let text = text.replacen(&format!("use_backend c\n {line}\n"), "use_backend c\n", 1);
        has(&text, "source-ranges: [\"10.0.0.0/8\"]");
        has(&text, answer);
    }
}

#[test]
fn two_pages_are_for_those_whom_both_let_in() {
    let page = |name: &str, port: u16, line: &str| {
        format!(
            "listen {name}\n mode http\n bind 127.0.0.1:{port}\n stats enable\n stats uri /\n {line}\n"
        )
    };
    let first = page("one", 8404, "http-request deny unless { src 10.0.0.0/8 }");
    let second = page(
        "two",
        8405,
        "http-request deny unless { src 10.1.0.0/16 192.0.2.0/24 }",
    );
    let both = format!("{first}{second}");
    has(&both, "source-ranges: [\"10.1.0.0/16\"]");
    assert_left_out(&both, 7, "for all addresses of the page");
    let other = page("two", 8405, "http-request deny unless { src 192.0.2.0/24 }");
    has(
        &format!("{first}{other}"),
        "stats: {bind: [\"127.0.0.1:8404\"], source-ranges: [\"10.0.0.0/8\"]}",
    );
}

#[test]
fn a_page_has_no_other_rules() {
    let page = |bind: &str, line: &str| {
        format!(
            "listen page\n mode http\n bind 127.0.0.1:8404{bind}\n bind 127.0.0.1:8405\n stats enable\n stats uri /\n {line}\n"
        )
    };
    let proxied = page(" accept-proxy", "");
    assert_left_out(&proxied, 3, "no PROXY header");
    has(&proxied, "stats: {bind: [\"127.0.0.1:8405\"]}");
    assert_left_out(&page("", "monitor-uri /up"), 7, "by itself");
    let some = page("", "redirect location /x unless { src 10.0.0.0/8 }");
    assert_left_out(&some, 7, "by itself");
    has(&some, "source-ranges: [\"10.0.0.0/8\"]");
    let start = page("", "redirect location /stats if { path / }");
    assert_left_out(&start, 7, "by itself");
    has(
        &start,
        "stats: {bind: [\"127.0.0.1:8404\", \"127.0.0.1:8405\"]}",
    );
    let allowed = page(
        "",
        "http-request allow if { src 10.0.0.0/8 }\n http-request deny",
    );
    has(&allowed, "source-ranges: [\"10.0.0.0/8\"]");
}

/// haproxy asks `block` lines before all others.
#[test]
fn a_block_stands_before_all_other_rules() {
    let text = of(
        "http",
        " http-request allow if { src 10.0.0.0/8 }\n block if { path_beg /x }\n block if { path_beg /y }\n default_backend b",
    );
    let made = table(&text);
    let routes = &made.frontends[0].routes;
    assert_eq!(routes.len(), 2);
    assert!(routes.iter().all(|route| route.status == Some(403)));
}

#[test]
fn who_must_begin_with_tls_does_so() {
    let inspect = " tcp-request inspect-delay 5s\n";
    let exact = |lines: &str, protocol: &str| {
        let text = of("tcp", &format!("{inspect}{lines}\n default_backend b"));
        assert_eq!(
            table(&text).frontends[0].protocol.to_string(),
            protocol,
            "{lines}"
        );
    };
    exact(
        " tcp-request content accept if { req.ssl_hello_type 1 }",
        "tcp",
    );
    exact(
        " tcp-request content accept if { req.ssl_hello_type 1 }\n tcp-request content reject",
        "tls",
    );
    exact(
        " tcp-request content reject if !{ req_ssl_hello_type 1 }",
        "tls",
    );
    exact(
        " tcp-request content accept if { req.ssl_hello_type 1 }\n use_backend c if { req.ssl_sni -i c.example }",
        "tls",
    );
    let lines = " acl tls req.ssl_hello_type 1\n use_backend c if tls\n default_backend b";
    let text = of("tcp", &format!("{inspect}{lines}"));
    assert_left_out(&text, 3, "do not begin with TLS are refused");
    has(&text, "default: {service: c}");
    assert_closed(&of(
        "tcp",
        " tcp-request content reject if { req.ssl_hello_type 1 }\n default_backend b",
    ));
    // Behind TLS, and in mode http, there is no hello.
    assert_closed(&of(
        "http",
        " tcp-request content reject unless { req.ssl_hello_type 1 }\n default_backend b",
    ));
}

#[test]
fn rules_on_a_port_that_another_rule_sets_close() {
    for set in [
        "http-request set-dst-port int(80)",
        "tcp-request content set-dst-port int(80)",
    ] {
        assert_closed(&of(
            "http",
            &format!(" {set}\n http-request deny unless {{ dst_port 80 }}\n default_backend b"),
        ));
        let chosen = of(
            "http",
            &format!(" {set}\n use_backend c if {{ dst_port 80 }}\n default_backend b"),
        );
        assert_left_out(&chosen, 6, "another port");
    }
}

#[test]
fn of_a_list_only_the_pattern_is_lost_that_is_not_understood() {
    let text = of(
        "http",
        " acl bad path_reg ^/x$ ^/(a|b)c ^/[a-z]$\n http-request deny if bad\n default_backend b",
    );
    assert_left_out(&text, 5, "and 1 more");
    assert_left_out(&text, 6, "this part of the line");
    has(&text, "{path: /x, match: exact, status: 403}");
    // Whom none of the patterns finds is not known.
    assert_not_open(&text.replace("if bad", "unless bad"));
}

fn assert_not_open(text: &str) {
    let made = import(text).table;
    assert!(!made.contains("default: {service: b}"), "{text}\n{made}");
}

/// haproxy finds there what has come of a request so far.
#[test]
fn paths_in_mode_tcp_are_not_understood() {
    let chosen = of(
        "tcp",
        " use_backend c if { path_beg /x }\n default_backend b",
    );
    assert_left_out(&chosen, 5, "no request is looked at");
    has(&chosen, "protocol: tcp");
    assert_closed(&of(
        "tcp",
        " tcp-request content reject if { path_beg /x }\n default_backend b",
    ));
    assert!(!remarks(&chosen).is_empty());
}
