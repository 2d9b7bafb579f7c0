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
use crate::service::Service;
use crate::table::{self, Health, HealthMode, Name, SendProxy};

use super::exchange::write_proxy_header;
use super::schedule::{Phase, Schedule, soon};
use super::{Monitor, Outcome, Transition, VerdictChange};

/// The checks of the plan in force.
#[derive(Debug)]
pub struct Checks {
    services: FxHashMap<Name, Watched>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    schedule: Schedule<CheckId>,
    /// The most checks a second.
    rate: u32,
    /// The checks a second that the table asks for, in millionths.
    asked: u64,
    is_too_much: bool,
    round: u64,
}

/// A service, and the checks of its endpoints.
#[derive(Debug)]
struct Watched {
    service: Arc<Service>,
    slots: Vec<usize>,
    /// The number of the last plan that had it.
    round: u64,
}

/// A slot for one check.
#[derive(Debug, Default)]
struct Slot {
    /// Incremented with each check that uses this slot, so that ids are not reused.
    serial: u32,
    watch: Option<Watch>,
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

/// The id of a check. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckId {
    slot: usize,
    serial: u32,
}

/// A check that is due now.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its id, for [`Checks::ended`].
    pub id: CheckId,
    /// The address to check.
    pub address: SocketAddr,
    spec: Arc<table::Service>,
    header: SendProxy,
}

impl Check {
    fn new(id: CheckId, endpoint: SocketAddr, spec: &Arc<table::Service>) -> Self {
        let health = spec.checks();
        let port = health.and_then(|health| health.port);
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
    #[must_use]
    pub fn health(&self) -> Option<&Health> {
        self.spec.checks()
    }

    /// The service of the endpoint.
    #[must_use]
    pub fn service(&self) -> &table::Service {
        &self.spec
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
            slots: Vec::new(),
            free: Vec::new(),
            schedule: Schedule::new(rate, rng),
            rate,
            asked: 0,
            is_too_much: false,
            round: 0,
        }
    }

    /// Runs the checks of `plan` from now on. Unchanged checks go on. If the plan asks for more checks a second than are
    /// allowed, returns their number, once.
    pub fn follow(&mut self, plan: &Plan, now: Moment) -> Option<u64> {
        self.round += 1;
        for service in plan.services() {
            let name = &service.spec().name;
            if let Some(known) = self.services.get_mut(name)
                && Arc::ptr_eq(&known.service, service)
            {
                known.round = self.round;
                continue;
            }
            let before = self.services.remove(name);
            let slots = self.watch(service, before, now);
            note_usable(service);
            let watched = Watched {
                service: Arc::clone(service),
                slots,
                round: self.round,
            };
            self.services.insert(name.clone(), watched);
        }
        let round = self.round;
        let gone: Vec<Watched> = self
            .services
            .extract_if(|_, known| known.round != round)
            .map(|(_, gone)| gone)
            .collect();
        gone.iter()
            .flat_map(|gone| &gone.slots)
            .for_each(|slot| self.forget(*slot));
        let (slots, wanted) = (&self.slots, self.slots.len() - self.free.len());
        self.schedule.tidy(wanted, |id| find(slots, *id).is_some());
        let asked = self.asked.div_ceil(MILLIONTHS);
        let is_too_much = asked > u64::from(self.rate);
        let is_news = is_too_much && !self.is_too_much;
        self.is_too_much = is_too_much;
        is_news.then_some(asked)
    }

    /// The next check that is due at `now`; `None` if there is none, see [`Checks::next_due`].
    pub fn next(&mut self, now: Moment) -> Option<Check> {
        let slots = &self.slots;
        let (_, id) = self.schedule.pop(now, |id| find(slots, *id).is_some())?;
        let watch = self.slots.get_mut(id.slot)?.watch.as_mut()?;
        watch.began = now;
        watch
            .endpoint
            .with_monitor(|monitor| monitor.iter_mut().for_each(|monitor| monitor.began()));
        Some(Check::new(
            id,
            watch.endpoint.address(),
            watch.service.spec(),
        ))
    }

