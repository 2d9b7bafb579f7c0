//! Which endpoint a client's datagram goes to: the one of its flow, or one that is picked for it.
//!
//! The story of [`FlowTable::from_client`]; nothing else changes where a flow goes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::admit::Admission;
use crate::affinity::canonical;
use crate::counters::WorkerId;
use crate::moment::{Moment, whole_millis};
use crate::pick::{self, Picked, Tried};
use crate::plan::Frontend;
use crate::rng::Rng;
use crate::service::{Failure, Service};

use super::count::{Dropped, FlowEnd};
use super::entry::{Class, Flow, Standing};
use super::key::{Compact, Key};
use super::ports::Taken;
use super::{FlowTable, Load, Verdict, counters, introduction, service_of, touched};

impl<S> FlowTable<S> {
    pub(super) fn decide(
        &mut self,
        now: Moment,
        key: Key,
        frontend: &Frontend,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        frontend.limits().check_source(key.client.ip())?;
        let service = service_of(frontend).ok_or(Dropped::NoEndpoint)?;
        let way = Way {
            now,
            frontend,
            service,
        };
        if frontend.spec().udp().per_datagram {
            return self.balance(&way, key, rng);
        }
        let compact = Compact::new(&key, None);
        let Some(place) = self.find(&compact) else {
            return self.open(&way, (key, compact), None, &Tried::default(), rng);
        };
        let Some(flow) = self.flows.at_mut(place) else {
            return Err(Dropped::NoEndpoint);
        };
        let is_same = Arc::ptr_eq(&flow.frontend, frontend.state());
        let stays = flow.stays(service).filter(|_| is_same);
        let (why, tried) = match (stays, flow.standing) {
            (_, Standing::Failed(failure)) => {
                let tried = flow.place(service).map(|index| way.without(index, failure));
                (FlowEnd::Refused, tried.unwrap_or_default())
            }
            (Some(index), _) => {
                flow.index = narrow(index);
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            (None, _) => (FlowEnd::Endpoint, Tried::default()),
        };
        let admission = flow.admission.take().filter(|_| is_same);
        self.end_at(now, place, why);
        self.open(&way, (key, compact), admission, &tried, rng)
    }

    /// An endpoint for this one datagram, and the flow by which its answers come back.
    fn balance(&mut self, way: &Way<'_>, key: Key, rng: &mut Rng) -> Result<Verdict, Dropped> {
        let mut picked = way.pick(key, &Tried::default(), self.worker, rng)?;
        let failure = self.failure(&to_endpoint(&key, &picked));
        if let Some(failure) = failure {
            let tried = way.without(picked.index, failure);
            // Better once more to the same one than nowhere.
            picked = way.pick(key, &tried, self.worker, rng).unwrap_or(picked);
        }
        let compact = to_endpoint(&key, &picked);
        let mut admission = None;
        if let Some(place) = self.find(&compact)
            && let Some(flow) = self.flows.at_mut(place)
        {
            let is_same = Arc::ptr_eq(flow.lease.endpoint(), picked.lease.endpoint())
                && Arc::ptr_eq(&flow.frontend, way.frontend.state());
            if is_same && !matches!(flow.standing, Standing::Failed(_)) {
                flow.index = narrow(picked.index);
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            admission = flow.admission.take().filter(|_| is_same);
            self.end_at(way.now, place, FlowEnd::Endpoint);
        }
        self.insert(way, (key, compact), admission, picked)
    }

    /// How the flow with this key failed, if it did.
    fn failure(&self, key: &Compact) -> Option<Failure> {
        match self.flows.at(self.find(key)?)?.standing {
            Standing::Failed(failure) => Some(failure),
            Standing::Open | Standing::Over(_) => None,
        }
    }

    fn open(
        &mut self,
        way: &Way<'_>,
        (key, compact): (Key, Compact),
        admission: Option<Admission>,
        tried: &Tried,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        // Nobody is asked for an endpoint by those who may not come in.
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(way, key.client)?,
        };
        let picked = match way.pick(key, tried, self.worker, rng) {
            Err(Dropped::NoEndpoint | Dropped::Loop) if !tried.is_empty() => {
                // Better once more to the same one than nowhere.
                way.pick(key, &Tried::default(), self.worker, rng)?
            }
            picked => picked?,
        };
        self.insert(way, (key, compact), Some(admission), picked)
    }

    fn admit(&self, way: &Way<'_>, client: SocketAddr) -> Result<Admission, Dropped> {
        if !self.takes_new {
            return Err(Dropped::NoEndpoint);
        }
        let (limits, admit) = (way.frontend.limits(), way.frontend.state().admit());
        Ok(admit.admit(limits, client.ip(), way.now, None)?)
    }

    fn insert(
        &mut self,
        way: &Way<'_>,
        (key, compact): (Key, Compact),
        admission: Option<Admission>,
        picked: Picked,
    ) -> Result<Verdict, Dropped> {
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(way, key.client)?,
        };
        while self.flows.len() >= self.most && self.evict(way.now) {}
        let udp = way.frontend.spec().udp();
        let endpoint = picked.lease.address();
        let of_endpoint = picked.lease.endpoint().counters(self.worker);
        of_endpoint.session(way.now, Duration::ZERO, Duration::ZERO);
        let of_frontend = counters(way.frontend.state(), self.worker);
        of_frontend.connections.add(1);
        of_frontend.sessions.add(1);
        way.service.state().counters(self.worker).sessions.add(1);
        let flow = Flow {
            key: compact,
            frontend: Arc::clone(way.frontend.state()),
            lease: picked.lease,
            index: narrow(picked.index),
            admission: Some(admission),
            standing: match udp.per_datagram {
                true => Standing::Over(FlowEnd::PerDatagram),
                false => Standing::Open,
            },
            began: way.now,
            last: way.now,
            idle: idle_of(way.frontend),
            requests: 0,
            responses: 0,
            most_responses: u32::MAX,
            queued: way.now,
            queue: Class::Asked,
            taken: Taken::default(),
            leg: None,
        };
        let (deadline, hash) = (flow.deadline(), self.hash(&flow.key));
        let id = self.flows.insert(flow);
        self.by_key.insert(hash, id.place);
        if key.client != canonical(key.peer) {
            self.introduced.insert(introduction(key), id.place);
        }
        self.deadlines.set(id.place, deadline);
        let group = Taken::default().group;
        self.idle.push(group, Class::Asked, id.place, way.now);
        Ok(Verdict::Open { flow: id, endpoint })
    }

