//! The clock of open-loop load: when the next unit is due, whether or not the last one was answered. A late unit keeps the
//! moment at which it was due, and its latency counts from there.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::poll::{EventFlags, Poll};

/// Says when units are due, evenly spaced, and wakes the poll at each.
pub(crate) struct Pacer {
    timer: OwnedFd,
    interval: Duration,
    next: Instant,
    armed: Option<Instant>,
}

impl Pacer {
    pub(crate) fn new(poll: &Poll, rate: f64) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        poll.add(&timer, TIMER, EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            timer,
            interval: Duration::from_secs_f64(1.0 / rate.max(1.0)),
            next: Instant::now(),
            armed: None,
        })
    }

    /// The moment at which the next unit was due, if that has passed.
    #[inline]
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.next;
        (due <= now).then(|| {
            self.next += self.interval;
            due
        })
    }

    /// Sets the timer to the next unit. To be called when `due` has nothing more.
    #[inline]
    pub(crate) fn arm(&mut self, now: Instant) -> io::Result<()> {
        if self.armed == Some(self.next) {
            return Ok(());
        }
        let wait = self
            .next
            .saturating_duration_since(now)
            .max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec::try_from(wait).map_err(io::Error::other)?,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.armed = Some(self.next);
        Ok(())
    }
}

/// The token of the timer's events.
pub(crate) const TIMER: usize = usize::MAX;
