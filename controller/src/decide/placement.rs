//! Which nodes serve a Service, at which addresses, and which of them may be published.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::annotations::{Lookup, Reader, knobs, values};
use super::asks::{self, Asked, Wanted};
use super::context::Context;
use super::endpoints;
use super::nodes::{self, ThisNode};
use super::notice::Reason;
use super::site::{ListenAt, Site};
use crate::allocation::{Allocated, At, FromPool};
use crate::observe::{Family, Key, Node, Service};
use crate::settings::{Role, Selector};

/// Where a LoadBalancer asks to be served.
pub(super) struct Placement {
    pub(super) site: Site,
    /// Whether each node serves only the endpoints on itself.
    pub(super) strict: bool,
    /// Strict, and this node has no ready endpoint.
    pub(super) without_endpoints_here: bool,
    pub(super) families: Vec<Family>,
    pub(super) hostnames: Option<Vec<String>>,
}

/// Why a Service has no placement.
pub(super) struct Unplaced {
    pub(super) why: String,
    /// Whether its status stays as it is: what another implementation published there may be of a pool that cannot be read.
    pub(super) is_left_alone: bool,
    /// The addresses that it asks for, if that is known.
    pub(super) asks_at: Option<At>,
}

impl Unplaced {
    const fn pending(why: String) -> Self {
        Self {
            why,
            is_left_alone: false,
            asks_at: None,
        }
    }
}

/// What a Service asks for, and what it has.
struct Wish {
    chosen: Option<Selector>,
    internal: bool,
    requested: Option<Vec<IpAddr>>,
    strict: bool,
    /// What it asks of pools, and on a node what it was given of one.
    asked: Option<Asked>,
    given: Option<(Vec<IpAddr>, FromPool)>,
    /// The addresses that it asks for, if they are not of a pool.
    asks_at: Option<At>,
}

impl Wish {
    fn read(context: &Context<'_>, reader: &mut Reader<'_>) -> Result<Self, Unplaced> {
        let mut chosen = reader.value(&knobs::LB_NODES, None);
        let internal = internal_or_kept(reader);
        let requested = requested_or_kept(reader).map_err(Unplaced::pending)?;
        let at_nodes = match &requested {
            Some(addresses) => At::of(addresses),
            None if internal => At::NodeInternal,
            None => At::Node,
        };
        let strict = strict(reader);
        let wanted = Wanted {
            requested: requested.as_deref(),
            internal,
            strict,
            at_nodes: &at_nodes,
        };
        let (mut asked, mut given) = match context.settings.role {
            // A node serves what was given.
            Role::Node => (None, given(reader.service)),
            _ => (asks::ask(context, reader, &wanted), None),
        };
        if let Some(why) = unread_pools(context, reader, asked.as_ref(), &at_nodes) {
            // It keeps what it was given, without asking for more.
            asked = None;
            given = self::given(reader.service);
            if given.is_none() {
                let is_left_alone = !reader.service.ingress.is_empty();
                return Err(Unplaced {
                    is_left_alone,
                    ..Unplaced::pending(why)
                });
            }
        }
        if let Some(nodes) = given.as_ref().and_then(|(_, pool)| pool.nodes.as_ref()) {
            chosen = Some(chosen.map_or_else(|| nodes.clone(), |chosen| chosen.and(nodes)));
        }
        // These depend on other nodes than this one.
        reader.needs_nodes |= chosen.is_some() || internal || requested.is_some();
        Ok(Self {
            chosen,
            internal,
            requested,
            strict,
            // What it has of a pool stays while no node serves it.
            asks_at: (asked.is_none() && given.is_none()).then_some(at_nodes),
            asked,
            given,
        })
    }

    /// Where it is served on these nodes.
    fn place(
        &self,
        context: &Context<'_>,
        reader: &mut Reader<'_>,
        chosen: &[&Node],
        families: &[Family],
    ) -> Result<ListenAt, String> {
        if self.asked.is_some() || self.given.is_some() {
            let given = self.given.as_ref();
            let addresses = given.map_or(Vec::new(), |(addresses, _)| addresses.clone());
            return Ok(ListenAt::Pool(addresses));
        }
        if let Some(requested) = &self.requested {
            return at_requested(context, reader, requested.clone(), chosen, self.internal);
        }
        let found = at_nodes(context, self.internal, chosen, families);
        reader.needs_nodes |= found.is_err();
        found.map_err(|why| unavailable(reader, why))
    }
}

