//! Finds endpoints that are Ballast's own frontends, and those of them that close a loop.
//!
//! A service with the address of a frontend of the same table as its endpoint sends its clients through Ballast twice. A chain
//! of services is allowed. But if the chain returns to its beginning (frontend, service, the same frontend, possibly with
//! others in between), one connection would open the next one until no descriptor is left, and one datagram would circulate for
//! ever. So [`compile`](crate::compile) marks the endpoints that close a loop, and no client is ever sent to them.
//!
//! Only addresses are compared. A chain through another proxy or an address translation is not detected.
//!
//! [`of_redirects`] finds the loops that clients walk themselves: routes that redirect them back to where they were.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::table::Transport;
use crate::table::{self, Name};

mod graph;
mod redirects;
mod warnings;

pub use redirects::of_redirects;

use graph::{Graph, components};

/// The addresses of the host that serves the table: `*` means them and loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostAddresses {
    /// Sorted, without duplicates.
    addresses: Vec<IpAddr>,
}

/// A host with unknown addresses: only loopback.
pub static LOOPBACK_ONLY: HostAddresses = HostAddresses {
    addresses: Vec::new(),
};

impl HostAddresses {
    fn contains(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.binary_search(&address).is_ok()
    }
}

impl FromIterator<IpAddr> for HostAddresses {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let canonical = addresses.into_iter().map(|address| address.to_canonical());
        let mut addresses: Vec<_> = canonical.collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// For each service, by its index in the table: the indexes of its endpoints that close a loop, sorted.
    closing: BTreeMap<usize, Vec<usize>>,
    /// A line for each service that leads to own frontends, up to a limit. Loops come first.
    pub warnings: Vec<String>,
}

impl Loops {
    /// The indexes of the endpoints of this service that close a loop, sorted.
    pub fn of_service(&self, service: usize) -> &[usize] {
        self.closing.get(&service).map_or(&[], Vec::as_slice)
    }
}

/// Finds own frontends among the endpoints of a table. Endpoints for which `is_used` is false are ignored.
///
/// The time is linear in the size of the table.
pub fn find<F: Borrow<table::Frontend>, S: Borrow<table::Service>>(
    frontends: &[F],
    services: &[S],
    host: &HostAddresses,
    is_used: impl Fn(&table::Service, &table::Endpoint) -> bool,
) -> Loops {
    let own = OwnFrontends::of(frontends, host);
    let users = ServiceUsers::of(frontends, services);
    let frontend_edges = frontend_edges(services, &own, &users, is_used);
    if frontend_edges.is_empty() {
        return Loops::default();
    }
    let graph = graph(frontends.len(), services.len(), &users, &frontend_edges);
    let component = components(&graph);
    let closes = |edge: &FrontendEdge| {
        let service = node(frontends.len(), edge.service, edge.transport);
        component.get(service) == component.get(edge.frontend)
    };
    let (closing, chains): (Vec<FrontendEdge>, Vec<FrontendEdge>) = frontend_edges
        .iter()
        .copied()
        .partition(|edge| closes(edge));
    let writer = warnings::WarningWriter {
        frontends,
        services,
        users: &users,
        graph: &graph,
        frontend_edges: &frontend_edges,
    };
    let mut loops = Loops {
        closing: BTreeMap::new(),
        warnings: writer.warnings(&closing, &chains),
    };
    for edge in closing {
        let places = loops.closing.entry(edge.service).or_default();
        // The edges of one service are in the order of its endpoints; an endpoint has one or two edges.
        if places.last() != Some(&edge.endpoint) {
            places.push(edge.endpoint);
        }
    }
    loops
}

/// All edges, ordered by service, endpoint and transport.
fn frontend_edges<S: Borrow<table::Service>>(
    services: &[S],
    own: &OwnFrontends<'_>,
    users: &ServiceUsers,
    is_used: impl Fn(&table::Service, &table::Endpoint) -> bool,
) -> Vec<FrontendEdge> {
    let mut frontend_edges = Vec::new();
    for (at, service) in services.iter().enumerate() {
        let service = service.borrow();
        for (place, endpoint) in service.endpoints.iter().enumerate() {
            for transport in users.transports(at) {
                let Some(frontend) = own.frontend(transport, endpoint.address) else {
                    continue;
                };
                if is_used(service, endpoint) {
                    frontend_edges.push(FrontendEdge {
                        service: at,
                        endpoint: place,
                        transport,
                        frontend,
                    });
                }
            }
        }
    }
    frontend_edges
}

