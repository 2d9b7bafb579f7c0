//! How long a relay waits: for bytes, for the second end, for delivery.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;
use tokio::time::{Sleep, sleep_until};

use super::both::{Both, queued};
use super::direction::LARGE;
use super::{Leg, Legs, Tools, Why, lasting};

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
    /// A timer for the end of patience, and before that for the moment from which on this connection has lasted.
    pub(super) fn timer(&mut self, patience: Patience, tools: &Tools) -> Sleep {
        self.is_timed = false;
        let wait = match self.limit(patience) {
            Some(limit) if self.lasts => limit,
            Some(limit) => limit.min(tools.lasting),
            None => tools.lasting,
        };
        sleep_until(tools.clock.instant(self.last_byte.after(wait)))
    }

    /// Ready when patience is at its end. The timer is set again only when it fires, not when bytes pass.
    pub(super) fn poll_patience<C: Leg, S: Leg>(
        &mut self,
        mut timer: Pin<&mut Option<Sleep>>,
        legs: &Legs<C, S>,
        patience: Patience,
        tools: &Tools,
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
            let Some(deadline) = self.deadline(patience) else {
                timer.set(None);
                return Poll::Pending;
            };
            sleep.as_mut().reset(tools.clock.instant(deadline));
        }
    }

    /// A side has just ended: much may still wait for a slow peer, and what it takes from now on counts.
    pub(super) fn awaits_delivery<C: Leg, S: Leg>(&mut self, legs: &Legs<C, S>) {
        if self.bytes() > LARGE as u64 {
            self.is_delivering(legs);
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
