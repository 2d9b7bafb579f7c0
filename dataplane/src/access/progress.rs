//! What an access line says about the dial.

use std::net::SocketAddr;
use std::time::Duration;

/// The progress of a dial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Time spent in the queue; `None`: the client has not been in the queue, and no endpoint was chosen.
    pub(crate) queued: Option<Duration>,
    /// Time until an endpoint was connected, without the time in the queue.
    pub(crate) connecting: Option<Duration>,
    /// Attempts after the first one.
    pub(crate) retries: u16,
    /// Whether one of these attempts was at another endpoint than the attempt before it.
    pub(crate) is_redispatched: bool,
    /// Clients that were ahead of this one when it entered the queue.
    pub(crate) before: usize,
    /// Whether the last attempt failed by its timeout.
    pub(crate) timed_out: bool,
    /// Whether the client is in the queue now.
    pub(crate) is_queued: bool,
    /// The endpoint of the last attempt that came to nothing.
    pub(crate) tried: Option<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitPhase {
    /// In the queue, for room at an endpoint.
    Queue,
    /// For an endpoint's connection to be established.
    Dial,
}
