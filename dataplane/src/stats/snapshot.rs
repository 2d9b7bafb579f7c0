//! All counters at one moment, as plain values: everything that is rendered from one snapshot agrees.
//!
//! Made by the observer, read by every rendering.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::ack::{Exception, ExceptionState};
use ballast_core::admit::Refusal;
use ballast_core::certificate::Validity;
use ballast_core::counters::Counts;
use ballast_core::endpoint::EndpointCounts;
use ballast_core::flow::{Dropped, UdpCounts};
use ballast_core::handshake::HandshakeResult;
use ballast_core::moment::Moment;
use ballast_core::plan::FrontendCounts;
use ballast_core::service::ServiceCounts;
use ballast_core::table::{self, Name};
use ballast_core::words;

use super::check::CheckStats;
use super::meter::Rate;
pub use crate::net::tls::ServedCertificate;
use crate::worker::WorkerCounts;
use crate::worker::status::Swaps;

/// All counters at one moment, in the order of the table.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// When.
    pub taken: Moment,
    /// What concerns everybody.
    pub process: Process,
    /// What clients connect to.
    pub frontends: Vec<FrontendStats>,
    /// Where they go.
    pub services: Vec<ServiceStats>,
}

#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The machine.
    pub node: Arc<str>,
    pub pid: u32,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// For how long it runs.
    pub uptime: Duration,
    /// Worker threads.
    pub workers: u32,
    /// What each of them has.
    pub each_worker: Vec<OneWorker>,
    /// Whether clients should be sent here.
    pub is_ready: bool,
    /// Whether the end has begun.
    pub is_stopping: bool,
    /// The number of the table in force.
    pub generation: Option<u64>,
    /// When that was applied, in seconds since 1970; 0: never.
    pub applied: u64,
    /// Tables that were refused.
    pub refused: u64,
    /// Why the latest table was refused, if it was.
    pub refusal: Option<Arc<str>>,
    /// What does not listen as it was asked for, and why.
    pub exceptions: Arc<[Arc<str>]>,
    /// The same by the name of the frontend.
    pub of_frontends: Arc<HashMap<Name, Vec<Exception>>>,
    /// Earlier plans that are still in use.
    pub retired: u64,
    /// How long swaps took.
    pub swaps: Swaps,
    /// Connections now.
    pub current: u32,
    /// Flows of datagrams now.
    pub flows: u32,
    /// The most connections that there may be.
    pub limit: u32,
    /// The most flows that there may be.
    pub most_flows: u32,
    /// The most pipes that there may be, for bytes that go from socket to socket without a copy.
    pub most_pipes: u32,
    /// Pipes in use.
    pub pipes_used: u32,
    /// Pipes that are open and wait for use.
    pub pipes_free: u32,
    /// Tasks of all threads.
    pub tasks: u32,
    /// Tasks that were woken by another thread and have not run yet.
    pub ready_tasks: u32,
    /// Descriptors that there may be.
    pub descriptors: u64,
    pub listening: u32,
    /// Connections that were accepted.
    pub connections: u64,
    /// Accepted in a second.
    pub connection_rate: Rate,
    /// Connections that were let in.
    pub sessions: u64,
    /// Requests of HTTP, and connections without HTTP that were let in.
    pub requests: u64,
    /// Let in in a second.
    pub session_rate: Rate,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Bytes to clients in a second.
    pub byte_rate: Rate,
    /// Bytes that went through pipes.
    pub spliced: u64,
    /// How much of the workers' time is left, in percent.
    pub idle: u32,
    /// Failed accepts by the system's error number.
    pub accept_errors: Vec<(i32, u64)>,
    /// Tasks that ended in a panic.
    pub panics: u64,
    /// Access lines that were not written, or not in time.
    pub access_dropped: u64,
    /// Lines of the process's own log that were not written, or not in time.
    pub log_dropped: u64,
}

/// One worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneWorker {
    /// Connections that it serves now.
    pub current: u64,
    pub counts: WorkerCounts,
}

