//! What a table says otherwise than haproxy: translated exactly, or told as left out with its line, and never more open.

use super::import;
use super::lines::{assert_left_out, of_backend, of_frontend, remarks, table};

fn http(lines: &str) -> String {
    format!(
        "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n{lines}\n default_backend b\nbackend b\n server s 10.0.0.1:80\n"
    )
}

fn contains(text: &str, expected: &str) {
    let made = import(text).table;
    assert!(made.contains(expected), "{expected}\n{text}\n{made}");
}

fn lacks(text: &str, unexpected: &str) {
    let made = import(text).table;
    assert!(!made.contains(unexpected), "{unexpected}\n{text}\n{made}");
}

/// As `contains`, whether the table has its maps in one line or in several.
pub(super) fn says(text: &str, expected: &str) {
    let plain = |text: &str| {
        let words = text.replace(['{', '}', ','], " ");
        let words: Vec<&str> = words.split_whitespace().collect();
        words.join(" ")
    };
    let made = import(text).table;
    let is_there = plain(&made).contains(&plain(expected));
    assert!(is_there, "{expected}\n{text}\n{made}");
}

/// An `accept` ends its own stage alone: the next one is asked again.
#[test]
fn each_stage_of_tcp_request_is_asked() {
    let a = "if { src 10.0.0.0/8 }";
    for (lines, ranges) in [
        (
            format!(" tcp-request connection accept {a}\n tcp-request connection reject"),
            Some("10.0.0.0/8"),
        ),
        (
            format!(
                " tcp-request connection accept if {{ src 10.0.0.0/7 }}\n tcp-request connection reject\n tcp-request session reject {a}"
            ),
            Some("11.0.0.0/8"),
        ),
        // The stage decides, and not the order of the lines.
        (
            format!(
                " tcp-request content reject if {{ src 10.1.0.0/16 }}\n tcp-request connection accept {a}\n tcp-request connection reject unless {{ src 10.1.0.0/16 }}\n tcp-request content accept"
            ),
            None,
        ),
    ] {
        let text = of_frontend(&format!(" bind 127.0.0.1:80\n{lines}"));
        let made = import(&text).table;
        match ranges {
            Some(ranges) => assert!(
                made.contains(&format!("source-ranges: [\"{ranges}\"]")),
                "{lines}\n{made}"
            ),
            None => assert!(
                made.contains("\"10.0.0.0/16\"") && !made.contains("\"10.1.0.0/16\""),
                "{lines}\n{made}"
            ),
        }
    }
    for stage in ["session", "content"] {
        let text = of_frontend(&format!(
            " bind 127.0.0.1:80\n tcp-request connection accept {a}\n tcp-request {stage} reject {a}"
        ));
        let ranges = &table(&text).frontends[0].source_ranges;
        let ranges = ranges.as_ref().expect("ranges");
        let client: std::net::IpAddr = "10.0.0.1".parse().expect("an address");
        assert!(
            !ranges.iter().any(|range| range.contains(&client)),
            "{stage}"
        );
    }
}

/// haproxy adds the client's address last, when the lines about the field are done.
#[test]
fn a_client_cannot_forge_x_forwarded_for() {
    for lines in [
        " option forwardfor\n http-request del-header X-Forwarded-For",
        " http-request del-header x-forwarded-for\n option forwardfor",
        " http-request set-header X-Forwarded-For %[src]",
        " http-request set-header X-Forwarded-For %ci",
    ] {
        let text = http(lines);
        contains(&text, "x-forwarded: replace-for");
        lacks(&text, "remove:");
        table(&text);
    }
    // A field that is not what the table can write is not the client's either.
    for line in [
        "http-request set-header X-Forwarded-For %[req.hdr(cf-connecting-ip)]",
        "http-request set-header X-Forwarded-For %[src] if { src 10.0.0.0/8 }",
        "http-request del-header X-Forwarded-For unless { src 10.0.0.0/8 }",
    ] {
        let text = http(&format!(" {line}"));
        contains(&text, "x-forwarded: replace-for");
        assert_left_out(&text, 5, "X-Forwarded-For");
    }
    contains(
        &http(" http-request del-header X-Forwarded-For"),
        "request-headers: {remove: [X-Forwarded-For]}",
    );
    contains(
        &http(" http-request add-header X-Forwarded-For %[src]"),
        "x-forwarded: append-for",
    );
    let differ = http(" use_backend c if { path_beg /c }")
        + "backend c\n option forwardfor\n http-request del-header X-Forwarded-For\n server s 10.0.0.2:80\n";
    contains(&differ, "x-forwarded: replace-for");
    assert_left_out(&differ, 10, "divide the frontend");
}

