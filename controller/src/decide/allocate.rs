//! Gives addresses of pools and ports of nodes to Services.
//!
//! What a Service has stays: no creation or edit of another Service takes it away. [`allocate`] gives what is free to the Services that
//! wait, the oldest first: the publisher does, and without a cluster the process itself, which remembers nothing. A node does not give
//! ([`obey`]): it serves what [`Allocated`] says, and a LoadBalancer without it waits for the publisher.
//! Routes and ports of `--tcp-services` that do not have it yet are served on nodes as the publisher will give them, so that nothing is
//! closed while a publisher that does not write it is replaced.
//!
//! Routes that exist only by `--http-services=all` are no claim to a shared port: they are served while no other Service has the port
//! at every address.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::context::Context;
use super::grant::{Grant, PortGrant};
use super::has::{fits, is_without_place, kept_without_place};
use super::hosts::Hosts;
use super::nodes::ThisNode;
use super::notice::Reason;
use super::pooled::{self, PoolIndex, Pooled};
use super::service_plan::{ServicePlan, shared_number};
use super::shared_ports::{self, SharedPorts, oldest_that_asks, shared_name, shared_since};
use super::site::{Reach, Site};
use super::status::{Allotment, PoolRow, Status};
use super::taken_ports::{NodeSet, TakenPorts};
use crate::allocation::{Allocated, Allocation, At, NodePort};
use crate::observe::{Key, ServiceKind};
use crate::settings::{HostOwnership, Settings};

/// What all Services are given.
pub(super) struct Given {
    pub(super) grants: Vec<Grant>,
    /// The shared ports that exist.
    pub(super) shared: SharedPorts,
    /// How much of each pool is used.
    pub(super) pools: Vec<PoolRow>,
}

/// Gives every Service what it has, and then its addresses and ports to those that wait. Services that do not get a port get an event
/// that names its owner.
pub(super) fn allocate(
    context: &Context<'_>,
    index: &mut PoolIndex,
    plans: Vec<Arc<ServicePlan>>,
) -> Given {
    let mut giving = Giving::new(context, plans);
    giving.keep();
    let pools = giving.give_of_pools(index);
    giving.give();
    giving.end(pools)
}

/// On a node: every Service has what it was given.
pub(super) fn obey(context: &Context<'_>, plans: Vec<Arc<ServicePlan>>) -> Given {
    let mut giving = Giving::new(context, plans);
    giving.grants.iter_mut().for_each(|one| one.stay(context));
    giving.keep();
    let balancers = giving.grants.iter_mut().filter(|one| one.is_balancer());
    balancers.for_each(wait);
    giving.give();
    giving.end(Vec::new())
}

/// The state of one pass over all Services.
struct Giving<'c, 'a> {
    context: &'c Context<'a>,
    grants: Vec<Grant>,
    /// Their places, the oldest first.
    order: Vec<usize>,
    taken: TakenPorts<'c, 'a>,
    /// The ports at which kube-proxy listens on every node, with the Service of each: found when the first Service waits.
    node_ports: OnceCell<BTreeMap<NodePort, &'a Key>>,
    shared: SharedPorts,
    /// The Services that ask for each shared port by an annotation: the oldest one.
    askers: [Option<usize>; 2],
    /// The shared ports that are given already.
    has: [bool; 2],
    /// The shared ports that Services have, with the owner.
    lost: Vec<(bool, String)>,
}

impl<'c, 'a> Giving<'c, 'a> {
    fn new(context: &'c Context<'a>, plans: Vec<Arc<ServicePlan>>) -> Self {
        let mut grants: Vec<Grant> = plans.into_iter().map(Grant::of).collect();
        let mut order: Vec<usize> = (0..grants.len()).collect();
        order.sort_by_key(|index| grants.get(*index).map(|grant| grant.plan.service.age()));
        grant_routes(context.settings, &mut grants, &order);
        Self {
            context,
            order,
            taken: TakenPorts::new(&context.nodes),
            node_ports: OnceCell::new(),
            shared: SharedPorts::of(context.settings, &grants),
            askers: [false, true].map(|secure| oldest_that_asks(&grants, secure)),
            has: [false; 2],
            lost: Vec::new(),
            grants,
        }
    }

