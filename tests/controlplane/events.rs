//! What users are told: the reasons that they search for, once.

use std::time::Duration;

use serde_json::json;

use crate::backends::{Backends, service};
use crate::corner::{Corner, Event, in_a_corner};
use crate::node::LbNode;
use crate::process::{comes_within, until};

#[test]
fn a_service_is_told_its_story_once() {
    in_a_corner("story", |corner| {
        let pods = Backends::start(corner, 1);
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        for reason in [
            "EnsuringLoadBalancer",
            "IPAllocated",
            "EnsuredLoadBalancer",
            "nodeAssigned",
        ] {
            let told = corner.until_told("web", reason);
            assert_eq!((told.kind.as_str(), told.count), ("Normal", 1), "{told:?}");
        }
        assert_eq!(
            corner.until_told("web", "EnsuringLoadBalancer").message,
            "Ensuring load balancer"
        );
        assert_eq!(
            corner.until_told("web", "EnsuredLoadBalancer").message,
            "Ensured load balancer"
        );
        let allocated = corner.until_told("web", "IPAllocated").message;
        assert!(allocated.contains(&node.address()), "{allocated}");

        let told = quiet_events(corner, "web");
        node.controller.take().expect("it runs").crash();
        node.start_controller();
        node.until_in_force();
        unchanged(corner, "web", &told);
    });
}

#[test]
fn a_bad_annotation_is_one_warning_however_often_the_service_changes() {
    in_a_corner("warned", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.annotate(
            "web",
            &json!({
                "ballast.dev/algorithm": "fastest",
                "ballast.dev/timeout-client": "soon",
                "loadbalancer.openstack.org/flavor-id": "x",
            }),
        );
        let warning = corner.until_told("web", "InvalidAnnotation");
        assert_eq!(warning.kind, "Warning");
        corner.until_told("web", "AnnotationIgnored");
        let told = quiet_events(corner, "web");
        let invalid = told
            .iter()
            .filter(|event| event.reason == "InvalidAnnotation");
        let (mut algorithm, mut timeout) = (0, 0);
        for event in invalid {
            algorithm += u64::from(event.message.contains("ballast.dev/algorithm")) * event.count;
            timeout +=
                u64::from(event.message.contains("ballast.dev/timeout-client")) * event.count;
        }
        assert_eq!((algorithm, timeout), (1, 1), "{told:?}");
        // Changes that have nothing to do with it.
        for round in 0..5 {
            corner.patch(
                "Service",
                "web",
                &json!({"metadata": {"labels": {"round": round.to_string()}}}),
            );
        }
        unchanged(corner, "web", &told);
    });
}

#[test]
fn the_end_of_a_load_balancer_is_told() {
    in_a_corner("told-end", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        corner.until_told("web", "DeletingLoadBalancer");
        corner.until_told("web", "DeletedLoadBalancer");
    });
}

#[test]
fn a_cluster_without_load_balancer_nodes_is_told_so() {
    in_a_corner("nobody", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.patch(
            "Node",
            &node.name,
            &json!({"metadata": {"labels": {"role": "worker"}}}),
        );
        corner.apply(&service("web", 80, ""));
        let told = corner.until_told("web", "UnAvailableLoadBalancer");
        assert_eq!(told.kind, "Warning");
        assert!(told.message.contains("no available nodes"), "{told:?}");
        assert_eq!(corner.published("web"), [""; 0]);
    });
}

/// The events about an object, when no more have come for a while.
fn quiet_events(corner: &Corner<'_>, object: &str) -> Vec<Event> {
    let mut before = corner.events(object);
    until("an end of events", || {
        let more = comes_within(Duration::from_secs(3), || corner.events(object) != before);
        before = corner.events(object);
        !more
    });
    before
}

/// That nothing more is told.
fn unchanged(corner: &Corner<'_>, object: &str, told: &[Event]) {
    // Longer than any debounce, and than a leader takes to be one.
    comes_within(Duration::from_secs(8), || corner.events(object) != told);
    assert_eq!(corner.events(object), told);
}
