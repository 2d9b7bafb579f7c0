//! Arguments: which are accepted, and which are refused by the name of the flag.

use std::fs;

use ballast_controller::settings::Settings;
use ballast_core::table::Algorithm;

use super::settings;

#[test]
fn a_wrong_value_is_refused_and_names_its_flag() {
    let wrong = [
        ("--tcp-services", "mysql"),
        ("--tcp-services", "mysql:0"),
        ("--tcp-services", "mysql:70000"),
        ("--tcp-services", "mysql:3306@x"),
        ("--tcp-services", "a/b/c:1"),
        ("--tcp-services", ":80"),
        ("--tcp-services", "a:80,b:80"),
        ("--balance-algorithm", "rondrobin"),
        ("--default-return-code", "99"),
        ("--default-return-code", "600"),
        ("--http-port", "0"),
        ("--http-port", "443"),
        ("--http-port", "1936"),
        ("--stats-port", "443"),
        ("--stats-port", "port"),
        ("--stats-source-ranges", "10.0.0.0"),
        ("--stats-source-ranges", "10.0.0.0/8,x"),
        ("--error-page", "/etc/errors/404.http"),
        ("--error-page", "http://"),
        ("--http-services", "some"),
        ("--max-ports-per-service", "0"),
        ("--max-routes-per-service", "0"),
        ("--max-routes-per-service", "10001"),
        ("--external-names", "some"),
        ("--external-name-deny", "10.0.0.0"),
        ("--dns-min-ttl", "0s"),
        ("--dns-min-ttl", "2h"),
        ("--dns-min-ttl", "soon"),
        ("--endpoints-via", "dns"),
        ("--compat", "aws"),
        ("--node-selector", "=x"),
        ("--target-node-selector", "a,,b"),
        ("--syslog", "maybe"),
        ("--forward-services", "2"),
        ("--ignore-exclude-lb", "no thanks"),
        ("--default-class", "perhaps"),
        ("--cfg", "/nowhere/loadbalancer.json"),
        ("--namespace", ""),
        ("--namespace", "a,,b"),
        ("--lb-class", ""),
        ("--target-service", " "),
        ("--node-name", ""),
        ("--own-namespace", ""),
    ];
    for (flag, value) in wrong {
        let refusal = settings(&[format!("{flag}={value}")]).expect_err(value);
        assert!(refusal.contains(flag), "{flag}={value}: {refusal}");
    }
}

#[test]
fn a_page_for_a_status_without_a_body_is_refused() {
    for code in ["204", "205", "304"] {
        let code = format!("--default-return-code={code}");
        let page = "--error-page=file:///404.html".to_owned();
        let refusal = settings(&[code.clone(), page]).expect_err(&code);
        assert!(refusal.contains("--default-return-code"), "{refusal}");
        settings(&[code]).expect("without a page");
    }
}

#[test]
fn a_client_ca_without_a_certificate_is_refused() {
    let refusal = settings(&["--ssl-ca-cert=/ca.pem".to_owned()]).expect_err("no --ssl-cert");
    assert!(refusal.contains("--ssl-ca-cert"), "{refusal}");
}

#[test]
fn a_loadbalancer_json_adds_to_the_flags_and_never_overrules_them() {
    let text = r#"{"name": "haproxy", "reloadCmd": "./haproxy_reload", "config": "/etc/haproxy/haproxy.cfg",
        "template": "template.cfg", "algorithm": "leastconn", "tcpServices": {"mysql": 3307, "redis": 6379}}"#;
    let settings = with_cfg(text, &["--tcp-services=mysql:3306"]).expect("a test that is set up");
    assert_eq!(settings.algorithm, Algorithm::LeastConnections);
    let ports: Vec<(&str, u16)> = settings
        .flags
        .tcp_services
        .0
        .iter()
        .map(|one| (one.name.as_str(), one.port))
        .collect();
    assert_eq!(ports, [("mysql", 3306), ("redis", 6379)]);
    assert!(
        settings.remarks[0].contains("reloadCmd, config, template"),
        "{:?}",
        settings.remarks
    );
    let settings = with_cfg(text, &["--balance-algorithm=source"]).expect("a test that is set up");
    assert_eq!(settings.algorithm, Algorithm::SourceHash);
}

#[test]
fn a_bad_loadbalancer_json_is_refused() {
    for text in [
        "{",
        r#"{"algorithm": "best"}"#,
        r#"{"tcpServices": {"a/b/c": 1}}"#,
        r#"{"tcpServices": {"a": 0}}"#,
    ] {
        let refusal = with_cfg(text, &[]).expect_err(text);
        assert!(refusal.contains("--cfg"), "{text}: {refusal}");
    }
}

#[test]
fn a_switch_is_on_by_its_name_alone() {
    assert!(
        settings(&["--forward-services".to_owned()])
            .expect("a test that is set up")
            .flags
            .forward_services
    );
    assert!(
        settings(&["--syslog=true".to_owned()])
            .expect("a test that is set up")
            .flags
            .syslog
    );
    assert!(
        !settings(&["--syslog=false".to_owned()])
            .expect("a test that is set up")
            .flags
            .syslog
    );
}

fn with_cfg(text: &str, more: &[&str]) -> Result<Settings, String> {
    let folder = tempfile::tempdir().expect("a test that is set up");
    let path = folder.path().join("loadbalancer.json");
    fs::write(&path, text).expect("a test that is set up");
    let cfg = format!("--cfg={}", path.display());
    let arguments: Vec<String> = [cfg]
        .into_iter()
        .chain(more.iter().map(|one| (*one).to_owned()))
        .collect();
    settings(&arguments)
}
