use super::*;

struct Case {
    framing: Framing,
    answers_head: bool,
    version: Version,
    keeps_connection: bool,
    edits: Option<HeaderEdits>,
    hsts: Option<&'static str>,
    sticky: Option<Sticky<'static>>,
}

fn plain() -> Case {
    Case {
        framing: Framing::Length(5),
        answers_head: false,
        version: Version::Http11,
        keeps_connection: true,
        edits: None,
        hsts: None,
        sticky: None,
    }
}

fn returned(case: &Case, raw: &str) -> String {
    with_fields(raw, |line, fields| {
        let mut words = line.splitn(3, ' ');
        let _version = words.next();
        let response = Response {
            status: words.next().unwrap().parse().unwrap(),
            reason: words.next().unwrap_or_default(),
            version: Version::Http11,
            fields,
        };
        let to = ToClient {
            response: &response,
            framing: framing_to(case.version, case.framing),
            answers_head: case.answers_head,
            version: case.version,
            keeps_connection: case.keeps_connection,
            edits: [case.edits.as_ref(), None, None].into(),
            hsts: case
                .hsts
                .map(|hsts| serde_json::from_value(hsts.into()).unwrap()),
            sticky: case.sticky,
            map_back: None,
        };
        let mut out = Vec::new();
        super::response(&mut out, &to);
        shown(&out)
    })
}

fn check(case: &Case, raw: &str, wanted: &str) {
    assert_eq!(returned(case, raw), expected(wanted), "of {raw}");
}

#[test]
fn an_answer_of_a_page() {
    check(
        &plain(),
        "HTTP/1.1 200 OK
         Date: Sun, 06 Nov 1994 08:49:37 GMT
         Server: x
         content-length: 5
         Content-Type: text/html
         Connection: close, X-Mine
         X-Mine: 1
         Keep-Alive: timeout=5
         Set-Cookie: a=b; Path=/
         Set-Cookie: c=d
         Location: /a
         Strict-Transport-Security: max-age=1",
        "HTTP/1.1 200 OK
         Date: Sun, 06 Nov 1994 08:49:37 GMT
         Server: x
         Content-Type: text/html
         Set-Cookie: a=b; Path=/
         Set-Cookie: c=d
         Location: /a
         Strict-Transport-Security: max-age=1
         Content-Length: 5",
    );
    // The space after the status is required.
    let nameless = returned(&plain(), "HTTP/1.0 299");
    assert_eq!(nameless, "HTTP/1.1 299 \nContent-Length: 5");
}

#[test]
fn the_body_is_framed_for_this_client() {
    use Framing::*;
    use Version::*;
    let cases = [
        (Http11, Length(5), true, "Content-Length: 5"),
        (
            Http11,
            Length(5),
            false,
            "Content-Length: 5\nConnection: close",
        ),
        (
            Http11,
            Chunked,
            true,
            "Trailer: X-Sum\nTransfer-Encoding: chunked",
        ),
        (Http11, UntilClose, true, "Connection: close"),
        (Http11, Empty, true, "Content-Length: 0"),
        (
            Http10,
            Length(5),
            true,
            "Content-Length: 5\nConnection: keep-alive",
        ),
        (
            Http10,
            Length(5),
            false,
            "Content-Length: 5\nConnection: close",
        ),
        (Http10, Chunked, true, "Connection: close"),
        (Http2, Chunked, true, "Trailer: X-Sum"),
        (Http2, Length(5), false, "Content-Length: 5"),
        (Http2, UntilClose, false, ""),
    ];
    for (version, framing, keeps_connection, wanted) in cases {
        let case = Case {
            version,
            framing,
            keeps_connection,
            ..plain()
        };
        check(
            &case,
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 99\nTrailer: X-Sum",
            &format!("HTTP/1.1 200 OK\n{wanted}"),
        );
    }
}

