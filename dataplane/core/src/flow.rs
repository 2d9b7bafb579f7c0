//! UDP flows: which endpoint a client's datagram goes to, and which client an answer.
//!
//! Each worker has one [`FlowTable`] and brings it every datagram, and every error of a flow's socket. The table says what
//! to do, and keeps for each flow what the shell hands it, its socket, until the flow is over. It reads no plan by
//! itself: whose datagram it is says the frontend that comes with it, always the one of the plan in force, so a swap
//! costs nothing until a datagram comes.
//!
//! A flow stays with its endpoint through any number of swaps. Its next datagram goes elsewhere when the endpoint has left
//! the table, was disabled, fails its checks or could not be reached; that is another flow then, which keeps the
//! client's place in the frontend's limits.
//!
//! The number of flows is bounded. Above half of the bound those with one question and one answer end 2 s after it. At
//! the bound a newcomer takes the place of whoever was idle for the longest time, first among those that never got beyond
//! one question and one answer, so that a flood of invented clients costs the others nothing. The same holds for the flows of
//! one endpoint, which need a local port each: see [`Local`].

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::affinity::{canonical, shards::Seed};
use crate::counters::WorkerId;
use crate::deadlines::Deadlines;
use crate::endpoint::EndpointState;
use crate::moment::Moment;
use crate::plan::{Frontend, FrontendCounters, FrontendState, Serves};
use crate::rng::{Rng, mix};
use crate::service::{Failure, FailureNews, Service};

mod bits;
mod count;
mod decide;
mod entry;
mod idle;
mod index;
mod key;
mod port_range;
mod ports;
mod room;
#[cfg(test)]
mod simulation;
mod slots;
#[cfg(test)]
mod tests;
mod walk;

pub use count::{Dropped, FlowEnd, UdpCounters};
pub use key::{FlowId, Key, Listener};
pub use port_range::PortRange;
pub use ports::Local;

use entry::{Class, Flow, Standing};
use idle::Idle;
use index::Index;
use key::Compact;
use ports::LocalPorts;
use slots::Slots;

/// The flows of one worker. `S` is what the shell keeps for each.
#[derive(Debug)]
pub struct FlowTable<S> {
    flows: Slots<Flow<S>>,
    by_key: Index,
    seed: Seed,
    /// The last flow of each peer that a PROXY header spoke for.
    introduced: HashMap<Key, u32, Seed>,
    deadlines: Deadlines,
    /// The longest idle first.
    idle: Idle,
    ports: LocalPorts,
    most: usize,
    worker: WorkerId,
    takes_new: bool,
}

impl<S> FlowTable<S> {
    /// No flows yet, and never more than `most`. The seed, a random one, keeps clients from choosing addresses that collide.
    #[must_use]
    pub fn new(worker: WorkerId, most: usize, seed: u64) -> Self {
        let seed = Seed([seed, mix(seed)]);
        Self {
            flows: Slots::default(),
            by_key: Index::default(),
            seed,
            introduced: HashMap::with_hasher(seed),
            deadlines: Deadlines::new(),
            idle: Idle::new(),
            ports: LocalPorts::new(Vec::new()),
            most: most.max(1),
            worker,
            takes_new: true,
        }
    }

    /// Never more than `most` from now on. Those that are too many end when the next one begins.
    pub fn allow(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// With these local ports, which no other table has, for the sockets of its flows.
    #[must_use]
    pub fn with_ports(self, ports: Vec<u16>) -> Self {
        Self {
            ports: LocalPorts::new(ports),
            ..self
        }
    }

    /// What to do with a client's datagram that came to `frontend`; or with several of one size, where
    /// [`takes_groups`] lets them count as one.
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
            .and_then(|verdict| self.count_question(now, verdict, load, frontend));
        verdict.unwrap_or_else(|why| {
            let counters = frontend.state().udp_counters(self.worker);
            counters.dropped[why.index()].add(load.datagrams.into());
            Verdict::Drop(why)
        })
    }

    /// The shell's side of a flow that was opened.
    pub fn attach(&mut self, flow: FlowId, leg: S) {
        if let Some(flow) = self.flow_mut(flow) {
            flow.leg = Some(leg);
        }
    }

    /// Whose datagrams a flow carries, if it is not over.
    #[must_use]
    pub fn key(&self, flow: FlowId) -> Option<Key> {
        Some(self.flows.get(flow)?.key.key())
    }

    /// The endpoint of a flow, if it is not over.
    #[must_use]
    pub fn endpoint(&self, flow: FlowId) -> Option<&Arc<EndpointState>> {
        Some(self.flows.get(flow)?.lease.endpoint())
    }

