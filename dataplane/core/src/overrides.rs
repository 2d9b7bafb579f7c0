//! Operator overrides: the state, the weight, the limit, the address and the port of checks of endpoints, the limit of
//! frontends, and which of these are closed.
//!
//! An input of [`compile`](crate::compile), held by the plan, so that a swap keeps them. An override that equals the table's
//! value is dropped, and so is one of an endpoint or frontend that was removed from the table.
//!
//! An endpoint is named by the address that it has: that of the table, or the one that an operator has given it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::table::{self, Name, State, no_single_host};

/// The override of an endpoint. What is absent is as in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    pub weight: Option<u16>,
    pub state: Option<State>,
    pub max_connections: Option<NonZeroU32>,
    pub address: Option<SocketAddr>,
    pub check_port: Option<NonZeroU16>,
}

/// All overrides in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// By the address of the endpoint in the table.
    endpoints: BTreeMap<Name, BTreeMap<SocketAddr, Override>>,
    max_connections: BTreeMap<Name, NonZeroU32>,
    /// Frontends that do not listen.
    closed: BTreeSet<Name>,
}

impl Overrides {
    /// Whether there are no overrides.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.max_connections.is_empty() && self.closed.is_empty()
    }

    #[must_use]
    pub fn of_endpoint(&self, service: &str, address: &SocketAddr) -> Override {
        self.in_table(service, &self.table_address(service, *address))
    }

    /// The override of the endpoint that has this address in the table.
    pub(crate) fn in_table(&self, service: &str, address: &SocketAddr) -> Override {
        self.of_service(service)
            .and_then(|endpoints| endpoints.get(address))
            .copied()
            .unwrap_or_default()
    }

    /// The address in the table of the endpoint that has this address.
    fn table_address(&self, service: &str, address: SocketAddr) -> SocketAddr {
        let mut endpoints = self.of_service(service).into_iter().flatten();
        let moved = endpoints.find(|(_, over)| over.address == Some(address));
        moved.map_or(address, |(table, _)| *table)
    }

    /// The service with the addresses that operators have given its endpoints; `None`: they have those of the table.
    pub(crate) fn moved(&self, service: &table::Service) -> Option<Arc<table::Service>> {
        let endpoints = self.of_service(&service.name)?;
        if endpoints.values().all(|over| over.address.is_none()) {
            return None;
        }
        let mut moved = service.clone();
        for endpoint in &mut moved.endpoints {
            let table = endpoint.address;
            if let Some(address) = endpoints.get(&table).and_then(|over| over.address) {
                // It is called what it was called.
                endpoint.name.get_or_insert_with(|| Name::of_address(table));
                endpoint.address = address;
            }
        }
        Some(Arc::new(moved))
    }

    /// The overridden limit of this frontend.
    #[must_use]
    pub fn max_connections(&self, frontend: &str) -> Option<NonZeroU32> {
        self.max_connections.get(frontend).copied()
    }

    /// Whether this frontend is closed by hand.
    pub fn is_closed(&self, frontend: &str) -> bool {
        self.closed.contains(frontend)
    }

    pub fn change(&mut self, change: &OverrideChange) {
        match change {
            OverrideChange::State(service, address, state) => {
                self.endpoint(service, *address).state = *state;
            }
            OverrideChange::Weight(service, address, weight) => {
                self.endpoint(service, *address).weight = *weight;
            }
            OverrideChange::EndpointMaxConnections(service, address, max) => {
                self.endpoint(service, *address).max_connections = *max;
            }
            OverrideChange::Address(service, address, wanted) => {
                self.endpoint(service, *address).address = *wanted;
            }
            OverrideChange::CheckPort(service, address, port) => {
                self.endpoint(service, *address).check_port = *port;
            }
            OverrideChange::Closed(frontend, true) => {
                self.closed.insert(frontend.clone());
            }
            OverrideChange::Closed(frontend, false) => {
                self.closed.remove(frontend);
            }
            OverrideChange::MaxConnections(frontend, Some(max)) => {
                self.max_connections.insert(frontend.clone(), *max);
            }
            OverrideChange::MaxConnections(frontend, None) => {
                self.max_connections.remove(frontend);
            }
            OverrideChange::Reset(service, address) => {
                *self.endpoint(service, *address) = Override::default();
            }
        }
    }

    /// The changes that lead from no overrides to these. An endpoint gets its address last: the other ones name it by that of the
    /// table.
    #[must_use]
    pub fn changes(&self) -> Vec<OverrideChange> {
        use OverrideChange as To;
        let mut changes = Vec::new();
        for (service, endpoints) in &self.endpoints {
            for (at, over) in endpoints {
                let (of, at) = (|| service.clone(), *at);
                changes.extend(over.state.map(|to| To::State(of(), at, Some(to))));
                changes.extend(over.weight.map(|to| To::Weight(of(), at, Some(to))));
                let max = over.max_connections;
                changes.extend(max.map(|to| To::EndpointMaxConnections(of(), at, Some(to))));
                changes.extend(over.check_port.map(|to| To::CheckPort(of(), at, Some(to))));
                changes.extend(over.address.map(|to| To::Address(of(), at, Some(to))));
            }
        }
        let limits = self.max_connections.iter();
        changes.extend(limits.map(|(name, max)| To::MaxConnections(name.clone(), Some(*max))));
        let closed = self.closed.iter();
        changes.extend(closed.map(|name| To::Closed(name.clone(), true)));
        changes
    }

    /// Why this change cannot be made to the services that `in_table` finds by name.
    pub(crate) fn refuses<'t>(
        &self,
        change: &OverrideChange,
        in_table: impl Fn(&str) -> Option<&'t table::Service>,
    ) -> Option<OverrideRefusal> {
        let (OverrideChange::Address(service, address, _)
        | OverrideChange::CheckPort(service, address, _)) = change
        else {
            return None;
        };
        let table = self.table_address(service, *address);
        let Some(spec) = in_table(service).filter(|spec| has(spec, table)) else {
            return Some(OverrideRefusal::NoEndpoint);
        };
        match change {
            OverrideChange::Address(_, _, Some(wanted)) => {
                self.refuses_address(spec, table, *wanted)
            }
            OverrideChange::CheckPort(_, _, Some(_)) if spec.checks().is_none() => {
                Some(OverrideRefusal::NoChecks)
            }
            _ => None,
        }
    }

    /// Why the endpoint at `table` of this service cannot have the address `wanted`.
    fn refuses_address(
        &self,
        service: &table::Service,
        table: SocketAddr,
        wanted: SocketAddr,
    ) -> Option<OverrideRefusal> {
        if let Some(what) = no_single_host(wanted.ip()) {
            return Some(OverrideRefusal::NoHost(wanted, what));
        }
        if wanted.port() == 0 {
            return Some(OverrideRefusal::NoPort);
        }
        // Also one that its endpoint does not have now: it shall have it again by `default`.
        let is_given = self.of_service(&service.name).is_some_and(|endpoints| {
            let mut others = endpoints.iter().filter(|(other, _)| **other != table);
            others.any(|(_, over)| over.address == Some(wanted))
        });
        let is_taken = wanted != table && (is_given || has(service, wanted));
        is_taken.then_some(OverrideRefusal::Taken(wanted))
    }

    pub(crate) fn of_service(&self, service: &str) -> Option<&BTreeMap<SocketAddr, Override>> {
        self.endpoints.get(service)
    }

    /// Drops overrides that equal this table's values, or whose object it lacks.
    pub(crate) fn settle(
        mut self,
        services: &[Arc<table::Service>],
        frontends: &[Arc<table::Frontend>],
    ) -> Self {
        self.endpoints.retain(|name, endpoints| {
            let Some(service) = services.iter().find(|service| service.name == *name) else {
                return false;
            };
            endpoints.retain(|address, over| {
                let spec = service
                    .endpoints
                    .iter()
                    .find(|endpoint| endpoint.address == *address);
                let Some(spec) = spec else {
                    return false;
                };
                over.state = over.state.filter(|state| *state != spec.state);
                over.weight = over.weight.filter(|weight| *weight != spec.weight);
                over.max_connections = over
                    .max_connections
                    .filter(|max| Some(*max) != spec.max_connections);
                over.address = over.address.filter(|wanted| !has(service, *wanted));
                let port = service.checks().map(|health| health.port);
                over.check_port = over
                    .check_port
                    .filter(|wanted| port.is_some_and(|port| port != Some(*wanted)));
                *over != Override::default()
            });
            !endpoints.is_empty()
        });
        self.max_connections.retain(|name, max| {
            let spec = frontends.iter().find(|frontend| frontend.name == *name);
            spec.is_some_and(|spec| spec.max_connections != Some(*max))
        });
        self.closed
            .retain(|name| frontends.iter().any(|frontend| frontend.name == *name));
        self
    }

    fn endpoint(&mut self, service: &Name, address: SocketAddr) -> &mut Override {
        let address = self.table_address(service, address);
        self.endpoints
            .entry(service.clone())
            .or_default()
            .entry(address)
            .or_default()
    }
}

