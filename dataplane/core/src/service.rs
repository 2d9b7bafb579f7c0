//! A service: its compiled form in the plan, and its state while the process lives.
//!
//! [`Service::compile`] turns one service of the table into endpoints that a pick only has to index. State that outlives a plan
//! is carried over by identity: [`ServiceState`] by the service's name, [`EndpointState`] by (service, address), [`Node`] by
//! its name. Only [`crate::compile`] compiles services; `pick` chooses among [`Service::endpoints`], and the results of dials
//! are reported to [`EndpointState::connected`] and [`Service::failed`]. A compiled service never changes.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::affinity::cookie::{CookieValue, Cookies};
use crate::endpoint::{EndpointState, FULL_SHARE};
use crate::hash::endpoint_hash;
use crate::moment::{Moment, whole_millis};
use crate::overrides::Override;
use crate::pick::{PickMethod, Wheel};
use crate::table::{self, State};

mod ejection;
mod request_time;
mod state;

pub use ejection::{Ejection, EjectionReason, Failure, FailureNews, Node};
pub use request_time::RequestTime;
pub use state::{ServiceCounters, ServiceCounts, ServiceState};

#[derive(Debug)]
pub struct Service {
    pub(crate) endpoints: Box<[Endpoint]>,
    pub(crate) method: PickMethod,
    /// The wheel of the ready endpoints, if the method uses one.
    pub(crate) wheel: Wheel,
    /// Whether all ready endpoints have the same weight.
    pub(crate) even: bool,
    pub(crate) try_all: bool,
    /// In milliseconds; 0 without slow start.
    pub(crate) slow_start: u64,
    /// How the endpoint of a returning client is found, if there is affinity.
    pub(crate) affinity: Option<Affinity>,
    /// The indexes of the endpoints that close a loop, sorted.
    closing: Box<[usize]>,
    /// The ports that operators have given the checks of endpoints, by their indexes, sorted.
    check_ports: Box<[(usize, NonZeroU16)]>,
    spec: Arc<table::Service>,
    table: Arc<table::Service>,
    state: Arc<ServiceState>,
}

impl Service {
    /// Compiles the service `table`, and carries over state from `previous` and `context`.
    #[must_use]
    pub fn compile(
        table: Arc<table::Service>,
        previous: Option<&Self>,
        context: &mut ServiceContext<'_>,
    ) -> Self {
        let spec = context.moved.map_or_else(|| Arc::clone(&table), Arc::clone);
        let state = match previous {
            Some(previous) => Arc::clone(&previous.state),
            None => context.state(&spec),
        };
        let known = previous.map(Known::of);
        let endpoints: Box<[Endpoint]> = spec
            .endpoints
            .iter()
            .zip(&table.endpoints)
            .enumerate()
            .map(|(index, (endpoint, in_table))| {
                let before = known
                    .as_ref()
                    .map(|known| known.find(index, endpoint.address));
                let closes_loop = context.closing.binary_search(&index).is_ok();
                let table_address = in_table.address;
                Endpoint::compile(
                    endpoint,
                    table_address,
                    before,
                    &state,
                    closes_loop,
                    context,
                )
            })
            .collect();
        let check_ports = table.endpoints.iter().enumerate();
        let check_ports = check_ports
            .filter_map(|(index, endpoint)| {
                let over = (context.over)(&table.name, &endpoint.address);
                Some((index, over.check_port?))
            })
            .collect();
        let affinity = spec.affinity.as_ref().map(|affinity| match affinity {
            table::Affinity::ClientIp(keep) => Affinity::ClientIp(*keep),
            table::Affinity::Cookie(_) => {
                let hashes = endpoints.iter().map(|endpoint| endpoint.hash);
                Affinity::Cookie(Cookies::new(&spec.name, hashes))
            }
        });
        let method = match affinity {
            Some(Affinity::ClientIp(_)) => PickMethod::ByClient,
            Some(Affinity::Cookie(_)) | None => PickMethod::of(spec.algorithm),
        };
        Self {
            wheel: method.wheel(&endpoints),
            even: is_even(&endpoints),
            endpoints,
            method,
            try_all: spec.all_down == table::AllDown::TryAll,
            slow_start: spec.slow_start.map_or(0, whole_millis),
            affinity,
            closing: context.closing.into(),
            check_ports,
            spec,
            table,
            state,
        }
    }

