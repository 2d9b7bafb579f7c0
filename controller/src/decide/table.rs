//! Assembles the routing table of this node out of the plans of all Services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use ballast_core::table::{
    self, Access, Bind, Certificate, ClientAuth, ClientAuthMode, Frontend, FrontendHttp,
    FrontendTls, HostPattern, List, Log, MaxAge, Name, OrOff, PathMatch, Protocol, Route,
    RoutingTable, Stats,
};

use super::context::Context;
use super::files::{CLIENT_CA, ERROR_PAGE, HEALTHZ, WantedFile};
use super::grant::Grant;
use super::hosts;
use super::notice::{About, Notice, Reason};
use super::parts::tls;
use super::service_plan::{HTTP, HTTPS, Parts};
use super::shared_ports::SharedPorts;
use crate::settings::{HEALTHZ_PORT, HTTPS_PORT, HostOwnership, HttpServices, Settings};

/// The whole table. Takes the ports and routes out of the plans that nobody else keeps.
pub(super) fn assemble(
    context: &Context<'_>,
    shared: SharedPorts,
    grants: &mut [Grant],
) -> RoutingTable {
    let settings = context.settings;
    let mut frontends: Vec<Frontend> = Vec::new();
    if shared.http {
        frontends.extend(shared_http(settings, grants));
    }
    if shared.https {
        frontends.extend(shared_https(settings, grants));
    }
    let mut services: BTreeMap<Name, table::Service> = BTreeMap::new();
    for grant in &mut *grants {
        let here = grant
            .here(context)
            .filter(|port| !port.is_closed && !port.binds.is_empty());
        let here: Vec<(usize, Vec<Bind>)> = here.map(|port| (port.index, port.binds)).collect();
        for (index, binds) in here {
            let Some(parts) = grant.take_parts(index) else {
                continue;
            };
            let Parts {
                mut frontend,
                backend,
                canaries,
            } = *parts;
            frontend.bind = List::new(binds);
            frontends.push(frontend);
            let all = canaries.into_iter().chain([backend]);
            services.extend(all.map(|service| (service.name.clone(), service)));
        }
    }
    for grant in grants {
        for route in grant
            .take_routes()
            .into_iter()
            .filter(|route| !route.closed)
        {
            for canary in &route.shares.services {
                let place = services.entry(canary.name.clone());
                place.or_insert_with(|| canary.clone());
            }
            if let Some(backend) = route.backend {
                let place = services.entry(backend.name.clone());
                place.or_insert_with(|| Arc::unwrap_or_clone(backend));
            }
        }
    }
    frontends.sort_by(|one, other| one.name.cmp(&other.name));
    let mut stats = stats(settings);
    if frontends.iter().any(has_healthz_port) {
        stats.healthz = OrOff::Off;
    }
    let mut log = Log::default();
    if settings.flags.syslog {
        log.access = Access::Haproxy;
    }
    RoutingTable {
        version: 1,
        generation: None,
        stats,
        log,
        ticket_keys: None,
        frontends,
        services: services.into_values().collect(),
    }
}

/// Whether a frontend listens where `/healthz` is answered in the drop-in mode. A Service that was given that port comes first.
fn has_healthz_port(frontend: &Frontend) -> bool {
    let mut ports = frontend.bind.iter().map(Bind::port);
    frontend.protocol != Protocol::Udp && ports.any(|port| port == HEALTHZ_PORT)
}

/// A remark for a table in which a Service has the port of `/healthz`.
pub(super) fn lost_healthz(settings: &Settings, table: &RoutingTable) -> Option<Notice> {
    let is_lost = settings.answers_healthz() && table.stats.healthz == OrOff::Off;
    let frontend = table.frontends.iter().find(|one| has_healthz_port(one));
    let frontend = frontend.filter(|_| is_lost)?;
    let message = format!(
        "127.0.0.1:{HEALTHZ_PORT} does not answer /healthz: {} was given that port; ask http://NODE:{}/healthz",
        frontend.name, settings.flags.http_port
    );
    Some(Notice::normal(
        About::Flag("--http-services"),
        Reason::AllocationFailed,
        message,
    ))
}

/// The addresses at which the data plane shows statistics and its health, whatever it serves.
pub(crate) fn stats(settings: &Settings) -> Stats {
    let flags = &settings.flags;
    let port = flags.stats_port;
    let healthz = Bind::Exact(([127, 0, 0, 1], HEALTHZ_PORT).into());
    let ranges = &flags.stats_source_ranges;
    Stats {
        bind: Some(List::new(vec![Bind::Any { port }])),
        healthz: if settings.answers_healthz() {
            OrOff::On(List::new(vec![healthz]))
        } else {
            OrOff::Off
        },
        source_ranges: (!ranges.is_empty()).then(|| List::new(ranges.clone())),
    }
}

fn shared_http(settings: &Settings, grants: &[Grant]) -> Option<Frontend> {
    let (routes, default) = routes_and_default(settings, grants, false);
    Some(Frontend {
        routes,
        default,
        ..Frontend::new(
            HTTP.parse().ok()?,
            any(settings.flags.http_port),
            Protocol::Http,
        )
    })
}

