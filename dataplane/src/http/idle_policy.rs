//! Which idle connections to endpoints may serve a request.

use ballast_core::service::Service;
use ballast_core::table::{Reuse, SendProxy};

use super::peer::Peer;
use super::request::RequestFacts;
use crate::worker::pool::Owner;

/// Which idle connections may serve a request.
#[derive(Clone, Copy)]
pub(super) struct IdlePolicy {
    /// The owner of idle connections to the service.
    pub(super) owner: Owner,
    pub(super) may_use: bool,
}

impl IdlePolicy {
    /// The policy for a request of this client; `is_first`: it has sent no request before this one.
    pub(super) fn of(peer: &Peer, is_first: bool, service: &Service, facts: &RequestFacts) -> Self {
        let spec = service.spec();
        let reuse = spec
            .http
            .as_ref()
            .map_or_else(Reuse::default, |http| http.reuse);
        // After a PROXY header, an endpoint takes every request of the connection for one of the client in the header.
        let is_private = spec.send_proxy != SendProxy::Off || reuse == Reuse::Never;
        Self {
            owner: is_private.then_some(peer.id()),
            may_use: is_private || reuse == Reuse::Always || !is_first || facts.is_repeatable,
        }
    }
}
