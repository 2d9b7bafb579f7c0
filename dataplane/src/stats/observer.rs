//! Looks at all counters, and remembers what a single look cannot tell: rates, means, times of change, numbers that
//! stay with a name, the counts of endpoints that left.
//!
//! Owned by [`Stats`](super::Stats), on the admin side only. It finds out by itself that a new plan is in force.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use ballast_core::admit::Refusal;
use ballast_core::breath;
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, FrontendState, Listens, Plan, SocketKey};
use ballast_core::service::ServiceState;
use ballast_core::table::{self, Name};

use super::datagrams::Datagrams;
use super::history::{History, Second};
use super::meter::{Rate, fresh};
use super::snapshot::{FrontendStats, Mode, Process, Snapshot};

mod cleared;
mod endpoint;
mod service;

use service::Back;

/// What is remembered between looks.
#[derive(Debug, Default)]
pub struct Observer {
    plan: Weak<Plan>,
    frontends: Vec<Front>,
    services: Vec<Back>,
    last_iid: u32,
    rings: usize,
    /// Of all frontends together, with a ring of its own: there is room for it however many frontends have theirs.
    history: History,
    own_rings: usize,
    ticked: Moment,
    leaving: Vec<Leaving>,
    /// The sum of those where nobody counts any more.
    departed: Totals,
    process_sessions: Rate,
    process_connections: Rate,
    process_bytes: Rate,
}

impl Observer {
    /// Looks at everything. `process` is what is known of the process, `open` are the sockets that listen, and
    /// `max_connections` is the process's own limit.
    pub fn snapshot(
        &mut self,
        plan: &Arc<Plan>,
        mut process: Process,
        open: &HashSet<&SocketKey>,
        now: Moment,
    ) -> Snapshot {
        self.follow(plan, now);
        let frontends: Vec<FrontendStats> = self
            .frontends
            .iter()
            .map(|front| front.stats(&process, open))
            .collect();
        // What was cleared has come all the same.
        let cleared = |of: fn(&cleared::OfFrontend) -> u64| -> u64 {
            let cleared = self.frontends.iter().map(|front| front.cleared.as_deref());
            cleared.flatten().map(of).sum()
        };
        let gone = self.gone();
        process.sessions = gone.sessions
            + sum(&frontends, |frontend| frontend.sessions)
            + cleared(|cleared| cleared.sessions);
        process.bytes_out = gone.bytes_out
            + sum(&frontends, |frontend| frontend.bytes_out)
            + cleared(|cleared| cleared.bytes_out);
        process.flows = self.flows();
        process.session_rate = self.process_sessions;
        process.connection_rate = self.process_connections;
        process.byte_rate = self.process_bytes;
        Snapshot {
            taken: now,
            process,
            frontends,
            services: self
                .services
                .iter_mut()
                .map(|back| back.stats(now))
                .collect(),
        }
    }

    /// A second is over: works out rates, and adds to the history. `accepted` is how many connections the process has
    /// accepted in all.
    pub fn tick(&mut self, plan: &Arc<Plan>, accepted: u64, now: Moment) {
        self.follow(plan, now);
        let elapsed = now.0.saturating_sub(self.ticked.0);
        if elapsed == 0 {
            return;
        }
        self.ticked = now;
        self.part_with_departed();
        let gone = self.gone();
        let (mut sessions, mut bytes_out) = (gone.sessions, gone.bytes_out);
        let mut all = Second::default();
        for front in &mut self.frontends {
            let (totals, second) = front.tick(elapsed, &mut self.rings);
            sessions += totals.sessions;
            bytes_out += totals.bytes_out;
            all = all.and(second);
        }
        self.history
            .push(all, seconds_of(elapsed), &mut self.own_rings);
        for back in &mut self.services {
            back.tick(now, elapsed, &mut self.rings);
            breath::take();
        }
        self.process_sessions.tick(sessions, elapsed);
        self.process_bytes.tick(bytes_out, elapsed);
        self.process_connections.tick(accepted, elapsed);
    }

