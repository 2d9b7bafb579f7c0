//! The HTTP/2 of client and origin (RFC 9113 and 7541), no more of it than they need: whole frames out of bytes, and header blocks
//! that are encoded beforehand. Nobody decodes a block: the client looks at its first field, the status, and the origin at nothing.

use std::io::{self, Read, Write};

use crate::http;

/// One frame, whole.
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Whether its sender sends nothing more in this stream.
    #[inline]
    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// Whether it begins a response of status 200.
    pub(crate) fn has_status_200(&self) -> bool {
        let mut block = self.payload.iter().copied().peekable();
        // A new size of the table may come first, of which later bytes have the highest bit but for the last.
        if block
            .next_if(|byte| byte >> 5 == 1)
            .is_some_and(|byte| byte == 0x3f)
        {
            while block.next().is_some_and(|byte| byte & 0x80 != 0) {}
        }
        self.kind == HEADERS
            && self.flags & (PADDED | PRIORITY) == 0
            && block.next() == Some(STATUS_200)
    }

    /// The number that is all that a WINDOW_UPDATE holds.
    pub(crate) fn increment(&self) -> u32 {
        self.payload
            .first_chunk()
            .copied()
            .map(u32::from_be_bytes)
            .unwrap_or_default()
    }

    /// What a SETTINGS says about the largest dynamic table, if anything.
    pub(crate) fn table_size(&self) -> Option<u32> {
        let settings = self.payload.chunks_exact(6);
        let value = |setting: &[u8]| match setting {
            [0, HEADER_TABLE_SIZE, value @ ..] => value.try_into().ok().map(u32::from_be_bytes),
            _ => None,
        };
        settings.filter_map(value).next_back()
    }
}

/// Received bytes on their way to become frames.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; INBOX];
        Self {
            bytes,
            start: 0,
            end: 0,
        }
    }

    /// Where to receive next: more than the longest frame, if no whole frame is left in it.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.end < PIECE {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were received there.
    #[inline]
    pub(crate) fn fill(&mut self, length: usize) {
        self.end += length;
    }

    /// The next frame that is whole.
    #[inline]
    pub(crate) fn frame(&mut self) -> Option<Frame<'_>> {
        let held = &self.bytes[self.start..self.end];
        let (head, rest) = held.split_first_chunk::<HEAD>()?;
        let [first, second, third, kind, flags, stream @ ..] = *head;
        let payload = rest.get(..u32::from_be_bytes([0, first, second, third]) as usize)?;
        self.start += HEAD + payload.len();
        let stream = u32::from_be_bytes(stream);
        Some(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }
}

/// A header block in three encodings.
pub(crate) struct Block {
    /// Without the dynamic table.
    pub(crate) plain: Vec<u8>,
    /// The first one of a connection, which fills the table.
    pub(crate) first: Vec<u8>,
    /// Each later one, which refers to the table.
    pub(crate) later: Vec<u8>,
}

impl Block {
    /// `fixed` is encoded already. `newer`: how many fields of other blocks are put into the same table behind these.
    pub(crate) fn new(fixed: &[u8], fields: &[(&str, &str)], newer: usize) -> Self {
        let [mut plain, mut first, mut later] = [fixed; 3].map(<[u8]>::to_vec);
        for (place, (name, value)) in fields.iter().enumerate() {
            put_literal(&mut plain, NOT_INDEXED, name, value);
            put_literal(&mut first, INDEXED, name, value);
            let age = newer + fields.len() - 1 - place;
            later.extend(u8::try_from(age).map(|age| FIRST_DYNAMIC + age));
        }
        Self {
            plain,
            first,
            later,
        }
    }
}

/// Appends a frame.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default();
    let [_, length @ ..] = length.to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends the answers that everybody owes to this frame: to settings and pings.
