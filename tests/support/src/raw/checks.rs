//! What a peer must keep to. A test fails where it does not.

use std::io::{Read, Write};

use super::frames::{
    ACK, CONTINUATION, DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, GOAWAY, HEADERS,
    INITIAL_WINDOW, MAX_STREAMS, PADDED, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    field,
};
use super::{Event, Frame, Raw, Stream};

impl<S: Read + Write> Raw<S> {
    /// What this frame says.
    pub(super) fn checked(&mut self, frame: Frame) -> Event {
        let Frame {
            kind,
            flags,
            stream,
            payload,
        } = &frame;
        let (stream, is_ack) = (*stream, flags & ACK != 0);
        assert!(stream >> 31 == 0, "a reserved bit: {frame:?}");
        let is_of_connection = matches!(*kind, SETTINGS | PING | GOAWAY);
        let may_be_either = *kind == WINDOW_UPDATE;
        assert!(
            may_be_either || is_of_connection == (stream == 0),
            "on the wrong stream: {frame:?}"
        );
        match (*kind, payload.len()) {
            (DATA, _) => self.data_came(frame),
            (HEADERS, _) => self.head_came(frame),
            (RST_STREAM, 4) => {
                self.known(stream, "RST_STREAM").is_reset = true;
                Event::Reset {
                    stream,
                    code: number(payload),
                }
            }
            (SETTINGS, 0) if is_ack => {
                assert!(!self.is_confirmed, "SETTINGS confirmed twice");
                self.is_confirmed = true;
                Event::SettingsAck
            }
            (SETTINGS, length) if !is_ack && length % 6 == 0 => self.settings_came(payload),
            (PING, 8) => {
                let payload = payload.as_slice().try_into().expect("eight bytes");
                if is_ack {
                    Event::Pong(payload)
                } else {
                    Event::Ping(payload)
                }
            }
            (GOAWAY, 8..) => Event::GoAway {
                last: number(&payload[..4]),
                code: number(&payload[4..8]),
            },
            (WINDOW_UPDATE, 4) => {
                let by = number(payload);
                assert!(by > 0 && by >> 31 == 0, "a window that grows by {by}");
                match stream {
                    0 => self.room += i64::from(by),
                    _ => self.known(stream, "WINDOW_UPDATE").room += i64::from(by),
                }
                let room = if stream == 0 {
                    self.room
                } else {
                    self.room(stream)
                };
                assert!(room < 1 << 31, "a window of {room} bytes");
                Event::Window { stream, by }
            }
            _ => panic!("a frame that is not expected: {frame:?}"),
        }
    }

    fn settings_came(&mut self, payload: &[u8]) -> Event {
        let settings: Vec<(u16, u32)> = payload
            .chunks(6)
            .map(|setting| {
                (
                    u16::from_be_bytes([setting[0], setting[1]]),
                    number(&setting[2..]),
                )
            })
            .collect();
        for (name, value) in &settings {
            match (*name, *value) {
                (INITIAL_WINDOW, window) => {
                    assert!(window >> 31 == 0, "an initial window of {window}");
                    let window = i64::from(window);
                    let grown = window - self.peer.initial_window;
                    self.peer.initial_window = window;
                    for stream in self.streams.values_mut() {
                        stream.room += grown;
                    }
                }
                (MAX_STREAMS, most) => self.peer.max_streams = Some(most),
                // Pushes are refused by clients, and offered by nobody.
                (2, value) => assert!(value <= 1, "ENABLE_PUSH is {value}"),
                (5, size) => assert!((16_384..1 << 24).contains(&size), "frames of {size} bytes"),
                _ => {}
            }
        }
        Event::Settings(settings)
    }

