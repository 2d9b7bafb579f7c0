//! What the status of a Service lists, once every port has its owner: the addresses or hostnames of the nodes that serve the
//! Service.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ballast_core::table::Name;

use super::annotations::{ADDRESS, ID, OPENSTACK};
use super::context::Context;
use super::grant::{Grant, PortGrant};
use super::nodes::{self, ThisNode};
use super::own_ports;
use super::parts::qualified;
use super::placement::{NO_NODE, Placement, published, serving};
use super::site::{ListenAt, Site};
use super::status::{Ingress, PortError, Status, Verdict};
use crate::allocation::NodePort;
use crate::lease::Exception;
use crate::observe::{Family, Lease, Node, Service};
use crate::settings::{Compat, Role};

/// Completes the status of a Service with the addresses at which it is published.
pub(super) fn publish(context: &Context<'_>, grant: &mut Grant) {
    let is_host = matches!(context.nodes.here, ThisNode::Standalone);
    let plan = Arc::clone(&grant.plan);
    let service = &*plan.service;
    let (mut candidates, no_ready_node) = candidates(context, grant);
    own_ports::refuse(context, grant, &mut candidates);
    if context.settings.role != Role::Node && grant.status.verdict == Verdict::Served {
        tell_ports(grant);
    }
    let status = &mut grant.status;
    let mut addresses = Vec::new();
    match (&plan.placement, &grant.site, status.verdict) {
        (Some(placement), Some(site), Verdict::Served) => {
            let places = Places {
                context,
                service,
                name: service.key.to_string(),
                placement,
                site,
                candidates,
                no_ready_node,
            };
            let published = places.published();
            if published.ingress.is_empty() && !is_host {
                places.why_not().clone_into(&mut status.why);
            }
            if !published.unheard.is_empty() {
                status.why = format!(
                    "the nodes that serve it are not heard of: {}; its addresses stay",
                    own_ports::names(&published.unheard)
                );
                status.is_unheard = true;
            }
            let Published {
                ingress,
                addresses: found,
                ..
            } = published;
            status.ingress = ingress;
            addresses = found;
        }
        (_, _, Verdict::Pending) if !is_host => {}
        _ => return,
    }
    if context.settings.reads(Compat::Openstack) {
        write_outputs(service, &addresses, is_host, status);
    }
}

/// Adds an error for each port that was refused. Where any port has an error, each one that is not served has one: a port without an
/// error counts as served.
fn tell_ports(grant: &mut Grant) {
    // Most Services have all their ports.
    if grant.status.port_errors.is_empty() && !grant.ports.contains(&PortGrant::Refused) {
        return;
    }
    let plan = Arc::clone(&grant.plan);
    let service = &*plan.service;
    let open: BTreeSet<&Name> = grant
        .ports()
        .filter(|(_, port, _)| !port.closed)
        .map(|(_, port, _)| &port.name)
        .collect();
    let mut refused = Vec::new();
    let mut unserved = Vec::new();
    for port in &service.ports {
        let protocol = port.protocol.word();
        let mut told = grant.status.port_errors.iter();
        if told.any(|one| (one.port, one.protocol) == (port.number, protocol)) {
            continue;
        }
        let Some(name) = qualified(&service.key, port) else {
            continue;
        };
        let planned = plan.ports.iter().find(|one| one.name == name);
        let is_kept = plan
            .unread
            .contains(&NodePort::of(port.number, port.protocol));
        match planned {
            _ if open.contains(&name) => {}
            Some(planned) if !planned.closed => refused.push(PortError::taken(port)),
            None if is_kept => {}
            _ => unserved.push(PortError::not_served(port)),
        }
    }
    let errors = &mut grant.status.port_errors;
    errors.append(&mut refused);
    if !errors.is_empty() {
        errors.append(&mut unserved);
    }
}

/// The nodes whose addresses may be published, once they serve the Service; and whether none of them has a ready endpoint, and the
/// Service is served by such nodes only: then published addresses stay, and none is added.
fn candidates<'a>(context: &Context<'a>, grant: &Grant) -> (Vec<&'a Node>, bool) {
    let chosen = grant.site.as_ref().and_then(|site| site.chosen.as_ref());
    let mut nodes = context.nodes.selected(chosen);
    let Some(placement) = &grant.plan.placement else {
        return (nodes, false);
    };
    nodes.retain(|node| nodes::may_be_published(node));
    if !placement.strict {
        return (nodes, false);
    }
    let key = &grant.service().key;
    let serving = serving(context, key, &nodes);
    if serving.is_empty() {
        return (nodes, true);
    }
    nodes.retain(|node| serving.contains(&*node.name));
    (nodes, false)
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

/// Where one Service may be published.
struct Places<'p, 'a> {
    context: &'p Context<'a>,
    service: &'p Service,
    /// Its key, as Leases name it.
    name: String,
    placement: &'p Placement,
    site: &'p Site,
    candidates: Vec<&'a Node>,
    no_ready_node: bool,
}

/// What a status lists.
struct Published<'a> {
    ingress: Vec<Ingress>,
    /// Its addresses, which are also known if the status lists hostnames.
    addresses: Vec<IpAddr>,
    /// The nodes at which it is published, where none of them is heard of.
    unheard: BTreeSet<&'a str>,
}

/// Whether the address of a node belongs into the status of a Service.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The node serves what the Service was given.
    Serves,
    /// That is not known, and the Service is published there: its address stays.
    Stays,
    /// The node's Lease has lapsed, and the Service is published there.
    Unheard,
    /// Its address is not published, or leaves the status.
    Away,
}

