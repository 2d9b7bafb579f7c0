//! What becomes of a dial, for whoever asked for it and for whoever writes of it.

use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::endpoint::Lease;
use tokio::net::TcpStream;

/// A connection to an endpoint.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) stream: TcpStream,
    pub(crate) lease: Lease,
    /// What people call the endpoint; only where access lines are written.
    pub(crate) name: Option<Box<str>>,
    /// The outbound PROXY header, if there is one.
    pub(crate) header: Vec<u8>,
    pub(crate) server_timeout: Option<Duration>,
    pub(crate) server_fin: Duration,
}

/// How the way to an endpoint went, or goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dial {
    /// In the queue; `None`: it never got out of it.
    pub(crate) queued: Option<Duration>,
    /// Until an endpoint answered.
    pub(crate) connecting: Option<Duration>,
    /// Attempts after the first one.
    pub(crate) retries: u16,
    /// Whether one of them was at another endpoint than the one before it.
    pub(crate) is_redispatched: bool,
    /// Clients that were before it in the queue.
    pub(crate) before: usize,
    /// Whether the last attempt failed for want of time.
    pub(crate) timed_out: bool,
    /// Whether it is in the queue now.
    pub(crate) is_queued: bool,
}

/// Why a client got no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It was turned away.
    Refused(Refusal),
    /// It aborted while it waited.
    Left(During),
}

/// What a client waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    /// For room.
    Queue,
    /// For an endpoint to answer.
    Dial,
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