    /// Every Service keeps what it has: the one that has it longer, where two have the same by accident.
    fn keep(&mut self) {
        let shared = [false, true].into_iter().filter_map(|secure| {
            let since = shared_since(self.context.settings, &self.grants, secure)?;
            Some((since, Keeper::Shared(secure)))
        });
        let services = self.order.iter().filter_map(|index| {
            let allocated = self.grants.get(*index)?.service().allocated.as_ref()?;
            Some((allocated.since, Keeper::Service(*index)))
        });
        // A stable order: those that have it for the same time stay ordered by age.
        let mut by_time: Vec<(i64, Keeper)> = shared.chain(services).collect();
        by_time.sort_by_key(|(since, _)| *since);
        for (_, keeper) in by_time {
            match keeper {
                Keeper::Shared(secure) => self.give_shared(secure),
                Keeper::Service(index) => self.keep_one(index),
            }
        }
    }

    fn keep_one(&mut self, index: usize) {
        let Some(grant) = self.grants.get_mut(index) else {
            return;
        };
        let plan = Arc::clone(&grant.plan);
        let Some(Allocated {
            allocation: has, ..
        }) = &plan.service.allocated
        else {
            return;
        };
        let owner = plan.service.key.to_string();
        if grant.site.is_none() && grant.is_balancer() {
            // It has no place now, and gets it back when its nodes return.
            if is_without_place(&plan)
                && let Some(allocation) = kept_without_place(&plan)
            {
                self.taken.hold(&allocation.ports, &allocation.at, &owner);
                grant.status.allotment = Some(Allotment::Given(allocation));
                grant.is_kept = true;
            }
            return;
        }
        if let Some(asked) = &plan.asked {
            // Pools may list addresses of nodes. So what a pool gave is given at no node, and what a Service has at nodes, until a
            // pool gives it an address, is given by no pool.
            match &asked.kept {
                Some(kept) => {
                    self.taken
                        .hold(&kept.ports, &At::of(&kept.addresses), &owner);
                }
                None if has.pool.is_none() && asked.has_node_addresses => {
                    self.taken.hold(&has.ports, &has.at, &owner);
                }
                None => {}
            }
            return;
        }
        self.keep_at_nodes(index);
    }

    /// A Service at addresses of nodes keeps its ports there, whatever it asks for beside them.
    fn keep_at_nodes(&mut self, index: usize) {
        let Some(grant) = self.grants.get_mut(index) else {
            return;
        };
        let plan = Arc::clone(&grant.plan);
        // One that does not fit asks for something else itself.
        let has = plan.service.allocated.as_ref().map(|one| &one.allocation);
        let Some(has) = has.filter(|has| fits(has, grant)) else {
            return;
        };
        let name = plan.service.key.to_string();
        self.taken.hold(&plan.unread, &has.at, &name);
        grant.unread.clone_from(&plan.unread);
        let set = NodeSet::of(&self.context.nodes, grant.site.as_ref());
        let reach = grant.site.as_ref().unwrap_or(&Site::EVERYWHERE).reach();
        let mut lost = Vec::new();
        for (port, state) in plan.ports.iter().zip(&mut grant.ports) {
            if !has.ports.contains(&port.port) {
                continue;
            }
            *state = PortGrant::Given;
            let owner = owner_here(self.context, &self.taken, port.port, reach, &set);
            if let Some(owner) = owner.filter(|owner| *owner != name) {
                *state = PortGrant::Taken;
                lost.push((port.port, owner));
            }
            self.taken.take(port.port, reach, &set, &name);
        }
        grant.is_kept =
            !grant.unread.is_empty() || grant.ports.contains(&PortGrant::Given) || !lost.is_empty();
        for (port, owner) in lost {
            let message = format!("port {port} is taken by {owner}, which was given it earlier");
            grant.warn_by_node(Reason::AllocationFailed, message);
        }
    }

