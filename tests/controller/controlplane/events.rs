//! What users are told: the reasons that they search for, once.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::api::Place;
use crate::backends::{Backends, service};
use crate::corner::{Corner, Event, in_a_corner, with_its_own_server};
use crate::node::{LbNode, leader};
use crate::process::{comes_within, until};

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
        corner.take_publisher().process.crash();
        node.start_controller();
        node.until_in_force();
        unchanged(corner, "web", &told);
    });
}

fn a_node_with_a_name_of_any_length_is_told() {
    in_a_corner("long", |corner| {
        corner.publish(&[]);
        for length in [236, 237, 253] {
            let name = "x".repeat(length);
            corner.apply(&format!(
                "apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{role: loadbalancer, corner: long, node.kubernetes.io/exclude-from-external-load-balancers: \"\"}}
"
            ));
            until(&format!("an event about {length} letters"), || {
                let events = corner.plane.admin.list("Event", "default");
                events.iter().any(|event| {
                    event["reason"] == "NodeExcluded"
                        && event["involvedObject"]["name"] == name.as_str()
                        && event["type"] == "Warning"
                })
            });
        }
    });
}

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
        // Another leader tells nothing again.
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&[]);
        unchanged(corner, "web", &told);
        // Another value is another event, with its own message.
        corner.annotate("web", &json!({"ballast.dev/algorithm": "quickest"}));
        until("an event of the other value", || {
            corner.events("web").iter().any(|event| {
                event.reason == "InvalidAnnotation" && event.message.contains("quickest")
            })
        });
    });
}

fn another_leader_tells_a_node_nothing_again() {
    in_a_corner("node-once", |corner| {
        corner.publish(&[]);
        let node = LbNode::start(corner, "a", &["--http-port=8000"]);
        let told = || {
            let mut events = corner.plane.admin.list("Event", "default");
            events.retain(|event| event["involvedObject"]["name"] == node.name.as_str());
            // An event that is counted up is told again.
            let again = events.iter().filter(|event| !event["series"].is_null());
            events.len() + again.count()
        };
        until("the node is told", || told() == 1);
        let before = leader(corner);
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&[]);
        until("another leader", || {
            let now = leader(corner);
            now.is_some() && now != before
        });
        assert!(!comes_within(Duration::from_secs(8), || told() != 1));
    });
}

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

fn a_table_that_the_data_plane_refuses_is_told_to_its_node() {
    in_a_corner("refused", |corner| {
        let mut node = LbNode::start(corner, "a", &[]);
        node.until_in_force();
        // In its place answers one that cannot read any table.
        node.dataplane.take().expect("it runs").crash();
        let problem = json!({"at": "services[3].weight", "why": "is wrong", "remedy": "mend it"});
        let ack = json!({
            "version": 1, "instance": "x", "served": null, "exceptions": [],
            "refused": {"generation": 9, "digest": "sha256:ab", "problems": [problem]},
        });
        let draft = node.table_folder().join("draft");
        fs::write(&draft, ack.to_string()).expect("a file");
        fs::rename(&draft, node.table_folder().join("ack.json")).expect("a rename");
        let mut told = Vec::new();
        until("the node is told", || {
            told = corner.plane.admin.list("Event", "default");
            told.retain(|event| {
                event["reason"] == "TableRefused"
                    && event["involvedObject"]["name"] == node.name.as_str()
            });
            !told.is_empty()
        });
        let message = told[0]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("services[3].weight: is wrong"),
            "{message}"
        );
        assert_eq!(told[0]["type"], "Warning");
        let metrics = node.metrics();
        for line in ["tables_refused_total 1\n", "table_refused 1\n"] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
    });
}

fn a_warning_that_could_not_be_written_is_told_by_the_next_leader() {
    with_its_own_server("untold", |corner| {
        let role = Place {
            kind: "ClusterRole",
            namespace: "",
            name: "ballast-publish",
        };
        let rules = corner.plane.admin.read(role).expect("a role")["rules"].take();
        let mut fewer = rules.as_array().cloned().expect("rules");
        fewer.retain(|rule| rule["apiGroups"][0] != "events.k8s.io");
        corner.plane.admin.patch(role, &json!({"rules": fewer}));
        support::pause(RIGHTS);
        corner.publish(&[]);
        corner.apply(&service("web", 80, ""));
        until("the publisher's finalizer", || {
            !corner.service("web")["metadata"]["finalizers"].is_null()
        });
        assert!(!comes_within(Duration::from_secs(4), || {
            !corner.events("web").is_empty()
        }));

        corner.plane.admin.patch(role, &json!({"rules": rules}));
        support::pause(RIGHTS);
        assert_eq!(corner.take_publisher().process.stop(), Some(0));
        corner.publish(&[]);
        let warning = corner.until_told("web", "UnAvailableLoadBalancer");
        assert_eq!(warning.kind, "Warning");
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

tests![
    a_service_is_told_its_story_once,
    a_node_with_a_name_of_any_length_is_told,
    a_bad_annotation_is_one_warning_however_often_the_service_changes,
    another_leader_tells_a_node_nothing_again,
    the_end_of_a_load_balancer_is_told,
    a_cluster_without_load_balancer_nodes_is_told_so,
    a_table_that_the_data_plane_refuses_is_told_to_its_node,
    a_warning_that_could_not_be_written_is_told_by_the_next_leader,
];

/// The API server follows a change of rights within this time.
const RIGHTS: Duration = Duration::from_secs(2);
