//! Lines of haproxy's configuration, one by one: what they become, or why they are left out.

use ballast_core::table::{Format, Rewrite, RoutingTable, parse};

use super::{Kind, import};

pub(super) fn table(text: &str) -> RoutingTable {
    let imported = import(text);
    assert_eq!(
        imported.report.unlike(),
        0,
        "{text}\n{:#?}",
        imported.report
    );
    parse(imported.table.as_bytes(), Format::Yaml).expect("a good table")
}

/// The remarks about a configuration of these lines.
pub(super) fn remarks(text: &str) -> Vec<String> {
    let imported = import(text);
    let remarks = imported.report.remarks.iter();
    remarks
        .map(|remark| format!("{}: {remark}", remark.line))
        .collect()
}

/// Asserts that the report names this line as left out or as one that differs, and says why.
pub(super) fn assert_left_out(text: &str, line: usize, why: &str) {
    let remarks = remarks(text);
    let begins = [format!("{line}: left out"), format!("{line}: differs")];
    let is_named = |remark: &String| {
        begins.iter().any(|begin| remark.starts_with(begin)) && remark.contains(why)
    };
    assert!(remarks.iter().any(is_named), "{text}\n{remarks:?}");
}

/// Asserts that a note names this line, and says why.
pub(super) fn assert_noted(text: &str, line: usize, why: &str) {
    let begin = format!("{line}: note");
    let told = remarks(text);
    let is_told = |remark: &String| remark.starts_with(&begin) && remark.contains(why);
    assert!(told.iter().any(is_told), "{text}\n{told:?}");
}

pub(super) fn of_frontend(lines: &str) -> String {
    format!("frontend f\n{lines}\n default_backend b\nbackend b\n server s 10.0.0.1:80\n")
}

pub(super) fn of_backend(lines: &str) -> String {
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
        "mode h\0ttp",
    ] {
        assert!(shown(bad).expect("words").1, "{bad}");
    }
    for (text, why) in [
        ("frontend f\n mode h\0ttp\n", "has a NUL byte"),
        ("frontend f\n mode \u{fffd}\n", "is not UTF-8"),
    ] {
        assert_left_out(text, 2, why);
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
        assert_eq!(imported.report.unlike(), 0);
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
        assert!(imported.report.unlike() > 0, "{lines}");
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
    assert_eq!(imported.report.unlike(), 1);
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
    assert_eq!(imported.report.unlike(), 1);
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
            "option httpchk\n http-check connect ssl sni api.example\n http-check send meth GET uri /up\n server s 10.0.0.1:80 check inter 1s",
            "{mode: https, interval: 1s, path: /up, tls: {sni: api.example}}",
        ),
        (
            "option httpchk GET /\n http-check connect port 81\n server s 10.0.0.1:80 check inter 1s ssl verify none",
            "{mode: http, port: 81, interval: 1s}",
        ),
        (
            "option tcp-check\n tcp-check connect port 81\n tcp-check expect string +x\n server s 10.0.0.1:80 check inter 1s",
            "{mode: tcp, port: 81, interval: 1s, answer-contains: \"+x\"}",
        ),
        (
            "option redis-check\n server s 10.0.0.1:80 check inter 1s",
            r#"{mode: tcp, interval: 1s, send: "*1\\r\\n$4\\r\\nPING\\r\\n", answer-contains: "+PONG"}"#,
        ),
        (
            "option tcp-check\n tcp-check send-binary 00ff\n tcp-check expect binary 0a\n server s 10.0.0.1:80 check inter 1s",
            r#"{mode: tcp, interval: 1s, send: "\\x00\\xff", answer-contains: "\\n"}"#,
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
        assert_eq!(imported.report.unlike(), 0, "{:?}", imported.report);
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
    assert_eq!(imported.report.unlike(), 1);
    assert!(imported.table.contains("10.0.0.1:80"));
}

