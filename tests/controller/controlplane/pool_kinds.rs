//! Kinds of pools that the publisher may not read, that a cluster has later, and that it has no more: everything else goes on, and
//! what was given stays. A Service without an address waits while a pool that may not be read may be for it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Place;
use crate::backends::service;
use crate::corner::{Corner, as_installed_and_captured};
use crate::node::LbNode;
use crate::pools::{apply, make_the_kind_of_metallb, make_the_kinds, pool};
use crate::process::{comes_within, until};
use crate::scene::Published;

fn pools_that_may_not_be_read_keep_only_new_services_waiting() {
    as_installed_and_captured(|corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("plain", 8000, ""));
        corner.until_published("plain", &[&node.address()]);
        make_the_kinds(corner.plane);
        pool(
            corner,
            "edge",
            json!({"addresses": ["198.51.100.0/28"], "autoAssign": false}),
        );
        let rules = Rules::without(corner, &POOLS);
        drop(corner.take_publisher());
        corner.publish(&[]);
        let publisher = corner.take_publisher();
        let said = "AddressPool (may not be read: apply the rights of rc.yaml)";
        until("the log says so", || publisher.log().contains(said));
        assert!(!publisher.log().contains("any more"), "{}", publisher.log());
        corner.apply(&in_pool("web", "edge"));
        let told = corner.until_told("web", "AllocationFailed");
        let said = "AddressPool, AddressReservation may not be read, and may be for this Service";
        assert!(told.message.contains(said), "{}", told.message);
        assert!(corner.published("web").is_empty());
        let published = Published::by(corner, &["plain"]);

        // The rights come, and MetalLB's kind, which is looked for every two minutes.
        rules.give_back(corner);
        make_the_kind_of_metallb(corner);
        let theirs = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": {"name": "first", "namespace": "ballast"},
            "spec": {"addresses": ["10.10.0.2-10.10.0.10"], "autoAssign": false},
        });
        apply(corner.yard, corner.plane, &theirs, &[]).unwrap_or_else(|error| panic!("{error}"));
        corner.apply(&in_pool("metal", "first"));
        for (name, address) in [("web", "198.51.100.0"), ("metal", "10.10.0.2")] {
            let is_given = || corner.published(name) == [address];
            assert!(comes_within(Duration::from_secs(180), is_given), "{name}");
        }
        for kind in ["AddressPool", "IPAddressPool"] {
            let log = publisher.log();
            let lines = log.lines().filter(|line| line.contains("is there now"));
            let told = lines.filter(|line| {
                line.contains(&format!("\"{kind}\"")) || line.contains(&format!("kind={kind}"))
            });
            assert_eq!(told.count(), 1, "{kind}: {log}");
        }
        published.stayed();
    });
}

fn kinds_of_pools_that_vanish_and_come_back_move_nothing() {
    as_installed_and_captured(|corner| {
        make_the_kinds(corner.plane);
        let edge = json!({"addresses": ["198.51.100.0/28"]});
        pool(corner, "edge", edge.clone());
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&in_pool("web", "edge"));
        corner.until_published("web", &["198.51.100.0"]);
        corner.apply(&service("any", 8000, ""));
        corner.until_published("any", &["198.51.100.1"]);
        let published = Published::by(corner, &["web", "any"]);

        // The rights go: what was seen last stays, and new Services are given addresses by it.
        let rules = Rules::without(corner, &POOLS);
        // Longer than a watch lasts, which goes on with the rights that it began with.
        support::pause(Duration::from_secs(40));
        corner.apply(&service("denied", 8002, ""));
        corner.until_published("denied", &["198.51.100.2"]);
        rules.give_back(corner);
        let publisher = corner.take_publisher();
        until("the pool is watched again", || {
            let log = publisher.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains("watched again") && line.contains("AddressPool"))
        });

        // The kinds go, and the pool with them: what was given stays, and new Services have addresses of nodes.
        for kind in ["addresspools", "addressreservations"] {
            let delete = ["delete", "crd", &format!("{kind}.ballast.dev")];
            corner
                .yard
                .kubectl(corner.plane, &delete)
                .expect("it is deleted");
        }
        let mut number = 0;
        until("a Service has an address of the node", || {
            number += 1;
            let name = format!("without-{number}");
            corner.apply(&service(&name, 8100 + number, ""));
            comes_within(Duration::from_secs(10), || {
                !corner.published(&name).is_empty()
            }) && corner.published(&name) == [node.address()]
        });

        // They come back.
        make_the_kinds(corner.plane);
        pool(corner, "edge", edge);
        corner.apply(&in_pool("again", "edge"));
        let is_given = || {
            !corner.published("again").is_empty() && corner.published("again") != [node.address()]
        };
        assert!(comes_within(Duration::from_secs(180), is_given));
        assert!(corner.published("again")[0].starts_with("198.51.100."));
        for taken in ["web", "any", "denied"] {
            assert_ne!(corner.published("again"), corner.published(taken));
        }
        published.stayed();
        for served in ["web:8001", "any:8000", "denied:8002", "again:8001"] {
            node.until_serves(&format!("default.{served}"));
        }
    });
}

