//! From a table to a plan. The only constructor of [`Plan`].
//!
//! Called by the data plane's `apply` for each new table. What did not change is shared with the plan before, not
//! rebuilt: a table of 100,000 endpoints with one change costs one service.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::admit::{Limits, PrefixSet};
use crate::change::gone;
use crate::endpoint::EndpointState;
use crate::loops::{self, Here};
use crate::moment::Moment;
use crate::overrides::Overrides;
use crate::plan::{
    AcceptProxy, Frontend, FrontendState, OnNode, Plan, Serves, SocketKey, Transport,
};
use crate::preamble::Versions;
use crate::rng::Rng;
use crate::service::{Around, Node, Service, ServiceState};
use crate::table::{self, Name, OnLimit, Protocol, ProxyVersion, RoutingTable, State};

/// What a plan needs to know beside its table.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// When this is.
    pub now: Moment,
    /// How many workers will serve it.
    pub workers: usize,
    /// Whether the kernel has IPv6, so that `*` stands for `[::]` too.
    pub ipv6: bool,
    /// The addresses of this host.
    pub here: &'a Here,
    /// Seeds for hashes of what clients choose.
    pub rng: &'a mut Rng,
}

/// Compiles a table that [`table::parse`] found no fault with, and carries over what lives on from `previous`: the
/// overrides too, as far as they still say something beside this table.
#[must_use]
pub fn compile(table: RoutingTable, previous: &Plan, around: &mut Surroundings<'_>) -> Plan {
    let specs = Specs {
        generation: table.generation,
        stats: Some(table.stats),
        services: shared(table.services),
        frontends: shared(table.frontends),
    };
    plan(specs, previous.overrides.as_ref().clone(), previous, around)
}

/// Compiles the table of `previous` anew, with these overrides in place of those that it had.
#[must_use]
pub fn revise(previous: &Plan, overrides: Overrides, around: &mut Surroundings<'_>) -> Plan {
    let specs = Specs {
        generation: previous.generation,
        stats: previous.stats.clone(),
        services: previous
            .services
            .iter()
            .map(|service| Arc::clone(service.spec()))
            .collect(),
        frontends: previous
            .frontends
            .iter()
            .map(|frontend| Arc::clone(&frontend.spec))
            .collect(),
    };
    plan(specs, overrides, previous, around)
}

fn shared<T>(parts: Vec<T>) -> Vec<Arc<T>> {
    parts.into_iter().map(Arc::new).collect()
}

/// What a table asks for, in parts that plans share.
struct Specs {
    generation: Option<u64>,
    stats: Option<table::Stats>,
    services: Vec<Arc<table::Service>>,
    frontends: Vec<Arc<table::Frontend>>,
}

fn plan(
    specs: Specs,
    overrides: Overrides,
    previous: &Plan,
    around: &mut Surroundings<'_>,
) -> Plan {
    let mut plan = Plan {
        generation: specs.generation,
        stats: specs.stats,
        overrides: Arc::new(overrides.settle(&specs.services, &specs.frontends)),
        nodes: previous_nodes(previous),
        ..Plan::default()
    };
    let left = Left::of(previous);
    let overrides = Arc::clone(&plan.overrides);
    plan.loops = loops::find(
        &specs.frontends,
        &specs.services,
        around.here,
        |service, endpoint| {
            let over = overrides.of_endpoint(&service.name, &endpoint.address);
            over.state.unwrap_or(endpoint.state) != State::Disabled
        },
    );
    plan.services.reserve_exact(specs.services.len());
    for spec in specs.services {
        let index = plan.services.len();
        let closing = plan.loops.of_service(index);
        let nodes = &mut plan.nodes;
        let service = service(spec, closing, &overrides, previous, &left, nodes, around);
        for node in service
            .endpoints()
            .iter()
            .filter_map(|endpoint| endpoint.node())
        {
            if let Some(on) = plan.nodes.get_mut(node.name())
                && on.services.last() != Some(&index)
            {
                on.services.push(index);
            }
        }
        plan.by_name.insert(service.spec().name.clone(), index);
        plan.services.push(service);
    }
    plan.nodes.retain(|_, on| !on.services.is_empty());
    plan.leaving = leaving(previous, &plan);
    let states: FxHashMap<&Name, &Arc<FrontendState>> = previous
        .frontends
        .iter()
        .map(|before| (&before.name, &before.state))
        .chain(&previous.left)
        .collect();
    for spec in specs.frontends {
        let frontend = Arc::new(frontend(spec, &states, &plan, around));
        for socket in &frontend.sockets {
            plan.by_socket.insert(socket.clone(), Arc::clone(&frontend));
        }
        plan.frontends.push(frontend);
    }
    let stay: FxHashSet<&Name> = plan
        .frontends
        .iter()
        .map(|frontend| &frontend.name)
        .collect();
    plan.left = states
        .into_iter()
        .filter(|(name, state)| !stay.contains(name) && state.admit().current() > 0)
        .map(|(name, state)| (name.clone(), Arc::clone(state)))
        .collect();
    plan
}

