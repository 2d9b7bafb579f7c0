//! The state that all workers, `apply` and the admin side share: the plan in force, the numbers of connections, and the
//! workers' inboxes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::thread::{self, ThreadId};

use ballast_core::admit::{Admission, AdmitState, Limits, Waiting};
use ballast_core::counters;
use ballast_core::counters::{PerWorker, WorkerId};
use ballast_core::endpoint::EndpointState;
use ballast_core::overrides::OverrideChange;
use ballast_core::table::HttpVersion;
use tokio::runtime::{LocalRuntime, RuntimeMetrics};
use tokio::sync::{Notify, mpsc, oneshot};

use super::{LastBadRequest, Order};
use crate::access::AccessLog;
use crate::net::relay::PipeCounts;
use crate::os::clock::Clock;
use crate::os::limits::{Descriptors, Room};
use crate::os::threads::lock;
use crate::worker::live::Live;
use crate::worker::override_request::{OverrideError, OverrideRequest};
use crate::worker::status::Status;

/// The state that all workers, `apply` and the admin side share.
#[derive(Debug)]
pub struct Shared {
    /// The plan in force.
    pub live: Live,
    pub clock: Clock,
    /// The number of connections of each worker.
    pub loads: Box<[Load]>,
    /// The channel by which `apply` receives operator overrides.
    pub(crate) overrides: mpsc::UnboundedSender<OverrideRequest>,
    /// The channel by which each worker receives orders.
    pub(crate) inboxes: Box<[mpsc::UnboundedSender<Order>]>,
    /// The limits of the process.
    pub room: Room,
    /// The process's own limit of connections. It falls as more sockets listen.
    pub most: AtomicU32,
    /// The limit of UDP flows of each worker. It falls as more sockets listen.
    pub(crate) most_flows: AtomicUsize,
    /// The admissions that count for the process's limit.
    pub admit: Arc<AdmitState>,
    /// What each worker counts in addition to the counters of frontends, services and endpoints.
    pub(crate) counters: PerWorker<WorkerCounters>,
    /// The numbers of each worker's pipes.
    pub(crate) pipes: Box<[OnceLock<Arc<PipeCounts>>]>,
    /// The task metrics of each thread's runtime.
    runtimes: Mutex<HashMap<ThreadId, RuntimeMetrics>>,
    /// Failed accepts by the system's error number.
    pub(crate) accept_errors: Mutex<BTreeMap<i32, u64>>,
    /// The status that `apply` publishes.
    pub status: Status,
    /// Notified when `apply` has published a plan, for the health checks.
    pub(crate) new_plan: Notify,
    pub(crate) access: AccessLog,
    /// The last request that breaks the rules of HTTP.
    pub(crate) last_bad_request: LastBadRequest,
    /// Used by tests only.
    fault_injection: Option<Box<dyn FaultInjection>>,
}

/// The number of one worker's connections, on cache lines of its own, because each worker writes to its number with every
/// connection. Processors fetch lines in pairs, hence two.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load(AtomicUsize);

impl Deref for Load {
    type Target = AtomicUsize;

    fn deref(&self) -> &AtomicUsize {
        &self.0
    }
}

/// Lets a test interfere with a connection at a certain stage.
pub(crate) trait FaultInjection: fmt::Debug + Send + Sync {
    /// Called when the connection of `client` has reached `stage`.
    fn reached(&self, stage: Stage, client: SocketAddr);

    /// Called when an accept loop is about to take the next connection from the backlog.
    fn accepting(&self) {}
}

/// Stages of a connection at which a test may inject a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// An endpoint is about to be dialed.
    Dialing,
    /// An endpoint is connected.
    Relaying,
}

