//! Frontends: what clients connect to.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::Bind;
use super::entries::Entries;
use super::fields::{List, OrMap, OrOff, is_default, is_seconds, shown_as_written};
use super::http::{ErrorPage, ErrorStatus, FrontendHttp};
use super::leaf::AsText;
use super::route::{Backend, Route};
use super::text::{File, LabelKey, Name, Text};
use super::tls::FrontendTls;

/// An address that clients connect to, and what happens to their connections.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Frontend {
    /// The name of this frontend, unique among frontends. Its counters and limits belong to the name.
    pub name: Name,
    /// A text for people, shown on the page.
    #[serde(default, skip_serializing_if = "is_default")]
    pub description: Option<Text>,
    /// At most 8 labels. They are shown, and they stand on the metrics of this frontend.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: Entries<LabelKey, Text>,
    /// The addresses to listen on.
    pub bind: List<Bind>,
    /// The protocol that clients speak.
    pub protocol: Protocol,
    /// tcp and udp: the name of the service that gets the connections. http, https and tls have routes instead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service: Option<Name>,
    /// tcp and udp: several services that share the connections by weight, in place of `service`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub backends: List<Backend>,
    /// Peers that send a PROXY header. Absent: no PROXY header is read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accept_proxy: Option<Box<AcceptProxy>>,
    /// Clients that may connect. Absent: everybody. An address family without a range is denied.
    #[serde(
        with = "AsText::<Option<List<IpNet>>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub source_ranges: Option<List<IpNet>>,
    /// Most connections (udp: flows) at the same time. Absent: the limit of the process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_connections: Option<NonZeroU32>,
    /// Most new connections per second. Absent: no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_connection_rate: Option<NonZeroU32>,
    /// Most connections at the same time from one client address (IPv6: from one /64). Absent: no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_connections_per_client: Option<NonZeroU32>,
    /// Most new connections per second from one client address (IPv6: from one /64). Absent: no limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_connection_rate_per_client: Option<NonZeroU32>,
    /// What happens to connections above `max-connections` and `max-connection-rate`. Default: wait.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_limit: OnLimit,
    /// Timeouts on the client's side.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: ClientTimeouts,
    /// udp: when flows end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub udp: Option<Udp>,
    /// TLS towards clients, which ends here. https: required. tcp: optional.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tls: Option<Box<FrontendTls>>,
    /// http and https: how HTTP is spoken with clients.
    #[serde(default, skip_serializing_if = "is_default")]
    pub http: Option<Box<FrontendHttp>>,
    /// http, https and tls: where requests go, by host and path. Their order decides only where routes ask for equally much.
    #[serde(default, skip_serializing_if = "is_default")]
    pub routes: List<Route>,
    /// http, https and tls: where requests go that match no route. It has no host and no path.
    #[serde(default, skip_serializing_if = "is_default")]
    pub default: Option<Box<Route>>,
    /// http and https: Ballast's own answers by status, from 400 to 599: a file with the body, or a map that says more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub errors: Entries<ErrorStatus, OrMap<File, Box<ErrorPage>>>,
}

impl Frontend {
    /// A frontend that says nothing else.
    #[must_use]
    pub fn new(name: Name, binds: Vec<Bind>, protocol: Protocol) -> Self {
        Self {
            name,
            description: None,
            labels: Entries::default(),
            bind: List::new(binds),
            protocol,
            service: None,
            backends: List::default(),
            accept_proxy: None,
            source_ranges: None,
            max_connections: None,
            max_connection_rate: None,
            max_connections_per_client: None,
            max_connection_rate_per_client: None,
            on_limit: OnLimit::Wait,
            timeouts: ClientTimeouts::ABSENT,
            udp: None,
            tls: None,
            http: None,
            routes: List::default(),
            default: None,
            errors: Entries::default(),
        }
    }

    /// How long the client's side may be silent; `None`: for ever.
    pub fn client_timeout(&self) -> Option<Duration> {
        idle_timeout(self.timeouts.client, self.protocol)
    }

    /// How flows are handled.
    #[must_use]
    pub fn udp(&self) -> Udp {
        self.udp.clone().unwrap_or_default()
    }

    /// How HTTP is spoken.
    pub fn http(&self) -> &FrontendHttp {
        self.http.as_deref().unwrap_or(FrontendHttp::ABSENT)
    }

