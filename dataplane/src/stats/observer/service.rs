//! What is kept of a service from one reading to the next, and of its removed endpoints.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::counters::Counts;
use ballast_core::endpoint::{EndpointCounts, EndpointState};
use ballast_core::moment::Moment;
use ballast_core::service::{Service, ServiceCounts};

use super::super::history::{History, Second};
use super::super::meter::{Mean, Rate, Since};
use super::super::snapshot::{EndpointStats, Mode, Process, ServiceStats, StatusKind};
use super::super::value::small;
use super::endpoint::{ObservedEndpoint, idle, look_at_means, means};
use super::{Used, next, seconds_of};

/// A service as it was read last.
#[derive(Debug)]
pub(super) struct ObservedService {
    pub(super) iid: u32,
    last_sid: u32,
    pub(super) service: Arc<Service>,
    pub(super) used: Used,
    sessions: Rate,
    means: [Mean; 4],
    since: Since,
    seen: Second,
    pub(super) history: History,
    /// In the order of the service's endpoints.
    endpoints: Vec<ObservedEndpoint>,
    /// Not in the table any more, but their sessions may still count there.
    removed: Vec<ObservedEndpoint>,
    /// Totals of removed endpoints that have no sessions left.
    former: EndpointCounts,
    /// What had been counted when an operator had the counters cleared: it is subtracted from what is shown.
    cleared: Option<Box<(ServiceCounts, EndpointCounts)>>,
}

impl ObservedService {
    pub(super) fn new(iid: u32, service: &Arc<Service>, is_first: bool, now: Moment) -> Self {
        let mut back = Self {
            iid,
            last_sid: 0,
            service: Arc::clone(service),
            used: Used::default(),
            sessions: Rate::default(),
            means: [Mean::default(); 4],
            since: Since::new(kind_of(service, now), now),
            seen: Second::default(),
            history: History::default(),
            endpoints: Vec::new(),
            removed: Vec::new(),
            former: EndpointCounts::default(),
            cleared: None,
        };
        back.align(service, now);
        if !is_first {
            let (own, sum) = back.counted(now);
            back.sessions = Rate::since(own.sessions);
            back.seen = totals(&own, &sum);
            for endpoint in &mut back.endpoints {
                endpoint.sessions = Rate::since(endpoint.live.counts().sessions);
            }
        }
        back
    }

    pub(super) fn follow(&mut self, service: &Arc<Service>, now: Moment) {
        if !Arc::ptr_eq(&self.service, service) {
            let before = std::mem::replace(&mut self.service, Arc::clone(service));
            self.align(&before, now);
        }
    }

    /// Puts the entries in the order of the service's endpoints; those that are no longer there are removed. An endpoint to which
    /// an operator gives another address keeps its number.
    fn align(&mut self, last: &Service, now: Moment) {
        let mut sids: HashMap<SocketAddr, u32> = HashMap::new();
        if last.has_moved() || self.service.has_moved() {
            let addresses = last.table().endpoints.iter().map(|spec| spec.address);
            sids.extend(addresses.zip(self.endpoints.iter().map(|end| end.sid)));
        }
        let mut before: HashMap<SocketAddr, ObservedEndpoint> = HashMap::new();
        let mut others = Vec::new();
        for end in self.removed.drain(..).chain(self.endpoints.drain(..)) {
            // An address may have left and come back as another endpoint while the first one still has sessions.
            others.extend(before.insert(end.live.address(), end));
        }
        let service = Arc::clone(&self.service);
        // Not grown by doubling: there are a hundred thousand in a large table.
        self.endpoints.reserve_exact(service.endpoints().len());
        let specs = service
            .spec()
            .endpoints
            .iter()
            .zip(&service.table().endpoints);
        for (endpoint, (spec, table)) in service.endpoints().iter().zip(specs) {
            let end = match before.remove(&endpoint.address()) {
                Some(end) if Arc::ptr_eq(&end.live, endpoint.live()) => end.renamed(spec),
                other => {
                    others.extend(other);
                    let sid = sids.get(&table.address).copied();
                    let sid = sid.unwrap_or_else(|| next(&mut self.last_sid));
                    ObservedEndpoint::new(sid, endpoint, spec, now)
                }
            };
            self.endpoints.push(end);
        }
        self.removed = before.into_values().chain(others).collect();
    }

    /// All endpoints where anything may still be counted.
    pub(super) fn live(&self) -> impl Iterator<Item = Arc<EndpointState>> {
        let ends = self.endpoints.iter().chain(&self.removed);
        ends.map(|end| Arc::clone(&end.live))
    }

    pub(super) fn clear(&mut self, all: bool, now: Moment) {
        self.sessions.forget_max();
        self.service.state().forget_peak();
        let longest = &mut self.former;
        (
            longest.queue_ms_max,
            longest.connect_ms_max,
            longest.response_ms_max,
            longest.total_ms_max,
        ) = (0, 0, 0, 0);
        let service = Arc::clone(&self.service);
        for (end, endpoint) in self.endpoints.iter_mut().zip(service.endpoints()) {
            end.clear(all, endpoint, now);
        }
        if all {
            self.means.iter_mut().for_each(Mean::forget);
            self.cleared = Some(Box::new(self.counted(now)));
        }
    }

    /// What was counted of the service itself, and of all endpoints that it ever had.
    fn counted(&self, now: Moment) -> (ServiceCounts, EndpointCounts) {
        let mut sum = self.removed();
        for end in &self.endpoints {
            sum.merge(&end.live.counts());
        }
        self.with_own(sum, now)
    }

