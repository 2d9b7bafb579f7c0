//! Decides which endpoint a client's datagram goes to: the one of its flow, or one that is picked for it.
//!
//! The implementation of [`FlowTable::from_client`]. Nothing else changes the endpoint of a flow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::admit::Admission;
use crate::backends::Backends;
use crate::clients::canonical;
use crate::counters::WorkerId;
use crate::moment::{Moment, whole_millis};
use crate::pick::{self, Picked, Tried};
use crate::plan::Frontend;
use crate::rng::Rng;
use crate::service::{Failure, Service};

use super::entry::{Class, Flow, FlowStatus};
use super::key::{Compact, Key};
use super::ports::Taken;
use super::{FlowTable, Load, Verdict, backends_of, counters, note_activity, peer_key};
use crate::udp_counters::{Dropped, FlowEnd};

impl<S> FlowTable<S> {
    pub(super) fn decide(
        &mut self,
        now: Moment,
        key: Key,
        frontend: &Frontend,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        frontend.limits().check_source(key.client.ip())?;
        let backends = backends_of(frontend).ok_or(Dropped::NoEndpoint)?;
        let request = Request {
            now,
            frontend,
            backends,
        };
        if frontend.spec().udp().per_datagram {
            return self.balance(&request, key, rng);
        }
        let compact = Compact::new(&key, None);
        let Some(place) = self.find(&compact) else {
            return self.open(&request, (key, compact), None, &Tried::default(), rng);
        };
        let Some(flow) = self.flows.at_mut(place) else {
            return Err(Dropped::NoEndpoint);
        };
        let is_same = Arc::ptr_eq(&flow.frontend, frontend.state());
        let service = backends.service_of(flow.lease.endpoint());
        let stays = service.and_then(|service| flow.stays(service));
        let (why, tried) = match (stays.filter(|_| is_same), flow.status) {
            (_, FlowStatus::Failed(failure)) => {
                let tried =
                    service.and_then(|service| without(service, flow.place(service)?, failure));
                (FlowEnd::Refused, tried.unwrap_or_default())
            }
            // A table has lowered the number.
            (Some(_), _) if flow.has_all_replies(frontend) => {
                (FlowEnd::Responses, Tried::default())
            }
            (Some(index), _) => {
                flow.index = narrow(index);
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            (None, _) => (FlowEnd::Endpoint, Tried::default()),
        };
        let admission = flow.admission.take().filter(|_| is_same);
        self.end_at(now, place, why);
        self.open(&request, (key, compact), admission, &tried, rng)
    }

    /// Picks an endpoint for this one datagram, and the flow for its replies.
    fn balance(
        &mut self,
        request: &Request<'_>,
        key: Key,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        let service = request.service(key, &Tried::default(), self.worker);
        let mut picked = request.pick(service, key, &Tried::default(), self.worker, rng)?;
        let failure = self.failure(&to_endpoint(&key, &picked));
        if let Some(failure) = failure
            && let Some(tried) = without(service, picked.index, failure)
        {
            let service = request.service(key, &tried, self.worker);
            // Trying the same endpoint again is better than dropping the datagram.
            picked = request
                .pick(service, key, &tried, self.worker, rng)
                .unwrap_or(picked);
        }
        let compact = to_endpoint(&key, &picked);
        let mut admission = None;
        if let Some(place) = self.find(&compact)
            && let Some(flow) = self.flows.at_mut(place)
        {
            let is_same = Arc::ptr_eq(flow.lease.endpoint(), picked.lease.endpoint())
                && Arc::ptr_eq(&flow.frontend, request.frontend.state());
            let has_all_replies = is_same && flow.has_all_replies(request.frontend);
            if is_same && !has_all_replies && !matches!(flow.status, FlowStatus::Failed(_)) {
                flow.index = narrow(picked.index);
                return Ok(Verdict::Forward(self.flows.id_at(place)));
            }
            admission = flow.admission.take().filter(|_| is_same);
            let why = if has_all_replies {
                FlowEnd::Responses
            } else {
                FlowEnd::Endpoint
            };
            self.end_at(request.now, place, why);
        }
        self.insert(request, (key, compact), admission, picked)
    }

    /// How the flow with this key failed, if it has.
    fn failure(&self, key: &Compact) -> Option<Failure> {
        match self.flows.at(self.find(key)?)?.status {
            FlowStatus::Failed(failure) => Some(failure),
            FlowStatus::Open | FlowStatus::Over(_) => None,
        }
    }

    fn open(
        &mut self,
        request: &Request<'_>,
        (key, compact): (Key, Compact),
        admission: Option<Admission>,
        tried: &Tried,
        rng: &mut Rng,
    ) -> Result<Verdict, Dropped> {
        // No endpoint is picked for clients that are not admitted.
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(request, key.client)?,
        };
        let service = request.service(key, tried, self.worker);
        let picked = match request.pick(service, key, tried, self.worker, rng) {
            Err(Dropped::NoEndpoint | Dropped::Loop) if !tried.is_empty() => {
                // Trying the same endpoint again is better than dropping the datagram.
                request.pick(service, key, &Tried::default(), self.worker, rng)?
            }
            picked => picked?,
        };
        self.insert(request, (key, compact), Some(admission), picked)
    }

