//! Services: sets of endpoints, and how to choose among them.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::entries::Entries;
use super::fields::{List, OrOff};
use super::frontend::{Protocol, idle_timeout};
use super::health::Health;
use super::http::ServiceHttp;
use super::record::{Field, Given, Taken, record, words};
use super::text::{LabelKey, Name, Tag, Text, Token};
use super::tls::EndpointTls;
use super::tree::Node;
use super::walk::Walk;

record! {
    /// A set of endpoints and how to choose among them.
    pub struct Service {
        /// Unique among services; with an endpoint's address that endpoint's identity.
        name: Name;
        /// Shown only.
        description: Option<Text> = None;
        /// Shown, and on metrics.
        labels: Entries<LabelKey, Text> = Entries::default();
        /// How to choose.
        algorithm: Algorithm = Algorithm::RoundRobin;
        /// How a client finds its endpoint again.
        affinity: Option<Affinity> = None;
        /// The PROXY header that endpoints get.
        send_proxy: SendProxy = SendProxy::Off;
        /// v2: what is added. Absent: authority where an SNI is known.
        send_proxy_tlvs: Option<List<Tlv>> = None;
        /// udp: which datagrams of a flow carry the header.
        send_proxy_udp: SendProxyUdp = SendProxyUdp::Every;
        /// Attempts after the first one.
        retries: u16 = 3;
        /// Clients that wait while every endpoint is full; off: none does.
        max_queue: OrOff<NonZeroU32> = MAX_QUEUE;
        /// Local addresses towards the endpoints, in turn. Absent: the kernel's choice.
        source: List<IpAddr> = List::default();
        /// The endpoints' side.
        timeouts: ServiceTimeouts = ServiceTimeouts::ABSENT;
        /// What happens when the checks of all endpoints fail.
        all_down: AllDown = AllDown::TryAll;
        /// For recovered or new endpoints of a known service.
        slow_start: Option<Duration> = None;
        /// Established connections of an endpoint whose checks fail.
        on_down: OnGone = OnGone::Keep;
        /// Established connections of an endpoint that left the table.
        on_removed: OnGone = OnGone::Keep;
        /// Absent: endpoints are not checked.
        health: Option<Box<Health>> = None;
        /// When an endpoint that cannot be reached is left out.
        ejection: OrOff<Ejection> = OrOff::On(Ejection::ABSENT);
        /// TLS to the endpoints.
        tls: Option<Box<EndpointTls>> = None;
        /// HTTP to the endpoints. Absent: see [`ServiceHttp::absent`].
        http: Option<Box<ServiceHttp>> = None;
        /// None: frontends of tcp and udp do not listen.
        endpoints: Vec<Endpoint> = Vec::new();
    }
}

impl Service {
    /// The checks that are asked for.
    #[must_use]
    pub fn checks(&self) -> Option<&Health> {
        use super::health::HealthMode;
        self.health
            .as_deref()
            .filter(|health| health.mode != HealthMode::Off)
    }
}

words! {
    /// How an endpoint is chosen.
    pub enum Algorithm: "an algorithm" {
        /// Smooth weighted rotation.
        RoundRobin = "round-robin",
        /// The one with the fewest, by weight.
        LeastConnections = "least-connections",
        /// By the client's address.
        SourceHash = "source-hash",
        /// By the client's address and port.
        SourcePortHash = "source-port-hash",
        /// The better of two random ones.
        Random = "random",
        /// The first one that has room.
        First = "first",
    }
}

/// How a client finds its endpoint again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Affinity {
    /// By its address, for so long after its last connection.
    ClientIp(Duration),
    /// By a cookie of this name.
    Cookie(Token),
}

impl Field for Affinity {
    const FIELDS: &[&str] = &["client_ip", "cookie"];

    fn take<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Draft {
            ClientIp(Taken<Duration>),
            Cookie(Taken<Token>),
        }
        Draft::deserialize(source).map(|draft| match draft {
            Draft::ClientIp(Taken(time)) => Self::ClientIp(time),
            Draft::Cookie(Taken(name)) => Self::Cookie(name),
        })
    }

    fn read(node: &Node, walk: &mut Walk) -> Option<Self> {
        let map = walk.map(node, Self::FIELDS)?;
        let time: Option<Duration> = walk.field(map, "client_ip", false);
        let name: Option<Token> = walk.field(map, "cookie", false);
        let is_there = |key: &str| map.iter().any(|(known, _)| **known == *key);
        if is_there("client-ip") == is_there("cookie") {
            walk.report(
                "is not one way to find a client's endpoint",
                "expected {client-ip: TIME} or {cookie: NAME}",
            );
            return None;
        }
        time.map(Self::ClientIp).or_else(|| name.map(Self::Cookie))
    }

    fn stand_in() -> Self {
        Self::ClientIp(Duration::from_secs(1))
    }

    fn give<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Print<'a> {
            ClientIp(Given<'a, Duration>),
            Cookie(Given<'a, Token>),
        }
        match self {
            Self::ClientIp(time) => Print::ClientIp(Given(time)),
            Self::Cookie(name) => Print::Cookie(Given(name)),
        }
        .serialize(sink)
    }
}

