//! API servers that go away and come back, watches that cannot go on, storms, noise: what is served stays.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::Place;
use crate::backends::{Backends, service};
use crate::corner::{Corner, in_a_corner, with_its_own_server};
use crate::figures::in_time;
use crate::node::LbNode;
use crate::process::{Signal, comes_within, until};

fn a_slice_that_changes_without_meaning_causes_no_write() {
    in_a_corner("noise", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        until("an answer", || node.ask(80).is_ok());
        let (table, writes) = (file(&node), quiet_writes(corner));
        for round in 0..50 {
            let noise = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            corner.patch("EndpointSlice", "web", &noise);
            support::pause(Duration::from_millis(100));
        }
        // And then a change that means something, so that the noise was surely looked at.
        assert_eq!(file(&node), table);
        assert_eq!(corner.writes(), writes);
        corner.delete("EndpointSlice", "web");
        until("a table", || file(&node) != table);
    });
}

fn a_controller_that_restarts_changes_nothing_that_clients_see() {
    in_a_corner("restart", |corner| {
        let pods = Backends::start(corner, 2);
        let mut node = LbNode::start(corner, "a", &[]);
        for (name, port) in [("web", 80), ("more", 81)] {
            corner.apply(&service(name, port, ""));
            corner.apply(&pods.slice(name, &[0, 1]));
            corner.until_published(name, &[&node.address()]);
        }
        corner.annotate("web", &json!({"ballast.dev/algorithm": "first"}));
        node.until_in_force();
        let writes = quiet_writes(corner);
        let (table, content) = (file(&node), node.content());
        let services = versions(corner);
        let mut client = TcpStream::connect((node.host.address, 80)).expect("a connection");

        for in_order in [true, false] {
            let controller = node.controller.take().expect("it runs");
            if in_order {
                assert_eq!(controller.stop(), Some(0));
            } else {
                controller.crash();
            }
            // Its death leaves the data plane serving.
            node.ask(80).expect("an answer");
            node.start_controller();
            let publisher = corner.take_publisher();
            if in_order {
                assert_eq!(publisher.process.stop(), Some(0));
            } else {
                publisher.process.crash();
            }
            corner.publish(&[]);
            // It is back when it follows a change again.
            corner.patch(
                "EndpointSlice",
                "more",
                &json!({"endpoints": [{"addresses": [pods.addresses[0]]}]}),
            );
            until("a table", || file(&node) != table);
            corner.apply(&pods.slice("more", &[0, 1]));
            until("the table as before", || node.content() == content);
        }
        assert_eq!(versions(corner), services);
        assert_eq!(corner.writes(), writes);
        client.write_all(b"?\n").expect("it is still connected");
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("an answer");
        assert!(heard.starts_with(&pods.addresses[0].to_string()), "{heard}");
    });
}

fn a_tenant_that_names_another_secret_and_host_all_the_time_slows_nobody_else() {
    in_a_corner("secretive", |corner| {
        let pods = Backends::start(corner, 2);
        // No name server answers this node.
        let node = LbNode::start(corner, "a", &["--tcp-services=secretive/outside:8080"]);
        corner.apply(
            "apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: ExternalName, externalName: absent.example, ports: [{port: 8080}]}
",
        );
        for (name, port) in [("web", 80), ("tenant", 443)] {
            corner.apply(&service(name, port, ""));
            corner.apply(&pods.slice(name, &[0]));
            corner.until_published(name, &[&node.address()]);
        }
        until("an answer", || node.ask(80).is_ok());
        let is_over = AtomicBool::new(false);
        let slowest = thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let absent = json!({"ballast.dev/tls-secret": format!("absent-{number}")});
                    corner.annotate("tenant", &absent);
                    let host = format!("absent-{number}.example");
                    let host = json!({"spec": {"externalName": host}});
                    corner.patch("Service", "outside", &host);
                    support::pause(Duration::from_millis(50));
                }
            });
            let mut slowest = Duration::ZERO;
            for round in 0..30 {
                support::pause(Duration::from_millis(150));
                let pod = (round + 1) % 2;
                corner.apply(&pods.slice("web", &[pod]));
                let begun = Instant::now();
                let address = pods.addresses[pod].to_string();
                until("the other endpoint", || {
                    node.ask(80).is_ok_and(|heard| heard.starts_with(&address))
                });
                slowest = slowest.max(begun.elapsed());
            }
            is_over.store(true, Ordering::Relaxed);
            slowest
        });
        in_time(
            "the slowest of 30 endpoint changes beside a tenant that names another Secret and host every 50 ms",
            slowest,
            Duration::from_millis(300),
        );
    });
}

