//! What a Service asks of address pools, in the words of every system, and whether its addresses come from pools at all.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::annotations::{ANTREA, EXOSCALE, ID, METALLB, METALLB_DEPRECATED, OPENSTACK, OWN};
use super::annotations::{Reader, knobs};
use super::context::Context;
use super::nodes::Nodes;
use super::notice::Reason;
use crate::allocation::{Allocated, At, NodePort};
use crate::observe::Service;
use crate::pools::{Ask, Families, Given, Held, Terms, settled};

/// What a Service asks for, with its claims left open until they are known. `None`: its addresses are those of nodes.
pub(super) fn ask(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    wanted: &Wanted<'_>,
) -> Option<Asked> {
    let service = reader.service;
    let held = held(service);
    if context.pools.is_empty() && held.is_none() {
        note_keys_of_pools(reader);
        return None;
    }
    let requested = wanted.requested.unwrap_or_default().to_vec();
    let namespace = context
        .observed
        .pools
        .namespaces
        .get(&service.key.namespace);
    let sharing = sharing(reader, &requested);
    let ask = Ask {
        service: service.key.clone(),
        uid: service.uid.clone(),
        created: service.created,
        labels: match context.observed.pools.select_services() {
            true => service.labels.clone(),
            false => Default::default(),
        },
        namespace_labels: namespace.cloned().unwrap_or_default(),
        families: Families::of(&service.families, service.requires_both),
        requested,
        pools: reader.value(&knobs::POOL, None).unwrap_or_default(),
        sharing,
        strict: wanted.strict.then(|| service.selector.clone()),
        internal: wanted.internal,
        ports: BTreeSet::new(),
    };
    let held = held.map(|held| on_terms_of(&ask, held));
    let kept = held
        .as_ref()
        .and_then(|held| context.pools.kept(held, &ask));
    let has_node_addresses =
        kept.is_none() && has_node_addresses(&context.nodes, service, wanted.at_nodes);
    // What a Service has stays until it asks for something else.
    let stays = has_node_addresses && ask.pools.is_empty();
    (kept.is_some() || (!stays && context.pools.are_for(&ask))).then_some(Asked {
        ask,
        held,
        kept,
        settled: None,
        has_node_addresses,
    })
}

impl Asked {
    /// Adds the ports, once they are known.
    pub(super) fn complete(&mut self, context: &Context<'_>, ports: BTreeSet<NodePort>) {
        if let Some(held) = self.held.as_mut().filter(|held| held.pool.is_empty()) {
            // Another build, or another implementation, gave all its ports.
            held.ports.clone_from(&ports);
        }
        self.ask.ports = ports;
        let (pools, held) = (&context.pools, self.held.as_ref());
        self.kept = held.and_then(|held| pools.kept(held, &self.ask));
        self.settled = held.and_then(|held| settled(pools, held, &self.ask).map(Arc::new));
    }
}

/// What a Service has, on the terms on which it asks.
fn on_terms_of(ask: &Ask, held: Held) -> Held {
    let terms = Terms {
        internal: match held.pool.is_empty() {
            true => ask.internal,
            false => held.terms.internal,
        },
        ..Terms::of(ask)
    };
    Held { terms, ..held }
}

/// What a Service asks of pools.
pub(super) struct Asked {
    pub(super) ask: Ask,
    /// What it has of a pool.
    pub(super) held: Option<Held>,
    /// What it keeps of that.
    pub(super) kept: Option<Held>,
    /// What it has, if that is all that it asks for.
    pub(super) settled: Option<Arc<Given>>,
    /// Whether it has addresses of nodes now, which it keeps if no pool gives it others.
    pub(super) has_node_addresses: bool,
}

/// What a Service asks for, whether pools exist or not.
pub(super) struct Wanted<'r> {
    pub(super) requested: Option<&'r [IpAddr]>,
    pub(super) internal: bool,
    pub(super) strict: bool,
    /// The addresses that it has without pools.
    pub(super) at_nodes: &'r At,
}

/// The addresses that are kept for a later Service of the same name, once this one is deleted.
pub(super) fn to_keep(context: &Context<'_>, service: &Service) -> Vec<IpAddr> {
    let mut reader = Reader::new(service, context.observed, context.settings);
    let given = service.allocated.as_ref().and_then(|_| held(service));
    let kept = given.filter(|_| reader.is_on(&knobs::KEEP_ADDRESS, None));
    kept.map_or(Vec::new(), |held| held.addresses)
}

