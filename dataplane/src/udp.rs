//! UDP: the loops that carry out the decisions of [`ballast_core::flow`].
//!
//! A worker receives datagrams in batches and asks its flow table where each one goes. Every flow has a connected socket of its
//! own. One epoll watches the sockets of all of a worker's flows, and the runtime watches that epoll, so no flow needs a task.
//! Replies leave from the listening socket, with the source address to which the client sent.
//!
//! No error ends a loop: an error of receiving or sending concerns one datagram only.

use std::cell::{Cell as StdCell, OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::endpoint::EndpointState;
use ballast_core::flow::{FlowTable, Key, Listener};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, Serves, SocketKey};
use ballast_core::preamble::Addresses;
use ballast_core::service::Service;
use rustix::event::epoll;
use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{sleep, sleep_until};

use crate::os::panics::{At, Vital, vital};
use crate::os::sys;
use crate::os::sys::datagrams::{BATCH, Inbox};
use crate::process::handover::{MovedFlow, inode};
use crate::worker::{Close, Closing, SessionInfo, Whereabouts, Worker};

mod flow_socket;
mod from_client;
mod from_endpoint;
mod moved;
mod proxy_header;

use flow_socket::FlowSocket;
use from_endpoint::{Drained, ReplyBatch};

/// The flows of a worker, which has none before its first UDP socket.
#[derive(Debug)]
pub(crate) struct Flows {
    worker: Rc<Worker>,
    room: FlowRoom,
    udp: OnceCell<Rc<Udp>>,
}

/// The flows of a worker, and the sockets that they come by.
#[derive(Debug)]
struct Udp {
    state: RefCell<State>,
    /// Watches the sockets of all flows.
    watch: AsyncFd<OwnedFd>,
    /// Notified when there is a deadline earlier than the one that [`watch`] sleeps for.
    sooner: Notify,
    /// The most flows.
    most: usize,
}

#[derive(Debug)]
struct State {
    flows: FlowTable<FlowSocket>,
    listeners: HashMap<Listener, Rc<UdpListener>>,
    last_id: u32,
    inbox: Inbox,
    /// Bytes of datagrams that leave as one group, one behind the other.
    gathered: Vec<u8>,
    /// Replies that leave together.
    replies: ReplyBatch,
    /// The deadline that [`watch`] sleeps for.
    awaited: Option<Moment>,
    /// The number of active flows counted as connections, once the process is ending.
    counted_active: Option<usize>,
    /// While flows take over what a new table says: the place of the next flow.
    revised: Option<u32>,
}

/// The limits of a worker's flows.
#[derive(Debug)]
pub(crate) struct FlowRoom {
    /// The most flows.
    pub most: usize,
    /// The local ports for the flows' sockets. No other worker has them.
    pub ports: Vec<u16>,
}

#[derive(Debug)]
struct UdpListener {
    id: Listener,
    key: Arc<SocketKey>,
    socket: AsyncFd<Arc<Socket>>,
    /// The address that the socket is bound to.
    local: SocketAddr,
    /// The kernel's counter of datagrams dropped at this socket, as last reported.
    drops: StdCell<u32>,
    /// The number by which the kernel knows the socket.
    number: Option<u64>,
    /// Whether the next process has the socket, and reads it alone.
    is_given: StdCell<bool>,
}

impl Flows {
    pub(crate) fn new(worker: Rc<Worker>, room: FlowRoom) -> Self {
        Self {
            worker,
            room,
            udp: OnceCell::new(),
        }
    }

    /// Receives from this socket until `closing` gives an order, beginning with the `flows` of the process before. Returns how
    /// many of them go on.
    pub(crate) fn listen(
        &self,
        key: Arc<SocketKey>,
        socket: AsyncFd<Arc<Socket>>,
        flows: Vec<MovedFlow>,
        closing: mpsc::Receiver<Closing>,
    ) -> io::Result<usize> {
        let udp = match self.udp.get() {
            Some(udp) => Rc::clone(udp),
            None => self.begin()?,
        };
        let local = socket.get_ref().local_addr()?.as_socket();
        let mut state = udp.state.borrow_mut();
        state.last_id += 1;
        let listener = Rc::new(UdpListener {
            id: Listener(state.last_id),
            local: local.unwrap_or(key.address),
            key,
            // Those of an inherited socket were counted by the process before.
            drops: StdCell::new(sys::datagrams::drops(socket.get_ref()).unwrap_or(0)),
            number: inode(socket.get_ref()),
            is_given: StdCell::new(false),
            socket,
        });
        state.listeners.insert(listener.id, Rc::clone(&listener));
        drop(state);
        let adopted = moved::adopt(&self.worker, &udp, &listener, flows);
        let receive = receive(Rc::clone(&self.worker), Rc::clone(&udp), listener, closing);
        tokio::task::spawn_local(receive);
        Ok(adopted)
    }

    /// Gives away the flows that come by these sockets, by the kernel's numbers, and reads nothing from them any more.
    pub(crate) fn give(&self, sockets: &BTreeSet<u64>) -> Vec<MovedFlow> {
        match self.udp.get() {
            Some(udp) => moved::give(&self.worker, udp, sockets),
            None => Vec::new(),
        }
    }

