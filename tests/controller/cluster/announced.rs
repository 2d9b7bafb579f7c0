//! An address of a pool, which the announcer of one node holds, and a client that connects to it all the time while that node is
//! emptied, updated or cut off.
//!
//! A connection does not move with its address, so one that is open at that moment may fail: one request for each move at most.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::Test;
use crate::cluster::{Cluster, Form, Shown, is_ready};
use crate::load::{during_moves, get};

/// Ballast with the announcer, and a Service of which each node serves its own pods. Returns the number of the node that has its address.
fn announce(cluster: &mut Cluster) -> usize {
    cluster.install(Form::Announce);
    cluster.apply(SERVICE);
    spread(cluster);
    cluster.until("one node has the address", || holder(cluster).is_some());
    let ask = || get(ADDRESS, "/", Duration::from_secs(5));
    cluster.until("an answer at the address", || {
        cluster.client.network.within(ask).is_ok()
    });
    holder(cluster).expect("a node that has the address")
}

/// Has both nodes serve the Service: another test may have emptied one, and the scheduler moves no pod that runs.
fn spread(cluster: &Cluster) {
    let is_spread = || {
        let pods = cluster.pods("default", "web");
        let on = |name| {
            pods.iter()
                .any(|pod| is_ready(pod) && pod["spec"]["nodeName"] == name)
        };
        cluster.nodes.iter().all(|node| on(node.name))
    };
    for _ in 0..3 {
        if is_spread() {
            return;
        }
        cluster.kubectl(&["rollout", "restart", "deployment/web"]);
        cluster.rolled_out("default", "deployment/web");
    }
    cluster.until("both nodes serve it", is_spread);
}

/// Whether the node has the address on an interface.
fn has(cluster: &Cluster, node: usize) -> bool {
    let read = || fs::read_to_string("/proc/thread-self/net/fib_trie");
    let table = cluster.nodes[node].host.network.within(read);
    table.is_ok_and(|table| table.contains(&format!("|-- {ADDRESS}\n")))
}

/// The node that has the address, if it is one.
fn holder(cluster: &Cluster) -> Option<usize> {
    match [has(cluster, 0), has(cluster, 1)] {
        [true, false] => Some(0),
        [false, true] => Some(1),
        _ => None,
    }
}

fn until_on(cluster: &Cluster, node: usize) {
    cluster.until("the other node has the address", || {
        holder(cluster) == Some(node)
    });
}

fn a_drained_node_fails_one_request_at_most(cluster: &mut Cluster) {
    let from = announce(cluster);
    let cluster = &*cluster;
    let _shown = Shown(cluster);
    let node = cluster.nodes[from].name;
    let (story, moves) = during_moves(
        cluster,
        ADDRESS,
        || holder(cluster),
        || {
            let drain = [
                "drain",
                node,
                "--ignore-daemonsets",
                "--delete-emptydir-data",
            ];
            cluster.kubectl(&[&drain[..], &["--timeout=90s"]].concat());
            until_on(cluster, 1 - from);
            support::pause(Duration::from_secs(1));
        },
    );
    cluster.kubectl(&["uncordon", node]);
    // So that both nodes have pods again.
    cluster.kubectl(&["rollout", "restart", "deployment/web"]);
    cluster.rolled_out("default", "deployment/web");
    assert!(moves > 0 && story.failed() <= moves, "{story:?}");
    assert!(story.outage < Duration::from_secs(2), "{story:?}");
}

/// A connection that the move has cut ends, too: its client is told, and it does not keep the pod from its end.
fn a_deleted_pod_of_ballast_fails_one_request_at_most_and_ends_soon(cluster: &mut Cluster) {
    let from = announce(cluster);
    let cluster = &*cluster;
    let pod = cluster.pod_on(&cluster.ready_pods(), from);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let connect = || TcpStream::connect((ADDRESS, 80)).expect("a connection");
    let mut silent = cluster.client.network.within(connect);
    let mut took = Duration::ZERO;
    let (story, moves) = during_moves(
        cluster,
        ADDRESS,
        || holder(cluster),
        || {
            let begun = Instant::now();
            cluster.kubectl(&["-n", "ballast", "delete", "pod", name]);
            took = begun.elapsed();
            until_on(cluster, 1 - from);
            cluster.until("another pod", || cluster.ready_pods().len() == 2);
        },
    );
    println!("    the pod ended within {} ms", took.as_millis());
    silent
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("a timeout");
    let heard = silent.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
    assert!(moves > 0 && story.failed() <= moves, "{story:?}");
    assert!(story.outage < Duration::from_secs(2), "{story:?}");
    // --shutdown-delay is 5 s, --drain-timeout 30 s.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

fn a_rolling_update_fails_one_request_for_each_move_at_most(cluster: &mut Cluster) {
    announce(cluster);
    let cluster = &*cluster;
    let (story, moves) = during_moves(
        cluster,
        ADDRESS,
        || holder(cluster),
        || {
            cluster.kubectl(&["-n", "ballast", "rollout", "restart", "daemonset/ballast"]);
            cluster.rolled_out("ballast", "daemonset/ballast");
        },
    );
    assert!(moves > 0 && story.failed() <= moves, "{story:?}");
    assert!(story.outage < Duration::from_secs(2), "{story:?}");
}

fn a_node_that_is_cut_off_loses_the_address_within_a_second(cluster: &mut Cluster) {
    let from = announce(cluster);
    let cluster = &*cluster;
    // The node that is cut off does not know that others have taken the address.
    let other = 1 - from;
    let there = || match has(cluster, other) {
        true => Some(other),
        false => holder(cluster),
    };
    let (story, moves) = during_moves(cluster, ADDRESS, there, || {
        cluster.yard.cut(&cluster.nodes[from].host);
        let begun = Instant::now();
        cluster.until("the other node has the address", || has(cluster, other));
        println!("    taken after {} ms", begun.elapsed().as_millis());
        support::pause(Duration::from_secs(3));
        cluster.yard.mend(&cluster.nodes[from].host);
        cluster.until("one node has the address", || holder(cluster).is_some());
        support::pause(Duration::from_secs(2));
    });
    cluster.until("two nodes that are ready", || {
        let nodes = cluster.nodes.iter();
        nodes
            .map(|node| cluster.node_object(node))
            .all(|node| is_ready(&node))
    });
    assert!(moves > 0 && story.failed() <= moves, "{story:?}");
    // A SYN that was lost is sent again after a second.
    assert!(story.outage < Duration::from_millis(2_500), "{story:?}");
}

tests![
    a_drained_node_fails_one_request_at_most,
    a_deleted_pod_of_ballast_fails_one_request_at_most_and_ends_soon,
    a_rolling_update_fails_one_request_for_each_move_at_most,
    a_node_that_is_cut_off_loses_the_address_within_a_second,
];

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 88, 250, 50);
const SERVICE: &str = "apiVersion: ballast.dev/v1
kind: AddressPool
metadata: {name: announced}
spec: {addresses: [10.88.250.50/32], autoAssign: false}
---
apiVersion: v1
kind: Service
metadata: {name: announced, annotations: {ballast.dev/external-traffic-policy-mode: strict}}
spec:
  type: LoadBalancer
  loadBalancerIP: 10.88.250.50
  externalTrafficPolicy: Local
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
";
