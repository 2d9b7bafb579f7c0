//! What operators name and have done, be it on the page or on the runtime socket.

use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::table::{self, Name, State};

use crate::stats::{EndpointStats, FrontendStats, ServiceStats, Snapshot};
use crate::worker::Shared;

/// Who is meant: by name, or by `#` and a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    Named(String),
    Numbered(u32),
}

impl Meant {
    /// `None`: what stands behind the `#` is no number.
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word.strip_prefix('#') {
            Some(number) => number.parse().ok().map(Self::Numbered),
            None => Some(Self::Named(word.to_owned())),
        }
    }

    pub(crate) fn service<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a ServiceStats> {
        let mut services = snapshot.services.iter();
        services.find(|service| match self {
            Self::Named(name) => *service.name == **name,
            Self::Numbered(number) => service.iid == *number,
        })
    }

    pub(crate) fn frontend<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a FrontendStats> {
        let mut frontends = snapshot.frontends.iter();
        frontends.find(|frontend| match self {
            Self::Named(name) => *frontend.name == **name,
            Self::Numbered(number) => frontend.iid == *number,
        })
    }

    /// An endpoint has its address for a name, too.
    pub(crate) fn endpoint<'a>(&self, service: &'a ServiceStats) -> Option<&'a EndpointStats> {
        let find =
            |is: &dyn Fn(&EndpointStats) -> bool| service.endpoints.iter().find(|one| is(one));
        match self {
            Self::Numbered(number) => find(&|one| one.sid == *number),
            Self::Named(name) => find(&|one| *one.name == **name).or_else(|| {
                let address = name.parse().ok()?;
                find(&|one| one.address == address)
            }),
        }
    }
}

/// What the table says of an endpoint.
pub(crate) fn spec<'a>(
    service: &'a ServiceStats,
    endpoint: &EndpointStats,
) -> Option<&'a table::Endpoint> {
    let mut specs = service.spec.endpoints.iter();
    specs.find(|spec| spec.address == endpoint.address)
}

/// What an endpoint is that is to be ready: a backup is a backup again.
pub(crate) fn ready(service: &ServiceStats, endpoint: &EndpointStats) -> State {
    match spec(service, endpoint).map(|spec| spec.state) {
        Some(State::Backup) => State::Backup,
        _ => State::Ready,
    }
}

/// Resets the connections of endpoints. Says whether any of them is still there.
pub(crate) fn cut(shared: &Shared, service: &Name, addresses: &[SocketAddr]) -> bool {
    let plan = shared.live.plan();
    let endpoints = plan.service(service).into_iter();
    let live: Vec<_> = endpoints
        .flat_map(|service| service.endpoints())
        .filter(|endpoint| addresses.contains(&endpoint.address()))
        .map(|endpoint| Arc::clone(endpoint.live()))
        .collect();
    let is_any = !live.is_empty();
    shared.cut(live);
    is_any
}
