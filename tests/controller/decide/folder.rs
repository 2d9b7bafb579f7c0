//! Manifests in a folder: which are read, and how the others are reported; and the output of `plan`.

use std::fs;
use std::process::Command;

use ballast_controller::decide::decide;
use ballast_controller::observe::{Observed, read_folder};

use super::settings;

#[test]
fn a_bad_document_is_named_and_spoils_no_other() {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let good =
        "apiVersion: v1\nkind: Service\nmetadata: {name: good}\nspec: {ports: [{port: 80}]}\n";
    let bad = format!(
        "# a comment\n---\n{good}---\nkind: [\n---\napiVersion: v1\nkind: Service\nmetadata: {{}}\n---\n{good}---\njust words\n"
    );
    fs::write(folder.path().join("a.yaml"), bad).expect("a test that is set up");
    fs::write(
        folder.path().join("b.json"),
        r#"{"kind": "Node", "metadata": {"name": "n"}}"#,
    )
    .expect("a test that is set up");
    fs::write(folder.path().join("c.txt"), "not looked at").expect("a test that is set up");
    fs::write(folder.path().join("d.yml"), [0xff, 0xfe, 0xfd]).expect("a test that is set up");
    let (observed, bad) = read_folder(folder.path()).expect("a test that is set up");
    assert_eq!(observed.services.len(), 1);
    assert_eq!(observed.nodes.len(), 1);
    let said: Vec<String> = bad.iter().map(ToString::to_string).collect();
    let begins = [
        "a.yaml, document 2: line 8, column ",
        "a.yaml, document 3: line 10, column 1: metadata.name is missing; name it",
        "a.yaml, document 4: line 14, column 1: default/good was there already; the first one counts: remove one, or name it",
        "a.yaml, document 5: line 19, column 1: kind is missing; write kind and apiVersion",
        "a.yaml: a controller that has read the file before keeps its last good content; here",
        "d.yml: is not UTF-8; save it as UTF-8",
    ];
    assert_eq!(said.len(), begins.len(), "{said:#?}");
    for (said, begin) in said.iter().zip(begins) {
        assert!(said.starts_with(begin), "{said}");
    }
}

#[test]
fn kinds_that_nobody_reads_are_passed_over() {
    let mut observed = Observed::default();
    let text = "kind: ConfigMap\nmetadata: {name: p}\n---\nkind: EndpointSlice\nmetadata: {name: of-nobody}\naddressType: IPv4\nendpoints: []\n";
    assert_eq!(observed.take_file("x.yaml", text), []);
    assert!(observed.slices.is_empty());
}

#[test]
fn kinds_that_users_may_expect_to_be_read_are_named_with_the_remedy() {
    let mut observed = Observed::default();
    let text = "kind: Endpoints\nmetadata: {name: a, namespace: shop}\n---\nkind: List\nitems:\n- {kind: Ingress, metadata: {name: b}}\n- {kind: Node, metadata: {name: n}}\n";
    let bad = observed.take_file("x.yaml", text);
    let said: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "x.yaml, document 1: line 1, column 1: Endpoints shop/a is not read; write an EndpointSlice",
            "x.yaml, document 2: line 6, column 3: items[0]: Ingress default/b is not read; write its hosts and paths as annotations of the Service",
        ]
    );
    assert!(bad.iter().all(|document| document.is_remark));
    assert_eq!(observed.nodes.len(), 1);
}

#[test]
fn a_pool_of_a_version_that_is_not_read_is_named_with_the_one_that_is() {
    let text = "apiVersion: ballast.dev/v1beta1
kind: AddressPool
metadata: {name: a}
---
kind: List
items:
- kind: Announcement
  metadata: {name: b}
- kind: Announcement
  apiVersion: ballast.dev/v2
---
apiVersion: metallb.io/v1beta1
kind: AddressPool
metadata: {name: c}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: d}
";
    let mut observed = Observed::default();
    let bad = observed.take_file("x.yaml", text);
    let said: Vec<(String, bool)> = bad
        .iter()
        .map(|one| (one.to_string(), one.is_remark))
        .collect();
    let expected = [
        (
            "document 1: line 1, column 1: apiVersion: \"ballast.dev/v1beta1\" is no version of AddressPool that is read; write ballast.dev/v1",
            false,
        ),
        (
            "document 2: line 7, column 3: items[0]: apiVersion is missing; write ballast.dev/v1",
            false,
        ),
        (
            "document 2: line 10, column 3: items[1].apiVersion: \"ballast.dev/v2\" is no version of Announcement that is read; write ballast.dev/v1",
            false,
        ),
        (
            "document 3: line 12, column 1: AddressPool of metallb.io/v1beta1 is not read; the AddressPool that is read is of ballast.dev/v1",
            true,
        ),
        (
            "document 4: line 16, column 1: BGPPeer of crd.projectcalico.org/v1 is not read; the BGPPeer that is read is of metallb.io/v1beta2",
            true,
        ),
    ];
    let expected = expected.map(|(line, is_remark)| (format!("x.yaml, {line}"), is_remark));
    assert_eq!(said, expected);
    assert_eq!(*observed.pools, Default::default());
    let older = "apiVersion: metallb.io/v1beta1\nkind: BGPPeer\nmetadata: {name: e}\nspec: {myASN: 1, peerASN: 2, peerAddress: 10.0.0.3}\n";
    assert!(observed.take_file("y.yaml", older).is_empty());
    assert_ne!(*observed.pools, Default::default());
}

