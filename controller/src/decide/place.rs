//! Where a Service is reached: which nodes serve it, at which addresses, and what its status lists. Asked by `services`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ballast_core::table::Bind;

use super::annotations::{A, E, Look, M, M_OLD, O, OWN, Reader, values};
use super::claims::Reach;
use super::knobs;
use super::nodes::{self, Here};
use super::notice::Reason;
use super::served::Expected;
use super::status::Ingress;
use super::{World, endpoints};
use crate::observe::{Family, Key, Node, Service};
use crate::settings::{Role, Selector};

/// Where a Service is reached.
pub(super) struct Place<'a> {
    pub(super) reach: Reach,
    pub(super) site: Site,
    /// Local means this node's endpoints alone.
    pub(super) strict: bool,
    /// Whose addresses may be published, once they serve it.
    candidates: Vec<&'a Node>,
    /// Strict, and no node has an endpoint now: what is published stays, and nothing comes.
    nobody: bool,
    /// Strict, and this node has no endpoint now.
    pub(super) idle_here: bool,
    families: Vec<Family>,
    hostnames: Option<Vec<String>>,
}

/// On which nodes something listens, and at which of their addresses.
pub(super) struct Site {
    chosen: Option<Selector>,
    at: Listen,
}

/// At which addresses of a node.
enum Listen {
    Wildcard,
    /// Those of these that are the node's.
    Requested(Vec<IpAddr>),
    /// Its first internal one of each of these families.
    Internal(Vec<Family>),
}

impl Site {
    /// On every node, at every address.
    pub(super) const EVERYWHERE: Self = Self {
        chosen: None,
        at: Listen::Wildcard,
    };

    pub(super) fn is_everywhere(&self) -> bool {
        self.chosen.is_none() && matches!(self.at, Listen::Wildcard)
    }

    /// The binds of one port there; none where it does not listen.
    pub(super) fn binds(&self, there: Here<'_>, port: u16) -> Vec<Bind> {
        if !there.is_chosen(self.chosen.as_ref()) {
            return Vec::new();
        }
        let exact = |address: IpAddr| Bind::Exact(SocketAddr::new(address, port));
        match (&self.at, there) {
            (Listen::Wildcard, _) => vec![Bind::Any { port }],
            (Listen::Requested(addresses), Here::Serves(node)) => {
                let held = addresses
                    .iter()
                    .filter(|address| nodes::holds(node, **address));
                held.copied().map(exact).collect()
            }
            (Listen::Internal(families), Here::Serves(node)) => {
                let of_family = |family: &Family| nodes::first(&node.internal, *family);
                families.iter().filter_map(of_family).map(exact).collect()
            }
            (Listen::Requested(_) | Listen::Internal(_), Here::Host | Here::Idle) => Vec::new(),
        }
    }
}

/// Finds the place of a Service, or says why it has none.
pub(super) fn find<'a>(world: &World<'a>, reader: &mut Reader<'_>) -> Result<Place<'a>, String> {
    let chosen = reader.knob(&knobs::LB_NODES, None).map(|found| found.value);
    let internal = internal(reader);
    let requested = requested(reader)?;
    let strict = strict(reader);
    let hostnames = reader.knob(&knobs::HOSTNAME, None).map(|found| found.value);
    // All of these ask for other nodes than this one.
    reader.needs_nodes |= chosen.is_some() || internal || requested.is_some();
    let chosen_nodes = world.nodes.chosen(chosen.as_ref());
    let is_host = matches!(world.nodes.here, Here::Host);
    let mut candidates = chosen_nodes.clone();
    candidates.retain(|node| nodes::may_be_published(node));
    if candidates.is_empty() && !is_host {
        reader.warn(
            Reason::UnAvailableLoadBalancer,
            "There are no available nodes for LoadBalancer",
        );
    }
    if chosen_nodes.is_empty() && !is_host {
        return Err(NO_NODE.to_owned());
    }
    // What listens does not depend on who is published, or a node that comes would never be.
    let families = families(reader);
    let (reach, at) = match requested {
        Some(requested) => at_requested(world, reader, requested, &chosen_nodes, internal)?,
        None if internal => at_internal(world, reader, &chosen_nodes, &families)?,
        None => anywhere(reader, &chosen_nodes, &families)?,
    };
    let has_ready = |node: &&Node| has_endpoints(world, &reader.service.key, node);
    let ready: Vec<&Node> = match strict {
        false => candidates.clone(),
        true => candidates.iter().copied().filter(has_ready).collect(),
    };
    let idle_here = match world.nodes.here {
        Here::Serves(node) => strict && !has_ready(&node),
        Here::Host | Here::Idle => false,
    };
    let nobody = ready.is_empty();
    Ok(Place {
        reach,
        site: Site { chosen, at },
        strict,
        candidates: if nobody { candidates } else { ready },
        nobody,
        idle_here,
        families,
        hostnames,
    })
}

