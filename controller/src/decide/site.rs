//! On which nodes a Service listens, and at which of their addresses.

use std::net::{IpAddr, SocketAddr};

use ballast_core::table::Bind;

use super::nodes::{self, ThisNode};
use crate::allocation::{At, FromPool};
use crate::observe::Family;
use crate::settings::Selector;

/// The nodes on which a port listens, and at which of their addresses.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) chosen: Option<Selector>,
    pub(super) at: ListenAt,
    /// The pool of the addresses.
    pub(super) pool: Option<FromPool>,
}

/// At which addresses of a node a port listens.
#[derive(Clone)]
pub(super) enum ListenAt {
    Wildcard,
    /// At these addresses of a pool, whether the node has them or not.
    Pool(Vec<IpAddr>),
    /// At those of these addresses that the node has.
    Requested(Vec<IpAddr>),
    /// At the first internal address of each of these IP families: on all nodes together, at these addresses.
    Internal(Vec<Family>, Vec<IpAddr>),
}

impl Site {
    /// The addresses, in the words of an allocation.
    pub(super) fn at(&self) -> At {
        match &self.at {
            ListenAt::Wildcard => At::Node,
            ListenAt::Requested(addresses) | ListenAt::Pool(addresses) => At::of(addresses),
            ListenAt::Internal(..) => At::NodeInternal,
        }
    }

    /// Every node, and every address.
    pub(super) const EVERYWHERE: Self = Self {
        chosen: None,
        at: ListenAt::Wildcard,
        pool: None,
    };

    /// The addresses at which a Service claims its ports.
    pub(super) fn reach(&self) -> Reach<'_> {
        match &self.at {
            ListenAt::Wildcard => Reach::Everywhere,
            ListenAt::Pool(addresses)
            | ListenAt::Requested(addresses)
            | ListenAt::Internal(_, addresses) => Reach::At(addresses),
        }
    }

    /// The binds of one port on a node; none if it does not listen there.
    pub(super) fn binds(&self, there: ThisNode<'_>, port: u16) -> Vec<Bind> {
        if !there.is_selected(self.chosen.as_ref()) {
            return Vec::new();
        }
        let exact = |address: IpAddr| Bind::Exact(SocketAddr::new(address, port));
        match (&self.at, there) {
            (ListenAt::Wildcard, _) => vec![Bind::Any { port }],
            (ListenAt::Pool(_), ThisNode::NotSelected) => Vec::new(),
            (ListenAt::Pool(addresses), _) => addresses.iter().copied().map(exact).collect(),
            (ListenAt::Requested(addresses), ThisNode::LoadBalancer(node)) => {
                let held = addresses
                    .iter()
                    .filter(|address| nodes::holds(node, **address));
                held.copied().map(exact).collect()
            }
            (ListenAt::Internal(families, _), ThisNode::LoadBalancer(node)) => {
                let of_family = |family: &Family| nodes::first(&node.internal, *family);
                families.iter().filter_map(of_family).map(exact).collect()
            }
            (
                ListenAt::Requested(_) | ListenAt::Internal(..),
                ThisNode::Standalone | ThisNode::NotSelected,
            ) => Vec::new(),
        }
    }
}

/// The addresses at which a Service claims its ports.
#[derive(Clone, Copy)]
pub(super) enum Reach<'s> {
    /// All published addresses of load balancers.
    Everywhere,
    /// These only, on all nodes that have them.
    At(&'s [IpAddr]),
}

impl<'s> Reach<'s> {
    /// That of the addresses that a Service was given.
    pub(super) fn of(at: &'s At) -> Self {
        match at {
            At::Node | At::NodeInternal => Self::Everywhere,
            At::Addresses(addresses) => Self::At(addresses),
        }
    }
}
