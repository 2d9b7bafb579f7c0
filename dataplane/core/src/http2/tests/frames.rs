//! The layout of frames, where they may come, and what a wrong one ends.

use super::wire::*;
use super::*;

/// A conversation with every kind of frame that a client sends.
fn conversation() -> Vec<u8> {
    let (first, rest) = {
        let mut block = block(&POST);
        let rest = block.split_off(10);
        (block, rest)
    };
    [
        PREFACE.to_vec(),
        settings(&[(WINDOW, 100_000), (FRAME_SIZE, 20_000), (99, 1)]),
        confirmation(),
        window(0, 1000),
        get(1),
        frame(HEADERS, 0, 3, &first),
        frame(CONTINUATION, 0, 3, &rest[..7]),
        frame(CONTINUATION, END_HEADERS, 3, &rest[7..]),
        frame(77, 0xff, 3, b"of a kind that nobody knows"),
        data(3, "abc", 0),
        padded(3, "de", 9, 0),
        padded(3, "", 0, 0),
        data(3, "", 0),
        frame(PRIORITY, 0, 3, &[0; 5]),
        frame(PING, 0, 0, b"12345678"),
        window(3, 50),
        headers(3, &[("x-end", "1")], END),
        frame(HEADERS, PADDED | WITH_PRIORITY | END_HEADERS | END, 5, &{
            let mut payload = vec![3, 0x80, 0, 0, 3, 16];
            payload.extend(block(&GET));
            payload.extend([0; 3]);
            payload
        }),
        post(7),
        reset(7, 8),
        goaway(0, 0),
    ]
    .concat()
}

#[test]
fn bytes_may_be_cut_anywhere() {
    let conversation = conversation();
    let told = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut tested = Tested::new(Role::Server, CONFIG);
        pieces.for_each(|piece| tested.gets(piece));
        let requests = tested.requests();
        let mut told = vec![tested.says()];
        for key in requests {
            let head = tested.connection.take_head(key).unwrap().unwrap();
            let trailers = tested.connection.take_trailers(key);
            let body = tested.reads(key);
            told.push(format!(
                "{}, {}, {:?}, {:?}",
                text(&head),
                body.escape_ascii(),
                trailers.as_ref().map(text),
                tested.connection.body_end(key),
            ));
        }
        (told, tested.connection.incomplete_since())
    };
    let whole = told(&mut [&*conversation].into_iter());
    assert_eq!(whole.1, None);
    assert_eq!(
        whole.0,
        [
            "confirmed, pong",
            "GET /, , None, Ok(true)",
            "POST /, abcde, Some(\"  x-end=1\"), Ok(true)",
            "GET /, , None, Ok(true)",
            "POST /, , None, Err(ByPeer(CANCEL))",
        ]
    );
    for size in [1, 2, 3, 5, 8, 9, 10, 13, 50] {
        assert_eq!(told(&mut conversation.chunks(size)), whole, "{size}");
    }
    for cut in 0..conversation.len() {
        let (first, second) = conversation.split_at(cut);
        assert_eq!(told(&mut [first, second].into_iter()), whole, "{cut}");
    }
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    for (bytes, code) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "PROTOCOL_ERROR"),
        ([&PREFACE[..20], b"x"].concat(), "PROTOCOL_ERROR"),
        ([PREFACE, &get(1)].concat(), "PROTOCOL_ERROR"),
        ([PREFACE, &confirmation()].concat(), "PROTOCOL_ERROR"),
        ([PREFACE, &frame(77, 0, 0, b"")].concat(), "PROTOCOL_ERROR"),
    ] {
        let mut tested = Tested::new(Role::Server, CONFIG);
        let error = tested.tries(&bytes).unwrap_err();
        assert_eq!(format!("{error:?}"), code, "{}", bytes.escape_ascii());
        assert_eq!(tested.says(), format!("goaway 0 {code}"));
    }
    let mut tested = Tested::new(Role::Client, CONFIG);
    assert!(!tested.connection.has_settings());
    assert_eq!(tested.tries(confirmation()), Err(ErrorCode::PROTOCOL_ERROR));
}

