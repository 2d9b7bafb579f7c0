//! What the page and the runtime socket have in common: how an operator names an object, and what is done with it.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use ballast_core::health::ForcedHealth;
use ballast_core::table::{self, Name, OnGone, State};

use crate::stats::{EndpointStats, FrontendStats, ServiceStats, Snapshot};
use crate::worker::Shared;

/// The operator who changes something by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By<'a> {
    /// A process at the runtime socket, as the kernel reports it.
    Socket { pid: i32, uid: u32 },
    /// A user of the page; `user` is the name that was given where the page asks for one.
    Page {
        user: Option<&'a str>,
        from: SocketAddr,
    },
}

impl By<'_> {
    /// Logs what was changed.
    pub(crate) fn changed(self, what: &str) {
        match self {
            Self::Socket { pid, uid } => {
                tracing::info!(via = "socket", pid, uid, "changed by hand: {what}");
            }
            Self::Page { user, from } => {
                tracing::info!(via = "page", by = user, %from, "changed by hand: {what}");
            }
        }
    }
}

/// An endpoint, as the log names it.
pub(crate) fn full_name(service: &ServiceStats, endpoint: &EndpointStats) -> String {
    format!("{}/{}", service.name, endpoint.name)
}

/// The state of an endpoint, as the log words its change. `None`: what the table says.
pub(crate) fn state_in_words(
    service: &ServiceStats,
    endpoint: &EndpointStats,
    state: Option<State>,
) -> String {
    let word = match state {
        Some(State::Ready) => "ready",
        Some(State::Backup) => "backup",
        Some(State::Draining) => "draining",
        Some(State::Disabled) => "disabled",
        None => DEFAULT,
    };
    format!("{} state {word}", full_name(service, endpoint))
}

/// A frontend's limit, as the log words its change. `None`: what the table says.
pub(crate) fn limit_in_words(frontend: &FrontendStats, limit: Option<NonZeroU32>) -> String {
    let limit = limit.map_or_else(|| DEFAULT.into(), |limit| limit.to_string());
    format!("{} maxconn {limit}", frontend.name)
}

/// The name of a frontend, service or endpoint as an operator gives it: a name, or `#` and a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Named(String),
    Numbered(u32),
}

impl Target {
    /// `None`: the `#` is not followed by a number.
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

    /// An endpoint can also be named by its address.
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

/// The table's entry for an endpoint.
pub(crate) fn spec<'a>(
    service: &'a ServiceStats,
    endpoint: &EndpointStats,
) -> Option<&'a table::Endpoint> {
    let mut specs = service.spec.endpoints.iter();
    specs.find(|spec| spec.address == endpoint.address)
}

/// The state of an endpoint that is set to ready: a backup endpoint becomes a backup again.
pub(crate) fn ready(service: &ServiceStats, endpoint: &EndpointStats) -> State {
    match spec(service, endpoint).map(|spec| spec.state) {
        Some(State::Backup) => State::Backup,
        _ => State::Ready,
    }
}

/// Sets the health of an endpoint, until its checks say otherwise. Returns whether the endpoint exists.
pub(crate) fn force(
    shared: &Shared,
    service: &Name,
    address: SocketAddr,
    health: ForcedHealth,
) -> bool {
    let plan = shared.live.plan();
    let Some(service) = plan.service(service) else {
        return false;
    };
    let mut endpoints = service.endpoints().iter();
    let Some(endpoint) = endpoints.find(|endpoint| endpoint.address() == address) else {
        return false;
    };
    endpoint.live().force(health, shared.clock.now());
    if health == ForcedHealth::Down && service.spec().on_down == OnGone::Close {
        shared.cut(vec![Arc::clone(endpoint.live())]);
    }
    true
}

/// Resets the connections of endpoints. Returns whether any of the endpoints exists.
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

/// The word for a value that is the table's again.
pub(crate) const DEFAULT: &str = "default";
/// What the log says of connections that were reset.
pub(crate) const CUT: &str = "connections cut";
