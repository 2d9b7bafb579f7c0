//! Plans a Service that is no LoadBalancer, as service-loadbalancer did: by routes of the shared HTTP and HTTPS ports, and by
//! `--tcp-services`.

use std::sync::Arc;

use ballast_core::table::{HostPattern, Name, OrMap, PathMatch, Protocol, Route, UrlPath};

use super::annotations::values::{Paths, Rewrite};
use super::annotations::{OWN, Reader, knobs};
use super::canaries;
use super::certificate::{Termination, certificate};
use super::context::Context;
use super::endpoints::warn_of_slices;
use super::external_name::look_up;
use super::health;
use super::names::{BareNames, asks_for_route, contends, wants_http};
use super::notice::Reason;
use super::options::{PortOptions, ReachedBy};
use super::parts::{backend, frontend, parts, qualified, shares, to_https};
use super::placement::internal;
use super::ports::served_ports;
use super::ranges::Ranges;
use super::route_limit::RouteLimit;
use super::service_plan::{HTTP, HTTPS, PortPlan, ServicePlan, SharedRoute};
use super::status::{Status, Verdict};
use crate::allocation::NodePort;
use crate::observe::{self, Key, Port, Service, ServiceKind};

/// Plans a Service that is no LoadBalancer.
pub(super) fn plan(
    context: &Context<'_>,
    names: &BareNames<'_>,
    service: &Arc<Service>,
) -> ServicePlan {
    let settings = context.settings;
    let mut reader = Reader::new(service, context.observed, settings);
    if reader.is_on(&knobs::IGNORE, None) {
        let status = Status::left_alone(service, "an annotation says to ignore it");
        return ServicePlan::nothing(service, status).left_alone_by(reader);
    }
    let contends = contends(service, context.observed, settings);
    if !contends && canaries::asks(service) {
        return plan_canary(context, reader, service);
    }
    if !contends {
        let why = "it is not of type LoadBalancer, and no annotation or flag asks to serve it";
        let status = Status::left_alone(service, why);
        return ServicePlan::nothing(service, status).withdrawn(&context.observed.remembered);
    }
    let mut plan = ServicePlan::nothing(service, Status::new(service, Verdict::Routed, ""));
    reader.note_keys_without_effect();
    warn_of_slices(context, &mut reader);
    canaries::read(&mut reader);
    match internal(&mut reader) {
        true => refuse_internal(&mut reader, &mut plan),
        false => plan_ports(context, names, &mut reader, &mut plan),
    }
    plan.drop_doubles();
    // One that can be read to be internal asks for no shared port, whatever else cannot be read.
    if reader.has_unread && !reader.is_on(&knobs::INTERNAL, None) {
        plan.keep_routes(settings);
    }
    plan.with_findings(reader)
}

/// Plans a Service that is a canary and nothing else. What leads to it belongs to the Service that it is a canary of.
fn plan_canary(
    context: &Context<'_>,
    mut reader: Reader<'_>,
    service: &Arc<Service>,
) -> ServicePlan {
    reader.note_keys_without_effect();
    warn_of_slices(context, &mut reader);
    let found = canaries::read(&mut reader);
    let told = found.and_then(|(target, _)| context.canaries.told(&target, service));
    let status = match told {
        Some(what) => Status::new(service, Verdict::Routed, what),
        None => Status::left_alone(service, "it is a canary that gets nothing"),
    };
    let mut plan = ServicePlan::nothing(service, status);
    if let ServiceKind::ExternalName(name) = &service.kind {
        look_up(context, &mut reader, name, &mut plan);
    }
    plan.with_findings(reader)
}

/// Refuses an internal Service, since the shared ports and those of `--tcp-services` are open to all clients.
fn refuse_internal(reader: &mut Reader<'_>, plan: &mut ServicePlan) {
    let why =
        "it is internal, and the shared ports and those of --tcp-services are open to all clients";
    let message = format!(
        "Error syncing load balancer: {why}; a Service of type LoadBalancer can be internal"
    );
    reader.warn(Reason::SyncLoadBalancerFailed, message);
    plan.status = Status::left_alone(&plan.service, why);
    reader.keep_last_good_of_ports();
}

