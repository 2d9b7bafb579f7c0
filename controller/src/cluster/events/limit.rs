//! The rate limits of events: each object may have 25 warnings at once, and then one a minute, and as many other events. All Services of
//! a namespace together may have 300 warnings at once, and then 20 a minute; one more event says how many Services have more. Times are
//! arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::NewEvent;
use crate::decide::{About, Kind, Reason};

/// The events that may still be written.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// By the UID of the object. What Ballast does takes nothing from what its owner must be warned of.
    buckets: HashMap<(String, Kind), Bucket>,
    namespaces: BTreeMap<String, OfNamespace>,
    /// The time of the last event with the reason [`RARE`].
    last_rare: Option<Duration>,
}

/// The warnings about the Services of a namespace.
#[derive(Debug)]
struct OfNamespace {
    bucket: Bucket,
    /// The Services with a warning that was not written since the last summary, by UID.
    unsaid: BTreeSet<String>,
    /// The Service that the summary is an event of.
    example: Option<NewEvent>,
    summed_up: Option<Duration>,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    since: Duration,
    rate: Rate,
}

/// How many events may be written at once, and how long one more takes.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    every: Duration,
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
    /// `comes_again`: the event is told again later if it is not written now. Others do not count for their namespace, for what they
    /// say would be lost.
    pub(super) fn of(&mut self, event: &NewEvent, comes_again: bool, now: Duration) -> Limit {
        if event.reason == SUMMARY {
            return Limit::Allowed;
        }
        let is_rare = event.reason == RARE.to_string();
        if is_rare
            && self
                .last_rare
                .is_some_and(|last| now < last + OF_OBJECT.every)
        {
            return Limit::ToldElsewhere;
        }
        if !self.has_room(event, comes_again, now) {
            return Limit::TooMany;
        }
        if is_rare {
            self.last_rare = Some(now);
        }
        Limit::Allowed
    }

    fn has_room(&mut self, event: &NewEvent, comes_again: bool, now: Duration) -> bool {
        let whose = (event.uid.clone(), event.kind);
        if self.buckets.len() >= MOST_KNOWN && !self.buckets.contains_key(&whose) {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = self.buckets.entry(whose);
        let bucket = bucket.or_insert_with(|| Bucket::new(OF_OBJECT, now));
        if bucket.refill(now) == 0
            || comes_again && !has_room_in_namespace(&mut self.namespaces, event, now)
        {
            return false;
        }
        bucket.left -= 1;
        true
    }

    /// When the next summary is due.
    pub(super) fn next(&self) -> Option<Duration> {
        let due = self.namespaces.values().filter_map(OfNamespace::due);
        due.min()
    }

    /// An event that says of how many Services of a namespace there are warnings that were not written; at most one a minute.
    pub(super) fn summary(&mut self, now: Duration) -> Option<NewEvent> {
        let mut all = self.namespaces.values_mut();
        let of = all.find(|one| one.due().is_some_and(|due| due <= now))?;
        let example = of.example.take()?;
        let count = std::mem::take(&mut of.unsaid).len();
        of.summed_up = Some(now);
        let Rate { burst, every } = OF_NAMESPACE;
        let a_minute = 60 / every.as_secs();
        let message = format!(
            "{count} Services of this namespace, this one too, have warnings that are not written as events: they are too many ({burst} at once, and then {a_minute} a minute); the condition ballast.dev/Allocated of each, and \"ballast-controller plan\", have the reasons"
        );
        Some(NewEvent::new(
            example.about,
            &example.uid,
            Kind::Warning,
            SUMMARY,
            message,
        ))
    }
}

fn has_room_in_namespace(
    namespaces: &mut BTreeMap<String, OfNamespace>,
    event: &NewEvent,
    now: Duration,
) -> bool {
    let (About::Service(key), Kind::Warning) = (&event.about, event.kind) else {
        return true;
    };
    if namespaces.len() >= MOST_KNOWN && !namespaces.contains_key(&key.namespace) {
        namespaces.retain(|_, one| one.example.is_some() || !one.bucket.is_full(now));
    }
    let of = namespaces.entry(key.namespace.clone());
    let of = of.or_insert_with(|| OfNamespace {
        bucket: Bucket::new(OF_NAMESPACE, now),
        unsaid: BTreeSet::new(),
        example: None,
        summed_up: None,
    });
    if of.bucket.refill(now) == 0 {
        of.unsaid.insert(event.uid.clone());
        of.example.get_or_insert_with(|| event.clone());
        return false;
    }
    of.bucket.left -= 1;
    true
}

impl OfNamespace {
    /// When its next summary is due; `None`: there is nothing to sum up.
    fn due(&self) -> Option<Duration> {
        self.example.as_ref()?;
        let last = self.summed_up;
        Some(last.map_or(Duration::ZERO, |last| last + OF_OBJECT.every))
    }
}

