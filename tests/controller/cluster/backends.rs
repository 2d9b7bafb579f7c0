//! What happens to the pods of a Service, under load.

use crate::Test;
use crate::cluster::{Cluster, Form};
use crate::load::during;

fn a_rolling_update_of_pods_fails_no_request(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let noticed = during(cluster, || {
        cluster.kubectl(&["rollout", "restart", "deployment/web"]);
        cluster.rolled_out("default", "deployment/web");
    });
    assert_eq!(noticed.failed(), 0, "{noticed:?}");
}

fn a_deleted_pod_fails_no_request(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let noticed = during(cluster, || {
        let pod = cluster.pods("default", "web").remove(0);
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        cluster.kubectl(&["delete", "pod", name]);
        cluster.rolled_out("default", "deployment/web");
    });
    assert_eq!(noticed.failed(), 0, "{noticed:?}");
}

fn a_killed_pod_fails_the_requests_that_it_was_answering_and_no_other(cluster: &mut Cluster) {
    cluster.install(Form::ReplicationController);
    let cluster = &*cluster;
    let pod = cluster.pods("default", "web").remove(0);
    let noticed = during(cluster, || {
        cluster.kill(&pod, "busybox");
        cluster.until_restarted(&pod, "web");
    });
    // Each of the six clients has one request at a time.
    assert!(noticed.failed() <= 6, "{noticed:?}");
}

tests![
    a_rolling_update_of_pods_fails_no_request,
    a_deleted_pod_fails_no_request,
    a_killed_pod_fails_the_requests_that_it_was_answering_and_no_other,
];
