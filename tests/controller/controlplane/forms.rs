//! The forms in which Ballast is deployed: rc.yaml is the source of all, and a real API server takes each.
//!
//! `templates/kustomize/base/rc.yaml` and `templates/daemonset.yaml` are made from rc.yaml by these tests, with UPDATE=1 in the
//! environment; the chart's default output must be the same objects. All but rc.yaml have the kinds of `templates/crds`, too.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::api::{Place, documents, place_of};
use crate::corner::rc_yaml;
use crate::manifests::accepted;
use crate::plane::{Plane, Yard};
use support::skip::skip;

fn the_copies_of_rc_yaml_are_up_to_date() {
    let source = rc_yaml();
    let with_kinds = format!("{}---\n{}", with_a_daemon_set(&source), kinds());
    let mut copies = vec![
        ("kustomize/base/rc.yaml".to_owned(), source),
        ("daemonset.yaml".to_owned(), with_kinds),
    ];
    for name in CRDS {
        let kind = fs::read_to_string(template(&format!("crds/{name}"))).expect("a file");
        copies.push((format!("kustomize/base/{name}"), kind.clone()));
        copies.push((format!("helm/crds/{name}"), kind));
    }
    for (path, wanted) in copies {
        let path = template(&path);
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, &wanted).expect("a file that can be written");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == wanted,
            "{path:?} is not what rc.yaml makes of it; run this test with UPDATE=1"
        );
    }
}

fn kustomize_makes_what_the_files_say() {
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    let same = |folder: &str, text: &str| assert_same(&kustomized(yard, plane, folder), text);
    same("kustomize/base", &format!("{}---\n{}", rc_yaml(), kinds()));
    let daemonset = fs::read_to_string(template("daemonset.yaml")).expect("a file");
    same("kustomize/overlays/daemonset", &daemonset);
}

fn every_overlay_is_taken_and_changes_what_it_is_for() {
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    let overlays = fs::read_dir(template("kustomize/overlays")).expect("overlays");
    let mut names: Vec<String> = overlays
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "annotated-only",
            "announce",
            "contrib",
            "daemonset",
            "dual-stack",
            "non-root",
            "surge",
            "without-policies"
        ]
    );
    for name in &names {
        let text = kustomized(yard, plane, &format!("kustomize/overlays/{name}"));
        taken(yard, plane, &text);
        let made = objects(&text);
        let setting = |key: &str| {
            let settings = &made[&("ConfigMap".to_owned(), "ballast".to_owned())]["data"];
            settings[key].as_str().map(str::to_owned)
        };
        let pods = |kind: &str, name: &str| {
            let object = made.get(&(kind.to_owned(), name.to_owned()));
            object.unwrap_or_else(|| panic!("no {kind} {name}"))["spec"]["template"].clone()
        };
        match name.as_str() {
            "annotated-only" => {
                assert_eq!(
                    setting("BALLAST_HTTP_SERVICES").as_deref(),
                    Some("annotated")
                );
            }
            "contrib" => {
                let template = pods("ReplicationController", "service-loadbalancer");
                assert_eq!(
                    template["metadata"]["labels"]["app"],
                    "service-loadbalancer"
                );
                assert_eq!(setting("BALLAST_TCP_SERVICES").as_deref(), Some(""));
            }
            "dual-stack" => {
                let publisher = pods("Deployment", "ballast-publish");
                let args = &publisher["spec"]["containers"][0]["args"];
                assert_eq!(args[1], "--admin=[::]:1937", "{args}");
            }
            "without-policies" => {
                let rc = without_policies(&rc_yaml());
                assert_same(&text, &format!("{rc}---\n{}", kinds()));
            }
            "non-root" => {
                let spec = pods("ReplicationController", "ballast")["spec"].take();
                assert_eq!(spec["securityContext"]["runAsUser"], 65532);
                for container in spec["containers"].as_array().expect("containers") {
                    let context = &container["securityContext"];
                    assert!(context["runAsUser"].is_null(), "{context}");
                    assert!(context["capabilities"]["add"].is_null(), "{context}");
                }
                assert_eq!(setting("BALLAST_HTTP_PORT").as_deref(), Some("8080"));
            }
            "surge" => {
                let containers = |name: &str| pods("DaemonSet", name)["spec"]["containers"].take();
                let (controller, data_plane) =
                    (containers("ballast"), containers("ballast-dataplane"));
                assert_eq!(controller[0]["name"], "ballast-controller");
                assert!(controller[1].is_null() && data_plane[1].is_null());
                // As rc.yaml has it, but for what hands over.
                let source = objects(&rc_yaml());
                let known = &source[&("ReplicationController".to_owned(), "ballast".to_owned())];
                let known = &known["spec"]["template"]["spec"]["containers"][0];
                let of = |container: &Value, field: &str| container[field].clone();
                for field in ["image", "command", "securityContext", "resources"] {
                    assert_eq!(of(&data_plane[0], field), of(known, field), "{field}");
                }
                let mounts = |container: &Value| {
                    let mounts = container["volumeMounts"].as_array().expect("mounts");
                    let shared = mounts.iter().filter(|mount| mount["name"] != "own");
                    shared.cloned().collect::<Vec<_>>()
                };
                assert_eq!(mounts(&data_plane[0]), mounts(known));
                let own = ["--handover=", "--monitor-socket=", "--stay"];
                let mut args = data_plane[0]["args"].as_array().expect("arguments").clone();
                args.retain(|arg| {
                    !own.iter()
                        .any(|own| arg.as_str().unwrap_or("").starts_with(own))
                });
                assert_eq!(Value::from(args), of(known, "args"));
                assert!(data_plane[0]["ports"].is_null());
            }
            "announce" => {
                let spec = pods("DaemonSet", "ballast")["spec"].take();
                let last = spec["containers"].as_array().and_then(|all| all.last());
                let announcer = last.expect("containers").clone();
                assert_eq!(announcer["args"][0], "announce");
                let helm =
                    helm().map(|helm| helm(&["createNamespace=true", "announce.enabled=true"]));
                // The chart's is the same.
                if let Some(chart) = helm {
                    assert_same(&chart.expect("a chart"), &text);
                }
                // Its file is out of reach of what speaks with clients, which reads its ack alone.
                let mounts = spec["containers"][0]["volumeMounts"].as_array();
                let mounts = mounts.into_iter().flatten();
                let mounts: Vec<_> = mounts.map(|one| (&one["name"], &one["readOnly"])).collect();
                let unset = Value::Null;
                let [table, socket, ack] = ["table", "socket", "announced"].map(Value::from);
                assert_eq!(
                    mounts,
                    [
                        (&table, &unset),
                        (&socket, &unset),
                        (&ack, &Value::from(true))
                    ]
                );
                let rights = &announcer["securityContext"]["capabilities"]["add"];
                assert_eq!(
                    *rights,
                    serde_json::json!(["NET_ADMIN", "NET_RAW", "SYS_NICE"])
                );
            }
            _ => {
                pods("DaemonSet", "ballast");
            }
        }
    }
}