    /// Counts the question, and sees whether it was the last one.
    pub(super) fn count_question(
        &mut self,
        now: Moment,
        verdict: Verdict,
        load: Load,
        frontend: &Frontend,
    ) -> Result<Verdict, Dropped> {
        let (Verdict::Forward(id) | Verdict::Open { flow: id, .. }) = verdict else {
            return Ok(verdict);
        };
        let udp = frontend.spec().udp();
        let worker = self.worker;
        let flow = self.flows.get_mut(id).ok_or(Dropped::NoEndpoint)?;
        flow.requests = flow.requests.saturating_add(load.datagrams);
        flow.last = flow.last.max(now);
        let idle_before = std::mem::replace(&mut flow.idle, idle_of(frontend));
        let is_due_sooner = flow.idle < idle_before;
        // The answers that are still due, where the flow goes on and is asked again.
        flow.most_responses = udp.responses.map_or(u32::MAX, |most| most.get());
        let bytes = load.bytes;
        flow.lease.endpoint().counters(worker).bytes_in.add(bytes);
        counters(&flow.frontend, worker).bytes_in.add(bytes);
        let counters = flow.frontend.udp_counters(worker);
        counters.datagrams_in.add(load.datagrams.into());
        touched(&mut self.idle, flow, id.place, now);
        let is_last = udp.requests.is_some_and(|most| flow.requests >= most.get());
        if is_last && flow.standing == Standing::Open {
            flow.standing = Standing::Over(FlowEnd::Requests);
            self.forget(id.place);
        }
        if is_due_sooner {
            self.bring_forward(id.place);
        }
        Ok(verdict)
    }
}

/// The key of the flow by which this client's datagrams go to whom was picked.
fn to_endpoint(key: &Key, picked: &Picked) -> Compact {
    Compact::new(key, Some(picked.lease.address()))
}

/// Longer than 49 days is as good as never.
pub(super) fn idle_of(frontend: &Frontend) -> u32 {
    u32::try_from(whole_millis(frontend.spec().timeouts.idle)).unwrap_or(u32::MAX)
}

/// A place in a service: what does not fit is a hint that leads nowhere.
fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// What a datagram is decided by.
struct Way<'a> {
    now: Moment,
    frontend: &'a Frontend,
    service: &'a Service,
}

impl Way<'_> {
    fn pick(
        &self,
        key: Key,
        tried: &Tried,
        worker: WorkerId,
        rng: &mut Rng,
    ) -> Result<Picked, Dropped> {
        let of_service = self.service.state().counters(worker);
        let picked = self
            .service
            .pick(&pick::Key::new(key.client), tried, self.now, rng)
            .inspect_err(|_| {
                if tried.is_empty() {
                    of_service.sessions.add(1);
                    of_service.unserved.add(1);
                }
            })?;
        of_service.panics.add(picked.is_panic.into());
        picked.lease.endpoint().counters(worker).picked.add(1);
        Ok(picked)
    }

    /// What a client has tried that could not reach the endpoint at `index`.
    fn without(&self, index: usize, failure: Failure) -> Tried {
        let mut tried = Tried::default();
        if let Some(endpoint) = self.service.endpoints().get(index) {
            tried.note(endpoint, failure);
        }
        tried
    }
}
