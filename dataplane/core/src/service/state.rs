//! The state of a service while the process lives, across plans.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::affinity::Affinity;
use crate::counters;
use crate::counters::{Counts, PerWorker, WorkerId};
use crate::endpoint::add_time;
use crate::gauge::Gauge;
use crate::monitor::ServiceChecks;
use crate::queue::Queue;
use crate::rng::Rng;

use super::{EjectionReason, RequestTime};

/// The state of a service while the process lives, across plans.
#[derive(Debug)]
pub struct ServiceState {
    /// The number of turns of `round-robin`, of all workers together.
    pub(crate) turns: AtomicU64,
    /// The number of turns among candidates, when the plain turns find no endpoint.
    pub(crate) detours: AtomicU64,
    /// The number of turns of its source addresses, if it has several.
    sources: AtomicUsize,
    queue: Queue,
    /// Leases held on all its endpoints, including removed ones.
    leases: Gauge,
    affinity: OnceLock<Box<Affinity>>,
    counters: OnceLock<PerWorker<ServiceCounters>>,
    /// By [`EjectionReason::index`].
    pub(super) ejections: [AtomicU64; EjectionReason::ALL.len()],
    /// Held while an ejection is decided, so that `share` is respected.
    pub(super) ejecting: Mutex<()>,
    checked: ServiceChecks,
    workers: usize,
    name: Box<str>,
}

impl ServiceState {
    pub fn new(name: &str, workers: usize) -> Self {
        Self {
            turns: AtomicU64::new(0),
            detours: AtomicU64::new(0),
            sources: AtomicUsize::new(0),
            queue: Queue::default(),
            leases: Gauge::default(),
            affinity: OnceLock::new(),
            counters: OnceLock::new(),
            ejections: Default::default(),
            ejecting: Mutex::new(()),
            checked: ServiceChecks::default(),
            workers,
            name: name.into(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The clients that wait while its endpoints are full.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The number of the next turn among its source addresses.
    pub fn next_source(&self) -> usize {
        self.sources.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of leases held now on its endpoints, including removed ones (`scur`).
    pub fn current(&self) -> u32 {
        self.leases.current()
    }

    /// The highest number of leases so far (`smax`).
    pub fn peak(&self) -> u32 {
        self.leases.peak()
    }

    /// Resets the peaks to the present numbers, of the queue too.
    pub fn forget_peak(&self) {
        self.leases.forget_peak();
        self.queue.forget_peak();
    }

    /// Clears the longest wait of `worker`. Only that worker may call this.
    pub fn forget_longest(&self, worker: WorkerId) {
        if let Some(cells) = self.all_counters().and_then(|all| all.if_any(worker)) {
            cells.queue_ms_max.clear();
        }
    }

    pub(crate) fn leased(&self) {
        self.leases.add();
    }

    pub(crate) fn released(&self) {
        self.leases.subtract(Ordering::Relaxed);
    }

    /// Its affinity table, if it was ever used.
    pub fn affinity(&self) -> Option<&Affinity> {
        self.affinity.get().map(Box::as_ref)
    }

    pub(crate) fn affinity_or_new(&self, rng: &mut Rng) -> &Affinity {
        self.affinity.get_or_init(|| Box::new(Affinity::new(rng)))
    }

    pub fn counters(&self, worker: WorkerId) -> &ServiceCounters {
        self.counters
            .get_or_init(|| PerWorker::new(self.workers))
            .of(worker)
    }

    /// The counters of all workers, if anything was ever counted.
    pub fn all_counters(&self) -> Option<&PerWorker<ServiceCounters>> {
        self.counters.get()
    }

    /// The sums of its counters over all workers, and its ejections.
    #[must_use]
    pub fn counts(&self) -> ServiceCounts {
        let mut counts = ServiceCounts::of(self.all_counters());
        counts.ejections = EjectionReason::ALL.map(|reason| self.ejections(reason));
        counts
    }

    /// What its checks have made of it.
    pub fn checked(&self) -> &ServiceChecks {
        &self.checked
    }

    /// How often endpoints were ejected for this reason.
    pub fn ejections(&self, reason: EjectionReason) -> u64 {
        self.ejections
            .get(reason.index())
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

counters! {
    /// The counters of one worker for one service, in addition to those of its endpoints. The names in brackets are
    /// haproxy's columns of the BACKEND row; its others are the sums over the endpoints.
    pub ServiceCounters,
    /// The sums over all workers.
    ServiceCounts {
        /// Clients that came (`stot`).
        sessions: Sum;
        /// Clients for which no endpoint could be picked, not even to try it (a part of `econ`; its other part are the
        /// endpoints' failed dials).
        unserved: Sum;
        /// Clients that aborted while they waited in the queue (a part of `cli_abrt`; its other part are the endpoints').
        client_aborts: Sum;
        /// Picks that ignored the checks, because those of all endpoints fail.
        panics: Sum;
        /// Clients that had to wait.
        queued: Sum;
        /// Milliseconds that they waited, in sum, in vain or not.
        queue_ms: Sum;
        /// The longest of them (`qtime_max`).
        queue_ms_max: Most;
        /// Requests of HTTP by how long they took, from the first byte of the request to the end of the response. Each counts
        /// in one bucket only.
        request_times: Sum[RequestTime];
        /// The sum of their times in microseconds.
        request_us: Sum;
    }
    besides {
        /// Endpoints that were ejected, by reason.
        ejections: Sum[EjectionReason] => json(), metric("ballast_ejections_total", "Endpoints kept out because they could not be reached, by reason.");
        /// Seconds that it was down (`downtime`).
        downtime: Sum;
        /// How often it went down (`chkdown`).
        downs: Sum;
    }
}

impl ServiceCounters {
    /// Counts a request of HTTP that took so long.
    pub fn request(&self, took: Duration) {
        self.request_times[RequestTime::of(took).index()].add(1);
        self.request_us
            .add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Counts a client that waited for `waited`, whether it was served or not.
    pub fn queued(&self, waited: Duration) {
        self.queued.add(1);
        add_time(&self.queue_ms, &self.queue_ms_max, waited);
    }
}
