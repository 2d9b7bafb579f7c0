//! What the status of a Service lists, once every port has its owner: the addresses or hostnames of the nodes that serve the
//! Service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::annotations::{ADDRESS, ID, OPENSTACK};
use super::context::Context;
use super::kept;
use super::nodes::{self, ThisNode};
use super::placement::{NO_NODE, Placement, published};
use super::service_plan::ServicePlan;
use super::site::ListenAt;
use super::status::{Ingress, Status, Verdict};
use crate::observe::{Family, Lease, Node, Service};
use crate::settings::Compat;

/// Completes the status of a Service with the addresses at which it is published.
pub(super) fn publish(context: &Context<'_>, plan: &mut ServicePlan<'_>) {
    let is_host = matches!(context.nodes.here, ThisNode::Standalone);
    let service = plan.service;
    let status = &mut plan.status;
    let mut addresses = Vec::new();
    match (&plan.placement, status.verdict) {
        (Some(placement), Verdict::Served) => {
            let (ingress, found) = placement.published(context, service);
            let silent = placement.unheard(context, service);
            if ingress.is_empty() && !is_host && !silent.is_empty() {
                // An address that leads nowhere for a while costs less than statuses that are blanked because nodes do not reach
                // the API server.
                let (ingress, found) = placement.entries(context, &silent);
                status.why = format!(
                    "the nodes that serve it are not heard of: {}; its addresses stay",
                    kept::names(&silent.iter().map(|node| node.name.as_str()).collect())
                );
                status.is_unheard = true;
                status.ingress = ingress;
                addresses = found;
            } else {
                if ingress.is_empty() && !is_host {
                    placement.why_not().clone_into(&mut status.why);
                }
                status.ingress = ingress;
                addresses = found;
            }
        }
        (_, Verdict::Pending) if !is_host => {}
        _ => return,
    }
    if context.settings.reads(Compat::Openstack) {
        write_outputs(service, &addresses, is_host, status);
    }
}

/// Adds the annotations that users of OpenStack read, and removes an address that is published no more.
fn write_outputs(service: &Service, addresses: &[IpAddr], is_host: bool, status: &mut Status) {
    let mut keys = service.annotations.keys();
    if !keys.any(|key| key.starts_with(OPENSTACK)) {
        return;
    }
    let there = service.annotations.get(ADDRESS);
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let addresses = addresses.join(",");
    if addresses.is_empty() {
        // The addresses of a host without Kubernetes are not known.
        if there.is_some() && !is_host {
            status.stale_annotations.insert(ADDRESS.to_owned());
        }
    } else if there != Some(&addresses) {
        status.annotations.insert(ADDRESS.to_owned(), addresses);
    }
    let is_new = !service.uid.is_empty() && !service.annotations.contains_key(ID);
    if is_new && status.verdict == Verdict::Served {
        let id = service.uid.clone();
        status.annotations.insert(ID.to_owned(), id);
    }
}

