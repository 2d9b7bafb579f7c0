//! Decides: out of what is observed of the cluster, and the settings, what must be.
//!
//! [`decide`] is pure: no socket, clock, task or API call; equal input gives equal output. A [`Memo`] saves work that an earlier
//! decision has done, and changes nothing. Other modules act on what is returned.
//!
//! A decision has three steps: every Service is *planned* by itself (what it asks for, which no later step changes); then
//! `allocate::allocate` gives, or on a node `allocate::obey` takes what was given (a `grant` for each Service); then `publish` says what
//! statuses list, or on a node `table` and `report` say what it serves. Without a cluster one process does all of it.
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
//! 3. **The plan of one Service**: `site`, `asks` (what it asks of address pools) and `placement` (where it listens), `files` and `certificate` (where TLS ends),
//!    `ports`, `external_name`, `parts` (its frontends and services). `load_balancer` and `routed` put them together as a `service_plan`.
//! 4. **Allocation**: `allocate` makes a `grant` for each Service, by what it `has`; `taken_ports` knows who has which port of which node,
//!    `shared_ports` and `hosts` who has the shared ports and the hosts there, `pooled` gives addresses of pools. `memo` keeps plans.
//! 5. **What is served and published**: `table` assembles the routing table, `report` is what a node says of it, `announced` which
//!    addresses the network is to lead here; `publish` says which addresses a status lists, without the nodes that keep a port for
//!    themselves (`own_ports`).
//! 6. **Validation**: `validate` finds the Services, by `owners` and `size`, that the data plane would refuse the table for.

mod allocate;
mod annotations;
mod announced;
mod asks;
mod canaries;
mod certificate;
mod context;
mod endpoints;
mod external_name;
mod fault;
mod files;
mod grant;
mod has;
mod health;
mod hosts;
mod load_balancer;
mod memo;
mod names;
mod nodes;
mod notice;
mod options;
mod own_ports;
mod owners;
mod parts;
mod permitted;
mod placement;
mod pooled;
mod ports;
mod publish;
mod ranges;
mod report;
mod route_limit;
mod routed;
mod service_plan;
mod shared_ports;
mod shares;
mod site;
mod size;
mod status;
mod table;
mod taken_ports;
mod validate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ballast_core::table::RoutingTable;
use serde::Serialize;

use crate::observe::{Key, Observed, Remembered, Service, ServiceKind, Wanted};
use crate::settings::{Role, Settings};
pub(crate) use annotations::{ADDRESS, ID, LAST_GOOD, is_read};
pub use announced::{Announced, AnnouncedAddress, Mode};
use context::{Context, Slices};
use fault::Fault;
pub use files::{Source, WantedFile};
use grant::Grant;
pub use memo::Memo;
use names::BareNames;
use nodes::ThisNode;
pub(crate) use nodes::is_load_balancer;
pub use notice::{About, Kind, Notice, Reason};
pub(crate) use owners::{owner_by_labels, served};
pub use report::Report;
use report::reported;
use service_plan::ServicePlan;
use shared_ports::SharedPorts;
pub(crate) use status::is_foreign;
pub use status::{Allotment, Ingress, PoolRow, PortError, Status, Verdict};
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
    /// How much of each address pool is used. Nodes of a cluster do not know it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolRow>,
    /// Events about Services and Nodes, and warnings about flags, in a fixed order.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub notices: BTreeSet<Notice>,
    /// The Secrets, ReferenceGrants, DNS names and Nodes that the next decision needs.
    #[serde(skip_serializing_if = "Wanted::is_empty")]
    pub wanted: Wanted,
    /// The last good values of annotations, for the next decision. Those that are in use now are annotations as well
    /// (`ballast.dev/last-good`), so that every node has the same ones, and has them after a restart.
    #[serde(skip)]
    pub remembered: Arc<Remembered>,
    /// What the announcer of this node is to announce, once the data plane serves it.
    #[serde(skip_serializing_if = "is_nothing")]
    pub announced: Arc<Announced>,
    /// What this node's Lease reports beside the state of its data plane.
    #[serde(skip)]
    pub report: Arc<Report>,
}

fn is_nothing(announced: &Announced) -> bool {
    announced.is_empty()
}

/// Decides what is served and published, for all Services.
pub fn decide(observed: &Observed, settings: &Settings) -> Desired {
    decide_again(&mut Memo::default(), observed, settings)
}

/// Decides likewise, with what an earlier decision has left: it costs less where little has changed.
pub fn decide_again(memo: &mut Memo, observed: &Observed, settings: &Settings) -> Desired {
    decide_by(plan_service, memo, observed, settings)
}

