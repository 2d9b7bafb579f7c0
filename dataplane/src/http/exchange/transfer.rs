//! One direction of an exchange: moves a body from one side to the other.
//!
//! Between two connections of HTTP/1 the bytes stay as they are: they are copied once, or spliced. Everything else goes frame by
//! frame: a frame is taken from the source only when the sink has room for it, so a slow reader slows the sender down.

use std::io;
use std::mem;
use std::task::{Context, Poll, ready};

use ballast_core::forward::Trailing;
use ballast_core::http::Framing;
use ballast_core::http1::{Body, Limits, parse_trailers, write_trailers};

use crate::http::side::{Broken, Frame, H1, HttpSide};
use crate::net::relay::{Direction, Extent, Phase, Taken, Tools, yield_to_others};

/// How the body of one direction is moved, and how far that has come.
pub(super) struct Transfer {
    method: Method,
    trailing: Trailing,
    /// Whether its end has been read.
    pub(super) is_read: bool,
    /// Whether its end has been sent.
    pub(super) is_done: bool,
    /// Whether any of it has been read.
    pub(super) is_touched: bool,
    /// Whether everything that was read has been sent, and more has not arrived.
    pub(super) is_waiting: bool,
    /// Bytes of the body.
    pub(super) bytes: u64,
}

enum Method {
    /// As the bytes of HTTP/1 that they are.
    Bytes(Bytes),
    Frames,
}

struct Bytes {
    direction: Direction<BodyExtent>,
    /// Whether the source has failed. What it sent before is still delivered.
    source_dead: bool,
}

/// The side at which a body got stuck for good.
#[derive(Debug)]
pub(super) enum Stopped {
    Source(Broken),
    Sink(Broken),
}

impl Transfer {
    /// A body that goes frame by frame.
    pub(super) fn of_frames(has_body: bool, trailing: Trailing) -> Self {
        Self {
            method: Method::Frames,
            trailing,
            is_read: !has_body,
            is_done: false,
            is_touched: false,
            is_waiting: false,
            bytes: 0,
        }
    }

    /// A body that stays as it is, and what of it has been read.
    pub(super) fn of_bytes(extent: BodyExtent, trailing: Trailing) -> Self {
        if extent.is_complete() {
            return Self::of_frames(false, trailing);
        }
        Self {
            method: Method::Bytes(Bytes {
                direction: Direction::new(Vec::new(), extent),
                source_dead: false,
            }),
            ..Self::of_frames(true, trailing)
        }
    }

    /// Bytes of the source that were read behind the body.
    pub(super) fn take_surplus(&mut self) -> Vec<u8> {
        match &mut self.method {
            Method::Bytes(bytes) => mem::take(&mut bytes.direction.extent_mut().surplus),
            Method::Frames => Vec::new(),
        }
    }

