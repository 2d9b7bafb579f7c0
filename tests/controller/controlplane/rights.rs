//! What Ballast may do: what rc.yaml grants it, and no more than it needs. Every test in a corner ends with a look at what was
//! denied to it; these are about Secrets, the one thing that may be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::api::{Answer, Api, Place};
use crate::backends::{Backends, service};
use crate::corner::{
    Corner, NODES, PUBLISHERS, as_installed_and_captured, in_a_corner, with_its_own_server,
};
use crate::node::LbNode;
use crate::process::until;

fn a_secret_that_may_not_be_read_is_a_warning_that_says_how() {
    in_a_corner("unreadable", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        secret(corner, corner.name, "cert", "one");
        corner.apply(&service("web", 443, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.annotate("web", &json!({"ballast.dev/tls-secret": "cert"}));
        let told = corner.until_told("web", "SecretUnreadable");
        assert_eq!(told.kind, "Warning");
        assert!(node.ask(443).is_err(), "the port stays closed");
        assert_eq!(certificates(&node), [""; 0].map(PathBuf::from));

        // The remedy is a line to copy, and does what it says.
        let (_, remedy) = told.message.split_once("kubectl ").expect("a line to copy");
        let remedy = remedy
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end_matches(['`', '.', '"', '\'']);
        let words: Vec<_> = remedy.split_whitespace().collect();
        corner
            .yard
            .kubectl(corner.plane, &words)
            .expect("a remedy that works");
        until("the certificate", || !certificates(&node).is_empty());
        let denied = corner.denied();
        assert!(!denied.is_empty());
        for entry in &denied {
            assert!(entry.contains("\"secrets\""), "{entry}");
        }
    });
}

fn certificates_follow_their_secrets() {
    in_a_corner("certificates", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        secret(corner, &corner.home, "cert", "one");
        corner.apply(&service("web", 443, ""));
        corner.apply(&pods.slice("web", &[0]));
        let name = format!("{}/cert", corner.home);
        corner.annotate("web", &json!({"ballast.dev/tls-secret": name}));
        until("the certificate", || !certificates(&node).is_empty());
        for path in certificates(&node) {
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        let texts = || {
            let paths = certificates(&node);
            paths
                .iter()
                .filter_map(|path| fs::read_to_string(path).ok())
                .collect::<Vec<_>>()
        };
        let before = texts();
        secret(corner, &corner.home, "cert", "two");
        until("the new certificate", || {
            let now = texts();
            now.len() == before.len() && now != before
        });
        corner.annotate("web", &json!({"ballast.dev/tls-secret": null}));
        until("no certificate", || certificates(&node).is_empty());
    });
}

fn a_certificate_that_cannot_be_written_holds_up_nobody_else() {
    in_a_corner("unwritable", |corner| {
        let pods = Backends::start(corner, 1);
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("before", 443, ""));
        corner.until_published("before", &[&node.address()]);
        // Somebody's folder, where the file of the key belongs.
        let secrets = node.table_folder().join("tls");
        for ending in ["crt", "key"] {
            let name = format!("{}.cert.{ending}", corner.home);
            fs::create_dir_all(secrets.join(name).join("theirs")).expect("a folder");
        }
        secret(corner, &corner.home, "cert", "one");
        let name = format!("{}/cert", corner.home);
        corner.annotate("before", &json!({"ballast.dev/tls-secret": name}));
        until("it was tried", || {
            !node.metrics().contains("write_errors_total 0\n")
        });
        corner.apply(&service("web", 80, ""));
        corner.apply(&pods.slice("web", &[0]));
        corner.until_published("web", &[&node.address()]);
        node.ask(80).expect("an answer");
    });
}