    fn data_came(&mut self, frame: Frame) -> Event {
        let (stream, ends) = (frame.stream, frame.flags & END_STREAM != 0);
        let counted = i64::try_from(frame.payload.len()).expect("a small number");
        let bytes = unpadded(&frame);
        self.allowance -= counted;
        assert!(
            self.allowance >= 0,
            "more DATA than the connection's window"
        );
        let initial = if self.is_confirmed {
            self.initial
        } else {
            self.initial.max(DEFAULT_WINDOW)
        };
        let known = self.known(stream, "DATA");
        known.assert_open("DATA");
        assert!(known.has_head, "DATA before a head on stream {stream}");
        known.received += counted;
        known.has_ended |= ends;
        let over = known.received - known.granted - initial;
        // Who confirms a smaller window may have sent more before.
        assert!(
            over <= 0 || counted == 0,
            "{over} bytes more DATA than the window of {stream}"
        );
        if self.gives_back && counted > 0 {
            let by = u32::try_from(counted).expect("a small number");
            self.grant(0, by);
            if !ends {
                self.grant(stream, by);
            }
        }
        Event::Data {
            stream,
            bytes,
            ends,
        }
    }

    fn head_came(&mut self, first: Frame) -> Event {
        let (stream, ends) = (first.stream, first.flags & END_STREAM != 0);
        let mut block = unpadded(&first);
        if first.flags & PRIORITY != 0 {
            block.drain(..5);
        }
        let mut is_whole = first.flags & END_HEADERS != 0;
        while !is_whole {
            let next = self
                .frame()
                .expect("the rest of a head")
                .expect("the rest of a head");
            let is_rest = next.kind == CONTINUATION && next.stream == stream;
            assert!(is_rest, "{next:?} within a head");
            block.extend_from_slice(&next.payload);
            is_whole = next.flags & END_HEADERS != 0;
        }
        let fields = self.decoder.decode(&block).expect("a block of HPACK");
        for (name, _) in &fields {
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            assert!(is_lower && !name.is_empty(), "a field named {name:?}");
        }
        let is_new = !self.streams.contains_key(&stream);
        if is_new && !self.is_client {
            let last = self.streams.keys().next_back().copied().unwrap_or(0);
            assert!(
                stream > last && stream % 2 == 1,
                "stream {stream} after {last}"
            );
            self.opens(stream);
        }
        let is_client = self.is_client;
        let known = self.known(stream, "HEADERS");
        known.assert_open("HEADERS");
        let is_interim = field(&fields, ":status").is_some_and(|is| is.starts_with('1'));
        let is_trailer = known.has_head;
        let expected = match (is_trailer, is_client) {
            (true, _) => None,
            (false, true) => Some(":status"),
            (false, false) => Some(":method"),
        };
        let first = fields.iter().find(|(name, _)| name.starts_with(':'));
        match expected {
            Some(name) => assert!(field(&fields, name).is_some(), "no {name}: {fields:?}"),
            None => assert!(first.is_none() && ends, "no trailers: {fields:?}"),
        }
        known.has_head |= !is_interim;
        known.has_ended |= ends;
        Event::Head {
            stream,
            fields,
            ends,
        }
    }

    /// A stream that has been opened.
    fn known(&mut self, stream: u32, what: &str) -> &mut Stream {
        let known = self.streams.get_mut(&stream);
        known.unwrap_or_else(|| panic!("{what} on stream {stream}, which nobody has opened"))
    }
}

impl Stream {
    /// After a reset frames may still be on their way.
    fn assert_open(&self, what: &str) {
        assert!(!self.has_ended, "{what} behind the end of a stream");
    }
}

/// The payload without its padding.
fn unpadded(frame: &Frame) -> Vec<u8> {
    if frame.flags & PADDED == 0 {
        return frame.payload.clone();
    }
    let (&padding, rest) = frame
        .payload
        .split_first()
        .expect("the length of the padding");
    let length = rest.len().checked_sub(usize::from(padding));
    rest[..length.expect("less padding than payload")].to_vec()
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[test]
fn padding_is_taken_off() {
    let padded = Frame {
        kind: DATA,
        flags: PADDED,
        stream: 1,
        payload: vec![2, 7, 0, 0],
    };
    assert_eq!(unpadded(&padded), [7]);
    assert_eq!(
        super::frame(DATA, PADDED, 1, &padded.payload)[..9],
        [0, 0, 4, 0, 8, 0, 0, 0, 1]
    );
}