impl<'a> Places<'_, 'a> {
    /// What the status lists.
    ///
    /// A node that falls silent leaves it once another node is known to serve the Service: an address that leads nowhere for a while
    /// costs less than statuses that are blanked because nodes do not reach the API server.
    fn published(&self) -> Published<'a> {
        let candidates = self.candidates.iter();
        let states: Vec<(&'a Node, State)> =
            candidates.map(|node| (*node, self.state(node))).collect();
        let live = states
            .iter()
            .filter(|(_, state)| matches!(state, State::Serves | State::Stays));
        let live: Vec<&Node> = live.map(|(node, _)| *node).collect();
        let (ingress, addresses) = self.entries(&live);
        let is_heard = !ingress.is_empty();
        let is_served = is_heard && states.iter().any(|(_, state)| *state == State::Serves);
        let excused = &self.context.observed.excused;
        let stays = |(node, state): &&(&Node, State)| {
            *state == State::Unheard && (!is_served || excused.contains(&node.name))
        };
        let unheard = states.iter().filter(stays);
        let unheard: BTreeSet<&str> = unheard.map(|(node, _)| &*node.name).collect();
        if unheard.is_empty() {
            return Published {
                ingress,
                addresses,
                unheard,
            };
        }
        let listed = states.iter().filter(|(node, state)| {
            matches!(state, State::Serves | State::Stays) || unheard.contains(&*node.name)
        });
        let listed: Vec<&Node> = listed.map(|(node, _)| *node).collect();
        let (ingress, addresses) = self.entries(&listed);
        Published {
            ingress,
            addresses,
            unheard: match is_heard {
                true => BTreeSet::new(),
                false => unheard,
            },
        }
    }

    /// What a status lists that is published at these nodes.
    fn entries(&self, live: &[&Node]) -> (Vec<Ingress>, Vec<IpAddr>) {
        let is_host = matches!(self.context.nodes.here, ThisNode::Standalone);
        let addresses = self.addresses(live, is_host);
        let ingress = match &self.placement.hostnames {
            // Without a live node, a hostname would lead nowhere either.
            Some(_) if addresses.is_empty() && !is_host => Vec::new(),
            Some(names) => names.iter().cloned().map(Ingress::Hostname).collect(),
            None => addresses.iter().copied().map(Ingress::Ip).collect(),
        };
        (ingress, addresses)
    }

    /// Looks the node's Lease up, and what it says of the Service, once.
    fn state(&self, node: &Node) -> State {
        let observed = self.context.observed;
        // `None`: Leases are not observed, and every node counts as live.
        let live = observed.leases.as_ref().map(|all| all.get(&node.name));
        let lease = live.and_then(|live| live.or_else(|| observed.silent.get(&node.name)));
        let exception = lease.and_then(|lease| lease.exceptions.services.get(&self.name));
        if exception.is_some_and(|exception| exception.closed) {
            return State::Away;
        }
        let is_silent = matches!(live, Some(None));
        let serves = |lease: &Arc<Lease>| self.is_served(lease, exception);
        if !is_silent && !self.no_ready_node && lease.is_none_or(serves) {
            return State::Serves;
        }
        // Other addresses than those that are published must be served first.
        let is_same = || {
            let allocated = self.service.allocated.as_ref();
            allocated.is_none_or(|allocated| allocated.allocation.at == self.site.at())
        };
        match is_silent {
            true if lease.is_some() && self.is_published(node) => State::Unheard,
            false if is_same() && self.is_published(node) => State::Stays,
            _ => State::Away,
        }
    }

    /// Whether a Service is published at a node.
    fn is_published(&self, node: &Node) -> bool {
        // What another controller published leads past the node, until the node serves it.
        if self.service.rival.is_some() && !self.service.publication.owned.ingress {
            return false;
        }
        let names = self.placement.hostnames.as_deref().unwrap_or_default();
        let mut published = self.service.ingress.iter();
        published.any(|text| match text.parse() {
            Ok(address) if let ListenAt::Pool(given) = &self.site.at => given.contains(&address),
            Ok(address) => nodes::holds(node, address),
            Err(_) => names.contains(text),
        })
    }

    /// Whether a node whose Lease is live is known to serve what the Service was given.
    fn is_served(&self, lease: &Lease, exception: Option<&Exception>) -> bool {
        let namespace = &self.service.key.namespace;
        self.service.allocated.is_some()
            && lease.served.of(namespace) >= self.service.publication.allocated_at
            && !exception.is_some_and(|exception| exception.pending)
            && !lease.exceptions.hides(namespace)
    }

    /// Why nothing is published.
    fn why_not(&self) -> &'static str {
        match (self.candidates.is_empty(), self.no_ready_node) {
            (true, _) => NO_NODE,
            (false, true) => "no load balancer node has a ready endpoint of it",
            (false, false) => "no load balancer node serves it yet",
        }
    }

    /// The addresses of these nodes at which the Service is reached.
    fn addresses(&self, live: &[&Node], is_host: bool) -> Vec<IpAddr> {
        match &self.site.at {
            ListenAt::Wildcard => published(live, &self.placement.families, nodes::public),
            ListenAt::Internal(..) => published(live, &self.placement.families, |node, family| {
                nodes::first(&node.internal, family)
            }),
            // Which node has it is a matter of announcement.
            ListenAt::Pool(given) if live.is_empty() && !is_host => Vec::new(),
            ListenAt::Pool(given) => given.clone(),
            ListenAt::Requested(requested) => {
                let is_held =
                    |address: &&IpAddr| live.iter().any(|node| nodes::holds(node, **address));
                let mut held: Vec<IpAddr> = requested.iter().filter(is_held).copied().collect();
                let rank = |address: &IpAddr| {
                    let mut families = self.placement.families.iter();
                    families.position(|family| *family == Family::of(*address))
                };
                held.sort_by_key(rank);
                held
            }
        }
    }
}
