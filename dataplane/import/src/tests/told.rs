//! Remarks that said less than became of a line, or something else.

use ballast_core::table::{Format, OnGone, parse};

use super::import;
use super::lines::{assert_left_out, assert_noted, of_backend, of_frontend, remarks, table};

fn http(lines: &str) -> String {
    of_frontend(&format!(" mode http\n bind 127.0.0.1:80\n{lines}")) + " mode http\n"
}

#[test]
fn what_haproxy_answers_by_a_program_is_told_as_served() {
    let text = http(" http-request use-service prometheus-exporter if { path /metrics }");
    assert_left_out(
        &text,
        4,
        "the requests that it keeps from the backend are served",
    );
    let text = http(" http-request lua.auth if { path /lua }");
    assert_left_out(&text, 4, "requests that it turns away go on to the backend");
    for place in ["connection", "session", "content"] {
        let text = http(&format!(" tcp-request {place} lua.auth"));
        assert_left_out(&text, 4, "these connections go on to the backend");
    }
    let clients = http(" http-request use-service x unless { src 10.0.0.0/8 }");
    let made = import(&clients).table;
    assert!(made.contains("source-ranges: [\"10.0.0.0/8\"]"), "{made}");
}

#[test]
fn a_page_beside_services_is_told_with_its_path() {
    let text = http(" stats enable\n stats uri /haproxy\n stats auth a:b");
    assert_left_out(
        &text,
        6,
        "requests for \"/haproxy\", which haproxy answers, go on",
    );
    assert_left_out(&http(" stats enable"), 4, "requests for \"/haproxy?stats\"");
}

#[test]
fn of_two_servers_of_one_address_the_one_that_serves_is_kept() {
    for (first, second) in [
        ("disabled", ""),
        ("weight 0", ""),
        ("backup", ""),
        ("disabled", "backup"),
        ("disabled", "weight 0"),
    ] {
        let text = of_backend(&format!(
            " server s 10.0.0.1:80 {first}\n server t 10.0.0.1:80 {second}"
        ));
        let made = import(&text).table;
        assert!(
            made.contains("name: t") && !made.contains("name: s"),
            "{made}"
        );
        assert_left_out(&text, 5, "already");
    }
    let alike = of_backend(" server s 10.0.0.1:80 check port 9\n server t 10.0.0.1:80 check");
    assert_left_out(&alike, 6, "or its check fails, nobody gets to it");
}

#[test]
fn variables_of_variables_end() {
    let mut text = String::from("global\n setenv A0 abcdefghijklmnop\n");
    for at in 1..40 {
        let before = format!("${{A{}}}", at - 1);
        text += &format!(" setenv A{at} \"{}\"\n", before.repeat(4));
    }
    text += &of_frontend(" bind 127.0.0.1:80\n description \"${A39}\"");
    assert_left_out(&text, 9, "65536 bytes");
    assert!(import(&text).table.len() < 500_000);
}

#[test]
fn a_bind_that_is_left_out_is_named() {
    let text = of_frontend(
        " bind 127.0.0.1:80 accept-proxy\n bind 127.0.0.1:81\n tcp-request connection reject if { src 10.0.0.0/8 }",
    );
    assert_left_out(
        &text,
        1,
        "the frontend for 127.0.0.1:80 is not in the table",
    );
    assert_left_out(&text, 4, "at binds with a PROXY header");
    assert!(import(&text).table.contains("127.0.0.1:81"));
}

#[test]
fn a_server_that_has_the_checks_of_another_is_told_as_such() {
    let text = of_backend(
        " server x 10.0.0.1:80 check\n server z 10.0.0.2:80 track b/x\n server y 10.0.0.3:80",
    );
    assert_left_out(&text, 6, "as that server's checks say");
    assert_left_out(&text, 5, "did not check y:");
}

#[test]
fn a_tarpit_that_is_left_out_has_no_note() {
    let text = http(" http-request tarpit if { hdr(user-agent) -m sub curl }");
    let told = remarks(&text).concat();
    assert!(!told.contains("at once"), "{told}");
    let kept = http(" http-request tarpit if { path /x }");
    assert_noted(&kept, 4, "answered at once");
}

#[test]
fn cookies_whose_values_haproxy_computes_are_affinity() {
    let text = "frontend f\n bind 127.0.0.1:80\n mode http\n default_backend b\nbackend b\n mode http\n dynamic-cookie-key KEY\n cookie SRV insert indirect dynamic\n server s 10.0.0.1:80\n";
    let made = import(text).table;
    assert!(made.contains("cookie: SRV"), "{made}");
    assert_noted(text, 7, "values of their own");
    table(text);
}

