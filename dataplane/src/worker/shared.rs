//! What all workers, apply and the admin side share: the plan in force, who is in, and where each takes orders.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use ballast_core::admit::{AdmitState, Limits};
use ballast_core::counters;
use ballast_core::counters::{PerWorker, WorkerId};
use ballast_core::endpoint::EndpointState;
use ballast_core::overrides::ByHand;
use tokio::runtime::{LocalRuntime, RuntimeMetrics};
use tokio::sync::{Notify, mpsc, oneshot};

use super::Order;
use crate::access::AccessLog;
use crate::by_hand::{Changes, Unchanged};
use crate::clock::Clock;
use crate::limits::{Descriptors, Room};
use crate::live::Live;
use crate::relay::PipeCounts;
use crate::stats::Stats;
use crate::status::Status;

/// What all workers, apply and the admin side share.
#[derive(Debug)]
pub struct Shared {
    /// The plan in force.
    pub live: Live,
    /// The clock.
    pub clock: Clock,
    /// Connections that each worker has now.
    pub loads: Box<[Load]>,
    /// Where apply takes what operators change by hand.
    pub(crate) by_hand: mpsc::UnboundedSender<Changes>,
    /// Where each worker takes orders.
    pub(crate) inboxes: Box<[mpsc::UnboundedSender<Order>]>,
    /// What the process may use.
    pub room: Room,
    /// The process's own limit of connections. Listening sockets that come later leave room for fewer.
    pub most: AtomicU32,
    /// How many UDP flows each worker may have beside what listens.
    pub(crate) most_flows: AtomicUsize,
    /// Who is in, counted for that limit.
    pub admit: Arc<AdmitState>,
    /// What each worker counts beside frontends, services and endpoints.
    pub(crate) counters: PerWorker<WorkerCounters>,
    /// How many pipes each worker has.
    pub(crate) pipes: Box<[OnceLock<Arc<PipeCounts>>]>,
    /// What the runtime of each thread says of its tasks.
    runtimes: Mutex<HashMap<ThreadId, RuntimeMetrics>>,
    /// Failed accepts by the system's error number.
    pub(crate) accept_errors: Mutex<BTreeMap<i32, u64>>,
    /// What apply says of itself.
    pub status: Status,
    /// Apply has published a plan, of which the checks are to know.
    pub(crate) new_plan: Notify,
    /// Who wants to read of each connection.
    pub(crate) access: AccessLog,
    /// What is seen of all that is counted.
    pub stats: Stats,
    /// Of tests alone.
    faults: Option<Box<dyn Faults>>,
}

/// One worker's connections, on cache lines of its own: each worker writes to its count with every connection. Processors
/// fetch lines in pairs, hence two.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load(AtomicUsize);

impl Deref for Load {
    type Target = AtomicUsize;

    fn deref(&self) -> &AtomicUsize {
        &self.0
    }
}

/// A test's way to make the task of a connection fail at a certain stage.
pub(crate) trait Faults: fmt::Debug + Send + Sync {
    /// The connection of `client` has come to `stage`.
    fn reach(&self, stage: Stage, client: SocketAddr);
}

/// Stages of a connection at which a test may make it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An endpoint is about to be dialed.
    Dialing,
    /// An endpoint is connected.
    Relaying,
}

impl Shared {
    /// What is shared by the workers for which there is `room`; and where each of them takes orders.
    pub(crate) fn new(
        room: Room,
        seed: u64,
        access: AccessLog,
        by_hand: mpsc::UnboundedSender<Changes>,
        faults: Option<Box<dyn Faults>>,
    ) -> (Arc<Self>, Vec<mpsc::UnboundedReceiver<Order>>) {
        let workers = room.workers;
        let (inboxes, receivers): (Vec<_>, _) =
            (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Self {
            live: Live::default(),
            clock: Clock::start(),
            loads: (0..workers).map(|_| Load::default()).collect(),
            by_hand,
            inboxes: inboxes.into(),
            room,
            most: AtomicU32::default(),
            most_flows: AtomicUsize::default(),
            admit: Arc::new(AdmitState::new(seed)),
            counters: PerWorker::new(workers),
            pipes: (0..workers).map(|_| OnceLock::new()).collect(),
            runtimes: Mutex::default(),
            accept_errors: Mutex::default(),
            status: Status::default(),
            new_plan: Notify::new(),
            access,
            stats: Stats::default(),
            faults,
        };
        shared.divide(0, false);
        (Arc::new(shared), receivers)
    }

    /// Limits connections and flows to what so many listening sockets leave, some of them for UDP or not.
    pub(crate) fn divide(&self, listening: usize, has_udp: bool) -> Descriptors {
        let descriptors = self.room.beside(listening, has_udp);
        let most = self.room.connections(&descriptors);
        self.most.store(most, Ordering::Relaxed);
        let most_flows = self.room.beside(listening, true).flows / self.room.workers.max(1);
        self.most_flows.store(most_flows.max(1), Ordering::Relaxed);
        self.admit.wake();
        descriptors
    }

    /// Connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.loads
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .sum()
    }