/// Whether a node has a ready endpoint on itself. The publisher sees no endpoints: nodes say it.
fn has_endpoints(world: &World<'_>, service: &Key, node: &Node) -> bool {
    if world.settings.role != Role::Publisher {
        let slices = world.slices.of_service(service);
        return endpoints::has_ready_on(slices, &node.name);
    }
    let leases = world.observed.leases.as_ref();
    let exception = leases.and_then(|leases| {
        leases
            .get(&node.name)?
            .exceptions
            .services
            .get(&service.to_string())
    });
    exception.is_none_or(|exception| !exception.idle)
}

impl Place<'_> {
    /// What the status lists, and the addresses behind a hostname too.
    pub(super) fn published(
        &self,
        world: &World<'_>,
        service: &Service,
        expected: &Expected<'_>,
    ) -> (Vec<Ingress>, Vec<IpAddr>) {
        let live = self.candidates.iter().copied();
        let live = live.filter(|node| self.is_live(world, service, node, expected));
        let addresses = self.addresses(&live.collect::<Vec<_>>());
        let is_host = matches!(world.nodes.here, Here::Host);
        let ingress = match &self.hostnames {
            // Nobody is live: a name would lead nowhere either.
            Some(_) if addresses.is_empty() && !is_host => Vec::new(),
            Some(names) => names.iter().cloned().map(Ingress::Hostname).collect(),
            None => addresses.iter().copied().map(Ingress::Ip).collect(),
        };
        (ingress, addresses)
    }

    /// Whether a node's address is published for a Service: its Lease lives, no port of the Service is
    /// closed there, and it serves what it should. What is published stays while only the last is missing.
    fn is_live(
        &self,
        world: &World<'_>,
        service: &Service,
        node: &Node,
        expected: &Expected<'_>,
    ) -> bool {
        let is_published = || {
            let names = self.hostnames.as_deref().unwrap_or_default();
            let mut published = service.ingress.iter();
            published.any(|text| match address_in(text) {
                Some(address) if !names.contains(text) => nodes::holds(node, address),
                _ => names.contains(text),
            })
        };
        let Some(leases) = &world.observed.leases else {
            return !self.nobody || is_published();
        };
        let Some(lease) = leases.get(&node.name) else {
            return false;
        };
        let exception = lease.exceptions.services.get(&service.key.to_string());
        if exception.is_some_and(|exception| exception.closed) {
            return false;
        }
        let owner = format!("{}.{}", service.key.namespace, service.key.name);
        let agrees = lease.settings.is_empty() || lease.settings == world.claims;
        let is_served = || expected.is_served(&node.name, &owner, &lease.served);
        (!self.nobody && agrees && is_served()) || is_published()
    }

    /// Why nothing is published.
    pub(super) fn why_not(&self) -> &'static str {
        match (self.candidates.is_empty(), self.nobody) {
            (true, _) => NO_NODE,
            (false, true) => "no load balancer node has an endpoint of it",
            (false, false) => "no load balancer node serves it yet",
        }
    }

    /// Those of these nodes at which the Service is reached.
    fn addresses(&self, live: &[&Node]) -> Vec<IpAddr> {
        match &self.site.at {
            Listen::Wildcard => published(live, &self.families, nodes::public),
            Listen::Internal(_) => published(live, &self.families, |node, family| {
                nodes::first(&node.internal, family)
            }),
            Listen::Requested(requested) => {
                let is_held =
                    |address: &&IpAddr| live.iter().any(|node| nodes::holds(node, **address));
                let mut held: Vec<IpAddr> = requested.iter().filter(is_held).copied().collect();
                let rank = |address: &IpAddr| {
                    let mut families = self.families.iter();
                    families.position(|family| *family == Family::of(*address))
                };
                held.sort_by_key(rank);
                held
            }
        }
    }
}

