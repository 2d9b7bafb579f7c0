//! Reads the answer to an HTTP check: the status, and as much of the body as it takes to find a text in it.
//!
//! Called by [`super::Exchange`] with whatever came. It keeps the beginning of one line, and of the body its last
//! bytes, so that a server cannot make a check expensive. Laxer than a proxy may be: nothing of this answer goes to anybody.

use std::mem;

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size, parse_headers};
use memchr::memchr;

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
                let end = memchr(b'\n', bytes);
                let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                bytes = rest;
                self.head += piece.len();
                if self.head > MOST_HEAD {
                    return Some(Outcome::WrongAnswer("its head has no end"));
                }
                let room = LONGEST_LINE - self.line.len();
                self.line
                    .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or(piece));
                // Whoever speaks something else is found out even if no line end ever comes.
                if self.part == Part::StatusLine
                    && let Err(outcome) = self.status()
                {
                    return Some(outcome);
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
        if self.part == Part::StatusLine {
            return self.heard_status();
        }
        let mut line = mem::take(&mut self.line);
        line.truncate(line.trim_ascii_end().len());
        let is_empty = line.is_empty();
        // Where a field or the size of a chunk ends is known by what follows it.
        line.extend_from_slice(b"\r\n\r\n");
        let outcome = match self.part {
            Part::Field if is_empty => self.heard_head(),
            Part::Field => {
                self.heard_field(&line);
                None
            }
            Part::ChunkSize => self.heard_chunk_size(&line),
            Part::ChunkEnd | Part::Bytes(_) | Part::StatusLine => {
                self.part = Part::ChunkSize;
                None
            }
        };
        // The next line goes into the same memory.
        line.clear();
        self.line = line;
        outcome
    }

    /// The status in the status line, which may be incomplete. An error as soon as the line cannot be one.
    fn status(&self) -> Result<Option<u16>, Outcome> {
        let mut response = Response::new(&mut []);
        response.parse(&self.line).map_err(|_| NOT_HTTP)?;
        Ok(response.code)
    }

    fn heard_status(&mut self) -> Option<Outcome> {
        let Ok(Some(status)) = self.status() else {
            return Some(NOT_HTTP);
        };
        self.line.clear();
        self.status = status;
        self.framing = Framing::UntilClosed;
        self.part = Part::Field;
        None
    }

    fn heard_field(&mut self, line: &[u8]) {
        let mut fields = [EMPTY_HEADER];
        let Ok(Status::Complete((_, [field]))) = parse_headers(line, &mut fields) else {
            return;
        };
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            let last = field.value.rsplit(|byte| *byte == b',').next();
            if last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case(b"chunked")) {
                self.framing = Framing::Chunked;
            }
        } else if field.name.eq_ignore_ascii_case("content-length")
            && self.framing == Framing::UntilClosed
            && let Some(length) = number(field.value)
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
        match parse_chunk_size(line) {
            Ok(Status::Complete((_, size))) => self.expect_body(size),
            _ => Some(Outcome::WrongAnswer("its body is broken")),
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

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const SWITCHING: u16 = 101;
const NOT_HTTP: Outcome = Outcome::WrongAnswer("it does not speak HTTP/1");
const NOT_FOUND: Outcome = Outcome::WrongAnswer("its body lacks the text that is looked for");
/// As the table's reference has it.
const MOST_BODY: usize = 64 << 10;
/// All heads and chunk sizes together.
const MOST_HEAD: usize = 64 << 10;
/// Longer lines are none that matter here; their rest is skipped.
const LONGEST_LINE: usize = 256;
