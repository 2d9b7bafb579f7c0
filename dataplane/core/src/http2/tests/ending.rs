//! The end of a connection: in order, by an error, and by the peer.

use super::wire::*;
use super::*;

/// A server that has told its client of the end.
fn shut_down() -> (Tested, Key) {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    tested.connection.shut_down();
    assert_eq!(tested.says(), "goaway 2147483647 NO_ERROR, ping");
    tested.connection.shut_down();
    assert_eq!(tested.says(), "");
    (tested, key)
}

/// The client's answer to the last PING.
fn pong() -> Vec<u8> {
    frame(PING, ACK, 0, b"goodbye.")
}

#[test]
fn requests_are_served_until_the_client_has_heard_of_the_end() {
    let (mut tested, first) = shut_down();
    assert!(!tested.connection.is_shut_down());
    tested.gets([get(3), frame(PING, ACK, 0, b"anything")].concat());
    tested.request();
    assert!(!tested.connection.is_shut_down());
    tested.gets([get(5), pong()].concat());
    tested.request();
    assert!(tested.connection.is_shut_down());
    assert_eq!(tested.says(), "goaway 5 NO_ERROR");
    tested.gets(pong());
    tested.connection.shut_down();
    assert_eq!(tested.says(), "");
    // Requests that have begun go on.
    tested.gets(data(1, "x", END));
    assert_eq!(tested.reads(first), b"x");
    tested.connection.respond(first, 200, true, |_| {}).unwrap();
    tested.connection.release(first);
    assert_eq!(tested.says(), "head 1 end");
    assert_eq!(tested.connection.streams(), 2);
}

/// RFC 9113, section 6.8: they change the state of the connection, and nothing else.
#[test]
fn all_frames_of_streams_behind_the_last_one_are_ignored() {
    let (mut tested, key) = shut_down();
    tested.gets(pong());
    assert_eq!(tested.says(), "goaway 1 NO_ERROR");
    let mut head = block(&POST);
    head.extend(b"\x40\x01a\x01b");
    let late = [
        frame(HEADERS, END_HEADERS, 3, &head),
        data(3, "body", 0),
        padded(3, "body", 3, 0),
        window(3, 100),
        frame(PRIORITY, 0, 3, &[0; 5]),
        headers(3, &[("x", "y")], END),
        get(5),
        reset(5, 8),
        frame(HEADERS, 0, 7, &block(&POST)),
        frame(CONTINUATION, END_HEADERS, 7, b""),
        data(7, [0; 16_384], END),
    ];
    tested.gets(late.concat());
    assert_eq!(tested.requests(), []);
    assert_eq!(tested.says(), "");
    assert_eq!(tested.connection.reset_reason(key), None);
    // The table has followed.
    tested.gets(frame(HEADERS, END_HEADERS | END, 1, &[0xbe]));
    let trailers = tested.connection.take_trailers(key).unwrap();
    assert_eq!(text(&trailers), "  a=b");
    // A stream that was never opened is an error as before, and the last stream is not a later one.
    assert_eq!(
        tested.tries(data(9, "x", 0)),
        Err(ErrorCode::PROTOCOL_ERROR)
    );
    assert_eq!(tested.says(), "goaway 1 PROTOCOL_ERROR");
}

#[test]
fn a_client_cannot_confirm_an_end_that_it_was_not_told_of() {
    let mut tested = Tested::server();
    tested.gets([pong(), get(1)].concat());
    tested.request();
    assert!(!tested.connection.is_shut_down());
    assert_eq!(tested.says(), "");
}

