//! Decides between Services that ask for the same port of a node: the oldest Service gets it. Runs once the ports of all Services
//! are known.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::notice::Reason;
use super::service_plan::{Claim, ServicePlan, SharedPorts};
use super::site::Reach;
use super::status::{Status, Verdict};
use crate::observe::Service;
use crate::settings::{HTTPS_PORT, HttpServices, Settings};

/// The owners of ports, by transport (true: UDP) and number: the addresses, and the owner's name.
type Held = BTreeMap<(bool, u16), Vec<(Reach, String)>>;

/// Grants each port to its oldest claimant. Services that do not get a port lose all ports, stay pending, and get an event that
/// names the owner. Returns the shared ports that exist.
///
/// A shared port is as old as the oldest Service that asks for a route of it by an annotation. Routes that exist only by
/// `--http-services=all` are no claim: they are served while no other Service has the port at every address.
pub(super) fn grant(context: &Context<'_>, plans: &mut [ServicePlan<'_>]) -> SharedPorts {
    let mut held = Held::new();
    let mut routes = BTreeMap::new();
    let mut shared = shared_ports(context.settings, plans);
    let claimants = [false, true].map(|secure| oldest_that_asks(plans, secure));
    let mut order: Vec<usize> = (0..plans.len()).collect();
    let age = |index: &usize| plans.get(*index).map(|plan| plan.service.age());
    order.sort_by(|one, other| age(one).cmp(&age(other)));
    let mut lost = Vec::new();
    for index in order {
        for secure in [false, true] {
            if claimants[usize::from(secure)] == Some(index) && shared.has(secure) {
                lost.extend(claim_shared(context, plans, &mut held, &mut shared, secure));
            }
        }
        let Some(plan) = plans.get_mut(index) else {
            continue;
        };
        grant_routes(&mut routes, plan);
        drop_doubles(plan);
        grant_ports(context, &mut held, plan);
    }
    for secure in [false, true] {
        let number = port_number(context, secure);
        let mut holders = held.get(&(false, number)).into_iter().flatten();
        let holder = holders.find(|(reach, _)| *reach == Reach::Everywhere);
        if claimants[usize::from(secure)].is_none()
            && shared.has(secure)
            && let Some((_, owner)) = holder
        {
            shared.remove(secure);
            lost.push((secure, owner.clone()));
        }
    }
    for (secure, owner) in lost {
        withdraw(context, plans, secure, &owner);
    }
    shared
}

