//! The part of one Service that Ballast writes, as it must be: compared with the Service as it is, and as the objects that
//! server-side apply takes. Pure; called by [`super`], and by the uninstallation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::allocation::{ALLOCATED, Allocation, GIVEN_BY};
use crate::decide::{Allotment, Ingress, LAST_GOOD, Status, Verdict, is_foreign};
use crate::observe::{FINALIZER, KnownCondition, PROGRAMMED, Service, hash};

/// The fields of a Service that are ours, as they must be.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cluster) struct DesiredStatus {
    pub(super) verdict: Verdict,
    ingress: Vec<core::LoadBalancerIngress>,
    /// The message of the condition `ballast.dev/Programmed`.
    message: String,
    /// Whether the nodes at which the Service is published are not heard of.
    is_unheard: bool,
    /// Whether its addresses are left to another controller for a while.
    is_yielded: bool,
    /// The addresses that an AddressReservation keeps from now on.
    pub(super) reserves: Vec<IpAddr>,
    /// The condition `ballast.dev/Allocated`.
    allotment: Option<Allotment>,
    /// Whether that condition goes. On a Service that is no LoadBalancer it may be another Ballast's.
    forgets: bool,
    /// The namespace of this installation, which that condition says then.
    own: String,
    /// All annotations that are ours.
    annotations: BTreeMap<String, String>,
    /// Annotations that must not be there, whichever manager wrote them: their names are ours.
    removed: BTreeSet<String>,
    has_finalizer: bool,
    /// Whether the finalizer goes though another manager put it there. A Service that was restored from a backup has ours by the
    /// tool that restored it, and its deletion must not wait for ever. It stays where another controller that publishes the Service
    /// has put it there too: that one removes it.
    takes_finalizer: bool,
    /// The field manager whose published addresses are replaced, if the Service is taken over.
    pub(super) taken_from: Option<String>,
}

