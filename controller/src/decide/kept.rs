//! Ports that one node keeps for itself, because a flag there says so (`--admin`). Every node and the publisher give ports to
//! Services as if there were none. That node closes them, and names them in its Lease; the publisher does not publish a Service
//! which has one of them at that node.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::nodes::ThisNode;
use super::notice::{About, Notice, Reason};
use super::service_plan::ServicePlan;
use super::site::Site;
use super::status::Verdict;
use crate::allocation::NodePort;
use crate::observe::Node;
use crate::settings::{Role, Settings};

/// Closes the port of this process on its node. The claims of Services hold.
pub(super) fn close(settings: &Settings, plans: &mut [ServicePlan<'_>]) {
    let own = settings.admin_port.filter(|_| settings.role == Role::Node);
    let Some(own) = own else { return };
    for plan in plans {
        for port in &mut plan.ports {
            port.closed |= port.claim.port == NodePort::tcp(own);
        }
    }
}

/// Takes the nodes that keep a port of a Service out of those that may be published, with a Warning that names them.
pub(super) fn refuse<'a>(context: &Context<'a>, plan: &mut ServicePlan<'a>) {
    let kept = kept(context, plan);
    let Some(((port, what), nodes)) = kept.first_key_value() else {
        return;
    };
    let service = plan.service;
    let key = &service.key;
    let texts = kept.iter().map(|((port, what), nodes)| {
        format!(
            "Failed to allocate IP for \"{key}\" on {}: port {port}/TCP is taken by the node's own {what} port",
            names(nodes)
        )
    });
    let notice = |text| {
        let about = About::Service(key.clone());
        Notice::warning(about, Reason::AllocationFailed, text)
    };
    plan.notices.extend(texts.map(notice));
    if let Some(placement) = &mut plan.placement {
        let is_free = |node: &&Node| !kept.values().any(|nodes| nodes.contains(&*node.name));
        placement.candidates.retain(is_free);
        if placement.candidates.is_empty() {
            plan.status.verdict = Verdict::Pending;
            plan.status.why = format!(
                "port {port}/TCP is taken by the node's own {what} port on {}",
                names(nodes)
            );
        }
    }
}

/// The nodes that keep ports of a Service, by the port and its use there.
fn kept<'a>(
    context: &Context<'a>,
    plan: &ServicePlan<'a>,
) -> BTreeMap<(u16, &'a str), BTreeSet<&'a str>> {
    let mut kept: BTreeMap<(u16, &str), BTreeSet<&str>> = BTreeMap::new();
    let Some(leases) = &context.observed.leases else {
        return kept;
    };
    let everywhere = Site::EVERYWHERE;
    let (nodes, site) = match &plan.placement {
        Some(placement) => (placement.candidates.clone(), &placement.site),
        None => (context.nodes.selected(None), &everywhere),
    };
    let claims = plan.claims().filter(|claim| !claim.port.udp);
    let ports: BTreeSet<u16> = claims.map(|claim| claim.port.number).collect();
    for node in nodes {
        let Some(lease) = leases.get(&node.name) else {
            continue;
        };
        for port in &ports {
            if let Some(what) = lease.ports.get(*port)
                && !site.binds(ThisNode::LoadBalancer(node), *port).is_empty()
            {
                kept.entry((*port, what)).or_default().insert(&node.name);
            }
        }
    }
    kept
}

/// The first nodes by name, and how many more there are.
pub(super) fn names(nodes: &BTreeSet<&str>) -> String {
    let first: Vec<&str> = nodes.iter().copied().take(MOST_NAMES).collect();
    let first = first.join(", ");
    match nodes.len().saturating_sub(MOST_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

const MOST_NAMES: usize = 5;
