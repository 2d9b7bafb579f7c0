//! What haproxy restricts is not open to more clients in the table, however it is written.

use super::lines::{assert_left_out, of_frontend, remarks, table};
use super::{Format, import, parse};

/// The clients whom the first frontend lets in; an empty text: all.
fn clients(text: &str) -> String {
    let table = parse(import(text).table.as_bytes(), Format::Yaml).expect("a good table");
    let frontend = &table.frontends[0];
    let default = frontend.default.as_ref();
    // Requests are denied by routes, with an answer.
    let of_routes = default.and_then(|route| route.source_ranges.as_ref());
    let ranges = frontend.source_ranges.as_ref().or(of_routes);
    let ranges = ranges.iter().flat_map(|ranges| ranges.iter());
    let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
    ranges.join(" ")
}

#[test]
fn who_is_dropped_silently_is_refused() {
    for lines in [
        " mode http\n http-request silent-drop unless { src 10.0.0.0/8 }",
        " mode http\n http-request tarpit unless { src 10.0.0.0/8 }",
        " mode http\n http-request reject unless { src 10.0.0.0/8 }",
        " tcp-request connection silent-drop unless { src 10.0.0.0/8 }",
        " tcp-request session silent-drop rst-ttl 3 unless { src 10.0.0.0/8 }",
        " tcp-request content silent-drop if !{ src 10.0.0.0/8 }",
        " tcp-request session reject if !{ src 10.0.0.0/8 }",
    ] {
        let text = of_frontend(&format!(" bind 127.0.0.1:80\n{lines}"));
        assert_eq!(clients(&text), "10.0.0.0/8", "{lines}");
        let waits = remarks(&text);
        let waits = waits
            .iter()
            .any(|remark| remark.contains("not left waiting"));
        let is_http = lines.contains("http-request");
        let is_told = lines.contains("tarpit") || lines.contains("silent-drop") && !is_http;
        assert_eq!(waits, is_told, "{lines}");
        // haproxy answers nothing, or does not even end the connection.
        let is_alike = match is_http {
            true => lines.contains("tarpit"),
            false => lines.contains("reject"),
        };
        let left_out = import(&text).report.unlike();
        assert_eq!(left_out == 0, is_alike, "{lines}");
    }
}

/// A bind for some clients only, which Ballast cannot tell from others, is left out.
#[test]
fn a_bind_that_cannot_be_restricted_is_left_out() {
    let tls = "ssl crt /a.pem";
    for (words, why) in [
        ("interface wg0".to_owned(), "whichever interface"),
        ("namespace blue".into(), "network namespace"),
        (
            format!("{tls} verify required ca-file /ca.pem crl-file /crl.pem"),
            "revoked",
        ),
        (
            format!("{tls} verify optional crl-file /crl.pem ca-file /ca.pem"),
            "revoked",
        ),
        (
            format!("{tls} verify required ca-file @system-ca"),
            "names no file",
        ),
        (
            "ssl crt-list /etc/haproxy/crt-list verify none".into(),
            "asks clients for certificates",
        ),
    ] {
        let text = of_frontend(&format!(" bind 127.0.0.1:80\n bind 127.0.0.1:81 {words}"));
        assert_left_out(&text, 3, why);
        let imported = import(&text);
        assert!(
            imported.table.contains("bind: [\"127.0.0.1:80\"]"),
            "{words}\n{}",
            imported.table
        );
        assert!(
            !imported.table.contains("127.0.0.1:81\""),
            "{words}\n{}",
            imported.table
        );
        assert!(
            !imported.table.contains("system-ca\""),
            "{words}\n{}",
            imported.table
        );
    }
    // A bind that asks no client for a certificate needs neither of these files.
    let text = of_frontend(&format!(
        " bind 127.0.0.1:80 {tls} verify none ca-file @system-ca crl-file /crl.pem"
    ));
    assert!(!table(&text).frontends.is_empty());
}