impl Bucket {
    fn new(rate: Rate, now: Duration) -> Self {
        Self {
            left: rate.burst,
            since: now,
            rate,
        }
    }

    fn is_full(&mut self, now: Duration) -> bool {
        self.refill(now) == self.rate.burst
    }

    fn refill(&mut self, now: Duration) -> u32 {
        let Rate { burst, every } = self.rate;
        let passed = now.saturating_sub(self.since).as_secs() / every.as_secs();
        if passed > 0 {
            let more = u32::try_from(passed).unwrap_or(burst);
            self.left = self.left.saturating_add(more).min(burst);
            self.since += every * more;
        }
        if self.left == burst {
            self.since = now;
        }
        self.left
    }
}

const OF_OBJECT: Rate = Rate {
    burst: 25,
    every: Duration::from_secs(60),
};
const OF_NAMESPACE: Rate = Rate {
    burst: 300,
    every: Duration::from_secs(3),
};
/// The reason of the event in the place of those that are too many.
const SUMMARY: &str = "TooManyWarnings";
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
        let answers = (0..100).map(|_| limits.of(event, true, now));
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
        assert_eq!(limits.of(&a, true, now), Limit::TooMany);
        now += Duration::from_secs(1);
        assert_eq!(burst(&mut limits, &a, now), 1);
        now += Duration::from_secs(1_000_000);
        assert_eq!(burst(&mut limits, &a, now), 25);
    }

    #[test]
    fn what_is_told_once_is_not_held_back_by_what_stands() {
        let mut limits = Limits::default();
        let now = Duration::from_secs(1_000);
        for index in 0..400 {
            let standing = event(&format!("s{index}"), Kind::Warning, "AllocationFailed");
            limits.of(&standing, true, now);
        }
        assert_eq!(limits.next(), Some(Duration::ZERO));
        assert!(limits.summary(now).is_some());
        assert_eq!(limits.next(), None);
        let refused = event("a", Kind::Warning, "SyncLoadBalancerFailed");
        assert_eq!(limits.of(&refused, true, now), Limit::TooMany);
        assert_eq!(limits.next(), Some(now + OF_OBJECT.every));
        assert_eq!(limits.of(&refused, false, now), Limit::Allowed);
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
        assert_eq!(limits.of(&withdrawn("a"), true, now), Limit::Allowed);
        assert_eq!(limits.of(&withdrawn("b"), true, now), Limit::ToldElsewhere);
        now += Duration::from_secs(59);
        assert_eq!(limits.of(&withdrawn("c"), true, now), Limit::ToldElsewhere);
        let other = event("c", Kind::Warning, "NameTaken");
        assert_eq!(limits.of(&other, true, now), Limit::Allowed);
        now += Duration::from_secs(1);
        assert_eq!(limits.of(&withdrawn("d"), true, now), Limit::Allowed);
        assert_eq!(limits.of(&withdrawn("a"), true, now), Limit::ToldElsewhere);
    }

    #[test]
    fn a_namespace_full_of_bad_services_has_a_burst_and_a_summary_and_no_other_one_suffers() {
        let mut limits = Limits::default();
        let mut now = Duration::from_secs(1_000);
        let about = |namespace: &str, index: usize| {
            let about = About::Service(Key::new(namespace, &format!("s{index}")));
            let uid = format!("{namespace}-{index}");
            NewEvent::new(
                about,
                &uid,
                Kind::Warning,
                "AllocationFailed",
                String::new(),
            )
        };
        let written = |limits: &mut Limits, now| {
            let all = (0..1_500).map(|index| limits.of(&about("bad", index), true, now));
            all.filter(|answer| *answer == Limit::Allowed).count()
        };
        assert_eq!(limits.summary(now), None);
        assert_eq!(written(&mut limits, now), 300);
        assert_eq!(limits.of(&about("good", 1), true, now), Limit::Allowed);
        let summary = limits.summary(now).unwrap();
        assert_eq!(summary.about, About::Service(Key::new("bad", "s300")));
        assert!(
            summary
                .message
                .starts_with("1200 Services of this namespace")
        );
        assert_eq!(limits.of(&summary, true, now), Limit::Allowed);
        assert_eq!(limits.summary(now), None);
        now += Duration::from_secs(30);
        assert_eq!(written(&mut limits, now), 10);
        assert_eq!(limits.summary(now), None, "one a minute");
        now += Duration::from_secs(30);
        assert!(limits.summary(now).is_some());
        // What Ballast does is told of every Service.
        for index in 0..1_500 {
            let normal = NewEvent {
                kind: Kind::Normal,
                ..about("bad", index)
            };
            assert_eq!(limits.of(&normal, true, now), Limit::Allowed);
        }
    }
}