fn a_secret_of_another_namespace_needs_its_owners_word() {
    with_its_own_server("permitted", |corner| {
        let node = LbNode::start(corner, "a", &[]);
        let allow_from = |word: &Value| {
            let patch = json!({"metadata": {"annotations": {ALLOW_FROM: word}}});
            let place = Place {
                kind: "Secret",
                namespace: &corner.home,
                name: "cert",
            };
            corner.plane.admin.patch(place, &patch);
        };
        secret(corner, &corner.home, "cert", "one");
        allow_from(&Value::Null);
        corner.apply(&service("web", 443, ""));
        let name = format!("{}/cert", corner.home);
        corner.annotate("web", &json!({"ballast.dev/tls-secret": name}));
        let told = corner.until_told("web", "RefNotPermitted");
        assert_eq!(told.kind, "Warning");
        assert!(told.message.contains(ALLOW_FROM), "{}", told.message);
        assert_eq!(certificates(&node), [""; 0].map(PathBuf::from));

        allow_from(&json!(format!("elsewhere, {}", corner.name)));
        until("the certificate", || !certificates(&node).is_empty());
        allow_from(&json!("elsewhere"));
        until("no certificate", || certificates(&node).is_empty());

        // The Gateway API, where it is installed, says the same in its own way.
        corner.apply(REFERENCE_GRANTS);
        let grant = json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "web", "namespace": corner.home},
            "spec": {
                "from": [{"group": "", "kind": "Service", "namespace": corner.name}],
                "to": [{"group": "", "kind": "Secret", "name": "cert"}],
            },
        });
        let grants = format!(
            "/apis/gateway.networking.k8s.io/v1beta1/namespaces/{}/referencegrants",
            corner.home
        );
        until("a grant", || {
            corner
                .plane
                .admin
                .ask(hyper::Method::POST, &grants, Some(&grant))
                .is_ok()
        });
        until("the certificate", || !certificates(&node).is_empty());
        let deleted = corner
            .plane
            .admin
            .ask(hyper::Method::DELETE, &format!("{grants}/web"), None);
        corner.must(deleted);
        until("no certificate", || certificates(&node).is_empty());
    });
}

fn with_the_policy_a_node_in_wrong_hands_writes_its_own_lease_alone() {
    as_installed_and_captured(|corner| {
        let long = "x".repeat(240);
        let names = ["a", "b", long.as_str()];
        let mut nodes = names.map(|name| LbNode::prepare(corner, name, &[]));
        for (index, node) in nodes.iter().enumerate() {
            node.take_token(&corner.token_on(NODES, &node.name, &format!("pod-{index}")));
        }
        let api_of = |node: &LbNode<'_>| Api::of(&node.kubeconfig());
        let leases = "/apis/coordination.k8s.io/v1/namespaces/ballast/leases";
        let write = |api: &Api, lease: &str, holder: &str| {
            let path = format!("{leases}/{lease}");
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 300});
            let patch = json!({"metadata": {"labels": {"touched": "yes"}}, "spec": spec});
            api.ask(hyper::Method::PATCH, &path, Some(&patch))
        };
        let create = |api: &Api, lease: &str| {
            let object = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": lease}, "spec": {"holderIdentity": "x"},
            });
            api.ask(hyper::Method::POST, leases, Some(&object))
        };
        let is_denied = |answer: Answer| {
            let said = match answer {
                Ok(_) => return false,
                Err(refused) => format!("{} {}", refused.code, refused.message),
            };
            assert!(said.starts_with("403 "), "{said}");
            said.contains("ballast-leases")
        };
        // A new policy is in force after a moment.
        let first = api_of(&nodes[0]);
        let mut number = 0;
        until("the policy", || {
            number += 1;
            is_denied(create(&first, &format!("early-{number}")))
        });

        // Both programs of each node do what they are there for.
        for node in &mut nodes {
            node.start_dataplane();
            node.start_controller();
        }
        corner.apply(&service("web", 80, ""));
        let addresses = nodes.each_ref().map(LbNode::address);
        let addresses = addresses.each_ref().map(String::as_str);
        corner.until_published("web", &addresses);
        let lease_of = |node: &LbNode<'_>| {
            let leases = corner.plane.admin.list("Lease", "ballast");
            let mut leases = leases.iter();
            let held = leases.find(|lease| lease["spec"]["holderIdentity"] == node.name.as_str());
            let name = held.and_then(|lease| lease["metadata"]["name"].as_str());
            name.expect("a Lease").to_owned()
        };
        let held = nodes.each_ref().map(lease_of);
        assert_eq!(held[0], "ballast-default-a");
        assert!(!held[2].contains(&long), "it has a name of its own");

        for (index, node) in nodes.iter().enumerate() {
            let api = api_of(node);
            for lease in &held {
                let is_own = *lease == held[index];
                let denied = is_denied(write(&api, lease, &node.name));
                assert_eq!(denied, !is_own, "{}: {lease}", node.name);
            }
            let of_leader = "ballast-leader";
            assert!(is_denied(write(&api, of_leader, &node.name)));
            for other in ["ballast.leader", "ballast-default-c", "other"] {
                assert!(is_denied(create(&api, other)), "{other}");
            }
        }
        // The Lease of a node with a long name is told by its holder, too.
        let api = api_of(&nodes[2]);
        assert!(is_denied(write(&api, &held[2], &nodes[0].name)));
        // A token that is no pod's names no node.
        nodes[0].take_token(&corner.token(NODES));
        assert!(is_denied(write(
            &api_of(&nodes[0]),
            &held[0],
            &nodes[0].name
        )));
        // Nothing of all this has changed what is published.
        corner.until_published("web", &addresses);
    });
}