#[test]
fn fields_that_are_set_are_what_endpoints_see() {
    for (line, expected) in [
        ("X-Forwarded-Proto https", "set: {X-Forwarded-Proto: https}"),
        ("X-Forwarded-Port 443", "set: {X-Forwarded-Port: \"443\"}"),
        (
            "X-Forwarded-Host a.example",
            "set: {X-Forwarded-Host: a.example}",
        ),
    ] {
        let text = http(&format!(
            " option forwardfor\n http-request set-header {line}"
        ));
        contains(&text, expected);
        table(&text);
    }
    // Where nothing else asks for these fields, the others come with it.
    let alone = http(" http-request set-header X-Forwarded-Host %[req.hdr(host)]");
    assert_left_out(&alone, 5, "writes the other X-Forwarded- fields");
    assert_left_out(
        &http(" http-request set-header X-Forwarded-Proto https if { hdr(x) y }"),
        5,
        "has no condition",
    );
}

#[test]
fn fields_are_added_and_the_last_rule_of_haproxy_wins() {
    contains(
        &http(" http-response add-header X-A b"),
        "response-headers: {add: {X-A: b}}",
    );
    let both = "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n http-request set-header X-A f\n http-response set-header X-A f\n default_backend b\nbackend b\n http-request set-header X-A b\n http-response set-header X-A b\n server s 10.0.0.1:80\n";
    contains(both, "request-headers: {set: {X-A: b}}");
    contains(both, "response-headers: {set: {X-A: f}}");
    let after = http(" http-after-response set-header X-A b");
    contains(
        &after,
        "response-headers: {set: {X-A: b}}, unreachable-status: 503}",
    );
    lacks(&after, "http: {version: h1, response-headers");
    table(&after);
    let shared = after + "frontend g\n mode http\n bind 127.0.0.2:80\n default_backend b\n";
    table(&shared);
    let of_backend = http("") + " http-after-response set-header X-A b\n";
    contains(&of_backend, "response-headers: {set: {X-A: b}}");
    assert_left_out(&of_backend, 9, "own answers");
    let conditional = http(" http-after-response set-header X-A b if { path /x }");
    assert_left_out(&conditional, 5, "has no condition");
    for expression in ["^(X-A|X-B):.*", "^X-A.*:", "^X-A: b"] {
        let text = http(&format!(" reqidel {expression}"));
        assert_left_out(&text, 5, "regular expression");
    }
}

/// A denial that names hosts by a part is told where others of them are served.
#[test]
fn hosts_that_are_compared_otherwise_are_told() {
    for (rule, why) in [
        (
            "http-request deny if { hdr_dom(host) -i bad.example }",
            "is served",
        ),
        (
            "http-request deny if { hdr_end(host) -i bad.example }",
            "is served",
        ),
        (
            "http-request deny unless { hdr(host) a.example }",
            "is served",
        ),
        (
            "http-request deny unless { hdr(host) -i a.example:8080 }",
            "is served",
        ),
        // haproxy denies a.example:8080 and a.example. with a dot behind it.
        (
            "http-request deny unless { hdr(host) -i a.example www.a.example }",
            "is served",
        ),
        (
            "http-request deny unless { hdr(host),field(1,:) -i a.example }",
            "is served",
        ),
        (
            "http-request deny unless { hdr_end(host) -i .a.example }",
            "is served",
        ),
        (
            "http-request deny if { hdr(host) -i a.example:8080 }",
            "a.example with any port",
        ),
        (
            "http-request deny unless { hdr_dom(host) -i a.example }",
            "not every name that has it inside",
        ),
        (
            "use_backend b if { hdr_dom(host) -i a.example }",
            "not every name that has it inside",
        ),
        (
            "use_backend b if { hdr_end(host) -i a.example }",
            "not every name that ends so",
        ),
        (
            "http-request allow if { hdr(host) a.example }",
            "is allowed",
        ),
    ] {
        assert_left_out(&http(&format!(" {rule}")), 5, why);
    }
    for rule in [
        "http-request deny if { hdr(host) -i a.example }",
        "http-request deny if { hdr_end(host) -i .a.example }",
        "use_backend b if { hdr(host) a.example }",
    ] {
        table(&http(&format!(" {rule}")));
    }
}

