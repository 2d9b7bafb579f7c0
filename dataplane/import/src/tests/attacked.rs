//! What let in whom haproxy keeps out, without a word.

use ballast_core::table::{Format, RoutingTable, parse};

use super::import;
use super::lines::{assert_left_out, remarks, table};

/// A frontend in mode http with these lines, backends one and m, and one that denies, one without a server and one that redirects.
fn http(lines: &str, default: &str) -> String {
    format!(
        "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n {lines}\n{default}backend one\n server s 10.0.0.1:80\nbackend denies\n http-request deny\n server s 10.0.0.2:80\nbackend empty\nbackend leads\n redirect prefix https://x.example\n server s 10.0.0.3:80\nbackend m\n server s 10.0.0.4:80 weight 0\n"
    )
}

fn one(lines: &str) -> String {
    http(lines, " default_backend one\n")
}

#[test]
fn names_are_told_where_another_backend_turns_them_away() {
    let chosen = "use_backend one if { hdr(host) -i a.test }";
    for dead in ["denies", "empty", "leads", "nowhere"] {
        let text = http(chosen, &format!(" default_backend {dead}\n"));
        assert_left_out(&text, 5, "turns them away");
        let text = http(
            &format!("{chosen}\n use_backend {dead}"),
            " default_backend one\n",
        );
        assert_left_out(&text, 5, "turns them away");
        let text = one(&format!(
            "use_backend {dead} unless {{ hdr(host) -i a.test }}"
        ));
        assert_left_out(&text, 5, "turns away there of these is served");
    }
    table(&one(&format!("{chosen}\n use_backend one")));
    let map = "use_backend %[req.hdr(host),lower,map(/etc/haproxy/one.map)]";
    assert_left_out(&http(map, ""), 5, "turns them away");
}

#[test]
fn names_are_told_where_a_line_answers_the_others() {
    for answer in [
        "return status 404",
        "return status 200 content-type text/plain string no",
        "redirect prefix https://a.test",
        "deny",
    ] {
        let text = one(&format!(
            "http-request {answer} unless {{ hdr(host) -i a.test }}"
        ));
        assert_left_out(&text, 5, "of these is served");
    }
}

#[test]
fn a_url_and_no_path_are_told() {
    assert_left_out(
        &one("http-request deny unless { url_beg /x }"),
        5,
        "write path_beg",
    );
    assert_left_out(
        &one("http-request deny unless { url_reg ^/x }"),
        5,
        "write path_reg",
    );
    assert_left_out(
        &one("http-request deny unless { path_beg / }"),
        5,
        "OPTIONS *",
    );
    table(&one("use_backend one if { path_beg / }"));
}

#[test]
fn a_check_of_several_steps_connects() {
    let check = "http-check send meth GET uri /a\n http-check expect status 200\n";
    let text = one("")
        .replace(
            "\nbackend one\n",
            &format!("\nbackend one\n option httpchk\n {check} {check}"),
        )
        .replace("10.0.0.1:80", "10.0.0.1:80 check");
    assert_left_out(&text, 11, "asks nothing");
    let made = import(&text).table;
    assert!(
        made.contains("mode: tcp") && !made.contains("path: /a"),
        "{made}"
    );
    // The steps of a section take the place of those of its defaults.
    let text = one("")
        .replace(
            "mode http\n",
            &format!("mode http\n option httpchk\n {check}"),
        )
        .replace(
            "\nbackend one\n",
            "\nbackend one\n http-check send meth GET uri /b\n",
        )
        .replace("10.0.0.1:80", "10.0.0.1:80 check");
    assert!(import(&text).table.contains("path: /b"), "{text}");
}

#[test]
fn a_field_that_cannot_be_overwritten_is_taken_out() {
    for line in [
        "http-request set-header X-Own %[src]",
        "http-request set-header X-Own %{+Q}[ssl_c_s_dn(cn)]",
        "http-request del-header X-Own unless { src 10.0.0.0/8 }",
        "http-request replace-header X-Own .* none",
        "option forwardfor header X-Own",
    ] {
        let text = one(line);
        assert_left_out(&text, 5, "the field is taken out of requests");
        let made = import(&text).table;
        assert!(made.contains("remove: [X-Own]"), "{text}\n{made}");
    }
    assert_left_out(
        &one("http-request set-header X-Real-IP %[src]"),
        5,
        "write option forwardfor",
    );
    let told = remarks(&one("http-request add-header X-Own %[src]")).concat();
    assert!(!told.contains("taken out"), "{told}");
}

