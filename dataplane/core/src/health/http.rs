//! Parses the response to an HTTP check: the status, and as much of the body as is needed to find a text in it.
//!
//! [`super::Exchange`] passes it the bytes as they arrive. It keeps the beginning of one line and nothing else, so that a
//! server cannot make a check expensive. It is laxer than a proxy may be, because nothing of this response is forwarded.

use std::mem;

use crate::table::Health;

use super::Outcome;
use super::search::Search;

/// The state of the parser.
#[derive(Debug)]
pub(super) struct ResponseParser<'a> {
    health: &'a Health,
    part: Part,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// Bytes of all heads.
    head: usize,
    status: u16,
    framing: Framing,
    search: Option<Search<'a>>,
    /// Bytes of the body.
    body: usize,
}

/// The part that is being parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    StatusLine,
    Field,
    /// The remaining bytes of a body or of one chunk; `u64::MAX` if the body ends with the connection.
    Bytes(u64),
    ChunkSize,
    ChunkEnd,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    UntilClosed,
    Length(u64),
    Chunked,
}

impl<'a> ResponseParser<'a> {
    pub(super) fn new(health: &'a Health) -> Self {
        Self {
            health,
            part: Part::StatusLine,
            line: Vec::new(),
            head: 0,
            status: 0,
            framing: Framing::UntilClosed,
            search: health
                .body
                .as_ref()
                .map(|text| Search::new(text.as_bytes())),
            body: 0,
        }
    }

