//! The finalizer: a Service that is served is not gone before it is served no more.

use serde_json::{Value, json};

use crate::backends::service;
use crate::corner::{Corner, in_a_corner};
use crate::node::LbNode;
use crate::process::until;

#[test]
fn the_finalizer_comes_and_goes_with_the_type() {
    in_a_corner("finalizer", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        // A finalizer of somebody else's is nobody's business.
        corner.apply(&service("web", 80, ""));
        corner.patch(
            "Service",
            "web",
            &json!({"metadata": {"finalizers": ["example.com/theirs"]}}),
        );
        until("the finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs", OURS]
        });
        corner.until_published("web", &[&node.address()]);

        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        until("no finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs"]
        });
        assert_eq!(corner.published("web"), [""; 0]);
        until("a closed port", || node.ask(80).is_err());

        corner.patch("Service", "web", &json!({"spec": {"type": "LoadBalancer"}}));
        until("the finalizer", || {
            finalizers(corner, "web") == ["example.com/theirs", OURS]
        });
        corner.until_published("web", &[&node.address()]);

        corner.delete("Service", "web");
        until("our finalizer is gone", || {
            finalizers(corner, "web") == ["example.com/theirs"]
        });
        corner.patch("Service", "web", &json!({"metadata": {"finalizers": null}}));
        until("the end", || corner.read("Service", "web").is_none());
    });
}

#[test]
fn a_service_that_was_deleted_while_nobody_looked_is_let_go() {
    in_a_corner("unseen", |corner| {
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        node.controller.take().expect("it runs").crash();
        corner.delete("Service", "web");
        assert!(corner.read("Service", "web").is_some(), "it waits for us");
        node.start_controller();
        until("the end", || corner.read("Service", "web").is_none());
    });
}

#[test]
fn without_the_finalizer_deleting_waits_for_nobody() {
    in_a_corner("unheld", |corner| {
        let node = LbNode::start(corner, "a", &["--finalizer=false"]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        assert_eq!(finalizers(corner, "web"), [""; 0]);
        corner.delete("Service", "web");
        assert!(corner.read("Service", "web").is_none());
    });
}

fn finalizers(corner: &Corner<'_>, name: &str) -> Vec<String> {
    let found = corner.read("Service", name).unwrap_or_default();
    let list = found["metadata"]["finalizers"].as_array();
    let mut list: Vec<_> = list
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    list.sort();
    list
}

const OURS: &str = "service.kubernetes.io/load-balancer-cleanup";
