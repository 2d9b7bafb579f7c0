//! One direction: how bytes travel from one leg to the other.
//!
//! Driven by the relay above it, once a wake-up. Bytes are copied through the worker's scratch buffer, or spliced through a
//! pipe when they come in bulk; what the sink does not take is held here. It knows nothing of time.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use super::splice::Pipe;
use super::{Leg, Tools};
use crate::poller::Stream;

/// One direction.
#[derive(Default)]
pub(super) struct Direction {
    pub(super) bytes: u64,
    /// What the sink did not take, from `sent` on; no allocation while there is nothing.
    kept: Vec<u8>,
    sent: usize,
    /// Only while bytes are in it.
    pipe: Option<Pipe>,
    way: Way,
    pub(super) phase: Phase,
}

/// How bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the scratch buffer; so many large reads in a row were seen.
    Copy { large: u8 },
    /// Through a pipe; so many small loads in a row were seen.
    Splice { small: u8 },
    /// Through the scratch buffer, since the kernel cannot splice these sockets.
    CopyForGood,
}

impl Default for Way {
    fn default() -> Self {
        Self::Copy { large: 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Open,
    /// The source is done: the sink hears of it behind the bytes that are still held.
    Finishing,
    /// The source is gone: what is still held is delivered, and no end is announced.
    Broken,
    /// Nothing more will pass.
    Ended,
}

impl Direction {
    /// One that first of all delivers this.
    pub(super) fn beginning_with(first: Vec<u8>) -> Self {
        Self {
            kept: first,
            ..Self::default()
        }
    }

    pub(super) fn source_ended(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Whether the source is read from: not after its end, and not while the sink has not taken what was read.
    pub(super) fn reads(&self) -> bool {
        self.phase == Phase::Open && self.held() == 0
    }

    /// Bytes that were read, and that the sink has not taken.
    pub(super) fn held(&self) -> usize {
        self.kept.len() - self.sent + self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Moves what can be moved now, at most [`BUDGET`] loads, and arranges to be woken for the rest. `opposite` is the phase
    /// of the other direction.
    pub(super) fn pump<A: Leg, B: Leg>(
        &mut self,
        (source, source_dead): (&mut A, &mut bool),
        (sink, sink_dead): (&mut B, &mut bool),
        opposite: Phase,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) {
        for _ in 0..BUDGET {
            if self.phase == Phase::Ended {
                return;
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
                    // After a failed write the kernel reports the peer's reset as a plain end.
                    Poll::Ready(Ok(0)) if *source_dead => self.phase = Phase::Broken,
                    Poll::Ready(Ok(0)) => self.phase = Phase::Finishing,
                    Poll::Ready(Ok(read)) => self.bytes += read as u64,
                    Poll::Ready(Err(_)) => {
                        *source_dead = true;
                        self.phase = Phase::Broken;
                    }
                },
                Phase::Finishing if *source_dead => self.phase = Phase::Broken,
                // Both sockets are closed now, which tells this one's peer the same.
                Phase::Finishing if opposite == Phase::Ended && sink.plain().is_some() => {
                    self.end();
                }
                Phase::Finishing => match Pin::new(&mut *sink).poll_shutdown(cx) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(())) => self.end(),
                    Poll::Ready(Err(_)) => *sink_dead = true,
                },
                Phase::Broken => self.end(),
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

    /// Gives the sink what is held for it.
    fn flush<B: Leg>(&mut self, sink: &mut B, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.kept.len() {
            match ready!(sink.poll_give(cx, &self.kept[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        if self.sent > 0 {
            self.kept = Vec::new();
            self.sent = 0;
        }
        if let (Some(pipe), Some(socket)) = (&mut self.pipe, sink.plain()) {
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
                            // Pipes are few: while the sink waits, its bytes are in memory, and this direction copies.
                            (self.kept, self.pipe) = (rest, None);
                            self.way = Way::Copy { large: 0 };
                        }
                        return Poll::Pending;
                    }
                }
            }
            self.pipe = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the source's next bytes; 0 is its end.
    fn load<A: Leg, B: Leg>(
        &mut self,
        source: &mut A,
        sink: &mut B,
        sink_dead: &mut bool,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) -> Poll<io::Result<usize>> {
        if let Way::Splice { small } = self.way
            && let (Some(from), Some(_)) = (source.plain(), sink.plain())
            && let Some(loaded) = ready!(self.splice(from, small, cx, tools))
        {
            return Poll::Ready(loaded);
        }
        self.copy(source, sink, sink_dead, cx, tools)
    }

    /// Fills a pipe. `None`: there is none to be had, or the kernel cannot; copy.
    fn splice(
        &mut self,
        from: &Stream,
        small: u8,
        cx: &Context<'_>,
        tools: &Tools,
    ) -> Poll<Option<io::Result<usize>>> {
        // A pipe is taken only when there is something to put into it.
        ready!(from.poll_readable(cx));
        let most_kept = tools.scratch.borrow().len();
        let Some(mut pipe) = tools.pipes.empty(most_kept) else {
            self.way = Way::Copy { large: 0 };
            return Poll::Ready(None);
        };
        match ready!(from.poll_reading(cx, || pipe.fill(from))) {
            Ok(loaded) => {
                self.way = match (loaded < SMALL, small) {
                    (true, SMALL_IN_A_ROW..) => Way::Copy { large: 0 },
                    (true, _) => Way::Splice { small: small + 1 },
                    (false, _) => Way::Splice { small: 0 },
                };
                if loaded > 0 {
                    self.pipe = Some(pipe);
                }
                Poll::Ready(Some(Ok(loaded)))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.way = Way::CopyForGood;
                Poll::Ready(None)
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    /// Reads into the scratch buffer, and writes at once; what the sink does not take is kept.
    fn copy<A: Leg, B: Leg>(
        &mut self,
        source: &mut A,
        sink: &mut B,
        sink_dead: &mut bool,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) -> Poll<io::Result<usize>> {
        let mut scratch = tools.scratch.borrow_mut();
        let read = ready!(source.poll_take(cx, &mut scratch))?;
        let mut rest = scratch.get(..read).unwrap_or_default();
        if let Way::Copy { large } = self.way {
            self.way = match (read >= LARGE, large) {
                (false, _) => Way::Copy { large: 0 },
                (true, 0) => Way::Copy { large: 1 },
                (true, _) => Way::Splice { small: 0 },
            };
        }
        while !rest.is_empty() {
            match sink.poll_give(cx, rest) {
                Poll::Ready(Ok(0) | Err(_)) => {
                    *sink_dead = true;
                    break;
                }
                Poll::Ready(Ok(written)) => rest = rest.get(written..).unwrap_or_default(),
                Poll::Pending => {
                    self.kept = rest.to_vec();
                    if self.way == (Way::Splice { small: 0 }) && tools.pipes.lends() {
                        self.way = Way::Copy { large: 0 };
                    }
                    break;
                }
            }
        }
        Poll::Ready(Ok(read))
    }
}

/// Lets every other task of this worker, and the kernel's events, come first.
fn yield_to_others(cx: &mut Context<'_>) {
    // The first poll of yield_now asks the runtime to wake this task after its next look at the kernel.
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
}

/// Loads per wake-up and direction.
const BUDGET: usize = 16;
/// Two reads in a row of this size are bulk.
pub(super) const LARGE: usize = 16 * 1024;
/// Loads below this are not worth a pipe's two calls, if they go on so.
const SMALL: usize = 4 * 1024;
const SMALL_IN_A_ROW: u8 = 8;
