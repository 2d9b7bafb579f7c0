//! Which nodes serve a Service, at which addresses, and which of them may be published.

use std::net::IpAddr;

use super::annotations::{
    ANTREA, EXOSCALE, Lookup, METALLB, METALLB_DEPRECATED, OPENSTACK, OWN, Reader, knobs, values,
};
use super::context::Context;
use super::endpoints;
use super::nodes::{self, ThisNode};
use super::notice::Reason;
use super::site::{ListenAt, Reach, Site};
use crate::allocation::At;
use crate::observe::{Family, Key, Node};
use crate::settings::Role;

/// Where a LoadBalancer is served, and where it may be published.
pub(super) struct Placement<'a> {
    pub(super) reach: Reach,
    pub(super) site: Site,
    /// Whether each node serves only the endpoints on itself.
    pub(super) strict: bool,
    /// The nodes whose addresses may be published, once they serve the Service.
    pub(super) candidates: Vec<&'a Node>,
    /// Strict, and no node has a ready endpoint: published addresses stay, and none is added.
    pub(super) no_ready_node: bool,
    /// Strict, and this node has no ready endpoint.
    pub(super) without_endpoints_here: bool,
    pub(super) families: Vec<Family>,
    pub(super) hostnames: Option<Vec<String>>,
}

/// Why a Service has no placement.
pub(super) struct Unplaced {
    pub(super) why: String,
    /// The addresses that it asks for, if that is known.
    pub(super) asks_at: Option<At>,
}

/// Finds the placement of a Service.
pub(super) fn find<'a>(
    context: &Context<'a>,
    reader: &mut Reader<'_>,
) -> Result<Placement<'a>, Unplaced> {
    let chosen = reader.value(&knobs::LB_NODES, None);
    let internal = internal(reader);
    let requested = requested(reader).map_err(|why| Unplaced { why, asks_at: None })?;
    let asks_at = match &requested {
        Some(addresses) => At::of(addresses),
        None if internal => At::NodeInternal,
        None => At::Node,
    };
    let strict = strict(reader);
    let hostnames = reader.value(&knobs::HOSTNAME, None);
    // These depend on other nodes than this one.
    reader.needs_nodes |= chosen.is_some() || internal || requested.is_some();
    let chosen_nodes = context.nodes.selected(chosen.as_ref());
    let is_host = matches!(context.nodes.here, ThisNode::Standalone);
    let mut candidates = chosen_nodes.clone();
    candidates.retain(|node| nodes::may_be_published(node));
    if candidates.is_empty() && !is_host {
        reader.warn(
            Reason::UnAvailableLoadBalancer,
            "There are no available nodes for LoadBalancer",
        );
    }
    if chosen_nodes.is_empty() && !is_host {
        let why = NO_NODE.to_owned();
        let asks_at = Some(asks_at);
        return Err(Unplaced { why, asks_at });
    }
    // A node listens before it is published: its address is published once it reports that it serves the Service.
    let families = families(reader);
    let found = match requested {
        Some(requested) => at_requested(context, reader, requested, &chosen_nodes, internal),
        None if internal => at_internal(context, reader, &chosen_nodes, &families),
        None => anywhere(reader, &chosen_nodes, &families),
    };
    let (reach, at) = found.map_err(|why| Unplaced {
        why,
        asks_at: Some(asks_at),
    })?;
    let has_ready = |node: &&Node| has_endpoints(context, &reader.service.key, node);
    let ready: Vec<&Node> = match strict {
        false => candidates.clone(),
        true => candidates.iter().copied().filter(has_ready).collect(),
    };
    let without_endpoints_here = match context.nodes.here {
        ThisNode::LoadBalancer(node) => strict && !has_ready(&node),
        ThisNode::Standalone | ThisNode::NotSelected => false,
    };
    let no_ready_node = ready.is_empty();
    Ok(Placement {
        reach,
        site: Site { chosen, at },
        strict,
        candidates: if no_ready_node { candidates } else { ready },
        no_ready_node,
        without_endpoints_here,
        families,
        hostnames,
    })
}

/// Whether a node has a ready endpoint on itself. The publisher watches no endpoints, so nodes report it.
fn has_endpoints(context: &Context<'_>, service: &Key, node: &Node) -> bool {
    if context.settings.role != Role::Publisher {
        let slices = context.slices.of_service(service);
        return endpoints::has_ready_on(slices, &node.name);
    }
    let leases = context.observed.leases.as_ref();
    let lease = leases.and_then(|leases| leases.get(&node.name));
    let exception = lease.and_then(|lease| lease.exceptions.services.get(&service.to_string()));
    exception.is_none_or(|exception| !exception.idle)
}

/// Whether the Service is internal. An invalid annotation means yes.
pub(super) fn internal(reader: &mut Reader<'_>) -> bool {
    match reader.lookup(&knobs::INTERNAL, None) {
        Lookup::Value(found) => found.value,
        Lookup::Bad => {
            reader.warn(
                Reason::InvalidAnnotation,
                "only internal addresses are used until the value of `internal` is valid",
            );
            true
        }
        Lookup::Absent => false,
    }
}