    /// Forgets all maxima, and if `all` is said, all counts. Says whose longest times only the workers can forget.
    pub fn clear(
        &mut self,
        plan: &Arc<Plan>,
        all: bool,
        now: Moment,
    ) -> (Vec<Arc<ServiceState>>, Vec<Arc<EndpointState>>) {
        self.follow(plan, now);
        self.process_sessions.forget_max();
        self.process_connections.forget_max();
        self.process_bytes.forget_max();
        for front in &mut self.frontends {
            front.clear(all);
        }
        let mut endpoints = Vec::new();
        for back in &mut self.services {
            back.clear(all, now);
            endpoints.extend(back.live());
        }
        let services = self.services.iter();
        let services = services.map(|back| Arc::clone(back.service.state()));
        (services.collect(), endpoints)
    }

    /// The last `seconds` seconds of a frontend, the oldest first.
    #[must_use]
    pub fn frontend_history(&self, name: &str, seconds: usize) -> Option<Vec<Second>> {
        let front = self
            .frontends
            .iter()
            .find(|front| **front.frontend.name() == *name)?;
        Some(front.history.last(seconds))
    }

    /// The last `seconds` seconds of a service, the oldest first.
    #[must_use]
    pub fn service_history(&self, name: &str, seconds: usize) -> Option<Vec<Second>> {
        let back = self
            .services
            .iter()
            .find(|back| back.service.state().name() == name)?;
        Some(back.history.last(seconds))
    }

    /// The last `seconds` seconds of all frontends together, the oldest first.
    #[must_use]
    pub fn total_history(&self, seconds: usize) -> Vec<Second> {
        self.history.last(seconds)
    }

    /// What frontends counted that are not in the table any more.
    fn gone(&self) -> Totals {
        let leaving = self.leaving.iter();
        leaving.fold(self.departed, |sum, leaving| {
            sum.and(&Totals::of(&leaving.state))
        })
    }

    /// Where only this entry is left to know of a frontend, nobody counts there any more, and it cannot come back.
    fn part_with_departed(&mut self) {
        let departed = &mut self.departed;
        self.leaving.retain(|leaving| {
            let is_known = Arc::strong_count(&leaving.state) > 1;
            if !is_known {
                *departed = departed.and(&Totals::of(&leaving.state));
            }
            is_known
        });
    }

    fn flows(&self) -> u32 {
        let of_datagrams = self.frontends.iter().filter(|front| front.is_udp());
        of_datagrams
            .map(|front| front.frontend.state().admit().current())
            .fold(0, u32::saturating_add)
    }

    /// Whose entries these are is asked only when a new plan is in force.
    fn follow(&mut self, plan: &Arc<Plan>, now: Moment) {
        if std::ptr::eq(self.plan.as_ptr(), Arc::as_ptr(plan)) {
            return;
        }
        let is_first = self.frontends.is_empty() && self.services.is_empty();
        self.plan = Arc::downgrade(plan);
        self.follow_frontends(plan, is_first);
        self.follow_services(plan, is_first, now);
    }

    fn follow_frontends(&mut self, plan: &Plan, is_first: bool) {
        let mut before: HashMap<Name, Front> = self
            .frontends
            .drain(..)
            .map(|front| (front.frontend.name().clone(), front))
            .collect();
        for frontend in plan.frontends() {
            let front = match before.remove(frontend.name()) {
                Some(front) if Arc::ptr_eq(front.frontend.state(), frontend.state()) => Front {
                    frontend: Arc::clone(frontend),
                    ..front
                },
                other => {
                    let iid = other
                        .as_ref()
                        .map_or_else(|| next(&mut self.last_iid), |front| front.iid);
                    self.leaving
                        .extend(other.map(|front| front.leave(&mut self.rings)));
                    let mut front = Front::new(iid, frontend, is_first);
                    front.cleared = self.comes_back(frontend.state());
                    front
                }
            };
            self.frontends.push(front);
        }
        let gone = before.into_values();
        self.leaving
            .extend(gone.map(|front| front.leave(&mut self.rings)));
    }