/// The shared ports that exist: those for which a Service has a route; with `--http-services=all` also HTTP and, with
/// `--ssl-cert`, HTTPS.
fn shared_ports(settings: &Settings, plans: &[ServicePlan<'_>]) -> SharedPorts {
    let all = settings.flags.http_services == HttpServices::All;
    let mut routes = plans.iter().flat_map(|plan| &plan.routes);
    SharedPorts {
        http: all || routes.clone().any(|route| !route.secure),
        https: (all && settings.flags.ssl_cert.is_some()) || routes.any(|route| route.secure),
    }
}

/// Records a shared port as owned by the routes that annotations ask for, or returns the owner that has it already.
fn claim_shared(
    context: &Context<'_>,
    plans: &[ServicePlan<'_>],
    held: &mut Held,
    shared: &mut SharedPorts,
    secure: bool,
) -> Option<(bool, String)> {
    let place = (false, port_number(context, secure));
    let others = held.entry(place).or_default();
    let mut holders = others.iter();
    let holder = holders.find(|(reach, _)| meet(context, reach, &Reach::Everywhere));
    if let Some((_, owner)) = holder {
        shared.remove(secure);
        return Some((secure, owner.clone()));
    }
    others.push((Reach::Everywhere, shared_port(plans, secure)));
    None
}

/// Gives a Service its ports of the node, all or none.
fn grant_ports(context: &Context<'_>, held: &mut Held, plan: &mut ServicePlan<'_>) {
    let own_ports = context.settings.own_ports();
    let taken = plan.claims().find_map(|claim| {
        // No Service may have one of Ballast's own ports, at any address.
        let mut own_ports = own_ports.iter();
        if let Some((port, name)) = own_ports.find(|(port, _)| !claim.udp && claim.port == *port) {
            return Some((claim.clone(), format!("{name} ({port})")));
        }
        let mut holders = held.get(&(claim.udp, claim.port))?.iter();
        let (_, owner) = holders.find(|(reach, _)| meet(context, reach, &claim.reach))?;
        Some((claim.clone(), owner.clone()))
    });
    match taken {
        Some((claim, owner)) => refuse(plan, &claim, &owner),
        None => {
            let owner = plan.service.key.to_string();
            for claim in plan.claims() {
                let holders = held.entry((claim.udp, claim.port)).or_default();
                holders.push((claim.reach.clone(), owner.clone()));
            }
        }
    }
}

/// The oldest Service that asks for a route of a shared port by an annotation.
fn oldest_that_asks(plans: &[ServicePlan<'_>], secure: bool) -> Option<usize> {
    let asks = |plan: &ServicePlan<'_>| {
        let mut routes = plan.routes.iter();
        routes.any(|route| route.secure == secure && route.by_annotation)
    };
    let askers = plans.iter().enumerate().filter(|(_, plan)| asks(plan));
    let oldest = askers.min_by_key(|(_, plan)| plan.service.age());
    oldest.map(|(index, _)| index)
}

fn port_number(context: &Context<'_>, secure: bool) -> u16 {
    match secure {
        true => HTTPS_PORT,
        false => context.settings.flags.http_port,
    }
}

fn shared_name(secure: bool) -> &'static str {
    if secure { "HTTPS" } else { "HTTP" }
}

/// The name of a shared port for messages, with the oldest Service that asks for a route of it.
fn shared_port(plans: &[ServicePlan<'_>], secure: bool) -> String {
    let name = shared_name(secure);
    let oldest = oldest_that_asks(plans, secure).and_then(|index| plans.get(index));
    match oldest {
        Some(plan) => format!(
            "the shared {name} port, which leads to {}",
            plan.service.key
        ),
        None => format!("the shared {name} port"),
    }
}

/// Removes every route of a shared port that another Service owns. A Service that asked for a route by an annotation is told; of
/// the Services that have one by `--http-services=all` alone, only the newest is told.
fn withdraw(context: &Context<'_>, plans: &mut [ServicePlan<'_>], secure: bool, owner: &str) {
    let number = port_number(context, secure);
    let name = shared_name(secure);
    let why = format!("port {number}/TCP is taken by {owner}");
    let mut newest: Option<&Service> = None;
    for plan in &mut *plans {
        let mut of_port = plan.routes.iter().filter(|route| route.secure == secure);
        let Some(first) = of_port.next() else {
            continue;
        };
        let asks = first.by_annotation || of_port.any(|route| route.by_annotation);
        plan.routes.retain(|route| route.secure != secure);
        plan.status.why.clone_from(&why);
        if plan.routes.is_empty() && plan.ports.is_empty() {
            plan.files.clear();
            plan.status.verdict = Verdict::LeftAlone;
        }
        if asks {
            let key = &plan.service.key;
            let message = format!("Failed to allocate the shared {name} port for \"{key}\": {why}");
            plan.warn(Reason::AllocationFailed, message);
        } else if newest.is_none_or(|newest| plan.service.age() > newest.age()) {
            newest = Some(plan.service);
        }
    }
    let is_told =
        |plan: &&mut ServicePlan<'_>| newest.is_some_and(|told| told.key == plan.service.key);
    if let Some(plan) = plans.iter_mut().find(is_told) {
        let message = format!(
            "{why}: the routes of this Service, and all others of the shared {name} port, are withdrawn; they return when that port is free"
        );
        plan.warn(Reason::RoutesWithdrawn, message);
    }
}

/// Drops a port that would listen at the same port of the node as an earlier port of the same Service.
fn drop_doubles(plan: &mut ServicePlan<'_>) {
    let mut seen = BTreeSet::new();
    let mut lost = Vec::new();
    plan.ports.retain(|port| {
        let is_new = seen.insert((port.claim.udp, port.claim.port));
        if !is_new {
            lost.push(format!("{} would listen at port {}, as another port of this Service does; it is not served", port.frontend.name, port.claim.port));
        }
        is_new
    });
    for message in lost {
        plan.warn(Reason::AllocationFailed, message);
    }
}

/// Drops routes that an older Service has, or an earlier port of the same Service.
fn grant_routes(held: &mut BTreeMap<String, (String, bool)>, plan: &mut ServicePlan<'_>) {
    let owner = plan.service.key.to_string();
    let mut taken = BTreeSet::new();
    plan.routes.retain(|route| {
        let mut lost = None;
        for (place, unopened) in route.places() {
            if let Some((other, theirs)) = held.get(&place)
                && unopened.is_none_or(|ours| ours != *theirs)
            {
                lost = Some((place, other.clone()));
            }
        }
        match lost {
            Some((place, other)) => {
                if other != owner {
                    taken.insert(format!(
                        "{place} leads to {other} already; this route of the Service is not served"
                    ));
                }
                false
            }
            None => {
                for (place, unopened) in route.places() {
                    held.entry(place)
                        .or_insert_with(|| (owner.clone(), unopened.unwrap_or_default()));
                }
                true
            }
        }
    });
    for message in taken {
        plan.warn(Reason::AnnotationConflict, message);
    }
}

fn refuse(plan: &mut ServicePlan<'_>, claim: &Claim, owner: &str) {
    let transport = if claim.udp { "UDP" } else { "TCP" };
    let key = &plan.service.key;
    let why = format!("port {}/{transport} is taken by {owner}", claim.port);
    let message = format!("Failed to allocate IP for \"{key}\": {why}");
    plan.warn(Reason::AllocationFailed, message);
    plan.ports.clear();
    if plan.routes.is_empty() {
        plan.files.clear();
    }
    plan.status = match plan.status.verdict {
        Verdict::Routed if !plan.routes.is_empty() => {
            Status::new(plan.service, Verdict::Routed, why)
        }
        Verdict::Routed => Status::left_alone(plan.service, why),
        _ => Status {
            port_errors: std::mem::take(&mut plan.status.port_errors),
            ..Status::pending(plan.service, why)
        },
    };
}

/// Whether two claims of one port meet at some address.
fn meet(context: &Context<'_>, one: &Reach, other: &Reach) -> bool {
    match (one, other) {
        (Reach::Everywhere, Reach::Everywhere) => true,
        (Reach::Everywhere, Reach::At(addresses)) | (Reach::At(addresses), Reach::Everywhere) => {
            let mut addresses = addresses.iter();
            addresses.any(|address| context.nodes.publishes(*address))
        }
        (Reach::At(ours), Reach::At(theirs)) => ours.iter().any(|address| theirs.contains(address)),
    }
}