/// Plans the TCP ports of a Service: port 80 first, the others by number.
fn plan_ports(
    context: &Context<'_>,
    names: &BareNames<'_>,
    reader: &mut Reader<'_>,
    plan: &mut ServicePlan,
) {
    let (service, settings) = (reader.service, context.settings);
    if let ServiceKind::ExternalName(name) = &service.kind {
        look_up(context, reader, name, plan);
    }
    let owner = names.owner(service);
    if let Some(owner) = owner.filter(|owner| owner.key != service.key) {
        let message = format!(
            "the bare name {} belongs to {}; this Service is reached as /{}",
            service.key.name, owner.key, service.key
        );
        reader.warn(Reason::NameTaken, message);
    }
    let is_tcp = |port: &&Port| port.protocol == observe::Protocol::Tcp;
    let mut ports: Vec<&Port> = served_ports(reader).iter().filter(is_tcp).collect();
    ports.sort_by_key(|port| (port.number != 80, port.number));
    let mut limit = RouteLimit::of(settings);
    for port in ports {
        match names.listed(settings, service, port) {
            Some(external) => plan_tcp_service(context, names, reader, port, external, plan),
            None if wants_http(service, settings) => {
                plan_routes(context, names, reader, port, &mut limit, plan);
            }
            None => {}
        }
    }
    limit.warn(reader);
    reader.without_effect(NOT_SHARED, "only a Service of type LoadBalancer has it");
    if plan.ports.is_empty() {
        let why = "the shared port has one setting for all Services";
        reader.without_effect(OF_A_PORT, why);
    }
    if plan.routes.iter().all(|route| route.closed) && plan.ports.is_empty() {
        let why = match service.ports.iter().find(is_tcp) {
            Some(_) => "none of its ports can be served",
            None => "it has no TCP port",
        };
        plan.status = Status::left_alone(service, why);
    }
}

/// Plans a port of `--tcp-services`.
fn plan_tcp_service(
    context: &Context<'_>,
    names: &BareNames<'_>,
    reader: &mut Reader<'_>,
    port: &Port,
    external: u16,
    plan: &mut ServicePlan,
) {
    let service = reader.service;
    let options = PortOptions::read(reader, port, ReachedBy::TcpServices);
    let check = health::check(reader, &context.slices, port);
    let Some(name) = table_name(names, service, port).filter(|_| options.ranges != Ranges::Closed)
    else {
        return;
    };
    let parts = context.needs_parts(&service.key).then(|| {
        let backend = backend(context, plan, &name, None, port, &options, check, None);
        let frontend = frontend(&name, None, &service.key, &options, None);
        parts(context, plan, frontend, backend, port, &options, None)
    });
    plan.ports.push(PortPlan {
        port: NodePort::tcp(external),
        name,
        parts,
        closed: false,
    });
}

/// Plans the routes of a Service port on a shared port.
fn plan_routes(
    context: &Context<'_>,
    names: &BareNames<'_>,
    reader: &mut Reader<'_>,
    port: &Port,
    limit: &mut RouteLimit,
    plan: &mut ServicePlan,
) {
    let service = reader.service;
    let mut options = PortOptions::read(reader, port, ReachedBy::SharedPort);
    let check = health::check(reader, &context.slices, port);
    let secure = options.protocol == Protocol::Https;
    let ranges = options.ranges.count();
    let is_passed_through = !options.passthrough.is_empty();
    let asked = Asked::read(reader, port);
    let matches = if is_passed_through {
        let hosts = std::mem::take(&mut options.passthrough);
        let count = hosts.len();
        options.passthrough = limit.admit(port.number, ranges, hosts, count);
        Vec::new()
    } else {
        let paths = name_paths(names, service, port);
        asked.matches(port, &paths, secure, limit, ranges)
    };
    if options.ranges == Ranges::Closed {
        return;
    }
    let Some(name) = table_name(names, service, port) else {
        return;
    };
    let (certificate, closed) = match certificate(context, reader, &options, port, plan) {
        Termination::Unserved => return,
        Termination::Closed => (None, true),
        Termination::Open(certificate) => (certificate, false),
    };
    without_effect(reader, port, &options, secure, is_passed_through);
    let backend = context.needs_parts(&service.key).then(|| {
        let backend = backend(context, plan, &name, None, port, &options, check, None);
        let shares = shares(context, plan, &backend, port, &options, None);
        (Arc::new(backend), Arc::new(shares))
    });
    let (backend, shares) = backend.unzip();
    let mut model = SharedRoute {
        secure,
        // Without an annotation, a Service has no route of the HTTPS port.
        by_annotation: secure || asks_for_route(service, context.settings),
        route: Route {
            source_ranges: options.ranges.list(),
            service: Some(name),
            ..Route::default()
        },
        certificate,
        backend,
        shares: shares.unwrap_or_default(),
        closed,
    };
    model.shares.split(&mut model.route);
    let hosts = options.passthrough.iter();
    let hosts = hosts.map(|host| passed_through(&model, host));
    plan.routes.extend(hosts);
    let routes = matches.into_iter();
    let routes = routes.flat_map(|found| terminated(&model, found, options.redirect_https));
    plan.routes.extend(routes);
}

