//! The live load balancer nodes, by their Leases. Pure: the time is an argument. Used by `cluster`.
//!
//! A Lease is live for its duration after a renewal was *observed* here: the clocks of two nodes are never compared. Time counts only
//! while events of Leases come: a while after the last event of any Lease (other nodes' renewals, the leader's) the clock stops, and
//! every Lease that was live then has a whole new term when events come again. So an API server that is away ends no Lease, and a
//! node that died ends its own.
//!
//! The first event of a Lease, at a start, counts as a renewal. A Lease whose `renewTime` is older than its duration and [`DOUBT`] by
//! this node's clock is live for a term as well, because this clock may be wrong. But its content is ignored until a renewal:
//! nothing is published because of it, and nothing is unpublished.
//!
//! Nodes that lose the API server together lapse one after the other, and come back one after the other. So a node that falls silent
//! is excused unless another one was heard of after it had missed a renewal; and after no node was heard of, those that lapsed
//! meanwhile have a term more than the first one that comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1 as coordination;
use tokio::time::Instant;

use super::{Key, Lease};
use crate::lease::{
    self, EXCEPTIONS, Exceptions, Message, NODES, OwnPorts, PORTS, SERVED, SETTINGS, Versions,
};

/// A Lease, in the form in which it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaseObject {
    /// The load balancer node; `None`: a Lease of another kind, which only shows that events come.
    node: Option<String>,
    /// Differs from the last one after a renewal.
    stamp: (Option<i64>, Option<i32>, Option<String>),
    term: Duration,
    lease: Arc<Lease>,
}

impl LeaseObject {
    /// Reads a Lease.
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
            lease: Arc::new(Lease {
                served: annotations
                    .get(SERVED)
                    .map(|text| Versions::read(text))
                    .unwrap_or_default(),
                exceptions: annotations
                    .get(EXCEPTIONS)
                    .map(|text| Exceptions::read(text))
                    .unwrap_or_default(),
                settings: annotations.get(SETTINGS).cloned().unwrap_or_default(),
                ports: annotations
                    .get(PORTS)
                    .map(|text| OwnPorts::read(text))
                    .unwrap_or_default(),
                told_nodes: lease::read_crowd(annotations.get(NODES)),
            }),
        }
    }

    fn is_held(&self) -> bool {
        self.stamp.2.is_some()
    }
}

/// The Leases of the nodes, and the clock by which they expire.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The time that counted up to `last_event`.
    clock: Duration,
    last_event: Option<Instant>,
    nodes: BTreeMap<String, NodeLease>,
    /// The time of `clock` at which a node was heard of last.
    heard: Duration,
    /// The time of `clock` until which silent nodes have time to come back.
    comeback: Duration,
}

#[derive(Debug)]
struct NodeLease {
    object: Arc<LeaseObject>,
    /// The time of `clock` until which the Lease is live.
    until: Duration,
    /// The Lease looked expired at its first event, and was not renewed since.
    is_doubted: bool,
}

impl Leases {
    /// Updates all Leases after an event. `wall` is in microseconds of Unix time.
    pub(super) fn observe(
        &mut self,
        all: &BTreeMap<Key, Arc<LeaseObject>>,
        now: Instant,
        wall: i64,
    ) {
        let silence = self.silence(now);
        if silence > BLIND {
            for node in self.nodes.values_mut() {
                if node.until >= self.clock {
                    node.until = self.clock + node.object.term;
                }
            }
        } else {
            self.clock += silence.min(COUNTS);
        }
        self.last_event = Some(now);
        let was_silence = !self.is_heard() && self.nodes.values().any(|one| one.object.is_held());
        let mut before = std::mem::take(&mut self.nodes);
        for object in all.values() {
            let Some(node) = &object.node else { continue };
            let term = self.clock + object.term;
            let (until, is_doubted) = match before.remove(node) {
                Some(old) if old.object.stamp == object.stamp => (old.until, old.is_doubted),
                Some(_) => {
                    self.heard = self.clock;
                    (term, false)
                }
                None => {
                    let renewed = object.stamp.0.unwrap_or(i64::MIN);
                    let doubt = i64::try_from((object.term + DOUBT).as_micros());
                    let oldest = wall.saturating_sub(doubt.unwrap_or(i64::MAX));
                    if renewed >= oldest {
                        self.heard = self.clock;
                    }
                    (term, renewed < oldest)
                }
            };
            let lease = NodeLease {
                object: Arc::clone(object),
                until,
                is_doubted,
            };
            self.nodes.insert(node.clone(), lease);
        }
        // Somebody has deleted the Lease of a node that is live: the node makes it anew at its next renewal, and says nothing by that.
        for (node, mut lease) in before
            .into_iter()
            .filter(|(_, one)| one.is_live(self.clock))
        {
            lease.until = lease.until.min(self.clock + lease.object.term / 2);
            self.nodes.insert(node, lease);
        }
        if was_silence && self.is_heard() {
            let terms = self.nodes.values().map(|lease| lease.object.term);
            self.comeback = self.clock + terms.max().unwrap_or_default();
        }
    }