    pub(crate) fn closing(&self) -> &[usize] {
        &self.closing
    }

    /// The service in the table, with the addresses that operators have given its endpoints.
    pub fn spec(&self) -> &Arc<table::Service> {
        &self.spec
    }

    /// The service as it is in the table. Its endpoints are in the order of [`Service::spec`].
    pub fn table(&self) -> &Arc<table::Service> {
        &self.table
    }

    /// The port that an operator has given the checks of the endpoint at `index`.
    #[must_use]
    pub fn check_port(&self, index: usize) -> Option<NonZeroU16> {
        let ports = &self.check_ports;
        let place = ports.binary_search_by_key(&index, |(index, _)| *index);
        place.ok().and_then(|place| Some(ports.get(place)?.1))
    }

    /// Whether an operator has given any of its endpoints another address.
    pub fn has_moved(&self) -> bool {
        !Arc::ptr_eq(&self.spec, &self.table)
    }

    /// What outlives this plan.
    pub fn state(&self) -> &Arc<ServiceState> {
        &self.state
    }

    /// The address of the endpoint that has this hash in the affinity table.
    pub fn address_of(&self, hash: u64) -> Option<SocketAddr> {
        let mut endpoints = self.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.hash == hash)?;
        Some(endpoint.address())
    }

    /// The name of its affinity cookie, if it has one.
    pub fn cookie_name(&self) -> Option<&str> {
        match &self.spec.affinity {
            Some(table::Affinity::Cookie(name)) => Some(name),
            Some(table::Affinity::ClientIp(_)) | None => None,
        }
    }

    /// The value of the affinity cookie for the endpoint at `index`, if the service has a cookie.
    #[must_use]
    pub fn cookie_value(&self, index: usize) -> Option<CookieValue> {
        match &self.affinity {
            Some(Affinity::Cookie(cookies)) => Some(cookies.value(self.endpoints.get(index)?.hash)),
            Some(Affinity::ClientIp(_)) | None => None,
        }
    }

    /// Its endpoints, in the order of the table.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The numbers of ready and of backup endpoints that can be used at `now`: `act` and `bck`.
    pub fn usable(&self, now: Moment) -> (usize, usize) {
        let (mut ready, mut backup) = (0, 0);
        for endpoint in self.endpoints.iter().filter(|one| one.is_eligible()) {
            if endpoint.live.takes_newcomers() && !endpoint.live.is_ejected(now) {
                match endpoint.state {
                    State::Backup => backup += 1,
                    _ => ready += 1,
                }
            }
        }
        (ready, backup)
    }

    /// The part of its share that an endpoint has reached, in percent, during its slow start.
    pub fn growth(&self, endpoint: &Endpoint, now: Moment) -> Option<u8> {
        if self.slow_start == 0 {
            return None;
        }
        let reached = endpoint.live.ramp(self.slow_start, now);
        let percent = u64::from(reached) * 100 / u64::from(FULL_SHARE);
        (reached < FULL_SHARE).then(|| u8::try_from(percent).unwrap_or(100))
    }

    /// Whether checks are ignored, because those of all endpoints fail.
    pub fn is_panicking(&self) -> bool {
        // An endpoint that is stopping gets no newcomers then either.
        let mut eligible = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_eligible() && !endpoint.live.is_stopping())
            .peekable();
        self.try_all
            && eligible.peek().is_some()
            && eligible.all(|endpoint| !endpoint.live.is_passing())
    }

    /// When the next ejection ends. Waiting clients should pick again then, because the passing of time wakes no client.
    pub fn next_return(&self, now: Moment) -> Option<Moment> {
        self.endpoints
            .iter()
            .filter(|endpoint| endpoint.is_eligible())
            .filter_map(|endpoint| endpoint.live.ejected_until(now))
            .min()
    }

    /// The size of its queue: `max-queue`, 0 if it is off.
    pub fn max_queue(&self) -> usize {
        let max = self.spec.max_queue.on().map_or(0, |max| max.get());
        usize::try_from(max).unwrap_or(usize::MAX)
    }
}

