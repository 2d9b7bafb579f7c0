//! The fields of the lines, and what cannot be forged in them.

use super::*;

impl Record<'static> {
    /// The record of a request that was served.
    pub(crate) fn example() -> Self {
        Self {
            began: Micros::default(),
            client: SocketAddr::from(([192, 0, 2, 7], 51_000)),
            frontend: "web",
            service: Some("shop"),
            server: Some("shop-0"),
            progress: Progress {
                queued: Some(Duration::ZERO),
                connecting: Some(Duration::from_millis(3)),
                ..Progress::default()
            },
            total: Duration::from_millis(1_250),
            bytes_in: 120,
            bytes_out: 345,
            termination: b"----",
            connections: [9, 5, 4, 2],
            request: Some(REQUEST),
        }
    }
}

const REQUEST: Request<'_> = Request {
    receiving: Some(Duration::from_micros(1_900)),
    responding: Some(Duration::from_millis(14)),
    status: Some(200),
    line: Some(("GET /a/b?c=d HTTP/1.1", "shop.example.com:8080")),
};

/// The record of a connection.
fn connection() -> Record<'static> {
    Record {
        frontend: "mysql",
        service: Some("orders"),
        server: Some("db-0"),
        progress: Progress {
            retries: 1,
            is_redispatched: true,
            ..Record::example().progress
        },
        bytes_in: 12,
        termination: b"cD",
        request: None,
        ..Record::example()
    }
}

const MOMENT: Duration = Duration::from_millis(1_795_273_445_078);

fn rendered(record: &Record<'_>, form: Access) -> String {
    let mut line = String::new();
    let mut dates = Dates::default();
    render(record, form, dates.at(UNIX_EPOCH + MOMENT, form), &mut line);
    line
}

fn of_request<'a>(line: &'a str, host: &'a str) -> Record<'a> {
    Record {
        request: Some(Request {
            line: Some((line, host)),
            ..REQUEST
        }),
        ..Record::example()
    }
}

#[test]
fn a_line_has_the_fields_of_tcplog() {
    let nobody = Record {
        server: None,
        progress: Progress::default(),
        client: "[2001:db8::1]:9".parse().unwrap(),
        termination: b"SC",
        ..connection()
    };
    let mut same = connection();
    (same.progress.retries, same.progress.is_redispatched) = (3, false);
    for (record, line) in [
        (
            connection(),
            "192.0.2.7:51000 [21/Nov/2026:15:04:05.078] mysql orders/db-0 0/3/1250 345 cD 9/5/4/2/+1 0/0",
        ),
        (
            nobody,
            "2001:db8::1:9 [21/Nov/2026:15:04:05.078] mysql orders/<NOSRV> -1/-1/1250 345 SC 9/5/4/2/0 0/0",
        ),
        (
            same,
            "192.0.2.7:51000 [21/Nov/2026:15:04:05.078] mysql orders/db-0 0/3/1250 345 cD 9/5/4/2/3 0/0",
        ),
    ] {
        assert_eq!(rendered(&record, Access::Haproxy), line);
    }
}

#[test]
fn a_line_has_the_fields_of_httplog() {
    let none = Record {
        service: None,
        server: None,
        progress: Progress::default(),
        termination: b"LR--",
        request: Some(Request {
            responding: None,
            status: Some(302),
            ..REQUEST
        }),
        ..Record::example()
    };
    let bad = Record {
        client: "[2001:db8::1]:9".parse().unwrap(),
        termination: b"PR--",
        request: Some(Request {
            receiving: None,
            responding: None,
            status: Some(400),
            line: None,
        }),
        ..none
    };
    let left = Record {
        server: None,
        progress: Progress {
            queued: Some(Duration::ZERO),
            retries: 2,
            is_redispatched: true,
            before: 7,
            ..Progress::default()
        },
        bytes_out: 0,
        termination: b"CC--",
        request: Some(Request {
            responding: None,
            status: None,
            ..REQUEST
        }),
        ..Record::example()
    };
    for (record, line) in [
        (
            Record::example(),
            r#"192.0.2.7:51000 [21/Nov/2026:15:04:05.078] web shop/shop-0 1/0/3/14/1250 200 345 - - ---- 9/5/4/2/0 0/0 "GET /a/b?c=d HTTP/1.1""#,
        ),
        (
            none,
            r#"192.0.2.7:51000 [21/Nov/2026:15:04:05.078] web web/<NOSRV> 1/-1/-1/-1/1250 302 345 - - LR-- 9/5/4/2/0 0/0 "GET /a/b?c=d HTTP/1.1""#,
        ),
        (
            bad,
            r#"2001:db8::1:9 [21/Nov/2026:15:04:05.078] web web/<NOSRV> -1/-1/-1/-1/1250 400 345 - - PR-- 9/5/4/2/0 0/0 "<BADREQ>""#,
        ),
        (
            left,
            r#"192.0.2.7:51000 [21/Nov/2026:15:04:05.078] web shop/<NOSRV> 1/0/-1/-1/1250 -1 0 - - CC-- 9/5/4/2/+2 0/7 "GET /a/b?c=d HTTP/1.1""#,
        ),
    ] {
        assert_eq!(rendered(&record, Access::Haproxy), line);
    }
}

