//! Heads: what is read from them, and what makes them malformed.

use super::wire::*;
use super::*;

/// What becomes of a request with this header block and no body.
fn request(fields: &[(&str, &str)]) -> String {
    let mut tested = Tested::server();
    tested.gets(headers(1, fields, END));
    match *tested.requests() {
        [] => tested.says(),
        [key] => {
            assert_eq!(tested.says(), "");
            let head = tested.connection.take_head(key).unwrap().unwrap();
            let mut line = format!("{} {:?}", head.scheme(), head.authority());
            line += &format!(" {}", text(&head));
            if head.is_too_large() {
                line + " too large"
            } else {
                line
            }
        }
        _ => panic!("more than one request"),
    }
}

/// The pseudo-header fields of a request, and these fields.
fn with(fields: &[(&'static str, &'static str)]) -> String {
    request(&[&GET, fields].concat())
}

const REFUSED: &str = "reset 1 PROTOCOL_ERROR";

#[test]
fn heads_of_requests_are_read() {
    assert_eq!(
        with(&[("a", "1"), ("b-c", ""), ("a", "2 \t3")]),
        "http Some(\"shop.example\") GET / a=1 b-c= a=2 \\t3"
    );
    for (fields, expected) in [
        (
            &[(":path", "/a?b"), (":scheme", "https"), (":method", "X-Y")][..],
            "https None X-Y /a?b",
        ),
        (
            &[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*")],
            "http None OPTIONS *",
        ),
        // It is answered, not reset.
        (
            &[(":method", "CONNECT"), (":authority", "a:1")],
            " Some(\"a:1\") CONNECT ",
        ),
        (
            &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                ("host", "a"),
            ],
            "http None GET / host=a",
        ),
        // UTF-8 beyond ASCII is kept as it is.
        (
            &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/\u{e9}"),
                ("a", "\u{e9}"),
            ],
            "http None GET /\u{e9} a=\\xc3\\xa9",
        ),
    ] {
        assert_eq!(request(fields), expected);
    }
    let mut tested = Tested::server();
    let mut bytes = block(&GET[..3]);
    bytes.extend(b"\x00\x05:path\x02/\xff\x00\x01a\x01\xff");
    tested.gets(frame(HEADERS, END_HEADERS | END, 1, &bytes));
    let key = tested.request();
    let head = tested.connection.take_head(key).unwrap().unwrap();
    assert_eq!(text(&head), "GET  a=\\xff");
}

#[test]
fn malformed_heads_of_requests_reset_their_stream() {
    let pseudo = |left_out: &str| {
        let kept = GET.iter().filter(|(name, _)| *name != left_out);
        kept.copied().collect::<Vec<_>>()
    };
    for fields in [
        vec![],
        pseudo(":method"),
        pseudo(":scheme"),
        pseudo(":path"),
        vec![(":method", "CONNECT"), (":scheme", "http"), (":path", "/")],
        vec![(":method", ""), (":scheme", "http"), (":path", "/")],
        vec![(":method", "G T"), (":scheme", "http"), (":path", "/")],
        vec![(":method", "G\u{e9}T"), (":scheme", "http"), (":path", "/")],
        vec![(":method", "GET"), (":scheme", ""), (":path", "/")],
        vec![
            (":method", "GET"),
            (":scheme", "http://b/?"),
            (":path", "/"),
        ],
        vec![(":method", "GET"), (":scheme", "1http"), (":path", "/")],
        vec![(":method", "GET"), (":scheme", "http"), (":path", "")],
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", ""),
        ],
        vec![
            (":method", "GET"),
            ("a", "b"),
            (":scheme", "http"),
            (":path", "/"),
        ],
    ] {
        assert_eq!(request(&fields), REFUSED, "{fields:?}");
    }
    for field in [
        (":method", "GET"),
        (":path", "/"),
        (":scheme", "http"),
        (":authority", "a"),
        (":status", "200"),
        (":protocol", "websocket"),
        (":unknown", "x"),
        (":", "x"),
        ("", "x"),
        ("A", "x"),
        ("a b", "x"),
        ("a:b", "x"),
        ("a\u{e9}", "x"),
        ("a\r\nb", "x"),
        ("a\0", "x"),
        ("a(", "x"),
        ("a", " x"),
        ("a", "x "),
        ("a", "\tx"),
        ("a", "x\t"),
        ("a", " "),
        ("a", "x\r\nb: c"),
        ("a", "x\ny"),
        ("a", "x\0"),
        ("a", "x\u{1f}y"),
        ("a", "x\u{7f}"),
        ("connection", "close"),
        ("connection", ""),
        ("keep-alive", "1"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", ""),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("te", ""),
        ("content-length", ""),
        ("content-length", "+1"),
        ("content-length", "-1"),
        ("content-length", "1,1"),
        ("content-length", "0x1"),
        ("content-length", "1 1"),
        ("content-length", "9223372036854775808"),
        ("content-length", "18446744073709551616"),
        // It announces a body, and there is none.
        ("content-length", "1"),
    ] {
        assert_eq!(with(&[field]), REFUSED, "{field:?}");
    }
    assert_eq!(
        with(&[("content-length", "0"), ("content-length", "00")]),
        with(&[("content-length", "0")]),
        "the same length twice is written once"
    );
    assert_eq!(
        with(&[("content-length", "0"), ("content-length", "1")]),
        REFUSED
    );
    assert!(with(&[("te", "Trailers")]).ends_with("te=Trailers"));
}

