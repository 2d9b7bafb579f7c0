//! What operators do to load balancer nodes, and what breaks there, under load.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::Test;
use crate::cluster::{Cluster, Form};
use crate::load::{during, get};

fn a_drained_node_fails_no_request_of_published_addresses(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let [stays, goes] = cluster.addresses();
    let node = cluster.nodes[1].name;
    let noticed = during(cluster, || {
        cluster.kubectl(&[
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=90s",
        ]);
        cluster.until_published(&[stays]);
        cluster.kubectl(&["uncordon", node]);
        cluster.until_published(&[stays, goes]);
    });
    assert_eq!(noticed.led.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.fixed[0].failed(), 0, "{noticed:?}");
    assert_eq!(noticed.unpublished, 0, "{noticed:?}");
}

fn a_deleted_pod_of_ballast_fails_no_request_of_published_addresses(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let pod = cluster.pod_on(&cluster.ready_pods(), 1);
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let noticed = during(cluster, || {
        cluster.kubectl(&["-n", "ballast", "delete", "pod", name]);
        cluster.until("another pod", || cluster.ready_pods().len() == 2);
        cluster.until_published(&cluster.addresses());
    });
    assert_eq!(noticed.led.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.fixed[0].failed(), 0, "{noticed:?}");
    assert!(
        noticed.fixed[1].outage < Duration::from_secs(10),
        "{noticed:?}"
    );
}

fn a_killed_data_plane_serves_again_within_5_s(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let pod = cluster.pod_on(&cluster.ready_pods(), 1);
    let noticed = during(cluster, || {
        cluster.kill(&pod, "ballast");
        cluster.until_restarted(&pod, "ballast");
        cluster.until_published(&cluster.addresses());
    });
    assert_eq!(noticed.fixed[0].failed(), 0, "{noticed:?}");
    assert!(
        noticed.led.failing() < Duration::from_secs(5),
        "{noticed:?}"
    );
    assert!(
        noticed.fixed[1].outage < Duration::from_secs(5),
        "{noticed:?}"
    );
}

fn a_killed_controller_fails_no_request(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let pod = cluster.pod_on(&cluster.ready_pods(), 1);
    let noticed = during(cluster, || {
        // The kernel keeps 15 letters.
        cluster.kill(&pod, "ballast-control");
        cluster.until_restarted(&pod, "ballast-controller");
    });
    assert_eq!(noticed.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.unpublished, 0, "{noticed:?}");
}

fn a_label_taken_away_and_given_back(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    // Its pod stays.
    label_away_and_back(cluster, 2);
}

fn a_label_taken_away_and_given_back_under_a_daemonset(cluster: &mut Cluster) {
    cluster.install(Form::DaemonSet);
    // Its pod is ended.
    label_away_and_back(cluster, 1);
}

/// A node without the label serves until clients know, and then closes its ports.
fn label_away_and_back(cluster: &Cluster, pods_then: usize) {
    let [stays, goes] = cluster.addresses();
    let node = cluster.nodes[1].name;
    let is_closed = || {
        let ask = || get(goes, "/", Duration::from_secs(5));
        let answer = cluster.client.network.within(ask);
        answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    let noticed = during(cluster, || {
        let begun = Instant::now();
        cluster.kubectl(&["label", "node", node, "role-"]);
        cluster.until_published(&[stays]);
        println!("    unpublished after {} ms", begun.elapsed().as_millis());
        cluster.until("its port is closed", is_closed);
        println!("    closed after {} ms", begun.elapsed().as_millis());
        cluster.until("as many pods as then belong there", || {
            cluster.pods("ballast", "ballast").len() == pods_then
        });
        let begun = Instant::now();
        cluster.kubectl(&["label", "node", node, "role=loadbalancer"]);
        cluster.until_published(&[stays, goes]);
        println!(
            "    published again after {} ms",
            begun.elapsed().as_millis()
        );
    });
    assert_eq!(noticed.led.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.fixed[0].failed(), 0, "{noticed:?}");
    assert_eq!(noticed.unpublished, 0, "{noticed:?}");
}

tests![
    a_drained_node_fails_no_request_of_published_addresses,
    a_deleted_pod_of_ballast_fails_no_request_of_published_addresses,
    a_killed_data_plane_serves_again_within_5_s,
    a_killed_controller_fails_no_request,
    a_label_taken_away_and_given_back,
    a_label_taken_away_and_given_back_under_a_daemonset,
];
