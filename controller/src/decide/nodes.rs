//! Which nodes are load balancers, which of them may be published, and whether this node is one.

use std::net::IpAddr;

use super::notice::{About, Notice, Reason};
use crate::observe::{Family, Node, Observed};
use crate::settings::{Role, Selector, Settings};

/// The load balancer nodes, and this node.
pub(super) struct Nodes<'a> {
    members: Vec<&'a Node>,
    pub(super) here: ThisNode<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum ThisNode<'a> {
    /// A host without Kubernetes, or outside of the cluster: it serves all Services, and its addresses are not known.
    Standalone,
    LoadBalancer(&'a Node),
    /// This node is no load balancer and gets no table.
    NotSelected,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(
        observed: &'a Observed,
        settings: &Settings,
        notices: &mut Vec<Notice>,
    ) -> Self {
        let flags = &settings.flags;
        let selected = observed.nodes.values();
        let selected = selected.filter(|node| flags.node_selector.matches(&node.labels));
        let is_out = |node: &&Node| !flags.ignore_exclude_lb && is_excluded(node);
        let (out, members): (Vec<&Node>, Vec<&Node>) = selected.partition(is_out);
        let out = out.into_iter();
        notices.extend(out.map(|node| excluded(node, &flags.node_selector)));
        let here = match &flags.node_name {
            // The publisher is no load balancer, whatever node it runs on.
            _ if settings.role == Role::Publisher => ThisNode::NotSelected,
            Some(name) => match members.iter().find(|node| node.name == *name) {
                Some(node) => ThisNode::LoadBalancer(node),
                None if settings.another_cluster && !observed.nodes.contains_key(name) => {
                    ThisNode::Standalone
                }
                // In a folder without Nodes the name is that of the announcer.
                None if settings.role == Role::Whole
                    && settings.announces
                    && observed.nodes.is_empty() =>
                {
                    ThisNode::Standalone
                }
                None => ThisNode::NotSelected,
            },
            None if observed.nodes.is_empty() || settings.another_cluster => ThisNode::Standalone,
            // `plan` of a folder with Nodes, without --node-name: the plan is that of the first one.
            None => members
                .first()
                .map_or(ThisNode::NotSelected, |node| ThisNode::LoadBalancer(node)),
        };
        Self { members, here }
    }

    /// The load balancers with the labels that a Service asks for.
    pub(super) fn selected(&self, chosen: Option<&Selector>) -> Vec<&'a Node> {
        let is_chosen =
            |node: &&&Node| chosen.is_none_or(|selector| selector.matches(&node.labels));
        self.members.iter().filter(is_chosen).copied().collect()
    }

    /// Whether any load balancer has this address.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        self.members.iter().any(|node| holds(node, address))
    }

    /// The load balancers at which a Service that listens everywhere is published at this address.
    pub(super) fn publishing(&self, address: IpAddr) -> impl Iterator<Item = &'a Node> {
        let members = self.members.iter().copied();
        members.filter(move |node| public(node, Family::of(address)) == Some(address))
    }

    /// Whether no load balancer is known.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl ThisNode<'_> {
    /// Whether this node has the labels that a Service asks for.
    pub(super) fn is_selected(&self, chosen: Option<&Selector>) -> bool {
        match self {
            Self::Standalone => true,
            Self::LoadBalancer(node) => chosen.is_none_or(|one| one.matches(&node.labels)),
            Self::NotSelected => false,
        }
    }
}

/// Whether this node serves anything.
pub(crate) fn is_load_balancer(observed: &Observed, settings: &Settings) -> bool {
    let here = Nodes::of(observed, settings, &mut Vec::new()).here;
    !matches!(here, ThisNode::NotSelected)
}

/// Whether the addresses of a node may be published. The node listens in either case.
pub(super) fn may_be_published(node: &Node) -> bool {
    !node.taints.contains(LEAVING) && !node.network_unavailable
}

/// Whether a node may have addresses of pools. A cordon and a drain change nothing: the pods of load balancers stay.
pub(super) fn may_hold_addresses(node: &Node) -> bool {
    may_be_published(node) && !node.taints.contains(OUT_OF_SERVICE)
}

/// The address of a node that is published: its external one, else its internal one.
pub(super) fn public(node: &Node, family: Family) -> Option<IpAddr> {
    first(&node.external, family).or_else(|| first(&node.internal, family))
}

/// The first address of a family.
pub(super) fn first(addresses: &[IpAddr], family: Family) -> Option<IpAddr> {
    let mut addresses = addresses.iter().copied();
    addresses.find(|address| Family::of(*address) == family)
}

pub(super) fn holds(node: &Node, address: IpAddr) -> bool {
    node.internal.contains(&address) || node.external.contains(&address)
}

/// The node that has an address, in words, and why it does not serve a Service that requests it. `None`: no node has it.
pub(super) fn lack(observed: &Observed, settings: &Settings, address: IpAddr) -> Option<String> {
    let mut nodes = observed.nodes.values();
    let node = nodes.find(|node| holds(node, address))?;
    let flags = &settings.flags;
    let (name, selector) = (&node.name, &flags.node_selector);
    Some(if !selector.matches(&node.labels) {
        format!(
            "node {name}, which is no load balancer: it does not match {selector} (--node-selector)"
        )
    } else if !flags.ignore_exclude_lb && is_excluded(node) {
        format!("node {name}, which serves nothing: it has the label {EXCLUDE}")
    } else {
        format!("node {name}, which the Service does not select (ballast.dev/node-selector)")
    })
}

/// Whether the label excludes a node: it does with every value but those that mean false.
fn is_excluded(node: &Node) -> bool {
    let value = node
        .labels
        .get(EXCLUDE)
        .map(|value| value.to_ascii_lowercase());
    value.is_some_and(|value| !["0", "f", "false"].contains(&&*value))
}

fn excluded(node: &Node, selector: &Selector) -> Notice {
    let message = format!(
        "matches {selector} and has the label {EXCLUDE}: it serves nothing; remove the label, set it to \"false\", or use --ignore-exclude-lb"
    );
    let about = About::Node(node.name.clone());
    Notice::warning(about, Reason::NodeExcluded, message)
}

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The taint of a node that an operator declares dead.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The taint of the cluster autoscaler for a node that it will delete.
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";
