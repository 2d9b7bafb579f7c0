//! Ports that one node keeps for itself, because a flag there says so (`--admin`). Every node and the publisher give ports to
//! Services as if there were none. That node closes them, and names them in its Lease; the publisher does not publish a Service
//! which has one of them at that node.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Context;
use super::grant::Grant;
use super::nodes::ThisNode;
use super::notice::Reason;
use super::site::Site;
use super::status::Verdict;
use crate::observe::Node;

/// Takes the nodes that keep a port of a Service out of those that may be published, with a Warning that names them.
pub(super) fn refuse(context: &Context<'_>, grant: &mut Grant, candidates: &mut Vec<&Node>) {
    let taken = taken(context, grant, candidates);
    let Some(((port, what), nodes)) = taken.first_key_value() else {
        return;
    };
    let key = grant.service().key.clone();
    for ((port, what), nodes) in &taken {
        let nodes = names(nodes);
        let message = format!(
            "Failed to allocate IP for \"{key}\" on {nodes}: port {port}/TCP is taken by the node's own {what} port"
        );
        grant.warn(Reason::AllocationFailed, message);
    }
    candidates.retain(|node| !taken.values().any(|nodes| nodes.contains(&*node.name)));
    if candidates.is_empty() && grant.site.is_some() {
        grant.status.verdict = Verdict::Pending;
        grant.status.why = format!(
            "port {port}/TCP is taken by the node's own {what} port on {}",
            names(nodes)
        );
    }
}

/// The nodes that keep ports of a Service, by the port and its use there.
fn taken<'a>(
    context: &Context<'a>,
    grant: &Grant,
    nodes: &[&'a Node],
) -> BTreeMap<(u16, &'a str), BTreeSet<&'a str>> {
    let mut taken: BTreeMap<(u16, &str), BTreeSet<&str>> = BTreeMap::new();
    let Some(leases) = &context.observed.leases else {
        return taken;
    };
    let site = grant.site.as_ref().unwrap_or(&Site::EVERYWHERE);
    let ports = grant.ports().map(|(_, port, _)| port.port);
    let ports: BTreeSet<u16> = ports
        .filter(|port| !port.udp)
        .map(|port| port.number)
        .collect();
    for node in nodes {
        let Some(lease) = leases.get(&node.name) else {
            continue;
        };
        for port in &ports {
            if let Some(what) = lease.ports.get(*port)
                && !site.binds(ThisNode::LoadBalancer(node), *port).is_empty()
            {
                taken.entry((*port, what)).or_default().insert(&node.name);
            }
        }
    }
    taken
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
