//! Holds what one end sends to what it has heard: frames in an order that RFC 9113 allows, and no more bytes than the other end
//! accepts. Nothing of the engine is used here but the numbers of frames.

use std::collections::BTreeMap;

use super::super::wire::*;

/// What one end has sent and heard.
#[derive(Debug)]
pub(super) struct Watch {
    is_client: bool,
    has_preface: bool,
    sent: Vec<u8>,
    heard: Vec<u8>,
    /// What the other end accepts, on all streams together and at the beginning of each.
    room: i64,
    first_room: i64,
    longest: usize,
    streams: BTreeMap<u32, Sent>,
    /// The stream of a header block of which more is to come, and whether the stream ends with it.
    block: Option<u32>,
    /// The last stream of the last GOAWAY.
    last: Option<u32>,
}

/// What was sent on one stream.
#[derive(Debug)]
struct Sent {
    room: i64,
    has_head: bool,
    has_ended: bool,
    is_reset: bool,
}

impl Watch {
    pub(super) fn new(is_client: bool) -> Self {
        Self {
            is_client,
            has_preface: !is_client,
            sent: Vec::new(),
            heard: Vec::new(),
            room: 65_535,
            first_room: 65_535,
            longest: 16_384,
            streams: BTreeMap::new(),
            block: None,
            last: None,
        }
    }

    fn stream(&mut self, id: u32) -> &mut Sent {
        self.streams.entry(id).or_insert(Sent {
            room: self.first_room,
            has_head: false,
            has_ended: false,
            is_reset: false,
        })
    }

    /// The end has heard these bytes.
    pub(super) fn hears(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(bytes);
        if !self.is_client && self.heard.starts_with(b"PRI") {
            if self.heard.len() < 24 {
                return;
            }
            self.heard.drain(..24);
        }
        while let Some(frame) = next(&mut self.heard) {
            self.hears_frame(&frame);
        }
    }

    fn hears_frame(&mut self, frame: &Frame) {
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                for setting in frame.payload.chunks(6) {
                    let value = number(&setting[2..]);
                    match u16::from_be_bytes([setting[0], setting[1]]) {
                        WINDOW => {
                            let more = i64::from(value) - self.first_room;
                            self.first_room = value.into();
                            self.streams.values_mut().for_each(|one| one.room += more);
                        }
                        FRAME_SIZE => self.longest = value as usize,
                        _ => {}
                    }
                }
            }
            WINDOW_UPDATE => {
                let more = i64::from(number(&frame.payload));
                assert!(more > 0);
                let room = match frame.stream {
                    0 => &mut self.room,
                    id => &mut self.stream(id).room,
                };
                *room += more;
                assert!(*room < 1 << 31, "a window of {room} on {}", frame.stream);
            }
            _ => {}
        }
    }

    /// The end sends these bytes: whole frames.
    pub(super) fn sends(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        if !self.has_preface {
            assert!(self.sent.starts_with(crate::http2::PREFACE));
            self.sent.drain(..24);
            self.has_preface = true;
        }
        while let Some(frame) = next(&mut self.sent) {
            self.sends_frame(&frame);
        }
        assert!(self.sent.is_empty(), "a frame that is not whole");
        assert_eq!(self.block, None, "a head that is not whole");
    }

    fn sends_frame(&mut self, frame: &Frame) {
        let (id, length, is_client) = (frame.stream, frame.payload.len(), self.is_client);
        assert!(length <= self.longest, "{length} of {}", self.longest);
        if self.block.is_some() {
            assert_eq!((frame.kind, Some(id)), (CONTINUATION, self.block));
        }
        let ends = frame.flags & END != 0;
        match frame.kind {
            DATA => {
                self.room -= i64::try_from(length).unwrap();
                assert!(self.room >= 0);
                let stream = self.stream(id);
                assert!(
                    stream.has_head && !stream.has_ended && !stream.is_reset,
                    "{id}"
                );
                stream.room -= i64::try_from(length).unwrap();
                assert!(stream.room >= 0 || length == 0, "{id}: {}", stream.room);
                stream.has_ended = ends;
            }
            HEADERS => {
                assert_eq!(id % 2, 1);
                let newest = self.streams.keys().next_back().copied();
                let stream = self.stream(id);
                if is_client && !stream.has_head {
                    assert!(
                        newest.is_none_or(|newest| newest < id),
                        "{id} behind {newest:?}"
                    );
                }
                assert!(!stream.has_ended && !stream.is_reset, "{id}");
                stream.has_head = true;
                stream.has_ended = ends;
                self.block = (frame.flags & END_HEADERS == 0).then_some(id);
            }
            CONTINUATION => {
                assert!(length > 0);
                self.block = (frame.flags & END_HEADERS == 0).then_some(id);
            }
            RST_STREAM => {
                let stream = self.stream(id);
                assert!(!stream.is_reset, "{id} is reset twice");
                stream.is_reset = true;
            }
            WINDOW_UPDATE if id > 0 => assert!(!self.stream(id).is_reset, "{id}"),
            GOAWAY => {
                let last = number(&frame.payload);
                assert!(
                    self.last.is_none_or(|before| last <= before),
                    "it was raised"
                );
                assert_eq!(number(&frame.payload[4..]), 0, "an error");
                self.last = Some(last);
            }
            SETTINGS | PING | WINDOW_UPDATE => {}
            kind => panic!("a frame of kind {kind}"),
        }
    }
}

/// Takes a whole frame from the beginning of `bytes`.
fn next(bytes: &mut Vec<u8>) -> Option<Frame> {
    let length = u32::from_be_bytes([0, *bytes.first()?, *bytes.get(1)?, *bytes.get(2)?]) as usize;
    bytes.get(..9 + length)?;
    let whole: Vec<u8> = bytes.drain(..9 + length).collect();
    frames(&whole).pop()
}
