//! `managedFields` of a Service: the fields that earlier builds wrote by other means than server-side apply become fields of
//! our apply, so that an apply which does not list them removes them. Pure; called by [`super::apply`].

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Value, json};

use crate::request::{MANAGER, is_ours, is_ours_by_apply};

/// The merge patch that does so; `None`: every field of ours is one of our apply already.
pub(super) fn adoption(live: &core::Service, uid: &str) -> Option<Value> {
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let (ours, others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_ours);
    if ours.iter().all(is_ours_by_apply) {
        return None;
    }
    let mut applied: BTreeMap<Option<String>, ManagedFieldsEntry> = BTreeMap::new();
    for entry in ours {
        let fields = entry.fields_v1.clone();
        let fields = fields.map_or(Value::Null, |fields| fields.0);
        let one = applied.entry(entry.subresource.clone()).or_insert(entry);
        one.manager = Some(MANAGER.to_owned());
        one.operation = Some("Apply".to_owned());
        let all = one.fields_v1.get_or_insert_with(|| FieldsV1(json!({})));
        unite(&mut all.0, fields);
    }
    let entries: Vec<_> = others.into_iter().chain(applied.into_values()).collect();
    Some(json!({"metadata": {
        "uid": uid,
        "resourceVersion": live.metadata.resource_version,
        "managedFields": entries,
    }}))
}

/// Adds one set of fields to another.
fn unite(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        for (name, fields) in from {
            unite(into.entry(name).or_insert_with(|| json!({})), fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(entries: &Value) -> core::Service {
        let service = json!({"metadata": {
            "name": "web", "uid": "u-1", "resourceVersion": "7", "managedFields": entries,
        }});
        serde_json::from_value(service).unwrap()
    }

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn fields_of_earlier_builds_become_fields_of_our_apply() {
        let told = json!({"f:metadata": {"f:annotations": {"f:ballast.dev/told": {}}}});
        let both = json!({"f:metadata": {
            "f:annotations": {"f:ballast.dev/told": {}},
            "f:finalizers": {"v:\"x\"": {}},
        }});
        let theirs = entry("person", "Update", &json!({"f:spec": {"f:type": {}}}));
        let finalizers = json!({"f:metadata": {"f:finalizers": {"v:\"x\"": {}}}});
        let earlier = entry("ballast-controller", "Update", &finalizers);
        let applied = entry(MANAGER, "Apply", &told);
        let patch = adoption(&live(&json!([earlier, theirs, applied])), "u-1");
        assert_eq!(
            patch.unwrap()["metadata"],
            json!({
                "uid": "u-1", "resourceVersion": "7",
                "managedFields": [theirs, entry(MANAGER, "Apply", &both)],
            })
        );
    }

    #[test]
    fn what_was_applied_stays_as_it_is() {
        let applied = entry(MANAGER, "Apply", &json!({}));
        let theirs = entry("person", "Update", &json!({}));
        assert_eq!(adoption(&live(&json!([applied, theirs])), "u-1"), None);
    }
}
