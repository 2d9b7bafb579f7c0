//! Decides: out of what is observed of the cluster, and the settings, what must be.
//!
//! [`decide`] is pure: no socket, clock, task or API call; equal input gives equal output, and everything is computed anew each
//! time. Other modules act on what it returns.
//!
//! # The modules
//!
//! The groups are layers: a module uses modules of its own group and of those above it, and none uses this file. No module uses
//! itself by way of others: a test in `tests/docs/layering.rs` fails on such a circle.
//!
//! 1. **Annotations**: a `notice` is a message for users; `annotations` are read with aliases, precedence and last good values, each
//!    is a line of the table in `annotations::knobs`; `status` is the decision about one Service, `fault` why it is left out.
//! 2. **Options**: `nodes` says which nodes are load balancers, `permitted` where external names may lead, `context` is what every step reads, `endpoints` finds the endpoints
//!    of a port; `canaries` are Services that get a part of the clients of others, `shares` their parts of a table; `options`,
//!    `ranges`, `health` and `names` resolve what annotations and flags say about a port, `route_limit` how many routes it may have.
//! 3. **The plan of one Service**: `site` and `placement` (where it listens), `files` and `certificate` (where TLS ends),
//!    `ports`, `external_name`, `parts` (its frontends and services). `load_balancer` and `routed` put them together as a `service_plan`.
//! 4. **Assembly**: `allocate` gives ports of nodes to Services, by `held` and `hosts`; `kept` closes those that one node keeps for itself,
//!    `publish` says which addresses a status lists, and `table` assembles the routing table.
//! 5. **Validation**: `validate` finds the Services, by `owners` and `size`, that the data plane would refuse the table for.

mod allocate;
mod annotations;
mod canaries;
mod certificate;
mod context;
mod endpoints;
mod external_name;
mod fault;
mod files;
mod health;
mod held;
mod hosts;
mod kept;
mod load_balancer;
mod names;
mod nodes;
mod notice;
mod options;
mod owners;
mod parts;
mod permitted;
mod placement;
mod ports;
mod publish;
mod ranges;
mod route_limit;
mod routed;
mod service_plan;
mod shares;
mod site;
mod size;
mod status;
mod table;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ballast_core::table::RoutingTable;
use serde::Serialize;

use crate::observe::{Key, Observed, Remembered, Service, ServiceKind, Wanted};
use crate::settings::{Role, Settings};
pub(crate) use annotations::{ADDRESS, ID, LAST_GOOD, TOLD, is_read};
use context::{Context, Slices};
use fault::Fault;
pub use files::{Source, WantedFile};
use names::BareNames;
use nodes::ThisNode;
pub(crate) use nodes::is_load_balancer;
pub use notice::{About, Kind, Notice, Reason};
pub(crate) use owners::{owner_by_labels, served};
use service_plan::ServicePlan;
pub(crate) use status::is_foreign;
pub use status::{Allotment, Ingress, PortError, Status, Verdict};
pub(crate) use table::stats;

/// A decision: what this node serves, and what the status, annotations and events of each Service must say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Desired {
    /// The routing table of this node; `None`: the node is no load balancer. Tables are large: decisions with the same table
    /// share one.
    pub table: Option<Arc<RoutingTable>>,
    /// The files that the table names, and where the bytes of each come from.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<WantedFile>,
    /// The status of every Service in the namespaces that are watched, by name.
    pub statuses: Vec<Status>,
    /// Events about Services and Nodes, and warnings about flags, in a fixed order.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub notices: BTreeSet<Notice>,
    /// The Secrets, ReferenceGrants, DNS names and Nodes that the next decision needs.
    #[serde(skip_serializing_if = "Wanted::is_empty")]
    pub wanted: Wanted,
    /// The last good values of annotations, for the next decision. Those that are in use now are annotations as well
    /// (`ballast.dev/last-good`), so that every node has the same ones, and has them after a restart.
    #[serde(skip)]
    pub remembered: Remembered,
    /// What this node's Lease reports beside the state of its data plane.
    #[serde(skip)]
    pub report: Arc<Report>,
}

