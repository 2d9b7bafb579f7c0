//! The kinds of objects that are read for pools and announcements, and how an object of each is read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use serde::Deserialize;
use serde_json::Value;

use super::super::object::WatchedKind;
use super::there::PATIENCE;
use crate::pools::{Pool, Reservation, read};

/// The `apiVersion` that an object of a manifest would have to have, if its kind has the name of one of [`KINDS`] and it is not of that
/// kind.
pub(in crate::observe) fn expected_version(object: &Value) -> Option<String> {
    let mut kinds = KINDS.iter();
    let kind = kinds.find(|one| object["kind"] == one.kind)?;
    let expected = format!("{}/{}", kind.group, kind.version);
    // MetalLB's older version of this kind has the same fields.
    let is_older = kind.kind == "BGPPeer" && object["apiVersion"] == "metallb.io/v1beta1";
    (object["apiVersion"] != *expected && !is_older).then_some(expected)
}

/// The kinds of objects, by the number of [`Custom`]: three of pools, that of reservations, and those about announcing.
pub(super) const KINDS: [PoolKind; 10] = [
    PoolKind::of("ballast.dev", "v1", "AddressPool", "addresspools"),
    PoolKind::of("metallb.io", "v1beta1", "IPAddressPool", "ipaddresspools"),
    PoolKind::of(
        "crd.antrea.io",
        "v1beta1",
        "ExternalIPPool",
        "externalippools",
    ),
    PoolKind::of(
        "ballast.dev",
        "v1",
        "AddressReservation",
        "addressreservations",
    ),
    PoolKind::of("ballast.dev", "v1", "Announcement", "announcements"),
    PoolKind::of(
        "metallb.io",
        "v1beta1",
        "L2Advertisement",
        "l2advertisements",
    ),
    PoolKind::of(
        "metallb.io",
        "v1beta1",
        "BGPAdvertisement",
        "bgpadvertisements",
    ),
    PoolKind::of("metallb.io", "v1beta2", "BGPPeer", "bgppeers"),
    PoolKind::of("metallb.io", "v1beta1", "Community", "communities"),
    PoolKind::of("metallb.io", "v1beta1", "BFDProfile", "bfdprofiles"),
];

pub(super) struct PoolKind {
    group: &'static str,
    version: &'static str,
    pub(super) kind: &'static str,
    plural: &'static str,
}

impl PoolKind {
    const fn of(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
        }
    }
}

/// An object of one of these kinds, as the API server has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(in crate::observe) struct Custom<const KIND: usize>(Value, #[serde(skip)] ObjectMeta);

impl<const KIND: usize> Resource for Custom<KIND> {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KINDS[KIND].kind.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        KINDS[KIND].group.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KINDS[KIND].version.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KINDS[KIND].plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.1
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.1
    }
}

/// A pool of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PoolOf<const KIND: usize>(pub(super) Arc<Pool>);

impl<const KIND: usize> WatchedKind for PoolOf<KIND> {
    type Object = Custom<KIND>;
    const NAME: &'static str = KINDS[KIND].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Custom<KIND>) -> Result<Option<Self>, String> {
        Ok(read::pool(&named(&KINDS[KIND], object.0)).map(|pool| Self(Arc::new(pool))))
    }
}

impl WatchedKind for Reservation {
    type Object = Custom<3>;
    const NAME: &'static str = KINDS[3].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Self::Object) -> Result<Option<Self>, String> {
        Ok(read::reservation(&named(&KINDS[3], object.0)))
    }
}

/// An object about announcing, or a pool whose labels such an object may select.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Announcing<const KIND: usize>(pub(super) Arc<Value>);

impl<const KIND: usize> WatchedKind for Announcing<KIND> {
    type Object = Custom<KIND>;
    const NAME: &'static str = KINDS[KIND].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Custom<KIND>) -> Result<Option<Self>, String> {
        let mut object = named(&KINDS[KIND], object.0);
        // What changes without a meaning.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| ["name", "namespace", "labels"].contains(&&**key));
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        Ok(Some(Self(Arc::new(object))))
    }
}

/// The object with its kind, which a list does not repeat for each of its objects.
fn named(kind: &PoolKind, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert(
            "apiVersion".into(),
            format!("{}/{}", kind.group, kind.version).into(),
        );
        map.insert("kind".into(), kind.kind.into());
    }
    object
}

/// The labels of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Namespace(pub(super) BTreeMap<String, String>);

impl WatchedKind for Namespace {
    type Object = core::Namespace;
    const NAME: &'static str = "Namespace";
    fn convert(object: core::Namespace) -> Result<Option<Self>, String> {
        Ok(Some(Self(object.metadata.labels.unwrap_or_default())))
    }
}

/// How many of [`KINDS`], from the first one, are pools and reservations.
pub(super) const OF_POOLS: usize = 4;