/// The route of a host whose TLS is relayed without decrypting it. All but the host is taken from `model`.
fn passed_through(model: &SharedRoute, host: &HostPattern) -> SharedRoute {
    SharedRoute {
        secure: true,
        by_annotation: true,
        route: Route {
            host: Some(host.clone()),
            passthrough: true,
            ..model.route.clone()
        },
        ..model.clone()
    }
}

/// The route of requests that match `found`, and the redirect to it. All else is taken from `model`.
fn terminated(
    model: &SharedRoute,
    found: Route,
    redirect_https: bool,
) -> impl Iterator<Item = SharedRoute> + use<> {
    let redirect = (model.secure && redirect_https).then(|| SharedRoute {
        secure: false,
        by_annotation: true,
        route: Route {
            redirect: to_https().redirect,
            rewrite: None,
            ..found.clone()
        },
        certificate: None,
        backend: None,
        shares: Arc::default(),
        closed: model.closed,
    });
    let here = SharedRoute {
        route: Route {
            source_ranges: model.route.source_ranges.clone(),
            service: model.route.service.clone(),
            backends: model.route.backends.clone(),
            ..found
        },
        ..model.clone()
    };
    [Some(here), redirect].into_iter().flatten()
}

/// The requests for a Service port that its annotations ask for.
struct Asked {
    hosts: Option<Vec<HostPattern>>,
    paths: Option<Paths>,
    rewrite: Option<Rewrite>,
    contrib_hosts: Option<Vec<HostPattern>>,
    acl: Option<Paths>,
}

impl Asked {
    fn read(reader: &mut Reader<'_>, port: &Port) -> Self {
        let some = Some(port);
        Self {
            hosts: reader.value(&knobs::HOST, some),
            paths: reader.value(&knobs::PATH, some),
            rewrite: reader.value(&knobs::REWRITE, some),
            contrib_hosts: reader.value(&knobs::CONTRIB_HOST, None),
            acl: reader.value(&knobs::ACL_MATCH, None),
        }
    }

    /// The requests as routes without a service; the first ones, where there are more than one Service may have. `names` are the
    /// paths that follow from the Service's name.
    fn matches(
        self,
        port: &Port,
        names: &[UrlPath],
        secure: bool,
        limit: &mut RouteLimit,
        ranges: usize,
    ) -> Vec<Route> {
        let reach = limit.reach();
        let rewritten = |otherwise: Rewrite| match self.rewrite.clone().unwrap_or(otherwise) {
            Rewrite::Keep => None,
            Rewrite::Strip => "/".parse().ok(),
            Rewrite::To(path) => Some(path),
        };
        if self.hosts.is_some() || self.paths.is_some() {
            let of_hosts = self.hosts.as_ref().map_or(1, Vec::len);
            let of_paths = self.paths.as_ref().map_or(1, |found| found.paths.len());
            let count = of_hosts.saturating_mul(of_paths);
            let rewrite = rewritten(Rewrite::Keep);
            let first = by_host_and_path(self.hosts, self.paths, rewrite, reach);
            return limit.admit(port.number, ranges, first, count);
        }
        let hosts = self.contrib_hosts.unwrap_or_default();
        let mut count = hosts.len();
        let mut routes = by_host_and_path(Some(hosts.clone()), None, None, reach);
        let mut by_name = Vec::new();
        // service-loadbalancer read aclMatch for https only; on plain http its users reach a Service by its name.
        if self.acl.is_none() || !secure {
            // As with service-loadbalancer, the name is stripped from requests that have both the host and the name.
            let rewrite = rewritten(Rewrite::Strip).map(OrMap::Value);
            let with = |host: Option<HostPattern>| {
                let rewrite = rewrite.clone();
                names.iter().map(move |path| Route {
                    host: host.clone(),
                    path: Some(path.clone()),
                    rewrite: rewrite.clone(),
                    ..Route::default()
                })
            };
            count += hosts.len() * names.len();
            let of_hosts = hosts.into_iter().flat_map(|host| with(Some(host)));
            routes.extend(of_hosts.take(reach));
            by_name.extend(with(None));
        }
        let mut routes = limit.admit(port.number, ranges, routes, count);
        routes.append(&mut by_name);
        if let Some(acl) = self.acl {
            let count = acl.paths.len();
            let rewrite = rewritten(Rewrite::Keep).map(OrMap::Value);
            let of_paths = acl.paths.into_iter().take(reach).map(|path| Route {
                path: Some(path),
                r#match: PathMatch::Begins,
                ignore_case: acl.ignore_case,
                rewrite: rewrite.clone(),
                ..Route::default()
            });
            let of_paths = of_paths.collect();
            routes.extend(limit.admit(port.number, ranges, of_paths, count));
        }
        routes
    }
}

