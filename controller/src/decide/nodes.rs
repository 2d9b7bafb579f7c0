//! Which nodes are load balancers, which of them may be published, and which is ours. Asked first by [`super::decide`].

use std::net::IpAddr;

use super::notice::{About, Notice, Reason};
use crate::observe::{Family, Node, Observed};
use crate::settings::{Role, Selector, Settings};

/// The nodes as they matter for one decision.
pub(super) struct Nodes<'a> {
    /// Load balancers, by name.
    members: Vec<&'a Node>,
    /// This node.
    pub(super) here: ThisNode<'a>,
}

/// What this node is.
#[derive(Clone, Copy)]
pub(super) enum ThisNode<'a> {
    /// A host without Kubernetes, or one that is no node of the cluster: it serves everything, and has no known address.
    Host,
    /// A load balancer.
    Serves(&'a Node),
    /// No load balancer: it gets no table.
    Idle,
}

impl<'a> Nodes<'a> {
    pub(super) fn look(
        observed: &'a Observed,
        settings: &Settings,
        notices: &mut Vec<Notice>,
    ) -> Self {
        let flags = &settings.flags;
        let mut members = Vec::new();
        for node in observed
            .nodes
            .values()
            .filter(|node| flags.node_selector.matches(&node.labels))
        {
            match !flags.ignore_exclude_lb && is_excluded(node) {
                true => notices.push(excluded(node, &flags.node_selector)),
                false => members.push(node),
            }
        }
        let here = match &flags.node_name {
            // It may run anywhere.
            _ if settings.role == Role::Publisher => ThisNode::Idle,
            Some(name) => match members.iter().find(|node| node.name == *name) {
                Some(node) => ThisNode::Serves(node),
                None if settings.another_cluster && !observed.nodes.contains_key(name) => {
                    ThisNode::Host
                }
                None => ThisNode::Idle,
            },
            None if observed.nodes.is_empty() || settings.another_cluster => ThisNode::Host,
            // A folder with nodes, and nobody said which one this is: the first one stands for all.
            None => members
                .first()
                .map_or(ThisNode::Idle, |node| ThisNode::Serves(node)),
        };
        Self { members, here }
    }

    /// Those that a Service chooses.
    pub(super) fn chosen(&self, chosen: Option<&Selector>) -> Vec<&'a Node> {
        let is_chosen =
            |node: &&&Node| chosen.is_none_or(|selector| selector.matches(&node.labels));
        self.members.iter().filter(is_chosen).copied().collect()
    }

    /// Whether any of them has this address.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        self.members.iter().any(|node| holds(node, address))
    }

    /// Whether a Service that listens everywhere is published at this address.
    pub(super) fn publishes(&self, address: IpAddr) -> bool {
        self.members
            .iter()
            .any(|node| public(node, Family::of(address)) == Some(address))
    }
}

impl ThisNode<'_> {
    /// Whether this node carries the labels that a Service asks of its nodes.
    pub(super) fn is_chosen(&self, chosen: Option<&Selector>) -> bool {
        match self {
            Self::Host => true,
            Self::Serves(node) => chosen.is_none_or(|selector| selector.matches(&node.labels)),
            Self::Idle => false,
        }
    }
}

/// Whether its addresses may be published. What it listens at does not depend on that.
pub(super) fn may_be_published(node: &Node) -> bool {
    !node.taints.contains(LEAVING) && !node.network_unavailable
}

/// The address of a node for the world: its external one, else its internal one.
pub(super) fn public(node: &Node, family: Family) -> Option<IpAddr> {
    first(&node.external, family).or_else(|| first(&node.internal, family))
}

/// The first address of a family.
pub(super) fn first(addresses: &[IpAddr], family: Family) -> Option<IpAddr> {
    addresses
        .iter()
        .copied()
        .find(|address| Family::of(*address) == family)
}

/// Whether an address is one of the node's.
pub(super) fn holds(node: &Node, address: IpAddr) -> bool {
    node.internal.contains(&address) || node.external.contains(&address)
}

/// The label excludes, but for the word "false".
fn is_excluded(node: &Node) -> bool {
    let words = ["0", "f", "false"];
    node.labels
        .get(EXCLUDE)
        .is_some_and(|value| !words.contains(&value.to_ascii_lowercase().as_str()))
}

fn excluded(node: &Node, selector: &Selector) -> Notice {
    let message = format!(
        "matches {selector} and carries the label {EXCLUDE}: it serves nothing; remove the label, set it to \"false\", or use --ignore-exclude-lb"
    );
    Notice::warning(
        About::Node(node.name.clone()),
        Reason::NodeExcluded,
        message,
    )
}

const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The autoscaler's word for a node that goes soon.
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";
