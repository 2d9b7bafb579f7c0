//! What is not ours is not touched.

use std::time::Duration;

use serde_json::json;

use crate::backends::service;
use crate::corner::{Corner, in_a_corner};
use crate::node::LbNode;
use crate::process::comes_within;

fn a_foreign_class_is_never_touched() {
    in_a_corner("foreign", |corner| {
        let class = "  loadBalancerClass: example.com/other\n";
        corner.apply(&service("before", 81, class));
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("ours", 80, ""));
        corner.until_published("ours", &[&node.address()]);
        corner.apply(&service("after", 82, class));
        corner.annotate("after", &json!({"ballast.dev/algorithm": "nonsense"}));
        untouched(corner, &["before", "after"]);
        corner.delete("Service", "after");
        assert!(corner.read("Service", "after").is_none());
    });
}

fn with_a_class_of_our_own_services_without_one_are_foreign() {
    in_a_corner("classed", |corner| {
        let node = LbNode::start(corner, "a", &["--lb-class=ballast.dev/edge"]);
        corner.apply(&service("none", 81, ""));
        corner.apply(&service(
            "ours",
            80,
            "  loadBalancerClass: ballast.dev/edge\n",
        ));
        corner.until_published("ours", &[&node.address()]);
        untouched(corner, &["none"]);
        drop(node);
        drop(corner.take_publisher());

        let both = ["--lb-class=ballast.dev/edge", "--default-class"];
        let node = LbNode::start(corner, "b", &both);
        corner.until_published("none", &[&node.address()]);
    });
}

fn a_service_that_somebody_else_publishes_already_is_left_to_them() {
    in_a_corner("theirs", |corner| {
        corner.apply(
            &(service("web", 80, "") + "status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}\n"),
        );
        let node = LbNode::start(corner, "a", &[]);
        let told = corner.until_told("web", "ForeignStatus");
        assert_eq!(told.kind, "Warning");
        untouched(corner, &["web"]);
        assert!(node.ask(80).is_err(), "it is not served");
    });
}

/// That these stay as they are, and that Ballast never even tried to change them.
fn untouched(corner: &Corner<'_>, services: &[&str]) {
    let seen = || {
        services
            .iter()
            .map(|name| corner.service(name)["metadata"].clone())
            .collect::<Vec<_>>()
    };
    let before = seen();
    for metadata in &before {
        assert!(metadata["finalizers"].is_null(), "{metadata}");
        for fields in metadata["managedFields"].as_array().into_iter().flatten() {
            assert_ne!(fields["manager"], "ballast", "{metadata}");
        }
    }
    // Longer than a Lease is renewed and read.
    comes_within(Duration::from_secs(6), || seen() != before);
    assert_eq!(seen(), before);
    for write in corner.writes() {
        for name in services {
            assert!(!write.ends_with(&format!("\"{name}\"")), "{write}");
        }
    }
}

tests![
    a_foreign_class_is_never_touched,
    with_a_class_of_our_own_services_without_one_are_foreign,
    a_service_that_somebody_else_publishes_already_is_left_to_them,
];
