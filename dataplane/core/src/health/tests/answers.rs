//! Requests, and the judgement of answers.

use proptest::prelude::*;

use super::*;
use crate::table::Health;

fn health(yaml: &str) -> Health {
    let text = format!("version: 1\nservices: [{{name: s, health: {yaml}}}]");
    let table = table::parse(text.as_bytes(), Format::Yaml).unwrap();
    table.services[0].checks().unwrap().clone()
}

/// The outcome for `answer`, received in pieces of `piece` bytes before the connection closes.
fn verdict(health: &Health, answer: &[u8], piece: usize) -> Outcome {
    let mut exchange = CheckExchange::new(health);
    assert_eq!(exchange.sent(), None);
    answer
        .chunks(piece)
        .find_map(|piece| exchange.received(piece))
        .unwrap_or_else(|| exchange.closed())
}

#[track_caller]
fn assert_verdict(yaml: &str, answer: &[u8], expected: &str) {
    let health = health(yaml);
    for piece in [1, 2, 3, 7, answer.len().max(1)] {
        let outcome = verdict(&health, answer, piece);
        let shown = format!(
            "{} {} {}",
            outcome.word(),
            outcome
                .code()
                .map_or_else(|| "-".into(), |code| code.to_string()),
            outcome.info().unwrap_or("-")
        );
        let text = String::from_utf8_lossy(answer);
        assert_eq!(shown, expected, "{yaml}: {text:?} in pieces of {piece}");
    }
}

#[test]
fn the_status_of_an_http_answer_decides() {
    for (expect, answer, expected) in [
        ("", "HTTP/1.1 200 OK\r\n\r\n", "L7OK 200 -"),
        (
            "",
            "HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n",
            "L7OK 302 -",
        ),
        ("", "HTTP/1.1 204\r\n\r\n", "L7OK 204 -"),
        ("", "HTTP/1.1 200 OK\n\n", "L7OK 200 -"),
        ("", "HTTP/1.1 400 Bad Request\r\n\r\n", "L7STS 400 -"),
        ("", "HTTP/1.1 503 \r\n\r\n", "L7STS 503 -"),
        (", expect: \"503\"", "HTTP/1.1 503 \r\n\r\n", "L7OK 503 -"),
        (
            ", expect: \"503\"",
            "HTTP/1.1 200 OK\r\n\r\n",
            "L7STS 200 -",
        ),
        (
            "",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\n\r\n",
            "L7STS 500 -",
        ),
        (
            "",
            "HTTP/2.0 200 OK\r\n\r\n",
            "L7RSP - it does not speak HTTP/1",
        ),
        (
            "",
            "HTTP/1.1 20 OK\r\n\r\n",
            "L7RSP - it does not speak HTTP/1",
        ),
        (
            "",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "L7RSP - it does not speak HTTP/1",
        ),
        (
            "",
            "HTTP/1.1 +20 OK\r\n\r\n",
            "L7RSP - it does not speak HTTP/1",
        ),
        ("", "SSH-2.0-x", "L7RSP - it does not speak HTTP/1"),
        ("", "\u{15}\u{3}\u{1}", "L7RSP - it does not speak HTTP/1"),
        ("", "", "L7RSP - it closed without an answer"),
        (
            "",
            "HTTP/1.1 200 OK\r\nA: b",
            "L7RSP - it closed in the middle of its answer",
        ),
        (
            "",
            "HTTP/1.1 200",
            "L7RSP - it closed in the middle of its answer",
        ),
    ] {
        assert_verdict(
            &format!("{{mode: http{expect}}}"),
            answer.as_bytes(),
            expected,
        );
    }
}