#[test]
fn a_remark_is_one_line() {
    let remarks = remarks("frontend f\n bind \u{1b}[2J:80\n mo\\nde \\x07 http\n");
    assert!(remarks.len() > 1, "{remarks:?}");
    for remark in remarks {
        assert!(!remark.contains(char::is_control), "{remark:?}");
    }
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
            "{redirect: {location: /new, status: 302}}",
        ),
        (
            "http-request redirect code 301 location https://%[hdr(host)]%[capture.req.uri]",
            "{redirect: {scheme: https, status: 301}}",
        ),
        (
            "redirect prefix https://%[req.hdr(Host)] code 302",
            "{redirect: {scheme: https, status: 302}}",
        ),
        (
            "redirect location https://www.example.com%[url] code 301",
            "{redirect: {scheme: https, host: www.example.com, status: 301}}",
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
fn redirects_that_no_route_can_make() {
    for (line, why) in [
        ("redirect code 301", "leads nowhere"),
        ("redirect location", "leads nowhere"),
        ("redirect prefix x", "is no place to lead to"),
        (
            "redirect scheme https code 304",
            "has no code of a redirect",
        ),
        ("redirect scheme %[src]", "leads to a fixed place"),
        (
            "redirect location https://%[src]%[url]",
            "leads to a fixed place",
        ),
        (
            "redirect location https://%[hdr(host)]/x",
            "leads to a fixed place",
        ),
        ("redirect prefix /x", "puts nothing before the path"),
        ("redirect scheme https set-cookie A=1", "has no counterpart"),
    ] {
        assert_left_out(
            &of_frontend(&format!(" mode http\n bind 127.0.0.1:80\n {line}")),
            4,
            why,
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
        text.push_str(&format!("backend b{number}\n http-request replace-path ^/b{number}(/)?(.*) /\\2\n server s 10.0.0.1:80\n"));
    }
    // Lines that choose by a path before others do by a host: as many as fit are as in haproxy, and the others are told.
    assert_left_out(&text, 128, "has too many hosts and paths");
    let table = parse(import(&text).table.as_bytes(), Format::Yaml).expect("a good table");
    let routes = &table.frontends[0].routes;
    let of_host = |path: &str| {
        let found = routes.iter().find(|route| {
            let host = route.host.as_ref().map(ToString::to_string);
            host.as_deref() == Some("h7.example") && route.path() == path
        });
        found.expect(path)
    };
    assert_eq!(of_host("/").service.as_deref(), Some("b7"));
    let rewritten = Some(Rewrite {
        prefix: "/".parse().ok(),
        ..Rewrite::default()
    });
    assert_eq!(of_host("/b7").rewrite(), rewritten);
    assert_eq!(of_host("/secret").status, Some(403));
}

/// The lines of a branch are read where its condition holds; every other branch is told with its lines.
#[test]
fn conditional_blocks() {
    for (condition, holds) in [
        ("1", true),
        ("0", false),
        ("", false),
        ("defined(PG_HOST)", true),
        ("!defined(PG_HOST) || defined(NOBODY)", false),
        ("defined(NOBODY) && 1 || 1", true),
        ("1 && ( 0 || !0 )", true),
        ("streq(\"$PG_HOST\",10.0.1.1)", true),
        ("strneq(\"$PG_HOST\",10.0.1.1)", false),
        ("\"strstr(abc,b) && version_atleast(2.4)\"", true),
        ("version_before(2.4)", false),
        ("feature(OPENSSL)", true),
        ("defined(OF_THIS_FILE)", true),
    ] {
        let text = format!(
            "global\n setenv OF_THIS_FILE 1\n.if {condition}\nfrontend one\n bind 127.0.0.1:1\n.else\nfrontend two\n bind 127.0.0.1:2\n.endif\n default_backend b\nbackend b\n server s 10.0.0.1:80\n"
        );
        let table = parse(import(&text).table.as_bytes(), Format::Yaml).expect("a good table");
        let name = if holds { "one" } else { "two" };
        assert_eq!(&*table.frontends[0].name, name, "{condition}");
        assert_eq!(table.frontends.len(), 1, "{condition}");
        // Which version is meant is not known.
        let told = import(&text).report.unlike();
        assert_eq!(
            told,
            usize::from(condition.contains("version")),
            "{condition}"
        );
        let passed_over = if holds {
            "6: note: `.else`: "
        } else {
            "3: note: `.if"
        };
        assert!(
            remarks(&text)
                .iter()
                .any(|remark| remark.starts_with(passed_over) && remark.contains("(lines ")),
            "{condition}: {:?}",
            remarks(&text)
        );
    }
    for condition in [
        "true",
        "feature(QUIC)",
        "enabled(POLL)",
        "defined(A",
        "(1",
        "1)",
        "!",
        "1 &&",
        "streq(a)",
        &"(".repeat(100_000),
    ] {
        let text = format!(
            ".if {condition}\nfrontend one\n bind 127.0.0.1:1\n.elif 1\nfrontend two\n bind 127.0.0.1:2\n.endif\nbackend b\n server s 10.0.0.1:80\n"
        );
        let imported = import(&text);
        assert!(!imported.table.contains("frontends:"), "{condition}");
        let told = imported.report.remarks.iter();
        let mut told = told.filter(|remark| remark.kind != Kind::Note);
        assert!(
            told.any(|remark| remark.last == 6),
            "{condition}: {:?}",
            imported.report
        );
    }
    let nested = remarks(
        ".if 0\n.if 1\nzzz\n.else\nzzz\n.endif\n.elif 1\nlisten a\n.else\nzzz\n.if 1\n.endif\n.endif\n.endif\n.if 1\n",
    );
    let left_out: Vec<&String> = nested
        .iter()
        .filter(|remark| remark.contains("left out") || remark.contains("differs"))
        .collect();
    assert!(
        matches!(left_out.as_slice(), [stray, open] if stray.starts_with("14: ") && open.starts_with("15: ")),
        "{nested:#?}"
    );
}

#[test]
fn limits_of_each_client() {
    let of = |table: &str, rules: &str| {
        let text = format!(
            "frontend f\n bind 127.0.0.1:80\n stick-table {table}\n{rules}\n default_backend b\nbackend b\n stick-table type ip size 1m store conn_cur,conn_rate(1000)\n server s 10.0.0.1:80\n"
        );
        let imported = import(&text);
        let table = parse(imported.table.as_bytes(), Format::Yaml).expect("a good table");
        let frontend = &table.frontends[0];
        (
            frontend.max_connections_per_client.map(u32::from),
            frontend.max_connection_rate_per_client.map(u32::from),
            imported.report.unlike(),
        )
    };
    let own = "type ip size 1m expire 1m store conn_cur,conn_rate(1s),gpc0";
    let (track, reject) = (
        " tcp-request connection track-sc0 src",
        "tcp-request connection reject if",
    );
    for (rules, limits) in [
        (format!("{track}\n {reject} {{ sc0_conn_cur gt 10 }}"), (Some(10), None, 0)),
        (format!("{track}\n {reject} {{ sc_conn_cur(0) ge 10 }}"), (Some(9), None, 0)),
        (format!("{track}\n {reject} {{ src_conn_cur 10: }}"), (Some(9), None, 0)),
        // Who is not counted yet is one more.
        (format!(" {reject} {{ src_conn_cur ge 10 }}\n{track}"), (Some(10), None, 0)),
        (format!(" acl many src_conn_rate gt 5\n{track}\n {reject} many"), (None, Some(5), 0)),
        (format!("{track}\n {reject} {{ sc0_conn_cur gt 10 }}\n {reject} {{ sc0_conn_cur gt 7 }}\n {reject} {{ sc0_conn_rate gt 3 }}"), (Some(7), Some(3), 0)),
        (" tcp-request session track-sc2 src table b\n tcp-request content reject if { sc_conn_rate(2,b) ge 3 }".to_owned(), (None, Some(2), 0)),
        (format!(" tcp-request connection track-sc1 src table b\n {reject} {{ src_conn_cur(b) gt 3 }}"), (Some(3), None, 0)),
        // What is no limit for every client is left out.
        (format!("{track}\n {reject} {{ sc0_conn_cur gt 10 }} !{{ src 10.0.0.0/8 }}"), (None, None, 1)),
        (format!(" tcp-request connection accept if {{ src 10.0.0.0/8 }}\n{track}\n {reject} {{ sc0_conn_cur gt 10 }}"), (None, None, 1)),
        (format!("{track} if {{ src 10.0.0.0/8 }}\n {reject} {{ sc0_conn_cur gt 10 }}"), (None, None, 1)),
        (format!(" {reject} {{ src_conn_cur gt 10 }}"), (None, None, 1)),
        (format!("{track}\n {reject} {{ sc1_conn_cur gt 10 }}"), (None, None, 0)),
        (format!("{track}\n {reject} {{ sc0_conn_cur lt 10 }}"), (None, None, 1)),
        (format!("{track}\n {reject} {{ sc0_http_req_rate gt 10 }}"), (None, None, 1)),
        (format!(" tcp-request connection track-sc0 src table x\n {reject} {{ sc0_conn_cur gt 1 }}"), (None, None, 1)),
    ] {
        assert_eq!(of(own, &rules), limits, "{rules}");
    }
    let rate = format!("{track}\n {reject} {{ sc0_conn_rate gt 10 }}");
    let slow = of("type ip size 1m expire 1m store conn_rate(10s)", &rate);
    assert_eq!(slow, (None, None, 1), "Ballast counts by the second");
    let other = of("type ip size 1m expire 1m store conn_cur", &rate);
    assert_eq!(other, (None, None, 1), "the table does not count that");
}

#[test]
fn rules_that_look_at_the_port() {
    let text = "defaults\n mode http\nfrontend web\n bind 127.0.0.1:80,127.0.0.2:80\n bind 127.0.0.1:8000-8003\n http-request redirect scheme https if { dst_port 80 }\n use_backend c if { dst_port ge 8002 }\n default_backend b\nbackend b\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\n";
    let found = table(text);
    let frontends = found.frontends.iter();
    let frontends: Vec<(&str, usize, Option<&str>)> = frontends
        .map(|frontend| {
            let default = frontend.default.as_ref().expect("a default");
            (
                &*frontend.name,
                frontend.bind.len(),
                default.service.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        frontends,
        [
            ("web", 2, None),
            ("web-8000", 2, Some("b")),
            ("web-8002", 2, Some("c"))
        ]
    );
    // A PROXY header names another port.
    let proxied = import(&text.replace("127.0.0.1:8000-8003", "127.0.0.1:8000-8003 accept-proxy"));
    assert_eq!(proxied.report.unlike(), 2, "{:?}", proxied.report);
    let strange = import(&text.replace("{ dst_port 80 }", "{ dst_port -m int 80 }"));
    assert_eq!(strange.report.unlike(), 1, "{:?}", strange.report);
}

#[test]
fn backends_of_maps() {
    let of = |expression: &str| {
        format!(
            "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n use_backend {expression}\n default_backend b\nbackend b\n server s 10.0.0.1:80\nbackend app\n server s 10.0.0.2:80\nbackend api\n server s 10.0.0.3:80\nbackend api-v2\n server s 10.0.0.4:80\nbackend static\n server s 10.0.0.5:80\nbackend nobody\n server s 10.0.0.6:80\n"
        )
    };
    let routes = |expression: &str| {
        let table = table(&of(expression));
        let routes = table.frontends[0].routes.iter();
        let mut routes: Vec<String> = routes
            .map(|route| {
                let host = route.host.as_ref().map(ToString::to_string);
                format!(
                    "{}{} {}",
                    host.unwrap_or_default(),
                    route.path(),
                    route.service.as_deref().unwrap_or_default()
                )
            })
            .collect();
        let default = table.frontends[0].default.as_ref().expect("a default");
        routes.push(default.service.as_deref().unwrap_or_default().to_owned());
        routes.join(", ")
    };
    let hosts = "old.example.com/ nobody, static.example.com/ static, www.example.com/ app, b";
    for expression in [
        "%[req.hdr(host),lower,map(/etc/haproxy/hosts.map)]",
        "%[hdr(host),field(1,:),lower,map_str(/etc/haproxy/hosts.map,b)]",
        "\"%[req.hdr(host,-1),map(/etc/haproxy/hosts.map,unknown)]\"",
    ] {
        let expected = routes(expression);
        assert_eq!(expected, hosts, "{expression}");
    }
    let dom = of("%[hdr(host),map_dom(/etc/haproxy/hosts.map,app)]");
    assert_left_out(&dom, 5, "not every name that has it inside");
    assert!(
        import(&dom)
            .table
            .contains("- {host: \"*.old.example.com\", service: nobody}"),
        "{dom}"
    );
    assert_eq!(
        routes("%[path,map_beg(/etc/haproxy/paths.map)]"),
        "/api api, /api/v2 api-v2, b"
    );
    assert_eq!(
        routes("%[path,map_beg(/etc/haproxy/paths.map)] if { hdr(host) x.example }"),
        "x.example/api api, x.example/api/v2 api-v2, b"
    );
    for (expression, why) in [
        ("%[req.hdr(host),lower]", "unless a map has it"),
        (
            "bk_%[req.hdr(host),map(/etc/haproxy/hosts.map)]",
            "unless a map has it",
        ),
        ("%[req.hdr(host),map(/nowhere)]", "/nowhere cannot be read"),
        (
            "%[base,map_beg(/etc/haproxy/paths.map)]",
            "does not look at `base`",
        ),
        (
            "%[hdr(host),map_reg(/etc/haproxy/hosts.map)]",
            "does not look at",
        ),
        (
            "%[hdr(user-agent),map(/etc/haproxy/hosts.map)]",
            "does not look at",
        ),
    ] {
        assert_left_out(&of(expression), 5, why);
    }
}

#[test]
fn pages() {
    let text = concat!(
        "http-errors site\n errorfile 404 /etc/haproxy/errors/404.http\n errorfile 503 /etc/haproxy/errors/503.http\n",
        "defaults\n mode http\n",
        "frontend f\n bind 127.0.0.1:80\n errorfile 503 /etc/haproxy/errors/500.http\n errorfiles site\n",
        " http-error status 403 content-type application/json string {}\n monitor-uri /up\n",
        " http-request return status 404 content-type text/plain file /etc/haproxy/errors/404.http if { path /none }\n",
        " default_backend b\nbackend b\n server s 10.0.0.1:80\n",
    );
    let imported = import(text);
    assert_eq!(imported.report.unlike(), 0, "{:?}", imported.report);
    for line in [
        "\"403\": errors/403.json",
        "\"404\": {body-file: errors/404.html, content-type: text/html, response-headers: {remove: [Cache-Control]}}",
        "\"503\": {body-file: errors/503.html, content-type: text/html, response-headers: {remove: [Cache-Control]}}",
        "{path: /up, match: exact, status: 200}",
        "{path: /none, match: exact, status: 404, body-file: errors/404.txt, content-type: text/plain}",
    ] {
        super::exactness::says(text, line);
    }
    let body = |name: &str| {
        let file = imported.files.iter().find(|(known, _)| known == name);
        String::from_utf8_lossy(&file.expect(name).1).into_owned()
    };
    assert_eq!(body("errors/403.json"), "{}");
    assert_eq!(
        body("errors/503.html"),
        "<p>/etc/haproxy/errors/503.http</p>"
    );
    for (line, why) in [
        ("errorfiles nobody", "no section http-errors nobody"),
        ("http-error status 200 string x", "400 to 599"),
        ("http-error status 503", "names no page"),
        ("errorfile 503", "names no file"),
        (
            "http-request return lf-string %[src]",
            "a fixed text or a file",
        ),
        (
            "http-request return hdr x %[src]",
            "write it without a sample",
        ),
        ("monitor-uri up", "is no path of a route"),
        (
            "monitor fail if { nbsrv(b) lt 1 }",
            "the path of monitor-uri answers always",
        ),
    ] {
        assert_left_out(
            &of_frontend(&format!(" mode http\n bind 127.0.0.1:80\n {line}"))
                .replace("backend b", "backend b\n mode http"),
            4,
            why,
        );
    }
}

#[test]
fn servers_of_a_name() {
    let table = table(&of_backend(
        " server-template db 2 db.example.com:5432 check weight 7",
    ));
    let endpoints = table.services[0].endpoints.iter();
    let endpoints: Vec<String> = endpoints
        .map(|endpoint| {
            format!(
                "{} {} {}",
                endpoint.address,
                endpoint.name.as_deref().unwrap_or_default(),
                endpoint.weight
            )
        })
        .collect();
    assert_eq!(
        endpoints,
        ["10.9.0.1:5432 db1 7", "[2001:db8::9]:5432 db2 7"]
    );
    let one = self::table(&of_backend(
        " server-template db 3 10.0.0.1:80 weight 7 maxconn 10",
    ));
    let endpoint = &one.services[0].endpoints[0];
    assert_eq!(one.services[0].endpoints.len(), 1);
    assert_eq!(endpoint.address.to_string(), "10.0.0.1:80");
    let limit = endpoint.max_connections.map(std::num::NonZero::get);
    assert_eq!((endpoint.weight, limit), (21, Some(30)));
    for (line, why) in [
        (
            "server-template db many db.example.com:80",
            "is no number of servers",
        ),
        ("server-template db 2", "has no address"),
        (
            "server-template db 2 _http._tcp.example.com:80",
            "does not resolve",
        ),
    ] {
        assert_left_out(
            &of_backend(&format!(" {line}\n server x 10.0.0.9:80")),
            5,
            why,
        );
    }
    // Two servers may have one name in haproxy.
    let twins = import(&of_backend(" server s 10.0.0.1:80\n server s 10.0.0.2:80"));
    assert_eq!(twins.report.unlike(), 0, "{:?}", twins.report);
    assert!(
        twins.table.contains("{address: \"10.0.0.2:80\"}"),
        "{}",
        twins.table
    );
}

/// Sections that a table has nothing for are told with all their lines.
#[test]
fn other_sections_are_told_by_their_names() {
    for (section, reason) in [
        ("peers x", "first choice is the same"),
        ("resolvers x", "resolved once"),
        ("mailers x", "sends no mail"),
        ("userlist x", "passwords"),
        ("cache x", "stores no answers"),
        ("program x", "starts no other programs"),
        ("ring x", "no ring of log lines"),
        ("log-forward x", "log lines of others"),
        ("fcgi-app x", "FastCGI"),
        ("crt-store x", "each certificate"),
        ("acme x", "orders no certificates"),
        ("traces", "develop haproxy"),
        ("http-errors", "has no name"),
        ("dynamic-update", "no counterpart"),
    ] {
        let text =
            format!("{section}\n whatever a b\n\n more\n# end\nbackend b\n server s 10.0.0.1:80\n");
        let imported = import(&text);
        let remarks = imported.report.remarks.iter();
        let remarks: Vec<_> = remarks.filter(|remark| remark.line == 1).collect();
        let [remark] = remarks.as_slice() else {
            panic!("{section}: {:?}", imported.report);
        };
        assert_eq!((remark.line, remark.last), (1, 4), "{section}");
        assert!(remark.why.contains(reason), "{section}: {remark}");
    }
}

/// One note for each section of the table, with what Ballast takes; and none where a time says for ever.
#[test]
fn timeouts_that_are_missing_are_told() {
    let notes = |text: &str| {
        let mut notes = remarks(text);
        notes.retain(|remark| remark.contains("waits for ever"));
        notes
    };
    let frontend = "frontend f\n bind 127.0.0.1:80\n default_backend b\n";
    let backend = "backend b\n server s 10.0.0.1:80\nbackend unused\n";
    let told = notes(&format!("{frontend}{backend}"));
    let [of_clients, of_servers] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert!(
        of_clients.starts_with("1: note: `frontend f`: ")
            && of_clients.ends_with(": timeout client 1h"),
        "{of_clients}"
    );
    assert!(
        of_servers.starts_with("4: note: `backend b`: ")
            && of_servers.ends_with(": timeout connect 5s, timeout server 1h"),
        "{of_servers}"
    );
    let listen = "listen l\n mode http\n bind 127.0.0.1:80\n server s 10.0.0.1:80\n";
    let told = notes(listen);
    assert!(
        matches!(told.as_slice(), [one] if one.ends_with(": timeout client 50s, timeout connect 5s, timeout server 50s")),
        "{told:?}"
    );
    assert_eq!(import(listen).report.unlike(), 0);
    let all = " timeout connect 5s\n timeout client 0\n timeout server 1m\n";
    assert!(notes(&format!("defaults\n{all}{frontend}{backend}")).is_empty());
    let tunnel = " timeout connect 5s\n timeout tunnel 5m\n";
    assert!(notes(&format!("defaults\n{tunnel}{frontend}{backend}")).is_empty());
}

#[test]
fn forwardfor_writes_x_forwarded_for_alone() {
    let text = |mode: &str, lines: &str| {
        let lines = format!(" bind 127.0.0.1:80\n{lines}");
        format!(
            "defaults\n mode {mode}\n option forwardfor\n{}",
            of_frontend(&lines)
        )
    };
    let told = |text: &str| {
        let mut told = remarks(text);
        told.retain(|remark| remark.contains("X-Forwarded-Proto, -Port and -Host"));
        told.len()
    };
    let (http, tcp) = (text("http", ""), text("tcp", ""));
    assert_eq!((told(&http), told(&tcp)), (0, 0));
    assert!(
        import(&http)
            .table
            .contains("http: {x-forwarded: append-for, unreachable-status: 503}")
    );
    let all = text(
        "http",
        " http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]",
    );
    assert_eq!(told(&all), 1);
    assert_left_out(&all, 6, "in place of the client's");
    assert!(!import(&all).table.contains("x-forwarded:"));
}

/// Of an ACL with several lines Ballast may understand some: that part is in the table, and the other one is told as such.
#[test]
fn a_part_of_a_line_that_is_not_understood_is_told_as_a_part() {
    let text = |rule: &str| {
        format!(
            "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n acl url_static path_beg -i /static /images\n acl url_static path_end -i .jpg\n {rule} if url_static\n default_backend b\nbackend b\n server s 10.0.0.1:80\nbackend static\n server s 10.0.0.2:80\n"
        )
    };
    for (rule, why, route) in [
        (
            "use_backend static",
            "`path_end`; this part of the line is left out, and the rest is in the table",
            "{path: /static, match: begins, ignore-case: true, service: static}",
        ),
        (
            "http-request deny",
            "`path_end`; what this part of the line denies is served, and the rest is denied",
            "{path: /static, match: begins, ignore-case: true, status: 403}",
        ),
    ] {
        let text = text(rule);
        assert_left_out(&text, 7, why);
        let imported = import(&text);
        assert!(imported.table.contains(route), "{rule}\n{}", imported.table);
    }
    let by_expression =
        of_frontend(" mode tcp\n bind 127.0.0.1:80\n use_backend b if { req.ssl_sni -m reg ^a }");
    assert_left_out(
        &by_expression,
        4,
        "does not look at `req.ssl_sni -m reg`; this line has no effect",
    );
}

/// What a table may not have is told by its name and its place in the frontend, not by its place in a table that is not there.
#[test]
fn a_frontend_that_no_table_may_have_is_told() {
    let text = "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n use_backend c@x if { path /c }\n default_backend b\nbackend b\n server s 10.0.0.1:80\nbackend c@x\n server s 10.0.0.1:80\n";
    assert_left_out(
        text,
        3,
        "`frontend f`: the frontend f is not in the table: its routes[0]: leads nowhere; expected ",
    );
}
