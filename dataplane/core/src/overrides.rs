//! Operator overrides: the state, the weight and the limit of endpoints, the limit of frontends, and which of these are closed.
//!
//! An input of [`compile`](crate::compile), held by the plan, so that a swap keeps them. An override that equals the table's
//! value is dropped, and so is one of an endpoint or frontend that was removed from the table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::service::Override;
use crate::table::{self, Name, State};

/// All overrides in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    endpoints: BTreeMap<Name, BTreeMap<SocketAddr, Override>>,
    max_connections: BTreeMap<Name, NonZeroU32>,
    /// Frontends that do not listen.
    closed: BTreeSet<Name>,
}

impl Overrides {
    /// Whether there are no overrides.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.max_connections.is_empty() && self.closed.is_empty()
    }

    /// The override of this endpoint.
    #[must_use]
    pub fn of_endpoint(&self, service: &str, address: &SocketAddr) -> Override {
        self.of_service(service)
            .and_then(|endpoints| endpoints.get(address))
            .copied()
            .unwrap_or_default()
    }

    /// The overridden limit of this frontend.
    #[must_use]
    pub fn max_connections(&self, frontend: &str) -> Option<NonZeroU32> {
        self.max_connections.get(frontend).copied()
    }

    /// Whether this frontend is closed by hand.
    #[must_use]
    pub fn is_closed(&self, frontend: &str) -> bool {
        self.closed.contains(frontend)
    }

    /// Applies one change.
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
        self.endpoints
            .entry(service.clone())
            .or_default()
            .entry(address)
            .or_default()
    }
}

/// One change of the overrides. `None` stands for the table's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideChange {
    /// An endpoint's state.
    State(Name, SocketAddr, Option<State>),
    /// An endpoint's weight.
    Weight(Name, SocketAddr, Option<u16>),
    /// An endpoint's limit of connections.
    EndpointMaxConnections(Name, SocketAddr, Option<NonZeroU32>),
    /// Whether a frontend is closed, whatever the table says.
    Closed(Name, bool),
    /// A frontend's limit.
    MaxConnections(Name, Option<NonZeroU32>),
    /// Removes all overrides of an endpoint.
    Reset(Name, SocketAddr),
}

#[cfg(test)]
mod tests;
