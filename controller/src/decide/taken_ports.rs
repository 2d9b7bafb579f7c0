//! Which Service has which port of which nodes, while ports are given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::nodes::{self, Nodes};
use super::site::{Reach, Site};
use crate::allocation::{At, NodePort};
use crate::observe::{Family, Node};

/// The ports that are taken, each with its owner.
pub(super) struct TakenPorts<'c, 'a> {
    nodes: &'c Nodes<'a>,
    /// At all addresses of these nodes.
    everywhere: BTreeMap<NodePort, Vec<(NodeSet<'a>, Box<str>)>>,
    at: BTreeMap<(NodePort, IpAddr), Box<str>>,
}

/// The nodes on which a Service listens.
#[derive(Clone)]
pub(super) enum NodeSet<'a> {
    All,
    Named(BTreeSet<&'a str>),
}

impl<'a> NodeSet<'a> {
    pub(super) fn of(nodes: &Nodes<'a>, site: Option<&Site>) -> Self {
        match site.and_then(|site| site.chosen.as_ref()) {
            None => Self::All,
            chosen => {
                let chosen = nodes.selected(chosen).into_iter();
                Self::Named(chosen.map(|node| node.name.as_str()).collect())
            }
        }
    }

    fn has(&self, node: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(node),
        }
    }
}

impl<'c, 'a> TakenPorts<'c, 'a> {
    pub(super) fn new(nodes: &'c Nodes<'a>) -> Self {
        Self {
            nodes,
            everywhere: BTreeMap::new(),
            at: BTreeMap::new(),
        }
    }

    pub(super) fn take(
        &mut self,
        port: NodePort,
        reach: Reach<'_>,
        set: &NodeSet<'a>,
        owner: &str,
    ) {
        match reach {
            Reach::Everywhere => {
                let holders = self.everywhere.entry(port).or_default();
                holders.push((set.clone(), owner.into()));
            }
            Reach::At(addresses) => {
                let places = addresses.iter().map(|address| (port, *address));
                for place in places {
                    self.at.entry(place).or_insert_with(|| owner.into());
                }
            }
        }
    }

    /// Takes ports that a Service has at these addresses of all nodes, and that are not served now.
    pub(super) fn hold(&mut self, ports: &BTreeSet<NodePort>, at: &At, owner: &str) {
        for port in ports {
            self.take(*port, Reach::of(at), &NodeSet::All, owner);
        }
    }

    /// The owner of a port at one of these places.
    pub(super) fn owner(
        &self,
        port: NodePort,
        reach: Reach<'_>,
        set: &NodeSet<'a>,
    ) -> Option<String> {
        let owner = match reach {
            Reach::At(addresses) => {
                let mut addresses = addresses.iter();
                addresses.find_map(|address| self.owner_at(port, *address))
            }
            Reach::Everywhere if self.nodes.is_empty() => {
                return self.owner_everywhere(port);
            }
            Reach::Everywhere => {
                let members = self.nodes.selected(None).into_iter();
                let mut members = members.filter(|node| set.has(&node.name));
                members.find_map(|node| self.owner_on(port, node))
            }
        };
        owner.map(str::to_owned)
    }

    /// The owner of a port at the addresses of one node at which a Service listens there.
    pub(super) fn owner_here(
        &self,
        port: NodePort,
        reach: Reach<'_>,
        set: &NodeSet<'a>,
        node: &Node,
    ) -> Option<String> {
        let owner = match reach {
            _ if !set.has(&node.name) => None,
            Reach::Everywhere => self.owner_on(port, node),
            Reach::At(addresses) => {
                // Those of pools are listened at on every node.
                let mut here = addresses.iter().filter(|address| {
                    nodes::holds(node, **address) || !self.nodes.holds(**address)
                });
                here.find_map(|address| self.owner_at(port, *address))
            }
        };
        owner.map(str::to_owned)
    }

    /// The owner of a port at all addresses of nodes.
    pub(super) fn owner_everywhere(&self, port: NodePort) -> Option<String> {
        let (_, owner) = self.everywhere.get(&port)?.first()?;
        Some(owner.to_string())
    }

    fn owner_on(&self, port: NodePort, node: &Node) -> Option<&str> {
        let mut holders = self.everywhere.get(&port).into_iter().flatten();
        if let Some((_, owner)) = holders.find(|(set, _)| set.has(&node.name)) {
            return Some(owner);
        }
        let mut public = [Family::V4, Family::V6]
            .into_iter()
            .filter_map(|family| nodes::public(node, family));
        public.find_map(|address| self.at.get(&(port, address)).map(|owner| &**owner))
    }

    /// The owner of a port at an address.
    pub(super) fn owner_at(&self, port: NodePort, address: IpAddr) -> Option<&str> {
        if let Some(owner) = self.at.get(&(port, address)) {
            return Some(owner);
        }
        let holders = self.everywhere.get(&port)?;
        let mut holders = holders.iter();
        let holder = holders.find(|(set, _)| {
            let mut nodes = self.nodes.publishing(address);
            nodes.any(|node| set.has(&node.name))
        });
        holder.map(|(_, owner)| &**owner)
    }
}
