//! Remarks that said less than became of a line, or something else.

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
