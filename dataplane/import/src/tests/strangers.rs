//! What an import once said wrongly, or not at all, of configurations that others wrote.

use super::import;
use super::lines::{assert_left_out, assert_noted, of_backend, of_frontend, remarks, table};
use super::tried::{has, of};

/// haproxy answers 503 for A.test and a.test:1.
#[test]
fn names_that_lead_to_a_backend_alone_are_told() {
    for condition in ["{ hdr(host) a.test }", "{ hdr(host) -i a.test }"] {
        let alone = of("http", &format!(" use_backend b if {condition}"));
        assert_left_out(&alone, 5, "leads these to no backend");
        table(&of(
            "http",
            &format!(" use_backend b if {condition}\n use_backend c"),
        ));
        table(&of(
            "http",
            &format!(" use_backend b if {condition}\n default_backend c"),
        ));
    }
}

/// haproxy leads them to the default backend.
#[test]
fn connections_without_tls_are_told_where_names_lead() {
    let lines = " tcp-request inspect-delay 1s\n tcp-request content accept if { req.ssl_hello_type 1 }\n use_backend b if { req.ssl_sni -i b.example }";
    let text = of("tcp", &format!("{lines}\n default_backend c"));
    assert_left_out(&text, 3, "do not begin with TLS are refused");
    table(&of("tcp", lines));
}

#[test]
fn a_repeated_attempt_goes_elsewhere() {
    let servers = " server s 10.0.0.1:80\n server t 10.0.0.2:80";
    assert_noted(&of_backend(servers), 0, "another endpoint");
    assert_noted(
        &of_backend(&format!(" retries 2\n{servers}")),
        5,
        "another endpoint",
    );
    for line in ["option redispatch", "retries 0"] {
        let told = remarks(&of_backend(&format!(" {line}\n{servers}"))).join("\n");
        assert!(!told.contains("another endpoint"), "{told}");
    }
}

#[test]
fn checks_with_a_proxy_header_are_told() {
    let of = |words: &str| of_backend(&format!(" server s 10.0.0.1:80 check {words}"));
    table(&of("check-send-proxy send-proxy"));
    table(&of("check-send-proxy send-proxy-v2 port 80"));
    table(&of("check-send-proxy no-check-send-proxy"));
    for words in ["check-send-proxy", "check-send-proxy send-proxy port 81"] {
        assert_left_out(&of(words), 5, "sends a PROXY header where");
    }
}

#[test]
fn versions_of_tls_that_a_table_does_not_follow_are_told() {
    let bind = |words: &str| of_frontend(&format!(" bind 127.0.0.1:443 ssl crt /a.pem {words}"));
    for (words, why) in [
        ("ssl-max-ver TLSv1.2", "TLS 1.3 is spoken"),
        ("force-tlsv12", "TLS 1.3 is spoken"),
        ("no-tlsv13", "TLS 1.3 is spoken"),
        ("ssl-min-ver TLSv1.0", "older versions"),
    ] {
        assert_left_out(&bind(words), 2, why);
        let global = format!("global\n ssl-default-bind-options {words}\n{}", bind(""));
        assert_left_out(&global, 2, why);
    }
    assert_noted(&bind("no-tls-tickets"), 2, "gives tickets");
    for words in ["ssl-min-ver TLSv1.3", "no-tlsv12", "force-tlsv13"] {
        let global = format!("global\n ssl-default-bind-options {words}\n{}", bind(""));
        for text in [bind(words), global] {
            table(&text);
            has(&text, "min-version: \"1.3\"");
        }
    }
    table(&bind(
        "ssl-min-ver TLSv1.2 no-sslv3 no-tlsv10 no-tlsv11 tls-tickets",
    ));
    has(
        &of_frontend(" bind 127.0.0.1:443 ssl tls-tickets crt /a.pem"),
        "/a.pem",
    );
    let server =
        |words: &str| of_backend(&format!(" server s 10.0.0.1:443 ssl verify none {words}"));
    assert_left_out(&server("ssl-min-ver TLSv1.3"), 5, "TLS 1.2 is spoken");
    assert_left_out(&server("force-tlsv12"), 5, "TLS 1.3 is spoken");
    table(&server("ssl-min-ver TLSv1.2 no-tlsv11"));
    let global = format!(
        "global\n ssl-default-server-options no-tlsv12\n{}",
        server("")
    );
    assert_left_out(&global, 2, "TLS 1.2 is spoken");
}