#[test]
fn answers_of_denials_are_kept() {
    let page = http(
        " http-request deny deny_status 429 content-type text/plain string slow if { path /x }",
    );
    contains(
        &page,
        "{path: /x, match: exact, status: 429, body-file: errors/429.txt, content-type: text/plain}",
    );
    table(&page);
    for (rest, route) in [
        (
            "deny deny_status 429 hdr Retry-After 5",
            "response-headers: {set: {Retry-After: \"5\"}}, status: 429}",
        ),
        (
            "deny deny_status 404 hdr X-A b hdr x-a c hdr content-type a/b",
            "response-headers: {set: {X-A: b}, add: {x-a: c}}, status: 404}",
        ),
        (
            "return status 200 content-type text/plain string up hdr X-A b",
            "response-headers: {set: {X-A: b}}, status: 200, body-file: errors/200.txt, content-type: text/plain}",
        ),
        (
            "deny errorfile /etc/haproxy/errors/retry.http hdr X-A b",
            "response-headers: {set: {Retry-After: \"5\"}, remove: [Cache-Control, Content-Type]}, status: 503, body-file: errors/403.html}",
        ),
    ] {
        let text = http(&format!(" http-request {rest} if {{ path /x }}"));
        table(&text);
        says(&text, route);
    }
    assert_left_out(
        &http(" http-request deny hdr X-A %[src] if { path /x }"),
        5,
        "denied all the same",
    );
}

/// A denial by the client's address keeps the status, body and fields that haproxy sends.
#[test]
fn answers_of_denials_by_address_are_kept() {
    let site = "http-errors site\n errorfile 404 /etc/haproxy/errors/404.http\n";
    for (rest, denied) in [
        ("deny deny_status 404", "denied: {status: 404}"),
        ("tarpit", "denied: {status: 500}"),
        (
            "deny content-type text/plain string no hdr X-A b",
            "denied: {body-file: errors/403.txt, content-type: text/plain, response-headers: {set: {X-A: b}}}",
        ),
        (
            "deny deny_status 404 errorfiles site",
            "denied: {status: 404, body-file: errors/404.html, content-type: text/html, response-headers: {remove: [Cache-Control]}}",
        ),
        (
            "return status 200 hdr X-A b",
            "denied: {status: 200, response-headers: {set: {X-A: b}}}",
        ),
    ] {
        let rule = format!(" http-request {rest} if {{ path_beg /x }} !{{ src 10.0.0.0/8 }}");
        let text = format!("{}{site}", http(&rule));
        table(&text);
        says(&text, denied);
    }
    let plain = http(" http-request deny if { path_beg /x } !{ src 10.0.0.0/8 }");
    table(&plain);
    lacks(&plain, "denied");
    // A route has one answer for all whom it denies.
    let first = "http-request deny deny_status 404 if { src 10.0.0.1 }";
    let two = http(&format!(
        " {first}\n http-request deny if {{ src 10.0.0.2 }}"
    ));
    assert_left_out(&two, 6, "as an earlier line says");
    says(&two, "denied: {status: 404}");
    table(&http(&format!(
        " {first}\n http-request deny deny_status 404 if {{ src 10.0.0.2 }}"
    )));
    // The rest of the clients get another answer.
    let rest = http(&format!(" {first}\n http-request deny"));
    table(&rest);
    says(&rest, "denied: {status: 404}");
    says(&rest, "status: 403");
    let same = http(&format!(" {first}\n http-request deny deny_status 404"));
    says(&same, "default: {status: 404}");
    let missing = http(" http-request deny deny_status 404 errorfiles none if { path /x }");
    assert_left_out(&missing, 5, "no section http-errors none");
    says(&missing, "{path: /x, match: exact, status: 404}");
}

#[test]
fn redirects_lead_where_those_of_haproxy_do() {
    for (line, redirect) in [
        ("redirect location /new", "{location: /new, status: 302}"),
        (
            "redirect location https://www.example/new?b=c",
            "{location: \"https://www.example/new?b=c\", status: 302}",
        ),
        (
            "redirect prefix https://www.example drop-query",
            "{scheme: https, host: www.example, drop-query: true, status: 302}",
        ),
    ] {
        let text = http(&format!(" {line}"));
        contains(&text, &format!("redirect: {redirect}"));
        table(&text);
    }
    assert_left_out(
        &http(" redirect prefix https://www.example drop-query append-slash"),
        5,
        "adds no slash",
    );
    table(&http(" redirect scheme https"));
    // One that a table cannot have is left out by its own line, and the frontend stays.
    for line in [
        "redirect prefix /a if { path /x }",
        "redirect scheme gopher if { path /x }",
        "redirect prefix https://a_b%2f.example if { path /x }",
    ] {
        let text = http(&format!(" {line}"));
        assert_left_out(&text, 5, "");
        contains(&text, "default: {service: b}");
    }
}

