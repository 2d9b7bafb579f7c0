//! On which nodes a Service listens, and at which of their addresses.

use std::net::{IpAddr, SocketAddr};

use ballast_core::table::Bind;

use super::nodes::{self, ThisNode};
use crate::observe::Family;
use crate::settings::Selector;

/// On which nodes something listens, and at which of their addresses.
pub(super) struct Site {
    pub(super) chosen: Option<Selector>,
    pub(super) at: ListenAt,
}

/// At which addresses of a node.
pub(super) enum ListenAt {
    Wildcard,
    /// Those of these that are the node's.
    Requested(Vec<IpAddr>),
    /// Its first internal one of each of these families.
    Internal(Vec<Family>),
}

impl Site {
    /// On every node, at every address.
    pub(super) const EVERYWHERE: Self = Self {
        chosen: None,
        at: ListenAt::Wildcard,
    };

    pub(super) fn is_everywhere(&self) -> bool {
        self.chosen.is_none() && matches!(self.at, ListenAt::Wildcard)
    }

    /// The binds of one port there; none where it does not listen.
    pub(super) fn binds(&self, there: ThisNode<'_>, port: u16) -> Vec<Bind> {
        if !there.is_chosen(self.chosen.as_ref()) {
            return Vec::new();
        }
        let exact = |address: IpAddr| Bind::Exact(SocketAddr::new(address, port));
        match (&self.at, there) {
            (ListenAt::Wildcard, _) => vec![Bind::Any { port }],
            (ListenAt::Requested(addresses), ThisNode::Serves(node)) => {
                let held = addresses
                    .iter()
                    .filter(|address| nodes::holds(node, **address));
                held.copied().map(exact).collect()
            }
            (ListenAt::Internal(families), ThisNode::Serves(node)) => {
                let of_family = |family: &Family| nodes::first(&node.internal, *family);
                families.iter().filter_map(of_family).map(exact).collect()
            }
            (ListenAt::Requested(_) | ListenAt::Internal(_), ThisNode::Host | ThisNode::Idle) => {
                Vec::new()
            }
        }
    }
}

/// The addresses at which a port is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Wherever load balancers are published.
    Everywhere,
    /// At these only, on whichever node has them.
    At(Vec<IpAddr>),
}
