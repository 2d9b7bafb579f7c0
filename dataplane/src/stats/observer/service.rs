//! What is remembered of a service, and of its endpoints that left.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::service::{EjectionReason, Service};

use super::super::history::History;
use super::super::meter::{Mean, Rate, Since};
use super::super::snapshot::{Counts, EndpointStats, Mode, ServiceStats, StatusKind};
use super::cleared::OfService;
use super::endpoint::{End, look_at_means, means};
use super::{Totals, next, seconds_of};

/// What is remembered of a service.
#[derive(Debug)]
pub(super) struct Back {
    pub(super) iid: u32,
    last_sid: u32,
    pub(super) service: Arc<Service>,
    pub(super) mode: Mode,
    sessions: Rate,
    means: [Mean; 3],
    since: Since,
    seen: Totals,
    pub(super) history: History,
    /// In the order of the service's endpoints.
    endpoints: Vec<End>,
    /// Left the table, but somebody may still count there.
    leaving: Vec<End>,
    /// The sum of those that nobody counts at any more.
    departed: Counts,
    cleared: Option<Box<OfService>>,
}

impl Back {
    pub(super) fn new(iid: u32, service: &Arc<Service>, is_first: bool, now: Moment) -> Self {
        let mut back = Self {
            iid,
            last_sid: 0,
            service: Arc::clone(service),
            mode: Mode::Tcp,
            sessions: Rate::default(),
            means: [Mean::default(); 3],
            since: Since::new(kind_of(service, now), now),
            seen: Totals::default(),
            history: History::default(),
            endpoints: Vec::new(),
            leaving: Vec::new(),
            departed: Counts::default(),
            cleared: None,
        };
        back.align(now);
        if !is_first {
            back.sessions = Rate::since(back.clients());
            back.seen = back.totals(&back.sum());
        }
        back
    }

    pub(super) fn follow(&mut self, service: &Arc<Service>, now: Moment) {
        if !Arc::ptr_eq(&self.service, service) {
            self.service = Arc::clone(service);
            self.align(now);
        }
    }

    /// Puts the entries in the order of the service's endpoints; those that are no longer there are leaving.
    fn align(&mut self, now: Moment) {
        let mut before: HashMap<SocketAddr, End> = HashMap::new();
        let mut others = Vec::new();
        for end in self.leaving.drain(..).chain(self.endpoints.drain(..)) {
            // An address may have left and come back as another endpoint while the first one still has sessions.
            others.extend(before.insert(end.live.address(), end));
        }
        let service = Arc::clone(&self.service);
        // Not grown by doubling: there are a hundred thousand in a large table.
        self.endpoints.reserve_exact(service.endpoints().len());
        for (endpoint, spec) in service.endpoints().iter().zip(&service.spec().endpoints) {
            let end = match before.remove(&endpoint.address()) {
                Some(end) if Arc::ptr_eq(&end.live, endpoint.live()) => end.renamed(spec),
                other => {
                    others.extend(other);
                    End::new(next(&mut self.last_sid), endpoint, spec, now)
                }
            };
            self.endpoints.push(end);
        }
        self.leaving = before.into_values().chain(others).collect();
    }

    /// Those of whom anything is still counted.
    pub(super) fn live(&self) -> impl Iterator<Item = Arc<EndpointState>> {
        let ends = self.endpoints.iter().chain(&self.leaving);
        ends.map(|end| Arc::clone(&end.live))
    }

    pub(super) fn clear(&mut self, all: bool, now: Moment) {
        self.sessions.forget_max();
        self.service.state().forget_peak();
        self.departed.forget_longest();
        let service = Arc::clone(&self.service);
        for (end, endpoint) in self.endpoints.iter_mut().zip(service.endpoints()) {
            end.clear(all, endpoint, now);
        }
        if !all {
            return;
        }
        self.means.iter_mut().for_each(Mean::forget);
        let state = service.state();
        let counters = state.all_counters();
        self.cleared = Some(Box::new(OfService {
            sessions: self.clients(),
            unserved: self.unserved(),
            panics: counters.map_or(0, |counters| counters.sum(|cells| &cells.panics)),
            ejections: EjectionReason::ALL.map(|reason| state.ejections(reason)),
            counts: self.sum(),
            downtime: self.since.downtime(now),
            downs: self.since.downs(),
        }));
    }

    /// The sum over all endpoints that ever were.
    fn sum(&self) -> Counts {
        let mut sum = self.gone();
        sum.client_aborts += self.left_the_queue();
        for end in &self.endpoints {
            sum.merge(&end.counts());
        }
        sum
    }