    /// Gives addresses of pools. A Service that gets none may get, or keep, addresses of nodes.
    fn give_of_pools(&mut self, index: &mut PoolIndex) -> Vec<PoolRow> {
        let Pooled { answers, rows } =
            pooled::give(self.context, index, &mut self.grants, &self.taken);
        for (index, answer) in answers.into_iter().enumerate() {
            let (Some(grant), Some(answer)) = (self.grants.get_mut(index), answer) else {
                continue;
            };
            match answer {
                Ok(given) => {
                    grant.place(self.context, &given);
                    let owner = grant.service().key.to_string();
                    for (_, port, _) in grant.ports() {
                        self.taken
                            .take(port.port, grant.reach(), &NodeSet::All, &owner);
                    }
                    grant.give_asked();
                    grant.is_kept = true;
                    grant.tell_portless(&given);
                }
                Err(refusal) => {
                    let why = match pooled::falls_back(self.context, grant, &refusal) {
                        true => grant.place_at_nodes(self.context).err(),
                        false => Some(refusal.to_string()),
                    };
                    match why {
                        Some(why) => grant.refuse(why),
                        None => {
                            grant.warn_refused(&refusal);
                            let asked = grant.plan.asked.as_ref();
                            // What it has at nodes is not for those that wait.
                            if asked.is_some_and(|asked| asked.has_node_addresses) {
                                self.keep_at_nodes(index);
                            }
                            self.give_one(index);
                        }
                    }
                }
            }
        }
        rows
    }

    /// Gives Services what they do not have yet.
    fn give(&mut self) {
        for index in self.order.clone() {
            for secure in [false, true] {
                if self.askers[usize::from(secure)] == Some(index) {
                    self.give_shared(secure);
                }
            }
            self.give_one(index);
        }
    }

    fn give_one(&mut self, index: usize) {
        let Some(grant) = self.grants.get_mut(index) else {
            return;
        };
        if !grant.ports.contains(&PortGrant::Asked) {
            return;
        }
        let set = NodeSet::of(&self.context.nodes, grant.site.as_ref());
        let owner = grant.service().key.to_string();
        let asked = grant
            .ports()
            .filter(|(_, _, state)| *state == PortGrant::Asked);
        let asked: Vec<NodePort> = asked.map(|(_, port, _)| port.port).collect();
        let of_another = |port: &NodePort| {
            let settings = self.context.settings;
            let node_ports = self.node_ports.get_or_init(|| node_ports(self.context));
            let other = settings
                .reserved(*port)
                .or_else(|| Some(format!("a nodePort of {}", node_ports.get(port)?)))
                .or_else(|| self.taken.owner(*port, grant.reach(), &set));
            Some((*port, other.filter(|other| *other != owner)?))
        };
        let taken: Vec<(NodePort, String)> = asked.iter().filter_map(of_another).collect();
        if let Some((port, other)) = taken.first()
            && !grant.is_kept
        {
            let why = format!("port {port} is taken by {other}");
            grant.refuse(why);
            return;
        }
        for (port, other) in &taken {
            grant.refuse_port(*port, other);
        }
        let free = asked
            .iter()
            .filter(|port| !taken.iter().any(|(taken, _)| taken == *port));
        for port in free {
            self.taken.take(*port, grant.reach(), &set, &owner);
        }
        grant.give_asked();
    }

    /// Gives a shared port to the routes that annotations ask for.
    fn give_shared(&mut self, secure: bool) {
        let port = NodePort::tcp(shared_number(self.context.settings, secure));
        if self.has[usize::from(secure)] || self.lost.iter().any(|(lost, _)| *lost == secure) {
            return;
        }
        if let Some(owner) = self.taken.owner(port, Reach::Everywhere, &NodeSet::All) {
            self.shared.remove(secure);
            self.lost.push((secure, owner));
            return;
        }
        let owner = shared_name(&self.grants, secure);
        self.taken
            .take(port, Reach::Everywhere, &NodeSet::All, &owner);
        self.has[usize::from(secure)] = true;
    }

    /// Withdraws the routes of the shared ports that Services have, and writes down what each Service was given.
    fn end(mut self, pools: Vec<PoolRow>) -> Given {
        for secure in [false, true] {
            let port = NodePort::tcp(shared_number(self.context.settings, secure));
            let is_asked = self.askers[usize::from(secure)].is_some();
            if !is_asked
                && self.shared.has(secure)
                && let Some(owner) = self.taken.owner_everywhere(port)
            {
                self.shared.remove(secure);
                self.lost.push((secure, owner));
            }
        }
        for (secure, owner) in &self.lost {
            shared_ports::withdraw(self.context, &mut self.grants, *secure, owner);
        }
        for grant in &mut self.grants {
            grant.tell_unrouted();
            write_down(self.context.settings, grant);
        }
        Given {
            grants: self.grants,
            shared: self.shared,
            pools,
        }
    }
}

