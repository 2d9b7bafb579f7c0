//! Where a body ends, and which of its bytes are data.

use crate::http::{Field, Framing};

use super::write::Relayed;
use super::{Limits, is_token};

/// The most bytes of the extensions of one chunk.
const LONGEST_EXTENSIONS: u16 = 256;
/// The most digits of a chunk's size.
const MOST_DIGITS: u8 = 16;
/// The largest size of a chunk: what a reader with signed numbers can hold.
const LARGEST_CHUNK: u64 = u64::MAX >> 1;

/// Follows one body through its bytes, which may come in pieces of any size.
///
/// A body may be forwarded unchanged: everything in it is checked, chunk extensions (at most 256 visible characters for a
/// chunk) and trailers included. Or [`Body::pieces`] takes the chunks apart.
#[derive(Clone, Debug)]
pub struct Body {
    state: State,
    /// How many bytes and fields the trailers may still have.
    limits: Limits,
}

/// The result of [`Body::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The number of bytes that belong to the body. All bytes, unless the body is complete.
    pub used: usize,
    /// Whether the body ends with these bytes.
    pub is_complete: bool,
}

/// The error of a malformed body. The end of the body is not known, so the connection must be closed. All later calls return the
/// error again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed body: {reason}")]
pub struct BodyError {
    /// The name of the reason, for logs.
    pub reason: &'static str,
}

/// A piece of the content of a body, without the sizes and line ends of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    Data(&'b [u8]),
    /// Bytes of the trailer section, the empty line at its end included. All of them together are for [`parse_trailers()`].
    Trailers(&'b [u8]),
}

/// The state of the parser: each variant names the part of the body that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: the body is complete.
    Complete,
    /// This number of bytes of data, and then the body is complete.
    Length(u64),
    /// Data until the connection is closed.
    UntilClose,
    /// A digit of a chunk's size; after the first digit also the `;` or CR that ends the size.
    Size { size: u64, digits: u8 },
    /// A byte of the extensions of a chunk, or the CR that ends them. `length` counts those before it.
    Extensions { size: u64, length: u16 },
    /// The LF that ends the line of a chunk's size.
    SizeEnd { size: u64 },
    /// This number of bytes of a chunk's data.
    Data(u64),
    /// The CR after the data of a chunk.
    DataCr,
    /// The LF after the data of a chunk.
    DataLf,
    /// The first byte of a trailer, or the CR of the empty line that ends the trailer section.
    TrailerStart,
    /// A byte of a trailer's name, or the colon after it.
    TrailerName,
    /// A byte of a trailer's value, or the CR after it.
    TrailerValue,
    /// The LF that ends a trailer.
    TrailerLf,
    /// The LF of the empty line that ends the trailer section.
    LastLf,
    /// Nothing: an earlier byte was wrong.
    Malformed(BodyError),
}

