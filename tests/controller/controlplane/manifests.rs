//! A real API server takes what we ship and what users bring.

use std::fs;

use serde_json::{Value, json};

use crate::api::{Place, documents, is_known};
use crate::corner::{RC_YAML, rc_yaml};
use crate::plane::{Plane, Yard};
use crate::process::until;

fn every_manifest_that_users_bring_is_taken() {
    let yard = Yard::of_this_process();
    // Its own: the manifests ask for node ports that a Service of another test may have by chance.
    let plane = &Plane::start(yard);
    let mut taken = 0;
    for system in SYSTEMS {
        let documents = brought_by(system);
        be_named(plane, &documents);
        taken += documents.len();
        accepted(yard, plane, &documents);
    }
    assert!(taken >= 26, "only {taken} documents");
}

/// What users of another system bring: of it what every API server knows.
pub(crate) fn brought_by(system: &str) -> Vec<Value> {
    let title = format!("\n== manifests-{system} ");
    let (_, text) = CASES.split_once(&title).expect("a case");
    let (_, text) = text.split_once("-- observed --\n").expect("manifests");
    let (text, _) = text.split_once("-- desired --\n").expect("their end");
    let mut documents = documents(text);
    // A document without a version is the case's own; others may be of kinds that the cluster must be taught.
    documents.retain(|document| {
        document["apiVersion"].is_string()
            && is_known(document["kind"].as_str().unwrap_or_default())
    });
    documents
}

/// Makes the namespaces of these.
pub(crate) fn be_named(plane: &Plane, documents: &[Value]) {
    let namespaces = documents
        .iter()
        .filter_map(|document| document["metadata"]["namespace"].as_str());
    for name in namespaces {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        plane.admin.apply(&namespace, "").expect("a namespace");
    }
}

fn rc_yaml_is_taken() {
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    let documents = documents(&rc_yaml());
    let (namespace, others): (Vec<_>, Vec<_>) = documents
        .into_iter()
        .partition(|document| document["kind"] == "Namespace");
    accepted(yard, plane, &namespace);
    plane.admin.apply(&namespace[0], "").expect("a namespace");
    accepted(yard, plane, &others);
    // And the way out of the documentation.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/controller.md");
    let page = fs::read_to_string(page).expect("a page");
    let (_, task) = page.split_once("\n## Taking it away\n").expect("a task");
    let (_, job) = task.split_once("```yaml\n").expect("a Job");
    let (job, _) = job.split_once("```").expect("its end");
    accepted(yard, plane, &crate::api::documents(job));
    // And what scales it, and a tenant's Deployment.
    let shop = "{kind: Namespace, apiVersion: v1, metadata: {name: shop}}";
    let shop = &crate::api::documents(shop)[0];
    plane.admin.apply(shop, "").expect("a namespace");
    for file in ["ballast.yaml", "service.yaml"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../templates/autoscaling");
        let scaler = fs::read_to_string(format!("{folder}/{file}")).expect("an autoscaler");
        accepted(yard, plane, &crate::api::documents(&scaler));
    }
}

fn rc_yaml_makes_a_pod_that_has_all_it_needs() {
    let yard = Yard::of_this_process();
    let plane = Plane::start(yard);
    let _controllers = plane.controllers();
    yard.kubectl(&plane, &["create", "-f", RC_YAML])
        .expect("a cluster that takes it");
    let pods_of = |app: &str| {
        let mut pods = plane.admin.list("Pod", "ballast");
        pods.retain(|pod| pod["metadata"]["labels"]["app"] == app);
        pods
    };
    until("a pod", || !pods_of("ballast").is_empty());
    let pod = pods_of("ballast").remove(0);
    let spec = &pod["spec"];
    // A token is in the controller's container alone.
    let has_token = |container: &Value| {
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let mut paths = mounts.filter_map(|mount| mount["mountPath"].as_str());
        paths.any(|path| path.starts_with("/var/run/secrets"))
    };
    let containers = spec["containers"].as_array().into_iter().flatten();
    let with_token: Vec<&str> = containers
        .filter(|container| has_token(container))
        .filter_map(|container| container["name"].as_str())
        .collect();
    assert_eq!(with_token, ["ballast-controller"], "{pod}");
    for key in [
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/not-ready",
    ] {
        let tolerations = spec["tolerations"].as_array().into_iter().flatten();
        let of_key: Vec<&Value> = tolerations.filter(|one| one["key"] == key).collect();
        let is_for_ever = |one: &&Value| one["tolerationSeconds"].is_null();
        assert!(of_key.len() == 1 && of_key.iter().all(is_for_ever), "{pod}");
    }
    until("two publishers", || pods_of("ballast-publish").len() == 2);
    let publisher = pods_of("ballast-publish").remove(0);
    assert!(publisher["spec"]["hostNetwork"].is_null(), "{publisher}");
    assert_eq!(publisher["spec"]["serviceAccountName"], "ballast-publish");
    assert_eq!(spec["hostNetwork"], true, "{pod}");
    assert_eq!(spec["serviceAccountName"], "ballast", "{pod}");
    assert_eq!(spec["nodeSelector"]["role"], "loadbalancer", "{pod}");
    for container in spec["containers"].as_array().into_iter().flatten() {
        assert!(container["ports"].is_null(), "{container}");
    }
    let deleted = Place {
        kind: "Namespace",
        namespace: "",
        name: "ballast",
    };
    plane.admin.delete(deleted);
    until("the end of the namespace", || {
        plane.admin.read(deleted).is_none()
    });
}

/// That an API server would take these.
pub(crate) fn accepted(yard: &Yard, plane: &Plane, documents: &[Value]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (index, document) in documents.iter().enumerate() {
        let file = folder.path().join(format!("{index:03}.json"));
        fs::write(file, document.to_string()).expect("a file");
    }
    let all = folder.path().to_str().unwrap_or_default();
    let answer = yard.kubectl(plane, &["apply", "--dry-run=server", "-f", all]);
    let said = answer.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(said.lines().count(), documents.len(), "{said}");
}

/// The systems whose users move here.
pub(crate) const SYSTEMS: [&str; 6] = [
    "antrea",
    "exoscale",
    "metakube",
    "metallb",
    "openstack",
    "service-loadbalancer",
];
const CASES: &str = include_str!("../decide/cases/manifests.txt");

tests![
    every_manifest_that_users_bring_is_taken,
    rc_yaml_is_taken,
    rc_yaml_makes_a_pod_that_has_all_it_needs,
];
