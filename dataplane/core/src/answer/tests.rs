use proptest::prelude::*;

use super::*;
use crate::http::Field;

fn recipient(version: Version) -> Recipient<'static> {
    Recipient {
        version,
        asks_for_head: false,
        keeps_connection: true,
        hsts: None,
        edits: Edits::default(),
    }
}

fn written(answer: &OwnAnswer<'_>, to: &Recipient<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, answer, to);
    String::from_utf8(out).unwrap()
}

fn accepting(value: &str) -> Form {
    let field = Field {
        name: "accept",
        value: value.as_bytes(),
    };
    Form::accepted_by(&[field])
}

#[test]
fn the_form_is_what_the_client_prefers() {
    use Form::*;
    let cases = [
        // Firefox, Chromium, and an image in a page.
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            Html,
        ),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            Html,
        ),
        ("image/avif,image/webp,image/png,*/*;q=0.8", Text),
        // curl, fetch, axios, jQuery.
        ("*/*", Text),
        ("application/json, text/plain, */*", Json),
        ("application/json, text/javascript, */*; q=0.01", Json),
        ("application/problem+json", Json),
        ("text/plain", Text),
        ("text/plain, text/html", Text),
        ("text/html, text/plain", Html),
        ("text/html;q=0.5, application/json;q=0.9", Json),
        (
            "text/html;q=0.5, application/json;q=0.50, text/plain;q=0.500",
            Html,
        ),
        ("text/html ; level=1 ; Q=0.4, */* ; q=0.6", Text),
        ("*/*, text/html", Html),
        ("text/*", Text),
        ("application/*", Json),
        ("text/plain;q=0, */*", Json),
        ("text/plain;q=0, application/json;q=0, */*", Html),
        ("text/plain;q=0, text/*", Html),
        ("*/*, text/plain;q=0.1", Json),
        ("application/*;q=0.2, text/*;q=0.2", Json),
        ("text/html;q=0, application/xhtml+xml", Html),
        ("TEXT/HTML", Html),
        ("image/png", Text),
        ("text/html;q=0", Text),
        ("text/html;q=2", Text),
        ("text/html;q=0.1234", Text),
        ("", Text),
        (",;=/", Text),
    ];
    for (accept, form) in cases {
        assert_eq!(accepting(accept), form, "{accept}");
    }
    assert_eq!(Form::accepted_by(&[]), Text);
}

#[test]
fn a_page_of_text() {
    let answer = OwnAnswer::page_as(404, Form::Text);
    let text = "404 Not Found\n\nThere is nothing at this address. Please check it for typing errors.\n\
        For the operator: no route of the load balancer matches this host and path.\n";
    assert_eq!(
        written(&answer, &recipient(Version::Http11)),
        format!(
            "HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n\r\n{text}",
            text.len()
        )
    );
    let health = OwnAnswer::page_as(200, Form::Text);
    assert!(written(&health, &recipient(Version::Http11)).ends_with("\r\n\r\n200 OK\n"));
}