#[test]
fn a_lost_answer_keeps_clients_out() {
    for line in [
        "http-request redirect location https://x.example/?%[path] unless { src 10.0.0.0/8 }",
        "http-request redirect location /x set-cookie A=b unless { src 10.0.0.0/8 }",
        "http-request return status 200 content-type text/plain lf-string %[src] unless { src 10.0.0.0/8 }",
        "redirect prefix / append-slash unless { src 10.0.0.0/8 }",
    ] {
        let text = one(line);
        let made = import(&text).table;
        assert!(
            made.contains("source-ranges: [\"10.0.0.0/8\"]"),
            "{text}\n{made}"
        );
        assert!(import(&text).report.unlike() > 0);
    }
    for line in [
        "http-request redirect location /x if { path /y } !{ req.cook(s) -m found }",
        "http-request return status 200 unless { req.hdr(x-k) s }",
    ] {
        assert_left_out(&one(line), 5, "from the backend are served");
    }
    let slash = one("redirect prefix / append-slash if { path /x }");
    assert!(import(&slash).table.contains("\nfrontends:"));
}

#[test]
fn clients_of_an_idle_backend_are_denied() {
    for line in [
        "use_backend m if { src 10.0.0.0/8 }",
        "use_backend %[src,map_ip(/etc/haproxy/nets.map)]",
    ] {
        let text = one(line);
        let made = import(&text).table;
        assert!(
            made.contains("source-ranges:"),
            "{text}\n{made}\n{:?}",
            remarks(&text)
        );
    }
}

#[test]
fn small_differences_are_told_or_followed() {
    let sni = one("").replace(
        "10.0.0.1:80",
        "10.0.0.1:80 ssl verify required ca-file /ca.pem sni req.hdr(host)",
    );
    assert_left_out(&sni, 8, "verifies none");
    let made = import(&one("timeout client 1s")).table;
    assert!(made.contains("request: 1s"), "{made}");
    let made = import(&one("option http-server-close").replace(
        "\nbackend one\n",
        "\nbackend one\n option http-server-close\n",
    ))
    .table;
    assert!(made.contains("reuse: never"), "{made}");
    for (level, has) in [("notice", false), ("info", true)] {
        let made = import(&one(&format!("log 10.0.0.9 local0 {level}"))).table;
        assert_eq!(made.contains("10.0.0.9"), has, "{made}");
    }
    let page = "listen s\n mode http\n bind 127.0.0.1:81\n stats uri /x\n";
    assert_left_out(page, 4, "not at \"/x\"");
    let twice = one("http-response set-header Strict-Transport-Security max-age=9").replace(
        "\nbackend one\n",
        "\nbackend one\n http-response set-header Strict-Transport-Security max-age=5\n",
    );
    assert_left_out(&twice, 8, "line 5 sets the field last");
    for criterion in ["METH_POST", "{ req.hdr(x-k) s }"] {
        let text = one(&format!("use_backend m if {criterion}"));
        assert_left_out(&text, 5, "by `when`");
    }
    assert_left_out(
        &one("use_backend m if { hdr(host) A.test }"),
        5,
        "small letters",
    );
}

