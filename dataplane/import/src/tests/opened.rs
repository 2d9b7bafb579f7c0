//! Rules that an import once followed by another name, path or order than haproxy does.

use super::import;
use super::lines::{assert_left_out, assert_noted, remarks, table};

/// A frontend in mode http with these lines, and backends a, b and c.
fn http(lines: &str) -> String {
    format!(
        "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n{lines}\n default_backend b\nbackend a\n server s 10.0.0.3:80\nbackend b\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\n"
    )
}

fn assert_closed(text: &str) {
    let made = import(text).table;
    assert!(!made.contains("\nfrontends:"), "{text}\n{made}");
}

/// A client may ask TLS for one name and write another one into the Host.
#[test]
fn the_name_of_tls_is_not_the_host() {
    let secure = |line: &str| http(&format!(" {line}")).replace(":80\n ", ":443 ssl crt /a.pem\n ");
    for rule in [
        "http-request deny if { ssl_fc_sni b.example }",
        "http-request deny unless { ssl_fc_sni -i b.example }",
        "http-request return status 403 if { ssl_fc_sni_end .b.example }",
    ] {
        assert_closed(&secure(rule));
    }
    let chosen = secure("use_backend c if { ssl_fc_sni -i b.example }");
    assert_left_out(&chosen, 5, "another name than that of TLS");
    assert!(!import(&chosen).table.contains("host: b.example"));
    // haproxy finds neither where there is no TLS, or where it ended already.
    for rule in [
        "use_backend c if { ssl_fc_sni -i b.example }",
        "use_backend c if { req.ssl_sni -i b.example }",
    ] {
        let text = http(&format!(" {rule}"));
        assert_noted(&text, 5, "in haproxy neither");
        assert!(table(&text).frontends[0].routes.is_empty(), "{rule}");
    }
}

#[test]
fn rules_behind_a_change_of_path_or_host_close_or_are_left_out() {
    for change in [
        "http-request set-path %[path,lower]",
        "http-request replace-path /x(.*) /y\\1",
        "http-request set-uri /x%[path]",
        "http-request replace-uri ^/x /y",
        "http-request normalize-uri path-merge-slashes",
    ] {
        for rule in [
            "http-request deny if { path_beg /admin }",
            "http-request return status 404 if { path /x }",
        ] {
            assert_closed(&http(&format!(" {change}\n {rule}")));
        }
        let behind = http(&format!(" {change}\n use_backend c if {{ path_beg /c }}"));
        assert_left_out(&behind, 6, "the path that line 5 has changed");
        let other = http(&format!(
            " {change}\n http-request deny if {{ hdr(host) -i x }}"
        ));
        match change.contains("uri /x") || change.contains("-uri ^") {
            true => assert_closed(&other),
            false => assert!(import(&other).table.contains("{host: x, status: 403}")),
        }
        let before = http(&format!(" http-request deny if {{ path /x }}\n {change}"));
        assert!(import(&before).table.contains("path: /x"), "{before}");
    }
    for change in [
        "http-request set-header Host x.example",
        "http-request set-header Host x.example if { path /x }",
        "http-request replace-header host a b",
        "http-request del-header Host",
    ] {
        assert_closed(&http(&format!(
            " {change}\n http-request deny if {{ hdr(host) -i a.example }}"
        )));
        let chosen = http(&format!(
            " {change}\n use_backend c if {{ hdr(host) -i a.example }}"
        ));
        assert_left_out(&chosen, 6, "the host that line 5 has changed");
    }
    // A backend sees what its frontend changed, and what it takes off itself.
    let behind = http(" http-request set-path /x").replace(
        "backend b\n",
        "backend b\n http-request deny if { path_beg /admin }\n",
    );
    assert_closed(&behind);
    let stripped = http("").replace(
        "backend b\n",
        "backend b\n http-request replace-path ^/b(/)?(.*) /\\2\n http-request deny if { path_beg /admin }\n",
    );
    assert_closed(&stripped);
}

#[test]
fn denials_by_another_form_of_the_address_close() {
    for criterion in [
        "src,ipmask(24) 10.0.0.0",
        "src,map_ip(/x) 1",
        "src_is_local",
    ] {
        assert_closed(&http(&format!(" http-request deny if {{ {criterion} }}")));
        let chosen = http(&format!(" use_backend c if {{ {criterion} }}"));
        assert_left_out(&chosen, 5, "write");
        let told = remarks(&chosen).join("\n");
        assert!(!told.contains("max-connections"), "{told}");
    }
}

