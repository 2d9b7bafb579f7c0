//! What operators see: one snapshot of all counters, and its renderings in haproxy's words and in ours.
//!
//! Workers only count. [`Statistics`] belongs to the admin thread: [`watch`] reads the counters once a second, for rates and for
//! the history; the answer to a request is a [`Snapshot`] rendered with [`csv()`], [`json()`], [`typed`], [`api`] or
//! [`metrics`], piece by piece.

mod check;
mod chunks;
mod columns;
mod csv;
mod history;
mod json;
mod meter;
mod observer;
mod process;
mod prometheus;
mod selection;
mod snapshot;
mod value;

pub use check::CheckStats;
pub(crate) use check::RESULTS;
pub use chunks::Chunks;
pub(crate) use chunks::Progress;
pub(crate) use columns::words;
pub use csv::csv;
pub use history::Second;
pub use json::{api, json, schema, typed};
pub use meter::Rate;
pub use observer::{Observer, Of};
pub(crate) use process::{FIELDS, VERSION};
pub use prometheus::metrics;
pub use selection::{Form, Kinds, Proxy, Selection};
pub use snapshot::{
    Certificates, Choice, EndpointStats, FrontendStats, Means, Mode, OneWorker, Process,
    RouteStats, ServedCertificate, ServiceStats, Snapshot, Status, StatusKind,
};
pub(crate) use value::Value;
use value::small;

pub use crate::worker::{WorkerCounters, WorkerCounts};

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use ballast_core::counters::{Counts, WorkerId};
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval};

use crate::os::clock::{DateWatch, unix_seconds};
use crate::os::log;
use crate::os::panics::panics;
use crate::os::threads::lock;
use crate::worker::{Order, Shared};

/// Reads the counters once a second, for as long as the process lives.
pub async fn watch(stats: Arc<Statistics>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut date = DateWatch::start();
    loop {
        second.tick().await;
        stats.tick();
        if let Some(seconds) = date.jump() {
            tracing::warn!(
                seconds,
                "the date of this host was set: lines and the periods of certificates follow it, timeouts and checks go on"
            );
        }
    }
}

/// What is kept from one reading of the counters to the next.
#[derive(Debug)]
pub struct Statistics {
    /// What the counters belong to.
    pub shared: Arc<Shared>,
    inner: Mutex<Inner>,
    node: Arc<str>,
    started: u64,
}

#[derive(Debug, Default)]
struct Inner {
    observer: Observer,
    given: Vec<Weak<Snapshot>>,
    idle: Idle,
}