/// What a node decides and the publisher cannot know: the node reports it in its Lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// A hash of where this node listens for which Services: a change of it is news for the publisher.
    pub listens: u64,
    /// Services that were given ports on this node, none of which is open.
    pub closed: BTreeSet<Key>,
    /// Services that are not served yet.
    pub pending: BTreeSet<Key>,
    /// Services with a strict Local policy that have no ready endpoint on this node.
    pub idle: BTreeSet<Key>,
    /// Events that follow from endpoints, Secrets and resolved names.
    pub notices: BTreeSet<Notice>,
}

/// Decides what is served and published, for all Services.
pub fn decide(observed: &Observed, settings: &Settings) -> Desired {
    decide_by(plan_service, observed, settings)
}

/// The lookups that each of these Services needs. `observed` must contain the Services too.
pub fn wanted_by<'a>(
    services: impl Iterator<Item = &'a Service>,
    observed: &'a Observed,
    settings: &'a Settings,
) -> BTreeMap<Key, Wanted> {
    if settings.role == Role::Publisher {
        return BTreeMap::new();
    }
    let left_out = BTreeMap::new();
    // No lookup depends on endpoints.
    let context = Context::new(
        observed,
        settings,
        &left_out,
        Slices::default(),
        &mut Vec::new(),
    );
    let names = BareNames::of(observed, settings);
    let looked_at = services.filter(|service| settings.looks_at(&service.key.namespace));
    let wanted = looked_at.filter_map(|service| {
        // If planning panics here, it panics in the decision too, and the Service is left out there.
        let plan = validate::catch_panic(&context, service, &mut BTreeMap::new(), || {
            plan_service(&context, &names, service)
        });
        Some((service.key.clone(), plan?.wanted))
    });
    wanted.collect()
}

/// Decides, with `plan_one` to plan each Service. Tests pass a function that panics.
fn decide_by(plan_one: PlanService, observed: &Observed, settings: &Settings) -> Desired {
    let mut left_out = BTreeMap::new();
    loop {
        // A Service that cannot be planned, or has its table refused, is left out, and all others are decided again.
        let blamed = match decide_without(&left_out, plan_one, observed, settings) {
            Err(panicked) => panicked,
            Ok(desired) => {
                let table = desired.table.as_deref();
                let mut blamed = table.map(validate::refused).unwrap_or_default();
                blamed.retain(|key, _| !left_out.contains_key(key));
                if blamed.is_empty() {
                    return desired;
                }
                blamed
            }
        };
        left_out.extend(blamed);
    }
}

/// The function that plans one Service.
type PlanService = for<'a> fn(&Context<'a>, &BareNames<'_>, &'a Service) -> ServicePlan<'a>;

