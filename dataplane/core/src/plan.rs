//! The compiled table: everything that an accepted connection needs, found with one look-up.
//!
//! Only [`crate::compile`] makes it; it is shared behind one pointer and never changes. State that outlives a plan is attached
//! by identity: [`FrontendState`] by the frontend's name, and the state in [`crate::service`] by service and endpoint.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::admit::{AdmitState, Limits, PrefixSet, Refusal};
use crate::backends::Backends;
use crate::counters;
use crate::counters::{Counts, PerWorker, WorkerId};
use crate::endpoint::EndpointState;
use crate::handshake::HandshakeResult;
use crate::http::StatusClass;
use crate::loops::Loops;
use crate::moment::Moment;
use crate::overrides::{OverrideChange, OverrideRefusal, Overrides};
use crate::preamble::Versions;
use crate::route::SniRoutes;
use crate::service::{Node, Service};
use crate::table::{self, ClientAuth, Name};
use crate::udp_counters::{UdpCounters, UdpCounts};

mod http;

pub use crate::records::{RouteRecords, Tally};
pub use crate::socket_key::SocketKey;
pub use crate::table::Transport;
pub use http::{HttpFrontend, HttpOptions};

/// A compiled table.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) generation: Option<u64>,
    pub(crate) stats: Option<table::Stats>,
    pub(crate) ticket_keys: Option<table::File>,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) loops: Loops,
    pub(crate) frontends: Vec<Arc<Frontend>>,
    pub(crate) by_socket: FxHashMap<SocketKey, Arc<Frontend>>,
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) by_name: FxHashMap<Name, usize>,
    pub(crate) nodes: FxHashMap<Box<str>, OnNode>,
    /// Removed frontends that still have connections. One that returns gets its state back.
    pub(crate) left: FxHashMap<Name, Arc<FrontendState>>,
    /// Endpoints of earlier plans, and through them their services; see [`crate::compile`].
    pub(crate) leaving: Vec<Arc<EndpointState>>,
}

impl Plan {
    /// The table's generation, if it has one.
    pub fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// The admin addresses that the table asks for; `None` before the first table.
    pub fn stats(&self) -> Option<&table::Stats> {
        self.stats.as_ref()
    }

    /// The file with the keys of TLS session tickets, if the table names one.
    pub fn ticket_keys(&self) -> Option<&table::File> {
        self.ticket_keys.as_ref()
    }

    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Why this change cannot be made to `overrides` and the table of this plan.
    #[must_use]
    pub fn refuses(
        &self,
        overrides: &Overrides,
        change: &OverrideChange,
    ) -> Option<OverrideRefusal> {
        overrides.refuses(change, |service| Some(self.service(service)?.table()))
    }

    /// The loop that this change makes in this plan, which was compiled with it.
    #[must_use]
    pub fn loop_by(&self, change: &OverrideChange) -> Option<OverrideRefusal> {
        let OverrideChange::Address(service, _, Some(wanted)) = change else {
            return None;
        };
        let mut endpoints = self.service(service)?.endpoints().iter();
        let closes = endpoints.any(|one| one.address() == *wanted && one.closes_loop());
        closes.then_some(OverrideRefusal::Loop(*wanted))
    }

    /// Which endpoints are frontends of this plan, and to which of them no client is sent.
    pub fn loops(&self) -> &Loops {
        &self.loops
    }

    pub fn frontend(&self, socket: &SocketKey) -> Option<&Arc<Frontend>> {
        self.by_socket.get(socket)
    }

    /// All frontends, in the order of the table.
    pub fn frontends(&self) -> &[Arc<Frontend>] {
        &self.frontends
    }

    pub fn service(&self, name: &str) -> Option<&Arc<Service>> {
        self.services.get(*self.by_name.get(name)?)
    }

    /// All services, in the order of the table.
    pub fn services(&self) -> &[Arc<Service>] {
        &self.services
    }

    /// Ejects the endpoints that run on `node`, in every service. Returns their number.
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
    /// Whether an operator has closed it.
    pub(crate) is_closed: bool,
    pub(crate) client_timeout: Option<Duration>,
    pub(crate) client_fin: Duration,
    pub(crate) preamble_timeout: Duration,
    pub(crate) records: Option<Arc<RouteRecords>>,
    pub(crate) state: Arc<FrontendState>,
}