#[inline]
pub(crate) fn put_acknowledgement(out: &mut Vec<u8>, frame: &Frame<'_>) {
    match frame.kind {
        SETTINGS if frame.flags & ACK == 0 => put(out, SETTINGS, ACK, 0, &[]),
        PING if frame.flags & ACK == 0 => put(out, PING, ACK, 0, frame.payload),
        _ => {}
    }
}

/// Appends a WINDOW_UPDATE.
pub(crate) fn put_window(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    put(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// The small request of [`http::ask`] as the first one of a connection, and its answer.
pub(crate) fn ask(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let fixed = [&[METHOD_GET, SCHEME_HTTP], PATH_OF_ITEM].concat();
    let block = Block::new(&fixed, &[(":authority", http::HOST)], 0);
    let mut out = PREFACE.to_vec();
    put(&mut out, SETTINGS, 0, 0, &[]);
    put(&mut out, HEADERS, END_STREAM | END_HEADERS, 1, &block.plain);
    stream.write_all(&out)?;
    let mut inbox = Inbox::new();
    let mut is_good = false;
    loop {
        let length = stream.read(inbox.space())?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        inbox.fill(length);
        out.clear();
        let mut is_over = false;
        while let Some(frame) = inbox.frame() {
            put_acknowledgement(&mut out, &frame);
            is_good |= frame.has_status_200();
            is_over |= frame.ends_stream() || matches!(frame.kind, RST_STREAM | GOAWAY);
        }
        stream.write_all(&out)?;
        match (is_over, is_good) {
            (false, _) => {}
            (true, true) => return Ok(()),
            (true, false) => return Err(io::Error::other("HTTP/2: the request failed")),
        }
    }
}

fn put_literal(out: &mut Vec<u8>, kind: u8, name: &str, value: &str) {
    out.push(kind);
    for text in [name, value] {
        debug_assert!(text.len() < 0x7f, "longer ones take a longer number");
        out.extend(u8::try_from(text.len()));
        out.extend_from_slice(text.as_bytes());
    }
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const ACK: u8 = 0x01;
pub(crate) const END_STREAM: u8 = 0x01;
pub(crate) const END_HEADERS: u8 = 0x04;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

/// The settings that are said or heard here, by the second byte of their number; the first is 0.
pub(crate) const HEADER_TABLE_SIZE: u8 = 1;
pub(crate) const ENABLE_PUSH: u8 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u8 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u8 = 4;
/// What the window of a connection, and the dynamic table, are before anybody says something else.
pub(crate) const FIRST_WINDOW: u32 = 65_535;
pub(crate) const FIRST_TABLE: u32 = 4_096;

/// Fields of HPACK's static table, and the path `/svc/item` as browsers encode it: in Huffman's code, and not for the table.
pub(crate) const METHOD_GET: u8 = 0x82;
pub(crate) const METHOD_POST: u8 = 0x83;
pub(crate) const SCHEME_HTTP: u8 = 0x86;
pub(crate) const SCHEME_HTTPS: u8 = 0x87;
pub(crate) const STATUS_200: u8 = 0x88;
pub(crate) const PATH_OF_ITEM: &[u8] = &[0x04, 0x87, 0x61, 0x1d, 0xc8, 0xc1, 0x92, 0x5a, 0x7f];
/// The same of `/svc/endless`.
pub(crate) const PATH_OF_ENDLESS: &[u8] = &[
    0x04, 0x89, 0x61, 0x1d, 0xc8, 0xc1, 0x6a, 0x92, 0x82, 0xa1, 0x1f,
];
/// Before the first block of a connection whose peer allows no table.
pub(crate) const NO_TABLE: u8 = 0x20;
const INDEXED: u8 = 0x40;
const NOT_INDEXED: u8 = 0x00;
/// The newest entry of the dynamic table.
const FIRST_DYNAMIC: u8 = 0x80 | 62;

/// Of a frame.
const HEAD: usize = 9;
const INBOX: usize = 128 * 1024;
/// More than the longest frame, and the least that is received at once.
const PIECE: usize = 32 * 1024;
