//! Requests to the API server: their time limit and their parameters, and the meaning of its refusals.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::iter;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Api;
use kube::api::{ApiResource, ListParams, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::core::response::StatusCause;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// Gives a request a time limit.
pub(crate) async fn patiently<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match timeout(PATIENCE, request).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service("no answer in time".into())),
    }
}

/// Passes every object that `params` select to `take`, page by page.
pub(crate) async fn list<K>(
    api: &Api<K>,
    params: ListParams,
    mut take: impl FnMut(K),
) -> Result<(), kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = params.limit(PAGE);
    loop {
        let page = patiently(api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// A kind of objects of ours.
pub(crate) fn own_kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("ballast.dev", "v1", kind))
}

/// The parameters of a request that creates or replaces an object.
pub(crate) fn post() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    }
}

/// The parameters of a merge patch.
pub(crate) fn patch() -> PatchParams {
    PatchParams::apply(MANAGER)
}

/// The parameters of a server-side apply. With `force` a field that another manager owns becomes ours.
pub(crate) fn apply(force: bool) -> PatchParams {
    PatchParams { force, ..patch() }
}

/// An error with all its causes: "client error (Connect)" alone says little.
pub(crate) fn words(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |mut words, cause| {
        let cause = cause.to_string();
        if !words.contains(&cause) {
            words.push_str(": ");
            words.push_str(&cause);
        }
        words
    })
}

/// Whether a right is missing. A namespace that is being deleted takes no new objects, whatever the rights.
pub(crate) fn is_denied(error: &kube::Error) -> bool {
    let mut causes = causes(error);
    matches!(error, kube::Error::Api(status) if status.code == 403)
        && !causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether a write was meant for an object that is no more as it was observed: it was written to, is being deleted, is gone, or
/// another object has its name.
pub(crate) fn is_outdated(error: &kube::Error) -> bool {
    // No UID can be written, and no new finalizer once the deletion has begun.
    let fixed = ["metadata.uid", "metadata.finalizers"];
    let is_fixed = causes(error).any(|cause| fixed.contains(&cause.field.as_str()));
    is_fixed || matches!(error, kube::Error::Api(status) if [404, 409].contains(&status.code))
}

/// Whether an apply was refused because another manager owns one of its fields.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    conflicts(error).next().is_some()
}

/// The other controller that owns the published addresses, where an apply was refused for that reason.
pub(crate) fn conflicting_publisher(error: &kube::Error) -> Option<String> {
    let mut of_addresses =
        conflicts(error).filter(|cause| cause.field == ".status.loadBalancer.ingress");
    of_addresses.find_map(|cause| {
        // conflict with "NAME" with subresource "status" using v1
        let name = cause.message.split('"').nth(1)?;
        (!is_our_name(name)).then(|| name.to_owned())
    })
}

fn conflicts(error: &kube::Error) -> impl Iterator<Item = &StatusCause> {
    causes(error).filter(|cause| cause.reason == "FieldManagerConflict")
}

fn causes(error: &kube::Error) -> impl Iterator<Item = &StatusCause> {
    let details = match error {
        kube::Error::Api(status) => status.details.as_ref(),
        _ => None,
    };
    details.into_iter().flat_map(|details| &details.causes)
}

/// The API server's reason to refuse a request that it will refuse again.
pub(crate) fn refusal(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let passes = [404, 408, 409, 410, 429].contains(&status.code) || is_outdated(error);
    let is_refused = (400..500).contains(&status.code) && !passes;
    is_refused.then(|| match status.message.is_empty() {
        true => format!("{} {}", status.code, status.reason),
        false => status.message.clone(),
    })
}

/// Whether an API server does not know `ipMode` at all: an apply may list no field that it does not know.
pub(crate) fn knows_no_ip_mode(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.message.contains("ipMode: field not declared in schema"))
}

/// Whether a field manager is this program.
pub(crate) fn is_our_name(manager: &str) -> bool {
    manager == MANAGER
}

/// Whether an entry of `managedFields` is of this program.
pub(crate) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref().is_some_and(is_our_name)
}

/// The field manager of every write.
pub(crate) const MANAGER: &str = "ballast";
/// The reporting controller of events.
pub(crate) const REPORTER: &str = "ballast-controller";

/// Objects a page.
const PAGE: u32 = 500;
/// After this time a request counts as failed.
const PATIENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::*;

    /// An answer of an API server of Kubernetes 1.3x.
    fn answer(code: u16, message: &str, causes: &Value) -> kube::Error {
        let status = json!({"code": code, "message": message, "details": {"causes": causes}});
        let status: Status = serde_json::from_value(status).unwrap();
        kube::Error::Api(status.boxed())
    }

    fn conflict(manager: &str, field: &str) -> Value {
        let message = format!("conflict with \"{manager}\" with subresource \"status\" using v1");
        json!({"reason": "FieldManagerConflict", "message": message, "field": field})
    }

    #[test]
    fn a_conflict_names_the_controller_that_publishes() {
        let addresses = ".status.loadBalancer.ingress";
        let condition = ".status.conditions[type=\"ballast.dev/Programmed\"].message";
        let edit = conflict("kubectl-edit", condition);
        for (causes, names) in [
            (json!([conflict("old-cloud", addresses)]), Some("old-cloud")),
            (
                json!([edit, conflict("old-cloud", addresses)]),
                Some("old-cloud"),
            ),
            (json!([edit]), None),
            (json!([conflict("ballast", addresses)]), None),
        ] {
            let error = answer(409, "Apply failed", &causes);
            assert!(is_conflict(&error));
            assert_eq!(conflicting_publisher(&error).as_deref(), names);
        }
        let modified = answer(409, "the object has been modified", &json!([]));
        assert!(!is_conflict(&modified));
    }

    #[test]
    fn a_write_to_an_object_that_is_another_one_now_is_no_refusal() {
        let fixed = |field: &str| json!([{"reason": "FieldValueInvalid", "message": "is immutable", "field": field}]);
        for (code, causes, outdated) in [
            (404, json!([]), true),
            (409, json!([]), true),
            (422, fixed("metadata.uid"), true),
            (422, fixed("metadata.finalizers"), true),
            (422, fixed("metadata.annotations"), false),
        ] {
            let error = answer(code, "no", &causes);
            assert_eq!(is_outdated(&error), outdated, "{causes}");
            assert_eq!(refusal(&error).is_none(), outdated, "{causes}");
        }
    }

    #[test]
    fn a_namespace_that_goes_is_no_missing_right() {
        let gone = json!([{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated", "field": "metadata.namespace"}]);
        assert!(is_denied(&answer(403, "cannot create", &json!([]))));
        assert!(!is_denied(&answer(403, "being terminated", &gone)));
        assert!(!is_denied(&answer(409, "conflict", &json!([]))));
    }

    #[test]
    fn an_api_server_older_than_ip_mode_refuses_to_apply_it() {
        let message = "failed to create typed patch object (/web; /v1, Kind=Service): .status.loadBalancer.ingress[0].ipMode: field not declared in schema";
        assert!(knows_no_ip_mode(&answer(500, message, &json!([]))));
        assert!(!knows_no_ip_mode(&answer(500, "etcd is away", &json!([]))));
    }
}
