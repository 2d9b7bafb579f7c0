//! Why a Service does not get an address, or not all that it asks for, in texts for its owner. A text follows
//! `Failed to allocate IP for "NAMESPACE/NAME": `.

use std::fmt;
use std::net::IpAddr;

use super::status::shown;
use crate::allocation::NodePort;
use crate::observe::{Family, Key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The names that the Service has, and those of all pools.
    UnknownPool(Vec<String>, Vec<String>),
    /// The pool, and why it is not for the Service.
    NotForService(String, String),
    /// No pool lists the requested address.
    NoPoolHolds(IpAddr),
    /// The requested address, its pool, and the pools that the Service names.
    NotOfNamedPool(IpAddr, String, Vec<String>),
    /// The requested addresses are of two pools.
    TwoPools(Vec<IpAddr>),
    /// The requested address is of a family that the Service does not have.
    WrongFamily(IpAddr),
    /// The pool lists the address, and has a reason not to give it.
    NotGiven(IpAddr, String, String),
    /// The Service that has the address, and why it cannot be shared, with what to do.
    InUse(IpAddr, Key, &'static str),
    PortTaken(IpAddr, NodePort, Key),
    /// The address is that of a node, at which a Service with node addresses has the port.
    AtNode(IpAddr, NodePort, String),
    /// A port of Ballast itself, and what it is for.
    OwnPort(NodePort, String),
    /// The address is kept for another Service.
    Reserved(IpAddr, Key),
    /// Another system gave the address to this Service.
    Foreign(IpAddr, Key),
    /// Each pool that was tried.
    Exhausted(Vec<Spent>),
    NoPool,
    /// The pool of the Service's address cannot give one of this family as well.
    NoSecondFamily(Family, String),
}

/// A pool that has no free address of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spent {
    pub pool: String,
    pub family: Family,
    /// The addresses of the family that it gives, and those of them that somebody has.
    pub total: u128,
    pub used: u128,
    /// The older pools that have addresses of the family which it lists.
    pub older: Vec<String>,
    /// An address of it that another system gave, and the Service that has it.
    pub foreign: Option<(IpAddr, Key)>,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pool,
            total,
            used,
            older,
            ..
        } = self;
        let family = word_of(self.family);
        match total {
            0 if !older.is_empty() => write!(
                f,
                "{pool} has no {family} address of its own, since an older pool has what it lists: {}",
                shown(older.iter().cloned())
            )?,
            0 => write!(f, "{pool} has no {family} address")?,
            _ => write!(
                f,
                "{pool} has no free {family} address ({used} of {total} used)"
            )?,
        }
        match &self.foreign {
            Some((address, service)) => write!(
                f,
                " and shares its addresses with another system, which gave {address} to {service}: let one system alone give from it"
            ),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPool(names, known) => {
                let names = shown(names.iter().map(|name| format!("{name:?}")));
                let known = known.iter().map(|name| format!("{name:?}"));
                let known = match known.len() {
                    0 => "create an AddressPool".to_owned(),
                    _ => format!("name one of {}", shown(known)),
                };
                write!(f, "unknown pool {names}; {known}, or change ballast.dev/address-pool")
            }
            Self::NotForService(pool, why) => {
                write!(f, "{pool} {why}; name another pool, or none")
            }
            Self::NoPoolHolds(address) => {
                write!(f, "no pool holds {address}; add it to one, or request another address")
            }
            Self::NotOfNamedPool(address, pool, names) => {
                let names = shown(names.iter().map(|name| format!("{name:?}")));
                write!(f, "{address} is of {pool}, and the Service is to use {names}; name that pool, or request another address")
            }
            Self::TwoPools(addresses) => {
                let addresses = shown(addresses.iter().map(IpAddr::to_string));
                write!(f, "{addresses} are of two pools; request addresses of one")
            }
            Self::WrongFamily(address) => {
                write!(f, "{address} does not match the ipFamilies of the Service; request an address of these, or change ipFamilyPolicy")
            }
            Self::NotGiven(address, pool, why) => {
                write!(f, "{pool} does not give {address}, which {why}; request another address")
            }
            Self::InUse(address, owner, why) => write!(f, "{address} is in use by {owner}: {why}"),
            Self::PortTaken(address, port, owner) => {
                write!(f, "port {port} of {address} is in use by {owner}; use another port or another address")
            }
            Self::AtNode(address, port, owner) => {
                write!(f, "port {port} of {address}, which a node has, is taken by {owner}; use another port or another address")
            }
            Self::OwnPort(port, name) => {
                write!(f, "port {port} is Ballast's own ({name}); use another port")
            }
            Self::Reserved(address, owner) => {
                write!(f, "{address} is kept for {owner}; delete that AddressReservation, or request another address")
            }
            Self::Foreign(address, owner) => {
                write!(f, "{address} was given to {owner} by another system; let one system alone give from a pool, or request another address")
            }
            Self::Exhausted(tried) => {
                let tried = shown(tried.iter().map(Spent::to_string));
                write!(f, "no available IPs: {tried}; add addresses to a pool, or delete a Service that has one")
            }
            Self::NoPool => f.write_str(
                "no available IPs: no pool gives to this Service by itself; name a pool by ballast.dev/address-pool, or create one for it",
            ),
            Self::NoSecondFamily(family, pool) => {
                let family = word_of(*family);
                write!(f, "pool {pool:?}, which the Service has its address of, has no free {family} address; add some to that pool, or make the Service anew")
            }
        }
    }
}

const fn word_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
