//! Which endpoints a Service port has, and in which state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ballast_core::table::{self, ServerName, State, no_single_host};

use super::annotations::Reader;
use super::context::Context;
use super::nodes;
use super::notice::Reason;
use crate::observe::{
    Endpoint, Family, MOST_ADDRESSES, Node, Observed, Port, Service, ServiceKind, Slice, Target,
};
use crate::settings::{EndpointsVia, ExternalNames, Selector, Settings};

/// Limits the endpoints to those on some nodes.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    /// Only endpoints on nodes with these labels.
    pub(super) nodes: Option<&'a Selector>,
    /// Only endpoints on the node of this name.
    pub(super) only_on: Option<&'a str>,
}

/// The endpoints of one port, of the first family that has a usable one, by address.
pub(super) fn of_port(
    context: &Context<'_>,
    service: &Service,
    port: &Port,
    scope: Scope<'_>,
) -> Vec<table::Endpoint> {
    let (observed, settings) = (context.observed, context.settings);
    if let ServiceKind::ExternalName(name) = &service.kind {
        let mut addresses = match ExternalTarget::of(observed, settings, service, name) {
            ExternalTarget::Address(address) => vec![address],
            ExternalTarget::Name(found) => found.iter().take(MOST_ADDRESSES).copied().collect(),
            ExternalTarget::NoName | ExternalTarget::Off => Vec::new(),
        };
        addresses.retain(|address| context.permitted.objection(*address).is_none());
        return by_family(service, |family| {
            plain(&addresses, family, target_number(port))
        });
    }
    match via(settings, service) {
        EndpointsVia::ClusterIp => by_family(service, |family| {
            plain(&service.cluster_ips, family, Some(port.number))
        }),
        EndpointsVia::NodePort => {
            by_family(service, |family| node_ports(observed, family, port, scope))
        }
        EndpointsVia::Pod => by_family(service, |family| {
            pods(context, service, port, scope, family)
        }),
    }
}

fn pods(
    context: &Context<'_>,
    service: &Service,
    port: &Port,
    scope: Scope<'_>,
    family: Family,
) -> Vec<table::Endpoint> {
    let mut seen: BTreeMap<SocketAddr, (Readiness, &Endpoint)> = BTreeMap::new();
    let slices = context.slices.of_service(&service.key).iter();
    for slice in slices.filter(|slice| slice.family == Some(family)) {
        for number in numbers(slice, port) {
            let endpoints = slice.endpoints.iter();
            for endpoint in endpoints.filter(|endpoint| is_in(context.observed, endpoint, scope)) {
                let (Some(address), Some(readiness)) = (endpoint.address, Readiness::of(endpoint))
                else {
                    continue;
                };
                let address = SocketAddr::new(address, number);
                let place = seen.entry(address).or_insert((readiness, endpoint));
                if readiness < place.0 {
                    *place = (readiness, endpoint);
                }
            }
        }
    }
    let mut all = seen.values();
    let any_ready = all.any(|(readiness, _)| *readiness == Readiness::Ready);
    let endpoints = seen.into_iter().map(|(address, (readiness, endpoint))| {
        let tag = |text: &Option<String>| text.as_deref()?.parse().ok();
        table::Endpoint {
            state: match readiness {
                Readiness::Ready => State::Ready,
                Readiness::Terminating if !any_ready => State::Ready,
                Readiness::Terminating | Readiness::NotServing => State::Disabled,
            },
            node: tag(&endpoint.node),
            zone: tag(&endpoint.zone),
            ..at(address)
        }
    });
    endpoints.collect()
}

/// Whether connections go to pods, node ports or the ClusterIP. Headless Services have no ClusterIP, and ExternalName Services no
/// node port either.
pub(super) fn via(settings: &Settings, service: &Service) -> EndpointsVia {
    let flags = &settings.flags;
    let told = match flags.forward_services {
        true => EndpointsVia::ClusterIp,
        false => flags.endpoints_via.unwrap_or_default(),
    };
    match (&service.kind, told) {
        (ServiceKind::ExternalName(_), _) => EndpointsVia::Pod,
        (_, EndpointsVia::ClusterIp) if service.cluster_ips.is_empty() => EndpointsVia::Pod,
        (_, told) => told,
    }
}