/// An endpoint that is an own frontend, for a transport by which its service is used.
#[derive(Clone, Copy, Debug)]
struct FrontendEdge {
    service: usize,
    endpoint: usize,
    transport: Transport,
    frontend: usize,
}

/// The addresses at which the frontends of a table can be reached.
struct OwnFrontends<'a> {
    exact: FxHashMap<(Transport, SocketAddr), usize>,
    /// Binds to all addresses of a family, by port.
    any: FxHashMap<(Transport, bool, u16), usize>,
    host: &'a HostAddresses,
}

impl<'a> OwnFrontends<'a> {
    fn of<F: Borrow<table::Frontend>>(frontends: &[F], host: &'a HostAddresses) -> Self {
        let mut own = Self {
            exact: FxHashMap::default(),
            any: FxHashMap::default(),
            host,
        };
        for (index, frontend) in frontends.iter().enumerate() {
            let frontend = frontend.borrow();
            let transport = frontend.protocol.transport();
            let addresses = frontend.bind.iter().flat_map(|bind| bind.addresses());
            for address in addresses {
                if address.ip().is_unspecified() {
                    let any = (transport, address.is_ipv4(), address.port());
                    own.any.insert(any, index);
                } else {
                    own.exact.insert((transport, address), index);
                }
            }
        }
        own
    }

    /// The frontend that answers at this address. The kernel prefers the exact bind. An exact bind counts even if this host
    /// does not hold its address now: the node that holds it serves the same table.
    fn frontend(&self, transport: Transport, address: SocketAddr) -> Option<usize> {
        if let Some(exact) = self.exact.get(&(transport, address)) {
            return Some(*exact);
        }
        let any = (transport, address.is_ipv4(), address.port());
        let any = self.any.get(&any)?;
        self.host.contains(address.ip()).then_some(*any)
    }
}

/// Which frontends use which services.
struct ServiceUsers {
    /// For each frontend: its transport, and its services.
    services: Vec<(Transport, Vec<usize>)>,
    /// For each service: the first frontend that uses it by TCP, and by UDP.
    first: Vec<[Option<usize>; 2]>,
}

impl ServiceUsers {
    fn of<F: Borrow<table::Frontend>, S: Borrow<table::Service>>(
        frontends: &[F],
        services: &[S],
    ) -> Self {
        let by_name: FxHashMap<&Name, usize> = services
            .iter()
            .map(|service| &service.borrow().name)
            .zip(0..)
            .collect();
        let mut users = Self {
            services: Vec::with_capacity(frontends.len()),
            first: vec![[None; 2]; services.len()],
        };
        for (index, frontend) in frontends.iter().enumerate() {
            let frontend = frontend.borrow();
            let transport = frontend.protocol.transport();
            let names = frontend.services();
            let used: FxHashSet<usize> = names
                .filter_map(|name| by_name.get(name))
                .copied()
                .collect();
            for service in &used {
                if let Some(first) = users.first.get_mut(*service) {
                    first[transport as usize].get_or_insert(index);
                }
            }
            users.services.push((transport, used.into_iter().collect()));
        }
        users
    }

    fn transports(&self, service: usize) -> impl Iterator<Item = Transport> {
        let all = [Transport::Tcp, Transport::Udp];
        all.into_iter()
            .filter(move |transport| self.first(service, *transport).is_some())
    }

    /// The first frontend that uses this service by this transport.
    fn first(&self, service: usize, transport: Transport) -> Option<usize> {
        self.first.get(service)?[transport as usize]
    }
}

/// The node of a service in the graph: after all frontends, one for each transport.
fn node(frontends: usize, service: usize, transport: Transport) -> usize {
    frontends + 2 * service + transport as usize
}

/// Builds the graph: edges lead from frontends to services, and from services to own frontends.
fn graph(
    frontends: usize,
    services: usize,
    users: &ServiceUsers,
    frontend_edges: &[FrontendEdge],
) -> Graph {
    let mut edges = Vec::new();
    for (frontend, (transport, used)) in users.services.iter().enumerate() {
        let to = |service: &usize| (frontend, node(frontends, *service, *transport));
        edges.extend(used.iter().map(to));
    }
    let back = |edge: &FrontendEdge| (node(frontends, edge.service, edge.transport), edge.frontend);
    edges.extend(frontend_edges.iter().map(back));
    Graph::new(frontends + 2 * services, &edges)
}

#[cfg(test)]
mod tests;
