//! The compiled table: what an accepted connection needs to know, found with one look-up.
//!
//! Made by [`crate::compile`] alone, shared behind one pointer, never changed. What lives longer than a plan hangs off
//! it by identity: [`FrontendState`] by the frontend's name, and what [`crate::service`] keeps by service and endpoint.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::admit::{AdmitState, Limits, PrefixSet, Refusal};
use crate::counters::{Cell, PerWorker, WorkerId};
use crate::endpoint::EndpointState;
use crate::flow::UdpCounters;
use crate::loops::Loops;
use crate::moment::Moment;
use crate::overrides::Overrides;
use crate::preamble::Versions;
use crate::service::{Node, Service};
use crate::table::{self, Name};

/// One table, ready to be served.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) generation: Option<u64>,
    pub(crate) stats: Option<table::Stats>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) loops: Loops,
    pub(crate) frontends: Vec<Arc<Frontend>>,
    pub(crate) by_socket: FxHashMap<SocketKey, Arc<Frontend>>,
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) by_name: FxHashMap<Name, usize>,
    pub(crate) nodes: FxHashMap<Box<str>, OnNode>,
    /// Frontends that left and still have connections: one that comes back is the same one.
    pub(crate) left: FxHashMap<Name, Arc<FrontendState>>,
    /// Endpoints of earlier plans, and by them the services of those; see [`crate::compile`].
    pub(crate) leaving: Vec<Arc<EndpointState>>,
}

impl Plan {
    /// The table's number, if it has one.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// The admin addresses that the table asks for; `None` before the first table.
    #[must_use]
    pub fn stats(&self) -> Option<&table::Stats> {
        self.stats.as_ref()
    }

    /// What operators changed by hand.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Which endpoints are frontends of this plan, and which of those no client is sent to.
    #[must_use]
    pub fn loops(&self) -> &Loops {
        &self.loops
    }

    /// Whose clients connect to this socket.
    #[must_use]
    pub fn frontend(&self, socket: &SocketKey) -> Option<&Arc<Frontend>> {
        self.by_socket.get(socket)
    }

    /// All frontends, in the order of the table.
    #[must_use]
    pub fn frontends(&self) -> &[Arc<Frontend>] {
        &self.frontends
    }

    /// The service of this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Arc<Service>> {
        self.services.get(*self.by_name.get(name)?)
    }

    /// All services, in the order of the table.
    #[must_use]
    pub fn services(&self) -> &[Arc<Service>] {
        &self.services
    }

    /// Ejects, in every service, the endpoints that run on `node`. Says how many those were.
    pub fn eject_node(&self, node: &Arc<Node>, now: Moment) -> usize {
        let Some(on) = self.nodes.get(node.name()) else {
            return 0;
        };
        on.services
            .iter()
            .filter_map(|index| self.services.get(*index))
            .map(|service| service.eject_node(node, now))
            .sum()
    }
}

/// A node, and the services that have endpoints there.
#[derive(Debug)]
pub(crate) struct OnNode {
    pub(crate) node: Arc<Node>,
    pub(crate) services: Vec<usize>,
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Transport {
    /// What this protocol is spoken over.
    #[must_use]
    pub fn of(protocol: table::Protocol) -> Self {
        match protocol.is_udp() {
            true => Self::Udp,
            false => Self::Tcp,
        }
    }
}

/// The identity of a listening socket: it lives as long as some applied table wants it, whoever uses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketKey {
    /// What it carries.
    pub transport: Transport,
    /// Where it is bound, as the table says.
    pub address: SocketAddr,
    /// Port 0 is a different port for everybody who asks; all other sockets belong to no frontend.
    pub asked_by: Option<Name>,
}

impl fmt::Display for SocketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

/// What clients connect to, compiled.
#[derive(Debug)]
pub struct Frontend {
    pub(crate) spec: Arc<table::Frontend>,
    pub(crate) name: Name,
    pub(crate) binds: Vec<table::Bind>,
    pub(crate) sockets: Vec<SocketKey>,
    pub(crate) serves: Serves,
    pub(crate) accept_proxy: Option<AcceptProxy>,
    pub(crate) limits: Limits,
    pub(crate) waits: bool,
    pub(crate) client_timeout: Option<Duration>,
    pub(crate) client_fin: Duration,
    pub(crate) preamble_timeout: Duration,
    pub(crate) state: Arc<FrontendState>,
}

