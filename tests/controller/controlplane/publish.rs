//! The publisher beside its nodes: what each role may do, what nodes tell it, and what a tenant can delay.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use crate::api::Place;
use crate::backends::{Backends, service};
use crate::corner::{Corner, NODES, PUBLISHERS, in_a_corner, with_its_own_server, words};
use crate::figures::{a_service, holds};
use crate::node::LbNode;
use crate::process::{comes_within, until};

fn a_tenant_that_never_rests_delays_nobody() {
    in_a_corner("restless", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        // Of every bucket there is one that flips all the time.
        for number in 0..20 {
            corner.apply(&a_service(number));
        }
        corner.until_published("s19", &[&node.address()]);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    let kind = if round % 2 == 0 {
                        "ClusterIP"
                    } else {
                        "LoadBalancer"
                    };
                    let flip = json!({"spec": {"type": kind}});
                    for number in 0..20 {
                        if over.load(Ordering::Relaxed) {
                            return;
                        }
                        corner.patch("Service", &format!("s{number}"), &flip);
                        support::pause(Duration::from_millis(20));
                    }
                }
            });
            let mut lasted: Vec<Duration> = (100..120)
                .map(|number| {
                    let name = format!("s{number}");
                    corner.apply(&a_service(number));
                    let begun = Instant::now();
                    corner.until_published(&name, &[&node.address()]);
                    begun.elapsed()
                })
                .collect();
            over.store(true, Ordering::Relaxed);
            lasted.sort();
            let most = lasted[lasted.len() - 1];
            holds(
                "beside twenty that flip: created to published",
                most,
                Duration::from_secs(2),
            );
            assert!(most < Duration::from_secs(10), "{lasted:?}");
        });
    });
}

fn each_role_asks_for_what_it_needs_and_nodes_write_no_service() {
    in_a_corner("roles", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.annotate("web", &json!({"ballast.dev/algorithm": "nonsense"}));
        corner.until_published("web", &[&node.address()]);
        corner.until_told("web", "InvalidAnnotation");
        corner.patch("Service", "web", &json!({"spec": {"type": "ClusterIP"}}));
        corner.until_told("web", "DeletedLoadBalancer");
        let writes = |account: &str| {
            let mut asked = corner.asked_by(account);
            asked.retain(|entry| {
                !["get", "list", "watch"]
                    .map(Value::from)
                    .contains(&entry["verb"])
            });
            asked
        };
        for entry in writes(NODES) {
            let of = &entry["objectRef"];
            let own = format!("ballast-{}", node.name);
            assert!(of["resource"] == "leases", "{}", words(&entry));
            // A POST has no name.
            assert!(
                of["name"] == own.as_str() || of["name"].is_null(),
                "{}",
                words(&entry)
            );
        }
        for entry in corner.asked_by(NODES) {
            let what = &entry["objectRef"]["resource"];
            let allowed = ["services", "endpointslices", "nodes", "leases"];
            assert!(allowed.map(Value::from).contains(what), "{}", words(&entry));
        }
        let written = writes(PUBLISHERS);
        assert!(
            written
                .iter()
                .any(|entry| entry["objectRef"]["subresource"] == "status")
        );
        for entry in corner.asked_by(PUBLISHERS) {
            let what = &entry["objectRef"]["resource"];
            let read = ["endpointslices", "secrets"];
            assert!(!read.map(Value::from).contains(what), "{}", words(&entry));
        }
        // And what nodes do not do they may not do either.
        for (verb, resource) in [
            ("patch", "services"),
            ("patch", "services/status"),
            ("create", "events.events.k8s.io"),
            ("list", "events"),
            ("get", "secrets"),
            ("update", "leases.coordination.k8s.io"),
            ("list", "leases.coordination.k8s.io"),
        ] {
            assert!(!may(corner, NODES, verb, resource), "{verb} {resource}");
        }
        for (verb, resource) in [
            ("get", "secrets"),
            ("list", "endpointslices.discovery.k8s.io"),
            ("list", "events.events.k8s.io"),
        ] {
            assert!(
                !may(corner, PUBLISHERS, verb, resource),
                "{verb} {resource}"
            );
        }
    });
}

