//! UDP flows: which endpoint a client's datagram goes to, and which client a reply goes to.
//!
//! Each worker has one [`FlowTable`] and passes it every datagram, and every error of a flow's socket. The table decides, and
//! stores for each flow a value of the caller, the flow's socket, until the flow ends. It does not read the plan itself: each
//! datagram comes with the frontend of the plan in force, so a swap costs nothing until a datagram arrives.
//!
//! A flow keeps its endpoint through any number of swaps. If the endpoint was removed, was disabled, fails its checks or could
//! not be reached, or if its service is no longer one of the frontend, the next datagram begins another flow with another endpoint, which takes over the client's admission at the
//! frontend.
//!
//! The number of flows is bounded. Above half of the bound, flows with one request and one reply end 2 s after it. At the
//! bound, a new flow evicts the flow that was idle for the longest time, and first those that never had more than one request
//! and one reply, so that a flood of forged clients does not harm the others. The same holds for the flows of one endpoint,
//! which need a local port each: see [`Local`].

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::backends::Backends;
use crate::clients::{Seed, canonical};
use crate::counters::WorkerId;
use crate::deadlines::Deadlines;
use crate::endpoint::EndpointState;
use crate::moment::Moment;
use crate::plan::{Frontend, FrontendCounters, FrontendState, Serves};
use crate::rng::{Rng, mix};
use crate::service::{Failure, FailureNews};
use crate::slots::Slots;

mod bits;
mod decide;
mod entry;
mod evict;
mod handed;
mod idle;
mod index;
mod key;
mod port_range;
mod ports;
mod scan;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use crate::slots::SlotId as FlowId;
pub use crate::udp_counters::{Dropped, FlowEnd, UdpCounters, UdpCounts};
pub use handed::{Adopting, HandedFlow, HandedHeader, Phase};
pub use key::{Key, Listener};
pub use port_range::PortRange;
pub use ports::Local;

use entry::{Class, Flow, FlowStatus};
use idle::Idle;
use index::Index;
use key::Compact;
use ports::LocalPorts;

/// The flows of one worker. `S` is the caller's value for each flow.
#[derive(Debug)]
pub struct FlowTable<S> {
    flows: Slots<Flow<S>>,
    by_key: Index,
    seed: Seed,
    /// The last flow of each peer whose PROXY header named another client.
    proxied_peers: HashMap<Key, u32, Seed>,
    deadlines: Deadlines,
    /// Flows ordered by idle time.
    idle: Idle,
    ports: LocalPorts,
    most: usize,
    worker: WorkerId,
    accepts_new: bool,
}

impl<S> FlowTable<S> {
    /// Creates a table for at most `most` flows. The random seed prevents clients from choosing addresses that collide.
    pub fn new(worker: WorkerId, most: usize, seed: u64) -> Self {
        let seed = Seed([seed, mix(seed)]);
        Self {
            flows: Slots::default(),
            by_key: Index::default(),
            seed,
            proxied_peers: HashMap::with_hasher(seed),
            deadlines: Deadlines::new(),
            idle: Idle::new(),
            ports: LocalPorts::new(Vec::new()),
            most: most.max(1),
            worker,
            accepts_new: true,
        }
    }

