//! Where a Service is reached: which nodes serve it, at which addresses, and what its status lists. Asked by `services`.

use std::net::{IpAddr, SocketAddr};

use ballast_core::table::Bind;

use super::annotations::{A, E, Look, M, M_OLD, O, OWN, Reader, values};
use super::claims::Reach;
use super::knobs;
use super::nodes::{self, Here};
use super::notice::Reason;
use super::status::Ingress;
use super::{World, endpoints};
use crate::observe::{Family, Node, Service};

/// Where a Service is reached.
pub(super) struct Place {
    pub(super) reach: Reach,
    /// The addresses of this node where it listens; `None`: it does not listen here.
    pub(super) here: Option<Listen>,
    pub(super) ingress: Vec<Ingress>,
    /// The addresses behind a hostname too.
    pub(super) addresses: Vec<IpAddr>,
    /// Local means this node's endpoints alone.
    pub(super) strict: bool,
}

/// At which addresses of this node.
pub(super) enum Listen {
    Wildcard,
    At(Vec<IpAddr>),
}

impl Listen {
    pub(super) fn binds(&self, port: u16) -> Vec<Bind> {
        match self {
            Self::Wildcard => vec![Bind::Any { port }],
            Self::At(addresses) => addresses
                .iter()
                .map(|address| Bind::Exact(SocketAddr::new(*address, port)))
                .collect(),
        }
    }
}

/// Finds the place of a Service, or says why it has none.
pub(super) fn find(world: &World<'_>, reader: &mut Reader<'_>) -> Result<Place, String> {
    let chosen = reader.knob(&knobs::LB_NODES, None).map(|found| found.value);
    let internal = internal(reader);
    let requested = requested(reader)?;
    let strict = strict(reader);
    let hostnames = reader.knob(&knobs::HOSTNAME, None).map(|found| found.value);
    let service = reader.service;
    let slices = world.slices.of_service(&service.key);
    let chosen_nodes = world.nodes.published(chosen.as_ref());
    let mut serving = chosen_nodes.clone();
    if strict {
        serving.retain(|node| endpoints::has_ready_on(slices, &node.name));
    }
    let is_host = matches!(world.nodes.here, Here::Host);
    if chosen_nodes.is_empty() && !is_host {
        reader.warn(
            Reason::UnAvailableLoadBalancer,
            "There are no available nodes for LoadBalancer",
        );
        return Err("no load balancer node is there for it".to_owned());
    }
    // What listens does not depend on who is live, or a node that comes would never be.
    let live: Vec<&Node> = serving
        .iter()
        .copied()
        .filter(|node| is_live(world, reader.service, node))
        .collect();
    let here = world.nodes.here.is_chosen(chosen.as_ref());
    let families = families(reader);
    let (reach, listen, mut addresses) = match requested {
        Some(requested) => at_requested(world, reader, &requested, &serving, &live, internal)?,
        None if internal => at_internal(world, reader, &serving, &live, &families)?,
        None => {
            let addresses = published(&live, &families, nodes::public);
            (Reach::Everywhere, Listen::Wildcard, addresses)
        }
    };
    if strict && serving.is_empty() {
        // Nobody has an endpoint now: what is published stays.
        addresses = service
            .ingress
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
    }
    Ok(Place {
        reach,
        here: here.then_some(listen),
        ingress: match hostnames {
            // Nobody is live: a name would lead nowhere either.
            Some(_) if addresses.is_empty() && !is_host => Vec::new(),
            Some(names) => names.into_iter().map(Ingress::Hostname).collect(),
            None => addresses.iter().copied().map(Ingress::Ip).collect(),
        },
        addresses,
        strict,
    })
}

/// Whether a node's address is published for a Service: its Lease lives, none of the Service's ports is an exception,
/// and it serves what it should. An address that is published stays while only the last is missing.
fn is_live(world: &World<'_>, service: &Service, node: &Node) -> bool {
    let Some(leases) = &world.observed.leases else {
        return true;
    };
    let frontends = format!("{}.{}:", service.key.namespace, service.key.name);
    let is_published = || {
        let mut published = service.ingress.iter().filter_map(|text| text.parse().ok());
        published.any(|address| nodes::holds(node, address))
    };
    leases.get(&node.name).is_some_and(|lease| {
        let excepted = lease
            .exceptions
            .iter()
            .any(|name| name.starts_with(&frontends));
        !excepted && (lease.agrees || is_published())
    })
}

/// Whether it may be seen inside only. What cannot be read says yes.
fn internal(reader: &mut Reader<'_>) -> bool {
    match reader.look(&knobs::INTERNAL, None) {
        Look::Value(found) => found.value,
        Look::Bad => {
            reader.warn(
                Reason::InvalidAnnotation,
                "until that can be read, only internal addresses are used",
            );
            true
        }
        Look::Silent => false,
    }
}

/// Whether Local is meant strictly; what it means here is said once.
fn strict(reader: &mut Reader<'_>) -> bool {
    let strict = reader
        .knob(&knobs::LOCAL_MODE, None)
        .is_some_and(|found| found.value);
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
    reader.say(Reason::ExternalTrafficPolicyLocal, message);
    strict
}