/// A redirect or an answer that keeps clients out by their addresses, and that the table does not have as it is.
#[test]
fn clients_who_are_kept_out_by_another_answer_stay_out() {
    let lan = "{ src 10.0.0.0/8 }";
    for line in [
        "redirect location %[path]",
        "http-request return lf-string %[src]",
    ] {
        let text = one(&format!("{line} unless {lan}"));
        assert_left_out(&text, 5, "are denied");
        let made = import(&text).table;
        assert!(made.contains(r#"source-ranges: ["10.0.0.0/8"]"#), "{made}");
    }
    for answer in [
        "redirect location /x",
        "http-request return status 200",
        "http-request redirect scheme https",
    ] {
        // An exception that is not looked at is none.
        let text = one(&format!("{answer} if !{lan} !{{ req.cook(id) -m found }}"));
        assert_left_out(&text, 5, "it is for them too");
        let made = import(&text).table;
        assert!(made.contains(r#"source-ranges: ["10.0.0.0/8"]"#), "{made}");
        // A list of clients that cannot be read closes.
        for list in ["{ src -f missing.lst }", "{ src 10.0.0.300 }"] {
            let text = one(&format!("{answer} unless {list}"));
            assert_left_out(&text, 5, "");
            assert!(!import(&text).table.contains("\nfrontends:"), "{text}");
        }
        // A remark names the clients that the line keeps out for another reason.
        for condition in [
            "if { hdr_sub(user-agent) bot }".to_owned(),
            format!("if !{lan} {{ hdr_sub(user-agent) bot }}"),
            format!("unless {lan} {{ hdr_sub(user-agent) bot }}"),
            "if nobody".to_owned(),
        ] {
            let text = one(&format!("{answer} {condition}"));
            assert_left_out(
                &text,
                5,
                "the requests that it keeps from the backend are served",
            );
        }
    }
}

/// The table, whatever is told beside it.
fn made(text: &str) -> RoutingTable {
    parse(import(text).table.as_bytes(), Format::Yaml).expect("a good table")
}

#[test]
fn who_sees_the_page_is_said_by_rules_about_its_path() {
    let page = |lines: &str| {
        format!(
            "listen s\n mode http\n bind 127.0.0.1:81\n stats enable\n stats uri /st?stats\n {lines}\n"
        )
    };
    let lan = "!{ src 10.0.0.0/8 }";
    for (lines, ranges) in [
        ("http-request deny unless { path_beg /st }".to_owned(), None),
        ("http-request deny if { path_beg /x }".to_owned(), None),
        (
            format!("http-request deny if {{ path_beg /st }} {lan}"),
            Some("10.0.0.0/8"),
        ),
        // A part of the page is denied.
        (
            format!("http-request deny if {{ path /st/x }} {lan}"),
            Some("10.0.0.0/8"),
        ),
        (
            format!("http-request deny if {{ hdr(host) a }} {lan}"),
            Some("10.0.0.0/8"),
        ),
    ] {
        let table = made(&page(&lines));
        let seen = table.stats.source_ranges.as_ref();
        assert!(table.stats.bind.is_some(), "{lines}");
        assert_eq!(
            seen.map(|ranges| ranges[0].to_string()).as_deref(),
            ranges,
            "{lines}"
        );
    }
    for closed in [
        "http-request deny",
        "http-request deny if { path_beg /st }",
        "http-request deny if !{ path_beg /x }",
    ] {
        let text = page(closed);
        assert_left_out(&text, 1, "nobody may connect");
        assert!(made(&text).stats.bind.is_none(), "{closed}");
    }
    // haproxy shows none in mode tcp, whoever is denied there.
    let text = page("http-request deny unless { src 10.0.0.0/8 }").replace("mode http", "mode tcp");
    assert_left_out(&text, 1, "mode tcp");
    assert!(made(&text).stats.bind.is_none());
}

/// What cannot be said of some clients is told where it makes a difference alone.
#[test]
fn clients_who_go_to_the_default_anyway_are_no_remark() {
    let map = "use_backend %[src,map_ip(/etc/haproxy/nets.map)]";
    let text = one(map).replace("\nbackend m\n", "\nbackend other\n");
    table(&text);
    assert!(
        !remarks(&text)
            .iter()
            .any(|remark| remark.contains("left out"))
    );
    table(&one("use_backend one if { src 10.0.0.0/8 }"));
    // The second line denies them, whom haproxy serves by the first.
    let text =
        one("use_backend one if { src 10.1.0.0/16 }\n use_backend denies if { src 10.0.0.0/8 }");
    assert_left_out(&text, 5, "some clients would go elsewhere");
    let text = http("use_backend leads", " default_backend one\n");
    let text = text.replace(
        "use_backend leads",
        "use_backend one if { src 10.0.0.0/8 }\n use_backend leads",
    );
    assert_left_out(&text, 5, "some clients would go elsewhere");
}

#[test]
fn versions_of_haproxy_and_of_alpn_are_told() {
    let block = |condition: &str| format!(".if {condition}\n{}\n.endif\n", one("").trim_end());
    assert_left_out(&block("version_atleast(2.4)"), 1, "which may not be yours");
    table(&block("feature(OPENSSL)"));
    let tls = "listen l\n mode tcp\n bind 127.0.0.1:443 ssl crt /etc/ssl/a.pem alpn h2\n server s 10.0.0.1:80\n";
    assert_left_out(tls, 3, "offer other protocols");
    let web = tls.replace("mode tcp", "mode http");
    assert!(
        !remarks(&web)
            .iter()
            .any(|remark| remark.contains("differs"))
    );
}

#[test]
fn fields_that_ballast_writes_alike_are_found_by_the_name_of_an_acl() {
    for lines in [
        "acl by_tls ssl_fc\n http-request set-header X-Forwarded-Proto https if by_tls",
        "acl by_tls ssl_fc\n http-request set-header X-Forwarded-Proto http if !by_tls",
        "http-request set-header X-Forwarded-Proto http if ! { ssl_fc }",
    ] {
        let made = import(&one(lines)).table;
        assert!(
            !made.contains("remove:") && !made.contains("x-forwarded: off"),
            "{made}"
        );
    }
    for lines in [
        "acl by_tls ssl_fc\n acl by_tls src 10.0.0.0/8\n http-request set-header X-Forwarded-Proto https if by_tls",
        "acl by_tls dst_port 443\n http-request set-header X-Forwarded-Proto https if by_tls",
    ] {
        let made = import(&one(lines)).table;
        assert!(made.contains("remove: [X-Forwarded-Proto]"), "{made}");
    }
    let line = "http-request set-header X-Request-ID %[uuid()]";
    assert_left_out(&one(line), 5, "let endpoints make them");
    assert_left_out(&one("unique-id-header X-Request-ID"), 5, "send-proxy-tlvs");
}

#[test]
fn a_backend_that_is_not_in_the_table_is_told() {
    let told = remarks(&one("").replace("backend m\n", "backend unused\nbackend m\n"));
    let of_unused = told
        .iter()
        .find(|remark| remark.contains("`backend unused`"));
    assert!(
        of_unused.is_some_and(|remark| remark.contains("not in the table")),
        "{told:?}"
    );
}

/// A client that is led to a backend which keeps it out is not served, although its list cannot be read.
#[test]
fn a_list_of_clients_for_a_backend_that_serves_nobody_closes() {
    for (to, is_served) in [
        ("m", false),
        ("denies", false),
        ("empty", false),
        ("one", true),
    ] {
        for list in ["-f missing.lst", "10.0.0.300"] {
            let text = one(&format!("use_backend {to} if {{ src {list} }}"));
            assert_left_out(&text, 5, "this line has no effect");
            let made = import(&text).table;
            assert_eq!(made.contains("\nfrontends:"), is_served, "{text}\n{made}");
        }
        let text = one(&format!(
            "use_backend {to} if {{ hdr_sub(user-agent) bot }}"
        ));
        let told = remarks(&text);
        let says = told
            .iter()
            .any(|remark| remark.contains("turns away what it gets"));
        assert_eq!(says, !is_served, "{text}\n{told:?}");
    }
}

/// What grows with the square of the configuration has a bound, or grows with it no more.
#[test]
fn large_configurations_take_no_longer_than_their_lines() {
    let mut servers = String::from("listen l\n bind 127.0.0.1:80\n");
    for number in 0..5000 {
        let (high, low) = (number / 250, number % 250 + 1);
        servers.push_str(&format!(" server s{number} 10.0.{high}.{low}:80\n"));
    }
    assert_eq!(table(&servers).services[0].endpoints.len(), 5000);
    let mut ports = String::from("listen l\n bind 127.0.0.1:10000-14000\n server s 10.0.0.1:80\n");
    for port in 10_000..13_000 {
        ports.push_str(&format!(
            " tcp-request connection reject if {{ dst_port {port} }}\n"
        ));
    }
    assert_left_out(&ports, 1, "too many frontends");
    let mut chained = String::from("defaults d0\n mode http\n http-request deny if { path /0 }\n");
    for number in 1..1200 {
        let before = number - 1;
        chained.push_str(&format!(
            "defaults d{number} from d{before}\n http-request deny if {{ path /{number} }}\n"
        ));
    }
    chained.push_str("listen l from d1199\n bind 127.0.0.1:80\n server s 10.0.0.1:80\n");
    let imported = import(&chained);
    assert!(!imported.table.contains("\nfrontends:"));
    let told = imported.report.remarks.last().map(|remark| remark.line);
    assert_eq!(told, Some(2402), "the last section");
}