    /// Sets the most flows. Surplus flows end when the next flow begins.
    pub fn allow(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// Sets the local ports for the sockets of its flows. No other table may have any of them.
    #[must_use]
    pub fn with_ports(self, ports: Vec<u16>) -> Self {
        Self {
            ports: LocalPorts::new(ports),
            ..self
        }
    }

    /// Decides about a client's datagram that arrived at `frontend`, or about several of one size, if [`takes_groups`] allows
    /// to treat them as one.
    pub fn from_client(
        &mut self,
        now: Moment,
        key: Key,
        load: Load,
        frontend: &Frontend,
        rng: &mut Rng,
    ) -> Verdict {
        let verdict = self
            .decide(now, key, frontend, rng)
            .and_then(|verdict| self.count_request(now, verdict, load, frontend));
        verdict.unwrap_or_else(|why| {
            let counters = frontend.state().udp_counters(self.worker);
            counters.dropped[why.index()].add(load.datagrams.into());
            Verdict::Drop(why)
        })
    }

    /// Stores the caller's value of a flow that was opened.
    pub fn attach(&mut self, flow: FlowId, socket: S) {
        if let Some(flow) = self.flows.get_mut(flow) {
            flow.attached = Some(socket);
        }
    }

    /// The key of a flow, if the flow has not ended.
    #[must_use]
    pub fn key(&self, flow: FlowId) -> Option<Key> {
        Some(self.flows.get(flow)?.key.key())
    }

    /// The endpoint of a flow, if the flow has not ended.
    pub fn endpoint(&self, flow: FlowId) -> Option<&Arc<EndpointState>> {
        Some(self.flows.get(flow)?.lease.endpoint())
    }

    /// The caller's value of a flow.
    pub fn attached(&mut self, flow: FlowId) -> Option<&mut S> {
        self.flows.get_mut(flow)?.attached.as_mut()
    }

    /// Decides about datagrams of an endpoint that arrived at the socket of `flow`: where they go, and how many of them may
    /// still be forwarded. `None`: the flow has ended.
    pub fn from_endpoint(&mut self, now: Moment, flow: FlowId, load: Load) -> Option<ReplyRoute> {
        let id = flow;
        let worker = self.worker;
        let flow = self.flows.get_mut(id)?;
        let left = flow.most_responses.saturating_sub(flow.responses);
        let datagrams = load.datagrams.min(left);
        flow.responses = flow.responses.saturating_add(datagrams);
        flow.last = flow.last.max(now);
        let route = ReplyRoute {
            key: flow.key.key(),
            datagrams,
        };
        let bytes = load.first(datagrams);
        let endpoint = flow.lease.endpoint();
        endpoint.connected(now);
        endpoint.counters(worker).bytes_out.add(bytes);
        counters(&flow.frontend, worker).bytes_out.add(bytes);
        let counters = flow.frontend.udp_counters(worker);
        counters.datagrams_out.add(datagrams.into());
        if flow.responses >= flow.most_responses {
            self.end(now, id, FlowEnd::Responses);
        } else {
            note_activity(&mut self.idle, flow, id.place, now);
        }
        Some(route)
    }

    /// Notes that the endpoint of `flow` could not be reached: the next datagram goes elsewhere, and the service is notified.
    pub fn failed(
        &mut self,
        now: Moment,
        flow: FlowId,
        failure: Failure,
        frontend: Option<&Frontend>,
    ) -> FailureNews {
        let worker = self.worker;
        let Some(flow) = self.flows.get_mut(flow) else {
            return FailureNews::default();
        };
        let endpoint = flow.lease.endpoint();
        endpoint.counters(worker).connect_errors.add(1);
        if flow.status != FlowStatus::Over(FlowEnd::Requests) {
            flow.status = FlowStatus::Failed(failure);
        }
        let backends = frontend.and_then(backends_of);
        let service = backends.and_then(|backends| backends.service_of(endpoint));
        let Some((service, index)) =
            service.and_then(|service| Some((service, flow.place(service)?)))
        else {
            return FailureNews::default();
        };
        service.failed(index, failure, flow.last, now)
    }

    /// Takes back what [`FlowTable::from_client`] counted, because it could not be sent.
    pub fn unsent(&mut self, flow: FlowId, load: Load) {
        let worker = self.worker;
        if let Some(flow) = self.flows.get_mut(flow) {
            let datagrams = &flow.frontend.udp_counters(worker).datagrams_in;
            datagrams.take(load.datagrams.into());
            counters(&flow.frontend, worker).bytes_in.take(load.bytes);
            let endpoint = flow.lease.endpoint().counters(worker);
            endpoint.bytes_in.take(load.bytes);
        }
    }

    /// Ends flows that were idle for too long, and answered flows while there is little room.
    pub fn expire(&mut self, now: Moment) {
        while let Some(place) = self.deadlines.pop(now) {
            let Some(flow) = self.flows.at(place) else {
                continue;
            };
            let deadline = flow.deadline();
            if deadline > now {
                self.deadlines.set(place, deadline);
            } else {
                self.end_at(now, place, FlowEnd::Idle);
            }
        }
        while let Some((place, when)) = self.next_answered()
            && when <= now
        {
            self.end_at(now, place, FlowEnd::Evicted);
        }
    }

    /// When to call [`FlowTable::expire`]. The moment may be too early, but never too late.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Moment> {
        let answered = self.next_answered().map(|(_, when)| when);
        [self.deadlines.next(), answered]
            .into_iter()
            .flatten()
            .min()
    }