/// One change of the overrides. `None` means the table's value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverrideChange {
    /// An endpoint's state.
    State(Name, SocketAddr, Option<State>),
    /// An endpoint's weight.
    Weight(Name, SocketAddr, Option<u16>),
    /// An endpoint's limit of connections.
    EndpointMaxConnections(Name, SocketAddr, Option<NonZeroU32>),
    /// An endpoint's address.
    Address(Name, SocketAddr, Option<SocketAddr>),
    /// The port of an endpoint's checks.
    CheckPort(Name, SocketAddr, Option<NonZeroU16>),
    /// Whether a frontend is closed, whatever the table says.
    Closed(Name, bool),
    /// A frontend's limit.
    MaxConnections(Name, Option<NonZeroU32>),
    /// Removes all overrides of an endpoint.
    Reset(Name, SocketAddr),
}

/// Why a change of the overrides cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideRefusal {
    /// The table does not have the endpoint.
    NoEndpoint,
    /// The endpoint is not checked.
    NoChecks,
    /// The address is no host's, and what it is.
    NoHost(SocketAddr, &'static str),
    /// The address has the port 0.
    NoPort,
    /// Another endpoint of the service has the address, or has it in the table.
    Taken(SocketAddr),
    /// The address leads back to the service by a frontend of the table.
    Loop(SocketAddr),
}

impl fmt::Display for OverrideRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEndpoint => f.write_str("No such server."),
            Self::NoChecks => f.write_str("health checks are not enabled on this server"),
            Self::NoHost(address, what) => write!(
                f,
                "Invalid addr '{}': it is {what}; expected the address of one host.",
                address.ip()
            ),
            Self::NoPort => f.write_str("Invalid port '0': expected 1 to 65535."),
            Self::Taken(address) => write!(
                f,
                "Invalid addr '{address}': another server of this backend has it; expected an address that none has."
            ),
            Self::Loop(address) => write!(
                f,
                "Invalid addr '{address}': Ballast listens there, and its clients would come back to this backend; expected the address of a server."
            ),
        }
    }
}

fn has(service: &table::Service, address: SocketAddr) -> bool {
    let mut endpoints = service.endpoints.iter();
    endpoints.any(|endpoint| endpoint.address == address)
}

#[cfg(test)]
mod tests;
