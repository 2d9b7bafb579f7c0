//! All checks of the process: which endpoints are checked, which check is due, and what its result means.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::endpoint::EndpointState;
use crate::moment::{Moment, whole_millis};
use crate::plan::Plan;
use crate::preamble::Addresses;
use crate::rng::Rng;
use crate::service::{Endpoint, Service};
use crate::slots::{SlotId as CheckId, Slots};
use crate::table::{self, Health, HealthMode, Name, SendProxy};

use super::exchange::write_proxy_header;
use super::schedule::{Phase, Schedule, soon};
use super::{Monitor, Outcome, Transition, VerdictChange};

/// The checks of the plan in force.
#[derive(Debug)]
pub struct Checks {
    services: FxHashMap<Name, Watched>,
    watches: Slots<Watch>,
    schedule: Schedule<CheckId>,
    /// The most checks a second.
    rate: u32,
    /// The checks a second that the table asks for, in millionths.
    asked: u64,
    is_too_much: bool,
}

/// A service, and the checks of its endpoints.
#[derive(Debug)]
struct Watched {
    service: Arc<Service>,
    ids: Vec<CheckId>,
}

#[derive(Debug)]
struct Watch {
    endpoint: Arc<EndpointState>,
    service: Arc<Service>,
    index: usize,
    phase: Phase,
    /// Its share of [`Checks::asked`].
    share: u64,
    began: Moment,
}

/// A check that is due now.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its id, for [`Checks::ended`].
    pub id: CheckId,
    pub address: SocketAddr,
    pub spec: Arc<table::Service>,
    header: SendProxy,
}

impl Check {
    /// `port` is that of an operator, in place of the table's.
    fn new(
        id: CheckId,
        endpoint: SocketAddr,
        spec: &Arc<table::Service>,
        port: Option<NonZeroU16>,
    ) -> Self {
        let health = spec.checks();
        let port = port.or_else(|| health.and_then(|health| health.port));
        let mut address = endpoint;
        address.set_port(port.map_or_else(|| endpoint.port(), NonZeroU16::get));
        let is_udp = health.is_some_and(|health| health.mode == HealthMode::Udp);
        let header = match spec.send_proxy {
            // A service sends its PROXY header to the endpoint's own port. A check of another port sends none.
            _ if address != endpoint => SendProxy::Off,
            SendProxy::V1 if is_udp => SendProxy::Off,
            header => header,
        };
        Self {
            id,
            address,
            spec: Arc::clone(spec),
            header,
        }
    }

    /// The settings of the check; always `Some` for a check of a plan.
    pub fn health(&self) -> Option<&Health> {
        self.spec.checks()
    }

    /// Whether a PROXY header is sent first.
    #[must_use]
    pub fn sends_proxy_header(&self) -> bool {
        self.header != SendProxy::Off
    }

    /// Appends the PROXY header, if there is one, of a check that leaves from `local`.
    pub fn write_proxy_header(&self, local: SocketAddr, out: &mut Vec<u8>) {
        let ends = Addresses {
            source: local,
            destination: self.address,
        };
        write_proxy_header(self.header, ends, out);
    }
}

impl Checks {
    /// Creates a state without checks, for at most `rate` checks a second.
    #[must_use]
    pub fn new(rate: u32, rng: &mut Rng) -> Self {
        Self {
            services: FxHashMap::default(),
            watches: Slots::default(),
            schedule: Schedule::new(rate, rng),
            rate,
            asked: 0,
            is_too_much: false,
        }
    }