/// Finds the placement of a Service.
pub(super) fn find(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
) -> Result<(Placement, Option<Asked>), Unplaced> {
    let wish = Wish::read(context, reader)?;
    let hostnames = reader.value(&knobs::HOSTNAME, None);
    let chosen_nodes = context.nodes.selected(wish.chosen.as_ref());
    let is_host = matches!(context.nodes.here, ThisNode::Standalone);
    let mut chosen = chosen_nodes.iter();
    if !chosen.any(|node| nodes::may_be_published(node)) && !is_host {
        reader.warn(
            Reason::UnAvailableLoadBalancer,
            "There are no available nodes for LoadBalancer",
        );
    }
    let unplaced = |why| Unplaced {
        asks_at: wish.asks_at.clone(),
        ..Unplaced::pending(why)
    };
    if chosen_nodes.is_empty() && !is_host {
        return Err(unplaced(NO_NODE.to_owned()));
    }
    // A node listens before it is published: its address is published once it reports that it serves the Service.
    let families = families(reader);
    let found = wish.place(context, reader, &chosen_nodes, &families);
    let at = found.map_err(unplaced)?;
    let without_endpoints_here = match context.nodes.here {
        ThisNode::LoadBalancer(node) => {
            let is_meant = |one: &&&Node| one.name == node.name || nodes::may_be_published(one);
            let nodes: Vec<&Node> = chosen_nodes.iter().filter(is_meant).copied().collect();
            wish.strict && !serving(context, &reader.service.key, &nodes).contains(&*node.name)
        }
        ThisNode::Standalone | ThisNode::NotSelected => false,
    };
    let placement = Placement {
        site: Site {
            chosen: wish.chosen,
            at,
            pool: wish.given.map(|(_, pool)| pool),
        },
        strict: wish.strict,
        without_endpoints_here,
        families,
        hostnames,
    };
    Ok((placement, wish.asked))
}

/// Why a Service without an address of its own waits: a pool that cannot be read may be for it, or the pools select by labels of its
/// namespace that are not known. Another address, once given, would stay.
fn unread_pools(
    context: &Context<'_>,
    reader: &mut Reader<'_>,
    asked: Option<&Asked>,
    at_nodes: &At,
) -> Option<String> {
    let service = reader.service;
    let is_settled = match (asked, &service.allocated) {
        (Some(asked), _) => asked.kept.is_some() || asked.has_node_addresses,
        (None, Some(allocated)) => allocated.allocation.pool.is_none(),
        (None, None) => asks::has_node_addresses(&context.nodes, service, at_nodes),
    };
    if is_settled || context.settings.role == Role::Node {
        return None;
    }
    let pools = &context.observed.pools;
    let namespace = &service.key.namespace;
    let lacks_labels = pools.select_namespaces() && !pools.namespaces.contains_key(namespace);
    let of_namespaces = pools.unread_namespaces().filter(|_| lacks_labels);
    let (denied, failing): (Vec<_>, Vec<_>) =
        pools.unread_pools().partition(|(_, code)| *code == 403);
    let mut whys = Vec::new();
    if !denied.is_empty() {
        let kinds: Vec<&str> = denied.into_iter().map(|(kind, _)| kind).collect();
        whys.push(format!(
            "{} may not be read, and may be for this Service; apply the rights of rc.yaml, or leave that system out of --pools",
            kinds.join(", ")
        ));
    }
    whys.extend(failing.into_iter().map(|(kind, code)| {
        format!("{kind} cannot be read (the API server answers {code}), and may be for this Service; leave that system out of --pools if that lasts")
    }));
    whys.extend(of_namespaces.map(|code| match code {
        403 => "Namespace may not be read, and pools select by the labels of namespaces; apply the rights of rc.yaml".to_owned(),
        code => format!("Namespace cannot be read (the API server answers {code}), and pools select by the labels of namespaces"),
    }));
    match whys.is_empty() {
        false => Some(unavailable(reader, whys.join("; "))),
        // A Service may be heard of before its namespace, which is no event.
        true => (lacks_labels && context.observed.leases.is_some()).then(|| {
            format!("the labels of namespace {namespace}, by which pools select, are not known yet")
        }),
    }
}

