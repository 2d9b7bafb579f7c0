//! One side of an exchange: a client or an endpoint, of either version of HTTP, and the frames of the bodies that come from it
//! and go to it.

use std::future::Future;
use std::io::Write;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ballast_core::forward::{self, Sink, ToClient};
use ballast_core::http::{Field, Framing, Version};
use ballast_core::http1::{Body, Limits, Piece, parse_trailers};
use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;

use crate::http::buffers::{ReadBuffer, WriteBuffer};
use crate::http::fields::{self, Fields};
use crate::tls::MaybeTls;

/// A piece of a body.
#[derive(Debug)]
pub(in crate::http) enum Frame {
    Data { bytes: Bytes, is_last: bool },
    Trailers(HeaderMap),
    End,
}

/// Why a side cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Broken {
    /// Its connection has ended.
    Left,
    /// It does not keep to HTTP.
    Malformed,
    /// It has reset the stream.
    Reset(Reason),
    /// It has refused the request, and has certainly done nothing about it.
    Refused,
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(Reason::REFUSED_STREAM) if error.is_remote() => Self::Refused,
            // Requests that a server will not look at any more fail like this; those that it still answers do not.
            Some(Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Self::Refused,
            Some(reason) if error.is_reset() && error.is_remote() => Self::Reset(reason),
            _ if error.is_library() => Self::Malformed,
            _ => Self::Left,
        }
    }
}

/// A client, or an endpoint.
pub(in crate::http) enum Side<'a> {
    H1(H1<'a>),
    H2(H2),
}

/// A connection of HTTP/1, and the one message in each direction.
pub(in crate::http) struct H1<'a> {
    pub(super) stream: &'a mut MaybeTls,
    /// Bytes that have been read and not yet used.
    pub(super) buffer: &'a mut ReadBuffer,
    /// The body that comes from here.
    pub(super) body: Body,
    trailers: Vec<u8>,
    has_ended: bool,
    /// Bytes to be sent, of which the first `sent` are.
    pending: WriteBuffer,
    sent: usize,
    /// How the body that goes here is framed.
    framing: Framing,
    /// Whether `buffer` may hold the whole head of another response.
    has_unseen: bool,
}

/// One stream of HTTP/2.
pub(in crate::http) struct H2 {
    /// `None`: the body has ended.
    recv: Option<RecvStream>,
    /// So much of the flow control window belongs to bytes that are still on their way to the other side.
    unreleased: usize,
    out: Out,
    pending: Bytes,
    /// Whether the body that goes here ends after `pending`.
    ends: bool,
    awaited: Option<ResponseFuture>,
}

enum Out {
    /// The response has not begun.
    Response(SendResponse<Bytes>),
    Stream(SendStream<Bytes>),
}

/// What an endpoint answered.
pub(super) enum Head {
    /// More bytes of HTTP/1 have arrived.
    Bytes,
    Interim(http::Response<()>),
    Final(http::response::Parts),
}

impl<'a> H1<'a> {
    /// A side whose body is framed as `framing`. `pending` is sent first.
    pub(in crate::http) fn new(
        stream: &'a mut MaybeTls,
        buffer: &'a mut ReadBuffer,
        (framing, limits): (Framing, &Limits),
        pending: WriteBuffer,
        sends: Framing,
    ) -> Self {
        Self {
            stream,
            buffer,
            body: Body::new(framing, limits),
            trailers: Vec::new(),
            has_ended: false,
            pending,
            sent: 0,
            framing: sends,
            has_unseen: false,
        }
    }

    /// Whether the next head of a response may be there already.
    pub(super) fn has_unseen(&self) -> bool {
        self.has_unseen
    }

    /// Notes whether bytes behind a head have not been looked at.
    pub(super) fn see(&mut self, has_unseen: bool) {
        self.has_unseen = has_unseen;
    }