    /// Parses more bytes. Returns the outcome, as soon as it is known.
    pub(super) fn received(&mut self, mut bytes: &[u8]) -> Option<Outcome> {
        while !bytes.is_empty() {
            if let Part::Bytes(left) = self.part {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let (body, rest) = bytes.split_at(here);
                bytes = rest;
                if let Some(outcome) = self.read_body(body, left - here as u64) {
                    return Some(outcome);
                }
            } else {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                bytes = rest;
                self.head += piece.len();
                if self.head > MAX_HEAD {
                    return Some(Outcome::WrongAnswer("its head has no end"));
                }
                let room = MAX_LINE - self.line.len();
                self.line
                    .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or(piece));
                if self.part == Part::StatusLine && !may_be_http(&self.line) {
                    return Some(NOT_HTTP);
                }
                if end.is_some()
                    && let Some(outcome) = self.read_line()
                {
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// Called at the end of the connection.
    pub(super) fn closed(&self) -> Outcome {
        match (self.part, self.framing) {
            (Part::StatusLine, _) if self.head == 0 => {
                Outcome::WrongAnswer("it closed without an answer")
            }
            (Part::Bytes(_), Framing::UntilClosed) => NOT_FOUND,
            _ => Outcome::WrongAnswer("it closed in the middle of its answer"),
        }
    }

    fn read_line(&mut self) -> Option<Outcome> {
        let mut memory = mem::take(&mut self.line);
        let line = memory.trim_ascii_end();
        let outcome = match self.part {
            Part::StatusLine => self.read_status(line),
            Part::Field if line.is_empty() => self.read_head(),
            Part::Field => {
                self.read_field(line);
                None
            }
            Part::ChunkSize => self.read_chunk_size(line),
            Part::ChunkEnd | Part::Bytes(_) => {
                self.part = Part::ChunkSize;
                None
            }
        };
        // The next line reuses the allocation.
        memory.clear();
        self.line = memory;
        outcome
    }

    fn read_status(&mut self, line: &[u8]) -> Option<Outcome> {
        let digits = match line {
            [
                b'H',
                b'T',
                b'T',
                b'P',
                b'/',
                b'1',
                b'.',
                b'0' | b'1',
                b' ',
                a,
                b,
                c,
            ] => [*a, *b, *c],
            [
                b'H',
                b'T',
                b'T',
                b'P',
                b'/',
                b'1',
                b'.',
                b'0' | b'1',
                b' ',
                a,
                b,
                c,
                b' ',
                ..,
            ] => [*a, *b, *c],
            _ => return Some(NOT_HTTP),
        };
        let Some(status) = number(&digits, 10).and_then(|status| u16::try_from(status).ok()) else {
            return Some(NOT_HTTP);
        };
        self.status = status;
        self.framing = Framing::UntilClosed;
        self.part = Part::Field;
        None
    }

    fn read_field(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let last = value.rsplit(|byte| *byte == b',').next();
            if last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked")) {
                self.framing = Framing::Chunked;
            }
        } else if name.eq_ignore_ascii_case(b"content-length")
            && self.framing == Framing::UntilClosed
            && let Some(length) = number(value, 10)
        {
            self.framing = Framing::Length(length);
        }
    }

    fn read_head(&mut self) -> Option<Outcome> {
        // An interim response; the final one follows.
        if (100..200).contains(&self.status) && self.status != SWITCHING_PROTOCOLS {
            self.part = Part::StatusLine;
            return None;
        }
        if !self.health.expects(self.status) {
            return Some(Outcome::WrongStatus(self.status));
        }
        if self.search.is_none() {
            return Some(self.passed());
        }
        let bodyless = self.health.method() == "HEAD" || matches!(self.status, 101 | 204 | 304);
        match self.framing {
            _ if bodyless => Some(NOT_FOUND),
            Framing::UntilClosed => self.expect_body(u64::MAX),
            Framing::Length(length) => self.expect_body(length),
            Framing::Chunked => {
                self.part = Part::ChunkSize;
                None
            }
        }
    }

    fn read_chunk_size(&mut self, line: &[u8]) -> Option<Outcome> {
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        match number(digits.trim_ascii(), 16) {
            Some(size) => self.expect_body(size),
            None => Some(Outcome::WrongAnswer("its body is broken")),
        }
    }

    fn expect_body(&mut self, length: u64) -> Option<Outcome> {
        self.part = Part::Bytes(length);
        (length == 0).then_some(NOT_FOUND)
    }

    fn read_body(&mut self, body: &[u8], left: u64) -> Option<Outcome> {
        let room = MAX_BODY - self.body;
        let looked_at = body.get(..room).unwrap_or(body);
        self.body += looked_at.len();
        let search = self.search.as_mut()?;
        if search.found_in(looked_at) {
            return Some(self.passed());
        }
        let ended = left == 0 && self.framing != Framing::Chunked;
        if ended || self.body == MAX_BODY {
            return Some(NOT_FOUND);
        }
        self.part = match left {
            0 => Part::ChunkEnd,
            left => Part::Bytes(left),
        };
        None
    }

    fn passed(&self) -> Outcome {
        Outcome::Answered(Some(self.status))
    }
}

/// Whether a status line may begin like this. An endpoint of another protocol is recognised before it has sent a line end.
fn may_be_http(line: &[u8]) -> bool {
    let known = line.len().min(HTTP.len());
    line.get(..known) == HTTP.get(..known)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let plain = !digits.is_empty() && digits.iter().all(|byte| char::from(*byte).is_digit(radix));
    let text = std::str::from_utf8(digits).ok().filter(|_| plain)?;
    u64::from_str_radix(text, radix).ok()
}

const HTTP: &[u8] = b"HTTP/1.";
const SWITCHING_PROTOCOLS: u16 = 101;
const NOT_HTTP: Outcome = Outcome::WrongAnswer("it does not speak HTTP/1");
const NOT_FOUND: Outcome = Outcome::WrongAnswer("its body lacks the text that is looked for");
/// As stated in the table's reference.
const MAX_BODY: usize = 64 << 10;
/// The most bytes of all heads and chunk sizes.
const MAX_HEAD: usize = 64 << 10;
/// Longer lines do not matter here; their rest is skipped.
const MAX_LINE: usize = 256;
