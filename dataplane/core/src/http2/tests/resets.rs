//! Streams that end before they are answered cost a client nothing and Ballast much, so there is a limit to them.

use std::time::Duration;

use super::wire::*;
use super::*;

/// A way to end a stream, and the rest of what a client does with it.
type Way = fn(u32) -> Vec<u8>;

/// How many streams in a row a client may end in this way, up to 1000, each `apart` from the one before.
fn allowed(role: Role, config: Config, apart: Duration, way: Way) -> usize {
    let mut tested = Tested::begun(role, config);
    tested.gets(confirmation());
    tested.now = Moment(100_000);
    for (count, id) in (1..).step_by(2).take(1000).enumerate() {
        tested.now = tested.now.after(apart);
        if role == Role::Client {
            tested.asks(true);
        }
        if let Err(code) = tested.tries(way(id)) {
            assert_eq!(code, ErrorCode::ENHANCE_YOUR_CALM);
            assert!(tested.says().contains("ENHANCE_YOUR_CALM"));
            return count;
        }
        for key in tested.requests() {
            tested.connection.release(key);
        }
        tested.says();
    }
    1000
}

fn in_a_row(way: Way) -> usize {
    allowed(Role::Server, CONFIG, Duration::ZERO, way)
}

#[test]
fn a_client_may_give_up_two_hundred_requests_in_ten_seconds() {
    let way: Way = |id| [get(id), reset(id, 8)].concat();
    assert_eq!(in_a_row(way), 200);
    for (apart, expected) in [(49, 200), (50, 1000), (1000, 1000)] {
        let apart = Duration::from_millis(apart);
        assert_eq!(
            allowed(Role::Server, CONFIG, apart, way),
            expected,
            "{apart:?}"
        );
    }
}

#[test]
fn requests_whose_answer_has_begun_count_a_fifth_and_answered_ones_nothing() {
    // How far the answer comes before the client resets the stream, and how many such requests in a row are allowed.
    let cases: [(&str, u16, bool, usize); 3] = [
        ("an interim response is no answer", 103, false, 200),
        ("begun", 200, false, 1000),
        ("ended", 200, true, 2000),
    ];
    for (name, status, ends, expected) in cases {
        let mut tested = Tested::server();
        tested.gets(confirmation());
        tested.now = Moment(100_000);
        let allowed = (1..).step_by(2).take(2000).take_while(|id| {
            tested.gets(get(*id));
            let key = tested.request();
            tested
                .connection
                .respond(key, status, ends, |_| {})
                .unwrap();
            let is_allowed = tested.tries(reset(*id, 8)).is_ok();
            tested.connection.release(key);
            is_allowed
        });
        assert_eq!(allowed.count(), expected, "{name}");
    }
}

/// The windows of all streams change with it, so that costs more than its bytes.
#[test]
fn a_peer_may_change_the_first_window_two_hundred_times_in_ten_seconds() {
    for role in [Role::Server, Role::Client] {
        for (apart, expected) in [(0, 200), (49, 200), (50, 500)] {
            let mut tested = Tested::begun(role, CONFIG);
            tested.now = Moment(100_000);
            match role {
                Role::Server => tested.gets(get(1)),
                Role::Client => _ = tested.asks(true),
            }
            let allowed = (0..500).take_while(|count| {
                tested.now = tested.now.after(Duration::from_millis(apart));
                let window = 1_000 + count % 2;
                tested.tries(settings(&[(WINDOW, window)])).is_ok()
            });
            assert_eq!(allowed.count(), expected, "{role:?}, {apart} ms apart");
        }
    }
}

/// A client need not reset its streams itself: a wrong frame has Ballast do it.
#[test]
fn streams_that_a_client_has_reset_count_as_those_that_it_resets() {
    let ways: [(&str, Way); 12] = [
        ("a window of nothing", |id| {
            [get(id), window(id, 0)].concat()
        }),
        ("a window beyond all", |id| {
            [get(id), window(id, (1 << 31) - 1)].concat()
        }),
        ("data behind the end", |id| {
            [get(id), data(id, "x", 0)].concat()
        }),
        ("a head behind the end", |id| [get(id), get(id)].concat()),
        ("trailers that do not end", |id| {
            [post(id), headers(id, &[("a", "b")], 0)].concat()
        }),
        ("malformed trailers", |id| {
            [post(id), headers(id, &[("A", "b")], END)].concat()
        }),
        ("a priority of a wrong size", |id| {
            [get(id), frame(PRIORITY, 0, id, b"")].concat()
        }),
        ("a stream that depends on itself", |id| {
            let mut payload = id.to_be_bytes().to_vec();
            payload.push(0);
            [get(id), frame(PRIORITY, 0, id, &payload)].concat()
        }),
        ("more than the window", |id| {
            let full = data(id, [0; 16_384], 0);
            [post(id), full.clone(), full].concat()
        }),
        ("more than the length", |id| {
            let head = [&POST[..], &[("content-length", "1")]].concat();
            [headers(id, &head, 0), data(id, "ab", 0)].concat()
        }),
        ("less than the length", |id| {
            let head = [&POST[..], &[("content-length", "1")]].concat();
            [headers(id, &head, 0), data(id, "", END)].concat()
        }),
        ("a malformed head", |id| headers(id, &GET[..2], END)),
    ];
    for (name, way) in ways {
        assert_eq!(in_a_row(way), 200, "{name}");
    }
}

#[test]
fn refused_streams_count_once_the_client_knows_how_many_it_may_have() {
    let config = Config {
        max_streams: 0,
        ..CONFIG
    };
    assert_eq!(allowed(Role::Server, config, Duration::ZERO, get), 200);
    let mut tested = Tested::begun(Role::Server, config);
    for id in (1..2001).step_by(2) {
        tested.gets(get(id));
    }
    tested.gets(confirmation());
    for id in (2001..2401).step_by(2) {
        tested.gets(get(id));
    }
    assert_eq!(tested.tries(get(2401)), Err(ErrorCode::ENHANCE_YOUR_CALM));
}

/// A client needs no settings of ours to avoid malformed requests, so they count also while it has not confirmed the settings.
#[test]
fn malformed_requests_count_before_the_settings_are_confirmed() {
    let mut tested = Tested::begun(Role::Server, CONFIG);
    for id in (1..401).step_by(2) {
        tested.gets(headers(id, &[("x", "y")], END));
    }
    let one_more = tested.tries(headers(401, &[("x", "y")], END));
    assert_eq!(one_more, Err(ErrorCode::ENHANCE_YOUR_CALM));
}

#[test]
fn an_endpoint_may_reset_as_many_streams_as_it_gets() {
    let way: Way = |id| reset(id, 7);
    assert_eq!(allowed(Role::Client, CONFIG, Duration::ZERO, way), 1000);
}
