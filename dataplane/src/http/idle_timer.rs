//! How long an exchange may be silent.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;
use ballast_core::plan::Frontend;
use ballast_core::service::Service;
use ballast_core::table::Protocol;

use crate::clock::Clock;
use crate::poller::Timer;
use crate::relay::shorter;

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

/// Expires when no byte was moved for a timeout, which depends on the side that is waited for. Moving bytes does not re-arm the
/// timer; only its expiry does.
pub(super) struct IdleTimer<'a> {
    pub(super) timer: &'a mut Timer,
    clock: Clock,
    last_byte: Moment,
    /// The timeout that the timer is set for.
    armed_for: Option<Duration>,
}

impl<'a> IdleTimer<'a> {
    pub(super) fn new(timer: &'a mut Timer, clock: Clock) -> Self {
        Self {
            timer,
            clock,
            last_byte: clock.soon(),
            armed_for: None,
        }
    }

    /// Notes that bytes were moved.
    pub(super) fn moved(&mut self) {
        self.last_byte = self.clock.soon();
    }

    /// Begins to wait.
    pub(super) fn begin(&mut self, timeout: Option<Duration>) {
        self.moved();
        self.arm(timeout);
    }

    /// Ready when no byte was moved for `timeout`.
    pub(super) fn poll(&mut self, timeout: Option<Duration>, cx: &Context<'_>) -> Poll<()> {
        if timeout != self.armed_for {
            // It is the other side now that is waited for.
            self.arm(timeout);
        }
        loop {
            ready!(self.timer.poll(cx));
            let Some(timeout) = timeout else {
                self.timer.clear();
                continue;
            };
            let deadline = self.last_byte.after(timeout);
            if self.clock.now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.set(deadline);
        }
    }

    fn arm(&mut self, timeout: Option<Duration>) {
        self.armed_for = timeout;
        match timeout {
            Some(timeout) => self.timer.set(self.last_byte.after(timeout)),
            None => self.timer.clear(),
        }
    }
}