#[test]
fn what_has_no_body_may_say_how_long_it_would_be() {
    let cases = [
        (true, 200, "Content-Length: 99", "Content-Length: 99"),
        (
            true,
            200,
            "Content-Length: 99\nContent-Length: 98",
            "Content-Length: 99",
        ),
        (true, 200, "Content-Length: +9", ""),
        (true, 200, "Transfer-Encoding: chunked", ""),
        (false, 304, "Content-Length: 99", "Content-Length: 99"),
        (false, 304, "X: 1", "X: 1"),
        (false, 204, "Content-Length: 99", ""),
        (false, 205, "X: 1", "X: 1\nContent-Length: 0"),
    ];
    for (answers_head, status, sent, wanted) in cases {
        let case = Case {
            answers_head,
            framing: Framing::Empty,
            ..plain()
        };
        check(
            &case,
            &format!("HTTP/1.1 {status} Some Reason\n{sent}"),
            &format!("HTTP/1.1 {status} Some Reason\n{wanted}"),
        );
    }
}

#[test]
fn interim_answers_pass_and_an_upgrade_stays_one() {
    let case = Case {
        framing: Framing::Empty,
        edits: Some(edits(r#"{"set": {"X-Env": "prod"}}"#)),
        keeps_connection: false,
        hsts: Some("1d"),
        ..plain()
    };
    check(
        &case,
        "HTTP/1.1 100 Continue\nConnection: close",
        "HTTP/1.1 100 Continue",
    );
    check(
        &case,
        "HTTP/1.1 103 Early Hints\nLink: </a.css>; rel=preload\nUpgrade: x",
        "HTTP/1.1 103 Early Hints\nLink: </a.css>; rel=preload",
    );
    check(
        &case,
        "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Accept: x",
        "HTTP/1.1 101 Switching Protocols\nSec-WebSocket-Accept: x\nStrict-Transport-Security: max-age=86400\nX-Env: prod\nConnection: upgrade\nUpgrade: websocket",
    );
    let required = Case {
        framing: Framing::Empty,
        ..plain()
    };
    check(
        &required,
        "HTTP/1.1 426 Upgrade Required\nUpgrade: websocket\nConnection: upgrade",
        "HTTP/1.1 426 Upgrade Required\nContent-Length: 0\nConnection: upgrade\nUpgrade: websocket",
    );
}

#[test]
fn hsts_and_edits() {
    let hsts = Case {
        hsts: Some("180d"),
        ..plain()
    };
    check(
        &hsts,
        "HTTP/1.1 200 OK\nstrict-transport-security: max-age=1",
        "HTTP/1.1 200 OK\nStrict-Transport-Security: max-age=15552000\nContent-Length: 5",
    );
    let edited = Case {
        hsts: Some("180d"),
        edits: Some(edits(
            r#"{"set": {"strict-Transport-Security": "max-age=2", "Cache-Control": "no-store"}, "remove": ["Server", "set-cookie"]}"#,
        )),
        ..plain()
    };
    check(
        &edited,
        "HTTP/1.1 200 OK\nserver: x\nCache-Control: public\ncache-control: max-age=5\nSet-Cookie: a=b",
        "HTTP/1.1 200 OK\nCache-Control: no-store\nstrict-Transport-Security: max-age=2\nContent-Length: 5",
    );
}

#[test]
fn the_affinity_cookie_is_set_once() {
    let value = CookieValue::of("shop", "10.1.0.7:80".parse().unwrap());
    let case = |value, secure| Case {
        sticky: Some(Sticky {
            name: "SERVERID",
            value,
            secure,
        }),
        edits: Some(edits(r#"{"remove": ["X-Powered-By"]}"#)),
        ..plain()
    };
    let raw = "HTTP/1.1 200 OK\nSet-Cookie: SERVERID=theirs; Path=/\nSet-Cookie: SERVERID2=1\nCache-Control: no-cache";
    check(
        &case(Some(value), false),
        raw,
        &format!(
            "HTTP/1.1 200 OK
             Set-Cookie: SERVERID2=1
             Cache-Control: no-cache
             Set-Cookie: SERVERID={value}; Path=/; HttpOnly
             Cache-Control: private
             Content-Length: 5"
        ),
    );
    check(
        &case(Some(value), true),
        "HTTP/1.1 200 OK",
        &format!(
            "HTTP/1.1 200 OK
             Set-Cookie: SERVERID={value}; Path=/; HttpOnly; Secure
             Cache-Control: private
             Content-Length: 5"
        ),
    );
    check(
        &case(None, true),
        raw,
        "HTTP/1.1 200 OK\nSet-Cookie: SERVERID2=1\nCache-Control: no-cache\nContent-Length: 5",
    );
}
