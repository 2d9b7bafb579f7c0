//! Which endpoint a client gets: [`Service::pick`].
//!
//! A pick allocates nothing and takes no lock; only affinity has a sharded table with locks. In the common case the best tier
//! has an endpoint with room, and the algorithm finds it without looking at all endpoints where it can (`pick_fast`). Otherwise
//! all endpoints are looked at to find the best tier that has any, and the algorithm chooses among those.
//!
//! The dial calls this and then reports the result: [`EndpointState::connected`], [`Service::failed`], [`Tried::note`]. A pick never
//! waits; after [`Unavailable::Full`] the client waits in the [`queue`](crate::queue).

use std::net::SocketAddr;
use std::sync::Arc;

use crate::affinity::cookie::CookieValue;
use crate::clients::canonical;
use crate::endpoint::{EndpointState, FULL_SHARE, Lease};
use crate::moment::Moment;
use crate::rng::{Rng, mix};
use crate::service::{Affinity, Endpoint, Failure, Node, Service};
use crate::table::Algorithm;

mod first;
mod least;
mod rendezvous;
mod rotate;
mod rounds;
mod sticky;
mod tier;
mod two_choices;
mod wheel;

pub(crate) use sticky::ToService;
use tier::{Candidates, Tier};
pub(crate) use wheel::Wheel;

impl Service {
    /// Picks an endpoint for a new client, or for one that tries again because those in `tried` failed. A new client does not
    /// overtake waiting clients that could use the same endpoints.
    pub fn pick(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        if tried.is_empty() && !self.state().queue().admits_newcomer() {
            return Err(Unavailable::Full);
        }
        self.pick_in_turn(key, tried, now, rng)
    }

    /// Picks an endpoint for the client at the head of the queue.
    pub fn pick_in_turn(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        match &self.affinity {
            Some(Affinity::ClientIp(keep)) => self.pick_by_address(key, tried, *keep, now, rng),
            Some(Affinity::Cookie(cookies)) => self.pick_by_cookie(key, tried, cookies, now, rng),
            None => self.pick_any(key, tried, now, rng),
        }
    }

    /// Picks by the algorithm alone, without affinity.
    fn pick_any(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        if tried.is_empty()
            && let Some(index) = self.pick_fast(key, now, rng)
            && let Some(picked) = self.take(index)
        {
            return Ok(picked);
        }
        self.pick_by_scan(key, tried, now, rng)
    }

    /// The algorithm's choice in the best tier, if it can be found without determining the best tier. `None` does not mean that
    /// there is none.
    fn pick_fast(&self, key: &Key, now: Moment, rng: &mut Rng) -> Option<usize> {
        match self.method {
            PickMethod::Rotate => rotate::pick_fast(self, now, rng),
            PickMethod::Least => least::pick_fast(self, now, rng),
            PickMethod::TwoChoices => two_choices::pick_fast(self, now, rng),
            PickMethod::ByClient | PickMethod::ByClientAndPort => {
                rendezvous::pick_fast(self, key, now)
            }
            PickMethod::First => first::pick_fast(self, now),
        }
    }

    fn pick_by_scan(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        // Other workers take leases meanwhile. Each time this worker loses a lease to them, they make progress, so a few
        // attempts are enough.
        for _ in 0..SCAN_ATTEMPTS {
            let found = self.best_tier(tried, now).ok_or_else(|| self.why_none())?;
            if found.open == 0 {
                return Err(Unavailable::Full);
            }
            let candidates = Candidates {
                service: self,
                tried,
                tier: found.tier,
                spare_nodes: found.elsewhere > 0,
                now,
            };
            let chosen = match self.method {
                PickMethod::Rotate => rotate::choose(&candidates, rng),
                PickMethod::Least => least::choose(&candidates, rng),
                PickMethod::TwoChoices => two_choices::choose(&candidates, rng),
                PickMethod::ByClient | PickMethod::ByClientAndPort => {
                    rendezvous::choose(&candidates, key)
                }
                PickMethod::First => candidates.open().next(),
            };
            if let Some(mut picked) = chosen.and_then(|index| self.take(index)) {
                picked.is_panic = found.tier == Tier::Anybody && tried.is_empty();
                return Ok(picked);
            }
        }
        Err(Unavailable::Full)
    }

    /// Why no tier has an endpoint.
    fn why_none(&self) -> Unavailable {
        if self.closing().is_empty() {
            Unavailable::NoEndpoint
        } else {
            Unavailable::Loop
        }
    }

    fn take(&self, index: usize) -> Option<Picked> {
        let endpoint = self.endpoints.get(index)?;
        Some(Picked {
            lease: endpoint.live.lease(endpoint.max)?,
            index,
            is_panic: false,
            is_for_once: false,
        })
    }

    /// Whether the endpoint at `index` is in the best tier and has room.
    fn is_open(&self, index: usize, now: Moment) -> bool {
        self.endpoints
            .get(index)
            .is_some_and(|endpoint| endpoint.is_best(now) && !endpoint.is_full())
    }

