//! What was before comes back, and what an earlier build wrote is there: nothing moves.

use std::time::Instant;

use hyper::Method;
use serde_json::{Value, json};

use crate::api::{Place, path};
use crate::backends::{Backends, service};
use crate::corner::{Corner, with_its_own_server};
use crate::node::LbNode;
use crate::process::until;
use crate::scene::{Clients, Published, Scene};

fn a_store_that_was_restored_from_a_backup_moves_nothing() {
    with_its_own_server("restored", |corner| {
        let scene = Scene::set(corner);
        let clients = Clients::of(&scene);
        let published = Published::by(corner, &["plain", "pooled"]);
        corner.plane.back_up();

        // What comes after is lost: a Service with an address, the end of another one, and endpoints.
        let lost = "{name: lost, annotations: {metallb.io/address-pool: edge}}";
        corner.apply(&service("lost", 80, "").replace("{name: lost}", lost));
        corner.until_published("lost", &["198.51.100.8"]);
        corner.delete("Service", "s0");
        corner.apply(&scene.pods.slice("plain", &[1]));
        let other = scene.pods.addresses[1].to_string();
        for node in &scene.nodes {
            until("the other endpoint", || {
                node.ask(80).is_ok_and(|answer| answer.starts_with(&other))
            });
            until("the end of s0", || node.ask(100).is_err());
        }
        // And more than is written while the API server begins again.
        for round in 0..500 {
            corner.annotate("plain", &json!({"round": round.to_string()}));
        }

        let begun = Instant::now();
        corner.plane.restore();
        println!("the API server is back after {:.1?}", begun.elapsed());
        assert!(corner.read("Service", "lost").is_none());
        scene.until_changed();
        for node in &scene.nodes {
            until("the end of what never was", || {
                node.frontends()
                    .iter()
                    .all(|name| name != "restored.lost:80")
            });
        }
        println!("what was is served again after {:.1?}", begun.elapsed());
        let fresh = "{name: fresh, annotations: {metallb.io/address-pool: edge}}";
        corner.apply(&service("fresh", 80, "").replace("{name: fresh}", fresh));
        corner.apply(&service("new", 81, ""));
        corner.until_published("fresh", &["198.51.100.8"]);
        scene.until_at_nodes("new");
        println!("new Services are published after {:.1?}", begun.elapsed());
        published.stayed();
        clients.were_all_answered();
        scene.others_make_the_same();
    });
}

fn what_an_earlier_build_published_stays_where_it_is() {
    with_its_own_server("earlier", |corner| {
        let pods = Backends::start(corner, 1);
        let mut nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let addresses = nodes.each_ref().map(LbNode::address);
        let both = addresses.each_ref().map(String::as_str);
        let requested = format!("  loadBalancerIP: {}\n", addresses[0]);
        for (name, port, extra, places) in [
            ("plain", 80, "", &both[..]),
            ("internal", 81, "", &both[..]),
            ("one", 82, requested.as_str(), &both[..1]),
        ] {
            corner.apply(&service(name, port, extra));
            if name == "internal" {
                corner.annotate(name, &json!({"ballast.dev/internal": "true"}));
            }
            corner.apply(&pods.slice(name, &[0]));
            corner.until_published(name, places);
        }
        // Another one has its port.
        corner.apply(&service("waits", 80, ""));
        corner.until_told("waits", "AllocationFailed");
        until("waits has its condition", || {
            condition(corner, "waits", PROGRAMMED)["status"] == "False"
        });

        // From here on everything is as an earlier build left it.
        corner.take_publisher().process.crash();
        for node in &mut nodes {
            node.controller.take().expect("it runs").crash();
            write_an_earlier_lease(corner, node);
        }
        for name in ["plain", "internal", "one", "waits"] {
            write_an_earlier_status(corner, name);
        }
        let published = Published::by(corner, &["plain", "internal", "one"]);
        let mut clients = Clients::default();
        for node in &nodes {
            for port in [80, 81] {
                clients.come(&corner.yard.place, (node.host.address, port).into());
            }
        }
        clients.come(&corner.yard.place, (nodes[0].host.address, 82).into());

        // Publishers first, then nodes, as the manual says.
        corner.publish(&[]);
        for (name, given) in [
            ("plain", "addresses=node ports=80/TCP"),
            ("internal", "addresses=node-internal ports=81/TCP"),
            ("one", &format!("addresses={} ports=82/TCP", addresses[0])),
        ] {
            until(&format!("{name} has the condition Allocated"), || {
                condition(corner, name, ALLOCATED)["message"] == *given
            });
        }
        for node in &mut nodes {
            node.start_controller_alone();
            until("a Lease of this build", || {
                let lease = node.lease().unwrap_or_default();
                let served = &lease["metadata"]["annotations"]["ballast.dev/served"];
                served
                    .as_str()
                    .is_some_and(|served| served.starts_with("rv="))
            });
            node.until_in_force();
        }
        corner.apply(&service("new", 83, ""));
        corner.until_published("new", &both);
        assert_eq!(corner.published("waits"), [""; 0]);
        assert_eq!(condition(corner, "waits", ALLOCATED)["status"], "False");
        published.stayed();
        clients.were_all_answered();
    });
}

