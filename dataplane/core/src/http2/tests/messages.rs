//! Whole messages: interim responses, bodies and their lengths, trailers.

use super::wire::*;
use super::*;

/// How a body of five bytes may end.
fn bodies(stream: u32) -> Vec<(Vec<u8>, &'static str)> {
    let trailers = headers(stream, &[("x-sum", "7")], END);
    vec![
        (data(stream, "hello", END), "hello"),
        (
            [data(stream, "hello", 0), data(stream, "", END)].concat(),
            "hello",
        ),
        (
            [
                data(stream, "hel", 0),
                data(stream, "", 0),
                data(stream, "lo", END),
            ]
            .concat(),
            "hello",
        ),
        (padded(stream, "hello", 255, END), "hello"),
        (
            [padded(stream, "hello", 0, 0), padded(stream, "", 3, END)].concat(),
            "hello",
        ),
        (
            [data(stream, "hello", 0), trailers.clone()].concat(),
            "hellox-sum=7",
        ),
        (
            [data(stream, "hello", 0), headers(stream, &[], END)].concat(),
            "hello",
        ),
        (data(stream, "", END), ""),
        (padded(stream, "", 9, END), ""),
        (trailers, "x-sum=7"),
    ]
}

/// The body of a stream, and its trailers.
fn body(tested: &mut Tested, key: Key) -> String {
    let connection = &mut tested.connection;
    assert!(!connection.is_read(key));
    let bytes = connection.take_body(key);
    let mut text = String::from_utf8(bytes).unwrap();
    assert_eq!(connection.body_end(key), Ok(true));
    assert_eq!(connection.is_read(key), !connection.has_trailers(key));
    if let Some(trailers) = connection.take_trailers(key) {
        text += super::text(&trailers).trim_start();
    }
    assert!(connection.is_read(key));
    text
}

#[test]
fn a_body_may_end_in_any_form() {
    for (bytes, expected) in bodies(1) {
        let mut tested = Tested::server();
        tested.gets([post(1), bytes.clone()].concat());
        let key = tested.request();
        if !expected.is_empty() {
            assert_eq!(body(&mut tested, key), expected);
        }
        assert!(tested.connection.is_read(key));
        let (mut tested, keys) = Tested::client(1);
        tested.gets([headers(1, &[(":status", "200")], 0), bytes].concat());
        if !expected.is_empty() {
            assert_eq!(body(&mut tested, keys[0]), expected);
        }
        assert!(tested.connection.is_read(keys[0]));
        assert_eq!(tested.says(), "");
    }
}

#[test]
fn a_body_has_the_length_that_its_head_states() {
    for (bytes, text) in bodies(1) {
        let has_five = text.starts_with("hello");
        for length in ["0", "4", "5", "6", "9223372036854775807"] {
            let fits = length == if has_five { "5" } else { "0" };
            let mut tested = Tested::server();
            let head = [&POST[..], &[("content-length", length)]].concat();
            tested.gets([headers(1, &head, 0), bytes.clone()].concat());
            let key = tested.request();
            let (mut client, keys) = Tested::client(1);
            let head = [(":status", "200"), ("content-length", length)];
            client.gets([headers(1, &head, 0), bytes.clone()].concat());
            for (mut tested, key) in [(tested, key), (client, keys[0])] {
                let expected = if fits {
                    Ok(true)
                } else {
                    Err(Reset::Malformed)
                };
                assert_eq!(tested.connection.body_end(key), expected, "{text} {length}");
                let said = if fits { "" } else { "reset 1 PROTOCOL_ERROR" };
                assert_eq!(tested.says(), said);
                let body = tested.connection.take_body(key);
                assert!(body.len() as u64 <= length.parse().unwrap());
            }
        }
    }
}