    /// The part of its share that the endpoint has reached: all of it, except during its slow start.
    fn ramp(&self, endpoint: &Endpoint, now: Moment) -> u32 {
        match self.slow_start {
            0 => FULL_SHARE,
            slow_start => endpoint.live.ramp(slow_start, now),
        }
    }

    /// Randomly admits a pick with the probability that the endpoint's slow start has reached.
    fn ramp_admits(&self, index: usize, now: Moment, rng: &mut Rng) -> bool {
        if self.slow_start == 0 {
            return true;
        }
        let ramp = self
            .endpoints
            .get(index)
            .map_or(FULL_SHARE, |endpoint| self.ramp(endpoint, now));
        ramp == FULL_SHARE || rng.below(FULL_SHARE.into()) < u64::from(ramp)
    }
}

/// What an endpoint is picked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    client: SocketAddr,
    cookie: Option<CookieValue>,
}

impl Key {
    /// The key of the client at this address, in any form.
    pub fn new(client: SocketAddr) -> Self {
        Self {
            client: canonical(client),
            cookie: None,
        }
    }

    /// The same key with the affinity cookie that the client sent. The cookie counts only in the service that its value is for.
    #[must_use]
    pub fn with_cookie(self, cookie: Option<CookieValue>) -> Self {
        Self { cookie, ..self }
    }

    /// The client's address in canonical form.
    pub fn client(&self) -> SocketAddr {
        self.client
    }
}

/// The attempts of one client. It allocates nothing while it is empty, and survives a swap between two attempts.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The endpoints tried in this round, and those that this round leaves out: none of them is picked.
    endpoints: Vec<Arc<EndpointState>>,
    /// Endpoints whose connections were cut while this client dialed them: they are not tried again.
    cut: Vec<Arc<EndpointState>>,
    /// Nodes with endpoints whose dials timed out.
    nodes: Vec<Arc<Node>>,
    /// The number of failed attempts in all rounds.
    attempts: usize,
    /// The number of completed rounds.
    rounds: u32,
}

impl Tried {
    /// Whether no attempt has failed yet.
    pub fn is_empty(&self) -> bool {
        self.attempts == 0
    }

    /// A hash of the endpoints that may not be picked; 0 if there are none. Clients with the same hash may pick the same
    /// endpoints.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_one = |tried: &Arc<EndpointState>| mix(Arc::as_ptr(tried).addr() as u64);
        self.endpoints
            .iter()
            .map(of_one)
            .fold(0, |all, one| all ^ one)
    }

    /// The number of failed attempts.
    pub fn len(&self) -> usize {
        self.attempts
    }

    /// Notes a failed dial to `endpoint`: it is not picked again in this round, and after a timeout its node is avoided.
    pub fn note(&mut self, endpoint: &Endpoint, failure: Failure) {
        self.attempts += 1;
        self.endpoints.push(Arc::clone(endpoint.live()));
        if let (Failure::TimedOut, Some(node)) = (failure, endpoint.node()) {
            self.nodes.push(Arc::clone(node));
        }
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        self.endpoints
            .iter()
            .any(|tried| Arc::ptr_eq(tried, &endpoint.live))
    }

    fn avoids(&self, endpoint: &Endpoint) -> bool {
        endpoint
            .node()
            .is_some_and(|node| self.nodes.iter().any(|silent| Arc::ptr_eq(silent, node)))
    }
}

#[derive(Debug)]
pub struct Picked {
    /// The lease, which counts the client on it.
    pub lease: Lease,
    /// Its index in [`Service::endpoints`].
    pub index: usize,
    /// Whether checks were ignored, because those of all endpoints fail. Never true for a further attempt.
    pub is_panic: bool,
    /// Whether the client has affinity for another endpoint, which is full or ejected now. Its affinity stays as it is.
    pub is_for_once: bool,
}

/// Why no endpoint can be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All eligible endpoints have their maximum of connections, or other clients are waiting already: wait in the queue.
    Full,
    /// No endpoint is eligible.
    NoEndpoint,
    /// No endpoint is eligible, some of them only because they lead back to this service.
    Loop,
}

/// The methods, compiled from the table's algorithm and affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickMethod {
    Rotate,
    Least,
    TwoChoices,
    ByClient,
    ByClientAndPort,
    First,
}

impl PickMethod {
    pub(crate) fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::RoundRobin => Self::Rotate,
            Algorithm::LeastConnections => Self::Least,
            Algorithm::SourceHash => Self::ByClient,
            Algorithm::SourcePortHash => Self::ByClientAndPort,
            Algorithm::Random => Self::TwoChoices,
            Algorithm::First => Self::First,
        }
    }

    /// The wheel that this method uses.
    pub(crate) fn wheel(self, endpoints: &[Endpoint]) -> Wheel {
        match self {
            Self::Rotate | Self::TwoChoices => Wheel::by_weight(endpoints),
            Self::Least if endpoints.len() > least::MAX_EXACT => Wheel::evenly(endpoints),
            Self::Least | Self::ByClient | Self::ByClientAndPort | Self::First => Wheel::default(),
        }
    }
}

const SCAN_ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests;