/// The build before this one wrote the condition `ballast.dev/Allocated` without words that came since, and Leases without annotations
/// that came since.
fn what_the_build_before_gave_stays_where_it_is() {
    with_its_own_server("before", |corner| {
        let mut scene = Scene::set(corner);
        corner.apply(&service("waits", 80, ""));
        corner.until_told("waits", "AllocationFailed");
        corner.take_publisher().process.crash();
        for node in &mut scene.nodes {
            node.controller.take().expect("it runs").crash();
            let lease = Place {
                kind: "Lease",
                namespace: &corner.home,
                name: &format!("ballast-{}", node.name),
            };
            let annotations =
                json!({"ballast.dev/nodes": null, "ballast.dev/publisher-settings": null});
            let spec = json!({"leaseDurationSeconds": 300});
            let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
            corner.plane.admin.patch(lease, &patch);
        }
        let names = ["plain", "pooled", "s0"];
        for name in names {
            write_a_status_of_the_build_before(corner, name);
        }
        let given =
            names.map(|name| condition(corner, name, ALLOCATED)["lastTransitionTime"].clone());
        let published = Published::by(corner, &names);
        let clients = Clients::of(&scene);

        // Nodes first this time: a publisher of the build before may lead a while longer.
        for node in &mut scene.nodes {
            node.start_controller_alone();
            node.until_in_force();
        }
        corner.publish(&[]);
        corner.apply(&service("new", 84, ""));
        scene.until_at_nodes("new");
        let message = condition(corner, "pooled", ALLOCATED)["message"].clone();
        assert_eq!(message, "addresses=198.51.100.7 pool=edge ports=80/TCP");
        for (name, given) in names.into_iter().zip(given) {
            let now = condition(corner, name, ALLOCATED);
            assert_eq!(now["lastTransitionTime"], given, "{name}: {now}");
        }
        assert_eq!(corner.published("waits"), [""; 0]);
        published.stayed();
        clients.were_all_answered();
        scene.others_make_the_same();
    });
}

/// With the words that the first builds with `ballast.dev/Allocated` knew.
fn write_a_status_of_the_build_before(corner: &Corner<'_>, name: &str) {
    let found = corner.service(name);
    let mut allocated = condition(corner, name, ALLOCATED);
    let message = allocated["message"].as_str().unwrap_or_default();
    let known = |word: &&str| {
        ["addresses=", "pool=", "ports=", "routes="]
            .iter()
            .any(|key| word.starts_with(key))
    };
    let message: Vec<&str> = message.split(' ').filter(known).collect();
    allocated["message"] = message.join(" ").into();
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "status": {
            "conditions": [allocated, condition(corner, name, PROGRAMMED)],
            "loadBalancer": found["status"]["loadBalancer"],
        },
    });
    let path = path(corner.place("Service", name));
    let path = format!("{path}/status?fieldManager=ballast&force=true");
    let answer = corner.plane.admin.ask(Method::PATCH, &path, Some(&object));
    corner.must(answer);
}

/// As builds before `ballast.dev/Allocated` wrote it: addresses and one condition, a finalizer, and what the owner was told.
fn write_an_earlier_status(corner: &Corner<'_>, name: &str) {
    let found = corner.service(name);
    let mut status = json!({"conditions": [condition(corner, name, PROGRAMMED)]});
    let balancer = &found["status"]["loadBalancer"];
    if balancer["ingress"].is_array() {
        status["loadBalancer"] = balancer.clone();
    }
    let path = path(corner.place("Service", name));
    let finalizers = &found["metadata"]["finalizers"];
    let metadata = json!({
        "name": name, "finalizers": finalizers, "annotations": {"ballast.dev/told": "5f1c1a2b"},
    });
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
    let write = |path: &str, object: &Value| {
        let path = format!("{path}?fieldManager=ballast&force=true");
        let answer = corner.plane.admin.ask(Method::PATCH, &path, Some(object));
        corner.must(answer);
    };
    write(&path, &object);
    let name = json!({"name": name});
    let status = json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "status": status});
    write(&format!("{path}/status"), &status);
    let now = corner.service(name["name"].as_str().unwrap_or_default());
    assert!(!now["status"].to_string().contains(ALLOCATED), "{now}");
    assert_eq!(now["status"]["loadBalancer"], *balancer);
}

/// As the controller of an earlier build wrote it: what it listens at in 64 numbers.
fn write_an_earlier_lease(corner: &Corner<'_>, node: &LbNode<'_>) {
    let lease = Place {
        kind: "Lease",
        namespace: &corner.home,
        name: &format!("ballast-{}", node.name),
    };
    let annotations = json!({
        "ballast.dev/served": "00112233445566aa".repeat(64),
        "ballast.dev/settings": "0123456789abcdef",
        "ballast.dev/exceptions": "",
        "ballast.dev/ports": "stats=1936,controller=1937",
    });
    let spec =
        json!({"holderIdentity": node.name, "leaseDurationSeconds": 300, "leaseTransitions": 1});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
    corner.plane.admin.patch(lease, &patch);
}

fn condition(corner: &Corner<'_>, name: &str, kind: &str) -> Value {
    let found = corner.service(name);
    let conditions = found["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|one| one["type"] == kind);
    found.cloned().unwrap_or_default()
}

const ALLOCATED: &str = "ballast.dev/Allocated";
const PROGRAMMED: &str = "ballast.dev/Programmed";

tests![
    a_store_that_was_restored_from_a_backup_moves_nothing,
    what_an_earlier_build_published_stays_where_it_is,
    what_the_build_before_gave_stays_where_it_is,
];