/// Frames that no client may send while stream 1 is open and stream 3 is not.
#[test]
fn a_wrong_frame_ends_the_connection() {
    let opened = frame(HEADERS, 0, 3, &block(&GET)[..5]);
    let after = |bytes: Vec<u8>| [opened.clone(), bytes].concat();
    let protocol = [
        data(0, "x", 0),
        data(3, "x", 0),
        data(2, "x", 0),
        frame(DATA, PADDED, 1, &[5, 0, 0, 0, 0]),
        headers(0, &GET, END),
        headers(2, &GET, END),
        frame(HEADERS, PADDED | END_HEADERS, 3, &[3, 0, 0]),
        frame(PRIORITY, 0, 0, &[0; 5]),
        frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 0]),
        reset(0, 0),
        reset(3, 0),
        reset(2, 0),
        frame(SETTINGS, 0, 1, b""),
        settings(&[(ENABLE_PUSH, 2)]),
        settings(&[(FRAME_SIZE, 16_383)]),
        settings(&[(FRAME_SIZE, 1 << 24)]),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 1, &[0; 8]),
        window(0, 0),
        window(3, 1),
        window(2, 1),
        frame(CONTINUATION, END_HEADERS, 1, b""),
        after(data(1, "x", 0)),
        after(frame(PING, 0, 0, &[0; 8])),
        after(frame(77, 0, 0, b"")),
        after(frame(HEADERS, END_HEADERS, 3, b"")),
        after(frame(CONTINUATION, END_HEADERS, 1, b"")),
    ];
    let size = [
        frame(DATA, PADDED, 1, b""),
        frame(HEADERS, PADDED | END_HEADERS, 3, b""),
        frame(HEADERS, WITH_PRIORITY | END_HEADERS, 3, &[0; 3]),
        frame(HEADERS, WITH_PRIORITY | END_HEADERS, 3, &[0; 4]),
        frame(PRIORITY, 0, 3, &[0; 4]),
        frame(RST_STREAM, 0, 1, &[0; 3]),
        frame(RST_STREAM, 0, 1, &[0; 5]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(PING, 0, 0, &[0; 7]),
        frame(PING, ACK, 0, &[0; 9]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
        frame(WINDOW_UPDATE, 0, 1, &[0; 5]),
        data(1, [0; 16_385], 0),
        frame(77, 0, 0, &[0; 16_385]),
    ];
    let flow = [settings(&[(WINDOW, 1 << 31)]), window(0, (1 << 31) - 1)];
    let compression = [
        frame(HEADERS, END_HEADERS, 3, &[0xff]),
        frame(HEADERS, END_HEADERS, 3, &[0xbe]),
        // Of a stream that is open, and of one that was closed.
        frame(HEADERS, END_HEADERS, 1, &[0x80]),
        [reset(1, 0), frame(HEADERS, END_HEADERS, 1, &[0x80])].concat(),
    ];
    let calm = [
        after(frame(CONTINUATION, 0, 3, b"")),
        after(frame(CONTINUATION, 0, 3, &[0; 16_384])),
    ];
    for (code, all) in [
        (ErrorCode::PROTOCOL_ERROR, &protocol[..]),
        (ErrorCode::FRAME_SIZE_ERROR, &size),
        (ErrorCode::FLOW_CONTROL_ERROR, &flow),
        (ErrorCode::COMPRESSION_ERROR, &compression),
        (ErrorCode::ENHANCE_YOUR_CALM, &calm),
    ] {
        for bytes in all {
            let mut tested = Tested::server();
            tested.gets(post(1));
            let key = tested.request();
            let start = &bytes[..bytes.len().min(30)];
            assert_eq!(tested.tries(bytes), Err(code), "{start:x?}");
            assert_eq!(tested.says(), format!("goaway 1 {code:?}"), "{start:x?}");
            let why = tested.connection.reset_reason(key);
            assert!(why.is_some(), "{start:x?}");
            // The connection stays ended, and says no more.
            assert_eq!(tested.tries(get(5)), Err(code));
            assert_eq!(tested.says(), "");
        }
    }
}

/// Frames that no endpoint may send while stream 1 is open and stream 3 is not.
#[test]
fn a_wrong_frame_of_an_endpoint_ends_the_connection() {
    for bytes in [
        headers(3, &[(":status", "200")], END),
        headers(2, &[(":status", "200")], END),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        data(3, "x", END),
        data(2, "x", END),
        reset(3, 0),
        reset(2, 0),
        window(3, 1),
        window(2, 1),
    ] {
        let (mut tested, keys) = Tested::client(1);
        assert_eq!(tested.tries(&bytes), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(tested.says(), "goaway 0 PROTOCOL_ERROR");
        let reset = tested.connection.reset_reason(keys[0]);
        assert_eq!(reset, Some(Reset::Connection));
    }
}

#[test]
fn a_wrong_frame_of_a_stream_ends_that_stream() {
    for (bytes, code) in [
        (frame(PRIORITY, 0, 1, &[0; 4]), "FRAME_SIZE_ERROR"),
        (frame(PRIORITY, 0, 1, &[0; 6]), "FRAME_SIZE_ERROR"),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), "PROTOCOL_ERROR"),
        (window(1, 0), "PROTOCOL_ERROR"),
        (window(1, (1 << 31) - 1), "FLOW_CONTROL_ERROR"),
        (headers(1, &[("x", "y")], 0), "PROTOCOL_ERROR"),
        (headers(1, &[(":path", "/")], END), "PROTOCOL_ERROR"),
        (headers(1, &[("connection", "x")], END), "PROTOCOL_ERROR"),
        (
            headers(1, &[("x", &"y".repeat(5000))], END),
            "PROTOCOL_ERROR",
        ),
        (
            frame(
                HEADERS,
                WITH_PRIORITY | END_HEADERS | END,
                1,
                &[0, 0, 0, 1, 0],
            ),
            "PROTOCOL_ERROR",
        ),
        (
            [data(1, "x", END), data(1, "x", 0)].concat(),
            "STREAM_CLOSED",
        ),
        (
            [data(1, "x", END), headers(1, &[], END)].concat(),
            "STREAM_CLOSED",
        ),
    ] {
        let mut tested = Tested::server();
        tested.gets(post(1));
        let key = tested.request();
        tested.gets(&bytes);
        assert_eq!(tested.says(), format!("reset 1 {code}"));
        let why = tested.connection.reset_reason(key);
        assert_eq!(why, Some(Reset::Malformed), "{code}");
        assert!(tested.events.contains(&Event::Changed(key)));
        // Frames that are still on their way do no harm.
        tested.gets([data(1, "late", 0), window(1, 1), headers(1, &[], END)].concat());
        tested.connection.release(key);
        tested.gets([data(1, "late", 0), reset(1, 0)].concat());
        tested.gets(get(3));
        tested.request();
        assert_eq!(tested.says(), "");
    }
}