/// Not even the part that was announced goes on: an endpoint would take it for a whole message.
#[test]
fn nothing_counts_of_a_frame_that_exceeds_the_stated_length() {
    let head = [&POST[..], &[("content-length", "3")]].concat();
    for bytes in [data(1, "abcd", END), padded(1, "abcd", 2, END)] {
        for cut in 0..bytes.len() {
            let mut tested = Tested::server();
            tested.gets(headers(1, &head, 0));
            let key = tested.request();
            let (first, second) = bytes.split_at(cut);
            tested.gets(first);
            tested.gets(second);
            assert!(tested.connection.take_body(key).is_empty(), "cut at {cut}");
            assert_eq!(tested.connection.body_end(key), Err(Reset::Malformed));
            assert_eq!(tested.says(), "reset 1 PROTOCOL_ERROR");
        }
    }
}

/// An error can take the place of a response of which the client has got nothing.
#[test]
fn a_response_that_is_broken_before_its_head_is_taken_has_no_head() {
    let head = headers(1, &[(":status", "200"), ("content-length", "3")], 0);
    let interim = headers(1, &[(":status", "103")], 0);
    let cancelled = Reset::ByPeer(ErrorCode::CANCEL);
    for (behind, reset) in [
        (data(1, "ab", 0), None),
        (data(1, "abc", END), None),
        ([data(1, "ab", 0), reset(1, 8)].concat(), Some(cancelled)),
        (data(1, "abcd", 0), Some(Reset::Malformed)),
        (data(1, "abcd", END), Some(Reset::Malformed)),
        (padded(1, "abcd", 2, END), Some(Reset::Malformed)),
        (data(1, "ab", END), Some(Reset::Malformed)),
        (
            [data(1, "ab", 0), data(1, "cd", END)].concat(),
            Some(Reset::Malformed),
        ),
        (headers(1, &[("x", "y")], 0), Some(Reset::Malformed)),
    ] {
        for before in [&Vec::new(), &interim] {
            let (mut tested, keys) = Tested::client(1);
            let key = keys[0];
            tested.gets([&before[..], &head, &behind].concat());
            assert_eq!(tested.connection.reset_reason(key), reset);
            let mut heads = 0;
            let end = loop {
                match tested.connection.take_head(key) {
                    Ok(Some(_)) => heads += 1,
                    Ok(None) => break None,
                    Err(reset) => break Some(reset),
                }
            };
            let is_broken = reset == Some(Reset::Malformed);
            let there = 1 + usize::from(!before.is_empty());
            assert_eq!((heads, end), (if is_broken { 0 } else { there }, reset));
            // A head that was taken stays what it is.
            let (mut tested, keys) = Tested::client(1);
            tested.gets(&head);
            assert!(tested.connection.take_head(keys[0]).unwrap().is_some());
            tested.gets(&behind);
            assert_eq!(tested.connection.reset_reason(keys[0]), reset);
        }
    }
}

/// The responses to HEAD, and those with these statuses, have no body, whatever length they state.
#[test]
fn some_responses_have_no_body() {
    for (asks_for_head, status) in [(true, "200"), (true, "404"), (false, "204"), (false, "304")] {
        for (end, is_right) in [
            (data(1, "", END), true),
            (headers(1, &[("x", "y")], END), true),
            (data(1, "x", END), false),
            (padded(1, "x", 5, 0), false),
        ] {
            let (mut tested, _) = Tested::client(0);
            let block = block(&GET);
            let key = tested
                .connection
                .request_stream(&block, true, asks_for_head);
            let key = key.unwrap();
            tested.says();
            let head = [(":status", status), ("content-length", "100")];
            tested.gets([headers(1, &head, 0), end].concat());
            let taken = tested.connection.take_head(key);
            assert_eq!(taken.is_ok_and(|head| head.is_some()), is_right);
            let (expected, said) = if is_right {
                (Ok(true), "")
            } else {
                (Err(Reset::Malformed), "reset 1 PROTOCOL_ERROR")
            };
            assert_eq!(tested.connection.body_end(key), expected, "{status}");
            assert!(tested.connection.take_body(key).is_empty());
            assert_eq!(tested.says(), said);
        }
    }
}