    /// The client for which `peer` sends, if a PROXY header named one and that flow has not ended.
    pub fn client_of_peer(
        &self,
        listener: Listener,
        peer: SocketAddr,
        local: IpAddr,
    ) -> Option<SocketAddr> {
        let key = Key {
            listener,
            peer,
            local,
            client: canonical(peer),
        };
        if let Some(place) = self.proxied_peers.get(&key) {
            return Some(self.flows.at(*place)?.key.key().client);
        }
        self.find(&Compact::new(&key, None)).map(|_| key.client)
    }

    /// Accepts no new flows from now on. Existing flows go on.
    pub fn refuse_new(&mut self) {
        self.accepts_new = false;
    }

    /// Ends the flows of a listening socket that is closed.
    pub fn close(&mut self, now: Moment, listener: Listener) {
        self.end_all(now, |flow| flow.key.key().listener == listener);
    }

    /// Ends the flows of these endpoints.
    pub fn cut(&mut self, now: Moment, endpoints: &[Arc<EndpointState>]) {
        let gone: FxHashSet<*const EndpointState> = endpoints.iter().map(Arc::as_ptr).collect();
        self.end_all(now, |flow| {
            gone.contains(&Arc::as_ptr(flow.lease.endpoint()))
        });
    }

    pub fn end(&mut self, now: Moment, flow: FlowId, why: FlowEnd) {
        if self.flows.get(flow).is_some() {
            self.end_at(now, flow.place, why);
        }
    }

    /// Ends the flow whose [`FlowId::short`] this is. Returns whether there is one.
    pub fn end_short(&mut self, now: Moment, short: u64) -> bool {
        let [.., a, b, c, d] = short.to_be_bytes();
        let place = u32::from_be_bytes([a, b, c, d]);
        let flow = self.flows.id_at(place);
        let is_there = flow.short() == short && self.flows.get(flow).is_some();
        if is_there {
            self.end_at(now, place, FlowEnd::Endpoint);
        }
        is_there
    }

    /// All flows in no particular order: the id of each, its key, its endpoint, and when it began.
    pub fn each(&self) -> impl Iterator<Item = (FlowId, Key, &Arc<EndpointState>, Moment)> {
        self.flows.iter().map(|(place, flow)| {
            let id = self.flows.id_at(place);
            (id, flow.key.key(), flow.lease.endpoint(), flow.began)
        })
    }

    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves the deadline of a flow forward, after it has become earlier.
    fn bring_forward(&mut self, place: u32) {
        let deadline = self.flows.at(place).map(Flow::deadline);
        if let Some(deadline) = deadline.filter(|new| *new < self.deadlines.deadline(place)) {
            self.deadlines.set(place, deadline);
        }
    }

    fn find(&self, key: &Compact) -> Option<u32> {
        let matches = |place| self.flows.at(place).is_some_and(|flow| flow.key == *key);
        self.by_key.find(self.hash(key), matches)
    }

    fn hash(&self, key: &Compact) -> u32 {
        // 32 bits are enough for as many flows as there are descriptors.
        (self.seed.hash_one(key) >> 32) as u32
    }

    /// The first answered flow, and when it ends if there is little room.
    fn next_answered(&mut self) -> Option<(u32, Moment)> {
        if self.flows.len() <= self.most / 2 {
            return None;
        }
        // Each datagram moves a flow of this class, so its queue time is that of its last datagram.
        let since = |place| Some(self.flows.at(place)?.queued);
        let (last, place) = self.idle.first(Class::Answered, since)?;
        Some((place, last.after(ANSWERED_LIFETIME)))
    }

    fn end_all(&mut self, now: Moment, which: impl Fn(&Flow<S>) -> bool) {
        let places: Vec<u32> = self
            .flows
            .iter()
            .filter(|(_, flow)| which(flow))
            .map(|(place, _)| place)
            .collect();
        for place in places {
            self.end_at(now, place, FlowEnd::Endpoint);
        }
    }

