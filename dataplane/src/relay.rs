//! Both directions of one connection, from the first byte to the last.
//!
//! Called by [`crate::tcp`] once both legs stand. It keeps half-closed connections alive, passes an abort on as an
//! abort, ends what is idle, and owns no buffer while nothing is in flight: bytes are read into the worker's one
//! scratch buffer and written to the other side at once; only what that side did not take is kept. It never looks
//! at the plan, and never logs.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::clock::Clock;
use crate::sys;

mod flow;
mod lasting;
mod plain;
mod splice;

use flow::{Flow, LARGE, Phase};
use lasting::LASTING;
pub(crate) use lasting::keepalive;
pub use splice::Pipes;

/// One side of a connection.
pub trait Leg: AsyncRead + AsyncWrite + Unpin {
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
pub struct Tools {
    scratch: RefCell<Box<[u8]>>,
    /// Pipes for bulk.
    pub pipes: Rc<Pipes>,
    clock: Clock,
}

impl Tools {
    /// Tools with at most `pipes` pipes.
    #[must_use]
    pub fn new(clock: Clock, pipes: usize) -> Self {
        Self {
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            pipes: Pipes::new(pipes),
            clock,
        }
    }
}

/// How long a relay waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Without a byte in either direction; `None`: for ever.
    pub idle: Option<Duration>,
    /// The same, once one side has said that it is done.
    pub half_closed: Duration,
    /// For the delivery of what came before an abort.
    pub abort: Duration,
}

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
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
pub enum Why {
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
pub struct Closed {
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
    pub fn fault(&self, client_is_stricter: bool) -> Option<Side> {
        match (self.why, client_is_stricter) {
            (Why::Idle, true) => self.fault.or(Some(Side::Client)),
            (Why::Idle, false) => self.fault.or(Some(Side::Server)),
            _ => self.fault,
        }
    }
}

/// Relays until both directions have ended. `first` goes to the server before the client's bytes. `moved` hears how
/// many bytes went up and down, once a wake-up.
pub fn relay<C: Leg, S: Leg>(
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
            let mut timer = pin!(Some(both.timer(patience, &tools.clock)));
            let mut vigil = None;
            poll_fn(|cx| {
                both.is_polled_by(cx);
                loop {
                    let before = (both.up.bytes, both.down.bytes);
                    let was_open = both.first_to_end.is_none();
                    both.pump(&mut legs, cx, tools);
                    let delta = (both.up.bytes - before.0, both.down.bytes - before.1);
                    if delta != (0, 0) {
                        moved(delta.0, delta.1);
                        both.last_byte = tools.clock.soon();
                    }
                    if both.up.phase == Phase::Ended && both.down.phase == Phase::Ended {
                        return Poll::Ready(both.ending());
                    }
                    if was_open && both.first_to_end.is_some() {
                        both.last_byte = tools.clock.soon();
                        timer.set(Some(both.timer(patience, &tools.clock)));
                        if both.bytes() > LARGE as u64 {
                            // Much may still wait for a slow peer: what it takes from now on counts.
                            both.is_delivering(&legs);
                        }
                    }
                    if both.keep_vigil(&mut vigil, &legs, cx).is_pending() {
                        return both.poll_patience(
                            timer.as_mut(),
                            &legs,
                            patience,
                            &tools.clock,
                            cx,
                        );
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
pub fn reset_on_close(socket: &TcpStream) {
    // It fails only for a socket that is gone already, and then there is nobody left to tell.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}

struct Both {
    up: Flow,
    down: Flow,
    client_dead: bool,
    server_dead: bool,
    first_to_end: Option<Side>,
    last_byte: Moment,
    /// When it was last asked whether peers still take bytes: those read by then, and those of them not taken.
    waiting: (u64, usize),
    /// It has lasted for a while.
    lasts: bool,
    /// The timer wakes the task.
    is_timed: bool,
    /// Which task that is.
    task: usize,
}

impl Both {
    fn new(first: Vec<u8>, now: Moment) -> Self {
        Self {
            up: Flow::beginning_with(first),
            down: Flow::default(),
            client_dead: false,
            server_dead: false,
            first_to_end: None,
            last_byte: now,
            waiting: (0, 0),
            is_timed: false,
            lasts: false,
            task: 0,
        }
    }

    /// Whoever was told to wake the task need not be told again each time, as long as it is the same one.
    fn is_polled_by(&mut self, cx: &Context<'_>) {
        let task = cx.waker().data().addr();
        if self.task != task {
            self.task = task;
            self.is_timed = false;
            self.up.is_with_another_task();
            self.down.is_with_another_task();
        }
    }

    fn pump<C: Leg, S: Leg>(&mut self, legs: &mut Legs<C, S>, cx: &mut Context<'_>, tools: &Tools) {
        let (client, server) = (&mut legs.client, &mut legs.server);
        self.up.pump(
            (client, &mut self.client_dead),
            (server, &mut self.server_dead),
            self.down.phase,
            cx,
            tools,
        );
        self.note_end(Side::Client, self.up.source_ended());
        self.down.pump(
            (server, &mut self.server_dead),
            (client, &mut self.client_dead),
            self.up.phase,
            cx,
            tools,
        );
        if self.server_dead {
            // Seen on reading, after the way up had its turn: nothing else may ever wake that one.
            self.up.end();
        }
        self.note_end(Side::Server, self.down.source_ended());
    }

    /// Remembers who ended it. A flow from `source` ends with its sink, too: who is dead is known better.
    fn note_end(&mut self, source: Side, source_ended: bool) {
        let ended_by = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => source_ended.then_some(source),
        };
        self.first_to_end = self.first_to_end.or(ended_by);
    }

    /// While bytes wait for a side that takes none, nobody reads from the other one, and so nothing tells that it has
    /// aborted: a look every [`GLANCE`] does. Ready when a side was found dead.
    fn keep_vigil<C: Leg, S: Leg>(
        &mut self,
        vigil: &mut Option<Pin<Box<Sleep>>>,
        legs: &Legs<C, S>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            if vigil.is_none() && !self.up.is_stuck() && !self.down.is_stuck() {
                return Poll::Pending;
            }
            ready!(
                vigil
                    .get_or_insert_with(|| Box::pin(sleep(GLANCE)))
                    .as_mut()
                    .poll(cx)
            );
            *vigil = None;
            let died = |flow: &Flow, dead: bool, socket: Option<&TcpStream>| {
                !dead
                    && flow.is_stuck()
                    && socket.is_some_and(|socket| sees(socket, PollFlags::ERR))
            };
            if died(&self.up, self.client_dead, legs.client.socket()) {
                self.client_dead = true;
                return Poll::Ready(());
            }
            if died(&self.down, self.server_dead, legs.server.socket()) {
                self.server_dead = true;
                return Poll::Ready(());
            }
        }
    }

    fn ending(&self) -> Why {
        if self.client_dead || self.server_dead {
            Why::Aborted
        } else {
            Why::Finished
        }
    }

    /// Whose fault this end is.
    fn fault<C: Leg, S: Leg>(&self, why: Why, legs: &Legs<C, S>) -> Option<Side> {
        let aborted = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => self.first_to_end,
        };
        match why {
            Why::Finished => None,
            Why::Aborted => aborted,
            Why::Idle => self.does_not_take(legs),
            // Who is done waits for the other one, unless that one waits for it to take what it was sent.
            Why::HalfClosed => self
                .does_not_take(legs)
                .or_else(|| self.first_to_end.map(Side::other)),
        }
    }

    /// The side that bytes wait for; `None`: neither, or both.
    fn does_not_take<C: Leg, S: Leg>(&self, legs: &Legs<C, S>) -> Option<Side> {
        let waits = |flow: &Flow, socket: Option<&TcpStream>| flow.held() + queued(socket) > 0;
        let up = waits(&self.up, legs.server.socket());
        let down = waits(&self.down, legs.client.socket());
        match (up, down) {
            (true, false) => Some(Side::Server),
            (false, true) => Some(Side::Client),
            _ => None,
        }
    }

    fn limit(&self, patience: Patience) -> Option<Duration> {
        match self.first_to_end {
            Some(_) => Some(patience.half_closed),
            None => patience.idle,
        }
    }

    fn deadline(&self, patience: Patience) -> Option<Moment> {
        let limit = self.limit(patience)?;
        Some(self.last_byte.after(limit))
    }

    /// A timer for the end of patience, and before that for the moment from which on this connection has lasted.
    fn timer(&mut self, patience: Patience, clock: &Clock) -> Sleep {
        self.is_timed = false;
        let wait = match self.limit(patience) {
            Some(limit) if self.lasts => limit,
            Some(limit) => limit.min(LASTING),
            None => LASTING,
        };
        sleep_until(clock.instant(self.last_byte.after(wait)))
    }

    /// Ready when patience is at its end. The timer is set again only when it fires, not when bytes pass.
    fn poll_patience<C: Leg, S: Leg>(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        legs: &Legs<C, S>,
        patience: Patience,
        clock: &Clock,
        cx: &mut Context<'_>,
    ) -> Poll<Why> {
        let Some(mut sleep) = timer.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        if self.is_timed && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        loop {
            self.is_timed = true;
            ready!(sleep.as_mut().poll(cx));
            if !mem::replace(&mut self.lasts, true)
                && let Some(server) = legs.server.socket()
            {
                lasting::watch(server);
            }
            let now = clock.now();
            if self
                .deadline(patience)
                .is_some_and(|deadline| now >= deadline)
            {
                if !self.is_delivering(legs) {
                    return Poll::Ready(match self.first_to_end {
                        Some(_) => Why::HalfClosed,
                        None => Why::Idle,
                    });
                }
                self.last_byte = now;
            }
            let Some(deadline) = self.deadline(patience) else {
                timer.set(None);
                return Poll::Pending;
            };
            sleep.as_mut().reset(clock.instant(deadline));
        }
    }

    /// Whether a peer has taken bytes since this was last asked. One that reads slowly may be busy for long with what
    /// the kernel holds for it, and then nothing passes here. One that has just begun to wait is given one more turn.
    fn is_delivering<C: Leg, S: Leg>(&mut self, legs: &Legs<C, S>) -> bool {
        let waiting = self.up.held()
            + self.down.held()
            + queued(legs.client.socket())
            + queued(legs.server.socket());
        let now = (self.bytes(), waiting);
        let before = mem::replace(&mut self.waiting, now);
        now != before && (waiting > 0 || before.1 > 0)
    }

    fn bytes(&self) -> u64 {
        self.up.bytes + self.down.bytes
    }

    /// Waits until the side that is still there has received what came before the abort: a reset overtakes nothing
    /// that was sent, but it destroys what is still waiting to be.
    async fn abort<C: Leg, S: Leg>(&self, legs: &Legs<C, S>, limit: Duration) {
        let survivor = match (self.client_dead, self.server_dead) {
            (false, true) => legs.client.socket(),
            (true, false) => legs.server.socket(),
            _ => None,
        };
        if let Some(survivor) = survivor
            && sys::unacknowledged(survivor).unwrap_or(0) > 0
        {
            Box::pin(delivered(survivor, limit)).await;
        }
    }
}

/// Returns when the peer has acknowledged everything, is gone itself, or `limit` is over. The kernel tells nobody
/// when its send queue runs empty, so this looks again and again, less and less often.
async fn delivered(socket: &TcpStream, limit: Duration) {
    let until = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < until && !sees(socket, PollFlags::ERR | PollFlags::HUP) {
        sleep(pause).await;
        if sys::unacknowledged(socket).unwrap_or(0) == 0 {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Bytes that the kernel has for a peer.
fn queued(socket: Option<&TcpStream>) -> usize {
    socket.map_or(0, |socket| sys::unacknowledged(socket).unwrap_or(0))
}

/// Whether the kernel reports any of these, of which it need not be asked for any.
fn sees(socket: &TcpStream, news: PollFlags) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || fds[0].revents().intersects(news)
}

/// The worker's one buffer.
const SCRATCH: usize = 64 * 1024;
/// How often a connection whose bytes wait is looked at.
const GLANCE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
