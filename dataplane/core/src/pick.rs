//! Which endpoint a client gets: [`Service::pick`].
//!
//! A pick allocates nothing and takes no lock; only affinity has its sharded table. The common case, in which the best tier
//! has an endpoint with room, is found without looking at all endpoints where the algorithm allows that. Only when that
//! fails are all of them looked at, to find the best tier that has anybody, and the algorithm chooses among those.
//!
//! Whoever dials calls this, and then says how it went: [`Service::connected`], [`Service::failed`], [`Tried::note`]. A pick
//! never waits; [`Unavailable::Full`] sends the client to the [`queue`](crate::queue).

use std::net::SocketAddr;
use std::sync::Arc;

use crate::affinity::canonical;
use crate::endpoint::{EndpointState, FULL_SHARE, Lease};
use crate::moment::Moment;
use crate::rng::{Rng, mix};
use crate::service::{Endpoint, Failure, Node, Service};
use crate::table::Algorithm;

mod again;
mod first;
mod hash;
mod least;
mod rendezvous;
mod rotate;
mod sticky;
mod tier;
mod two_choices;
mod wheel;

pub(crate) use hash::endpoint_hash;
use tier::{Among, Tier};
pub(crate) use wheel::Wheel;

impl Service {
    /// An endpoint for a client that comes now, or comes again because those in `tried` failed. A client that comes
    /// does not overtake those that wait for whatever it could have itself.
    pub fn pick(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        if tried.is_empty() && !self.state().queue().lets_pass() {
            return Err(Unavailable::Full);
        }
        self.pick_in_turn(key, tried, now, rng)
    }

    /// An endpoint for the client whose turn it is in the queue.
    pub fn pick_in_turn(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        match self.affinity {
            Some(keep) => self.pick_sticky(key, tried, keep, now, rng),
            None => self.pick_any(key, tried, now, rng),
        }
    }

    /// By the algorithm alone.
    fn pick_any(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        if tried.is_empty()
            && let Some(index) = self.glance(key, now, rng)
            && let Some(picked) = self.take(index)
        {
            return Ok(picked);
        }
        self.look_at_all(key, tried, now, rng)
    }

    /// The algorithm's choice in the best tier, if it can be had without asking what the best tier is. `None` says
    /// nothing: it may have looked too little.
    fn glance(&self, key: &Key, now: Moment, rng: &mut Rng) -> Option<usize> {
        match self.way {
            Way::Rotate => rotate::glance(self, now, rng),
            Way::Least => least::glance(self, now, rng),
            Way::TwoChoices => two_choices::glance(self, now, rng),
            Way::ByClient | Way::ByClientAndPort => rendezvous::glance(self, key, now),
            Way::First => first::glance(self, now),
        }
    }

    fn look_at_all(
        &self,
        key: &Key,
        tried: &Tried,
        now: Moment,
        rng: &mut Rng,
    ) -> Result<Picked, Unavailable> {
        // Others take places meanwhile, and each time one is lost to them they got one: a few rounds are plenty.
        for _ in 0..ROUNDS {
            let found = self.best_tier(tried, now).ok_or_else(|| self.why_none())?;
            if found.open == 0 {
                return Err(Unavailable::Full);
            }
            let among = Among {
                service: self,
                tried,
                tier: found.tier,
                spare_nodes: found.elsewhere > 0,
                now,
            };
            let chosen = match self.way {
                Way::Rotate => rotate::choose(&among, rng),
                Way::Least => least::choose(&among, rng),
                Way::TwoChoices => two_choices::choose(&among, rng),
                Way::ByClient | Way::ByClientAndPort => rendezvous::choose(&among, key),
                Way::First => among.open().next(),
            };
            if let Some(mut picked) = chosen.and_then(|index| self.take(index)) {
                picked.is_panic = found.tier == Tier::Anybody && tried.is_empty();
                return Ok(picked);
            }
        }
        Err(Unavailable::Full)
    }