/// One pass over all Services, without those that are left out. `Err`: the Services for which a panic was caught, with its
/// message.
fn decide_without(
    left_out: &BTreeMap<Key, Fault>,
    plan_one: PlanService,
    observed: &Observed,
    settings: &Settings,
) -> Result<Desired, BTreeMap<Key, Fault>> {
    let mut notices = Vec::new();
    let slices = Slices::of(observed);
    let context = Context::new(observed, settings, left_out, slices, &mut notices);
    let names = BareNames::of(observed, settings);
    notices.extend(names.unknown_tcp_services(observed, settings));
    let mut panicked = BTreeMap::new();
    let mut plans = Vec::with_capacity(observed.services.len());
    let looked_at = |service: &&Arc<Service>| settings.looks_at(&service.key.namespace);
    for service in observed.services.values().filter(looked_at) {
        let plan = validate::catch_panic(&context, service, &mut panicked, || {
            plan_one(&context, &names, service)
        });
        plans.extend(plan);
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let shared = allocate::allocate(&context, &mut plans);
    kept::close(settings, &mut plans);
    let is_held = |plan: &&mut ServicePlan<'_>| observed.held.contains(&plan.service.key);
    plans.iter_mut().filter(is_held).for_each(ServicePlan::hold);
    for plan in &mut plans {
        validate::catch_panic(&context, plan.service, &mut panicked, || {
            kept::refuse(&context, plan);
            publish::publish(&context, plan);
        });
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let report = match settings.role {
        Role::Publisher => Report::default(),
        Role::Whole | Role::Node => report(&context, &plans),
    };
    let is_selected = !matches!(context.nodes.here, ThisNode::NotSelected);
    let table = is_selected.then(|| Arc::new(table::assemble(settings, shared, &mut plans)));
    let lost = table
        .as_ref()
        .and_then(|table| table::lost_healthz(settings, table));
    notices.extend(lost);
    Ok(collect(&context, table, plans, report, notices))
}

/// Puts the plans of all Services together.
fn collect(
    context: &Context<'_>,
    table: Option<Arc<RoutingTable>>,
    plans: Vec<ServicePlan<'_>>,
    mut report: Report,
    mut notices: Vec<Notice>,
) -> Desired {
    let settings = context.settings;
    let mut files = files::settings_files(settings);
    let mut wanted = Wanted::default();
    let mut remembered = Remembered::new();
    let mut statuses = Vec::with_capacity(plans.len());
    for plan in plans {
        notices.extend(plan.notices);
        report.notices.extend(plan.node_notices);
        files.extend(plan.files);
        wanted.extend(plan.wanted);
        if !plan.memory.is_empty() {
            remembered.insert(plan.service.key.clone(), plan.memory);
        }
        statuses.push(plan.status);
    }
    wanted.nodes |= settings.needs_all_nodes();
    match settings.role {
        Role::Whole => notices.extend(std::mem::take(&mut report.notices)),
        Role::Node => {}
        Role::Publisher => {
            // Only nodes read Secrets and resolve names.
            wanted = Wanted::default();
            notices.extend(reported(context.observed, &context.common));
        }
    }
    Desired {
        files: match table {
            Some(_) => files,
            None => BTreeSet::new(),
        },
        table,
        statuses,
        notices: notices.into_iter().collect(),
        wanted,
        remembered,
        report: Arc::new(report),
    }
}

fn report(context: &Context<'_>, plans: &[ServicePlan<'_>]) -> Report {
    let is_closed = |plan: &&ServicePlan<'_>| {
        let is_left_out = context.left_out.contains_key(&plan.service.key);
        let was_given = plan.service.allocated.is_some() || !plan.ports.is_empty();
        let mut ports = plan.ports.iter();
        let is_closed = ports.clone().all(|port| port.closed) || ports.any(|port| port.taken);
        is_left_out || (was_given && is_here(plan) && is_closed)
    };
    let is_held = |plan: &&ServicePlan<'_>| context.observed.held.contains(&plan.service.key);
    let is_idle = |plan: &&ServicePlan<'_>| {
        let place = plan.placement.as_ref();
        place.is_some_and(|place| place.without_endpoints_here)
    };
    let key = |plan: &ServicePlan<'_>| plan.service.key.clone();
    let (pending, others): (Vec<_>, Vec<_>) = plans.iter().partition(is_held);
    Report {
        listens: listens(plans),
        closed: others.into_iter().filter(is_closed).map(key).collect(),
        pending: pending.into_iter().map(key).collect(),
        idle: plans.iter().filter(is_idle).map(key).collect(),
        notices: BTreeSet::new(),
    }
}

