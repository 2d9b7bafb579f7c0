//! What is looked up because somebody wants it: Secrets and names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ballast_controller::observe::{Earlier, Key, Observed, Secret, Wanted};
use serde_json::{Value, json};

use super::Watch;
use super::api::Api;

#[tokio::test]
async fn a_secret_is_read_when_it_is_wanted_and_again_when_it_changes() {
    let api = Api::start().await;
    api.put("secrets", secret("Zmlyc3Q="));
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    let begun = Instant::now();
    watch
        .wanted
        .send_replace(wanted(&["shop/tls", "shop/none"], &[]));
    let seen = watch.until(|seen| seen.looked_up.secrets.len() == 2).await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(content(&seen, "shop/tls"), Some(b"first".as_slice()));
    assert!(!seen.secrets.contains_key(&key("shop/none")));
    // It is watched, and not asked for again and again.
    api.asked(
        |path| path.contains("watch=") && path.contains("metadata.name%3Dtls"),
        1,
    )
    .await;
    api.put("secrets", secret("c2Vjb25k"));
    watch
        .until(|seen| content(seen, "shop/tls") == Some(b"second".as_slice()))
        .await;
    api.delete("secrets", "shop/tls");
    watch.until(|seen| seen.secrets.is_empty()).await;
    api.put("secrets", secret("dGhpcmQ="));
    watch
        .until(|seen| content(seen, "shop/tls") == Some(b"third".as_slice()))
        .await;
    let requests = api.requests();
    let reads = requests.iter().filter(|path| path.contains("secrets/tls"));
    assert_eq!(reads.count(), 1, "{requests:#?}");
}