/// Whether node selectors limit the endpoints of a Service.
pub(super) fn goes_by_node(settings: &Settings, service: &Service) -> bool {
    service.local || via(settings, service) == EndpointsVia::NodePort
}

/// What the externalName of a Service stands for.
pub(super) enum ExternalTarget<'a> {
    /// The name is an address.
    Address(IpAddr),
    /// A DNS name with these addresses; empty until it is resolved. Some may not be led to, and only the first
    /// [`MOST_ADDRESSES`] are served.
    Name(&'a [IpAddr]),
    /// No name is served: `--external-names=off`.
    Off,
    /// Neither an address nor a DNS name.
    NoName,
}

impl<'a> ExternalTarget<'a> {
    pub(super) fn of(
        observed: &'a Observed,
        settings: &Settings,
        service: &Service,
        name: &str,
    ) -> Self {
        if settings.flags.external_names == ExternalNames::Off {
            return Self::Off;
        }
        if let Ok(address) = name.parse() {
            return Self::Address(address);
        }
        let is_name = name.strip_suffix('.').unwrap_or(name).parse::<ServerName>();
        match is_name {
            Ok(_) => {
                let resolved = observed.resolved.get(name).filter(|all| !all.is_empty());
                let found = resolved.or_else(|| observed.earlier.get(&service.key));
                Self::Name(found.map_or(&[], Vec::as_slice))
            }
            Err(_) => Self::NoName,
        }
    }
}

/// Whether an endpoint gets connections. If two slices list one address, the better state counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Readiness {
    /// The endpoint gets connections.
    Ready,
    /// The endpoint terminates and still serves: it gets connections while no endpoint is ready.
    Terminating,
    /// The endpoint terminates and serves no more.
    NotServing,
}

impl Readiness {
    fn of(endpoint: &Endpoint) -> Option<Self> {
        match (endpoint.ready, endpoint.terminating, endpoint.serving) {
            (true, ..) => Some(Self::Ready),
            (_, true, true) => Some(Self::Terminating),
            (_, true, false) => Some(Self::NotServing),
            (false, false, _) => None,
        }
    }
}

/// The port numbers that a slice has for a Service port, found by the name of the port.
pub(super) fn numbers(slice: &Slice, port: &Port) -> BTreeSet<u16> {
    let named = slice
        .ports
        .iter()
        .filter(|known| known.name == port.name && known.protocol == port.protocol);
    named.filter_map(|known| known.number).collect()
}

/// Those of these nodes on which endpoints of these slices get connections. While one of them has a ready endpoint, endpoints that
/// terminate count for none: clients are to be elsewhere before those end.
pub(super) fn serving<'n>(slices: &[&Slice], nodes: &[&'n Node]) -> BTreeSet<&'n str> {
    let mut best: BTreeMap<&str, Readiness> = BTreeMap::new();
    for endpoint in slices.iter().flat_map(|slice| &slice.endpoints) {
        if let (Some(node), Some(readiness)) = (&endpoint.node, Readiness::of(endpoint)) {
            let known = best.entry(node).or_insert(readiness);
            *known = readiness.min(*known);
        }
    }
    let with = |readiness| {
        let names = nodes.iter().map(|node| &*node.name);
        names
            .filter(|name| best.get(name) == Some(&readiness))
            .collect()
    };
    let ready: BTreeSet<&str> = with(Readiness::Ready);
    match ready.is_empty() {
        true => with(Readiness::Terminating),
        false => ready,
    }
}

fn is_in(observed: &Observed, endpoint: &Endpoint, scope: Scope<'_>) -> bool {
    let on_node = |name: &str| endpoint.node.as_deref() == Some(name);
    if !scope.only_on.is_none_or(on_node) {
        return false;
    }
    scope.nodes.is_none_or(|selector| {
        let name = endpoint.node.as_ref();
        let node = name.and_then(|name| observed.nodes.get(name));
        node.is_some_and(|node| selector.matches(&node.labels))
    })
}