impl Placement<'_> {
    /// What the status lists, and the addresses, which are also known if the status lists hostnames.
    pub(super) fn published(
        &self,
        context: &Context<'_>,
        service: &Service,
    ) -> (Vec<Ingress>, Vec<IpAddr>) {
        let live = self.candidates.iter().copied();
        let live = live.filter(|node| self.is_live(context, service, node));
        self.entries(context, &live.collect::<Vec<_>>())
    }

    /// What a status lists that is published at these nodes.
    fn entries(&self, context: &Context<'_>, live: &[&Node]) -> (Vec<Ingress>, Vec<IpAddr>) {
        let addresses = self.addresses(live);
        let is_host = matches!(context.nodes.here, ThisNode::Standalone);
        let ingress = match &self.hostnames {
            // Without a live node, a hostname would lead nowhere either.
            Some(_) if addresses.is_empty() && !is_host => Vec::new(),
            Some(names) => names.iter().cloned().map(Ingress::Hostname).collect(),
            None => addresses.iter().copied().map(Ingress::Ip).collect(),
        };
        (ingress, addresses)
    }

    /// The nodes whose Leases have lapsed, at which a Service is published, and which did not say that it is closed.
    fn unheard(&self, context: &Context<'_>, service: &Service) -> Vec<&Node> {
        let silent = &context.observed.silent;
        let nodes = self.candidates.iter().copied();
        let unheard = nodes.filter(|node| {
            let lease = silent.get(&node.name);
            let is_closed = |lease: &Arc<Lease>| {
                let exception = lease.exceptions.services.get(&service.key.to_string());
                exception.is_some_and(|exception| exception.closed)
            };
            lease.is_some_and(|lease| !is_closed(lease)) && self.is_published(service, node)
        });
        unheard.collect()
    }

    /// Whether a Service is published at a node.
    fn is_published(&self, service: &Service, node: &Node) -> bool {
        let names = self.hostnames.as_deref().unwrap_or_default();
        let mut published = service.ingress.iter();
        published.any(|text| match address_in(text) {
            Some(address) if !names.contains(text) => nodes::holds(node, address),
            _ => names.contains(text),
        })
    }

    /// Whether the address of a node is published for a Service: the node's Lease is live, not all ports of the Service are
    /// closed there, and the node serves what the Service was given. A published address stays while only the last is missing.
    fn is_live(&self, context: &Context<'_>, service: &Service, node: &Node) -> bool {
        // Other addresses than those that are published must be served first.
        let is_same = service
            .allocated
            .as_ref()
            .is_none_or(|allocated| allocated.allocation.at == self.site.at());
        let is_published = || is_same && self.is_published(service, node);
        let Some(leases) = &context.observed.leases else {
            return !self.no_ready_node || is_published();
        };
        let Some(lease) = leases.get(&node.name) else {
            return false;
        };
        let exception = lease.exceptions.services.get(&service.key.to_string());
        if exception.is_some_and(|exception| exception.closed) {
            return false;
        }
        let is_pending = exception.is_some_and(|exception| exception.pending);
        let is_hidden = lease.exceptions.hides(&service.key.namespace);
        let given_at = service.publication.allocated_at;
        let knows =
            service.allocated.is_some() && lease.served.of(&service.key.namespace) >= given_at;
        (!self.no_ready_node && knows && !is_pending && !is_hidden) || is_published()
    }

    /// Why nothing is published.
    pub(super) fn why_not(&self) -> &'static str {
        match (self.candidates.is_empty(), self.no_ready_node) {
            (true, _) => NO_NODE,
            (false, true) => "no load balancer node has a ready endpoint of it",
            (false, false) => "no load balancer node serves it yet",
        }
    }

    /// The addresses of these nodes at which the Service is reached.
    fn addresses(&self, live: &[&Node]) -> Vec<IpAddr> {
        match &self.site.at {
            ListenAt::Wildcard => published(live, &self.families, nodes::public),
            ListenAt::Internal(_) => published(live, &self.families, |node, family| {
                nodes::first(&node.internal, family)
            }),
            ListenAt::Requested(requested) => {
                let is_held =
                    |address: &&IpAddr| live.iter().any(|node| nodes::holds(node, **address));
                let mut held: Vec<IpAddr> = requested.iter().filter(is_held).copied().collect();
                let rank = |address: &IpAddr| {
                    let mut families = self.families.iter();
                    families.position(|family| *family == Family::of(*address))
                };
                held.sort_by_key(rank);
                held
            }
        }
    }
}

/// Parses a published address: an address, or a name such as `10.0.0.1.nip.io` or `fd00--1.nip.io`.
fn address_in(text: &str) -> Option<IpAddr> {
    let first_four = || text.splitn(5, '.').take(4).collect::<Vec<_>>().join(".");
    let dashed = || {
        text.split_once('.')
            .map(|(label, _)| label.replace('-', ":"))
    };
    let address = text.parse().ok();
    let address = address.or_else(|| first_four().parse::<Ipv4Addr>().ok().map(IpAddr::V4));
    address.or_else(|| dashed()?.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}
