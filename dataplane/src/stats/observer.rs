//! Looks at all counters, and remembers what a single look cannot tell: rates, means, times of change, numbers that
//! stay with a name, the counts of endpoints that left.
//!
//! Owned by [`Stats`](super::Stats), on the admin side only. It finds out by itself that a new plan is in force.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::{FrontendState, Plan, SocketKey};
use ballast_core::service::ServiceState;
use ballast_core::table::{self, Name};

use super::datagrams::flows;
use super::history::{History, Second};
use super::meter::Rate;
use super::snapshot::{FrontendStats, Mode, Process, Snapshot};

mod cleared;
mod endpoint;
mod frontend;
mod service;

use frontend::{Front, Leaving, Totals};
use service::Back;

/// What is remembered between looks.
#[derive(Debug, Default)]
pub struct Observer {
    plan: Weak<Plan>,
    frontends: Vec<Front>,
    #[expect(clippy::vec_box, reason = "each new table moves all of them")]
    services: Vec<Box<Back>>,
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
    /// Looks at everything. `process` is what is known of the process, `open` are the sockets that listen.
    pub fn snapshot(
        &mut self,
        plan: &Arc<Plan>,
        mut process: Process,
        open: &BTreeMap<SocketKey, SocketAddr>,
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
        process.flows = flows(plan);
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
                Some(mut front) if Arc::ptr_eq(front.frontend.state(), frontend.state()) => {
                    front.frontend = Arc::clone(frontend);
                    front
                }
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
        let mut before: HashMap<Name, Box<Back>> = self
            .services
            .drain(..)
            .map(|back| (back.service.spec().name.clone(), back))
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
                    Box::new(Back::new(iid, service, is_first, now))
                }
            };
            back.mode = modes.get(name).copied().unwrap_or_default();
            self.services.push(back);
        }
        for mut gone in before.into_values() {
            gone.history.forget(&mut self.rings);
        }
    }
}

/// What the frontends of each service speak; http wins where they differ, because it counts more.
fn modes(plan: &Plan) -> HashMap<&str, Mode> {
    let mut modes = HashMap::new();
    for frontend in plan.frontends() {
        let spec = frontend.spec();
        let passed: HashSet<&Name> = spec
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
