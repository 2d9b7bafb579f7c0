//! Compiles a table to a plan. The only constructor of [`Plan`].
//!
//! The data plane's `apply` calls it for each new table. Unchanged parts are shared with the previous plan instead of being
//! rebuilt: one change in a table of 100,000 endpoints rebuilds one service.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::admit::{Limits, PrefixSet};
use crate::backends::{Backends, BackendsContext, Spec};
use crate::change::gone;
use crate::endpoint::EndpointState;
use crate::loops::{self, HostAddresses};
use crate::moment::Moment;
use crate::overrides::Overrides;
use crate::plan::{
    AcceptProxy, Frontend, FrontendState, HttpFrontend, OnNode, Plan, RouteRecords, Serves,
    SocketKey, Transport,
};
use crate::preamble::Versions;
use crate::rng::Rng;
use crate::route::SniRoutes;
use crate::service::{Node, Service, ServiceContext, ServiceState};
use crate::table::{self, Name, OnLimit, Protocol, ProxyVersion, RoutingTable, State};

/// What compiling needs in addition to the table.
#[derive(Debug)]
pub struct CompileContext<'a> {
    pub now: Moment,
    pub workers: usize,
    /// Whether the kernel supports IPv6, so that `*` includes `[::]`.
    pub ipv6: bool,
    pub host: &'a HostAddresses,
    /// Source of seeds for hashes of values that clients choose.
    pub rng: &'a mut Rng,
}

/// Compiles a table that [`table::parse`] accepted, and carries over the state of `previous`. Overrides are carried over if
/// they still differ from the table.
#[must_use]
pub fn compile(table: RoutingTable, previous: &Plan, context: &mut CompileContext<'_>) -> Plan {
    let specs = Specs {
        generation: table.generation,
        stats: Some(table.stats),
        ticket_keys: table.ticket_keys,
        services: shared(table.services),
        frontends: shared(table.frontends),
    };
    plan(
        specs,
        previous.overrides.as_ref().clone(),
        previous,
        context,
    )
}

/// Compiles the table of `previous` again, with these overrides in place of its own.
#[must_use]
pub fn revise(previous: &Plan, overrides: Overrides, context: &mut CompileContext<'_>) -> Plan {
    let specs = Specs {
        generation: previous.generation,
        stats: previous.stats.clone(),
        ticket_keys: previous.ticket_keys.clone(),
        services: previous
            .services
            .iter()
            .map(|service| Arc::clone(service.table()))
            .collect(),
        frontends: previous
            .frontends
            .iter()
            .map(|frontend| Arc::clone(&frontend.spec))
            .collect(),
    };
    plan(specs, overrides, previous, context)
}

fn shared<T>(parts: Vec<T>) -> Vec<Arc<T>> {
    parts.into_iter().map(Arc::new).collect()
}

/// The parts of a table, which plans share.
struct Specs {
    generation: Option<u64>,
    stats: Option<table::Stats>,
    ticket_keys: Option<table::File>,
    services: Vec<Arc<table::Service>>,
    frontends: Vec<Arc<table::Frontend>>,
}