#[test]
fn an_answer_that_refuses_stays() {
    for (rest, route) in [
        ("status 403 hdr X-A %[src]", "status: 403}"),
        ("status 503 errorfiles x", "status: 503}"),
        (
            "status 403 content-type text/plain string no hdr X-A %[src]",
            "status: 403, body-file: errors/403.txt, content-type: text/plain}",
        ),
        ("status 404 lf-string %[src]", "status: 404}"),
    ] {
        let text = http(&format!(" http-request return {rest} if {{ path /x }}"));
        assert_left_out(&text, 5, "all the same");
        let made = import(&text).table;
        assert!(
            made.contains(&format!("{{path: /x, match: exact, {route}")),
            "{made}"
        );
    }
    let closing = http(" http-request return status 403 if { src -f /nowhere }");
    assert_closed(&closing);
    let tarpit = http(" http-request tarpit if { path /x }");
    assert!(import(&tarpit).table.contains("status: 500"));
    assert_left_out(&http(" http-request reject if { path /x }"), 5, "no answer");
}

#[test]
fn connections_are_rejected_by_the_name_that_they_ask_for() {
    let tcp = |lines: &str| {
        format!(
            "frontend f\n bind 127.0.0.1:443\n tcp-request inspect-delay 5s\n{lines}\nbackend b\n server s 10.0.0.1:443\nbackend c\n server s 10.0.0.2:443\n"
        )
    };
    // Only these names are served.
    let some = tcp(
        " tcp-request content reject unless { req.ssl_sni -i a.example b.example }\n use_backend c if { req.ssl_sni -i b.example }\n default_backend b",
    );
    let made = table(&some);
    let routes = made.frontends[0].routes.iter();
    let hosts: Vec<String> = routes
        .flat_map(|route| route.host.as_ref().map(ToString::to_string))
        .collect();
    assert_eq!(hosts, ["a.example", "b.example"]);
    assert!(made.frontends[0].default.is_none());
    let of_network = tcp(
        " tcp-request content reject if !{ src 10.0.0.0/8 } { req.ssl_sni -i b.example }\n default_backend b",
    );
    assert!(
        import(&of_network)
            .table
            .contains("{host: b.example, source-ranges: [\"10.0.0.0/8\"], service: b}"),
        "{}",
        import(&of_network).table
    );
    // An accept before it ends the rules.
    table(&tcp(
        " tcp-request content accept\n tcp-request content reject if { req.ssl_sni -i b.example }\n default_backend b",
    ));
    // All but one name, or a list that cannot be read: no route says it.
    assert_closed(&tcp(
        " tcp-request content reject if { req.ssl_sni -i b.example }\n default_backend b",
    ));
    assert_closed(&tcp(
        " tcp-request content reject if { req.ssl_sni -f /nowhere }\n default_backend b",
    ));
    let behind = tcp(" default_backend b").replace(
        "backend b\n",
        "backend b\n tcp-request content reject if { req.ssl_sni -i b.example }\n",
    );
    let behind = behind.replacen(
        "default_backend b\n tcp-request content reject if { req.ssl_sni -i b.example }\n",
        "default_backend b\n",
        1,
    );
    assert_closed(&behind);
}

#[test]
fn fields_of_a_pattern_stay_and_are_told() {
    for (method, is_exact) in [
        ("", true),
        (" -m str", true),
        (" -m beg", false),
        (" -m reg", false),
    ] {
        for keyword in ["http-request", "http-response"] {
            let text = http(&format!(" {keyword} del-header X-A{method}"));
            match is_exact {
                true => drop(table(&text)),
                false => assert_left_out(&text, 5, "those of a pattern stay"),
            }
            assert_eq!(
                import(&text).table.contains("remove: [X-A]"),
                is_exact,
                "{text}"
            );
        }
    }
}

/// A `listen` is a frontend for all its requests.
#[test]
fn edits_of_a_listen_are_there_behind_its_other_backends() {
    let text = "defaults\n mode http\nlisten l\n bind 127.0.0.1:80\n http-request set-header X-L 1\n use_backend c if { path_beg /c }\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\n";
    let made = table(text);
    for service in &made.services {
        let http = service.http.as_ref().expect("edits");
        assert_eq!(http.request_headers.set.len(), 1, "{}", service.name);
    }
}

#[test]
fn patterns_that_haproxy_never_finds_choose_nothing() {
    for (criterion, why) in [
        ("hdr(host) -i *.w.example", "the letter *"),
        ("hdr(host),lower A.example", "in small letters"),
        ("path,lower /A", "in small letters"),
    ] {
        let text = http(&format!(" use_backend c if {{ {criterion} }}"));
        assert_noted(&text, 5, why);
        assert!(table(&text).frontends[0].routes.is_empty(), "{criterion}");
        // An exception that is none.
        let denied = import(&http(&format!(
            " http-request deny unless {{ {criterion} }}"
        )))
        .table;
        assert!(denied.contains("default: {status: 403}"), "{denied}");
    }
    table(&http(" use_backend c if { hdr(host),lower -i A.example }"));
    let or = http(" use_backend c if { path /a } OR { path /b }");
    assert_eq!(table(&or).frontends[0].routes.len(), 2);
}

