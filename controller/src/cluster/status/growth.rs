//! How soon more addresses of a Service are published. Many nodes say one after the other that they serve it: the first of them are
//! published at once, and all the others in a few writes. Times are arguments; called by [`super`].

use std::time::Duration;

/// The writes that added addresses to one Service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    writes: u32,
    last: Duration,
}

impl Growth {
    /// Addresses are added now.
    pub(super) fn written(&mut self, now: Duration) {
        if now > self.last + QUIET {
            self.writes = 0;
        }
        self.writes = self.writes.saturating_add(1);
        self.last = now;
    }

    /// When the next ones may be added.
    pub(super) fn due(self) -> Duration {
        match self.writes.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(more) => self.last + (FIRST * 2_u32.pow(more.min(8))).min(LONGEST),
        }
    }
}

/// So many writes wait for nothing.
const AT_ONCE: u32 = 3;
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(2);
/// After so long without one the next writes are the first ones again.
const QUIET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_nodes_that_come_one_after_the_other_are_published_in_a_few_writes() {
        for (every, most) in [(10, 6), (90, 9), (2_000, 50)] {
            let mut growth = Growth::default();
            let (mut writes, mut waits) = (0, false);
            for millis in (0..every * 50 + 4_000).step_by(10) {
                let now = Duration::from_millis(millis + 60_000);
                waits |= millis % every == 0 && millis < every * 50;
                if waits && now >= growth.due() {
                    growth.written(now);
                    writes += 1;
                    waits = false;
                }
            }
            assert!(writes <= most && !waits, "{every} ms: {writes} writes");
        }
    }

    #[test]
    fn the_first_addresses_and_those_after_a_quiet_time_wait_for_nothing() {
        let mut growth = Growth::default();
        for second in [0, 0, 0, 12, 12, 12] {
            let now = Duration::from_secs(second + 60);
            assert!(growth.due() <= now, "{second}");
            growth.written(now);
        }
        assert!(growth.due() > Duration::from_secs(72));
    }
}
