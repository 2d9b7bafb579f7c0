//! Frontends: what clients connect to.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;

use super::address::Bind;
use super::entries::Entries;
use super::fields::{List, OrOff};
use super::http::{ErrorStatus, FrontendHttp, Route};
use super::record::{record, words};
use super::text::{File, LabelKey, Name, Text};
use super::tls::FrontendTls;

record! {
    /// What clients connect to.
    pub struct Frontend {
        /// Unique among frontends; its identity.
        name: Name;
        /// Shown only.
        description: Option<Text> = None;
        /// Shown, and on metrics.
        labels: Entries<LabelKey, Text> = Entries::default();
        /// Where it listens.
        bind: List<Bind>;
        /// What is spoken there.
        protocol: Protocol;
        /// tcp, udp: where connections go. There for those, and for no other protocol.
        service: Option<Name> = None;
        /// Absent: a PROXY header is never read.
        accept_proxy: Option<Box<AcceptProxy>> = None;
        /// Who may connect. Absent: everybody; a family without a range is denied.
        source_ranges: Option<List<IpNet>> = None;
        /// Connections (udp: flows) at once.
        max_connections: Option<NonZeroU32> = None;
        /// New ones per second.
        max_connection_rate: Option<NonZeroU32> = None;
        /// At once for one client's address (IPv6: /64).
        max_connections_per_client: Option<NonZeroU32> = None;
        /// New ones per second for one client's address.
        max_connection_rate_per_client: Option<NonZeroU32> = None;
        /// What happens above `max-connections` and `max-connection-rate`.
        on_limit: OnLimit = OnLimit::Wait;
        /// The client's side.
        timeouts: ClientTimeouts = ClientTimeouts::ABSENT;
        /// udp only; see [`Frontend::udp`].
        udp: Option<Udp> = None;
        /// https: there. tcp: perhaps.
        tls: Option<Box<FrontendTls>> = None;
        /// http and https only; see [`Frontend::http`].
        http: Option<Box<FrontendHttp>> = None;
        /// http, https and tls only.
        routes: List<Route> = List::default();
        /// A route without host and path.
        default: Option<Box<Route>> = None;
        /// http and https: bodies of Ballast's own answers.
        errors: Entries<ErrorStatus, File> = Entries::default();
    }
}

impl Frontend {
    /// How long the client's side may be silent; `None`: for ever.
    #[must_use]
    pub fn client_timeout(&self) -> Option<Duration> {
        idle_timeout(self.timeouts.client, self.protocol)
    }

    /// How flows are handled.
    #[must_use]
    pub fn udp(&self) -> Udp {
        self.udp.clone().unwrap_or(Udp::ABSENT)
    }

    /// How HTTP is spoken.
    #[must_use]
    pub fn http(&self) -> &FrontendHttp {
        self.http.as_deref().unwrap_or(FrontendHttp::ABSENT)
    }

    /// Every route, the default last.
    pub fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().chain(self.default.as_deref())
    }

    /// Every service that this frontend names, as often as it names it.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        self.service
            .iter()
            .chain(self.all_routes().filter_map(|route| route.service.as_ref()))
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

words! {
    /// What a frontend speaks.
    pub enum Protocol: "a protocol" {
        /// Bytes.
        Tcp = "tcp",
        /// Datagrams.
        Udp = "udp",
        /// HTTP.
        Http = "http",
        /// HTTP in TLS, which ends here.
        Https = "https",
        /// TLS that passes unopened, by its SNI.
        Tls = "tls",
    }
}

impl Protocol {
    /// Whether requests are looked at.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether its sockets are UDP's; all others are TCP's.
    #[must_use]
    pub const fn is_udp(self) -> bool {
        matches!(self, Self::Udp)
    }
}

words! {
    /// What happens to connections above a limit. Per-client limits always reject, udp always drops.
    pub enum OnLimit: "a way with limits" {
        /// They wait in the kernel's backlog.
        Wait = "wait",
        /// They are reset.
        Reject = "reject",
    }
}

record! {
    /// From whom a PROXY header is read.
    pub struct AcceptProxy {
        /// These peers must send one; the bytes of others are data.
        from: List<IpNet>;
        /// The versions that are understood. Absent: both, see [`AcceptProxy::takes`].
        versions: Option<List<ProxyVersion>> = None;
    }
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

words! {
    /// A version of the PROXY protocol.
    pub enum ProxyVersion: "a version of the PROXY protocol" {
        /// The line of text.
        V1 = "v1",
        /// The binary one.
        V2 = "v2",
    }
}

record! {
    /// How long the client's side may take.
    pub struct ClientTimeouts {
        /// Silence. Absent: by protocol, see [`Frontend::client_timeout`].
        client: Option<OrOff<Duration>> = None;
        /// After one direction has ended.
        client_fin: Duration = Duration::from_secs(30);
        /// PROXY header, ClientHello, TLS handshake: each.
        preamble: Duration = Duration::from_secs(5);
        /// http: the whole head.
        request: Duration = Duration::from_secs(5);
        /// http: between two requests.
        keep_alive: Duration = Duration::from_secs(60);
        /// udp: a flow without a datagram.
        idle: Duration = Duration::from_secs(60);
    }
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

record! {
    /// When UDP flows end.
    pub struct Udp {
        /// After so many datagrams from the client. Absent: no cap.
        requests: Option<NonZeroU32> = None;
        /// ... and after so many answers.
        responses: Option<NonZeroU32> = None;
        /// No flows: every datagram is balanced by itself.
        per_datagram: bool = false;
    }
}

impl Udp {
    /// What a frontend without `udp` has.
    pub const ABSENT: Self = Self {
        requests: None,
        responses: None,
        per_datagram: false,
    };
}
