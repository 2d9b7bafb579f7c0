//! Tells nodes that they run with other settings than the publisher: by an annotation of a node's Lease, which the node reads in the
//! answer to its next renewal.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::leader::Leading;
use crate::lease::{self, PUBLISHER_SETTINGS};
use crate::reconcile::Decisions;
use crate::request::{self, patiently};
use crate::settings::Settings;

/// Writes for as long as the process lives.
pub(crate) async fn tell_settings(
    client: Client,
    namespace: String,
    mut decisions: Decisions,
    settings: watch::Receiver<Arc<Settings>>,
    mut leading: Leading,
) {
    let leases: Api<Lease> = Api::namespaced(client, &namespace);
    // What each node was told.
    let mut told: BTreeMap<String, String> = BTreeMap::new();
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
        for (node, theirs) in decision.observed.leases.iter().flatten() {
            if theirs.settings.is_empty() || theirs.settings == ours {
                told.remove(node);
            } else if told.get(node) != Some(&ours) {
                let patch =
                    Patch::Merge(json!({"metadata": {"annotations": {PUBLISHER_SETTINGS: ours}}}));
                let params = request::patch();
                match patiently(leases.patch(&lease::of_node(node), &params, &patch)).await {
                    Ok(_) => drop(told.insert(node.clone(), ours.clone())),
                    Err(error) => {
                        tracing::debug!(%error, node, "cannot tell a node that its settings differ");
                    }
                }
            }
        }
    }
}
