//! Notifies nodes that have other settings than the publisher: the publisher writes a hash of its own settings to the Lease of such a
//! node. The node reads that hash in the answer to its next renewal, so that it need not ask. At rest nothing is written.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::leader::Leading;
use crate::lease::{self, PUBLISHER_SETTINGS};
use crate::metrics::Metrics;
use crate::observe::Observed;
use crate::reconcile::Decisions;
use crate::request::{self, patiently};
use crate::settings::Settings;

/// The task that notifies nodes, while this process leads.
pub(crate) struct SettingsNotifier {
    pub(crate) client: Client,
    /// The namespace of Leases.
    pub(crate) namespace: String,
    pub(crate) decisions: Decisions,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) leading: Leading,
    pub(crate) metrics: Arc<Metrics>,
}

impl SettingsNotifier {
    /// Notifies nodes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        loop {
            if !self.notify().await {
                // The account of an older rc.yaml may not write Leases of nodes.
                sleep(RETRY_PAUSE).await;
                continue;
            }
            tokio::select! {
                changed = self.decisions.changed() => if changed.is_err() {
                    return;
                },
                () = self.leading.changed() => {}
            }
        }
    }

    /// Notifies every node that must be notified. Returns whether that succeeded.
    async fn notify(&mut self) -> bool {
        let decision = self.decisions.borrow_and_update().clone();
        let Some(decision) = decision.filter(|_| self.leading.is_now()) else {
            return true;
        };
        let claims = self.settings.borrow().claims();
        let settings = lease::hash_of_settings(&claims);
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        for node in to_notify(&decision.observed, &settings) {
            if !self.leading.is_now() {
                // The next leader notifies the others.
                return true;
            }
            let patch = json!({"metadata": {"annotations": {PUBLISHER_SETTINGS: settings}}});
            let (name, params) = (lease::of_node(node), request::patch());
            let patch = Patch::Merge(&patch);
            let written = patiently(leases.patch(&name, &params, &patch)).await;
            if let Err(error) = written
                && !request::is_outdated(&error)
            {
                self.metrics.api_failed(&error);
                tracing::debug!(%error, node, "cannot notify a node that its settings differ");
                return false;
            }
        }
        true
    }
}

/// The nodes with other settings that were not notified of these, and the nodes that were notified of others before.
fn to_notify<'a>(observed: &'a Observed, settings: &str) -> impl Iterator<Item = &'a str> {
    let leases = observed.leases.iter().flatten();
    let to_notify = leases.filter(move |(_, lease)| match &lease.publisher_settings {
        Some(notified) => notified != settings,
        None => !lease.settings.is_empty() && lease.settings != settings,
    });
    to_notify.map(|(node, _)| node.as_str())
}

const RETRY_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::decide::Desired;
    use crate::observe;
    use crate::reconcile::Decision;

    /// The Lease of a node with these settings, which was notified of others.
    fn lease(settings: &str, told: Option<&str>) -> Arc<observe::Lease> {
        Arc::new(observe::Lease {
            settings: settings.to_owned(),
            publisher_settings: told.map(str::to_owned),
            ..observe::Lease::default()
        })
    }

    #[test]
    fn a_node_is_notified_once_and_again_when_the_publishers_settings_change() {
        let node = |settings: &str, told: Option<&str>| {
            let observed = Observed {
                leases: Some(BTreeMap::from([("edge".to_owned(), lease(settings, told))])),
                ..Observed::default()
            };
            to_notify(&observed, "ours").count() == 1
        };
        assert!(!node("ours", None));
        assert!(!node("", None), "an earlier build");
        assert!(node("theirs", None));
        assert!(!node("theirs", Some("ours")));
        assert!(node("theirs", Some("before")));
        assert!(
            node("ours", Some("before")),
            "else the node would take us for others"
        );
        assert!(!node("ours", Some("ours")));
    }

    #[tokio::test]
    async fn a_process_that_leads_no_more_notifies_no_further_node() {
        let (lead, leading) = watch::channel(Some(Duration::MAX));
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        // An API server that takes the leadership away with its first answer.
        let server = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            lead.send_replace(None);
            let lease =
                r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}}"#;
            async move { Ok::<_, Infallible>(Response::new(Body::from(lease.as_bytes().to_vec()))) }
        });
        let nodes = ["a", "b"].map(|name| (name.to_owned(), lease("theirs", None)));
        let decision = Decision {
            observed: Arc::new(Observed {
                leases: Some(BTreeMap::from(nodes)),
                ..Observed::default()
            }),
            desired: Arc::new(Desired::default()),
            is_leaving: false,
        };
        let (_, decisions) = watch::channel(Some(decision));
        let (_, settings) = watch::channel(Arc::new(Settings::without_flags()));
        let mut notifier = SettingsNotifier {
            client: Client::new(server, "ballast"),
            namespace: "ballast".to_owned(),
            decisions,
            settings,
            leading: Leading::as_told(leading),
            metrics: Arc::default(),
        };
        assert!(notifier.notify().await);
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }
}
