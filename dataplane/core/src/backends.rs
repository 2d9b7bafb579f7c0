//! Which service a client goes to, where several share a route or a frontend: `backends`.
//!
//! A client that has affinity to one of the services stays with it while it can serve the client. All others are shared out by
//! weight: of each hundred choices, of all workers together, a service gets its share to the last one. A service that can serve
//! none gives its share to the others. Where no service can, the choice goes by weight alone, and the pick that follows says
//! why there is no endpoint.
//!
//! A choice allocates nothing, and takes no lock but those of affinity by address. Where the table names one `service`, there is
//! nothing to choose, to count or to look at.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::WorkerId;
use crate::endpoint::EndpointState;
use crate::http::Field;
use crate::moment::Moment;
use crate::pick::{Key, ToService, Tried};
use crate::records::{RouteRecords, Tally};
use crate::service::Service;
use crate::table::{self, HeaderEdits, Name};

mod shares;

/// The services that share a route or a frontend: one at least.
#[derive(Debug)]
pub struct Backends(Kind);

#[derive(Debug)]
enum Kind {
    /// The table names one `service`.
    One(Arc<Service>),
    /// The table has a list of `backends`.
    Several(Box<Several>),
}

#[derive(Debug)]
struct Several {
    list: Box<[Backend]>,
    /// The number of choices by weight since the table that changed the weights.
    turns: Arc<AtomicU64>,
    /// Whether a client may have affinity to one of the services.
    has_affinity: bool,
}

/// A service with its share.
#[derive(Debug)]
struct Backend {
    service: Arc<Service>,
    weight: u32,
    request_headers: Option<Box<HeaderEdits>>,
    response_headers: Option<Box<HeaderEdits>>,
    /// How many clients went there.
    chosen: Arc<Tally>,
}

/// The service of one client or request.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'b> {
    pub service: &'b Arc<Service>,
    /// Its place in the list of backends: what [`Backends::request_headers`] and [`Backends::response_headers`] want.
    pub place: usize,
}

impl Backends {
    /// One service, to which every client goes.
    pub(crate) fn one(service: Arc<Service>) -> Self {
        Self(Kind::One(service))
    }

    /// Compiles what a route or a frontend says. `None`: it leads to no service.
    pub(crate) fn compile(spec: &Spec<'_>, context: &BackendsContext<'_>) -> Option<Self> {
        if let Some(service) = spec.service {
            return (context.services)(service).map(Self::one);
        }
        let records = context.records?;
        let list: Box<[Backend]> = spec
            .backends
            .iter()
            .filter_map(|backend| {
                Some(Backend {
                    // A valid table names no service that it lacks.
                    service: (context.services)(&backend.service)?,
                    weight: backend.weight,
                    request_headers: backend.request_headers.clone(),
                    response_headers: backend.response_headers.clone(),
                    chosen: Arc::clone(records.choices_of(spec.name, &backend.service)?),
                })
            })
            .collect();
        let has_affinity = list.iter().any(|one| one.service.spec().affinity.is_some());
        let several = Several {
            turns: records.turns_of(spec.place),
            has_affinity,
            list,
        };
        (!several.list.is_empty()).then(|| Self(Kind::Several(Box::new(several))))
    }

    /// Chooses the service of a client. `fields` are those of its request, among which its cookies are; they are empty where no
    /// request is read. A client that goes there is to be [counted](Self::count).
    #[must_use]
    pub fn choose(&self, client: &Key, fields: &[Field<'_>], now: Moment) -> Chosen<'_> {
        match &self.0 {
            Kind::One(service) => Chosen { service, place: 0 },
            Kind::Several(several) => several.choose(client, fields, &Tried::default(), now),
        }
    }

    /// Chooses a service for a client that could not reach the endpoints in `tried`: one that has others, if there is any.
    pub(crate) fn choose_again(&self, client: &Key, tried: &Tried, now: Moment) -> Chosen<'_> {
        match &self.0 {
            Kind::One(service) => Chosen { service, place: 0 },
            Kind::Several(several) => several.choose(client, &[], tried, now),
        }
    }

    /// Counts a client that goes to the service at `place`.
    pub fn count(&self, place: usize, worker: WorkerId) {
        if let Some(backend) = self.backend(place) {
            backend.chosen.count(worker);
        }
    }

    /// The services, in the order of the table.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        let (one, several) = match &self.0 {
            Kind::One(service) => (Some(service), None),
            Kind::Several(several) => (None, Some(&several.list)),
        };
        let several = several.into_iter().flatten();
        one.into_iter()
            .chain(several.map(|backend| &backend.service))
    }

    /// The service that this endpoint belongs to, if it is one of these.
    pub fn service_of(&self, endpoint: &EndpointState) -> Option<&Arc<Service>> {
        let is_its = |service: &Arc<Service>| Arc::ptr_eq(service.state(), endpoint.service());
        match &self.0 {
            Kind::One(service) => is_its(service).then_some(service),
            Kind::Several(several) => {
                let mut services = several.list.iter().map(|backend| &backend.service);
                services.find(|service| is_its(service))
            }
        }
    }

    pub fn request_headers(&self, place: usize) -> Option<&HeaderEdits> {
        self.backend(place)?.request_headers.as_deref()
    }

    /// The edits of responses of the backend at `place`.
    pub fn response_headers(&self, place: usize) -> Option<&HeaderEdits> {
        self.backend(place)?.response_headers.as_deref()
    }

    fn backend(&self, place: usize) -> Option<&Backend> {
        match &self.0 {
            Kind::One(_) => None,
            Kind::Several(several) => several.list.get(place),
        }
    }
}

