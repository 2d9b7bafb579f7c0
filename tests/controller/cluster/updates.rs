//! Another version of Ballast on every node, and no Ballast any more.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Test;
use crate::api::Place;
use crate::cluster::{Cluster, Form, Shown};
use crate::load::{during, get};

fn a_rolling_update_fails_no_request_of_published_addresses(cluster: &mut Cluster) {
    cluster.install(Form::DaemonSet);
    let cluster = &*cluster;
    let noticed = during(cluster, || {
        thread::scope(|scope| {
            // Connections of the processes that end; each is answered after 12 s.
            let slow = cluster.addresses().map(|address| {
                let ask = move || get(address, "/cgi-bin/slow", Duration::from_secs(30));
                scope.spawn(move || cluster.client.network.within(ask))
            });
            support::pause(Duration::from_millis(200));
            cluster.kubectl(&["-n", "ballast", "rollout", "restart", "daemonset/ballast"]);
            cluster.rolled_out("ballast", "daemonset/ballast");
            cluster.until_published(&cluster.addresses());
            for answer in slow {
                let answer = answer.join().expect("a thread that ends");
                answer.expect("a connection outlives the order to end");
            }
        });
    });
    assert_eq!(noticed.led.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.unpublished, 0, "{noticed:?}");
    // One node at a time.
    for story in &noticed.fixed {
        assert!(story.outage < Duration::from_secs(30), "{noticed:?}");
    }
}

/// Clients that know one node only notice nothing either, and lasting connections stay with the process that has them.
fn a_data_plane_that_hands_over_fails_no_request_of_any_node(cluster: &mut Cluster) {
    cluster.install(Form::Surge);
    let cluster = &*cluster;
    let before = uids(&cluster.pods("ballast", "ballast-dataplane"));
    let noticed = during(cluster, || {
        thread::scope(|scope| {
            let slow = cluster.addresses().map(|address| {
                let ask = move || get(address, "/cgi-bin/slow", Duration::from_secs(30));
                scope.spawn(move || cluster.client.network.within(ask))
            });
            support::pause(Duration::from_millis(200));
            let restart = ["rollout", "restart", "daemonset/ballast-dataplane"];
            cluster.kubectl(&[&["-n", "ballast"][..], &restart].concat());
            cluster.rolled_out("ballast", "daemonset/ballast-dataplane");
            for answer in slow {
                let answer = answer.join().expect("a thread that ends");
                answer.expect("a connection outlives the order to end");
            }
            cluster.until("no pod of before is left", || {
                let pods = cluster.plane.admin.list("Pod", "ballast");
                uids(&pods).is_disjoint(&before)
            });
        });
    });
    assert_eq!(noticed.failed(), 0, "{noticed:?}");
    assert_eq!(noticed.unpublished, 0, "{noticed:?}");
    cluster.until_published(&cluster.addresses());
}

fn uids(pods: &[Value]) -> BTreeSet<String> {
    let uids = pods.iter().map(|pod| pod["metadata"]["uid"].to_string());
    uids.collect()
}

fn uninstalling_leaves_nothing(cluster: &mut Cluster) {
    cluster.install(Form::DaemonSet);
    cluster.uninstall();
    let cluster = &*cluster;
    let _shown = Shown(cluster);
    let read = |kind, namespace, name| {
        cluster.plane.admin.read(Place {
            kind,
            namespace,
            name,
        })
    };
    cluster.until("the end of the namespace", || {
        read("Namespace", "", "ballast").is_none()
    });
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let left = cluster.plane.admin.list(kind, "");
        let left = left
            .iter()
            .filter_map(|one| one["metadata"]["name"].as_str());
        assert_eq!(
            left.filter(|name| name.contains("ballast")).count(),
            0,
            "{kind}"
        );
    }
    let service = cluster.service().expect("the Service");
    assert!(service["metadata"]["finalizers"].is_null(), "{service}");
    assert_eq!(service["status"]["loadBalancer"], json!({}), "{service}");
    // Kubernetes keeps an entry of the field manager, without a field.
    let mut service = service;
    let entries = service["metadata"]["managedFields"].take();
    for entry in entries.as_array().into_iter().flatten() {
        let fields = &entry["fieldsV1"];
        let none = [
            json!({"f:metadata": {"f:annotations": {}}}),
            json!({"f:status": {}}),
        ];
        assert!(
            entry["manager"] != "ballast" || none.contains(fields),
            "{entry}"
        );
    }
    assert!(!service.to_string().contains("ballast"), "{service}");
    // Nothing holds it.
    cluster.kubectl(&["delete", "service", "web", "--timeout=10s"]);
}

tests![
    a_rolling_update_fails_no_request_of_published_addresses,
    a_data_plane_that_hands_over_fails_no_request_of_any_node,
    uninstalling_leaves_nothing,
];