/// The endpoints of the first IP family with a usable one; if there is none, those of the first family that has any. Addresses
/// that a table cannot have are dropped, since the data plane would refuse the whole table.
fn by_family(
    service: &Service,
    find: impl Fn(Family) -> Vec<table::Endpoint>,
) -> Vec<table::Endpoint> {
    let families = match service.families.as_slice() {
        [] => &[Family::V4, Family::V6],
        families => families,
    };
    let mut all: Vec<Vec<table::Endpoint>> = families.iter().map(|one| find(*one)).collect();
    for found in &mut all {
        found.retain(|endpoint| no_single_host(endpoint.address.ip()).is_none());
    }
    let is_usable = |found: &Vec<table::Endpoint>| {
        let mut endpoints = found.iter();
        endpoints.any(|endpoint| endpoint.state == State::Ready)
    };
    let best = all.iter().position(is_usable);
    let best = best.or_else(|| all.iter().position(|found| !found.is_empty()));
    best.map(|index| all.swap_remove(index)).unwrap_or_default()
}

fn plain(addresses: &[IpAddr], family: Family, port: Option<u16>) -> Vec<table::Endpoint> {
    let addresses = addresses.iter().map(IpAddr::to_canonical);
    let of_family = addresses.filter(|address| Family::of(*address) == family);
    let of_family: BTreeSet<IpAddr> = of_family.collect();
    let addresses = of_family.into_iter();
    let endpoints = addresses.filter_map(|address| Some(at(SocketAddr::new(address, port?))));
    endpoints.collect()
}

/// The node port on every node; no endpoint if the Service port has no node port.
fn node_ports(
    observed: &Observed,
    family: Family,
    port: &Port,
    scope: Scope<'_>,
) -> Vec<table::Endpoint> {
    let Some(number) = port.node_port else {
        return Vec::new();
    };
    let members = observed.nodes.values().filter(|node| {
        let selector = scope.nodes;
        selector.is_none_or(|selector| selector.matches(&node.labels))
            && scope.only_on.is_none_or(|name| name == node.name)
    });
    let endpoints = members.filter_map(|node| {
        let internal = nodes::first(&node.internal, family);
        let address = internal.or_else(|| nodes::first(&node.external, family))?;
        Some(table::Endpoint {
            node: node.name.parse().ok(),
            ..at(SocketAddr::new(address, number))
        })
    });
    let mut endpoints: Vec<table::Endpoint> = endpoints.collect();
    endpoints.sort_by_key(|endpoint| endpoint.address);
    endpoints.dedup_by_key(|endpoint| endpoint.address);
    endpoints
}

/// The number of the target port, if it has no name.
pub(super) fn target_number(port: &Port) -> Option<u16> {
    match port.target {
        Target::Number(number) => Some(number),
        Target::Name(_) => None,
    }
}

fn at(address: SocketAddr) -> table::Endpoint {
    table::Endpoint {
        address,
        name: None,
        weight: 1,
        state: State::Ready,
        max_connections: None,
        node: None,
        zone: None,
    }
}

/// Warns of slices of names (addressType FQDN) and of addresses that no endpoint can have: they are left out. The API server
/// accepts some of them.
pub(super) fn warn_of_slices(context: &Context<'_>, reader: &mut Reader<'_>) {
    let slices = context.slices.of_service(&reader.service.key);
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let unusable = endpoints.filter_map(|endpoint| {
        let address = endpoint.address?;
        Some((address, no_single_host(address)?))
    });
    let first = unusable
        .min()
        .map(|(address, what)| format!("the endpoint {address} is {what}; it is left out"));
    let has_names = slices.iter().any(|slice| slice.family.is_none());
    let names = has_names.then(|| {
        "an EndpointSlice of addressType FQDN is ignored; use IPv4 or IPv6, or a Service of type ExternalName".to_owned()
    });
    for why in first.into_iter().chain(names) {
        let message = format!("Error syncing load balancer: {why}");
        reader.warn_by_node(Reason::SyncLoadBalancerFailed, message);
    }
}
