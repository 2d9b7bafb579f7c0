//! One publisher writes statuses; when it is gone, another one does.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::Place;
use crate::backends::service;
use crate::corner::{Corner, in_a_corner};
use crate::figures::in_time;
use crate::node::{LbNode, leader};
use crate::process::{Signal, comes_within, until};
use crate::publisher::Publisher;

fn a_publisher_that_dies_is_followed_within_fifteen_seconds() {
    in_a_corner("crash", |corner| {
        let mut publishers = two(corner);
        let node = LbNode::prepare(corner, "a", &[]);
        let node = started(node);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        let first = lead(corner, &publishers);

        let begun = Instant::now();
        let other = publishers.remove(1 - first);
        publishers.remove(0).process.crash();
        // Nodes serve without any publisher.
        corner.apply(&service("later", 81, ""));
        node.until_serves("crash.later:81");
        corner.until_published("later", &[&node.address()]);
        let lasted = begun.elapsed();
        in_time("a dead leader is followed", lasted, Duration::from_secs(15));
        assert!(other.is_named(&leader(corner).expect("a leader")));
    });
}

fn a_publisher_that_leaves_in_order_is_followed_at_once() {
    in_a_corner("order", |corner| {
        let mut publishers = two(corner);
        let node = started(LbNode::prepare(corner, "a", &[]));
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        let first = lead(corner, &publishers);
        let other = publishers.remove(1 - first);
        let begun = Instant::now();
        assert_eq!(publishers.remove(0).process.stop(), Some(0));
        until("another leader", || {
            leader(corner).is_some_and(|holder| other.is_named(&holder))
        });
        let lasted = begun.elapsed();
        in_time(
            "a leader that leaves in order is followed",
            lasted,
            Duration::from_secs(2),
        );
        assert_eq!(corner.published("web").len(), 1);
    });
}

fn a_node_whose_controller_ends_in_order_keeps_its_lease() {
    in_a_corner("node-order", |corner| {
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        let controller = node.controller.take().expect("it runs");
        assert_eq!(controller.stop(), Some(0));
        // Its data plane is well, and its Lease runs on for a restart.
        assert_eq!(corner.published("web").len(), 1);
        let lease = node.lease().expect("a Lease");
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
        let first = LbNode::start(corner, "a", &[]);
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
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&[]);
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

/// Two publishers.
fn two(corner: &Corner<'_>) -> Vec<Publisher> {
    [(); 2].map(|()| Publisher::start(corner, &[])).into()
}

/// Both programs of a node; the test has its own publishers.
fn started<'a>(mut node: LbNode<'a>) -> LbNode<'a> {
    node.start_dataplane();
    node.start_controller_alone();
    node
}

/// The index of the publisher that leads.
fn lead(corner: &Corner<'_>, publishers: &[Publisher]) -> usize {
    let mut found = None;
    until("a leader", || {
        let holder = leader(corner).unwrap_or_default();
        found = publishers.iter().position(|one| one.is_named(&holder));
        found.is_some()
    });
    found.expect("it was just found")
}

tests![
    a_publisher_that_dies_is_followed_within_fifteen_seconds,
    a_publisher_that_leaves_in_order_is_followed_at_once,
    a_node_whose_controller_ends_in_order_keeps_its_lease,
    a_leader_that_begins_unpublishes_nobody_by_a_clock,
];
