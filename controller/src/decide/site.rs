//! On which nodes a Service listens, and at which of their addresses.

use std::net::{IpAddr, SocketAddr};

use ballast_core::table::Bind;

use super::nodes::{self, ThisNode};
use crate::allocation::At;
use crate::observe::Family;
use crate::settings::Selector;

/// The nodes on which a port listens, and at which of their addresses.
pub(super) struct Site {
    pub(super) chosen: Option<Selector>,
    pub(super) at: ListenAt,
}

/// At which addresses of a node a port listens.
pub(super) enum ListenAt {
    Wildcard,
    /// At those of these addresses that the node has.
    Requested(Vec<IpAddr>),
    /// At the first internal address of each of these IP families.
    Internal(Vec<Family>),
}

impl Site {
    /// The addresses, in the words of an allocation.
    pub(super) fn at(&self) -> At {
        match &self.at {
            ListenAt::Wildcard => At::Node,
            ListenAt::Requested(addresses) => At::of(addresses),
            ListenAt::Internal(_) => At::NodeInternal,
        }
    }

    /// Every node, and every address.
    pub(super) const EVERYWHERE: Self = Self {
        chosen: None,
        at: ListenAt::Wildcard,
    };

    /// The binds of one port on a node; none if it does not listen there.
    pub(super) fn binds(&self, there: ThisNode<'_>, port: u16) -> Vec<Bind> {
        if !there.is_selected(self.chosen.as_ref()) {
            return Vec::new();
        }
        let exact = |address: IpAddr| Bind::Exact(SocketAddr::new(address, port));
        match (&self.at, there) {
            (ListenAt::Wildcard, _) => vec![Bind::Any { port }],
            (ListenAt::Requested(addresses), ThisNode::LoadBalancer(node)) => {
                let held = addresses
                    .iter()
                    .filter(|address| nodes::holds(node, **address));
                held.copied().map(exact).collect()
            }
            (ListenAt::Internal(families), ThisNode::LoadBalancer(node)) => {
                let of_family = |family: &Family| nodes::first(&node.internal, *family);
                families.iter().filter_map(of_family).map(exact).collect()
            }
            (
                ListenAt::Requested(_) | ListenAt::Internal(_),
                ThisNode::Standalone | ThisNode::NotSelected,
            ) => Vec::new(),
        }
    }
}

/// The addresses at which a Service claims its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All published addresses of load balancers.
    Everywhere,
    /// These only, on all nodes that have them.
    At(Vec<IpAddr>),
}
