//! Ballast's own answers: which status, whose page, and whether the connection goes on.

use std::fs;
use std::time::Duration;

use crate::http::wire::{Endpoint, Wire, ok, routed, service_of, table};
use support::peers::End;
use support::{Ballast, nobody};

#[test]
fn every_refusal_has_its_status_and_keeps_the_connection() {
    let endpoint = Endpoint::saying("served");
    let text = routed(
        ", routes: [
            {path: /served, service: served},
            {path: /refused, service: refused},
            {path: /empty, service: empty},
            {path: /disabled, service: disabled},
            {path: /denied, source-ranges: [\"192.0.2.0/24\"], service: served},
            {path: /allowed, source-ranges: [\"127.0.0.0/8\"], service: served},
            {path: /teapot, status: 418}]",
        &[
            &service_of("served", "", &[endpoint.address]),
            &service_of(
                "refused",
                ", retries: 1, timeouts: {connect: 1s}",
                &[nobody()],
            ),
            "{name: empty, endpoints: []}",
            &format!(
                "{{name: disabled, endpoints: [{{address: \"{}\", state: disabled}}]}}",
                endpoint.address
            ),
        ],
    );
    let ballast = Ballast::serve(&text, 1);
    let mut client = Wire::to(ballast.address());
    for (path, status) in [
        ("/served", 200),
        ("/refused", 502),
        ("/empty", 503),
        ("/disabled", 503),
        ("/denied", 403),
        ("/denied/x", 403),
        ("/allowed", 200),
        ("/", 404),
        ("/servedx", 404),
        ("/teapot", 418),
        ("/served", 200),
    ] {
        let response = client.get(path);
        assert_eq!(response.status, status, "{path}");
        assert!(!response.closes(), "{path}");
        let post = client.post(path, "hello");
        assert_eq!(post.status, status, "POST {path}");
    }
    ballast.until(|ballast| ballast.in_flight() == 0);
    for (reason, count) in [("failed", 2), ("no-endpoint", 4)] {
        let line = format!(
            "ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} {count}\n"
        );
        ballast.until(|ballast| ballast.metrics().contains(&line));
    }
}

#[test]
fn a_request_that_finds_every_endpoint_full_is_answered_with_503() {
    let endpoint = Endpoint::answering(|_| {
        support::pause(Duration::from_millis(600));
        ok("served")
    });
    let table = |service: &str| {
        routed(
            ", default: {service: s}",
            &[&format!(
                "{{name: s{service}, endpoints: [{{address: \"{}\", max-connections: 1}}]}}",
                endpoint.address
            )],
        )
    };
    for (service, status, reason) in [
        (", max-queue: off", 503, "queue-full"),
        (", timeouts: {queue: 200ms}", 503, "queue-timeout"),
        (", timeouts: {queue: 10s}", 200, ""),
    ] {
        let ballast = Ballast::serve(&table(service), 1);
        let mut first = Wire::to(ballast.address());
        first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        ballast.until(|ballast| ballast.in_flight() == 1);
        let mut second = Wire::to(ballast.address());
        assert_eq!(second.get("/").status, status, "{service}");
        assert_eq!(first.response().text(), "served");
        // The place is free again.
        assert_eq!(second.get("/").text(), "served", "{service}");
        if !reason.is_empty() {
            let line = format!(
                "ballast_connections_refused_total{{frontend=\"f\",reason=\"{reason}\"}} 1\n"
            );
            ballast.until(|ballast| ballast.metrics().contains(&line));
        }
        // An idle connection holds no place.
        ballast.until(|ballast| ballast.in_flight() == 0);
    }
}

#[test]
fn pages_follow_accept_and_files_of_the_table_do_not() {
    let text = |files: &str| {
        routed(
            &format!(", routes: [{{path: /empty, service: empty}}]{files}"),
            &["{name: empty, endpoints: []}"],
        )
    };
    let ballast = Ballast::serve(&text(""), 1);
    let mut client = Wire::to(ballast.address());
    let mut asked = |path: &str, accept: &str| {
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n"
        ));
        client.response()
    };
    for (accept, kind) in [
        ("text/html,*/*;q=0.8", "text/html; charset=utf-8"),
        ("application/json", "application/json"),
        ("text/plain", "text/plain; charset=utf-8"),
    ] {
        for (path, status) in [("/", 404), ("/empty", 503)] {
            let page = asked(path, accept);
            assert_eq!(page.status, status);
            assert_eq!(page.field("Content-Type"), Some(kind), "{path}");
            assert_eq!(page.field("Cache-Control"), Some("no-store"), "{path}");
            assert!(
                page.text().contains(&status.to_string()),
                "{path}: {}",
                page.text()
            );
        }
    }

    // With files, which a swap brings to open connections.
    let folder = ballast.table_path().parent().unwrap().to_owned();
    fs::write(folder.join("gone.html"), "gone").unwrap();
    fs::write(folder.join("down.json"), "{\"down\": true}").unwrap();
    ballast.swap(&text(
        ", default: {status: 410, body-file: gone.html}, errors: {503: down.json}",
    ));
    for accept in ["text/html", "application/json"] {
        let page = asked("/", accept);
        assert_eq!((page.status, page.text().as_str()), (410, "gone"));
        assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
        let page = asked("/empty", accept);
        assert_eq!(
            (page.status, page.text().as_str()),
            (503, "{\"down\": true}")
        );
        assert_eq!(page.field("Content-Type"), Some("application/json"));
    }

    // A file that changes is served without a new table.
    let before = ballast.ack();
    fs::write(folder.join("gone.html"), "long gone").unwrap();
    ballast.until(|ballast| ballast.ack() != before);
    assert_eq!(asked("/", "*/*").text(), "long gone");
    ballast.swap(&text(", errors: {404: gone.html}"));
    assert_eq!(asked("/", "*/*").text(), "long gone");
    assert_eq!(asked("/", "*/*").status, 404);
    ballast.swap(&text(""));
    assert!(asked("/", "text/plain").text().contains("404"));
}

#[test]
fn an_error_page_may_have_a_status_a_type_and_fields_of_its_own() {
    let text = |page: &str| {
        routed(
            &format!(", errors: {{503: {page}}}, routes: [{{path: /empty, service: empty}}]"),
            &["{name: empty, endpoints: []}"],
        )
    };
    let whole = "{status: 200, body-file: down.txt, content-type: text/x-down, response-headers: {set: {Retry-After: \"10\"}, remove: [Cache-Control]}}";
    let ballast = Ballast::serve(&text("{status: 404}"), 1);
    let mut client = Wire::to(ballast.address());
    let page = client.get("/empty");
    assert_eq!(page.status, 404);
    assert!(
        page.text().starts_with("404 Not Found\n"),
        "{}",
        page.text()
    );
    assert_eq!(page.field("Cache-Control"), Some("no-store"));

    // While the file is not there, the answer is the usual one.
    ballast.swap(&text(whole));
    let page = client.get("/empty");
    assert_eq!((page.status, page.field("Retry-After")), (503, None));

    let file = ballast.table_path().parent().unwrap().join("down.txt");
    for body in ["back soon", "back at five"] {
        let before = ballast.ack();
        fs::write(&file, body).unwrap();
        ballast.until(|ballast| ballast.ack() != before);
        let page = client.get("/empty");
        assert_eq!((page.status, page.text().as_str()), (200, body));
        assert!(!page.closes());
        assert_eq!(page.field("Content-Type"), Some("text/x-down"));
        assert_eq!(page.field("Retry-After"), Some("10"));
        assert_eq!(page.field("Cache-Control"), None);
        let head = client.ask("HEAD", "/empty");
        assert_eq!(head.status, 200);
        assert_eq!(head.field("Content-Length"), Some(&*body.len().to_string()));
        assert_eq!(head.field("Retry-After"), Some("10"));
    }
    ballast.swap(&text("{status: 204}"));
    let page = client.get("/empty");
    assert_eq!((page.status, page.field("Content-Length")), (204, None));
    assert_eq!(client.get("/empty").status, 204);
}

#[test]
fn a_denial_may_have_a_status_a_body_and_fields_of_its_own() {
    let ballast = Ballast::serve(&routed("", &[]), 1);
    let folder = ballast.table_path().parent().unwrap().to_owned();
    fs::write(folder.join("away.txt"), "go away").unwrap();
    fs::write(folder.join("gone.txt"), "gone").unwrap();
    let other = "source-ranges: [\"192.0.2.0/24\"]";
    ballast.swap(&routed(
        &format!(
            ", http: {{response-headers: {{set: {{X-Last: l}}}}}}, errors: {{410: gone.txt}}, routes: [
            {{path: /a, {other}, denied: {{status: 404, body-file: away.txt, content-type: text/x-away, response-headers: {{set: {{X-Reason: lan}}}}}}, status: 200}},
            {{path: /b, {other}, denied: {{status: 410, response-headers: {{set: {{X-Reason: lan}}}}}}, status: 200}},
            {{path: /c, {other}, denied: {{response-headers: {{set: {{X-Reason: lan}}}}}}, status: 200}},
            {{path: /d, {other}, denied: {{status: 404, body-file: missing.txt}}, status: 200}},
            {{path: /e, source-ranges: [\"127.0.0.0/8\"], denied: {{status: 404}}, status: 200}}], default: {{status: 200}}"
        ),
        &[],
    ));
    let mut client = Wire::to(ballast.address());
    // Another spelling of a path is denied as the path is.
    for path in ["/a", "/a/x", "//a", "/x/../%61"] {
        let denied = client.get(path);
        assert_eq!(
            (denied.status, denied.text().as_str()),
            (404, "go away"),
            "{path}"
        );
        assert_eq!(denied.field("Content-Type"), Some("text/x-away"), "{path}");
        assert_eq!(denied.field("X-Reason"), Some("lan"), "{path}");
        assert_eq!(denied.field("X-Last"), Some("l"), "{path}");
        assert!(!denied.closes(), "{path}");
    }
    let head = client.ask("HEAD", "/a");
    assert_eq!(
        (head.status, head.field("Content-Length")),
        (404, Some("7"))
    );
    let denied = client.get("/b");
    assert_eq!((denied.status, denied.text().as_str()), (410, "gone"));
    assert_eq!(denied.field("X-Reason"), Some("lan"));
    let denied = client.get("/c");
    assert_eq!(
        (denied.status, denied.field("X-Reason")),
        (403, Some("lan"))
    );
    let denied = client.get("/d");
    assert_eq!(denied.status, 404);
    assert!(
        denied.text().starts_with("404 Not Found\n"),
        "{}",
        denied.text()
    );
    assert_eq!(client.get("/e").status, 200);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn a_malformed_request_gets_the_tables_page_too() {
    let endpoint = Endpoint::saying("served");
    let ballast = Ballast::serve(&table("", "", &[&endpoint]), 1);
    let folder = ballast.table_path().parent().unwrap().to_owned();
    fs::write(folder.join("bad.txt"), "do not").unwrap();
    ballast.swap(&table(
        ", errors: {400: bad.txt, 408: bad.txt}",
        "",
        &[&endpoint],
    ));
    let mut client = Wire::to(ballast.address());
    client.send("GET / HTTP/1.1\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (400, "do not"));
    client.assert_ends(End::Clean, "after 400");
}

#[test]
fn an_answer_of_a_route_may_be_a_file() {
    let ballast = Ballast::serve(&routed("", &[]), 1);
    let folder = ballast.table_path().parent().unwrap().to_owned();
    fs::write(folder.join("robots.txt"), "User-agent: *\n").unwrap();
    ballast.swap(&routed(
        ", routes: [{path: /robots.txt, match: exact, status: 200, body-file: robots.txt, content-type: text/x-robots}]",
        &[],
    ));
    let mut client = Wire::to(ballast.address());
    let answer = client.get("/robots.txt");
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "User-agent: *\n")
    );
    assert_eq!(answer.field("Content-Type"), Some("text/x-robots"));
    let head = client.ask("HEAD", "/robots.txt");
    assert_eq!(head.field("Content-Length"), Some("14"));
    assert_eq!(client.get("/robots.txt/x").status, 404);
}