impl Frontend {
    /// What the table says of it.
    #[must_use]
    pub fn spec(&self) -> &Arc<table::Frontend> {
        &self.spec
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Where it listens, or would, as the table says.
    #[must_use]
    pub fn binds(&self) -> &[table::Bind] {
        &self.binds
    }

    /// The sockets for that.
    #[must_use]
    pub fn sockets(&self) -> &[SocketKey] {
        &self.sockets
    }

    /// What it does with a connection.
    #[must_use]
    pub fn serves(&self) -> &Serves {
        &self.serves
    }

    /// From whom PROXY headers are read.
    #[must_use]
    pub fn accept_proxy(&self) -> Option<&AcceptProxy> {
        self.accept_proxy.as_ref()
    }

    /// Who may come, and how many.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether connections above a limit wait in the kernel's backlog; else they are reset.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// How long the client's side may be silent; `None`: for ever.
    #[must_use]
    pub fn client_timeout(&self) -> Option<Duration> {
        self.client_timeout
    }

    /// The same, once one direction has ended.
    #[must_use]
    pub fn client_fin(&self) -> Duration {
        self.client_fin
    }

    /// How long a trusted peer may take for its PROXY header.
    #[must_use]
    pub fn preamble_timeout(&self) -> Duration {
        self.preamble_timeout
    }

    /// What outlives this plan.
    #[must_use]
    pub fn state(&self) -> &Arc<FrontendState> {
        &self.state
    }

    /// Whether it listens, and if not, why.
    #[must_use]
    pub fn listens(&self) -> Listens {
        match &self.serves {
            Serves::NotYet(_) => Listens::NotYetServed,
            Serves::Tcp(service) | Serves::Udp(service) => {
                let endpoints = &service.spec().endpoints;
                if endpoints
                    .iter()
                    .all(|endpoint| endpoint.state == table::State::Disabled)
                {
                    Listens::Idle
                } else {
                    Listens::Yes
                }
            }
        }
    }
}

/// What a frontend does with what comes.
#[derive(Debug)]
pub enum Serves {
    /// Relays its bytes.
    Tcp(Arc<Service>),
    /// Passes its datagrams on.
    Udp(Arc<Service>),
    /// Nothing: this is not built yet, and nothing else may stand in for it.
    NotYet(&'static str),
}

/// Whether a frontend wants its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listens {
    /// It does.
    Yes,
    /// Its service has no endpoint that the table does not call disabled: connections are refused.
    Idle,
    /// What it asks for is not built yet.
    NotYetServed,
}

/// From whom a PROXY header is read, and which.
#[derive(Debug)]
pub struct AcceptProxy {
    pub(crate) from: PrefixSet,
    pub(crate) versions: Versions,
}

impl AcceptProxy {
    /// Whether this peer must begin with a header.
    #[must_use]
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        self.from.contains(peer)
    }

    /// Which headers are understood.
    #[must_use]
    pub fn versions(&self) -> Versions {
        self.versions
    }
}

/// What is known of a frontend while the process lives.
#[derive(Debug)]
pub struct FrontendState {
    name: Name,
    admit: Arc<AdmitState>,
    counters: PerWorker<FrontendCounters>,
    udp: OnceLock<PerWorker<UdpCounters>>,
    workers: usize,
}

impl FrontendState {
    /// A frontend that nobody has used yet.
    #[must_use]
    pub fn new(name: &Name, seed: u64, workers: usize) -> Self {
        Self {
            name: name.clone(),
            admit: Arc::new(AdmitState::new(seed)),
            counters: PerWorker::new(workers),
            udp: OnceLock::new(),
            workers,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Who is in.
    #[must_use]
    pub fn admit(&self) -> &Arc<AdmitState> {
        &self.admit
    }

    /// What the workers count here.
    #[must_use]
    pub fn counters(&self) -> &PerWorker<FrontendCounters> {
        &self.counters
    }

    /// What `worker` counts here of datagrams and flows.
    #[must_use]
    pub fn udp_counters(&self, worker: WorkerId) -> &UdpCounters {
        self.udp
            .get_or_init(|| PerWorker::new(self.workers))
            .of(worker)
    }

    /// All workers' counters of datagrams and flows, where any ever came.
    #[must_use]
    pub fn all_udp_counters(&self) -> Option<&PerWorker<UdpCounters>> {
        self.udp.get()
    }
}

/// What one worker counts for one frontend. The names in brackets are haproxy's columns.
#[derive(Debug, Default)]
pub struct FrontendCounters {
    /// Connections accepted (`conn_tot`).
    pub connections: Cell,
    /// Connections that were let in (`stot`).
    pub sessions: Cell,
    /// Bytes from clients (`bin`).
    pub bytes_in: Cell,
    /// Bytes to clients (`bout`).
    pub bytes_out: Cell,
    /// Clients turned away, by [`Refusal::index`].
    pub refused: [Cell; Refusal::ALL.len()],
    /// Peers that sent a broken PROXY header (a part of `ereq`).
    pub bad_headers: Cell,
    /// Peers that owed a PROXY header for too long (a part of `ereq`).
    pub late_headers: Cell,
    /// Peers that connected and left without a byte where a header was due.
    pub port_probes: Cell,
}