    /// When [`Checks::next`] may return a check; `None` if nothing is checked.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next_due()
    }

    /// By how much checks are late.
    #[must_use]
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
        let watch = find(&self.slots, id)?;
        let health = watch.service.spec().checks()?;
        let observed = watch.endpoint.with_monitor(|monitor| {
            let monitor = monitor.as_mut()?;
            let flaps = monitor.flaps();
            let transition = monitor.observe(now, outcome, took);
            if monitor.flaps() > flaps {
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

    /// Begins or continues the checks of a new or changed service. Returns their slots.
    fn watch(
        &mut self,
        service: &Arc<Service>,
        before: Option<Watched>,
        now: Moment,
    ) -> Vec<usize> {
        let checks = service.spec().checks();
        let is_known = before.is_some();
        let stays = before
            .as_ref()
            .is_some_and(|before| before.service.spec().checks() == checks);
        let mut known: FxHashMap<SocketAddr, usize> = FxHashMap::default();
        for slot in before.into_iter().flat_map(|before| before.slots) {
            match self.slots.get(slot).and_then(|at| at.watch.as_ref()) {
                Some(watch) if stays => _ = known.insert(watch.endpoint.address(), slot),
                _ => self.forget(slot),
            }
        }
        let mut slots = Vec::new();
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
            let slot = known.get(&endpoint.address()).copied();
            if let Some(slot) = slot.filter(|slot| self.keep(*slot, service, index)) {
                known.remove(&endpoint.address());
                slots.push(slot);
                continue;
            }
            // An endpoint added to a known service is checked soon, so that it can be used soon.
            let within = match is_known {
                true => health.fast_interval().min(health.interval),
                false => health.interval,
            };
            slots.push(self.begin(service, index, health, within, now));
        }
        known.into_values().for_each(|slot| self.forget(slot));
        slots
    }

    /// Continues the check at `slot` for the endpoint at `index`, if it is the same endpoint.
    fn keep(&mut self, slot: usize, service: &Arc<Service>, index: usize) -> bool {
        let endpoint = service.endpoints().get(index);
        let watch = self.slots.get_mut(slot).and_then(|at| at.watch.as_mut());
        let (Some(endpoint), Some(watch)) = (endpoint, watch) else {
            return false;
        };
        if !Arc::ptr_eq(&watch.endpoint, endpoint.live()) {
            return false;
        }
        watch.service = Arc::clone(service);
        watch.index = index;
        true
    }

    /// Begins a new check. Returns its slot.
    fn begin(
        &mut self,
        service: &Arc<Service>,
        index: usize,
        health: &Health,
        within: Duration,
        now: Moment,
    ) -> usize {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let Some(endpoint) = service.endpoints().get(index) else {
            return slot;
        };
        let endpoint = endpoint.live();
        endpoint.with_monitor(|monitor| {
            *monitor = Some(Box::new(match monitor.take() {
                Some(before) => before.renewed(health),
                None => Monitor::unproven(health, endpoint.is_passing(), now),
            }));
        });
        let phase = self.schedule.phase();
        let watch = Watch {
            endpoint: Arc::clone(endpoint),
            service: Arc::clone(service),
            index,
            phase,
            share: MILLIONTHS * 1000 / whole_millis(health.interval).max(1),
            began: now,
        };
        if slot == self.slots.len() {
            self.slots.push(Slot::default());
        }
        if let Some(place) = self.slots.get_mut(slot) {
            self.asked += watch.share;
            place.serial = place.serial.wrapping_add(1);
            place.watch = Some(watch);
            let id = CheckId {
                slot,
                serial: place.serial,
            };
            self.schedule.push(phase.first(within, now), id);
        }
        slot
    }

    fn forget(&mut self, slot: usize) {
        let Some(watch) = self.slots.get_mut(slot).and_then(|at| at.watch.take()) else {
            return;
        };
        self.asked -= watch.share;
        watch
            .endpoint
            .with_monitor(|monitor| monitor.iter_mut().for_each(|monitor| monitor.stopped()));
        self.free.push(slot);
    }
}

impl Watch {
    /// Publishes the verdict.
    fn publish(
        &self,
        transition: Option<Transition>,
        monitor: Monitor,
        outcome: Outcome,
        now: Moment,
    ) -> Option<VerdictChange> {
        let Some(transition) = transition else {
            // The verdict is unchanged, but the endpoint may be ejected: a passed check ends the ejection.
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

fn find(slots: &[Slot], id: CheckId) -> Option<&Watch> {
    let slot = slots.get(id.slot)?;
    slot.watch.as_ref().filter(|_| slot.serial == id.serial)
}

/// Notes whether any endpoint of a service is usable. Returns whether that has changed.
fn note_usable(service: &Service) -> bool {
    let endpoints = service.endpoints();
    let serves = endpoints
        .iter()
        .any(|endpoint| endpoint.is_eligible() && endpoint.live().is_passing());
    service
        .state()
        .checked()
        .note(!serves && !endpoints.is_empty())
}

/// One check a second, in millionths.
const MILLIONTHS: u64 = 1_000_000;
