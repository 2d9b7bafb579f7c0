//! Flows that go over to the next process, with their connected sockets.
//!
//! The process that has a flow gives it away: it forgets the flow without ending it. The next one adopts it: the flow keeps its
//! endpoint, its local port and its numbers. Only what the plan of the next process still has is adopted.

use std::net::{IpAddr, SocketAddr};
use std::ops::Not;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::backends::Backends;
use crate::clients::canonical;
use crate::moment::{Moment, whole_millis};
use crate::plan::Frontend;
use crate::service::{Failure, Service};
use crate::udp_counters::FlowEnd;

use super::decide::idle_of;
use super::entry::{Class, Flow, FlowStatus};
use super::key::Compact;
use super::{FlowId, FlowTable, Key, Listener, backends_of, counters, peer_key};

/// A flow as the next process needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HandedFlow {
    /// The number by which the kernel knows the listening socket that the client sends to.
    pub socket: u64,
    /// Where replies go, and from which address.
    pub peer: SocketAddr,
    pub local: IpAddr,
    pub client: SocketAddr,
    pub service: Box<str>,
    pub endpoint: SocketAddr,
    #[serde(default)]
    pub requests: u32,
    #[serde(default)]
    pub responses: u32,
    #[serde(default)]
    pub phase: Phase,
    /// How long ago it began, and how long ago the last datagram came.
    #[serde(default)]
    pub began_ms: u64,
    #[serde(default)]
    pub last_ms: u64,
    /// The worker that had it, and of how many. Each worker has ports of its own.
    pub worker: (u16, u16),
    /// What its socket was bound to. The address is unspecified if the kernel chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<SocketAddr>,
    /// Whether another worker or process may have a flow at the same port, so that no new one may share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_alone: bool,
    /// The PROXY header of its datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HandedHeader>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct HandedHeader {
    pub bytes: Vec<u8>,
    /// Whether only one datagram needs it.
    pub is_for_one: bool,
    /// Whether a datagram with it was sent.
    #[serde(skip_serializing_if = "Not::not")]
    pub was_sent: bool,
    #[serde(skip_serializing_if = "Not::not")]
    pub has_unique_id: bool,
    #[serde(skip_serializing_if = "Not::not")]
    pub has_checksum: bool,
}

/// What happens to the client's next datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It goes to the flow's endpoint.
    #[default]
    Open,
    /// The endpoint could not be reached: it goes to another one.
    TimedOut,
    Refused,
    Unreachable,
    /// The flow has had its last request, or carries the replies of single datagrams.
    LastRequest,
    PerDatagram,
}

/// A frontend whose flows go over, and where it has each endpoint.
#[derive(Debug)]
pub struct Adopting<'p> {
    frontend: &'p Frontend,
    endpoints: FxHashMap<(&'p str, SocketAddr), (&'p Service, usize)>,
}

impl<'p> Adopting<'p> {
    #[must_use]
    pub fn by(frontend: &'p Frontend) -> Self {
        let services = backends_of(frontend)
            .into_iter()
            .flat_map(Backends::services);
        let endpoints = services.flat_map(|service| {
            let service: &Service = service;
            let places = service.endpoints().iter().enumerate();
            places.map(move |(index, endpoint)| {
                let name = (&*service.spec().name as &str, endpoint.address());
                (name, (service, index))
            })
        });
        Self {
            frontend,
            endpoints: endpoints.collect(),
        }
    }
}

impl<S> FlowTable<S> {
    /// Gives away the flows of these listening sockets, whose kernel's numbers `socket` returns.
    pub fn give(
        &mut self,
        now: Moment,
        workers: usize,
        socket: impl Fn(Listener) -> Option<u64>,
    ) -> Vec<(HandedFlow, S)> {
        let given = self
            .flows
            .iter()
            .filter_map(|(place, flow)| Some((place, socket(flow.key.key().listener)?)));
        let given: Vec<(u32, u64)> = given.collect();
        let worker = (narrow(self.worker.0), narrow(workers));
        // Others that stay may have the same ports.
        let do_some_stay = given.len() < self.flows.len();
        let all = given.into_iter().filter_map(|(place, socket)| {
            let mut flow = self.take_out(place)?;
            // It is not ended, and counts in the next process.
            counters(&flow.frontend, self.worker).sessions.take(1);
            let port = self.ports.of(flow.taken);
            self.ports.release(flow.taken);
            let attached = flow.attached.take()?;
            let mut handed = flow.handed(now, socket, worker, port);
            handed.is_alone |= do_some_stay;
            Some((handed, attached))
        });
        all.collect()
    }