#[tokio::test]
async fn secrets_that_do_not_exist_cost_a_read_and_a_watch_each_and_then_nothing() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    let names: Vec<String> = (0..300)
        .map(|number| format!("shop/none-{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    watch.wanted.send_replace(wanted(&names, &[]));
    watch
        .until(|seen| seen.looked_up.secrets.len() == 300)
        .await;
    let is_of_secrets = |path: &str| path.contains("/secrets");
    api.asked(|path| is_of_secrets(path) && path.contains("watch="), 300)
        .await;
    // Longer than they were polled for.
    support::pause_async(Duration::from_secs(7)).await;
    let requests = api.requests();
    let count = requests.iter().filter(|path| is_of_secrets(path)).count();
    assert_eq!(count, 600, "300 reads and 300 watches");
    // One that comes is seen at once.
    let mut last = secret("Zmlyc3Q=");
    last["metadata"]["name"] = json!("none-299");
    api.put("secrets", last);
    watch
        .until(|seen| content(seen, "shop/none-299") == Some(b"first".as_slice()))
        .await;
}

#[tokio::test]
async fn a_secret_that_may_not_be_read_is_forbidden_until_it_may() {
    let api = Api::start().await;
    api.put("secrets", secret("Zmlyc3Q="));
    api.refuse("secrets", 403, 0);
    let mut watch = Watch::of(&api, &[]);
    watch.wanted.send_replace(wanted(&["shop/tls"], &[]));
    let seen = watch.until(|seen| seen.looked_up.secrets.len() == 1).await;
    assert_eq!(seen.secrets[&key("shop/tls")], Secret::Forbidden);
    api.allow("secrets");
    watch
        .until(|seen| content(seen, "shop/tls") == Some(b"first".as_slice()))
        .await;
    // What the server cannot say changes nothing.
    let before = api.requests().len();
    api.refuse("secrets", 500, 0);
    api.cut();
    api.asked(|path| path.contains("secrets/tls"), 2).await;
    let of_secrets = |requests: Vec<String>| {
        let of_tls = requests
            .into_iter()
            .filter(|path| path.contains("secrets/tls"));
        of_tls.count()
    };
    let so_far = of_secrets(api.requests());
    assert!(before > 0);
    api.asked(|path| path.contains("secrets/tls"), so_far + 2)
        .await;
    let seen = watch.until(|_| true).await;
    assert_eq!(content(&seen, "shop/tls"), Some(b"first".as_slice()));
    watch.wanted.send_replace(Wanted::default());
    let seen = watch.until(|seen| seen.secrets.is_empty()).await;
    assert!(seen.looked_up.is_empty());
}

#[tokio::test]
async fn a_secret_that_was_read_is_forbidden_only_after_it_was_refused_for_some_seconds() {
    let api = Api::start().await;
    api.put("secrets", secret("Zmlyc3Q="));
    let mut watch = Watch::of(&api, &[]);
    watch.wanted.send_replace(wanted(&["shop/tls"], &[]));
    watch
        .until(|seen| content(seen, "shop/tls") == Some(b"first".as_slice()))
        .await;
    let is_read = |path: &str| path.contains("secrets/tls");
    let is_watch = |path: &str| path.contains("metadata.name%3Dtls");
    api.asked(is_watch, 1).await;
    // As an API server that has just started, and does not know its roles yet.
    let reads = api.requests().iter().filter(|path| is_read(path)).count();
    api.refuse("secrets", 403, 0);
    api.cut();
    api.asked(is_read, reads + 1).await;
    api.allow("secrets");
    api.put("secrets", secret("c2Vjb25k"));
    watch
        .until(|seen| content(seen, "shop/tls") == Some(b"second".as_slice()))
        .await;
    assert_eq!(watch.forbidden(), 0);

    // A right that was taken away.
    api.asked(is_watch, 2).await;
    api.refuse("secrets", 403, 0);
    api.cut();
    let begun = Instant::now();
    let is_forbidden = |seen: &Observed| seen.secrets[&key("shop/tls")] == Secret::Forbidden;
    watch.until(is_forbidden).await;
    let after = begun.elapsed();
    assert!(after >= Duration::from_secs(5), "after {after:?}");
}

#[tokio::test]
async fn grants_that_were_listed_are_gone_only_after_they_were_refused_for_some_seconds() {
    let api = Api::start().await;
    api.put(
        "referencegrants",
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
            "metadata": {"namespace": "certs", "name": "shop"},
            "spec": {
                "from": [{"group": "", "kind": "Service", "namespace": "shop"}],
                "to": [{"group": "", "kind": "Secret"}],
            },
        }),
    );
    let mut watch = Watch::of(&api, &[]);
    watch.wanted.send_replace(Wanted {
        grants: ["certs".to_owned()].into(),
        ..Wanted::default()
    });
    let count = |seen: &Observed| seen.grants.get("certs").map(Vec::len);
    watch.until(|seen| count(seen) == Some(1)).await;
    let is_of_grants = |path: &str| path.contains("referencegrants");
    api.asked(is_of_grants, 2).await;
    api.refuse("referencegrants", 403, 0);
    api.cut();
    let begun = Instant::now();
    watch.until(|seen| count(seen) == Some(0)).await;
    let after = begun.elapsed();
    assert!(after >= Duration::from_secs(5), "after {after:?}");
}

#[tokio::test]
async fn reference_grants_are_looked_up_when_they_are_wanted_and_may_not_exist_at_all() {
    let api = Api::start().await;
    // There is no such API.
    api.refuse("referencegrants", 404, 0);
    let mut watch = Watch::of(&api, &[]);
    watch.until(|_| true).await;
    assert!(
        !api.requests()
            .iter()
            .any(|path| path.contains("referencegrants"))
    );
    let certs = || [("certs".to_owned(), Vec::new())].into();
    watch.wanted.send_replace(Wanted {
        grants: ["certs".to_owned()].into(),
        ..Wanted::default()
    });
    let seen = watch.until(|seen| !seen.looked_up.grants.is_empty()).await;
    assert_eq!(seen.grants, certs());

    api.allow("referencegrants");
    let grant = |to: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
            "metadata": {"namespace": "certs", "name": "shop"},
            "spec": {"from": [{"group": "", "kind": "Service", "namespace": "shop"}], "to": [to]},
        })
    };
    api.put(
        "referencegrants",
        grant(json!({"group": "", "kind": "Secret"})),
    );
    let seen = watch.until(|seen| seen.grants["certs"].len() == 1).await;
    assert_eq!(seen.grants["certs"][0].from, ["shop".to_owned()].into());
    assert_eq!(seen.grants["certs"][0].to, None);
    api.put(
        "referencegrants",
        grant(json!({"group": "", "kind": "Secret", "name": "a"})),
    );
    watch
        .until(|seen| seen.grants["certs"].iter().any(|grant| grant.to.is_some()))
        .await;
    // One that is for others, or is not understood, permits nothing.
    api.put(
        "referencegrants",
        grant(json!({"group": "apps", "kind": "Secret"})),
    );
    watch.until(|seen| seen.grants["certs"].is_empty()).await;
    watch.wanted.send_replace(Wanted::default());
    watch.until(|seen| seen.grants.is_empty()).await;
}