/// The addresses that were asked for: the spec's, else an annotation's. What cannot be read gets none.
fn requested(reader: &mut Reader<'_>) -> Result<Option<Vec<IpAddr>>, String> {
    let annotation = match reader.look(&knobs::ADDRESSES, None) {
        Look::Value(found) => Some(found),
        Look::Bad => return Err("the address that it asks for cannot be read".to_owned()),
        Look::Silent => None,
    };
    let Some(spec) = reader.service.load_balancer_ip.clone() else {
        return Ok(annotation.map(|found| found.value));
    };
    let parsed = match values::addresses(&spec) {
        Ok(addresses) => addresses,
        Err(why) => {
            reader.warn(
                Reason::AllocationFailed,
                failed(reader, &format!("spec.loadBalancerIP {spec:?} {why}")),
            );
            return Err("the address that it asks for cannot be read".to_owned());
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

type Where = (Reach, Listen, Vec<IpAddr>);

/// At the addresses that were asked for, if load balancer nodes hold them all.
fn at_requested(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    requested: &[IpAddr],
    serving: &[&Node],
    live: &[&Node],
    internal: bool,
) -> Result<Where, String> {
    for address in requested {
        let held = match internal {
            true => serving.iter().any(|node| node.internal.contains(address)),
            false => serving.iter().any(|node| nodes::holds(node, *address)),
        };
        if !held {
            let why = match internal && world.nodes.holds(*address) {
                true => format!("{address} is no internal address"),
                false => format!("no pool holds {address}"),
            };
            reader.warn(Reason::AllocationFailed, failed(reader, &why));
            return Err(why);
        }
    }
    let mut ours: Vec<IpAddr> = requested.to_vec();
    if let Here::Serves(node) = world.nodes.here {
        ours.retain(|address| nodes::holds(node, *address));
    }
    let mut addresses = requested.to_vec();
    addresses.retain(|address| live.iter().any(|node| nodes::holds(node, *address)));
    let families = &reader.service.families;
    addresses.sort_by_key(|address| {
        families
            .iter()
            .position(|family| *family == Family::of(*address))
    });
    Ok((Reach::At(requested.to_vec()), Listen::At(ours), addresses))
}

/// At the internal addresses of the nodes only.
fn at_internal(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    serving: &[&Node],
    live: &[&Node],
    families: &[Family],
) -> Result<Where, String> {
    let addresses = published(serving, families, |node, family| {
        nodes::first(&node.internal, family)
    });
    if addresses.is_empty() && !serving.is_empty() || matches!(world.nodes.here, Here::Host) {
        let why = "no load balancer node has an InternalIP";
        reader.warn(Reason::AllocationFailed, failed(reader, why));
        return Err(why.to_owned());
    }
    let ours = match world.nodes.here {
        Here::Serves(node) => families
            .iter()
            .filter_map(|family| nodes::first(&node.internal, *family))
            .collect(),
        Here::Host | Here::Idle => Vec::new(),
    };
    let live = published(live, families, |node, family| {
        nodes::first(&node.internal, family)
    });
    Ok((Reach::At(addresses), Listen::At(ours), live))
}

/// One address of each node for each family, the families in their order.
fn published(
    serving: &[&Node],
    families: &[Family],
    address: impl Fn(&Node, Family) -> Option<IpAddr>,
) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for family in families {
        for found in serving.iter().filter_map(|node| address(node, *family)) {
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

fn failed(reader: &Reader<'_>, why: &str) -> String {
    format!(
        "Failed to allocate IP for \"{}\": {why}",
        reader.service.key
    )
}

/// Says once which keys take effect with pools.
pub(super) fn wait_for_pools(reader: &mut Reader<'_>) {
    let mut keys = Vec::new();
    for key in POOL_KEYS
        .iter()
        .map(|(prefix, rest)| format!("{prefix}{rest}"))
    {
        if let Some(value) = reader.raw(&key)
            && !(key.ends_with("/load-balancer-id") && value == reader.service.uid)
        {
            keys.push(key);
        }
    }
    let switches = [
        reader.knob(&knobs::KEEP_ADDRESS, None),
        reader.knob(&knobs::ANTREA_SHARED, None),
    ];
    keys.extend(
        switches
            .into_iter()
            .flatten()
            .filter(|found| found.value)
            .map(|found| found.key),
    );
    let name = format!("{E}name");
    if reader.raw(&name).is_some()
        && reader
            .knob(&knobs::EXOSCALE_EXTERNAL, None)
            .is_some_and(|found| found.value)
    {
        keys.push(name);
    }
    if !keys.is_empty() {
        keys.sort();
        let message = format!(
            "these take effect with address pools: {}; until then node addresses are used",
            keys.join(", ")
        );
        reader.say(Reason::WaitsForPools, message);
    }
}

const POOL_KEYS: &[(&str, &str)] = &[
    (OWN, "address-pool"),
    (OWN, "sharing-key"),
    (M, "address-pool"),
    (M_OLD, "address-pool"),
    (M, "allow-shared-ip"),
    (M_OLD, "allow-shared-ip"),
    (A, "external-ip-pool"),
    (O, "class"),
    (O, "load-balancer-id"),
    (E, "id"),
    ("purelb.io/", "service-group"),
    ("lbipam.cilium.io/", "sharing-key"),
];
