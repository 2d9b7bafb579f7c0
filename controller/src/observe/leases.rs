//! Which load balancer nodes live, by their Leases. Pure: the time is an argument. Used by `cluster`.
//!
//! A Lease lives for its duration after a renewal was *seen* here: clocks of two nodes are never compared. Time counts only
//! while Leases are heard of at all: a while after the last event about any Lease (other nodes' renewals, the leader's)
//! it stands still, and who lived then has a whole new term when events come again. So an API server that is away ends
//! no Lease, and a node that died ends its own.
//!
//! At the first sight of a Lease (a start), there is no renewal to go by yet: it counts as seen just now. One whose
//! `renewTime` is older than its duration and [`DOUBT`] by this node's clock lives for a term as well, because it may be
//! that clock that is wrong; but what it says is not believed: nothing is published by it, and nothing is unpublished.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1 as coordination;
use tokio::time::Instant;

use super::{Key, Lease};
use crate::lease::{self, EXCEPTIONS, Exceptions, Message, SERVED, SETTINGS, Served};

/// A Lease of a load balancer node, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Renewal {
    /// `None`: another kind of Lease, which says only that Leases are heard of.
    node: Option<String>,
    /// Another one means: it was renewed.
    stamp: (Option<i64>, Option<i32>, Option<String>),
    term: Duration,
    lease: Lease,
}

impl Renewal {
    /// What a Lease says.
    pub(super) fn of(from: coordination::Lease) -> Self {
        let spec = from.spec.unwrap_or_default();
        let annotations = from.metadata.annotations.unwrap_or_default();
        let name = from.metadata.name.unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let node = lease::node_of(&name, holder.as_deref()).map(str::to_owned);
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            node,
            stamp: (
                spec.renew_time.map(|time| time.0.as_microsecond()),
                spec.lease_transitions,
                holder,
            ),
            term: Duration::from_secs(seconds.unwrap_or(10).clamp(1, 300)),
            lease: Lease {
                served: annotations
                    .get(SERVED)
                    .map(|text| Served::read(text))
                    .unwrap_or_default(),
                exceptions: annotations
                    .get(EXCEPTIONS)
                    .map(|text| Exceptions::read(text))
                    .unwrap_or_default(),
                settings: annotations.get(SETTINGS).cloned().unwrap_or_default(),
            },
        }
    }

    fn is_held(&self) -> bool {
        self.stamp.2.is_some()
    }
}

/// The Leases, and the time by which they live.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// How much time counted up to `heard`.
    clock: Duration,
    heard: Option<Instant>,
    seen: BTreeMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    renewal: Arc<Renewal>,
    /// Until when it lives.
    until: Duration,
    /// It looked dead at first sight, and was not renewed since.
    is_doubted: bool,
}

impl Leases {
    /// Something was heard of Leases: these are all that there are. `wall` is in microseconds of Unix time.
    pub(super) fn heard(&mut self, all: &BTreeMap<Key, Arc<Renewal>>, now: Instant, wall: i64) {
        let silence = self
            .heard
            .map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard));
        if silence > BLIND {
            for seen in self.seen.values_mut() {
                if seen.until >= self.clock {
                    seen.until = self.clock + seen.renewal.term;
                }
            }
        } else {
            self.clock += silence.min(COUNTS);
        }
        self.heard = Some(now);
        let mut before = std::mem::take(&mut self.seen);
        for renewal in all.values() {
            let Some(node) = &renewal.node else { continue };
            let term = self.clock + renewal.term;
            let (until, is_doubted) = match before.remove(node) {
                Some(seen) if seen.renewal.stamp == renewal.stamp => (seen.until, seen.is_doubted),
                Some(_) => (term, false),
                None => {
                    let renewed = renewal.stamp.0.unwrap_or(i64::MIN);
                    let doubt = i64::try_from((renewal.term + DOUBT).as_micros());
                    let oldest = wall.saturating_sub(doubt.unwrap_or(i64::MAX));
                    (term, renewed < oldest)
                }
            };
            let seen = Seen {
                renewal: Arc::clone(renewal),
                until,
                is_doubted,
            };
            self.seen.insert(node.clone(), seen);
        }
    }

    /// Those that live.
    pub(super) fn live(&self, now: Instant) -> BTreeMap<String, Lease> {
        let clock = self.at(now);
        let live = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.renewal.is_held() && seen.until > clock);
        live.map(|(node, seen)| (node.clone(), seen.says()))
            .collect()
    }

    /// What the others say of their nodes: a node that serves nothing may say why.
    pub(super) fn others_say(&self, now: Instant) -> BTreeMap<String, Vec<Message>> {
        let clock = self.at(now);
        let is_live = |seen: &Seen| seen.renewal.is_held() && seen.until > clock;
        let others = self.seen.iter().filter(|(_, seen)| !is_live(seen));
        let say = others.map(|(node, seen)| (node, &seen.renewal.lease.exceptions.node));
        say.filter(|(_, messages)| !messages.is_empty())
            .map(|(node, messages)| (node.clone(), messages.clone()))
            .collect()
    }

    /// When the next one ends, if nothing is heard until then.
    pub(super) fn next_end(&self, now: Instant) -> Option<Instant> {
        let clock = self.at(now);
        let heard = self.heard?;
        let ends = self.seen.values().map(|seen| seen.until);
        let next = ends.filter(|until| *until > clock).min()?;
        let wait = next - self.clock;
        (wait <= COUNTS).then(|| heard + wait)
    }

    fn at(&self, now: Instant) -> Duration {
        let silence = self
            .heard
            .map_or(Duration::ZERO, |heard| now.saturating_duration_since(heard));
        self.clock + silence.min(COUNTS)
    }
}

