//! Which namespace the controller takes for its own: that is where its Leases are.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;
use tokio::task::spawn_blocking;

use super::api::Api;
use support::program::program;

#[tokio::test]
async fn leases_are_where_a_flag_or_a_variable_or_else_the_kubeconfig_says() {
    for (flag, variable, of_context, expected) in [
        (
            Some("flagged"),
            Some("podded"),
            Some("configured"),
            "flagged",
        ),
        (None, Some("podded"), Some("configured"), "podded"),
        (None, None, Some("configured"), "configured"),
        (None, None, None, "default"),
    ] {
        let api = Api::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": api.url()}}],
            "users": [{"name": "me", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": of_context}}],
        });
        fs::write(&kubeconfig, config.to_string()).expect("a file");
        let mut plan: Command = program("ballast-controller");
        plan.args(["plan", "--kubeconfig"]).arg(&kubeconfig);
        plan.env_remove("POD_NAMESPACE").stdout(Stdio::null());
        plan.args(flag.map(|name| format!("--own-namespace={name}")));
        plan.envs(variable.map(|name| ("POD_NAMESPACE", name)));
        let ended = spawn_blocking(move || plan.status()).await.unwrap();
        assert!(ended.unwrap().success());
        let path = format!("/namespaces/{expected}/leases?");
        let requests = api.requests();
        assert!(
            requests.iter().any(|request| request.contains(&path)),
            "{expected}: {requests:#?}"
        );
    }
}
