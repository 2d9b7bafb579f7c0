//! The addresses and ports at which this node listens, and at which the publisher expects all live nodes to listen.
//!
//! A node reports in its Lease what it serves ([`crate::lease::Served`]); `publish` compares the report with what is expected.

use std::collections::BTreeMap;

use ballast_core::table::{Bind, Name};

use super::context::Context;
use super::nodes::{ThisNode, may_be_published};
use super::service_plan::{HTTP, HTTPS, PortPlan, ServicePlan, SharedPorts};
use super::site::Site;
use crate::lease::{Binds, Buckets, Served, number, owner};
use crate::observe::Node;
use crate::settings::HTTPS_PORT;

/// The binds of this node, including those of ports that stay closed without a certificate.
pub(super) fn binds_here(
    context: &Context<'_>,
    shared: SharedPorts,
    plans: &[ServicePlan<'_>],
) -> Binds {
    let mut binds = binds_of_shared(context, shared);
    for plan in plans {
        let lines = plan.ports.iter().flat_map(|PortPlan { frontend, .. }| {
            let binds = frontend.bind.iter();
            binds.map(move |bind| line(&frontend.name, bind))
        });
        collect(&mut binds, lines);
    }
    binds
}

/// The binds that each live node should report.
#[derive(Default)]
pub(super) struct ExpectedBinds<'a> {
    /// The binds of Services that listen on every node alike, by owner.
    everywhere: Binds,
    nodes: BTreeMap<&'a str, NodeBinds>,
}

/// The binds that one node should report.
struct NodeBinds {
    buckets: Buckets,
    /// The binds of Services that do not listen on every node alike, by owner.
    sited: Binds,
}

impl<'a> ExpectedBinds<'a> {
    /// Computes all nodes in one pass: they differ only by Services whose site is not [`Site::EVERYWHERE`].
    pub(super) fn of(
        context: &Context<'a>,
        shared: SharedPorts,
        plans: &[ServicePlan<'_>],
    ) -> Self {
        let Some(leases) = &context.observed.leases else {
            return Self::default();
        };
        let mut nodes = context.nodes.selected(None);
        nodes.retain(|node| may_be_published(node) && leases.contains_key(&node.name));
        if nodes.is_empty() {
            return Self::default();
        }
        let mut everywhere = binds_of_shared(context, shared);
        let mut sited = Vec::new();
        for plan in plans.iter().filter(|plan| !plan.ports.is_empty()) {
            match plan.placement.as_ref().map(|place| &place.site) {
                Some(site) if !site.is_everywhere() => sited.push((plan, site)),
                _ => collect(&mut everywhere, lines_everywhere(plan)),
            }
        }
        let common = Buckets::of(&everywhere);
        let nodes = nodes.into_iter().map(|node| {
            let mut own = Binds::new();
            for (plan, site) in &sited {
                collect(&mut own, lines_on(plan, site, node).into_iter());
            }
            let mut buckets = common;
            for (owner, number) in &own {
                buckets.add(owner, *number);
            }
            let sited = own;
            (node.name.as_str(), NodeBinds { buckets, sited })
        });
        Self {
            nodes: nodes.collect(),
            everywhere,
        }
    }

    /// Whether a node reports that it serves an owner as expected.
    pub(super) fn is_served(&self, node: &str, owner: &str, served: &Served) -> bool {
        let Some(expected) = self.nodes.get(node) else {
            return false;
        };
        let number = expected.sited.get(owner);
        let number = number.or_else(|| self.everywhere.get(owner));
        served.confirms(owner, number.copied(), &expected.buckets)
    }
}

fn lines_everywhere(plan: &ServicePlan<'_>) -> impl Iterator<Item = (String, String)> {
    plan.ports.iter().map(|one| {
        let port = one.claim.port;
        line(&one.frontend.name, &Bind::Any { port })
    })
}

fn lines_on(plan: &ServicePlan<'_>, site: &Site, node: &Node) -> Vec<(String, String)> {
    let ports = plan.ports.iter();
    let lines = ports.flat_map(|port| {
        let binds = site.binds(ThisNode::LoadBalancer(node), port.claim.port);
        let binds = binds.into_iter();
        binds.map(move |bind| line(&port.frontend.name, &bind))
    });
    lines.collect()
}

/// The binds of the shared ports, which every node has.
fn binds_of_shared(context: &Context<'_>, shared: SharedPorts) -> Binds {
    let http_port = context.settings.flags.http_port;
    let ports = [
        (shared.http, HTTP, http_port),
        (shared.https, HTTPS, HTTPS_PORT),
    ];
    let there = ports.into_iter().filter(|(is_there, ..)| *is_there);
    let lines = there.filter_map(|(_, name, port)| {
        let name = name.parse().ok()?;
        Some(line(&name, &Bind::Any { port }))
    });
    let mut binds = Binds::new();
    collect(&mut binds, lines);
    binds
}

/// The owner of a frontend, and the text of one of its binds that is hashed.
fn line(frontend: &Name, bind: &Bind) -> (String, String) {
    (owner(frontend).to_owned(), format!("{frontend} {bind}"))
}

fn collect(binds: &mut Binds, lines: impl Iterator<Item = (String, String)>) {
    let mut by_owner: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (owner, line) in lines {
        by_owner.entry(owner).or_default().push(line);
    }
    let owners = by_owner.into_iter();
    binds.extend(owners.map(|(owner, lines)| (owner, number(lines))));
}
