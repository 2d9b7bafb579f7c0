//! About how many bytes of a routing table each Service takes, as JSON: never too few.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ballast_core::table::{
    Endpoint, Entries, Frontend, HeaderMatch, HostPattern, LabelKey, Name, Route, RoutingTable,
    Service, State, Text,
};

use super::owners::{owner_by_labels, routes};
use crate::observe::Key;

/// The bytes of a service with its endpoints.
pub(super) fn of_service(service: &Service) -> usize {
    let description = service.description.as_ref().map_or(0, |text| text.len());
    let health = service.health.as_ref();
    let path = health.and_then(|health| health.path.as_ref());
    let path = path.map_or(0, |path| path.len());
    let endpoints = service.endpoints.iter().map(of_endpoint);
    PART + service.name.len()
        + of_labels(&service.labels)
        + ESCAPED * (description + path)
        + endpoints.sum::<usize>()
}

fn of_endpoint(endpoint: &Endpoint) -> usize {
    let address = match endpoint.address {
        SocketAddr::V4(_) => 23,
        SocketAddr::V6(_) => 49,
    };
    let node = endpoint.node.as_ref().map_or(0, |node| 10 + node.len());
    let zone = endpoint.zone.as_ref().map_or(0, |zone| 10 + zone.len());
    let state = match endpoint.state {
        State::Ready => 0,
        _ => 20,
    };
    15 + address + node + zone + state
}

/// The bytes of a frontend with its routes.
pub(super) fn of_frontend(frontend: &Frontend) -> usize {
    let ranges = frontend.source_ranges.as_ref().map_or(0, |list| list.len());
    let trusted = frontend.accept_proxy.as_ref();
    let trusted = trusted.map_or(0, |accept| accept.from.len());
    let description = frontend.description.as_ref().map_or(0, |text| text.len());
    let tls = frontend.tls.as_ref();
    let certificates = tls.map_or(0, |tls| tls.certificates.len());
    PART + 2 * frontend.name.len()
        + of_labels(&frontend.labels)
        + ESCAPED * description
        + RANGE * (ranges + trusted)
        + BACKEND * frontend.backends.len()
        + CERTIFICATE * certificates
        + routes(frontend).map(of_route).sum::<usize>()
}

fn of_labels(labels: &Entries<LabelKey, Text>) -> usize {
    let lengths = labels
        .iter()
        .map(|(key, value)| key.len() + value.len() + 6);
    lengths.sum()
}

fn of_route(route: &Route) -> usize {
    let host = route.host.as_ref().map_or(0, |host| host.to_string().len());
    let rewrite = route.rewrite().and_then(|rewrite| rewrite.prefix);
    let rewrite = rewrite.map_or(0, |path| path.len());
    let ranges = route.source_ranges.as_ref().map_or(0, |list| list.len());
    let when = route.when.iter().flat_map(|when| &*when.headers);
    let value = |header: &HeaderMatch| header.value.as_ref().map_or(0, |value| value.len());
    let headers = when.map(|header| HEADER + header.name.len() + ESCAPED * value(header));
    ROUTE
        + host
        + ESCAPED * (route.path().len() + rewrite)
        + RANGE * ranges
        + BACKEND * route.backends.len()
        + headers.sum::<usize>()
}

/// The bytes of each Service's parts of a table. A route counts for the Service that it leads to, and a redirect for the Service that
/// has the same host and path on the other shared port.
pub(super) fn by_owner(table: &RoutingTable) -> BTreeMap<Key, usize> {
    let mut redirects: Vec<&Route> = Vec::new();
    let mut places: BTreeMap<(&Option<HostPattern>, &str), Key> = BTreeMap::new();
    let mut weights: BTreeMap<Key, usize> = BTreeMap::new();
    let mut owners: BTreeMap<&Name, Key> = BTreeMap::new();
    for service in &table.services {
        if let Some(owner) = owner_by_labels(&service.labels) {
            *weights.entry(owner.clone()).or_default() += of_service(service);
            owners.insert(&service.name, owner);
        }
    }
    for frontend in &table.frontends {
        if let Some(owner) = owner_by_labels(&frontend.labels) {
            *weights.entry(owner).or_default() += of_frontend(frontend);
            continue;
        }
        for route in routes(frontend) {
            let name = route.services().next();
            if let Some(owner) = name.and_then(|name| owners.get(name)) {
                *weights.entry(owner.clone()).or_default() += of_route(route);
                places.insert((&route.host, route.path()), owner.clone());
            } else if route.redirect.is_some() {
                redirects.push(route);
            }
        }
    }
    for route in redirects {
        if let Some(owner) = places.get(&(&route.host, route.path())) {
            *weights.entry(owner.clone()).or_default() += of_route(route);
        }
    }
    weights
}

/// The fields of a small size, together.
const PART: usize = 400;

const ROUTE: usize = 350;

/// The name of a service, and its weight.
const BACKEND: usize = 240;

/// What stands around a header field that is asked for.
const HEADER: usize = 60;

/// The names of the two files of a certificate.
const CERTIFICATE: usize = 500;

/// The longest range, which is one of IPv6.
const RANGE: usize = 48;

/// The most bytes that JSON needs for one.
const ESCAPED: usize = 6;
