//! From `kubectl create -f rc.yaml` to clients' answers.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::Test;
use crate::cluster::{Cluster, Form, Shown, condition};
use crate::load::get;

fn rc_yaml_serves_pods_on_port_80_of_its_nodes(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let _shown = Shown(cluster);
    let names: BTreeSet<String> = cluster
        .pods("default", "web")
        .iter()
        .filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    for address in cluster.addresses() {
        let mut heard = BTreeSet::new();
        cluster.until(&format!("every pod answers at {address}"), || {
            let ask = || get(address, "/", Duration::from_secs(5));
            heard.extend(cluster.client.network.within(ask));
            heard == names
        });
    }
    let service = cluster.service().expect("the Service");
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    let modes = ingress.into_iter().flatten().map(|one| &one["ipMode"]);
    assert!(modes.eq(["Proxy", "Proxy"]), "{service}");
}

fn its_pods_are_ready_within_5_s_of_their_start(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    // New ones, on nodes that have served: the first install waits for the cluster's own beginnings, too.
    let before = cluster.ready_pods();
    for pod in &before {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        cluster.kubectl(&["-n", "ballast", "delete", "pod", name]);
    }
    cluster.until("other pods", || cluster.ready_pods().len() == 2);
    for pod in cluster.ready_pods() {
        let statuses = pod["status"]["containerStatuses"].as_array();
        let starts = statuses.into_iter().flatten();
        let starts = starts.map(|status| seconds(&status["state"]["running"]["startedAt"]));
        let start = starts.min().expect("containers");
        let ready = condition(&pod, "Ready").expect("a condition");
        let took = seconds(&ready["lastTransitionTime"]) - start;
        println!("    ready {took} s after the start of the first container, in whole seconds");
        assert!(took <= 5, "{pod}");
    }
    cluster.until_published(&cluster.addresses());
}

/// The image has no resolver of a C library with plugins; its own asks the cluster's DNS, also in the node's network. A name may not
/// lead to a ClusterIP: this one leads to the pods of a headless Service.
fn names_of_the_cluster_lead_to_its_services(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let _shown = Shown(cluster);
    // Names are at port 80 where no LoadBalancer has it.
    cluster.kubectl(&["delete", "service", "web"]);
    cluster.apply(
        "apiVersion: v1
kind: Service
metadata: {name: inside}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: inside.default.svc.cluster.local, ports: [{port: 80, targetPort: 8080}]}
",
    );
    for address in cluster.addresses() {
        cluster.until(&format!("an answer at http://{address}/elsewhere"), || {
            let ask = || get(address, "/elsewhere", Duration::from_secs(5));
            cluster.client.network.within(ask).is_ok()
        });
    }
    cluster.kubectl(&["delete", "service", "inside", "elsewhere"]);
}

/// Of a time as the API server writes it, in seconds since some midnight.
fn seconds(time: &Value) -> i64 {
    let text = time.as_str().expect("a time");
    let time: Timestamp = text.parse().expect("a time");
    time.as_second()
}

tests![
    rc_yaml_serves_pods_on_port_80_of_its_nodes,
    its_pods_are_ready_within_5_s_of_their_start,
    names_of_the_cluster_lead_to_its_services,
];