/// A condition as it must be.
struct Condition {
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl DesiredStatus {
    /// `None`: nothing of the Service is ours. `service` is its newest known state, and `own` the namespace of this installation.
    pub(super) fn of(
        status: &Status,
        service: &Service,
        own: &str,
        wants_finalizer: bool,
        has_ip_mode: bool,
    ) -> Option<Self> {
        let verdict = status.verdict;
        let is_ours = matches!(verdict, Verdict::Served | Verdict::Pending);
        let written = status.annotations.clone();
        let removed = status.stale_annotations.clone();
        let forgets = verdict == Verdict::LeftAlone && service.publication.given_by(own);
        let is_untouched =
            written.is_empty() && removed.is_empty() && status.allotment.is_none() && !forgets;
        if !is_ours && verdict != Verdict::Released && is_untouched {
            return None;
        }
        // An apply removes the annotations of ours that it does not list.
        let mut annotations = match verdict {
            Verdict::Released => BTreeMap::new(),
            _ => annotations_of_ours(service),
        };
        annotations.retain(|name, _| !removed.contains(name));
        annotations.extend(written);
        let entries = status.ingress.iter().filter(|_| is_ours);
        let ingress = entries.map(|entry| published(entry, status, service, has_ip_mode));
        let ingress: Vec<_> = ingress.collect();
        Some(Self {
            verdict,
            message: message(&status.why, &ingress),
            is_unheard: status.is_unheard,
            is_yielded: false,
            reserves: status.reserves.clone(),
            allotment: status.allotment.clone().filter(|given| {
                is_ours || (verdict == Verdict::Routed && matches!(given, Allotment::Given(_)))
            }),
            forgets,
            own: own.to_owned(),
            ingress,
            annotations,
            removed,
            // A finalizer cannot be added once the deletion has begun.
            has_finalizer: is_ours && wants_finalizer && (service.finalizer || !service.deleting),
            takes_finalizer: verdict == Verdict::Released
                && (service.rival.is_none() || (service.deleting && !is_foreign(service))),
            taken_from: status.taken_from.clone(),
        })
    }

    /// A Service with nothing of ours, whatever it has now.
    pub(in crate::cluster) fn released(service: &Service) -> Self {
        let was_published = service.publication.programmed.is_some();
        Self {
            verdict: Verdict::Released,
            ingress: Vec::new(),
            message: String::new(),
            is_unheard: false,
            is_yielded: false,
            reserves: Vec::new(),
            allotment: None,
            forgets: false,
            own: String::new(),
            annotations: BTreeMap::new(),
            removed: BTreeSet::from([LAST_GOOD.to_owned()]),
            has_finalizer: false,
            takes_finalizer: was_published && service.rival.is_none(),
            taken_from: None,
        }
    }

    /// The same without addresses, which are left to another controller for a while. What that one has written stays.
    pub(super) fn yielded(&self, publisher: &str) -> Self {
        let message = format!(
            "not published: {publisher} writes the status of this Service again and again, and it is left alone for a while; {} is to be published",
            self.places().join(", ")
        );
        Self {
            ingress: Vec::new(),
            message: message.chars().take(LONGEST).collect(),
            is_yielded: true,
            ..self.clone()
        }
    }

    /// The same with the annotations that the Service has: where it has no room for others.
    pub(super) fn without_new_annotations(&self, service: &Service) -> Self {
        Self {
            annotations: annotations_of_ours(service),
            ..self.clone()
        }
    }

    /// Whether nothing has to be written.
    pub(super) fn is_in(&self, service: &Service) -> bool {
        self.is_in_metadata(service) && self.is_in_status(service)
    }

    /// Whether the finalizer and the annotations are as they must be.
    pub(super) fn is_in_metadata(&self, service: &Service) -> bool {
        let there = &service.annotations;
        let mut written = self.annotations.iter();
        let mut removed = self.removed.iter();
        (service.finalizer || !self.has_finalizer)
            && !self.loses_finalizer(service)
            && written.all(|(name, value)| there.get(name) == Some(value))
            && !removed.any(|name| there.contains_key(name))
            && (self.verdict != Verdict::Released || annotations_of_ours(service).is_empty())
    }

    /// Whether the published addresses and the condition are as they must be.
    pub(super) fn is_in_status(&self, service: &Service) -> bool {
        let found = &service.publication;
        let is_published = match self.ingress.is_empty() {
            // The addresses of another controller stay until there is an address of ours in their place.
            true => service.ingress.is_empty() || !found.owned.ingress,
            false => found.ingress == hash(&self.ingress),
        };
        let is_allocated = self.leaves_allocation(service);
        match self.has_addresses() {
            true => is_published && is_allocated && is_as(self.programmed(), found.programmed),
            false => !self.has_status() || is_allocated,
        }
    }

    /// The allocation that is to be written, if the Service has another one or none.
    pub(super) fn gives(&self, service: &Service) -> Option<&Allocation> {
        match &self.allotment {
            Some(Allotment::Given(given)) if !self.leaves_allocation(service) => Some(given),
            _ => None,
        }
    }

    /// Whether the condition `ballast.dev/Allocated` is as it must be.
    fn leaves_allocation(&self, service: &Service) -> bool {
        if let (Verdict::Routed, Some(Allotment::Given(given)), Some(found)) =
            (self.verdict, &self.allotment, &service.allocated)
        {
            // It may be given more by another Ballast.
            let found = &found.allocation;
            return found.at == given.at
                && found.ports.is_superset(&given.ports)
                && found.routes.is_superset(&given.routes);
        }
        is_as(self.allocated(), service.publication.allocated)
    }

    /// Whether a finalizer that is there has to go.
    fn loses_finalizer(&self, service: &Service) -> bool {
        let goes = service.publication.owned.finalizer || self.takes_finalizer;
        service.finalizer && !self.has_finalizer && goes
    }

    /// The parts that have to go, in words, of a Service that must have nothing of ours.
    pub(in crate::cluster) fn removes(&self, service: &Service) -> Vec<String> {
        let mut parts = Vec::new();
        let found = &service.publication;
        if found.owned.ingress && !service.ingress.is_empty() {
            parts.push(format!("the published {}", service.ingress.join(", ")));
        }
        let conditions = [(PROGRAMMED, found.programmed), (ALLOCATED, found.allocated)];
        let conditions = conditions.iter().filter(|(_, found)| found.is_some());
        parts.extend(conditions.map(|(kind, _)| format!("the condition {kind}")));
        if self.loses_finalizer(service) {
            parts.push(format!("the finalizer {FINALIZER}"));
        }
        let is_ours = |name: &&String| {
            found.owned.annotations.contains(*name) || self.removed.contains(*name)
        };
        let annotations = service.annotations.keys().filter(is_ours);
        parts.extend(annotations.map(|name| format!("the annotation {name}")));
        parts
    }

    /// The object to apply.
    pub(super) fn metadata(&self, service: &Service) -> Value {
        let mut object = self.identity(service);
        let metadata = &mut object["metadata"];
        metadata["annotations"] = json!(self.annotations);
        if self.has_finalizer {
            metadata["finalizers"] = json!([FINALIZER]);
        }
        object
    }

    /// The object to apply to the subresource `status`, at a time in seconds of Unix time.
    pub(super) fn status(&self, service: &Service, now: i64) -> Value {
        let mut status = Map::new();
        if !self.ingress.is_empty() {
            status.insert("loadBalancer".to_owned(), json!({"ingress": self.ingress}));
        }
        let conditions = [
            (ALLOCATED, self.allocated(), self.given_since(service)),
            (
                PROGRAMMED,
                self.programmed(),
                self.programmed_since(service),
            ),
        ];
        let conditions = conditions
            .into_iter()
            .filter_map(|(kind, condition, since)| {
                let condition = condition?;
                let since = Timestamp::from_second(since.unwrap_or(now));
                Some(json!({
                    "type": kind,
                    "status": if condition.is_true { "True" } else { "False" },
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastTransitionTime": since.unwrap_or_default().to_string(),
                }))
            });
        let conditions: Vec<Value> = conditions.collect();
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), conditions.into());
        }
        let mut object = self.identity(service);
        if !self.leaves_allocation(service) {
            // What another leader has given meanwhile is not overwritten.
            object["metadata"]["resourceVersion"] = json!(service.publication.version.to_string());
        }
        object["status"] = status.into();
        object
    }

    /// The UID makes the API server refuse a write to another Service of that name.
    fn identity(&self, service: &Service) -> Value {
        let mut metadata = json!({
            "name": service.key.name,
            "namespace": service.key.namespace,
            "uid": service.uid,
        });
        if self.taken_from.is_some() {
            // The other controller must not have written since it was observed to be silent.
            metadata["resourceVersion"] = json!(service.publication.version.to_string());
        }
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    }

    /// The strategic merge patch that removes the finalizer and the annotations which an apply has left, because another manager
    /// owns them as well.
    pub(super) fn leftovers(&self, service: &Service) -> Option<Value> {
        let mut metadata = Map::new();
        if self.loses_finalizer(service) {
            let finalizers = json!([FINALIZER]);
            metadata.insert("$deleteFromPrimitiveList/finalizers".to_owned(), finalizers);
        }
        let there = |name: &&String| service.annotations.contains_key(*name);
        let annotations = self.removed.iter().filter(there);
        let annotations = annotations.map(|name| (name.clone(), Value::Null));
        let annotations: Map<String, Value> = annotations.collect();
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), annotations.into());
        }
        if metadata.is_empty() {
            return None;
        }
        metadata.insert("uid".to_owned(), json!(service.uid));
        Some(json!({"metadata": metadata}))
    }

    /// The strategic merge patch that removes our conditions, where an apply would leave a part of them.
    pub(super) fn shared_conditions(&self, service: &Service) -> Option<Value> {
        let found = &service.publication;
        let conditions = [
            (PROGRAMMED, found.programmed, self.programmed()),
            (ALLOCATED, found.allocated, self.allocated()),
        ];
        let goes = conditions.into_iter().filter(|(kind, found, desired)| {
            let is_shared = service.publication.owned.shared_conditions.contains(kind);
            found.is_some() && is_shared && self.has_status() && desired.is_none()
        });
        let goes = goes.map(|(kind, ..)| json!({"$patch": "delete", "type": kind}));
        let goes: Vec<Value> = goes.collect();
        (!goes.is_empty())
            .then(|| json!({"metadata": {"uid": service.uid}, "status": {"conditions": goes}}))
    }

    /// The addresses and names that are published.
    pub(super) fn places(&self) -> Vec<&str> {
        self.ingress.iter().filter_map(place).collect()
    }

    /// Whether addresses are published that are not published yet.
    pub(super) fn grows(&self, service: &Service) -> bool {
        let places = self.places();
        places.len() > service.ingress.len()
            && service
                .ingress
                .iter()
                .all(|found| places.contains(&found.as_str()))
    }

    /// Whether it is published already, and is to be at more addresses.
    pub(super) fn only_grows(&self, service: &Service) -> bool {
        !service.ingress.is_empty() && self.grows(service) && self.leaves_allocation(service)
    }

    /// The condition `ballast.dev/Programmed`.
    fn programmed(&self) -> Option<Condition> {
        let (is_true, reason) = match self.verdict {
            Verdict::Served if self.is_yielded => (false, "ForeignStatus"),
            Verdict::Served if self.ingress.is_empty() => (false, "Waiting"),
            Verdict::Served if self.is_unheard => (false, "NotHeard"),
            Verdict::Served => (true, "Published"),
            Verdict::Pending => (false, "Pending"),
            _ => return None,
        };
        Some(Condition {
            is_true,
            reason,
            message: self.message.clone(),
        })
    }

    /// Since when that condition has its status; `None`: since now.
    fn programmed_since(&self, service: &Service) -> Option<i64> {
        let found = service.publication.programmed;
        let is_true = self.programmed()?.is_true;
        found
            .filter(|found| found.is_true == is_true)
            .map(|found| found.since)
    }

    /// The condition `ballast.dev/Allocated`.
    fn allocated(&self) -> Option<Condition> {
        Some(match self.allotment.as_ref()? {
            Allotment::Given(allocation) => Condition {
                is_true: true,
                reason: "Allocated",
                message: match self.verdict {
                    Verdict::Routed => format!("{allocation} {GIVEN_BY}{}", self.own),
                    _ => allocation.to_string(),
                },
            },
            Allotment::Failed(why) => Condition {
                is_true: false,
                reason: "AllocationFailed",
                message: why.chars().take(LONGEST).collect(),
            },
        })
    }

    /// Since when the Service has these addresses, or has none; `None`: since now.
    fn given_since(&self, service: &Service) -> Option<i64> {
        let found = service.publication.allocated;
        match (self.allotment.as_ref()?, &service.allocated) {
            (Allotment::Given(given), Some(before)) => {
                (before.allocation.at == given.at).then_some(before.since)
            }
            (Allotment::Failed(_), None) => found.filter(|one| !one.is_true).map(|one| one.since),
            _ => None,
        }
    }

    /// Whether the published addresses of the Service are ours, or were.
    fn has_addresses(&self) -> bool {
        !matches!(self.verdict, Verdict::Routed | Verdict::LeftAlone)
    }

    /// Whether a part of the status of the Service is ours, or was.
    fn has_status(&self) -> bool {
        self.has_addresses() || self.allotment.is_some() || self.forgets
    }
}

