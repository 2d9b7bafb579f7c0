//! How long a relay waits: for bytes, for the second end, for delivery.

use std::mem;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;

use super::both::{Both, queued};
use super::direction::LARGE;
use super::{Leg, Legs, Tools, Why, lasting};
use crate::poller::Timer;

/// How long a relay waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Without a byte in either direction; `None`: for ever.
    pub idle: Option<Duration>,
    /// The same, once one side has said that it is done.
    pub half_closed: Duration,
    /// For the delivery of what came before an abort.
    pub abort: Duration,
}

impl Both {
    /// Sets the timer to the end of patience, or before that to the moment from which on this connection is an old one.
    pub(super) fn set_timer(&self, timer: &mut Timer, patience: Patience, tools: &Tools) {
        let wait = match self.limit(patience) {
            Some(limit) if self.lasts => limit,
            Some(limit) => limit.min(tools.lasting),
            None => tools.lasting,
        };
        timer.set(self.last_byte.after(wait));
    }

    /// Ready when patience is at its end. The timer is set again only when it fires, not when bytes pass.
    pub(super) fn poll_patience<C: Leg, S: Leg>(
        &mut self,
        timer: &mut Timer,
        legs: &Legs<'_, C, S>,
        patience: Patience,
        tools: &Tools,
        cx: &Context<'_>,
    ) -> Poll<Why> {
        loop {
            ready!(timer.poll(cx));
            if !mem::replace(&mut self.lasts, true)
                && let Some(server) = legs.server.socket()
            {
                lasting::watch(server);
            }
            let now = tools.clock.now();
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
            match self.deadline(patience) {
                Some(deadline) => timer.set(deadline),
                None => timer.clear(),
            }
        }
    }

    /// A side has just ended: much may still wait for a slow peer, and what it takes from now on counts.
    pub(super) fn awaits_delivery<C: Leg, S: Leg>(&mut self, legs: &Legs<'_, C, S>) {
        if self.bytes() > LARGE as u64 {
            self.is_delivering(legs);
        }
    }

    /// Whether a peer has taken bytes since this was last asked. One that reads slowly may be busy for long with what
    /// the kernel holds for it, and then nothing passes here. One that has just begun to wait is given one more turn.
    fn is_delivering<C: Leg, S: Leg>(&mut self, legs: &Legs<'_, C, S>) -> bool {
        let waiting = self.up.held()
            + self.down.held()
            + queued(legs.client.socket())
            + queued(legs.server.socket());
        let now = (self.bytes(), waiting);
        let before = mem::replace(&mut self.waiting, now);
        now != before && (waiting > 0 || before.1 > 0)
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

    fn bytes(&self) -> u64 {
        self.up.bytes + self.down.bytes
    }
}
