//! Both directions of one connection, from the first byte to the last.
//!
//! Called by [`crate::tcp`] once both legs stand. It keeps half-closed connections alive, passes an abort on as an
//! abort, ends what is idle, and owns no buffer while nothing is in flight: bytes are read into the worker's one
//! scratch buffer and written to the other side at once; only what that side did not take is kept. It never looks
//! at the plan, and never logs.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Clock;
use crate::poller::{Poller, Stream, Timer};

mod both;
mod direction;
mod lasting;
mod patience;
mod plain;
mod splice;

use both::Both;
pub(crate) use lasting::keepalive;
pub(crate) use patience::Patience;
pub(crate) use splice::{PipeCounts, Pipes};

/// One side of a connection.
pub(crate) trait Leg: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if its bytes are the stream's bytes: then they may be spliced.
    fn plain(&self) -> Option<&Stream>;
    /// The socket beneath, for its options.
    fn socket(&self) -> Option<&Stream>;

    /// Reads into `buffer`, which is not empty. 0: the other side is done.
    fn poll_take(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(self).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes some of `bytes`.
    fn poll_give(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write(cx, bytes)
    }
}

/// What all relays of one worker share.
#[derive(Debug)]
pub(crate) struct Tools {
    scratch: RefCell<Box<[u8]>>,
    /// Pipes for bulk.
    pub pipes: Rc<Pipes>,
    clock: Clock,
    /// Watches the sockets and the timers of this worker.
    pub poller: Rc<Poller>,
    /// From when on a connection gets what only those need that last.
    lasting: Duration,
}

impl Tools {
    /// Tools with at most `pipes` pipes.
    #[must_use]
    pub(crate) fn new(clock: Clock, pipes: usize, poller: Rc<Poller>) -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            pipes: Pipes::new(pipes),
            clock,
            poller,
            lasting: lasting::LASTING,
        }
    }
}

impl Tools {
    /// The same, reading so many bytes at once.
    #[must_use]
    pub(crate) fn reading(self, bytes: usize) -> Self {
        Self {
            scratch: RefCell::new(vec![0; bytes].into()),
            ..self
        }
    }
}

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Who connected to us.
    Client,
    /// Whom we connected to.
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
    /// Both sides said that they were done.
    Finished,
    /// One side aborted, and so the other was.
    Aborted,
    /// Nobody said anything for too long.
    Idle,
    /// One side was done, and the other said nothing for too long.
    HalfClosed,
    /// An order ended it.
    Cut,
}

/// The end of a connection. Not an error: a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// Who ended it first; `None` if nobody did.
    pub by: Option<Side>,
    /// Who aborted, or let the other one wait for too long. `None`: nobody, or both did.
    pub fault: Option<Side>,
    /// How.
    pub why: Why,
    /// Bytes from the client.
    pub up: u64,
    /// Bytes to the client.
    pub down: u64,
}

impl Closed {
    /// Whose fault it was, if nobody's alone: of the side whose idle time is the shorter one.
    #[must_use]
    pub(crate) fn fault(&self, client_is_stricter: bool) -> Option<Side> {
        match (self.why, client_is_stricter) {
            (Why::Idle, true) => self.fault.or(Some(Side::Client)),
            (Why::Idle, false) => self.fault.or(Some(Side::Server)),
            _ => self.fault,
        }
    }
}

/// Relays until both directions have ended. `first` goes to the server before the client's bytes. `moved` is told once a wake-up how
/// many bytes went up and down.
///
/// Only an orderly end marks the sockets so ([`Stream::close_in_order`]): after any other end, a panic included, closing them is a
/// reset, and both peers learn that this was no ordinary end.
pub(crate) fn relay<'a, C: Leg, S: Leg>(
    client: &'a mut C,
    server: &'a mut S,
    first: Vec<u8>,
    patience: Patience,
    tools: &'a Tools,
    mut moved: impl FnMut(u64, u64),
) -> impl Future<Output = Closed> {
    // Made outside of the future, which would keep room for the arguments as well, as long as the connection lasts.
    let mut legs = Legs { client, server };
    let mut both = Both::new(first, tools.clock.soon());
    async move {
        let mut timer = Timer::new(&tools.poller);
        both.set_timer(&mut timer, patience, tools);
        let why = poll_fn(|cx| {
            if legs.server.socket().is_some_and(Stream::is_cut) {
                return Poll::Ready(Why::Cut);
            }
            let has_just_ended = both.pass(&mut legs, cx, tools, &mut moved);
            if let Some(why) = both.ended() {
                return Poll::Ready(why);
            }
            if has_just_ended {
                both.set_timer(&mut timer, patience, tools);
                both.awaits_delivery(&legs);
            }
            both.poll_patience(&mut timer, &legs, patience, tools, cx)
        })
        .await;
        drop(timer);
        let fault = both.fault(why, &legs);
        if why == Why::Aborted {
            both.abort(&legs, patience.abort).await;
        }
        if why == Why::Finished {
            let sockets = [legs.client.socket(), legs.server.socket()];
            sockets
                .into_iter()
                .flatten()
                .for_each(Stream::close_in_order);
        }
        Closed {
            by: match why {
                Why::Finished | Why::Aborted | Why::HalfClosed => both.first_to_end,
                Why::Idle | Why::Cut => None,
            },
            fault,
            why,
            up: both.up.bytes,
            down: both.down.bytes,
        }
    }
}

/// Both sides.
struct Legs<'a, C, S> {
    client: &'a mut C,
    server: &'a mut S,
}

/// The worker's one buffer.
const SCRATCH: usize = 64 * 1024;

#[cfg(test)]
mod tests;
