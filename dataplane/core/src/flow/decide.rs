//! Which endpoint a client's datagram goes to: the one of its flow, or one that is picked for it.
//!
//! The story of [`FlowTable::from_client`]; nothing else changes where a flow goes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::admit::Admission;
use crate::affinity::canonical;
use crate::counters::WorkerId;
use crate::moment::Moment;
use crate::pick::{self, Picked, Tried};
use crate::plan::Frontend;
use crate::rng::Rng;
use crate::service::{Failure, Service};

use super::count::{Dropped, FlowEnd};
use super::entry::{Class, Flow, Standing};
use super::key::{FullKey, Key};
use super::{FlowTable, Load, Verdict, counters, introduction, service_of};

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
        let full = FullKey {
            key,
            endpoint: None,
        };
        let Some(place) = self.by_key.get(&full).copied() else {
            return self.open(&way, full, None, &Tried::default(), rng);
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
                flow.index = index;
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            (None, _) => (FlowEnd::Endpoint, Tried::default()),
        };
        let admission = flow.admission.take().filter(|_| is_same);
        self.end_at(now, place, why);
        self.open(&way, full, admission, &tried, rng)
    }

    /// An endpoint for this one datagram, and the flow by which its answers come back.
    fn balance(&mut self, way: &Way<'_>, key: Key, rng: &mut Rng) -> Result<Verdict, Dropped> {
        let mut picked = way.pick(key, &Tried::default(), self.worker, rng)?;
        let failure = self.failure(FullKey::to(key, &picked));
        if let Some(failure) = failure {
            let tried = way.without(picked.index, failure);
            // Better once more to the same one than nowhere.
            picked = way.pick(key, &tried, self.worker, rng).unwrap_or(picked);
        }
        let full = FullKey::to(key, &picked);
        let mut admission = None;
        if let Some(place) = self.by_key.get(&full).copied()
            && let Some(flow) = self.flows.at_mut(place)
        {
            let is_same = Arc::ptr_eq(flow.lease.endpoint(), picked.lease.endpoint())
                && Arc::ptr_eq(&flow.frontend, way.frontend.state());
            if is_same && !matches!(flow.standing, Standing::Failed(_)) {
                flow.index = picked.index;
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            admission = flow.admission.take().filter(|_| is_same);
            self.end_at(way.now, place, FlowEnd::Endpoint);
        }
        self.insert(way, full, admission, picked)
    }

    /// How the flow with this key failed, if it did.
    fn failure(&self, key: FullKey) -> Option<Failure> {
        match self.flows.at(*self.by_key.get(&key)?)?.standing {
            Standing::Failed(failure) => Some(failure),
            Standing::Open | Standing::Over(_) => None,
        }
    }

    fn open(
        &mut self,
        way: &Way<'_>,
        key: FullKey,
        admission: Option<Admission>,
        tried: &Tried,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        // Nobody is asked for an endpoint by those who may not come in.
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(way, key.key.client)?,
        };
        let picked = match way.pick(key.key, tried, self.worker, rng) {
            Err(Dropped::NoEndpoint) if !tried.is_empty() => {
                // Better once more to the same one than nowhere.
                way.pick(key.key, &Tried::default(), self.worker, rng)?
            }
            picked => picked?,
        };
        self.insert(way, key, Some(admission), picked)
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
        key: FullKey,
        admission: Option<Admission>,
        picked: Picked,
    ) -> Result<Verdict, Dropped> {
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(way, key.key.client)?,
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
            key,
            frontend: Arc::clone(way.frontend.state()),
            lease: picked.lease,
            index: picked.index,
            admission: Some(admission),
            standing: match udp.per_datagram {
                true => Standing::Over(FlowEnd::PerDatagram),
                false => Standing::Open,
            },
            began: way.now,
            last: way.now,
            idle: way.frontend.spec().timeouts.idle,
            requests: 0,
            responses: 0,
            most_responses: u32::MAX,
            queued: way.now,
            leg: None,
        };
        let deadline = flow.deadline();
        let id = self.flows.insert(flow);
        self.by_key.insert(key, id.place);
        if key.key.client != canonical(key.key.peer) {
            self.introduced.insert(introduction(key.key), id.place);
        }
        self.deadlines.set(id.place, deadline);
        self.idle.push(Class::Asked.chain(), id.place);
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
        let flow = self.flow_mut(id).ok_or(Dropped::NoEndpoint)?;
        flow.requests = flow.requests.saturating_add(load.datagrams);
        flow.last = flow.last.max(now);
        flow.idle = frontend.spec().timeouts.idle;
        // The answers that are still due, where the flow goes on and is asked again.
        flow.most_responses = udp.responses.map_or(u32::MAX, |most| most.get());
        let bytes = load.bytes;
        flow.lease.endpoint().counters(worker).bytes_in.add(bytes);
        counters(&flow.frontend, worker).bytes_in.add(bytes);
        let counters = flow.frontend.udp_counters(worker);
        counters.datagrams_in.add(load.datagrams.into());
        let is_last = udp.requests.is_some_and(|most| flow.requests >= most.get());
        if is_last && flow.standing == Standing::Open {
            flow.standing = Standing::Over(FlowEnd::Requests);
            let key = flow.key;
            self.forget(key, id.place);
        }
        self.touched(id.place, now);
        Ok(verdict)
    }
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