/// The notes of such a frontend would be about what is not there.
#[test]
fn a_frontend_that_is_left_out_has_no_notes() {
    let text = of_frontend(
        " bind 127.0.0.1:80\n stick-table type ip size 1k expire 1s store conn_cur\n tcp-request connection track-sc0 src\n tcp-request connection reject if { sc0_conn_cur gt 5 }\n tcp-request connection reject if { src -f /nowhere }",
    );
    let told = remarks(&text).join("\n");
    assert!(!told.contains("it is max-connections-per-client"), "{told}");
    assert!(!import(&text).table.contains("\nfrontends:"));
}

/// A route sends nobody elsewhere than others, but denies whom a backend denies there.
#[test]
fn who_is_sent_to_a_backend_is_denied_what_it_denies_them() {
    let text = |rules: &str| {
        let lines = " use_backend m if { src 10.0.0.0/8 }\n default_backend b";
        let text = of("http", lines);
        format!("{text}backend m\n{rules}\n server s 10.0.0.9:80\n")
    };
    let some = text(" http-request deny deny_status 404 if { path_beg /x }");
    assert_left_out(&some, 5, "go elsewhere");
    let made = import(&some).table;
    let (_, route) = made.split_once("path: /x").expect("a route");
    assert!(route.contains("denied: {status: 404}"), "{made}");
    // Two answers, of which a route has one.
    let two = text(" http-request deny if { src 10.0.0.0/9 }").replace("9:80\n", "9:80 disabled\n");
    assert_left_out(&two, 5, "otherwise");
    let but = text(" http-request deny unless { path /ok }");
    assert_left_out(&but, 5, "whatever they ask for");
    assert!(!import(&but).table.contains("path: /ok"), "{but}");
    let answers = text(" http-request return status 200 if { path /ok }\n http-request deny");
    let made = import(&answers).table;
    let (_, route) = made.split_once("path: /ok").expect("a route");
    assert!(route.contains("denied: {status: 200}"), "{made}");
    table(&answers);
}

/// Each needs a route of its own, and not one beside every path.
#[test]
fn many_hosts_with_a_path_each_are_served() {
    let lines = (0..400).map(|at| {
        format!(
            " acl h{at} hdr(host) -i h{at}.test\n acl p{at} path_beg /p{at}\n use_backend b if h{at} p{at}\n"
        )
    });
    let lines: String = lines.collect();
    let text = of("http", &format!("{lines} default_backend c"));
    assert_eq!(table(&text).frontends[0].routes.len(), 400);
}

#[test]
fn many_denials_are_one() {
    let nets = (0..60).map(|at| format!("10.0.{at}.0/24"));
    let paths: String = (0..20)
        .map(|at| format!(" use_backend c if {{ path_beg /p{at} }}\n"))
        .collect();
    let text = |denials: &str| of("http", &format!("{denials}{paths} default_backend b"));
    let lines: String = nets
        .clone()
        .map(|net| format!(" http-request deny if {{ src {net} }}\n"))
        .collect();
    let nets: Vec<String> = nets.collect();
    let one = format!(" http-request deny if {{ src {} }}\n", nets.join(" "));
    let (many, one) = (table(&text(&lines)), table(&text(&one)));
    assert_eq!(many, one);
    // Another answer stays another one.
    let other = lines + " http-request deny deny_status 404 if { src 10.1.0.0/16 }\n";
    assert_left_out(&text(&other), 65, "a route answers all alike");
}

#[test]
fn connections_that_another_service_would_have_are_told() {
    for action in ["use-service lua.x", "set-dst ipv4(10.0.0.1)"] {
        let line = format!(" tcp-request content {action} if {{ src 10.0.0.0/8 }}");
        let text = of("tcp", &format!("{line}\n default_backend b"));
        assert_left_out(&text, 5, "go on to the backend");
    }
}

/// haproxy looks for them by itself.
#[test]
fn keys_and_answers_of_ocsp_beside_certificates_are_in_the_table() {
    let text = |global: &str, file: &str| {
        let bind = of_frontend(&format!(" bind 127.0.0.1:443 ssl crt /etc/ssl/{file}"));
        format!("global\n{global}\n{bind}")
    };
    for (global, file, expected) in [
        (
            "",
            "split.crt",
            "key: /etc/ssl/split.crt.key, ocsp: /etc/ssl/split.crt.ocsp}",
        ),
        (
            " ssl-load-extra-files key",
            "split.crt",
            "key: /etc/ssl/split.crt.key}",
        ),
        (
            " ssl-load-extra-files none",
            "split.crt",
            "cert: /etc/ssl/split.crt}",
        ),
        (
            " ssl-load-extra-del-ext",
            "split.crt",
            "key: /etc/ssl/split.key}",
        ),
        ("", "whole.pem", "cert: /etc/ssl/whole.pem}"),
    ] {
        table(&text(global, file));
        has(&text(global, file), expected);
    }
}