#[test]
fn an_empty_page_is_no_page() {
    let text = http(" errorfile 403 /dev/null\n http-request deny if { path /x }");
    assert_left_out(&text, 4, "haproxy closes the connection without an answer");
}

#[test]
fn a_percent_sign_is_no_sample() {
    let text = http(
        " http-request set-header X-E \"100%%\"\n http-response set-header X-F \"p%%q\"\n reqadd X-G:\\ 5%",
    );
    let made = import(&text).table;
    for value in ["100%", "p%q", "5%"] {
        assert!(made.contains(value), "{made}");
    }
    assert!(!made.contains("%%"), "{made}");
    let answer = "http-request return status 200 content-type text/plain lf-string \"fix%%ed\" hdr X-A b%%c if { path /x }";
    let answered = import(&http(&format!(" {answer}")));
    assert!(answered.table.contains("b%c"), "{}", answered.table);
    let bodies = answered.files.iter().map(|(_, body)| body.as_slice());
    assert_eq!(bodies.collect::<Vec<_>>(), [b"fix%ed"]);
    assert_left_out(
        &http(" http-request set-header X-E %%%[src]"),
        4,
        "fixed value",
    );
}

#[test]
fn the_second_question_of_a_check_is_told_as_lost() {
    let text = of_backend(
        " option tcp-check\n tcp-check send PING\\r\\n\n tcp-check expect string +PONG\n tcp-check send info\\r\\n\n tcp-check expect string role:master\n server s 10.0.0.1:80 check",
    );
    assert_left_out(&text, 8, "endpoints pass without it");
    assert_left_out(&text, 9, "endpoints pass without this one");
}

#[test]
fn of_very_many_unknown_words_the_first_ones_have_a_guess() {
    let text = of_backend(&" retris 3\n".repeat(1100));
    let told = remarks(&text);
    let guessed = told
        .iter()
        .filter(|one| one.contains("did you mean retries?"));
    assert_eq!(guessed.count(), 1000);
    let others = told
        .iter()
        .filter(|one| one.contains("is not known here; remove it"));
    assert_eq!(others.count(), 100);
}

#[test]
fn a_cookie_that_is_secure_is_in_the_table() {
    let text = http("").replace(
        "backend b\n",
        "backend b\n cookie C insert indirect secure\n",
    );
    let told = remarks(&text).concat();
    assert!(
        told.contains("differs: `cookie C insert indirect secure`"),
        "{told}"
    );
    assert!(!told.contains("left out"), "{told}");
}

#[test]
fn hsts_of_requests_by_tls_is_kept() {
    let field = "http-response set-header Strict-Transport-Security";
    for (condition, is_kept) in [("if { ssl_fc }", true), ("if !{ ssl_fc }", false)] {
        let value = "\"max-age=600; includeSubDomains\"";
        let text = http(&format!("{field} {value} {condition}"));
        let made = import(&text).table;
        assert_eq!(
            made.contains("set: {Strict-Transport-Security"),
            is_kept,
            "{made}"
        );
        assert_left_out(
            &text,
            4,
            if is_kept {
                "without TLS"
            } else {
                "no condition"
            },
        );
    }
}

#[test]
fn what_a_route_could_look_at_is_told_as_such() {
    let text = http("http-request deny unless { method GET POST }");
    assert_left_out(&text, 4, "a route does by `when`: it denies them too");
}

/// The line that looks at a variable is told.
#[test]
fn a_variable_changes_nothing_by_itself() {
    for line in ["set-var(txn.host) hdr(host)", "unset-var(txn.host)"] {
        let text = http(&format!("http-request {line}"));
        assert_noted(&text, 4, "changes nothing that a client sees by itself");
    }
    let text = http("http-request deny if { var(txn.host) -m str a.test }");
    assert_left_out(&text, 4, "what this line denies is served");
}

#[test]
fn a_backup_that_a_refused_client_gets_to_is_told_with_what_haproxy_does() {
    let of = |options: &str, check: &str| {
        of_backend(&format!(
            "{options} server a 10.0.0.1:80{check}\n server z 10.0.0.2:80 backup{check}"
        ))
    };
    let checked = "only when their checks have failed";
    assert_left_out(&of("", " check"), 6, checked);
    for (options, line) in [("", 6), (" option redispatch\n", 7)] {
        assert_left_out(&of(options, ""), line, "never, since nothing checks them");
    }
    table(&of(" retries 0\n", ""));
}