/// As one before 1.30 does.
fn a_server_that_knows_no_policies_takes_all_else_of_rc_yaml() {
    let yard = Yard::of_this_process();
    let plane = Plane::start(yard);
    let known = "admissionregistration.k8s.io/v1\n";
    let text = rc_yaml().replace(known, "admissionregistration.k8s.io/v9\n");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rc.yaml");
    fs::write(&file, text).expect("a file");
    let path = file.to_str().unwrap_or_default();
    let refused = yard.kubectl(&plane, &["create", "-f", path]);
    let refused = refused.expect_err("kinds that are not known");
    let told = "no matches for kind \"ValidatingAdmissionPolicy\"";
    assert!(refused.contains(told), "{refused}");
    for (kind, name) in objects(&without_policies(&rc_yaml())).keys() {
        let place = Place {
            kind,
            namespace: "ballast",
            name,
        };
        assert!(plane.admin.read(place).is_some(), "{kind} {name}");
    }
}

fn the_chart_makes_the_same_objects() {
    let Some(helm) = helm() else { return };
    let yard = Yard::of_this_process();
    let plane = Plane::shared(yard);
    let by_default = helm(&["createNamespace=true"]).expect("a chart without changes");
    let daemonset = fs::read_to_string(template("daemonset.yaml")).expect("a file");
    assert_same(&by_default, &daemonset);
    let as_rc = ["createNamespace=true", "kind=ReplicationController"];
    let rc = format!("{}---\n{}", rc_yaml(), kinds());
    assert_same(&helm(&as_rc).expect("a chart"), &rc);
    // An older API server does not know policies.
    let without = without_policies(&daemonset);
    let old = helm(&["createNamespace=true", OLD]).expect("a chart");
    assert_same(&old, &without);
    let switched_off = [
        "createNamespace=true",
        "leasePolicy=false",
        "servicePolicy=false",
    ];
    assert_same(&helm(&switched_off).expect("a chart"), &without);
    taken(yard, plane, &by_default);

    // Every value has an effect, and what comes of it is taken.
    let changed = helm(&[
        "createNamespace=true",
        "image.repository=registry.example.com/ballast",
        "image.tag=v2",
        "image.pullPolicy=Always",
        "image.pullSecrets[0]=pull",
        "nodeSelector.zone=a",
        "class=example.com/edge",
        "defaultClass=true",
        "settings.BALLAST_MAX_PORTS_PER_SERVICE=16",
        "stats.sourceRanges[0]=192.0.2.0/24",
        "ballast.args[0]=--threads=2",
        "controller.args[0]=--syslog",
        "publish.args[0]=--take-over",
        "publish.admin=[::]:1937",
        "publish.podDisruptionBudget.enabled=true",
        "tlsNamespaces[0]=kube-public",
        "announce.enabled=true",
        "announce.secret=others",
        "announce.args[0]=--log-level=warn",
    ]);
    let changed = changed.expect("a chart with changes");
    taken(yard, plane, &changed);
    let before = objects(&by_default);
    let after = objects(&changed);
    let differ: Vec<_> = after
        .iter()
        .filter(|(key, value)| before.get(key) != Some(value))
        .collect();
    let differ = format!("{differ:?}");
    for word in [
        "registry.example.com/ballast:v2",
        "\"pull\"",
        "\"zone\": String(\"a\")",
        "role=loadbalancer,zone=a",
        "example.com/edge",
        "BALLAST_DEFAULT_CLASS",
        "BALLAST_MAX_PORTS_PER_SERVICE",
        "--stats-source-ranges=192.0.2.0/24",
        "--threads=2",
        "--syslog",
        "--take-over",
        "[::]:1937",
        "PodDisruptionBudget",
        "kube-public",
        "NET_RAW",
        "\"others\"",
        "--log-level=warn",
    ] {
        assert!(differ.contains(word), "{word}: {differ}");
    }
    let monitors = helm(&["podMonitor.enabled=true"]).expect("a chart with monitors");
    assert_eq!(monitors.matches("kind: PodMonitor\n").count(), 2);
}