    /// Takes a flow of another process. The caller attaches its socket. `None`: the frontend does not serve that endpoint any
    /// more, or there is no room. So the caller begins with the flows that were idle for the shortest time, and says by
    /// [`queue_last`](Self::queue_last) in which order they are evicted.
    pub fn adopt(
        &mut self,
        now: Moment,
        listener: Listener,
        workers: usize,
        handed: &HandedFlow,
        adopting: &Adopting<'_>,
    ) -> Option<FlowId> {
        let frontend = adopting.frontend;
        let key = Key {
            listener,
            peer: handed.peer,
            local: handed.local,
            client: handed.client,
        };
        let status = handed.phase.status();
        let to_one = (handed.phase == Phase::PerDatagram).then_some(handed.endpoint);
        let compact = Compact::new(&key, to_one);
        let is_found = status != FlowStatus::Over(FlowEnd::Requests);
        if self.flows.len() >= self.most || is_found && self.find(&compact).is_some() {
            return None;
        }
        let place = (&*handed.service, handed.endpoint);
        let (service, index) = *adopting.endpoints.get(&place)?;
        let lease = service.endpoints().get(index)?.live().lease(u32::MAX)?;
        let admit = frontend.state().admit();
        let admission = admit
            .resume(frontend.limits(), handed.client.ip(), now)
            .ok()?;
        let is_alone = handed.is_alone || handed.worker != (narrow(self.worker.0), narrow(workers));
        let taken = handed.bound.map(|bound| {
            let (source, port) = (bound.ip(), bound.port());
            self.ports.adopt(handed.endpoint, source, port, is_alone)
        });
        let most_responses = frontend.spec().udp().responses;
        let mut flow = Flow {
            key: compact,
            frontend: Arc::clone(frontend.state()),
            lease,
            index: u32::try_from(index).unwrap_or(u32::MAX),
            admission: Some(admission),
            status,
            began: before(now, handed.began_ms),
            last: before(now, handed.last_ms),
            idle: idle_of(frontend),
            requests: handed.requests,
            responses: handed.responses,
            most_responses: most_responses.map_or(u32::MAX, std::num::NonZeroU32::get),
            queued: now,
            queue: Class::Asked,
            taken: taken.unwrap_or_default(),
            attached: None,
        };
        flow.queue = flow.class();
        counters(&flow.frontend, self.worker).sessions.add(1);
        let (deadline, hash, class) = (flow.deadline(), self.hash(&flow.key), flow.queue);
        let group = flow.taken.group;
        let id = self.flows.insert(flow);
        if is_found {
            self.by_key.insert(hash, id.place);
            if key.client != canonical(key.peer) {
                self.proxied_peers.insert(peer_key(key), id.place);
            }
        }
        self.deadlines.set(id.place, deadline);
        self.idle.push(group, class, id.place, now);
        Some(id)
    }

    /// Evicts this flow after all others of its kind.
    pub fn queue_last(&mut self, now: Moment, flow: FlowId) {
        if let Some(known) = self.flows.get_mut(flow) {
            known.queued = now;
            let class = known.queue;
            self.idle.renew(flow.place, class, now);
        }
    }
}

impl<S> Flow<S> {
    fn handed(
        &self,
        now: Moment,
        socket: u64,
        worker: (u16, u16),
        port: Option<(SocketAddr, bool)>,
    ) -> HandedFlow {
        let key = self.key.key();
        let endpoint = self.lease.endpoint();
        let (bound, is_alone) = port.unzip();
        HandedFlow {
            socket,
            peer: key.peer,
            local: key.local,
            client: key.client,
            service: endpoint.service().name().into(),
            endpoint: endpoint.address(),
            requests: self.requests,
            responses: self.responses,
            phase: Phase::of(self.status),
            began_ms: whole_millis(now.since(self.began)),
            last_ms: whole_millis(now.since(self.last)),
            worker,
            bound,
            is_alone: is_alone.unwrap_or(true),
            header: None,
        }
    }
}

impl Phase {
    fn of(status: FlowStatus) -> Self {
        match status {
            FlowStatus::Open => Self::Open,
            FlowStatus::Failed(Failure::TimedOut) => Self::TimedOut,
            FlowStatus::Failed(Failure::Refused) => Self::Refused,
            FlowStatus::Failed(Failure::Unreachable) => Self::Unreachable,
            FlowStatus::Over(FlowEnd::PerDatagram) => Self::PerDatagram,
            FlowStatus::Over(_) => Self::LastRequest,
        }
    }

    fn status(self) -> FlowStatus {
        match self {
            Self::Open => FlowStatus::Open,
            Self::TimedOut => FlowStatus::Failed(Failure::TimedOut),
            Self::Refused => FlowStatus::Failed(Failure::Refused),
            Self::Unreachable => FlowStatus::Failed(Failure::Unreachable),
            Self::LastRequest => FlowStatus::Over(FlowEnd::Requests),
            Self::PerDatagram => FlowStatus::Over(FlowEnd::PerDatagram),
        }
    }
}

/// This process may be younger.
fn before(now: Moment, millis: u64) -> Moment {
    Moment(now.0.saturating_sub(millis))
}

fn narrow(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
