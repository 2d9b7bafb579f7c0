//! Services: sets of endpoints, and how to choose among them.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entries::Entries;
use super::fields::{
    List, OrOff, Within, exact, is, is_default, is_seconds, number, shown_as_written,
};
use super::frontend::{Protocol, idle_timeout};
use super::health::{Health, HealthMode};
use super::http::{HttpVersion, ServiceHttp};
use super::leaf::AsText;
use super::text::{LabelKey, Name, Tag, Text, Token};
use super::tls::EndpointTls;

/// Endpoints that serve the same thing, and how one of them is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Service {
    /// The name of this service, unique among services. Its state and that of its endpoints belong to the name.
    pub name: Name,
    /// A text for people, shown on the page.
    #[serde(default, skip_serializing_if = "is_default")]
    pub description: Option<Text>,
    /// At most 8 labels. They are shown, and they stand on the metrics of this service.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Entries<LabelKey, Text>,
    /// How an endpoint is chosen for a client. Default: round-robin.
    #[serde(default, skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// How a client that comes back finds the endpoint it had before. Absent: it does not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub affinity: Option<Affinity>,
    /// The PROXY header that tells endpoints the client's address. Default: off.
    #[serde(default, skip_serializing_if = "is_default")]
    pub send_proxy: SendProxy,
    /// v2: what the header carries beside the addresses. Default: authority, where a server name is known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub send_proxy_tlvs: Option<List<Tlv>>,
    /// udp: which datagrams of a flow carry the header. Default: every.
    #[serde(default, skip_serializing_if = "is_default")]
    pub send_proxy_udp: SendProxyUdp,
    /// Attempts to connect to an endpoint, after the first one. Default: 3.
    #[serde(
        default = "retries",
        skip_serializing_if = "is::<{ Service::RETRIES }, _>"
    )]
    pub retries: u16,
    /// Most clients that wait while every endpoint is at its `max-connections`; off: none waits. Default: 1024.
    #[serde(default = "max_queue", skip_serializing_if = "is_max_queue")]
    pub max_queue: OrOff<NonZeroU32>,
    /// Addresses of this node to connect to the endpoints from, in turn. Absent: the kernel chooses.
    #[serde(
        with = "AsText::<List<IpAddr>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub source: List<IpAddr>,
    /// Timeouts on the endpoints' side.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: ServiceTimeouts,
    /// What happens when the health checks of all endpoints fail. Default: try-all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub all_down: AllDown,
    /// Over so long an endpoint that recovered, or that a known service has gained, grows into its share. Absent: at once.
    #[serde(
        with = "AsText::<Option<Duration>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub slow_start: Option<Duration>,
    /// What happens to established connections of an endpoint whose health checks fail. Default: keep.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_down: OnGone,
    /// What happens to established connections of an endpoint that is no longer in the table. Default: keep.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_removed: OnGone,
    /// How endpoints are checked. Absent: they are not checked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health: Option<Box<Health>>,
    /// When an endpoint that cannot be reached is left out, or off. Default: on, with the defaults of its fields.
    #[serde(default = "ejection", skip_serializing_if = "is_ejection")]
    pub ejection: OrOff<Ejection>,
    /// TLS towards the endpoints. Absent: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: Option<Box<EndpointTls>>,
    /// How HTTP is spoken with the endpoints.
    #[serde(default, skip_serializing_if = "is_default")]
    pub http: Option<Box<ServiceHttp>>,
    /// The endpoints. While there are none, frontends of tcp and udp do not listen.
    #[serde(
        default,
        deserialize_with = "exact",
        skip_serializing_if = "is_default"
    )]
    pub endpoints: Vec<Endpoint>,
}

impl Service {
    /// The default of `retries`.
    pub const RETRIES: u16 = 3;
    /// The default of `max-queue`.
    pub const MAX_QUEUE: OrOff<NonZeroU32> = match NonZeroU32::new(1024) {
        Some(clients) => OrOff::On(clients),
        None => OrOff::Off,
    };

