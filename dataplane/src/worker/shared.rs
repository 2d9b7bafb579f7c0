//! What all workers, apply and the admin side share: the plan in force, who is in, and where each takes orders.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ballast_core::admit::{AdmitState, Limits};
use ballast_core::counters::{Cell, PerWorker, WorkerId};
use ballast_core::endpoint::EndpointState;
use ballast_core::overrides::ByHand;
use tokio::sync::{Notify, mpsc, oneshot};

use super::Order;
use crate::access::AccessLog;
use crate::by_hand::Changes;
use crate::clock::Clock;
use crate::live::Live;
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
    pub loads: Box<[AtomicUsize]>,
    /// Where apply takes what operators change by hand.
    pub(crate) by_hand: mpsc::UnboundedSender<Changes>,
    /// Where each worker takes orders.
    pub(crate) inboxes: Box<[mpsc::UnboundedSender<Order>]>,
    /// The process's own limit of connections. Listening sockets that come later leave room for fewer.
    pub most: AtomicU32,
    /// Who is in, counted for that limit.
    pub admit: Arc<AdmitState>,
    /// What each worker counts beside frontends, services and endpoints.
    pub(crate) counters: PerWorker<WorkerCounters>,
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
}

impl Shared {
    /// What is shared by so many workers, which serve `most` connections; and where each of them takes orders.
    pub(crate) fn new(
        workers: usize,
        most: u32,
        seed: u64,
        access: AccessLog,
        by_hand: mpsc::UnboundedSender<Changes>,
    ) -> (Arc<Self>, Vec<mpsc::UnboundedReceiver<Order>>) {
        let (inboxes, receivers): (Vec<_>, _) =
            (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let shared = Self {
            live: Live::default(),
            clock: Clock::start(),
            loads: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            by_hand,
            inboxes: inboxes.into(),
            most: AtomicU32::new(most),
            admit: Arc::new(AdmitState::new(seed)),
            counters: PerWorker::new(workers),
            accept_errors: Mutex::default(),
            status: Status::default(),
            new_plan: Notify::new(),
            access,
            stats: Stats::default(),
        };
        (Arc::new(shared), receivers)
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

    pub(crate) fn count_accept_error(&self, errno: i32) {
        let mut errors = self
            .accept_errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *errors.entry(errno).or_default() += 1;
    }

    /// Puts changes by hand in force, and returns when they are. `false`: the process is ending.
    pub async fn change(&self, changes: Vec<ByHand>) -> bool {
        let (done, told) = oneshot::channel();
        self.by_hand.send(Changes { changes, done }).is_ok() && told.await.is_ok()
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

/// What a worker counts for itself.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    /// Connections accepted here.
    pub accepted: Cell,
    /// ... of those, given to a worker that had fewer.
    pub handed_over: Cell,
    /// Bytes that went through pipes.
    pub spliced: Cell,
}

/// So many connections more than a fair share are no reason to move one.
const UNEVEN: usize = 8;