/// The address that is published as it is, or as a name such as `10.0.0.1.nip.io` or `fd00--1.nip.io`.
fn address_in(text: &str) -> Option<IpAddr> {
    let first_four = || text.splitn(5, '.').take(4).collect::<Vec<_>>().join(".");
    let dashed = || {
        text.split_once('.')
            .map(|(label, _)| label.replace('-', ":"))
    };
    let address = text.parse().ok();
    let address = address.or_else(|| first_four().parse::<Ipv4Addr>().ok().map(IpAddr::V4));
    address.or_else(|| dashed()?.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

/// Whether it may be seen inside only. What cannot be read says yes.
pub(super) fn internal(reader: &mut Reader<'_>) -> bool {
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
    let spec = reader.service.load_balancer_ip.clone();
    let annotation = match reader.look(&knobs::ADDRESSES, None) {
        Look::Value(found) => Some(found),
        Look::Bad if spec.is_none() => {
            return Err("the address that it asks for cannot be read".to_owned());
        }
        Look::Bad | Look::Silent => None,
    };
    let Some(spec) = spec else {
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

/// At the addresses that were asked for, if load balancer nodes hold them all.
fn at_requested(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    requested: Vec<IpAddr>,
    chosen: &[&Node],
    internal: bool,
) -> Result<(Reach, Listen), String> {
    for address in &requested {
        let held = match internal {
            true => chosen.iter().any(|node| node.internal.contains(address)),
            false => chosen.iter().any(|node| nodes::holds(node, *address)),
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
    Ok((Reach::At(requested.clone()), Listen::Requested(requested)))
}

/// At every address of the nodes, if they have one that can be published.
fn anywhere(
    reader: &mut Reader<'_>,
    chosen: &[&Node],
    families: &[Family],
) -> Result<(Reach, Listen), String> {
    if !chosen.is_empty() && published(chosen, families, nodes::public).is_empty() {
        reader.needs_nodes = true;
        let words = families.iter().map(|family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        });
        let words = words.collect::<Vec<_>>().join(" or ");
        let why = format!("no load balancer node has an {words} address");
        reader.warn(Reason::AllocationFailed, failed(reader, &why));
        return Err(why);
    }
    Ok((Reach::Everywhere, Listen::Wildcard))
}

/// At the internal addresses of the nodes only.
fn at_internal(
    world: &World<'_>,
    reader: &mut Reader<'_>,
    chosen: &[&Node],
    families: &[Family],
) -> Result<(Reach, Listen), String> {
    let addresses = published(chosen, families, |node, family| {
        nodes::first(&node.internal, family)
    });
    if addresses.is_empty() || matches!(world.nodes.here, Here::Host) {
        let why = "no load balancer node has an InternalIP";
        reader.warn(Reason::AllocationFailed, failed(reader, why));
        return Err(why.to_owned());
    }
    Ok((Reach::At(addresses), Listen::Internal(families.to_vec())))
}

/// One address of each node for each family, the families in their order.
fn published(
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

fn failed(reader: &Reader<'_>, why: &str) -> String {
    format!(
        "Failed to allocate IP for \"{}\": {why}",
        reader.service.key
    )
}

/// Says once which keys take effect with pools.
pub(super) fn wait_for_pools(reader: &mut Reader<'_>) {
    // Two that differ are told of.
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
    let external = reader.knob(&knobs::EXOSCALE_EXTERNAL, None);
    if external.is_some_and(|found| found.value) {
        let name = format!("{E}name");
        keys.extend(reader.raw(&name).is_some().then_some(name));
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

const NO_NODE: &str = "no load balancer node is there for it";