    /// A service that says nothing else.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self {
            name,
            description: None,
            labels: Entries::default(),
            algorithm: Algorithm::RoundRobin,
            affinity: None,
            send_proxy: SendProxy::Off,
            send_proxy_tlvs: None,
            send_proxy_udp: SendProxyUdp::Every,
            retries: Self::RETRIES,
            max_queue: Self::MAX_QUEUE,
            source: List::default(),
            timeouts: ServiceTimeouts::ABSENT,
            all_down: AllDown::TryAll,
            slow_start: None,
            on_down: OnGone::Keep,
            on_removed: OnGone::Keep,
            health: None,
            ejection: ejection(),
            tls: None,
            http: None,
            endpoints: Vec::new(),
        }
    }

    /// The checks that are asked for.
    pub fn checks(&self) -> Option<&Health> {
        self.health
            .as_deref()
            .filter(|health| health.mode != HealthMode::Off)
    }

    /// The version of HTTP that endpoints speak.
    #[must_use]
    pub fn http_version(&self) -> HttpVersion {
        let http = self.http.as_deref();
        http.map_or_else(HttpVersion::default, |http| http.version)
    }
}

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "an algorithm")]
pub enum Algorithm {
    /// In turn and by weight.
    #[default]
    RoundRobin,
    /// The endpoint with the fewest connections for its weight.
    LeastConnections,
    /// By the client's address.
    SourceHash,
    /// By the client's address and port.
    SourcePortHash,
    /// The one with fewer connections of two random endpoints.
    Random,
    /// The first endpoint of the list that has room, by `max-connections`.
    First,
}

shown_as_written!(Algorithm);

/// How a client that comes back finds the endpoint it had before. One of the two.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "one way to find a client's endpoint")]
pub enum Affinity {
    /// By the client's address. It is remembered for so long after the client's last connection.
    #[schemars(title = "{client-ip: TIME}")]
    ClientIp(#[serde(with = "AsText::<Duration>")] Duration),
    /// http: by a cookie of this name.
    #[schemars(title = "{cookie: NAME}")]
    Cookie(Token),
}

/// The PROXY header that endpoints get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a PROXY header")]
pub enum SendProxy {
    /// No header.
    #[default]
    Off,
    /// The line of text.
    V1,
    /// The binary header.
    V2,
}

/// What a v2 header carries beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a part of a PROXY header")]
pub enum Tlv {
    /// The server name (SNI) that the client asked for.
    Authority,
    /// A checksum of the header.
    Crc32c,
    /// The version and the cipher of the client's TLS, and the name in its certificate.
    Ssl,
    /// An id of this connection.
    UniqueId,
}

/// How the datagrams of a service's flows carry the PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    pub on: SendProxyUdp,
    pub has_unique_id: bool,
    pub has_checksum: bool,
}

impl Service {
    /// How datagrams to its endpoints carry the PROXY header; `None`: they carry none.
    #[must_use]
    pub fn datagram_header(&self) -> Option<DatagramHeader> {
        (self.send_proxy != SendProxy::Off).then(|| DatagramHeader {
            on: self.send_proxy_udp,
            has_unique_id: self.sends(Tlv::UniqueId),
            has_checksum: self.sends(Tlv::Crc32c),
        })
    }

    /// Whether PROXY headers of version 2 have this field.
    #[must_use]
    pub fn sends(&self, tlv: Tlv) -> bool {
        match &self.send_proxy_tlvs {
            Some(tlvs) => tlvs.contains(&tlv),
            None => tlv == Tlv::Authority,
        }
    }
}

/// Which datagrams of a flow carry the PROXY header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a choice of datagrams")]
pub enum SendProxyUdp {
    /// Every datagram.
    #[default]
    Every,
    /// The first datagram of a flow.
    First,
}

