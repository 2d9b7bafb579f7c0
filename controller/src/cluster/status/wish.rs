//! What one Service must look like, how it looks, and the patches between the two. Pure; called by [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::owned;
use crate::cluster::events::MARK;
use crate::decide::{Ingress, Status, Verdict};
use crate::observe::{self, Service};

/// What a Service of ours must look like.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    /// What became of it.
    pub(super) verdict: Verdict,
    ingress: Vec<core::LoadBalancerIngress>,
    why: String,
    /// Those to write, and those to take away.
    annotations: BTreeMap<String, Option<String>>,
    finalizer: Finalizer,
    /// The field manager whose published addresses are replaced, if the Service is taken over.
    pub(super) taken_from: Option<String>,
}

/// What becomes of the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finalizer {
    /// It must be there.
    Put,
    /// It must not be there: the Service is ours no more.
    Take,
    /// A flag does without: the finalizer that an earlier process put there goes, and no other one.
    TakeOurs,
    /// None of our business.
    Leave,
}

/// What an API server does with `ipMode`, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode<'a> {
    /// It keeps it, as far as is known.
    Kept,
    /// It drops it. With a suffix, names are published in place of addresses.
    Dropped(Option<&'a str>),
}

/// The patches that make a Service what is wished.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Patches {
    /// Of the object: finalizers and annotations.
    pub(super) object: Option<Value>,
    /// Of its status.
    pub(super) status: Option<Value>,
}

impl Wish {
    /// `None`: nothing of it is ours. `mark` is the hash of what people are told about it.
    pub(super) fn of(
        status: &Status,
        service: &Service,
        mark: Option<&String>,
        finalizer: bool,
        mode: Mode<'_>,
    ) -> Option<Self> {
        let is_ours = matches!(status.verdict, Verdict::Served | Verdict::Pending);
        let written = status.annotations.iter();
        let written = written.map(|(key, value)| (key.clone(), Some(value.clone())));
        let stale = status.stale_annotations.iter();
        let mut annotations: BTreeMap<_, _> = stale
            .map(|key| (key.clone(), None))
            .chain(written)
            .collect();
        let is_marked = service.annotations.contains_key(MARK);
        match (status.verdict, mark) {
            (Verdict::LeftAlone, _) => {}
            (Verdict::Served | Verdict::Pending | Verdict::Routed, Some(mark)) => {
                annotations.insert(MARK.to_owned(), Some(mark.clone()));
            }
            _ if is_marked => {
                annotations.insert(MARK.to_owned(), None);
            }
            _ => {}
        }
        if !is_ours && status.verdict != Verdict::Released && annotations.is_empty() {
            return None;
        }
        let entries = status.ingress.iter().filter(|_| is_ours);
        Some(Self {
            verdict: status.verdict,
            ingress: entries
                .map(|entry| published(entry, status, service, mode))
                .collect(),
            why: status.why.clone(),
            taken_from: status.taken_from.clone(),
            annotations,
            finalizer: match (status.verdict, finalizer) {
                (Verdict::Released, _) => Finalizer::Take,
                (_, true) if is_ours => Finalizer::Put,
                (_, false) if is_ours => Finalizer::TakeOurs,
                _ => Finalizer::Leave,
            },
        })
    }

