//! The last look at a table before it is handed out: whose part of it the data plane would refuse, and with it the whole.
//!
//! There should never be one: every value was read by the table's own rules. This is for the mistake that nobody saw, for a panic
//! while one Service is planned, and for the Service that makes the table larger than one may be.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ballast_core::table::{
    Entries, Frontend, LARGEST, LabelKey, Name, Route, RoutingTable, Text, flaws,
};

use super::status::is_foreign;
use super::{Asked, Status, World, weight};
use crate::decide::notice::{About, Notice, Reason};
use crate::observe::{Key, Service, ServiceKind};
use crate::settings::Role;

/// Who must be left out of a table, and why.
pub(super) fn blamed(table: &RoutingTable) -> BTreeMap<Key, String> {
    let mut blamed = heaviest(table, LARGEST / 4 * 3);
    if !blamed.is_empty() {
        return blamed;
    }
    for problem in flaws(table) {
        if let Some(owner) = owner(table, &problem.at) {
            let why = || {
                format!(
                    "the data plane would refuse it ({}; {}); this is a fault of Ballast's, please report it",
                    problem.why, problem.remedy
                )
            };
            blamed.entry(owner).or_insert_with(why);
        }
    }
    blamed
}

/// Those that make a table larger than this, the largest first, until the others fit in.
fn heaviest(table: &RoutingTable, limit: usize) -> BTreeMap<Key, String> {
    let services = table.services.iter().map(weight::of_service);
    let frontends = table.frontends.iter().map(weight::of_frontend);
    let mut whole: usize = services.chain(frontends).sum();
    let mut blamed = BTreeMap::new();
    if whole <= limit {
        return blamed;
    }
    let mut weights: Vec<(usize, Key)> = weight::by_owner(table)
        .into_iter()
        .map(|(owner, weight)| (weight, owner))
        .collect();
    weights.sort();
    while whole > limit
        && let Some((weight, owner)) = weights.pop()
    {
        let why = "it would make the table larger than the data plane takes: give it fewer ports, routes, source ranges or endpoints";
        blamed.insert(owner, why.to_owned());
        whole = whole.saturating_sub(weight);
    }
    blamed
}

/// Runs `work`, which concerns one Service alone. If it panics, the Service and the panic's message are added to `panicked`, unless
/// the Service is left out already.
pub(super) fn guarded<T>(
    world: &World<'_>,
    service: &Service,
    panicked: &mut BTreeMap<Key, String>,
    work: impl FnOnce() -> T,
) -> Option<T> {
    let panic = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => return Some(done),
        Err(panic) => panic,
    };
    if !world.left_out.contains_key(&service.key) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!(
            "deciding about it failed ({}); this is a fault of Ballast's, please report it",
            text.unwrap_or("for an unknown reason")
        );
        panicked.insert(service.key.clone(), why);
    }
    None
}

/// One that is left out. What is known of its annotations stays known.
pub(super) fn left_out<'a>(world: &World<'_>, service: &'a Service, why: &str) -> Asked<'a> {
    let is_ours = service.kind == ServiceKind::LoadBalancer
        && world.settings.takes(service.class.as_deref())
        && !is_foreign(service);
    let status = match (is_ours, service.deleting) {
        (true, false) => Status::pending(service, why),
        (true, true) => Status::released(service, "is being deleted", world.settings),
        (false, _) => Status::left_alone(service, why),
    };
    let message = format!("left out of the table: {why}");
    let mut asked = Asked::nothing(service, status);
    let before = &world.observed.remembered;
    asked.memory = before.get(&service.key).cloned().unwrap_or_default();
    let notices = match world.settings.role {
        Role::Publisher => &mut asked.notices,
        // The Service may be left out on this node alone.
        Role::Whole | Role::Node => &mut asked.node_notices,
    };
    notices.insert(Notice::warning(
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

pub(super) fn routes(frontend: &Frontend) -> impl Iterator<Item = &Route> {
    frontend.routes.iter().chain(frontend.default.as_deref())
}

pub(super) fn labelled(labels: &Entries<LabelKey, Text>) -> Option<Key> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_core::table::{Format, parse};

    fn table(services: &[(&str, usize)]) -> RoutingTable {
        let services = services.iter().map(|(name, endpoints)| {
            let endpoints = (0..*endpoints).map(
                |n| serde_json::json!({"address": format!("10.0.{}.{}:80", n / 250, n % 250)}),
            );
            serde_json::json!({
                "name": name,
                "labels": {"namespace": "shop", "service": name},
                "endpoints": endpoints.collect::<Vec<_>>(),
            })
        });
        let table = serde_json::json!({"version": 1, "services": services.collect::<Vec<_>>()});
        parse(table.to_string().as_bytes(), Format::Json).expect("a table")
    }

    #[test]
    fn the_heaviest_go_until_the_others_fit_in() {
        let table = table(&[("a", 10), ("b", 3000), ("c", 20), ("d", 2000)]);
        assert!(blamed(&table).is_empty());
        let names = |limit| -> Vec<String> {
            let found = heaviest(&table, limit).into_keys();
            found.map(|key| key.name).collect()
        };
        assert_eq!(names(1 << 20), [""; 0]);
        assert_eq!(names(100_000), ["b"]);
        assert_eq!(names(50_000), ["b", "d"]);
    }

    #[test]
    fn a_weight_is_never_less_than_the_bytes_that_are_written() {
        let table = table(&[("a", 0), ("b", 1), ("c", 500)]);
        for service in &table.services {
            let bytes = serde_json::to_vec(service).expect("JSON").len();
            let weight = weight::of_service(service);
            assert!(weight >= bytes, "{weight} {bytes}");
        }
    }
}
