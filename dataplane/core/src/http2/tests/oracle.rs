//! Properties that hold for any bytes of a peer. The tests of this crate and the fuzz target `http2` include this file.

use super::{Config, Connection, ErrorCode, Event, Key, Moment, PREFACE, Reset};

/// Panics if a connection that gets `bytes` violates a guarantee. The first byte chooses the role, the limits and how the connection
/// begins; the second one where the others are cut.
pub(super) fn check(bytes: &[u8]) {
    let Some((&[how, cuts], bytes)) = bytes.split_first_chunk() else {
        return;
    };
    the_result_does_not_depend_on_cuts(how, cuts, bytes);
    limits_are_kept(how, cuts, bytes);
}

/// A connection with these limits. A client has sent requests.
fn begun(how: u8) -> (Connection, Vec<Key>, Config) {
    let config = Config {
        max_streams: 1 + u32::from(how >> 1 & 3),
        window: if how & 8 == 0 { 100 } else { 20_000 },
        max_head: if how & 16 == 0 { 300 } else { 20_000 },
    };
    if how & 1 == 0 {
        return (Connection::server(config), Vec::new(), config);
    }
    let mut connection = Connection::client(config);
    let keys = (0..config.max_streams).filter_map(|at| {
        let is_whole = at % 2 == 0;
        connection.request_stream(BLOCK, is_whole, at == 3)
    });
    let keys = keys.collect();
    (connection, keys, config)
}

/// What the peer sends: with the beginning that every peer needs, if the bytes are to come behind it.
fn sent(how: u8, bytes: &[u8]) -> Vec<u8> {
    let preface = if how & 1 == 0 { PREFACE } else { b"" };
    let begin = match how >> 5 & 3 {
        0 => vec![],
        1 => preface.to_vec(),
        2 => [preface, SETTINGS].concat(),
        _ => [preface, SETTINGS, CONFIRMATION].concat(),
    };
    [begin.as_slice(), bytes].concat()
}

/// What a connection has become by the bytes that it got.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: Result<(), ErrorCode>,
    output: Vec<u8>,
    events: Vec<Event>,
    streams: usize,
    is_incomplete: bool,
    is_shut_down: bool,
    takes_requests: bool,
    messages: Vec<Message>,
}

/// What has come on one stream.
#[derive(Debug, PartialEq)]
struct Message {
    key: Key,
    heads: Vec<String>,
    body: Vec<u8>,
    end: Result<bool, Reset>,
    trailers: Option<String>,
    reset: Option<Reset>,
    room: Result<usize, Reset>,
}

fn the_result_does_not_depend_on_cuts(how: u8, cuts: u8, bytes: &[u8]) {
    let bytes = sent(how, bytes);
    if bytes.is_empty() {
        return;
    }
    let at_once = outcome(how, &[&bytes]);
    let middle = bytes.len() * usize::from(cuts) / 256;
    let (first, second) = bytes.split_at_checked(middle).expect("it is not longer");
    assert_eq!(outcome(how, &[first, second]), at_once, "in two pieces");
    let most = 1 + usize::from(cuts % 32);
    let pieces: Vec<_> = bytes.chunks(most).collect();
    assert_eq!(outcome(how, &pieces), at_once, "in pieces of {most}");
}

fn outcome(how: u8, pieces: &[&[u8]]) -> Outcome {
    let (mut connection, mut keys, _) = begun(how);
    let mut events = Vec::new();
    let mut result = Ok(());
    for piece in pieces {
        result = result.and_then(|()| connection.receive(piece, NOW, &mut events));
    }
    for event in &events {
        if let Event::Request(key) = event {
            keys.push(*key);
        }
    }
    // Bytes of a body that come in pieces are told more than once.
    events.dedup();
    let mut messages = Vec::new();
    for key in keys {
        messages.push(taken(&mut connection, key));
    }
    Outcome {
        result,
        output: connection.output().to_vec(),
        events,
        streams: connection.streams(),
        is_incomplete: result.is_ok() && connection.incomplete_since().is_some(),
        is_shut_down: connection.is_shut_down(),
        takes_requests: connection.takes_requests(),
        messages,
    }
}