#[test]
fn a_frontend_that_serves_nobody_says_so_first() {
    let told = remarks(&http(" http-request deny if !{ method GET POST }"));
    assert_eq!(
        told[0],
        "0: left out: the frontend f serves nobody: line 5 denies everybody, because its exceptions cannot be looked at"
    );
    let some = remarks(&http(" http-request deny if { path /x } !{ method GET }"));
    assert!(
        !some.iter().any(|remark| remark.contains("serves nobody")),
        "{some:?}"
    );
}

/// `/bq` is `/q` in haproxy where the expression needs no slash.
#[test]
fn a_prefix_is_taken_off_as_the_expression_says() {
    let of = |expression: &str| {
        http(" use_backend c if { path_beg /b }")
            + &format!(
                "backend c\n http-request replace-path {expression}\n server s 10.0.0.2:80\n"
            )
    };
    for expression in ["^/b(/)?(.*) /\\2", "/b[/]?(.*) /\\1", "/b/?(.*) /\\1"] {
        let text = of(expression);
        contains(
            &text,
            "{path: /b, match: begins, service: c, rewrite: /, map-back: false}",
        );
        table(&text);
    }
    let folder = of("/b(/|$)(.*) /\\2");
    contains(&folder, "{path: /b, match: begins, service: c}");
    contains(
        &folder,
        "{path: /b, service: c, rewrite: /, map-back: false}",
    );
    // The slash must be there: `/b` stays.
    let below = of("^/b/(.*) /\\1");
    contains(
        &below,
        "[{path: /b, match: begins, service: c}, {path: /b/, service: c, rewrite: /, map-back: false}]",
    );
    table(&below);
    assert_left_out(&of("^/b[/]?(.*) /\\2"), 10, "has no counterpart");
    // Without ^ it fits inside of paths: here those that begin otherwise.
    let inside = of("/b/(.*) /\\1").replace("path_beg /b", "path_beg /");
    assert_left_out(&inside, 10, "begin it with ^");
}

#[test]
fn checks_that_look_at_less_are_told() {
    let of = |lines: &str| {
        of_backend(&format!(" {lines}")).replace("frontend f", "defaults\n mode http\nfrontend f")
    };
    let text = of(
        "option tcp-check\n tcp-check send info\n tcp-check expect string role:master\n server s 10.0.0.1:80 check",
    );
    contains(&text, "send: info, answer-contains: \"role:master\"");
    table(&text);
    for tls in ["verify none", "verify required ca-file /ca.pem sni str(a)"] {
        let text = of(&format!("server s 10.0.0.1:443 ssl {tls} check"));
        assert_left_out(&text, 7, "haproxy's check speaks TLS");
    }
    let http = of(
        "option httpchk GET /\n server s 10.0.0.1:443 ssl verify required ca-file /ca.pem sni str(a.example) check",
    );
    contains(&http, "tls: {sni: a.example, ca: /ca.pem}");
    table(&http);
    let system = of(
        "option httpchk GET /\n server s 10.0.0.1:443 ssl verify required sni str(a.example) check",
    );
    assert_left_out(&system, 8, "verifies no certificate");
}

#[test]
fn names_of_endpoints_are_verified_as_haproxy_does() {
    for (words, tls) in [
        ("", "{verified-name: off, ca: /ca.pem}"),
        ("sni str(a.test)", "{sni: a.test, ca: /ca.pem}"),
        ("verifyhost b.test", "{verified-name: b.test, ca: /ca.pem}"),
        // haproxy takes verifyhost only where it asks for no name.
        (
            "sni str(a.test) verifyhost b.test",
            "{sni: a.test, ca: /ca.pem}",
        ),
    ] {
        let text = of_backend(&format!(
            " server s 10.0.0.1:443 ssl verify required ca-file /ca.pem {words}"
        ));
        contains(&text, &format!("    tls: {tls}\n"));
        table(&text);
    }
}

