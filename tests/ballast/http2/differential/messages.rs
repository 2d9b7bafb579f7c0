//! Bodies of HTTP/2 and responses of HTTP/1, of any shape.

use std::collections::VecDeque;
use std::fmt;

use ballast_core::rng::Rng;

use support::crowd::below;
use support::raw::{CANCEL, Fields, Raw};

/// A body as it is sent by HTTP/2.
#[derive(Clone)]
pub(super) struct Body {
    /// Each with its padding.
    pub(super) pieces: Vec<(Vec<u8>, Option<u8>)>,
    pub(super) end: End,
    pub(super) trailers: Fields,
    /// The value of `content-length`.
    pub(super) declared: Option<usize>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pieces = self.pieces.iter();
        let sizes: Vec<_> = pieces
            .map(|(bytes, padding)| (bytes.len(), padding))
            .collect();
        f.debug_struct("Body")
            .field("pieces", &sizes)
            .field("end", &self.end)
            .field("trailers", &self.trailers)
            .field("declared", &self.declared)
            .finish()
    }
}

/// The last frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its head: there is no body.
    Head,
    /// The last piece.
    Piece,
    /// A piece without bytes.
    Empty,
    Trailers,
    Reset,
    /// The last piece, before there were as many bytes as was declared.
    Short,
}

impl Body {
    pub(super) fn any(rng: &mut Rng) -> Self {
        let end = [
            End::Head,
            End::Piece,
            End::Empty,
            End::Empty,
            End::Trailers,
            End::Reset,
            End::Short,
        ][below(rng, 7)];
        let least = usize::from(matches!(end, End::Piece | End::Short));
        let count = match end {
            End::Head => 0,
            _ => least + below(rng, 6),
        };
        let pieces: Vec<_> = (0..count)
            .map(|_| (any_bytes(rng), any_padding(rng)))
            .collect();
        let trailers = match end {
            End::Trailers => any_trailers(rng),
            _ => Fields::new(),
        };
        let mut body = Self {
            pieces,
            end,
            trailers,
            declared: None,
        };
        let length = body.bytes().len();
        let declares = end == End::Short || rng.below(3) == 0;
        let missing = if body.is_whole() {
            0
        } else {
            1 + below(rng, 100)
        };
        body.declared = declares.then_some(length + missing);
        body
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let pieces = self.pieces.iter();
        pieces.flat_map(|(bytes, _)| bytes.clone()).collect()
    }

    /// Whether the other side may take it for a message.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self.end, End::Reset | End::Short)
    }

    pub(super) fn add_length(&self, fields: &mut Vec<(&'static str, String)>) {
        fields.extend(
            self.declared
                .map(|length| ("content-length", length.to_string())),
        );
    }

    /// The frames behind the head.
    pub(super) fn frames(&self, rng: &mut Rng) -> VecDeque<Frame> {
        let last = self.pieces.len().saturating_sub(1);
        let ends_with_piece = matches!(self.end, End::Piece | End::Short);
        let mut frames: VecDeque<_> = self
            .pieces
            .iter()
            .enumerate()
            .map(|(at, (bytes, padding))| {
                Frame::Data(bytes.clone(), *padding, ends_with_piece && at == last)
            })
            .collect();
        match self.end {
            End::Empty => frames.push_back(Frame::Data(Vec::new(), any_padding(rng), true)),
            End::Trailers => frames.push_back(Frame::Trailers(self.trailers.clone())),
            End::Reset => frames.push_back(Frame::Reset),
            End::Head | End::Piece | End::Short => {}
        }
        frames
    }
}

#[derive(Debug)]
pub(super) enum Frame {
    Data(Vec<u8>, Option<u8>, bool),
    Trailers(Fields),
    Reset,
}

impl Frame {
    pub(super) fn send(self, raw: &mut Raw, stream: u32) {
        match self {
            Self::Data(bytes, padding, ends) => {
                let padded = padding.map_or(0, |padding| 1 + usize::from(padding));
                raw.until_room(stream, bytes.len() + padded);
                match padding {
                    Some(padding) => raw.padded(stream, &bytes, padding, ends),
                    None => raw.data(stream, &bytes, ends),
                }
            }
            Self::Trailers(trailers) => raw.head(stream, &trailers, true),
            Self::Reset => raw.reset(stream, CANCEL),
        }
    }
}

