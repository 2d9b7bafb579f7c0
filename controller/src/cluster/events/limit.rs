//! The rate limit of events: each object may have 25 at once, and then one a minute. Times are arguments.

use std::collections::HashMap;
use std::time::Duration;

/// The events that each object may still have, by UID.
#[derive(Debug, Default)]
pub(super) struct Limits(HashMap<String, Bucket>);

#[derive(Debug)]
struct Bucket {
    left: u32,
    since: Duration,
}

impl Limits {
    /// Whether the object may have an event now; then it has one fewer.
    pub(super) fn allow(&mut self, uid: &str, now: Duration) -> bool {
        if self.0.len() >= MOST_KNOWN && !self.0.contains_key(uid) {
            self.0.retain(|_, bucket| bucket.refill(now) < BURST);
        }
        let bucket = self.0.entry(uid.to_owned()).or_insert(Bucket {
            left: BURST,
            since: now,
        });
        if bucket.refill(now) == 0 {
            return false;
        }
        bucket.left -= 1;
        true
    }
}

impl Bucket {
    fn refill(&mut self, now: Duration) -> u32 {
        let passed = now.saturating_sub(self.since).as_secs() / EVERY.as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(BURST);
            self.left = self.left.saturating_add(more).min(BURST);
            self.since += EVERY * more;
        }
        if self.left == BURST {
            self.since = now;
        }
        self.left
    }
}

const BURST: u32 = 25;
const EVERY: Duration = Duration::from_secs(60);
const MOST_KNOWN: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_a_burst_and_then_one_a_minute_and_no_other_one_suffers() {
        let mut limits = Limits::default();
        let mut now = Duration::from_secs(1_000);
        let burst =
            |limits: &mut Limits, uid: &str| (0..100).filter(|_| limits.allow(uid, now)).count();
        assert_eq!(burst(&mut limits, "a"), 25);
        assert_eq!(burst(&mut limits, "b"), 25);
        now += Duration::from_secs(59);
        assert!(!limits.allow("a", now));
        now += Duration::from_secs(1);
        assert!(limits.allow("a", now));
        assert!(!limits.allow("a", now));
        now += Duration::from_secs(1_000_000);
        assert_eq!((0..100).filter(|_| limits.allow("a", now)).count(), 25);
    }
}