#[test]
fn an_error_fails_all_streams_that_have_not_ended() {
    let mut tested = Tested::server();
    tested.gets([post(1), get(3), post(5), data(5, "x", END)].concat());
    let [first, second, third] = *tested.requests() else {
        panic!("three requests");
    };
    tested
        .connection
        .respond(second, 200, true, |_| {})
        .unwrap();
    tested.says();
    tested.events.clear();
    let Tested {
        connection, events, ..
    } = &mut tested;
    connection.fail(ErrorCode::ENHANCE_YOUR_CALM, events);
    connection.fail(ErrorCode::PROTOCOL_ERROR, events);
    assert_eq!(*events, [Event::Changed(first), Event::Changed(third)]);
    assert!(connection.is_shut_down());
    assert_eq!(connection.reset_reason(first), Some(Reset::Connection));
    assert_eq!(connection.reset_reason(second), None);
    // The whole request is here, but there will be no answer.
    assert_eq!(connection.take_body(third), b"x");
    assert_eq!(connection.body_end(third), Ok(true));
    assert_eq!(
        connection.respond(third, 200, true, |_| {}),
        Err(Reset::Connection)
    );
    for key in [first, second, third] {
        connection.release(key);
    }
    connection.shut_down();
    assert_eq!(
        tested.tries(get(7)),
        Err(ErrorCode::ENHANCE_YOUR_CALM),
        "nothing is received any more"
    );
    assert_eq!(tested.says(), "goaway 5 ENHANCE_YOUR_CALM");
}

#[test]
fn the_end_of_the_connection_fails_all_streams_that_have_not_ended() {
    let (mut tested, keys) = Tested::client(2);
    tested.gets(headers(1, &[(":status", "200")], 0));
    tested.gets(data(1, "all", END));
    tested.gets(headers(3, &[(":status", "200")], 0));
    tested.gets(data(3, "some", 0));
    tested.events.clear();
    tested.connection.end(&mut tested.events);
    assert_eq!(tested.events, [Event::Changed(keys[1])]);
    assert_eq!(tested.connection.body_end(keys[0]), Ok(true));
    assert_eq!(tested.connection.take_body(keys[0]), b"all");
    assert_eq!(tested.connection.take_body(keys[1]), b"some");
    assert_eq!(tested.connection.body_end(keys[1]), Err(Reset::Connection));
    assert!(!tested.connection.takes_requests());
    assert_eq!(tested.connection.request_stream(b"", true, false), None);
    assert_eq!(tested.says(), "");
}

#[test]
fn an_endpoint_that_goes_away_refuses_what_it_has_not_seen() {
    let (mut tested, keys) = Tested::client(4);
    assert!(tested.connection.takes_requests());
    tested.gets(goaway((1 << 31) - 1, 0));
    assert!(!tested.connection.takes_requests());
    assert!(!tested.connection.has_room());
    assert_eq!(tested.connection.request_stream(b"", true, false), None);
    assert_eq!(tested.events, []);
    tested.gets(goaway(3, 0));
    let refused = [Event::Changed(keys[2]), Event::Changed(keys[3])];
    assert_eq!(tested.events, refused);
    for (key, reset) in keys
        .iter()
        .zip([None, None, Some(Reset::Refused), Some(Reset::Refused)])
    {
        assert_eq!(tested.connection.reset_reason(*key), reset);
    }
    tested.gets(headers(1, &[(":status", "200")], END));
    assert!(tested.connection.take_head(keys[0]).unwrap().is_some());
    tested.gets(goaway(0, 11));
    assert_eq!(
        tested.connection.reset_reason(keys[1]),
        Some(Reset::Refused)
    );
    for key in keys {
        tested.connection.release(key);
    }
    assert_eq!(tested.says(), "");
}

#[test]
fn a_connection_ends_with_the_last_number_of_a_stream() {
    let (mut tested, _) = Tested::client(0);
    tested.connection.next_id = (1 << 31) - 3;
    let key = tested.asks(true);
    assert_eq!(tested.says(), "head 2147483645 end");
    assert!(!tested.connection.takes_requests());
    assert_eq!(tested.connection.request_stream(b"", true, false), None);
    tested.gets(headers((1 << 31) - 3, &[(":status", "200")], END));
    assert!(tested.connection.take_head(key).unwrap().is_some());
}

/// Their last frames were on their way before the client knew.
#[test]
fn frames_of_as_many_streams_as_there_may_be_are_ignored_after_a_reset() {
    let config = Config {
        max_streams: 1000,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Server, config);
    tested.gets(confirmation());
    let streams = (1..2001).step_by(2);
    for id in streams.clone() {
        tested.gets(post(id));
        let key = tested.request();
        tested.connection.release(key);
    }
    for id in streams {
        tested.gets(data(id, "body", 0));
        tested.gets(headers(id, &[("x", "y")], END));
    }
}
