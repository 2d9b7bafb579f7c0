//! What a worker owns, what it shares with other threads, and the orders that it is given.
//!
//! This room imports `access`, `process`, `net` and `os`. `runtime` carries the orders out.
//!
//! A worker is a thread with a runtime of its own. It accepts from its own listening sockets. It may hand a new connection over
//! to a worker that has fewer, before the first byte; afterwards the connection stays with its worker, and no wake-up crosses
//! threads.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use ballast_core::counters::WorkerId;
use ballast_core::rng::Rng;

use crate::net::poller::Poller;
use crate::net::relay::Tools;
use crate::net::tls::Scratch;

mod bad_request;
pub mod live;
pub(crate) mod override_request;
pub mod status;

pub(crate) mod buffers;
mod connection;
mod connections;
mod entry;
mod lines;
mod order;
mod plan;
pub(crate) mod pool;
mod shared;

pub(crate) use bad_request::LastBadRequest;
use buffers::Buffers;
pub(crate) use connection::{Accepted, Connection, PassedOn, ProxyInfo, reset_on_close};
pub(crate) use connections::{ConnectionList, SessionInfo, Whereabouts};
pub(crate) use entry::Entry;
pub(crate) use lines::{Lines, hand_over_in_time};
pub(crate) use order::{Close, Closing, Order};
use plan::CachedPlan;
pub(crate) use plan::WorkerPlan;
use pool::Pool;
pub(crate) use shared::{FaultInjection, Stage};
pub use shared::{Load, Shared, WorkerCounters, WorkerCounts};

#[derive(Debug)]
pub(crate) struct Worker {
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
    /// Whether idle HTTP connections of a process that is ending stay until their next response.
    pub(crate) keeps_idle: Cell<bool>,
    /// How many HTTP clients above the limit of their frontend it is answering.
    pub(crate) refusing: Cell<usize>,
    /// The access lines of its HTTP requests.
    pub lines: Lines,
    pub connections: RefCell<ConnectionList>,
    /// The buffers of its TLS sessions.
    pub(crate) tls: Rc<Scratch>,
    plan: RefCell<CachedPlan>,
}

impl Worker {
    /// Creates a worker with at most `pipes` pipes.
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        pipes: usize,
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
            lines: Lines::new(&shared),
            shared,
            rng: RefCell::new(rng),
            pool: Pool::default(),
            buffers: Rc::default(),
            is_draining: Cell::new(false),
            keeps_idle: Cell::new(false),
            refusing: Cell::new(0),
            connections: RefCell::default(),
            tls: Rc::default(),
            plan,
        }))
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
