//! What a worker owns, and the orders that it takes.
//!
//! A worker is a thread with a runtime of its own. It accepts from its own listening sockets and keeps each connection
//! from its first byte to its last; no wake-up in a connection's life crosses threads.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ballast_core::admit::{AdmitState, Limits};
use ballast_core::counters::{Cell, PerWorker, WorkerId};
use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::overrides::ByHand;
use ballast_core::plan::{Plan, SocketKey, Transport};
use ballast_core::rng::Rng;
use ballast_core::service::ServiceState;
use socket2::Socket;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::access::AccessLog;
use crate::by_hand::Changes;
use crate::clock::Clock;
use crate::console::Seen;
use crate::live::Live;
use crate::panics::vital;
use crate::relay::Tools;
use crate::stats::Stats;
use crate::status::Status;
use crate::sys;
use crate::tcp::{self, Arrival};
use crate::udp::{self, Udp};

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
    pub inboxes: Box<[mpsc::UnboundedSender<Order>]>,
    /// The process's own limit of connections. Listening sockets that come later leave room for fewer.
    pub most: AtomicU32,
    /// Who is in, counted for that limit.
    pub admit: Arc<AdmitState>,
    /// What each worker counts beside frontends, services and endpoints.
    pub counters: PerWorker<WorkerCounters>,
    /// Failed accepts by the system's error number.
    pub accept_errors: Mutex<BTreeMap<i32, u64>>,
    /// What apply says of itself.
    pub status: Status,
    /// Apply has published a plan, of which the checks are to know.
    pub new_plan: Notify,
    /// Who wants to read of each connection.
    pub access: AccessLog,
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
pub struct WorkerCounters {
    /// Connections accepted here.
    pub accepted: Cell,
    /// ... of those, given to a worker that had fewer.
    pub handed_over: Cell,
    /// Bytes that went through pipes.
    pub spliced: Cell,
}

/// An order to a worker.
#[derive(Debug)]
pub enum Order {
    /// Accept from this socket.
    Listen {
        /// Its identity.
        key: Arc<SocketKey>,
        /// The socket.
        socket: Socket,
        /// Told when it accepts, or why it does not.
        done: oneshot::Sender<std::io::Result<()>>,
    },
    /// Accept what is in the queue already, by `plan`, and close.
    Close {
        /// Its identity.
        key: Arc<SocketKey>,
        /// The last plan that had it.
        plan: Arc<Plan>,
        /// Told when it is closed.
        done: oneshot::Sender<()>,
    },
    /// Serve what another worker accepted.
    Serve(Arrival),
    /// Reset the connections that these endpoints have, and end their flows.
    Cut(Arc<[Arc<EndpointState>]>),
    /// Say which connections and flows there are.
    List {
        /// So many at most.
        most: usize,
        /// Told them.
        done: oneshot::Sender<Vec<Seen>>,
    },
    /// Forget the longest times of these services and endpoints: only their worker may write what it counts.
    ForgetLongest(Arc<[Arc<ServiceState>]>, Arc<[Arc<EndpointState>]>),
    /// Begin no more flows, and from now on count those that are there among the connections to wait for.
    Finish {
        /// Told when they are counted.
        done: oneshot::Sender<()>,
    },
}

/// One worker.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub id: WorkerId,
    /// What it shares with others.
    pub shared: Arc<Shared>,
    /// What its relays share.
    pub tools: Tools,
    /// Its dice.
    pub rng: RefCell<Rng>,
    /// Its connections.
    pub seats: RefCell<Seats>,
    /// How many UDP flows it may have.
    pub most_flows: usize,
    /// Its UDP flows, once a socket for them has come.
    pub udp: OnceCell<Udp>,
}

impl Worker {
    /// A worker that has nothing to do yet, and may have so many pipes and flows.
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        pipes: usize,
        flows: usize,
        rng: Rng,
    ) -> Rc<Self> {
        Rc::new(Self {
            id: WorkerId(id),
            tools: Tools::new(shared.clock, pipes),
            shared,
            rng: RefCell::new(rng),
            seats: RefCell::default(),
            most_flows: flows,
            udp: OnceCell::new(),
        })
    }

    /// Takes orders until nobody can give any, or `stop` says that what is left is to be cut.
    pub async fn run(
        self: Rc<Self>,
        mut inbox: mpsc::UnboundedReceiver<Order>,
        stop: CancellationToken,
    ) {
        tokio::task::spawn_local(vital("a worker's alarm", stay_awake()));
        let mut listening: HashMap<Arc<SocketKey>, mpsc::Sender<Closing>> = HashMap::new();
        while let Some(Some(order)) = stop.run_until_cancelled(inbox.recv()).await {
            match order {
                Order::Listen { key, socket, done } => {
                    let started = self.listen(Arc::clone(&key), socket);
                    let started = started.map(|close| listening.insert(key, close));
                    done.send(started.map(drop)).ok();
                }
                Order::Close { key, plan, done } => {
                    // Without one, `done` is dropped, which says that it is closed.
                    if let Some(close) = listening.remove(&key) {
                        close.try_send(Closing { plan, done }).ok();
                    }
                }
                Order::Serve(arrival) => tcp::serve(&self, arrival),
                Order::Cut(endpoints) => {
                    self.seats.borrow_mut().cut(&endpoints);
                    udp::cut(&self, &endpoints);
                }
                Order::Finish { done } => {
                    udp::finish(&self);
                    done.send(()).ok();
                }
                Order::List { most, done } => {
                    let mut seen = self.seats.borrow().list(most);
                    seen.extend(udp::list(&self, most - seen.len()));
                    done.send(seen).ok();
                }
                Order::ForgetLongest(services, endpoints) => {
                    services
                        .iter()
                        .for_each(|service| service.forget_longest(self.id));
                    endpoints
                        .iter()
                        .for_each(|endpoint| endpoint.forget_longest(self.id));
                }
            }
        }
    }

    /// Begins to accept or to receive.
    fn listen(
        self: &Rc<Self>,
        key: Arc<SocketKey>,
        socket: Socket,
    ) -> std::io::Result<mpsc::Sender<Closing>> {
        let socket = sys::watched(socket)?;
        let (close, closing) = mpsc::channel(1);
        match key.transport {
            Transport::Tcp => {
                let what = format!("accepting at {key}");
                let accept = tcp::accept_loop(Rc::clone(self), key, socket, closing);
                tokio::task::spawn_local(vital(what, accept));
            }
            Transport::Udp => udp::listen(self, key, socket, closing)?,
        }
        Ok(close)
    }

    /// Whose turn it is to be counted here.
    pub(crate) fn load(&self) -> &AtomicUsize {
        &self.shared.loads[self.id.0]
    }

    /// A name for one connection.
    pub(crate) fn fresh_id(&self) -> [u8; 16] {
        let mut rng = self.rng.borrow_mut();
        let mut id = [0; 16];
        let (high, low) = id.split_at_mut(8);
        high.copy_from_slice(&rng.next_u64().to_be_bytes());
        low.copy_from_slice(&rng.next_u64().to_be_bytes());
        id
    }

    pub(crate) fn counters(&self) -> &WorkerCounters {
        self.shared.counters.of(self.id)
    }
}

