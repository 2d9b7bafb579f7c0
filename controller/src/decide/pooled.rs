//! Gives addresses of pools to the Services that ask for them: prepares the index of what all have, lets [`crate::pools`] give, and
//! places the Services at what they are given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::asks::{self, Asked};
use super::context::Context;
use super::grant::Grant;
use super::has::{is_without_place, kept_without_place};
use super::nodes::{self, ThisNode};
use super::notice::Reason;
use super::placement::at_nodes;
use super::service_plan::ServicePlan;
use super::site::{ListenAt, Site};
use super::status::{PoolRow, Status, Verdict};
use super::taken_ports::TakenPorts;
use crate::allocation::{At, FromPool, NodePort};
use crate::pools::{self, Ask, Displaced, Given, Refusal, Reservation, Taken, give_all};
use crate::settings::{NodeAddresses, Role};

/// Which Service has which address of a pool, as statuses say it. It is kept from decision to decision, and follows what changes.
#[derive(Default)]
pub(super) struct PoolIndex {
    /// The plans that it was made of, in the order of their Services' keys: of those that may have something of a pool.
    plans: Vec<Arc<ServicePlan>>,
    /// `None`: it is made anew.
    taken: Option<Taken>,
}

/// What was given of pools.
pub(super) struct Pooled {
    /// To those that ask, in the order of the Services.
    pub(super) answers: Vec<Option<Result<Arc<Given>, Refusal>>>,
    /// How much of each pool is used.
    pub(super) rows: Vec<PoolRow>,
}

/// Gives to all Services that ask for addresses of pools. `ports` are those of nodes that Services keep.
pub(super) fn give(
    context: &Context<'_>,
    index: &mut PoolIndex,
    grants: &mut [Grant],
    ports: &TakenPorts<'_, '_>,
) -> Pooled {
    let plans: Vec<Arc<ServicePlan>> = grants.iter().map(|one| Arc::clone(&one.plan)).collect();
    if context.pools.is_empty() && plans.iter().all(|plan| plan.asked.is_none()) {
        *index = PoolIndex::default();
        return Pooled {
            answers: Vec::new(),
            rows: Vec::new(),
        };
    }
    let asked = plans.iter().map(|plan| plan.asked.as_ref());
    let asked = asked.map(|asked| asked.filter(|asked| !asked.ask.ports.is_empty()));
    let asked: Vec<Option<&Asked>> = asked.collect();
    let holders: Vec<Arc<ServicePlan>> = plans
        .iter()
        .filter(|plan| may_hold(plan))
        .cloned()
        .collect();
    let (mut taken, displaced) = index.follow(&holders);
    taken.begin();
    block(context, grants, &mut taken);
    ports_of_nodes(context, ports, &asked, &mut taken);
    let is_alone = !taken.has_ports_of_nodes();
    let settled = asked.iter().map(|asked| {
        let asked: &Asked = (*asked)?;
        let has = taken.held(&asked.ask.service).is_some();
        asked.settled.as_ref().filter(|_| is_alone && has)
    });
    let settled: Vec<Option<&Arc<Given>>> = settled.collect();
    let both = asked.iter().zip(&settled);
    let unsettled = both.filter(|(_, settled)| settled.is_none());
    let unsettled = unsettled.filter_map(|(asked, _)| Some(&(*asked)?.ask));
    let unsettled: Vec<&Ask> = unsettled.collect();
    own_ports(context, &unsettled, &mut taken);
    let mut answers = give_all(&context.pools, &mut taken, unsettled, i64::MAX);
    let answer = |(asked, settled): (&Option<&Asked>, &Option<&Arc<Given>>)| match settled {
        Some(given) => Some(Ok(Arc::clone(given))),
        None => Some(answers.remove(&asked.as_ref()?.ask.service)?.map(Arc::new)),
    };
    let answers = asked.iter().zip(&settled).map(answer).collect();
    for one in &displaced {
        tell_displaced(grants, one);
    }
    let rows = rows(context, &taken);
    taken.undo();
    // Elsewhere plans are taken apart for the table.
    if context.settings.role == Role::Publisher {
        *index = PoolIndex {
            plans: holders,
            taken: displaced.is_empty().then_some(taken),
        };
    }
    Pooled { answers, rows }
}

