//! Whose addresses are published, by the Leases of the load balancer nodes.

use std::collections::{BTreeMap, BTreeSet};

use ballast_controller::decide::{Ingress, decide, served};
use ballast_controller::observe::{Lease, Observed};
use ballast_controller::settings::Settings;

use super::settings;

#[test]
fn an_address_is_published_while_its_node_serves_the_service() {
    let right = served_by("lb1", "");
    let live = |served: &str, exceptions: &[&str]| {
        Some(Lease {
            served: served.to_owned(),
            exceptions: exceptions.iter().map(|name| (*name).to_owned()).collect(),
        })
    };
    let cases: [Case<'_>; 11] = [
        ("", None, None, &[]),
        ("", live(&right, &[]), None, &["10.77.1.1"]),
        (
            "",
            live(&right, &[]),
            live(&right, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // Another hash adds nothing ...
        ("", live(&right, &[]), live("other", &[]), &["10.77.1.1"]),
        // ... and alone removes nothing.
        (
            "10.77.1.2",
            live(&right, &[]),
            live("other", &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // So it is where an old API server has names in place of addresses.
        (
            "10.77.1.2.nip.io",
            live(&right, &[]),
            live("other", &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        (
            "fd77--1.nip.io",
            live(&right, &[]),
            live("other", &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        (
            "10.77.1.20.nip.io",
            live(&right, &[]),
            live("other", &[]),
            &["10.77.1.1"],
        ),
        // An exception removes, if it is this Service's.
        (
            "10.77.1.2",
            live(&right, &[]),
            live(&right, &["shop.web:80"]),
            &["10.77.1.1"],
        ),
        (
            "10.77.1.2",
            live(&right, &[]),
            live(&right, &["shop.web2:80"]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // A Lease that has run out removes.
        ("10.77.1.2", live(&right, &[]), None, &["10.77.1.1"]),
    ];
    for (index, (before, lb1, lb2, expected)) in cases.into_iter().enumerate() {
        let mut observed = observed(before, "");
        let leases = [("lb1", lb1), ("lb2", lb2)];
        let leases = leases
            .into_iter()
            .filter_map(|(name, lease)| Some((name.to_owned(), lease?)));
        observed.leases = Some(leases.collect::<BTreeMap<_, _>>());
        assert_eq!(published(&observed), expected, "case {index}");
    }
}

#[test]
fn every_node_is_judged_by_what_it_should_serve_itself() {
    // Each of these makes the two nodes' tables differ.
    for annotation in [
        "ballast.dev/node-selector: kubernetes.io/hostname=lb2",
        "ballast.dev/internal: 'true'",
        "ballast.dev/load-balancer-ips: 10.77.1.2",
    ] {
        let of = |node| served_by(node, annotation);
        let mut observed = observed("", annotation);
        let both = |lb1: String, lb2: String| {
            let lease = |served| Lease {
                served,
                ..Lease::default()
            };
            Some(BTreeMap::from([
                ("lb1".to_owned(), lease(lb1)),
                ("lb2".to_owned(), lease(lb2)),
            ]))
        };
        observed.leases = None;
        let of_all = published(&observed);
        observed.leases = both(of("lb1"), of("lb2"));
        assert_eq!(published(&observed), of_all, "{annotation}");
        observed.leases = both("another".to_owned(), "another".to_owned());
        assert!(published(&observed).is_empty(), "{annotation}");
    }
}

#[test]
fn a_published_hostname_stays_while_only_the_hash_differs() {
    let hostname = "ballast.dev/hostname: edge.example.com";
    let lease = |served: &str, exceptions: &[&str]| Lease {
        served: served.to_owned(),
        exceptions: exceptions.iter().map(|name| (*name).to_owned()).collect(),
    };
    let cases: [(&str, Lease, &[&str]); 4] = [
        ("", lease("other", &[]), &[]),
        (
            "edge.example.com",
            lease("other", &[]),
            &["edge.example.com"],
        ),
        ("other.example.com", lease("other", &[]), &[]),
        ("edge.example.com", lease("other", &["shop.web:80"]), &[]),
    ];
    for (before, lb1, expected) in cases {
        let mut observed = observed(before, hostname);
        observed.leases = Some(BTreeMap::from([("lb1".to_owned(), lb1.clone())]));
        assert_eq!(published(&observed), expected, "{before} {lb1:?}");
    }
}

#[test]
fn with_strict_local_and_no_endpoint_what_is_published_stays_and_the_dead_go() {
    let strict = "ballast.dev/external-traffic-policy-mode: strict";
    let of = |node| Lease {
        served: served_by(node, strict),
        ..Lease::default()
    };
    let both = [("lb1", of("lb1")), ("lb2", of("lb2"))];
    let cases: [(&str, usize, &[&str]); 4] = [
        ("", 2, &[]),
        ("10.77.1.2", 2, &["10.77.1.2"]),
        ("10.77.1.2", 1, &[]),
        ("192.0.2.1", 2, &[]),
    ];
    for (before, alive, expected) in cases {
        let mut observed = observed(before, strict);
        let leases = both
            .iter()
            .take(alive)
            .map(|(node, lease)| ((*node).to_owned(), lease.clone()));
        observed.leases = Some(leases.collect());
        assert_eq!(published(&observed), expected, "{before} {observed:?}");
    }
}

#[test]
fn a_node_that_leaves_is_unpublished_while_its_lease_lives() {
    let mut observed = observed("10.77.1.1", "");
    let leases = ["lb1", "lb2"].map(|node| {
        let served = served_by(node, "");
        let exceptions = BTreeSet::new();
        (node.to_owned(), Lease { served, exceptions })
    });
    observed.leases = Some(leases.into());
    assert_eq!(published(&observed), ["10.77.1.1", "10.77.1.2"]);
    let text = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer, kubernetes.io/hostname: lb1}}
spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}
status: {addresses: [{type: InternalIP, address: 10.77.1.1}]}
";
    observed.nodes.remove("lb1");
    assert_eq!(observed.take_file("leaving.yaml", text), []);
    assert_eq!(published(&observed), ["10.77.1.2"]);
    let table = decide(&observed, &on("lb1"))
        .table
        .expect("a load balancer");
    assert_eq!(served(&table), served_by("lb1", ""));
}

#[test]
fn what_listens_does_not_depend_on_who_is_live() {
    let settings = on("lb1");
    let mut observed = observed("", "");
    let without = decide(&observed, &settings).table;
    observed.leases = Some(BTreeMap::new());
    assert_eq!(decide(&observed, &settings).table, without);
    assert_eq!(without.map(|table| table.frontends.len()), Some(3));
}

/// What is published before, lb1's and lb2's Lease, what is published then.
type Case<'a> = (&'a str, Option<Lease>, Option<Lease>, &'a [&'a str]);

fn published(observed: &Observed) -> Vec<String> {
    let desired = decide(observed, &on("lb1"));
    let web = desired
        .statuses
        .into_iter()
        .filter(|status| status.service.name == "web");
    let ingress = web.flat_map(|status| status.ingress);
    ingress
        .map(|entry| match entry {
            Ingress::Ip(address) => address.to_string(),
            Ingress::Hostname(name) => name,
        })
        .collect()
}

/// The hash of a node's table.
fn served_by(node: &str, annotation: &str) -> String {
    let desired = decide(&observed("", annotation), &on(node));
    served(&desired.table.expect("a load balancer"))
}

/// As on that node. The shared port is out of the way.
fn on(node: &str) -> Settings {
    let arguments = [format!("--node-name={node}"), "--http-port=8000".to_owned()];
    settings(&arguments).expect("settings")
}

fn observed(published: &str, annotation: &str) -> Observed {
    let status = match published {
        "" => "{}".to_owned(),
        address if address.contains(char::is_alphabetic) => {
            format!("{{loadBalancer: {{ingress: [{{hostname: {address}}}]}}}}")
        }
        address => format!("{{loadBalancer: {{ingress: [{{ip: {address}}}]}}}}"),
    };
    let local = match annotation.contains("strict") {
        true => ", externalTrafficPolicy: Local",
        false => "",
    };
    let text = format!(
        "kind: Node
metadata: {{name: lb1, labels: {{role: loadbalancer, kubernetes.io/hostname: lb1}}}}
status: {{addresses: [{{type: InternalIP, address: 10.77.1.1}}]}}
---
kind: Node
metadata: {{name: lb2, labels: {{role: loadbalancer, kubernetes.io/hostname: lb2}}}}
status: {{addresses: [{{type: InternalIP, address: 10.77.1.2}}, {{type: InternalIP, address: 'fd77::1'}}]}}
---
kind: Service
metadata:
  name: web
  namespace: shop
  annotations: {{{annotation}}}
  managedFields: [{{manager: ballast-controller, subresource: status}}]
spec: {{type: LoadBalancer, ports: [{{port: 80}}]{local}}}
status: {status}
---
kind: Service
metadata: {{name: docs, namespace: shop, annotations: {{ballast.dev/path: /docs}}}}
spec: {{ports: [{{port: 80}}]}}
---
kind: Service
metadata: {{name: dns, namespace: shop, uid: u-2}}
spec: {{type: LoadBalancer, ports: [{{port: 53, protocol: UDP}}]}}
"
    );
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("x.yaml", &text), []);
    observed
}