pub(super) fn any_bytes(rng: &mut Rng) -> Vec<u8> {
    let most = [1, 2, 40, 300, 5_000, 16_000][below(rng, 6)];
    let length = match rng.below(10) {
        0 => 0,
        _ => 1 + below(rng, most),
    };
    let mut bytes: Vec<u8> = (0..length)
        .map(|_| rng.next_u64().to_le_bytes()[0])
        .collect();
    // As the marks of chunks are.
    for mark in [&b"\r\n0\r\n\r\n"[..], b"0\r\n\r\n"] {
        if rng.below(4) == 0 && mark.len() <= bytes.len() {
            let at = below(rng, bytes.len() - mark.len() + 1);
            bytes[at..at + mark.len()].copy_from_slice(mark);
        }
    }
    bytes
}

pub(super) fn any_padding(rng: &mut Rng) -> Option<u8> {
    let padding = [0, 1, 9, 255][below(rng, 4)];
    (rng.below(3) == 0).then_some(padding)
}

pub(super) fn any_trailers(rng: &mut Rng) -> Fields {
    let count = 1 + below(rng, 3);
    (0..count)
        .map(|at| {
            (
                format!("x-trailer-{at}"),
                format!("value {}", rng.below(1_000)),
            )
        })
        .collect()
}

pub(super) fn lower(fields: &[(String, String)]) -> Fields {
    let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
    fields.iter().map(lower).collect()
}

/// What an endpoint of HTTP/1 answers to the request of this number.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Fields,
    pub(super) has_interim: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length,
    Chunks,
    Close,
}

/// The randomness of the answer to the request whose number is at the end of this path.
pub(super) fn rng_of(seed: u64, path: &str) -> Rng {
    let number = path.rsplit('/').next();
    let number: u64 = number.and_then(|number| number.parse().ok()).unwrap_or(0);
    Rng::new(seed ^ number << 20)
}

impl Reply {
    pub(super) fn to(seed: u64, path: &str, most: usize) -> Self {
        let mut rng = rng_of(seed, path);
        let framing = [Framing::Length, Framing::Chunks, Framing::Close][below(&mut rng, 3)];
        let status = [200, 200, 404, 204, 304][below(&mut rng, 5)];
        let mut body = any_bytes(&mut rng);
        body.truncate(most);
        if matches!(status, 204 | 304) {
            body.clear();
        }
        let has_trailers =
            framing == Framing::Chunks && !matches!(status, 204 | 304) && rng.below(2) == 0;
        Self {
            status,
            framing,
            body,
            trailers: if has_trailers {
                any_trailers(&mut rng)
            } else {
                Fields::new()
            },
            has_interim: rng.below(4) == 0,
        }
    }

    pub(super) fn bytes(&self, is_head: bool, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.has_interim {
            bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        }
        let has_body = !is_head && !matches!(self.status, 204 | 304);
        let framing = match self.framing {
            Framing::Close => "Connection: close\r\n".into(),
            _ if matches!(self.status, 204 | 304) => String::new(),
            Framing::Length => format!("Content-Length: {}\r\n", self.body.len()),
            Framing::Chunks => "Transfer-Encoding: chunked\r\n".into(),
        };
        bytes.extend_from_slice(format!("HTTP/1.1 {} X\r\n{framing}\r\n", self.status).as_bytes());
        match self.framing {
            _ if !has_body => {}
            Framing::Length | Framing::Close => bytes.extend_from_slice(&self.body),
            Framing::Chunks => {
                let mut rest = self.body.as_slice();
                while !rest.is_empty() {
                    let (chunk, later) = rest.split_at(1 + below(rng, rest.len()));
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                    rest = later;
                }
                bytes.extend_from_slice(b"0\r\n");
                for (name, value) in &self.trailers {
                    bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes
    }
}