#[test]
fn a_map_loses_its_bad_keys_alone() {
    let known =
        http(" use_backend %[req.hdr(host),lower,word(1,:),map_str(/etc/haproxy/hosts.map,c)]");
    assert!(import(&known).table.contains("default: {service: c}"));
    assert!(import(&known).table.contains("host: static.example.com"));
    let unknown = http(" use_backend %[req.hdr(host),upper,map_str(/etc/haproxy/hosts.map,c)]");
    assert_left_out(&unknown, 5, "and the default of the line, too");
    assert!(import(&unknown).table.contains("default: {service: b}"));
}

#[test]
fn what_differs_is_no_note() {
    for (line, why) in [
        ("option forwardfor if-none", "behind those"),
        ("option forwardfor except 10.0.0.0/8", "10.0.0.0/8 too"),
        (
            "option http-restrict-req-hdr-names delete",
            "reach the endpoints",
        ),
        (
            "option http-restrict-req-hdr-names reject",
            "no reason to refuse",
        ),
    ] {
        assert_left_out(&http(&format!(" {line}")), 5, why);
    }
    table(&http(" option http-restrict-req-hdr-names preserve"));
    let of = |lines: &str| {
        http("").replace(
            "backend b\n server s 10.0.0.1:80",
            &format!("backend b\n {lines}"),
        )
    };
    assert_left_out(
        &of("server s 10.0.0.1:80 check\n server t 10.0.0.4:80"),
        10,
        "haproxy did not check t",
    );
    assert_left_out(
        &of("stats enable\n server s 10.0.0.1:80"),
        10,
        "an address of its own",
    );
    let cookie = "cookie S insert indirect httponly\n server s 10.0.0.1:80 cookie a";
    table(&of(cookie));
    let some = of(&format!("{cookie}\n server t 10.0.0.4:80"));
    assert_left_out(&some, 10, "servers without `cookie`");
    let strict = http("").replace(":80\n", ":443 ssl crt /a.pem strict-sni\n");
    assert_left_out(&strict, 4, "421");
    let redirect = http(" redirect scheme https").replace("127.0.0.1:80", "127.0.0.1:8080");
    assert_left_out(&redirect, 5, "the port that the client wrote");
    table(&http(" redirect scheme https"));
    let hsts = http(" http-response set-header Strict-Transport-Security max-age=60");
    assert!(
        import(&hsts)
            .table
            .contains("Strict-Transport-Security: \"max-age=60\"")
    );
    table(&hsts);
}

#[test]
fn servers_are_verified_as_the_global_section_says() {
    for (global, tls) in [
        ("none", "tls: {insecure: true}"),
        ("required", "tls: {verified-name: off, ca: /ca.pem}"),
    ] {
        let text = format!(
            "global\n ssl-server-verify {global}\n{}",
            http("").replace("10.0.0.1:80", "10.0.0.1:443 ssl ca-file /ca.pem")
        );
        let made = import(&text).table;
        assert!(made.contains(tls), "{made}");
        table(&text);
    }
}

/// A client whose address is denied on every path is answered 403, as by haproxy, and not reset.
#[test]
fn who_is_denied_everywhere_gets_an_answer() {
    let made = table(&http(" http-request deny unless { src 10.0.0.0/8 }"));
    let frontend = &made.frontends[0];
    assert!(frontend.source_ranges.is_none());
    let default = frontend.default.as_ref().expect("a default");
    assert!(default.source_ranges.is_some());
}

/// A frontend and a backend may have one name.
#[test]
fn the_rules_of_a_backend_hold_beside_a_frontend_of_its_name() {
    let text = "defaults\n mode http\nfrontend web\n bind 127.0.0.1:80\n default_backend web\nbackend web\n http-request deny if { path_beg /admin }\n server s 10.0.0.1:80\n";
    let routes = &table(text).frontends[0].routes;
    assert!(
        routes
            .iter()
            .any(|route| route.path() == "/admin" && route.status == Some(403)),
        "{routes:?}"
    );
}

#[test]
fn a_denial_that_asks_whether_there_is_anything_is_not_lost_silently() {
    for rule in [
        "http-request deny if { hdr(host) -m found }",
        "http-request deny if { path -m found }",
        "http-request deny unless { url_reg ^/public$ }",
        "http-request deny unless { shdr(host) -i a.example }",
    ] {
        assert_left_out(&http(&format!(" {rule}")), 5, "");
    }
}

