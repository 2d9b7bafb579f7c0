//! Tells nodes what they cannot know, by annotations of their Leases, which a node reads in the answer to its next renewal: that they run
//! with other settings than the publisher, and how many nodes there are about.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::leader::Leading;
use crate::lease::{self, NODES, PUBLISHER_SETTINGS};
use crate::observe;
use crate::reconcile::Decisions;
use crate::request::{self, patiently};
use crate::settings::Settings;

/// Writes for as long as the process lives.
pub(crate) async fn tell_nodes(
    client: Client,
    namespace: String,
    mut decisions: Decisions,
    settings: watch::Receiver<Arc<Settings>>,
    mut leading: Leading,
) {
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    // What each node was told.
    let mut told: BTreeMap<String, Annotations> = BTreeMap::new();
    loop {
        tokio::select! {
            changed = decisions.changed() => if changed.is_err() {
                return;
            },
            // At each renewal, too: what failed is tried again.
            () = leading.changed() => {}
        }
        let Some(decision) = decisions.borrow_and_update().clone() else {
            continue;
        };
        if !leading.is_now() {
            told.clear();
            continue;
        }
        let ours = lease::hash_of_settings(&settings.borrow().in_common());
        let live = decision.observed.leases.iter().flatten();
        let count = decision.observed.leases.as_ref().map_or(0, BTreeMap::len);
        for (node, theirs) in live {
            let news = news(theirs, &ours, count);
            if news.is_empty() {
                told.remove(node);
            } else if told.get(node) != Some(&news) {
                let patch = Patch::Merge(json!({"metadata": {"annotations": news}}));
                let params = request::patch();
                match patiently(leases.patch(&lease::of_node(node), &params, &patch)).await {
                    Ok(_) => drop(told.insert(node.clone(), news)),
                    Err(error) => {
                        tracing::debug!(%error, node, "cannot write what a node is to know into its Lease");
                    }
                }
            }
        }
    }
}

type Annotations = BTreeMap<&'static str, String>;

/// What a node is to be told, of so many.
fn news(lease: &observe::Lease, settings: &str, nodes: usize) -> Annotations {
    let mut news = Annotations::new();
    if !lease.settings.is_empty() && lease.settings != settings {
        news.insert(PUBLISHER_SETTINGS, settings.to_owned());
    }
    let crowd = lease::crowd(nodes, lease.told_nodes);
    if crowd != lease.told_nodes {
        news.insert(NODES, crowd.to_string());
    }
    news
}