/// What a Service has of pools, as its status says it: ours, or that of an implementation that is taken over.
pub(super) fn held(service: &Service) -> Option<Held> {
    let Some(Allocated { allocation, since }) = &service.allocated else {
        let published = service.ingress.iter();
        let addresses: Vec<IpAddr> = published.filter_map(|text| text.parse().ok()).collect();
        return (!addresses.is_empty()).then(|| Held {
            addresses,
            pool: String::new(),
            ports: BTreeSet::new(),
            terms: Terms::default(),
            since: service.created,
        });
    };
    let (Some(pool), At::Addresses(addresses)) = (&allocation.pool, &allocation.at) else {
        return None;
    };
    Some(Held {
        addresses: addresses.clone(),
        pool: pool.name.clone(),
        ports: allocation.ports.clone(),
        terms: Terms {
            internal: pool.internal,
            ..Terms::default()
        },
        since: Some(*since),
    })
}

/// Whether a Service has the addresses of nodes that it has without pools.
pub(super) fn has_node_addresses(nodes: &Nodes<'_>, service: &Service, at: &At) -> bool {
    match &service.allocated {
        Some(Allocated { allocation, .. }) => allocation.pool.is_none() && allocation.at == *at,
        None => {
            let of_node = |text: &String| text.parse().is_ok_and(|one| nodes.holds(one));
            !service.ingress.is_empty() && service.ingress.iter().all(of_node)
        }
    }
}

/// The key by which a Service shares an address. Antrea's Services share the address that they request, OpenStack's and Exoscale's
/// that of the load balancer which they name.
fn sharing(reader: &mut Reader<'_>, requested: &[IpAddr]) -> Option<String> {
    if let Some(key) = reader.value(&knobs::SHARING, None) {
        return Some(key).filter(|key| !key.is_empty());
    }
    if reader.is_on(&knobs::ANTREA_SHARED, None) && !requested.is_empty() {
        let addresses: Vec<String> = requested.iter().map(IpAddr::to_string).collect();
        return Some(format!("{ANTREA}{}", addresses.join(",")));
    }
    let external = reader.is_on(&knobs::EXOSCALE_EXTERNAL, None);
    let id = format!("{EXOSCALE}id");
    let name = format!("{EXOSCALE}name");
    let name = Some(&*name).filter(|_| external);
    let mut keys = [Some(ID), Some(&*id), name].into_iter().flatten();
    let value = keys.find_map(|key| reader.raw(key));
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Notes keys that have an effect only where there are pools.
fn note_keys_of_pools(reader: &mut Reader<'_>) {
    // Reading them warns of values that differ.
    reader.knob(&knobs::POOL, None);
    reader.knob(&knobs::SHARING, None);
    let service = reader.service;
    let is_one = |(key, value): &(&String, &String)| {
        let is_key = |(prefix, rest): &(&str, &str)| key.strip_prefix(prefix) == Some(rest);
        KEYS.iter().any(is_key)
            && reader.reads(key)
            && !(key.ends_with("/load-balancer-id") && **value == service.uid)
    };
    let found = service.annotations.iter().filter(is_one);
    let mut keys: Vec<String> = found.map(|(key, _)| key.clone()).collect();
    for switch in [&knobs::KEEP_ADDRESS, &knobs::ANTREA_SHARED] {
        let found = reader.knob(switch, None).filter(|found| found.value);
        keys.extend(found.map(|found| found.key));
    }
    if reader.is_on(&knobs::EXOSCALE_EXTERNAL, None) {
        let name = format!("{EXOSCALE}name");
        keys.extend(reader.raw(&name).is_some().then_some(name));
    }
    if !keys.is_empty() {
        keys.sort();
        let message = format!(
            "without effect here: {} (there is no address pool, so node addresses are used)",
            keys.join(", ")
        );
        reader.note(Reason::AnnotationIgnored, message);
    }
}

const KEYS: &[(&str, &str)] = &[
    (OWN, "address-pool"),
    (OWN, "sharing-key"),
    (METALLB, "address-pool"),
    (METALLB_DEPRECATED, "address-pool"),
    (METALLB, "allow-shared-ip"),
    (METALLB_DEPRECATED, "allow-shared-ip"),
    (ANTREA, "external-ip-pool"),
    (OPENSTACK, "class"),
    (OPENSTACK, "load-balancer-id"),
    (EXOSCALE, "id"),
    ("purelb.io/", "service-group"),
    ("lbipam.cilium.io/", "sharing-key"),
];
