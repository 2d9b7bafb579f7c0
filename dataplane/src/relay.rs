//! Both directions of one connection, from the first byte to the last.
//!
//! Called by [`crate::tcp`] once both legs stand. It keeps half-closed connections alive, passes an abort on as an
//! abort, ends what is idle, and owns no buffer while nothing is in flight: bytes are read into the worker's one
//! scratch buffer and written to the other side at once; only what that side did not take is kept. It never looks
//! at the plan, and never logs.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::Clock;

mod both;
mod direction;
mod lasting;
mod patience;
mod plain;
mod splice;

use both::Both;
pub(crate) use lasting::keepalive;
pub(crate) use patience::Patience;
pub(crate) use splice::Pipes;

/// One side of a connection.
pub(crate) trait Leg: AsyncRead + AsyncWrite + Unpin {
    /// The socket, if its bytes are the stream's bytes: then they may be spliced.
    fn plain(&self) -> Option<&TcpStream>;
    /// The socket beneath, for its options.
    fn socket(&self) -> Option<&TcpStream>;

    /// Whether nothing has come since a read last had to wait. `false` says nothing.
    fn is_quiet(&self) -> bool {
        false
    }

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
    /// From when on a connection gets what only those need that last.
    lasting: Duration,
}

impl Tools {
    /// Tools with at most `pipes` pipes.
    #[must_use]
    pub(crate) fn new(clock: Clock, pipes: usize) -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            pipes: Pipes::new(pipes),
            clock,
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

/// Relays until both directions have ended. `first` goes to the server before the client's bytes. `moved` hears how
/// many bytes went up and down, once a wake-up.
pub(crate) fn relay<C: Leg, S: Leg>(
    client: C,
    server: S,
    first: Vec<u8>,
    patience: Patience,
    tools: &Tools,
    mut moved: impl FnMut(u64, u64),
) -> impl Future<Output = Closed> {
    // Put together here: the future would keep room for the parts as well, as long as the connection lasts.
    let mut legs = Legs {
        client,
        server,
        orderly: false,
    };
    let mut both = Both::new(first, tools.clock.soon());
    async move {
        let why = {
            let mut timer = pin!(Some(both.timer(patience, tools)));
            let mut vigil = None;
            poll_fn(|cx| {
                both.is_polled_by(cx);
                loop {
                    let has_just_ended = both.pass(&mut legs, cx, tools, &mut moved);
                    if let Some(why) = both.ended() {
                        return Poll::Ready(why);
                    }
                    if has_just_ended {
                        timer.set(Some(both.timer(patience, tools)));
                        both.awaits_delivery(&legs);
                    }
                    if both.keep_vigil(&mut vigil, &legs, cx).is_pending() {
                        return both.poll_patience(timer.as_mut(), &legs, patience, tools, cx);
                    }
                }
            })
            .await
        };
        let fault = both.fault(why, &legs);
        if why == Why::Aborted {
            both.abort(&legs, patience.abort).await;
        }
        legs.orderly = why == Why::Finished;
        drop(legs);
        Closed {
            by: match why {
                Why::Finished | Why::Aborted | Why::HalfClosed => both.first_to_end,
                Why::Idle => None,
            },
            fault,
            why,
            up: both.up.bytes,
            down: both.down.bytes,
        }
    }
}

/// Both sockets. However the relay is left, by an abort, a time-out, a drain or a panic: unless the end was an
/// orderly one, both peers are told by a reset that it was not.
struct Legs<C: Leg, S: Leg> {
    client: C,
    server: S,
    orderly: bool,
}

impl<C: Leg, S: Leg> Drop for Legs<C, S> {
    fn drop(&mut self) {
        if self.orderly {
            return;
        }
        for socket in [self.client.socket(), self.server.socket()]
            .into_iter()
            .flatten()
        {
            reset_on_close(socket);
        }
    }
}

/// Makes the coming `close` of `socket` a reset.
pub(crate) fn reset_on_close(socket: &TcpStream) {
    // It fails only for a socket that is gone already, and then there is nobody left to tell.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}

/// The worker's one buffer.
const SCRATCH: usize = 64 * 1024;

#[cfg(test)]
mod tests;
