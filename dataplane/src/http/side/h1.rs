//! A connection of HTTP/1 as a side of an exchange.

use std::mem;
use std::task::{Context, Poll, ready};

use ballast_core::http::Framing;
use ballast_core::http1::{Body, Limits, Piece, parse_trailers, write_data, write_end};

use super::{Broken, Frame};
use crate::net::relay::RelaySide;
use crate::net::tls::MaybeTls;
use crate::worker::buffers::{ReadBuffer, WriteBuffer};

/// A connection of HTTP/1, and the one message in each direction.
pub(in crate::http) struct H1<'a> {
    pub(in crate::http) stream: &'a mut MaybeTls,
    /// Bytes that have been read and not yet used.
    pub(in crate::http) buffer: &'a mut ReadBuffer,
    /// The body that comes from here, if it is taken apart.
    pub(in crate::http) body: Body,
    trailers: Vec<u8>,
    /// Bytes of `buffer` that the last frame has used, or, before the first one, the request that is served.
    used: usize,
    /// Bytes to be sent, of which the first `sent` are.
    pub(in crate::http) pending: WriteBuffer,
    sent: usize,
    /// Whether the connection does not take the rest of them now.
    pub(super) is_stuck: bool,
    /// How the body that goes here is framed.
    pub(in crate::http) framing: Framing,
}

impl<'a> H1<'a> {
    /// A side whose body is framed as `framing`. `pending` is sent first.
    pub(in crate::http) fn new(
        stream: &'a mut MaybeTls,
        buffer: &'a mut ReadBuffer,
        framing: Framing,
        pending: WriteBuffer,
        sends: Framing,
    ) -> Self {
        Self {
            stream,
            buffer,
            body: Body::new(framing, &Limits::default()),
            trailers: Vec::new(),
            used: 0,
            pending,
            sent: 0,
            is_stuck: false,
            framing: sends,
        }
    }

    /// The side of a client whose request begins with so many bytes, which stay in the buffer until an endpoint is connected.
    pub(in crate::http) fn holding(self, head: usize) -> Self {
        Self { used: head, ..self }
    }

    pub(super) fn holds_head(&self) -> bool {
        self.used > 0
    }

    /// Expects another body: that of the response whose head has just been read.
    pub(in crate::http) fn expect(&mut self, framing: Framing) {
        self.body = Body::new(framing, &Limits::default());
        self.trailers.clear();
    }

    pub(super) fn poll_frame(
        &mut self,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame<'_>, Broken>> {
        loop {
            let (used, data) = self.next_data(most)?;
            if let Some(length) = data {
                self.used = used;
                let is_last = self.body.is_complete() && self.trailers.is_empty();
                let held = self.buffer.held().get(used - length..used);
                let bytes = held.unwrap_or_default();
                return Poll::Ready(Ok(Frame::Data { bytes, is_last }));
            }
            self.buffer.consume(used);
            if self.body.is_complete() {
                return Poll::Ready(self.ending());
            }
            if used > 0 {
                // There may be more than `most` bytes.
                continue;
            }
            match ready!(self.buffer.poll_fill(self.stream, cx)) {
                Ok(1..) => {}
                Ok(0) if self.body.may_close() && !self.stream.is_truncated() => {
                    self.body = Body::new(Framing::Empty, &Limits::default());
                }
                Ok(0) | Err(_) => return Poll::Ready(Err(Broken::Left)),
            }
        }
    }

    /// Looks for data in the bytes that are held. Returns how many of them belong to the body up to the end of the data, and the
    /// length of the data, which is not 0, if there is any.
    fn next_data(&mut self, most: usize) -> Result<(usize, Option<usize>), Broken> {
        let held = self.buffer.held();
        let held = held.get(..most).unwrap_or(held);
        let mut pieces = self.body.pieces(held);
        let mut found = None;
        for piece in &mut pieces {
            match piece {
                Ok(Piece::Data(data)) => {
                    found = Some(data.len());
                    break;
                }
                Ok(Piece::Trailers(piece)) => self.trailers.extend_from_slice(piece),
                Err(_) => return Err(Broken::Malformed),
            }
        }
        Ok((pieces.used(), found))
    }

    /// What ends a body that has been read.
    fn ending(&self) -> Result<Frame<'_>, Broken> {
        if self.trailers.len() <= EMPTY_LINE {
            return Ok(Frame::End);
        }
        let trailers = parse_trailers(&self.trailers).ok_or(Broken::Malformed)?;
        Ok(Frame::Trailers(trailers))
    }

    pub(super) fn passed(&mut self) {
        self.buffer.consume(mem::take(&mut self.used));
    }

    pub(super) fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Result<usize, Broken>> {
        if self.pending.len() >= MOST_PENDING {
            ready!(self.poll_flush(cx))?;
        }
        Poll::Ready(Ok(MOST_PENDING))
    }

    pub(in crate::http) fn poll_flush(&mut self, cx: &Context<'_>) -> Poll<Result<(), Broken>> {
        while let Some(rest) = self.pending.get(self.sent..)
            && !rest.is_empty()
        {
            let sent = self.stream.poll_send(cx, rest);
            self.is_stuck = sent.is_pending();
            self.sent += ready!(sent).map_err(|_| Broken::Left)?;
        }
        self.pending.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// How many bytes were pushed and not sent.
    pub(in crate::http) fn unsent(&self) -> usize {
        self.pending.len() - self.sent
    }

    pub(super) fn push(&mut self, frame: &Frame<'_>, cx: &Context<'_>) -> Result<(), Broken> {
        let out = &mut *self.pending;
        match frame {
            Frame::Data { bytes, .. } if self.framing == Framing::Empty && !bytes.is_empty() => {
                Err(Broken::Malformed)
            }
            Frame::Data { bytes, is_last } => {
                if self.framing != Framing::Chunked && out.is_empty() {
                    // What the kernel takes at once needs no copy.
                    let sent = match self.stream.poll_send(cx, bytes) {
                        Poll::Ready(sent) => sent.map_err(|_| Broken::Left)?,
                        Poll::Pending => 0,
                    };
                    out.extend_from_slice(bytes.split_at(sent).1);
                    return Ok(());
                }
                write_data(out, self.framing, bytes);
                if *is_last {
                    write_end(out, self.framing, &[]);
                }
                Ok(())
            }
            Frame::Trailers(trailers) => {
                write_end(out, self.framing, trailers);
                Ok(())
            }
            Frame::End => {
                write_end(out, self.framing, &[]);
                Ok(())
            }
        }
    }
}

/// A trailer section without trailers is an empty line.
const EMPTY_LINE: usize = 2;
/// Bytes that are collected before they are sent.
const MOST_PENDING: usize = 16 * 1024;
