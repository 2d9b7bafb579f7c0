//! A wrong value of any flag is a refusal that names it.

use std::fs;

use crate::run::host::to_its_end;
use support::program::program;

#[test]
fn a_wrong_value_of_any_flag_is_a_refusal_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let put = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("a file");
        at(name)
    };
    let (manifests, table) = (at("manifests"), at("table"));
    fs::create_dir(&manifests).expect("a folder");
    let file = put("file", "x");
    let pem = |label: &str| format!("-----BEGIN {label}-----\n-----END {label}-----\n");
    let certificate = put("certificate.pem", &pem("CERTIFICATE"));
    let key = put("key.pem", &pem("PRIVATE KEY"));
    let both = put("both.pem", &(pem("CERTIFICATE") + &pem("PRIVATE KEY")));
    let encrypted = pem("CERTIFICATE") + &pem("ENCRYPTED PRIVATE KEY");
    let encrypted = put("encrypted.pem", &encrypted);
    let broken = put("broken.json", "{");
    let wrong_algorithm = put("algorithm.json", r#"{"algorithm": "fastest"}"#);
    let config = put(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\nusers: [{name: u, user: {}}]\n",
    );
    let with_yaml = at("yaml");
    fs::create_dir(&with_yaml).expect("a folder");
    fs::write(folder.path().join("yaml/table.yaml"), "version: 1\n").expect("a file");
    let (gone, nowhere) = (at("gone"), at("file/inside"));
    for (flag, value) in [
        ("--manifests", &*gone),
        ("--manifests", &file),
        ("--table-dir", &nowhere),
        ("--table-dir", &with_yaml),
        ("--kubeconfig", &gone),
        ("--kubeconfig", &broken),
        ("--context", "b"),
        ("--use-kubernetes-cluster-service", "perhaps"),
        ("--dry", "perhaps"),
        ("--dataplane", "here"),
        ("--lease-duration", "1s"),
        ("--lease-duration", "soon"),
        ("--shutdown-delay", "soon"),
        ("--admin", "here"),
        ("--log-format", "yaml"),
        ("--log-level", "loud"),
        ("--node-selector", "=a"),
        ("--target-node-selector", "!"),
        ("--ignore-exclude-lb", "perhaps"),
        ("--default-class", "perhaps"),
        ("--endpoints-via", "air"),
        ("--compat", "azure"),
        ("--http-services", "some"),
        ("--tcp-services", "mysql"),
        ("--tcp-services", "mysql:0"),
        ("--forward-services", "perhaps"),
        ("--namespace", ""),
        ("--lb-class", ""),
        ("--target-service", ""),
        ("--node-name", ""),
        ("--own-namespace", ""),
        ("--ssl-cert", &gone),
        ("--ssl-cert", &file),
        ("--ssl-cert", &certificate),
        ("--ssl-cert", &encrypted),
        ("--ssl-ca-cert", &gone),
        ("--ssl-ca-cert", &file),
        ("--ssl-ca-cert", &key),
        ("--error-page", "ftp://x/"),
        ("--error-page", "file:///nowhere/at/all"),
        ("--default-return-code", "700"),
        ("--default-return-code", "204"),
        ("--balance-algorithm", "fastest"),
        ("--http-port", "0"),
        ("--stats-port", "70000"),
        ("--syslog", "perhaps"),
        ("--cfg", &gone),
        ("--cfg", &broken),
        ("--cfg", &wrong_algorithm),
    ] {
        let value = format!("{flag}={value}");
        let mut flags = vec!["run", "--admin", "none", &value];
        if flag == "--admin" {
            flags.drain(1..3);
        }
        if value.ends_with("=204") {
            flags.extend(["--error-page", "http://127.0.0.1:1/404.html"]);
        }
        if flag == "--ssl-ca-cert" {
            flags.extend(["--ssl-cert", &both]);
        }
        match flag {
            "--kubeconfig" | "--use-kubernetes-cluster-service" => {}
            "--context" => flags.extend(["--kubeconfig", &config]),
            "--manifests" => {}
            _ => flags.extend(["--manifests", &manifests]),
        }
        if flag != "--table-dir" {
            flags.extend(["--table-dir", &table]);
        }
        let (code, _, said) = to_its_end(&flags);
        assert_eq!(code, Some(64), "{value}: {said}");
        assert!(said.contains(flag), "{value}: {said}");
    }
}

#[test]
fn a_wrong_value_of_a_flag_of_publish_is_a_refusal_that_names_it() {
    for (flag, value) in [
        ("--finalizer", "perhaps"),
        ("--take-over", "perhaps"),
        ("--admin", "here"),
        ("--http-services", "some"),
        ("--kubeconfig", "/nowhere/at/all"),
        // A role that does not write it does not take it.
        ("--table-dir", "/run/ballast"),
    ] {
        let (code, _, said) = to_its_end(&["publish", &format!("{flag}={value}")]);
        assert_eq!(code, Some(64), "{flag}: {said}");
        assert!(said.contains(flag), "{flag}: {said}");
    }
}

#[test]
fn a_port_that_is_the_controllers_own_and_the_data_planes_is_a_refusal() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().display().to_string();
    for (flags, named) in [
        (&["--stats-port=1937"][..], "--stats-port"),
        (&["--http-port=1937"], "--http-port"),
        (&["--dataplane=127.0.0.1:1937"], "--dataplane"),
        (
            &["--admin=0.0.0.0:5000", "--dataplane=127.0.0.1:5000"],
            "--dataplane",
        ),
        (
            &["--admin=[::1]:5000", "--dataplane=[::]:5000"],
            "--dataplane",
        ),
        (&["--admin=[::1]:1936"], "--stats-port"),
        (&["--admin=127.0.0.1:80"], "--http-port"),
    ] {
        let mut all = vec!["run", "--manifests", &folder, "--table-dir", &folder];
        all.extend(flags);
        let (code, _, said) = to_its_end(&all);
        assert_eq!(code, Some(64), "{flags:?}: {said}");
        assert!(said.contains(named), "{flags:?}: {said}");
        assert!(said.contains("--admin"), "{flags:?}: {said}");
    }
}

#[test]
fn a_variable_that_is_set_to_nothing_is_a_refusal_that_names_its_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().display().to_string();
    for (variable, flag) in [
        ("NODE_NAME", "--node-name"),
        ("POD_NAMESPACE", "--own-namespace"),
    ] {
        let mut command = program("ballast-controller");
        command
            .env(variable, "")
            .args(["plan", "--manifests", &folder]);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{said}");
        assert!(said.contains(flag), "{said}");
    }
}

#[test]
fn without_a_cluster_and_without_manifests_it_says_what_is_missing() {
    let table = tempfile::tempdir().expect("a folder");
    let table = table.path().display().to_string();
    let (code, _, said) = to_its_end(&["run", "--admin", "none", "--table-dir", &table]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("--kubeconfig"), "{said}");
    let (code, _, said) = to_its_end(&["run", "--manifests", "/"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("--table-dir"), "{said}");
}

#[test]
fn two_ways_to_the_cluster_are_a_refusal() {
    let flags = [
        "run",
        "--table-dir=/x",
        "--kubeconfig=/x",
        "--use-kubernetes-cluster-service=true",
    ];
    let (code, _, said) = to_its_end(&flags);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("--use-kubernetes-cluster-service"), "{said}");
}
