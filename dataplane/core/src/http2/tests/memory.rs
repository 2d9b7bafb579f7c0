//! What a connection holds, and for how long something may be incomplete.

use std::time::Duration;

use super::wire::*;
use super::*;

/// The bytes that a connection holds beside itself.
pub(super) fn held(connection: &Connection) -> usize {
    let spare: usize = connection.spare.iter().map(Head::capacity).sum();
    let spare = spare + connection.spare.capacity() * size_of::<Head>();
    let output = connection.out.capacity();
    let streams = connection.streams.held() + connection.closed.held();
    connection.decoder.table_bytes() + spare + output + streams
}

/// Serves many requests with bodies at once.
fn busy() -> Tested {
    let mut tested = Tested::server();
    tested.gets(settings(&[(WINDOW, 1 << 20)]));
    tested.gets(window(0, 1 << 23));
    let field = "v".repeat(300);
    for round in 0..50 {
        let ids = (1..).step_by(2).skip(round * 4).take(4);
        for id in ids.clone() {
            let head = [&POST[..], &[("k", &field)]].concat();
            tested.gets(headers(id, &head, 0));
            tested.gets(data(id, [0; 16_384], 0));
            tested.gets(headers(id, &[("x", &field)], END));
        }
        for key in tested.requests() {
            let head = tested.connection.take_head(key).unwrap().unwrap();
            tested.connection.recycle(head);
            tested.reads(key);
            let body = [0; 10_000];
            tested.connection.respond(key, 200, false, |_| {}).unwrap();
            tested.connection.send_body(key, &body, true).unwrap();
        }
        let keys: Vec<_> = tested
            .connection
            .streams
            .all_mut()
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            tested.connection.release(key);
        }
        tested.says();
    }
    tested
}

#[test]
fn an_idle_connection_holds_only_the_table_of_its_peer() {
    let mut tested = busy();
    assert!(tested.connection.out.capacity() == 0, "all was sent");
    tested.connection.shrink();
    // The numbers of the streams that were closed last.
    assert!(held(&tested.connection) <= 512);
    assert!(size_of::<Connection>() < 600, "{}", size_of::<Connection>());
    // With entries in the table.
    let mut bytes = block(&GET);
    for name in b'a'..=b'y' {
        bytes.extend([0x40, 1, name, 3, b'1', b'2', b'3']);
    }
    tested.gets(frame(HEADERS, END_HEADERS | END, 401, &bytes));
    let key = tested.request();
    tested.connection.release(key);
    tested.says();
    tested.connection.shrink();
    assert!(
        held(&tested.connection) < 512 + 400,
        "{}",
        held(&tested.connection)
    );
}

/// A connection of which nothing was released keeps what its streams need.
#[test]
fn shrinking_takes_nothing_from_streams() {
    let mut tested = Tested::server();
    tested.gets([post(1), data(1, "body", END)].concat());
    let key = tested.request();
    tested.connection.respond(key, 200, false, |_| {}).unwrap();
    tested.connection.shrink();
    assert_eq!(tested.says(), "head 1");
    assert_eq!(tested.reads(key), b"body");
    assert!(tested.connection.take_head(key).unwrap().is_some());
}

#[test]
fn heads_are_kept_for_the_next_ones_unless_they_are_large() {
    let config = Config {
        max_head: 1 << 16,
        ..CONFIG
    };
    let mut tested = Tested::begun(Role::Server, config);
    for id in (1..40).step_by(2) {
        tested.gets(get(id));
        let key = tested.request();
        let head = tested.connection.take_head(key).unwrap().unwrap();
        tested.connection.release(key);
        tested.connection.recycle(head);
    }
    assert_eq!(tested.connection.spare.len(), 1);
    let large = "x".repeat(5_000);
    tested.gets(headers(41, &[&GET[..], &[("x", &large)]].concat(), END));
    let key = tested.request();
    tested.connection.release(key);
    assert_eq!(tested.connection.spare.len(), 0);
}

/// Small frames do not make a body take much more than its bytes.
#[test]
fn a_body_takes_no_more_than_twice_its_window() {
    let mut tested = Tested::server();
    tested.gets(post(1));
    let key = tested.request();
    for _ in 0..20_000 {
        tested.gets(data(1, "x", 0));
    }
    assert!(tested.connection.take_body(key).capacity() <= 2 * 20_000);
}

