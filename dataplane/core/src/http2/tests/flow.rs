//! Flow control in both directions.

use super::wire::*;
use super::*;
use crate::http2::frame::MAX_WINDOW;

/// A server with one request whose body is still to come.
fn server() -> (Tested, Key) {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    (tested, key)
}

#[test]
fn a_window_opens_as_its_bytes_go_on() {
    let (mut tested, key) = server();
    tested.gets(data(1, [1; 16_384], 0));
    assert_eq!(tested.connection.take_body(key).len(), 16_384);
    // Nothing has gone on, then less than half of the window.
    assert_eq!(tested.says(), "");
    tested.connection.release_body(key, 9_999);
    assert_eq!(tested.says(), "");
    tested.connection.release_body(key, 1);
    assert_eq!(tested.says(), "window 1 +10000");
    // All has gone on, and less than a whole frame would fit.
    tested.connection.release_body(key, 6_384);
    assert_eq!(tested.says(), "window 1 +6384");
}

#[test]
fn a_window_never_stays_below_a_whole_frame() {
    let (mut tested, key) = server();
    tested.gets(data(1, [1; 3_616], 0));
    assert_eq!(tested.reads(key).len(), 3_616);
    assert_eq!(tested.says(), "", "there is room for a whole frame");
    tested.gets(data(1, "x", 0));
    assert_eq!(tested.reads(key), b"x");
    assert_eq!(tested.says(), "window 1 +3617");
}

#[test]
fn more_than_the_window_ends_the_stream() {
    let (mut tested, key) = server();
    tested.gets(data(1, [1; 16_384], 0));
    tested.gets(data(1, [1; 3_616], 0));
    assert_eq!(tested.says(), "");
    tested.gets(data(1, "", 0));
    tested.gets(data(1, "x", END));
    assert_eq!(tested.says(), "reset 1 FLOW_CONTROL_ERROR");
    // What came before is there.
    assert_eq!(tested.connection.take_body(key).len(), 20_000);
    assert_eq!(tested.connection.body_end(key), Err(Reset::Malformed));
    tested.connection.release_body(key, 20_000);
    assert_eq!(tested.says(), "");
}

#[test]
fn padding_counts_and_is_given_back_at_once() {
    let (mut tested, key) = server();
    for _ in 0..38 {
        tested.gets(padded(1, "ab", 255, 0));
    }
    assert_eq!(
        tested.says(),
        "",
        "38 * 256 is less than half of the window"
    );
    for _ in 0..2 {
        tested.gets(padded(1, "ab", 255, 0));
    }
    assert_eq!(tested.says(), "window 1 +10240");
    assert_eq!(tested.reads(key), b"ab".repeat(40));
    tested.gets(padded(1, "", 0, END));
    assert_eq!(tested.connection.body_end(key), Ok(true));
}

/// The window opens only for bytes of a frame that have arrived, so that the peer can never have more on its way than the target.
#[test]
fn a_frame_that_has_not_come_whole_opens_no_window() {
    let (mut tested, key) = server();
    let bytes = data(1, [1; 16_384], 0);
    let (start, rest) = bytes.split_at(10);
    tested.gets(start);
    assert_eq!(tested.reads(key).len(), 1);
    assert_eq!(tested.says(), "");
    tested.gets(&rest[..5_000]);
    assert_eq!(tested.reads(key).len(), 5_000);
    assert_eq!(tested.says(), "");
    tested.gets(&rest[5_000..]);
    assert_eq!(tested.says(), "");
    assert_eq!(tested.reads(key).len(), 11_383);
    assert_eq!(tested.says(), "window 1 +16384");
    // The same with padding.
    let bytes = padded(1, [1; 16_000], 200, 0);
    for piece in bytes.chunks(1_000) {
        tested.gets(piece);
        tested.reads(key);
    }
    assert_eq!(tested.says(), "window 1 +10990, window 1 +5211");
}

/// A peer is never told of a smaller window, so it is not made smaller.
#[test]
fn a_window_below_a_whole_frame_is_kept_to() {
    let config = Config {
        window: 1000,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Server, config);
    tested.gets(post(1));
    let key = tested.request();
    for _ in 0..3 {
        tested.gets(data(1, [1; 16_384], 0));
        tested.reads(key);
    }
    // The settings are not confirmed: the peer may still send 16383 of the first 65535 bytes.
    tested.gets(data(1, [1; 10_000], 0));
    tested.reads(key);
    tested.gets(data(1, [1; 6_383], 0));
    assert_eq!(tested.connection.reset_reason(key), None);
    tested.reads(key);
    tested.gets(confirmation());
    let granted: u32 = tested
        .sends()
        .iter()
        .map(|frame| number(&frame.payload))
        .sum();
    assert_eq!(granted, 65_535, "all of it was given back");
    tested.gets(data(1, [1; 1000], 0));
    assert_eq!(tested.connection.reset_reason(key), None);
    tested.gets(data(1, "x", 0));
    assert_eq!(tested.connection.reset_reason(key), Some(Reset::Malformed));
}

#[test]
fn a_window_is_widened_and_not_narrowed() {
    let (mut tested, key) = server();
    tested.connection.widen(key, 10);
    assert_eq!(tested.says(), "");
    tested.connection.widen(key, 50_000);
    assert_eq!(tested.says(), "window 1 +30000");
    tested.gets(data(1, [1; 16_384], 0));
    tested.gets(data(1, [1; 16_384], 0));
    tested.gets(data(1, [1; 16_384], END));
    assert_eq!(tested.reads(key).len(), 3 * 16_384);
    assert_eq!(tested.says(), "", "nothing more will come");
}

