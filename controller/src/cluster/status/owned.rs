//! What of a Service the API server says that we wrote. Pure; asked by [`super::wish`] and [`super::back`].

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use super::wish::{self, FINALIZER};
use crate::request;

/// A field that an entry says was written.
pub(super) fn field<'a>(entry: &'a ManagedFieldsEntry, path: &[&str]) -> Option<&'a Value> {
    let fields = &entry.fields_v1.as_ref()?.0;
    path.iter().try_fold(fields, |found, part| found.get(*part))
}

/// Whether an entry is of this program.
pub(super) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref().is_some_and(request::is_ours)
}

/// What was written in our name, whatever of it.
pub(super) fn entries(live: &core::Service) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let entries = live.metadata.managed_fields.iter().flatten();
    entries.filter(|entry| is_ours(entry))
}

/// Whether the published addresses are ours.
pub(super) fn ingress(live: &core::Service) -> bool {
    entries(live).any(|entry| field(entry, INGRESS).is_some())
}

/// Whether the finalizer is ours: we put it there, or it was there already and no other controller publishes the Service.
pub(super) fn finalizer(live: &core::Service) -> bool {
    let element = format!("v:\"{FINALIZER}\"");
    let path = ["f:metadata", "f:finalizers", &*element];
    let all = live.metadata.managed_fields.iter().flatten();
    let mut others = all.filter(|entry| !is_ours(entry));
    entries(live).any(|entry| field(entry, &path).is_some())
        || (wish::was_served(live).is_some() && others.all(|entry| field(entry, INGRESS).is_none()))
}

/// Whether an annotation is ours.
pub(super) fn annotation(live: &core::Service, name: &str) -> bool {
    let element = format!("f:{name}");
    let path = ["f:metadata", "f:annotations", &*element];
    entries(live).any(|entry| field(entry, &path).is_some())
}

pub(super) const INGRESS: &[&str] = &["f:status", "f:loadBalancer", "f:ingress"];
