//! How often, and for how long, a service had nobody whose checks pass.
//!
//! Kept with the service's other state. [`super::Checks`] looks after each change of a verdict and each new plan.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::moment::Moment;

/// The outages of one service.
#[derive(Debug, Default)]
pub struct Outages(Mutex<Outage>);

/// A service's record of being up or down as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    is_down: bool,
    since: Moment,
    downs: u64,
    downtime: Duration,
    flaps: u64,
}

impl Outages {
    /// The record as it is now.
    #[must_use]
    pub fn record(&self) -> Outage {
        *self.lock()
    }

    /// What is true at `now`. Says whether that is news.
    pub(super) fn note(&self, is_down: bool, now: Moment) -> bool {
        let mut record = self.lock();
        if record.is_down == is_down {
            return false;
        }
        if is_down {
            record.downs += 1;
        } else {
            let down = now.since(record.since);
            record.downtime += down;
        }
        record.is_down = is_down;
        record.since = now;
        true
    }

    /// An endpoint went down within a minute of having come back.
    pub(super) fn flapped(&self) {
        self.lock().flaps += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Outage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    /// Whether there are endpoints that might serve, and the checks of all of them fail.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.is_down
    }

    /// Since when it has been up, or down; zero where that never changed (`lastchg`).
    #[must_use]
    pub fn since(&self) -> Moment {
        self.since
    }

    /// How often it went down (`chkdown`).
    #[must_use]
    pub fn downs(&self) -> u64 {
        self.downs
    }

    /// How long it has been down, in sum (`downtime`).
    #[must_use]
    pub fn downtime(&self, now: Moment) -> Duration {
        match self.is_down {
            true => self.downtime + now.since(self.since),
            false => self.downtime,
        }
    }

    /// How often one of its endpoints went down within a minute of having come back, those that left included.
    #[must_use]
    pub fn flaps(&self) -> u64 {
        self.flaps
    }
}
