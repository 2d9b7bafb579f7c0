//! All checks of the process: who is checked, which one is due, what came of it.

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

use super::exchange::introduce;
use super::schedule::{Phase, Schedule, soon};
use super::{Change, Monitor, Outcome, Transition};

/// The checks of one plan after the other.
#[derive(Debug)]
pub struct Checks {
    services: FxHashMap<Name, Watched>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    schedule: Schedule<CheckId>,
    /// How many are allowed in a second.
    rate: u32,
    /// How many the table asks for in a second, in millionths.
    asked: u64,
    is_too_much: bool,
    round: u64,
}

/// A service whose endpoints are checked, or are known not to be.
#[derive(Debug)]
struct Watched {
    service: Arc<Service>,
    slots: Vec<usize>,
    /// In which plan it was seen last.
    round: u64,
}

/// A place for one check.
#[derive(Debug, Default)]
struct Slot {
    /// Grows with each check that has this place, so that nobody takes one for another.
    serial: u32,
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Watch {
    endpoint: Arc<EndpointState>,
    service: Arc<Service>,
    index: usize,
    phase: Phase,
    /// Its part of [`Checks::asked`].
    share: u64,
    began: Moment,
}

/// Which check; never the same for two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckId {
    slot: usize,
    serial: u32,
}

/// A check that is to be run now.
#[derive(Clone, Debug)]
pub struct Check {
    /// Its name, for [`Checks::ended`].
    pub id: CheckId,
    /// Whom to ask.
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
            // Who listens at another port expects no header: the service sends it to the endpoint's own.
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

    /// What to ask; `None` never comes of a plan.
    #[must_use]
    pub fn health(&self) -> Option<&Health> {
        self.spec.checks()
    }

    /// The service for which it is done.
    #[must_use]
    pub fn service(&self) -> &table::Service {
        &self.spec
    }

    /// Whether a PROXY header goes first.
    #[must_use]
    pub fn is_introduced(&self) -> bool {
        self.header != SendProxy::Off
    }

    /// Appends the PROXY header, if there is one, of a check that leaves from `local`.
    pub fn introduce(&self, local: SocketAddr, out: &mut Vec<u8>) {
        let ends = Addresses {
            source: local,
            destination: self.address,
        };
        introduce(self.header, ends, out);
    }
}

impl Checks {
    /// No checks yet; never more than `rate` a second.
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

    /// Checks from now on what `plan` asks for. What stays the same stays as it is. Returns how many checks a second the
    /// plan asks for, if that is more than are allowed, once.
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
            note_who_is_left(service);
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

    /// The next check that is due at `now`; `None`: not now, see [`Checks::next_due`].
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

    /// When [`Checks::next`] may have something to say; `None`: nobody is checked.
    #[must_use]
    pub fn next_due(&self) -> Option<Moment> {
        self.schedule.next_due()
    }

    /// By how much checks come later than they should.
    #[must_use]
    pub fn late(&self, now: Moment) -> Duration {
        self.schedule.late(now)
    }

    /// A check has ended. The one whose endpoint or `health` has left the table meanwhile says nothing.
    pub fn ended(
        &mut self,
        id: CheckId,
        outcome: Outcome,
        took: Duration,
        now: Moment,
        rng: &mut Rng,
    ) -> Option<Change> {
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
        let change = watch.tell(transition, monitor, outcome, now);
        self.schedule.push(due.max(now), id);
        change
    }

    /// Watches the endpoints of a service that is new or has changed. Returns their places.
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
            // Others of its service are in place already: what it is worth should be known soon.
            let within = match is_known {
                true => health.fast_interval().min(health.interval),
                false => health.interval,
            };
            slots.push(self.begin(service, index, health, within, now));
        }
        known.into_values().for_each(|slot| self.forget(slot));
        slots
    }

    /// The check at `slot` goes on for the endpoint at `index`, if that is the same one.
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

    /// A check that has not been before. Returns its place.
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
    /// Makes the verdict known.
    fn tell(
        &self,
        transition: Option<Transition>,
        monitor: Monitor,
        outcome: Outcome,
        now: Moment,
    ) -> Option<Change> {
        let Some(transition) = transition else {
            // It was well before, but it may be ejected: dials failed where a check has passed now.
            if outcome.passed() == Some(true) && monitor.is_up() {
                self.endpoint.connected(now);
            }
            return None;
        };
        self.endpoint.set_passing(transition == Transition::Up, now);
        let is_news = note_who_is_left(&self.service);
        Some(Change {
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

/// Looks whether anybody of a service is left. Says whether that is news.
fn note_who_is_left(service: &Service) -> bool {
    let endpoints = service.endpoints();
    let serves = endpoints
        .iter()
        .any(|endpoint| endpoint.is_eligible() && endpoint.live().is_passing());
    service
        .state()
        .checked()
        .note(!serves && !endpoints.is_empty())
}

/// One check a second.
const MILLIONTHS: u64 = 1_000_000;