#[test]
fn rules_of_access_in_a_backend_hold() {
    let of = |mode: &str, rule: &str| {
        format!(
            "defaults\n mode {mode}\nfrontend f\n bind 127.0.0.1:80\n default_backend b\nbackend b\n {rule}\n server s 10.0.0.1:80\n"
        )
    };
    for mode in ["tcp", "http"] {
        for rule in ["reject", "silent-drop"] {
            let text = of(
                mode,
                &format!("tcp-request content {rule} if !{{ src 10.0.0.0/8 }}"),
            );
            assert_eq!(clients(&text), "10.0.0.0/8", "{mode} {rule}");
        }
        for rule in [
            "tcp-request content reject if !{ src -f /nowhere }",
            "tcp-request content reject",
        ] {
            let imported = import(&of(mode, rule));
            assert!(
                !imported.table.contains("service: b"),
                "{mode} {rule}\n{}",
                imported.table
            );
        }
    }
    // Of two backends one is closed, and the other one is not.
    let text = "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n use_backend a if { path_beg /a }\n default_backend b\nbackend a\n tcp-request content reject unless { src 10.0.0.0/8 }\n server s 10.0.0.1:80\nbackend b\n server s 10.0.0.2:80\n";
    let table = table(text);
    let ranges = table.frontends[0].routes[0].source_ranges.as_ref();
    assert_eq!(
        ranges.map(|ranges| ranges[0].to_string()).as_deref(),
        Some("10.0.0.0/8")
    );
    assert_eq!(table.frontends[0].source_ranges, None);
}

/// Some clients get an answer in place of the service: they do not get the service instead.
#[test]
fn who_is_answered_otherwise_is_denied() {
    for rules in [
        " http-request return status 403 unless { src 10.0.0.0/8 }",
        " http-request redirect location /sorry unless { src 10.0.0.0/8 }",
        " redirect location /sorry if !{ src 10.0.0.0/8 }",
        " http-request allow if { src 10.0.0.0/8 }\n http-request return status 503",
    ] {
        let text = of_frontend(&format!(" mode http\n bind 127.0.0.1:80\n{rules}"));
        let imported = import(&text);
        assert!(
            imported.table.contains("source-ranges: [\"10.0.0.0/8\"]"),
            "{rules}\n{}",
            imported.table
        );
        let last = 3 + rules.lines().count();
        match rules.contains("return") {
            true => drop(table(&text)),
            false => assert_left_out(&text, last, "so they are denied"),
        }
        let has_answer = imported.table.contains("denied: {status: 503}");
        assert_eq!(has_answer, rules.contains("status 503"), "{rules}");
    }
}

/// Where `src` is another address than the one that Ballast sees, denials by it cannot be read.
#[test]
fn another_address_of_the_client_closes_what_looks_at_it() {
    for rules in [
        " http-request set-src hdr(x-real-ip)\n http-request deny if { src 10.0.0.0/8 }",
        " tcp-request connection set-src src,ipmask(24)\n http-request deny unless { src 10.0.0.0/8 }",
        " tcp-request content set-src src\n tcp-request content reject if { src 10.0.0.0/8 }",
    ] {
        let imported = import(&of_frontend(&format!(
            " mode http\n bind 127.0.0.1:80\n{rules}"
        )));
        assert!(
            !imported.table.contains("\nfrontends:"),
            "{rules}\n{}",
            imported.table
        );
    }
    let alone = of_frontend(" mode http\n bind 127.0.0.1:80\n http-request set-src hdr(x-real-ip)");
    assert_left_out(&alone, 4, "from its connection");
    assert!(import(&alone).table.contains("\nfrontends:"));
}

/// The page is for those only for whom haproxy had it.
#[test]
fn the_page_is_not_more_open() {
    let page = |line: &str| {
        import(&format!(
            "listen stats\n mode http\n bind 127.0.0.1:9000\n stats enable\n {line}\n"
        ))
        .table
    };
    let ranges = |line: &str, ranges: &str| {
        let table = page(line);
        assert!(
            table.contains(&format!("source-ranges: [{ranges}]")),
            "{line}\n{table}"
        );
    };
    let here = "\"127.0.0.0/8\", \"::1/128\"";
    ranges("stats http-request deny unless { src 10.1.0.0/16 }", here);
    ranges("stats http-request auth realm x", here);
    ranges("stats scope a", here);
    ranges(
        "tcp-request connection reject unless { src 10.1.0.0/16 }",
        "\"10.1.0.0/16\"",
    );
    ranges(
        "tcp-request content silent-drop unless { src 10.1.0.0/16 }",
        "\"10.1.0.0/16\"",
    );
    let broken = page("tcp-request connection reject unless { src -f /nowhere }");
    assert!(!broken.contains("\nstats:"), "{broken}");
}

