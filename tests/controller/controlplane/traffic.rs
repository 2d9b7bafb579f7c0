//! From `kubectl apply` to a client's answer.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::backends::{Backends, service, slice_on};
use crate::corner::{Corner, as_installed, in_a_corner};
use crate::node::{LbNode, ask};
use crate::plane::Host;
use crate::process::{Signal, until};

fn source_ranges_let_in_whom_they_name_and_nobody_else() {
    in_a_corner("ranges", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        let (friend, stranger) = (corner.yard.host(), corner.yard.host());
        let asks = |from: &Host| from.network.within(|| node.ask(80));
        let range = |address: Ipv4Addr| format!("{address}/32");
        corner.apply(&service(
            "web",
            80,
            &format!(
                "  loadBalancerSourceRanges: [\"{}\"]\n",
                range(friend.address)
            ),
        ));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        until("the friend is let in", || asks(&friend).is_ok());
        assert_denied(asks(&stranger));

        // Live, both ways.
        let only = json!({"spec": {"loadBalancerSourceRanges": [range(stranger.address)]}});
        corner.patch("Service", "web", &only);
        until("the stranger is let in", || asks(&stranger).is_ok());
        assert_denied(asks(&friend));
        corner.patch(
            "Service",
            "web",
            &json!({"spec": {"loadBalancerSourceRanges": null}}),
        );
        until("everybody is let in", || {
            asks(&friend).is_ok() && asks(&stranger).is_ok()
        });

        // A range that cannot be read keeps what was; it never opens.
        corner.annotate(
            "web",
            &json!({"ballast.dev/source-ranges": range(friend.address)}),
        );
        until("the stranger is out", || asks(&stranger).is_err());
        corner.annotate("web", &json!({"ballast.dev/source-ranges": "10.0.0.0/99"}));
        corner.until_told("web", "InvalidAnnotation");
        assert_denied(asks(&stranger));
        asks(&friend).expect("what was goes on");
    });
}

fn from_kubectl_apply_to_a_clients_answer_through_two_nodes() {
    as_installed(|corner| {
        let pods = Backends::start(corner, 3);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        let client = corner.yard.host();
        let manifest = corner.folder.path().join("web.yaml");
        let text = service("web", 8000, "") + "---\n" + &pods.slice("web", &[0, 1]);
        std::fs::write(&manifest, text).expect("a file");
        let path = manifest.to_str().unwrap_or_default();
        corner
            .yard
            .kubectl(corner.plane, &["apply", "-f", path])
            .expect("kubectl apply");
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        for node in &nodes {
            let heard = client.network.within(|| node.ask(8000)).expect("an answer");
            let (pod, hears) = heard.split_once(" hears ").expect("a pod's answer");
            assert!(
                pods.addresses[..2]
                    .iter()
                    .any(|address| address.to_string() == pod),
                "{heard}"
            );
            assert_eq!(hears, node.address());
        }
        turn_every_knob_under_load(corner, &nodes, &pods, &client);
    });
}

fn a_node_that_ends_follows_the_cluster_as_long_as_it_serves() {
    in_a_corner("farewell", |corner| {
        let pods = Backends::start(corner, 2);
        let mut node = LbNode::prepare(corner, "a", &[]);
        node.start_dataplane_with(&["--shutdown-delay=120s"]);
        node.start_controller();
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        let dataplane = node.dataplane.take().expect("it runs");
        let controller = node.controller.take().expect("it runs");
        dataplane.signal(Signal::TERM);
        controller.signal(Signal::TERM);
        corner.until_published("web", &[]);
        // As when a node is drained: its pods move while it ends.
        corner.apply(&pods.slice("web", &[1]));
        let other = pods.addresses[1].to_string();
        until("the other pod", || {
            node.ask(80).is_ok_and(|heard| heard.starts_with(&other))
        });
        dataplane.crash();
        assert_eq!(controller.stop(), Some(0));
    });
}