/// What keeps a port.
enum Keeper {
    /// The routes of a shared port: the HTTPS port, or the HTTP port.
    Shared(bool),
    Service(usize),
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

/// The owner of a port at the addresses of this node.
fn owner_here<'a>(
    context: &Context<'a>,
    taken: &TakenPorts<'_, 'a>,
    port: NodePort,
    reach: Reach<'_>,
    set: &NodeSet<'a>,
) -> Option<String> {
    match context.nodes.here {
        ThisNode::LoadBalancer(node) => taken.owner_here(port, reach, set, node),
        ThisNode::Standalone => taken.owner(port, reach, set),
        ThisNode::NotSelected => None,
    }
}

/// On a node: the ports that a LoadBalancer was not given yet are not served.
fn wait(grant: &mut Grant) {
    if !grant.has_ports() {
        return;
    }
    grant.refuse_ports(|_, state| state == PortGrant::Asked);
    if !grant.is_kept {
        let why = "the publisher has not given it its ports yet";
        grant.status = Status::pending(grant.service(), why);
    }
}

/// Writes down what a Service was given.
fn write_down(settings: &Settings, grant: &mut Grant) {
    if grant.status.allotment.is_some() {
        return;
    }
    let given = grant.ports().map(|(_, port, _)| port.port);
    let ports: BTreeSet<NodePort> = given.chain(grant.unread.iter().copied()).collect();
    let asked = grant.routes().filter(|route| route.by_annotation);
    let mut routes: BTreeSet<u16> = asked
        .map(|route| shared_number(settings, route.secure))
        .collect();
    let kept = [false, true].into_iter().zip(grant.keeps_routes);
    let kept = kept.filter(|(_, keeps)| *keeps);
    routes.extend(kept.map(|(secure, _)| shared_number(settings, secure)));
    let site = grant.site.as_ref();
    let pool = site.and_then(|site| site.pool.clone());
    // What a pool gave stays with the Service, also while others have every port that it asks for.
    if ports.is_empty() && routes.is_empty() && pool.is_none() {
        return;
    }
    let service = &grant.plan.service;
    if let Some(before) = service.allocated.as_ref()
        && service.kind != ServiceKind::LoadBalancer
    {
        // Two Ballasts may lead to one Service that is no LoadBalancer: what another one has given stays.
        let own = [false, true].map(|secure| shared_number(settings, secure));
        let others = before.allocation.routes.iter();
        routes.extend(others.filter(|number| !own.contains(number)));
    }
    grant.status.allotment = Some(Allotment::Given(Allocation {
        at: site.map_or(At::Node, Site::at),
        pool,
        ports,
        routes,
    }));
}

/// Grants routes, to the oldest Service first: drops those that an older Service has, or an earlier port of the same Service.
fn grant_routes(settings: &Settings, grants: &mut [Grant], order: &[usize]) {
    let mut taken = BTreeMap::new();
    let mut hosts = Hosts::default();
    for index in order {
        let Some(grant) = grants.get_mut(*index).filter(|grant| grant.has_routes()) else {
            continue;
        };
        if settings.flags.host_ownership == HostOwnership::Namespace {
            hosts.take(grant);
        }
        take_routes(&mut taken, grant);
    }
}

/// The Service that has each place of a route, with what [`SharedRoute::places`](super::service_plan::SharedRoute::places) says of it.
type Places = BTreeMap<String, (Arc<ServicePlan>, bool)>;

fn take_routes(all: &mut Places, grant: &mut Grant) {
    let plan = Arc::clone(&grant.plan);
    let mut taken = BTreeSet::new();
    grant.retain_routes(|route| {
        let places = route.places();
        let lost = places.iter().rev().find_map(|(place, unopened)| {
            let (other, theirs) = all.get(place)?;
            let is_unlike = unopened.is_none_or(|ours| ours != *theirs);
            is_unlike.then_some((place, other))
        });
        if let Some((place, other)) = lost {
            if !Arc::ptr_eq(other, &plan) {
                taken.insert(format!(
                    "{place} leads to {} already; this route of the Service is not served",
                    other.service.key
                ));
            }
            return false;
        }
        for (place, unopened) in places {
            let place = all.entry(place);
            place.or_insert_with(|| (Arc::clone(&plan), unopened.unwrap_or_default()));
        }
        true
    });
    for message in taken {
        grant.warn(Reason::AnnotationConflict, message);
    }
}
