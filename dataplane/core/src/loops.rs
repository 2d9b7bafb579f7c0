//! Which endpoints are Ballast's own frontends, and which of those close a loop.
//!
//! A service whose endpoint is the address of a frontend of the same table sends its clients through Ballast twice. As a chain
//! that is allowed. Where the chain comes back to where it began (frontend, service, the same frontend, or over others in
//! between), one connection would open the next one until no descriptor is left, and one datagram would go round for ever.
//! So [`compile`](crate::compile) marks the endpoints that close a loop, and no client is ever sent to them.
//!
//! Only addresses are compared. A chain through another proxy, or through an address translation, cannot be seen here.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::plan::Transport;
use crate::table::{self, Name};

mod graph;
mod words;

use graph::{Graph, components};

/// The addresses of the host that serves the table: what `*` stands for beside loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// In order, each once.
    addresses: Vec<IpAddr>,
}

/// A host of which nothing is known: it has loopback alone.
pub static LOOPBACK_ALONE: Here = Here {
    addresses: Vec::new(),
};

impl Here {
    fn holds(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.addresses.binary_search(&address).is_ok()
    }
}

impl FromIterator<IpAddr> for Here {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let canonical = addresses.into_iter().map(|address| address.to_canonical());
        let mut addresses: Vec<_> = canonical.collect();
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses }
    }
}

/// What was found in one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// By the service's place in the table: the places of its endpoints that close a loop, in order.
    closing: BTreeMap<usize, Vec<usize>>,
    warnings: Vec<String>,
}

impl Loops {
    /// The places of the endpoints of this service that close a loop, in order.
    #[must_use]
    pub fn of_service(&self, service: usize) -> &[usize] {
        self.closing.get(&service).map_or(&[], Vec::as_slice)
    }

    /// A line for each service that leads to own frontends, up to a limit: the loops first.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Looks for own frontends among the endpoints of a table. An endpoint for which `is_used` is false counts as absent.
///
/// Takes a time that grows with the size of the table, and no faster.
pub fn find<F: Borrow<table::Frontend>, S: Borrow<table::Service>>(
    frontends: &[F],
    services: &[S],
    here: &Here,
    is_used: impl Fn(&table::Service, &table::Endpoint) -> bool,
) -> Loops {
    let own = Own::of(frontends, here);
    let users = Users::of(frontends, services);
    let leads = leads(services, &own, &users, is_used);
    if leads.is_empty() {
        return Loops::default();
    }
    let graph = graph(frontends.len(), services.len(), &users, &leads);
    let component = components(&graph);
    let closes = |lead: &Lead| {
        let service = node(frontends.len(), lead.service, lead.transport);
        component.get(service) == component.get(lead.frontend)
    };
    let (closing, chains): (Vec<Lead>, Vec<Lead>) =
        leads.iter().copied().partition(|lead| closes(lead));
    let words = words::Words {
        frontends,
        services,
        users: &users,
        graph: &graph,
        leads: &leads,
    };
    let mut loops = Loops {
        closing: BTreeMap::new(),
        warnings: words.warnings(&closing, &chains),
    };
    for lead in closing {
        let places = loops.closing.entry(lead.service).or_default();
        // The leads of one service are in the order of its endpoints, once or twice each.
        if places.last() != Some(&lead.endpoint) {
            places.push(lead.endpoint);
        }
    }
    loops
}

/// By service, endpoint and transport.
fn leads<S: Borrow<table::Service>>(
    services: &[S],
    own: &Own<'_>,
    users: &Users,
    is_used: impl Fn(&table::Service, &table::Endpoint) -> bool,
) -> Vec<Lead> {
    let mut leads = Vec::new();
    for (at, service) in services.iter().enumerate() {
        let service = service.borrow();
        for (place, endpoint) in service.endpoints.iter().enumerate() {
            for transport in users.transports(at) {
                let Some(frontend) = own.frontend(transport, endpoint.address) else {
                    continue;
                };
                if is_used(service, endpoint) {
                    leads.push(Lead {
                        service: at,
                        endpoint: place,
                        transport,
                        frontend,
                    });
                }
            }
        }
    }
    leads
}

/// An endpoint that is an own frontend, for a transport by which its service is used.
#[derive(Clone, Copy, Debug)]
struct Lead {
    service: usize,
    endpoint: usize,
    transport: Transport,
    frontend: usize,
}

/// Where the frontends of a table can be reached.
struct Own<'a> {
    exact: FxHashMap<(Transport, SocketAddr), usize>,
    /// Binds to all addresses of a family, by port.
    any: FxHashMap<(Transport, bool, u16), usize>,
    here: &'a Here,
}

impl<'a> Own<'a> {
    fn of<F: Borrow<table::Frontend>>(frontends: &[F], here: &'a Here) -> Self {
        let mut own = Self {
            exact: FxHashMap::default(),
            any: FxHashMap::default(),
            here,
        };
        for (index, frontend) in frontends.iter().enumerate() {
            let frontend = frontend.borrow();
            let transport = Transport::of(frontend.protocol);
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

    /// The frontend that answers at this address. The kernel prefers the exact bind. One counts whether or not this host
    /// holds its address now: where another node holds it, that node serves the same table.
    fn frontend(&self, transport: Transport, address: SocketAddr) -> Option<usize> {
        if let Some(exact) = self.exact.get(&(transport, address)) {
            return Some(*exact);
        }
        let any = (transport, address.is_ipv4(), address.port());
        let any = self.any.get(&any)?;
        self.here.holds(address.ip()).then_some(*any)
    }
}

/// Which frontends use which service.
struct Users {
    /// By frontend: its transport, and its services.
    services: Vec<(Transport, Vec<usize>)>,
    /// By service: the first frontend that uses it by TCP, and by UDP.
    first: Vec<[Option<usize>; 2]>,
}

impl Users {
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
            let transport = Transport::of(frontend.protocol);
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

/// The place of a service in the graph: after all frontends, once for each transport.
fn node(frontends: usize, service: usize, transport: Transport) -> usize {
    frontends + 2 * service + transport as usize
}

/// Frontends lead to services, and services to own frontends.
fn graph(frontends: usize, services: usize, users: &Users, leads: &[Lead]) -> Graph {
    let mut edges = Vec::new();
    for (frontend, (transport, used)) in users.services.iter().enumerate() {
        let to = |service: &usize| (frontend, node(frontends, *service, *transport));
        edges.extend(used.iter().map(to));
    }
    let back = |lead: &Lead| (node(frontends, lead.service, lead.transport), lead.frontend);
    edges.extend(leads.iter().map(back));
    Graph::new(frontends + 2 * services, &edges)
}

#[cfg(test)]
mod tests;