/// Routes by our own keys: every host with every path, and no more than `most` of them.
fn by_host_and_path(
    hosts: Option<Vec<HostPattern>>,
    paths: Option<Paths>,
    rewrite: Option<UrlPath>,
    most: usize,
) -> Vec<Route> {
    let hosts = hosts.map_or_else(|| vec![None], |hosts| hosts.into_iter().map(Some).collect());
    let (paths, ignore_case) = match paths {
        Some(found) => (
            found.paths.into_iter().map(Some).collect(),
            found.ignore_case,
        ),
        None => (vec![None], false),
    };
    let pairs = hosts
        .iter()
        .flat_map(|host| paths.iter().map(move |path| (host, path)));
    let both = pairs.take(most).map(|(host, path)| Route {
        host: host.clone(),
        ignore_case,
        rewrite: rewrite.clone().filter(|_| path.is_some()).map(OrMap::Value),
        path: path.clone(),
        ..Route::default()
    });
    both.collect()
}

/// Notes keys that have no effect on a shared port.
fn without_effect(
    reader: &mut Reader<'_>,
    port: &Port,
    options: &PortOptions,
    secure: bool,
    is_passed_through: bool,
) {
    let mut keys = Vec::new();
    if options.hsts.is_some() {
        keys.push(match secure {
            true => format!("{OWN}hsts (the shared HTTPS port sends one for all)"),
            false => format!("{OWN}hsts (port {} does not terminate TLS)", port.number),
        });
    }
    if options.redirect_https && !secure {
        keys.push(format!(
            "{OWN}redirect-https (port {} does not terminate TLS)",
            port.number
        ));
    }
    if is_passed_through {
        let hidden = [
            reader.present_keys(&knobs::HOST, port),
            reader.present_keys(&knobs::PATH, port),
            reader.present_keys(&knobs::REWRITE, port),
            reader.present_keys(&knobs::CONTRIB_HOST, port),
            reader.present_keys(&knobs::ACL_MATCH, port),
        ];
        let why = format!("port {} relays TLS without decrypting it", port.number);
        let hidden = hidden.concat().into_iter();
        keys.extend(hidden.map(|key| format!("{key} ({why})")));
    }
    reader.note_without_effect(&keys, "");
}

/// The paths that follow from a Service's name: `/NAMESPACE/NAME`, and `/NAME` if it owns the bare name; `:PORT` follows unless
/// the port is 80.
fn name_paths(names: &BareNames<'_>, service: &Service, port: &Port) -> Vec<UrlPath> {
    let Key { namespace, name } = &service.key;
    let suffix = port_suffix(port);
    let bare = names.owns(service).then(|| format!("/{name}{suffix}"));
    let whole = format!("/{namespace}/{name}{suffix}");
    let paths = bare.into_iter().chain([whole]);
    paths.filter_map(|path| path.parse().ok()).collect()
}

/// The name of a Service port in the table. The owner of a bare name has service-loadbalancer's name, which dashboards use.
fn table_name(names: &BareNames<'_>, service: &Service, port: &Port) -> Option<Name> {
    let bare = format!("{}{}", service.key.name, port_suffix(port));
    match names.owns(service) && bare != HTTP && bare != HTTPS {
        true => bare.parse().ok(),
        false => qualified(&service.key, port),
    }
}

fn port_suffix(port: &Port) -> String {
    match port.number {
        80 => String::new(),
        number => format!(":{number}"),
    }
}

/// Knobs that need an address of the Service's own.
const NOT_SHARED: &[&str] = &[
    "external-port",
    "external-traffic-policy-mode",
    "hostname",
    "load-balancer-ips",
    "node-selector",
];

/// Knobs that need a port of the Service's own.
const OF_A_PORT: &[&str] = &[
    "accept-proxy",
    "connection-limit",
    "mode",
    "timeout-client",
    "udp-timeout",
];