impl PoolIndex {
    /// What Services have by these plans, and those that lose it, because another Service has had a port of it for longer.
    fn follow(&mut self, plans: &[Arc<ServicePlan>]) -> (Taken, Vec<Displaced>) {
        let before = std::mem::take(&mut self.plans);
        if let Some(taken) = self.taken.take()
            && let Some(taken) = followed(taken, &before, plans)
        {
            return (taken, Vec::new());
        }
        let held: Vec<(Ask, pools::Held)> = plans.iter().filter_map(|plan| held(plan)).collect();
        let held = held.iter().map(|(ask, held)| (ask, held.clone()));
        Taken::new(BTreeMap::new(), held)
    }
}

/// The index of `before`, brought up to `now`. `None`: two Services have the same.
fn followed(
    mut taken: Taken,
    before: &[Arc<ServicePlan>],
    now: &[Arc<ServicePlan>],
) -> Option<Taken> {
    let mut before = before.iter().peekable();
    let mut changed = Vec::new();
    for plan in now {
        if before.next_if(|old| Arc::ptr_eq(old, plan)).is_some() {
            continue;
        }
        let key = &plan.service.key;
        while let Some(old) = before.next_if(|old| old.service.key <= *key) {
            taken.free(&old.service.key);
        }
        changed.push(plan);
    }
    before.for_each(|old| taken.free(&old.service.key));
    for plan in changed {
        if let Some((ask, held)) = held(plan) {
            if taken.displaces(&ask.service, &held).is_some() {
                return None;
            }
            taken.take(ask.service, held);
        }
    }
    Some(taken)
}

/// Whether a Service may have something of a pool.
fn may_hold(plan: &ServicePlan) -> bool {
    match &plan.asked {
        Some(asked) => asked.held.is_some(),
        None => keeps_unasked(plan) && plan.service.allocated.is_some(),
    }
}

/// Whether a Service keeps what it has of a pool without asking for it: it has no place now, or its pool cannot be read.
fn keeps_unasked(plan: &ServicePlan) -> bool {
    let placement = plan.placement.as_ref();
    is_without_place(plan) || placement.is_some_and(|place| place.site.pool.is_some())
}

/// What a Service has of a pool, by its status.
fn held(plan: &ServicePlan) -> Option<(Ask, pools::Held)> {
    if let Some(asked) = &plan.asked {
        let is_asked = !asked.ask.ports.is_empty();
        return asked
            .held
            .clone()
            .filter(|_| is_asked)
            .map(|held| (asked.ask.clone(), held));
    }
    let service = &plan.service;
    if !keeps_unasked(plan) {
        return None;
    }
    kept_without_place(plan)?.pool?;
    let held = asks::held(service)?;
    let ask = Ask {
        service: service.key.clone(),
        uid: service.uid.clone(),
        created: service.created,
        labels: BTreeMap::new(),
        namespace_labels: BTreeMap::new(),
        families: pools::Families::Any,
        requested: Vec::new(),
        pools: Vec::new(),
        sharing: None,
        strict: None,
        internal: held.terms.internal,
        ports: held.ports.clone(),
    };
    Some((ask, held))
}

/// Ballast's own ports, of those that Services ask for.
fn own_ports(context: &Context<'_>, asks: &[&Ask], taken: &mut Taken) {
    for port in asks.iter().flat_map(|ask| &ask.ports) {
        if let Some(name) = context.settings.own_port(port.number) {
            taken.own(*port, name.to_owned());
        }
    }
}