/// The addresses of a pool that a Service was given.
fn given(service: &Service) -> Option<(Vec<IpAddr>, FromPool)> {
    let Allocated { allocation, .. } = service.allocated.as_ref()?;
    match (&allocation.at, &allocation.pool) {
        (At::Addresses(addresses), Some(pool)) => Some((addresses.clone(), pool.clone())),
        _ => None,
    }
}

/// Those of these nodes that serve endpoints on themselves. The publisher watches no endpoints, so nodes report it.
pub(super) fn serving<'n>(
    context: &Context<'_>,
    service: &Key,
    nodes: &[&'n Node],
) -> BTreeSet<&'n str> {
    if context.settings.role != Role::Publisher {
        return endpoints::serving(context.slices.of_service(service), nodes);
    }
    let leases = context.observed.leases.as_ref();
    let key = service.to_string();
    let is_idle = |name: &&str| {
        let lease = leases.and_then(|leases| leases.get(*name));
        let exception = lease.and_then(|lease| lease.exceptions.services.get(&key));
        exception.is_some_and(|exception| exception.idle)
    };
    let names = nodes.iter().map(|node| &*node.name);
    names.filter(|name| !is_idle(name)).collect()
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

/// The same for a LoadBalancer, which keeps what it has while the annotation is invalid.
fn internal_or_kept(reader: &mut Reader<'_>) -> bool {
    let allocated = reader.service.allocated.as_ref();
    match (reader.lookup(&knobs::INTERNAL, None), allocated) {
        (Lookup::Bad, Some(Allocated { allocation, .. })) => {
            let message = "the Service keeps the addresses that it has until the value of `internal` is valid";
            reader.warn(Reason::InvalidAnnotation, message);
            let of_pool = allocation.pool.as_ref().map(|pool| pool.internal);
            of_pool.unwrap_or(allocation.at == At::NodeInternal)
        }
        _ => internal(reader),
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

/// The requested addresses. While the request is invalid, they are those that the Service has; an error: it has none.
fn requested_or_kept(reader: &mut Reader<'_>) -> Result<Option<Vec<IpAddr>>, String> {
    let why = match requested(reader) {
        Ok(requested) => return Ok(requested),
        Err(why) => why,
    };
    let service = reader.service;
    let kept = match &service.allocated {
        Some(Allocated { allocation, .. }) => match &allocation.at {
            At::Addresses(addresses) => Some(addresses.clone()),
            At::Node | At::NodeInternal => None,
        },
        None => Some(asks::held(service).ok_or(why)?.addresses),
    };
    let message =
        "the Service keeps the addresses that it has until the requested address is valid";
    reader.warn(Reason::InvalidAnnotation, message);
    Ok(kept)
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
) -> Result<ListenAt, String> {
    for address in &requested {
        let is_held = |node: &&Node| match internal {
            true => node.internal.contains(address),
            false => nodes::holds(node, *address),
        };
        if !chosen.iter().any(is_held) {
            let why = match internal && context.nodes.holds(*address) {
                true => format!("{address} is not an internal address"),
                false => match nodes::lack(context.observed, context.settings, *address) {
                    Some(lack) => format!("{address} is of {lack}"),
                    None => format!("no pool holds {address}"),
                },
            };
            return Err(unavailable(reader, why));
        }
    }
    Ok(ListenAt::Requested(requested))
}

/// Listens at every address of the nodes, or at the internal ones only, if any of them can be published.
pub(super) fn at_nodes(
    context: &Context<'_>,
    internal: bool,
    chosen: &[&Node],
    families: &[Family],
) -> Result<ListenAt, String> {
    if internal {
        let addresses = published(chosen, families, |node, family| {
            nodes::first(&node.internal, family)
        });
        return match context.nodes.here {
            ThisNode::LoadBalancer(_) | ThisNode::NotSelected if !addresses.is_empty() => {
                Ok(ListenAt::Internal(families.to_vec(), addresses))
            }
            _ => Err("no load balancer node has an InternalIP".to_owned()),
        };
    }
    if !chosen.is_empty() && published(chosen, families, nodes::public).is_empty() {
        let words = families.iter().map(|family| match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        });
        let words = words.collect::<Vec<_>>().join(" or ");
        return Err(format!("no load balancer node has an {words} address"));
    }
    Ok(ListenAt::Wildcard)
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

pub(super) const NO_NODE: &str = "no load balancer node is selected for it";
