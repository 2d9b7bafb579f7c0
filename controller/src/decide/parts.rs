//! The parts of a routing table that one Service port becomes: a frontend, a service, routes.

use std::sync::Arc;
use std::time::Duration;

use ballast_core::table::{
    self, AcceptProxy, Affinity, Certificate, ClientTimeouts, EndpointTls, Entries, Frontend,
    FrontendHttp, FrontendTls, Health, HttpVersion, LabelKey, List, Name, Protocol, Redirect,
    Route, ServiceHttp, ServiceTimeouts, State, Text, TlsVersion, UnknownName, XForwarded,
};

use super::canaries::{HEADER, OF};
use super::context::Context;
use super::endpoints::{self, Scope};
use super::notice::{About, Notice, Reason};
use super::options::PortOptions;
use super::service_plan::{Parts, ServicePlan};
use super::shares::{Shares, counterpart};
use crate::observe::{self, Key, Port};

/// The frontend of one Service port, without the addresses at which it listens.
pub(super) fn frontend(
    name: &Name,
    description: Option<Text>,
    service: &Key,
    options: &PortOptions,
    certificate: Option<Certificate>,
) -> Frontend {
    let protocol = options.protocol;
    let leads_here = matches!(protocol, Protocol::Tcp | Protocol::Udp);
    let mut frontend = Frontend {
        description,
        labels: labels(service),
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
        ..Frontend::new(name.clone(), Vec::new(), protocol)
    };
    if protocol == Protocol::Tls && !options.passthrough.is_empty() {
        let hosts = options.passthrough.iter().map(|host| Route {
            host: Some(host.clone()),
            service: Some(name.clone()),
            ..Route::default()
        });
        frontend.routes = hosts.collect();
    } else if protocol == Protocol::Http && options.redirect_https {
        frontend.default = Some(Box::new(to_https()));
    } else if !leads_here {
        frontend.default = Some(Box::new(Route {
            service: Some(name.clone()),
            ..Route::default()
        }));
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

/// The table's service of one Service port. With `only_on` it has the endpoints on the node of that name only.
pub(super) fn backend(
    context: &Context<'_>,
    plan: &mut ServicePlan,
    name: &Name,
    description: Option<Text>,
    port: &Port,
    options: &PortOptions,
    health: Option<Health>,
    only_on: Option<&str>,
) -> table::Service {
    let service = Arc::clone(&plan.service);
    let service = &*service;
    let goes_by_node = endpoints::goes_by_node(context.settings, service);
    let nodes = options.target_nodes.as_ref().filter(|_| goes_by_node);
    plan.wanted.nodes |= nodes.is_some();
    let endpoints = endpoints::of_port(context, service, port, Scope { nodes, only_on });
    let affinity = match service.affinity {
        _ if options.cookie => COOKIE.parse().ok().map(Affinity::Cookie),
        Some(seconds) => Some(Affinity::ClientIp(Duration::from_secs(seconds.into()))),
        None => None,
    };
    let (tls, http) = spoken(port, options);
    table::Service {
        description,
        labels: labels(&service.key),
        algorithm: options.algorithm,
        affinity,
        send_proxy: options.send_proxy,
        timeouts: ServiceTimeouts {
            connect: options
                .timeout_connect
                .unwrap_or(ServiceTimeouts::ABSENT.connect),
            server: options.timeout_server,
            ..ServiceTimeouts::ABSENT
        },
        on_removed: options.on_removed,
        health: health.map(Box::new),
        tls,
        http,
        endpoints,
        ..table::Service::new(name.clone())
    }
}

/// What a port becomes in a table, with what its canaries get.
pub(super) fn parts(
    context: &Context<'_>,
    plan: &mut ServicePlan,
    mut frontend: Frontend,
    backend: table::Service,
    port: &Port,
    options: &PortOptions,
    only_on: Option<&str>,
) -> Box<Parts> {
    let shares = shares(context, plan, &backend, port, options, only_on);
    shares.split_frontend(&mut frontend);
    Box::new(Parts {
        frontend,
        backend,
        canaries: shares.services,
    })
}

/// What the canaries of one Service port get, of which `main` is the service in the table: they have its settings, and endpoints
/// of their own. Warnings are about the canaries.
pub(super) fn shares(
    context: &Context<'_>,
    plan: &mut ServicePlan,
    main: &table::Service,
    port: &Port,
    options: &PortOptions,
    only_on: Option<&str>,
) -> Shares {
    let service = Arc::clone(&plan.service);
    let service = &*service;
    let nodes = options.target_nodes.as_ref();
    let nodes = nodes.filter(|_| endpoints::goes_by_node(context.settings, service));
    let is_http = options.protocol.is_http();
    let (number, protocol) = (port.number, port.protocol.word());
    let at = format!("port {number}/{protocol} of {}", service.key);
    let mut shares = Shares::default();
    for canary in context.canaries.of_service(&service.key) {
        let key = &canary.service.key;
        let mut warn = |message| {
            let about = About::Service(key.clone());
            let notice = Notice::warning(about, Reason::InvalidAnnotation, message);
            plan.notices.insert(notice);
        };
        if canary.header.is_some() && !is_http {
            warn(format!(
                "{HEADER}: {at} does not speak HTTP; it has no effect there"
            ));
        }
        let Some(own) = counterpart(canary.service, port) else {
            warn(format!(
                "{OF}: this Service has no port for {at}: none of its name or number, nor one alone of its protocol; it gets nothing there"
            ));
            continue;
        };
        let Ok(name) = format!("{}_{}", main.name, key.name).parse() else {
            warn(format!(
                "{OF}: the names of {at} and of this Service are too long together; it gets nothing there"
            ));
            continue;
        };
        let endpoints = endpoints::of_port(context, canary.service, own, Scope { nodes, only_on });
        if endpoints
            .iter()
            .any(|endpoint| endpoint.state == State::Ready)
        {
            let (tls, http) = spoken(own, options);
            let service = table::Service {
                name,
                description: None,
                labels: labels(key),
                tls,
                http,
                endpoints,
                ..main.clone()
            };
            shares.add(canary, is_http, service);
        }
    }
    shares.leave(&main.name)
}

/// What endpoints speak, by the `appProtocol` of the Service port, which has no meaning where bytes are relayed.
fn spoken(
    port: &Port,
    options: &PortOptions,
) -> (Option<Box<EndpointTls>>, Option<Box<ServiceHttp>>) {
    let spoken = port.app_protocol.as_deref();
    // Kubernetes has no field for the certificates of pods.
    let unverified = || EndpointTls {
        insecure: true,
        ..EndpointTls::default()
    };
    let h2 = || ServiceHttp {
        version: HttpVersion::H2,
        ..ServiceHttp::default()
    };
    match spoken.filter(|_| options.protocol.is_http()) {
        Some("kubernetes.io/wss" | "https") => (Some(Box::new(unverified())), None),
        Some("kubernetes.io/h2c" | "h2c") => (None, Some(Box::new(h2()))),
        // http, kubernetes.io/ws, tcp, and all other words.
        _ => (None, None),
    }
}

/// A redirect to the same URL with the scheme https.
pub(super) fn to_https() -> Route {
    let redirect = "https".parse().ok().map(|scheme| Redirect {
        scheme: Some(scheme),
        ..Redirect::default()
    });
    Route {
        redirect: redirect.map(Box::new),
        ..Route::default()
    }
}

pub(super) fn tls(certificates: Vec<Certificate>) -> FrontendTls {
    FrontendTls {
        certificates: List::new(certificates),
        unknown_name: UnknownName::Default,
        no_name: UnknownName::Default,
        min_version: TlsVersion::V12,
        alpn: None,
        client_auth: None,
    }
}

fn labels(service: &Key) -> Entries<LabelKey, Text> {
    let Key { namespace, name } = service;
    let pairs = [("namespace", namespace), ("service", name)].into_iter();
    let entries = pairs.filter_map(|(key, value)| Some((key.parse().ok()?, value.parse().ok()?)));
    Entries::new(entries.collect())
}

const COOKIE: &str = "SERVERID";

/// The name of a Service port in the table: `NAMESPACE.NAME:PORT`, with `-udp` for UDP.
pub(super) fn qualified(key: &Key, port: &Port) -> Option<Name> {
    let Key { namespace, name } = key;
    let udp = match port.protocol {
        observe::Protocol::Udp => "-udp",
        observe::Protocol::Tcp | observe::Protocol::Sctp => "",
    };
    let name = format!("{namespace}.{name}:{}{udp}", port.number);
    name.parse().ok()
}