    /// Whether any Lease is live.
    fn is_heard(&self) -> bool {
        self.nodes.values().any(|lease| lease.is_live(self.clock))
    }

    /// The live Leases, by node.
    pub(super) fn live(&self, now: Instant) -> BTreeMap<String, Arc<Lease>> {
        let clock = self.at(now);
        let live = self.nodes.iter().filter(|(_, lease)| lease.is_live(clock));
        live.map(|(node, lease)| (node.clone(), lease.content()))
            .collect()
    }

    /// The Leases that have lapsed, by node: nobody gave them back, and nobody renews them.
    pub(super) fn silent(&self, now: Instant) -> BTreeMap<String, Arc<Lease>> {
        let clock = self.at(now);
        let nodes = self.nodes.iter();
        let silent = nodes.filter(|(_, lease)| lease.object.is_held() && !lease.is_live(clock));
        silent
            .map(|(node, lease)| (node.clone(), lease.content()))
            .collect()
    }

    /// Those of the silent nodes that may still be found to serve what they served.
    pub(super) fn excused(&self, now: Instant) -> BTreeSet<String> {
        let clock = self.at(now);
        let is_excused = |node: &String| {
            let lease = self.nodes.get(node);
            // A Lease is renewed three times in its term.
            let was_missed = lease.map(|lease| lease.until.saturating_sub(lease.object.term / 2));
            clock < self.comeback || was_missed.is_some_and(|missed| self.heard < missed)
        };
        self.silent(now).into_keys().filter(is_excused).collect()
    }

    /// The messages of the other Leases, by node: a node that serves nothing may give the reason.
    pub(super) fn others_say(&self, now: Instant) -> BTreeMap<String, Vec<Message>> {
        let clock = self.at(now);
        let others = self.nodes.iter().filter(|(_, lease)| !lease.is_live(clock));
        let messages = others.map(|(node, lease)| (node, &lease.object.lease.exceptions.node));
        messages
            .filter(|(_, messages)| !messages.is_empty())
            .map(|(node, messages)| (node.clone(), messages.clone()))
            .collect()
    }

    /// The time at which the next Lease expires if no event comes until then.
    pub(super) fn next_end(&self, now: Instant) -> Option<Instant> {
        let clock = self.at(now);
        let last_event = self.last_event?;
        let ends = self.nodes.values().map(|lease| lease.until);
        let ends = ends.chain([self.comeback]);
        let next = ends.filter(|until| *until > clock).min()?;
        let wait = next - self.clock;
        (wait <= COUNTS).then(|| last_event + wait)
    }

    fn at(&self, now: Instant) -> Duration {
        self.clock + self.silence(now).min(COUNTS)
    }

    fn silence(&self, now: Instant) -> Duration {
        self.last_event
            .map_or(Duration::ZERO, |last| now.saturating_duration_since(last))
    }
}

impl NodeLease {
    fn is_live(&self, clock: Duration) -> bool {
        self.object.is_held() && self.until > clock
    }

    fn content(&self) -> Arc<Lease> {
        let lease = &self.object.lease;
        match self.is_doubted {
            // No address is published because of it, and the published addresses stay.
            true => Arc::new(Lease {
                served: Versions::default(),
                ..Lease::clone(lease)
            }),
            false => Arc::clone(lease),
        }
    }
}