#[test]
fn output_that_was_sent_is_not_kept() {
    let mut tested = Tested::server();
    tested.gets(get(1));
    tested.request();
    for _ in 0..1000 {
        tested.gets(frame(PING, 0, 0, &[0; 8]));
        assert!(tested.connection.output().len() <= 200);
        let most = tested.connection.output().len().min(16);
        tested.connection.advance(most);
        let length = tested.connection.output().len();
        if length > 150 {
            tested.connection.advance(length);
        }
    }
    assert!(tested.connection.out.capacity() < 1000);
}

/// When something of the peer is incomplete, after each of these pieces, a second apart.
fn since(pieces: &[&[u8]]) -> Vec<Option<u64>> {
    let mut tested = Tested::new(Role::Server, CONFIG);
    tested.now = Moment(0);
    let begin = [PREFACE, &settings(&[]), &confirmation(), &post(1)].concat();
    tested.gets(begin);
    let mut found = Vec::new();
    for piece in pieces {
        tested.now = tested.now.after(Duration::from_secs(1));
        tested.gets(piece);
        let since = tested.connection.incomplete_since();
        found.push(since.map(|since| since.0 / 1000));
    }
    found
}

/// A name, pieces of bytes, and the seconds since when something is incomplete behind each.
type Row<'a> = (&'a str, &'a [&'a [u8]], &'a [Option<u64>]);

#[test]
fn it_is_known_since_when_a_frame_or_a_head_is_incomplete() {
    let head = frame(HEADERS, END, 3, &block(&GET));
    let part = frame(CONTINUATION, 0, 3, b"\x00\x01a\x01b");
    let rest = frame(CONTINUATION, END_HEADERS, 3, b"\x00\x01a\x01b");
    let whole = get(3);
    let ping = frame(PING, 0, 0, &[0; 8]);
    let unknown = frame(77, 0, 0, &[0; 100]);
    let body = data(1, [0; 100], 0);
    let tables: [Row<'_>; 10] = [
        ("nothing", &[b"", &ping, b""], &[None, None, None]),
        (
            "the header of a frame",
            &[&ping[..1], &ping[1..8], &ping[8..9], &ping[9..]],
            &[Some(1), Some(1), Some(1), None],
        ),
        (
            "a head in one frame",
            &[&whole[..5], &whole[5..12], &whole[12..20], &whole[20..]],
            &[Some(1), Some(1), Some(1), None],
        ),
        (
            "a head in many frames",
            &[
                &head,
                &part,
                &part[..10],
                &part[10..],
                &rest[..3],
                &rest[3..],
            ],
            &[Some(1), Some(1), Some(1), Some(1), Some(1), None],
        ),
        (
            "a head whose first frame comes slowly",
            &[&head[..15], &head[15..], &rest],
            &[Some(1), Some(1), None],
        ),
        (
            "a frame that begins with the end of another",
            &[&ping[..10], &[&ping[10..], &ping[..3]].concat(), &ping[3..]],
            &[Some(1), Some(2), None],
        ),
        (
            "a frame that begins with the end of a head",
            &[&head, &[&rest[..], &ping[..3]].concat(), &ping[3..]],
            &[Some(1), Some(2), None],
        ),
        (
            "a frame that begins with the end of a body",
            &[&body[..50], &[&body[50..], &ping[..3]].concat(), &ping[3..]],
            &[None, Some(2), None],
        ),
        // Their senders are watched by other means.
        (
            "bodies, and what is ignored",
            &[
                &body[..10],
                &body[10..50],
                &body[50..],
                &unknown[..9],
                &unknown[9..],
            ],
            &[None, None, None, None, None],
        ),
        (
            "the header of a body",
            &[&body[..8], &body[8..9]],
            &[Some(1), None],
        ),
    ];
    for (name, pieces, expected) in tables {
        assert_eq!(since(pieces), expected, "{name}");
    }
}

#[test]
fn a_preface_that_comes_slowly_is_incomplete() {
    let mut tested = Tested::new(Role::Server, CONFIG);
    assert_eq!(tested.connection.incomplete_since(), None);
    tested.gets(&PREFACE[..3]);
    tested.now = Moment(5000);
    tested.gets(&PREFACE[3..10]);
    assert_eq!(tested.connection.incomplete_since(), Some(Moment(1000)));
    tested.gets(&PREFACE[10..]);
    assert_eq!(tested.connection.incomplete_since(), None);
}