impl Statistics {
    /// `goes_on`: the counters will continue those of another process.
    pub(crate) fn new(shared: Arc<Shared>, goes_on: bool) -> Self {
        let node = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            shared,
            inner: Mutex::new(Inner {
                observer: Observer::new(goes_on),
                ..Inner::default()
            }),
            node: node.trim_end().into(),
            started: unix_seconds(),
        }
    }

    /// Reads everything. While `MOST_SNAPSHOTS` earlier snapshots are still in use, the latest of them is shared, so that
    /// slow readers cost no more memory than that.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let shared = &self.shared;
        let mut inner = lock(&self.inner);
        inner.given.retain(|given| given.strong_count() > 0);
        if inner.given.len() >= MOST_SNAPSHOTS
            && let Some(latest) = inner.given.last().and_then(Weak::upgrade)
        {
            return latest;
        }
        let now = shared.clock.now();
        let listening = shared.status.listening();
        let process = self.process(now, inner.idle, listening.len());
        let serving = shared.live.serving();
        let observer = &mut inner.observer;
        let mut snapshot = observer.snapshot(&serving.plan, process, &listening, now);
        let today = unix_seconds();
        for frontend in &mut snapshot.frontends {
            let has_tls = frontend.spec.tls.is_some();
            let served = has_tls
                .then(|| serving.tls.served(&frontend.name))
                .flatten();
            frontend.certificates = served.map(|served| Certificates {
                served: Arc::clone(served),
                now: today,
            });
        }
        for service in &mut snapshot.services {
            service.tls_problem = serving.tls.why_not_with(&service.name).map(Into::into);
        }
        let snapshot = Arc::new(snapshot);
        inner.given.push(Arc::downgrade(&snapshot));
        snapshot
    }

    /// Forgets all maxima and, if `all` is set, all that was counted of frontends, services and endpoints. The workers'
    /// counters go on: what they had counted is stored, and subtracted from every later snapshot.
    pub fn clear(&self, all: bool) {
        let shared = &self.shared;
        let plan = shared.live.plan();
        let mut inner = lock(&self.inner);
        let (services, endpoints) = inner.observer.clear(&plan, all, shared.clock.now());
        drop(inner);
        shared.admit.forget_peak();
        let tell = |services: &[_], endpoints: &[_]| {
            let (services, endpoints): (Arc<[_]>, Arc<[_]>) = (services.into(), endpoints.into());
            shared.tell_workers(|| {
                Order::ForgetLongest(Arc::clone(&services), Arc::clone(&endpoints))
            });
        };
        services.chunks(AN_ORDER).for_each(|some| tell(some, &[]));
        endpoints.chunks(AN_ORDER).for_each(|some| tell(&[], some));
    }

    /// The last ten minutes, the oldest second first; `None`: there is no such frontend or service.
    #[must_use]
    pub fn history(&self, of: Of<'_>) -> Option<Vec<Second>> {
        lock(&self.inner).observer.history(of)
    }

    fn tick(&self) {
        let (shared, mut inner) = (&self.shared, lock(&self.inner));
        let now = shared.clock.now();
        let accepted = shared.counters.sum(|counters| &counters.accepted);
        inner.observer.tick(&shared.live.plan(), accepted, now);
        inner.idle.tick(now, shared.loads.len());
    }

    fn process(&self, now: Moment, idle: Idle, listening: usize) -> Process {
        let shared = &self.shared;
        let status = &shared.status;
        let words = status.ack_text();
        let errors = lock(&shared.accept_errors);
        let (room, workers) = (&shared.room, shared.loads.len());
        let pipes = shared.pipes.iter().filter_map(OnceLock::get);
        let (pipes_used, pipes_free) = pipes.fold((0, 0), |(used, free), counts| {
            let (more_used, more_free) = counts.used_and_free();
            (used + more_used, free + more_free)
        });
        let (tasks, ready_tasks) = shared.tasks();
        Process {
            node: Arc::clone(&self.node),
            pid: std::process::id(),
            started: self.started,
            uptime: now.since(Moment::default()),
            workers: small(workers),
            each_worker: each_worker(shared),
            is_ready: status.is_ready(),
            is_stopping: status.is_stopping(),
            generation: shared.live.plan().generation(),
            applied: status.applied_at(),
            refused: status.refused.load(Ordering::Relaxed),
            refusal: words.refusal,
            exceptions: words.exceptions,
            of_frontends: words.by_frontend,
            retired: status.retired.load(Ordering::Relaxed),
            swaps: status.swaps(),
            current: shared.admit.current(),
            limit: shared.most.load(Ordering::Relaxed),
            most_flows: small(shared.most_flows.load(Ordering::Relaxed) * workers),
            most_pipes: small(room.at_rest().pipes * workers),
            pipes_used,
            pipes_free,
            tasks: small(tasks),
            ready_tasks: small(ready_tasks),
            descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            listening: small(listening),
            connections: shared.counters.sum(|counters| &counters.accepted),
            spliced: shared.counters.sum(|counters| &counters.spliced),
            idle: idle.percent,
            accept_errors: errors
                .iter()
                .map(|(errno, count)| (*errno, *count))
                .collect(),
            panics: panics(),
            access_dropped: shared.access.dropped(),
            log_dropped: log::lost(),
            ..Process::default()
        }
    }
}

/// In the order of their numbers.
fn each_worker(shared: &Shared) -> Vec<OneWorker> {
    let loads = shared.loads.iter().enumerate();
    let each = loads.map(|(worker, load)| {
        let mut counts = WorkerCounts::default();
        if let Some(cells) = shared.counters.if_any(WorkerId(worker)) {
            counts.add(cells);
        }
        OneWorker {
            current: load.load(Ordering::Relaxed) as u64,
            counts,
        }
    });
    each.collect()
}

/// Flows of datagrams now.
pub(crate) fn flows(plan: &Plan) -> u32 {
    let frontends = plan.frontends().iter();
    let of_datagrams = frontends.filter(|frontend| frontend.spec().protocol.is_udp());
    of_datagrams
        .map(|frontend| frontend.state().admit().current())
        .fold(0, u32::saturating_add)
}

/// How much of the workers' time is left.
#[derive(Clone, Copy, Debug)]
struct Idle {
    percent: u32,
    used_ms: u64,
    ticked: Moment,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            percent: 100,
            used_ms: 0,
            ticked: Moment::default(),
        }
    }
}

impl Idle {
    fn tick(&mut self, now: Moment, workers: usize) {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let used_ms = u64::try_from(used.tv_sec * 1000 + used.tv_nsec / 1_000_000).unwrap_or(0);
        let elapsed = now.0.saturating_sub(self.ticked.0) * workers as u64;
        if let Some(busy) = (used_ms.saturating_sub(self.used_ms) * 100).checked_div(elapsed) {
            self.percent = 100 - u32::try_from(busy.min(100)).unwrap_or(100);
        }
        (self.used_ms, self.ticked) = (used_ms, now);
    }
}

/// Services or endpoints in one order: a worker's clients wait while it goes through them.
const AN_ORDER: usize = 64;
/// Snapshots of different ages that are in use at once.
const MOST_SNAPSHOTS: usize = 8;
