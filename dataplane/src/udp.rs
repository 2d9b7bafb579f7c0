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

use ballast_core::endpoint::EndpointState;
use ballast_core::flow::{FlowTable, Listener};
use ballast_core::moment::Moment;
use ballast_core::plan::SocketKey;
use rustix::event::epoll;
use socket2::Socket;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

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
        let flows = FlowTable::new(worker.id, worker.most_flows, seed);
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

/// No new flows from now on. Those that are there are waited for as connections are.
pub(crate) fn finish(worker: &Worker) {
    let Some(udp) = worker.udp.get() else {
        return;
    };
    {
        let mut state = udp.state.borrow_mut();
        state.flows.take_no_more();
        state.counted.get_or_insert(0);
    }
    udp.settle(worker);
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
        if let Some(counted) = &mut state.counted {
            let before = std::mem::replace(counted, live);
            worker
                .load()
                .fetch_add(live.saturating_sub(before), Ordering::Relaxed);
            worker
                .load()
                .fetch_sub(before.saturating_sub(live), Ordering::Relaxed);
        }
    }
}

/// Batches received in a row before other tasks have their turn.
const BATCHES: usize = 4;