    /// The shell's side of a flow.
    pub fn leg(&mut self, flow: FlowId) -> Option<&mut S> {
        self.flow_mut(flow)?.leg.as_mut()
    }

    /// Where the datagrams of an endpoint go that came by `flow`, or that many of them as may still go. `None`: nowhere,
    /// the flow is over.
    pub fn from_endpoint(&mut self, now: Moment, flow: FlowId, load: Load) -> Option<Answer> {
        let id = flow;
        let worker = self.worker;
        let flow = self.flows.get_mut(id)?;
        let left = flow.most_responses.saturating_sub(flow.responses);
        let datagrams = load.datagrams.min(left);
        flow.responses = flow.responses.saturating_add(datagrams);
        flow.last = flow.last.max(now);
        let answer = Answer {
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
            touched(&mut self.idle, flow, id.place, now);
        }
        Some(answer)
    }

    /// The way to the endpoint of `flow` failed: its next datagram goes elsewhere, and the service is told.
    pub fn failed(
        &mut self,
        now: Moment,
        flow: FlowId,
        failure: Failure,
        frontend: Option<&Frontend>,
    ) -> FailureNews {
        let worker = self.worker;
        let Some(flow) = self.flow_mut(flow) else {
            return FailureNews::default();
        };
        let endpoint = flow.lease.endpoint();
        endpoint.counters(worker).connect_errors.add(1);
        if flow.standing != Standing::Over(FlowEnd::Requests) {
            flow.standing = Standing::Failed(failure);
        }
        let service = frontend.and_then(service_of);
        let Some((service, index)) =
            service.and_then(|service| Some((service, flow.place(service)?)))
        else {
            return FailureNews::default();
        };
        service.failed(index, failure, flow.last, now)
    }

    /// What [`FlowTable::from_client`] counted did not leave after all.
    pub fn unsent(&mut self, flow: FlowId, load: Load) {
        let worker = self.worker;
        if let Some(flow) = self.flow_mut(flow) {
            let datagrams = &flow.frontend.udp_counters(worker).datagrams_in;
            datagrams.take(load.datagrams.into());
            counters(&flow.frontend, worker).bytes_in.take(load.bytes);
            let endpoint = flow.lease.endpoint().counters(worker);
            endpoint.bytes_in.take(load.bytes);
        }
    }

    /// Ends what has been idle for too long, or has had its answer where there is little room.
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

    /// When to call [`FlowTable::expire`]. It may come too early, but never too late.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Moment> {
        let answered = self.next_answered().map(|(_, when)| when);
        match (self.deadlines.next(), answered) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whose datagrams `peer` sends, if a PROXY header said so and that flow is still there.
    #[must_use]
    pub fn introduced(
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
        if let Some(place) = self.introduced.get(&key) {
            return Some(self.flows.at(*place)?.key.key().client);
        }
        self.find(&Compact::new(&key, None)).map(|_| key.client)
    }

    /// No new flows from now on; those that are there go on.
    pub fn take_no_more(&mut self) {
        self.takes_new = false;
    }

    /// Ends the flows of a socket that is closed.
    pub fn close(&mut self, now: Moment, listener: Listener) {
        self.end_all(now, |flow| flow.key.key().listener == listener);
    }

    /// Ends the flows that these endpoints have.
    pub fn cut(&mut self, now: Moment, endpoints: &[Arc<EndpointState>]) {
        let gone: FxHashSet<*const EndpointState> = endpoints.iter().map(Arc::as_ptr).collect();
        self.end_all(now, |flow| {
            gone.contains(&Arc::as_ptr(flow.lease.endpoint()))
        });
    }

    /// A flow that cannot be had after all is over.
    pub fn end(&mut self, now: Moment, flow: FlowId, why: FlowEnd) {
        if self.flows.id(flow.place) == Some(flow) {
            self.end_at(now, flow.place, why);
        }
    }

    /// All flows, in no order: the number of each in its table, whose it is, with which endpoint, and when it began.
    pub fn each(&self) -> impl Iterator<Item = (usize, Key, &Arc<EndpointState>, Moment)> {
        self.flows.iter().map(|(place, flow)| {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            (place, flow.key.key(), flow.lease.endpoint(), flow.began)
        })
    }

    /// How many flows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// It is due sooner than it was.
    fn bring_forward(&mut self, place: u32) {
        let deadline = self.flows.at(place).map(Flow::deadline);
        if let Some(deadline) = deadline.filter(|new| *new < self.deadlines.deadline(place)) {
            self.deadlines.set(place, deadline);
        }
    }

    fn find(&self, key: &Compact) -> Option<u32> {
        let is_it = |place| self.flows.at(place).is_some_and(|flow| flow.key == *key);
        self.by_key.find(self.hash(key), is_it)
    }

