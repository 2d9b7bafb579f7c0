//! The part of a Service that the publisher writes, in the shortest form in which it can be compared with what must be there:
//! less than 100 bytes a Service. `convert` makes it of every Service; `cluster::status` reads it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ManagedFieldsEntry, ObjectMeta};
use serde::Serialize;
use serde_json::Value;

use crate::allocation::{ALLOCATED, Allocated, Allocation, GIVEN_BY};
use crate::request::is_ours;

/// The state that the publisher compares with the state that it would write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publication {
    /// The resourceVersion of the Service: of two states of one Service, the one with the higher number is the newer one.
    pub version: u64,
    /// A hash of `status.loadBalancer.ingress`.
    pub ingress: u64,
    /// The condition `ballast.dev/Programmed`.
    pub programmed: Option<KnownCondition>,
    /// The condition `ballast.dev/Allocated`.
    pub allocated: Option<KnownCondition>,
    /// A hash of the namespace of the Ballast that gave, where that condition says it.
    given_by: Option<u64>,
    /// The first resourceVersion that this process saw with the present [`Allocated`]: a node that has seen this version, or a
    /// newer one, knows what the Service was given.
    pub allocated_at: u64,
    /// The fields that this program wrote, as `managedFields` records it.
    pub owned: Owned,
}

/// A condition of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCondition {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// A hash of its reason and its message.
    pub text: u64,
    /// `lastTransitionTime`, in seconds of Unix time.
    pub since: i64,
}

/// Fields of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// `status.loadBalancer.ingress`. It stays recorded when the API server itself removes the addresses.
    pub ingress: bool,
    pub finalizer: bool,
    pub annotations: BTreeSet<String>,
    /// Our conditions of which another manager has written a part, by type: an apply that does not list such a condition would
    /// leave that part.
    pub shared_conditions: BTreeSet<&'static str>,
}

impl Publication {
    /// The part of a Service with this metadata and this status.
    pub(super) fn of(meta: &ObjectMeta, status: Option<&core::ServiceStatus>) -> Self {
        let balancer = status.and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref());
        let version = meta.resource_version.as_deref();
        let version = version
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        Self {
            version,
            ingress: hash(ingress.unwrap_or_default()),
            programmed: condition(status, PROGRAMMED).map(KnownCondition::of),
            allocated: condition(status, ALLOCATED).map(KnownCondition::of),
            given_by: condition(status, ALLOCATED).and_then(|condition| {
                let mut words = condition.message.split_ascii_whitespace();
                words.find_map(|word| word.strip_prefix(GIVEN_BY)).map(hash)
            }),
            allocated_at: version,
            owned: Owned::of(meta.managed_fields.as_deref().unwrap_or_default()),
        }
    }
}

impl Publication {
    /// A hash of all that the publisher writes into the status.
    pub(crate) fn text(&self) -> u64 {
        let text = |condition: Option<KnownCondition>| condition.map(|one| (one.is_true, one.text));
        hash(&(self.ingress, text(self.programmed), text(self.allocated)))
    }

    /// Whether the Ballast of this namespace says that it gave what the Service has.
    pub(crate) fn given_by(&self, namespace: &str) -> bool {
        self.given_by == Some(hash(namespace))
    }
}

/// The condition of a type.
fn condition<'a>(status: Option<&'a core::ServiceStatus>, kind: &str) -> Option<&'a Condition> {
    let conditions = status?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// What a Service with this status was given.
pub(super) fn allocated(status: Option<&core::ServiceStatus>) -> Option<Allocated> {
    let condition = condition(status, ALLOCATED).filter(|condition| condition.status == "True")?;
    Some(Allocated {
        allocation: Allocation::read(&condition.message)?,
        since: condition.last_transition_time.0.as_second(),
    })
}

impl KnownCondition {
    fn of(condition: &Condition) -> Self {
        Self {
            is_true: condition.status == "True",
            text: hash(&[&condition.reason, &condition.message]),
            since: condition.last_transition_time.0.as_second(),
        }
    }
}

impl Owned {
    fn of(entries: &[ManagedFieldsEntry]) -> Self {
        let mut owned = Self::default();
        let types = [PROGRAMMED, ALLOCATED];
        let keys = types.map(|kind| (kind, format!("k:{{\"type\":\"{kind}\"}}")));
        for entry in entries {
            let Some(fields) = entry.fields_v1.as_ref().map(|fields| &fields.0) else {
                continue;
            };
            let has = |list: &str, element: &str| {
                let list = fields.pointer(list);
                list.is_some_and(|list| list.get(element).is_some())
            };
            if !is_ours(entry) {
                let shared = keys.iter();
                let shared = shared.filter(|(_, key)| has("/f:status/f:conditions", key));
                owned
                    .shared_conditions
                    .extend(shared.map(|(kind, _)| *kind));
                continue;
            }
            owned.ingress |= fields.pointer(INGRESS).is_some();
            owned.finalizer |= has("/f:metadata/f:finalizers", &format!("v:\"{FINALIZER}\""));
            let annotations = fields.pointer("/f:metadata/f:annotations");
            let names = annotations.and_then(Value::as_object).into_iter().flatten();
            let names = names.filter_map(|(name, _)| name.strip_prefix("f:"));
            owned.annotations.extend(names.map(str::to_owned));
        }
        owned
    }
}

/// A hash that is good within this process.
pub(crate) fn hash<T: Serialize + ?Sized>(value: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Every type that is hashed here has a JSON form.
    hasher.write(&serde_json::to_vec(value).unwrap_or_default());
    hasher.finish()
}

/// The published addresses, in the form that `managedFields` has.
pub(super) const INGRESS: &str = "/f:status/f:loadBalancer/f:ingress";
/// The finalizer of load balancers, by the name that the cloud providers use.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The type of our condition.
pub(crate) const PROGRAMMED: &str = "ballast.dev/Programmed";