/// With another port the probes would fail, and kubelet would end the data plane again and again.
fn the_chart_asks_the_data_plane_at_its_stats_port() {
    let Some(helm) = helm() else { return };
    let setting = "settings.BALLAST_STATS_PORT=2936";
    for (values, port) in [
        (vec![], "1936"),
        (vec![setting], "2936"),
        (vec!["controller.args[0]=--stats-port=3936"], "3936"),
        // The flag wins over the variable.
        (
            vec![
                setting,
                "controller.args[0]=--stats-port",
                "--set-string=controller.args[1]=4936",
            ],
            "4936",
        ),
    ] {
        let values = [values, vec!["podMonitor.enabled=true"]].concat();
        let made = helm(&values).expect("a chart");
        for path in ["/healthz", "/readyz"] {
            let probe = format!("httpGet: {{host: 127.0.0.1, port: {port}, path: {path}}}");
            assert!(made.contains(&probe), "{values:?}: no {probe}");
        }
        assert!(made.contains(&format!("\"$1:{port}\"")), "{values:?}");
        assert!(made.contains(&format!("\"[$1]:{port}\"")), "{values:?}");
    }
}

fn the_chart_refuses_what_it_does_not_know() {
    let Some(helm) = helm() else { return };
    for (value, word) in [
        ("podMonitr.enabled=true", "podMonitr"),
        ("kind=Deployment", "ReplicationController"),
        ("nodeSelector.role=null", "nodeSelector: is empty"),
    ] {
        let refused = helm(&[value]).expect_err(value);
        assert!(refused.contains(word), "{refused}");
    }
}

/// rc.yaml, with a DaemonSet in place of its ReplicationController.
fn with_a_daemon_set(rc: &str) -> String {
    let (_, rc) = rc
        .split_once("\napiVersion: v1\nkind: Namespace\n")
        .expect("a Namespace");
    let (before, rest) = rc
        .split_once("apiVersion: v1\nkind: ReplicationController\n")
        .expect("a ReplicationController");
    let (head, rest) = rest.split_once("spec:\n").expect("its spec");
    let (_, rest) = rest.split_once("  template:\n").expect("its template");
    // Two pods of a DaemonSet are never on one node.
    let (pod, rest) = rest.split_once("      affinity:\n").expect("an affinity");
    let (_, rest) = rest
        .split_once("topologyKey: kubernetes.io/hostname\n")
        .expect("its end");
    format!(
        "{HEADER}apiVersion: v1\nkind: Namespace\n{before}apiVersion: apps/v1\nkind: DaemonSet\n{head}{SPEC}  template:\n{pod}{rest}"
    )
}