#[test]
fn an_answer_in_place_of_another_has_its_own_status_and_fields() {
    let edits: HeaderEdits = serde_json::from_str(
        r#"{"set": {"Retry-After": "10", "X-Site": "page"}, "remove": ["Cache-Control"]}"#,
    )
    .unwrap();
    let last: HeaderEdits = serde_json::from_str(r#"{"set": {"X-Site": "frontend"}}"#).unwrap();
    let to = Recipient {
        edits: Edits::of_answer(None, Some(&last)),
        ..recipient(Version::Http11)
    };
    let page = OwnAnswer::file(200, "text/plain", b"soon");
    let answer = page.instead_of(503, Some(&edits));
    assert_eq!((answer.status(), answer.counted_status()), (200, 503));
    assert_eq!(
        written(&answer, &to),
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Type: text/plain\r\nRetry-After: 10\r\nX-Site: frontend\r\n\r\nsoon"
    );
    // An outage that looks well must not be kept by a cache, unless the table says so.
    let text = written(&page.instead_of(503, None), &to);
    assert!(text.contains("\r\nCache-Control: no-store\r\n"), "{text}");
    assert_eq!((page.status(), page.counted_status()), (200, 200));
}

#[test]
fn the_connection_and_hsts() {
    let answer = OwnAnswer::page_as(503, Form::Text);
    let cases = [
        (Version::Http11, true, None),
        (Version::Http11, false, Some("Connection: close")),
        (Version::Http10, true, Some("Connection: keep-alive")),
        (Version::Http10, false, Some("Connection: close")),
        (Version::Http2, false, None),
    ];
    for (version, keeps_connection, wanted) in cases {
        let hsts = serde_json::from_str(r#""1d""#).unwrap();
        let to = Recipient {
            keeps_connection,
            hsts: Some(hsts),
            ..recipient(version)
        };
        let text = written(&answer, &to);
        let line = text.lines().find(|line| line.starts_with("Connection"));
        assert_eq!(line, wanted, "{to:?}");
        assert!(text.contains("\r\nStrict-Transport-Security: max-age=86400\r\n"));
    }
}

#[test]
fn a_head_alone_says_the_same() {
    let answer = OwnAnswer::page_as(502, Form::Html);
    let to = recipient(Version::Http11);
    let whole = written(&answer, &to);
    let head = written(
        &answer,
        &Recipient {
            asks_for_head: true,
            ..to
        },
    );
    assert!(head.ends_with("\r\n\r\n") && whole.starts_with(&head));
    assert_eq!(whole.len() - head.len(), answer.length());
}

#[test]
fn files_and_redirects() {
    let to = recipient(Version::Http11);
    let file = OwnAnswer::file(200, "text/plain", b"User-agent: *\n");
    assert_eq!(
        written(&file, &to),
        "HTTP/1.1 200 OK\r\nContent-Length: 14\r\nContent-Type: text/plain\r\n\r\nUser-agent: *\n"
    );
    let redirect = OwnAnswer::redirect(308, b"https://shop.example.com/a?b");
    assert_eq!(
        written(&redirect, &to),
        "HTTP/1.1 308 Permanent Redirect\r\nContent-Length: 0\r\nLocation: https://shop.example.com/a?b\r\n\r\n"
    );
    let cases = [(204, ""), (205, "Content-Length: 0\r\n"), (304, "")];
    for (status, length) in cases {
        let answer = OwnAnswer::file(status, "text/plain", b"x");
        let reason = reason(status);
        assert_eq!(
            written(&answer, &to),
            format!("HTTP/1.1 {status} {reason}\r\n{length}\r\n")
        );
    }
    let method = written(&OwnAnswer::page_as(405, Form::Text), &to);
    assert!(method.contains("\r\nAllow: GET, HEAD, "));
}

#[test]
fn the_kind_of_a_file_is_in_its_name() {
    let cases = [
        ("robots.txt", "text/plain; charset=utf-8"),
        ("errors/503.HTML", "text/html; charset=utf-8"),
        ("a.JSON", "application/json"),
        ("errors/503", "text/html; charset=utf-8"),
        ("favicon.ico", "image/x-icon"),
    ];
    for (file, wanted) in cases {
        assert_eq!(content_type(Path::new(file)), wanted);
    }
}

#[test]
fn every_page_is_complete_in_every_form() {
    for status in 200..600 {
        let texts = [Form::Html, Form::Json, Form::Text].map(|form| {
            let answer = OwnAnswer::page_as(status, form);
            let mut body = Vec::new();
            answer.write_body(&mut body);
            assert_eq!(body.len(), answer.length());
            String::from_utf8(body).unwrap()
        });
        if matches!(status, 204 | 205 | 304) {
            assert_eq!(texts, [""; 3]);
            continue;
        }
        let [html, json, text] = texts;
        let (first, rest) = text.split_once('\n').unwrap();
        let reason = reason(status);
        assert_eq!(first, format!("{status} {reason}"));
        assert_eq!(status >= 400, !rest.is_empty());
        assert!(html.contains(&format!("<title>{status} {reason}</title>")));
        assert!(!html.contains("{text}") && !html.contains("{hint}"));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["status"], status);
        assert_eq!(json["title"], reason);
        for part in [&json["detail"], &json["hint"]] {
            let part = part.as_str().unwrap();
            assert!(html.contains(part) && text.contains(part));
            assert!(!part.contains(['<', '&', '"', '\\']));
        }
    }
}

proptest! {
    #[test]
    fn any_accept_yields_a_form(accept in "[a-z*/;q=., 0-9]{0,40}") {
        let form = accepting(&accept);
        let names_none = !["html", "json", "plain", "*"].iter().any(|one| accept.contains(one));
        prop_assert!(!names_none || form == Form::Text);
    }
}

#[test]
fn the_edits_of_the_table_change_what_ballast_writes_but_not_what_frames() {
    let parsed = |json| serde_json::from_str::<HeaderEdits>(json).unwrap();
    let route = parsed(r#"{"set": {"Cache-Control": "max-age=1", "X-A": "route"}}"#);
    let frontend =
        parsed(r#"{"set": {"X-A": "frontend"}, "add": {"X-B": "1"}, "remove": ["Content-Type"]}"#);
    let to = Recipient {
        edits: Edits::of_answer(Some(&route), Some(&frontend)),
        ..recipient(Version::Http11)
    };
    assert_eq!(
        written(&OwnAnswer::file(503, "text/html", b"gone"), &to),
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nCache-Control: max-age=1\r\nX-A: frontend\r\nX-B: 1\r\n\r\ngone"
    );
}
