//! Why datagrams are dropped and flows end, and the counters of UDP frontends.

use crate::admit::Refusal;
use crate::counters;
use crate::pick::Unavailable;
use crate::words;

words! {
    /// Why a client's datagram is dropped. The word is the metric's label. The client gets no answer.
    pub enum Dropped {
        /// The client's address is in none of the `source-ranges`.
        SourceRange = "source-range",
        /// A trusted peer sent a broken PROXY header, or none.
        ProxyHeader = "proxy-header",
        /// A limit of flows is reached, of the frontend, its client, the endpoints or the process; or a rate limit.
        MaxConnections = "max-connections",
        /// No endpoint can be picked.
        NoEndpoint = "no-endpoint",
        /// The service's remaining endpoints would lead the client back to the service.
        Loop = "loop",
        /// This process is ending, and begins no more flows.
        Ending = "ending",
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

words! {
    /// Why a flow has ended. The word is the metric's label.
    pub enum FlowEnd {
        /// No datagram for the idle time.
        Idle = "idle",
        /// `udp.requests` are reached.
        Requests = "requests",
        /// `udp.responses` are reached.
        Responses = "responses",
        /// The endpoint was removed, was disabled or fails its checks, the frontend was removed, or an operator ended it.
        Endpoint = "endpoint",
        /// The endpoint refused a datagram, or could not be reached.
        Refused = "refused",
        /// Datagrams are balanced one by one: the flow was only kept for replies.
        PerDatagram = "per-datagram",
        /// It was evicted to make room for another flow.
        Evicted = "evicted",
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