#[tokio::test]
async fn a_secret_of_an_impossible_name_is_not_asked_for() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    let mut odd = Wanted::default();
    odd.secrets.insert(Key::new("shop/../kube-system", "tls"));
    odd.secrets.insert(Key::new("shop", "a?b"));
    odd.secrets.insert(Key::new("", "a"));
    watch.wanted.send_replace(odd);
    let seen = watch.until(|seen| seen.looked_up.secrets.len() == 3).await;
    assert!(seen.secrets.is_empty());
    assert!(!api.requests().iter().any(|path| path.contains("secrets")));
}

#[tokio::test]
async fn a_name_is_resolved_while_it_is_wanted() {
    let api = Api::start().await;
    let mut watch = Watch::of(&api, &[]);
    let names = ["192.0.2.7", "[2001:db8::7]", "localhost", "no..name"];
    watch.wanted.send_replace(wanted(&[], &names));
    let seen = watch.until(|seen| seen.looked_up.names.len() == 4).await;
    let resolved = |name: &str| -> Vec<String> {
        seen.resolved[name]
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(resolved("192.0.2.7"), ["192.0.2.7"]);
    assert_eq!(resolved("[2001:db8::7]"), ["2001:db8::7"]);
    assert!(resolved("localhost").contains(&"127.0.0.1".to_owned()));
    assert!(resolved("no..name").is_empty());
    watch.wanted.send_replace(wanted(&[], &["192.0.2.7"]));
    watch
        .until(|seen| seen.resolved.len() == 1 && seen.looked_up.names.len() == 1)
        .await;
}

#[tokio::test]
async fn what_was_wanted_from_the_beginning_is_looked_up() {
    let api = Api::start().await;
    let settings = super::settings(&[]);
    let client = api.client();
    let mut watch = Watch::start(|_, observed| {
        let (_, wanted) = tokio::sync::watch::channel(wanted(&[], &["192.0.2.7"]));
        ballast_controller::observe::cluster::watch(
            client,
            Arc::clone(&settings),
            Earlier::default(),
            wanted,
            observed,
        )
    });
    // Whoever wanted it is gone: that disturbs nobody.
    watch.until(|seen| seen.resolved.len() == 1).await;
}

impl Watch {
    /// In how many of the states that were sent a Secret was forbidden.
    fn forbidden(&self) -> usize {
        let all = self.all.lock().expect("a test that is set up");
        let is_forbidden = |secret: &Secret| *secret == Secret::Forbidden;
        let with = all
            .iter()
            .filter(|seen| seen.secrets.values().any(is_forbidden));
        with.count()
    }
}

fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').expect("a key");
    Key::new(namespace, name)
}

fn wanted(secrets: &[&str], names: &[&str]) -> Wanted {
    Wanted {
        secrets: secrets.iter().map(|text| key(text)).collect(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Wanted::default()
    }
}

fn secret(content: &str) -> Value {
    json!({
        "kind": "Secret", "apiVersion": "v1",
        "metadata": {"namespace": "shop", "name": "tls"}, "data": {"tls.crt": content},
    })
}

fn content<'a>(seen: &'a Observed, name: &str) -> Option<&'a [u8]> {
    match seen.secrets.get(&key(name))? {
        Secret::Readable(material) => material.entry("tls.crt"),
        Secret::Forbidden => None,
    }
}