/// The nodes of the plan before, without their services: a node is the same one for as long as any plan has it.
fn previous_nodes(previous: &Plan) -> FxHashMap<Box<str>, OnNode> {
    previous
        .nodes
        .iter()
        .map(|(name, on)| {
            let on = OnNode {
                node: Arc::clone(&on.node),
                services: Vec::new(),
            };
            (name.clone(), on)
        })
        .collect()
}

fn service(
    spec: Arc<table::Service>,
    closing: &[usize],
    overrides: &Overrides,
    previous: &Plan,
    left: &Left<'_>,
    nodes: &mut FxHashMap<Box<str>, OnNode>,
    around: &Surroundings<'_>,
) -> Arc<Service> {
    let before = previous.service(&spec.name);
    if let Some(before) = before
        && *before.spec() == spec
        && before.closing() == closing
        && previous.overrides.of_service(&spec.name) == overrides.of_service(&spec.name)
    {
        return Arc::clone(before);
    }
    let mut node = |name: &str| {
        let on = nodes.entry(name.into()).or_insert_with(|| OnNode {
            node: Arc::new(Node::new(name)),
            services: Vec::new(),
        });
        Arc::clone(&on.node)
    };
    let mut around = Around {
        now: around.now,
        workers: around.workers,
        node: &mut node,
        left: &|service| left.services.get(service).copied().cloned(),
        gone: &|service, address| left.endpoints.get(&(service, *address)).copied().cloned(),
        over: &|service, address| overrides.of_endpoint(service, address),
        closing,
    };
    let before = before.map(Arc::as_ref);
    Arc::new(Service::compile(spec, before, &mut around))
}

/// What left an earlier plan and still has connections. Whoever comes back is the same one.
struct Left<'a> {
    services: FxHashMap<&'a str, &'a Arc<ServiceState>>,
    endpoints: FxHashMap<(&'a str, SocketAddr), &'a Arc<EndpointState>>,
}

impl<'a> Left<'a> {
    fn of(previous: &'a Plan) -> Self {
        let connected = || {
            let leaving = previous.leaving.iter();
            leaving.filter(|endpoint| endpoint.in_flight() > 0)
        };
        Self {
            services: connected()
                .map(|endpoint| (endpoint.service().name(), endpoint.service()))
                .collect(),
            endpoints: connected()
                .map(|endpoint| ((endpoint.service().name(), endpoint.address()), endpoint))
                .collect(),
        }
    }
}

