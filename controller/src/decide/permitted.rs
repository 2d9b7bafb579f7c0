//! Where the names of ExternalName Services may lead. In a cluster it must not be a node or a ClusterIP: users who may create Services
//! must not reach what listens on the nodes, or what a network policy keeps from them.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ballast_core::table::no_single_host;

use super::nodes::{Nodes, ThisNode};
use crate::observe::Observed;
use crate::settings::{Role, Settings};

/// The addresses to which no external name may lead.
pub(super) struct Permitted<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    is_in_cluster: bool,
    /// The addresses of nodes, and the ClusterIPs; collected at the first use.
    of_cluster: OnceCell<[BTreeSet<IpAddr>; 2]>,
}

impl<'a> Permitted<'a> {
    pub(super) fn of(observed: &'a Observed, settings: &'a Settings, nodes: &Nodes<'_>) -> Self {
        Self {
            observed,
            settings,
            is_in_cluster: settings.another_cluster || !matches!(nodes.here, ThisNode::Standalone),
            of_cluster: OnceCell::new(),
        }
    }

    /// Whether the decision needs all Nodes, to know where names may lead.
    pub(super) fn needs_nodes(&self) -> bool {
        self.is_in_cluster
    }

    /// What an address is for which no name may lead to it; `None`: it may.
    pub(super) fn objection(&self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        let denied = &self.settings.flags.external_name_deny;
        if let Some(what) = no_single_host(address) {
            return Some(what);
        }
        if denied.iter().any(|range| range.contains(&address)) {
            return Some("of a range of --external-name-deny");
        }
        if !self.is_in_cluster {
            return None;
        }
        if address.is_loopback() {
            return Some("a loopback address");
        }
        if is_link_local(address) {
            return Some("a link-local address");
        }
        // Until all Nodes are seen, any address may be one's.
        let is_watched = self.settings.role == Role::Node || self.observed.leases.is_some();
        if is_watched && !self.observed.looked_up.nodes {
            return Some("not known to be no node's: the Nodes are being listed");
        }
        let mut own = self.observed.own_addresses.iter();
        // `plan` is asked on another machine than the node's.
        if self.settings.role == Role::Node && own.any(|range| range.contains(&address)) {
            return Some("an address of this node");
        }
        let [of_nodes, cluster_ips] = self.of_cluster.get_or_init(|| of_cluster(self.observed));
        if of_nodes.contains(&address) {
            return Some("an address of a node");
        }
        let is_cluster_ip = cluster_ips.contains(&address);
        is_cluster_ip.then_some("the ClusterIP of a Service")
    }
}

fn of_cluster(observed: &Observed) -> [BTreeSet<IpAddr>; 2] {
    let nodes = observed.nodes.values();
    let of_nodes = nodes.flat_map(|node| node.internal.iter().chain(&node.external));
    let services = observed.services.values();
    let cluster_ips = services.flat_map(|service| &service.cluster_ips);
    [of_nodes.copied().collect(), cluster_ips.copied().collect()]
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
