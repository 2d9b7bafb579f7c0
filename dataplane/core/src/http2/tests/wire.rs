//! Frames as bytes, as a peer writes and reads them. Nothing of the engine is used here.

use std::fmt::Write;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// END_STREAM, and ACK of SETTINGS and PING.
pub(super) const END: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

pub(super) const TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_STREAMS: u16 = 3;
pub(super) const WINDOW: u16 = 4;
pub(super) const FRAME_SIZE: u16 = 5;

/// A frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(super) fn data(stream: u32, bytes: impl AsRef<[u8]>, flags: u8) -> Vec<u8> {
    frame(DATA, flags, stream, bytes.as_ref())
}

/// A DATA frame with so many bytes of padding.
pub(super) fn padded(stream: u32, bytes: impl AsRef<[u8]>, padding: u8, flags: u8) -> Vec<u8> {
    let mut payload = vec![padding];
    payload.extend(bytes.as_ref());
    payload.resize(payload.len() + usize::from(padding), 0);
    frame(DATA, PADDED | flags, stream, &payload)
}

/// A whole header block in one frame.
pub(super) fn headers(stream: u32, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &block(fields))
}

/// A request without a body.
pub(super) fn get(stream: u32) -> Vec<u8> {
    headers(stream, &GET, END)
}

/// The head of a request with a body.
pub(super) fn post(stream: u32) -> Vec<u8> {
    headers(stream, &POST, 0)
}

pub(super) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in settings {
        payload.extend(name.to_be_bytes());
        payload.extend(value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

pub(super) fn confirmation() -> Vec<u8> {
    frame(SETTINGS, ACK, 0, b"")
}

pub(super) fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

pub(super) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub(super) fn goaway(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &payload)
}

/// A header block of literal fields.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            string(&mut out, text.as_bytes());
        }
    }
    out
}

/// A string that is not Huffman coded.
fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    match u8::try_from(bytes.len()) {
        Ok(length @ ..127) => out.push(length),
        _ => {
            out.push(127);
            let mut rest = bytes.len() - 127;
            while rest >= 128 {
                out.push(0x80 | (rest & 0x7f).to_le_bytes()[0]);
                rest >>= 7;
            }
            out.push(rest.to_le_bytes()[0]);
        }
    }
    out.extend(bytes);
}

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// The frames in `bytes`, behind the preface of a client. All of them are whole.
pub(super) fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut rest = bytes.strip_prefix(crate::http2::PREFACE).unwrap_or(bytes);
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (header, behind) = rest.split_at(9);
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (payload, behind) = behind.split_at(length);
        frames.push(Frame {
            kind: header[3],
            flags: header[4],
            stream: number(&header[5..]),
            payload: payload.to_vec(),
        });
        rest = behind;
    }
    frames
}

pub(super) fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes.first_chunk().unwrap())
}

/// The frame in a few words.
pub(super) fn words(frame: &Frame) -> String {
    let Frame {
        kind,
        flags,
        stream,
        payload,
    } = frame;
    let mut text = String::new();
    let ends = if flags & END == 0 { "" } else { " end" };
    let code = |bytes: &[u8]| crate::http2::ErrorCode(number(bytes));
    let written = match *kind {
        DATA => write!(text, "data {stream} {}{ends}", payload.len()),
        HEADERS if flags & END_HEADERS == 0 => write!(text, "part of head {stream}{ends}"),
        HEADERS => write!(text, "head {stream}{ends}"),
        RST_STREAM => write!(text, "reset {stream} {:?}", code(payload)),
        SETTINGS if flags & ACK != 0 => write!(text, "confirmed"),
        SETTINGS => write!(text, "settings"),
        PING if flags & ACK != 0 => write!(text, "pong"),
        PING => write!(text, "ping"),
        GOAWAY => write!(text, "goaway {} {:?}", number(payload), code(&payload[4..])),
        WINDOW_UPDATE => write!(text, "window {stream} +{}", number(payload)),
        CONTINUATION if flags & END_HEADERS == 0 => write!(text, "more of head {stream}"),
        CONTINUATION => write!(text, "rest of head {stream}"),
        kind => panic!("a frame of kind {kind}"),
    };
    written.unwrap();
    text
}

pub(super) const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "shop.example"),
    (":path", "/"),
];
pub(super) const POST: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "shop.example"),
    (":path", "/"),
];
