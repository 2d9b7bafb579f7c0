//! What of a Service is Ballast's, and the patches that take it back: for an uninstallation. Pure; called by `run::release`.

use k8s_openapi::api::core::v1 as core;
use serde_json::{Map, Value, json};

use super::owned;
use super::wish::{self, FINALIZER, PROGRAMMED};
use crate::cluster::events::MARK;
use crate::decide::LAST_GOOD;

/// What is taken back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Back {
    /// In words.
    pub(crate) what: Vec<String>,
    /// Unpublished first: who waits for the finalizer waits for that.
    pub(crate) status: Option<Value>,
    /// Of the object.
    pub(crate) object: Option<Value>,
}

/// `None`: nothing of it is ours.
pub(crate) fn take_back(live: &core::Service) -> Option<Back> {
    let mut what = Vec::new();
    let version = &live.metadata.resource_version;
    let mut status = Map::new();
    let published: Vec<&str> = wish::ingress(live).iter().filter_map(wish::place).collect();
    if !published.is_empty() && owned::ingress(live) {
        status.insert("loadBalancer".to_owned(), json!({"ingress": null}));
        what.push(format!("the published {}", published.join(", ")));
    }
    let conditions = wish::conditions(live);
    let is_marked = conditions.iter().any(|one| one.type_ == PROGRAMMED);
    if is_marked {
        let others = conditions.iter().filter(|one| one.type_ != PROGRAMMED);
        let others: Vec<_> = others.collect();
        status.insert("conditions".to_owned(), json!(others));
        what.push(format!("the condition {PROGRAMMED}"));
    }
    let mut object = Map::new();
    let finalizers = live.metadata.finalizers.as_deref().unwrap_or_default();
    let is_held = finalizers.iter().any(|name| name == FINALIZER);
    if is_held && owned::finalizer(live) {
        let others = finalizers.iter().filter(|name| *name != FINALIZER);
        let others: Vec<_> = others.collect();
        object.insert("finalizers".to_owned(), json!(others));
        what.push(format!("the finalizer {FINALIZER}"));
    }
    let mut annotations = Map::new();
    for (name, _) in live.metadata.annotations.iter().flatten() {
        if [MARK, LAST_GOOD].contains(&name.as_str()) || owned::annotation(live, name) {
            annotations.insert(name.clone(), Value::Null);
            what.push(format!("the annotation {name}"));
        }
    }
    if !annotations.is_empty() {
        object.insert("annotations".to_owned(), annotations.into());
    }
    if what.is_empty() {
        return None;
    }
    let status = (!status.is_empty())
        .then(|| json!({"metadata": {"resourceVersion": version}, "status": status}));
    let object = (!object.is_empty()).then(|| {
        object.insert("resourceVersion".to_owned(), json!(version));
        json!({"metadata": object})
    });
    Some(Back {
        what,
        status,
        object,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::MANAGER;

    fn service(managers: &Value) -> core::Service {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "resourceVersion": "7",
                "finalizers": ["example.com/theirs", FINALIZER],
                "annotations": {"theirs": "x", MARK: "m", "o/load-balancer-address": "10.0.0.1"},
                "managedFields": managers,
            },
            "status": {
                "loadBalancer": {"ingress": [{"ip": "10.0.0.1", "ipMode": "Proxy"}]},
                "conditions": [
                    {"type": "example.com/Theirs", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": PROGRAMMED, "status": "True", "reason": "Served", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
            },
        }))
        .unwrap()
    }

    fn entry(manager: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn what_we_wrote_goes_and_what_others_wrote_stays() {
        let finalizer = format!("v:\"{FINALIZER}\"");
        let ours = json!({
            "f:metadata": {
                "f:finalizers": {finalizer: {}},
                "f:annotations": {"f:o/load-balancer-address": {}},
            },
            "f:status": {"f:loadBalancer": {"f:ingress": {}}},
        });
        let live = service(&json!([entry("person", &json!({})), entry(MANAGER, &ours)]));
        let back = take_back(&live).unwrap();
        let status = back.status.unwrap();
        assert_eq!(status["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(status["status"]["loadBalancer"], json!({"ingress": null}));
        let left = status["status"]["conditions"].as_array().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0]["type"], "example.com/Theirs");
        let object = back.object.unwrap();
        assert_eq!(
            object["metadata"],
            json!({
                "resourceVersion": "7",
                "finalizers": ["example.com/theirs"],
                "annotations": {MARK: null, "o/load-balancer-address": null},
            })
        );
        assert_eq!(back.what.len(), 5, "{:?}", back.what);
    }

    #[test]
    fn addresses_and_a_finalizer_of_others_stay() {
        let theirs = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
        let live = service(&json!([
            entry("rival", &theirs),
            entry(MANAGER, &json!({}))
        ]));
        let back = take_back(&live).unwrap();
        assert!(back.status.unwrap()["status"].get("loadBalancer").is_none());
        let object = back.object.unwrap();
        assert_eq!(
            object["metadata"],
            json!({"resourceVersion": "7", "annotations": {MARK: null}})
        );
    }

    #[test]
    fn a_finalizer_that_was_there_already_goes_with_the_service_that_only_we_publish() {
        let element = format!("v:\"{FINALIZER}\"");
        let theirs = json!({"f:metadata": {"f:finalizers": {element: {}}}});
        let back = take_back(&service(&json!([entry("kubectl", &theirs)]))).unwrap();
        let left = &back.object.unwrap()["metadata"]["finalizers"];
        assert_eq!(*left, json!(["example.com/theirs"]));
    }

    #[test]
    fn a_service_that_carries_nothing_of_ours_is_nothing_to_take_back() {
        let live = serde_json::from_value(json!({
            "metadata": {"name": "web", "finalizers": [FINALIZER], "annotations": {"a": "b"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        }));
        assert_eq!(take_back(&live.unwrap()), None);
    }
}