    pub(super) fn buffer_is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Expects another body: that of the response whose head has just been read.
    pub(super) fn expect(&mut self, framing: Framing, limits: &Limits) {
        self.body = Body::new(framing, limits);
        self.trailers.clear();
        self.has_ended = false;
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Broken>> {
        while !self.has_ended {
            let mut data = Vec::new();
            let held = self.buffer.held();
            let mut pieces = self.body.pieces(held);
            for piece in &mut pieces {
                match piece {
                    Ok(Piece::Data(piece)) => {
                        if data.is_empty() {
                            data.reserve_exact(held.len());
                        }
                        data.extend_from_slice(piece);
                    }
                    Ok(Piece::Trailers(piece)) => self.trailers.extend_from_slice(piece),
                    Err(_) => return Poll::Ready(Err(Broken::Malformed)),
                }
            }
            let used = pieces.used();
            self.buffer.consume(used);
            self.has_ended = self.body.is_complete();
            let trailers = match self.has_ended && self.trailers.len() > EMPTY_LINE {
                true => Some(self.parsed_trailers()?),
                false => None,
            };
            if !data.is_empty() {
                let is_last = self.has_ended && trailers.is_none();
                if trailers.is_some() {
                    // They are parsed again after this piece.
                    self.has_ended = false;
                }
                let bytes = data.into();
                return Poll::Ready(Ok(Frame::Data { bytes, is_last }));
            }
            if let Some(trailers) = trailers {
                return Poll::Ready(Ok(Frame::Trailers(trailers)));
            }
            if self.has_ended {
                break;
            }
            match ready!(self.buffer.poll_fill(self.stream, cx)) {
                Ok(1..) => {}
                Ok(0) if self.body.may_close() => self.has_ended = true,
                Ok(0) | Err(_) => return Poll::Ready(Err(Broken::Left)),
            }
        }
        Poll::Ready(Ok(Frame::End))
    }

    fn parsed_trailers(&self) -> Result<HeaderMap, Broken> {
        let mut room = [NO_FIELD; MOST_TRAILERS];
        let parsed = parse_trailers(&self.trailers, &mut room).ok_or(Broken::Malformed)?;
        Ok(fields::trailers(parsed))
    }

    fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
        while let Some(rest) = self
            .pending
            .get(self.sent..)
            .filter(|rest| !rest.is_empty())
        {
            let sent = ready!(self.stream.poll_send(cx, rest));
            self.sent += sent.map_err(|_| Broken::Left)?;
        }
        self.pending.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, frame: Frame) -> Result<(), Broken> {
        let out = &mut *self.pending;
        match (frame, self.framing) {
            (Frame::Data { bytes, .. }, Framing::Empty) if !bytes.is_empty() => {
                return Err(Broken::Malformed);
            }
            (Frame::Data { bytes, is_last }, Framing::Chunked) => {
                // Writing into memory does not fail.
                write!(out, "{:X}\r\n", bytes.len()).ok();
                out.extend_from_slice(&bytes);
                out.extend_from_slice(b"\r\n");
                if is_last {
                    out.extend_from_slice(LAST_CHUNK);
                }
            }
            (Frame::Data { bytes, .. }, _) => out.extend_from_slice(&bytes),
            (Frame::Trailers(trailers), Framing::Chunked) => {
                out.extend_from_slice(b"0\r\n");
                for (name, value) in fields::forwarded_trailers(&trailers) {
                    out.field(name.as_str(), value.as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
            (Frame::End, Framing::Chunked) => out.extend_from_slice(LAST_CHUNK),
            (Frame::Trailers(_) | Frame::End, _) => {}
        }
        Ok(())
    }
}

impl H2 {
    /// The stream of a client's request.
    pub(in crate::http) fn of_client(recv: RecvStream, respond: SendResponse<Bytes>) -> Self {
        Self {
            recv: Some(recv),
            unreleased: 0,
            out: Out::Response(respond),
            pending: Bytes::new(),
            ends: false,
            awaited: None,
        }
    }

    /// The stream of a request that has just been sent to an endpoint.
    pub(super) fn of_endpoint(response: ResponseFuture, send: SendStream<Bytes>) -> Self {
        Self {
            recv: None,
            unreleased: 0,
            out: Out::Stream(send),
            pending: Bytes::new(),
            ends: false,
            awaited: Some(response),
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Broken>> {
        let Some(recv) = &mut self.recv else {
            return Poll::Ready(Ok(Frame::End));
        };
        if self.unreleased > 0 {
            // The bytes of the frame before this one have gone. An error means that the stream has ended.
            let unreleased = mem::take(&mut self.unreleased);
            recv.flow_control().release_capacity(unreleased).ok();
        }
        while let Some(data) = ready!(recv.poll_data(cx)) {
            let bytes = data?;
            self.unreleased = bytes.len();
            let is_last = recv.is_end_stream();
            if is_last {
                self.recv = None;
            } else if bytes.is_empty() {
                continue;
            }
            return Poll::Ready(Ok(Frame::Data { bytes, is_last }));
        }
        let trailers = ready!(recv.poll_trailers(cx))?;
        self.recv = None;
        Poll::Ready(Ok(trailers.map_or(Frame::End, Frame::Trailers)))
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let Out::Stream(send) = &mut self.out else {
            return Poll::Ready(Ok(()));
        };
        while !self.pending.is_empty() {
            send.reserve_capacity(self.pending.len());
            let room = match send.capacity() {
                0 => match ready!(send.poll_capacity(cx)) {
                    Some(room) => room?,
                    None => return Poll::Ready(Err(Broken::Left)),
                },
                room => room,
            };
            let part = self.pending.split_to(room.min(self.pending.len()));
            send.send_data(part, self.ends && self.pending.is_empty())?;
        }
        Poll::Ready(Ok(()))
    }

    fn push(&mut self, frame: Frame) -> Result<(), Broken> {
        let Out::Stream(send) = &mut self.out else {
            return Ok(());
        };
        match frame {
            Frame::Data { bytes, is_last } if bytes.is_empty() => {
                if is_last {
                    send.send_data(bytes, true)?;
                }
            }
            Frame::Data { bytes, is_last } => {
                self.pending = bytes;
                self.ends = is_last;
            }
            Frame::Trailers(trailers) => send.send_trailers(trailers)?,
            Frame::End => send.send_data(Bytes::new(), true)?,
        }
        Ok(())
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        let Some(awaited) = &mut self.awaited else {
            return Poll::Ready(Err(Broken::Malformed));
        };
        if let Poll::Ready(Some(interim)) = awaited.poll_informational(cx) {
            return Poll::Ready(Ok(Head::Interim(interim?)));
        }
        let response = ready!(Pin::new(awaited).poll(cx))?;
        let (parts, recv) = response.into_parts();
        self.recv = Some(recv);
        self.awaited = None;
        Poll::Ready(Ok(Head::Final(parts)))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Broken> {
        let reset = match &mut self.out {
            Out::Response(respond) => respond.poll_reset(cx),
            Out::Stream(send) => send.poll_reset(cx),
        };
        reset.map(|reset| match reset {
            Ok(reason) => Broken::Reset(reason),
            Err(error) => error.into(),
        })
    }

    fn send_final(&mut self, to: &ToClient<'_>, is_empty: bool) -> Result<(), Broken> {
        let mut fields = Fields::default();
        forward::response_fields(&mut fields, to);
        self.respond(to.response.status, fields.map, is_empty)
    }

    /// Begins the response; `is_whole`: it has no body.
    pub(in crate::http) fn respond(
        &mut self,
        status: u16,
        fields: HeaderMap,
        is_whole: bool,
    ) -> Result<(), Broken> {
        if let Out::Response(respond) = &mut self.out {
            let response = fields::response(status, fields)?;
            self.out = Out::Stream(respond.send_response(response, is_whole)?);
        }
        Ok(())
    }

    fn send_interim(&mut self, to: &ToClient<'_>) -> Result<(), Broken> {
        if let Out::Response(respond) = &mut self.out {
            let mut fields = Fields::default();
            forward::response_fields(&mut fields, to);
            let response = fields::response(to.response.status, fields.map)?;
            respond.send_informational(response)?;
        }
        Ok(())
    }

    /// Resets the stream.
    pub(in crate::http) fn reset(&mut self, reason: Reason) {
        match &mut self.out {
            Out::Response(respond) => respond.send_reset(reason),
            Out::Stream(send) => send.send_reset(reason),
        }
    }
}

impl Side<'_> {
    /// The next piece of the body that comes from here. The piece before it must have been sent on.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Broken>> {
        match self {
            Self::H1(side) => side.poll_frame(cx),
            Self::H2(side) => side.poll_frame(cx),
        }
    }

    /// Ready once everything that was pushed has been sent.
    pub(in crate::http) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        match self {
            Self::H1(side) => side.poll_room(cx),
            Self::H2(side) => side.poll_room(cx),
        }
    }

    /// Takes a piece of the body that goes here. [`poll_room`](Self::poll_room) must have been ready.
    pub(in crate::http) fn push(&mut self, frame: Frame) -> Result<(), Broken> {
        match self {
            Self::H1(side) => side.push(frame),
            Self::H2(side) => side.push(frame),
        }
    }

    /// The head of an endpoint's response, or more bytes of it.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        match self {
            Self::H1(side) => match ready!(side.buffer.poll_fill(side.stream, cx)) {
                Ok(1..) => Poll::Ready(Ok(Head::Bytes)),
                Ok(0) | Err(_) => Poll::Ready(Err(Broken::Left)),
            },
            Self::H2(side) => side.poll_head(cx),
        }
    }

    /// Ready when this client no longer wants an answer.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Broken> {
        match self {
            Self::H1(side) => side.stream.poll_failed(cx).map(|()| Broken::Left),
            Self::H2(side) => side.poll_gone(cx),
        }
    }

