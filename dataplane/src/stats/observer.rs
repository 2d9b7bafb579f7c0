//! Reads all counters again and again, and keeps what one reading cannot tell: rates, means, times of change, the numbers
//! that belong to names, the counts of removed frontends and endpoints.
//!
//! Owned by [`Statistics`](super::Statistics), in the admin thread only. It notices by itself that a new plan is in force.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::{FrontendState, Plan, SocketKey};
use ballast_core::service::ServiceState;
use ballast_core::table::{self, Name};

use super::flows;
use super::history::{History, SECONDS, Second};
use super::meter::Rate;
use super::snapshot::{Mode, Process, Snapshot};

mod endpoint;
mod frontend;
mod routes;
mod service;

use frontend::{Counted, ObservedFrontend, RemovedFrontend};
use service::ObservedService;

/// Whose history is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of<'a> {
    /// All frontends together.
    All,
    /// The frontend of this name.
    Frontend(&'a str),
    /// The service of this name.
    Service(&'a str),
}

/// What is kept from one reading to the next.
#[derive(Debug, Default)]
pub struct Observer {
    plan: Weak<Plan>,
    frontends: Vec<ObservedFrontend>,
    #[expect(clippy::vec_box, reason = "each new table moves all of them")]
    services: Vec<Box<ObservedService>>,
    last_iid: u32,
    rings: usize,
    /// Of all frontends together, with a ring of its own: there is room for it however many frontends have theirs.
    history: History,
    own_rings: usize,
    ticked: Moment,
    removed: Vec<RemovedFrontend>,
    /// Totals of removed frontends that have no connections left.
    former: Counted,
    process_sessions: Rate,
    process_connections: Rate,
    process_bytes: Rate,
    /// The counters continue those of another process, until they were first read.
    goes_on: bool,
}

impl Observer {
    /// `goes_on`: the counters will continue those of another process, so that what they have at first did not come in one second.
    pub(super) fn new(goes_on: bool) -> Self {
        Self {
            goes_on,
            ..Self::default()
        }
    }

    /// Reads everything. `process` is what the caller knows of the process, `open` are the sockets that listen.
    pub fn snapshot(
        &mut self,
        plan: &Arc<Plan>,
        mut process: Process,
        open: &BTreeMap<SocketKey, SocketAddr>,
        now: Moment,
    ) -> Snapshot {
        self.follow(plan, now);
        let mut all = self.removed();
        let fronts = self.frontends.iter().map(|front| {
            let counted = Counted::of(front.frontend.state());
            all.merge(&counted);
            front.stats(counted, &process, open)
        });
        let frontends = fronts.collect();
        // Clearing the counters of frontends does not change these totals.
        process.sessions = all.counts.sessions;
        let of_http = all.counts.http_sessions;
        process.requests = all.counts.sessions.saturating_sub(of_http) + all.counts.requests;
        process.bytes_out = all.counts.bytes_out;
        process.flows = flows(plan);
        process.session_rate = self.process_sessions;
        process.connection_rate = self.process_connections;
        process.byte_rate = self.process_bytes;
        let services = self.services.iter_mut();
        let services = services.map(|back| back.stats(&process, now)).collect();
        Snapshot {
            taken: now,
            process,
            frontends,
            services,
        }
    }

    /// To be called once a second: computes rates, and adds to the history. `accepted` is how many connections the process has
    /// accepted in all.
    pub fn tick(&mut self, plan: &Arc<Plan>, accepted: u64, now: Moment) {
        self.follow(plan, now);
        let elapsed = now.0.saturating_sub(self.ticked.0);
        if elapsed == 0 {
            return;
        }
        self.ticked = now;
        self.forget_removed();
        let mut counted = self.removed();
        let mut all = Second::default();
        for front in &mut self.frontends {
            let (more, second) = front.tick(elapsed, &mut self.rings);
            counted.merge(&more);
            all = all.and(second);
        }
        self.history
            .push(all, seconds_of(elapsed), &mut self.own_rings);
        for back in &mut self.services {
            back.tick(now, elapsed, &mut self.rings);
        }
        let counts = &counted.counts;
        if self.goes_on && !self.frontends.is_empty() {
            self.goes_on = false;
            self.process_sessions = Rate::since(counts.sessions);
            self.process_bytes = Rate::since(counts.bytes_out);
        }
        self.process_sessions.tick(counts.sessions, elapsed);
        self.process_bytes.tick(counts.bytes_out, elapsed);
        self.process_connections.tick(accepted, elapsed);
    }

    /// Forgets all maxima and, if `all` is set, all counts. Returns the services and endpoints whose longest times only the
    /// workers can forget.
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

    /// The last ten minutes, the oldest second first; `None`: there is no such frontend or service.
    #[must_use]
    pub fn history(&self, of: Of<'_>) -> Option<Vec<Second>> {
        let history = match of {
            Of::All => &self.history,
            Of::Frontend(name) => {
                let mut frontends = self.frontends.iter();
                &frontends
                    .find(|front| **front.frontend.name() == *name)?
                    .history
            }
            Of::Service(name) => {
                let mut services = self.services.iter();
                &services
                    .find(|back| back.service.state().name() == name)?
                    .history
            }
        };
        Some(history.last(SECONDS))
    }

    /// Totals of the frontends that are not in the table any more.
    fn removed(&self) -> Counted {
        let mut sum = self.former;
        for removed in &self.removed {
            sum.merge(&Counted::of(&removed.state));
        }
        sum
    }

    /// Once only this entry refers to a frontend's state, the frontend has no connections left and cannot come back: its
    /// totals are kept, and the entry is dropped.
    fn forget_removed(&mut self) {
        let former = &mut self.former;
        self.removed.retain(|removed| {
            let is_known = Arc::strong_count(&removed.state) > 1;
            if !is_known {
                former.merge(&Counted::of(&removed.state));
            }
            is_known
        });
    }

    /// Matches the entries with the plan, if that is a new one.
    fn follow(&mut self, plan: &Arc<Plan>, now: Moment) {
        if std::ptr::eq(self.plan.as_ptr(), Arc::as_ptr(plan)) {
            return;
        }
        let is_first = self.frontends.is_empty() && self.services.is_empty() && !self.goes_on;
        self.plan = Arc::downgrade(plan);
        self.follow_frontends(plan, is_first);
        self.follow_services(plan, is_first, now);
    }

    fn follow_frontends(&mut self, plan: &Plan, is_first: bool) {
        let mut before: HashMap<Name, ObservedFrontend> = self
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
                    self.removed
                        .extend(other.map(|front| front.remove(&mut self.rings)));
                    let mut front = ObservedFrontend::new(iid, frontend, is_first);
                    front.cleared = self.take_removed(frontend.state());
                    front
                }
            };
            self.frontends.push(front);
        }
        let gone = before.into_values();
        self.removed
            .extend(gone.map(|front| front.remove(&mut self.rings)));
    }

    /// A frontend that was removed while it had connections is the same one when it comes back. Returns what had been
    /// counted there when the counters were cleared.
    fn take_removed(&mut self, state: &Arc<FrontendState>) -> Option<Box<Counted>> {
        let mut removed = self.removed.iter();
        let place = removed.position(|removed| Arc::ptr_eq(&removed.state, state))?;
        self.removed.swap_remove(place).cleared
    }

    fn follow_services(&mut self, plan: &Plan, is_first: bool, now: Moment) {
        let uses = uses(plan);
        let mut before: HashMap<Name, Box<ObservedService>> = self
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
                    Box::new(ObservedService::new(iid, service, is_first, now))
                }
            };
            back.used = uses.get(name).copied().unwrap_or_default();
            self.services.push(back);
        }
        for mut gone in before.into_values() {
            gone.history.forget(&mut self.rings);
        }
    }
}