fn plan(
    specs: Specs,
    overrides: Overrides,
    previous: &Plan,
    context: &mut CompileContext<'_>,
) -> Plan {
    let mut plan = Plan {
        generation: specs.generation,
        stats: specs.stats,
        ticket_keys: specs.ticket_keys,
        overrides: Arc::new(overrides.settle(&specs.services, &specs.frontends)),
        nodes: previous_nodes(previous),
        ..Plan::default()
    };
    let left = Left::of(previous);
    let overrides = Arc::clone(&plan.overrides);
    let moved: Vec<_> = specs
        .services
        .iter()
        .map(|service| overrides.moved(service))
        .collect();
    let in_force: Vec<&table::Service> = specs
        .services
        .iter()
        .zip(&moved)
        .map(|(table, moved)| moved.as_ref().unwrap_or(table).as_ref())
        .collect();
    plan.loops = loops::find(
        &specs.frontends,
        &in_force,
        context.host,
        |service, endpoint| {
            let over = overrides.of_endpoint(&service.name, &endpoint.address);
            over.state.unwrap_or(endpoint.state) != State::Disabled
        },
    );
    plan.services.reserve_exact(specs.services.len());
    for (spec, moved) in specs.services.into_iter().zip(&moved) {
        let index = plan.services.len();
        let source = Source {
            closing: plan.loops.of_service(index),
            moved: moved.as_ref(),
            overrides: &overrides,
            previous,
            left: &left,
        };
        let service = service(spec, &source, &mut plan.nodes, context);
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
    let before: FxHashMap<&Name, &Frontend> = previous
        .frontends
        .iter()
        .map(|before| (&before.name, before.as_ref()))
        .collect();
    let states: FxHashMap<&Name, &Arc<FrontendState>> = before
        .iter()
        .map(|(name, before)| (*name, &before.state))
        .chain(&previous.left)
        .collect();
    for spec in specs.frontends {
        let before = before.get(&spec.name).copied();
        let frontend = Arc::new(frontend(spec, before, &states, &plan, context));
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

/// The nodes of the previous plan, without their services. A node keeps its identity while any plan has it.
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

/// What a service is compiled from, besides the table.
struct Source<'a> {
    closing: &'a [usize],
    /// The service with the addresses that operators have given its endpoints.
    moved: Option<&'a Arc<table::Service>>,
    overrides: &'a Overrides,
    previous: &'a Plan,
    left: &'a Left<'a>,
}

fn service(
    spec: Arc<table::Service>,
    source: &Source<'_>,
    nodes: &mut FxHashMap<Box<str>, OnNode>,
    context: &CompileContext<'_>,
) -> Arc<Service> {
    let Source {
        closing,
        moved,
        overrides,
        previous,
        left,
    } = *source;
    let before = previous.service(&spec.name);
    if let Some(before) = before
        && *before.table() == spec
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
    let mut context = ServiceContext {
        now: context.now,
        workers: context.workers,
        node: &mut node,
        left: &|service| left.services.get(service).copied().cloned(),
        gone: &|service, address| left.endpoints.get(&(service, *address)).copied().cloned(),
        over: &|service, address| overrides.in_table(service, address),
        moved,
        closing,
    };
    let before = before.map(Arc::as_ref);
    Arc::new(Service::compile(spec, before, &mut context))
}

/// Services and endpoints that were removed from an earlier plan and still have connections. If they return, their state is
/// used again.
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

/// Endpoints outside of this plan whose state the next plan may need: those removed earlier that still have connections, and
/// all that are removed now, because the previous plan sends clients to them until this one is published.
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
    before: Option<&Frontend>,
    previous_states: &FxHashMap<&Name, &Arc<FrontendState>>,
    plan: &Plan,
    context: &mut CompileContext<'_>,
) -> Frontend {
    let transport = spec.protocol.transport();
    let state = previous_states.get(&spec.name).map_or_else(
        || {
            Arc::new(FrontendState::new(
                &spec.name,
                context.rng.next_u64(),
                context.workers,
            ))
        },
        |before| Arc::clone(before),
    );
    let records = records(&spec, before, context.workers);
    Frontend {
        name: spec.name.clone(),
        binds: spec.bind.to_vec(),
        sockets: sockets(&spec, transport, context.ipv6),
        serves: serves(&spec, records.as_deref(), before, plan),
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
        is_closed: plan.overrides.is_closed(&spec.name),
        waits: spec.on_limit == OnLimit::Wait,
        client_timeout: spec.client_timeout(),
        client_fin: spec.timeouts.client_fin,
        preamble_timeout: spec.timeouts.preamble,
        records,
        state,
        spec,
    }
}

fn records(
    spec: &table::Frontend,
    before: Option<&Frontend>,
    workers: usize,
) -> Option<Arc<RouteRecords>> {
    match before {
        Some(before) if *before.spec == *spec => before.records.clone(),
        Some(before) => {
            let known = before.records.as_deref();
            let known = known.map(|records| (before.spec.as_ref(), records));
            RouteRecords::new(spec, known, workers)
        }
        None => RouteRecords::new(spec, None, workers),
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

fn serves(
    spec: &table::Frontend,
    records: Option<&RouteRecords>,
    before: Option<&Frontend>,
    plan: &Plan,
) -> Serves {
    let context = BackendsContext {
        services: &|name| plan.service(name).map(Arc::clone),
        records,
    };
    let backends = || Backends::compile(&Spec::of_frontend(spec), &context);
    let before = before
        .filter(|before| *before.spec == *spec)
        .map(|before| &before.serves);
    match spec.protocol {
        Protocol::Tcp => backends().map(Serves::Tcp),
        Protocol::Udp => backends().map(Serves::Udp),
        Protocol::Http | Protocol::Https => {
            let before = match before {
                Some(Serves::Http(before)) => Some(before),
                _ => None,
            };
            Some(Serves::Http(HttpFrontend::compile(spec, &context, before)))
        }
        Protocol::Tls => {
            let before = match before {
                Some(Serves::Tls(before)) => Some(before),
                _ => None,
            };
            Some(Serves::Tls(SniRoutes::shared(spec, &context, before)))
        }
    }
    .unwrap_or(Serves::Nothing)
}

#[cfg(test)]
mod tests;