    fn hash(&self, key: &Compact) -> u32 {
        // Half of the bits are enough for as many flows as there are descriptors.
        (self.seed.hash_one(key) >> 32) as u32
    }

    /// The first of those that had their one answer, and when it ends for want of room.
    fn next_answered(&mut self) -> Option<(u32, Moment)> {
        if self.flows.len() <= self.most / 2 {
            return None;
        }
        // Each datagram moves a flow of this class: it was put where it is when the last one came.
        let since = |place| Some(self.flows.at(place)?.queued);
        let (last, place) = self.idle.first(Class::Answered, since)?;
        Some((place, last.after(AFTER_ITS_ANSWER)))
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

    fn end_at(&mut self, now: Moment, place: u32, why: FlowEnd) {
        self.forget(place);
        let Some(flow) = self.flows.remove(place) else {
            return;
        };
        self.deadlines.remove(place);
        self.idle.remove(place);
        self.ports.release(flow.taken);
        let ended = &flow.frontend.udp_counters(self.worker).ended;
        ended[flow.end(why).index()].add(1);
        let endpoint = flow.lease.endpoint().counters(self.worker);
        endpoint.ended(now.since(flow.began));
    }

    /// The next datagram with the key of this flow finds another one.
    fn forget(&mut self, place: u32) {
        let Some(flow) = self.flows.at(place) else {
            return;
        };
        let (hash, key) = (self.hash(&flow.key), flow.key.key());
        self.by_key.remove(hash, place);
        let introduction = introduction(key);
        if key.client != introduction.client && self.introduced.get(&introduction) == Some(&place) {
            self.introduced.remove(&introduction);
        }
    }

    fn flow_mut(&mut self, flow: FlowId) -> Option<&mut Flow<S>> {
        self.flows.get_mut(flow)
    }
}

/// Datagrams that come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many they are.
    pub datagrams: u32,
    /// What they hold together.
    pub bytes: u64,
}

impl Load {
    /// One datagram of so many bytes.
    #[must_use]
    pub fn one(bytes: usize) -> Self {
        Self {
            datagrams: 1,
            bytes: bytes as u64,
        }
    }

    /// About how many bytes the first so many of them hold: all but the last have one size.
    fn first(self, datagrams: u32) -> u64 {
        if datagrams >= self.datagrams {
            return self.bytes;
        }
        let each = self.bytes.div_ceil(u64::from(self.datagrams.max(1)));
        (each * u64::from(datagrams)).min(self.bytes)
    }
}

/// What to do with a client's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Send it on, by the socket of this flow.
    Forward(FlowId),
    /// Make a socket to this endpoint, [`FlowTable::attach`] it, and send.
    Open {
        /// The new flow.
        flow: FlowId,
        /// Where to connect.
        endpoint: SocketAddr,
    },
    /// Forget it.
    Drop(Dropped),
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Answer {
    /// To [`Key::peer`], by [`Key::listener`], from [`Key::local`].
    pub key: Key,
    /// How many of the datagrams; those behind come too late.
    pub datagrams: u32,
}

/// Whether datagrams of one client that came together may be sent on together: not where each one decides.
#[must_use]
pub fn takes_groups(frontend: &Frontend) -> bool {
    let udp = frontend.spec().udp();
    udp.requests.is_none() && !udp.per_datagram
}

/// A datagram has come: puts the flow where it belongs now. Its deadline is put off when the old one comes.
fn touched<S>(idle: &mut Idle, flow: &mut Flow<S>, place: u32, now: Moment) {
    let class = flow.class();
    let is_there = flow.queue == class;
    // A flow that is busy need not be moved with each datagram.
    if !is_there || class == Class::Answered || now.since(flow.queued) >= COARSE {
        (flow.queue, flow.queued) = (class, now);
        idle.renew(place, class, now);
    }
}

fn service_of(frontend: &Frontend) -> Option<&Service> {
    match frontend.serves() {
        Serves::Udp(service) => Some(service),
        Serves::Tcp(_) | Serves::NotYet(_) => None,
    }
}

fn counters(frontend: &FrontendState, worker: WorkerId) -> &FrontendCounters {
    frontend.counters().of(worker)
}

/// Under which a peer is found whose datagrams have no header any more.
fn introduction(key: Key) -> Key {
    Key {
        client: canonical(key.peer),
        ..key
    }
}

/// How long a flow stays after one question and one answer, where there is little room.
const AFTER_ITS_ANSWER: Duration = Duration::from_secs(2);
/// Who was idle for longer is known this exactly.
const COARSE: Duration = Duration::from_millis(100);