impl Shared {
    /// Creates the shared state for the workers of `room`, and the receivers of their orders.
    pub(crate) fn new(
        room: Room,
        seed: u64,
        access: AccessLog,
        overrides: mpsc::UnboundedSender<OverrideRequest>,
        fault_injection: Option<Box<dyn FaultInjection>>,
    ) -> (Arc<Self>, Vec<mpsc::UnboundedReceiver<Order>>) {
        let workers = room.workers;
        let (inboxes, receivers): (Vec<_>, _) =
            (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Self {
            live: Live::default(),
            clock: Clock::start(),
            loads: (0..workers).map(|_| Load::default()).collect(),
            overrides,
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
            last_bad_request: LastBadRequest::default(),
            fault_injection,
        };
        shared.divide(0, false);
        (Arc::new(shared), receivers)
    }

    /// Limits connections and flows to what `listening` sockets leave of the descriptors. `has_udp`: some of these sockets are
    /// UDP sockets.
    pub(crate) fn divide(&self, listening: usize, has_udp: bool) -> Descriptors {
        let descriptors = self.room.with_listening(listening, has_udp);
        let most = self.room.connections(&descriptors);
        self.most.store(most, Ordering::Relaxed);
        let most_flows = self.room.with_listening(listening, true).flows / self.room.workers.max(1);
        self.most_flows.store(most_flows.max(1), Ordering::Relaxed);
        self.admit.wake();
        descriptors
    }

    /// The number of connections now.
    pub fn connections(&self) -> usize {
        self.loads
            .iter()
            .map(|load| load.load(Ordering::Relaxed))
            .sum()
    }

    /// The process's own limit, in the same form as a frontend's limits.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connections: Some(self.most.load(Ordering::Relaxed)),
            ..Limits::default()
        }
    }

    /// The most requests that one connection of HTTP/2 may have at once, so that a few clients leave room for others.
    pub(crate) fn most_streams(&self) -> u32 {
        self.most.load(Ordering::Relaxed) / 4
    }

    /// Whether a request of HTTP/2 to an endpoint of this version takes as much as a connection: a descriptor, or a share of the
    /// memory if that is limited.
    pub(crate) fn counts_stream(&self, version: HttpVersion) -> bool {
        version == HttpVersion::H1 || self.room.memory.is_some()
    }

    /// Counts a request of HTTP/2 that takes as much as a connection, if there is room for it.
    pub(crate) fn admit_request(&self) -> Option<Admission> {
        self.admit.admit_request(self.most.load(Ordering::Relaxed))
    }

    /// Like [`Shared::admit_request`], for a request that waits for room.
    pub(crate) fn may_request(&self, waker: &Waker) -> Result<Admission, Waiting> {
        self.admit
            .may_request(self.most.load(Ordering::Relaxed), waker)
    }

    /// Counts the tasks of this thread's runtime until the returned guard is dropped.
    pub(crate) fn count_tasks(self: &Arc<Self>, runtime: &LocalRuntime) -> CountedTasks {
        let thread = thread::current().id();
        lock(&self.runtimes).insert(thread, runtime.metrics());
        CountedTasks(Arc::clone(self), thread)
    }

    /// The number of tasks of all threads, and of those that another thread has woken and that have not run yet. The runtime
    /// does not report how many tasks were woken by their own thread.
    pub(crate) fn tasks(&self) -> (usize, usize) {
        let runtimes = lock(&self.runtimes);
        let tasks = runtimes.values();
        tasks.fold((0, 0), |(alive, ready), runtime| {
            let (more, more_ready) = (runtime.num_alive_tasks(), runtime.global_queue_depth());
            (alive + more, ready + more_ready)
        })
    }

    /// Called when the connection of `client` has reached `stage`.
    pub(crate) fn reached(&self, stage: Stage, client: SocketAddr) {
        if let Some(fault_injection) = &self.fault_injection {
            fault_injection.reached(stage, client);
        }
    }

    /// Called when an accept loop is about to take the next connection from the backlog.
    pub(crate) fn accepting(&self) {
        if let Some(fault_injection) = &self.fault_injection {
            fault_injection.accepting();
        }
    }

    pub(crate) fn count_accept_error(&self, errno: i32) {
        *lock(&self.accept_errors).entry(errno).or_default() += 1;
    }

    /// Puts overrides in force, and returns when they are, or why they are not.
    pub async fn change(&self, changes: Vec<OverrideChange>) -> Result<(), OverrideError> {
        let (done, told) = oneshot::channel();
        self.overrides
            .send(OverrideRequest { changes, done })
            .map_err(|_| OverrideError::Ending)?;
        told.await.unwrap_or(Err(OverrideError::Ending))
    }

    /// Resets the connections of these endpoints.
    pub fn cut(&self, endpoints: Vec<Arc<EndpointState>>) {
        if endpoints.is_empty() {
            return;
        }
        let endpoints: Arc<[_]> = endpoints.into();
        self.tell_workers(|| Order::Cut(Arc::clone(&endpoints)));
    }

    /// Gives an order to all workers. One that has ended has nothing left that an order could concern.
    pub(crate) fn tell_workers(&self, order: impl Fn() -> Order) {
        for inbox in &self.inboxes {
            inbox.send(order()).ok();
        }
    }

    /// The worker to hand a connection over to, if `from` has too many more than another one.
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

/// Held by a thread whose tasks are counted. The metrics keep descriptors of the runtime open, so they are dropped with the
/// thread.
#[derive(Debug)]
pub(crate) struct CountedTasks(Arc<Shared>, ThreadId);

impl Drop for CountedTasks {
    fn drop(&mut self) {
        lock(&self.0.runtimes).remove(&self.1);
    }
}

counters! {
    /// What a worker counts for itself.
    pub WorkerCounters,
    /// What workers have counted for themselves.
    WorkerCounts {
        /// Connections accepted here.
        accepted: Sum => metric("ballast_worker_accepted_total", "Connections that the worker accepted.");
        /// ... of those, handed over to a worker that had fewer.
        handed_over: Sum => metric("ballast_worker_handed_over_total", "Connections that the worker accepted and gave to one that had fewer.");
        /// Bytes that went through pipes.
        spliced: Sum;
    }
}

/// This many connections above a fair share are no reason to hand one over.
const UNEVEN: usize = 8;