    /// Moves what can be moved. Ready once the whole body has been sent.
    pub(super) fn pump(
        &mut self,
        source: &mut HttpSide<'_>,
        sink: &mut HttpSide<'_>,
        tools: &Tools,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped>> {
        if self.is_done {
            return Poll::Ready(Ok(()));
        }
        let moved = match (&mut self.method, source, sink) {
            (Method::Bytes(bytes), HttpSide::H1(source), HttpSide::H1(sink)) => {
                let moved = bytes.pump(source, sink, &self.trailing, tools, cx);
                let direction = &bytes.direction;
                self.bytes = direction.bytes();
                self.is_touched |= self.bytes > 0;
                self.is_read = direction.extent().is_complete();
                self.is_waiting = sink.unsent() == 0 && direction.held() == 0 && !self.is_read;
                moved
            }
            (_, source, sink) => self.pump_frames(source, sink, cx),
        };
        self.is_done = matches!(moved, Poll::Ready(Ok(())));
        moved
    }

    fn pump_frames(
        &mut self,
        source: &mut HttpSide<'_>,
        sink: &mut HttpSide<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped>> {
        self.is_waiting = false;
        for _ in 0..BUDGET {
            if self.is_read {
                return sink.poll_flush(cx).map_err(Stopped::Sink);
            }
            let room = ready!(sink.poll_room(cx)).map_err(Stopped::Sink)?;
            let Poll::Ready(frame) = source.poll_frame(room, cx) else {
                self.is_waiting = ready!(sink.poll_flush(cx))
                    .map_err(Stopped::Sink)
                    .map(|()| true)?;
                return Poll::Pending;
            };
            self.is_touched = true;
            let mut frame = frame.map_err(Stopped::Source)?;
            let mut bytes = 0;
            match &mut frame {
                Frame::Data {
                    bytes: data,
                    is_last,
                } => {
                    (bytes, self.is_read) = (data.len(), *is_last);
                }
                Frame::Trailers(trailers) => {
                    trailers.retain(|field| self.trailing.allows(field.name));
                    self.is_read = true;
                }
                Frame::End => self.is_read = true,
            }
            if matches!(&frame, Frame::Trailers(trailers) if trailers.is_empty()) {
                frame = Frame::End;
            }
            sink.push(&frame, cx).map_err(Stopped::Sink)?;
            source.passed(bytes);
            self.bytes += bytes as u64;
        }
        yield_to_others(cx);
        Poll::Pending
    }
}

impl Bytes {
    /// Moves bytes between two connections of HTTP/1.
    fn pump(
        &mut self,
        source: &mut H1<'_>,
        sink: &mut H1<'_>,
        trailing: &Trailing,
        tools: &Tools,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Stopped>> {
        // The head goes first.
        ready!(sink.poll_flush(cx)).map_err(Stopped::Sink)?;
        let direction = &mut self.direction;
        let mut sink_dead = false;
        direction.pump(
            (source.stream, &mut self.source_dead),
            (sink.stream, &mut sink_dead),
            Phase::Open,
            cx,
            tools,
        );
        if sink_dead {
            return Poll::Ready(Err(Stopped::Sink(Broken::Left)));
        }
        if !direction.is_ended() {
            return Poll::Pending;
        }
        if self.source_dead {
            return Poll::Ready(Err(Stopped::Source(if direction.extent().is_malformed {
                Broken::Malformed
            } else {
                Broken::Left
            })));
        }
        let trailers = mem::take(&mut direction.extent_mut().trailers);
        if !trailers.is_empty() {
            write_allowed(&mut sink.pending, &trailers, trailing);
        }
        sink.poll_flush(cx).map_err(Stopped::Sink)
    }
}

/// Appends those fields of a trailer section that are forwarded.
fn write_allowed(out: &mut Vec<u8>, section: &[u8], trailing: &Trailing) {
    // The section has been checked.
    let mut trailers = parse_trailers(section).unwrap_or_default();
    trailers.retain(|field| trailing.allows(field.name));
    write_trailers(out, &trailers);
}

/// The bytes of one message's body.
#[derive(Debug)]
pub(in crate::http) struct BodyExtent {
    body: Body,
    /// The trailer section, which is sent behind the other bytes.
    trailers: Vec<u8>,
    /// Bytes that were read behind the body.
    surplus: Vec<u8>,
    is_malformed: bool,
}

impl BodyExtent {
    pub(in crate::http) fn new(framing: Framing) -> Self {
        Self {
            body: Body::new(framing, &Limits::default()),
            trailers: Vec::new(),
            surplus: Vec::new(),
            is_malformed: false,
        }
    }

    /// Appends to `out` those of the bytes, which were read together with the head, that belong to the body. Returns how many
    /// they are.
    pub(in crate::http) fn begin(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        trailing: &Trailing,
    ) -> Result<usize, Broken> {
        let relayed = self.body.relay(bytes, &mut self.trailers);
        let relayed = relayed.map_err(|_| Broken::Malformed)?;
        out.extend_from_slice(bytes.split_at(relayed.forwarded).0);
        if self.is_complete() && !self.trailers.is_empty() {
            write_allowed(out, &mem::take(&mut self.trailers), trailing);
        }
        Ok(relayed.used)
    }
}

impl Default for BodyExtent {
    fn default() -> Self {
        Self::new(Framing::Empty)
    }
}

impl Extent for BodyExtent {
    fn take(&mut self, bytes: &[u8]) -> io::Result<Taken> {
        match self.body.relay(bytes, &mut self.trailers) {
            Ok(relayed) => {
                let rest = bytes.split_at(relayed.used).1;
                self.surplus.extend_from_slice(rest);
                Ok(Taken {
                    read: relayed.used,
                    forwarded: relayed.forwarded,
                })
            }
            Err(error) => {
                self.is_malformed = true;
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    fn most_spliced(&self) -> usize {
        match self.body.remaining() {
            Some(left) if left >= SPLICED_AT_LEAST => usize::try_from(left).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    fn spliced(&mut self, bytes: usize) {
        self.body.pass(bytes as u64);
    }

    fn is_complete(&self) -> bool {
        self.body.is_complete()
    }

    fn may_end(&self, is_truncated: bool) -> bool {
        self.body.may_close() && !is_truncated
    }
}

/// Frames in a row before other tasks run.
const BUDGET: usize = 16;
/// The end of a body is copied: the two calls of a pipe cost more.
const SPLICED_AT_LEAST: u64 = 16 * 1024;
