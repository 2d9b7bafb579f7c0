//! Validates a routing table before it is handed out: which Services have parts that the data plane would refuse, and the whole
//! table with them.
//!
//! There should be none, since every value was parsed by the rules of the table. This is for a bug of Ballast, for a panic while
//! one Service is planned, and for the Service that makes the table larger than the data plane takes.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ballast_core::table::{LARGEST, RoutingTable, flaws};

use super::context::Context;
use super::notice::{About, Notice, Reason};
use super::owners::owner;
use super::service_plan::ServicePlan;
use super::size;
use super::status::{Status, is_foreign};
use crate::observe::{Key, Service, ServiceKind};
use crate::settings::Role;

/// The Services that must be left out of a table, and why.
pub(super) fn refused(table: &RoutingTable) -> BTreeMap<Key, String> {
    let mut blamed = heaviest(table, LARGEST / 4 * 3);
    if !blamed.is_empty() {
        return blamed;
    }
    for problem in flaws(table) {
        if let Some(owner) = owner(table, &problem.at) {
            let why = || {
                format!(
                    "the data plane would refuse it ({}; {}); this is a bug of Ballast, please report it",
                    problem.why, problem.remedy
                )
            };
            blamed.entry(owner).or_insert_with(why);
        }
    }
    blamed
}

/// The largest Services of a table that is larger than `limit`, until the others fit in.
fn heaviest(table: &RoutingTable, limit: usize) -> BTreeMap<Key, String> {
    let services = table.services.iter().map(size::of_service);
    let frontends = table.frontends.iter().map(size::of_frontend);
    let mut whole: usize = services.chain(frontends).sum();
    let mut blamed = BTreeMap::new();
    if whole <= limit {
        return blamed;
    }
    let weights = size::by_owner(table).into_iter();
    let mut weights: Vec<(usize, Key)> = weights.map(|(owner, size)| (size, owner)).collect();
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

/// Runs `work`, which concerns one Service. If `work` panics, the Service and the message of the panic are added to `panicked`,
/// unless the Service is left out already.
pub(super) fn catch_panic<T>(
    context: &Context<'_>,
    service: &Service,
    panicked: &mut BTreeMap<Key, String>,
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
        panicked.insert(service.key.clone(), why);
    }
    None
}

/// The plan of a Service that is left out. Its last good values stay remembered.
pub(super) fn left_out<'a>(
    context: &Context<'_>,
    service: &'a Service,
    why: &str,
) -> ServicePlan<'a> {
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
    notices.insert(Notice::warning(about, Reason::LeftOut, message));
    plan
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
        assert!(refused(&table).is_empty());
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
            let weight = size::of_service(service);
            assert!(weight >= bytes, "{weight} {bytes}");
        }
    }
}