/// Of several backup servers haproxy uses one.
#[test]
fn one_backup_is_used_at_a_time() {
    let backups = "server b 10.0.0.2:80 backup\n server c 10.0.0.3:80 backup";
    let one = of_backend(&format!(
        " retries 0\n balance leastconn\n server a 10.0.0.1:80\n {backups}"
    ));
    contains(&one, "algorithm: first");
    table(&one);
    for lines in [
        format!("server a 10.0.0.1:80\n server d 10.0.0.4:80\n {backups}"),
        format!(
            "server a 10.0.0.1:80\n stick-table type ip size 1k expire 1m\n stick on src\n {backups}"
        ),
        format!("server a 10.0.0.1:80\n {backups} maxconn 5"),
    ] {
        let text = of_backend(&format!(" {lines}"));
        let last = 4 + lines.lines().count();
        assert_left_out(&text, last, "all backup endpoints at once");
        lacks(&text, "address: \"10.0.0.3");
        contains(&text, "10.0.0.2");
    }
    let all = of_backend(&format!(
        " retries 0\n option allbackups\n server a 10.0.0.1:80\n server d 10.0.0.4:80\n {backups}"
    ));
    contains(&all, "10.0.0.3");
    table(&all);
}

#[test]
fn tls_at_a_bind_is_not_more_open() {
    let of = |words: &str| {
        of_frontend(&format!(
            " mode http\n bind 127.0.0.1:443 ssl crt /a.pem {words}"
        ))
        .replace("backend b", "backend b\n mode http")
    };
    contains(&of(""), "http2: false");
    contains(&of("alpn http/1.1"), "http2: false");
    lacks(&of("alpn h2,http/1.1"), "http2");
    lacks(&of("alpn h2,http/1.1"), "alpn");
    contains(
        &of("alpn h2,http/1.1,http/1.0"),
        "alpn: [h2, http/1.1, http/1.0]",
    );
    contains(&of("strict-sni"), "unknown-name: refuse, no-name: refuse");
    assert_left_out(&http(" option httpclose"), 5, "stays open");
    table(&http(" no option httpclose"));
}

#[test]
fn heads_of_pages_are_kept() {
    for (line, parts) in [
        (
            "errorfile 503 /etc/haproxy/errors/retry.http",
            "\"503\": {body-file: errors/503.html, response-headers: {set: {Retry-After: \"5\"}, remove: [Cache-Control, Content-Type]}}",
        ),
        (
            "errorfile 500 /etc/haproxy/errors/retry.http",
            "\"500\": {status: 503, body-file: errors/500.html",
        ),
        (
            "http-error status 429 content-type application/json string {} hdr Retry-After 5",
            "\"429\": {body-file: errors/429.json, response-headers: {set: {Retry-After: \"5\"}}}",
        ),
    ] {
        let text = http(&format!(" {line}"));
        table(&text);
        says(&text, parts);
    }
}

/// Ballast compares alternative names alone, and haproxy the common name as well.
#[test]
fn a_certificate_with_a_common_name_alone_is_told() {
    for (words, is_told) in [
        ("verify required verifyhost db.internal", true),
        ("verify required verifyhost DB.internal", true),
        ("verify required sni str(db.internal)", true),
        ("verify required verifyhost other.internal", false),
        ("verify required", false),
        ("verify none verifyhost db.internal", false),
    ] {
        let server = format!(" server s 10.0.0.1:443 ssl ca-file /etc/ssl/common-name.pem {words}");
        let text = of_backend(&server);
        match is_told {
            true => assert_left_out(&text, 5, "subjectAltName"),
            false => drop(table(&text)),
        }
    }
    let checked = of_backend(
        " mode http\n option httpchk\n server s 10.0.0.1:443 ssl ca-file /etc/ssl/common-name.pem verify required check check-sni db.internal",
    );
    assert_left_out(&checked, 7, "subjectAltName");
}

/// An earlier denial by the client's address goes before an answer for everybody, and such an answer is no reason to reset connections.
#[test]
fn who_is_denied_first_gets_no_later_answer() {
    for (later, route) in [
        (
            "http-request deny deny_status 404 if { path_beg /x }",
            "status: 404",
        ),
        (
            "http-request return status 200 if { path_beg /x }",
            "status: 200",
        ),
    ] {
        let text = http(&format!(
            " http-request deny if {{ path_beg /x }} !{{ src 10.0.0.0/8 }}\n {later}"
        ));
        contains(
            &text,
            &format!("{{path: /x, match: begins, source-ranges: [\"10.0.0.0/8\"], {route}}}"),
        );
    }
    let text = http(
        " http-request deny deny_status 404 if !{ path /x }\n http-request deny if { path /x } !{ src 10.0.0.0/8 }",
    );
    contains(
        &text,
        "{path: /x, match: exact, source-ranges: [\"10.0.0.0/8\"], service: b}",
    );
    assert!(
        !import(&text).table.contains("\n    source-ranges"),
        "{text}"
    );
}