    /// Adds what the service itself counts of the same kind to the `sum` over its endpoints.
    fn with_own(&self, mut sum: EndpointCounts, now: Moment) -> (ServiceCounts, EndpointCounts) {
        let mut own = self.service.state().counts();
        own.downtime = self.since.downtime(now);
        own.downs = self.since.downs;
        sum.client_aborts += own.client_aborts;
        sum.queue_ms_max = sum.queue_ms_max.max(own.queue_ms_max);
        (own, sum)
    }

    /// Totals of the endpoints that are not in the table any more.
    fn removed(&self) -> EndpointCounts {
        let mut sum = self.former;
        for end in &self.removed {
            sum.merge(&end.live.counts());
        }
        sum
    }

    /// Once only this entry refers to an endpoint's state, the endpoint has no sessions left: its totals are kept, and the
    /// entry is dropped.
    fn forget_removed(&mut self) {
        let former = &mut self.former;
        self.removed.retain(|end| {
            let is_known = Arc::strong_count(&end.live) > 1;
            if !is_known {
                former.merge(&end.live.counts());
            }
            is_known
        });
    }

    pub(super) fn tick(&mut self, now: Moment, elapsed: u64, rings: &mut usize) {
        self.forget_removed();
        let mut sum = self.removed();
        for (end, endpoint) in self.endpoints.iter_mut().zip(self.service.endpoints()) {
            let counts = end.look(endpoint, now);
            end.sessions.tick(counts.sessions, elapsed);
            sum.merge(&counts);
        }
        let (own, sum) = self.look(sum, now);
        let totals = totals(&own, &sum);
        self.sessions.tick(totals.sessions, elapsed);
        let second = totals.one_since(self.seen, self.service.state().current(), elapsed);
        self.history.push(second, seconds_of(elapsed), rings);
        self.seen = totals;
    }

    fn look(&mut self, sum: EndpointCounts, now: Moment) -> (ServiceCounts, EndpointCounts) {
        look_at_means(&mut self.means, &sum);
        self.since.look(kind_of(&self.service, now), now);
        self.with_own(sum, now)
    }

    pub(super) fn stats(&mut self, process: &Process, now: Moment) -> ServiceStats {
        let mut sum = self.removed();
        let service = Arc::clone(&self.service);
        let endpoints = self.endpoints.iter_mut().zip(service.endpoints());
        let endpoints: Vec<EndpointStats> = endpoints
            .zip(
                service
                    .spec()
                    .endpoints
                    .iter()
                    .zip(&service.table().endpoints),
            )
            .enumerate()
            .map(|(index, ((end, endpoint), specs))| {
                let counts = end.look(endpoint, now);
                sum.merge(&counts);
                end.stats(counts, &service, (index, endpoint), specs, now)
            })
            .collect();
        let (mut own, mut counts) = self.look(sum, now);
        if let Some(cleared) = &self.cleared {
            own.subtract(&cleared.0);
            counts.subtract(&cleared.1);
        }
        let (usable, usable_backups) = service.usable(now);
        let state = service.state();
        let in_use = || {
            let endpoints = endpoints.iter();
            endpoints.filter(|endpoint| is_in_use(endpoint, usable > 0))
        };
        ServiceStats {
            name: service.spec().name.clone(),
            iid: self.iid,
            spec: Arc::clone(service.spec()),
            mode: self.used.mode,
            tls_problem: None,
            queue: small(state.queue().len()),
            queue_peak: small(state.queue().peak()),
            current: state.current(),
            peak: state.peak(),
            limit: limit(self.used, process, &endpoints),
            is_panicking: service.is_panicking(),
            flaps: state.checked().flaps(),
            own,
            counts,
            idle: idle(&counts, now),
            usable: small(usable),
            usable_backups: small(usable_backups),
            weight: in_use().map(|endpoint| endpoint.weight).sum(),
            user_weight: in_use().map(|endpoint| endpoint.user_weight).sum(),
            session_rate: self.sessions,
            means: means(&self.means),
            changed: self.since.lasted(now),
            endpoints,
        }
    }
}

/// The most sessions that there may be at once: as many as all endpoints take together, and no more than its frontends have, or the
/// process.
fn limit(used: Used, process: &Process, endpoints: &[EndpointStats]) -> u32 {
    let most = match used.mode {
        Mode::Udp => process.most_flows,
        Mode::Tcp | Mode::Http => process.limit,
    };
    let mut limits = endpoints.iter().map(|endpoint| endpoint.limit);
    let room = limits.try_fold(0_u32, |room, limit| Some(room.saturating_add(limit?)));
    let room = room.filter(|room| *room > 0);
    let limits = [room, used.limit].into_iter().flatten();
    limits.fold(most, u32::min)
}

/// Its part of a history, in sum over all seconds.
fn totals(own: &ServiceCounts, sum: &EndpointCounts) -> Second {
    Second {
        sessions: own.sessions,
        current: 0,
        bytes_in: sum.bytes_in,
        bytes_out: sum.bytes_out,
        errors: sum.connect_errors + sum.response_errors + own.unserved,
    }
}

fn kind_of(service: &Service, now: Moment) -> StatusKind {
    match service.usable(now) {
        (0, 0) if !service.endpoints().is_empty() => StatusKind::Down,
        _ => StatusKind::Up,
    }
}

/// Whether clients come to it as long as any of its kind can be used.
fn is_in_use(endpoint: &EndpointStats, ready: bool) -> bool {
    let is_usable = matches!(endpoint.status.kind, StatusKind::Up | StatusKind::Unchecked);
    is_usable && endpoint.is_backup != ready
}
