//! Reads the answer to an HTTP check: the status, and as much of the body as it takes to find a text in it.
//!
//! Called by [`super::CheckExchange`] with whatever came. It keeps the beginning of one line, and of the body its last
//! bytes, so that a server cannot make a check expensive. Laxer than a proxy may be: nothing of this answer goes to anybody.

use std::mem;

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size, parse_headers};
use memchr::memchr;

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
}

/// The part that is being parsed.
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
                let end = memchr(b'\n', bytes);
                let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                bytes = rest;
                self.head += piece.len();
                if self.head > MAX_HEAD {
                    return Some(Outcome::WrongAnswer("its head has no end"));
                }
                let room = MAX_LINE - self.line.len();
                self.line
                    .extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or(piece));
                // An endpoint that speaks another protocol is refused by its first bytes: it may never send a line end.
                if self.part == Part::StatusLine
                    && let Err(outcome) = self.status()
                {
                    return Some(outcome);
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
        if self.part == Part::StatusLine {
            return self.read_status();
        }
        let mut line = mem::take(&mut self.line);
        line.truncate(line.trim_ascii_end().len());
        let is_empty = line.is_empty();
        // Where a field or the size of a chunk ends is known by what follows it.
        line.extend_from_slice(b"\r\n\r\n");
        let outcome = match self.part {
            Part::Field if is_empty => self.read_head(),
            Part::Field => {
                self.read_field(&line);
                None
            }
            Part::ChunkSize => self.read_chunk_size(&line),
            Part::ChunkEnd | Part::Bytes(_) | Part::StatusLine => {
                self.part = Part::ChunkSize;
                None
            }
        };
        // The next line reuses the allocation.
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

    fn read_status(&mut self) -> Option<Outcome> {
        let Ok(Some(status)) = self.status() else {
            return Some(NOT_HTTP);
        };
        self.line.clear();
        self.status = status;
        self.framing = Framing::UntilClosed;
        self.part = Part::Field;
        None
    }

    fn read_field(&mut self, line: &[u8]) {
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
        match parse_chunk_size(line) {
            Ok(Status::Complete((_, size))) => self.expect_body(size),
            _ => Some(Outcome::WrongAnswer("its body is broken")),
        }
    }

    fn expect_body(&mut self, length: u64) -> Option<Outcome> {
        self.part = Part::Bytes(length);
        (length == 0).then_some(NOT_FOUND)
    }

    fn read_body(&mut self, body: &[u8], left: u64) -> Option<Outcome> {
        let search = self.search.as_mut()?;
        if search.found_in(body) {
            return Some(self.passed());
        }
        let closed = left == 0 && self.framing != Framing::Chunked;
        if closed || search.is_over() {
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

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const SWITCHING_PROTOCOLS: u16 = 101;
const NOT_HTTP: Outcome = Outcome::WrongAnswer("it does not speak HTTP/1");
const NOT_FOUND: Outcome = Outcome::WrongAnswer("its body lacks the text that is looked for");
/// All heads and chunk sizes together.
const MAX_HEAD: usize = 64 << 10;
/// Longer lines are none that matter here; their rest is skipped.
const MAX_LINE: usize = 256;
