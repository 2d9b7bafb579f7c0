//! Address pools at a real API server: it takes what the documentation shows and refuses what is certainly wrong; Services are given
//! addresses, which nothing that others do moves.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use ballast_controller::pools::{Pools, Taken, read};
use serde_json::{Value, json};

use crate::api::documents;
use crate::backends::{Backends, service};
use crate::corner::{Corner, with_its_own_server};
use crate::forms::kinds;
use crate::node::{LbNode, ask};
use crate::plane::{Plane, Yard};
use crate::process::{comes_within, until};

fn the_examples_of_the_documentation_are_taken_and_read() {
    // A pool of the documentation is for every Service, so the server is this test's own.
    let yard = Yard::of_this_process();
    let plane = &Plane::start(yard);
    make_the_kinds(plane);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pools.md");
    let page = fs::read_to_string(page).expect("a page");
    let blocks = page.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    plane.admin.apply(&shop, "").expect("a namespace");
    for block in &blocks {
        apply(yard, plane, &documents(block)[0], &[]).unwrap_or_else(|error| panic!("{error}"));
    }
    let get = |what: &[&str]| {
        yard.kubectl(plane, &[&["get"], what].concat())
            .expect("an object")
    };
    let reservation: Value = serde_json::from_str(&get(&[
        "addressreservation",
        "web",
        "-n",
        "shop",
        "-o",
        "json",
    ]))
    .expect("JSON");
    assert_eq!(
        read::reservation(&reservation)
            .expect("a reservation")
            .addresses
            .len(),
        2
    );

    // What the API server made of the pool is read without a problem, and its status is taken, all columns.
    let pool: Value =
        serde_json::from_str(&get(&["addresspool", "edge", "-o", "json"])).expect("JSON");
    let pools = Pools::new(vec![read::pool(&pool).expect("a pool")]);
    let (mut taken, _) = Taken::new(BTreeMap::new(), []);
    taken.reserve([&read::reservation(&reservation).expect("a reservation")]);
    let statuses = pools.statuses(&taken);
    let (entry, status) = statuses.first().expect("a status");
    assert_eq!(entry.pool.problems, []);
    let status = json!({"status": status}).to_string();
    let patch = [
        "patch",
        "addresspool",
        "edge",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status,
    ];
    yard.kubectl(plane, &patch)
        .unwrap_or_else(|error| panic!("{error}"));
    let shown = get(&["addresspools"]);
    let mut rows = shown
        .lines()
        .map(|row| row.split_whitespace().take(5).collect::<Vec<_>>().join(" "));
    assert_eq!(
        rows.next().as_deref(),
        Some("NAME TOTAL USED FREE READY"),
        "{shown}"
    );
    assert_eq!(
        rows.next().as_deref(),
        Some("edge 340 2 338 True"),
        "{shown}"
    );
}

