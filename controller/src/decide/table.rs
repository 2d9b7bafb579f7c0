//! The table of this node, from what all Services got. The last step of a decision.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::Asked;
use super::claims::Claim;
use super::files::{CLIENT_CA, ERROR_PAGE, WantedFile};
use super::knobs::Wish;
use crate::observe::{Key, Port, Service};
use crate::settings::{HEALTHZ_PORT, HTTPS_PORT, HttpServices, Settings};
use ballast_core::table::{
    self, AcceptProxy, Access, Affinity, Bind, Certificate, ClientAuth, ClientAuthMode,
    ClientTimeouts, EndpointTls, Entries, Frontend, FrontendHttp, FrontendTls, Health, HostPattern,
    HttpVersion, LabelKey, List, Log, MaxAge, Name, OnLimit, OrOff, PathMatch, Protocol, Redirect,
    Route, RoutingTable, ServiceHttp, ServiceTimeouts, Stats, Text, TlsVersion, UnknownName,
    XForwarded,
};

/// A port of the node that leads to one Service port.
pub(super) struct Offer {
    pub(super) claim: Claim,
    /// Without a bind: not on this node.
    pub(super) frontend: Frontend,
    pub(super) backend: table::Service,
    /// Its certificate cannot be had: the port is held, and nothing listens there.
    pub(super) closed: bool,
}

/// A route of a shared port.
pub(super) struct SharedRoute {
    /// On the HTTPS port, not on the HTTP one.
    pub(super) secure: bool,
    /// Whether an annotation asks for it; else it exists by `--http-services=all` alone.
    pub(super) by_annotation: bool,
    pub(super) route: Route,
    /// The certificate that the HTTPS port needs for the route.
    pub(super) certificate: Option<Certificate>,
    /// The service to which the route leads.
    pub(super) backend: Option<table::Service>,
    /// Its certificate cannot be had: it is held, and nothing is served by it.
    pub(super) closed: bool,
}

impl SharedRoute {
    /// The keys by which conflicts between routes are found: the requests of the route, which no other route may have; and on the
    /// HTTPS port its host, with whether connections are relayed unopened, which must be the same for all routes of the host.
    pub(super) fn places(&self) -> Vec<(String, Option<bool>)> {
        let route = &self.route;
        let scheme = if self.secure { "https" } else { "http" };
        let host = route
            .host
            .as_ref()
            .map_or_else(|| "*".to_owned(), HostPattern::to_string);
        let path = match route.ignore_case {
            true => route.path().to_ascii_lowercase(),
            false => route.path().to_owned(),
        };
        let kind = if path == "/" {
            PathMatch::Segment
        } else {
            route.r#match
        };
        let case = if route.ignore_case && path != "/" {
            ", any case"
        } else {
            ""
        };
        let mut places = vec![(format!("{scheme}://{host}{path} ({kind}{case})"), None)];
        if self.secure {
            places.push((format!("{scheme}://{host}"), Some(route.passthrough)));
        }
        places
    }
}

/// Which shared ports exist.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) http: bool,
    pub(super) https: bool,
}

impl Shared {
    pub(super) fn has(self, secure: bool) -> bool {
        if secure { self.https } else { self.http }
    }

    /// Removes a shared port that another Service owns.
    pub(super) fn remove(&mut self, secure: bool) {
        match secure {
            true => self.https = false,
            false => self.http = false,
        }
    }
}