    /// This wish without its annotations: those of the Service stay as they are.
    pub(super) fn without_annotations(&self) -> Self {
        Self {
            annotations: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Whether what was observed can be what is wished: what is not observed is not looked at.
    pub(super) fn is_seen(&self, service: &Service) -> bool {
        let published = self.ingress.iter().filter_map(place);
        let is_published = published.eq(service.ingress.iter().map(String::as_str))
            // It stays until there is something of ours in its place.
            || (self.ingress.is_empty() && service.rival.is_some());
        let is_kept = match self.finalizer {
            Finalizer::Put => service.finalizer,
            Finalizer::Take => !service.finalizer,
            // Whose it is, is seen when it is looked at; each process does that once.
            Finalizer::TakeOurs | Finalizer::Leave => true,
        };
        let known = &service.annotations;
        let is_said = |(key, value): (&String, &Option<String>)| known.get(key) == value.as_ref();
        (is_published || !self.has_status()) && is_kept && self.annotations.iter().all(is_said)
    }

    /// The addresses and names that are published.
    pub(super) fn places(&self) -> Vec<&str> {
        self.ingress.iter().filter_map(place).collect()
    }

    /// Whether an address is published with its mode.
    pub(super) fn has_modes(&self) -> bool {
        self.ingress.iter().any(|entry| entry.ip_mode.is_some())
    }

    /// What is missing in `live`. `now` is for the condition.
    pub(super) fn patches(&self, live: &core::Service, mode: Mode<'_>, now: &str) -> Patches {
        Patches {
            object: self.object_patch(live),
            status: self.status_patch(live, mode, now),
        }
    }

    pub(super) fn object_patch(&self, live: &core::Service) -> Option<Value> {
        let meta = &live.metadata;
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        let is_there = finalizers.iter().any(|name| name == FINALIZER);
        let mut patch = serde_json::Map::new();
        let goes = match self.finalizer {
            Finalizer::Take => is_there,
            Finalizer::TakeOurs => is_there && owned::finalizer(live),
            Finalizer::Put | Finalizer::Leave => false,
        };
        // It cannot be added to what is being deleted.
        let comes = self.finalizer == Finalizer::Put && !is_there;
        if goes {
            finalizers.retain(|name| name != FINALIZER);
            patch.insert("finalizers".to_owned(), json!(finalizers));
        } else if comes && meta.deletion_timestamp.is_none() {
            finalizers.push(FINALIZER.to_owned());
            patch.insert("finalizers".to_owned(), json!(finalizers));
        }
        let known = meta.annotations.as_ref();
        let missing: BTreeMap<&String, &Option<String>> = self
            .annotations
            .iter()
            .filter(|(key, value)| known.and_then(|known| known.get(*key)) != value.as_ref())
            .collect();
        if !missing.is_empty() {
            patch.insert("annotations".to_owned(), json!(missing));
        }
        if patch.is_empty() {
            return None;
        }
        let version = json!(meta.resource_version);
        patch.insert("resourceVersion".to_owned(), version);
        Some(json!({"metadata": patch}))
    }

    fn status_patch(&self, live: &core::Service, mode: Mode<'_>, now: &str) -> Option<Value> {
        if !self.has_status() {
            return None;
        }
        let mut patch = serde_json::Map::new();
        // What another controller published stays until there is something to publish in its place.
        let is_kept = self.ingress.is_empty()
            && self.verdict != Verdict::Released
            && !ingress(live).is_empty()
            && !owned::ingress(live);
        if !self.is_published(live, mode) && !is_kept {
            let ingress = match self.ingress.is_empty() {
                true => Value::Null,
                false => json!(self.ingress),
            };
            patch.insert("loadBalancer".to_owned(), json!({"ingress": ingress}));
        }
        if let Some(conditions) = self.conditions(live, now) {
            patch.insert("conditions".to_owned(), conditions);
        }
        if patch.is_empty() {
            return None;
        }
        let version = &live.metadata.resource_version;
        Some(json!({"metadata": {"resourceVersion": version}, "status": patch}))
    }

    /// Whether `live` publishes what is wished.
    pub(super) fn is_published(&self, live: &core::Service, mode: Mode<'_>) -> bool {
        let mut found = ingress(live).to_vec();
        let mut wished = self.ingress.clone();
        if mode != Mode::Kept {
            for entry in found.iter_mut().chain(&mut wished) {
                entry.ip_mode = None;
            }
        }
        found == wished
    }

    /// All conditions as they must be, with those of others as they are; `None`: they are so.
    fn conditions(&self, live: &core::Service, now: &str) -> Option<Value> {
        let found = conditions(live);
        let own = found.iter().find(|one| one.type_ == PROGRAMMED);
        let others = found.iter().filter(|one| one.type_ != PROGRAMMED);
        let mut all: Vec<Value> = others.map(|one| json!(one)).collect();
        let Some((status, reason)) = self.condition() else {
            return own.map(|_| json!(all));
        };
        let message: String = self.message().chars().take(LONGEST).collect();
        let is_so = |own: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            own.status == status && own.reason == reason && own.message == message
        };
        if own.is_some_and(|own| is_so(&own)) {
            return None;
        }
        let since = own.filter(|own| own.status == status);
        let since = since.map_or_else(|| json!(now), |own| json!(own.last_transition_time));
        all.push(json!({
            "type": PROGRAMMED,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }));
        Some(json!(all))
    }

    fn condition(&self) -> Option<(&'static str, &'static str)> {
        match self.verdict {
            Verdict::Served if self.ingress.is_empty() => Some(("False", "Waiting")),
            Verdict::Served => Some(("True", "Served")),
            Verdict::Pending => Some(("False", "Pending")),
            _ => None,
        }
    }

    fn message(&self) -> String {
        let places = self.places().join(", ");
        match (self.why.as_str(), places.as_str()) {
            ("", "") => "no node serves it yet".to_owned(),
            ("", places) => format!("published at {places}"),
            (why, _) => why.to_owned(),
        }
    }

    /// Whether its status is ours, or was.
    fn has_status(&self) -> bool {
        !matches!(self.verdict, Verdict::Routed | Verdict::LeftAlone)
    }
}

/// What `live` publishes.
pub(super) fn ingress(live: &core::Service) -> &[core::LoadBalancerIngress] {
    let balancer = live
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    balancer
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

/// The address or the name of an entry.
pub(super) fn place(entry: &core::LoadBalancerIngress) -> Option<&str> {
    entry.ip.as_deref().or(entry.hostname.as_deref())
}

/// What our condition says of `live`: whether it is served; `None`: it never was ours.
pub(super) fn was_served(live: &core::Service) -> Option<bool> {
    let own = conditions(live)
        .iter()
        .find(|one| one.type_ == PROGRAMMED)?;
    Some(own.status == "True")
}

/// The name of the other controller that wrote the published addresses of `live` last. Kubernetes does not record which
/// controller has removed all addresses.
pub(super) fn rival(live: &core::Service) -> Option<String> {
    let entries = live.metadata.managed_fields.as_deref();
    match observe::rival(entries.unwrap_or_default()) {
        Some(rival) => Some(rival.manager),
        None if ingress(live).is_empty() => Some("another controller".to_owned()),
        None => None,
    }
}

pub(super) fn conditions(
    live: &core::Service,
) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
    let status = live.status.as_ref();
    status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
}

fn published(
    entry: &Ingress,
    status: &Status,
    service: &Service,
    mode: Mode<'_>,
) -> core::LoadBalancerIngress {
    let (ip, hostname) = match (entry, mode) {
        (Ingress::Ip(address), Mode::Dropped(Some(suffix))) => {
            (None, Some(named(*address, suffix)))
        }
        (Ingress::Ip(address), _) => (Some(address.to_string()), None),
        (Ingress::Hostname(name), _) => (None, Some(name.clone())),
    };
    core::LoadBalancerIngress {
        ip_mode: ip.as_ref().map(|_| "Proxy".to_owned()),
        ip,
        hostname,
        ports: ports(status, service),
    }
}

/// `10.0.0.1.nip.io`; an IPv6 address with dashes, as such services have it.
fn named(address: IpAddr, suffix: &str) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}.{suffix}"),
        IpAddr::V6(address) => {
            let dashed = address.to_string().replace(':', "-");
            let (first, last) = (dashed.starts_with('-'), dashed.ends_with('-'));
            let zero = |is: bool| if is { "0" } else { "" };
            format!("{}{dashed}{}.{suffix}", zero(first), zero(last))
        }
    }
}

/// Every port, if any of them has an error: the API wants all or none.
fn ports(status: &Status, service: &Service) -> Option<Vec<core::PortStatus>> {
    if status.port_errors.is_empty() {
        return None;
    }
    let mut seen = BTreeSet::new();
    let ports = service
        .ports
        .iter()
        .filter(|port| seen.insert((port.number, port.protocol)));
    let ports = ports.map(|port| {
        let error = status
            .port_errors
            .iter()
            .find(|error| error.port == port.number && error.protocol == port.protocol.word());
        core::PortStatus {
            port: i32::from(port.number),
            protocol: port.protocol.word().to_owned(),
            error: error.map(|error| error.error.to_owned()),
        }
    });
    Some(ports.collect())
}

/// As the cloud providers call it.
pub(super) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Our condition.
pub(super) const PROGRAMMED: &str = "ballast.dev/Programmed";
/// Characters of its message.
const LONGEST: usize = 8_000;

#[cfg(test)]
mod tests;