/// Whether a role may do that in the namespace of its corner's Services.
fn may(corner: &Corner<'_>, account: &str, verb: &str, resource: &str) -> bool {
    let user = format!("--as=system:serviceaccount:{}:{account}", corner.home);
    let namespace = format!("--namespace={}", corner.name);
    let asked = ["auth", "can-i", verb, resource, &user, &namespace];
    corner.yard.kubectl(corner.plane, &asked).is_ok()
}

fn a_port_that_a_node_cannot_bind_is_told_by_the_publisher_and_not_published_there() {
    in_a_corner("unbound", |corner| {
        let pods = Backends::start(corner, 1);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let addresses = nodes.each_ref().map(LbNode::address);
        let taken = (nodes[0].host.address, 8080);
        let listener = nodes[0].host.network.within(|| TcpListener::bind(taken));
        let listener = listener.expect("a port");
        corner.apply(&service("web", 8080, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&addresses[1]]);
        let told = corner.until_told("web", "SyncLoadBalancerFailed");
        assert!(told.message.contains(&nodes[0].name), "{told:?}");
        assert!(!comes_within(Duration::from_secs(3), || {
            corner.published("web").len() > 1
        }));
        drop(listener);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
    });
}

fn a_node_with_other_settings_is_told_and_published_all_the_same() {
    in_a_corner("settings", |corner| {
        corner.publish(&[]);
        let node = LbNode::start(corner, "a", &["--http-port=8000"]);
        corner.apply(&service("web", 80, ""));
        until("the node is told", || {
            let events = corner.plane.admin.list("Event", "default");
            events.iter().any(|event| {
                event["reason"] == "SettingsDiffer"
                    && event["involvedObject"]["name"] == node.name.as_str()
            })
        });
        corner.until_published("web", &[&node.address()]);
        let publisher = corner.take_publisher();
        let log = publisher.log();
        assert!(log.contains("SettingsDiffer"), "{log}");
        assert!(log.contains(&node.name), "{log}");
        until("the node logs it, too", || {
            let controller = node.controller.as_ref().expect("it runs");
            controller.log().contains("SettingsDiffer")
        });
    });
}

fn a_port_that_a_node_keeps_for_itself_is_told_and_not_published_there() {
    in_a_corner("kept", |corner| {
        corner.publish(&[]);
        let keeps = LbNode::start(corner, "a", &["--admin=127.0.0.1:8080"]);
        let node = LbNode::start(corner, "b", &[]);
        let ports = |node: &LbNode<'_>| {
            let lease = node.lease().unwrap_or_default();
            lease["metadata"]["annotations"]["ballast.dev/ports"].clone()
        };
        until("its Lease", || {
            ports(&keeps) == "stats=1936,controller=8080"
        });
        until("its Lease", || ports(&node) == "stats=1936,controller=1937");
        // It has two ports, and is not served in part.
        let two = service("web", 8080, "").replace(
            "ports: [{port: 8080, targetPort: 8080}]",
            "ports: [{name: a, port: 8080}, {name: b, port: 80}]",
        );
        corner.apply(&two);
        corner.until_published("web", &[&node.address()]);
        let told = corner.until_told("web", "AllocationFailed");
        assert_eq!(told.kind, "Warning");
        let why = format!(
            "on {}: port 8080/TCP is taken by the node's own controller port",
            keeps.name
        );
        assert!(told.message.contains(&why), "{told:?}");
        keeps.until_serves("kept.web:80");
        assert_eq!(keeps.frontends(), ["kept.web:80"]);
        assert!(!comes_within(Duration::from_secs(3), || {
            corner.published("web").len() > 1
        }));
        // Other Services are published at both.
        corner.apply(&service("other", 81, ""));
        corner.until_published("other", &[&keeps.address(), &node.address()]);
    });
}

