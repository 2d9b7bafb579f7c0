//! What a new plan means for what is there: sockets to open and to close, and endpoints that nobody is sent to any more.
//!
//! Called by the data plane's `apply` between [`compile`](crate::compile::compile()) and the moment the plan is
//! published. Nothing here opens, closes or ends anything.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::endpoint::EndpointState;
use crate::plan::{Frontend, Listens, Plan, Serves, SocketKey};
use crate::service::{Endpoint, Service};
use crate::table::OnGone;

/// What has to be done before and after a plan is published. A socket that is in neither list stays as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Sockets to open before.
    pub open: Vec<SocketKey>,
    /// Sockets to close after.
    pub close: Vec<SocketKey>,
    /// Endpoints that the old plan had and the new one has not.
    pub gone_endpoints: Vec<GoneEndpoint>,
    /// Whether a udp frontend of both plans has another idle time now, which its flows are to take over.
    pub idle_times: bool,
}

/// An endpoint that left the table.
#[derive(Clone, Debug)]
pub struct GoneEndpoint {
    /// What is known of it, its open connections among that.
    pub endpoint: Arc<EndpointState>,
    /// What becomes of those connections: `on-removed` of the last table that had the endpoint.
    pub connections: OnGone,
}

/// Compares the sockets that are `bound` with those that `new` wants, and the endpoints of `new` with those of `old`.
/// Each wanted socket that is not bound is opened, whether it is new or could not be bound before.
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
                connections: service.spec().on_removed,
            })
            .collect(),
        idle_times: new
            .frontends()
            .iter()
            .any(|frontend| has_other_idle_time(frontend, old)),
    }
}

fn has_other_idle_time(frontend: &Frontend, old: &Plan) -> bool {
    let before = || frontend.sockets().iter().find_map(|key| old.frontend(key));
    matches!(frontend.serves(), Serves::Udp(_))
        && before().is_some_and(|before| {
            Arc::ptr_eq(before.state(), frontend.state())
                && before.spec().timeouts.idle != frontend.spec().timeouts.idle
        })
}

/// The endpoints of `old` that `new` has not, each with its service in `old`. Services that both plans share are not
/// looked into, so that a small change costs little.
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
