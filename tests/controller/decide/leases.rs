//! Which nodes' addresses are published, by the Leases of the load balancer nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ballast_controller::decide::{Ingress, Verdict, decide};
use ballast_controller::lease::{Binds, Exception, Exceptions, OwnPorts, Served};
use ballast_controller::observe::{Lease, Observed};
use ballast_controller::settings::{Role, Settings};

use super::settings;

#[test]
fn an_address_is_published_while_its_node_serves_the_service() {
    let right = served_by("lb1", "");
    let live = |binds: &Binds, closed: &[&str]| Some(lease(binds, closed));
    let other = other();
    let cases: [Case<'_>; 11] = [
        ("", None, None, &[]),
        ("", live(&right, &[]), None, &["10.77.1.1"]),
        (
            "",
            live(&right, &[]),
            live(&right, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // With another hash, no address is added ...
        ("", live(&right, &[]), live(&other, &[]), &["10.77.1.1"]),
        // ... and none is removed.
        (
            "10.77.1.2",
            live(&right, &[]),
            live(&other, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // The same holds for names in place of addresses, for an old API server.
        (
            "10.77.1.2.nip.io",
            live(&right, &[]),
            live(&other, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        (
            "fd77--1.nip.io",
            live(&right, &[]),
            live(&other, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        (
            "10.77.1.20.nip.io",
            live(&right, &[]),
            live(&other, &[]),
            &["10.77.1.1"],
        ),
        // An exception of this Service removes the address.
        (
            "10.77.1.2",
            live(&right, &[]),
            live(&right, &["shop/web"]),
            &["10.77.1.1"],
        ),
        (
            "10.77.1.2",
            live(&right, &[]),
            live(&right, &["shop/web2"]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // A Lease that has expired removes the address.
        ("10.77.1.2", live(&right, &[]), None, &["10.77.1.1"]),
    ];
    for (index, (before, lb1, lb2, expected)) in cases.into_iter().enumerate() {
        let mut observed = observed(before, "");
        let leases = [("lb1", lb1), ("lb2", lb2)];
        let leases = leases
            .into_iter()
            .filter_map(|(name, lease)| Some((name.to_owned(), lease?)));
        observed.leases = self::live(leases);
        assert_eq!(published(&observed), expected, "case {index}");
    }
}

#[test]
fn every_node_is_judged_by_what_it_should_serve_itself() {
    // Each of these makes the tables of the two nodes differ.
    for annotation in [
        "ballast.dev/node-selector: kubernetes.io/hostname=lb2",
        "ballast.dev/internal: 'true'",
        "ballast.dev/load-balancer-ips: 10.77.1.2",
    ] {
        let of = |node| served_by(node, annotation);
        let mut observed = observed("", annotation);
        let both = |lb1: Binds, lb2: Binds| {
            live([
                ("lb1".to_owned(), lease(&lb1, &[])),
                ("lb2".to_owned(), lease(&lb2, &[])),
            ])
        };
        observed.leases = None;
        let of_all = published(&observed);
        observed.leases = both(of("lb1"), of("lb2"));
        assert_eq!(published(&observed), of_all, "{annotation}");
        observed.leases = both(other(), other());
        assert!(published(&observed).is_empty(), "{annotation}");
    }
}

#[test]
fn a_published_hostname_stays_while_only_the_hash_differs() {
    let hostname = "ballast.dev/hostname: edge.example.com";
    let lease = |closed: &[&str]| lease(&other(), closed);
    let cases: [(&str, Lease, &[&str]); 4] = [
        ("", lease(&[]), &[]),
        ("edge.example.com", lease(&[]), &["edge.example.com"]),
        ("other.example.com", lease(&[]), &[]),
        ("edge.example.com", lease(&["shop/web"]), &[]),
    ];
    for (before, lb1, expected) in cases {
        let mut observed = observed(before, hostname);
        observed.leases = live([("lb1".to_owned(), lb1.clone())]);
        assert_eq!(published(&observed), expected, "{before} {lb1:?}");
    }
}

#[test]
fn with_strict_local_and_no_endpoint_what_is_published_stays_and_the_dead_go() {
    let strict = "ballast.dev/external-traffic-policy-mode: strict";
    let of = |node| lease(&served_by(node, strict), &[]);
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
        observed.leases = live(leases);
        assert_eq!(published(&observed), expected, "{before} {observed:?}");
    }
}

#[test]
fn a_node_that_leaves_is_unpublished_while_its_lease_lives() {
    let mut observed = observed("10.77.1.1", "");
    let leases = ["lb1", "lb2"].map(|node| (node.to_owned(), lease(&served_by(node, ""), &[])));
    observed.leases = live(leases);
    assert_eq!(published(&observed), ["10.77.1.1", "10.77.1.2"]);
    let text = "kind: Node
metadata: {name: lb1, labels: {role: loadbalancer, kubernetes.io/hostname: lb1}}
spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}
status: {addresses: [{type: InternalIP, address: 10.77.1.1}]}
";
    observed.nodes.remove("lb1");
    assert_eq!(observed.take_file("leaving.yaml", text), []);
    assert_eq!(published(&observed), ["10.77.1.2"]);
    let desired = decide(&observed, &on("lb1"));
    assert_eq!(desired.report.binds, served_by("lb1", ""));
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

#[test]
fn a_service_is_published_whatever_happens_to_others_of_its_bucket() {
    let mut observed = observed("", "");
    // A node that serves this Service, and an older state of all others.
    let mut served = Served::of(&other());
    served.recent.insert(served_by("lb1", "")["shop.web"]);
    let old = Lease {
        served,
        ..Lease::default()
    };
    observed.leases = live([("lb1".to_owned(), old)]);
    assert_eq!(published(&observed), ["10.77.1.1"]);
}

#[test]
fn a_node_with_other_settings_is_not_counted_as_serving_and_unpublishes_nothing() {
    for (before, expected) in [("", &[][..]), ("10.77.1.1", &["10.77.1.1"][..])] {
        let mut observed = observed(before, "");
        let mut lease = lease(&served_by("lb1", ""), &[]);
        lease.settings = "others".to_owned();
        observed.leases = live([("lb1".to_owned(), lease)]);
        assert_eq!(published(&observed), expected);
    }
}

#[test]
fn the_publisher_expects_of_nodes_what_they_decide_themselves() {
    for annotation in [
        "",
        "ballast.dev/node-selector: kubernetes.io/hostname=lb2",
        "ballast.dev/internal: 'true'",
        "ballast.dev/load-balancer-ips: 10.77.1.2",
        "ballast.dev/tls-secret: not-there",
    ] {
        let mut observed = observed("", annotation);
        let leases = ["lb1", "lb2"].map(|node| {
            let settings = on(node).in_role(Role::Node);
            let desired = decide(&observed, &settings);
            (node.to_owned(), lease(&desired.report.binds, &[]))
        });
        observed.leases = live(leases);
        let all = published_by(&observed, &on("lb1").in_role(Role::Publisher));
        let dns = decide(&observed, &on("lb1").in_role(Role::Publisher));
        let dns = dns
            .statuses
            .iter()
            .find(|status| status.service.name == "dns");
        assert_eq!(
            dns.map(|status| status.ingress.len()),
            Some(2),
            "{annotation}"
        );
        assert!(!all.is_empty(), "{annotation}");
    }
}

#[test]
fn what_nodes_say_is_told_once_by_the_publisher() {
    let text = r#"{"services": {"shop/web": {"messages": [
        {"warning": true, "reason": "SecretUnreadable", "text": "port 443 stays closed"},
        {"warning": true, "reason": "Nonsense", "text": "of its own"}]},
        "shop/gone": {"messages": [{"warning": true, "reason": "SecretUnreadable", "text": "x"}]}},
        "node": [{"warning": true, "reason": "TableRefused", "text": "refused"}]}"#;
    let mut observed = observed("", "");
    let leases = ["lb1", "lb2"].map(|node| {
        let mut lease = lease(&served_by(node, ""), &[]);
        lease.exceptions = Exceptions::read(text);
        (node.to_owned(), lease)
    });
    observed.leases = live(leases);
    let desired = decide(&observed, &on("lb1").in_role(Role::Publisher));
    let told: Vec<String> = desired.notices.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "Warning TableRefused node lb1: refused",
            "Warning TableRefused node lb2: refused",
            "Warning SecretUnreadable service shop/web: port 443 stays closed",
            "Warning SyncLoadBalancerFailed service shop/web: of its own",
        ]
    );
}

#[test]
fn a_port_that_one_node_keeps_for_itself_costs_a_service_that_node_alone() {
    let kept = |observed: &mut Observed, nodes: &[&str], ports: &str| {
        let settings = |node: &str| {
            let keeps = nodes.contains(&node);
            Settings {
                admin_port: Some(if keeps { 80 } else { 1937 }),
                ..on(node).in_role(Role::Node)
            }
        };
        let leases = ["lb1", "lb2"].map(|node| {
            let desired = decide(observed, &settings(node));
            let table = desired.table.expect("a load balancer");
            let has_it = table
                .frontends
                .iter()
                .any(|one| &*one.name == "shop.web:80");
            assert_eq!(has_it, !nodes.contains(&node), "{node}");
            let mut lease = lease(&desired.report.binds, &[]);
            if nodes.contains(&node) {
                lease.ports = OwnPorts::read(ports);
            }
            (node.to_owned(), lease)
        });
        observed.leases = live(leases);
    };
    let publisher = on("lb1").in_role(Role::Publisher);
    let said = |observed: &Observed| {
        let notices = decide(observed, &publisher).notices;
        let told = notices.iter().map(ToString::to_string);
        told.collect::<Vec<_>>()
    };
    // It is not published there, and what is published there goes.
    for before in ["", "10.77.1.1"] {
        let mut observed = observed(before, "");
        kept(&mut observed, &["lb1"], "stats=1936,controller=80");
        assert_eq!(published_by(&observed, &publisher), ["10.77.1.2"]);
        assert_eq!(
            said(&observed),
            [
                "Warning AllocationFailed service shop/web: Failed to allocate IP for \"shop/web\" on lb1: port 80/TCP is taken by the node's own controller port"
            ]
        );
    }
    // All nodes keep it.
    let mut observed = observed("10.77.1.1", "");
    kept(&mut observed, &["lb1", "lb2"], "controller=80");
    assert_eq!(published_by(&observed, &publisher), [""; 0]);
    let statuses = decide(&observed, &publisher).statuses;
    let web = statuses.iter().find(|one| one.service.name == "web");
    let why = web.map(|status| (status.verdict, status.why.as_str()));
    let taken = "port 80/TCP is taken by the node's own controller port on lb1, lb2";
    assert_eq!(why, Some((Verdict::Pending, taken)));
    // A node without the annotation keeps none, and a Service that is not for that node loses nothing.
    kept(&mut observed, &["lb1"], "");
    assert_eq!(said(&observed), [""; 0]);
    let elsewhere = "ballast.dev/node-selector: kubernetes.io/hostname=lb2";
    let mut observed = self::observed("", elsewhere);
    let leases = ["lb1", "lb2"].map(|node| {
        let settings = on(node).in_role(Role::Node);
        let mut lease = lease(&decide(&observed, &settings).report.binds, &[]);
        lease.ports = OwnPorts::read(if node == "lb1" { "controller=80" } else { "" });
        (node.to_owned(), lease)
    });
    observed.leases = live(leases);
    assert_eq!(published_by(&observed, &publisher), ["10.77.1.2"]);
    assert_eq!(said(&observed), [""; 0]);
}

/// The published addresses before, the Leases of lb1 and lb2, and the published addresses after.
type Case<'a> = (&'a str, Option<Lease>, Option<Lease>, &'a [&'a str]);

/// The Leases that are live, by node.
fn live(leases: impl IntoIterator<Item = (String, Lease)>) -> Option<BTreeMap<String, Arc<Lease>>> {
    let leases = leases.into_iter();
    Some(
        leases
            .map(|(node, lease)| (node, Arc::new(lease)))
            .collect(),
    )
}

fn published(observed: &Observed) -> Vec<String> {
    published_by(observed, &on("lb1"))
}

fn published_by(observed: &Observed, settings: &Settings) -> Vec<String> {
    let desired = decide(observed, settings);
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

/// The binds of a node.
fn served_by(node: &str, annotation: &str) -> Binds {
    let desired = decide(&observed("", annotation), &on(node));
    desired.report.binds.clone()
}

/// The binds of a node in another state.
fn other() -> Binds {
    let mut binds = served_by("lb1", "");
    binds
        .values_mut()
        .for_each(|number| *number = number.wrapping_add(1));
    binds
}

/// The Lease of a node with these binds, and with these Services closed.
fn lease(binds: &Binds, closed: &[&str]) -> Lease {
    let exception = Exception {
        closed: true,
        ..Exception::default()
    };
    let services = closed.iter();
    let services = services.map(|name| ((*name).to_owned(), exception.clone()));
    Lease {
        served: Served::of(binds),
        exceptions: Exceptions {
            services: services.collect(),
            ..Exceptions::default()
        },
        ..Lease::default()
    }
}

/// The settings of a node. The shared port is moved away.
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