/// What cannot be denied is told to be served, and does not read as if nothing was lost.
#[test]
fn what_is_served_although_it_was_denied_is_told() {
    for (line, why) in [
        ("reqdeny ^User-Agent:.*bot", "what it denies is served"),
        ("reqitarpit ^x", "what it denies is served"),
        ("rspdeny ^x", "answers that it denies are served"),
        (
            "tcp-response content reject",
            "answers that it denies are served",
        ),
        (
            "http-response deny if { res.hdr(x) y }",
            "those that this line denies are served",
        ),
    ] {
        let text = of_frontend(&format!(" mode http\n bind 127.0.0.1:80\n {line}"));
        assert_left_out(&text, 4, why);
    }
    // A line of an ACL that is none closes what the ACL says.
    let text = of_frontend(
        " mode http\n bind 127.0.0.1:80\n acl bad src 10.0.0.1\n acl bad src -f\n http-request deny if bad",
    );
    let imported = import(&text);
    assert!(
        !imported.table.contains("\nfrontends:"),
        "{}",
        imported.table
    );
    assert!(imported.report.unlike() > 1);
}

#[test]
fn who_is_sent_to_a_backend_without_servers_is_denied() {
    for mode in ["tcp", "http"] {
        let text = format!(
            "defaults\n mode {mode}\nfrontend f\n bind 127.0.0.1:80\n use_backend nowhere unless {{ src 10.0.0.0/8 }}\n default_backend b\nbackend nowhere\nbackend b\n server s 10.0.0.1:80\n"
        );
        assert_eq!(clients(&text), "10.0.0.0/8", "{mode}");
        table(&text);
        let is_answered = import(&text).table.contains("denied: {status: 503}");
        assert_eq!(is_answered, mode == "http");
    }
}

#[test]
fn what_the_global_section_restricts() {
    let of = |options: &str, words: &str| {
        let text = format!(
            "global\n ssl-default-bind-options {options}\n{}",
            of_frontend(&format!(" bind 127.0.0.1:80 ssl crt /a.pem {words}"))
        );
        import(&text).table.contains("min-version")
    };
    assert!(of("ssl-min-ver TLSv1.3 no-tls-tickets", ""));
    assert!(of("no-sslv3 no-tlsv12", ""));
    assert!(!of("ssl-min-ver TLSv1.2", ""));
    assert!(!of("ssl-min-ver TLSv1.3", "ssl-min-ver TLSv1.2"));
    let socket = "global\n stats socket /run/h.sock mode 660 level user\nbackend b\n";
    let flags = |text: &str| import(text).report.flags.join(" ");
    assert_eq!(
        flags(socket),
        "--monitor-socket /run/h.sock --monitor-level user"
    );
    let two = "global\n stats socket /run/a mode 660 group h level admin\n stats socket /run/b\nbackend b\n";
    assert_eq!(
        flags(two),
        "--socket /run/a --socket-mode 660 --socket-group h --monitor-socket /run/b --monitor-level operator"
    );
    let again = two.replace("/run/b\n", "/run/b level admin\n");
    assert_left_out(&again, 3, "one of each");
}

/// A line that cannot be cut into words, or stands in a block whose condition is not understood, may deny.
#[test]
fn denials_that_cannot_be_read_close_their_section() {
    let text = |lines: &str| {
        format!(
            "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n{lines}\n default_backend b\nfrontend g\n bind 127.0.0.1:81\n default_backend b\nbackend b\n server s 10.0.0.1:80\n"
        )
    };
    let names = |lines: &str| {
        let imported = import(&text(lines));
        ["name: f", "name: g"].map(|name| imported.table.contains(name))
    };
    let deny = "http-request deny unless { src 10.0.0.0/8 }";
    for closing in [
        format!(" {deny} \"a"),
        " http-request deny if { path /\u{fffd} }".to_owned(),
        " tcp-request connection reject if { src 10.0.0.1\0 }".into(),
        format!(".if feature(QUIC)\n {deny}\n.endif"),
        format!(".if feature(QUIC)\n.if 1\n {deny}\n.endif\n.endif"),
    ] {
        assert_eq!(names(&closing), [false, true], "{closing}");
    }
    for open in [
        format!(".if 0\n {deny}\n.endif"),
        ".if feature(QUIC)\n option httplog\n.endif".to_owned(),
        format!(".if feature(QUIC)\nfrontend h\n bind 127.0.0.1:82\n {deny}\n.endif"),
        " http-request set-header X \u{fffd}".into(),
    ] {
        assert_eq!(names(&open), [true, true], "{open}");
    }
}