#[test]
fn servers_that_keep_no_clients_are_told_where_there_is_affinity() {
    let servers = " retries 0\n server s 10.0.0.1:80\n server t 10.0.0.2:80 backup non-stick";
    let stick = " stick-table type ip size 1k expire 1m\n stick on src\n";
    assert_left_out(&of_backend(&format!("{stick}{servers}")), 9, "`non-stick`");
    table(&of_backend(servers));
    table(&of_backend(&format!("{stick}{servers} stick")));
}

#[test]
fn what_only_some_servers_do_when_they_go_down_or_come_up_none_does() {
    let of = |first: &str, second: &str, third: &str| {
        of_backend(&format!(
            " retries 0\n server s 10.0.0.1:80 check {first}\n server t 10.0.0.2:80 check {second}\n server u 10.0.0.3:80 check backup {third}"
        ))
    };
    let closes = "on-marked-down shutdown-sessions";
    let service = |text: &str| {
        let made = import(text).table;
        parse(made.as_bytes(), Format::Yaml).unwrap().services[0].clone()
    };
    let all = of(closes, closes, closes);
    table(&all);
    assert_eq!(service(&all).on_down, OnGone::Close);
    let but_backup = of(closes, closes, "");
    assert_left_out(&but_backup, 8, "are closed, too, when it is down");
    assert_eq!(service(&but_backup).on_down, OnGone::Close);
    let one = of(closes, "", "");
    assert_left_out(&one, 6, "are not closed when it is down");
    assert_eq!(service(&one).on_down, OnGone::Keep);

    let seconds = |text: &str| service(text).slow_start.map(|time| time.as_secs());
    let all = of("slowstart 10s", "slowstart 10s", "slowstart 10s");
    table(&all);
    assert_eq!(seconds(&all), Some(10));
    let one = of("", "slowstart 10s", "");
    assert_left_out(&one, 7, "it has no slow start");
    assert_eq!(seconds(&one), None);
    let unlike = of("slowstart 10s", "slowstart 30s", "slowstart 30s");
    assert_left_out(&unlike, 6, "as long as that of the slowest server");
    assert_eq!(seconds(&unlike), Some(30));
}

#[test]
fn answers_by_which_haproxy_takes_a_server_down_are_told() {
    let of = |words: &str| of_backend(&format!(" server s 10.0.0.1:80 check {words}"));
    let answers = of("observe layer7 error-limit 5 on-error mark-down");
    assert_left_out(&answers, 5, "answers 5xx to clients is not left out");
    assert_noted(&of("observe layer4 on-error mark-down"), 5, "see ejection");
    table(&of("observe layer4 on-error mark-down"));
}

#[test]
fn a_bound_of_the_load_by_a_consistent_hash_is_told() {
    let of = |lines: &str| of_backend(&format!("{lines} server s 10.0.0.1:80\n"));
    let bound = " hash-balance-factor 150\n";
    let hash = " balance source\n hash-type consistent\n";
    assert_left_out(&of(&format!("{bound}{hash}")), 5, "none is sent on");
    table(&of(&format!("{hash} hash-balance-factor 0\n")));
    table(&of(&format!("{bound} balance source\n")));
    table(&of(&format!(
        "{bound} balance leastconn\n hash-type consistent\n"
    )));
}

#[test]
fn a_stick_table_that_is_only_read_or_only_written_gives_no_affinity() {
    let of = |lines: &str, peers: &str| {
        let table = format!(" stick-table type ip size 1k expire 1m{peers}\n");
        of_backend(&format!("{table}{lines} server s 10.0.0.1:80\n"))
    };
    let has_affinity = |text: &str| import(text).table.contains("client-ip: 1m");
    for both in [
        " stick on src\n",
        " stick match src\n stick store-request src\n",
    ] {
        assert!(has_affinity(&of(both, "")), "{both}");
        table(&of(both, " peers p"));
    }
    for (one, why) in [
        (" stick store-request src\n", "without `stick match`"),
        (" stick match src\n", "without `stick store-request`"),
    ] {
        let text = of(one, "");
        assert!(!has_affinity(&text), "{text}");
        assert_noted(&text, 6, why);
        table(&text);
    }
    let text = of(" stick match src\n", " peers p");
    assert_left_out(&text, 6, "takes no entries from peers");
    assert!(!has_affinity(&text), "{text}");
}
