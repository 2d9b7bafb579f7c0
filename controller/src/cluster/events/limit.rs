//! The rate limit of events: each object may have 25 warnings at once, and then one a minute, and as many other events. Times are
//! arguments.

use std::collections::HashMap;
use std::time::Duration;

use super::NewEvent;
use crate::decide::{Kind, Reason};

/// The events that may still be written.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// By the UID of the object. What Ballast does takes nothing from what its owner must be warned of.
    buckets: HashMap<(String, Kind), Bucket>,
    /// The time of the last event with the reason [`RARE`].
    last_rare: Option<Duration>,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    since: Duration,
}

/// The answer to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// The event may be written; the object may have one fewer.
    Allowed,
    /// The object has had too many.
    TooMany,
    /// An event of the same reason about another object has told of the same a short time ago.
    ToldElsewhere,
}

impl Limits {
    pub(super) fn of(&mut self, event: &NewEvent, now: Duration) -> Limit {
        let is_rare = event.reason == RARE.to_string();
        if is_rare && self.last_rare.is_some_and(|last| now < last + EVERY) {
            return Limit::ToldElsewhere;
        }
        if !self.has_room(event, now) {
            return Limit::TooMany;
        }
        if is_rare {
            self.last_rare = Some(now);
        }
        Limit::Allowed
    }

    fn has_room(&mut self, event: &NewEvent, now: Duration) -> bool {
        let whose = (event.uid.clone(), event.kind);
        if self.buckets.len() >= MOST_KNOWN && !self.buckets.contains_key(&whose) {
            self.buckets.retain(|_, bucket| bucket.refill(now) < BURST);
        }
        let bucket = self.buckets.entry(whose).or_insert(Bucket {
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
const MOST_KNOWN: usize = 20_000;
/// Each such event tells of all Services of its kind, and another Service may be the one that has it with every new Service.
const RARE: Reason = Reason::RoutesWithdrawn;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::About;
    use crate::observe::Key;

    fn event(uid: &str, kind: Kind, reason: &str) -> NewEvent {
        let about = About::Service(Key::new("shop", "web"));
        NewEvent::new(about, uid, kind, reason, String::new())
    }

    /// How many of a hundred events are allowed.
    fn burst(limits: &mut Limits, event: &NewEvent, now: Duration) -> usize {
        let answers = (0..100).map(|_| limits.of(event, now));
        answers.filter(|answer| *answer == Limit::Allowed).count()
    }

    #[test]
    fn an_object_has_a_burst_and_then_one_a_minute_and_no_other_one_suffers() {
        let mut limits = Limits::default();
        let mut now = Duration::from_secs(1_000);
        let [a, b] = ["a", "b"].map(|uid| event(uid, Kind::Warning, "AllocationFailed"));
        assert_eq!(burst(&mut limits, &a, now), 25);
        assert_eq!(burst(&mut limits, &b, now), 25);
        now += Duration::from_secs(59);
        assert_eq!(limits.of(&a, now), Limit::TooMany);
        now += Duration::from_secs(1);
        assert_eq!(burst(&mut limits, &a, now), 1);
        now += Duration::from_secs(1_000_000);
        assert_eq!(burst(&mut limits, &a, now), 25);
    }

    #[test]
    fn what_ballast_does_takes_nothing_from_the_warnings_of_a_service() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1_000);
        let assigned = event("a", Kind::Normal, "nodeAssigned");
        assert_eq!(burst(&mut limits, &assigned, now), 25);
        let failed = event("a", Kind::Warning, "AllocationFailed");
        assert_eq!(burst(&mut limits, &failed, now), 25);
    }

    #[test]
    fn withdrawn_routes_are_told_to_one_service_a_minute_at_most() {
        let mut limits = Limits::default();
        let mut now = Duration::from_secs(1_000);
        let withdrawn = |uid: &str| event(uid, Kind::Warning, "RoutesWithdrawn");
        assert_eq!(limits.of(&withdrawn("a"), now), Limit::Allowed);
        assert_eq!(limits.of(&withdrawn("b"), now), Limit::ToldElsewhere);
        now += Duration::from_secs(59);
        assert_eq!(limits.of(&withdrawn("c"), now), Limit::ToldElsewhere);
        let other = event("c", Kind::Warning, "NameTaken");
        assert_eq!(limits.of(&other, now), Limit::Allowed);
        now += Duration::from_secs(1);
        assert_eq!(limits.of(&withdrawn("d"), now), Limit::Allowed);
        assert_eq!(limits.of(&withdrawn("a"), now), Limit::ToldElsewhere);
    }
}