/// The checks of a section are its own: `option` chooses them, and its first rule takes the place of those of the defaults.
#[test]
fn checks_are_those_of_the_section() {
    let of = |defaults: &str, backend: &str| {
        format!(
            "defaults\n mode http\n{defaults}\nfrontend f\n bind 127.0.0.1:80\n default_backend b\nbackend b\n{backend}\n server s 10.0.0.1:80 check\n"
        )
    };
    let of_defaults =
        " option httpchk GET /h\n http-check expect status 204\n http-check expect string NO";
    for option in [
        "redis-check",
        "smtpchk",
        "pgsql-check",
        "ssl-hello-chk",
        "tcp-check",
    ] {
        contains(&of(of_defaults, &format!(" option {option}")), "mode: tcp");
    }
    says(&of(of_defaults, ""), "path: /h");
    says(&of(of_defaults, ""), "expect: \"204\"");
    for (own, path) in [
        (" option httpchk GET /x", "path: /x"),
        (" http-check send meth GET uri /x", "path: /x"),
        (" option httpchk", "method: OPTIONS"),
    ] {
        says(&of(of_defaults, own), path);
        lacks(&of(of_defaults, own), "expect:");
        lacks(&of(of_defaults, own), "body:");
    }
    let tcp = " option tcp-check\n tcp-check send PING\n tcp-check expect string PONG";
    contains(&of(tcp, " option tcp-check"), "answer-contains: PONG");
    // In haproxy these are no rules.
    for word in ["disable-on-404", "send-state"] {
        says(&of(of_defaults, &format!(" http-check {word}")), "path: /h");
        says(
            &of(of_defaults, &format!(" http-check {word}")),
            "expect: \"204\"",
        );
    }
    let expects = of(of_defaults, " http-check expect status 200");
    says(&expects, "path: /h");
    says(&expects, "expect: \"200\"");
    assert!(
        remarks(&expects)
            .iter()
            .any(|remark| remark.contains("write http-check send"))
    );
    let waiting = " tcp-check send PING\n tcp-check expect string PONG";
    lacks(&of(waiting, " option tcp-check"), "answer-contains");
    contains(
        &of("", " http-check connect\n option tcp-check"),
        "mode: tcp",
    );
    // Rules without their option, of the section or of its defaults.
    for rules in [
        " http-check send meth GET uri /x\n http-check expect status 204",
        " tcp-check send PING\\n\n tcp-check expect string PONG",
    ] {
        for text in [of(rules, ""), of("", rules)] {
            lacks(&text, "expect");
            lacks(&text, "answer-contains");
            contains(&text, "mode: tcp");
        }
    }
    // Ballast sends the same bytes in each check, so an answer to a text with a date in it never comes: the check only connects.
    let lf = of(
        "",
        " option tcp-check\n tcp-check send-lf a%[date]\n tcp-check expect string PONG",
    );
    lacks(&lf, "answer-contains");
    assert_left_out(&lf, 9, "looks no further");
}

#[test]
fn a_redirect_to_where_the_client_was_is_left_out_alone() {
    for redirect in [
        "redirect prefix / if { path_beg /old }",
        "redirect prefix / drop-query if { path_beg /old }",
    ] {
        let text = http(&format!(" {redirect}"));
        assert_left_out(&text, 5, "to another place");
        contains(&text, "default: {service: b}");
    }
}

#[test]
fn a_denial_of_all_behind_a_lost_exception_says_so_first() {
    for lines in [
        " http-request allow if { method GET }\n http-request deny",
        " http-request allow if { src_is_local }\n http-request deny",
    ] {
        let told = remarks(&http(lines));
        assert!(
            told[0].contains("the frontend f serves nobody: line 6"),
            "{told:?}"
        );
    }
    let exact = remarks(&http(" http-request deny"));
    assert!(
        !exact.iter().any(|remark| remark.contains("serves nobody")),
        "{exact:?}"
    );
}

#[test]
fn a_fixed_address_of_the_client_beside_its_own_is_told() {
    let text = http(" option forwardfor\n http-request set-header X-Forwarded-For 10.0.0.1");
    assert!(
        remarks(&text)
            .iter()
            .any(|remark| remark.contains("in a second field"))
    );
}
