//! One side of an exchange: a client or an endpoint, of either version of HTTP, and the frames of the bodies that come from it and
//! go to it.

use std::task::{Context, Poll, ready};

use ballast_core::forward::{self, ToClient};
use ballast_core::http::{Field, Version};
use ballast_core::http2::{ErrorCode, Fields, Head, Reset};

mod h1;
mod h2;

pub(super) use h1::H1;
pub(super) use h2::{H2, Share};

/// A piece of a body.
#[derive(Debug)]
pub(super) enum Frame<'f> {
    /// Bytes; `is_last`: nothing follows them.
    Data { bytes: &'f [u8], is_last: bool },
    /// Fields behind the body, which end it.
    Trailers(Vec<Field<'f>>),
    /// The end of the body.
    End,
}

/// Why a side cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Its connection has ended.
    Left,
    /// It does not keep to HTTP.
    Malformed,
    /// It has reset the stream.
    Reset(ErrorCode),
    /// It has refused the request, and has certainly done nothing about it.
    Refused,
}

impl From<Reset> for Broken {
    fn from(reset: Reset) -> Self {
        match reset {
            Reset::ByPeer(code) => Self::Reset(code),
            Reset::Refused => Self::Refused,
            Reset::Malformed => Self::Malformed,
            Reset::Connection => Self::Left,
        }
    }
}

/// A client, or an endpoint.
pub(super) enum HttpSide<'a> {
    H1(H1<'a>),
    H2(H2),
}

pub(super) enum Answered {
    /// More bytes of HTTP/1 have arrived.
    Bytes,
    /// The head of a response of HTTP/2.
    Head(Head),
}

impl HttpSide<'_> {
    /// The next piece of the body that comes from here, with at most `most` bytes. It must be [passed](Self::passed) on.
    pub(super) fn poll_frame(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame<'_>, Broken>> {
        match self {
            Self::H1(side) => side.poll_frame(most, cx),
            Self::H2(side) => side.poll_frame(most, cx),
        }
    }

    /// Whether the head of this client's request is here, so that the request can be routed anew.
    pub(super) fn holds_head(&self) -> bool {
        match self {
            Self::H1(side) => side.holds_head(),
            Self::H2(side) => side.head().is_some(),
        }
    }

    /// Gives up the head of this client's request.
    pub(super) fn drop_head(&mut self) {
        match self {
            Self::H1(side) => side.passed(),
            Self::H2(side) => side.drop_head(),
        }
    }

    /// Notes that the request of this client waits.
    pub(super) fn waits(&mut self) {
        if let Self::H1(side) = self {
            side.buffer.shrink();
        }
    }

    /// Notes that the last frame, with `bytes` bytes, has gone to the other side.
    pub(super) fn passed(&mut self, bytes: usize) {
        match self {
            Self::H1(side) => side.passed(),
            Self::H2(side) => side.passed(bytes),
        }
    }

    /// How many bytes may be pushed now, at least one.
    pub(super) fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Result<usize, Broken>> {
        match self {
            Self::H1(side) => side.poll_room(cx),
            Self::H2(side) => side.stream.poll_room(cx).map_err(Broken::from),
        }
    }

    /// Ready when what was pushed has been handed to the kernel, or to the driver of a connection of HTTP/2.
    pub(super) fn poll_flush(&mut self, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
        match self {
            Self::H1(side) => side.poll_flush(cx),
            Self::H2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Ready when this client takes another head: it reads what it has been sent.
    pub(super) fn poll_takes_head(&mut self, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
        match self {
            Self::H1(side) => side.poll_flush(cx),
            Self::H2(side) => {
                let room = ready!(side.stream.poll_output(cx));
                Poll::Ready(room.map(drop).map_err(Broken::from))
            }
        }
    }

    /// How many bytes were pushed and not handed to the kernel.
    pub(super) fn unsent(&self) -> usize {
        match self {
            Self::H1(side) => side.unsent(),
            Self::H2(_) => 0,
        }
    }

    /// Takes a piece of the body that goes here: not more than [`poll_room`](Self::poll_room) has said.
    pub(super) fn push(&mut self, frame: &Frame<'_>, cx: &Context<'_>) -> Result<(), Broken> {
        match self {
            Self::H1(side) => side.push(frame, cx),
            Self::H2(side) => side.push(frame),
        }
    }

    /// The head of an endpoint's response, or more bytes of it.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Broken>> {
        match self {
            Self::H1(side) => match ready!(side.buffer.poll_fill(side.stream, cx)) {
                Ok(1..) => Poll::Ready(Ok(Answered::Bytes)),
                Ok(0) | Err(_) => Poll::Ready(Err(Broken::Left)),
            },
            Self::H2(side) => {
                let head = ready!(side.stream.poll_head(cx));
                Poll::Ready(head.map(Answered::Head).map_err(Broken::from))
            }
        }
    }

    /// Whether no byte of an answer of this endpoint is held.
    pub(super) fn has_sent_nothing(&self) -> bool {
        match self {
            Self::H1(side) => side.buffer.is_empty(),
            Self::H2(_) => true,
        }
    }

    /// Whether this client may have got a part of what was to be sent, and does not take the rest.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self, Self::H1(side) if side.is_stuck)
    }

    /// Ready when this client no longer wants an answer.
    pub(super) fn poll_gone(&mut self, cx: &Context<'_>) -> Poll<Broken> {
        match self {
            Self::H1(side) => side.stream.poll_failed(cx).map(|()| Broken::Left),
            Self::H2(side) => side.stream.poll_reset(cx).map(Broken::from),
        }
    }

    /// Whether an order has cut this connection. That of HTTP/2 to an endpoint fails by itself then.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Self::H1(side) => side.stream.is_cut(),
            Self::H2(side) => side.stream.is_cut(),
        }
    }

    /// Sends this client the head of a response, or of an interim one; `is_whole`: it has no body. Returns the length of the head.
    pub(super) fn respond(&mut self, to: &ToClient<'_>, is_whole: bool) -> Result<usize, Broken> {
        let is_interim = to.response.status < 200;
        match self {
            // HTTP/1.0 has no interim responses.
            Self::H1(_) if is_interim && to.version == Version::Http10 => Ok(0),
            Self::H1(side) => {
                let before = side.pending.len();
                forward::response(&mut side.pending, to);
                side.framing = to.framing;
                Ok(side.pending.len() - before)
            }
            Self::H2(side) => {
                let fields = |out: &mut Vec<u8>| {
                    forward::response_fields(&mut Fields::new(out), to);
                };
                let sent = side.stream.respond(to.response.status, is_whole, fields);
                sent.map_err(Broken::from)
            }
        }
    }

    /// Whether nothing more comes from here.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::H1(side) => side.body.is_complete(),
            Self::H2(side) => side.is_read(),
        }
    }

    /// Passes on that the other side has reset its stream.
    pub(super) fn reset(&self, code: ErrorCode) {
        if let Self::H2(side) = self {
            side.stream.reset(code);
        }
    }
}
