//! Both directions together: who ended first, who is gone, and what an abort waits for.
//!
//! Driven by the relay above; how long it waits for whom is in [`patience`](super::patience).

use std::task::Context;
use std::time::Duration;

use ballast_core::moment::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::{Instant, sleep};

use super::direction::{Direction, Phase};
use super::{Leg, Legs, Side, Tools, Why};
use crate::poller::Stream;
use crate::sys;

/// Both directions, and what is known of both sides.
pub(super) struct Both {
    pub(super) up: Direction,
    pub(super) down: Direction,
    pub(super) client_dead: bool,
    pub(super) server_dead: bool,
    pub(super) first_to_end: Option<Side>,
    pub(super) last_byte: Moment,
    /// When it was last asked whether peers still take bytes: those read by then, and those of them not taken.
    pub(super) waiting: (u64, usize),
    /// It has lasted for a while.
    pub(super) lasts: bool,
}

impl Both {
    pub(super) fn new(first: Vec<u8>, now: Moment) -> Self {
        Self {
            up: Direction::beginning_with(first),
            down: Direction::default(),
            client_dead: false,
            server_dead: false,
            first_to_end: None,
            last_byte: now,
            waiting: (0, 0),
            lasts: false,
        }
    }

    /// Moves what can be moved now, and tells `moved` how many bytes that were. Says whether a side has just ended.
    pub(super) fn pass<C: Leg, S: Leg>(
        &mut self,
        legs: &mut Legs<'_, C, S>,
        cx: &mut Context<'_>,
        tools: &Tools,
        moved: &mut impl FnMut(u64, u64),
    ) -> bool {
        let before = (self.up.bytes, self.down.bytes);
        let was_open = self.first_to_end.is_none();
        self.pump(legs, cx, tools);
        let delta = (self.up.bytes - before.0, self.down.bytes - before.1);
        if delta != (0, 0) {
            moved(delta.0, delta.1);
        }
        let has_just_ended = was_open && self.first_to_end.is_some();
        if delta != (0, 0) || has_just_ended {
            self.last_byte = tools.clock.soon();
        }
        has_just_ended
    }

    fn pump<C: Leg, S: Leg>(
        &mut self,
        legs: &mut Legs<'_, C, S>,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) {
        let (client, server) = (&mut *legs.client, &mut *legs.server);
        // Nobody reads from a side while its bytes wait for the other one, or once it has ended its direction: its reset is seen
        // in the events of its socket.
        self.client_dead |= !self.up.reads() && is_broken(client);
        self.server_dead |= !self.down.reads() && is_broken(server);
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

    /// Remembers who ended it. A direction ends with its sink, too: who is dead is known better.
    fn note_end(&mut self, source: Side, source_ended: bool) {
        let ended_by = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => source_ended.then_some(source),
        };
        self.first_to_end = self.first_to_end.or(ended_by);
    }

    /// How it ended, once both directions have.
    pub(super) fn ended(&self) -> Option<Why> {
        if self.up.phase != Phase::Ended || self.down.phase != Phase::Ended {
            return None;
        }
        Some(match self.client_dead || self.server_dead {
            true => Why::Aborted,
            false => Why::Finished,
        })
    }

    /// Whose fault this end is.
    pub(super) fn fault<C: Leg, S: Leg>(&self, why: Why, legs: &Legs<'_, C, S>) -> Option<Side> {
        let aborted = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => self.first_to_end,
        };
        match why {
            Why::Finished | Why::Cut => None,
            Why::Aborted => aborted,
            Why::Idle => self.does_not_take(legs),
            // Who is done waits for the other one, unless that one waits for it to take what it was sent.
            Why::HalfClosed => self
                .does_not_take(legs)
                .or_else(|| self.first_to_end.map(Side::other)),
        }
    }

    /// The side that bytes wait for; `None`: neither, or both.
    fn does_not_take<C: Leg, S: Leg>(&self, legs: &Legs<'_, C, S>) -> Option<Side> {
        let waits = |flow: &Direction, socket: Option<&Stream>| flow.held() + queued(socket) > 0;
        let up = waits(&self.up, legs.server.socket());
        let down = waits(&self.down, legs.client.socket());
        match (up, down) {
            (true, false) => Some(Side::Server),
            (false, true) => Some(Side::Client),
            _ => None,
        }
    }

    /// Waits until the side that is still there has received what came before the abort: a reset overtakes nothing
    /// that was sent, but it destroys what is still waiting to be.
    pub(super) async fn abort<C: Leg, S: Leg>(&self, legs: &Legs<'_, C, S>, limit: Duration) {
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
async fn delivered(socket: &Stream, limit: Duration) {
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

fn is_broken(leg: &impl Leg) -> bool {
    leg.socket().is_some_and(Stream::is_broken)
}

/// Bytes that the kernel has for a peer.
pub(super) fn queued(socket: Option<&Stream>) -> usize {
    socket.map_or(0, |socket| sys::unacknowledged(socket).unwrap_or(0))
}

/// Whether the kernel reports any of these, of which it need not be asked for any.
fn sees(socket: &Stream, news: PollFlags) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || fds[0].revents().intersects(news)
}

const LONGEST_PAUSE: Duration = Duration::from_millis(50);