impl Frontend {
    /// The frontend in the table.
    pub fn spec(&self) -> &Arc<table::Frontend> {
        &self.spec
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The binds in the table.
    pub fn binds(&self) -> &[table::Bind] {
        &self.binds
    }

    /// The sockets for these binds.
    pub fn sockets(&self) -> &[SocketKey] {
        &self.sockets
    }

    pub fn serves(&self) -> &Serves {
        &self.serves
    }

    /// The peers from which PROXY headers are read.
    pub fn accept_proxy(&self) -> Option<&AcceptProxy> {
        self.accept_proxy.as_ref()
    }

    /// How certificates of its clients are asked for; `None`: they are not.
    #[must_use]
    pub fn client_auth(&self) -> Option<&ClientAuth> {
        self.spec().tls.as_deref()?.client_auth.as_ref()
    }

    /// Its admission limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether connections above a limit wait in the kernel's backlog; else they are reset.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// The client's idle timeout; `None` means unlimited.
    pub fn client_timeout(&self) -> Option<Duration> {
        self.client_timeout
    }

    /// The client's timeout once one direction has ended.
    pub fn client_fin(&self) -> Duration {
        self.client_fin
    }

    /// The timeout for the PROXY header of a trusted peer.
    pub fn preamble_timeout(&self) -> Duration {
        self.preamble_timeout
    }

    /// What is recorded of its routes and backends, beyond this plan; `None`: nothing.
    pub fn records(&self) -> Option<&Arc<RouteRecords>> {
        self.records.as_ref()
    }

    /// Its state, which outlives this plan.
    pub fn state(&self) -> &Arc<FrontendState> {
        &self.state
    }

    /// Whether it listens, and if not, why.
    #[must_use]
    pub fn listens(&self) -> Listens {
        match &self.serves {
            _ if self.is_closed => Listens::Closed,
            Serves::Nothing => Listens::Idle,
            Serves::Http(_) | Serves::Tls(_) => Listens::Yes,
            Serves::Tcp(backends) | Serves::Udp(backends) => {
                let mut services = backends.services();
                // What an operator disables by hand closes no port, and what one enables opens it.
                let is_idle = services.all(|service| {
                    let endpoints = service.endpoints().iter();
                    let mut endpoints = endpoints.zip(&service.spec().endpoints);
                    endpoints.all(|(endpoint, table)| {
                        [endpoint.state(), table.state] == [table::State::Disabled; 2]
                    })
                });
                if is_idle { Listens::Idle } else { Listens::Yes }
            }
        }
    }
}

/// The compiled service or routes of a frontend, by its protocol.
#[derive(Debug)]
pub enum Serves {
    /// TCP connections are relayed to one of these services. TLS may end at the frontend: `spec().tls`.
    Tcp(Backends),
    /// UDP datagrams are forwarded to one of these services.
    Udp(Backends),
    /// HTTP is spoken with clients, in TLS or not.
    Http(Arc<HttpFrontend>),
    /// TLS connections are relayed unopened.
    Tls(Arc<SniRoutes>),
    /// The service of the frontend does not exist. No valid table has such a frontend.
    Nothing,
}

/// Whether a frontend listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listens {
    Yes,
    /// All endpoints of its service are disabled in the table, and none was enabled by hand: connections are refused.
    Idle,
    /// An operator has closed it: connections are refused.
    Closed,
}

/// From which peers a PROXY header is read, and in which versions.
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

    pub fn versions(&self) -> Versions {
        self.versions
    }
}

/// The state of a frontend while the process lives.
#[derive(Debug)]
pub struct FrontendState {
    name: Name,
    admit: Arc<AdmitState>,
    counters: PerWorker<FrontendCounters>,
    udp: OnceLock<PerWorker<UdpCounters>>,
    workers: usize,
}

impl FrontendState {
    pub fn new(name: &Name, seed: u64, workers: usize) -> Self {
        Self {
            name: name.clone(),
            admit: Arc::new(AdmitState::new(seed)),
            counters: PerWorker::new(workers),
            udp: OnceLock::new(),
            workers,
        }
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its admissions.
    pub fn admit(&self) -> &Arc<AdmitState> {
        &self.admit
    }

    pub fn counters(&self) -> &PerWorker<FrontendCounters> {
        &self.counters
    }

    /// The sums of its counters over all workers.
    #[must_use]
    pub fn counts(&self) -> FrontendCounts {
        Counts::of(Some(&self.counters))
    }

    /// The sums of its counters of datagrams and flows over all workers.
    #[must_use]
    pub fn udp_counts(&self) -> UdpCounts {
        Counts::of(self.all_udp_counters())
    }

    /// What `worker` counts here of datagrams and flows.
    pub fn udp_counters(&self, worker: WorkerId) -> &UdpCounters {
        self.udp
            .get_or_init(|| PerWorker::new(self.workers))
            .of(worker)
    }

    /// The counters of all workers for datagrams and flows, if there ever were any.
    pub fn all_udp_counters(&self) -> Option<&PerWorker<UdpCounters>> {
        self.udp.get()
    }
}

counters! {
    /// The counters of one worker for one frontend. The names in brackets are haproxy's columns.
    pub FrontendCounters,
    /// The sums over all workers.
    FrontendCounts {
        /// Connections accepted (`conn_tot`).
        connections: Sum;
        /// Admitted connections (`stot`).
        sessions: Sum;
        /// Bytes from clients (`bin`).
        bytes_in: Sum;
        /// Bytes to clients (`bout`).
        bytes_out: Sum;
        /// Refused clients, by [`Refusal::index`].
        refused: Sum[Refusal] => json(), failure(""), metric("ballast_connections_refused_total", "Clients that were turned away, by reason.");
        /// TLS handshakes, by [`HandshakeResult::index`].
        handshakes: Sum[HandshakeResult] => json();
        /// Peers that sent a broken PROXY header (a part of `ereq`).
        bad_headers: Sum => json(), failure("bad-header");
        /// Peers whose PROXY header did not arrive in time (a part of `ereq`).
        late_headers: Sum => json(), failure("late-header");
        /// Peers that left without sending a byte where a header was due.
        port_probes: Sum;
        /// Clients that speak HTTP (`h1sess` and `h2sess`).
        http_sessions: Sum;
        /// Clients that speak HTTP/2 (`h2sess`, a part of those above).
        http2_sessions: Sum;
        /// Requests of HTTP/2 (`h2req`, a part of `req_tot`).
        http2_requests: Sum;
        /// Requests of HTTP, malformed ones included (`req_tot`).
        requests: Sum;
        /// Responses to clients, Ballast's own answers included, by [`StatusClass::index`] (`hrsp_1xx` and so on).
        responses: Sum[StatusClass];
        /// Requests that a route has answered or redirected (`intercepted`).
        intercepted: Sum;
        /// Requests that the source ranges of a route do not allow, and misdirected ones, which are answered 421 (`dreq`).
        denied_requests: Sum => failure("denied-request");
        /// Requests that were malformed or not whole in time (a part of `ereq`).
        bad_requests: Sum => failure("bad-request");
    }
}