    /// Removes a flow from everywhere but its port, and counts nothing.
    fn take_out(&mut self, place: u32) -> Option<Flow<S>> {
        self.forget(place);
        let flow = self.flows.remove(place)?;
        self.deadlines.remove(place);
        self.idle.remove(place);
        Some(flow)
    }

    fn end_at(&mut self, now: Moment, place: u32, why: FlowEnd) {
        let Some(flow) = self.take_out(place) else {
            return;
        };
        self.ports.release(flow.taken);
        let ended = &flow.frontend.udp_counters(self.worker).ended;
        ended[flow.end(why).index()].add(1);
        let endpoint = flow.lease.endpoint().counters(self.worker);
        endpoint.ended(now.since(flow.began));
    }

    /// Removes the flow's key, so that the next datagram with this key begins another flow.
    fn forget(&mut self, place: u32) {
        let Some(flow) = self.flows.at(place) else {
            return;
        };
        let (hash, key) = (self.hash(&flow.key), flow.key.key());
        self.by_key.remove(hash, place);
        let peer_key = peer_key(key);
        if key.client != peer_key.client && self.proxied_peers.get(&peer_key) == Some(&place) {
            self.proxied_peers.remove(&peer_key);
        }
    }
}

/// Datagrams that are handled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub datagrams: u32,
    /// The sum of their bytes.
    pub bytes: u64,
}

impl Load {
    /// One datagram of `bytes` bytes.
    pub fn one(bytes: usize) -> Self {
        Self {
            datagrams: 1,
            bytes: bytes as u64,
        }
    }

    /// The approximate bytes of the first `datagrams` of them: all but the last one have the same size.
    fn first(self, datagrams: u32) -> u64 {
        if datagrams >= self.datagrams {
            return self.bytes;
        }
        let each = self.bytes.div_ceil(u64::from(self.datagrams.max(1)));
        (each * u64::from(datagrams)).min(self.bytes)
    }
}

/// The decision about a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Send it by the socket of this flow.
    Forward(FlowId),
    /// Open a socket to this endpoint, [`FlowTable::attach`] it, and send.
    Open {
        /// The new flow.
        flow: FlowId,
        /// The endpoint's address.
        endpoint: SocketAddr,
    },
    Drop(Dropped),
}

/// Where replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReplyRoute {
    /// Send to [`Key::peer`], by the socket [`Key::listener`], from [`Key::local`].
    pub key: Key,
    /// How many of the datagrams to send; the rest exceed the limit of replies.
    pub datagrams: u32,
}

/// Whether datagrams of one client may be forwarded as a group: not if each datagram is decided by itself.
#[must_use]
pub fn takes_groups(frontend: &Frontend) -> bool {
    let udp = frontend.spec().udp();
    udp.requests.is_none() && !udp.per_datagram
}

/// Moves a flow to its place among the idle flows, after a datagram. The deadline is updated only when the old one comes.
fn note_activity<S>(idle: &mut Idle, flow: &mut Flow<S>, place: u32, now: Moment) {
    let class = flow.class();
    let is_there = flow.queue == class;
    // A busy flow need not be moved with each datagram.
    if !is_there || class == Class::Answered || now.since(flow.queued) >= IDLE_RESOLUTION {
        (flow.queue, flow.queued) = (class, now);
        idle.renew(place, class, now);
    }
}

fn backends_of(frontend: &Frontend) -> Option<&Backends> {
    match frontend.serves() {
        Serves::Udp(backends) => Some(backends),
        Serves::Tcp(_) | Serves::Http(_) | Serves::Tls(_) | Serves::Nothing => None,
    }
}

fn counters(frontend: &FrontendState, worker: WorkerId) -> &FrontendCounters {
    frontend.counters().of(worker)
}

/// The key under which a peer that no longer sends headers is found.
fn peer_key(key: Key) -> Key {
    Key {
        client: canonical(key.peer),
        ..key
    }
}

/// How long an answered flow stays while there is little room.
const ANSWERED_LIFETIME: Duration = Duration::from_secs(2);
/// The resolution of idle times.
const IDLE_RESOLUTION: Duration = Duration::from_millis(100);