fn what_is_certainly_wrong_is_refused_with_the_reason() {
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    make_the_kinds(plane);
    let good = r#""addresses": ["192.0.2.0/24"]"#;
    for (spec, why) in [
        ("{}".to_owned(), "spec.addresses: Required value"),
        (
            r#"{"addresses": []}"#.to_owned(),
            "should have at least 1 items",
        ),
        (
            r#"{"addresses": ["192.0.2.7"]}"#.to_owned(),
            "is no range; write a CIDR or IP-IP, for one address IP/32 or IP/128",
        ),
        (
            r#"{"addresses": ["192.0.2.0/24", "edge"]}"#.to_owned(),
            "spec.addresses[1]: Invalid value: \"edge\": is no range",
        ),
        (
            r#"{"addresses": ["192.0.2.1-2001:db8::1"]}"#.to_owned(),
            "mixes IPv4 and IPv6; write a range for each family",
        ),
        (
            format!(r#"{{{good}, "reserve": ["gateway"]}}"#),
            "is neither an address nor a CIDR nor a range",
        ),
        (
            format!(r#"{{{good}, "priority": 0}}"#),
            "spec.priority: Invalid value",
        ),
        (
            format!(r#"{{{good}, "namespaces": ["Shop"]}}"#),
            "spec.namespaces[0]: Invalid value",
        ),
        (
            format!(r#"{{{good}, "announce": {{"mode": "arp"}}}}"#),
            "Unsupported value: \"arp\"",
        ),
        (
            format!(
                r#"{{{good}, "nodeSelector": {{"matchExpressions": [{{"key": "a", "operator": "In"}}]}}}}"#
            ),
            "In and NotIn need values",
        ),
        (
            format!(
                r#"{{{good}, "serviceSelector": {{"matchExpressions": [{{"key": "a", "operator": "Exists", "values": ["b"]}}]}}}}"#
            ),
            "Exists and DoesNotExist have none",
        ),
        (
            format!(r#"{{{good}, "autoAsign": false}}"#),
            ".spec.autoAsign: field not declared in schema",
        ),
    ] {
        let spec: Value = serde_json::from_str(&spec).expect("JSON");
        refused(yard, plane, "AddressPool", &spec, why);
    }
    for (addresses, why) in [
        (
            json!(["192.0.2.1", "192.0.2.2"]),
            "has two addresses of one family; write one of IPv4 and one of IPv6",
        ),
        (json!(["192.0.2.0/24"]), "is not an address"),
        (json!([]), "should have at least 1 items"),
    ] {
        refused(
            yard,
            plane,
            "AddressReservation",
            &json!({"addresses": addresses}),
            why,
        );
    }
}

fn refused(yard: &Yard, plane: &Plane, kind: &str, spec: &Value, why: &str) {
    let object = json!({"apiVersion": "ballast.dev/v1", "kind": kind, "metadata": {"name": "wrong"}, "spec": spec});
    let said = apply(yard, plane, &object, &["--dry-run=server"]).expect_err(why);
    assert!(said.contains(why), "{spec}: {said}");
}

pub(crate) fn apply(
    yard: &Yard,
    plane: &Plane,
    object: &Value,
    flags: &[&str],
) -> Result<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("object.json");
    fs::write(&file, object.to_string()).expect("a file");
    let file = file.to_str().unwrap_or_default();
    let command = [
        &["apply", "--server-side", "--validate=strict", "-f", file],
        flags,
    ]
    .concat();
    yard.kubectl(plane, &command)
}

pub(crate) fn make_the_kinds(plane: &Plane) {
    let yard = Yard::of_this_process();
    for kind in documents(&kinds()) {
        apply(yard, plane, &kind, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
    for kind in [
        "addresspools.ballast.dev",
        "addressreservations.ballast.dev",
        "announcements.ballast.dev",
    ] {
        until_established(plane, kind);
    }
}

fn addresses_of_a_pool_are_given_kept_and_served() {
    with_its_own_server("pools", |corner| {
        make_the_kinds(corner.plane);
        let pods = Backends::start(corner, 3);
        let node = LbNode::start(corner, "a", &[]);
        // One that has addresses of nodes keeps them when there is a pool.
        corner.apply(&service("plain", 80, ""));
        corner.apply(&pods.slice("plain", &[2]));
        corner.until_published("plain", &[&node.address()]);
        pool(
            corner,
            "edge",
            json!({"addresses": ["198.51.100.1-198.51.100.3"]}),
        );
        until("the publisher has seen the pool", || {
            counts(corner) == (3, 0, 3)
        });
        for (number, name) in ["web", "shop"].into_iter().enumerate() {
            corner.apply(&service(name, 80, ""));
            corner.apply(&pods.slice(name, &[number]));
            let address = format!("198.51.100.{}", number + 1);
            corner.until_published(name, &[&address]);
            // Announcement is another matter: here the address is put on the node by hand.
            node.host
                .network
                .ip(&format!("address add {address}/32 dev lo"));
            let address: SocketAddr = format!("{address}:80").parse().expect("an address");
            let pod = pods.addresses[number].to_string();
            until(&format!("{name} answers"), || {
                let answer = node.host.network.within(|| ask(address));
                answer.is_ok_and(|answer| answer.starts_with(&pod))
            });
        }
        // The same port, at all addresses of the node, is still the Service's that has it.
        let answer = node.ask(80).expect("an answer");
        assert!(
            answer.starts_with(&pods.addresses[2].to_string()),
            "{answer}"
        );
        assert_eq!(corner.published("plain"), [node.address()]);

        until("the status of the pool", || counts(corner) == (3, 2, 1));

        // An address that is kept for a Service of the name.
        corner.annotate("web", &json!({"ballast.dev/keep-address": "true"}));
        corner.until_published("web", &["198.51.100.1"]);
        corner.delete("Service", "web");
        until("the Service is gone", || {
            corner.read("Service", "web").is_none()
        });
        corner.apply(&service("other", 81, ""));
        corner.apply(&pods.slice("other", &[0]));
        corner.until_published("other", &["198.51.100.3"]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &["198.51.100.1"]);

        // No room: the Service waits, and its owner is told.
        corner.apply(&service("late", 80, ""));
        let told = corner.until_told("late", "AllocationFailed");
        assert!(told.message.contains("no available IPs"), "{told:?}");

        // The pool has other addresses when another publisher begins: nothing moves, and the Service that waited is given one.
        let publisher = corner.take_publisher();
        let counted = publisher.metrics();
        let line = "ballast_pool_addresses{kind=\"AddressPool\",pool=\"edge\",state=\"used\"} 3";
        assert!(counted.contains(line), "{counted}");
        publisher.process.stop();
        pool(
            corner,
            "edge",
            json!({"addresses": ["203.0.113.0/30"], "reserve": ["203.0.113.0"]}),
        );
        corner.publish(&[]);
        corner.apply(&pods.slice("late", &[0]));
        corner.until_published("late", &["203.0.113.1"]);
        for (name, address) in [("web", "1"), ("shop", "2"), ("other", "3")] {
            assert_eq!(corner.published(name), [format!("198.51.100.{address}")]);
        }
        until("the pool says what it does not list any more", || {
            let in_use = condition(corner, "RangesInUse");
            in_use["status"] == "True"
        });
        let message = condition(corner, "RangesInUse")["message"].to_string();
        assert!(message.contains("198.51.100.2 (pools/shop)"), "{message}");
        assert_eq!(counts(corner), (3, 1, 2));
    });
}

fn addresses_that_metallb_gave_are_taken_over_as_they_are() {
    with_its_own_server("metallb", |corner| {
        make_the_kind_of_metallb(corner);
        let pool = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": {"name": "first-pool", "namespace": corner.name},
            "spec": {"addresses": ["10.10.0.2-10.10.0.10"]},
        });
        apply(corner.yard, corner.plane, &pool, &[]).expect("a pool");
        corner.apply(&service("web", 80, ""));
        let theirs = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.10.0.5"}]}},
        });
        let path =
            "/api/v1/namespaces/metallb/services/web/status?fieldManager=controller&force=true";
        let patch = hyper::Method::PATCH;
        corner.must(corner.plane.admin.ask(patch, path, Some(&theirs)));
        let _node = LbNode::start(corner, "a", &[]);
        // Until it is taken over, its address is nobody else's.
        corner.until_told("web", "ForeignStatus");
        let wants = "metadata: {name: wants}\nspec:\n  loadBalancerIP: 10.10.0.5";
        corner.apply(&service("wants", 81, "").replace("metadata: {name: wants}\nspec:", wants));
        let told = corner.until_told("wants", "AllocationFailed");
        assert!(told.message.contains("by another system"), "{told:?}");
        corner.annotate("web", &json!({"ballast.dev/take-over": "true"}));
        let is_taken_over = comes_within(Duration::from_secs(100), || {
            assert_eq!(corner.published("web"), ["10.10.0.5"]);
            let given = corner.service("web")["status"]["conditions"].to_string();
            given.contains("addresses=10.10.0.5 pool=first-pool announce=advertised ports=80/TCP")
        });
        assert!(is_taken_over, "{}", corner.service("web")["status"]);
        corner.until_told("web", "TakenOver");
        assert_eq!(corner.published("web"), ["10.10.0.5"]);
    });
}

/// As much of MetalLB's kind as is read.
pub(crate) fn make_the_kind_of_metallb(corner: &Corner<'_>) {
    make_kinds_of_metallb(corner, &[("IPAddressPool", "ipaddresspools", "v1beta1")]);
}

/// Makes kinds of MetalLB: each with its plural and its version.
pub(crate) fn make_kinds_of_metallb(corner: &Corner<'_>, kinds: &[(&str, &str, &str)]) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    for (kind, plural, version) in kinds {
        let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.metallb.io")},
            "spec": {
                "group": "metallb.io", "scope": "Namespaced", "names": names,
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        apply(corner.yard, corner.plane, &object, &[]).expect("a kind");
    }
    for (_, plural, _) in kinds {
        until_established(corner.plane, &format!("{plural}.metallb.io"));
    }
}

fn until_established(plane: &Plane, kind: &str) {
    let kind = format!("crd/{kind}");
    let wait = [
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        &kind,
    ];
    let yard = Yard::of_this_process();
    yard.kubectl(plane, &wait)
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Makes, or changes, the pool of this name.
pub(crate) fn pool(corner: &Corner<'_>, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "ballast.dev/v1", "kind": "AddressPool",
        "metadata": {"name": name}, "spec": spec,
    });
    apply(corner.yard, corner.plane, &object, &[]).unwrap_or_else(|error| panic!("{error}"));
}

fn status(corner: &Corner<'_>) -> Value {
    let get = ["get", "addresspool", "edge", "-o", "json"];
    let found = corner.yard.kubectl(corner.plane, &get).expect("a pool");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    found["status"].clone()
}

/// The addresses of the pool, those that are used, and the rest.
fn counts(corner: &Corner<'_>) -> (u64, u64, u64) {
    let status = status(corner);
    let count = |name: &str| status[name].as_u64().unwrap_or_default();
    (count("total"), count("used"), count("free"))
}

fn condition(corner: &Corner<'_>, kind: &str) -> Value {
    let status = status(corner);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|one| one["type"] == kind).cloned();
    found.next().unwrap_or_default()
}

tests![
    addresses_of_a_pool_are_given_kept_and_served,
    addresses_that_metallb_gave_are_taken_over_as_they_are,
    the_examples_of_the_documentation_are_taken_and_read,
    what_is_certainly_wrong_is_refused_with_the_reason,
];
