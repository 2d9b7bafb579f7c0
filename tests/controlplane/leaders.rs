//! One controller writes statuses; when it is gone, another one does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::Place;
use crate::backends::service;
use crate::corner::{Corner, in_a_corner};
use crate::figures::in_time;
use crate::node::{LbNode, leader};
use crate::process::{Signal, comes_within, until};

fn a_leader_that_dies_is_followed_within_fifteen_seconds() {
    in_a_corner("crash", |corner| {
        let mut nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        let first = lead(corner, &nodes);
        assert_eq!(writers(corner), BTreeSet::from([nodes[first].address()]));

        let begun = Instant::now();
        nodes[first].controller.take().expect("it runs").crash();
        corner.apply(&service("later", 81, ""));
        // Its data plane serves on, but nobody speaks for it any more.
        corner.until_published("later", &[&addresses[1 - first]]);
        let lasted = begun.elapsed();
        in_time("a dead leader is followed", lasted, Duration::from_secs(15));
        assert_eq!(lead(corner, &nodes), 1 - first);
        nodes[first].ask(80).expect_err("a port without endpoints");

        nodes[first].start_controller();
        corner.until_published("later", &[&addresses[0], &addresses[1]]);
        assert_eq!(lead(corner, &nodes), 1 - first, "who leads goes on leading");
    });
}

fn a_leader_that_leaves_in_order_is_followed_at_once() {
    in_a_corner("order", |corner| {
        let mut nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        let first = lead(corner, &nodes);

        let controller = nodes[first].controller.take().expect("it runs");
        let begun = Instant::now();
        assert_eq!(controller.stop(), Some(0));
        until("another leader", || {
            leader(corner).is_some_and(|name| name.contains(&nodes[1 - first].name))
        });
        let lasted = begun.elapsed();
        in_time(
            "a leader that leaves in order is followed",
            lasted,
            Duration::from_secs(2),
        );
        // Its node is still published: its data plane is well, and its Lease runs on for a restart.
        assert_eq!(corner.published("web").len(), 2);
        let lease = nodes[first].lease().expect("a Lease");
        assert!(
            lease["spec"]["holderIdentity"]
                .as_str()
                .is_some_and(|holder| !holder.is_empty()),
            "{lease}"
        );
    });
}

fn a_leader_that_begins_unpublishes_nobody_by_a_clock() {
    in_a_corner("clock", |corner| {
        let mut first = LbNode::start(corner, "a", &[]);
        until("a leader", || leader(corner).is_some());
        let other = LbNode::start(corner, "b", &[]);
        corner.apply(&service("web", 80, ""));
        let addresses = [first.address(), other.address()];
        corner.until_published("web", &[&addresses[0], &addresses[1]]);

        // The other node's clock is wrong: its renewals look an hour old.
        let stopped = other.controller.as_ref().expect("it runs");
        stopped.signal(Signal::STOP);
        let lease = Place {
            kind: "Lease",
            namespace: &corner.home,
            name: &format!("ballast-{}", other.name),
        };
        let renewed = k8s_openapi::jiff::Timestamp::now() - Duration::from_secs(3600);
        let old = json!({"spec": {"renewTime": format!("{renewed:.6}")}});
        corner.plane.admin.patch(lease, &old);
        let before = leader(corner);
        assert_eq!(first.controller.take().expect("it runs").stop(), Some(0));
        first.start_controller();
        until("a new leader", || {
            let now = leader(corner);
            now.is_some() && now != before
        });
        let is_whole = || corner.published("web").len() == 2;
        assert!(!comes_within(Duration::from_secs(5), || !is_whole()));
        // It lives, and is heard of.
        stopped.signal(Signal::CONT);
        assert!(!comes_within(Duration::from_secs(8), || !is_whole()));
        // And when it dies, it goes.
        stopped.signal(Signal::STOP);
        corner.until_published("web", &[&addresses[0]]);
        stopped.signal(Signal::CONT);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
    });
}

/// The index of the node whose controller leads.
fn lead(corner: &Corner<'_>, nodes: &[LbNode<'_>; 2]) -> usize {
    let mut found = None;
    until("a leader", || {
        let name = leader(corner).unwrap_or_default();
        found = nodes.iter().position(|node| name.contains(&node.name));
        found.is_some()
    });
    found.expect("it was just found")
}

/// From which nodes statuses were written.
fn writers(corner: &Corner<'_>) -> BTreeSet<String> {
    let asked = corner.asked();
    let writes = asked
        .iter()
        .filter(|entry| entry["objectRef"]["subresource"] == "status");
    writes
        .filter_map(|entry| entry["sourceIPs"][0].as_str())
        .map(str::to_owned)
        .collect()
}

tests![
    a_leader_that_dies_is_followed_within_fifteen_seconds,
    a_leader_that_leaves_in_order_is_followed_at_once,
    a_leader_that_begins_unpublishes_nobody_by_a_clock,
];
