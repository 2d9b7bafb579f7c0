//! The layout of frames (RFC 9113, sections 4 and 6).

use std::fmt;

/// The length of a frame's header.
pub(super) const HEADER: usize = 9;
/// The longest payload that Ballast accepts: the default of `SETTINGS_MAX_FRAME_SIZE`, and the least that every peer accepts.
pub(super) const MAX_PAYLOAD: usize = 16 * 1024;
/// The largest flow control window.
pub(super) const MAX_WINDOW: i64 = (1 << 31) - 1;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const HAS_PRIORITY: u8 = 0x20;

pub(super) const SETTINGS_HEADER_TABLE_SIZE: u16 = 1;
pub(super) const SETTINGS_ENABLE_PUSH: u16 = 2;
pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const SETTINGS_MAX_FRAME_SIZE: u16 = 5;
pub(super) const SETTINGS_MAX_HEADER_LIST_SIZE: u16 = 6;

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer does not keep to the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An error of the sender's own.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer has sent more than it was allowed to.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// A frame for a half of a stream that has ended.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame of a wrong size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The request was not looked at.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// The state of header compression is lost.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0x0 => "NO_ERROR",
            0x1 => "PROTOCOL_ERROR",
            0x2 => "INTERNAL_ERROR",
            0x3 => "FLOW_CONTROL_ERROR",
            0x4 => "SETTINGS_TIMEOUT",
            0x5 => "STREAM_CLOSED",
            0x6 => "FRAME_SIZE_ERROR",
            0x7 => "REFUSED_STREAM",
            0x8 => "CANCEL",
            0x9 => "COMPRESSION_ERROR",
            0xa => "CONNECT_ERROR",
            0xb => "ENHANCE_YOUR_CALM",
            0xc => "INADEQUATE_SECURITY",
            0xd => "HTTP_1_1_REQUIRED",
            other => return write!(f, "{other:#x}"),
        };
        f.write_str(name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    pub(super) fn parse(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            // The first bit is reserved and ignored.
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The header as bytes. Lengths above 24 bits do not occur: payloads are split before.
    fn bytes(self) -> [u8; HEADER] {
        let [.., a, b, c] = (self.length as u64).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s0, s1, s2, s3]
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    /// Writes the header over the bytes at `place`, which were left free for it.
    pub(super) fn write_at(self, out: &mut [u8], place: usize) {
        if let Some(room) = out.get_mut(place..place + HEADER) {
            room.copy_from_slice(&self.bytes());
        }
    }
}

/// Appends a whole frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = payload.len();
    let header = FrameHeader {
        length,
        kind,
        flags,
        stream,
    };
    header.write(out);
    out.extend_from_slice(payload);
}

/// Appends a header block, in as many frames as it needs. The block is in `out` from `start + HEADER` on, and the bytes before
/// it are free for the header of its first frame.
pub(super) fn finish_block(out: &mut Vec<u8>, start: usize, most: usize, stream: u32, ends: bool) {
    let ends = if ends { END_STREAM } else { 0 };
    let length = out.len().saturating_sub(start + HEADER);
    let first = FrameHeader {
        length: length.min(most),
        kind: HEADERS,
        flags: ends | if length <= most { END_HEADERS } else { 0 },
        stream,
    };
    first.write_at(out, start);
    if length <= most {
        return;
    }
    let rest = out.split_off(start + HEADER + most);
    let mut pieces = rest.chunks(most).peekable();
    while let Some(piece) = pieces.next() {
        let flags = match pieces.peek() {
            Some(_) => 0,
            None => END_HEADERS,
        };
        write(out, CONTINUATION, flags, stream, piece);
    }
}

/// A number of 32 bits at the beginning of `bytes`, without its first bit, which is reserved.
pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff)
}