/// The shared ports that exist: those for which a Service has a route; with `--http-services=all` also HTTP and, with
/// `--ssl-cert`, HTTPS.
pub(super) fn shared_ports(settings: &Settings, asked: &[Asked<'_>]) -> Shared {
    let all = settings.flags.http_services == HttpServices::All;
    let mut routes = asked.iter().flat_map(|one| &one.routes);
    Shared {
        http: all || routes.clone().any(|route| !route.secure),
        https: (all && settings.flags.ssl_cert.is_some()) || routes.any(|route| route.secure),
    }
}

/// The whole table. Takes the offers and routes.
pub(super) fn assemble(
    settings: &Settings,
    ports: Shared,
    asked: &mut [Asked<'_>],
) -> RoutingTable {
    let mut frontends: Vec<Frontend> = Vec::new();
    if ports.http {
        frontends.extend(shared_http(settings, asked));
    }
    if ports.https {
        frontends.extend(shared_https(settings, asked));
    }
    let mut services: BTreeMap<Name, table::Service> = BTreeMap::new();
    let offers = asked
        .iter_mut()
        .flat_map(|one| std::mem::take(&mut one.offers));
    for offer in offers.filter(|offer| !offer.frontend.bind.is_empty() && !offer.closed) {
        frontends.push(offer.frontend);
        services.insert(offer.backend.name.clone(), offer.backend);
    }
    let routes = asked
        .iter_mut()
        .flat_map(|one| std::mem::take(&mut one.routes));
    let open = routes.filter(|route| !route.closed);
    for backend in open.filter_map(|route| route.backend) {
        services.entry(backend.name.clone()).or_insert(backend);
    }
    frontends.sort_by(|one, other| one.name.cmp(&other.name));
    RoutingTable {
        version: 1,
        generation: None,
        stats: stats(settings),
        log: match settings.flags.syslog {
            true => Log {
                access: Access::Haproxy,
                ..Log::default()
            },
            false => Log::default(),
        },
        ticket_keys: None,
        frontends,
        services: services.into_values().collect(),
    }
}

/// Where the data plane answers for itself, whatever it serves.
pub(crate) fn stats(settings: &Settings) -> Stats {
    let flags = &settings.flags;
    Stats {
        bind: Some(List::new(vec![Bind::Any {
            port: flags.stats_port,
        }])),
        healthz: match flags.http_services == HttpServices::All {
            true => OrOff::On(List::new(vec![Bind::Exact(
                ([127, 0, 0, 1], HEALTHZ_PORT).into(),
            )])),
            false => OrOff::Off,
        },
        source_ranges: (!flags.stats_source_ranges.is_empty())
            .then(|| List::new(flags.stats_source_ranges.clone())),
    }
}

fn shared_http(settings: &Settings, asked: &[Asked<'_>]) -> Option<Frontend> {
    let (routes, root) = routes(asked, false);
    Some(Frontend {
        routes,
        default: root.or_else(|| default_route(settings)).map(Box::new),
        ..bare(HTTP.parse().ok()?, settings.flags.http_port, Protocol::Http)
    })
}

/// Without a certificate there are only connections that pass unopened.
fn shared_https(settings: &Settings, asked: &[Asked<'_>]) -> Option<Frontend> {
    let own = settings
        .flags
        .ssl_cert
        .as_ref()
        .map(|_| WantedFile::default_certificate());
    let routes_of_all = || asked.iter().flat_map(|one| &one.routes);
    let of_services = routes_of_all()
        .filter(|route| !route.closed)
        .filter_map(|route| route.certificate.clone());
    let mut certificates: Vec<Certificate> = of_services.collect();
    certificates.sort_by(|one, other| one.cert.cmp(&other.cert));
    let mut certificates: Vec<Certificate> = own.into_iter().chain(certificates).collect();
    let mut seen = Vec::new();
    certificates.retain(|certificate| {
        let is_new = !seen.contains(&certificate.cert);
        seen.push(certificate.cert.clone());
        is_new
    });
    let name = HTTPS.parse().ok()?;
    let is_all = settings.flags.http_services == HttpServices::All;
    let is_open = routes_of_all().any(|route| route.secure && !route.closed);
    let answers_all = is_all && !certificates.is_empty();
    if !is_open && !answers_all {
        return None;
    }
    let (routes, root) = routes(asked, true);
    if certificates.is_empty() {
        return Some(Frontend {
            routes,
            ..bare(name, HTTPS_PORT, Protocol::Tls)
        });
    }
    let client_auth = settings.flags.ssl_ca_cert.as_ref().map(|_| ClientAuth {
        ca: PathBuf::from(CLIENT_CA).into(),
        mode: ClientAuthMode::Required,
        header: None,
    });
    Some(Frontend {
        tls: Some(Box::new(FrontendTls {
            client_auth,
            ..tls(certificates)
        })),
        http: Some(Box::new(FrontendHttp {
            hsts: HSTS.parse::<MaxAge>().ok(),
            ..FrontendHttp::ABSENT.clone()
        })),
        routes,
        default: root.or_else(|| default_route(settings)).map(Box::new),
        ..bare(name, HTTPS_PORT, Protocol::Https)
    })
}

/// In a fixed order, which means nothing; and the one for every request, which a table has as its default alone.
fn routes(asked: &[Asked<'_>], secure: bool) -> (List<Route>, Option<Route>) {
    let mut routes: Vec<Route> = asked
        .iter()
        .flat_map(|one| &one.routes)
        .filter(|route| route.secure == secure && !route.closed)
        .map(|route| route.route.clone())
        .collect();
    routes.sort_by(|one, other| (&one.host, one.path()).cmp(&(&other.host, other.path())));
    let is_root = |route: &Route| route.host.is_none() && route.path() == "/";
    let root = routes.iter().position(is_root);
    let root = root.map(|index| Route {
        path: None,
        r#match: PathMatch::Segment,
        ignore_case: false,
        ..routes.remove(index)
    });
    (List::new(routes), root)
}

/// What is answered where no Service is meant.
fn default_route(settings: &Settings) -> Option<Route> {
    Some(Route {
        status: Some(settings.flags.default_return_code),
        body_file: settings
            .flags
            .error_page
            .as_ref()
            .map(|_| PathBuf::from(ERROR_PAGE).into()),
        ..route(None)
    })
}

/// The frontend of one Service port.
pub(super) fn frontend(
    name: &Name,
    description: Option<Text>,
    service: &Key,
    wish: &Wish,
    certificate: Option<Certificate>,
    binds: Vec<Bind>,
) -> Frontend {
    let protocol = wish.protocol;
    let leads_here = matches!(protocol, Protocol::Tcp | Protocol::Udp);
    let mut frontend = Frontend {
        description,
        labels: labels(service),
        bind: List::new(binds),
        service: leads_here.then(|| name.clone()),
        accept_proxy: wish.accept_proxy.clone().map(|from| {
            Box::new(AcceptProxy {
                from: List::new(from),
                versions: None,
            })
        }),
        source_ranges: wish.ranges.list(),
        max_connections: wish.limit,
        timeouts: ClientTimeouts {
            client: wish.timeout_client,
            idle: wish.udp_timeout.unwrap_or(ClientTimeouts::ABSENT.idle),
            ..ClientTimeouts::ABSENT
        },
        tls: certificate.map(|certificate| Box::new(tls(vec![certificate]))),
        http: own_http(wish),
        ..bare(name.clone(), 0, protocol)
    };
    if protocol == Protocol::Tls && !wish.passthrough.is_empty() {
        let hosts = wish.passthrough.iter().map(|host| Route {
            host: Some(host.clone()),
            ..route(Some(name.clone()))
        });
        frontend.routes = hosts.collect();
    } else if protocol == Protocol::Http && wish.redirect_https {
        frontend.default = Some(Box::new(to_https()));
    } else if !leads_here {
        frontend.default = Some(Box::new(route(Some(name.clone()))));
    }
    frontend
}

fn own_http(wish: &Wish) -> Option<Box<FrontendHttp>> {
    let hsts = wish.hsts.filter(|_| wish.protocol == Protocol::Https);
    if !wish.protocol.is_http() || (hsts.is_none() && !wish.x_forwarded_off) {
        return None;
    }
    Some(Box::new(FrontendHttp {
        hsts,
        x_forwarded: match wish.x_forwarded_off {
            true => XForwarded::Off,
            false => XForwarded::Append,
        },
        ..FrontendHttp::ABSENT.clone()
    }))
}

/// The table's service of one Service port.
pub(super) fn backend(
    name: &Name,
    description: Option<Text>,
    service: &Service,
    port: &Port,
    wish: &Wish,
    health: Option<Health>,
    endpoints: Vec<table::Endpoint>,
) -> table::Service {
    let affinity = match service.affinity {
        _ if wish.cookie => COOKIE.parse().ok().map(Affinity::Cookie),
        Some(seconds) => Some(Affinity::ClientIp(Duration::from_secs(seconds.into()))),
        None => None,
    };
    let spoken = Spoken::of(port.app_protocol.as_deref()).filter(|_| wish.protocol.is_http());
    table::Service {
        name: name.clone(),
        description,
        labels: labels(&service.key),
        algorithm: wish.algorithm,
        affinity,
        send_proxy: wish.send_proxy,
        send_proxy_tlvs: None,
        send_proxy_udp: table::SendProxyUdp::Every,
        retries: 3,
        max_queue: NonZeroU32::new(1024).map_or(OrOff::Off, OrOff::On),
        source: List::default(),
        timeouts: ServiceTimeouts {
            connect: wish
                .timeout_connect
                .unwrap_or(ServiceTimeouts::ABSENT.connect),
            server: wish.timeout_server,
            ..ServiceTimeouts::ABSENT
        },
        all_down: table::AllDown::TryAll,
        slow_start: None,
        on_down: table::OnGone::Keep,
        on_removed: wish.on_removed,
        health: health.map(Box::new),
        ejection: OrOff::On(table::Ejection::ABSENT),
        tls: (spoken == Some(Spoken::Tls)).then(|| Box::new(unverified())),
        http: (spoken == Some(Spoken::H2)).then(|| {
            Box::new(ServiceHttp {
                version: HttpVersion::H2,
                ..ServiceHttp::default()
            })
        }),
        endpoints,
    }
}

/// What an endpoint of HTTP speaks that is not plain HTTP/1.1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoken {
    H2,
    Tls,
}

impl Spoken {
    /// By a port's `appProtocol`. Where bytes are relayed it means nothing.
    fn of(word: Option<&str>) -> Option<Self> {
        match word? {
            "kubernetes.io/h2c" | "h2c" => Some(Self::H2),
            "kubernetes.io/wss" | "https" => Some(Self::Tls),
            // http, kubernetes.io/ws and tcp among them.
            _ => None,
        }
    }
}

/// Nobody said which certificates the pods have.
fn unverified() -> EndpointTls {
    EndpointTls {
        sni: None,
        ca: None,
        cert: None,
        key: None,
        insecure: true,
    }
}

/// A route to a service of the table, or to nowhere yet.
pub(super) fn route(service: Option<Name>) -> Route {
    Route {
        host: None,
        path: None,
        r#match: PathMatch::Segment,
        ignore_case: false,
        source_ranges: None,
        alpn: None,
        passthrough: false,
        service,
        rewrite: None,
        map_back: None,
        redirect: None,
        status: None,
        body_file: None,
        content_type: None,
    }
}

/// The same address, by https.
pub(super) fn to_https() -> Route {
    Route {
        redirect: "https".parse().ok().map(|scheme| {
            Box::new(Redirect {
                scheme: Some(scheme),
                host: None,
                port: None,
                path: None,
                status: None,
            })
        }),
        ..route(None)
    }
}

fn tls(certificates: Vec<Certificate>) -> FrontendTls {
    FrontendTls {
        certificates: List::new(certificates),
        unknown_name: UnknownName::Default,
        min_version: TlsVersion::V12,
        alpn: None,
        client_auth: None,
    }
}

fn bare(name: Name, port: u16, protocol: Protocol) -> Frontend {
    Frontend {
        name,
        description: None,
        labels: Entries::default(),
        bind: List::new(vec![Bind::Any { port }]),
        protocol,
        service: None,
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

fn labels(service: &Key) -> Entries<LabelKey, Text> {
    let pairs = [
        ("namespace", &service.namespace),
        ("service", &service.name),
    ];
    let entries = pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key.parse().ok()?, value.parse().ok()?)));
    Entries::new(entries.collect())
}

/// The names of the shared frontends.
pub(super) const HTTP: &str = "http";

pub(super) const HTTPS: &str = "https";

const COOKIE: &str = "SERVERID";

/// service-loadbalancer's 15,768,000 seconds.
const HSTS: &str = "4380h";