/// The longest time that counts after an event: more than lies between two renewals.
const COUNTS: Duration = Duration::from_secs(5);

/// Without events for so long, every live Lease has a whole new term: two renewals of every node were missed.
const BLIND: Duration = Duration::from_secs(8);

/// The largest difference between the clocks of two nodes that is expected.
const DOUBT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn everything() -> Versions {
        Versions::read("rv=7")
    }

    const EXCEPTION: &str = r#"{"services": {"c/d": {"closed": true}}}"#;

    /// In microseconds of Unix time.
    fn wall(seconds: f64) -> i64 {
        let since = Duration::from_secs(1_700_000_000) + Duration::from_secs_f64(seconds);
        i64::try_from(since.as_micros()).unwrap()
    }

    /// The Leases of a test, and the state that follows from their events.
    struct World {
        begin: Instant,
        all: BTreeMap<Key, Arc<LeaseObject>>,
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
                "metadata": {"name": name, "annotations": {SERVED: everything().to_string(), EXCEPTIONS: EXCEPTION, SETTINGS: "s", PORTS: "controller=5000"}},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": format!("{time:.6}")},
            });
            let lease = serde_json::from_value(lease).unwrap();
            self.all
                .insert(Key::new("ballast", name), Arc::new(LeaseObject::of(lease)));
        }

        fn observe(&mut self, seconds: f64) {
            let now = self.at(seconds);
            self.leases.observe(&self.all, now, wall(seconds));
        }

        fn renew(&mut self, node: &str, seconds: f64) {
            self.put(node, node, seconds);
            self.observe(seconds);
        }

        fn live(&self, seconds: f64) -> Vec<String> {
            self.leases.live(self.at(seconds)).into_keys().collect()
        }
    }

    #[test]
    fn a_lease_tells_what_is_served_and_what_is_not() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        let live = world.leases.live(world.at(0.0));
        let expected = Lease {
            served: everything(),
            exceptions: Exceptions::read(EXCEPTION),
            settings: "s".to_owned(),
            ports: OwnPorts::of([("controller", 5000)]),
            told_nodes: 2,
        };
        assert_eq!(expected.exceptions.services.len(), 1);
        assert_eq!(
            live,
            BTreeMap::from([("lb1".to_owned(), Arc::new(expected))])
        );
    }

    #[test]
    fn a_lease_that_is_not_renewed_expires_after_its_term() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in 0..3 {
            world.renew("lb2", f64::from(second) * 3.0 + 1.0);
        }
        assert_eq!(world.live(9.9), ["lb1", "lb2"]);
        let end = world.leases.next_end(world.at(9.9)).unwrap();
        assert_eq!(end, world.at(10.0));
        assert_eq!(world.live(10.0), ["lb2"]);
        // It is live again after a renewal.
        world.renew("lb1", 12.0);
        assert_eq!(world.live(12.0), ["lb1", "lb2"]);
    }

    #[test]
    fn a_released_lease_is_not_live_at_once() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        world.put("lb1", "", 1.0);
        world.observe(1.0);
        assert!(world.live(1.0).is_empty());
        world.renew("lb1", 2.0);
        assert_eq!(world.live(2.0), ["lb1"]);
        world.put("lb1", "", 2.2);
        world.observe(2.2);
        world.all.clear();
        world.observe(2.5);
        assert!(world.live(2.5).is_empty());
    }

    #[test]
    fn a_deleted_lease_is_live_until_its_node_had_time_to_make_it_anew() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        world.all.clear();
        for (second, is_live) in [(1.0, true), (3.0, true), (5.9, true), (6.1, false)] {
            world.observe(second);
            assert_eq!(!world.live(second).is_empty(), is_live, "after {second} s");
        }
        assert!(world.leases.silent(world.at(6.1)).is_empty());
        world.renew("lb1", 7.0);
        assert_eq!(world.live(7.0), ["lb1"]);
        world.all.clear();
        world.observe(8.0);
        world.renew("lb1", 10.0);
        assert_eq!(world.live(17.0), ["lb1"], "made anew");
    }

    #[test]
    fn an_update_that_is_no_renewal_prolongs_nothing() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in [4.0, 8.0] {
            world.put("lb1", "lb1", 0.0);
            world.observe(second);
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
        // lb2 died meanwhile: the first event is of lb1, and lb2 has a term.
        for second in [3600.0, 3603.0, 3606.0, 3609.0] {
            world.renew("lb1", second);
            assert_eq!(world.live(second), ["lb1", "lb2"], "after {second} s");
        }
        assert_eq!(world.live(3610.0), ["lb1"]);
    }

    #[test]
    fn a_lease_that_expired_before_the_api_server_went_stays_expired() {
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
    fn the_content_of_a_first_lease_is_ignored_if_it_is_old_by_any_clock() {
        for (age, is_believed) in [
            (0.0, true),
            (9.0, true),
            (65.0, true),
            (75.0, false),
            (-600.0, true),
        ] {
            let mut world = World::new();
            world.put("lb1", "lb1", 1000.0 - age);
            world.observe(1000.0);
            let served = |world: &World, seconds| {
                let live = world.leases.live(world.at(seconds));
                live.get("lb1").map(|lease| lease.served.clone())
            };
            let all = everything();
            let expected = if is_believed {
                all.clone()
            } else {
                Versions::default()
            };
            assert_eq!(served(&world, 1000.0), Some(expected), "{age} s old");
            world.renew("lb1", 1001.0);
            assert_eq!(served(&world, 1001.0), Some(all), "{age} s old, renewed");
        }
    }

    #[test]
    fn a_lease_that_looks_expired_at_first_expires_without_a_renewal_for_a_term() {
        let mut world = World::new();
        world.put("lb1", "lb1", 0.0);
        for second in [1000.0, 1003.0, 1006.0, 1009.0] {
            world.renew("lb2", second);
            assert_eq!(world.live(second), ["lb1", "lb2"], "after {second} s");
        }
        assert_eq!(world.live(1010.0), ["lb2"]);
    }

    #[test]
    fn nodes_that_fall_silent_together_are_excused_until_all_had_time_to_come_back() {
        let mut world = World::new();
        let lead = |world: &mut World, second: f64| {
            world.put_lease(lease::LEADER, "somebody", second);
            world.observe(second);
        };
        let excused = |world: &World, second| {
            let names = world.leases.excused(world.at(second)).into_iter();
            names.collect::<Vec<String>>().join(" ")
        };
        world.renew("lb1", 0.0);
        world.renew("lb2", 2.0);
        // The leader is heard of, and they are not. The Lease of lb2 lives on for a while, and shows nothing.
        for (second, live, expected) in [
            (4.0, "lb1 lb2", ""),
            (8.0, "lb1 lb2", ""),
            (11.0, "lb2", "lb1"),
            (13.0, "", "lb1 lb2"),
            (17.0, "", "lb1 lb2"),
        ] {
            lead(&mut world, second);
            assert_eq!(world.live(second).join(" "), live, "after {second} s");
            assert_eq!(excused(&world, second), expected, "after {second} s");
        }
        for second in [18.0, 22.0, 26.0] {
            world.renew("lb1", second);
            assert_eq!(excused(&world, second), "lb2", "after {second} s");
        }
        let end = world.leases.next_end(world.at(26.0)).unwrap();
        assert_eq!(end, world.at(28.0));
        assert_eq!(excused(&world, 28.0), "");
    }

    #[test]
    fn a_node_that_falls_silent_beside_others_is_not_excused() {
        let mut world = World::new();
        world.renew("lb2", 0.0);
        for second in [1.0, 5.0, 9.0] {
            world.renew("lb1", second);
        }
        assert_eq!(world.live(11.0), ["lb1"]);
        assert_eq!(world.leases.excused(world.at(11.0)), BTreeSet::new());
    }

    #[test]
    fn the_leaders_lease_is_no_nodes_and_lets_time_count() {
        let mut world = World::new();
        world.renew("lb1", 0.0);
        for second in [2.0, 4.0, 6.0, 8.0, 10.0] {
            world.put_lease(lease::LEADER, "somebody", second);
            world.observe(second);
        }
        assert!(world.live(10.0).is_empty());
    }
}
