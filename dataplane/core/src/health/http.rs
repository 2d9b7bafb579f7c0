//! Reads the answer to an HTTP check: the status, and as much of the body as it takes to find a text in it.
//!
//! Called by [`super::Exchange`] with whatever came. It keeps the beginning of one line and nothing else, so that a
//! server cannot make a check expensive. Laxer than a proxy may be: nothing of this answer goes to anybody.

use std::mem;

use crate::table::Health;

use super::Outcome;
use super::search::Search;

/// The answer so far.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    health: &'a Health,
    part: Part,
    /// The beginning of the line that is being read.
    line: Vec<u8>,
    /// Bytes of heads.
    head: usize,
    status: u16,
    framing: Framing,
    search: Option<Search<'a>>,
    /// Bytes of the body.
    body: usize,
}

/// What is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    StatusLine,
    Field,
    /// The rest of a body without an end, or of a known length, or of one chunk.
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

impl<'a> Answer<'a> {
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

    /// Takes in more of it. The verdict, as soon as there can be one.
    pub(super) fn heard(&mut self, mut bytes: &[u8]) -> Option<Outcome> {
        while !bytes.is_empty() {
            if let Part::Bytes(left) = self.part {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                let (body, rest) = bytes.split_at(here);
                bytes = rest;
                if let Some(outcome) = self.heard_body(body, left - here as u64) {
                    return Some(outcome);
                }
            } else {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                bytes = rest;
                self.head += piece.len();
                if self.head > MOST_HEAD {
                    return Some(Outcome::WrongAnswer("its head has no end"));
                }
                let room = LONGEST_LINE - self.line.len();
                self.line
                    .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or(piece));
                if self.part == Part::StatusLine && !may_be_http(&self.line) {
                    return Some(NOT_HTTP);
                }
                if end.is_some()
                    && let Some(outcome) = self.heard_line()
                {
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// Nothing more will come.
    pub(super) fn ended(&self) -> Outcome {
        match (self.part, self.framing) {
            (Part::StatusLine, _) if self.head == 0 => {
                Outcome::WrongAnswer("it closed without an answer")
            }
            (Part::Bytes(_), Framing::UntilClosed) => NOT_FOUND,
            _ => Outcome::WrongAnswer("it closed in the middle of its answer"),
        }
    }

    fn heard_line(&mut self) -> Option<Outcome> {
        let mut memory = mem::take(&mut self.line);
        let line = memory.trim_ascii_end();
        let outcome = match self.part {
            Part::StatusLine => self.heard_status(line),
            Part::Field if line.is_empty() => self.heard_head(),
            Part::Field => {
                self.heard_field(line);
                None
            }
            Part::ChunkSize => self.heard_chunk_size(line),
            Part::ChunkEnd | Part::Bytes(_) => {
                self.part = Part::ChunkSize;
                None
            }
        };
        // The next line goes into the same memory.
        memory.clear();
        self.line = memory;
        outcome
    }

    fn heard_status(&mut self, line: &[u8]) -> Option<Outcome> {
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

    fn heard_field(&mut self, line: &[u8]) {
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

    fn heard_head(&mut self) -> Option<Outcome> {
        // The answer itself comes after these.
        if (100..200).contains(&self.status) && self.status != SWITCHING {
            self.part = Part::StatusLine;
            return None;
        }
        if !self.health.expects(self.status) {
            return Some(Outcome::WrongStatus(self.status));
        }
        if self.search.is_none() {
            return Some(self.well());
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

    fn heard_chunk_size(&mut self, line: &[u8]) -> Option<Outcome> {
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

    fn heard_body(&mut self, body: &[u8], left: u64) -> Option<Outcome> {
        let room = MOST_BODY - self.body;
        let looked_at = body.get(..room).unwrap_or(body);
        self.body += looked_at.len();
        let search = self.search.as_mut()?;
        if search.found_in(looked_at) {
            return Some(self.well());
        }
        let ended = left == 0 && self.framing != Framing::Chunked;
        if ended || self.body == MOST_BODY {
            return Some(NOT_FOUND);
        }
        self.part = match left {
            0 => Part::ChunkEnd,
            left => Part::Bytes(left),
        };
        None
    }

    fn well(&self) -> Outcome {
        Outcome::Answered(Some(self.status))
    }
}

/// Whether a status line may begin so: who speaks something else should be found out before it has sent a line end.
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
const SWITCHING: u16 = 101;
const NOT_HTTP: Outcome = Outcome::WrongAnswer("it does not speak HTTP/1");
const NOT_FOUND: Outcome = Outcome::WrongAnswer("its body lacks the text that is looked for");
/// As the table's reference has it.
const MOST_BODY: usize = 64 << 10;
/// All heads and chunk sizes together.
const MOST_HEAD: usize = 64 << 10;
/// Longer lines are none that matter here; their rest is skipped.
const LONGEST_LINE: usize = 256;