impl Several {
    fn choose(&self, client: &Key, fields: &[Field<'_>], tried: &Tried, now: Moment) -> Chosen<'_> {
        let place = match self.list.len() {
            1 => 0,
            _ => self
                .by_affinity(client, fields, tried, now)
                .unwrap_or_else(|| self.by_weight(tried)),
        };
        // The list is never empty, and no place is beyond its end.
        let backend = &self.list[place.min(self.list.len() - 1)];
        Chosen {
            service: &backend.service,
            place,
        }
    }

    /// The place of the service that the client had last, if it has affinity to it, and if that can serve it.
    fn by_affinity(
        &self,
        client: &Key,
        fields: &[Field<'_>],
        tried: &Tried,
        now: Moment,
    ) -> Option<usize> {
        if !self.has_affinity {
            return None;
        }
        let mut last: Option<(ToService, usize)> = None;
        for (place, backend) in self.list.iter().enumerate() {
            if let Some(affinity) = backend.service.affinity_of(client, fields, now)
                // Of two that are equal, the first one counts.
                && last.is_none_or(|(last, _)| affinity.known > last.known)
            {
                last = Some((affinity, place));
            }
        }
        // If that one cannot serve it, the client belongs to none: what it used before does not count any more.
        let (affinity, place) = last?;
        let backend = self.list.get(place)?;
        let stays = backend.service.can_keep(&affinity, tried, now);
        stays.then_some(place)
    }

    /// The place of the service whose turn it is.
    fn by_weight(&self, tried: &Tried) -> usize {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let share = |tried: &Tried| self.share(turn, |backend| backend.service.is_usable(tried));
        share(tried)
            .or_else(|| share(&Tried::default()))
            .or_else(|| self.share(turn, |_| true))
            .unwrap_or(0)
    }

    /// The place of the service whose turn it is among those for which `may_serve` is true; `None` if none is.
    fn share(&self, turn: u64, may_serve: impl Fn(&Backend) -> bool) -> Option<usize> {
        let list = self.list.iter().enumerate();
        let candidates = list.filter(|(_, backend)| backend.weight > 0 && may_serve(backend));
        let weights = candidates
            .clone()
            .map(|(_, backend)| u64::from(backend.weight));
        let mut left = shares::position(turn, weights.sum());
        let mut last = None;
        for (place, backend) in candidates {
            let weight = u64::from(backend.weight);
            last = Some(place);
            if left < weight {
                break;
            }
            left -= weight;
        }
        // Where the loop did not break, a service failed after the sum was computed.
        last
    }
}

/// What a route or a frontend says about where clients go.
pub(crate) struct Spec<'t> {
    pub(crate) service: Option<&'t Name>,
    pub(crate) backends: &'t [table::Backend],
    pub(crate) name: Option<&'t Name>,
    /// The place of the route among all of its frontend; `None`: the frontend itself says it.
    pub(crate) place: Option<usize>,
}

impl<'t> Spec<'t> {
    /// What a tcp or udp frontend says.
    pub(crate) fn of_frontend(frontend: &'t table::Frontend) -> Self {
        Self {
            service: frontend.service.as_ref(),
            backends: &frontend.backends,
            name: None,
            place: None,
        }
    }

    /// What the route at this place says.
    pub(crate) fn of_route(route: &'t table::Route, place: usize) -> Self {
        Self {
            service: route.service.as_ref(),
            backends: &route.backends,
            name: route.name.as_ref(),
            place: Some(place),
        }
    }
}

/// What compiling needs in addition to the table.
#[derive(Clone, Copy)]
pub(crate) struct BackendsContext<'a> {
    pub(crate) services: &'a dyn Fn(&Name) -> Option<Arc<Service>>,
    /// The records of the frontend; `None` where it has neither backends nor routes.
    pub(crate) records: Option<&'a RouteRecords>,
}

impl BackendsContext<'_> {
    /// The counter of the requests of the route at this place.
    pub(crate) fn requests_of(&self, place: usize) -> Option<Arc<Tally>> {
        self.records?.requests_of(place).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests;
