//! One direction of a relay: moves bytes from a source to a sink.
//!
//! The relay pumps it once per wake-up. Bytes are copied through the worker's scratch buffer, or spliced through a pipe when
//! they come in bulk. Bytes that the sink does not accept are held here. This module knows no time.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use super::splice::Pipe;
use super::{RelaySide, Tools};
use crate::net::poller::Stream;

/// Which of the source's bytes belong to a direction.
pub(crate) trait Extent {
    /// Takes note of bytes that were read, and returns how many of them belong to this direction. An error ends the direction as if
    /// the source had failed.
    fn take(&mut self, bytes: &[u8]) -> io::Result<Taken>;
    /// The most bytes that may be spliced now, which then belong to this direction without having been seen.
    fn most_spliced(&self) -> usize;
    /// Takes note of bytes that were spliced.
    fn spliced(&mut self, bytes: usize);
    /// Whether all bytes have been read: the direction ends, and the source stays open for what follows.
    fn is_complete(&self) -> bool;
    /// Whether the source's end is the end of the bytes, and not a loss. `is_truncated`: the source ended in a way in which somebody
    /// may have cut it off.
    fn may_end(&self, is_truncated: bool) -> bool;
}

/// What became of bytes that were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The number of bytes that belong to the direction.
    pub(crate) read: usize,
    pub(crate) forwarded: usize,
}

/// All bytes until the source ends.
#[derive(Default)]
pub(crate) struct UntilEnd;

impl Extent for UntilEnd {
    fn take(&mut self, bytes: &[u8]) -> io::Result<Taken> {
        let (read, forwarded) = (bytes.len(), bytes.len());
        Ok(Taken { read, forwarded })
    }

    fn most_spliced(&self) -> usize {
        usize::MAX
    }

    fn spliced(&mut self, _: usize) {}

    fn is_complete(&self) -> bool {
        false
    }

    fn may_end(&self, _: bool) -> bool {
        true
    }
}

/// The state of one direction.
#[derive(Default)]
pub(crate) struct Direction<E = UntilEnd> {
    pub(super) extent: E,
    pub(super) bytes: u64,
    /// Bytes that the sink did not accept; those before `sent` have been sent since. Not allocated while it is empty.
    kept: Vec<u8>,
    sent: usize,
    /// Present only while it holds bytes. Boxed, because an idle connection has none.
    pipe: Option<Box<Pipe>>,
    method: Method,
    pub(super) phase: Phase,
}

/// How bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Through the scratch buffer. `large` counts large reads in a row.
    Copy { large: u8 },
    /// Through a pipe. `small` counts small loads in a row.
    Splice { small: u8 },
    /// Through the scratch buffer for good, because the kernel cannot splice these sockets.
    CopyForGood,
}