fn a_publisher_in_wrong_hands_changes_nothing_of_a_service_but_what_is_its_own() {
    as_installed_and_captured(|corner| {
        let node = LbNode::start(corner, "a", &[]);
        corner.apply(&service("web", 80, ""));
        let web = json!({"metadata": {
            "labels": {"app": "web"}, "annotations": {"team": "shop", "note": "theirs"},
            "finalizers": ["shop.example/keep"],
        }});
        corner.patch("Service", "web", &web);
        corner.until_published("web", &[&node.address()]);
        let token = corner.token(PUBLISHERS);
        let config = corner.folder.path().join("stolen");
        fs::write(&config, corner.plane.kubeconfig(&token)).expect("a file");
        let thief = Api::of(&config);
        let path = "/api/v1/namespaces/default/services/web";
        let patch = |part: &str, change: &Value| {
            thief.ask(hyper::Method::PATCH, &format!("{path}{part}"), Some(change))
        };
        let before = corner.service("web");
        let ours = "service.kubernetes.io/load-balancer-cleanup";
        let metadata = |change: Value| json!({"metadata": change});
        let ingress = |ip: &str, mode: &str| json!({"status": {"loadBalancer": {"ingress": [{"ip": ip, "ipMode": mode}]}}});
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}]);
        let refused = [
            ("", json!({"spec": {"selector": {"app": "mine"}}})),
            ("", json!({"spec": {"externalIPs": ["192.0.2.1"]}})),
            (
                "",
                json!({"spec": {"type": "ExternalName", "externalName": "evil.example"}}),
            ),
            (
                "",
                json!({"spec": {"loadBalancerSourceRanges": ["0.0.0.0/0"]}}),
            ),
            ("", metadata(json!({"labels": {"app": "mine"}}))),
            ("", metadata(json!({"ownerReferences": owner}))),
            ("", metadata(json!({"finalizers": [ours]}))),
            (
                "",
                metadata(json!({"finalizers": ["shop.example/keep", "other.example/stay"]})),
            ),
            ("", metadata(json!({"annotations": {"team": "mine"}}))),
            ("", metadata(json!({"annotations": {"note": null}}))),
            (
                "",
                metadata(json!({"annotations": {"other.example/key": "new"}})),
            ),
            (
                "/status",
                metadata(json!({"annotations": {"team": "mine"}})),
            ),
            ("/status", metadata(json!({"labels": {"app": "mine"}}))),
            ("/status", ingress("192.0.2.53", "VIP")),
        ];
        // A new policy is in force after a moment.
        until("the policy", || {
            patch("", &metadata(json!({"annotations": {"early": "yes"}}))).is_err()
        });
        for (part, change) in &refused {
            let refused = patch(part, change).expect_err(&change.to_string());
            assert_eq!(refused.code, 403, "{change}: {}", refused.message);
            let by_policy = refused.message.contains("ballast-services");
            assert!(by_policy, "{change}: {}", refused.message);
        }
        let create = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "new"},
            "spec": {"ports": [{"port": 80}]},
        });
        let folder = "/api/v1/namespaces/default/services";
        let created = thief.ask(hyper::Method::POST, folder, Some(&create));
        assert_eq!(created.expect_err("no right").code, 403);
        let deleted = thief.ask(hyper::Method::DELETE, path, None);
        assert_eq!(deleted.expect_err("no right").code, 403);
        let after = corner.service("web");
        for field in ["spec", "status"] {
            assert_eq!(after[field], before[field]);
        }
        assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);

        // What the publisher is there for.
        let output = "loadbalancer.openstack.org/load-balancer-address";
        let allowed = [
            (
                "",
                metadata(json!({"annotations": {"ballast.dev/last-good": "x", output: "x"}})),
            ),
            (
                "",
                metadata(json!({"annotations": {"ballast.dev/last-good": null, output: null}})),
            ),
            ("", metadata(json!({"finalizers": ["shop.example/keep"]}))),
            (
                "",
                metadata(json!({"finalizers": ["shop.example/keep", ours]})),
            ),
            ("/status", ingress("192.0.2.53", "Proxy")),
        ];
        for (part, change) in &allowed {
            corner.must(patch(part, change));
        }
        corner.until_published("web", &[&node.address()]);
        corner.patch("Service", "web", &metadata(json!({"finalizers": [ours]})));

        // It becomes an alias, of which the publisher wants nothing and changes nothing.
        let alias = json!({"spec": {
            "type": "ExternalName", "externalName": "shop.invalid", "clusterIP": null, "clusterIPs": null,
            "ipFamilies": null, "ipFamilyPolicy": null,
        }});
        corner.patch("Service", "web", &alias);
        for change in [
            json!({"externalName": "evil.example"}),
            json!({"selector": {"app": "mine"}}),
            json!({"ports": [{"port": 81}]}),
            json!({"externalIPs": ["192.0.2.1"]}),
        ] {
            let refused = patch("", &json!({"spec": change})).expect_err("not its own");
            assert_eq!(refused.code, 403, "{change}: {}", refused.message);
        }
        until("its finalizer is gone", || {
            corner.service("web")["metadata"]["finalizers"].is_null()
        });
        corner.delete("Service", "web");
        until("it is gone", || corner.read("Service", "web").is_none());
    });
}