fn a_node_of_another_version_is_published_by_what_its_lease_says() {
    in_a_corner("versions", |corner| {
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        node.controller.take().expect("it runs").crash();
        // From now on the test writes what its controller would.
        let lease = format!("ballast-{}", node.name);
        let lease = Place {
            kind: "Lease",
            namespace: &corner.home,
            name: &lease,
        };
        let mut writes = 0;
        let mut write = |holder: &str, annotations: &Value| {
            writes += 1;
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 300, "leaseTransitions": writes});
            let patch = json!({"metadata": {"annotations": annotations}, "spec": spec});
            corner.plane.admin.patch(lease, &patch);
        };
        // Older: it says nothing but what it serves. Newer: it says more.
        let older = json!({
            "ballast.dev/exceptions": null, "ballast.dev/settings": null, "ballast.dev/ports": null,
        });
        let exceptions = json!({
            "services": {"versions/web": {"later": true, "messages": []}},
            "later": {"seen": 1},
        });
        let newer = json!({
            "ballast.dev/exceptions": exceptions.to_string(), "ballast.dev/later": "1",
        });
        for annotations in [older, newer] {
            write("", &json!({}));
            corner.until_published("web", &[]);
            write(&node.name, &annotations);
            corner.until_published("web", &[&node.address()]);
        }
        // By what cannot be read nothing is published anew, and what is published stays.
        write(&node.name, &json!({"ballast.dev/served": "later:1"}));
        corner.apply(&service("other", 81, ""));
        assert!(!comes_within(Duration::from_secs(3), || {
            corner.published("web").is_empty() || !corner.published("other").is_empty()
        }));
    });
}

fn at_rest_a_node_writes_its_lease_and_asks_for_nothing() {
    // The publisher watches all Nodes: those of other tests would be news.
    with_its_own_server("rest", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        support::pause(Duration::from_secs(8));
        let (asked, decisions) = (corner.asked_by(NODES).len(), decisions(&node.metrics()));
        let of_publisher = corner.take_publisher();
        let decided = self::decisions(&of_publisher.metrics());
        let publisher = corner.asked_by(PUBLISHERS).len();
        support::pause(Duration::from_secs(20));
        // A watch ends and begins anew every half minute.
        let asked = corner.asked_by(NODES).split_off(asked);
        let leases = asked
            .iter()
            .filter(|entry| entry["objectRef"]["resource"] == "leases");
        let leases = leases.count();
        assert!(
            (4..=6).contains(&leases),
            "{leases} writes of the Lease in 20 s"
        );
        for entry in asked {
            let verb = &entry["verb"];
            assert!(verb == "patch" || verb == "watch", "{}", words(&entry));
        }
        for entry in corner.asked_by(PUBLISHERS).split_off(publisher) {
            let of = &entry["objectRef"];
            let is_watch = entry["verb"] == "watch";
            assert!(
                is_watch || of["name"] == "ballast-leader",
                "{}",
                words(&entry)
            );
        }
        for (metrics, before) in [
            (node.metrics(), &decisions),
            (of_publisher.metrics(), &decided),
        ] {
            let now = self::decisions(&metrics);
            assert_eq!(now, *before, "at rest nothing is decided");
        }
        // Neither is anything for what is not read.
        for round in 0..3 {
            let touched = json!({"example.com/touched": round.to_string()});
            let touched = json!({"metadata": {"annotations": touched, "labels": touched}});
            corner.patch("Service", "web", &touched);
            corner.patch(
                "Node",
                &node.name,
                &json!({"metadata": {"annotations": {"touched": "yes"}}}),
            );
            support::pause(Duration::from_secs(1));
        }
        assert_eq!(self::decisions(&node.metrics()), decisions);
        assert_eq!(self::decisions(&of_publisher.metrics()), decided);
        // What the publisher writes on a Service is nothing to a node.
        corner.annotate(
            "web",
            &json!({"loadbalancer.openstack.org/load-balancer-address": "x"}),
        );
        let conditions = json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]);
        let heartbeat = json!({"status": {"conditions": conditions}});
        let status = format!("/api/v1/nodes/{}/status", node.name);
        corner.must(
            corner
                .plane
                .admin
                .ask(Method::PATCH, &status, Some(&heartbeat)),
        );
        support::pause(Duration::from_secs(2));
        assert_eq!(self::decisions(&node.metrics()), decisions);
    });
}

fn decisions(metrics: &str) -> String {
    let name = "ballast_controller_decisions_total ";
    let line = metrics.lines().find(|line| line.starts_with(name));
    line.expect("a metric").to_owned()
}

tests![
    a_tenant_that_never_rests_delays_nobody,
    each_role_asks_for_what_it_needs_and_nodes_write_no_service,
    a_port_that_a_node_cannot_bind_is_told_by_the_publisher_and_not_published_there,
    a_node_with_other_settings_is_told_and_published_all_the_same,
    a_port_that_a_node_keeps_for_itself_is_told_and_not_published_there,
    a_node_of_another_version_is_published_by_what_its_lease_says,
    at_rest_a_node_writes_its_lease_and_asks_for_nothing,
];