/// Keeps addresses for those that have them by an AddressReservation, or by another system.
fn block(context: &Context<'_>, grants: &[Grant], taken: &mut Taken) {
    taken.reserve(context.observed.pools.reservations.iter().map(|one| &**one));
    for grant in grants.iter().filter(|grant| grant.is_balancer()) {
        let service = grant.service();
        if !grant.status.reserves.is_empty() {
            // It is being deleted, and the reservation that keeps its addresses is not made yet.
            taken.reserve([&Reservation {
                service: service.key.clone(),
                created: None,
                addresses: grant.status.reserves.clone(),
            }]);
        }
        if grant.status.verdict != Verdict::LeftAlone {
            continue;
        }
        let published = service.ingress.iter().filter_map(|text| text.parse().ok());
        for address in published.filter(|one| context.pools.of(*one).is_some()) {
            taken.of_another_system(service.key.clone(), address);
        }
    }
}

/// A pool may list addresses of nodes, or have listed them when it gave them: Services with node addresses have ports there.
fn ports_of_nodes(
    context: &Context<'_>,
    of_nodes: &TakenPorts<'_, '_>,
    asked: &[Option<&Asked>],
    taken: &mut Taken,
) {
    let nodes = context.nodes.selected(None);
    let addresses = nodes
        .iter()
        .flat_map(|node| node.internal.iter().chain(&node.external));
    let addresses: BTreeSet<IpAddr> = addresses.copied().collect();
    let is_listed =
        |one: &IpAddr| context.pools.of(*one).is_some() || taken.addresses().contains(*one);
    let listed = addresses.into_iter().filter(is_listed);
    let listed: Vec<IpAddr> = listed.collect();
    if listed.is_empty() {
        return;
    }
    let ports = asked.iter().flatten().flat_map(|asked| &asked.ask.ports);
    let ports: BTreeSet<NodePort> = ports.copied().collect();
    for address in listed {
        for port in &ports {
            if let Some(owner) = of_nodes.owner_at(*port, address) {
                taken.at_node(address, *port, owner.to_owned());
            }
        }
    }
}

fn tell_displaced(grants: &mut [Grant], one: &Displaced) {
    let mut grants = grants.iter_mut();
    if let Some(grant) = grants.find(|grant| grant.plan.service.key == one.service) {
        let Displaced {
            address,
            port,
            owner,
            ..
        } = one;
        let message = format!(
            "{address} is given up: port {port} of it is also {owner}'s, which was given it earlier; the Service is given another address"
        );
        grant.warn(Reason::ClearAssignment, message);
    }
}

/// Whether a Service without an address of a pool gets node addresses.
pub(super) fn falls_back(context: &Context<'_>, grant: &Grant, refusal: &Refusal) -> bool {
    let Some(asked) = &grant.plan.asked else {
        return false;
    };
    let may = context.settings.flags.node_addresses == NodeAddresses::Fallback
        && asked.ask.pools.is_empty()
        && asked.ask.requested.is_empty()
        && matches!(refusal, Refusal::Exhausted(_) | Refusal::NoPool);
    may || asked.has_node_addresses
}

impl Grant {
    /// Lets the Service listen at the addresses of a pool that it was given.
    pub(super) fn place(&mut self, context: &Context<'_>, given: &Given) {
        let pool = pool_of(context, &self.plan, given);
        let asked = self.site.as_ref().and_then(|site| site.chosen.as_ref());
        let chosen = match (asked, &pool.nodes) {
            (Some(asked), Some(nodes)) => Some(asked.and(nodes)),
            (asked, nodes) => asked.or(nodes.as_ref()).cloned(),
        };
        self.tell_others(given);
        if pool.nodes.is_some() && !matches!(context.nodes.here, ThisNode::Standalone) {
            let nodes = context.nodes.selected(chosen.as_ref());
            if !nodes.iter().any(|node| nodes::may_be_published(node)) {
                let message = format!(
                    "no load balancer node may hold the addresses of pool {}; label one as its nodeSelector says, or change that",
                    pool.name
                );
                self.warn(Reason::UnAvailableLoadBalancer, message);
            }
        }
        let has = |port: &NodePort| given.ports.contains(port);
        self.unread = self.plan.unread.iter().copied().filter(has).collect();
        self.refuse_ports(|port, _| !has(&port));
        self.site = Some(Site {
            chosen,
            at: ListenAt::Pool(given.addresses.clone()),
            pool: Some(pool),
        });
    }

