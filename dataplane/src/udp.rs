//! UDP: the loops around [`ballast_core::flow`].
//!
//! A worker receives datagrams in batches and asks its flow table where each goes. Every flow has a connected socket
//! of its own; all of a worker's are watched by one epoll, which is one descriptor to the runtime: no flow has a task.
//! Answers leave from the listening socket, with the address that the client spoke to.
//!
//! No error ends a loop here: what cannot be received or sent is one datagram's misfortune.

use std::cell::{Cell as StdCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::endpoint::EndpointState;
use ballast_core::flow::{FlowTable, Listener};
use ballast_core::moment::Moment;
use ballast_core::plan::SocketKey;
use rustix::event::epoll;
use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{sleep, sleep_until};

use crate::panics::{At, Vital, vital};
use crate::sys;
use crate::sys::datagrams::{BATCH, Inbox};
use crate::worker::{Closing, Seen, Worker};

mod answers;
mod introduce;
mod leg;
mod questions;

use answers::{Batch, Left};
use leg::Leg;

/// The flows of a worker.
#[derive(Debug)]
pub(crate) struct Udp {
    state: RefCell<State>,
    /// Watches the sockets of all flows.
    watch: AsyncFd<OwnedFd>,
    /// Rung when there is a deadline before the one that is waited for.
    alarm: Notify,
}

#[derive(Debug)]
struct State {
    flows: FlowTable<Leg>,
    doors: HashMap<Listener, Rc<Door>>,
    last: u32,
    inbox: Inbox,
    /// Datagrams that leave as one group, one behind the other.
    gathered: Vec<u8>,
    /// Answers that leave together.
    batch: Batch,
    /// The deadline that is waited for.
    awaited: Option<Moment>,
    /// Flows that count as connections, once the process ends.
    counted: Option<usize>,
    /// The place of the next flow that takes over its frontend's idle time, while that goes on.
    following: Option<u32>,
}

/// What the flows of a worker may use.
#[derive(Debug)]
pub(crate) struct FlowRoom {
    /// How many there may be.
    pub most: usize,
    /// The local ports of their sockets, which no other worker has.
    pub ports: Vec<u16>,
}

/// A listening socket.
#[derive(Debug)]
struct Door {
    id: Listener,
    key: Arc<SocketKey>,
    socket: AsyncFd<Socket>,
    /// Where it is bound.
    local: SocketAddr,
    /// What the kernel has dropped there, as last heard.
    drops: StdCell<u32>,
}

/// Receives from this socket until `closing` says otherwise.
pub(crate) fn listen(
    worker: &Rc<Worker>,
    key: Arc<SocketKey>,
    socket: AsyncFd<Socket>,
    closing: mpsc::Receiver<Closing>,
) -> io::Result<()> {
    if worker.udp.get().is_none() {
        let seed = worker.rng.borrow_mut().next_u64();
        let room = &worker.flow_room;
        let flows = FlowTable::new(worker.id, room.most, seed).with_ports(room.ports.clone());
        worker.udp.set(Udp::new(flows)?).ok();
        tokio::task::spawn_local(vital("UDP answering", watch(Rc::clone(worker))));
    }
    let Some(udp) = worker.udp.get() else {
        return Ok(());
    };
    let local = socket.get_ref().local_addr()?.as_socket();
    let mut state = udp.state.borrow_mut();
    state.last += 1;
    let door = Rc::new(Door {
        id: Listener(state.last),
        local: local.unwrap_or(key.address),
        key,
        socket,
        drops: StdCell::new(0),
    });
    state.doors.insert(door.id, Rc::clone(&door));
    let receive = receive(Rc::clone(worker), door, closing);
    tokio::task::spawn_local(receive);
    Ok(())
}

/// Ends the flows that these endpoints have.
pub(crate) fn cut(worker: &Worker, endpoints: &[Arc<EndpointState>]) {
    let Some(udp) = worker.udp.get() else {
        return;
    };
    let now = worker.shared.clock.now();
    udp.state.borrow_mut().flows.cut(now, endpoints);
    udp.settle(worker);
}

/// The first `most` of its flows.
pub(crate) fn list(worker: &Worker, most: usize) -> Vec<Seen> {
    let Some(udp) = worker.udp.get() else {
        return Vec::new();
    };
    let state = udp.state.borrow();
    let seen = state
        .flows
        .each()
        .filter_map(|(seat, key, endpoint, began)| {
            Some(Seen {
                seat,
                client: key.client,
                key: SocketKey::clone(&state.doors.get(&key.listener)?.key),
                endpoint: Some(Arc::clone(endpoint)),
                began,
            })
        });
    seen.take(most).collect()
}

/// No new flows from now on. Those that are there go on until the process ends, which waits for the active ones as it does for
/// connections. `done` hears when they are counted.
pub(crate) fn finish(worker: &Rc<Worker>, done: oneshot::Sender<()>) {
    if let Some(udp) = worker.udp.get() {
        udp.state.borrow_mut().flows.take_no_more();
        let counting = count_active(Rc::clone(worker), done);
        tokio::task::spawn_local(vital("counting UDP flows", counting));
    } else {
        done.send(()).ok();
    }
}

/// Counts again and again which flows are active.
async fn count_active(worker: Rc<Worker>, done: oneshot::Sender<()>) {
    let Some(udp) = worker.udp.get() else {
        return;
    };
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
        let before = udp.state.borrow_mut().counted.replace(active);
        count(&worker, before.unwrap_or(0), active);
        if let Some(done) = done.take() {
            done.send(()).ok();
        }
        sleep(COUNT_EVERY).await;
    }
}