#[test]
fn the_text_is_looked_for_in_the_body_alone() {
    const LACKS: &str = "L7RSP - its body lacks the text that is looked for";
    const ENDS: &str = "L7RSP - it closed in the middle of its answer";
    for (answer, expected) in [
        ("HTTP/1.1 200 ready\r\nX: ready\r\n\r\nnot red", LACKS),
        ("HTTP/1.1 200 OK\r\n\r\nall is ready!", "L7OK 200 -"),
        ("HTTP/1.1 200 OK\r\n\r\nrereready", "L7OK 200 -"),
        ("HTTP/1.1 503 OK\r\n\r\nready", "L7STS 503 -"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready",
            "L7OK 200 -",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nready", LACKS),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nread", ENDS),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nready", LACKS),
        ("HTTP/1.1 204 No\r\n\r\nready", LACKS),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nre\r\n3;x=y\r\nady\r\n0\r\n\r\n",
            "L7OK 200 -",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\nContent-Length: 1\r\n\r\nA\r\nI am ready\r\n",
            "L7OK 200 -",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nred\r\n0\r\n\r\n",
            LACKS,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nready",
            "L7RSP - its body is broken",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nrea",
            ENDS,
        ),
    ] {
        assert_verdict("{mode: http, body: ready}", answer.as_bytes(), expected);
    }
    assert_verdict(
        "{mode: http, method: HEAD, body: ready}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nready",
        LACKS,
    );
}

#[test]
fn only_the_first_64_kib_of_a_body_are_looked_at_and_heads_have_an_end() {
    let health = health("{mode: http, body: needle}");
    for (before, found) in [(65_530, true), (65_531, false), (1 << 20, false)] {
        let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        answer.resize(answer.len() + before, b'n');
        answer.extend_from_slice(b"needle");
        for piece in [1000, answer.len()] {
            let outcome = verdict(&health, &answer, piece);
            assert_eq!(outcome.passed(), Some(found), "{before}: {outcome:?}");
        }
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\nneedle", "x".repeat(60_000));
    assert_eq!(verdict(&health, long.as_bytes(), 999).passed(), Some(true));
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(20_000));
    assert_eq!(
        verdict(&health, endless.as_bytes(), 999),
        Outcome::WrongAnswer("its head has no end")
    );
}

#[test]
fn an_answer_must_begin_as_the_table_says() {
    for mode in ["tcp", "udp"] {
        let check = format!("{{mode: {mode}, send: ping, answer: 'po\\x00ng'}}");
        for (answer, expected) in [
            (&b"po\0ng"[..], "L7OK - -"),
            (b"po\0ng and more", "L7OK - -"),
            (b"pong", "L7RSP - its answer does not begin as it should"),
            (b"x", "L7RSP - its answer does not begin as it should"),
            (b"po", "L7RSP - its answer does not begin as it should"),
            (b"", "L7RSP - it closed without an answer"),
        ] {
            assert_verdict(&check, answer, expected);
        }
    }
}