#[test]
fn interim_responses_come_before_the_response() {
    let (mut tested, keys) = Tested::client(1);
    let key = keys[0];
    tested.gets(headers(1, &[(":status", "103"), ("link", "a")], 0));
    assert_eq!(tested.events, [Event::Changed(key)]);
    let head = tested.connection.take_head(key).unwrap();
    assert_eq!(text(&head.unwrap()), "103 link=a");
    assert!(tested.connection.take_head(key).unwrap().is_none());
    tested.gets(headers(1, &[(":status", "100")], 0));
    tested.gets(headers(1, &[(":status", "200")], 0));
    tested.gets(data(1, "x", END));
    for status in [100, 200] {
        let head = tested.connection.take_head(key).unwrap();
        assert_eq!(head.unwrap().status(), status);
    }
    assert_eq!(tested.connection.take_body(key), b"x");
    assert_eq!(tested.connection.body_end(key), Ok(true));
}

#[test]
fn heads_of_responses_that_nobody_takes_are_bounded() {
    let (mut tested, keys) = Tested::client(1);
    let interim = headers(1, &[(":status", "103")], 0);
    tested.gets(interim.repeat(8));
    assert_eq!(tested.connection.reset_reason(keys[0]), None);
    tested.gets(interim);
    assert_eq!(tested.says(), "reset 1 PROTOCOL_ERROR");
}

#[test]
fn an_endpoint_says_nothing_out_of_turn() {
    for frames in [
        data(1, "x", 0),
        data(1, "", END),
        [headers(1, &[(":status", "100")], 0), data(1, "", END)].concat(),
        // Trailers instead of a response.
        headers(1, &[("x", "y")], END),
        // A second response.
        headers(1, &[(":status", "200")], 0).repeat(2),
        [
            headers(1, &[(":status", "200")], 0),
            headers(1, &[(":status", "103")], 0),
        ]
        .concat(),
        [
            headers(1, &[(":status", "200")], 0),
            headers(1, &[("x", "y")], 0),
        ]
        .concat(),
    ] {
        let (mut tested, keys) = Tested::client(1);
        tested.gets(frames);
        assert_eq!(tested.says(), "reset 1 PROTOCOL_ERROR");
        let reset = tested.connection.reset_reason(keys[0]);
        assert_eq!(reset, Some(Reset::Malformed));
    }
}

/// RFC 9113, section 8.1: an endpoint that needs no more of the request says so behind its response.
#[test]
fn a_whole_response_is_read_though_its_stream_is_reset_behind_it() {
    let (mut tested, _) = Tested::client(0);
    let key = tested.asks(false);
    tested.says();
    let response = [
        headers(1, &[(":status", "413")], 0),
        data(1, "no", END),
        reset(1, 0),
    ];
    tested.gets(response.concat());
    let connection = &mut tested.connection;
    assert_eq!(
        connection.room(key),
        Err(Reset::ByPeer(ErrorCode::NO_ERROR))
    );
    assert_eq!(connection.take_head(key).unwrap().unwrap().status(), 413);
    assert_eq!(connection.take_body(key), b"no");
    assert_eq!(connection.body_end(key), Ok(true));
    connection.release(key);
    assert_eq!(tested.says(), "");
}

#[test]
fn what_comes_for_a_request_that_was_given_up_is_ignored() {
    let (mut tested, keys) = Tested::client(1);
    tested.connection.release(keys[0]);
    assert_eq!(tested.says(), "reset 1 CANCEL");
    tested.gets(headers(1, &[(":status", "100")], 0));
    tested.gets(headers(1, &[(":status", "200")], 0));
    tested.gets(
        [
            data(1, "x", 0),
            window(1, 7),
            headers(1, &[("x", "y")], END),
        ]
        .concat(),
    );
    tested.gets(reset(1, 0));
    assert_eq!(tested.says(), "");
    let key = tested.asks(true);
    tested.gets(headers(3, &[(":status", "200")], END));
    assert!(tested.connection.take_head(key).unwrap().is_some());
}
