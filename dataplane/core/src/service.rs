//! A service as the plan has it, and what is known of it while the process lives.
//!
//! [`Service::compile`] turns one service of the table into endpoints that a pick only has to index. What outlives a plan
//! is carried over by identity: [`ServiceState`] by the service's name, [`EndpointState`] by (service, address),
//! [`Node`] by its name. The plan is the only one who compiles; `pick` chooses among [`Service::endpoints`], and what
//! becomes of a dial is told to [`Service::connected`] and [`Service::failed`]. Nothing here changes a compiled service.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::endpoint::{EndpointState, FULL_SHARE};
use crate::moment::{Moment, whole_millis};
use crate::pick::{Way, Wheel, endpoint_hash};
use crate::table::{self, State};

mod ejection;
mod state;

pub use ejection::{Ejection, EjectionReason, Failure, FailureNews, Node};
pub use state::{ServiceCounters, ServiceState};

/// A set of endpoints, compiled.
#[derive(Debug)]
pub struct Service {
    pub(crate) endpoints: Box<[Endpoint]>,
    pub(crate) way: Way,
    /// The weights of the ready endpoints, where the way needs them as a wheel.
    pub(crate) wheel: Wheel,
    /// Whether all ready endpoints weigh the same.
    pub(crate) even: bool,
    pub(crate) try_all: bool,
    /// In milliseconds; 0: none.
    pub(crate) slow_start: u64,
    /// How long a client's endpoint is remembered.
    pub(crate) affinity: Option<Duration>,
    /// The places of the endpoints that close a loop, in order.
    closing: Box<[usize]>,
    spec: Arc<table::Service>,
    state: Arc<ServiceState>,
}

impl Service {
    /// Compiles `spec`, and carries over what is known of it from `previous` and from `around`.
    #[must_use]
    pub fn compile(
        spec: Arc<table::Service>,
        previous: Option<&Self>,
        around: &mut Around<'_>,
    ) -> Self {
        let state = match previous {
            Some(previous) => Arc::clone(&previous.state),
            None => around.state(&spec),
        };
        let known = previous.map(Known::of);
        let endpoints: Box<[Endpoint]> = spec
            .endpoints
            .iter()
            .enumerate()
            .map(|(index, endpoint)| {
                let before = known
                    .as_ref()
                    .map(|known| known.find(index, endpoint.address));
                let closes_loop = around.closing.binary_search(&index).is_ok();
                Endpoint::compile(endpoint, before, &state, closes_loop, around)
            })
            .collect();
        let affinity = match spec.affinity {
            Some(table::Affinity::ClientIp(keep)) => Some(keep),
            Some(table::Affinity::Cookie(_)) | None => None,
        };
        let way = match affinity {
            Some(_) => Way::ByClient,
            None => Way::of(spec.algorithm),
        };
        Self {
            wheel: way.wheel(&endpoints),
            even: is_even(&endpoints),
            endpoints,
            way,
            try_all: spec.all_down == table::AllDown::TryAll,
            slow_start: spec.slow_start.map_or(0, whole_millis),
            affinity,
            closing: around.closing.into(),
            spec,
            state,
        }
    }

    pub(crate) fn closing(&self) -> &[usize] {
        &self.closing
    }

    /// What the table says of it.
    #[must_use]
    pub fn spec(&self) -> &Arc<table::Service> {
        &self.spec
    }

    /// What outlives this plan.
    #[must_use]
    pub fn state(&self) -> &Arc<ServiceState> {
        &self.state
    }

    /// Its endpoints, in the order of the table.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// How many ready and how many backup endpoints can be used at `now`: `act` and `bck`.
    #[must_use]
    pub fn usable(&self, now: Moment) -> (usize, usize) {
        let (mut ready, mut backup) = (0, 0);
        for endpoint in self.endpoints.iter().filter(|one| one.is_eligible()) {
            if endpoint.live.is_passing() && !endpoint.live.is_ejected(now) {
                match endpoint.state {
                    State::Backup => backup += 1,
                    _ => ready += 1,
                }
            }
        }
        (ready, backup)
    }

    /// How much of its share an endpoint has reached, in percent, while `slow-start` lets it grow.
    #[must_use]
    pub fn growth(&self, endpoint: &Endpoint, now: Moment) -> Option<u8> {
        if self.slow_start == 0 {
            return None;
        }
        let reached = endpoint.live.ramp(self.slow_start, now);
        let percent = u64::from(reached) * 100 / u64::from(FULL_SHARE);
        (reached < FULL_SHARE).then(|| u8::try_from(percent).unwrap_or(100))
    }

    /// Whether checks are ignored, because those of all endpoints fail.
    #[must_use]
    pub fn is_panicking(&self) -> bool {
        let mut eligible = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_eligible())
            .peekable();
        self.try_all
            && eligible.peek().is_some()
            && eligible.all(|endpoint| !endpoint.live.is_passing())
    }

    /// When the next ejection ends. Who waits in the queue should pick again then: nobody is woken by time.
    #[must_use]
    pub fn next_return(&self, now: Moment) -> Option<Moment> {
        self.endpoints
            .iter()
            .filter(|endpoint| endpoint.is_eligible())
            .filter_map(|endpoint| endpoint.live.ejected_until(now))
            .min()
    }

    /// The places in its queue: `max-queue`, 0 where it is off.
    #[must_use]
    pub fn max_queue(&self) -> usize {
        let max = self.spec.max_queue.on().map_or(0, |max| max.get());
        usize::try_from(max).unwrap_or(usize::MAX)
    }
}