super::record::serde_by_field!(Affinity);

words! {
    /// The PROXY header that endpoints get.
    pub enum SendProxy: "a PROXY header" {
        /// None.
        Off = "off",
        /// The line of text.
        V1 = "v1",
        /// The binary one.
        V2 = "v2",
    }
}

words! {
    /// What a v2 header carries beside the addresses.
    pub enum Tlv: "a part of a PROXY header" {
        /// The SNI.
        Authority = "authority",
        /// A checksum.
        Crc32c = "crc32c",
        /// What is known of the client's TLS.
        Ssl = "ssl",
        /// An id of this connection.
        UniqueId = "unique-id",
    }
}

words! {
    /// Which datagrams of a flow carry the PROXY header.
    pub enum SendProxyUdp: "a choice of datagrams" {
        /// Every one.
        Every = "every",
        /// The first one.
        First = "first",
    }
}

record! {
    /// How long the endpoints' side may take.
    pub struct ServiceTimeouts {
        /// Until some endpoint is connected.
        connect: Duration = Duration::from_secs(5);
        /// In the queue. Absent: `connect`, see [`ServiceTimeouts::queue`].
        queue: Option<Duration> = None;
        /// Silence. Absent: by protocol, see [`ServiceTimeouts::server`].
        server: Option<OrOff<Duration>> = None;
        /// After one direction has ended.
        server_fin: Duration = Duration::from_secs(30);
        /// http: after an upgrade, in place of client and server.
        tunnel: Duration = Duration::from_secs(3600);
    }
}

impl ServiceTimeouts {
    /// What a service without `timeouts` has.
    pub const ABSENT: Self = Self {
        connect: Duration::from_secs(5),
        queue: None,
        server: None,
        server_fin: Duration::from_secs(30),
        tunnel: Duration::from_secs(3600),
    };

    /// How long a client waits while every endpoint is full.
    #[must_use]
    pub fn queue(&self) -> Duration {
        self.queue.unwrap_or(self.connect)
    }

    /// How long an endpoint may be silent towards a frontend of this protocol; `None`: for ever.
    #[must_use]
    pub fn server(&self, protocol: Protocol) -> Option<Duration> {
        idle_timeout(self.server, protocol)
    }
}

words! {
    /// What happens when the checks of all endpoints fail.
    pub enum AllDown: "a way out" {
        /// The checks are ignored.
        TryAll = "try-all",
        /// Clients are refused.
        Refuse = "refuse",
    }
}

words! {
    /// What happens to established connections of an endpoint that is down or gone.
    pub enum OnGone: "a way with connections" {
        /// They go on.
        Keep = "keep",
        /// They are closed.
        Close = "close",
    }
}

record! {
    /// When an endpoint that cannot be reached is left out, and for how long.
    pub struct Ejection {
        /// Refused dials in a row.
        failures: u16 = Ejection::ABSENT.failures, in 1..=1000;
        /// The first time.
        first: Duration = Ejection::ABSENT.first;
        /// The longest time.
        longest: Duration = Ejection::ABSENT.longest;
        /// At most this percentage of a service's endpoints, but one at least.
        share: u8 = Ejection::ABSENT.share, in 1..=100;
    }
}

impl Ejection {
    /// What a service without `ejection` has.
    pub const ABSENT: Self = Self {
        failures: 3,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(30),
        share: 50,
    };
}

record! {
    /// One address of a service.
    pub struct Endpoint {
        /// Unique in its service; with the service's name its identity.
        address: SocketAddr;
        /// Unique in its service. Absent: shown as the address.
        name: Option<Name> = None;
        /// Its share; 0: only clients that have affinity.
        weight: u16 = 1, in 0..=256;
        /// Whether it gets clients.
        state: State = State::Ready;
        /// Connections, or http requests, at once. Absent: no limit.
        max_connections: Option<NonZeroU32> = None;
        /// Where it runs; failures of one node are seen together.
        node: Option<Tag> = None;
        /// Shown.
        zone: Option<Tag> = None;
    }
}

words! {
    /// Whether an endpoint gets clients.
    pub enum State: "a state" {
        /// It does.
        Ready = "ready",
        /// Only where no ready one can be used.
        Backup = "backup",
        /// Only those that have affinity.
        Draining = "draining",
        /// None, new ones at least.
        Disabled = "disabled",
    }
}

const MAX_QUEUE: OrOff<NonZeroU32> = match NonZeroU32::new(1024) {
    Some(clients) => OrOff::On(clients),
    None => OrOff::Off,
};
