//! The life of streams: their numbers, how many there may be, and frames of closed ones.

use super::wire::*;
use super::*;

#[test]
fn numbers_of_streams_only_grow() {
    let mut tested = Tested::server();
    tested.gets([get(5), get(9)].concat());
    tested.requests();
    // Numbers that were left out.
    assert_eq!(tested.tries(get(7)), Err(ErrorCode::PROTOCOL_ERROR));
    assert_eq!(tested.says(), "goaway 9 PROTOCOL_ERROR");
}

#[test]
fn a_stream_that_has_ended_is_not_opened_again() {
    let mut tested = Tested::server();
    tested.gets(get(1));
    let key = tested.request();
    tested.connection.respond(key, 200, true, |_| {}).unwrap();
    tested.connection.release(key);
    tested.says();
    tested.gets(data(1, "x", 0));
    assert_eq!(tested.says(), "reset 1 STREAM_CLOSED");
    assert_eq!(tested.tries(get(1)), Err(ErrorCode::STREAM_CLOSED));
    let mut tested = Tested::server();
    tested.gets([post(1), reset(1, 8)].concat());
    assert_eq!(tested.tries(get(1)), Err(ErrorCode::STREAM_CLOSED));
}

/// Until the client has read of the reset, its frames of that stream are on their way, however many other streams end meanwhile.
#[test]
fn frames_of_a_stream_that_was_reset_here_are_expected_for_long() {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    tested.connection.respond(key, 200, true, |_| {}).unwrap();
    tested.connection.release(key);
    assert_eq!(tested.says(), "head 1 end, reset 1 NO_ERROR");
    for id in (3..1003).step_by(2) {
        tested.gets(get(id));
        let key = tested.request();
        tested.connection.respond(key, 200, true, |_| {}).unwrap();
        tested.connection.release(key);
    }
    tested.says();
    tested.gets([data(1, "late", 0), headers(1, &[("x", "y")], END)].concat());
    assert_eq!(tested.says(), "");
}

#[test]
fn more_streams_than_allowed_are_refused() {
    let mut tested = Tested::server();
    for id in [1, 3, 5, 7] {
        tested.gets(post(id));
    }
    let keys = tested.requests();
    assert_eq!(keys.len(), 4);
    tested.gets([post(9), data(9, "body", 0), headers(9, &[], END)].concat());
    assert_eq!(tested.requests(), []);
    assert_eq!(tested.says(), "reset 9 REFUSED_STREAM");
    assert_eq!(tested.connection.streams(), 4);
    // A stream that the client has reset makes room, though its task may still hold it.
    tested.gets([reset(1, 8), get(11)].concat());
    tested.request();
    assert_eq!(tested.connection.streams(), 5);
    // So does one whose response is whole.
    tested
        .connection
        .respond(keys[1], 200, true, |_| {})
        .unwrap();
    tested.gets(get(13));
    assert_eq!(tested.says(), "head 3 end, reset 13 REFUSED_STREAM");
    tested.gets([data(3, "", END), get(15)].concat());
    tested.request();
    assert_eq!(tested.says(), "");
}

/// What nobody has released takes memory, so there is a limit to it, too.
#[test]
fn streams_that_wait_for_their_release_are_no_more_than_twice_as_many() {
    let mut tested = Tested::server();
    for id in (1..).step_by(2).take(8) {
        tested.gets([get(id), reset(id, 8)].concat());
    }
    let keys = tested.requests();
    assert_eq!(keys.len(), 8);
    tested.gets(get(17));
    assert_eq!(tested.says(), "reset 17 REFUSED_STREAM");
    tested.connection.release(keys[0]);
    tested.gets(get(19));
    tested.request();
    assert_eq!(tested.says(), "");
}

#[test]
fn a_place_is_used_again_by_another_stream() {
    let mut tested = Tested::server();
    tested.gets([get(1), get(3)].concat());
    let [first, second] = *tested.requests() else {
        panic!("two requests");
    };
    assert_eq!((first.index(), second.index()), (0, 1));
    tested.connection.release(first);
    tested.connection.release(first);
    assert_eq!(
        tested.connection.reset_reason(first),
        Some(Reset::Connection)
    );
    assert!(tested.connection.is_read(first));
    assert_eq!(tested.connection.body_end(first), Err(Reset::Connection));
    assert_eq!(tested.connection.room(first), Err(Reset::Connection));
    assert!(tested.connection.take_head(first).is_err());
    assert!(tested.connection.take_body(first).is_empty());
    assert!(tested.connection.take_trailers(first).is_none());
    assert!(!tested.connection.has_trailers(first));
    tested.connection.release_body(first, 5);
    tested.connection.widen(first, 5);
    assert_eq!(tested.says(), "reset 1 CANCEL");
    tested.gets(get(5));
    assert_eq!(tested.request(), first);
    assert_eq!(tested.connection.reset_reason(first), None);
}

