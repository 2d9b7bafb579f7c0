//! The relay: moves bytes in both directions between a client's connection and its upstream, until both have ended.
//!
//! [`crate::tcp`] calls it once both sides are connected. A half-closed connection stays open. An abort (reset) of one side is
//! passed on as an abort of the other side. An idle connection ends after its timeout. A connection without bytes in flight
//! owns no buffer: bytes are read into the worker's one scratch buffer and written to the other side at once, and only the
//! bytes that the other side did not accept are kept. The relay never reads the plan and never logs.

use std::cell::{RefCell, RefMut};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::poller::{Poller, Stream, Timer};
use crate::os::clock::Clock;

mod direction;
mod keepalive;
mod splice;
mod state;
mod timeouts;

pub(crate) use direction::{Direction, Extent, Phase, Taken, yield_to_others};
pub(crate) use keepalive::{keepalive, watch};
pub(crate) use splice::{PipeCounts, Pipes};
use state::RelayState;
pub(crate) use timeouts::{RelayTimeouts, shorter};

/// One of the two connections that a relay joins.
pub(crate) trait RelaySide: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if its bytes are the stream's own bytes, so that they may be spliced. A TLS side returns
    /// `None`.
    fn splice_socket(&self) -> Option<&Stream>;
    /// The underlying socket, for its options and its state.
    fn socket(&self) -> Option<&Stream>;

    /// Whether the peer has ended its direction in a way in which somebody else could have ended it. Known once a read has returned 0.
    fn is_truncated(&self) -> bool {
        false
    }

    /// Reads into `buffer`, which is not empty. Returns 0 once the peer has ended its direction.
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes some of `bytes`.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }
}

/// The resources that all relays of one worker share.
#[derive(Debug)]
pub(crate) struct Tools {
    scratch: RefCell<Box<[u8]>>,
    /// Pipes for splicing bulk transfers.
    pub pipes: Rc<Pipes>,
    clock: Clock,
    /// Readiness of sockets and timers of this worker.
    pub poller: Rc<Poller>,
    /// The age at which a connection gets the socket options of [`keepalive::watch`].
    long_lived_after: Duration,
}

impl Tools {
    /// Creates the resources, with at most `pipes` pipes.
    pub(crate) fn new(clock: Clock, pipes: usize, poller: Rc<Poller>) -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            pipes: Pipes::new(pipes),
            clock,
            poller,
            long_lived_after: keepalive::LONG_LIVED_AFTER,
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The worker's scratch buffer. It is borrowed for one read only.
    pub(crate) fn scratch(&self) -> RefMut<'_, Box<[u8]>> {
        self.scratch.borrow_mut()
    }

    /// The same resources with a scratch buffer of `bytes` bytes.
    #[must_use]
    pub(crate) fn reading(self, bytes: usize) -> Self {
        Self {
            scratch: RefCell::new(vec![0; bytes].into()),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The client, which connected to the listening socket.
    Client,
    /// The endpoint, to which the data plane connected.
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Why a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Both sides ended their direction in order.
    Finished,
    /// One side aborted (reset) the connection, and the relay aborted the other side.
    Aborted,
    /// No byte was moved in either direction for the idle timeout.
    Idle,
    /// One side had ended its direction, and the other side sent nothing for the half-closed timeout.
    HalfClosed,
    /// An order cut the connections of the endpoint.
    Cut,
}

/// How a relay ended. Every end is a value, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// The side that ended first; `None` if neither side did.
    pub by: Option<Side>,
    /// The side that aborted, or that let the other side wait for too long; `None` if neither side or both did.
    pub fault: Option<Side>,
    /// The reason.
    pub why: Why,
    /// Bytes from the client.
    pub up: u64,
    /// Bytes to the client.
    pub down: u64,
}

impl Closed {
    /// The side at fault. An idle timeout of both sides is the fault of the side with the shorter idle timeout.
    #[must_use]
    pub(crate) fn fault(&self, client_is_stricter: bool) -> Option<Side> {
        match (self.why, client_is_stricter) {
            (Why::Idle, true) => self.fault.or(Some(Side::Client)),
            (Why::Idle, false) => self.fault.or(Some(Side::Server)),
            _ => self.fault,
        }
    }
}

/// Relays until both directions have ended. `first` is sent to the server before the client's bytes. `moved` is called at most
/// once per wake-up, with the numbers of bytes moved up and down.
///
/// Only an orderly end marks the sockets with [`Stream::close_in_order`]. After any other end, a panic included, closing the
/// sockets resets both connections, so both peers learn that the end was not orderly.
pub(crate) fn relay<'a, C: RelaySide, S: RelaySide>(
    client: &'a mut C,
    server: &'a mut S,
    first: Vec<u8>,
    timeouts: RelayTimeouts,
    tools: &'a Tools,
    mut moved: impl FnMut(u64, u64),
) -> impl Future<Output = Closed> {
    // These are created outside of the future: an argument that the future captured would take memory for as long as the
    // connection lasts.
    let mut sides = Sides { client, server };
    let mut state = RelayState::new(first, tools.clock.soon());
    async move {
        let mut timer = Timer::new(&tools.poller);
        state.set_timer(&mut timer, timeouts, tools);
        let why = poll_fn(|cx| {
            if sides.server.socket().is_some_and(Stream::is_cut) {
                return Poll::Ready(Why::Cut);
            }
            let has_just_ended = state.pass(&mut sides, cx, tools, &mut moved);
            if let Some(why) = state.ended() {
                return Poll::Ready(why);
            }
            if has_just_ended {
                state.set_timer(&mut timer, timeouts, tools);
                state.awaits_delivery(&sides);
            }
            state.poll_timeouts(&mut timer, &sides, timeouts, tools, cx)
        })
        .await;
        drop(timer);
        let fault = state.fault(why, &sides);
        if why == Why::Aborted {
            state.abort(&sides, timeouts.abort).await;
        }
        if why == Why::Finished {
            let sockets = [sides.client.socket(), sides.server.socket()];
            sockets
                .into_iter()
                .flatten()
                .for_each(Stream::close_in_order);
        }
        Closed {
            by: match why {
                Why::Finished | Why::Aborted | Why::HalfClosed => state.first_to_end,
                Why::Idle | Why::Cut => None,
            },
            fault,
            why,
            up: state.up.bytes,
            down: state.down.bytes,
        }
    }
}

/// The two sides of one relay.
struct Sides<'a, C, S> {
    client: &'a mut C,
    server: &'a mut S,
}

/// Size of the worker's scratch buffer.
const SCRATCH: usize = 64 * 1024;

/// A plain TCP connection.
impl RelaySide for Stream {
    fn splice_socket(&self) -> Option<&Stream> {
        Some(self)
    }

    fn socket(&self) -> Option<&Stream> {
        Some(self)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_recv(self, cx, buffer)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_send(self, cx, bytes)
    }
}

#[cfg(test)]
mod tests;
