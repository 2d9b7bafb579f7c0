//! The difference between two plans: which sockets to open and to close, and which endpoints have been removed.
//!
//! The data plane's `apply` calls it after [`compile`](crate::compile::compile()) and before the plan is published. Nothing
//! here opens, closes or ends anything.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::endpoint::EndpointState;
use crate::plan::{Frontend, Listens, Plan, Serves, SocketKey};
use crate::service::{Endpoint, Service};
use crate::table::OnGone;

/// What has to be done before and after a plan is published. A socket in neither list stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Sockets to open before the plan is published.
    pub open: Vec<SocketKey>,
    /// Sockets to close after the plan is published.
    pub close: Vec<SocketKey>,
    /// Endpoints of the old plan that the new plan lacks.
    pub gone_endpoints: Vec<GoneEndpoint>,
    /// Whether the flows of a UDP frontend of both plans are to take over another idle timeout, or another way to carry the PROXY
    /// header.
    pub revises_flows: bool,
    /// Whether clients that have open connections to an HTTP frontend would not be let in by such a connection any more.
    pub shuts_out: bool,
}

/// An endpoint that was removed from the table.
#[derive(Clone, Debug)]
pub struct GoneEndpoint {
    /// Its state, including its open connections.
    pub endpoint: Arc<EndpointState>,
    /// What happens to its connections: `on-removed` of the last table that had the endpoint.
    pub connections: OnGone,
}

/// Compares the `bound` sockets with those that `new` wants, and the endpoints of `new` with those of `old`. Every wanted
/// socket that is not bound is opened, also one that could not be bound before.
#[must_use]
pub fn change(bound: &BTreeSet<SocketKey>, old: &Plan, new: &Plan) -> Change {
    let wanted: BTreeSet<SocketKey> = new
        .frontends()
        .iter()
        .filter(|frontend| frontend.listens() == Listens::Yes)
        .flat_map(|frontend| frontend.sockets().iter().cloned())
        .collect();
    Change {
        open: wanted.difference(bound).cloned().collect(),
        close: bound.difference(&wanted).cloned().collect(),
        gone_endpoints: gone(old, new)
            .map(|(service, endpoint)| GoneEndpoint {
                endpoint: Arc::clone(endpoint.live()),
                connections: if was_moved(endpoint.address(), service, new) {
                    OnGone::Keep
                } else {
                    service.spec().on_removed
                },
            })
            .chain(left_behind(old, new))
            .collect(),
        revises_flows: new
            .frontends()
            .iter()
            .any(|frontend| revises_flows(frontend, old)),
        shuts_out: old.frontends().iter().any(|before| shuts_out(before, new)),
    }
}

/// Whether a plan lacks this frontend for HTTP, or has it with other rules about whose connections may use it.
fn shuts_out(before: &Frontend, new: &Plan) -> bool {
    let Serves::Http(http) = before.serves() else {
        return false;
    };
    let is_like = |after: &Arc<Frontend>| match after.serves() {
        Serves::Http(other) => {
            other.is_https() == http.is_https()
                && after.spec().source_ranges == before.spec().source_ranges
                && after.client_auth() == before.client_auth()
        }
        _ => false,
    };
    let mut sockets = before.sockets().iter();
    !sockets.all(|socket| new.frontend(socket).is_some_and(is_like))
}

/// The sockets of all frontends that listen, or would if an operator enabled an endpoint by hand.
#[must_use]
pub fn may_be_wanted(plan: &Plan) -> Vec<SocketKey> {
    let may_listen = |frontend: &&Arc<Frontend>| match frontend.serves() {
        Serves::Nothing => false,
        Serves::Http(_) | Serves::Tls(_) => true,
        Serves::Tcp(backends) | Serves::Udp(backends) => backends
            .services()
            .any(|service| !service.endpoints().is_empty()),
    };
    let frontends = plan.frontends().iter().filter(may_listen);
    frontends
        .flat_map(|frontend| frontend.sockets().iter().cloned())
        .collect()
}

/// Whether the endpoint of this address was given another one by hand, and was not removed from the table.
fn was_moved(address: SocketAddr, before: &Service, new: &Plan) -> bool {
    let after = new.service(before.state().name());
    if !before.has_moved() && !after.is_some_and(|after| after.has_moved()) {
        return false;
    }
    let place = |endpoint: &Endpoint| endpoint.address() == address;
    let index = before.endpoints().iter().position(place);
    let table = index.and_then(|index| before.table().endpoints.get(index));
    table.is_some_and(|table| has_in_table(new, before.state().name(), table.address))
}

fn has_in_table(plan: &Plan, service: &str, address: SocketAddr) -> bool {
    plan.service(service).is_some_and(|service| {
        let mut endpoints = service.table().endpoints.iter();
        endpoints.any(|endpoint| endpoint.address == address)
    })
}

/// Endpoints that have connections at their address of the table, although an operator had given them another, and that the
/// new table lacks.
fn left_behind<'p>(old: &'p Plan, new: &'p Plan) -> impl Iterator<Item = GoneEndpoint> {
    old.leaving.iter().filter_map(|endpoint| {
        let (name, address) = (endpoint.service().name(), endpoint.address());
        let service = old.service(name).filter(|service| service.has_moved())?;
        let goes = has_in_table(old, name, address) && !has_in_table(new, name, address);
        goes.then(|| GoneEndpoint {
            endpoint: Arc::clone(endpoint),
            connections: service.spec().on_removed,
        })
    })
}

fn revises_flows(frontend: &Frontend, old: &Plan) -> bool {
    let Serves::Udp(backends) = frontend.serves() else {
        return false;
    };
    let has_other_header = |service: &Arc<Service>| {
        let before = old.service(service.state().name());
        before.is_some_and(|before| {
            !Arc::ptr_eq(before, service)
                && before.spec().datagram_header() != service.spec().datagram_header()
        })
    };
    let sockets = frontend.sockets().iter();
    let mut before = sockets.filter_map(|key| old.frontend(key));
    let before = before.find(|before| Arc::ptr_eq(before.state(), frontend.state()));
    before.is_some_and(|before| {
        before.spec().timeouts.idle != frontend.spec().timeouts.idle
            || backends.services().any(has_other_header)
    })
}

/// The endpoints of `old` that `new` lacks, each with its service in `old`. Services that both plans share are skipped, so that
/// a small change costs little.
pub(crate) fn gone<'p>(
    old: &'p Plan,
    new: &'p Plan,
) -> impl Iterator<Item = (&'p Service, &'p Endpoint)> {
    old.services().iter().flat_map(|before| {
        let after = new.service(before.state().name());
        let shared = after.is_some_and(|after| Arc::ptr_eq(before, after));
        let looked_into: &[Endpoint] = if shared { &[] } else { before.endpoints() };
        let stay: FxHashSet<SocketAddr> = after
            .filter(|_| !shared)
            .into_iter()
            .flat_map(|after| after.endpoints())
            .map(Endpoint::address)
            .collect();
        looked_into
            .iter()
            .filter(move |endpoint| !stay.contains(&endpoint.address()))
            .map(|endpoint| (before.as_ref(), endpoint))
    })
}
