//! Settings: ours before and after the peer has confirmed them, and the peer's.

use super::wire::*;
use super::*;

/// The settings that a new connection states.
fn stated(connection: &Connection) -> Vec<(u16, u32)> {
    let frames = frames(connection.output());
    let [first, second] = frames.as_slice() else {
        panic!("{frames:?}");
    };
    assert_eq!((first.kind, first.flags, first.stream), (SETTINGS, 0, 0));
    // Right behind them, so who uses this window has read the settings.
    assert_eq!((second.kind, second.stream), (WINDOW_UPDATE, 0));
    assert_eq!(number(&second.payload), (1 << 31) - 1 - 65_535);
    let settings = first.payload.chunks(6);
    settings
        .map(|setting| {
            let name = u16::from_be_bytes(*setting.first_chunk().unwrap());
            (name, number(&setting[2..]))
        })
        .collect()
}

#[test]
fn each_side_states_its_limits_first() {
    assert_eq!(
        stated(&Connection::server(CONFIG)),
        [(MAX_STREAMS, 4), (WINDOW, 20_000), (6, 4096)]
    );
    let client = Connection::client(CONFIG);
    assert!(client.output().starts_with(PREFACE));
    assert_eq!(
        stated(&client),
        [(ENABLE_PUSH, 0), (WINDOW, 20_000), (6, 4096)]
    );
}

#[test]
fn a_peer_may_use_the_default_window_until_it_has_confirmed_ours() {
    let mut tested = Tested::begun(Role::Server, CONFIG);
    tested.gets([post(1), post(3)].concat());
    let [first, second] = *tested.requests() else {
        panic!("two requests");
    };
    tested.gets(data(1, [0; 16_384], 0));
    tested.gets(data(1, [0; 16_384], 0));
    tested.gets(data(3, [0; 100], 0));
    assert_eq!(tested.reads(second).len(), 100);
    assert_eq!(tested.says(), "", "the window is far larger than ours");
    tested.gets(confirmation());
    assert_eq!(tested.connection.reset_reason(first), None);
    // The first stream has 12768 bytes less than none, the second one 100 less than all.
    tested.gets(data(3, [0; 16_384], 0));
    assert_eq!(tested.connection.reset_reason(second), None);
    assert_eq!(tested.reads(first).len(), 32_768);
    assert_eq!(tested.says(), "window 1 +32768");
    tested.gets(data(1, [0; 16_384], 0));
    tested.gets(data(1, [0; 3_616], 0));
    assert_eq!(tested.connection.reset_reason(first), None);
    tested.gets(data(1, "x", 0));
    assert_eq!(tested.says(), "reset 1 FLOW_CONTROL_ERROR");
    // Later confirmations change nothing.
    tested.gets(confirmation());
    tested.gets(data(3, [0; 3_516], 0));
    assert_eq!(tested.connection.reset_reason(second), None);
    tested.gets(data(3, "x", 0));
    assert_eq!(tested.says(), "reset 3 FLOW_CONTROL_ERROR");
}

#[test]
fn a_larger_window_of_ours_counts_once_it_is_confirmed() {
    let config = Config {
        window: 100_000,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Client, config);
    let early = tested.asks(true);
    tested.gets(headers(1, &[(":status", "200")], 0));
    tested.gets(confirmation());
    let late = tested.asks(true);
    tested.gets(headers(3, &[(":status", "200")], 0));
    for key in [early, late] {
        for _ in 0..6 {
            tested.gets(data(if key == early { 1 } else { 3 }, [0; 16_384], 0));
        }
        assert_eq!(tested.connection.reset_reason(key), None);
    }
    tested.gets(data(1, [0; 2_000], 0));
    tested.gets(data(3, [0; 2_000], 0));
    assert_eq!(
        tested.connection.reset_reason(early),
        Some(Reset::Malformed)
    );
    assert_eq!(tested.connection.reset_reason(late), Some(Reset::Malformed));
}

/// A client that has sent a whole body before it reads our settings may end it with an empty frame.
#[test]
fn a_body_ends_with_an_empty_frame_though_our_settings_have_made_its_window_negative() {
    for end in [data(1, "", END), headers(1, &[("x", "y")], END)] {
        let mut tested = Tested::begun(Role::Server, CONFIG);
        tested.gets(post(1));
        let key = tested.request();
        tested.gets(data(1, [0; 16_384], 0));
        tested.gets(data(1, [0; 16_384], 0));
        tested.gets(confirmation());
        tested.gets(data(1, "", 0));
        tested.gets(end);
        assert_eq!(tested.connection.body_end(key), Ok(true));
        assert_eq!(tested.reads(key).len(), 2 * 16_384);
    }
}

/// What a peer's window grows by when it reads our settings is not given to it a second time before that.
#[test]
fn a_larger_window_of_ours_is_not_given_twice() {
    let config = Config {
        window: 100_000,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Client, config);
    let key = tested.asks(true);
    assert_eq!(tested.says(), "head 1 end");
    tested.gets(headers(1, &[(":status", "200")], 0));
    tested.connection.widen(key, 100_001);
    assert_eq!(tested.says(), "", "the settings are on their way");
    for _ in 0..3 {
        tested.gets(data(1, [0; 16_384], 0));
    }
    tested.reads(key);
    assert_eq!(tested.says(), "window 1 +49153");
    tested.gets(confirmation());
    assert_eq!(tested.says(), "", "now all of the window is given");
    for _ in 0..6 {
        tested.gets(data(1, [0; 16_384], 0));
    }
    tested.gets(data(1, [0; 1_697], 0));
    assert_eq!(tested.connection.reset_reason(key), None);
    tested.gets(data(1, "x", 0));
    assert_eq!(tested.connection.reset_reason(key), Some(Reset::Malformed));
}

