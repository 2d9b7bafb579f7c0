//! Gives ports of nodes to Services. Runs once the ports and routes of all Services are known.
//!
//! What a Service has stays: no creation or edit of another Service takes it away. The publisher gives what is free to the Services
//! that wait, the oldest first. A node serves what [`Allocated`] says: a LoadBalancer without it waits for the publisher. Routes and
//! ports of `--tcp-services` that do not have it yet are served on nodes as the publisher will give them, so that nothing is closed
//! while a publisher that writes no [`Allocated`] is replaced. Without a publisher (manifests, `plan`) the same function gives, and
//! nothing is remembered.

use std::collections::{BTreeMap, BTreeSet};

use ballast_core::table::List;

use super::context::Context;
use super::held::{Held, NodeSet};
use super::hosts::Hosts;
use super::nodes::ThisNode;
use super::notice::Reason;
use super::service_plan::{Claim, ServicePlan, SharedPorts};
use super::site::{ListenAt, Site};
use super::status::{Allotment, Status, Verdict};
use crate::allocation::{Allocated, Allocation, At, NodePort};
use crate::observe::{Key, Service, ServiceKind};
use crate::settings::{HTTPS_PORT, HostOwnership, HttpServices, Role, Settings};

/// Gives every Service its ports, and returns the shared ports that exist. Services that do not get a port get an event that names
/// its owner.
///
/// Routes that exist only by `--http-services=all` are no claim to a shared port: they are served while no other Service has the
/// port at every address.
pub(super) fn allocate<'a>(context: &Context<'a>, plans: &mut [ServicePlan<'a>]) -> SharedPorts {
    plans.iter_mut().for_each(drop_doubles);
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.sort_by_key(|index| plans.get(*index).map(|plan| plan.service.age()));
    let mut routes = BTreeMap::new();
    let mut hosts = Hosts::default();
    for index in &order {
        let Some(plan) = plans.get_mut(*index) else {
            continue;
        };
        if context.settings.flags.host_ownership == HostOwnership::Namespace {
            hosts.take(plan);
        }
        grant_routes(&mut routes, plan);
    }
    let mut giving = Giving::new(context, plans);
    giving.keep(plans, &order);
    for index in order {
        giving.give(plans, index);
    }
    giving.end(plans)
}

/// The state of one pass over all Services.
struct Giving<'c, 'a> {
    context: &'c Context<'a>,
    held: Held<'c, 'a>,
    /// The ports at which kube-proxy listens on every node, with the Service of each.
    node_ports: BTreeMap<NodePort, &'a Key>,
    shared: SharedPorts,
    /// The Services that ask for each shared port by an annotation: the oldest one.
    askers: [Option<usize>; 2],
    /// The shared ports that are held already.
    has: [bool; 2],
    /// The Services whose ports were kept.
    kept: BTreeSet<usize>,
    /// The shared ports that Services have, with the owner.
    lost: Vec<(bool, String)>,
}

