//! What a worker owns, and how it takes orders.
//!
//! A worker is a thread with a runtime of its own. It accepts from its own listening sockets. It may hand a new connection over
//! to a worker that has fewer, before the first byte; afterwards the connection stays with its worker, and no wake-up crosses
//! threads.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ballast_core::counters::WorkerId;
use ballast_core::plan::{SocketKey, Transport};
use ballast_core::rng::Rng;
use socket2::Socket;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::access;
use crate::http::{Buffers, Pool};
use crate::net::poller::Poller;
use crate::net::relay::Tools;
use crate::net::tls::Scratch;
use crate::os::panics::vital;
use crate::os::sys;
use crate::tcp;
use crate::udp::{self, FlowRoom, Udp};

pub mod live;
pub(crate) mod override_request;
pub mod status;

mod connections;
mod order;
mod plan;
mod shared;

pub(crate) use connections::{ConnectionList, SessionInfo};
pub(crate) use order::{Closing, Order};
use plan::CachedPlan;
pub(crate) use plan::WorkerPlan;
pub(crate) use shared::{FaultInjection, Stage};
pub use shared::{Load, Shared, WorkerCounters, WorkerCounts};

#[derive(Debug)]
pub(crate) struct Worker {
    /// Its number.
    pub id: WorkerId,
    /// What it shares with other threads.
    pub shared: Arc<Shared>,
    /// The resources of its relays.
    pub tools: Tools,
    /// Its random numbers.
    pub rng: RefCell<Rng>,
    /// Connections to endpoints that wait for the next HTTP request.
    pub pool: Pool,
    /// The buffers of its HTTP connections.
    pub buffers: Rc<Buffers>,
    /// Whether the process is ending, so that HTTP connections end with their next response.
    pub is_draining: Cell<bool>,
    /// How many HTTP clients above the limit of their frontend it is answering.
    pub(crate) refusing: Cell<usize>,
    /// The access lines of its HTTP requests.
    pub lines: access::Lines,
    /// Its connections, for listing.
    pub connections: RefCell<ConnectionList>,
    /// The buffers of its TLS sessions.
    pub(crate) tls: Rc<Scratch>,
    plan: RefCell<CachedPlan>,
    /// The limits of its UDP flows.
    pub flow_room: FlowRoom,
    /// Its UDP flows, once it has a UDP socket.
    pub udp: OnceCell<Rc<Udp>>,
}

impl Worker {
    /// Creates a worker with at most `pipes` pipes and `flow_room` for UDP flows.
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        pipes: usize,
        flow_room: FlowRoom,
        rng: Rng,
    ) -> io::Result<Rc<Self>> {
        let poller = Poller::new(shared.clock)?;
        let plan = RefCell::new(CachedPlan::new(&shared.live));
        let tools = Tools::new(shared.clock, pipes, poller);
        if let Some(counts) = shared.pipes.get(id) {
            counts.set(tools.pipes.counts()).ok();
        }
        Ok(Rc::new(Self {
            id: WorkerId(id),
            tools: match shared.room.memory {
                Some(memory) => tools.reading(memory.buffers.read),
                None => tools,
            },
            lines: access::Lines::new(&shared),
            shared,
            rng: RefCell::new(rng),
            pool: Pool::default(),
            buffers: Rc::default(),
            is_draining: Cell::new(false),
            refusing: Cell::new(0),
            connections: RefCell::default(),
            tls: Rc::default(),
            plan,
            flow_room,
            udp: OnceCell::new(),
        }))
    }

    /// Takes orders until every sender is gone, or until `stop` asks to cut what is left.
    pub(crate) async fn run(
        self: Rc<Self>,
        mut inbox: mpsc::UnboundedReceiver<Order>,
        stop: CancellationToken,
    ) {
        let poller = Rc::clone(&self.tools.poller);
        tokio::task::spawn_local(vital("a worker's poller", poller.run()));
        tokio::task::spawn_local(access::hand_over_in_time(Rc::clone(&self)));
        let mut listening: HashMap<Arc<SocketKey>, mpsc::Sender<Closing>> = HashMap::new();
        while let Some(Some(order)) = stop.run_until_cancelled(inbox.recv()).await {
            match order {
                Order::Listen { key, socket, done } => {
                    let started = self.listen(Arc::clone(&key), socket);
                    let started = started.map(|close| listening.insert(key, close));
                    done.send(started.map(drop)).ok();
                }
                Order::Close { key, plan, done } => {
                    // If there is no socket, dropping `done` reports it as closed.
                    if let Some(close) = listening.remove(&key) {
                        close.try_send(Closing { plan, done }).ok();
                    }
                }
                Order::Serve(handed) => tcp::serve_handed_over(&self, handed),
                Order::NewPlan => drop(self.plan()),
                Order::Cut(endpoints) => {
                    self.tools.poller.cut(&endpoints);
                    self.pool.cut(&endpoints);
                    udp::cut(&self, &endpoints);
                }
                Order::FollowIdleTimes => udp::follow_idle_times(&self),
                Order::Finish { done } => {
                    self.is_draining.set(true);
                    self.tools.poller.wake_all();
                    udp::finish(&self, done);
                }
                Order::List { most, done } => {
                    let mut sessions = self.connections.borrow().list(most);
                    sessions.extend(udp::list(&self, most - sessions.len()));
                    done.send(sessions).ok();
                }
                Order::End {
                    transport,
                    number,
                    done,
                } => {
                    let has_ended = match transport {
                        Transport::Tcp => self.connections.borrow().end(number),
                        Transport::Udp => udp::end(&self, number),
                    };
                    done.send(has_ended).ok();
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

    /// Starts accepting or receiving.
    fn listen(
        self: &Rc<Self>,
        key: Arc<SocketKey>,
        socket: Socket,
    ) -> io::Result<mpsc::Sender<Closing>> {
        let socket = sys::watched(socket)?;
        let (close, closing) = mpsc::channel(1);
        match key.transport {
            Transport::Tcp => {
                let key = Rc::new(SocketKey::clone(&key));
                let accept = tcp::accept_loop(Rc::clone(self), key, socket, closing);
                tokio::task::spawn_local(accept);
            }
            Transport::Udp => udp::listen(self, key, socket, closing)?,
        }
        Ok(close)
    }

    /// The plan in force.
    pub(crate) fn plan(&self) -> WorkerPlan {
        self.plan.borrow_mut().get()
    }

    /// The number of connections of this worker.
    pub(crate) fn load(&self) -> &AtomicUsize {
        &self.shared.loads[self.id.0]
    }

    /// A random unique id for one connection.
    pub(crate) fn fresh_id(&self) -> [u8; 16] {
        let mut rng = self.rng.borrow_mut();
        let mut id = [0; 16];
        let (high, low) = id.split_at_mut(8);
        high.copy_from_slice(&rng.next_u64().to_be_bytes());
        low.copy_from_slice(&rng.next_u64().to_be_bytes());
        id
    }

    /// Counts the bytes that were spliced since the last call.
    pub(crate) fn count_spliced(&self) {
        let spliced = self.tools.pipes.take_spliced();
        if spliced > 0 {
            self.counters().spliced.add(spliced);
        }
    }

    pub(crate) fn counters(&self) -> &WorkerCounters {
        self.shared.counters.of(self.id)
    }
}
