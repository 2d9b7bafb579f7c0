//! One look at everything that is counted. Plain values: what is rendered from a snapshot agrees with itself.
//!
//! Made by the observer, read by every rendering.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::endpoint::EndpointCounters;
use ballast_core::flow::Dropped;
use ballast_core::moment::Moment;
use ballast_core::service::EjectionReason;
use ballast_core::table::{self, Name};

use super::check::Check;
use super::datagrams::Datagrams;
use super::meter::Rate;
use super::workers::OneWorker;
use crate::status::Swaps;

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

/// The process and its table.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The machine.
    pub node: Arc<str>,
    /// Its process number.
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
    /// Earlier tables that somebody still uses.
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
    /// Addresses that it listens at.
    pub listening: u32,
    /// Connections that were accepted.
    pub connections: u64,
    /// Accepted in a second.
    pub connection_rate: Rate,
    /// Connections that were let in.
    pub sessions: u64,
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

/// What is spoken, as far as the columns tell it apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Datagrams.
    Udp,
    /// Bytes.
    #[default]
    Tcp,
    /// Requests.
    Http,
}

impl Mode {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Http => "http",
        }
    }
}

/// One frontend.
#[derive(Debug)]
pub struct FrontendStats {
    /// Its name.
    pub name: Name,
    /// A number that no other frontend or service has while the name lives.
    pub iid: u32,
    /// What the table says of it.
    pub spec: Arc<table::Frontend>,
    /// What is spoken there.
    pub mode: Mode,
    /// Whether it listens.
    pub is_open: bool,
    /// Connections now.
    pub current: u32,
    /// The most at once.
    pub peak: u32,
    /// The most that there may be.
    pub limit: u32,
    /// Whether an operator changed that.
    pub is_overridden: bool,
    /// Connections accepted.
    pub connections: u64,
    /// Connections let in.
    pub sessions: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Clients turned away, by [`Refusal::index`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Peers with a broken PROXY header.
    pub bad_headers: u64,
    /// Peers whose PROXY header was due for too long.
    pub late_headers: u64,
    /// What is counted of datagrams and flows, where it is about these.
    pub datagrams: Option<Box<Datagrams>>,
    /// Connections let in in a second.
    pub session_rate: Rate,
    /// Connections accepted in a second.
    pub connection_rate: Rate,
}

impl FrontendStats {
    /// How many were turned away for this reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused.get(refusal.index()).copied().unwrap_or(0)
    }

    /// Those who were not let in at all.
    #[must_use]
    pub fn denied(&self) -> u64 {
        let refused: u64 = DENIED.iter().map(|refusal| self.refused(*refusal)).sum();
        refused + self.datagrams.as_deref().map_or(0, Datagrams::denied)
    }

    /// Those who said something wrong, or nothing in time.
    #[must_use]
    pub fn bad_requests(&self) -> u64 {
        let broken = self.datagrams.as_deref();
        let broken = broken.map_or(0, |datagrams| datagrams.dropped(Dropped::ProxyHeader));
        self.bad_headers + self.late_headers + broken
    }

    /// Everything that went wrong here.
    #[must_use]
    pub fn errors(&self) -> u64 {
        let lost = self.datagrams.as_deref().map_or(0, Datagrams::lost);
        self.refused.iter().sum::<u64>() + self.bad_headers + self.late_headers + lost
    }
}

/// One service. What it counts is the sum over its endpoints, those that left the table included, so that no count
/// ever goes back.
#[derive(Debug)]
pub struct ServiceStats {
    /// Its name.
    pub name: Name,
    /// A number that no other frontend or service has while the name lives.
    pub iid: u32,
    /// What the table says of it.
    pub spec: Arc<table::Service>,
    /// What its frontends speak.
    pub mode: Mode,
    /// Clients that wait.
    pub queue: u32,
    /// The most that waited at once.
    pub queue_peak: u32,
    /// Sessions now.
    pub current: u32,
    /// The most at once.
    pub peak: u32,
    /// Clients that came.
    pub sessions: u64,
    /// Clients for which there was nobody to try.
    pub unserved: u64,
    /// Picks that ignored the checks.
    pub panics: u64,
    /// Whether checks are ignored now.
    pub is_panicking: bool,
    /// How often an endpoint went down within a minute of having come back.
    pub flaps: u64,
    /// Ejections, by [`EjectionReason::index`].
    pub ejections: [u64; EjectionReason::ALL.len()],
    /// The sum over its endpoints.
    pub counts: Counts,
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
    /// Seconds that it was down.
    pub downtime: u32,
    /// How often it went down.
    pub downs: u32,
    /// Its endpoints, in the order of the table.
    pub endpoints: Vec<EndpointStats>,
}