fn a_node_that_loses_its_label_serves_until_clients_know() {
    in_a_corner("unlabelled", |corner| {
        corner.publish(&[]);
        let pods = Backends::start(corner, 2);
        let delay = Duration::from_secs(10);
        let node = LbNode::start(corner, "a", &["--shutdown-delay=10s"]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        let begun = Instant::now();
        let label = json!({"metadata": {"labels": {"role": null}}});
        corner.patch("Node", &node.name, &label);
        corner.until_published("web", &[]);
        until("its Lease is given back", || {
            node.lease()
                .is_some_and(|lease| lease["spec"]["holderIdentity"] == "")
        });
        // As when a node is drained: its pods move meanwhile.
        corner.apply(&pods.slice("web", &[1]));
        let other = pods.addresses[1].to_string();
        until("the other pod", || {
            let heard = node.ask(80).expect("a node that serves");
            heard.starts_with(&other)
        });
        until("its port is closed", || node.ask(80).is_err());
        assert!(begun.elapsed() >= delay, "after {:?}", begun.elapsed());
        // With its label it serves at once.
        let label = json!({"metadata": {"labels": {"role": "loadbalancer"}}});
        corner.patch("Node", &node.name, &label);
        corner.until_published("web", &[&node.address()]);
        assert!(node.ask(80).is_ok());
    });
}

fn turn_every_knob_under_load(
    corner: &Corner<'_>,
    nodes: &[LbNode<'_>; 2],
    pods: &Backends,
    client: &Host,
) {
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let fail = Mutex::new(Vec::new());
    // Whoever holds one of them lets that node rest.
    let rests = [Mutex::new(()), Mutex::new(())];
    thread::scope(|scope| {
        for (node, rest) in nodes.iter().zip(&rests) {
            let (over, answered, fail) = (&over, &answered, &fail);
            let address = (node.host.address, 8000).into();
            scope.spawn(move || {
                client.network.within(|| {
                    while !over.load(Ordering::Relaxed) {
                        let busy = rest.lock().expect("a lock");
                        match ask(address) {
                            Ok(_) => answered.fetch_add(1, Ordering::Relaxed),
                            Err(error) => {
                                return fail.lock().expect("a lock").push(error.to_string());
                            }
                        };
                        drop(busy);
                        // Bounded: a few hundred a second at most.
                        support::pause(Duration::from_millis(5));
                    }
                });
            });
        }
        // So that a failure here ends the load, too.
        let end = OnDrop(|| over.store(true, Ordering::Relaxed));
        let good = || assert_eq!(*fail.lock().expect("a lock"), [""; 0]);
        let turned = |patch: &Value, way| {
            println!("{patch}");
            turn(corner, nodes, patch, way);
            good();
            let before = answered.load(Ordering::Relaxed);
            until("answers", || {
                good();
                answered.load(Ordering::Relaxed) > before + 1
            });
        };
        let all = table_knobs().chain(on_and_off(&QUIET_KNOBS, Way::Elsewhere));
        for (patch, way) in all.chain(specs(client.address)) {
            turned(&patch, way);
        }
        let lane = json!({"metadata": {"labels": {"lane": "left"}}});
        corner.patch("Node", &nodes[0].name, &lane);
        // What sends traffic by node.
        let endpoints = [0, 1].map(|pod| (pods.addresses[pod].to_string(), &*nodes[pod].name));
        corner.apply(&slice_on("web", &endpoints));
        for (patch, way) in by_node() {
            turned(&patch, way);
        }
        // What only one of the nodes goes on serving: nobody is sent to the other one then.
        let rest = rests[1].lock().expect("a lock");
        let requested = format!("ballast.dev/load-balancer-ips={}", nodes[0].address());
        let requested = on_and_off(&[&*requested], Way::Table);
        let selected = on_and_off(&["ballast.dev/node-selector=lane=left"], Way::SecondTable);
        for (patch, way) in requested.into_iter().chain(selected) {
            turned(&patch, way);
        }
        drop(rest);
        for ready in [&[0, 1, 2][..], &[1, 2], &[2], &[0]] {
            corner.apply(&pods.slice("web", ready));
            let address = pods.addresses[ready[ready.len() - 1]].to_string();
            until("the new endpoint", || {
                let heard = client.network.within(|| nodes[0].ask(8000));
                heard.is_ok_and(|heard| heard.starts_with(&address))
            });
        }
        // Others come and go beside it.
        corner.apply(&service("more", 8001, ""));
        nodes
            .iter()
            .for_each(|node| node.until_serves("default.more:8001"));
        corner.delete("Service", "more");
        nodes.iter().for_each(LbNode::until_in_force);
        drop(end);
    });
    assert_eq!(*fail.lock().expect("a lock"), [""; 0]);
    println!(
        "{} requests while everything was turned, none failed",
        answered.load(Ordering::Relaxed)
    );
}

/// Patches the Service, and waits until that is in force.
fn turn(corner: &Corner<'_>, nodes: &[LbNode<'_>; 2], patch: &Value, way: Way) {
    let before = nodes.each_ref().map(LbNode::content);
    corner.patch("Service", "web", patch);
    for (index, (node, before)) in nodes.iter().zip(before).enumerate() {
        if way == Way::Table || (way == Way::SecondTable && index == 1) {
            until("another table", || node.content() != before);
        }
        node.until_in_force();
    }
}

fn assert_denied(answer: std::io::Result<String>) {
    let denied = [
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::UnexpectedEof,
        ErrorKind::BrokenPipe,
    ];
    match answer {
        Err(error) if denied.contains(&error.kind()) => {}
        other => panic!("it is not denied: {other:?}"),
    }
}

/// Does this when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What a change is seen by.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The table changes.
    Table,
    /// That of the second node changes.
    SecondTable,
    /// Nothing that is served changes.
    Elsewhere,
}