/// One address of a compiled service.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) hash: u64,
    pub(crate) live: Arc<EndpointState>,
    node: Option<Arc<Node>>,
    pub(crate) max: u32,
    pub(crate) weight: u16,
    pub(crate) state: State,
    closes_loop: bool,
}

impl Endpoint {
    fn compile(
        spec: &table::Endpoint,
        before: Option<Option<&Self>>,
        service: &Arc<ServiceState>,
        closes_loop: bool,
        around: &mut Around<'_>,
    ) -> Self {
        let over = (around.over)(service.name(), &spec.address);
        let state = over.state.unwrap_or(spec.state);
        let live = match before.flatten() {
            Some(before) => {
                if before.state == State::Disabled && state != State::Disabled {
                    before.live.begin_ramp(around.now);
                }
                Arc::clone(&before.live)
            }
            None => {
                let live = around
                    .gone(service, &spec.address)
                    .unwrap_or_else(|| Arc::new(EndpointState::new(service, spec.address)));
                live.begin();
                // It is new, but its service is not: others hold the load, and it may be cold.
                if before.is_some() {
                    live.begin_ramp(around.now);
                }
                live
            }
        };
        Self {
            hash: endpoint_hash(spec.address),
            live,
            node: spec.node.as_ref().map(|node| (around.node)(node)),
            max: spec.max_connections.map_or(u32::MAX, NonZeroU32::get),
            weight: over.weight.unwrap_or(spec.weight),
            state,
            closes_loop,
        }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.live.address()
    }

    /// What outlives this plan.
    #[must_use]
    pub fn live(&self) -> &Arc<EndpointState> {
        &self.live
    }

    /// Its weight, an operator's word considered.
    #[must_use]
    pub fn weight(&self) -> u16 {
        self.weight
    }

    /// Its state, an operator's word considered.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// How many connections it may have at once.
    #[must_use]
    pub fn max_connections(&self) -> Option<u32> {
        (self.max < u32::MAX).then_some(self.max)
    }

    /// Where it runs.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Whether it is a frontend of the same table, by which its clients would come back to this service: no client is
    /// sent to it.
    #[must_use]
    pub fn closes_loop(&self) -> bool {
        self.closes_loop
    }

    /// Whether clients without affinity may be sent to it at all.
    pub(crate) fn is_eligible(&self) -> bool {
        self.weight > 0 && matches!(self.state, State::Ready | State::Backup) && !self.closes_loop
    }

    /// Whether no client at all may be sent to it, nor a check.
    pub(crate) fn is_out(&self) -> bool {
        self.state == State::Disabled || self.closes_loop
    }

    pub(crate) fn is_full(&self) -> bool {
        self.live.in_flight() >= self.max
    }
}

/// What a service is compiled into: all that it shares with other plans and other services.
pub struct Around<'a> {
    /// When it is compiled.
    pub now: Moment,
    /// How many workers there are.
    pub workers: usize,
    /// The node of this name, the same one for as long as any plan has it.
    pub node: &'a mut dyn FnMut(&str) -> Arc<Node>,
    /// The service of this name that left an earlier plan, if an endpoint of it still has connections.
    pub left: &'a dyn Fn(&str) -> Option<Arc<ServiceState>>,
    /// The endpoint of this service and address that left an earlier plan and still has connections.
    pub gone: &'a dyn Fn(&str, &SocketAddr) -> Option<Arc<EndpointState>>,
    /// What an operator changed by hand at the endpoint of this service and address.
    pub over: &'a dyn Fn(&str, &SocketAddr) -> Override,
    /// The places of the endpoints that close a loop, in order.
    pub closing: &'a [usize],
}

impl Around<'_> {
    /// The state of a service that the previous plan had not. If connections are left from the plans before, they count
    /// there, and wake its queue.
    fn state(&self, spec: &table::Service) -> Arc<ServiceState> {
        (self.left)(&spec.name)
            .unwrap_or_else(|| Arc::new(ServiceState::new(&spec.name, self.workers)))
    }

    fn gone(
        &self,
        service: &Arc<ServiceState>,
        address: &SocketAddr,
    ) -> Option<Arc<EndpointState>> {
        (self.gone)(service.name(), address).filter(|gone| Arc::ptr_eq(gone.service(), service))
    }
}

/// What an operator changed at an endpoint; what is absent is as the table says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// Its weight.
    pub weight: Option<u16>,
    /// Its state.
    pub state: Option<State>,
}

/// The endpoints of the previous plan, by address. Most tables change little, so the same place is tried first.
struct Known<'a> {
    service: &'a Service,
    by_address: OnceLock<FxHashMap<SocketAddr, usize>>,
}

impl<'a> Known<'a> {
    fn of(service: &'a Service) -> Self {
        Self {
            service,
            by_address: OnceLock::new(),
        }
    }

    fn find(&self, index: usize, address: SocketAddr) -> Option<&'a Endpoint> {
        let endpoints = &self.service.endpoints;
        let same_place = endpoints
            .get(index)
            .filter(|endpoint| endpoint.address() == address);
        same_place.or_else(|| {
            let by_address = self
                .by_address
                .get_or_init(|| endpoints.iter().map(Endpoint::address).zip(0..).collect());
            endpoints.get(*by_address.get(&address)?)
        })
    }
}

fn is_even(endpoints: &[Endpoint]) -> bool {
    let mut weights = endpoints
        .iter()
        .filter(|endpoint| endpoint.is_ready())
        .map(|endpoint| endpoint.weight);
    weights
        .next()
        .is_none_or(|first| weights.all(|weight| weight == first))
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