    /// Runs the checks of `plan` from now on. Unchanged checks go on. If the plan asks for more checks a second than are
    /// allowed, returns their number, once.
    pub fn follow(&mut self, plan: &Plan, now: Moment) -> Option<u64> {
        let mut before = std::mem::take(&mut self.services);
        for service in plan.services() {
            let name = &service.spec().name;
            let watched = match before.remove(name) {
                Some(known) if Arc::ptr_eq(&known.service, service) => known,
                known => {
                    let ids = self.watch(service, known, now);
                    note_usable(service);
                    let service = Arc::clone(service);
                    Watched { service, ids }
                }
            };
            self.services.insert(name.clone(), watched);
        }
        let gone = before.into_values().flat_map(|gone| gone.ids);
        gone.for_each(|id| self.forget(id));
        let watches = &self.watches;
        self.schedule
            .tidy(watches.len(), |id| watches.get(*id).is_some());
        let asked = self.asked.div_ceil(MILLIONTHS);
        let is_too_much = asked > u64::from(self.rate);
        let is_news = is_too_much && !self.is_too_much;
        self.is_too_much = is_too_much;
        is_news.then_some(asked)
    }

    /// The next check that is due at `now`; `None` if none is, see [`Checks::next_due`].
    pub fn next(&mut self, now: Moment) -> Option<Check> {
        let watches = &self.watches;
        let (_, id) = self.schedule.pop(now, |id| watches.get(*id).is_some())?;
        let watch = self.watches.get_mut(id)?;
        watch.began = now;
        watch.set_running(true);
        Some(Check::new(
            id,
            watch.endpoint.address(),
            watch.service.spec(),
            watch.port(),
        ))
    }

    /// When [`Checks::next`] may return a check; `None` if nothing is checked.
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next_due()
    }

    /// By how much checks are late.
    pub fn late(&self, now: Moment) -> Duration {
        self.schedule.late(now)
    }

    /// Notes the result of a check. It is ignored if the endpoint or its `health` has left the table meanwhile.
    pub fn ended(
        &mut self,
        id: CheckId,
        outcome: Outcome,
        took: Duration,
        now: Moment,
        rng: &mut Rng,
    ) -> Option<VerdictChange> {
        let watch = self.watches.get(id)?;
        let health = watch.service.spec().checks()?;
        let observed = watch.endpoint.with_monitor(|monitor| {
            let monitor = monitor.as_mut()?;
            let flaps = monitor.flaps;
            let transition = monitor.observe(now, outcome, took);
            if monitor.flaps > flaps {
                watch.service.state().checked().flapped();
            }
            Some((transition, **monitor))
        });
        let (transition, monitor) = observed?;
        let due = if monitor.is_changing() || outcome.passed().is_none() {
            soon(health.fast_interval(), watch.began, rng)
        } else {
            watch.phase.steady(health.interval, watch.began, rng)
        };
        let change = watch.publish(transition, monitor, outcome, now);
        self.schedule.push(due.max(now), id);
        change
    }

    /// Begins or continues the checks of a new or changed service. Returns their ids.
    fn watch(
        &mut self,
        service: &Arc<Service>,
        before: Option<Watched>,
        now: Moment,
    ) -> Vec<CheckId> {
        let checks = service.spec().checks();
        let is_known = before.is_some();
        let stays = before
            .as_ref()
            .is_some_and(|before| before.service.spec().checks() == checks);
        let mut known: FxHashMap<SocketAddr, CheckId> = FxHashMap::default();
        for id in before.into_iter().flat_map(|before| before.ids) {
            match self.watches.get(id) {
                Some(watch) if stays => _ = known.insert(watch.endpoint.address(), id),
                _ => self.forget(id),
            }
        }
        let mut ids = Vec::new();
        for (index, endpoint) in service.endpoints().iter().enumerate() {
            let Some(health) = checks else {
                let was_checked = endpoint.live().with_monitor(Option::take).is_some();
                if was_checked {
                    endpoint.live().set_passing(true, now);
                }
                continue;
            };
            if endpoint.is_out() {
                continue;
            }
            let id = known.get(&endpoint.address()).copied();
            if let Some(id) = id.filter(|id| self.keep(*id, service, index, endpoint)) {
                known.remove(&endpoint.address());
                ids.push(id);
                continue;
            }
            // An endpoint added to a known service is checked soon, so that it can be used soon.
            let within = if is_known {
                health.fast_interval().min(health.interval)
            } else {
                health.interval
            };
            ids.push(self.begin(service, index, endpoint.live(), health, within, now));
        }
        known.into_values().for_each(|id| self.forget(id));
        ids
    }

    /// Continues the check with this id for the endpoint at `index`, if it is the same endpoint and port.
    fn keep(
        &mut self,
        id: CheckId,
        service: &Arc<Service>,
        index: usize,
        endpoint: &Endpoint,
    ) -> bool {
        let watch = self.watches.get_mut(id);
        let same = watch.filter(|watch| {
            Arc::ptr_eq(&watch.endpoint, endpoint.live())
                && watch.port() == service.check_port(index)
        });
        let Some(watch) = same else {
            return false;
        };
        watch.service = Arc::clone(service);
        watch.index = index;
        true
    }

    /// Begins a new check, of the endpoint at `index`. Returns its id.
    fn begin(
        &mut self,
        service: &Arc<Service>,
        index: usize,
        endpoint: &Arc<EndpointState>,
        health: &Health,
        within: Duration,
        now: Moment,
    ) -> CheckId {
        endpoint.with_monitor(|monitor| {
            *monitor = Some(Box::new(match monitor.take() {
                Some(before) => before.renewed(health),
                None => Monitor::unproven(health, endpoint.is_passing(), now),
            }));
        });
        let phase = self.schedule.phase();
        let share = MILLIONTHS * 1000 / whole_millis(health.interval).max(1);
        self.asked += share;
        let id = self.watches.insert(Watch {
            endpoint: Arc::clone(endpoint),
            service: Arc::clone(service),
            index,
            phase,
            share,
            began: now,
        });
        self.schedule.push(phase.first(within, now), id);
        id
    }

    fn forget(&mut self, id: CheckId) {
        let Some(watch) = self.watches.remove(id.place) else {
            return;
        };
        self.asked -= watch.share;
        watch.set_running(false);
    }
}