#[test]
fn json_is_an_object_with_every_field() {
    let parsed = |record: &Record<'_>| -> serde_json::Value {
        serde_json::from_str(&rendered(record, Access::Json)).unwrap()
    };
    assert_eq!(
        parsed(&Record::example()),
        serde_json::json!({
            "time": "2026-11-21T15:04:05.078Z", "client": "192.0.2.7:51000", "frontend": "web",
            "service": "shop", "server": "shop-0", "bytes_in": 120, "bytes_out": 345,
            "duration_ms": 1250, "queued_ms": 0, "connecting_ms": 3, "retries": 0,
            "termination": "----", "method": "GET", "path": "/a/b?c=d",
            "host": "shop.example.com:8080", "version": "HTTP/1.1", "status": 200,
            "receiving_ms": 1, "responding_ms": 14,
        })
    );
    assert_eq!(
        parsed(&connection()),
        serde_json::json!({
            "time": "2026-11-21T15:04:05.078Z", "client": "192.0.2.7:51000", "frontend": "mysql",
            "service": "orders", "server": "db-0", "bytes_in": 12, "bytes_out": 345,
            "duration_ms": 1250, "queued_ms": 0, "connecting_ms": 3, "retries": 1,
            "termination": "cD",
        })
    );
    let bad = Record {
        service: None,
        server: None,
        client: "[2001:db8::1]:9".parse().unwrap(),
        request: Some(Request {
            status: None,
            line: None,
            ..REQUEST
        }),
        ..Record::example()
    };
    let bad = parsed(&bad);
    assert_eq!(bad["client"], "[2001:db8::1]:9");
    for key in [
        "service", "server", "method", "path", "host", "version", "status",
    ] {
        assert!(bad[key].is_null(), "{key}");
    }
}

#[test]
fn the_path_of_json_is_that_of_the_target() {
    for (line, method, path) in [
        ("GET / HTTP/1.1", "GET", "/"),
        ("GET http://x/a?b HTTP/1.1", "GET", "/a?b"),
        ("GET http://x?b HTTP/1.1", "GET", "/?b"),
        ("GET https://x HTTP/2.0", "GET", "/"),
        ("GET /r?to=http://y/z HTTP/1.1", "GET", "/r?to=http://y/z"),
        ("OPTIONS * HTTP/1.1", "OPTIONS", "*"),
        // The end of a long line is cut off.
        ("GET /lo", "GET", "/lo"),
    ] {
        let record = of_request(line, "");
        let line = rendered(&record, Access::Json);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["method"], method);
        assert_eq!(value["path"], path);
        assert!(value["host"].is_null());
    }
}

#[test]
fn what_a_client_sends_cannot_forge_a_line() {
    let line = "GET /\"#\\\r\n\u{1b}[0m\u{7f}é 1";
    let record = of_request(line, "h\"\n");
    let text = rendered(&record, Access::Haproxy);
    assert!(
        text.ends_with(" \"GET /#22#23\\#0D#0A#1B[0m#7F#C3#A9 1\""),
        "{text}"
    );
    let text = rendered(&record, Access::Json);
    assert!(!text.contains(['\n', '\r', '\u{1b}', '\u{7f}']), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["path"], "/\"#\\\r\n\u{1b}[0m\u{7f}é");
    assert_eq!(value["host"], "h\"\n");
}

#[test]
fn dates_follow_the_second_and_the_form() {
    let mut dates = Dates::default();
    for (millis, form, text) in [
        (0, Access::Haproxy, "01/Jan/1970:00:00:00.000"),
        (7, Access::Haproxy, "01/Jan/1970:00:00:00.007"),
        (999, Access::Json, "1970-01-01T00:00:00.999Z"),
        (998, Access::Json, "1970-01-01T00:00:00.998Z"),
        (61_050, Access::Json, "1970-01-01T00:01:01.050Z"),
        (61_050, Access::Haproxy, "01/Jan/1970:00:01:01.050"),
    ] {
        let time = UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(dates.at(time, form), text);
    }
}

#[test]
fn dates_are_those_of_the_calendar() {
    let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds), RFC_3339).to_string();
    assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
    assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59.000Z");
    assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
}