    fn clients(&self) -> u64 {
        let counters = self.service.state().all_counters();
        counters.map_or(0, |counters| counters.sum(|cells| &cells.sessions))
    }

    fn unserved(&self) -> u64 {
        let counters = self.service.state().all_counters();
        counters.map_or(0, |counters| counters.sum(|cells| &cells.unserved))
    }

    fn left_the_queue(&self) -> u64 {
        let counters = self.service.state().all_counters();
        counters.map_or(0, |counters| counters.sum(|cells| &cells.client_aborts))
    }

    fn totals(&self, sum: &Counts) -> Totals {
        Totals {
            connections: 0,
            sessions: self.clients(),
            bytes_in: sum.bytes_in,
            bytes_out: sum.bytes_out,
            errors: sum.connect_errors + sum.response_errors + self.unserved(),
        }
    }

    /// The sum over the endpoints that left the table.
    fn gone(&self) -> Counts {
        let mut sum = self.departed;
        for end in &self.leaving {
            sum.merge(&end.counts());
        }
        sum
    }

    /// Whoever only this entry still knows counts no more.
    fn part_with_departed(&mut self) {
        let departed = &mut self.departed;
        self.leaving.retain(|end| {
            let is_known = Arc::strong_count(&end.live) > 1;
            if !is_known {
                departed.merge(&end.counts());
            }
            is_known
        });
    }

    pub(super) fn tick(&mut self, now: Moment, elapsed: u64, rings: &mut usize) {
        self.part_with_departed();
        let mut sum = self.gone();
        for (end, endpoint) in self.endpoints.iter_mut().zip(self.service.endpoints()) {
            let counts = end.look(endpoint, now).0;
            end.sessions.tick(counts.sessions, elapsed);
            sum.merge(&counts);
        }
        self.look(&sum, now);
        let totals = self.totals(&sum);
        self.sessions.tick(totals.sessions, elapsed);
        let second = totals.second(&self.seen, self.service.state().current(), elapsed);
        self.history.push(second, seconds_of(elapsed), rings);
        self.seen = totals;
    }

    fn look(&mut self, sum: &Counts, now: Moment) {
        look_at_means(&mut self.means, sum);
        self.since.look(kind_of(&self.service, now), now);
    }

    pub(super) fn stats(&mut self, now: Moment) -> ServiceStats {
        let mut sum = self.gone();
        let service = Arc::clone(&self.service);
        let endpoints: Vec<EndpointStats> = self
            .endpoints
            .iter_mut()
            .zip(service.endpoints().iter().zip(&service.spec().endpoints))
            .map(|(end, (endpoint, spec))| {
                let mut stats = end.stats(&service, endpoint, spec, now);
                sum.merge(&stats.counts);
                end.take_off(&mut stats);
                stats
            })
            .collect();
        self.look(&sum, now);
        let (usable, usable_backups) = service.usable(now);
        let state = service.state();
        let counters = state.all_counters();
        let longest_wait = counters
            .into_iter()
            .flat_map(|counters| counters.each())
            .map(|cells| cells.queue_ms_max.value())
            .max();
        let in_use = || {
            let ready = usable > 0;
            endpoints
                .iter()
                .filter(move |endpoint| is_in_use(endpoint, ready))
        };
        sum.queue_ms_max = sum.queue_ms_max.max(longest_wait.unwrap_or(0));
        sum.client_aborts += self.left_the_queue();
        let mut stats = ServiceStats {
            name: service.spec().name.clone(),
            iid: self.iid,
            spec: Arc::clone(service.spec()),
            mode: self.mode,
            queue: small(state.queue().len()),
            queue_peak: small(state.queue().peak()),
            current: state.current(),
            peak: state.peak(),
            sessions: self.clients(),
            unserved: self.unserved(),
            panics: counters.map_or(0, |counters| counters.sum(|cells| &cells.panics)),
            is_panicking: service.is_panicking(),
            flaps: state.checked().flaps(),
            ejections: EjectionReason::ALL.map(|reason| state.ejections(reason)),
            counts: sum,
            idle: sum.idle(now),
            usable: small(usable),
            usable_backups: small(usable_backups),
            weight: in_use().map(|endpoint| endpoint.weight).sum(),
            user_weight: in_use().map(|endpoint| endpoint.user_weight).sum(),
            session_rate: self.sessions,
            means: means(&self.means),
            changed: self.since.lasted(now),
            downtime: self.since.downtime(now),
            downs: self.since.downs(),
            endpoints,
        };
        if let Some(cleared) = &self.cleared {
            cleared.take_off(&mut stats);
        }
        stats
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

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