/// How the endpoint of a returning client is found.
#[derive(Debug)]
pub(crate) enum Affinity {
    /// The service stores the endpoint of each client's address for this time.
    ClientIp(Duration),
    /// The client's cookie names the endpoint.
    Cookie(Cookies),
}

/// An endpoint of a compiled service.
#[derive(Debug)]
pub struct Endpoint {
    /// Of its address in the table: whatever address it has, its clients stay its own.
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
        table_address: SocketAddr,
        before: Option<Option<&Self>>,
        service: &Arc<ServiceState>,
        closes_loop: bool,
        context: &mut ServiceContext<'_>,
    ) -> Self {
        let over = (context.over)(service.name(), &table_address);
        let state = over.state.unwrap_or(spec.state);
        let live = match before.flatten() {
            Some(before) => {
                if before.state == State::Disabled && state != State::Disabled {
                    before.live.begin_ramp(context.now);
                }
                Arc::clone(&before.live)
            }
            None => {
                let live = context
                    .gone(service, &spec.address)
                    .unwrap_or_else(|| Arc::new(EndpointState::new(service, spec.address)));
                live.begin();
                // The endpoint is new in a known service: the others carry the load, and it may need to warm up.
                if before.is_some() {
                    live.begin_ramp(context.now);
                }
                live
            }
        };
        Self {
            hash: endpoint_hash(table_address),
            live,
            node: spec.node.as_ref().map(|node| (context.node)(node)),
            max: over
                .max_connections
                .or(spec.max_connections)
                .map_or(u32::MAX, NonZeroU32::get),
            weight: over.weight.unwrap_or(spec.weight),
            state,
            closes_loop,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.live.address()
    }

    /// What outlives this plan.
    pub fn live(&self) -> &Arc<EndpointState> {
        &self.live
    }

    /// Its weight, with overrides applied.
    pub fn weight(&self) -> u16 {
        self.weight
    }

    /// Its state, with overrides applied.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its limit of connections, with overrides applied.
    pub fn max_connections(&self) -> Option<u32> {
        (self.max < u32::MAX).then_some(self.max)
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// Whether it is a frontend of the same table by which its clients would return to this service. No client is sent to it.
    #[must_use]
    pub fn closes_loop(&self) -> bool {
        self.closes_loop
    }

    /// Whether clients without affinity may be sent to it.
    pub(crate) fn is_eligible(&self) -> bool {
        self.weight > 0 && matches!(self.state, State::Ready | State::Backup) && !self.closes_loop
    }

    /// Whether neither clients nor checks may be sent to it.
    pub(crate) fn is_out(&self) -> bool {
        self.state == State::Disabled || self.closes_loop
    }

    pub(crate) fn is_full(&self) -> bool {
        self.live.in_flight() >= self.max
    }
}

/// The context in which a service is compiled: what it shares with other plans and other services.
pub struct ServiceContext<'a> {
    pub now: Moment,
    pub workers: usize,
    /// Returns the node of this name, which keeps its identity while any plan has it.
    pub node: &'a mut dyn FnMut(&str) -> Arc<Node>,
    /// Returns the removed service of this name, if an endpoint of it still has connections.
    pub left: &'a dyn Fn(&str) -> Option<Arc<ServiceState>>,
    /// Returns the removed endpoint of this service and address, if it still has connections.
    pub gone: &'a dyn Fn(&str, &SocketAddr) -> Option<Arc<EndpointState>>,
    /// Returns the override of the endpoint of this service that has this address in the table.
    pub over: &'a dyn Fn(&str, &SocketAddr) -> Override,
    /// The service with the addresses that operators have given its endpoints; `None`: those of the table.
    pub moved: Option<&'a Arc<table::Service>>,
    /// The indexes of the endpoints that close a loop, sorted.
    pub closing: &'a [usize],
}

impl ServiceContext<'_> {
    /// The state of a service that the previous plan lacks. Connections that are left from earlier plans count in it, and wake
    /// its queue.
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

/// The endpoints of the previous plan, by address. Most tables change little, so the same index is tried first.
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