/// How the frontends that lead to a service use it.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// What they speak; http wins where they differ, because it counts more.
    mode: Mode,
    /// The most sessions that all of them together have at once; `None`: no frontend leads here, or one has no such limit.
    limit: Option<u32>,
}

fn uses(plan: &Plan) -> HashMap<&str, Used> {
    let mut uses: HashMap<&str, Used> = HashMap::new();
    for frontend in plan.frontends() {
        let spec = frontend.spec();
        let passed: HashSet<&Name> = spec
            .all_routes()
            .filter(|route| route.passthrough)
            .flat_map(table::Route::services)
            .collect();
        // A connection of HTTP/2 has many requests at once: its limit is none of theirs.
        let limit = match mode(spec.protocol) {
            Mode::Http => None,
            Mode::Tcp | Mode::Udp => frontend.limits().connections,
        };
        // A route may name a service that another route of the frontend names, too.
        let services: HashSet<&Name> = spec.services().collect();
        for service in services {
            let mode = match mode(spec.protocol) {
                Mode::Http if passed.contains(&service) => Mode::Tcp,
                mode => mode,
            };
            uses.entry(&**service)
                .and_modify(|used| {
                    used.mode = mode.max(used.mode);
                    used.limit = used
                        .limit
                        .zip(limit)
                        .map(|(one, more)| one.saturating_add(more));
                })
                .or_insert(Used { mode, limit });
        }
    }
    uses
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

/// How many seconds of the history a tick counts for: more than one where the thread had to wait.
fn seconds_of(elapsed: u64) -> usize {
    usize::try_from((elapsed + 500) / 1000).unwrap_or(1).max(1)
}
