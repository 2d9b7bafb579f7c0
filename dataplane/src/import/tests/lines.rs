//! Lines of haproxy's configuration, one by one: what they become, or why they are left out.

use ballast_core::table::{Format, RoutingTable, parse};

use super::{Kind, import};

fn table(text: &str) -> RoutingTable {
    let imported = import(text);
    assert_eq!(
        imported.report.count(Kind::LeftOut),
        0,
        "{text}\n{:#?}",
        imported.report
    );
    parse(imported.table.as_bytes(), Format::Yaml).expect("a good table")
}

/// The remarks about a configuration of these lines.
fn remarks(text: &str) -> Vec<String> {
    let imported = import(text);
    let remarks = imported.report.remarks.iter();
    remarks
        .map(|remark| format!("{}: {remark}", remark.line))
        .collect()
}

fn of_frontend(lines: &str) -> String {
    format!("frontend f\n{lines}\n default_backend b\nbackend b\n server s 10.0.0.1:80\n")
}

fn of_backend(lines: &str) -> String {
    format!("frontend f\n bind 127.0.0.1:80\n default_backend b\nbackend b\n{lines}\n")
}

#[test]
fn words_are_cut_as_haproxy_cuts_them() {
    let shown = |line: &str| {
        let variable = |name: &str| match name {
            "NAME" => Some("a b".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let cut = super::super::words::cut(1, line.as_bytes(), &variable);
        cut.map(|cut| (cut.line.words, cut.wrong.is_some()))
    };
    let good = |line: &str, words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(shown(line), Some((words, false)), "{line}");
    };
    assert_eq!(shown(""), None);
    assert_eq!(shown("  # nothing"), None);
    good("\tmode  http # tail\r", &["mode", "http"]);
    good(r"a\ b c\#d \\ \x41 \t", &["a b", "c#d", "\\", "A", "\t"]);
    good(
        r#"one "two three" 'four "five" $NAME' "#,
        &["one", "two three", "four \"five\" $NAME"],
    );
    good(r#"ab"cd"'ef' """#, &["abcdef", ""]);
    good(
        r#"x "$NAME" "${NAME}-c" "${NAME[*]}" "${EMPTY-d}" "${NONE-d}" $NAME"#,
        &["x", "a b", "a b-c", "a", "b", "", "d", "$NAME"],
    );
    good(
        r"^([^\ :]*)\ /x[/]?(.*) \1\ /\2",
        &["^([^ :]*) /x[/]?(.*)", r"\1 /\2"],
    );
    for bad in [
        r#"mode "http"#,
        "mode 'http",
        "a \\",
        r#"x "$""#,
        r#"x "${NAME""#,
        r#"x "${NAME+y}""#,
        r"a \xz0",
        "mode \u{fffd}",
    ] {
        assert!(shown(bad).expect("words").1, "{bad}");
    }
}

#[test]
fn binds() {
    for (line, binds) in [
        ("bind 192.0.2.1:80", "192.0.2.1:80"),
        ("bind *:80", "0.0.0.0:80"),
        ("bind :80,:81", "0.0.0.0:80 0.0.0.0:81"),
        ("bind :::80", "*:80"),
        ("bind :::80 v6only", "[::]:80"),
        ("bind *:80\n bind [::]:80 v6only", "*:80"),
        (
            "bind ipv4@:80,ipv6@2001:db8::1:80",
            "0.0.0.0:80 [2001:db8::1]:80",
        ),
        ("bind [2001:db8::1]:80", "[2001:db8::1]:80"),
        (
            "bind 127.0.0.1:80-82",
            "127.0.0.1:80 127.0.0.1:81 127.0.0.1:82",
        ),
        ("bind localhost:80", "127.0.0.1:80"),
    ] {
        let table = table(&of_frontend(&format!(" {line}")));
        let binds_made: Vec<String> = table.frontends[0]
            .bind
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(binds_made.join(" "), binds, "{line}");
    }
    for (line, why) in [
        ("bind /run/x.sock", "listens at no unix socket"),
        ("bind abns@x", "listens at no unix socket"),
        ("bind 127.0.0.1", "has no port"),
        ("bind 127.0.0.1:0", "is no range of ports"),
        ("bind 127.0.0.1:90-80", "is no range of ports"),
        ("bind 127.0.0.1:http", "is no port"),
        ("bind nowhere:80", "does not resolve"),
        ("bind 127.0.0.1:80 ssl", "has no certificate"),
        (
            "bind 127.0.0.1:80 acept-proxy",
            "did you mean accept-proxy?",
        ),
        (
            "bind 127.0.0.1:80 ssl crt a verify required",
            "has no ca-file",
        ),
    ] {
        let remarks = remarks(&of_frontend(&format!(" {line}")));
        assert!(
            remarks.iter().any(|remark| remark.contains(why)),
            "{line}: {remarks:?}"
        );
    }
}

#[test]
fn times_are_haproxys() {
    for (time, shown) in [
        ("5000", "5s"),
        ("5s", "5s"),
        ("1500us", "2ms"),
        ("3m", "3m"),
        ("2h", "2h"),
        ("1d", "1d"),
        ("90d", "24d"),
    ] {
        let imported = import(&of_backend(&format!(
            " mode tcp\n timeout connect {time}\n server s 10.0.0.1:80"
        )));
        let expected = format!("connect: {shown}");
        assert!(
            shown == "5s" || imported.table.contains(&expected),
            "{time}: {}",
            imported.table
        );
        assert_eq!(imported.report.count(Kind::LeftOut), 0);
    }
    for time in ["5x", "", "-1", "5 s"] {
        let remarks = remarks(&of_backend(&format!(
            " timeout connect {time}\n server s 10.0.0.1:80"
        )));
        let named =
            |remark: &String| remark.contains("is no time") || remark.contains("behind the time");
        assert!(remarks.iter().any(named), "{time}: {remarks:?}");
    }
}

#[test]
fn lists_of_clients_become_ranges() {
    let ranges = |lines: &str| {
        let table = table(&of_frontend(&format!(" bind 127.0.0.1:80\n{lines}")));
        let ranges = table.frontends[0].source_ranges.clone();
        ranges.map(|ranges| {
            ranges
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    let reject = " tcp-request connection reject";
    assert_eq!(ranges(""), None);
    assert_eq!(ranges(" tcp-request connection accept"), None);
    assert_eq!(
        ranges(&format!("{reject} if !{{ src 10.0.0.0/8 }}")).as_deref(),
        Some("10.0.0.0/8")
    );
    assert_eq!(
        ranges(&format!("{reject} unless {{ src 10.0.0.1 2001:db8::/32 }}")).as_deref(),
        Some("10.0.0.1/32 2001:db8::/32")
    );
    assert_eq!(
        ranges(&format!("{reject} if {{ src 128.0.0.0/1 }}")).as_deref(),
        Some("0.0.0.0/1 ::/0")
    );
    let in_order = format!(
        " tcp-request connection accept if {{ src 10.1.0.0/16 }}\n{reject} if {{ src 10.0.0.0/15 }}\n tcp-request connection accept if {{ src 10.0.0.0/14 }}\n{reject}"
    );
    assert_eq!(
        ranges(&in_order).as_deref(),
        Some("10.1.0.0/16 10.2.0.0/15")
    );
    let named = format!(
        " acl one src 10.0.0.0/8\n acl two src -f lists/office.lst\n{reject} unless one or two"
    );
    assert_eq!(ranges(&named).as_deref(), Some("10.0.0.0/8 192.0.2.0/24"));
}

/// What says who may not come, and cannot be read, closes the frontend.
#[test]
fn access_that_cannot_be_read_closes() {
    for lines in [
        " tcp-request connection reject if !{ src -f /nowhere }",
        " tcp-request connection reject if !{ src 10.0.0.0/33 }",
        " tcp-request connection reject if !unknown",
        " tcp-request connection reject",
        " tcp-request connection expect-proxy layer4 if { src 10.1.0.0/16 }\n tcp-request connection reject if { src 10.0.0.0/8 }",
        " mode http\n http-request deny if !unknown",
        " mode http\n http-request deny unless { src -f /nowhere }",
    ] {
        let imported = import(&of_frontend(&format!(" bind 127.0.0.1:80\n{lines}")));
        assert!(
            !imported.table.contains("\nfrontends:"),
            "{lines}\n{}",
            imported.table
        );
        assert!(imported.report.count(Kind::LeftOut) > 0, "{lines}");
    }
    let exempted =
        " mode http\n http-request deny if { path_beg /private } !{ hdr(x-token) secret }";
    let imported = import(
        &of_frontend(&format!(" bind 127.0.0.1:80\n{exempted}"))
            .replace("backend b", "backend b\n mode http"),
    );
    assert!(
        imported
            .table
            .contains("{path: /private, match: begins, status: 403}"),
        "{}",
        imported.table
    );
    let narrowed = " mode http\n http-request deny if { path_beg /x } { hdr(user-agent) bot }";
    let imported = import(
        &of_frontend(&format!(" bind 127.0.0.1:80\n{narrowed}"))
            .replace("backend b", "backend b\n mode http"),
    );
    assert!(!imported.table.contains("403"), "{}", imported.table);
    assert_eq!(imported.report.count(Kind::LeftOut), 1);
}

#[test]
fn a_password_for_the_page_leaves_it_to_this_host() {
    let imported =
        import("listen stats\n mode http\n bind *:9000\n stats enable\n stats auth a:b\n");
    assert!(
        imported
            .table
            .contains("source-ranges: [\"127.0.0.0/8\", \"::1/128\"]"),
        "{}",
        imported.table
    );
    assert_eq!(imported.report.count(Kind::LeftOut), 1);
}

#[test]
fn checks() {
    for (lines, expected) in [
        ("server s 10.0.0.1:80 check", "{mode: tcp, timeout: 2s}"),
        (
            "server s 10.0.0.1:80 check inter 5",
            "{mode: tcp, interval: 100ms}",
        ),
        (
            "option httpchk\n server s 10.0.0.1:80 check inter 1s",
            "{mode: http, interval: 1s, method: OPTIONS}",
        ),
        (
            "option httpchk /up\n timeout check 500\n server s 10.0.0.1:80 check",
            "{mode: http, timeout: 500ms, method: OPTIONS, path: /up}",
        ),
        (
            "option httpchk HEAD /up HTTP/1.0\n server s 10.0.0.1:80 check inter 1s rise 3 fall 4 port 81",
            "{mode: http, port: 81, interval: 1s, rise: 3, fall: 4, method: HEAD, path: /up}",
        ),
        (
            r"option httpchk GET / HTTP/1.1\r\nHost:\ a.example
 server s 10.0.0.1:80 check inter 1s",
            "{mode: http, interval: 1s, host: a.example}",
        ),
        (
            "option httpchk GET /\n http-check expect ! status 500-599\n server s 10.0.0.1:80 check inter 1s",
            "{mode: http, interval: 1s, expect: \"100-499\"}",
        ),
        (
            "option httpchk GET /\n http-check expect rstatus (2|3)[0-9][0-9]\n server s 10.0.0.1:80 check inter 1s",
            "{mode: http, interval: 1s, expect: \"200-399\"}",
        ),
        (
            "option httpchk GET /\n server s 10.0.0.1:80 check inter 1s check-ssl",
            "{mode: https, interval: 1s}",
        ),
        (
            "option redis-check\n server s 10.0.0.1:80 check inter 1s",
            r#"{mode: tcp, interval: 1s, send: "*1\\r\\n$4\\r\\nPING\\r\\n", answer: "+PONG"}"#,
        ),
        (
            "option tcp-check\n tcp-check send-binary 00ff\n tcp-check expect binary 0a\n server s 10.0.0.1:80 check inter 1s",
            r#"{mode: tcp, interval: 1s, send: "\\x00\\xff", answer: "\\n"}"#,
        ),
    ] {
        let imported = import(
            &of_backend(&format!(" mode http\n {lines}"))
                .replace("frontend f", "frontend f\n mode http"),
        );
        let expected = format!("health: {expected}");
        assert!(
            imported.table.contains(&expected),
            "{lines}\n{}",
            imported.table
        );
        assert!(imported.table.contains("all-down: refuse"));
        assert_eq!(
            imported.report.count(Kind::LeftOut),
            0,
            "{:?}",
            imported.report
        );
    }
}

#[test]
fn sections_inherit_from_defaults() {
    let text = "defaults one\n mode http\n retries 7\n timeout connect 1s\ndefaults two from one\n retries 8\ndefaults\n mode tcp\n\
        backend a from one\n server s 10.0.0.1:80\nbackend b from two\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.1:80\n";
    let table = table(text);
    let retries: Vec<u16> = table
        .services
        .iter()
        .map(|service| service.retries)
        .collect();
    assert_eq!(retries, [7, 8, 3]);
    let connect: Vec<u64> = table
        .services
        .iter()
        .map(|service| service.timeouts.connect.as_secs())
        .collect();
    assert_eq!(connect, [1, 1, 5]);
}

#[test]
fn names_are_resolved_and_told() {
    let imported = import(&of_backend(" server s db.example.com:80"));
    assert!(
        imported
            .table
            .contains("#   db.example.com: 10.9.0.1, 2001:db8::9, 10.9.0.2\n")
    );
    assert!(
        imported
            .table
            .contains("{address: \"10.9.0.1:80\", name: s}"),
        "{}",
        imported.table
    );
    let v6 = import(&of_backend(" server s ipv6@db.example.com:80"));
    assert!(v6.table.contains("[2001:db8::9]:80"), "{}", v6.table);
    // A name that does not resolve is one server less, and no more.
    let imported = import(&of_backend(
        " server s 10.0.0.1:80\n server t no.example.com:80",
    ));
    assert_eq!(imported.report.count(Kind::LeftOut), 1);
    assert!(imported.table.contains("10.0.0.1:80"));
}

#[test]
fn unknown_words_are_named_with_what_was_meant() {
    for (line, meant) in [
        ("optoin httplog", "did you mean option?"),
        ("option htplog", "did you mean httplog?"),
        ("timeout cilent 5s", "did you mean client?"),
        ("balance leastcon", "did you mean leastconn?"),
        ("server s 10.0.0.1:80 chekc", "did you mean check?"),
        ("stats enabel", "did you mean enable?"),
    ] {
        let remarks = remarks(&of_backend(&format!(" {line}\n server x 10.0.0.9:80")));
        assert!(
            remarks
                .iter()
                .any(|remark| remark.starts_with("5: ") && remark.contains(meant)),
            "{line}: {remarks:?}"
        );
    }
    let remarks = remarks("frontendd x\n bind 127.0.0.1:80\n");
    assert!(remarks[0].contains("did you mean frontend?"), "{remarks:?}");
}

#[test]
fn redirects() {
    for (line, route) in [
        (
            "redirect scheme https",
            "{redirect: {scheme: https, status: 302}}",
        ),
        (
            "http-request redirect scheme https code 301",
            "{redirect: {scheme: https, status: 301}}",
        ),
        (
            "redirect prefix https://www.example.com:8443 code 308",
            "{redirect: {scheme: https, host: www.example.com, port: 8443, status: 308}}",
        ),
        (
            "redirect location /new",
            "{redirect: {path: /new, status: 302}}",
        ),
        ("http-request return status 204", "{status: 204}"),
    ] {
        let imported = import(&of_frontend(&format!(
            " mode http\n bind 127.0.0.1:80\n {line}"
        )));
        assert!(
            imported.table.contains(&format!("default: {route}")),
            "{line}\n{}",
            imported.table
        );
    }
}

#[test]
fn one_frontend_with_and_without_tls_becomes_two() {
    let text = "defaults\n mode http\nfrontend web\n bind 127.0.0.1:80\n bind 127.0.0.1:443 ssl crt /etc/ssl/folder\n redirect scheme https if !{ ssl_fc }\n default_backend b\nbackend b\n server s 10.0.0.1:80\n";
    let table = table(text);
    let [plain, tls] = &table.frontends[..] else {
        panic!("{table:?}");
    };
    assert_eq!((&*plain.name, &*tls.name), ("web", "web-https"));
    assert!(
        plain
            .default
            .as_ref()
            .is_some_and(|route| route.redirect.is_some())
    );
    assert!(
        tls.default
            .as_ref()
            .is_some_and(|route| route.service.is_some())
    );
    let certificates = tls.tls.as_ref().map(|tls| tls.certificates.len());
    assert_eq!(certificates, Some(2), "the key beside one is none");
}

#[test]
fn senders_of_proxy_headers() {
    let table = table(&of_frontend(
        " bind 127.0.0.1:80\n tcp-request connection expect-proxy layer4 if { src 10.1.0.0/16 }\n tcp-request session reject if !{ src 192.0.2.0/24 }",
    ));
    let frontend = &table.frontends[0];
    let from = frontend
        .accept_proxy
        .as_ref()
        .map(|accept| accept.from[0].to_string());
    assert_eq!(from.as_deref(), Some("10.1.0.0/16"));
    let ranges = frontend
        .source_ranges
        .as_ref()
        .map(|ranges| ranges[0].to_string());
    assert_eq!(ranges.as_deref(), Some("192.0.2.0/24"));
}

/// Too many hosts and paths for routes of each pair: hosts and paths are apart then, but what is denied is denied for all.
#[test]
fn very_many_hosts_and_paths() {
    let mut text = String::from(
        "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n http-request deny if { path_beg /secret }\n",
    );
    for number in 0..160 {
        text.push_str(&format!(" use_backend b{number} if {{ path_beg /b{number} }} or {{ hdr(host) h{number}.example }}\n"));
    }
    for number in 0..160 {
        text.push_str(&format!("backend b{number}\n http-request replace-path /b{number}(/)?(.*) /\\2\n server s 10.0.0.1:80\n"));
    }
    let table = table(&text);
    let routes = &table.frontends[0].routes;
    let of_host = |path: &str| {
        let found = routes.iter().find(|route| {
            let host = route.host.as_ref().map(ToString::to_string);
            host.as_deref() == Some("h7.example") && route.path() == path
        });
        found.expect(path)
    };
    assert_eq!(of_host("/").service.as_deref(), Some("b7"));
    assert_eq!(of_host("/b7").rewrite.as_deref(), Some("/"));
    assert_eq!(of_host("/secret").status, Some(403));
}
