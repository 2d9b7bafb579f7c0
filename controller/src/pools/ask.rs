//! What a Service asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::allocation::NodePort;
use crate::observe::{Family, Key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub service: Key,
    pub uid: String,
    /// The time of its creation, in seconds of Unix time; `None` in manifests.
    pub created: Option<i64>,
    pub labels: BTreeMap<String, String>,
    pub namespace_labels: BTreeMap<String, String>,
    pub families: Families,
    /// The addresses that it requests, at most one of each family.
    pub requested: Vec<IpAddr>,
    /// The pools that it names, the preferred one first; empty: any.
    pub pools: Vec<String>,
    /// It may share an address with Services that have the same key.
    pub sharing: Option<String>,
    /// Its selector, where it is served by nodes with local endpoints only (strict `externalTrafficPolicy: Local`).
    pub strict: Option<String>,
    pub internal: bool,
    pub ports: BTreeSet<NodePort>,
}

impl Ask {
    /// The older Service first.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (
            self.created.is_none(),
            self.created,
            &self.uid,
            &self.service,
        )
    }
}

/// The families of addresses that a Service asks for; the family in it is the first one of `ipFamilies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// One address, of any family: the Service does not say. IPv4 is preferred.
    Any,
    Single(Family),
    Prefer(Family),
    Require(Family),
}

impl Families {
    /// From `ipFamilies`, and whether `ipFamilyPolicy` is RequireDualStack. The API server lists two families only where the Service
    /// prefers or requires them and the cluster has them.
    pub fn of(listed: &[Family], required: bool) -> Self {
        match (listed, required) {
            ([], false) => Self::Any,
            ([], true) => Self::Require(Family::V4),
            ([first, _, ..], false) => Self::Prefer(*first),
            ([first, ..], true) => Self::Require(*first),
            ([only], false) => Self::Single(*only),
        }
    }

    /// The sets of families that satisfy the Service, the best one first. The addresses of a set are in this order in its status.
    pub(super) fn choices(self) -> Vec<Vec<Family>> {
        let both = |first| vec![first, other(first)];
        match self {
            Self::Any => vec![vec![Family::V4], vec![Family::V6]],
            Self::Single(family) => vec![vec![family]],
            Self::Prefer(first) => vec![both(first), vec![first]],
            Self::Require(first) => vec![both(first)],
        }
    }

    /// Whether an address of a family is of use.
    pub(super) fn wants(self, family: Family) -> bool {
        self.choices().concat().contains(&family)
    }

    /// The families that are to be added to these addresses, and whether the Service cannot be without.
    pub(super) fn missing(self, addresses: &[IpAddr]) -> (Vec<Family>, bool) {
        let has = |family: &Family| addresses.iter().any(|one| Family::of(*one) == *family);
        let wanted = match (self, addresses) {
            (Self::Any, [_, ..]) => Vec::new(),
            _ => self.choices().into_iter().next().unwrap_or_default(),
        };
        let missing = wanted.into_iter().filter(|family| !has(family));
        (missing.collect(), !matches!(self, Self::Prefer(_)))
    }

    /// Puts addresses into the order in which the status has them.
    pub(super) fn sort(self, addresses: &mut [IpAddr]) {
        let order = self.choices().concat();
        let place = |one: &IpAddr| order.iter().position(|family| *family == Family::of(*one));
        addresses.sort_by_key(place);
    }
}

const fn other(family: Family) -> Family {
    match family {
        Family::V4 => Family::V6,
        Family::V6 => Family::V4,
    }
}
