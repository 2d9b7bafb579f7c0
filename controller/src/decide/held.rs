//! Which Service has which port of which nodes, while ports are given.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use super::nodes::{self, Nodes};
use super::service_plan::Claim;
use super::site::Reach;
use crate::allocation::NodePort;
use crate::observe::{Family, Node};
use crate::settings::Selector;

/// The ports that are taken, each with its owner.
pub(super) struct Held<'c, 'a> {
    nodes: &'c Nodes<'a>,
    /// At all addresses of these nodes.
    everywhere: BTreeMap<NodePort, Vec<(NodeSet<'a>, Rc<str>)>>,
    at: BTreeMap<(NodePort, IpAddr), Rc<str>>,
}

/// The nodes on which a Service listens.
#[derive(Clone)]
pub(super) enum NodeSet<'a> {
    All,
    Named(BTreeSet<&'a str>),
}

impl<'a> NodeSet<'a> {
    pub(super) fn of(nodes: &Nodes<'a>, chosen: Option<&Selector>) -> Self {
        match chosen {
            None => Self::All,
            Some(_) => {
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

impl<'c, 'a> Held<'c, 'a> {
    pub(super) fn new(nodes: &'c Nodes<'a>) -> Self {
        Self {
            nodes,
            everywhere: BTreeMap::new(),
            at: BTreeMap::new(),
        }
    }

    pub(super) fn take(&mut self, claim: &Claim, set: &NodeSet<'a>, owner: &str) {
        let owner: Rc<str> = owner.into();
        match &claim.reach {
            Reach::Everywhere => {
                let holders = self.everywhere.entry(claim.port).or_default();
                holders.push((set.clone(), owner));
            }
            Reach::At(addresses) => {
                let places = addresses.iter().map(|address| (claim.port, *address));
                for place in places {
                    self.at.entry(place).or_insert_with(|| Rc::clone(&owner));
                }
            }
        }
    }

    /// The owner of a port at one of the places of a claim.
    pub(super) fn owner(&self, claim: &Claim, set: &NodeSet<'a>) -> Option<String> {
        let owner = match &claim.reach {
            Reach::At(addresses) => {
                let mut addresses = addresses.iter();
                addresses.find_map(|address| self.owner_at(claim.port, *address))
            }
            Reach::Everywhere if self.nodes.is_empty() => {
                return self.owner_everywhere(claim.port);
            }
            Reach::Everywhere => {
                let members = self.nodes.selected(None).into_iter();
                let mut members = members.filter(|node| set.has(&node.name));
                members.find_map(|node| self.owner_on(claim.port, node))
            }
        };
        owner.map(str::to_owned)
    }

    /// The owner of a port at the addresses of one node at which a Service listens there.
    pub(super) fn owner_here(
        &self,
        claim: &Claim,
        set: &NodeSet<'a>,
        node: &Node,
    ) -> Option<String> {
        let owner = match &claim.reach {
            _ if !set.has(&node.name) => None,
            Reach::Everywhere => self.owner_on(claim.port, node),
            Reach::At(addresses) => {
                let mut here = addresses
                    .iter()
                    .filter(|address| nodes::holds(node, **address));
                here.find_map(|address| self.owner_at(claim.port, *address))
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

    fn owner_at(&self, port: NodePort, address: IpAddr) -> Option<&str> {
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
