//! Which nodes' addresses are published, by the Leases of the load balancer nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ballast_controller::decide::{Ingress, Verdict, decide};
use ballast_controller::lease::{Exception, Exceptions, OwnPorts, Versions};
use ballast_controller::observe::{Lease, Observed};
use ballast_controller::settings::{Role, Settings};

use super::{give, settings};

#[test]
fn an_address_is_published_while_its_node_serves_the_service() {
    let (right, other) = (&KNOWS, &BEFORE);
    let live = |knows: &u64, closed: &[&str]| Some(lease(*knows, closed));
    let cases: [Case<'_>; 8] = [
        ("", None, None, &[]),
        ("", live(right, &[]), None, &["10.77.1.1"]),
        (
            "",
            live(right, &[]),
            live(right, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // With an older state, no address is added ...
        ("", live(right, &[]), live(other, &[]), &["10.77.1.1"]),
        // ... and none is removed.
        (
            "10.77.1.2",
            live(right, &[]),
            live(other, &[]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // An exception of this Service removes the address.
        (
            "10.77.1.2",
            live(right, &[]),
            live(right, &["shop/web"]),
            &["10.77.1.1"],
        ),
        (
            "10.77.1.2",
            live(right, &[]),
            live(right, &["shop/web2"]),
            &["10.77.1.1", "10.77.1.2"],
        ),
        // A Lease that has expired removes the address.
        ("10.77.1.2", live(right, &[]), None, &["10.77.1.1"]),
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
        let mut observed = observed("", annotation);
        let both = |lb1: u64, lb2: u64| {
            live([
                ("lb1".to_owned(), lease(lb1, &[])),
                ("lb2".to_owned(), lease(lb2, &[])),
            ])
        };
        observed.leases = None;
        let of_all = published(&observed);
        observed.leases = both(KNOWS, KNOWS);
        assert_eq!(published(&observed), of_all, "{annotation}");
        observed.leases = both(BEFORE, BEFORE);
        assert!(published(&observed).is_empty(), "{annotation}");
    }
}

#[test]
fn a_published_hostname_stays_while_its_node_knows_an_older_state() {
    let hostname = "ballast.dev/hostname: edge.example.com";
    let lease = |closed: &[&str]| lease(BEFORE, closed);
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
    let both = ["lb1", "lb2"].map(|node| (node, lease(KNOWS, &[])));
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
fn addresses_of_nodes_that_fell_silent_stay_where_no_other_node_serves_the_service() {
    let silent = |closed: &[&str]| {
        let lease = Arc::new(lease(KNOWS, closed));
        BTreeMap::from([("lb2".to_owned(), lease)])
    };
    let other = || ("lb1".to_owned(), lease(KNOWS, &[]));
    type Case = (
        &'static str,
        &'static [&'static str],
        bool,
        &'static [&'static str],
        bool,
    );
    let cases: [Case; 5] = [
        ("10.77.1.2", &[], false, &["10.77.1.2"], true),
        ("10.77.1.2", &[], true, &["10.77.1.1"], false),
        // It said that the Service is closed, before it fell silent.
        ("10.77.1.2", &["shop/web"], false, &[], false),
        // Its address is not published, or that of a node which has given its Lease back.
        ("", &[], false, &[], false),
        ("10.77.1.1", &[], false, &[], false),
    ];
    for (before, closed, has_other, expected, is_unheard) in cases {
        let mut observed = observed(before, "");
        observed.silent = silent(closed);
        observed.leases = live(has_other.then(other));
        assert_eq!(published(&observed), expected, "{before}");
        let statuses = decide(&observed, &on("lb1")).statuses;
        let web = statuses
            .iter()
            .find(|one| one.service.name == "web")
            .expect("a Service");
        assert_eq!(web.is_unheard, is_unheard, "{before}");
        let says = web.why == "the nodes that serve it are not heard of: lb2; its addresses stay";
        assert_eq!(says, is_unheard, "{}", web.why);
    }
}

/// An address leaves a status for the silence of its node when another node is known to serve the Service, and the silent one has had
/// time to come back with it.
#[test]
fn a_status_shrinks_only_when_another_node_is_known_to_serve_the_service() {
    let both: &[&str] = &["10.77.1.1", "10.77.1.2"];
    let pending = Exception {
        pending: true,
        ..Exception::default()
    };
    let mut waits = lease(KNOWS, &[]);
    waits.exceptions.services = BTreeMap::from([("shop/web".to_owned(), pending)]);
    for (lb1, is_excused, expected) in [
        (lease(KNOWS, &[]), false, &both[..1]),
        (lease(KNOWS, &[]), true, both),
        (lease(BEFORE, &[]), false, both),
        (waits, false, both),
        (lease(KNOWS, &["shop/web"]), false, &both[1..]),
    ] {
        let mut observed = observed("10.77.1.1", "");
        let web = observed.services.values_mut();
        let mut web = web.filter(|service| service.key.name == "web");
        let web = web.next().expect("a Service");
        Arc::make_mut(web).ingress.push("10.77.1.2".to_owned());
        observed.leases = live([("lb1".to_owned(), lb1.clone())]);
        observed.silent = BTreeMap::from([("lb2".to_owned(), Arc::new(lease(KNOWS, &[])))]);
        observed
            .excused
            .extend(is_excused.then(|| "lb2".to_owned()));
        assert_eq!(published(&observed), expected, "{lb1:?} {is_excused}");
    }
    // One that has not the address that a Service requests does not serve it in the place of another.
    let mut observed = observed("10.77.1.2", "ballast.dev/load-balancer-ips: 10.77.1.2");
    observed.leases = live([("lb1".to_owned(), lease(KNOWS, &[]))]);
    observed.silent = BTreeMap::from([("lb2".to_owned(), Arc::new(lease(KNOWS, &[])))]);
    assert_eq!(published(&observed), ["10.77.1.2"]);
}

#[test]
fn a_node_that_leaves_is_unpublished_while_its_lease_lives() {
    let mut observed = observed("10.77.1.1", "");
    let leases = ["lb1", "lb2"].map(|node| (node.to_owned(), lease(KNOWS, &[])));
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
    let table = decide(&observed, &on("lb1")).table.expect("it serves on");
    assert!(
        table
            .frontends
            .iter()
            .any(|one| &*one.name == "shop.web:80")
    );
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
fn a_service_is_published_whatever_the_settings_of_its_node_and_the_publisher_says_that_they_differ()
 {
    let mut observed = observed("", "");
    let mut lease = lease(KNOWS, &[]);
    lease.settings = "others".to_owned();
    observed.leases = live([("lb1".to_owned(), lease)]);
    let publisher = on("lb1").in_role(Role::Publisher);
    assert_eq!(published_by(&observed, &publisher), ["10.77.1.1"]);
    let notices = decide(&observed, &publisher).notices;
    let told: Vec<String> = notices.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("Warning SettingsDiffer node lb1: "),
        "{told:?}"
    );
}

#[test]
fn a_service_that_was_given_nothing_is_published_nowhere() {
    let mut observed = observed("", "");
    for service in observed.services.values_mut() {
        Arc::make_mut(service).allocated = None;
    }
    let leases = ["lb1", "lb2"].map(|node| (node.to_owned(), lease(KNOWS, &[])));
    observed.leases = live(leases);
    let publisher = on("lb1").in_role(Role::Publisher);
    assert_eq!(published_by(&observed, &publisher), [""; 0]);
    let node = decide(&observed, &on("lb1").in_role(Role::Node));
    let table = node.table.expect("a load balancer");
    let names: Vec<&str> = table.frontends.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["http"], "a node gives nothing to LoadBalancers");
}

#[test]
fn a_node_whose_exceptions_have_no_room_for_a_namespace_publishes_nothing_new_of_it() {
    for (before, expected) in [("", &[][..]), ("10.77.1.1", &["10.77.1.1"][..])] {
        let mut observed = observed(before, "");
        let leases = [("lb1".to_owned(), lease(KNOWS, &["shop/*"]))];
        observed.leases = live(leases);
        assert_eq!(published(&observed), expected);
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
        let mut lease = lease(KNOWS, &[]);
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
            let mut lease = lease(KNOWS, &[]);
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
        let mut lease = lease(KNOWS, &[]);
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

/// The Lease of a node that serves the Services as they were at this version, with these Services closed.
fn lease(knows: u64, closed: &[&str]) -> Lease {
    let exception = Exception {
        closed: true,
        ..Exception::default()
    };
    let services = closed.iter();
    let services = services.map(|name| ((*name).to_owned(), exception.clone()));
    Lease {
        served: Versions {
            all: knows,
            ..Versions::default()
        },
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
    let local = if annotation.contains("strict") {
        ", externalTrafficPolicy: Local"
    } else {
        ""
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
  managedFields: [{{manager: ballast, subresource: status}}]
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
    give(&mut observed, &on("lb1"), KNOWS);
    observed
}

/// The version at which the Services were given their ports, and one before.
const KNOWS: u64 = 10;
const BEFORE: u64 = 9;