#[test]
fn what_means_nothing_is_ignored() {
    let mut tested = Tested::server();
    tested.gets([get(1), post(3)].concat());
    let [first, second] = *tested.requests() else {
        panic!("two requests");
    };
    tested.connection.respond(first, 200, true, |_| {}).unwrap();
    tested.says();
    tested.gets(
        [
            // Of a stream that is closed.
            reset(1, 8),
            window(1, 1),
            window(1, 0),
            frame(PRIORITY, 0, 1, &[0; 5]),
            // Of one that is idle.
            frame(PRIORITY, 0, 9, &[0; 5]),
            frame(PRIORITY, 0, 8, &[0; 5]),
            // Kinds, flags and settings that are not known.
            frame(10, 0, 0, b"extension"),
            frame(255, 0xff, 1 << 30, &[0; 16_384]),
            frame(77, 0, 3, b""),
            settings(&[(9999, u32::MAX), (ENABLE_PUSH, 1), (ENABLE_PUSH, 0)]),
            data(3, "x", 0xf6),
            // A reserved bit.
            data(3 | 1 << 31, "x", 0),
            goaway(0, 2),
            frame(PING, ACK, 0, &[7; 8]),
        ]
        .concat(),
    );
    assert_eq!(tested.says(), "confirmed");
    assert_eq!(tested.reads(second), b"xx");
    assert_eq!(tested.connection.reset_reason(second), None);
    assert_eq!(tested.connection.body_end(second), Ok(false));
}

#[test]
fn a_ping_is_answered_with_its_bytes() {
    let mut tested = Tested::server();
    tested.gets(frame(PING, 0, 0, b"12345678"));
    let [pong] = &*tested.sends() else {
        panic!("one frame");
    };
    assert_eq!((pong.kind, pong.flags), (PING, ACK));
    assert_eq!(pong.payload, b"12345678");
    tested.connection.ping();
    assert_eq!(tested.says(), "ping");
}