    /// Whether an order has cut this endpoint's connection. A connection of HTTP/2 fails by itself then.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self, Self::H1(side) if side.stream.is_cut())
    }

    /// Sends this client the head of an interim response.
    pub(super) fn send_interim(&mut self, to: &ToClient<'_>) -> Result<(), Broken> {
        match self {
            // HTTP/1.0 has no interim responses.
            Self::H1(_) if to.version == Version::Http10 => Ok(()),
            Self::H1(side) => {
                forward::response(&mut side.pending, to);
                Ok(())
            }
            Self::H2(side) => side.send_interim(to),
        }
    }

    /// Sends this client the head of a response; `is_empty`: it has no body.
    pub(super) fn send_final(&mut self, to: &ToClient<'_>, is_empty: bool) -> Result<(), Broken> {
        match self {
            Self::H1(side) => {
                forward::response(&mut side.pending, to);
                side.framing = to.framing;
                Ok(())
            }
            Self::H2(side) => side.send_final(to, is_empty),
        }
    }

    /// Whether nothing more comes from here.
    pub(in crate::http) fn has_ended(&self) -> bool {
        match self {
            Self::H1(side) => side.body.is_complete(),
            Self::H2(side) => side.recv.as_ref().is_none_or(RecvStream::is_end_stream),
        }
    }

    /// Passes on that the other side has reset its stream.
    pub(super) fn reset(&mut self, reason: Reason) {
        if let Self::H2(side) = self {
            side.reset(reason);
        }
    }
}

/// The end of a chunked body without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// A trailer section without trailers is an empty line.
const EMPTY_LINE: usize = 2;
const MOST_TRAILERS: usize = 128;
const NO_FIELD: Field<'static> = Field {
    name: "",
    value: b"",
};