words! {
    /// What is spoken, as far as the columns tell it apart.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Mode {
        Udp = "udp",
        #[default]
        Tcp = "tcp",
        Http = "http",
    }
}

#[derive(Debug)]
pub struct FrontendStats {
    pub name: Name,
    /// A number that no other frontend or service has while the name lives.
    pub iid: u32,
    /// What the table says of it.
    pub spec: Arc<table::Frontend>,
    /// What is spoken there.
    pub mode: Mode,
    /// Whether it listens.
    pub is_open: bool,
    /// Whether it does not because an operator has closed it.
    pub is_paused: bool,
    /// What it does not serve as the table asks.
    pub exceptions: Vec<Exception>,
    /// Connections now.
    pub current: u32,
    /// The most at once.
    pub peak: u32,
    /// The most that there may be.
    pub limit: u32,
    /// Whether an operator changed that.
    pub is_overridden: bool,
    pub counts: FrontendCounts,
    /// What they counted of datagrams and flows, where the frontend is about these.
    pub datagrams: Option<Box<UdpCounts>>,
    /// What they counted of its routes and backends.
    pub routes: RouteStats,
    /// Connections let in in a second.
    pub session_rate: Rate,
    /// Connections accepted in a second.
    pub connection_rate: Rate,
    /// Requests of HTTP in a second.
    pub request_rate: Rate,
    /// The certificates that it serves, where TLS ends there.
    pub certificates: Option<Certificates>,
}

impl FrontendStats {
    /// haproxy's word for whether it listens.
    pub(crate) fn status_word(&self) -> &'static str {
        match (self.is_open, self.is_paused) {
            (true, _) => "OPEN",
            (false, true) => "PAUSED",
            (false, false) => "STOP",
        }
    }

    /// The state of a frontend that listens, but not at every address of the table: two words at most.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        let has = |state| self.exceptions.iter().any(|one| one.state == state);
        match self.is_open {
            true if has(ExceptionState::Failed) => Some("in part"),
            true if has(ExceptionState::NotLocal) => Some("not local"),
            _ => None,
        }
    }
}

/// The certificates of a frontend at one moment.
#[derive(Debug)]
pub struct Certificates {
    /// In the order of the table.
    pub served: Arc<[ServedCertificate]>,
    /// When, in seconds since 1970.
    pub now: u64,
}

impl Certificates {
    pub fn each(&self) -> impl Iterator<Item = (&ServedCertificate, Validity)> {
        let served = self.served.iter();
        served.map(|certificate| (certificate, certificate.period.at(self.now)))
    }

    /// The worst of those that are not valid, or soon will not be, and how many these are.
    pub(crate) fn worst(&self) -> Option<(&ServedCertificate, Validity, usize)> {
        let invalid = || {
            self.each()
                .filter(|(_, validity)| *validity > Validity::Valid)
        };
        let (certificate, validity) = invalid().max_by_key(|(_, validity)| *validity)?;
        Some((certificate, validity, invalid().count()))
    }
}

impl FrontendStats {
    /// Clients that were not let in, and requests that a route denied.
    pub(crate) fn all_denied(&self) -> u64 {
        self.denied() + self.counts.denied_requests
    }

    /// Clients that were not let in.
    pub fn denied(&self) -> u64 {
        let refused = DENIED.map(|refusal| self.counts.refused[refusal.index()]);
        let dropped = [Dropped::SourceRange, Dropped::MaxConnections].map(|why| self.dropped(why));
        refused.iter().chain(&dropped).sum()
    }

    /// Clients that sent something wrong, or nothing in time.
    pub fn bad_requests(&self) -> u64 {
        let counts = &self.counts;
        counts.bad_headers
            + counts.late_headers
            + counts.bad_requests
            + self.dropped(Dropped::ProxyHeader)
            + self
                .failed_handshakes()
                .map(|(_, count)| count)
                .sum::<u64>()
    }