/// An `or` with nothing beside it would always hold.
#[test]
fn an_or_with_nothing_beside_it_says_nothing() {
    for condition in [
        "unless { src 10.0.0.0/8 } or",
        "unless or { src 10.0.0.0/8 }",
        "unless { src 10.0.0.0/8 }",
    ] {
        let text = http(&format!(" http-request deny {condition}"));
        let made = import(&text).table;
        assert!(made.contains("10.0.0.0/8"), "{text}\n{made}");
    }
    let denied = http(" http-request deny if { path_beg /b } { src 10.0.0.0/8 } or");
    let routes = &table(&denied).frontends[0].routes;
    assert!(
        routes.iter().all(|route| route.path() == "/b"),
        "{routes:?}"
    );
}

#[test]
fn an_expression_that_begins_every_path_means_every_path() {
    for expression in ["^", "^.*", "^(/|$)"] {
        let text = http(&format!(
            " http-request deny if {{ path_reg {expression} }}"
        ));
        let frontends = table(&text).frontends;
        let default = frontends.first().and_then(|one| one.default.as_deref());
        assert!(
            default.is_none_or(|route| route.status == Some(403)),
            "{expression}: {default:?}"
        );
    }
}

/// haproxy compares a client's IPv4 address with networks of IPv6, too.
#[test]
fn networks_of_ipv6_have_clients_that_come_by_ipv4() {
    let made = import(&http(" http-request deny if { src ::ffff:127.0.0.0/104 }")).table;
    assert!(made.contains("\"126.0.0.0/8\""), "{made}");
    let frontends = table(&http(" http-request deny if { src ::/0 }")).frontends;
    let default = frontends.first().and_then(|one| one.default.as_deref());
    assert!(
        default.is_none_or(|route| route.status == Some(403)),
        "{default:?}"
    );
}

#[test]
fn what_haproxy_knows_without_an_acl_depends_on_the_place() {
    let local =
        http(" http-request set-src hdr(x-forwarded-for)\n http-request deny unless LOCALHOST");
    assert_closed(&local);
    let tcp = "frontend f\n bind 127.0.0.1:80\n mode tcp\n tcp-request content reject if !HTTP\n default_backend b\nbackend b\n mode tcp\n server s 10.0.0.1:80\n";
    assert_left_out(tcp, 4, "HTTP");
}

#[test]
fn an_answer_in_a_block_that_is_not_understood_closes() {
    let block =
        " .if feature(THREAD)\n http-request return status 403 if { path_beg /admin }\n .endif";
    assert_closed(&http(block));
}

#[test]
fn what_defaults_disable_a_section_enables() {
    let text = http("").replace("mode http\n", "mode http\n disabled\n");
    assert_closed(&text);
    let enable = |text: &str, head: &str| text.replace(head, &format!("{head} enabled\n"));
    let text = enable(&enable(&text, "frontend f\n"), "backend b\n");
    assert_eq!(table(&text).frontends.len(), 1);
}

#[test]
fn names_of_tls_in_any_case_are_told_where_a_rejection_looks_at_one() {
    let text = "frontend f\n bind 127.0.0.1:443\n mode tcp\n tcp-request content reject unless { req.ssl_sni a.example }\n default_backend b\nbackend b\n mode tcp\n server s 10.0.0.1:443\n";
    assert_left_out(text, 4, "");
    let text = text.replace("req.ssl_sni a", "req.ssl_sni -i a");
    assert!(
        remarks(&text)
            .iter()
            .all(|remark| !remark.contains("left out") && !remark.contains("differs"))
    );
}

#[test]
fn binds_without_end_are_left_out() {
    let mut text = String::from("frontend f\n mode tcp\n default_backend b\n");
    for part in 0..100 {
        text.push_str(&format!(" bind 127.0.{part}.1:1-4096\n"));
    }
    text.push_str("backend b\n mode tcp\n server s 10.0.0.1:443\n");
    assert_left_out(&text, 20, "divide the configuration");
}

#[test]
fn rules_about_the_content_hold_for_requests_that_other_sections_send_to_a_listen() {
    let text = "defaults\n mode http\nfrontend web\n bind 127.0.0.1:80\n default_backend l\nlisten l\n bind 127.0.0.1:81\n tcp-request content reject if { src 127.0.0.0/8 }\n server s 10.0.0.1:80\n";
    let web = &table(text).frontends[0];
    let default = web.default.as_deref().expect("a route");
    let is_narrowed = default.source_ranges.is_some() || web.source_ranges.is_some();
    assert!(is_narrowed, "{web:?}");
}

#[test]
fn an_answer_that_refuses_narrows_who_sees_the_page() {
    let text = "listen stats\n mode http\n bind 127.0.0.1:8404\n stats enable\n stats uri /\n http-request return status 403 unless { src 10.0.0.0/8 }\n";
    let made = import(text).table;
    assert!(made.contains("source-ranges: [\"10.0.0.0/8\"]"), "{made}");
}