/// Timeouts on the endpoints' side.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServiceTimeouts {
    /// Until some endpoint is connected, all attempts together. Default: 5s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<5>")]
    pub connect: Duration,
    /// How long a client waits while every endpoint is full. Default: as `connect`.
    #[serde(
        with = "AsText::<Option<Duration>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub queue: Option<Duration>,
    /// How long nothing may be read from or written to the endpoint, or off. Default: 1h; http and https: 50s.
    #[serde(
        with = "AsText::<Option<OrOff<Duration>>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub server: Option<OrOff<Duration>>,
    /// The same, once one direction of the connection has ended. Default: 30s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<30>")]
    pub server_fin: Duration,
    /// http: after an upgrade, in place of `client` and `server`. Default: 1h.
    #[serde(
        with = "AsText::<Duration>",
        skip_serializing_if = "is_seconds::<3600>"
    )]
    pub tunnel: Duration,
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
    pub fn queue(&self) -> Duration {
        self.queue.unwrap_or(self.connect)
    }

    /// How long an endpoint may be silent towards a frontend of this protocol; `None`: for ever.
    pub fn server(&self, protocol: Protocol) -> Option<Duration> {
        idle_timeout(self.server, protocol)
    }
}

impl Default for ServiceTimeouts {
    fn default() -> Self {
        Self::ABSENT
    }
}

/// What happens when the health checks of all endpoints fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way out")]
pub enum AllDown {
    /// The checks are ignored, and all endpoints are used.
    #[default]
    TryAll,
    /// Clients are refused.
    Refuse,
}

/// What happens to established connections of an endpoint that is down or no longer in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way with connections")]
pub enum OnGone {
    /// They go on.
    #[default]
    Keep,
    /// They are closed.
    Close,
}

/// When an endpoint that cannot be reached is left out, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Ejection {
    /// Refused connections in a row after which an endpoint is left out. One that does not answer at all is left out at
    /// once. Default: 3.
    #[serde(with = "Within::<1, 1000>", skip_serializing_if = "is::<3, _>")]
    pub failures: u16,
    /// How long it is left out the first time. The time doubles with each further time. Default: 1s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<1>")]
    pub first: Duration,
    /// How long it is left out at most. Default: 30s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<30>")]
    pub longest: Duration,
    /// At most so many percent of a service's endpoints are left out, but one at least. Default: 50.
    #[serde(with = "Within::<1, 100>", skip_serializing_if = "is::<50, _>")]
    pub share: u8,
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

impl Default for Ejection {
    fn default() -> Self {
        Self::ABSENT
    }
}

/// One address that serves a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Endpoint {
    /// The address, unique in its service. The state of an endpoint belongs to its service's name and its address.
    #[serde(with = "AsText::<SocketAddr>")]
    pub address: SocketAddr,
    /// The name that is shown, unique in its service. Default: the address.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: Option<Name>,
    /// The endpoint's share of the clients; 0: only clients that have affinity. Default: 1.
    #[serde(
        with = "Within::<0, 256>",
        default = "number::<1, u16>",
        skip_serializing_if = "is::<1, _>"
    )]
    pub weight: u16,
    /// Whether the endpoint gets clients. Default: ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: State,
    /// Most connections (http: requests) at the same time. Absent: no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_connections: Option<NonZeroU32>,
    /// The machine it runs on. When endpoints of one node stop answering, all of that node are left out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: Option<Tag>,
    /// The zone it runs in, shown on the page.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zone: Option<Tag>,
}

/// Whether an endpoint gets clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a state")]
pub enum State {
    /// It gets clients.
    #[default]
    Ready,
    /// It gets clients while no ready endpoint can be used.
    Backup,
    /// It gets only clients that have affinity.
    Draining,
    /// It gets no new clients.
    Disabled,
}

fn retries() -> u16 {
    Service::RETRIES
}

fn max_queue() -> OrOff<NonZeroU32> {
    Service::MAX_QUEUE
}

fn is_max_queue(queue: &OrOff<NonZeroU32>) -> bool {
    *queue == Service::MAX_QUEUE
}

fn ejection() -> OrOff<Ejection> {
    OrOff::On(Ejection::ABSENT)
}

fn is_ejection(rule: &OrOff<Ejection>) -> bool {
    *rule == ejection()
}
