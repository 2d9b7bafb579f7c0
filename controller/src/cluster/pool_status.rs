//! Writes the status of AddressPools: how many addresses are used, and the faults of the pool. Only the leader writes, and only
//! what differs; the pools of other systems are never written. So the log says, too, which pool lists addresses of an older one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::leader::Leading;
use crate::clock;
use crate::decide::PoolRow;
use crate::metrics::Metrics;
use crate::pools::{PoolStatus, Source};
use crate::reconcile::Decisions;
use crate::request::{self, patiently};

/// The task that writes to pools.
pub(crate) struct PoolStatusWriter {
    pub(crate) client: Client,
    pub(crate) decisions: Decisions,
    pub(crate) leading: Leading,
    pub(crate) metrics: Arc<Metrics>,
}

/// What a pool has. One that was created again under its name is another pool.
#[derive(PartialEq)]
struct Written {
    created: Option<i64>,
    status: PoolStatus,
}

impl PoolStatusWriter {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let kind = request::own_kind("AddressPool");
        let pools = Api::all_with(self.client.clone(), &kind);
        // What was written, by the name of the pool.
        let mut written: BTreeMap<String, Written> = BTreeMap::new();
        let mut told = BTreeSet::new();
        loop {
            let mut pause = None;
            if self.leading.is_now() {
                let desired = self.desired();
                self.log_overlaps(&mut told);
                written.retain(|name, _| desired.contains_key(name));
                for (name, desired) in desired {
                    if written.get(&name) == Some(&desired) || !self.leading.is_now() {
                        continue;
                    }
                    match write(&pools, &name, &desired.status).await {
                        Ok(()) => {
                            written.insert(name, desired);
                        }
                        Err(error) => {
                            // One that is gone meanwhile is no fault.
                            if !request::is_outdated(&error) {
                                self.metrics.api_failed(&error);
                                tracing::debug!(%error, pool = name, "cannot write the status of a pool; trying again");
                            }
                            pause = Some(AFTER_FAILURE);
                        }
                    }
                }
            } else {
                written.clear();
            }
            // A pool that fills up is written now and then.
            sleep(PAUSE).await;
            tokio::select! {
                changed = self.decisions.changed() => if changed.is_err() {
                    return;
                },
                () = self.leading.changed() => {}
                () = clock::pause(pause) => {}
            }
        }
    }

    /// Logs each pool that does not give all that it lists, once.
    fn log_overlaps(&self, told: &mut BTreeSet<String>) {
        let decision = self.decisions.borrow();
        let pools = decision.iter().flat_map(|decision| &decision.desired.pools);
        let now: BTreeSet<String> = pools.filter_map(overlap).collect();
        for line in now.difference(told) {
            tracing::warn!("{line}");
        }
        *told = now;
    }

    /// What each AddressPool must have, by name.
    fn desired(&mut self) -> BTreeMap<String, Written> {
        let decision = self.decisions.borrow_and_update();
        let pools = decision.iter().flat_map(|decision| &decision.desired.pools);
        let own = pools.filter(|row| row.source == Source::Ballast);
        own.map(|row| {
            let written = Written {
                created: row.created,
                status: row.status.clone(),
            };
            (row.name.clone(), written)
        })
        .collect()
    }
}

/// The line about a pool that lists addresses of older ones.
fn overlap(row: &PoolRow) -> Option<String> {
    let conflicts = &row.status.conflicts;
    (!conflicts.is_empty()).then(|| {
        format!(
            "{} {} does not give all that it lists: an older pool has {}; take these addresses out of one of the two",
            row.source.kind(),
            row.name,
            conflicts.join(", ")
        )
    })
}

/// Writes a status, if the pool has another one.
async fn write(
    pools: &Api<DynamicObject>,
    name: &str,
    status: &PoolStatus,
) -> Result<(), kube::Error> {
    let found = patiently(pools.get(name)).await?;
    let before = found.data.get("status").unwrap_or(&Value::Null);
    let now = Timestamp::now().to_string();
    let status = with_times(&json!(status), before, &now);
    if status == *before {
        return Ok(());
    }
    let object = json!({
        "apiVersion": "ballast.dev/v1",
        "kind": "AddressPool",
        "metadata": {"name": name, "uid": found.metadata.uid},
        "status": status,
    });
    let (params, patch) = (request::apply(true), Patch::Apply(&object));
    patiently(pools.patch_status(name, &params, &patch))
        .await
        .map(drop)
}

/// A status with the time of each condition: that of the condition before, if it has the same status.
fn with_times(status: &Value, before: &Value, now: &str) -> Value {
    let mut status = status.clone();
    let conditions = status["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        let found = before["conditions"].as_array();
        let mut found = found.into_iter().flatten();
        let same = found.find(|one| {
            (&one["type"], &one["status"]) == (&condition["type"], &condition["status"])
        });
        let since = same.and_then(|one| one["lastTransitionTime"].as_str());
        condition["lastTransitionTime"] = since.unwrap_or(now).into();
    }
    status
}

/// The shortest pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_an_older_one_leaves_nothing_to_is_told_with_that_pool() {
        let row = |conflicts: &[&str]| PoolRow {
            name: "first-pool".to_owned(),
            source: Source::MetalLb,
            created: None,
            status: PoolStatus {
                total: 0,
                used: 0,
                free: 0,
                conflicts: conflicts.iter().map(|&one| one.to_owned()).collect(),
                conditions: Vec::new(),
            },
        };
        assert_eq!(overlap(&row(&[])), None);
        let line = overlap(&row(&["10.10.0.2-10.10.0.10 of ExternalIPPool edge"]));
        assert_eq!(
            line.as_deref(),
            Some(
                "IPAddressPool first-pool does not give all that it lists: an older pool has 10.10.0.2-10.10.0.10 of ExternalIPPool edge; take these addresses out of one of the two"
            )
        );
    }

    #[test]
    fn a_condition_has_its_time_until_its_status_changes() {
        let status = |ready: &str, reason: &str| json!({"total": 1, "conditions": [{"type": "Ready", "status": ready, "reason": reason}]});
        let first = with_times(&status("True", "Ready"), &Value::Null, "1");
        assert_eq!(first["conditions"][0]["lastTransitionTime"], "1");
        assert_eq!(with_times(&status("True", "Ready"), &first, "2"), first);
        let other = with_times(&status("True", "Other"), &first, "2");
        assert_eq!(other["conditions"][0]["lastTransitionTime"], "1");
        let last = with_times(&status("False", "BadRange"), &first, "3");
        assert_eq!(last["conditions"][0]["lastTransitionTime"], "3");
    }
}
