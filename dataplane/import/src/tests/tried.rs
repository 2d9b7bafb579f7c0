//! What haproxy 2.6 was seen to do with a configuration, and what the table does in its place.

use super::import;
use super::lines::{assert_left_out, remarks, table};

const BACKENDS: &str =
    "backend b\n server s 10.0.0.1:80\nbackend c\n server s 10.0.0.2:80\nbackend nowhere\n";

/// A frontend with these lines.
pub(super) fn of(mode: &str, lines: &str) -> String {
    format!("defaults\n mode {mode}\nfrontend f\n bind 127.0.0.1:80\n{lines}\n{BACKENDS}")
}

pub(super) fn has(text: &str, part: &str) {
    let made = import(text).table;
    assert!(made.contains(part), "{text}\n{made}");
}

pub(super) fn assert_closed(text: &str) {
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
    // haproxy leads other connections to the default backend.
    let accepted = " tcp-request content accept if { req.ssl_hello_type 1 }\n use_backend c if { req.ssl_sni -i c.example }\n default_backend b";
    let text = of("tcp", &format!("{inspect}{accepted}"));
    assert_left_out(&text, 3, "do not begin with TLS are refused");
    has(&text, "protocol: tls");
    let lines = " acl tls req.ssl_hello_type 1\n use_backend c if tls\n default_backend b";
    let text = of("tcp", &format!("{inspect}{lines}"));
    assert_left_out(&text, 3, "do not begin with TLS are refused");
    has(&text, "default: {service: c}");
    assert_closed(&of(
        "tcp",
        " tcp-request content reject if { req.ssl_hello_type 1 }\n default_backend b",
    ));
    let by_name = " use_backend c if { req.ssl_sni -i c.example }\n default_backend b";
    assert_left_out(&of("tcp", by_name), 3, "do not begin with TLS are refused");
    exact(" use_backend b if { req.ssl_sni -i c.example }", "tcp");
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
    // One pattern is not understood, so the import cannot know which requests match no pattern at all.
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

/// haproxy looks at the path of a request there, and ends the connection.
#[test]
fn requests_are_rejected_by_their_path() {
    let rules = " tcp-request content accept if { path /x/open }\n tcp-request content reject if { path_beg /x }\n http-request deny deny_status 404 if { path /x/open } { src 10.0.0.0/8 }";
    let text = of("http", &format!("{rules}\n default_backend b"));
    assert_left_out(&text, 6, "gives them no answer");
    has(&text, "{path: /x, match: begins, status: 403}");
    has(&text, "denied: {status: 404}");
    let behind = of("http", " default_backend b").replace(
        "backend b\n server",
        &format!("backend b\n{rules}\n server"),
    );
    has(&behind, "{path: /x, match: begins, status: 403}");
    let page = "listen page\n mode http\n bind 127.0.0.1:8404\n stats enable\n tcp-request content reject if { path_beg /x }\n";
    assert!(
        !import(page).table.contains("stats:"),
        "{}",
        import(page).table
    );
}

#[test]
fn a_line_of_an_acl_that_cannot_be_read_closes_what_looks_at_it() {
    let list = " acl bad src 10.0.0.1\n";
    for unread in [
        ".if feature(QUIC)\n acl bad src 10.0.0.2\n.endif\n",
        " acl bad src \"10.0.0.2\n",
    ] {
        assert_closed(&of(
            "http",
            &format!("{list}{unread} http-request deny if bad\n default_backend b"),
        ));
        let others = of(
            "http",
            &format!("{list}{unread} http-request deny if {{ path /x }}\n default_backend b"),
        );
        has(&others, "path: /x");
    }
    for unread in [
        "http-request set-src hdr(x)\n.endif\n http-request deny if { src 10.0.0.1 }",
        "tcp-request session set-dst-port int(1)\n.endif\n http-request deny if { dst_port 80 }",
        "http-request set-path /x\n.endif\n http-request deny if { path /y }",
        "http-request set-header Host x\n.endif\n http-request deny if { hdr(host) -i y }",
        "tcp-request connection expect-proxy layer4\n.endif",
        "disabled\n.endif",
        "frontend g\n bind 127.0.0.1:81\n.endif\n.if feature(QUIC)\n http-request deny\n.endif",
        "frontend g\n bind 127.0.0.1:81\n.else\n http-request deny\n.endif",
    ] {
        assert_closed(&of(
            "http",
            &format!(".if feature(QUIC)\n {unread}\n default_backend b"),
        ));
    }
}

#[test]
fn a_client_that_connects_is_counted_already() {
    let text = |lines: &str| {
        of(
            "tcp",
            &format!(
                " stick-table type ip size 10k expire 10s store conn_cur\n{lines}\n default_backend b"
            ),
        )
    };
    let track = " tcp-request connection track-sc0 src";
    let reject = |condition: &str| format!(" tcp-request connection reject if {{ {condition} }}");
    let all = text(&format!("{track}\n{}", reject("sc0_conn_cur ge 1")));
    assert_closed(&all);
    assert_left_out(&all, 3, "rejects everybody");
    let never = text(&format!("{}\n{track}", reject("sc0_conn_cur ge 1")));
    assert!(
        table(&never).frontends[0]
            .max_connections_per_client
            .is_none()
    );
    let one = table(&text(&format!("{}\n{track}", reject("src_conn_cur ge 1"))));
    assert_eq!(
        one.frontends[0].max_connections_per_client.map(u32::from),
        Some(1)
    );
}

#[test]
fn beginnings_of_paths_are_taken_off_once() {
    let strip = |name: &str| format!(" http-request replace-path /{name}(/)?(.*) /\\2");
    let both = format!("backend b\n{}\n{}\n server", strip("a"), strip("b"));
    let text = of("http", " default_backend b").replace("backend b\n server", &both);
    assert_left_out(&text, 8, "takes one beginning off");
    has(&text, "path: /a");
    assert!(!import(&text).table.contains("path: /b"));
    let listen = format!(
        "defaults\n mode http\nlisten l\n bind 127.0.0.1:80\n{}\n use_backend c if {{ path_beg /c }}\n server s 10.0.0.1:80\n{BACKENDS}",
        strip("l")
    );
    assert_left_out(&listen, 5, "keep the beginning");
    let old = of(
        "http",
        " use_backend c if { path_beg /c }\n default_backend b",
    )
    .replace(
        "backend c\n",
        "backend c\n reqrep ^([^\\ :]*)\\ /c[/]?(.*) \\1\\ /\\2\n",
    );
    let old = old.replacen("use_backend c\n reqrep", "use_backend c\n#", 1);
    assert!(
        remarks(&old)
            .iter()
            .any(|remark| remark.contains("/c and what lies below it")),
        "{:?}",
        remarks(&old)
    );
}

/// Requests that go on to a `listen` do not come to it.
#[test]
fn a_monitor_answers_at_its_own_frontend() {
    let text = "defaults\n mode http\nfrontend f\n bind 127.0.0.1:80\n default_backend l\nlisten l\n bind 127.0.0.1:81\n monitor-uri /up\n server s 10.0.0.1:80\n";
    let made = table(text);
    let routes: Vec<usize> = made.frontends.iter().map(|one| one.routes.len()).collect();
    assert_eq!(routes, [0, 1]);
    assert_left_out(
        &of("http", " monitor-uri /up?x\n default_backend b"),
        5,
        "no path of a route",
    );
}

#[test]
fn a_denial_keeps_its_status_beside_an_allow() {
    has(
        &of(
            "http",
            " http-request allow if { src 10.0.0.0/8 }\n http-request deny deny_status 404\n default_backend b",
        ),
        "denied: {status: 404}",
    );
    let noted = of(
        "http",
        " http-request deny deny_status 404 if { path /x }\n default_backend b",
    );
    assert!(
        remarks(&noted)
            .iter()
            .any(|remark| remark.contains("status 404 have the pages of Ballast"))
    );
}

#[test]
fn what_changes_what_others_get_is_no_note() {
    let frontend = |line: &str, why: &str| {
        assert_left_out(&of("http", &format!(" {line}\n default_backend b")), 5, why);
    };
    frontend("option accept-invalid-http-request", "refuses messages");
    frontend(
        "option accept-unsafe-violations-in-http-request",
        "refuses messages",
    );
    frontend("http-request silent-drop if { path /x }", "no answer");
    frontend(
        "tcp-request connection silent-drop if { src 10.0.0.1 }",
        "at once",
    );
    frontend(
        "http-request set-header X-Forwarded-Proto https if { ssl_fc }\n option forwardfor",
        "in place of the client's",
    );
    let backend = |line: &str, at: usize, why: &str| {
        let text = of("http", " default_backend b").replace(
            "backend b\n server s 10.0.0.1:80",
            &format!("backend b\n {line}"),
        );
        assert_left_out(&text, at, why);
    };
    backend(
        "cookie S insert\n server s 10.0.0.1:80 cookie a",
        7,
        "as with `indirect`",
    );
    backend(
        "server s 10.0.0.1:80\n source 127.0.0.5:1234",
        8,
        "port 1234",
    );
    backend("server s 10.0.0.1:80\n source *:1234", 8, "port 1234");
    backend("server s 10.0.0.1:80\n source nobody", 8, "no address");
    backend(
        "server s 10.0.0.1:80 check\n option httpchk GET foo",
        8,
        "the path of the check",
    );
    let bind = of("http", " default_backend b")
        .replace(":80\n default", ":80 accept-netscaler-cip 1\n default");
    assert_left_out(&bind, 4, "netscaler-cip 1`");
    assert_eq!(
        import(&bind).report.remarks.len(),
        remarks(&bind)
            .iter()
            .filter(|remark| !remark.contains("\"1\""))
            .count()
    );
}

#[test]
fn attempts_and_hsts_are_noted() {
    let servers = "backend b\n retries 2\n server s 10.0.0.1:80\n server t 10.0.0.3:80\n";
    let text =
        of("http", " default_backend b").replace("backend b\n server s 10.0.0.1:80\n", servers);
    let told = |text: &str, part: &str| remarks(text).iter().any(|remark| remark.contains(part));
    assert!(told(&text, "option redispatch"));
    assert!(!told(
        &text.replace("retries 2", "retries 2\n option redispatch"),
        "option redispatch"
    ));
    let hsts = of(
        "http",
        " http-response set-header Strict-Transport-Security max-age=60\n default_backend b",
    );
    assert!(told(&hsts, "own answers"));
}

#[test]
fn a_section_whose_first_word_is_misspelt_is_left_out_whole() {
    for word in ["listn", "frontnd", "bakend", "defalts"] {
        let text = of(
            "http",
            &format!(" default_backend b\n{word} x\n bind 127.0.0.1:81"),
        );
        assert_left_out(&text, 6, "did you mean");
        assert!(!import(&text).table.contains("127.0.0.1:81"), "{word}");
    }
    for condition in ["! feature(OPENSSL)", "!feature(OPENSSL)"] {
        let block = of(
            "http",
            &format!(".if {condition}\n http-request deny\n.endif\n default_backend b"),
        );
        has(&block, "default: {service: b}");
    }
}

/// What names a long list often is imported in the time and the memory of the list. Without an index each takes much longer.
#[test]
fn long_lists_that_are_named_often_take_no_longer() {
    let names: Vec<String> = (0..2000)
        .map(|number| format!("h{number}.example"))
        .collect();
    let acl = format!(" acl big hdr(host) -i {}\n", names.join(" "));
    let or = vec!["big"; 3000].join(" or ");
    let and = vec!["big"; 3000].join(" ");
    for condition in [
        format!("if {or}"),
        format!("if {and}"),
        format!("unless {and} or {or}"),
    ] {
        let text = format!(
            "{acl} http-request deny {condition}\n http-request deny {condition}\n default_backend b"
        );
        has(&of("http", &text), "{host: h1999.example, ");
    }
    let rejected = |number: usize| {
        format!(
            " tcp-request connection reject if {{ src 10.0.{}.{} }}\n",
            number / 256,
            number % 256
        )
    };
    let rejected: String = (0..2000).map(rejected).collect();
    assert_eq!(
        table(&of("tcp", &format!("{rejected} default_backend b")))
            .frontends
            .len(),
        1
    );
    let denied = |number: usize| format!(" http-request deny if {{ path_beg /p{number}/x }}\n");
    let denied: String = (0..2000).map(denied).collect();
    assert_eq!(
        table(&of("http", &format!("{denied} default_backend b"))).frontends[0]
            .routes
            .len(),
        2000
    );
}