/// The larger window of the connection is stated behind the settings: who uses it has read them. Otherwise a peer that never
/// confirms them could use the default window on every stream for ever.
#[test]
fn who_uses_the_window_behind_our_settings_has_read_them() {
    for role in [Role::Server, Role::Client] {
        let mut tested = Tested::begun(role, CONFIG);
        let keys = match role {
            Role::Server => {
                tested.gets([post(1), post(3)].concat());
                tested.requests()
            }
            Role::Client => {
                let keys = vec![tested.asks(true), tested.asks(true)];
                tested.gets(headers(1, &[(":status", "200")], 0));
                tested.gets(headers(3, &[(":status", "200")], 0));
                keys
            }
        };
        for _ in 0..3 {
            tested.gets(data(1, [0; 16_384], 0));
        }
        tested.gets(data(3, [0; 16_383], 0));
        assert_eq!(tested.connection.reset_reason(keys[0]), None);
        tested.says();
        // Byte 65536 of all streams.
        tested.gets(data(3, "x", 0));
        assert_eq!(tested.connection.reset_reason(keys[1]), None);
        tested.gets(data(3, [0; 3_616], 0));
        assert_eq!(tested.connection.reset_reason(keys[1]), None);
        tested.gets(data(3, "x", 0));
        assert_eq!(tested.says(), "reset 3 FLOW_CONTROL_ERROR", "{role:?}");
        tested.gets(data(1, "x", 0));
        assert_eq!(tested.says(), "reset 1 FLOW_CONTROL_ERROR", "{role:?}");
    }
}

#[test]
fn an_endpoint_says_how_many_requests_it_takes() {
    let mut tested = Tested::new(Role::Client, CONFIG);
    // Before it has said so.
    let keys: Vec<_> = (0..100).map(|_| tested.asks(true)).collect();
    assert!(!tested.connection.has_room());
    assert!(tested.connection.takes_requests());
    assert_eq!(tested.connection.request_stream(b"", true, false), None);
    tested.gets(settings(&[(MAX_STREAMS, 102)]));
    tested.asks(true);
    tested.asks(true);
    assert!(!tested.connection.has_room());
    tested.gets(settings(&[(MAX_STREAMS, 101)]));
    tested.connection.release(keys[0]);
    assert!(!tested.connection.has_room());
    tested.connection.release(keys[1]);
    assert!(tested.connection.has_room());
    tested.gets(settings(&[(MAX_STREAMS, 0)]));
    assert!(!tested.connection.has_room());
}

/// RFC 7541, section 4.2: Ballast's heads use no dynamic table, whatever its size.
#[test]
fn the_head_after_a_table_size_states_ours() {
    let (mut tested, _) = Tested::client(1);
    tested.gets(settings(&[(TABLE_SIZE, 0), (TABLE_SIZE, 1 << 20)]));
    tested.says();
    for first in [0x20, 0] {
        tested.asks(true);
        assert_eq!(tested.sends()[0].payload[0], first);
    }
}

#[test]
fn a_window_that_the_settings_make_too_large_ends_the_connection() {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    tested.gets(window(1, (1 << 31) - 1 - 65_535));
    // The largest one: the settings take nothing away.
    tested.gets(settings(&[(WINDOW, 0), (WINDOW, 65_535)]));
    tested.connection.respond(key, 200, false, |_| {}).unwrap();
    assert_eq!(tested.connection.room(key), Ok(65_535));
    assert_eq!(
        tested.tries(settings(&[(WINDOW, 65_536), (WINDOW, 0)])),
        Err(ErrorCode::FLOW_CONTROL_ERROR),
        "each of them is in force for a while"
    );
}

#[test]
fn the_windows_of_streams_that_are_closed_do_not_matter() {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    tested.gets(window(1, (1 << 31) - 1 - 65_535));
    tested.gets(reset(1, 8));
    tested.gets(settings(&[(WINDOW, 1 << 20)]));
    assert_eq!(
        tested.connection.reset_reason(key),
        Some(Reset::ByPeer(ErrorCode::CANCEL))
    );
}

/// Each such event wakes the tasks of all streams.
#[test]
fn settings_that_open_no_window_wake_nobody() {
    let mut tested = Tested::server();
    tested.gets(settings(&[]));
    tested.gets(settings(&[(MAX_STREAMS, 1), (FRAME_SIZE, 20_000)]));
    tested.gets(settings(&[(WINDOW, 100)]));
    tested.gets(settings(&[(WINDOW, 70_000), (WINDOW, 100)]));
    assert_eq!(tested.events, []);
    tested.gets(settings(&[(WINDOW, 101)]));
    assert_eq!(tested.events, [Event::AllChanged]);
    assert_eq!(tested.says(), ["confirmed"; 5].join(", "));
}