#[test]
fn a_stream_that_depends_on_itself_is_reset() {
    let mut tested = Tested::server();
    for (parent, said) in [(5, ""), (3, "reset 3 PROTOCOL_ERROR")] {
        let mut payload = u32::to_be_bytes(parent | 1 << 31).to_vec();
        payload.push(200);
        payload.extend(block(&GET));
        let id = if parent == 5 { 1 } else { 3 };
        tested.gets(frame(
            HEADERS,
            WITH_PRIORITY | END_HEADERS | END,
            id,
            &payload,
        ));
        assert_eq!(tested.says(), said);
    }
}

/// The block is decoded nevertheless: the next one refers to the same table.
#[test]
fn a_head_that_is_too_large_is_known_by_its_pseudo_header_fields() {
    // The other fields count 177 bytes, and this one 33 and its value.
    for (length, end) in [(3886, "xx"), (3887, "GET / too large")] {
        let large = "x".repeat(length);
        let most = [&GET[..], &[("a", &*large)]].concat();
        assert!(request(&most).ends_with(end));
    }
    let mut tested = Tested::server();
    let mut bytes = block(&GET);
    // An entry of the dynamic table of 3600 bytes, and the entry 62 again and again.
    bytes.extend(b"\x40\x01k\x7f\x91\x1b");
    bytes.resize(bytes.len() + 3600, b'v');
    bytes.extend([0xbe; 60]);
    tested.gets(frame(HEADERS, END_HEADERS | END, 1, &bytes));
    let key = tested.request();
    let head = tested.connection.take_head(key).unwrap().unwrap();
    assert!(head.is_too_large());
    assert_eq!((head.method(), head.path(), head.len()), ("GET", "/", 1));
    assert!(head.capacity() < 3 * CONFIG.max_head, "{}", head.capacity());
    let mut bytes = block(&GET);
    bytes.push(0xbe);
    tested.gets(frame(HEADERS, END_HEADERS | END, 3, &bytes));
    let key = tested.request();
    let head = tested.connection.take_head(key).unwrap().unwrap();
    assert!(!head.is_too_large());
    assert_eq!(head.fields().next().unwrap().value.len(), 3600);
}

/// Some 16 KiB of such a block stand for 32 MB, and decoding them takes as long as hundreds of requests.
#[test]
fn a_block_that_stands_for_far_more_than_the_limit_ends_the_connection() {
    for (again, is_allowed) in [(64, true), (65, false)] {
        let mut tested = Tested::server();
        let mut bytes = block(&GET);
        // An entry of the table that counts 4032 bytes, and its name again and again, each time as a new entry.
        bytes.extend(b"\x40\x7f\xa1\x1e");
        bytes.resize(bytes.len() + 4000, b'n');
        bytes.push(0);
        bytes.extend([0x7e, 0].repeat(again - 1));
        let result = tested.tries(frame(HEADERS, END_HEADERS | END, 1, &bytes));
        if is_allowed {
            assert_eq!(result, Ok(()));
        } else {
            assert_eq!(result, Err(ErrorCode::ENHANCE_YOUR_CALM));
        }
    }
}