fn an_api_server_that_is_away_changes_nothing() {
    with_its_own_server("away", |corner| {
        let pods = Backends::start(corner, 2);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        let addresses = nodes.each_ref().map(LbNode::address);
        corner.until_published("web", &[&addresses[0], &addresses[1]]);
        nodes.iter().for_each(LbNode::until_in_force);
        let tables = nodes.each_ref().map(file);
        let before = versions(corner);

        corner.plane.crash();
        // Longer than every Lease lives.
        for _ in 0..15 {
            support::pause(Duration::from_secs(1));
            for node in &nodes {
                node.ask(80).expect("an answer");
            }
        }
        assert_eq!(nodes.each_ref().map(file), tables);
        corner.plane.restart();
        // Leases have run out meanwhile, but nobody died: no address may go, not even for a moment.
        comes_within(Duration::from_secs(15), || versions(corner) != before);
        assert_eq!(versions(corner), before);
        assert_eq!(nodes.each_ref().map(file), tables);
        corner.apply(&pods.slice("web", &[1]));
        until("the new endpoint", || {
            nodes.iter().all(|node| {
                node.ask(80)
                    .is_ok_and(|heard| heard.starts_with(&pods.addresses[1].to_string()))
            })
        });
    });
}

fn a_watch_that_cannot_go_on_begins_anew() {
    with_its_own_server("expired", |corner| {
        let pods = Backends::start(corner, 2);
        let mut node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.apply(&service("old", 81, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        corner.until_published("old", &[&node.address()]);
        node.until_in_force();

        // While it is stopped, the history that it would go on from is forgotten.
        let controller = node.controller.take().expect("it runs");
        controller.signal(Signal::STOP);
        corner.delete("EndpointSlice", "web");
        corner.apply(&service("new", 82, ""));
        corner.patch("Service", "old", &json!({"metadata": {"finalizers": null}}));
        corner.delete("Service", "old");
        corner.apply(&pods.slice("web", &[1]));
        corner.plane.compact();
        corner.plane.crash();
        corner.plane.restart();
        node.ask(80).expect("an answer");
        controller.signal(Signal::CONT);
        node.controller = Some(controller);

        corner.until_published("new", &[&node.address()]);
        until("the new endpoint", || {
            node.ask(80)
                .is_ok_and(|heard| heard.starts_with(&pods.addresses[1].to_string()))
        });
        until("the end of the old", || node.ask(81).is_err());
        node.until_in_force();
        assert!(!node.frontends().contains(&"expired.old:81".to_owned()));
    });
}

fn the_lease_of_a_node_that_was_registered_anew_belongs_to_the_new_node() {
    in_a_corner("reborn", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        corner.until_published("web", &[&node.address()]);
        assert_eq!(owner(&node), uid(corner, &node));
        corner.delete("Node", &node.name);
        until("its Lease is given back", || {
            node.lease()
                .is_some_and(|lease| lease["spec"]["holderIdentity"] == "")
        });
        corner.until_published("web", &[]);
        node.register();
        corner.until_published("web", &[&node.address()]);
        assert_eq!(owner(&node), uid(corner, &node));

        // Between two looks of the controller, as is the garbage collector that follows.
        let controller = node.controller.as_ref().expect("it runs");
        controller.signal(Signal::STOP);
        corner.delete("Node", &node.name);
        node.register();
        let place = Place {
            kind: "Lease",
            namespace: &corner.home,
            name: &format!("ballast-{}", node.name),
        };
        corner.plane.admin.delete(place);
        controller.signal(Signal::CONT);
        until("the Lease", || node.lease().is_some());
        assert_eq!(owner(&node), uid(corner, &node));
    });
}

/// The UID of the owner of a node's Lease.
fn owner(node: &LbNode<'_>) -> Value {
    let lease = node.lease().expect("a Lease");
    lease["metadata"]["ownerReferences"][0]["uid"].clone()
}

/// The UID of a node's Node.
fn uid(corner: &Corner<'_>, node: &LbNode<'_>) -> Value {
    let found = corner.read("Node", &node.name).expect("a Node");
    found["metadata"]["uid"].clone()
}

fn after_a_storm_everything_is_as_it_was_left() {
    in_a_corner("storm", |corner| {
        let pods = Backends::start(corner, 4);
        let nodes = ["a", "b"].map(|name| LbNode::start(corner, name, &[]));
        thread::scope(|scope| {
            for lane in 0..4_u16 {
                let (pods, corner) = (&pods, corner);
                scope.spawn(move || {
                    for number in (lane..STORM).step_by(4) {
                        one_of_a_storm(corner, pods, number);
                    }
                });
            }
        });
        let addresses = nodes.each_ref().map(LbNode::address);
        for number in (0..STORM).filter(|number| number % 3 != 0) {
            corner.until_published(&format!("s{number}"), &[&addresses[0], &addresses[1]]);
        }
        let left = (STORM - STORM.div_ceil(3)) as usize;
        until("everything else is gone", || {
            corner.plane.admin.list("Service", corner.name).len() == left
        });
        for node in &nodes {
            until("the table", || node.frontends().len() == left);
            node.until_in_force();
            for number in 0..STORM {
                let answer = node.ask(1000 + number);
                match number % 3 {
                    0 => assert!(answer.is_err(), "s{number} is gone"),
                    // The last that was written to its slice.
                    _ => {
                        let pod = pods.addresses[usize::from(number % 4)].to_string();
                        assert!(
                            answer.as_ref().is_ok_and(|heard| heard.starts_with(&pod)),
                            "s{number}: {answer:?}"
                        );
                    }
                }
            }
        }
        // A story each, and no storm of events.
        let told = corner.plane.admin.list("Event", corner.name).len();
        assert!(
            told <= usize::from(STORM) * 12,
            "{told} events about {STORM} Services"
        );
    });
}

/// A Service is made, changed, and one in three deleted.
fn one_of_a_storm(corner: &Corner<'_>, pods: &Backends, number: u16) {
    let name = format!("s{number}");
    corner.apply(&service(&name, 1000 + number, ""));
    for round in 0..4_u16 {
        corner.apply(&pods.slice(&name, &[usize::from((number + 1 + round) % 4)]));
        corner.annotate(
            &name,
            &json!({"ballast.dev/description": round.to_string()}),
        );
    }
    if number.is_multiple_of(3) {
        corner.delete("Service", &name);
        corner.delete("EndpointSlice", &name);
    }
}

/// What tells whether a table was written.
#[derive(Debug, PartialEq)]
struct TableFile {
    inode: u64,
    text: String,
}

fn file(node: &LbNode<'_>) -> TableFile {
    let path = node.table_folder().join("table.json");
    TableFile {
        inode: fs::metadata(&path).expect("a table").ino(),
        text: fs::read_to_string(&path).expect("a table"),
    }
}

/// The versions of all Services.
fn versions(corner: &Corner<'_>) -> Vec<String> {
    let services = corner.plane.admin.list("Service", corner.name);
    let version = |service: &Value| {
        format!(
            "{} {}",
            service["metadata"]["name"], service["metadata"]["resourceVersion"]
        )
    };
    services.iter().map(version).collect()
}

/// The writes so far, when no more have come for a while.
fn quiet_writes(corner: &Corner<'_>) -> Vec<String> {
    let mut before = corner.writes();
    until("an end of writes", || {
        let more = comes_within(Duration::from_secs(4), || corner.writes() != before);
        before = corner.writes();
        !more
    });
    before
}

/// Services in a storm; a multiple of twelve.
const STORM: u16 = 60;

tests![
    a_tenant_that_names_another_secret_and_host_all_the_time_slows_nobody_else,
    a_slice_that_changes_without_meaning_causes_no_write,
    a_controller_that_restarts_changes_nothing_that_clients_see,
    an_api_server_that_is_away_changes_nothing,
    a_watch_that_cannot_go_on_begins_anew,
    the_lease_of_a_node_that_was_registered_anew_belongs_to_the_new_node,
    after_a_storm_everything_is_as_it_was_left,
];