    /// The TLS handshakes that failed, by reason.
    fn failed_handshakes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let results = HandshakeResult::ALL.iter();
        results
            .filter_map(|result| Some((result.failure()?, self.counts.handshakes[result.index()])))
    }

    /// Everything that went wrong here.
    pub fn errors(&self) -> u64 {
        self.failures().map(|(_, count)| count).sum()
    }

    /// Everything that went wrong here, by reason.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_datagrams = self
            .datagrams
            .iter()
            .flat_map(|datagrams| datagrams.failures());
        let of_tls = self.failed_handshakes();
        self.counts.failures().chain(of_tls).chain(of_datagrams)
    }

    /// The requests of its routes, by what each is called: its name, or host and path. Routes of the same host and path count
    /// together.
    pub(crate) fn requests_by_route(&self) -> BTreeMap<Cow<'_, str>, u64> {
        let mut requests = BTreeMap::new();
        let routes = self.spec.all_routes().zip(&self.routes.requests);
        for (place, (route, count)) in routes.enumerate() {
            let called = match (&route.name, &route.host) {
                (Some(name), _) => Cow::Borrowed(&**name),
                (None, _) if place >= self.spec.routes.len() => "*".into(),
                (None, Some(host)) => format!("{host}{}", route.path()).into(),
                (None, None) => format!("*{}", route.path()).into(),
            };
            *requests.entry(called).or_default() += count;
        }
        requests
    }

    fn dropped(&self, why: Dropped) -> u64 {
        let datagrams = self.datagrams.as_deref();
        datagrams.map_or(0, |datagrams| datagrams.dropped[why.index()])
    }
}

/// What was counted of a frontend's routes and backends.
#[derive(Debug, Default)]
pub struct RouteStats {
    /// The requests of each route, in the order of the table, the default last.
    pub requests: Vec<u64>,
    /// How often each service was chosen.
    pub choices: Vec<Choice>,
}

/// How often a service was chosen among backends.
#[derive(Debug)]
pub struct Choice {
    /// The name of the route; `None`: all routes without a name, or the frontend itself.
    pub route: Option<Name>,
    pub service: Name,
    /// How often.
    pub count: u64,
}

#[derive(Debug)]
pub struct ServiceStats {
    pub name: Name,
    /// A number that no other frontend or service has while the name lives.
    pub iid: u32,
    /// What the table says of it.
    pub spec: Arc<table::Service>,
    /// What its frontends speak.
    pub mode: Mode,
    /// Why no TLS is spoken with its endpoints, though the table asks for it, so that none is connected to.
    pub tls_problem: Option<Box<str>>,
    /// Clients that wait.
    pub queue: u32,
    /// The most that waited at once.
    pub queue_peak: u32,
    /// Sessions now.
    pub current: u32,
    /// The most at once.
    pub peak: u32,
    /// The most that there may be at once.
    pub limit: u32,
    /// Whether checks are ignored now.
    pub is_panicking: bool,
    /// How often an endpoint went down within a minute of having come back.
    pub flaps: u64,
    /// What the workers counted for the service itself.
    pub own: ServiceCounts,
    /// What they counted for its endpoints, in sum. Endpoints that left the table are included, so that no count ever
    /// goes back.
    pub counts: EndpointCounts,
    /// Seconds since its last session began; -1: there was none.
    pub idle: i32,
    /// Ready endpoints that can be used.
    pub usable: u32,
    /// Backup endpoints that can be used.
    pub usable_backups: u32,
    /// The weight of the endpoints that are used: the ready ones, or the backups where there is no ready one.
    pub weight: u32,
    /// The same, however far they have grown into it.
    pub user_weight: u32,
    /// Clients in a second.
    pub session_rate: Rate,
    /// Recent means.
    pub means: Means,
    /// Seconds since it came up or went down.
    pub changed: u32,
    /// Its endpoints, in the order of the table.
    pub endpoints: Vec<EndpointStats>,
}

impl ServiceStats {
    /// Whether clients can be served; true for a service without endpoints.
    pub fn is_up(&self) -> bool {
        let is_usable = self.usable + self.usable_backups > 0 && self.tls_problem.is_none();
        is_usable || self.endpoints.is_empty()
    }

