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
        "a.yaml, document 2: ",
        "a.yaml, document 3: metadata.name is missing",
        "a.yaml, document 4: default/good was there already; the first one counts",
        "a.yaml, document 5: kind is missing",
        "d.yml, document 1: is not UTF-8",
    ];
    assert_eq!(said.len(), begins.len(), "{said:#?}");
    for (said, begin) in said.iter().zip(begins) {
        assert!(said.starts_with(begin), "{said}");
    }
}

#[test]
fn kinds_that_nobody_reads_are_passed_over() {
    let mut observed = Observed::default();
    let text = "kind: IPAddressPool\nmetadata: {name: p}\n---\nkind: EndpointSlice\nmetadata: {name: of-nobody}\naddressType: IPv4\nendpoints: []\n";
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
            "x.yaml, document 1: Endpoints shop/a is not read; write an EndpointSlice",
            "x.yaml, document 2: Ingress default/b is not read; write its hosts and paths as annotations of the Service",
        ]
    );
    assert!(bad.iter().all(|document| document.is_passed_over));
    assert_eq!(observed.nodes.len(), 1);
}

#[test]
fn lists_are_read_item_by_item() {
    let mut observed = Observed::default();
    let text = "kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n- {kind: Node}\n- {kind: Node, metadata: {name: b}}\n";
    let bad = observed.take_file("x.yaml", text);
    assert_eq!(bad.len(), 1);
    assert!(bad[0].why.starts_with("items[1]: "), "{}", bad[0].why);
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