#[test]
fn a_stream_is_released_with_a_fitting_reason() {
    for (sends, receives, said) in [
        ("nothing", "", "reset 1 CANCEL"),
        ("nothing", "end", "reset 1 CANCEL"),
        ("head", "", "head 1, reset 1 CANCEL"),
        ("all", "", "head 1 end, reset 1 NO_ERROR"),
        ("all", "end", "head 1 end"),
        ("all", "reset", "head 1 end"),
        ("nothing", "reset", ""),
    ] {
        let mut tested = Tested::server();
        tested.gets(post(1));
        let key = tested.request();
        if sends != "nothing" {
            let ends = sends == "all";
            tested.connection.respond(key, 200, ends, |_| {}).unwrap();
        }
        match receives {
            "end" => tested.gets(data(1, "", END)),
            "reset" => tested.gets(reset(1, 8)),
            _ => {}
        }
        tested.connection.release(key);
        assert_eq!(tested.says(), said, "{sends}, {receives}");
        assert_eq!(tested.connection.streams(), 0);
    }
    for (asks_all, answers, said) in [
        (true, false, "reset 1 CANCEL"),
        (false, true, "reset 1 CANCEL"),
        (true, true, ""),
    ] {
        let (mut tested, _) = Tested::client(0);
        let key = tested.asks(asks_all);
        if answers {
            tested.gets(headers(1, &[(":status", "200")], END));
        }
        tested.says();
        tested.connection.release(key);
        assert_eq!(tested.says(), said);
    }
}

#[test]
fn each_side_says_what_its_stream_allows() {
    let mut tested = Tested::server();
    tested.gets(get(1));
    let key = tested.request();
    let connection = &mut tested.connection;
    // No body before the head, no head twice, nothing behind the end.
    assert!(connection.send_body(key, b"", true).is_err());
    assert!(connection.send_trailers(key, |_| {}).is_err());
    connection.respond(key, 103, false, |_| {}).unwrap();
    connection.respond(key, 100, false, |_| {}).unwrap();
    connection.respond(key, 200, false, |_| {}).unwrap();
    assert!(connection.respond(key, 200, false, |_| {}).is_err());
    connection.send_body(key, b"", false).unwrap();
    connection.send_body(key, b"x", false).unwrap();
    connection.send_trailers(key, |_| {}).unwrap();
    assert!(connection.send_trailers(key, |_| {}).is_err());
    assert!(connection.send_body(key, b"", true).is_err());
    connection.reset(key, ErrorCode::CANCEL);
    assert_eq!(
        tested.says(),
        "head 1, head 1, head 1, data 1 1, head 1 end",
        "it has ended before it is reset"
    );
}

#[test]
fn what_was_reset_says_why() {
    for (code, of_server, of_client) in [
        (
            8,
            Reset::ByPeer(ErrorCode::CANCEL),
            Reset::ByPeer(ErrorCode::CANCEL),
        ),
        (7, Reset::ByPeer(ErrorCode::REFUSED_STREAM), Reset::Refused),
        (
            999,
            Reset::ByPeer(ErrorCode(999)),
            Reset::ByPeer(ErrorCode(999)),
        ),
    ] {
        let mut server = Tested::server();
        server.gets([post(1), data(1, "ab", 0), reset(1, code)].concat());
        let key = server.request();
        let (mut client, keys) = Tested::client(1);
        client.gets(headers(1, &[(":status", "200")], 0));
        client.gets([data(1, "ab", 0), reset(1, code)].concat());
        for (tested, key, reset) in [(server, key, of_server), (client, keys[0], of_client)] {
            let mut connection = tested.connection;
            assert_eq!(connection.reset_reason(key), Some(reset));
            // What came before can be read.
            assert!(connection.take_head(key).unwrap().is_some());
            assert_eq!(connection.take_head(key).err(), Some(reset));
            assert_eq!(connection.take_body(key), b"ab");
            assert_eq!(connection.body_end(key), Err(reset));
            assert_eq!(connection.room(key), Err(reset));
            assert_eq!(connection.send_body(key, b"", true), Err(reset));
        }
    }
}