/// The remarks and mistakes that reading a file reports.
fn said_of(text: &str) -> Vec<String> {
    let bad = Observed::default().take_file("web.yaml", text);
    bad.iter().map(ToString::to_string).collect()
}

#[test]
fn a_key_that_nobody_knows_is_named_with_its_line_and_the_nearest_that_is_known() {
    let text = "kind: Service
metadata: {name: a, lables: {app: web}}
sepc: {type: LoadBalancer}
---
# The second one
kind: Service
metadata: {name: b}
spec:
  prots:
  - port: 80
  ports:
  - {port: 80, targetport: 8080}
  sessionAffinityConfig: {clientIP: {timeout: 5}}
---
kind: EndpointSlice
metadata: {name: c}
addressType: IPv4
endpoints: [{adresses: [10.0.0.1], addresses: [10.0.0.1], conditions: {readi: true}}]
---
kind: AddressPool
apiVersion: ballast.dev/v1
metadata: {name: edge}
spec: {addresses: [10.0.0.0/24], announce: {mod: l2}, autoasign: true}
---
kind: Servcie
metadata: {name: d}
";
    let expected = [
        "document 1: line 3, column 1: sepc: is not a known key, and is not read; did you mean spec?",
        "document 1: line 2, column 21: metadata.lables: is not a known key, and is not read; did you mean labels?",
        "document 2: line 9, column 3: spec.prots: is not a known key, and is not read; did you mean ports?",
        "document 2: line 12, column 16: spec.ports[0].targetport: is not a known key, and is not read; did you mean targetPort?",
        "document 2: line 13, column 38: spec.sessionAffinityConfig.clientIP.timeout: is not a known key, and is not read; known here: timeoutSeconds",
        "document 3: line 18, column 14: endpoints[0].adresses: is not a known key, and is not read; did you mean addresses?",
        "document 3: line 18, column 72: endpoints[0].conditions.readi: is not a known key, and is not read; did you mean ready?",
        "document 4: line 23, column 55: spec.autoasign: is not a known key, and is not read; did you mean autoAssign?",
        "document 4: line 23, column 45: spec.announce.mod: is not a known key, and is not read; did you mean mode?",
        "document 5: line 25, column 1: Servcie default/d is not read; did you mean kind: Service?",
    ];
    let said = said_of(text);
    assert_eq!(said, expected.map(|line| format!("web.yaml, {line}")));
    let mut observed = Observed::default();
    let bad = observed.take_file("web.yaml", text);
    assert!(
        bad.iter().all(|one| one.is_remark),
        "they count all the same"
    );
    assert_eq!(observed.services.len(), 2);
}

#[test]
fn what_kubernetes_knows_is_no_unknown_key() {
    let text = "kind: Service
apiVersion: v1
metadata:
  name: whole
  namespace: shop
  uid: 6fd1e31c-2b21-4d8b-9c1c-000000000000
  generation: 1
  resourceVersion: '12'
  creationTimestamp: '2026-01-01T00:00:00Z'
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: y, controller: true, blockOwnerDeletion: true}]
  managedFields:
  - {manager: kubectl, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, subresource: status, time: '2026-01-01T00:00:00Z', fieldsV1: {'f:spec': {'f:ports': {}}}}
spec:
  allocateLoadBalancerNodePorts: false
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  externalIPs: [192.0.2.1]
  externalTrafficPolicy: Local
  healthCheckNodePort: 30000
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  loadBalancerClass: ballast.dev/x
  loadBalancerIP: 192.0.2.1
  loadBalancerSourceRanges: [10.0.0.0/8]
  ports: [{appProtocol: http, name: web, nodePort: 30080, port: 80, protocol: TCP, targetPort: http}]
  publishNotReadyAddresses: true
  selector: {app: web}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10}}
  trafficDistribution: PreferClose
  type: LoadBalancer
status:
  conditions: [{type: X, status: 'True', reason: Y, message: z, lastTransitionTime: '2026-01-01T00:00:00Z', observedGeneration: 1}]
  loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP, ports: [{port: 80, protocol: TCP, error: x}]}]}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: whole, namespace: shop, labels: {kubernetes.io/service-name: whole}}