impl<'c, 'a> Giving<'c, 'a> {
    fn new(context: &'c Context<'a>, plans: &[ServicePlan<'a>]) -> Self {
        Self {
            context,
            held: Held::new(&context.nodes),
            node_ports: node_ports(context),
            shared: shared_ports(context.settings, plans),
            askers: [false, true].map(|secure| oldest_that_asks(plans, secure)),
            has: [false; 2],
            kept: BTreeSet::new(),
            lost: Vec::new(),
        }
    }

    /// Every Service keeps what it has: the one that has it longer, where two have the same by accident.
    fn keep(&mut self, plans: &mut [ServicePlan<'a>], order: &[usize]) {
        let shared = [false, true].into_iter().filter_map(|secure| {
            let since = self.shared_since(plans, secure)?;
            Some((since, Keeper::Shared(secure)))
        });
        let services = order.iter().filter_map(|index| {
            let since = has_since(plans.get(*index)?.service)?;
            Some((since, Keeper::Service(*index)))
        });
        // A stable order: those that have it for the same time stay ordered by age.
        let mut by_time: Vec<(i64, Keeper)> = shared.chain(services).collect();
        by_time.sort_by_key(|(since, _)| *since);
        for (_, keeper) in by_time {
            match keeper {
                Keeper::Shared(secure) => self.give_shared(plans, secure),
                Keeper::Service(index) => {
                    if let Some(plan) = plans.get_mut(index)
                        && let Some(has) = Has::of(plan)
                    {
                        self.keep_one(index, plan, &has);
                    }
                }
            }
        }
    }

    /// Since when routes have a shared port.
    fn shared_since(&self, plans: &[ServicePlan<'_>], secure: bool) -> Option<i64> {
        let number = port_number(self.context.settings, secure);
        let askers = plans.iter().filter(|plan| plan.asks_for_route(secure));
        let allocated = askers.filter_map(|plan| plan.service.allocated.as_ref());
        let with_it = allocated.filter(|one| one.allocation.routes.contains(&number));
        with_it.map(|one| one.since).min()
    }

    fn keep_one(&mut self, index: usize, plan: &mut ServicePlan<'a>, has: &Has<'_>) {
        let set = self.set(plan);
        let owner = plan.service.key.to_string();
        let is_balancer = plan.service.kind == ServiceKind::LoadBalancer;
        if plan.placement.is_none() && is_balancer {
            // It has no place now, and gets it back when its nodes return.
            if plan.status.verdict == Verdict::Pending
                && let Some(allocation) = has.without_place(plan)
            {
                self.hold(&allocation.ports, &allocation.at, &owner);
                plan.status.allotment = Some(Allotment::Given(allocation));
                self.kept.insert(index);
            }
            return;
        }
        if !has.fits(plan) && self.gives() {
            // The Service itself asks for something else.
            return;
        }
        has.place(self.context, plan);
        let unread = match is_balancer {
            true => has.unread(plan),
            false => BTreeSet::new(),
        };
        if let Has::Allocated(allocation) = has {
            self.hold(&unread, &allocation.at, &owner);
        }
        let mut lost = Vec::new();
        for port in &mut plan.ports {
            let claim = &port.claim;
            if !has.contains(claim) {
                continue;
            }
            if let Some(owner) = self.owner_here(claim, &set) {
                port.closed = true;
                port.taken = true;
                lost.push((claim.port, owner));
            }
            self.held.take(claim, &set, &owner);
            port.given = true;
        }
        for (port, owner) in lost {
            let message = format!("port {port} is taken by {owner}, which was given it earlier");
            plan.warn_by_node(Reason::AllocationFailed, message);
        }
        if !unread.is_empty() || plan.ports.iter().any(|port| port.given) {
            self.kept.insert(index);
        }
        plan.unread = unread;
    }

    /// Takes ports that a Service has, and that are not served now.
    fn hold(&mut self, ports: &BTreeSet<NodePort>, at: &At, owner: &str) {
        for port in ports {
            self.held.take(&Claim::at(*port, at), &NodeSet::All, owner);
        }
    }

    /// The owner of a port at the addresses of this node.
    fn owner_here(&self, claim: &Claim, set: &NodeSet<'a>) -> Option<String> {
        match self.context.nodes.here {
            ThisNode::LoadBalancer(node) => self.held.owner_here(claim, set, node),
            ThisNode::Standalone => self.held.owner(claim, set),
            ThisNode::NotSelected => None,
        }
    }

    /// Gives a Service what it does not have yet.
    fn give(&mut self, plans: &mut [ServicePlan<'a>], index: usize) {
        for secure in [false, true] {
            if self.askers[usize::from(secure)] == Some(index) && self.shared.has(secure) {
                self.give_shared(plans, secure);
            }
        }
        let is_kept = self.kept.contains(&index);
        let Some(plan) = plans.get_mut(index) else {
            return;
        };
        if plan.ports.is_empty() {
            return;
        }
        let is_balancer = plan.service.kind == ServiceKind::LoadBalancer;
        if is_balancer && !self.gives() {
            wait(plan, is_kept);
            return;
        }
        let set = self.set(plan);
        let new = plan.ports.iter().filter(|port| !port.given);
        let taken: Vec<(Claim, String)> = new
            .filter_map(|port| Some((port.claim.clone(), self.taken(&port.claim, &set)?)))
            .collect();
        if let Some((claim, owner)) = taken.first()
            && !is_kept
        {
            refuse(plan, claim, owner);
            return;
        }
        for (claim, owner) in &taken {
            lose_port(plan, claim, owner);
        }
        let owner = plan.service.key.to_string();
        for port in plan.ports.iter_mut().filter(|port| !port.given) {
            self.held.take(&port.claim, &set, &owner);
            port.given = true;
        }
    }

    /// Whether this process gives to Services that wait.
    fn gives(&self) -> bool {
        self.context.settings.role != Role::Node
    }

    fn asked(&self, secure: bool) -> bool {
        self.askers[usize::from(secure)].is_some()
    }

    fn set(&self, plan: &ServicePlan<'a>) -> NodeSet<'a> {
        let site = plan.placement.as_ref().map(|placement| &placement.site);
        NodeSet::of(
            &self.context.nodes,
            site.and_then(|site| site.chosen.as_ref()),
        )
    }

    /// The owner of a port at one of the places of a claim.
    fn taken(&self, claim: &Claim, set: &NodeSet<'a>) -> Option<String> {
        let settings = self.context.settings;
        let node_port = || self.node_ports.get(&claim.port);
        settings
            .reserved(claim.port)
            .or_else(|| node_port().map(|key| format!("a nodePort of {key}")))
            .or_else(|| self.held.owner(claim, set))
    }

    /// Gives a shared port to the routes that annotations ask for.
    fn give_shared(&mut self, plans: &[ServicePlan<'a>], secure: bool) {
        let claim = Claim::everywhere(NodePort::tcp(port_number(self.context.settings, secure)));
        if self.has[usize::from(secure)] {
            return;
        }
        if let Some(owner) = self.held.owner(&claim, &NodeSet::All) {
            self.shared.remove(secure);
            self.lost.push((secure, owner));
            return;
        }
        let owner = shared_port(plans, secure);
        self.held.take(&claim, &NodeSet::All, &owner);
        self.has[usize::from(secure)] = true;
    }

    /// Withdraws the routes of the shared ports that Services have, and writes down what each Service was given.
    fn end(mut self, plans: &mut [ServicePlan<'a>]) -> SharedPorts {
        for secure in [false, true] {
            let port = NodePort::tcp(port_number(self.context.settings, secure));
            if !self.asked(secure)
                && self.shared.has(secure)
                && let Some(owner) = self.held.owner_everywhere(port)
            {
                self.shared.remove(secure);
                self.lost.push((secure, owner));
            }
        }
        for (secure, owner) in &self.lost {
            withdraw(self.context, plans, *secure, owner);
        }
        for plan in plans {
            write_down(self.context.settings, plan);
        }
        self.shared
    }
}

/// The nodePorts of all Services.
fn node_ports<'a>(context: &Context<'a>) -> BTreeMap<NodePort, &'a Key> {
    let services = context.observed.services.values();
    let ports = services.flat_map(|service| {
        let of_ports = service
            .ports
            .iter()
            .filter_map(|port| Some(NodePort::of(port.node_port?, port.protocol)));
        let of_checks = service.health_check_node_port.map(NodePort::tcp);
        of_ports.chain(of_checks).map(|port| (port, &service.key))
    });
    ports.collect()
}

/// What keeps a port.
enum Keeper {
    /// The routes of a shared port: the HTTPS port, or the HTTP port.
    Shared(bool),
    Service(usize),
}

/// What a Service has.
enum Has<'a> {
    Allocated(&'a Allocation),
    /// A build that did not say what was given has published the Service: everything that it asks for.
    Published,
}

impl<'a> Has<'a> {
    fn of(plan: &ServicePlan<'a>) -> Option<Self> {
        let service = plan.service;
        match &service.allocated {
            Some(Allocated { allocation, .. }) => Some(Self::Allocated(allocation)),
            None => service.was_published.then_some(Self::Published),
        }
    }

    fn contains(&self, claim: &Claim) -> bool {
        match self {
            Self::Allocated(allocation) => allocation.ports.contains(&claim.port),
            Self::Published => true,
        }
    }

    /// Whether the Service asks for the addresses that it has.
    fn fits(&self, plan: &ServicePlan<'_>) -> bool {
        match (self, &plan.placement) {
            (Self::Allocated(allocation), Some(placement)) => allocation.at == placement.site.at(),
            (Self::Allocated(allocation), None) => allocation.at == At::Node,
            (Self::Published, _) => true,
        }
    }

    /// Lets a Service listen where it was given addresses, if it asks for others meanwhile.
    fn place(&self, context: &Context<'_>, plan: &mut ServicePlan<'_>) {
        let (Self::Allocated(allocation), Some(placement)) = (self, &plan.placement) else {
            return;
        };
        if self.fits(plan) {
            return;
        }
        let at = match &allocation.at {
            At::Node => ListenAt::Wildcard,
            At::NodeInternal => ListenAt::Internal(placement.families.clone()),
            At::Addresses(addresses) => ListenAt::Requested(addresses.clone()),
        };
        let chosen = placement.site.chosen.clone();
        let site = Site { chosen, at };
        for port in &mut plan.ports {
            let binds = site.binds(context.nodes.here, port.claim.port.number);
            port.frontend.bind = List::new(binds);
        }
    }

    /// What a Service keeps while it has no place: the ports that it still has in its spec. `None`: it asks for other addresses.
    fn without_place(&self, plan: &ServicePlan<'_>) -> Option<Allocation> {
        let Self::Allocated(allocation) = self else {
            return None;
        };
        let fits = plan.asks_at.as_ref().is_none_or(|at| *at == allocation.at);
        fits.then(|| Allocation {
            ports: self.unread(plan),
            ..Allocation::clone(allocation)
        })
    }

    /// The ports that a Service has, and still has in its spec, of which no plan could be made: an annotation cannot be read.
    fn unread(&self, plan: &ServicePlan<'_>) -> BTreeSet<NodePort> {
        let Self::Allocated(allocation) = self else {
            return BTreeSet::new();
        };
        let service = plan.service;
        let moves_ports = service
            .annotations
            .keys()
            .any(|key| key.contains("external-port"));
        let is_asked = |port: &&NodePort| {
            let mut planned = plan.claims();
            let mut asked = service.ports.iter();
            let is_in_spec =
                asked.any(|asked| NodePort::of(asked.number, asked.protocol) == **port);
            let is_planned = planned.any(|claim| claim.port == **port);
            let has_more = plan.ports.len() < service.ports.len();
            !is_planned && (is_in_spec || (moves_ports && has_more))
        };
        allocation.ports.iter().filter(is_asked).copied().collect()
    }
}

/// When a Service was given what it has.
fn has_since(service: &Service) -> Option<i64> {
    match &service.allocated {
        Some(allocated) => Some(allocated.since),
        None => service.was_published.then_some(service.created).flatten(),
    }
}

/// On a node: the ports that a LoadBalancer was not given yet are not served.
fn wait(plan: &mut ServicePlan<'_>, is_kept: bool) {
    plan.ports.retain(|port| port.given || port.taken);
    if !is_kept && plan.ports.is_empty() {
        plan.files.clear();
        plan.status = Status::pending(plan.service, "the publisher has not given it its ports yet");
    }
}

/// Writes down what a Service was given.
fn write_down(settings: &Settings, plan: &mut ServicePlan<'_>) {
    if plan.status.allotment.is_some() {
        return;
    }
    let given = plan.ports.iter().filter(|port| port.given);
    let given = given.map(|port| port.claim.port);
    let ports: BTreeSet<NodePort> = given.chain(plan.unread.iter().copied()).collect();
    let asked = plan.routes.iter().filter(|route| route.by_annotation);
    let mut routes: BTreeSet<u16> = asked
        .map(|route| port_number(settings, route.secure))
        .collect();
    if ports.is_empty() && routes.is_empty() {
        return;
    }
    let is_balancer = plan.service.kind == ServiceKind::LoadBalancer;
    if let Some(before) = plan.service.allocated.as_ref().filter(|_| !is_balancer) {
        // Two Ballasts may lead to one Service that is no LoadBalancer: what another one has given stays.
        let own = [false, true].map(|secure| port_number(settings, secure));
        let others = before.allocation.routes.iter();
        routes.extend(others.filter(|number| !own.contains(number)));
    }
    let placement = plan.placement.as_ref();
    plan.status.allotment = Some(Allotment::Given(Allocation {
        at: placement.map_or(At::Node, |placement| placement.site.at()),
        pool: None,
        ports,
        routes,
    }));
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

/// The oldest Service that asks for a route of a shared port by an annotation.
fn oldest_that_asks(plans: &[ServicePlan<'_>], secure: bool) -> Option<usize> {
    let plans = plans.iter().enumerate();
    let askers = plans.filter(|(_, plan)| plan.asks_for_route(secure));
    let oldest = askers.min_by_key(|(_, plan)| plan.service.age());
    oldest.map(|(index, _)| index)
}

fn port_number(settings: &Settings, secure: bool) -> u16 {
    match secure {
        true => HTTPS_PORT,
        false => settings.flags.http_port,
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

/// Removes every route of a shared port that another Service owns. A Service that asked for a route by an annotation gets a
/// Warning; of the Services that have one by `--http-services=all` alone, only the newest does.
fn withdraw(context: &Context<'_>, plans: &mut [ServicePlan<'_>], secure: bool, owner: &str) {
    let port = NodePort::tcp(port_number(context.settings, secure));
    let name = shared_name(secure);
    let why = format!("port {port} is taken by {owner}");
    let mut newest: Option<&Service> = None;
    for plan in &mut *plans {
        if !plan.routes.iter().any(|route| route.secure == secure) {
            continue;
        }
        let asks = plan.asks_for_route(secure);
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
    let is_newest =
        |plan: &&mut ServicePlan<'_>| newest.is_some_and(|newest| newest.key == plan.service.key);
    if let Some(plan) = plans.iter_mut().find(is_newest) {
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
        let is_new = seen.insert(port.claim.port);
        if !is_new {
            lost.push(format!("{} would listen at port {}, as another port of this Service does; it is not served", port.frontend.name, port.claim.port.number));
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

/// Refuses a Service that has nothing yet: it gets all its ports or none.
fn refuse(plan: &mut ServicePlan<'_>, claim: &Claim, owner: &str) {
    let key = &plan.service.key;
    let why = format!("port {} is taken by {owner}", claim.port);
    let message = format!("Failed to allocate IP for \"{key}\": {why}");
    plan.warn(Reason::AllocationFailed, message.clone());
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
            allotment: Some(Allotment::Failed(message)),
            ..Status::pending(plan.service, why)
        },
    };
}

/// Refuses one more port of a Service that keeps the others.
fn lose_port(plan: &mut ServicePlan<'_>, claim: &Claim, owner: &str) {
    let key = &plan.service.key;
    let message = format!(
        "Failed to allocate port {} for \"{key}\": it is taken by {owner}; the Service keeps its other ports",
        claim.port
    );
    plan.warn(Reason::AllocationFailed, message);
    plan.ports.retain(|port| port.claim != *claim);
}