    /// The process's own limit, as frontends have theirs.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connections: Some(self.most.load(Ordering::Relaxed)),
            ..Limits::default()
        }
    }

    /// Counts the tasks of this thread's runtime, for as long as the guard lives.
    pub(crate) fn count_tasks(self: &Arc<Self>, runtime: &LocalRuntime) -> CountedTasks {
        let thread = thread::current().id();
        self.runtimes().insert(thread, runtime.metrics());
        CountedTasks(Arc::clone(self), thread)
    }

    /// The tasks of all threads, and how many of them were woken by another thread and have not run yet. Tasks that
    /// were woken by their own thread are ready as well, but the runtime does not tell how many those are.
    pub(crate) fn tasks(&self) -> (usize, usize) {
        let runtimes = self.runtimes();
        let tasks = runtimes.values();
        tasks.fold((0, 0), |(alive, ready), runtime| {
            let (more, more_ready) = (runtime.num_alive_tasks(), runtime.global_queue_depth());
            (alive + more, ready + more_ready)
        })
    }

    fn runtimes(&self) -> MutexGuard<'_, HashMap<ThreadId, RuntimeMetrics>> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of `client` has come to `stage`.
    pub(crate) fn reach(&self, stage: Stage, client: SocketAddr) {
        if let Some(faults) = &self.faults {
            faults.reach(stage, client);
        }
    }

    pub(crate) fn count_accept_error(&self, errno: i32) {
        let mut errors = self
            .accept_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *errors.entry(errno).or_default() += 1;
    }

    /// Puts changes by hand in force, and returns when they are, or why they are not.
    pub async fn change(&self, changes: Vec<ByHand>) -> Result<(), Unchanged> {
        let (done, told) = oneshot::channel();
        self.by_hand
            .send(Changes { changes, done })
            .map_err(|_| Unchanged::Ending)?;
        told.await.unwrap_or(Err(Unchanged::Ending))
    }

    /// Resets the connections that these endpoints have.
    pub fn cut(&self, endpoints: Vec<Arc<EndpointState>>) {
        if endpoints.is_empty() {
            return;
        }
        let endpoints: Arc<[_]> = endpoints.into();
        for inbox in &self.inboxes {
            // A worker that is gone has no connections.
            inbox.send(Order::Cut(Arc::clone(&endpoints))).ok();
        }
    }

    /// Has all UDP flows take over the idle times of the plan in force.
    pub(crate) fn follow_idle_times(&self) {
        for inbox in &self.inboxes {
            // A worker that is gone has no flows.
            inbox.send(Order::FollowIdleTimes).ok();
        }
    }

    /// The worker to hand a connection to, if `from` holds too many more than another one.
    pub(crate) fn less_loaded_than(&self, from: WorkerId) -> Option<WorkerId> {
        let mine = self.loads.get(from.0)?.load(Ordering::Relaxed);
        let (least, load) = self
            .loads
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .enumerate()
            .min_by_key(|(_, load)| *load)?;
        (mine > load + load / 4 + UNEVEN && least != from.0).then_some(WorkerId(least))
    }
}

/// Held by a thread whose tasks are counted. What is counted keeps descriptors of the runtime open, so it goes with the
/// thread.
#[derive(Debug)]
pub(crate) struct CountedTasks(Arc<Shared>, ThreadId);

impl Drop for CountedTasks {
    fn drop(&mut self) {
        self.0.runtimes().remove(&self.1);
    }
}

counters! {
    /// What a worker counts for itself.
    pub WorkerCounters,
    /// What workers have counted for themselves.
    WorkerCounts {
        /// Connections accepted here.
        accepted: Sum => metric("ballast_worker_accepted_total", "Connections that the worker accepted.");
        /// ... of those, given to a worker that had fewer.
        handed_over: Sum => metric("ballast_worker_handed_over_total", "Connections that the worker accepted and gave to one that had fewer.");
        /// Bytes that went through pipes.
        spliced: Sum;
    }
}

/// So many connections more than a fair share are no reason to move one.
const UNEVEN: usize = 8;