/// What of a Service's spec may change while it is served.
fn specs(client: Ipv4Addr) -> Vec<(Value, Way)> {
    let ranges = json!([format!("{client}/32")]);
    vec![
        (json!({"spec": {"sessionAffinity": "ClientIP"}}), Way::Table),
        (
            json!({"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}}),
            Way::Table,
        ),
        (
            json!({"spec": {"sessionAffinity": "None", "sessionAffinityConfig": null}}),
            Way::Table,
        ),
        (
            json!({"spec": {"loadBalancerSourceRanges": ranges}}),
            Way::Table,
        ),
        (
            json!({"spec": {"loadBalancerSourceRanges": null}}),
            Way::Table,
        ),
        (
            json!({"spec": {"externalTrafficPolicy": "Local"}}),
            Way::Elsewhere,
        ),
        (
            json!({"spec": {"externalTrafficPolicy": "Cluster"}}),
            Way::Elsewhere,
        ),
        (
            json!({"metadata": {"labels": {"colour": "blue"}}}),
            Way::Elsewhere,
        ),
    ]
}

fn table_knobs() -> impl Iterator<Item = (Value, Way)> {
    on_and_off(&TABLE_KNOBS, Way::Table).into_iter()
}

/// Knobs, each on and off again, by annotations.
fn on_and_off(knobs: &[&str], way: Way) -> Vec<(Value, Way)> {
    let turns = knobs.iter().flat_map(|knob| {
        let (mut on, mut off) = (json!({}), json!({}));
        for pair in knob.split(' ') {
            let (key, value) = pair.split_once('=').expect("a pair");
            on[key] = json!(value);
            off[key] = Value::Null;
        }
        [on, off].map(|annotations| (json!({"metadata": {"annotations": annotations}}), way))
    });
    turns.collect()
}

/// With endpoints on both nodes: what chooses among them by node.
fn by_node() -> Vec<(Value, Way)> {
    let policy = |word: &str| {
        let patch = json!({"spec": {"externalTrafficPolicy": word}});
        (patch, Way::Elsewhere)
    };
    let knobs = [
        "ballast.dev/target-node-selector=lane=left",
        "loadbalancer.openstack.org/node-selector=lane=left",
        "ballast.dev/external-traffic-policy-mode=strict",
    ];
    let mut turns = vec![policy("Local")];
    turns.extend(on_and_off(&knobs, Way::Table));
    turns.push(policy("Cluster"));
    turns
}

/// Every knob whose change must not cost a client of this Service anything, with values beside the default.
const TABLE_KNOBS: [&str; 32] = [
    "ballast.dev/internal=true",
    "ballast.dev/algorithm=least-connections",
    "ballast.dev/algorithm=source-hash",
    "ballast.dev/algorithm=source-port-hash",
    "ballast.dev/algorithm=random",
    "ballast.dev/algorithm=first",
    "ballast.dev/algorithm.8000=first",
    "serviceloadbalancer/lb.algorithm=leastconn",
    "loadbalancer.openstack.org/lb-method=SOURCE_IP",
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-strategy=source-hash",
    "ballast.dev/timeout-client=30s",
    "ballast.dev/timeout-server=30s",
    "ballast.dev/timeout-connect=3s",
    "loadbalancer.openstack.org/timeout-client-data=50000",
    "loadbalancer.openstack.org/timeout-member-data=50000",
    "loadbalancer.openstack.org/timeout-member-connect=3000",
    "ballast.dev/accept-proxy=192.0.2.0/24",
    "ballast.dev/connection-limit=1000",
    "ballast.dev/proxy-protocol=v1",
    "ballast.dev/proxy-protocol=v2",
    "ballast.dev/proxy-protocol.8000=v2",
    "loadbalancer.openstack.org/proxy-protocol=true",
    "ballast.dev/health-check=tcp",
    "ballast.dev/health-check=tcp ballast.dev/health-check-interval=2s ballast.dev/health-check-timeout=1s",
    "ballast.dev/health-check=tcp ballast.dev/health-check-rise=1 ballast.dev/health-check-fall=5",
    "ballast.dev/health-check=tcp ballast.dev/health-check-port=8080",
    "loadbalancer.openstack.org/enable-health-monitor=true",
    "service.beta.kubernetes.io/exoscale-loadbalancer-service-healthcheck-mode=tcp",
    "ballast.dev/source-ranges=10.88.0.0/16",
    "service.beta.kubernetes.io/load-balancer-source-ranges=10.0.0.0/8",
    "ballast.dev/on-endpoint-removed=close",
    "ballast.dev/description=the-web",
];

/// Those that change nothing that is served here.
const QUIET_KNOBS: [&str; 9] = [
    "ballast.dev/algorithm=nonsense",
    "loadbalancer.openstack.org/connection-limit=-1",
    "ballast.dev/external-traffic-policy-mode=edge",
    "ballast.dev/hostname=edge.example.com",
    "ballast.dev/timeout-inspect=100ms",
    "ballast.dev/udp-timeout=30s",
    "ballast.dev/node-selector=role",
    "loadbalancer.openstack.org/flavor-id=x",
    "metallb.io/address-pool=production",
];

tests![
    source_ranges_let_in_whom_they_name_and_nobody_else,
    from_kubectl_apply_to_a_clients_answer_through_two_nodes,
    a_node_that_ends_follows_the_cluster_as_long_as_it_serves,
    a_node_that_loses_its_label_serves_until_clients_know,
];
