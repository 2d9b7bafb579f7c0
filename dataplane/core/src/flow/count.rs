//! Why datagrams are dropped and flows end, and the counters of UDP frontends.

use std::fmt;

use crate::admit::Refusal;
use crate::counters;
use crate::pick::Unavailable;

/// Why a client's datagram is dropped. The word is the metric's label. The client gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The client's address is in none of the `source-ranges`.
    SourceRange,
    /// A trusted peer sent a broken PROXY header, or none.
    ProxyHeader,
    /// A limit of flows is reached, of the frontend, its client, the endpoints or the process; or a rate limit.
    MaxConnections,
    /// No endpoint can be picked.
    NoEndpoint,
    /// The service's remaining endpoints would lead the client back to the service.
    Loop,
}

impl Dropped {
    /// All reasons, in the order of [`Dropped::index`].
    pub const ALL: [Self; 5] = [
        Self::SourceRange,
        Self::ProxyHeader,
        Self::MaxConnections,
        Self::NoEndpoint,
        Self::Loop,
    ];

    /// Its word in the table's reference.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SourceRange => "source-range",
            Self::ProxyHeader => "proxy-header",
            Self::MaxConnections => "max-connections",
            Self::NoEndpoint => "no-endpoint",
            Self::Loop => "loop",
        }
    }

    /// Its index in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl From<Refusal> for Dropped {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::SourceRange => Self::SourceRange,
            Refusal::MaxConnections
            | Refusal::MaxConnectionsPerClient
            | Refusal::MaxConnectionRatePerClient
            | Refusal::QueueFull
            | Refusal::QueueTimeout => Self::MaxConnections,
            Refusal::NoEndpoint | Refusal::Failed => Self::NoEndpoint,
            Refusal::Loop => Self::Loop,
        }
    }
}

impl From<Unavailable> for Dropped {
    fn from(why: Unavailable) -> Self {
        match why {
            Unavailable::Full => Self::MaxConnections,
            Unavailable::NoEndpoint => Self::NoEndpoint,
            Unavailable::Loop => Self::Loop,
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why a flow has ended. The word is the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowEnd {
    /// No datagram for the idle time.
    Idle,
    /// `udp.requests` are reached.
    Requests,
    /// `udp.responses` are reached.
    Responses,
    /// The endpoint was removed, was disabled or fails its checks, or the frontend was removed.
    Endpoint,
    /// The endpoint refused a datagram, or could not be reached.
    Refused,
    /// Datagrams are balanced one by one: the flow was only kept for replies.
    PerDatagram,
    /// It was evicted to make room for another flow.
    Evicted,
}

impl FlowEnd {
    /// All reasons, in the order of [`FlowEnd::index`].
    pub const ALL: [Self; 7] = [
        Self::Idle,
        Self::Requests,
        Self::Responses,
        Self::Endpoint,
        Self::Refused,
        Self::PerDatagram,
        Self::Evicted,
    ];

    /// Its word in the table's reference.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Requests => "requests",
            Self::Responses => "responses",
            Self::Endpoint => "endpoint",
            Self::Refused => "refused",
            Self::PerDatagram => "per-datagram",
            Self::Evicted => "evicted",
        }
    }

    /// Its index in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

counters! {
    /// The counters of one worker for one UDP frontend, in addition to those of any frontend. Flows created are counted as
    /// `sessions`, and bytes are payload bytes. The number of present flows is that of created flows minus that of ended
    /// flows.
    pub UdpCounters,
    /// The sums over all workers.
    UdpCounts {
        /// Forwarded datagrams of clients (direction `in`).
        datagrams_in: Sum;
        /// Forwarded datagrams of endpoints (direction `out`).
        datagrams_out: Sum;
        /// Ended flows, by [`FlowEnd::index`].
        ended: Sum[FlowEnd];
        /// Dropped datagrams of clients, by [`Dropped::index`].
        dropped: Sum[Dropped] => json(), failure(""), metric("ballast_udp_dropped_total", "Datagrams of clients that were not passed on, by reason.");
        /// Datagrams of clients that the kernel dropped because they arrived faster than they were read.
        kernel_drops: Sum => json(), failure("kernel"), metric("ballast_udp_kernel_drops_total", "Datagrams of clients that came faster than they were read, so that the kernel dropped them.");
        /// Datagrams in either direction that the kernel did not send.
        unsent: Sum => json(), failure("unsent"), metric("ballast_udp_unsent_total", "Datagrams in either direction that the kernel did not take.");
    }
}