/// Whether the mode of Local is strict. An event says how Local is understood.
fn strict(reader: &mut Reader<'_>) -> bool {
    let strict = reader.is_on(&knobs::LOCAL_MODE, None);
    if !reader.service.local {
        return false;
    }
    let message = match strict {
        true => {
            "externalTrafficPolicy Local, strict: a load balancer node serves the endpoints on itself only"
        }
        false => {
            "externalTrafficPolicy Local, edge: connections go straight to the pods on any node; their readiness decides, and the PROXY protocol tells them the client's address"
        }
    };
    reader.note(Reason::ExternalTrafficPolicyLocal, message);
    strict
}

/// The requested addresses: those of the spec, else of an annotation. An invalid request is an error.
fn requested(reader: &mut Reader<'_>) -> Result<Option<Vec<IpAddr>>, String> {
    let spec = reader.service.load_balancer_ip.clone();
    let annotation = match reader.lookup(&knobs::ADDRESSES, None) {
        Lookup::Value(found) => Some(found),
        Lookup::Bad if spec.is_none() => {
            return Err("the requested address is invalid".to_owned());
        }
        Lookup::Bad | Lookup::Absent => None,
    };
    let Some(spec) = spec else {
        return Ok(annotation.map(|found| found.value));
    };
    let parsed = match values::addresses(&spec) {
        Ok(addresses) => addresses,
        Err(why) => {
            unavailable(reader, format!("spec.loadBalancerIP {spec:?} {why}"));
            return Err("the requested address is invalid".to_owned());
        }
    };
    if let Some(found) = annotation
        && found.value != parsed
    {
        let message = format!(
            "spec.loadBalancerIP {spec} and {} differ; the spec counts",
            found.key
        );
        reader.warn(Reason::AnnotationConflict, message);
    }
    Ok(Some(parsed))
}

/// Listens at the requested addresses, if load balancer nodes have all of them.
fn at_requested(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    requested: Vec<IpAddr>,
    chosen: &[&Node],
    internal: bool,
) -> Result<(Reach, ListenAt), String> {
    for address in &requested {
        let is_held = |node: &&Node| match internal {
            true => node.internal.contains(address),
            false => nodes::holds(node, *address),
        };
        if !chosen.iter().any(is_held) {
            let why = match internal && context.nodes.holds(*address) {
                true => format!("{address} is not an internal address"),
                false => format!("no pool holds {address}"),
            };
            return Err(unavailable(reader, why));
        }
    }
    Ok((Reach::At(requested.clone()), ListenAt::Requested(requested)))
}

/// Listens at every address of the nodes, if any of them can be published.
fn anywhere(
    reader: &mut Reader<'_>,
    chosen: &[&Node],
    families: &[Family],
) -> Result<(Reach, ListenAt), String> {
    if !chosen.is_empty() && published(chosen, families, nodes::public).is_empty() {
        reader.needs_nodes = true;
        let words = families.iter().map(|family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        });
        let words = words.collect::<Vec<_>>().join(" or ");
        let why = format!("no load balancer node has an {words} address");
        return Err(unavailable(reader, why));
    }
    Ok((Reach::Everywhere, ListenAt::Wildcard))
}

/// Listens at the internal addresses of the nodes only.
fn at_internal(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    chosen: &[&Node],
    families: &[Family],
) -> Result<(Reach, ListenAt), String> {
    let addresses = published(chosen, families, |node, family| {
        nodes::first(&node.internal, family)
    });
    if addresses.is_empty() || matches!(context.nodes.here, ThisNode::Standalone) {
        let why = "no load balancer node has an InternalIP".to_owned();
        return Err(unavailable(reader, why));
    }
    Ok((Reach::At(addresses), ListenAt::Internal(families.to_vec())))
}

/// One address of each node for each IP family, in the order of the families.
pub(super) fn published(
    nodes: &[&Node],
    families: &[Family],
    address: impl Fn(&Node, Family) -> Option<IpAddr>,
) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for family in families {
        for found in nodes.iter().filter_map(|node| address(node, *family)) {
            if !addresses.contains(&found) {
                addresses.push(found);
            }
        }
    }
    addresses
}

fn families(reader: &Reader<'_>) -> Vec<Family> {
    match reader.service.families.as_slice() {
        [] => vec![Family::V4],
        families => families.to_vec(),
    }
}

/// Warns that the Service gets no address. Returns the reason.
fn unavailable(reader: &mut Reader<'_>, why: String) -> String {
    let key = &reader.service.key;
    let message = format!("Failed to allocate IP for \"{key}\": {why}");
    reader.warn(Reason::AllocationFailed, message);
    why
}

/// Notes keys that will have an effect once there are address pools.
pub(super) fn note_pool_keys(reader: &mut Reader<'_>) {
    // Reading them warns of values that differ.
    reader.knob(&knobs::POOL, None);
    reader.knob(&knobs::SHARING, None);
    let service = reader.service;
    let waits = |(key, value): &(&String, &String)| {
        let is_one = |(prefix, rest): &(&str, &str)| key.strip_prefix(prefix) == Some(rest);
        POOL_KEYS.iter().any(is_one)
            && reader.reads(key)
            && !(key.ends_with("/load-balancer-id") && **value == service.uid)
    };
    let waiting = service.annotations.iter().filter(waits);
    let mut keys: Vec<String> = waiting.map(|(key, _)| key.clone()).collect();
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
            "these take effect with address pools: {}; until then node addresses are used",
            keys.join(", ")
        );
        reader.note(Reason::WaitsForPools, message);
    }
}

const POOL_KEYS: &[(&str, &str)] = &[
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

pub(super) const NO_NODE: &str = "no load balancer node is selected for it";