/// The lookups that each of these Services needs. `observed` must contain the Services too.
pub fn wanted_by<'a>(
    services: impl Iterator<Item = &'a Arc<Service>>,
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
        Memo::default().begin(observed, settings),
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
fn decide_by(
    plan_one: PlanService,
    memo: &mut Memo,
    observed: &Observed,
    settings: &Settings,
) -> Desired {
    let mut left_out = BTreeMap::new();
    loop {
        // A Service that cannot be planned, or has its table refused, is left out, and all others are decided again.
        let blamed = match decide_without(&left_out, plan_one, memo, observed, settings) {
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
type PlanService = fn(&Context<'_>, &BareNames<'_>, &Arc<Service>) -> ServicePlan;

/// One pass over all Services, without those that are left out. `Err`: the Services for which a panic was caught, with its
/// message.
fn decide_without(
    left_out: &BTreeMap<Key, Fault>,
    plan_one: PlanService,
    memo: &mut Memo,
    observed: &Observed,
    settings: &Settings,
) -> Result<Desired, BTreeMap<Key, Fault>> {
    let mut notices = Vec::new();
    let slices = Slices::of(observed);
    let pools = memo.begin(observed, settings);
    let context = Context::new(observed, settings, left_out, slices, pools, &mut notices);
    let names = BareNames::of(observed, settings);
    notices.extend(names.unknown_tcp_services(observed, settings));
    let mut panicked = BTreeMap::new();
    let mut plans = Vec::with_capacity(observed.services.len());
    let looked_at = |service: &&Arc<Service>| settings.looks_at(&service.key.namespace);
    for service in observed.services.values().filter(looked_at) {
        plans.extend(memo.plan(&context, service, || {
            validate::catch_panic(&context, service, &mut panicked, || {
                plan_one(&context, &names, service)
            })
        }));
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let mut given = match settings.role {
        Role::Publisher | Role::Whole => allocate::allocate(&context, &mut memo.index, plans),
        Role::Node => allocate::obey(&context, plans),
    };
    let waits = |grant: &&mut Grant| observed.waiting.contains(&grant.service().key);
    given.grants.iter_mut().filter(waits).for_each(Grant::hold);
    if settings.role != Role::Node {
        for grant in &mut given.grants {
            let service = Arc::clone(&grant.plan.service);
            validate::catch_panic(&context, &service, &mut panicked, || {
                publish::publish(&context, grant);
            });
        }
    }
    if !panicked.is_empty() {
        return Err(panicked);
    }
    let mut desired = Desired::default();
    match settings.role {
        // Only nodes read Secrets and resolve names.
        Role::Publisher => notices.extend(reported(observed, &context.common)),
        Role::Whole | Role::Node => {
            desired.serve(&context, given.shared, &mut given.grants, &mut notices);
        }
    }
    desired.pools = given.pools;
    desired.notices.extend(notices);
    given.grants.into_iter().for_each(|one| desired.add(one));
    Ok(desired)
}

impl Desired {
    /// Adds what this node serves.
    fn serve(
        &mut self,
        context: &Context<'_>,
        shared: SharedPorts,
        grants: &mut [Grant],
        notices: &mut Vec<Notice>,
    ) {
        let (observed, settings) = (context.observed, context.settings);
        self.wanted.nodes |= settings.needs_all_nodes();
        let mut report = report::report(context, grants);
        for grant in &*grants {
            let plan = &grant.plan;
            self.wanted.extend(plan.wanted.clone());
            report.notices.extend(grant.node_notices.iter().cloned());
            if !observed.waiting.contains(&plan.service.key) {
                report.notices.extend(plan.node_notices.iter().cloned());
            }
        }
        if settings.announces || settings.role == Role::Whole {
            let outcome = announced::announced(context, grants);
            self.announced = Arc::new(outcome.announced);
            self.wanted.secrets.extend(outcome.secrets);
            report.notices.extend(outcome.notices);
        }
        if settings.role == Role::Whole {
            notices.extend(std::mem::take(&mut report.notices));
        }
        self.report = Arc::new(report);
        if matches!(context.nodes.here, ThisNode::NotSelected) {
            return;
        }
        self.files = files::settings_files(settings);
        let here = grants.iter().filter(|grant| grant.is_here(context));
        let files = here.flat_map(|grant| grant.plan.files.iter().cloned());
        self.files.extend(files);
        let table = table::assemble(context, shared, grants);
        notices.extend(table::lost_healthz(settings, &table));
        self.table = Some(Arc::new(table));
    }

    /// Adds what becomes of one Service.
    fn add(&mut self, grant: Grant) {
        let plan = grant.plan;
        self.notices.extend(plan.notices.iter().cloned());
        self.notices.extend(grant.notices);
        if !plan.memory.is_empty() {
            let key = plan.service.key.clone();
            let remembered = Arc::make_mut(&mut self.remembered);
            remembered.insert(key, Arc::clone(&plan.memory));
        }
        self.statuses.push(grant.status);
    }
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

fn plan_service(
    context: &Context<'_>,
    names: &BareNames<'_>,
    service: &Arc<Service>,
) -> ServicePlan {
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
        true => {
            let status = Status {
                reserves: asks::to_keep(context, service),
                ..Status::released(service, "it is being deleted", settings)
            };
            ServicePlan::nothing(service, status)
        }
        false => load_balancer::plan(context, service),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics over the Services called `broken`.
    fn plan_with_a_fault(
        context: &Context<'_>,
        names: &BareNames<'_>,
        service: &Arc<Service>,
    ) -> ServicePlan {
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
    fn a_service_that_waits_has_its_port_and_is_not_served() {
        let mut observed = seen(&[("early", 80), ("late", 80), ("web", 81)]);
        observed.waiting.insert(Key::new("shop", "early"));
        let desired = decide(&observed, &Settings::without_flags());
        let table = desired.table.unwrap();
        let names = table.frontends.iter().map(|one| one.name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["shop.web:81"]);
        assert_eq!(table.services.len(), 1);
        let late = &desired.statuses[1];
        assert_eq!(late.why, "port 80/TCP is taken by shop/early");
        let waiting = BTreeSet::from([Key::new("shop", "early")]);
        assert_eq!(desired.report.pending, waiting);
        assert_eq!(desired.report.closed, BTreeSet::new());
    }

    #[test]
    fn a_service_that_makes_the_table_too_large_leaves_table_and_status() {
        let observed = seen(&[("large", 80), ("web", 81)]);
        let left_out = BTreeMap::from([(Key::new("shop", "large"), Fault::TooLarge)]);
        let settings = Settings::without_flags();
        let desired = decide_without(
            &left_out,
            plan_service,
            &mut Memo::default(),
            &observed,
            &settings,
        )
        .unwrap();
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
        let pools = Memo::default().begin(&observed, &settings);
        let context = Context::new(
            &observed,
            &settings,
            &left_out,
            slices,
            pools,
            &mut Vec::new(),
        );
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
        let desired = decide_by(
            plan_with_a_fault,
            &mut Memo::default(),
            &observed,
            &settings,
        );
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

    /// It may be left out for a moment only, and its clients still come to its ports. No Service that waits for a shared port gets it
    /// meanwhile either, though no other one asks for a route.
    #[test]
    fn a_service_that_is_left_out_keeps_its_ports() {
        let service = |name: &str, created: u8, rest: &str| {
            format!(
                "---\nkind: Service\nmetadata: {{name: {name}, namespace: shop, creationTimestamp: \"2026-01-01T00:00:0{created}Z\", annotations: {{ballast.dev/host: web.example}}}}\nspec: {{{rest}ports: [{{port: 80}}]}}\n"
            )
        };
        let balancer = "type: LoadBalancer, ";
        let node = "---\nkind: Node\nmetadata: {name: edge1, labels: {role: loadbalancer}}\nstatus: {addresses: [{type: InternalIP, address: 10.77.1.1}]}\n";
        let settings = Settings::without_flags().in_role(Role::Publisher);
        for (kind, has, verdict) in [
            (balancer, "addresses=node ports=80/TCP", Verdict::Pending),
            ("", "addresses=node routes=80/TCP", Verdict::Routed),
        ] {
            let status = format!(
                "status: {{conditions: [{{type: ballast.dev/Allocated, status: \"True\", reason: Allocated, message: {has}, lastTransitionTime: \"2026-01-01T00:00:02Z\"}}]}}\n"
            );
            let (broken, rival) = (service("broken", 1, kind), service("rival", 0, balancer));
            let observed = Observed::of(&(broken + &status + &rival + node));
            let mut memo = Memo::default();
            let desired = decide_by(plan_with_a_fault, &mut memo, &observed, &settings);
            let [broken, rival] = &desired.statuses[..] else {
                panic!("{:?}", desired.statuses);
            };
            let Some(Allotment::Given(given)) = &broken.allotment else {
                panic!("{:?}", broken.allotment);
            };
            assert_eq!(given.to_string(), has);
            assert_eq!(broken.verdict, verdict);
            assert!(
                rival.why.starts_with("port 80/TCP is taken by"),
                "{}",
                rival.why
            );
        }
    }
}