fn taken(connection: &mut Connection, key: Key) -> Message {
    let mut heads = Vec::new();
    while let Ok(Some(head)) = connection.take_head(key) {
        heads.push(format!("{head:?}"));
        connection.recycle(head);
    }
    Message {
        key,
        heads,
        body: connection.take_body(key),
        end: connection.body_end(key),
        trailers: connection
            .take_trailers(key)
            .map(|trailers| format!("{trailers:?}")),
        reset: connection.reset_reason(key),
        room: connection.room(key),
    }
}

/// An owner that answers, reads and gives up: what the connection holds stays within its limits, and its output within what the
/// peer has sent.
fn limits_are_kept(how: u8, cuts: u8, bytes: &[u8]) {
    let (mut connection, mut keys, config) = begun(how);
    let first_window = config.window.max(65_535) as usize;
    let bytes = sent(how, bytes);
    let mut events = Vec::new();
    let mut held: Vec<usize> = vec![0; keys.len()];
    let mut written = 0;
    for (turn, piece) in bytes.chunks(1 + usize::from(cuts)).enumerate() {
        let before = connection.output().len();
        let result = connection.receive(piece, NOW, &mut events);
        let answers = connection.output().len() - before;
        let streams = config.max_streams as usize;
        assert!(
            answers <= 2 * piece.len() + 13 * (4 + 2 * streams),
            "{answers} bytes in answer to {}",
            piece.len()
        );
        assert!(config.max_streams as usize * 2 >= connection.streams());
        for event in events.drain(..) {
            if let Event::Request(key) = event {
                keys.push(key);
                held.push(0);
            }
        }
        for (at, key) in keys.clone().into_iter().enumerate().rev() {
            while let Ok(Some(head)) = connection.take_head(key) {
                let size: usize = head
                    .fields()
                    .map(|one| one.name.len() + one.value.len() + 32)
                    .sum();
                assert!(size <= config.max_head, "{size}");
                connection.recycle(head);
            }
            let body = connection.take_body(key);
            let unreleased = held.get_mut(at).expect("one for each");
            *unreleased += body.len();
            assert!(*unreleased <= first_window, "{unreleased}");
            // Something else for each stream and each turn.
            match (turn + at) % 7 {
                0 => connection.release_body(key, std::mem::take(unreleased)),
                1 => _ = connection.respond(key, 200, turn % 2 == 0, |_| {}),
                2 => {
                    let room = connection.room(key).unwrap_or(0).min(10);
                    let bytes = b"0123456789".get(..room).unwrap_or_default();
                    _ = connection.send_body(key, bytes, turn % 3 == 0);
                }
                3 => _ = connection.send_trailers(key, |_| {}),
                4 if turn % 5 == 0 => connection.reset(key, ErrorCode::CANCEL),
                5 if turn % 3 == 0 || connection.reset_reason(key).is_some() => {
                    connection.release(key);
                    keys.remove(at);
                    held.remove(at);
                }
                _ => {}
            }
        }
        if turn % 11 == 10 {
            connection.shrink();
            if how & 1 == 0 {
                connection.shut_down();
            }
        }
        if connection.output().len() > 500 || turn % 3 == 0 {
            written += connection.output().len();
            check_frames(
                connection.output(),
                how & 1 == 1 && written == connection.output().len(),
            );
            connection.advance(connection.output().len());
        }
        if result.is_err() {
            assert_eq!(connection.receive(b"x", NOW, &mut events), result);
            for key in &keys {
                assert!(
                    connection.body_end(*key) == Ok(true)
                        || connection.reset_reason(*key).is_some()
                );
            }
            break;
        }
    }
    keys.into_iter().for_each(|key| connection.release(key));
    assert_eq!(connection.streams(), 0);
}

/// The output is whole frames of the length that every peer accepts.
fn check_frames(output: &[u8], has_preface: bool) {
    let mut rest = if has_preface {
        output.strip_prefix(PREFACE).expect("a preface")
    } else {
        output
    };
    while let Some((&[a, b, c, ..], behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        assert!(length <= 16_384, "{length}");
        rest = behind.get(length..).expect("a whole frame");
    }
    assert!(rest.is_empty());
}

/// `GET`, `http`, `/`, and `:authority: a`.
const BLOCK: &[u8] = b"\x82\x86\x84\x41\x01a";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const CONFIRMATION: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
const NOW: Moment = Moment(1000);