/// So many flows count among the worker's connections.
fn count(worker: &Worker, before: usize, now: usize) {
    let (more, fewer) = (now.saturating_sub(before), before.saturating_sub(now));
    worker.load().fetch_add(more, Ordering::Relaxed);
    worker.load().fetch_sub(fewer, Ordering::Relaxed);
}

/// Gives all flows the idle times of the plan in force, some at a time.
pub(crate) fn follow_idle_times(worker: &Rc<Worker>) {
    let Some(udp) = worker.udp.get() else {
        return;
    };
    let under_way = udp.state.borrow_mut().following.replace(0);
    if under_way.is_none() {
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(vital("new idle times of UDP flows", async move {
            while follow_some(&worker) {
                tokio::task::yield_now().await;
            }
        }));
    }
}

/// Says whether there are more flows to look at.
fn follow_some(worker: &Worker) -> bool {
    let Some(udp) = worker.udp.get() else {
        return false;
    };
    let plan = worker.plan();
    let mut state = udp.state.borrow_mut();
    let State {
        flows,
        doors,
        following,
        ..
    } = &mut *state;
    let frontend = |listener| plan.frontend(&doors.get(&listener)?.key);
    *following = following.and_then(|from| flows.follow_idle_times(from, frontend));
    let has_more = following.is_some();
    drop(state);
    udp.settle(worker);
    has_more
}

async fn receive(worker: Rc<Worker>, door: Rc<Door>, mut closing: mpsc::Receiver<Closing>) {
    let _vital = Vital(At("receiving", Arc::clone(&door.key)));
    loop {
        let last = tokio::select! {
            biased;
            last = closing.recv() => last,
            () = receive_some(&worker, &door) => continue,
        };
        let id = door.id;
        if let Some(udp) = worker.udp.get() {
            let now = worker.shared.clock.now();
            let mut state = udp.state.borrow_mut();
            state.doors.remove(&id);
            state.flows.close(now, id);
            drop(state);
            udp.settle(&worker);
        }
        drop(door);
        if let Some(last) = last {
            last.done.send(()).ok();
        }
        return;
    }
}

/// Waits for datagrams and passes on some batches of them, so that other tasks have their turn in between.
async fn receive_some(worker: &Rc<Worker>, door: &Door) {
    let Ok(mut ready) = door.socket.readable().await else {
        return;
    };
    let Some(udp) = worker.udp.get() else {
        return;
    };
    let has_more = (0..BATCHES).all(|_| questions::pass_on(worker, udp, door) == BATCH);
    udp.settle(worker);
    match has_more {
        true => tokio::task::yield_now().await,
        false => ready.clear_ready(),
    }
}

/// Passes answers on, and ends flows when it is time.
async fn watch(worker: Rc<Worker>) {
    let Some(udp) = worker.udp.get() else {
        return;
    };
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
                match answers::pass_on(&worker, udp) {
                    Left::Nothing => ready.clear_ready(),
                    Left::Something => tokio::task::yield_now().await,
                }
            }
            () = udp.alarm.notified() => {}
            () = deadline => {}
        }
        let now = worker.shared.clock.now();
        if awaited.is_some_and(|moment| moment <= now) {
            udp.state.borrow_mut().flows.expire(now);
        }
        udp.settle(&worker);
    }
}

impl Udp {
    fn new(flows: FlowTable<Leg>) -> io::Result<Self> {
        Ok(Self {
            state: RefCell::new(State {
                flows,
                doors: HashMap::new(),
                last: 0,
                inbox: Inbox::new(BATCH),
                gathered: Vec::new(),
                batch: Batch::default(),
                awaited: None,
                counted: None,
                following: None,
            }),
            watch: sys::watched(epoll::create(epoll::CreateFlags::CLOEXEC)?)?,
            alarm: Notify::new(),
        })
    }

    /// Notes for which deadline the watch sleeps from now on.
    fn await_next(&self) -> Option<Moment> {
        let mut state = self.state.borrow_mut();
        state.awaited = state.flows.next_deadline();
        state.awaited
    }

    /// After flows may have come or gone.
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
            self.alarm.notify_one();
        }
        let live = state.flows.len();
        if let Some(counted) = state.counted.as_mut().filter(|counted| **counted > live) {
            // Flows have ended since they were counted.
            let before = std::mem::replace(counted, live);
            count(worker, before, live);
        }
    }
}

/// How often active flows are counted while the process ends.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// Batches received in a row before other tasks have their turn.
const BATCHES: usize = 4;