impl Body {
    /// A body of which no byte has been seen yet. `limits` are those of its trailers.
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Complete,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        let limits = *limits;
        Self { state, limits }
    }

    /// Whether every byte of the body has been seen.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether the body is whole if the connection is closed here.
    pub fn may_close(&self) -> bool {
        matches!(self.state, State::Complete | State::UntilClose)
    }

    /// The number of next bytes that are certainly data, so that they need not be parsed; `None` if the next byte may be part of
    /// the framing. The number is [`u64::MAX`] where the end of the connection ends the body.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) | State::Data(left) => Some(left),
            State::UntilClose => Some(u64::MAX),
            _ => None,
        }
    }

    /// Notes that `count` bytes were forwarded without being parsed: at most [`remaining`](Self::remaining).
    pub fn pass(&mut self, count: u64) {
        debug_assert!(self.remaining().is_some_and(|most| count <= most));
        match self.state {
            State::Length(left) if left <= count => self.state = State::Complete,
            State::Length(left) => self.state = State::Length(left - count),
            State::Data(left) if left <= count => self.state = State::DataCr,
            State::Data(left) => self.state = State::Data(left - count),
            _ => {}
        }
    }

    /// Follows the body through `bytes`, which begin where those of the call before ended.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Decoded, BodyError> {
        let mut used = 0;
        while let Some((length, _)) = self.step(&bytes[used..])? {
            used += length;
        }
        let is_complete = self.is_complete();
        Ok(Decoded { used, is_complete })
    }

    /// Like [`decode`](Self::decode), but takes the body apart.
    pub fn pieces<'s, 'b>(&'s mut self, bytes: &'b [u8]) -> Pieces<'s, 'b> {
        Pieces {
            body: self,
            bytes,
            used: 0,
        }
    }

    /// Like [`decode`](Self::decode), and appends the bytes of the trailer section to `trailers`. The bytes before that section count
    /// as forwarded.
    pub(super) fn trailers_in(
        &mut self,
        bytes: &[u8],
        trailers: &mut Vec<u8>,
    ) -> Result<Relayed, BodyError> {
        let (mut used, mut forwarded) = (0, None);
        while let Some((length, part)) = self.step(&bytes[used..])? {
            if part == Part::Trailers {
                forwarded.get_or_insert(used);
                trailers.extend_from_slice(&bytes[used..used + length]);
            }
            used += length;
        }
        let forwarded = forwarded.unwrap_or(used);
        Ok(Relayed { used, forwarded })
    }

    /// Follows the body through bytes of one part. Returns their number, which is not 0, and the part that they belong to.
    /// Returns `None` if no byte is left, or the body is complete.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<(usize, Part)>, BodyError> {
        if let State::Malformed(error) = self.state {
            return Err(error);
        }
        if bytes.is_empty() || self.is_complete() {
            return Ok(None);
        }
        if let Some(remaining) = self.remaining() {
            let count = remaining.min(bytes.len() as u64);
            self.pass(count);
            // It is not larger than the length of `bytes`.
            let count = usize::try_from(count).unwrap_or(bytes.len());
            return Ok(Some((count, Part::Data)));
        }
        let part = self.part();
        let mut used = 0;
        for &byte in bytes {
            if part == Part::Trailers {
                self.count_trailer_byte()?;
            }
            self.state = match self.after(byte) {
                Ok(state) => state,
                Err(reason) => return Err(self.fail(reason)),
            };
            used += 1;
            if self.part() != part {
                break;
            }
        }
        Ok(Some((used, part)))
    }

    fn part(&self) -> Part {
        match self.state {
            State::Length(_) | State::Data(_) | State::UntilClose => Part::Data,
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::LastLf => Part::Trailers,
            State::Size { .. }
            | State::Extensions { .. }
            | State::SizeEnd { .. }
            | State::DataCr
            | State::DataLf => Part::Chunk,
            State::Complete | State::Malformed(_) => Part::None,
        }
    }

    fn count_trailer_byte(&mut self) -> Result<(), BodyError> {
        match self.limits.bytes.checked_sub(1) {
            Some(left) => self.limits.bytes = left,
            None => return Err(self.fail("trailers-too-large")),
        }
        Ok(())
    }

    fn fail(&mut self, reason: &'static str) -> BodyError {
        let error = BodyError { reason };
        self.state = State::Malformed(error);
        error
    }

    /// The state after a byte that is not data.
    fn after(&mut self, byte: u8) -> Result<State, &'static str> {
        Ok(match (self.state, byte) {
            (State::Size { size, digits: 1.. }, b'\r') => State::SizeEnd { size },
            (State::Size { size, digits: 1.. }, b';') => State::Extensions { size, length: 1 },
            (State::Size { size, digits }, _) => after_digit(size, digits, byte)?,
            (State::Extensions { size, .. }, b'\r') => State::SizeEnd { size },
            (State::Extensions { length, .. }, _) if length == LONGEST_EXTENSIONS => {
                return Err("chunk-extensions-too-long");
            }
            (State::Extensions { size, length }, b'\t' | b' '..=b'~') => State::Extensions {
                size,
                length: length + 1,
            },
            (State::Extensions { .. }, _) => return Err("chunk-extensions"),
            (State::SizeEnd { size: 0 }, b'\n') => State::TrailerStart,
            (State::SizeEnd { size }, b'\n') => State::Data(size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::SizeEnd { .. } | State::DataCr | State::DataLf, _) => {
                return Err("chunk-line-end");
            }
            (State::TrailerStart, b'\r') => State::LastLf,
            (State::TrailerStart, _) if is_token(byte) => match self.limits.fields.checked_sub(1) {
                Some(left) => {
                    self.limits.fields = left;
                    State::TrailerName
                }
                None => return Err("too-many-trailers"),
            },
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerName, _) if is_token(byte) => State::TrailerName,
            (State::TrailerStart | State::TrailerName, _) => return Err("trailer-name"),
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => State::TrailerValue,
            (State::TrailerValue, _) => return Err("trailer-value"),
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::LastLf, b'\n') => State::Complete,
            (State::TrailerLf | State::LastLf, _) => return Err("trailer-line-end"),
            (state @ (State::Complete | State::Malformed(_)), _) => state,
            (state @ (State::Length(_) | State::Data(_) | State::UntilClose), _) => state,
        })
    }
}

fn after_digit(size: u64, digits: u8, byte: u8) -> Result<State, &'static str> {
    let Some(digit) = char::from(byte).to_digit(16) else {
        return Err("chunk-size");
    };
    if digits == MOST_DIGITS || size > LARGEST_CHUNK >> 4 {
        return Err("chunk-size-too-large");
    }
    Ok(State::Size {
        size: (size << 4) | u64::from(digit),
        digits: digits + 1,
    })
}

/// The part of a body that a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Data,
    /// The size and extensions of a chunk, and the line end behind its data.
    Chunk,
    Trailers,
}

/// The pieces of a body in some of its bytes: made by [`Body::pieces`].
///
/// All of them must be taken before the body goes on: bytes behind the last piece that was taken have not been looked at.
#[derive(Debug)]
pub struct Pieces<'s, 'b> {
    body: &'s mut Body,
    bytes: &'b [u8],
    used: usize,
}

impl Pieces<'_, '_> {
    /// The number of bytes that belong to the body, up to the last piece that was taken.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl<'b> Iterator for Pieces<'_, 'b> {
    type Item = Result<Piece<'b>, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = &self.bytes[self.used..];
            let (length, part) = match self.body.step(rest) {
                Ok(step) => step?,
                Err(error) => return Some(Err(error)),
            };
            self.used += length;
            let piece = &rest[..length];
            match part {
                Part::Data => return Some(Ok(Piece::Data(piece))),
                Part::Trailers => return Some(Ok(Piece::Trailers(piece))),
                Part::Chunk | Part::None => {}
            }
        }
    }
}

/// Parses the trailer section of a body from all its [`Piece::Trailers`]. Returns `None` if they are not all there, or if there
/// are more trailers than a body with the default [`Limits`] may have.
#[must_use]
pub fn parse_trailers(bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = vec![httparse::EMPTY_HEADER; Limits::default().fields];
    match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete((_, trailers))) => Some(trailers.to_vec()),
        _ => None,
    }
}
