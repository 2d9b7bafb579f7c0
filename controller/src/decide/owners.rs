//! Which Service a part of a routing table belongs to.

use std::collections::BTreeSet;

use ballast_core::table::{Entries, Frontend, LabelKey, Name, Route, RoutingTable, Text};

use crate::observe::Key;

/// The Services that a table serves.
pub(crate) fn served(table: &RoutingTable) -> BTreeSet<Key> {
    let services = table.services.iter();
    services
        .filter_map(|service| owner_by_labels(&service.labels))
        .collect()
}

/// The Service that a path in the table belongs to, such as `frontends[2].bind`.
pub(super) fn owner(table: &RoutingTable, at: &str) -> Option<Key> {
    if let Some((index, _)) = step(at, "services") {
        return owner_by_labels(&table.services.get(index)?.labels);
    }
    let (index, rest) = step(at, "frontends")?;
    let frontend = table.frontends.get(index)?;
    if let Some(owner) = owner_by_labels(&frontend.labels) {
        return Some(owner);
    }
    let route = match step(rest, ".routes") {
        Some((index, _)) => frontend.routes.get(index)?,
        None => frontend
            .default
            .as_deref()
            .filter(|_| rest.starts_with(".default"))?,
    };
    owner_of_route(table, route)
}

/// The owner of a route of a shared port: the Service that it leads to. A redirect belongs to the Service that has the same host
/// and path on the other shared port.
fn owner_of_route(table: &RoutingTable, route: &Route) -> Option<Key> {
    let owner_of = |name: &Name| {
        let service = table.services.iter().find(|service| service.name == *name);
        owner_by_labels(&service?.labels)
    };
    if let Some(name) = route.services().next() {
        return owner_of(name);
    }
    route.redirect.as_ref()?;
    let is_same = |other: &&Route| {
        other.when.is_none() && (&other.host, other.path()) == (&route.host, route.path())
    };
    let shared = table.frontends.iter().filter(|one| one.labels.is_empty());
    let mut others = shared.flat_map(routes).filter(is_same);
    others.find_map(|other| owner_of(other.services().next()?))
}

pub(super) fn routes(frontend: &Frontend) -> impl Iterator<Item = &Route> {
    frontend.routes.iter().chain(frontend.default.as_deref())
}

/// The Service that the labels of a part of the table name.
pub(crate) fn owner_by_labels(labels: &Entries<LabelKey, Text>) -> Option<Key> {
    let label = |key: &str| {
        let mut found = labels.iter().filter(|(name, _)| **name == *key);
        found.next().map(|(_, value)| value)
    };
    Some(Key::new(label("namespace")?, label("service")?))
}

/// Splits `LIST[INDEX]REST` into the index and the rest.
fn step<'a>(at: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = at.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}