/// The annotations of a Service that were written by this program.
fn annotations_of_ours(service: &Service) -> BTreeMap<String, String> {
    let names = service.publication.owned.annotations.iter();
    let found = names.filter_map(|name| service.annotations.get_key_value(name));
    let found = found.map(|(name, value)| (name.clone(), value.clone()));
    found.collect()
}

/// Whether a condition is as it must be.
fn is_as(desired: Option<Condition>, found: Option<KnownCondition>) -> bool {
    let desired = desired.map(|one| (one.is_true, hash(&[one.reason, one.message.as_str()])));
    desired == found.map(|found| (found.is_true, found.text))
}

/// The message of the condition.
fn message(why: &str, ingress: &[core::LoadBalancerIngress]) -> String {
    let places: Vec<&str> = ingress.iter().filter_map(place).collect();
    let message = match (why, places.as_slice()) {
        ("", []) => "no node serves it yet".to_owned(),
        ("", places) => format!("published at {}", places.join(", ")),
        (why, _) => why.to_owned(),
    };
    message.chars().take(LONGEST).collect()
}

/// The address or the name of an entry.
pub(super) fn place(entry: &core::LoadBalancerIngress) -> Option<&str> {
    entry.ip.as_deref().or(entry.hostname.as_deref())
}

fn published(
    entry: &Ingress,
    status: &Status,
    service: &Service,
    has_ip_mode: bool,
) -> core::LoadBalancerIngress {
    let (ip, hostname) = match entry {
        Ingress::Ip(address) => (Some(address.to_string()), None),
        Ingress::Hostname(name) => (None, Some(name.clone())),
    };
    core::LoadBalancerIngress {
        ip_mode: (ip.is_some() && has_ip_mode).then(|| "Proxy".to_owned()),
        ip,
        hostname,
        ports: ports(status, service),
    }
}

/// Every port, if any of them has an error: the API wants all or none.
fn ports(status: &Status, service: &Service) -> Option<Vec<core::PortStatus>> {
    if status.port_errors.is_empty() {
        return None;
    }
    let mut seen = BTreeSet::new();
    let ports = service.ports.iter();
    let ports = ports.filter(|port| seen.insert((port.number, port.protocol)));
    let ports = ports.map(|port| {
        let protocol = port.protocol.word();
        let mut errors = status.port_errors.iter();
        let error = errors.find(|one| one.port == port.number && one.protocol == protocol);
        core::PortStatus {
            port: i32::from(port.number),
            protocol: protocol.to_owned(),
            error: error.map(|error| error.error.to_owned()),
        }
    });
    Some(ports.collect())
}

/// Characters of the condition's message.
const LONGEST: usize = 8_000;

#[cfg(test)]
mod tests;