    /// Everything that went wrong here, by reason.
    pub(crate) fn failures(&self) -> [(&'static str, u64); 3] {
        let Self { counts, own, .. } = self;
        [
            ("connect", counts.connect_errors),
            ("response", counts.response_errors),
            ("unserved", own.unserved),
        ]
    }

    /// Everything that went wrong here.
    pub fn errors(&self) -> u64 {
        self.failures().iter().map(|(_, count)| count).sum()
    }
}

#[derive(Debug)]
pub struct EndpointStats {
    /// Its name; where the table gives none, its address.
    pub name: Arc<str>,
    /// Where it is.
    pub address: SocketAddr,
    /// Its number within its service, the same for as long as its address stays in the table.
    pub sid: u32,
    pub status: Status,
    /// Whether it is there for the case that no ready one is.
    pub is_backup: bool,
    /// Idle connections to it that all clients share, and every request may use.
    pub idle_safe: u32,
    /// Idle connections to it that all clients share, but for first requests that may not be repeated.
    pub idle_unsafe: u32,
    /// Idle connections to it that belong to one client.
    pub idle_private: u32,
    /// Its address in the table, if an operator has given it another one.
    pub moved_from: Option<SocketAddr>,
    /// The port of its checks, where that is not its own.
    pub check_port: Option<NonZeroU16>,
    /// Whether an operator changed its state, its weight, its limit, its address or the port of its checks.
    pub is_overridden: bool,
    /// Its weight, as far as it has grown into it.
    pub weight: u32,
    /// Its weight, an operator's word considered.
    pub user_weight: u32,
    /// How much of its weight it has reached, in percent, while it grows.
    pub growth: Option<u8>,
    /// For how long it will be kept out because it could not be reached.
    pub ejected: Option<Duration>,
    /// It leads its clients back to this service, and gets none.
    pub closes_loop: bool,
    /// Sessions now.
    pub current: u32,
    /// The most at once.
    pub peak: u32,
    /// The most that there may be.
    pub limit: Option<u32>,
    pub counts: EndpointCounts,
    /// Seconds since its last session began; -1: there was none.
    pub idle: i32,
    /// Sessions in a second.
    pub session_rate: Rate,
    /// Recent means.
    pub means: Means,
    /// Seconds since its status changed.
    pub changed: u32,
    /// Its checks, if it has any.
    pub check: Option<Box<CheckStats>>,
    /// Where it runs.
    pub node: Option<table::Tag>,
    pub zone: Option<table::Tag>,
}

impl EndpointStats {
    /// Its address in the table, by which changes by hand name it: an operator may have given it another one.
    pub(crate) fn in_table(&self) -> SocketAddr {
        self.moved_from.unwrap_or(self.address)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// In a word.
    pub kind: StatusKind,
    /// How many checks speak for a change, and how many it takes.
    pub progress: Option<(u8, u8)>,
}

words! {
    /// The status of an endpoint, in haproxy's word.
    pub enum StatusKind {
        Unchecked = "no check",
        /// Its checks pass.
        Up = "UP",
        /// Its checks fail, or it could not be reached and is kept out for a while.
        Down = "DOWN",
        /// Only clients that have affinity get it.
        Draining = "DRAIN",
        /// The same, because an operator says so until its next check passes.
        Stopping = "NOLB",
        /// No client gets it.
        Maintenance = "MAINT",
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        match self.progress {
            Some((done, of)) => write!(f, " {done}/{of}"),
            None => Ok(()),
        }
    }
}

/// Recent means, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    pub queue: u32,
    /// Until connected.
    pub connect: u32,
    /// From then to the head of an HTTP response.
    pub response: u32,
    /// From accept to end.
    pub total: u32,
}

/// The refusals of clients that were not let in. The others found no endpoint.
const DENIED: [Refusal; 4] = [
    Refusal::SourceRange,
    Refusal::MaxConnections,
    Refusal::MaxConnectionsPerClient,
    Refusal::MaxConnectionRatePerClient,
];