/// The files with keys in a node's table folder.
fn certificates(node: &LbNode<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![node.table_folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                found.push(path);
            }
        }
    }
    found
}

/// A Secret with a new certificate.
fn secret(corner: &Corner<'_>, namespace: &str, name: &str, subject: &str) {
    let folder = corner.folder.path();
    let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .arg("-subj")
        .arg(format!("/CN={subject}.example.com"))
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .expect("openssl");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a file");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace, "annotations": {ALLOW_FROM: "*"}},
        "stringData": {"tls.crt": read(&certificate), "tls.key": read(&key)},
    });
    corner.must(corner.plane.admin.apply(&secret, namespace));
}

const ALLOW_FROM: &str = "ballast.dev/allow-from";

/// As much of the Gateway API as ReferenceGrants need.
const REFERENCE_GRANTS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: referencegrants.gateway.networking.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: gateway.networking.k8s.io
  names: {kind: ReferenceGrant, plural: referencegrants, singular: referencegrant}
  scope: Namespaced
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

tests![
    a_secret_that_may_not_be_read_is_a_warning_that_says_how,
    certificates_follow_their_secrets,
    a_secret_of_another_namespace_needs_its_owners_word,
    a_certificate_that_cannot_be_written_holds_up_nobody_else,
    with_the_policy_a_node_in_wrong_hands_writes_its_own_lease_alone,
    a_publisher_in_wrong_hands_changes_nothing_of_a_service_but_what_is_its_own,
];