impl Seen {
    fn says(&self) -> Lease {
        let mut lease = self.renewal.lease.clone();
        if self.is_doubted {
            // Nothing is known of what it serves: no address comes by it, and those that are published stay.
            lease.served = Served::default();
        }
        lease
    }
}

/// So much time counts after the last event about any Lease: more than lies between two renewals.
const COUNTS: Duration = Duration::from_secs(5);

/// After such a silence, who lived has a whole new term: two renewals of everybody were missed.
const BLIND: Duration = Duration::from_secs(8);

/// How far the clocks of two nodes may be apart, generously.
const DOUBT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn everything() -> Served {
        Served::of(&[("a.b".to_owned(), 7)].into())
    }

    const EXCEPTION: &str = r#"{"services": {"c/d": {"closed": true}}}"#;

    /// In microseconds of Unix time.
    fn wall(seconds: f64) -> i64 {
        let since = Duration::from_secs(1_700_000_000) + Duration::from_secs_f64(seconds);
        i64::try_from(since.as_micros()).unwrap()
    }

    /// What happened to a Lease, and who lives then.
    struct World {
        begin: Instant,
        all: BTreeMap<Key, Arc<Renewal>>,
        leases: Leases,
    }

    impl World {
        fn new() -> Self {
            Self {
                begin: Instant::now(),
                all: BTreeMap::new(),
                leases: Leases::default(),
            }
        }

        fn at(&self, seconds: f64) -> Instant {
            self.begin + Duration::from_secs_f64(seconds)
        }

        fn put(&mut self, node: &str, holder: &str, renewed: f64) {
            self.put_lease(&lease::of_node(node), holder, renewed);
        }

        fn put_lease(&mut self, name: &str, holder: &str, renewed: f64) {
            let time = k8s_openapi::jiff::Timestamp::from_microsecond(wall(renewed)).unwrap();
            let lease = json!({
                "metadata": {"name": name, "annotations": {SERVED: everything().to_string(), EXCEPTIONS: EXCEPTION, SETTINGS: "s"}},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("{time:.6}")},
            });
            let lease = serde_json::from_value(lease).unwrap();
            self.all
                .insert(Key::new("ballast", name), Arc::new(Renewal::of(lease)));
        }

        fn heard(&mut self, seconds: f64) {
            let now = self.at(seconds);
            self.leases.heard(&self.all, now, wall(seconds));
        }

        fn renew(&mut self, node: &str, seconds: f64) {
            self.put(node, node, seconds);
            self.heard(seconds);
        }

        fn live(&self, seconds: f64) -> Vec<String> {
            self.leases.live(self.at(seconds)).into_keys().collect()
        }
    }

    #[test]
    fn a_lease_says_what_is_served_and_what_is_not() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        let live = world.leases.live(world.at(0.0));
        let expected = Lease {
            served: everything(),
            exceptions: Exceptions::read(EXCEPTION),
            settings: "s".to_owned(),
        };
        assert_eq!(expected.exceptions.services.len(), 1);
        assert_eq!(live, BTreeMap::from([("lb1".to_owned(), expected)]));
    }

    #[test]
    fn a_node_that_dies_is_gone_when_its_term_is_over() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in 0..3 {
            world.renew("lb2", f64::from(second) * 3.0 + 1.0);
        }
        assert_eq!(world.live(9.9), ["lb1", "lb2"]);
        let end = world.leases.next_end(world.at(9.9)).unwrap();
        assert_eq!(end, world.at(10.0));
        assert_eq!(world.live(10.0), ["lb2"]);
        // And lives again when it renews.
        world.renew("lb1", 12.0);
        assert_eq!(world.live(12.0), ["lb1", "lb2"]);
    }

    #[test]
    fn a_goodbye_counts_at_once() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        world.put("lb1", "", 1.0);
        world.heard(1.0);
        assert!(world.live(1.0).is_empty());
        world.renew("lb1", 2.0);
        assert_eq!(world.live(2.0), ["lb1"]);
        world.all.clear();
        world.heard(2.5);
        assert!(world.live(2.5).is_empty());
    }

    #[test]
    fn a_touch_that_is_no_renewal_prolongs_nothing() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in [4.0, 8.0] {
            world.put("lb1", "lb1", 0.0);
            world.heard(second);
        }
        assert_eq!(world.live(9.0), ["lb1"]);
        assert!(world.live(10.0).is_empty());
    }

    #[test]
    fn an_api_server_that_is_away_ends_no_lease() {
        let mut world = World::new();
        for second in [0.0, 3.0] {
            world.renew("lb1", second);
            world.renew("lb2", second + 1.0);
        }
        for second in [5.0, 14.0, 60.0, 3600.0] {
            assert_eq!(world.live(second), ["lb1", "lb2"], "after {second} s");
            assert_eq!(world.leases.next_end(world.at(second)), None);
        }
        // lb2 died meanwhile: lb1 is heard first, and lb2 has a term.
        for second in [3600.0, 3603.0, 3606.0, 3609.0] {
            world.renew("lb1", second);
            assert_eq!(world.live(second), ["lb1", "lb2"], "after {second} s");
        }
        assert_eq!(world.live(3610.0), ["lb1"]);
    }

    #[test]
    fn who_was_dead_before_the_api_server_went_stays_dead() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in [3.0, 6.0, 9.0, 12.0] {
            world.renew("lb2", second);
        }
        assert_eq!(world.live(12.0), ["lb2"]);
        world.renew("lb2", 900.0);
        assert_eq!(world.live(900.0), ["lb2"]);
    }

    #[test]
    fn what_a_lease_says_that_is_seen_first_is_not_believed_if_it_is_old_by_any_clock() {
        for (age, is_believed) in [
            (0.0, true),
            (9.0, true),
            (65.0, true),
            (75.0, false),
            (-600.0, true),
        ] {
            let mut world = World::new();
            world.put("lb1", "lb1", 1000.0 - age);
            world.heard(1000.0);
            let served = |world: &World, seconds| {
                let live = world.leases.live(world.at(seconds));
                live.get("lb1").map(|lease| lease.served.clone())
            };
            let all = everything();
            let expected = if is_believed {
                all.clone()
            } else {
                Served::default()
            };
            assert_eq!(served(&world, 1000.0), Some(expected), "{age} s old");
            world.renew("lb1", 1001.0);
            assert_eq!(served(&world, 1001.0), Some(all), "{age} s old, renewed");
        }
    }

    #[test]
    fn a_lease_that_looks_dead_at_first_sight_is_dead_when_it_was_not_renewed_for_a_term() {
        let mut world = World::new();
        world.put("lb1", "lb1", 0.0);
        for second in [1000.0, 1003.0, 1006.0, 1009.0] {
            world.renew("lb2", second);
            assert_eq!(world.live(second), ["lb1", "lb2"], "after {second} s");
        }
        assert_eq!(world.live(1010.0), ["lb2"]);
    }

    #[test]
    fn the_leaders_lease_is_no_nodes_and_shows_that_time_passes() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in [2.0, 4.0, 6.0, 8.0, 10.0] {
            world.put_lease(lease::LEADER, "somebody", second);
            world.heard(second);
        }
        assert!(world.live(10.0).is_empty());
    }
}