addressType: IPv4
ports: [{name: web, port: 80, protocol: TCP, appProtocol: http}]
endpoints:
- addresses: [10.0.0.1]
  conditions: {ready: true, serving: true, terminating: false}
  deprecatedTopology: {a: b}
  hints: {forZones: [{name: a}], forNodes: [{name: n}]}
  hostname: h
  nodeName: n
  targetRef: {kind: Pod, name: p, namespace: shop, uid: u}
  zone: a
";
    assert_eq!(said_of(text), [""; 0]);
    for pool in fs::read_dir("../templates/crds").expect("the definitions") {
        let definition = fs::read_to_string(pool.expect("a file").path()).expect("a text");
        assert_eq!(
            said_of(&definition),
            [""; 0],
            "it is a kind that is passed over"
        );
    }
}

#[test]
fn a_mistake_has_its_line_and_its_remedy() {
    let cases = [
        (
            "kind: Service\nmetadata:\n  name: a\n  annotations:\n    ballast.dev/weight: 1\n",
            "document 1: line 5, column 5: metadata.annotations.ballast.dev/weight: invalid type: integer `1`, expected a string; write it in quotes",
        ),
        (
            "kind: Service\nmetadata: {name: a}\nspec:\n  ports:\n  - port: http\n",
            "document 1: line 5, column 5: spec.ports[0].port: invalid type: string \"http\", expected i32; kubectl explain service.spec.ports.port has its form",
        ),
        (
            "kind: Service\nmetadata: {name: a}\nspec: {type: Loadbalancer}\n",
            "document 1: line 1, column 1: spec.type: \"Loadbalancer\" is no type of Service; expected LoadBalancer, ClusterIP, NodePort or ExternalName",
        ),
        (
            "kind: List\nitems:\n- kind: Node\n  metadata: {name: 7}\n",
            "document 1: line 4, column 14: items[0].metadata.name: invalid type: integer `7`, expected a string; write it in quotes",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(said_of(text), [format!("web.yaml, {expected}")]);
    }
}

#[test]
fn plan_says_what_to_do_about_a_folder_that_is_not_there() {
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
        .args(["plan", "--manifests", "/nowhere/at/all"])
        .output()
        .expect("a test that is set up");
    let said = String::from_utf8(output.stderr).expect("a text");
    assert!(
        said.contains("/nowhere/at/all: cannot be read; name a folder that is there"),
        "{said}"
    );
}

#[test]
fn lists_are_read_item_by_item() {
    let mut observed = Observed::default();
    let text = "kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n- {kind: Node}\n- {kind: Node, metadata: {name: b}}\n";
    let bad = observed.take_file("x.yaml", text);
    assert_eq!(bad.len(), 1);
    assert!(
        bad[0]
            .why
            .starts_with("line 4, column 3: items[1]: metadata.name is missing"),
        "{}",
        bad[0].why
    );
    assert_eq!(observed.nodes.len(), 2);
}

#[test]
fn an_annotation_without_a_value_is_that_services_warning_and_costs_it_nothing() {
    let text = "kind: Service
metadata:
  name: web
  annotations:
    ballast.dev/algorithm:
spec: {type: LoadBalancer, ports: [{port: 80}]}
";
    let mut observed = Observed::default();
    assert_eq!(observed.take_file("web.yaml", text), []);
    let desired = decide(&observed, &settings(&[]).expect("settings"));
    let table = desired.table.as_ref().expect("a table");
    assert_eq!(table.frontends.len(), 1);
    let notices: Vec<String> = desired.notices.iter().map(ToString::to_string).collect();
    let [notice] = notices.as_slice() else {
        panic!("{notices:?}");
    };
    let begin = "Warning InvalidAnnotation service default/web: ballast.dev/algorithm: \"\" ";
    assert!(notice.starts_with(begin), "{notice}");
}

#[test]
fn plan_prints_what_was_decided_and_why() {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let text = "kind: Service\nmetadata: {name: web, annotations: {ballast.dev/algorithm: best}}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n---\nnonsense\n";
    fs::write(folder.path().join("web.yaml"), text).expect("a test that is set up");
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
        .args(["plan", "--table", "--manifests"])
        .arg(folder.path())
        .output()
        .expect("a test that is set up");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).expect("a test that is set up");
    for part in [
        "Warning web.yaml, document 2",
        "default/web served",
        "default.web:80 (tcp) at *:80",
        "InvalidAnnotation: ballast.dev/algorithm: \"best\"",
        "version: 1",
    ] {
        assert!(said.contains(part), "{part} is missing:\n{said}");
    }
}

