//! How long an exchange may be silent.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;
use ballast_core::plan::Frontend;
use ballast_core::service::Service;
use ballast_core::table::Protocol;

use crate::net::poller::Timer;
use crate::net::relay::shorter;
use crate::os::clock::Clock;

/// The idle timeouts of both sides; `None`: unlimited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) client: Option<Duration>,
    pub(super) server: Option<Duration>,
}

impl Timeouts {
    /// The timeouts of a request of this frontend to this service.
    pub(super) fn of(frontend: &Frontend, service: &Service) -> Self {
        Self {
            client: frontend.client_timeout(),
            server: service.spec().timeouts.server(Protocol::Http),
        }
    }

    /// The timeout while either side may be the silent one.
    pub(super) fn of_both(self) -> Option<Duration> {
        shorter(self.client, self.server)
    }
}

/// Expires when no byte was moved for a timeout, which depends on the side that is waited for, and when the time for the whole
/// request is over. Moving bytes does not re-arm the timer; only its expiry does.
pub(super) struct IdleTimer<'a> {
    timer: &'a mut Timer,
    clock: Clock,
    last_byte: Moment,
    /// The timeout that the timer is set for.
    armed_for: Option<Duration>,
    /// When the time for the whole request is over; `None`: it is not limited.
    until: Option<Moment>,
}

/// Why the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// No byte was moved for too long.
    Idle,
    /// The whole request took too long.
    Whole,
}

impl<'a> IdleTimer<'a> {
    pub(super) fn new(timer: &'a mut Timer, clock: Clock, until: Option<Moment>) -> Self {
        Self {
            timer,
            clock,
            last_byte: clock.soon(),
            armed_for: None,
            until,
        }
    }

    /// Notes that bytes were moved.
    pub(super) fn moved(&mut self) {
        self.last_byte = self.clock.soon();
    }

    pub(super) fn begin(&mut self, timeout: Option<Duration>) {
        self.moved();
        self.arm(timeout);
    }

    /// Ready when no byte was moved for `timeout`, or the whole request took too long.
    pub(super) fn poll(&mut self, timeout: Option<Duration>, cx: &Context<'_>) -> Poll<Expired> {
        if timeout != self.armed_for {
            // It is the other side now that is waited for.
            self.arm(timeout);
        }
        loop {
            ready!(self.timer.poll(cx));
            let now = self.clock.now();
            if self.until.is_some_and(|until| now >= until) {
                return Poll::Ready(Expired::Whole);
            }
            let idle_at = timeout.map(|timeout| self.last_byte.after(timeout));
            if idle_at.is_some_and(|idle_at| now >= idle_at) {
                return Poll::Ready(Expired::Idle);
            }
            self.set(idle_at);
        }
    }

    fn arm(&mut self, timeout: Option<Duration>) {
        self.armed_for = timeout;
        self.set(timeout.map(|timeout| self.last_byte.after(timeout)));
    }

    fn set(&mut self, idle_at: Option<Moment>) {
        match idle_at.into_iter().chain(self.until).min() {
            Some(deadline) => self.timer.set(deadline),
            None => self.timer.clear(),
        }
    }
}