    fn admit(&self, request: &Request<'_>, client: SocketAddr) -> Result<Admission, Dropped> {
        if !self.accepts_new {
            return Err(Dropped::Ending);
        }
        let (limits, admit) = (request.frontend.limits(), request.frontend.state().admit());
        Ok(admit.admit(limits, client.ip(), request.now, None)?)
    }

    fn insert(
        &mut self,
        request: &Request<'_>,
        (key, compact): (Key, Compact),
        admission: Option<Admission>,
        picked: Picked,
    ) -> Result<Verdict, Dropped> {
        let admission = match admission {
            Some(admission) => admission,
            None => self.admit(request, key.client)?,
        };
        while self.flows.len() >= self.most && self.evict(request.now) {}
        let udp = request.frontend.spec().udp();
        let endpoint = picked.lease.address();
        let of_endpoint = picked.lease.endpoint().counters(self.worker);
        of_endpoint.session(request.now, Duration::ZERO, Duration::ZERO);
        let of_frontend = counters(request.frontend.state(), self.worker);
        of_frontend.connections.add(1);
        of_frontend.sessions.add(1);
        let of_service = picked.lease.endpoint().service().counters(self.worker);
        of_service.sessions.add(1);
        let flow = Flow {
            key: compact,
            frontend: Arc::clone(request.frontend.state()),
            lease: picked.lease,
            index: narrow(picked.index),
            admission: Some(admission),
            status: if udp.per_datagram {
                FlowStatus::Over(FlowEnd::PerDatagram)
            } else {
                FlowStatus::Open
            },
            began: request.now,
            last: request.now,
            idle: idle_of(request.frontend),
            requests: 0,
            responses: 0,
            most_responses: u32::MAX,
            queued: request.now,
            queue: Class::Asked,
            taken: Taken::default(),
            attached: None,
        };
        let (deadline, hash) = (flow.deadline(), self.hash(&flow.key));
        let id = self.flows.insert(flow);
        self.by_key.insert(hash, id.place);
        if key.client != canonical(key.peer) {
            self.proxied_peers.insert(peer_key(key), id.place);
        }
        self.deadlines.set(id.place, deadline);
        let group = Taken::default().group;
        self.idle.push(group, Class::Asked, id.place, request.now);
        Ok(Verdict::Open { flow: id, endpoint })
    }

    /// Counts the request, and ends the flow for requests if it was the last one.
    pub(super) fn count_request(
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
        // The limit of replies, updated with each request.
        flow.most_responses = udp.responses.map_or(u32::MAX, |most| most.get());
        let bytes = load.bytes;
        flow.lease.endpoint().counters(worker).bytes_in.add(bytes);
        counters(&flow.frontend, worker).bytes_in.add(bytes);
        let counters = flow.frontend.udp_counters(worker);
        counters.datagrams_in.add(load.datagrams.into());
        note_activity(&mut self.idle, flow, id.place, now);
        let is_last = udp.requests.is_some_and(|most| flow.requests >= most.get());
        if is_last && flow.status == FlowStatus::Open {
            flow.status = FlowStatus::Over(FlowEnd::Requests);
            self.forget(id.place);
        }
        if is_due_sooner {
            self.bring_forward(id.place);
        }
        Ok(verdict)
    }
}

/// The key of the flow between this client and the picked endpoint.
fn to_endpoint(key: &Key, picked: &Picked) -> Compact {
    Compact::new(key, Some(picked.lease.address()))
}

/// In milliseconds; more than 49 days count as 49 days.
pub(super) fn idle_of(frontend: &Frontend) -> u32 {
    u32::try_from(whole_millis(frontend.spec().timeouts.idle)).unwrap_or(u32::MAX)
}

/// An endpoint's index, as stored in a flow. It is a hint, so one that does not fit does no harm.
fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The context of the decision about a datagram.
struct Request<'a> {
    now: Moment,
    frontend: &'a Frontend,
    backends: &'a Backends,
}

impl<'a> Request<'a> {
    /// The service for this client, which could not reach the endpoints in `tried`.
    fn service(&self, key: Key, tried: &Tried, worker: WorkerId) -> &'a Service {
        let client = pick::Key::new(key.client);
        let chosen = self.backends.choose_again(&client, tried, self.now);
        self.backends.count(chosen.place, worker);
        chosen.service
    }

    fn pick(
        &self,
        service: &Service,
        key: Key,
        tried: &Tried,
        worker: WorkerId,
        rng: &mut Rng,
    ) -> Result<Picked, Dropped> {
        let of_service = service.state().counters(worker);
        let picked = service
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
}

/// The [`Tried`] of a client that could not reach the endpoint at `index`.
fn without(service: &Service, index: usize, failure: Failure) -> Option<Tried> {
    let mut tried = Tried::default();
    tried.note(service.endpoints().get(index)?, failure);
    Some(tried)
}