fn namespaces_that_may_not_be_read_keep_only_new_services_waiting() {
    as_installed_and_captured(|corner| {
        make_the_kinds(corner.plane);
        let of_default = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
        pool(
            corner,
            "edge",
            json!({"addresses": ["198.51.100.0/28"], "namespaceSelector": of_default}),
        );
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&in_pool("web", "edge"));
        corner.until_published("web", &["198.51.100.0"]);
        let published = Published::by(corner, &["web"]);

        let rules = Rules::without(corner, &["namespaces"]);
        drop(corner.take_publisher());
        corner.publish(&[]);
        let publisher = corner.take_publisher();
        let said = "Namespace (may not be read: apply the rights of rc.yaml)";
        until("the log says so", || publisher.log().contains(said));
        corner.apply(&in_pool("new", "edge"));
        let told = corner.until_told("new", "AllocationFailed");
        let said = "Namespace may not be read, and pools select by the labels of namespaces";
        assert!(told.message.contains(said), "{}", told.message);
        assert!(corner.published("new").is_empty());

        rules.give_back(corner);
        corner.until_published("new", &["198.51.100.1"]);
        published.stayed();
        node.until_serves("default.new:8001");
    });
}

/// A Service that asks for an address of this pool.
fn in_pool(name: &str, pool: &str) -> String {
    let named = format!("{{name: {name}}}");
    let asks = format!("{{name: {name}, annotations: {{metallb.io/address-pool: {pool}}}}}");
    service(name, 8001, "").replace(&named, &asks)
}

/// The rules of the publisher's role, as rc.yaml has them.
struct Rules(Value);

impl Rules {
    /// Takes those about these resources away: the role of a build that knew none.
    fn without(corner: &Corner<'_>, resources: &[&str]) -> Self {
        let role = corner.plane.admin.read(ROLE).expect("a role");
        let rules = role["rules"].as_array().expect("rules");
        let is_other = |rule: &&Value| {
            let resource = rule["resources"][0].as_str();
            !resource.is_some_and(|one| resources.contains(&one))
        };
        let others: Vec<_> = rules.iter().filter(is_other).collect();
        assert!(others.len() + resources.len() <= rules.len(), "{role}");
        corner.plane.admin.patch(ROLE, &json!({"rules": others}));
        Self(json!({"rules": rules}))
    }

    fn give_back(&self, corner: &Corner<'_>) {
        corner.plane.admin.patch(ROLE, &self.0);
    }
}

const POOLS: [&str; 5] = [
    "addresspools",
    "addresspools/status",
    "addressreservations",
    "ipaddresspools",
    "externalippools",
];
const ROLE: Place<'_> = Place {
    kind: "ClusterRole",
    namespace: "",
    name: "ballast-publish",
};

tests![
    pools_that_may_not_be_read_keep_only_new_services_waiting,
    namespaces_that_may_not_be_read_keep_only_new_services_waiting,
    kinds_of_pools_that_vanish_and_come_back_move_nothing,
];