    /// A frontend that left while it had connections is the same one when it comes back. Gives what was cleared there.
    fn comes_back(&mut self, state: &Arc<FrontendState>) -> Option<Box<cleared::OfFrontend>> {
        let mut leaving = self.leaving.iter();
        let place = leaving.position(|leaving| Arc::ptr_eq(&leaving.state, state))?;
        self.leaving.swap_remove(place).cleared
    }

    fn follow_services(&mut self, plan: &Plan, is_first: bool, now: Moment) {
        let modes = modes(plan);
        let mut before: HashMap<Box<str>, Back> = self
            .services
            .drain(..)
            .map(|back| (back.service.state().name().into(), back))
            .collect();
        for service in plan.services() {
            let name = service.state().name();
            let mut back = match before.remove(name) {
                Some(mut back) if Arc::ptr_eq(back.service.state(), service.state()) => {
                    back.follow(service, now);
                    back
                }
                other => {
                    let iid = other.map_or_else(|| next(&mut self.last_iid), |back| back.iid);
                    Back::new(iid, service, is_first, now)
                }
            };
            back.mode = modes.get(name).copied().unwrap_or_default();
            self.services.push(back);
            breath::take();
        }
        for mut gone in before.into_values() {
            gone.history.forget(&mut self.rings);
        }
    }
}

/// What is remembered of a frontend.
#[derive(Debug)]
struct Front {
    iid: u32,
    frontend: Arc<Frontend>,
    sessions: Rate,
    connections: Rate,
    seen: Totals,
    history: History,
    cleared: Option<Box<cleared::OfFrontend>>,
}

impl Front {
    fn new(iid: u32, frontend: &Arc<Frontend>, is_first: bool) -> Self {
        // What was counted before anybody looked did not all come in the last second; but at the start it did.
        let seen = if is_first {
            Totals::default()
        } else {
            Totals::of(frontend.state())
        };
        Self {
            iid,
            frontend: Arc::clone(frontend),
            sessions: Rate::since(seen.sessions),
            connections: Rate::since(seen.connections),
            seen,
            history: History::default(),
            cleared: None,
        }
    }

    fn leave(mut self, rings: &mut usize) -> Leaving {
        self.history.forget(rings);
        Leaving {
            state: Arc::clone(self.frontend.state()),
            cleared: self.cleared,
        }
    }

    fn clear(&mut self, all: bool) {
        self.sessions.forget_max();
        self.connections.forget_max();
        self.frontend.state().admit().forget_peak();
        if all {
            let now = cleared::OfFrontend::now(self.frontend.state());
            self.cleared = Some(Box::new(now));
        }
    }

    fn is_udp(&self) -> bool {
        self.frontend.spec().protocol.is_udp()
    }

    fn tick(&mut self, elapsed: u64, rings: &mut usize) -> (Totals, Second) {
        let totals = Totals::of(self.frontend.state());
        self.sessions.tick(totals.sessions, elapsed);
        self.connections.tick(totals.connections, elapsed);
        let current = self.frontend.state().admit().current();
        let second = totals.second(&self.seen, current, elapsed);
        self.history.push(second, seconds_of(elapsed), rings);
        self.seen = totals;
        (totals, second)
    }