impl Default for Method {
    fn default() -> Self {
        Self::Copy { large: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Open,
    /// The source has ended. The end is passed to the sink after the bytes that are still held.
    Finishing,
    /// The source has failed, or all bytes have been read. The bytes that are still held are delivered, but no end is passed to the
    /// sink.
    Delivering,
    /// Nothing more is moved.
    Ended,
}

impl<E: Extent> Direction<E> {
    /// A direction that sends `first` before the source's bytes.
    pub(crate) fn new(first: Vec<u8>, extent: E) -> Self {
        Self {
            phase: if extent.is_complete() {
                Phase::Delivering
            } else {
                Phase::Open
            },
            extent,
            bytes: 0,
            kept: first,
            sent: 0,
            pipe: None,
            method: Method::default(),
        }
    }

    /// Whether nothing more is moved.
    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Bytes of the source that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Which bytes belong to this direction, as far as they were read.
    pub(crate) fn extent(&self) -> &E {
        &self.extent
    }

    /// The same, to be changed.
    pub(crate) fn extent_mut(&mut self) -> &mut E {
        &mut self.extent
    }

    pub(super) fn source_ended(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Whether the source is read: not after its end, and not while the sink has not accepted earlier bytes.
    pub(super) fn reads(&self) -> bool {
        self.phase == Phase::Open && self.held() == 0
    }

    /// Bytes that were read and that the sink has not accepted.
    pub(crate) fn held(&self) -> usize {
        self.kept.len() - self.sent + self.pipe.as_ref().map_or(0, |pipe| pipe.held())
    }

    /// Moves the bytes that can be moved now, at most [`BUDGET`] loads, of them [`PARSED`] bytes that are looked at, and registers the task's waker for the rest. `opposite`
    /// is the phase of the other direction.
    pub(crate) fn pump<A: RelaySide, B: RelaySide>(
        &mut self,
        (source, source_dead): (&mut A, &mut bool),
        (sink, sink_dead): (&mut B, &mut bool),
        opposite: Phase,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) {
        let mut parsed = 0;
        for _ in 0..BUDGET {
            if self.phase == Phase::Ended {
                return;
            }
            if parsed >= PARSED {
                break;
            }
            if *sink_dead {
                self.end();
                return;
            }
            match self.flush(sink, cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    *sink_dead = true;
                    continue;
                }
            }
            match self.phase {
                Phase::Open => match self.load(source, sink, sink_dead, cx, tools) {
                    Poll::Pending => return,
                    // After a failed write, the kernel reports the peer's reset as an ordinary end.
                    Poll::Ready(Ok(0)) if *source_dead => self.phase = Phase::Delivering,
                    Poll::Ready(Ok(0)) if self.extent.may_end(source.is_truncated()) => {
                        self.phase = Phase::Finishing;
                    }
                    Poll::Ready(Ok(0)) => {
                        *source_dead = true;
                        self.phase = Phase::Delivering;
                    }
                    Poll::Ready(Ok(read)) => {
                        self.bytes += read as u64;
                        if self.extent.most_spliced() == 0 {
                            parsed += read;
                        }
                        if self.extent.is_complete() {
                            self.phase = Phase::Delivering;
                        }
                    }
                    Poll::Ready(Err(_)) => {
                        *source_dead = true;
                        self.phase = Phase::Delivering;
                    }
                },
                Phase::Finishing if *source_dead => self.phase = Phase::Delivering,
                // The relay closes both sockets now, which tells this sink's peer the same as a shutdown.
                Phase::Finishing if opposite == Phase::Ended && sink.splice_socket().is_some() => {
                    self.end();
                }
                Phase::Finishing => match Pin::new(&mut *sink).poll_shutdown(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => self.end(),
                    Poll::Ready(Err(_)) => *sink_dead = true,
                },
                Phase::Delivering => self.end(),
                Phase::Ended => return,
            }
        }
        if self.phase != Phase::Ended {
            yield_to_others(cx);
        }
    }

    pub(super) fn end(&mut self) {
        self.phase = Phase::Ended;
        self.kept = Vec::new();
        self.sent = 0;
        self.pipe = None;
    }

    /// Writes the held bytes to the sink.
    fn flush<B: RelaySide>(&mut self, sink: &mut B, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            match ready!(sink.poll_send(cx, &self.kept[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        if self.sent > 0 {
            self.kept = Vec::new();
            self.sent = 0;
        }
        if let (Some(pipe), Some(socket)) = (&mut self.pipe, sink.splice_socket()) {
            while pipe.held() > 0 {
                match socket.poll_writing(cx, || pipe.drain(socket)) {
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    Poll::Ready(drained) => {
                        drained?;
                    }
                    Poll::Pending => {
                        if let Some(rest) = pipe.take_out()? {
                            // The pipe is only lent, so its bytes move to memory while the sink is full, and this direction
                            // copies from then on.
                            (self.kept, self.pipe) = (rest, None);
                            self.method = Method::Copy { large: 0 };
                        }
                        return Poll::Pending;
                    }
                }
            }
            self.pipe = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the source's next bytes; 0 is its end.
    fn load<A: RelaySide, B: RelaySide>(
        &mut self,
        source: &mut A,
        sink: &mut B,
        sink_dead: &mut bool,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) -> Poll<io::Result<usize>> {
        if let Method::Splice { small } = self.method
            && self.extent.most_spliced() > 0
            && let (Some(from), Some(_)) = (source.splice_socket(), sink.splice_socket())
            && let Some(loaded) = ready!(self.splice(from, small, cx, tools))
        {
            return Poll::Ready(loaded);
        }
        self.copy(source, sink, sink_dead, cx, tools)
    }

    /// Fills a pipe. `None`: no pipe is available, or the kernel cannot splice these sockets; the caller copies.
    fn splice(
        &mut self,
        from: &Stream,
        small: u8,
        cx: &Context<'_>,
        tools: &Tools,
    ) -> Poll<Option<io::Result<usize>>> {
        // A pipe is taken from the pool only when there are bytes for it.
        ready!(from.poll_readable(cx));
        let most_kept = tools.scratch.borrow().len();
        let Some(mut pipe) = tools.pipes.empty(most_kept) else {
            self.method = Method::Copy { large: 0 };
            return Poll::Ready(None);
        };
        let most = self.extent.most_spliced();
        match ready!(from.poll_reading(cx, || pipe.fill(from, most))) {
            Ok(loaded) => {
                self.extent.spliced(loaded);
                self.method = match (loaded < SMALL, small) {
                    (true, SMALL_IN_A_ROW..) => Method::Copy { large: 0 },
                    (true, _) => Method::Splice { small: small + 1 },
                    (false, _) => Method::Splice { small: 0 },
                };
                if loaded > 0 {
                    self.pipe = Some(Box::new(pipe));
                }
                Poll::Ready(Some(Ok(loaded)))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.method = Method::CopyForGood;
                Poll::Ready(None)
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    /// Reads into the scratch buffer and writes at once; keeps the bytes that the sink does not accept.
    fn copy<A: RelaySide, B: RelaySide>(
        &mut self,
        source: &mut A,
        sink: &mut B,
        sink_dead: &mut bool,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) -> Poll<io::Result<usize>> {
        let mut scratch = tools.scratch.borrow_mut();
        let read = ready!(source.poll_recv(cx, &mut scratch))?;
        if read == 0 {
            return Poll::Ready(Ok(0));
        }
        let taken = self.extent.take(scratch.split_at(read).0)?;
        let read = taken.read;
        let mut rest = scratch.split_at(taken.forwarded).0;
        if let Method::Copy { large } = self.method {
            self.method = match (read >= LARGE, large) {
                (false, _) => Method::Copy { large: 0 },
                (true, 0) => Method::Copy { large: 1 },
                (true, _) => Method::Splice { small: 0 },
            };
        }
        while !rest.is_empty() {
            match sink.poll_send(cx, rest) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    *sink_dead = true;
                    break;
                }
                Poll::Ready(Ok(written)) => rest = rest.split_at(written).1,
                Poll::Pending => {
                    self.kept = rest.to_vec();
                    if self.method == (Method::Splice { small: 0 }) && tools.pipes.lends() {
                        self.method = Method::Copy { large: 0 };
                    }
                    break;
                }
            }
        }
        Poll::Ready(Ok(read))
    }
}

/// Lets the worker's other tasks and the kernel's events be handled before this task runs again.
pub(crate) fn yield_to_others(cx: &mut Context<'_>) {
    // The first poll of `yield_now` asks the runtime to wake this task after its next poll of the kernel.
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
}

/// Loads per wake-up and direction.
const BUDGET: usize = 16;
/// Bytes per wake-up and direction of bodies in chunks: each of them may be a chunk.
const PARSED: usize = 64 * 1024;
/// Two reads in a row of at least this size switch to splicing.
pub(super) const LARGE: usize = 16 * 1024;
/// Repeated loads below this size are not worth the two calls that a pipe costs.
const SMALL: usize = 4 * 1024;
const SMALL_IN_A_ROW: u8 = 8;