impl Watch {
    /// The port that an operator has given its checks.
    fn port(&self) -> Option<NonZeroU16> {
        self.service.check_port(self.index)
    }

    fn set_running(&self, is_running: bool) {
        self.endpoint.with_monitor(|monitor| {
            if let Some(monitor) = monitor {
                monitor.is_running = is_running;
            }
        });
    }

    /// Publishes the verdict.
    fn publish(
        &self,
        transition: Option<Transition>,
        monitor: Monitor,
        outcome: Outcome,
        now: Moment,
    ) -> Option<VerdictChange> {
        let Some(transition) = transition else {
            // The result agrees with the state, but an operator may have said otherwise meanwhile, or the endpoint may be
            // ejected: a passed check ends the ejection.
            if outcome.passed() == Some(monitor.is_up()) {
                self.endpoint.set_passing(monitor.is_up(), now);
            }
            if outcome.passed() == Some(true) && monitor.is_up() {
                self.endpoint.connected(now);
            }
            return None;
        };
        self.endpoint.set_passing(transition == Transition::Up, now);
        let is_news = note_usable(&self.service);
        Some(VerdictChange {
            transition,
            monitor,
            outcome,
            nobody_left: is_news && transition == Transition::Down,
            service: Arc::clone(&self.service),
            index: self.index,
        })
    }
}

/// Notes whether any endpoint of a service is usable. Returns whether that has changed.
fn note_usable(service: &Service) -> bool {
    let endpoints = service.endpoints();
    let serves = endpoints
        .iter()
        .any(|endpoint| endpoint.is_eligible() && endpoint.live().takes_newcomers());
    service
        .state()
        .checked()
        .note(!serves && !endpoints.is_empty())
}

/// One check a second, in millionths.
const MILLIONTHS: u64 = 1_000_000;