/// The shared HTTPS port. Without any certificate it only relays TLS without decrypting it.
fn shared_https(settings: &Settings, grants: &[Grant]) -> Option<Frontend> {
    let own = settings.flags.ssl_cert.as_ref();
    let own = own.map(|_| WantedFile::default_certificate());
    let open = grants.iter().flat_map(Grant::routes);
    let open = open.filter(|route| !route.closed);
    let mut of_routes = certificates(settings, grants);
    of_routes.retain(|one| own.as_ref().is_none_or(|own| own.cert != one.cert));
    let own = own.into_iter();
    let certificates: Vec<Certificate> = own.chain(of_routes).collect();
    let name = HTTPS.parse().ok()?;
    let is_all = settings.flags.http_services == HttpServices::All;
    let answers_all = is_all && !certificates.is_empty();
    if !open.clone().any(|route| route.secure) && !answers_all {
        return None;
    }
    if certificates.is_empty() {
        return Some(Frontend {
            routes: List::new(routes(grants, true).0),
            ..Frontend::new(name, any(HTTPS_PORT), Protocol::Tls)
        });
    }
    let (routes, default) = routes_and_default(settings, grants, true);
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
        default,
        ..Frontend::new(name, any(HTTPS_PORT), Protocol::Https)
    })
}

/// The certificates of the routes of the shared HTTPS port. Where several namespaces have hosts there, each certificate is offered
/// for the hosts of its own routes only, so that no namespace can show its certificate for a name of another one.
fn certificates(settings: &Settings, grants: &[Grant]) -> Vec<Certificate> {
    let is_shared = settings.flags.host_ownership == HostOwnership::Namespace
        && hosts::namespaces(grants).len() > 1;
    let mut found: BTreeMap<PathBuf, (Certificate, Option<BTreeSet<HostPattern>>)> =
        BTreeMap::new();
    let routes = grants.iter().flat_map(Grant::routes);
    for route in routes.filter(|route| !route.closed) {
        let Some(certificate) = &route.certificate else {
            continue;
        };
        let new = || (certificate.clone(), Some(BTreeSet::new()));
        let (_, hosts) = found
            .entry(certificate.cert.to_path_buf())
            .or_insert_with(new);
        match (&route.route.host, hosts.as_mut()) {
            (Some(host), Some(hosts)) => _ = hosts.insert(host.clone()),
            // A route for all hosts: the names in the certificate.
            _ => *hosts = None,
        }
    }
    let certificates = found.into_values().map(|(certificate, hosts)| Certificate {
        hosts: hosts
            .filter(|_| is_shared)
            .map(|hosts| List::new(hosts.into_iter().collect())),
        ..certificate
    });
    let mut certificates: Vec<Certificate> = certificates.collect();
    // Of two certificates for one name the first is offered.
    certificates.sort_by_key(|certificate| certificate.hosts.is_none());
    certificates
}

/// The routes of a shared HTTP port, and what becomes of all other requests. As service-loadbalancer did, the port answers
/// `/healthz` itself where no Service has that path, or every path.
fn routes_and_default(
    settings: &Settings,
    grants: &[Grant],
    secure: bool,
) -> (List<Route>, Option<Box<Route>>) {
    let (mut routes, root) = routes(grants, secure);
    let is_taken = |route: &Route| route.host.is_none() && route.path() == HEALTHZ_PATH;
    if settings.answers_healthz() && root.is_none() && !routes.iter().any(is_taken) {
        routes.push(Route {
            path: HEALTHZ_PATH.parse().ok(),
            r#match: PathMatch::Exact,
            status: Some(200),
            body_file: Some(PathBuf::from(HEALTHZ).into()),
            ..Route::default()
        });
    }
    let default = root.unwrap_or_else(|| default_route(settings));
    (List::new(routes), Some(Box::new(default)))
}

/// The routes of a shared port, in a fixed order without a meaning; and the route for every request, which becomes the default.
fn routes(grants: &[Grant], secure: bool) -> (Vec<Route>, Option<Route>) {
    let routes = grants.iter().flat_map(Grant::routes);
    let open = routes.filter(|route| route.secure == secure && !route.closed);
    let all = open.flat_map(|one| one.shares.by_header(&one.route).chain([one.route.clone()]));
    let mut routes: Vec<Route> = all.collect();
    routes.sort_by(|one, other| (&one.host, one.path()).cmp(&(&other.host, other.path())));
    let is_root =
        |route: &Route| route.host.is_none() && route.path() == "/" && route.when.is_none();
    let root = routes.iter().position(is_root);
    let root = root.map(|index| Route {
        path: None,
        r#match: PathMatch::Segment,
        ignore_case: false,
        ..routes.remove(index)
    });
    (routes, root)
}

/// The answer to requests that lead to no Service.
fn default_route(settings: &Settings) -> Route {
    let page = settings.flags.error_page.as_ref();
    Route {
        status: Some(settings.flags.default_return_code),
        body_file: page.map(|_| PathBuf::from(ERROR_PAGE).into()),
        ..Route::default()
    }
}

fn any(port: u16) -> Vec<Bind> {
    vec![Bind::Any { port }]
}

const HEALTHZ_PATH: &str = "/healthz";
/// 15,768,000 seconds, as service-loadbalancer had it.
const HSTS: &str = "4380h";