    /// Called for the first UDP socket.
    fn begin(&self) -> io::Result<Rc<Udp>> {
        let worker = &self.worker;
        let seed = worker.rng.borrow_mut().next_u64();
        let room = &self.room;
        let flows = FlowTable::new(worker.id, room.most, seed).with_ports(room.ports.clone());
        let udp = Rc::new(Udp::new(flows, room.most)?);
        self.udp.set(Rc::clone(&udp)).ok();
        let watch = watch(Rc::clone(worker), Rc::clone(&udp));
        tokio::task::spawn_local(vital("UDP answering", watch));
        Ok(udp)
    }

    /// Ends the flows of these endpoints.
    pub(crate) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        let Some(udp) = self.udp.get() else {
            return;
        };
        let now = self.worker.shared.clock.now();
        udp.state.borrow_mut().flows.cut(now, endpoints);
        udp.settle(&self.worker);
    }

    /// Ends the flow with this number in the list. Returns whether there is one.
    pub(crate) fn end(&self, number: u64) -> bool {
        let Some(udp) = self.udp.get() else {
            return false;
        };
        let now = self.worker.shared.clock.now();
        let has_ended = udp.state.borrow_mut().flows.end_short(now, number);
        udp.settle(&self.worker);
        has_ended
    }

    /// The first `most` flows of this worker.
    pub(crate) fn list(&self, most: usize) -> Vec<SessionInfo> {
        let Some(udp) = self.udp.get() else {
            return Vec::new();
        };
        let state = udp.state.borrow();
        let sessions = state
            .flows
            .each()
            .filter_map(|(flow, key, endpoint, began)| {
                Some(SessionInfo {
                    number: flow.short(),
                    client: key.client,
                    key: SocketKey::clone(&state.listeners.get(&key.listener)?.key),
                    whereabouts: Some(Whereabouts::Endpoint(Arc::clone(endpoint))),
                    began,
                })
            });
        sessions.take(most).collect()
    }

    /// Begins no more flows. Existing flows go on until the process ends, which waits for the active ones as for connections.
    /// `done` is notified when they have been counted.
    pub(crate) fn finish(&self, done: oneshot::Sender<()>) {
        if let Some(udp) = self.udp.get() {
            udp.state.borrow_mut().flows.refuse_new();
            let counting = count_active(Rc::clone(&self.worker), Rc::clone(udp), done);
            tokio::task::spawn_local(vital("counting UDP flows", counting));
        } else {
            done.send(()).ok();
        }
    }

    /// Gives all flows the idle timeouts and the PROXY headers of the plan in force, some flows at a time.
    pub(crate) fn revise(&self) {
        let Some(udp) = self.udp.get() else {
            return;
        };
        let under_way = udp.state.borrow_mut().revised.replace(0);
        if under_way.is_none() {
            let (worker, udp) = (Rc::clone(&self.worker), Rc::clone(udp));
            tokio::task::spawn_local(vital("revising UDP flows", async move {
                while revise_some(&worker, &udp) {
                    tokio::task::yield_now().await;
                }
            }));
        }
    }
}

/// The service of this frontend that the endpoint belongs to.
fn service_of<'p>(frontend: &'p Frontend, endpoint: &EndpointState) -> Option<&'p Arc<Service>> {
    match frontend.serves() {
        Serves::Udp(backends) => backends.service_of(endpoint),
        _ => None,
    }
}

/// Counts the active flows periodically.
async fn count_active(worker: Rc<Worker>, udp: Rc<Udp>, done: oneshot::Sender<()>) {
    let mut done = Some(done);
    loop {
        let now = worker.shared.clock.now();
        let (mut active, mut next) = (0, Some(0));
        while let Some(from) = next {
            let (more, then) = udp.state.borrow().flows.count_active(now, from);
            (active, next) = (active + more, then);
            if next.is_some() {
                tokio::task::yield_now().await;
            }
        }
        let before = udp.state.borrow_mut().counted_active.replace(active);
        count(&worker, before.unwrap_or(0), active);
        if let Some(done) = done.take() {
            done.send(()).ok();
        }
        sleep(COUNT_EVERY).await;
    }
}

/// Changes the number of flows counted among the worker's connections from `before` to `now`.
fn count(worker: &Worker, before: usize, now: usize) {
    let (more, fewer) = (now.saturating_sub(before), before.saturating_sub(now));
    worker.load().fetch_add(more, Ordering::Relaxed);
    worker.load().fetch_sub(fewer, Ordering::Relaxed);
}

