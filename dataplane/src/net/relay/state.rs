//! The state of a relay: both directions, which side ended first, and which side is gone.
//!
//! The relay polls it; its timeouts are in [`timeouts`](super::timeouts).

use std::task::Context;
use std::time::Duration;

use ballast_core::moment::Moment;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::{Instant, sleep};

use super::direction::{Direction, Phase, UntilEnd};
use super::{RelaySide, Side, Sides, Tools, Why};
use crate::net::poller::Stream;
use crate::os::sys;

/// Both directions, and what is known of both sides.
pub(super) struct RelayState {
    pub(super) up: Direction,
    pub(super) down: Direction,
    pub(super) client_dead: bool,
    pub(super) server_dead: bool,
    pub(super) first_to_end: Option<Side>,
    pub(super) last_byte: Moment,
    /// As of the last check for delivery progress: the bytes moved so far, and the bytes that a peer had not yet accepted.
    pub(super) delivery: (u64, usize),
    /// Set once the connection is older than `LONG_LIVED_AFTER`.
    pub(super) is_long_lived: bool,
}

impl RelayState {
    pub(super) fn new(first: Vec<u8>, now: Moment) -> Self {
        Self {
            up: Direction::new(first, UntilEnd),
            down: Direction::default(),
            client_dead: false,
            server_dead: false,
            first_to_end: None,
            last_byte: now,
            delivery: (0, 0),
            is_long_lived: false,
        }
    }

    /// Moves the bytes that can be moved now, and passes their numbers to `moved`. Returns whether a side has just ended.
    pub(super) fn pass<C: RelaySide, S: RelaySide>(
        &mut self,
        sides: &mut Sides<'_, C, S>,
        cx: &mut Context<'_>,
        tools: &Tools,
        moved: &mut impl FnMut(u64, u64),
    ) -> bool {
        let before = (self.up.bytes, self.down.bytes);
        let was_open = self.first_to_end.is_none();
        self.pump(sides, cx, tools);
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

    fn pump<C: RelaySide, S: RelaySide>(
        &mut self,
        sides: &mut Sides<'_, C, S>,
        cx: &mut Context<'_>,
        tools: &Tools,
    ) {
        let (client, server) = (&mut *sides.client, &mut *sides.server);
        // While bytes of a side wait for the other side, or after the side has ended its direction, nothing reads from it. A
        // reset of that side is then visible only in the events of its socket.
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
            // The direction from the endpoint noticed the abort after the direction to the endpoint had been pumped. No other
            // event may ever wake that one, so it ends here.
            self.up.end();
        }
        self.note_end(Side::Server, self.down.source_ended());
    }

    /// Remembers which side ended first. A direction also ends when its sink is dead, so a dead side takes precedence over the
    /// source.
    fn note_end(&mut self, source: Side, source_ended: bool) {
        let ended_by = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => source_ended.then_some(source),
        };
        self.first_to_end = self.first_to_end.or(ended_by);
    }

    /// How the relay ended, once both directions have ended.
    pub(super) fn ended(&self) -> Option<Why> {
        if self.up.phase != Phase::Ended || self.down.phase != Phase::Ended {
            return None;
        }
        Some(if self.client_dead || self.server_dead {
            Why::Aborted
        } else {
            Why::Finished
        })
    }

    /// The side at fault for this end.
    pub(super) fn fault<C: RelaySide, S: RelaySide>(
        &self,
        why: Why,
        sides: &Sides<'_, C, S>,
    ) -> Option<Side> {
        let aborted = match (self.client_dead, self.server_dead) {
            (true, false) => Some(Side::Client),
            (false, true) => Some(Side::Server),
            _ => self.first_to_end,
        };
        match why {
            Why::Finished | Why::Cut => None,
            Why::Aborted => aborted,
            Why::Idle => self.stalled_side(sides),
            // The side that has not ended let the other one wait, unless the other one does not accept the bytes sent to it.
            Why::HalfClosed => self
                .stalled_side(sides)
                .or_else(|| self.first_to_end.map(Side::other)),
        }
    }

    /// The side that does not accept the bytes sent to it; `None` if neither or both sides do not.
    fn stalled_side<C: RelaySide, S: RelaySide>(&self, sides: &Sides<'_, C, S>) -> Option<Side> {
        let waits = |direction: &Direction, socket: Option<&Stream>| {
            direction.held() + unacknowledged(socket) > 0
        };
        let up = waits(&self.up, sides.server.socket());
        let down = waits(&self.down, sides.client.socket());
        match (up, down) {
            (true, false) => Some(Side::Server),
            (false, true) => Some(Side::Client),
            _ => None,
        }
    }

    /// Waits until the remaining side has received the bytes sent before the abort. A reset does not overtake bytes that were
    /// sent, but it discards bytes that are still in the kernel's send queue.
    pub(super) async fn abort<C: RelaySide, S: RelaySide>(
        &self,
        sides: &Sides<'_, C, S>,
        limit: Duration,
    ) {
        let survivor = match (self.client_dead, self.server_dead) {
            (false, true) => sides.client.socket(),
            (true, false) => sides.server.socket(),
            _ => None,
        };
        if let Some(survivor) = survivor
            && sys::unacknowledged(survivor).unwrap_or(0) > 0
        {
            Box::pin(delivered(survivor, limit)).await;
        }
    }
}

/// Returns when the peer has acknowledged everything, when its connection has failed, or after `limit`. The kernel gives no
/// event for an empty send queue, so this polls with growing pauses.
async fn delivered(socket: &Stream, limit: Duration) {
    let until = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < until && !has_events(socket, PollFlags::ERR | PollFlags::HUP) {
        sleep(pause).await;
        if sys::unacknowledged(socket).unwrap_or(0) == 0 {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn is_broken(side: &impl RelaySide) -> bool {
    side.socket().is_some_and(Stream::is_broken)
}

/// Bytes in the kernel's send queue that the peer has not acknowledged.
pub(super) fn unacknowledged(socket: Option<&Stream>) -> usize {
    socket.map_or(0, |socket| sys::unacknowledged(socket).unwrap_or(0))
}

/// Whether the kernel reports any of these events. `ERR` and `HUP` are reported without being requested.
fn has_events(socket: &Stream, events: PollFlags) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || fds[0].revents().intersects(events)
}

const LONGEST_PAUSE: Duration = Duration::from_millis(50);