    /// Says of a Service whose every port is refused that nothing leads to it. Its addresses stay its own.
    pub(super) fn tell_portless(&mut self, given: &Given) {
        let has_some = self.has_ports() || self.has_routes() || !self.unread.is_empty();
        if let Some(refusal) = given.refused.first().filter(|_| !has_some) {
            self.status = Status {
                port_errors: std::mem::take(&mut self.status.port_errors),
                ..Status::pending(self.service(), refusal.to_string())
            };
        }
    }

    /// Lets a Service that no pool gives addresses listen at those of nodes, or says why it cannot.
    pub(super) fn place_at_nodes(&mut self, context: &Context<'_>) -> Result<(), String> {
        let (Some(asked), Some(placement)) = (&self.plan.asked, &self.plan.placement) else {
            return Ok(());
        };
        let chosen = placement.site.chosen.clone();
        let nodes = context.nodes.selected(chosen.as_ref());
        let at = match asked.ask.requested.as_slice() {
            [] => at_nodes(context, asked.ask.internal, &nodes, &placement.families)?,
            requested => ListenAt::Requested(requested.to_vec()),
        };
        self.site = Some(Site {
            chosen,
            at,
            pool: None,
        });
        Ok(())
    }

    /// Tells the owner that pools refuse something.
    pub(super) fn warn_refused(&mut self, refusal: &Refusal) {
        let key = &self.service().key;
        let message = format!("Failed to allocate IP for \"{key}\": {refusal}");
        self.warn(Reason::AllocationFailed, message);
    }

    /// Tells the owner what is not given, and that the addresses are others than those which are published.
    fn tell_others(&mut self, given: &Given) {
        for refusal in &given.refused {
            self.warn_refused(refusal);
        }
        if self.service().allocated.is_some() {
            return;
        }
        let published = self.service().ingress.iter();
        let published = published.filter_map(|text| text.parse().ok());
        let lost: Vec<String> = published
            .filter(|one: &IpAddr| !given.addresses.contains(one))
            .map(|one| one.to_string())
            .collect();
        if !lost.is_empty() {
            let message = format!(
                "{} cannot be kept, since no pool of this Service lists it; the Service is given {}",
                lost.join(", "),
                At::of(&given.addresses)
            );
            self.warn(Reason::ClearAssignment, message);
        }
    }
}

/// The pool that gave addresses to a Service, as its allocation says it.
fn pool_of(context: &Context<'_>, plan: &ServicePlan, given: &Given) -> FromPool {
    let allocated = plan.service.allocated.as_ref();
    let before = allocated.and_then(|allocated| allocated.allocation.pool.as_ref());
    let before = before.filter(|before| before.name == given.pool);
    let first = given.addresses.first();
    let of = first.and_then(|first| context.pools.of(*first));
    let of = of.filter(|entry| entry.pool.name == given.pool);
    let entry = of.or_else(|| context.pools.named(&given.pool).next());
    FromPool {
        name: given.pool.clone(),
        nodes: match entry {
            // A selector that cannot be read selects as it did before.
            Some(entry) if !entry.pool.node_selectors.broken => {
                entry.pool.node_selectors.selectors.first().cloned()
            }
            _ => before.and_then(|before| before.nodes.clone()),
        },
        internal: plan.asked.as_ref().is_some_and(|asked| asked.ask.internal),
        // Nodes go on as before where the pool is gone.
        announce: match (entry, before) {
            (Some(entry), _) => entry.pool.announce,
            (None, before) => before.map(|before| before.announce).unwrap_or_default(),
        },
    }
}

/// How much of each pool is used.
fn rows(context: &Context<'_>, taken: &Taken) -> Vec<PoolRow> {
    let statuses = context.pools.statuses(taken).into_iter();
    let rows = statuses.map(|(entry, status)| PoolRow {
        name: entry.pool.name.clone(),
        source: entry.pool.source,
        created: entry.pool.created,
        status,
    });
    rows.collect()
}