impl ServiceStats {
    /// Whether somebody can be served; true where nobody is meant to serve.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.usable + self.usable_backups > 0 || self.endpoints.is_empty()
    }

    /// Everything that went wrong here.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.counts.connect_errors + self.unserved + self.counts.response_errors
    }
}

/// One endpoint.
#[derive(Debug)]
pub struct EndpointStats {
    /// Its name; where the table gives none, its address.
    pub name: Arc<str>,
    /// Where it is.
    pub address: SocketAddr,
    /// Its number within its service, the same for as long as its address stays in the table.
    pub sid: u32,
    /// How it fares.
    pub status: Status,
    /// Whether it is there for the case that no ready one is.
    pub is_backup: bool,
    /// Whether an operator changed its state or weight.
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
    /// What the workers counted.
    pub counts: Counts,
    /// Seconds since its last session began; -1: there was none.
    pub idle: i32,
    /// Sessions in a second.
    pub session_rate: Rate,
    /// Recent means.
    pub means: Means,
    /// Seconds since its status changed.
    pub changed: u32,
    /// Seconds that it was down.
    pub downtime: u32,
    /// Its checks, if it has any.
    pub check: Option<Box<Check>>,
    /// Where it runs.
    pub node: Option<table::Tag>,
    /// In which zone.
    pub zone: Option<table::Tag>,
}

/// How an endpoint fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// In a word.
    pub kind: StatusKind,
    /// How many checks speak for a change, and how many it takes.
    pub progress: Option<(u8, u8)>,
}

/// How an endpoint fares, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// Nobody looks.
    Unchecked,
    /// Its checks pass.
    Up,
    /// Its checks fail, or it could not be reached and is kept out for a while.
    Down,
    /// Only clients that have affinity get it.
    Draining,
    /// Nobody gets it.
    Maintenance,
}

impl StatusKind {
    /// Its word, which is haproxy's.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unchecked => "no check",
            Self::Up => "UP",
            Self::Down => "DOWN",
            Self::Draining => "DRAIN",
            Self::Maintenance => "MAINT",
        }
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

/// The counts of endpoints, and how those of two workers become one.
macro_rules! counts {
    ($($name:ident: $kind:ident,)*) => {
        /// What all workers together counted for endpoints; each as in [`EndpointCounters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is described where it is counted")]
        pub struct Counts {
            $(pub $name: u64,)*
        }

        impl Counts {
            pub(super) fn of_worker(cells: &EndpointCounters) -> Self {
                // One that is not in the list does not compile.
                let EndpointCounters { $($name,)* } = cells;
                Self { $($name: $name.value(),)* }
            }

            pub(super) fn merge(&mut self, other: &Self) {
                $(self.$name = Kind::$kind.both(self.$name, other.$name);)*
            }

            /// What came since `cleared`. Longest times and the last moment are no sums, and stay.
            pub(super) fn since(&self, cleared: &Self) -> Self {
                Self { $($name: Kind::$kind.since(self.$name, cleared.$name),)* }
            }
        }
    };
}

counts! {
    picked: Sum,
    dials: Sum,
    connect_errors: Sum,
    retries: Sum,
    redispatches: Sum,
    sessions: Sum,
    last_session: Most,
    bytes_in: Sum,
    bytes_out: Sum,
    response_errors: Sum,
    client_aborts: Sum,
    server_aborts: Sum,
    queue_ms: Sum,
    queue_ms_max: Most,
    connect_ms: Sum,
    connect_ms_max: Most,
    total_ms: Sum,
    total_ms_max: Most,
    ended: Sum,
}

/// What a count is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Sum,
    Most,
}

impl Kind {
    fn both(self, one: u64, other: u64) -> u64 {
        match self {
            Self::Sum => one + other,
            Self::Most => one.max(other),
        }
    }

    fn since(self, now: u64, cleared: u64) -> u64 {
        match self {
            Self::Sum => now.saturating_sub(cleared),
            Self::Most => now,
        }
    }
}

impl Counts {
    /// Forgets the longest times.
    pub(super) fn forget_longest(&mut self) {
        (self.queue_ms_max, self.connect_ms_max, self.total_ms_max) = (0, 0, 0);
    }

    /// In whole seconds: how long ago the last session began at `now`; -1: there was none.
    pub(super) fn idle(&self, now: Moment) -> i32 {
        if self.last_session == 0 {
            return -1;
        }
        let seconds = now.0.saturating_sub(self.last_session) / 1000;
        i32::try_from(seconds).unwrap_or(i32::MAX)
    }
}

/// Recent means, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// In the queue.
    pub queue: u32,
    /// Until connected.
    pub connect: u32,
    /// From accept to end.
    pub total: u32,
}

/// The refusals of those who were not let in at all; others found no endpoint.
const DENIED: [Refusal; 4] = [
    Refusal::SourceRange,
    Refusal::MaxConnections,
    Refusal::MaxConnectionsPerClient,
    Refusal::MaxConnectionRatePerClient,
];