#[test]
fn the_window_of_the_connection_is_always_open() {
    let config = Config {
        window: 1 << 30,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Server, config);
    tested.gets([confirmation(), post(1)].concat());
    let key = tested.request();
    let bytes = data(1, [0; 16_384], 0);
    let mut given = 0;
    for _ in 0..=(1 << 30) / 16_384 {
        tested.gets(&bytes);
        tested.reads(key);
        for frame in tested.sends() {
            if frame.stream == 0 {
                assert_eq!(frame.kind, WINDOW_UPDATE);
                given += number(&frame.payload);
            }
        }
    }
    assert_eq!(given, (1 << 30) + 16_384);
}

/// Bytes that nobody takes any more, of streams that are closed.
#[test]
fn data_of_closed_streams_is_thrown_away() {
    let (mut tested, key) = server();
    tested.connection.reset(key, ErrorCode::CANCEL);
    assert_eq!(tested.says(), "reset 1 CANCEL");
    for _ in 0..5 {
        tested.gets(data(1, [0; 16_384], 0));
    }
    tested.gets(padded(1, "x", 3, END));
    assert!(tested.connection.take_body(key).is_empty());
    assert_eq!(tested.says(), "");
}

#[test]
fn no_more_is_sent_than_the_peer_accepts() {
    let (mut tested, key) = server();
    tested.gets(settings(&[(WINDOW, 10)]));
    tested.connection.respond(key, 200, false, |_| {}).unwrap();
    let connection = &mut tested.connection;
    assert_eq!(connection.room(key), Ok(10));
    connection.send_body(key, b"12345678", false).unwrap();
    assert_eq!(connection.room(key), Ok(2));
    tested.gets(settings(&[(WINDOW, 5)]));
    assert_eq!(tested.connection.room(key), Ok(0), "it is below zero");
    tested.gets(window(1, 3));
    assert_eq!(tested.connection.room(key), Ok(0));
    tested.gets(window(1, 3));
    assert_eq!(tested.connection.room(key), Ok(3));
    tested.gets(settings(&[(WINDOW, 0)]));
    assert_eq!(tested.connection.room(key), Ok(0));
    // The end needs no window.
    tested.connection.send_body(key, b"", true).unwrap();
    assert_eq!(
        tested.says(),
        "confirmed, head 1, data 1 8, confirmed, confirmed, data 1 0 end"
    );
}

#[test]
fn all_streams_share_the_window_of_the_connection() {
    let mut tested = Tested::server();
    tested.gets(settings(&[(WINDOW, 100_000)]));
    tested.gets([get(1), get(3)].concat());
    let [first, second] = *tested.requests() else {
        panic!("two requests");
    };
    for key in [first, second] {
        tested.connection.respond(key, 200, false, |_| {}).unwrap();
        assert_eq!(tested.connection.room(key), Ok(65_535));
    }
    let body = [0; 65_535];
    tested.connection.send_body(first, &body, false).unwrap();
    assert_eq!(tested.connection.room(second), Ok(0));
    assert_eq!(
        tested.says(),
        "confirmed, head 1, head 3, data 1 16384, data 1 16384, data 1 16384, data 1 16383"
    );
    tested.gets(window(0, 7));
    assert_eq!(tested.events, [Event::AllChanged]);
    tested.events.clear();
    tested.gets(window(0, 7));
    assert_eq!(tested.events, [], "nobody waits for it");
    assert_eq!(tested.connection.room(second), Ok(14));
    tested.gets(window(3, 7));
    assert_eq!(tested.events, [Event::Changed(second)]);
    // The largest one, and one byte more.
    tested.gets(window(0, u32::try_from(MAX_WINDOW).unwrap() - 14));
    assert_eq!(
        tested.tries(window(0, 1)),
        Err(ErrorCode::FLOW_CONTROL_ERROR)
    );
}

#[test]
fn frames_are_as_long_as_the_peer_accepts() {
    for (limit, longest) in [(16_384, 16_384), (30_000, 30_000), ((1 << 24) - 1, 65_536)] {
        let (mut tested, key) = server();
        tested.gets(settings(&[(FRAME_SIZE, limit), (WINDOW, 1 << 20)]));
        tested.gets(window(0, 1 << 20));
        tested.says();
        let large = "y".repeat(100_000);
        let respond = tested.connection.respond(key, 200, false, |out| {
            crate::forward::Sink::field(&mut Fields::new(out), "x", large.as_bytes());
        });
        respond.unwrap();
        let head = tested.sends();
        let sizes: Vec<_> = head.iter().map(|frame| frame.payload.len()).collect();
        let (last, whole) = sizes.split_last().unwrap();
        assert!(whole.iter().all(|size| *size == longest), "{sizes:?}");
        assert!((1..=longest).contains(last), "{sizes:?}");
        assert_eq!(head[0].kind, HEADERS);
        assert!(head[1..].iter().all(|frame| frame.kind == CONTINUATION));
        let ends: Vec<_> = head.iter().map(|frame| frame.flags).collect();
        let (last, others) = ends.split_last().unwrap();
        assert_eq!(*last, END_HEADERS);
        assert!(others.iter().all(|flags| *flags == 0), "{ends:?}");
        let body = vec![0; longest * 2 + 1];
        tested.connection.send_body(key, &body, true).unwrap();
        assert_eq!(
            tested.says(),
            format!("data 1 {longest}, data 1 {longest}, data 1 1 end")
        );
    }
}