/// A request that is refused for its head has changed the table, too.
#[test]
fn the_table_follows_the_blocks_of_streams_that_are_not_served() {
    let adds = |name: u8| [0x40, 1, name, 1, b'v'];
    let mut tested = Tested::server();
    // Malformed, one that nobody needs, and trailers of a stream that was reset here.
    tested.gets(frame(HEADERS, END_HEADERS | END, 1, &adds(b'A')));
    tested.gets(post(3));
    let key = tested.request();
    tested.connection.reset(key, ErrorCode::CANCEL);
    tested.gets(frame(HEADERS, END_HEADERS | END, 3, &adds(b'b')));
    let mut bytes = block(&GET);
    bytes.push(0xbe);
    tested.gets(frame(HEADERS, END_HEADERS | END, 5, &bytes));
    let key = tested.request();
    let head = tested.connection.take_head(key).unwrap().unwrap();
    assert_eq!(text(&head), "GET / b=v");
    assert_eq!(tested.says(), "reset 1 PROTOCOL_ERROR, reset 3 CANCEL");
}

/// What becomes of a response with this header block.
fn response(fields: &[(&str, &str)], flags: u8) -> String {
    let (mut tested, keys) = Tested::client(1);
    tested.gets(headers(1, fields, flags));
    match tested.connection.take_head(keys[0]) {
        Ok(head) => text(&head.unwrap()),
        Err(reset) => format!("{reset:?}, {}", tested.says()),
    }
}

#[test]
fn heads_of_responses_are_read() {
    for (fields, flags, expected) in [
        (&[(":status", "200")][..], END, "200"),
        (&[(":status", "999"), ("a", "b")], 0, "999 a=b"),
        (&[(":status", "100")], 0, "100"),
        (&[(":status", "103"), ("link", "x")], 0, "103 link=x"),
        (
            &[(":status", "200"), ("content-length", "7")],
            0,
            "200 content-length=7",
        ),
        (
            &[(":status", "304"), ("content-length", "7")],
            END,
            "304 content-length=7",
        ),
    ] {
        assert_eq!(response(fields, flags), expected);
    }
}

#[test]
fn malformed_heads_of_responses_reset_their_stream() {
    for (fields, flags) in [
        (&[][..], END),
        (&[("a", "b")], END),
        (&[(":status", "99")], END),
        (&[(":status", "099")], END),
        (&[(":status", "1000")], END),
        (&[(":status", "2 0")], END),
        (&[(":status", "")], END),
        (&[(":status", "200"), (":status", "200")], END),
        (&[("a", "b"), (":status", "200")], END),
        (&[(":status", "200"), (":path", "/")], END),
        (&[(":status", "200"), ("connection", "close")], END),
        (&[(":status", "200"), ("transfer-encoding", "chunked")], END),
        (&[(":status", "200"), ("a", "b\n")], END),
        (&[(":status", "200"), ("content-length", "x")], END),
        // It changes the protocol, or ends without a response.
        (&[(":status", "101")], 0),
        (&[(":status", "100")], END),
        // It announces a body, and there is none.
        (&[(":status", "200"), ("content-length", "7")], END),
    ] {
        assert_eq!(
            response(fields, flags),
            "Malformed, reset 1 PROTOCOL_ERROR",
            "{fields:?}"
        );
    }
    let large = "x".repeat(5000);
    assert_eq!(
        response(&[(":status", "200"), ("a", &large)], END),
        "Malformed, reset 1 PROTOCOL_ERROR"
    );
}

/// The fields that `write` appends to a response's head, as a client's connection reads them.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut server = Tested::server();
    server.gets(get(1));
    let key = server.request();
    server.connection.respond(key, 200, true, write).unwrap();
    let (mut client, keys) = Tested::client(1);
    client.gets(server.connection.output());
    let head = client.connection.take_head(keys[0]);
    text(&head.unwrap().unwrap())
}

#[test]
fn fields_are_written_as_http2_has_them() {
    use crate::forward::Sink;

    assert_eq!(
        written(|out| {
            let mut fields = Fields::new(out);
            fields.field("X-Upper", b" a ");
            fields.field_with("Other", |out| out.extend_from_slice(b"\tb"));
            fields.field("set-cookie", b"c=d");
        }),
        "200 x-upper=a other=b set-cookie=c=d"
    );
}

/// Only in a request it becomes `:authority`, which no response may have.
#[test]
fn a_response_may_have_a_field_that_is_called_host() {
    use crate::forward::Sink;

    assert_eq!(
        written(|out| {
            let mut fields = Fields::new(out);
            fields.field("a", b"b");
            fields.field("Host", b"one.example");
            fields.field_with("host", |out| out.extend_from_slice(b"two"));
        }),
        "200 a=b host=one.example host=two"
    );
}
