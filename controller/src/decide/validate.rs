//! Validates a routing table before it is handed out: which Services have parts that the data plane would refuse, and the whole
//! table with them.
//!
//! There should be none, since every value was parsed by the rules of the table. This is for a bug of Ballast, for a panic while
//! one Service is planned, and for the Services that make the table larger than it may be: those go from the namespace that has the
//! largest share, so that no namespace can take the room of another.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ballast_core::table::{LARGEST, RoutingTable, flaws};

use super::context::Context;
use super::fault::Fault;
use super::notice::{About, Notice};
use super::owners::owner;
use super::service_plan::ServicePlan;
use super::size;
use super::status::{Status, is_foreign};
use crate::observe::{Key, Service, ServiceKind};
use crate::settings::Role;

/// The Services that must be left out of a table, and why.
pub(super) fn refused(table: &RoutingTable) -> BTreeMap<Key, Fault> {
    let largest = largest(table, MOST_BYTES).into_iter();
    let mut blamed: BTreeMap<Key, Fault> = largest.map(|key| (key, Fault::TooLarge)).collect();
    if !blamed.is_empty() {
        return blamed;
    }
    for problem in flaws(table) {
        if let Some(owner) = owner(table, &problem.at) {
            let why = || {
                Fault::Ours(format!(
                    "the data plane would refuse it ({}; {}); this is a bug of Ballast, please report it",
                    problem.why, problem.remedy
                ))
            };
            blamed.entry(owner).or_insert_with(why);
        }
    }
    blamed
}

/// The Services that go from a table that is larger than `limit`, until the others fit in: each time the largest one of the
/// namespace that has the largest share then.
fn largest(table: &RoutingTable, limit: usize) -> BTreeSet<Key> {
    let services = table.services.iter().map(size::of_service);
    let frontends = table.frontends.iter().map(size::of_frontend);
    let mut whole: usize = services.chain(frontends).sum();
    let mut gone = BTreeSet::new();
    if whole <= limit {
        return gone;
    }
    let mut shares: BTreeMap<String, (usize, Vec<(usize, Key)>)> = BTreeMap::new();
    for (owner, weight) in size::by_owner(table) {
        let (share, services) = shares.entry(owner.namespace.clone()).or_default();
        *share += weight;
        services.push((weight, owner));
    }
    for (_, services) in shares.values_mut() {
        services.sort();
    }
    while whole > limit
        && let Some((share, services)) = shares.values_mut().max_by_key(|(share, _)| *share)
        && let Some((weight, owner)) = services.pop()
    {
        gone.insert(owner);
        *share = share.saturating_sub(weight);
        whole = whole.saturating_sub(weight);
    }
    gone
}

/// Runs `work`, which concerns one Service. If `work` panics, the Service and the message of the panic are added to `panicked`,
/// unless the Service is left out already.
pub(super) fn catch_panic<T>(
    context: &Context<'_>,
    service: &Service,
    panicked: &mut BTreeMap<Key, Fault>,
    work: impl FnOnce() -> T,
) -> Option<T> {
    let panic = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => return Some(done),
        Err(panic) => panic,
    };
    if !context.left_out.contains_key(&service.key) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let why = format!(
            "planning it failed ({}); this is a bug of Ballast, please report it",
            text.unwrap_or("for an unknown reason")
        );
        panicked.insert(service.key.clone(), Fault::Ours(why));
    }
    None
}

/// The plan of a Service that is left out. Its last good values stay remembered.
pub(super) fn left_out(
    context: &Context<'_>,
    service: &Arc<Service>,
    fault: &Fault,
) -> ServicePlan {
    let why = fault.why();
    let is_ours = service.kind == ServiceKind::LoadBalancer
        && context.settings.takes(service.class.as_deref())
        && !is_foreign(service);
    let status = match (is_ours, service.deleting) {
        (true, false) => Status::pending(service, why),
        (true, true) => Status::released(service, "it is being deleted", context.settings),
        (false, _) => Status::left_alone(service, why),
    };
    let message = format!("left out of the table: {why}");
    let mut plan = ServicePlan::nothing(service, status);
    let before = &context.observed.remembered;
    plan.memory = before.get(&service.key).cloned().unwrap_or_default();
    let notices = match context.settings.role {
        Role::Publisher => &mut plan.notices,
        // The Service may be left out on this node alone.
        Role::Whole | Role::Node => &mut plan.node_notices,
    };
    let about = About::Service(service.key.clone());
    notices.insert(Notice::warning(about, fault.reason(), message));
    // No other Service gets what it has, ports or shared ports: its clients may still come.
    plan.find_unread();
    if service.kind != ServiceKind::LoadBalancer {
        plan.keep_routes(context.settings);
    }
    plan
}

/// Three quarters of what the data plane takes.
const MOST_BYTES: usize = LARGEST / 4 * 3;

#[cfg(test)]
mod tests {
    use super::*;
    use ballast_core::table::{Format, parse};

    /// Services of these namespaces and names, with so many endpoints.
    fn table(services: &[(&str, usize)]) -> RoutingTable {
        let services = services.iter().map(|(key, endpoints)| {
            let endpoints = (0..*endpoints).map(
                |n| serde_json::json!({"address": format!("10.0.{}.{}:80", n / 250, n % 250)}),
            );
            let (namespace, name) = key.split_once('/').unwrap();
            serde_json::json!({
                "name": format!("{namespace}.{name}"),
                "labels": {"namespace": namespace, "service": name},
                "endpoints": endpoints.collect::<Vec<_>>(),
            })
        });
        let table = serde_json::json!({"version": 1, "services": services.collect::<Vec<_>>()});
        parse(table.to_string().as_bytes(), Format::Json).expect("a table")
    }

    fn gone(table: &RoutingTable, limit: usize) -> Vec<String> {
        let gone = largest(table, limit).into_iter();
        gone.map(|key| key.to_string()).collect()
    }

    #[test]
    fn the_largest_of_a_namespace_go_until_the_others_fit_in() {
        let table = table(&[
            ("shop/a", 10),
            ("shop/b", 3000),
            ("shop/c", 20),
            ("shop/d", 2000),
        ]);
        assert!(refused(&table).is_empty());
        assert_eq!(gone(&table, 1 << 20), [""; 0]);
        assert_eq!(gone(&table, 100_000), ["shop/b"]);
        assert_eq!(gone(&table, 50_000), ["shop/b", "shop/d"]);
    }

    #[test]
    fn a_namespace_with_a_smaller_share_loses_nothing_though_it_has_the_largest_service() {
        let many: Vec<String> = (0..100).map(|n| format!("many/{n:02}")).collect();
        let many = many.iter().map(|key| (key.as_str(), 100));
        let all: Vec<_> = many
            .chain([("one/large", 3000), ("one/small", 1)])
            .collect();
        let table = table(&all);
        let gone = gone(&table, 400_000);
        assert!((10..60).contains(&gone.len()), "{gone:?}");
        assert!(gone.iter().all(|key| key.starts_with("many/")), "{gone:?}");
        // Below that both have the same share, and both lose.
        assert!(self::gone(&table, 100_000).contains(&"one/large".to_owned()));
    }

    #[test]
    fn a_weight_is_never_less_than_the_bytes_that_are_written() {
        let table = table(&[("shop/a", 0), ("shop/b", 1), ("shop/c", 500)]);
        for service in &table.services {
            let bytes = serde_json::to_vec(service).expect("JSON").len();
            let weight = size::of_service(service);
            assert!(weight >= bytes, "{weight} {bytes}");
        }
    }
}