/// Updates some flows. Returns whether there are more.
fn revise_some(worker: &Worker, udp: &Udp) -> bool {
    let plan = worker.plan();
    let mut state = udp.state.borrow_mut();
    let State {
        flows,
        listeners,
        revised,
        ..
    } = &mut *state;
    let frontend = |listener| plan.frontend(&listeners.get(&listener)?.key);
    let revise =
        |frontend: &Frontend, key: Key, endpoint: &EndpointState, socket: &mut FlowSocket| {
            let listener = listeners.get(&key.listener);
            if let (Some(listener), Some(service)) = (listener, service_of(frontend, endpoint)) {
                socket.revise(worker, service, listener.ends(key, None));
            }
        };
    *revised = revised.and_then(|from| flows.revise(from, frontend, revise));
    let has_more = revised.is_some();
    drop(state);
    udp.settle(worker);
    has_more
}

async fn receive(
    worker: Rc<Worker>,
    udp: Rc<Udp>,
    listener: Rc<UdpListener>,
    mut closing: mpsc::Receiver<Closing>,
) {
    let _vital = Vital(At("receiving", Arc::clone(&listener.key)));
    loop {
        let last = tokio::select! {
            biased;
            last = closing.recv() => last,
            () = receive_some(&worker, &udp, &listener) => continue,
        };
        let is_handed_over = matches!(&last, Some(last) if matches!(last.how, Close::HandedOver));
        // The next process has the socket, too: it receives what comes. Answers to what came before leave from here, unless the
        // flows have gone over. A socket that is kept without need would get clients of a group that the next process has left.
        if !is_handed_over || listener.is_given.get() {
            let now = worker.shared.clock.now();
            let mut state = udp.state.borrow_mut();
            state.listeners.remove(&listener.id);
            state.flows.close(now, listener.id);
            drop(state);
            udp.settle(&worker);
        }
        drop(listener);
        if let Some(last) = last {
            last.done.send(()).ok();
        }
        return;
    }
}

/// Waits for datagrams and forwards some batches of them, so that other tasks can run in between.
async fn receive_some(worker: &Rc<Worker>, udp: &Udp, listener: &UdpListener) {
    let Ok(mut ready) = listener.socket.readable().await else {
        return;
    };
    let has_more = (0..BATCHES).all(|_| from_client::pass_on(worker, udp, listener) == BATCH);
    udp.settle(worker);
    if has_more {
        tokio::task::yield_now().await;
    } else {
        ready.clear_ready();
    }
}

/// Forwards replies, and ends flows at their deadlines.
async fn watch(worker: Rc<Worker>, udp: Rc<Udp>) {
    loop {
        let awaited = udp.await_next();
        let deadline = async {
            match awaited {
                Some(moment) => sleep_until(worker.shared.clock.instant(moment)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ready = udp.watch.readable() => {
                let Ok(mut ready) = ready else {
                    return;
                };
                match from_endpoint::pass_on(&worker, &udp) {
                    Drained::Yes => ready.clear_ready(),
                    Drained::No => tokio::task::yield_now().await,
                }
            }
            () = udp.sooner.notified() => {}
            () = deadline => {}
        }
        let now = worker.shared.clock.now();
        if awaited.is_some_and(|moment| moment <= now) {
            udp.state.borrow_mut().flows.expire(now);
        }
        udp.settle(&worker);
    }
}

impl UdpListener {
    /// The two ends of a flow, as the client sees them: `destination` is what another proxy says that the client sent to.
    fn ends(&self, key: Key, destination: Option<SocketAddr>) -> Addresses {
        Addresses {
            source: key.client,
            destination: destination
                .unwrap_or_else(|| SocketAddr::new(key.local, self.local.port())),
        }
    }
}

impl Udp {
    fn new(flows: FlowTable<FlowSocket>, most: usize) -> io::Result<Self> {
        Ok(Self {
            state: RefCell::new(State {
                flows,
                listeners: HashMap::new(),
                last_id: 0,
                inbox: Inbox::new(BATCH),
                gathered: Vec::new(),
                replies: ReplyBatch::default(),
                awaited: None,
                counted_active: None,
                revised: None,
            }),
            watch: sys::watched(epoll::create(epoll::CreateFlags::CLOEXEC)?)?,
            sooner: Notify::new(),
            most,
        })
    }

    /// Records the next deadline as the one that [`watch`] sleeps for.
    fn await_next(&self) -> Option<Moment> {
        let mut state = self.state.borrow_mut();
        state.awaited = state.flows.next_deadline();
        state.awaited
    }

    /// Called after flows may have begun or ended.
    fn settle(&self, worker: &Worker) {
        let mut state = self.state.borrow_mut();
        let next = state.flows.next_deadline();
        let is_sooner = match (next, state.awaited) {
            (Some(next), Some(awaited)) => next < awaited,
            (next, None) => next.is_some(),
            (None, Some(_)) => false,
        };
        if is_sooner {
            state.awaited = next;
            self.sooner.notify_one();
        }
        let live = state.flows.len();
        if let Some(counted_active) = state
            .counted_active
            .as_mut()
            .filter(|counted_active| **counted_active > live)
        {
            // Flows have ended since the last count.
            let before = std::mem::replace(counted_active, live);
            count(worker, before, live);
        }
    }
}

/// Interval of counting active flows while the process ends.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// Batches received in a row before other tasks run.
const BATCHES: usize = 4;
