//! Time as an argument: nothing in this crate reads a clock.

use std::time::Duration;

/// A moment: whole milliseconds since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment `wait` later.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(wait)))
    }

    /// The time since `earlier`; zero if that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// `wait` in whole milliseconds; a longer one than fits counts as endless.
pub fn whole_millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
