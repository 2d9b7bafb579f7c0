//! The one clock of the process: turns the kernel's monotonic time into [`Moment`]s and back.

use std::time::Duration;

use ballast_core::moment::Moment;
use tokio::time::Instant;

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(ballast_core::moment::whole_millis(self.start.elapsed()))
    }

    /// `moment` as the runtime's timers want it.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + Duration::from_millis(moment.0)
    }
}