    fn stats(&self, process: &Process, open: &HashSet<&SocketKey>) -> FrontendStats {
        let frontend = &self.frontend;
        let most = match self.is_udp() {
            true => process.most_flows,
            false => process.limit,
        };
        let (state, limits) = (frontend.state(), frontend.limits());
        let counters = state.counters();
        let listens = frontend.listens() == Listens::Yes
            && frontend
                .sockets()
                .iter()
                .any(|socket| open.contains(socket));
        let mut stats = FrontendStats {
            name: frontend.name().clone(),
            iid: self.iid,
            spec: Arc::clone(frontend.spec()),
            mode: mode(frontend.spec().protocol),
            is_open: listens,
            current: state.admit().current(),
            peak: state.admit().peak(),
            limit: limits.connections.map_or(most, |limit| limit.min(most)),
            is_overridden: limits.connections
                != frontend.spec().max_connections.map(NonZeroU32::get),
            connections: counters.sum(|cells| &cells.connections),
            sessions: counters.sum(|cells| &cells.sessions),
            bytes_in: counters.sum(|cells| &cells.bytes_in),
            bytes_out: counters.sum(|cells| &cells.bytes_out),
            refused: Refusal::ALL
                .map(|refusal| counters.sum(|cells| &cells.refused[refusal.index()])),
            bad_headers: counters.sum(|cells| &cells.bad_headers),
            late_headers: counters.sum(|cells| &cells.late_headers),
            datagrams: self.is_udp().then(|| Box::new(Datagrams::of(state))),
            session_rate: self.sessions,
            connection_rate: self.connections,
        };
        if let Some(cleared) = &self.cleared {
            cleared.take_off(&mut stats);
        }
        stats
    }
}

/// A frontend that left the table. Its connections may still count there, and it may come back.
#[derive(Debug)]
struct Leaving {
    state: Arc<FrontendState>,
    cleared: Option<Box<cleared::OfFrontend>>,
}

/// What rates and histories are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    connections: u64,
    sessions: u64,
    bytes_in: u64,
    bytes_out: u64,
    errors: u64,
}

impl Totals {
    fn of(state: &FrontendState) -> Self {
        let mut totals = Self::default();
        for cells in state.counters().each() {
            totals.connections += cells.connections.value();
            totals.sessions += cells.sessions.value();
            totals.bytes_in += cells.bytes_in.value();
            totals.bytes_out += cells.bytes_out.value();
            totals.errors += cells.bad_headers.value() + cells.late_headers.value();
            totals.errors += cells
                .refused
                .iter()
                .map(ballast_core::counters::Cell::value)
                .sum::<u64>();
        }
        totals.errors += Datagrams::of(state).lost();
        totals
    }

    /// Both together.
    fn and(self, other: &Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            sessions: self.sessions + other.sessions,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
            errors: self.errors + other.errors,
        }
    }

    /// One of the seconds since `before`.
    fn second(&self, before: &Self, current: u32, elapsed: u64) -> Second {
        let each = |now: u64, before: u64| (fresh(now, before) * 1000).div_ceil(elapsed.max(1));
        Second {
            sessions: each(self.sessions, before.sessions),
            current: current.into(),
            bytes_in: each(self.bytes_in, before.bytes_in),
            bytes_out: each(self.bytes_out, before.bytes_out),
            errors: each(self.errors, before.errors),
        }
    }
}

/// What the frontends of each service speak; http wins where they differ, because it counts more.
fn modes(plan: &Plan) -> HashMap<&str, Mode> {
    let mut modes = HashMap::new();
    for frontend in plan.frontends() {
        let spec = frontend.spec();
        let passed: Vec<&Name> = spec
            .all_routes()
            .filter(|route| route.passthrough)
            .filter_map(|route| route.service.as_ref())
            .collect();
        for service in spec.services() {
            let mode = match mode(spec.protocol) {
                Mode::Http if passed.contains(&service) => Mode::Tcp,
                mode => mode,
            };
            let known: &mut Mode = modes.entry(&**service).or_insert(mode);
            *known = mode.max(*known);
        }
    }
    modes
}

fn mode(protocol: table::Protocol) -> Mode {
    match protocol {
        table::Protocol::Http | table::Protocol::Https => Mode::Http,
        table::Protocol::Tcp | table::Protocol::Tls => Mode::Tcp,
        table::Protocol::Udp => Mode::Udp,
    }
}

fn next(last: &mut u32) -> u32 {
    *last += 1;
    *last
}

/// How many seconds of the history a tick stands for: more than one where the thread had to wait.
fn seconds_of(elapsed: u64) -> usize {
    usize::try_from((elapsed + 500) / 1000).unwrap_or(1).max(1)
}

fn sum(frontends: &[FrontendStats], count: impl Fn(&FrontendStats) -> u64) -> u64 {
    frontends.iter().map(count).sum()
}
