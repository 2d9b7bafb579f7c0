//! The timeouts of a relay.

use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;

use super::direction::LARGE;
use super::state::{RelayState, unacknowledged};
use super::{RelaySide, Sides, Tools, Why, keepalive};
use crate::net::poller::Timer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayTimeouts {
    /// Longest time without a byte in either direction; `None`: unlimited.
    pub idle: Option<Duration>,
    /// The same limit, once one side has ended its direction.
    pub half_closed: Duration,
    /// Longest time for delivering the bytes that were sent before an abort.
    pub abort: Duration,
}

/// The shorter one of two timeouts, of which `None` is unlimited.
pub(crate) fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

impl RelayState {
    /// Sets the timer to the end of the current timeout, or to the moment at which the connection becomes long-lived if that is
    /// earlier.
    pub(super) fn set_timer(&self, timer: &mut Timer, timeouts: RelayTimeouts, tools: &Tools) {
        let wait = match self.limit(timeouts) {
            Some(limit) if self.is_long_lived => limit,
            Some(limit) => limit.min(tools.long_lived_after),
            None => tools.long_lived_after,
        };
        timer.set(self.last_byte.after(wait));
    }

    /// Ready when a timeout has expired. Moving bytes does not re-arm the timer; only its expiry does.
    pub(super) fn poll_timeouts<C: RelaySide, S: RelaySide>(
        &mut self,
        timer: &mut Timer,
        sides: &Sides<'_, C, S>,
        timeouts: RelayTimeouts,
        tools: &Tools,
        cx: &Context<'_>,
    ) -> Poll<Why> {
        loop {
            ready!(timer.poll(cx));
            if !mem::replace(&mut self.is_long_lived, true)
                && let Some(server) = sides.server.socket()
            {
                keepalive::watch(server);
            }
            let now = tools.clock.now();
            if self
                .deadline(timeouts)
                .is_some_and(|deadline| now >= deadline)
            {
                if !self.is_delivering(sides) {
                    return Poll::Ready(match self.first_to_end {
                        Some(_) => Why::HalfClosed,
                        None => Why::Idle,
                    });
                }
                self.last_byte = now;
            }
            match self.deadline(timeouts) {
                Some(deadline) => timer.set(deadline),
                None => timer.clear(),
            }
        }
    }

    /// Called when a side has just ended. Many bytes may still be queued for a slow peer, and their delivery counts as progress
    /// from now on.
    pub(super) fn awaits_delivery<C: RelaySide, S: RelaySide>(&mut self, sides: &Sides<'_, C, S>) {
        if self.bytes() > LARGE as u64 {
            self.is_delivering(sides);
        }
    }

    /// Whether a peer has accepted bytes since the last call. A slow reader may take long to empty the kernel's send queue,
    /// during which the relay moves no byte. A peer that has only just begun to be waited for is given one more period.
    fn is_delivering<C: RelaySide, S: RelaySide>(&mut self, sides: &Sides<'_, C, S>) -> bool {
        let undelivered = self.up.held()
            + self.down.held()
            + unacknowledged(sides.client.socket())
            + unacknowledged(sides.server.socket());
        let now = (self.bytes(), undelivered);
        let before = mem::replace(&mut self.delivery, now);
        now != before && (undelivered > 0 || before.1 > 0)
    }

    fn limit(&self, timeouts: RelayTimeouts) -> Option<Duration> {
        match self.first_to_end {
            Some(_) => Some(timeouts.half_closed),
            None => timeouts.idle,
        }
    }

    fn deadline(&self, timeouts: RelayTimeouts) -> Option<Moment> {
        let limit = self.limit(timeouts)?;
        Some(self.last_byte.after(limit))
    }

    fn bytes(&self) -> u64 {
        self.up.bytes + self.down.bytes
    }
}