    /// Why there is no tier at all.
    fn why_none(&self) -> Unavailable {
        match self.closing().is_empty() {
            true => Unavailable::NoEndpoint,
            false => Unavailable::Loop,
        }
    }

    fn take(&self, index: usize) -> Option<Picked> {
        let endpoint = self.endpoints.get(index)?;
        Some(Picked {
            lease: endpoint.live.lease(endpoint.max)?,
            index,
            is_panic: false,
        })
    }

    /// Whether the endpoint at `index` is in the best tier and has room.
    fn is_open(&self, index: usize, now: Moment) -> bool {
        self.endpoints
            .get(index)
            .is_some_and(|endpoint| endpoint.is_best(now) && !endpoint.is_full())
    }

    /// How much of its share the endpoint has reached: all of it, unless its slow start is still on.
    fn ramp(&self, endpoint: &Endpoint, now: Moment) -> u32 {
        match self.slow_start {
            0 => FULL_SHARE,
            slow_start => endpoint.live.ramp(slow_start, now),
        }
    }

    /// Lets one through as often as its share has grown.
    fn ramp_lets(&self, index: usize, now: Moment, rng: &mut Rng) -> bool {
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

/// What an endpoint was picked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    client: SocketAddr,
}

impl Key {
    /// For the client at this address, in whatever form.
    #[must_use]
    pub fn new(client: SocketAddr) -> Self {
        Self {
            client: canonical(client),
        }
    }

    /// The client's address in its one form.
    #[must_use]
    pub fn client(&self) -> SocketAddr {
        self.client
    }
}

/// What one client has tried in vain. Empty, it allocates nothing; it survives a swap between two attempts.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// Those of this round, and those that this round leaves out: none of them is picked.
    endpoints: Vec<Arc<EndpointState>>,
    /// Whose connections were cut while they were dialed: these are not tried again.
    cut: Vec<Arc<EndpointState>>,
    /// Where dials timed out.
    nodes: Vec<Arc<Node>>,
    /// All attempts that failed, those of earlier rounds included.
    attempts: usize,
    /// Rounds that are over.
    rounds: u32,
}

impl Tried {
    /// Whether this is the first attempt.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attempts == 0
    }

    /// Which endpoints may not be picked, as a number; 0: none. For whom it is the same, the same are left.
    pub(crate) fn fingerprint(&self) -> u64 {
        let of_one = |tried: &Arc<EndpointState>| mix(Arc::as_ptr(tried).addr() as u64);
        self.endpoints
            .iter()
            .map(of_one)
            .fold(0, |all, one| all ^ one)
    }

    /// How many attempts failed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.attempts
    }

    /// The dial to `endpoint` failed: it is not picked again in this round, and if it timed out, its node is avoided.
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

/// An endpoint for a client.
#[derive(Debug)]
pub struct Picked {
    /// Counts the client on it.
    pub lease: Lease,
    /// Its place in [`Service::endpoints`].
    pub index: usize,
    /// Checks were ignored, because those of all endpoints fail. Never so for a further attempt.
    pub is_panic: bool,
}

/// Why there is no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All that may be picked have as many connections as they may have, or others wait already: wait in the queue.
    Full,
    /// None may be picked.
    NoEndpoint,
    /// None may be picked, and some only because they lead back to this service.
    Loop,
}

/// The ways to choose, compiled from the table's algorithm and affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Rotate,
    Least,
    TwoChoices,
    ByClient,
    ByClientAndPort,
    First,
}

impl Way {
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

    /// The wheel that this way draws from.
    pub(crate) fn wheel(self, endpoints: &[Endpoint]) -> Wheel {
        match self {
            Self::Rotate | Self::TwoChoices => Wheel::by_weight(endpoints),
            Self::Least if endpoints.len() > least::EXACT => Wheel::evenly(endpoints),
            Self::Least | Self::ByClient | Self::ByClientAndPort | Self::First => Wheel::default(),
        }
    }
}

const ROUNDS: usize = 8;

#[cfg(test)]
mod tests;
