//! The last look at a table before it is handed out: whose part of it the data plane would refuse, and with it the whole.
//!
//! There should never be one: every value was read by the table's own rules. This is for the mistake that nobody saw.

use std::collections::BTreeMap;

use ballast_core::table::{Entries, Frontend, LabelKey, Name, Route, RoutingTable, Text, flaws};

use super::{Asked, Status};
use crate::decide::notice::{About, Notice, Reason};
use crate::observe::{Key, Remembered, Service, ServiceKind};

/// Who must be left out of a table, and why.
pub(super) fn blamed(table: &RoutingTable) -> BTreeMap<Key, String> {
    let mut blamed = BTreeMap::new();
    for problem in flaws(table) {
        if let Some(owner) = owner(table, &problem.at) {
            let why = || format!("{}; {}", problem.why, problem.remedy);
            blamed.entry(owner).or_insert_with(why);
        }
    }
    blamed
}

/// One that is left out. What is known of its annotations stays known.
pub(super) fn left_out<'a>(service: &'a Service, why: &str, before: &Remembered) -> Asked<'a> {
    let status = match service.kind {
        ServiceKind::LoadBalancer => Status::pending(service, why),
        _ => Status::left_alone(service, why),
    };
    let message = format!(
        "left out of the table, which would be refused with it; this is a fault of Ballast's, please report it: {why}"
    );
    let mut asked = Asked::nothing(service, status);
    asked.memory = before.get(&service.key).cloned().unwrap_or_default();
    asked.notices.insert(Notice::warning(
        About::Service(service.key.clone()),
        Reason::LeftOut,
        message,
    ));
    asked
}

/// Whose part of the table a place is.
fn owner(table: &RoutingTable, at: &str) -> Option<Key> {
    if let Some((index, _)) = step(at, "services") {
        return labelled(&table.services.get(index)?.labels);
    }
    let (index, rest) = step(at, "frontends")?;
    let frontend = table.frontends.get(index)?;
    if let Some(owner) = labelled(&frontend.labels) {
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

/// Of a shared port's route: who it leads to. A redirect belongs to who is found where it leads.
fn owner_of_route(table: &RoutingTable, route: &Route) -> Option<Key> {
    let owner_of = |name: &Name| {
        let service = table.services.iter().find(|service| service.name == *name);
        labelled(&service?.labels)
    };
    if let Some(name) = &route.service {
        return owner_of(name);
    }
    route.redirect.as_ref()?;
    let is_same = |other: &&Route| (&other.host, other.path()) == (&route.host, route.path());
    let shared = table.frontends.iter().filter(|one| one.labels.is_empty());
    let mut others = shared.flat_map(routes).filter(is_same);
    others.find_map(|other| owner_of(other.service.as_ref()?))
}

fn routes(frontend: &Frontend) -> impl Iterator<Item = &Route> {
    frontend.routes.iter().chain(frontend.default.as_deref())
}

fn labelled(labels: &Entries<LabelKey, Text>) -> Option<Key> {
    let label = |key: &str| {
        let mut found = labels.iter().filter(|(name, _)| **name == *key);
        found.next().map(|(_, value)| value)
    };
    Some(Key::new(label("namespace")?, label("service")?))
}

/// `LIST[INDEX]REST`
fn step<'a>(at: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = at.strip_prefix(list)?.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}