    /// Every route, the default last.
    pub fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(self.default.as_deref())
    }

    /// Every service that this frontend names, as often as it names it.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        let backends = self.backends.iter().map(|backend| &backend.service);
        self.service
            .iter()
            .chain(backends)
            .chain(self.all_routes().flat_map(Route::services))
    }

    /// Whether some requests need no service: a route redirects them, or answers with a status.
    #[must_use]
    pub fn answers_itself(&self) -> bool {
        self.all_routes()
            .any(|route| route.services().next().is_none())
    }
}

/// What an idle timeout is, by protocol where it is absent; `None`: it is off.
pub(super) fn idle_timeout(
    written: Option<OrOff<Duration>>,
    protocol: Protocol,
) -> Option<Duration> {
    match written {
        Some(OrOff::Off) => None,
        Some(OrOff::On(timeout)) => Some(timeout),
        None => Some(match protocol {
            Protocol::Http | Protocol::Https => Duration::from_secs(50),
            Protocol::Tcp | Protocol::Udp | Protocol::Tls => Duration::from_secs(3600),
        }),
    }
}

/// The protocol that a frontend's clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a protocol")]
pub enum Protocol {
    /// TCP connections.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// HTTP.
    Http,
    /// HTTP in TLS, which ends here.
    Https,
    /// TLS that is passed on unopened; the server name (SNI) decides where to.
    Tls,
}

shown_as_written!(Protocol);

impl Protocol {
    /// Every protocol, in the order of the documentation.
    pub const ALL: &[Self] = &[Self::Tcp, Self::Udp, Self::Http, Self::Https, Self::Tls];

    /// Whether requests are looked at.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether its sockets are UDP's; all others are TCP's.
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::Udp)
    }

    pub const fn transport(self) -> Transport {
        if self.is_udp() {
            Transport::Udp
        } else {
            Transport::Tcp
        }
    }
}

/// What sockets carry: connections or datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

/// What happens to connections above a limit. Limits per client always reject, and udp always drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way with limits")]
pub enum OnLimit {
    /// They wait in the kernel's backlog.
    #[default]
    Wait,
    /// They are reset.
    Reject,
}

/// Peers from which a PROXY header is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AcceptProxy {
    /// Peers that must send a PROXY header. What other peers send is data.
    #[serde(with = "AsText::<List<IpNet>>")]
    pub from: List<IpNet>,
    /// The versions of the header that are understood. Absent: both.
    #[serde(default, skip_serializing_if = "is_default")]
    pub versions: Option<List<ProxyVersion>>,
}

impl AcceptProxy {
    /// Whether a header of this version is understood.
    #[must_use]
    pub fn takes(&self, version: ProxyVersion) -> bool {
        self.versions
            .as_ref()
            .is_none_or(|versions| versions.contains(&version))
    }
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a version of the PROXY protocol")]
pub enum ProxyVersion {
    /// The line of text.
    V1,
    /// The binary header.
    V2,
}

/// Timeouts on the client's side.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClientTimeouts {
    /// How long nothing may be read from or written to the client, or off. Default: 1h; http and https: 50s.
    #[serde(
        with = "AsText::<Option<OrOff<Duration>>>",
        default,
        skip_serializing_if = "is_default"
    )]
    pub client: Option<OrOff<Duration>>,
    /// The same, once one direction of the connection has ended. Default: 30s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<30>")]
    pub client_fin: Duration,
    /// For the PROXY header, for the ClientHello and for the TLS handshake: each. Default: 5s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<5>")]
    pub preamble: Duration,
    /// http: for the whole head of a request. Default: 5s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<5>")]
    pub request: Duration,
    /// http: between two requests. Default: 60s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<60>")]
    pub keep_alive: Duration,
    /// udp: how long a flow lives without a datagram. Default: 60s.
    #[serde(with = "AsText::<Duration>", skip_serializing_if = "is_seconds::<60>")]
    pub idle: Duration,
}

impl ClientTimeouts {
    /// What a frontend without `timeouts` has.
    pub const ABSENT: Self = Self {
        client: None,
        client_fin: Duration::from_secs(30),
        preamble: Duration::from_secs(5),
        request: Duration::from_secs(5),
        keep_alive: Duration::from_secs(60),
        idle: Duration::from_secs(60),
    };
}

impl Default for ClientTimeouts {
    fn default() -> Self {
        Self::ABSENT
    }
}

/// When the flows of a udp frontend end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Udp {
    /// A flow ends after so many datagrams from the client. Absent: no cap.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: Option<NonZeroU32>,
    /// A flow ends after so many datagrams from the endpoint. Absent: no cap.
    #[serde(skip_serializing_if = "is_default")]
    pub responses: Option<NonZeroU32>,
    /// There are no flows: an endpoint is chosen for every datagram. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub per_datagram: bool,
}