/// The connections of a worker, found by the endpoint that they have: nothing else can end one from outside.
#[derive(Debug, Default)]
pub struct Seats {
    seats: Vec<Seated>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Seated {
    task: Option<AbortHandle>,
    /// Who came, by which socket, and when.
    came: Option<(SocketAddr, Arc<SocketKey>, Moment)>,
    endpoint: Option<Arc<EndpointState>>,
    /// Whom to wake, as long as that endpoint is being dialed.
    dialing: Option<Waker>,
}

impl Seats {
    pub(crate) fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seated::default());
            self.seats.len() - 1
        })
    }

    pub(crate) fn occupy(&mut self, seat: usize, task: AbortHandle) {
        self.seats[seat].task = Some(task);
    }

    pub(crate) fn came(&mut self, seat: usize, from: SocketAddr, by: Arc<SocketKey>, at: Moment) {
        self.seats[seat].came = Some((from, by, at));
    }

    /// A proxy has said for whom it came.
    pub(crate) fn is_for(&mut self, seat: usize, client: SocketAddr) {
        if let Some((came, ..)) = &mut self.seats[seat].came {
            *came = client;
        }
    }

    pub(crate) fn at_endpoint(&mut self, seat: usize, endpoint: &Arc<EndpointState>) {
        self.seats[seat].endpoint = Some(Arc::clone(endpoint));
    }

    /// The dial to its endpoint goes on. `false`: not any more, its connections have been cut.
    pub(crate) fn goes_on_dialing(&mut self, seat: usize, waker: &Waker) -> bool {
        let seated = &mut self.seats[seat];
        if seated.endpoint.is_none() {
            return false;
        }
        match &mut seated.dialing {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    pub(crate) fn dialed(&mut self, seat: usize) {
        self.seats[seat].dialing = None;
    }

    pub(crate) fn dialed_in_vain(&mut self, seat: usize) {
        let seated = &mut self.seats[seat];
        (seated.dialing, seated.endpoint) = (None, None);
    }

    pub(crate) fn leave(&mut self, seat: usize) {
        self.seats[seat] = Seated::default();
        self.free.push(seat);
    }

    /// The first `most` of its connections.
    fn list(&self, most: usize) -> Vec<Seen> {
        let seats = self.seats.iter().enumerate().take(MOST_LOOKED_AT);
        let seen = seats.filter_map(|(seat, seated)| {
            let (client, key, began) = seated.came.as_ref()?;
            Some(Seen {
                seat,
                client: *client,
                key: Arc::clone(key),
                endpoint: seated.endpoint.clone(),
                began: *began,
            })
        });
        seen.take(most).collect()
    }

    /// Ends the connections that these endpoints have. A client for whom one of them is still being dialed has said nothing
    /// yet: that dial alone ends.
    fn cut(&mut self, endpoints: &[Arc<EndpointState>]) {
        let gone: HashSet<*const EndpointState> = endpoints.iter().map(Arc::as_ptr).collect();
        let seats = self.seats.iter_mut().filter(|seated| {
            let endpoint = seated.endpoint.as_ref().map(Arc::as_ptr);
            endpoint.is_some_and(|endpoint| gone.contains(&endpoint))
        });
        for seated in seats {
            if let Some(dialing) = seated.dialing.take() {
                seated.endpoint = None;
                dialing.wake();
            } else if let Some(task) = &seated.task {
                task.abort();
            }
        }
    }
}

/// Sleeps again and again. A timer that is due before all others makes the runtime write to its own event descriptor, and
/// look once more: each dial's timer would be such a one. Beside this one it is not.
async fn stay_awake() {
    loop {
        sleep(NEXT_TIMER).await;
    }
}

/// The end of an accept loop. Dropping it says that the socket is closed.
#[derive(Debug)]
pub struct Closing {
    pub(crate) plan: Arc<Plan>,
    pub(crate) done: oneshot::Sender<()>,
}

/// A look at the connections ends here, so that clients do not wait for it.
const MOST_LOOKED_AT: usize = 1 << 17;
/// Less than a dial or a relay usually waits for.
const NEXT_TIMER: Duration = Duration::from_secs(1);
/// So many connections more than a fair share are no reason to move one.
const UNEVEN: usize = 8;