#[test]
fn an_answer_must_contain_what_the_table_says() {
    const LACKS: &str = "L7RSP - its answer lacks the text that is looked for";
    for mode in ["tcp", "udp"] {
        let check = format!("{{mode: {mode}, send: 'PING\\r\\n', answer-contains: '+PO\\x00NG'}}");
        for (answer, expected) in [
            (&b"+PO\0NG\r\n"[..], "L7OK - -"),
            (b"-NOAUTH first\r\n+PO\0NG", "L7OK - -"),
            (b"+PO+PO\0NG", "L7OK - -"),
            (b"+PONG", LACKS),
            (b"+PO", LACKS),
            (b"", "L7RSP - it closed without an answer"),
        ] {
            assert_verdict(&check, answer, expected);
        }
    }
    let health = health("{mode: tcp, answer-contains: needle}");
    for (before, found) in [(65_530, true), (65_531, false), (1 << 20, false)] {
        let answer = [&vec![b'n'; before][..], b"needle"].concat();
        let outcome = verdict(&health, &answer, 1000);
        assert_eq!(outcome.passed(), Some(found), "{before}: {outcome:?}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_awaited() {
    for (yaml, outcome) in [
        ("{mode: tcp}", Some(Outcome::Connected)),
        ("{mode: tcp, send: x}", Some(Outcome::Answered(None))),
        ("{mode: tcp, answer: x}", None),
        ("{mode: tcp, answer-contains: x}", None),
        ("{mode: udp}", None),
        ("{mode: http}", None),
    ] {
        let health = health(yaml);
        let exchange = CheckExchange::new(&health);
        assert_eq!(exchange.sent(), outcome, "{yaml}");
        assert_eq!(exchange.awaits_answer(), outcome.is_none(), "{yaml}");
    }
    let health = health("{mode: udp}");
    assert_eq!(
        CheckExchange::new(&health).received(b""),
        Some(Outcome::Answered(None)),
        "an empty datagram is an answer"
    );
}

#[test]
fn a_question_says_what_the_table_says() {
    let address = SocketAddr::from(([127, 0, 0, 1], 8080));
    for (yaml, expected) in [
        (
            "{mode: http}",
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: ballast\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        ),
        (
            "{mode: http, method: HEAD, path: /ok?a=b, host: shop.example.com}",
            "HEAD /ok?a=b HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: ballast\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        ),
        ("{mode: tcp}", ""),
        ("{mode: tcp, send: 'a\\n\\x00'}", "a\n\0"),
        ("{mode: udp, send: ping, answer: pong}", "ping"),
    ] {
        let health = health(yaml);
        let mut request = Vec::new();
        CheckExchange::new(&health).write_request(address, &mut request);
        assert_eq!(String::from_utf8(request).unwrap(), expected, "{yaml}");
    }
}

#[test]
fn a_check_introduces_itself_where_the_service_sends_headers() {
    let local = SocketAddr::from(([127, 0, 0, 9], 4321));
    let own = "PROXY TCP4 127.0.0.9 127.0.0.1 4321 80\r\n";
    let v2_local = "\r\n\r\n\0\r\nQUIT\n\u{20}\0\0\0";
    for (header, health, expected) in [
        ("off", "mode: tcp", ""),
        ("v1", "mode: tcp", own),
        ("v1", "mode: http", own),
        ("v2", "mode: http", v2_local),
        ("v2", "mode: udp", v2_local),
        // The endpoint's own port, given explicitly; and another port, to which no header is sent.
        ("v1", "mode: http, port: 80", own),
        ("v1", "mode: http, port: 81", ""),
        ("v2", "mode: udp, port: 81", ""),
        ("v1", "mode: udp", ""),
    ] {
        let mut process = Process::new(100);
        process.serve(&format!(
            "[{{name: s, send-proxy: {header}, health: {{{health}}}, endpoints: [{{address: \"127.0.0.1:80\"}}]}}]"
        ));
        let check = process.next();
        let port = if health.contains("81") { 81 } else { 80 };
        assert_eq!(check.address.port(), port);
        let mut bytes = Vec::new();
        check.write_proxy_header(local, &mut bytes);
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            expected,
            "{header}, {health}"
        );
        assert_eq!(check.sends_proxy_header(), !expected.is_empty());
    }
}

proptest! {
    #[test]
    fn no_answer_does_harm_and_its_pieces_do_not_matter(
        answer in prop::collection::vec(
            prop_oneof![
                Just("HTTP/1.1 200 OK\r\n".to_owned()),
                Just("\r\n".to_owned()),
                Just("Transfer-Encoding: chunked\r\n".to_owned()),
                Just("Content-Length: 4\r\n".to_owned()),
                Just("3\r\n".to_owned()),
                Just("ok".to_owned()),
                ".{0,9}",
            ],
            0..12,
        ),
        piece in 1_usize..9,
        mode in prop_oneof![Just("{mode: http, body: ok}"), Just("{mode: tcp, answer: ok}"), Just("{mode: tcp, answer-contains: ok}")],
    ) {
        let health = health(mode);
        let answer = answer.concat();
        let whole = verdict(&health, answer.as_bytes(), answer.len().max(1));
        prop_assert_eq!(verdict(&health, answer.as_bytes(), piece), whole);
    }
}