/// A hash of where this node listens for which Services. It is good within this process.
fn listens(plans: &[ServicePlan<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for plan in plans {
        for port in &plan.ports {
            for bind in port.frontend.bind.iter() {
                let name: &str = &port.frontend.name;
                (&plan.service.uid, name, bind.to_string()).hash(&mut hasher);
            }
        }
    }
    hasher.finish()
}

/// Whether a LoadBalancer is served on this node, once it has ports.
fn is_here(plan: &ServicePlan<'_>) -> bool {
    plan.service.kind == ServiceKind::LoadBalancer && plan.status.verdict != Verdict::LeftAlone
}

/// The events that nodes report in their Leases, and a warning for each node that runs with other settings.
fn reported(observed: &Observed, common: &str) -> BTreeSet<Notice> {
    let mut notices = BTreeSet::new();
    let about = |node: &String| About::Node(node.clone());
    for (node, messages) in &observed.others_say {
        let said = messages.iter();
        notices.extend(said.map(|message| Notice::from_node(about(node), message)));
    }
    for (node, lease) in observed.leases.iter().flatten() {
        if !lease.settings.is_empty() && lease.settings != common {
            let message = "runs with other settings than the publisher: it may not serve what the publisher gives to Services; start both with the same flags (docs/controller.md names them)";
            notices.insert(Notice::warning(
                about(node),
                Reason::SettingsDiffer,
                message,
            ));
        }
        let said = lease.exceptions.node.iter();
        notices.extend(said.map(|message| Notice::from_node(about(node), message)));
        for (service, exception) in &lease.exceptions.services {
            let key = service.split_once('/');
            let key = key.map(|(namespace, name)| Key::new(namespace, name));
            if let Some(key) = key.filter(|key| observed.services.contains_key(key)) {
                let about = || About::Service(key.clone());
                let said = exception.messages.iter();
                notices.extend(said.map(|message| Notice::from_node(about(), message)));
            }
        }
    }
    notices
}

/// Whether a Service may be part of a routing table, so that changes of its endpoints matter.
pub(crate) fn may_be_served(service: &Service, settings: &Settings) -> bool {
    match service.kind {
        ServiceKind::LoadBalancer => match &service.class {
            Some(class) => settings.flags.lb_class.as_ref() == Some(class),
            None => settings.takes_classless(),
        },
        _ => names::may_contend(service, settings) || canaries::asks(service),
    }
}

fn plan_service<'a>(
    context: &Context<'a>,
    names: &BareNames<'_>,
    service: &'a Service,
) -> ServicePlan<'a> {
    let settings = context.settings;
    if let Some(fault) = context.left_out.get(&service.key) {
        return validate::left_out(context, service, fault);
    }
    // Without the status we never published the Service, or another controller does since; the finalizer is ours all the same.
    let has_our_finalizer = service.publication.owned.finalizer;
    if service.kind != ServiceKind::LoadBalancer {
        return match status::must_be_released(service, settings) || has_our_finalizer {
            true => ServicePlan::nothing(
                service,
                Status::released(service, "it is no longer of type LoadBalancer", settings),
            ),
            false => routed::plan(context, names, service),
        };
    }
    let left_alone = |why: &str| ServicePlan::nothing(service, Status::left_alone(service, why));
    match &service.class {
        class if settings.takes(class.as_deref()) => {}
        Some(class) => return left_alone(&format!("its class is {class}")),
        None => return left_alone("it has no class"),
    }
    match service.deleting {
        true if is_foreign(service) && !has_our_finalizer => {
            left_alone("another controller publishes it")
        }
        true => ServicePlan::nothing(
            service,
            Status::released(service, "it is being deleted", settings),
        ),
        false => load_balancer::plan(context, service),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics over the Services called `broken`.
    fn plan_with_a_fault<'a>(
        context: &Context<'a>,
        names: &BareNames<'_>,
        service: &'a Service,
    ) -> ServicePlan<'a> {
        assert!(
            service.key.name != "broken" || context.left_out.contains_key(&service.key),
            "a fault"
        );
        plan_service(context, names, service)
    }

    /// These Services, oldest first, with one port each.
    fn seen(services: &[(&str, u16)]) -> Observed {
        let manifests = services.iter().map(|(name, port)| {
            format!("---\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{type: LoadBalancer, ports: [{{port: {port}}}]}}\n")
        });
        Observed::of(&manifests.collect::<String>())
    }

    #[test]
    fn a_held_service_has_its_port_and_is_not_served() {
        let mut observed = seen(&[("held", 80), ("late", 80), ("web", 81)]);
        observed.held.insert(Key::new("shop", "held"));
        let desired = decide(&observed, &Settings::without_flags());
        let table = desired.table.unwrap();
        let names = table.frontends.iter().map(|one| one.name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["shop.web:81"]);
        assert_eq!(table.services.len(), 1);
        let late = &desired.statuses[1];
        assert_eq!(late.why, "port 80/TCP is taken by shop/held");
        let held = BTreeSet::from([Key::new("shop", "held")]);
        assert_eq!(desired.report.pending, held);
        assert_eq!(desired.report.closed, BTreeSet::new());
    }

    #[test]
    fn a_service_that_makes_the_table_too_large_leaves_table_and_status() {
        let observed = seen(&[("large", 80), ("web", 81)]);
        let left_out = BTreeMap::from([(Key::new("shop", "large"), Fault::TooLarge)]);
        let settings = Settings::without_flags();
        let desired = decide_without(&left_out, plan_service, &observed, &settings).unwrap();
        let table = desired.table.unwrap();
        let names = table.services.iter().map(|one| one.name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["shop.web:81"]);
        let verdicts = desired.statuses.iter().map(|status| status.verdict);
        let verdicts: Vec<Verdict> = verdicts.collect();
        assert_eq!(verdicts, [Verdict::Pending, Verdict::Served]);
        assert!(desired.statuses[0].ingress.is_empty());
        let reasons = desired.notices.iter().map(|notice| notice.reason);
        assert_eq!(reasons.collect::<Vec<_>>(), [Reason::TooLarge]);
        // A node reports it in its Lease, and the publisher tells it.
        let said = desired.notices.first().unwrap().to_message();
        let about = About::Service(Key::new("shop", "large"));
        let told = Notice::from_node(about, &said);
        assert_eq!(told.reason, Reason::TooLarge);
    }

    #[test]
    fn all_routes_of_a_port_share_one_copy_of_its_endpoints() {
        let observed = Observed::of(
            "kind: Service
metadata:
  name: web
  namespace: shop
  annotations: {ballast.dev/host: \"a.example,b.example\", ballast.dev/path: \"/a,/b\"}
spec: {ports: [{port: 80}, {port: 81}]}
",
        );
        let settings = Settings::without_flags();
        let left_out = BTreeMap::new();
        let slices = Slices::of(&observed);
        let context = Context::new(&observed, &settings, &left_out, slices, &mut Vec::new());
        let names = BareNames::of(&observed, &settings);
        let service = observed.services.values().next().unwrap();
        let plan = plan_service(&context, &names, service);
        let backends = plan.routes.iter().filter_map(|one| one.backend.as_ref());
        let mut copies: Vec<_> = backends.map(Arc::as_ptr).collect();
        assert_eq!(copies.len(), 8);
        copies.sort();
        copies.dedup();
        assert_eq!(copies.len(), 2, "one for each port");
    }

    #[test]
    fn a_panic_over_one_service_leaves_that_one_out_and_no_other() {
        let observed = seen(&[("broken", 80), ("web", 81)]);
        let settings = Settings::without_flags();
        let desired = decide_by(plan_with_a_fault, &observed, &settings);
        let verdicts: Vec<Verdict> = desired.statuses.iter().map(|plan| plan.verdict).collect();
        assert_eq!(verdicts, [Verdict::Pending, Verdict::Served]);
        let table = desired.table.unwrap();
        assert_eq!(table.frontends.len(), 1);
        let notice = desired.notices.first().unwrap();
        assert_eq!(notice.about, About::Service(Key::new("shop", "broken")));
        assert_eq!(notice.reason, Reason::LeftOut);
        assert!(notice.message.contains("(a fault)"), "{}", notice.message);
        assert_eq!(desired.notices.len(), 1);
    }
}