/// The documents of this text but for the policies.
fn without_policies(text: &str) -> String {
    let documents = text.split("---\n");
    let others = documents.filter(|one| !one.contains("kind: ValidatingAdmissionPolicy"));
    others.collect::<Vec<_>>().join("---\n")
}

/// The kinds of objects that Ballast brings, as one text.
pub(crate) fn kinds() -> String {
    let read = |name| fs::read_to_string(template(&format!("crds/{name}"))).expect("a file");
    CRDS.map(read).join("---\n")
}

/// What kubectl's kustomize makes of a folder in templates.
fn kustomized(yard: &Yard, plane: &Plane, folder: &str) -> String {
    let folder = template(folder);
    let built = yard.kubectl(plane, &["kustomize", folder.to_str().unwrap_or_default()]);
    built.unwrap_or_else(|error| panic!("{error}"))
}

/// What helm makes of the chart with these values, if there is a helm.
fn helm() -> Option<impl Fn(&[&str]) -> Result<String, String>> {
    let Some(helm) = env::var_os("HELM") else {
        skip("HELM is not set; export HELM=$(tests/controller/helm/make)");
        return None;
    };
    Some(move |values: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(["template", "ballast"]).arg(template("helm"));
        let (flags, values): (Vec<&str>, Vec<&str>) = values
            .iter()
            .copied()
            .partition(|value| value.starts_with("--"));
        command.args([
            "--namespace",
            "ballast",
            "--kube-version=1.36",
            "--include-crds",
        ]);
        command.args(flags);
        for value in values {
            command.args(["--set", value]);
        }
        let output = command.output().expect("helm");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    })
}

/// That an API server would take these documents.
fn taken(yard: &Yard, plane: &Plane, text: &str) {
    let (namespace, others): (Vec<_>, Vec<_>) = documents(text)
        .into_iter()
        .partition(|document| document["kind"] == "Namespace");
    for namespace in &namespace {
        plane.admin.apply(namespace, "").expect("a namespace");
    }
    accepted(yard, plane, &others);
}

fn assert_same(found: &str, wanted: &str) {
    let (found, wanted) = (objects(found), objects(wanted));
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted));
    for (name, object) in &found {
        assert_eq!(Some(object), wanted.get(name), "{name:?}");
    }
}

/// By kind and name.
fn objects(text: &str) -> Objects {
    let documents = documents(text);
    let objects = documents.into_iter().filter(|document| !document.is_null());
    let named = objects.map(|object| {
        let place = place_of(&object, "");
        let name = match place.namespace {
            "" | "ballast" => place.name.to_owned(),
            namespace => format!("{namespace}/{}", place.name),
        };
        ((place.kind.to_owned(), name), object)
    });
    named.collect()
}

type Objects = BTreeMap<(String, String), Value>;

fn template(path: &str) -> PathBuf {
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/../templates");
    PathBuf::from(templates).join(path)
}

/// In `templates/crds`.
const CRDS: [&str; 3] = [
    "addresspools.yaml",
    "addressreservations.yaml",
    "announcements.yaml",
];
/// For helm: the version before the first one for which the chart has the policies.
const OLD: &str = "--kube-version=1.29.9";
const HEADER: &str = "# Ballast on the load balancer nodes of a cluster, the form for production:
#
#   kubectl apply --server-side -f templates/daemonset.yaml
#   kubectl label node NODE role=loadbalancer
#
# A pod on every node with the label, which listens on the node's own ports; a change rolls out node by node. It is rc.yaml with a
# DaemonSet in place of the ReplicationController, and the kinds of templates/crds.
# Before you delete it: ballast-controller release (docs/controller.md), or Services with its finalizer cannot be deleted.
";
const SPEC: &str = "spec:
  selector:
    matchLabels: {app: ballast}
  # One node after the other: the next pod is replaced when the one before is ready, and had the time to be published again.
  minReadySeconds: 5
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 1}
";

tests![
    the_copies_of_rc_yaml_are_up_to_date,
    kustomize_makes_what_the_files_say,
    every_overlay_is_taken_and_changes_what_it_is_for,
    a_server_that_knows_no_policies_takes_all_else_of_rc_yaml,
    the_chart_makes_the_same_objects,
    the_chart_asks_the_data_plane_at_its_stats_port,
    the_chart_refuses_what_it_does_not_know,
];