/// What the next plan may have to know of endpoints that are not in this one: those that left before and have connections
/// still, and all that leave now, for until this plan is published the previous one sends clients to them.
fn leaving(previous: &Plan, plan: &Plan) -> Vec<Arc<EndpointState>> {
    let mut back: FxHashSet<*const EndpointState> = FxHashSet::default();
    if !previous.leaving.is_empty() {
        let new = plan
            .services()
            .iter()
            .filter(|service| !is_shared(service, previous));
        let endpoints = new.flat_map(|service| service.endpoints());
        back.extend(endpoints.map(|endpoint| Arc::as_ptr(endpoint.live())));
    }
    let still = previous
        .leaving
        .iter()
        .filter(|endpoint| endpoint.in_flight() > 0 && !back.contains(&Arc::as_ptr(endpoint)));
    let now = gone(previous, plan).map(|(_, endpoint)| endpoint.live());
    still.chain(now).map(Arc::clone).collect()
}

fn is_shared(service: &Arc<Service>, previous: &Plan) -> bool {
    previous
        .service(service.state().name())
        .is_some_and(|before| Arc::ptr_eq(before, service))
}

fn frontend(
    spec: Arc<table::Frontend>,
    previous_states: &FxHashMap<&Name, &Arc<FrontendState>>,
    plan: &Plan,
    around: &mut Surroundings<'_>,
) -> Frontend {
    let transport = Transport::of(spec.protocol);
    let state = previous_states.get(&spec.name).map_or_else(
        || {
            Arc::new(FrontendState::new(
                &spec.name,
                around.rng.next_u64(),
                around.workers,
            ))
        },
        |before| Arc::clone(before),
    );
    Frontend {
        name: spec.name.clone(),
        binds: spec.bind.to_vec(),
        sockets: sockets(&spec, transport, around.ipv6),
        serves: serves(&spec, plan),
        accept_proxy: spec.accept_proxy.as_deref().map(|accept| AcceptProxy {
            from: PrefixSet::new(accept.from.iter().copied()),
            versions: match (
                accept.takes(ProxyVersion::V1),
                accept.takes(ProxyVersion::V2),
            ) {
                (true, false) => Versions::V1,
                (false, true) => Versions::V2,
                (true, true) | (false, false) => Versions::Both,
            },
        }),
        limits: Limits {
            sources: spec
                .source_ranges
                .as_ref()
                .map(|ranges| PrefixSet::new(ranges.iter().copied())),
            connections: plan
                .overrides
                .max_connections(&spec.name)
                .or(spec.max_connections)
                .map(NonZeroU32::get),
            rate: spec.max_connection_rate.map(|limit| limit.get()),
            connections_per_client: spec.max_connections_per_client.map(|limit| limit.get()),
            rate_per_client: spec.max_connection_rate_per_client.map(|limit| limit.get()),
        },
        waits: spec.on_limit == OnLimit::Wait,
        client_timeout: spec.client_timeout(),
        client_fin: spec.timeouts.client_fin,
        preamble_timeout: spec.timeouts.preamble,
        state,
        spec,
    }
}

fn sockets(spec: &table::Frontend, transport: Transport, ipv6: bool) -> Vec<SocketKey> {
    spec.bind
        .iter()
        .flat_map(|bind| bind.addresses_here(ipv6))
        .map(|address| SocketKey {
            transport,
            address,
            asked_by: (address.port() == 0).then(|| spec.name.clone()),
        })
        .collect()
}

fn serves(spec: &table::Frontend, plan: &Plan) -> Serves {
    match spec.protocol {
        Protocol::Http => return Serves::NotYet("http"),
        Protocol::Https => return Serves::NotYet("https"),
        Protocol::Tls => return Serves::NotYet("tls"),
        Protocol::Tcp if spec.tls.is_some() => return Serves::NotYet("tcp with tls"),
        Protocol::Tcp | Protocol::Udp => {}
    }
    let service = spec.service.as_ref().and_then(|name| plan.service(name));
    match service {
        Some(service) if spec.protocol.is_udp() => Serves::Udp(Arc::clone(service)),
        Some(service) if service.spec().tls.is_some() => Serves::NotYet("tls to endpoints"),
        Some(service) => Serves::Tcp(Arc::clone(service)),
        // The table was checked: a tcp or udp frontend has a service that exists.
        None => Serves::NotYet("tcp without a service"),
    }
}

#[cfg(test)]
mod tests;