#[test]
fn plan_shows_what_changes_in_the_running_table() {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let manifest = |name: &str, port: u16, more: &str| {
        format!(
            "---\nkind: Service\nmetadata: {{name: {name}, annotations: {{{more}}}}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n"
        )
    };
    let plan = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
            .args(["plan", "--manifests"])
            .arg(folder.path())
            .args(more)
            .output()
            .expect("a test that is set up");
        let said =
            [output.stdout, output.stderr].map(|said| String::from_utf8(said).expect("text"));
        (output.status.code(), said.concat())
    };
    let write = |text: String| {
        fs::write(folder.path().join("web.yaml"), text).expect("a test that is set up");
    };
    write(manifest("web", 80, "") + &manifest("old", 81, "") + &manifest("same", 83, ""));
    let tables = tempfile::tempdir().expect("a test that is set up");
    let (code, said) = plan(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("version: 1"), "{said}");
    let (_, said) = plan(&["--table"]);
    let (_, table) = said
        .split_once("# The table of this node\n")
        .expect("a table");
    let file = tables.path().join("table.yaml");
    fs::write(&file, table).expect("a test that is set up");
    for path in [&file, tables.path()] {
        let (_, said) = plan(&["--against", path.to_str().expect("a path")]);
        assert!(
            said.ends_with("\nThe running table is the same.\n"),
            "{said}"
        );
    }
    let changed = manifest("web", 80, "ballast.dev/algorithm: random");
    write(changed + &manifest("new", 82, "") + &manifest("same", 83, ""));
    let (code, said) = plan(&["--against", file.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{said}");
    let (_, changes) = said
        .split_once("# What changes in the running table\n")
        .expect("changes");
    let expected = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/controller/decide/changes.diff"
    ));
    assert_eq!(changes, expected.expect("a test that is set up"));
    let (code, said) = plan(&["--against", "/nowhere/table.json"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--against: /nowhere/table.json: "), "{said}");
}

#[test]
fn plan_says_where_routes_lead_and_resolves_external_names() {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let text = "kind: Service
metadata: {name: db, annotations: {ballast.dev/path: /db}}
spec: {type: ExternalName, externalName: 192.0.2.7, ports: [{port: 80}]}
---
kind: Service
metadata: {name: empty, annotations: {ballast.dev/path: /empty}}
spec: {ports: [{port: 80}]}
---
kind: Service
metadata: {name: closed, annotations: {ballast.dev/path: /closed, ballast.dev/source-ranges: x}}
spec: {ports: [{port: 80}]}
";
    fs::write(folder.path().join("web.yaml"), text).expect("a test that is set up");
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
        .args(["plan", "--manifests"])
        .arg(folder.path())
        .output()
        .expect("a test that is set up");
    let said = String::from_utf8(output.stdout).expect("a test that is set up");
    for lines in [
        "default/db routed\n  http (http) at *:80, 1 endpoint\n",
        "default/empty routed\n  http (http) at *:80, no endpoints: it answers 503\n",
        "default/closed left alone: none of its ports can be served\n",
    ] {
        assert!(said.contains(lines), "{lines} is missing:\n{said}");
    }
}

#[test]
fn plan_counts_the_endpoints_of_each_service_and_says_who_does_not_listen() {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let text = "kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ports: [{port: 8080}]}
---
kind: Service
metadata: {name: web-next, annotations: {ballast.dev/canary-of: web, ballast.dev/canary-weight: '50'}}
spec: {ports: [{port: 8080}]}
---
kind: EndpointSlice
metadata: {name: web-next-a, labels: {kubernetes.io/service-name: web-next}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
---
kind: Service
metadata: {name: empty}
spec: {type: LoadBalancer, ports: [{port: 8081}]}
";
    fs::write(folder.path().join("web.yaml"), text).expect("a test that is set up");
    let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
        .args(["plan", "--manifests"])
        .arg(folder.path())
        .output()
        .expect("a test that is set up");
    let said = String::from_utf8(output.stdout).expect("a test that is set up");
    for line in [
        "  default.web:8080 (tcp) at *:8080, no endpoints\n",
        "  default.web:8080 (tcp) at *:8080, 1 endpoint\n",
        "  default.empty:8081 (tcp) at *:8081, no endpoints: it does not listen\n",
    ] {
        assert!(said.contains(line), "{line} is missing:\n{said}");
    }
}

#[test]
fn plan_refuses_a_wrong_flag_with_the_code_of_wrong_usage() {
    for wrong in [["--tcp-services", "x"], ["--cfg", "/nowhere"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_ballast-controller"))
            .args(["plan", "--manifests", "/"])
            .args(wrong)
            .output()
            .expect("a test that is set up");
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("a test that is set up");
        assert!(said.contains(wrong[0]), "{said}");
    }
}
