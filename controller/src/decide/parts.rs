//! The parts of a routing table that one Service port becomes: a frontend, a service, routes.

use std::num::NonZeroU32;
use std::time::Duration;

use ballast_core::table::{
    self, AcceptProxy, Affinity, Bind, Certificate, ClientTimeouts, EndpointTls, Entries, Frontend,
    FrontendHttp, FrontendTls, Health, HttpVersion, LabelKey, List, Name, OnLimit, OrOff,
    PathMatch, Protocol, Redirect, Route, ServiceHttp, ServiceTimeouts, Text, TlsVersion,
    UnknownName, XForwarded,
};

use super::knobs::PortOptions;
use crate::observe::{self, Key, Port, Service};

/// The frontend of one Service port.
pub(super) fn frontend(
    name: &Name,
    description: Option<Text>,
    service: &Key,
    options: &PortOptions,
    certificate: Option<Certificate>,
    binds: Vec<Bind>,
) -> Frontend {
    let protocol = options.protocol;
    let leads_here = matches!(protocol, Protocol::Tcp | Protocol::Udp);
    let mut frontend = Frontend {
        description,
        labels: labels(service),
        bind: List::new(binds),
        service: leads_here.then(|| name.clone()),
        accept_proxy: options.accept_proxy.clone().map(|from| {
            Box::new(AcceptProxy {
                from: List::new(from),
                versions: None,
            })
        }),
        source_ranges: options.ranges.list(),
        max_connections: options.limit,
        timeouts: ClientTimeouts {
            client: options.timeout_client,
            idle: options.udp_timeout.unwrap_or(ClientTimeouts::ABSENT.idle),
            ..ClientTimeouts::ABSENT
        },
        tls: certificate.map(|certificate| Box::new(tls(vec![certificate]))),
        http: own_http(options),
        ..empty_frontend(name.clone(), 0, protocol)
    };
    if protocol == Protocol::Tls && !options.passthrough.is_empty() {
        let hosts = options.passthrough.iter().map(|host| Route {
            host: Some(host.clone()),
            ..route(Some(name.clone()))
        });
        frontend.routes = hosts.collect();
    } else if protocol == Protocol::Http && options.redirect_https {
        frontend.default = Some(Box::new(to_https()));
    } else if !leads_here {
        frontend.default = Some(Box::new(route(Some(name.clone()))));
    }
    frontend
}

fn own_http(options: &PortOptions) -> Option<Box<FrontendHttp>> {
    let hsts = options.hsts.filter(|_| options.protocol == Protocol::Https);
    if !options.protocol.is_http() || (hsts.is_none() && !options.x_forwarded_off) {
        return None;
    }
    Some(Box::new(FrontendHttp {
        hsts,
        x_forwarded: match options.x_forwarded_off {
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
    options: &PortOptions,
    health: Option<Health>,
    endpoints: Vec<table::Endpoint>,
) -> table::Service {
    let affinity = match service.affinity {
        _ if options.cookie => COOKIE.parse().ok().map(Affinity::Cookie),
        Some(seconds) => Some(Affinity::ClientIp(Duration::from_secs(seconds.into()))),
        None => None,
    };
    let spoken =
        EndpointProtocol::of(port.app_protocol.as_deref()).filter(|_| options.protocol.is_http());
    table::Service {
        name: name.clone(),
        description,
        labels: labels(&service.key),
        algorithm: options.algorithm,
        affinity,
        send_proxy: options.send_proxy,
        send_proxy_tlvs: None,
        send_proxy_udp: table::SendProxyUdp::Every,
        retries: 3,
        max_queue: NonZeroU32::new(1024).map_or(OrOff::Off, OrOff::On),
        source: List::default(),
        timeouts: ServiceTimeouts {
            connect: options
                .timeout_connect
                .unwrap_or(ServiceTimeouts::ABSENT.connect),
            server: options.timeout_server,
            ..ServiceTimeouts::ABSENT
        },
        all_down: table::AllDown::TryAll,
        slow_start: None,
        on_down: table::OnGone::Keep,
        on_removed: options.on_removed,
        health: health.map(Box::new),
        ejection: OrOff::On(table::Ejection::ABSENT),
        tls: (spoken == Some(EndpointProtocol::Tls)).then(|| Box::new(unverified())),
        http: (spoken == Some(EndpointProtocol::H2)).then(|| {
            Box::new(ServiceHttp {
                version: HttpVersion::H2,
                ..ServiceHttp::default()
            })
        }),
        endpoints,
    }
}

/// The protocol of HTTP endpoints, if it is not plain HTTP/1.1.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndpointProtocol {
    H2,
    Tls,
}

impl EndpointProtocol {
    /// By the `appProtocol` of a Service port. It has no meaning where bytes are relayed.
    fn of(word: Option<&str>) -> Option<Self> {
        match word? {
            "kubernetes.io/h2c" | "h2c" => Some(Self::H2),
            "kubernetes.io/wss" | "https" => Some(Self::Tls),
            // http, kubernetes.io/ws, tcp, and all other words.
            _ => None,
        }
    }
}

/// TLS to endpoints without verification: Kubernetes has no field for the certificates of pods.
fn unverified() -> EndpointTls {
    EndpointTls {
        sni: None,
        ca: None,
        cert: None,
        key: None,
        insecure: true,
    }
}

/// A route that matches every request, to this service of the table.
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

/// A redirect to the same URL with the scheme https.
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

pub(super) fn tls(certificates: Vec<Certificate>) -> FrontendTls {
    FrontendTls {
        certificates: List::new(certificates),
        unknown_name: UnknownName::Default,
        min_version: TlsVersion::V12,
        alpn: None,
        client_auth: None,
    }
}

pub(super) fn empty_frontend(name: Name, port: u16, protocol: Protocol) -> Frontend {
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

const COOKIE: &str = "SERVERID";

/// The name of a Service port in the table: `NAMESPACE.NAME:PORT`, with `-udp` for UDP.
pub(super) fn qualified(key: &Key, port: &Port) -> Option<Name> {
    let udp = if port.protocol == observe::Protocol::Udp {
        "-udp"
    } else {
        ""
    };
    format!("{}.{}:{}{udp}", key.namespace, key.name, port.number)
        .parse()
        .ok()
}
