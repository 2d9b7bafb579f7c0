//! One pool: its ranges, who may use it, and which nodes may hold its addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clap::ValueEnum;

use super::ask::Ask;
use super::range::AddressRange;
use crate::settings::Selector;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    pub source: Source,
    /// The time of its creation, in seconds of Unix time; `None` in manifests.
    pub created: Option<i64>,
    pub ranges: Vec<Listed>,
    /// Addresses that are never given.
    pub reserve: Vec<AddressRange>,
    /// Whether a Service gets its addresses without naming it.
    pub auto_assign: bool,
    /// Lower ones first; `None` last.
    pub priority: Option<u32>,
    /// Whether addresses for which [`super::range::is_buggy`] holds are left out.
    pub avoid_buggy: bool,
    /// The namespaces that may use it, beside those of `namespace_selectors`. All may, if both are empty.
    pub namespaces: BTreeSet<String>,
    pub namespace_selectors: Selectors,
    /// The Services that may use it; empty: all of its namespaces.
    pub service_selectors: Selectors,
    /// The nodes that may hold its addresses; empty: all.
    pub node_selectors: Selectors,
    /// Whether its addresses are for Services that are internal, and for no others.
    pub internal: bool,
    pub announce: Announce,
    /// The mistakes in the object, and the overlaps with older pools.
    pub problems: Vec<Problem>,
}

impl Pool {
    /// Whether it is for some Services only. Those get its addresses before the addresses of pools for all.
    pub fn is_pinned(&self) -> bool {
        !(self.namespaces.is_empty()
            && self.namespace_selectors.is_empty()
            && self.service_selectors.is_empty())
    }

    /// Whether a Service may have an address of it; if not, the reason.
    pub fn is_for(&self, ask: &Ask) -> Result<(), String> {
        if self.internal != ask.internal {
            return Err(match self.internal {
                true => "is for internal Services only (its label ballast.dev/internal)",
                false => "is not for internal Services; label one ballast.dev/internal=true",
            }
            .to_owned());
        }
        let namespace = &ask.service.namespace;
        let any_namespace = self.namespaces.is_empty() && self.namespace_selectors.is_empty();
        let of_namespace = any_namespace
            || self.namespaces.contains(namespace)
            || self.namespace_selectors.any(&ask.namespace_labels);
        if !of_namespace {
            return Err(format!("is not for the namespace {namespace}"));
        }
        match self.service_selectors.all_or_any(&ask.labels) {
            true => Ok(()),
            false => Err("is for Services with other labels".to_owned()),
        }
    }

    /// Older pools first. A pool of a manifest is younger than all that have a time.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (
            self.created.is_none(),
            self.created,
            &self.name,
            self.source,
        )
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source.kind(), self.name)
    }
}

/// The system whose object a pool is. Where two pools have one name, the first one here is found first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Source {
    Ballast,
    #[value(name = "metallb")]
    MetalLb,
    Antrea,
}

impl Source {
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Ballast => "AddressPool",
            Self::MetalLb => "IPAddressPool",
            Self::Antrea => "ExternalIPPool",
        }
    }
}

/// How the network learns where an address is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announce {
    /// One node answers ARP or neighbour discovery.
    #[default]
    L2,
    /// Every node that serves it tells routers.
    Bgp,
    /// Ballast announces it nowhere.
    Nobody,
    /// MetalLB's advertisements say it.
    Advertised,
}

impl Announce {
    const ALL: [Self; 4] = [Self::L2, Self::Bgp, Self::Nobody, Self::Advertised];

    /// The word in an AddressPool, and in what a Service was given.
    pub const fn word(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Bgp => "bgp",
            Self::Nobody => "none",
            Self::Advertised => "advertised",
        }
    }

    /// What a word says; `None`: it is no such word.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// A range as the object lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The place in the object, such as `spec.addresses[0]`.
    pub at: String,
    /// The words of the object.
    pub text: String,
    /// The addresses that it stands for. No younger pool gives them.
    pub range: AddressRange,
    /// Those of them that are given; fewer by Antrea's rule for a CIDR.
    pub given: Option<AddressRange>,
}

/// Label selectors of which one must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    pub selectors: Vec<Selector>,
    /// Whether some could not be read. Then they select nothing, and the rest may select.
    pub broken: bool,
}

impl Selectors {
    pub fn is_empty(&self) -> bool {
        self.selectors.is_empty() && !self.broken
    }

    pub fn any(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.matches(labels))
    }

    /// No selectors select everything.
    pub fn all_or_any(&self, labels: &BTreeMap<String, String>) -> bool {
        self.is_empty() || self.any(labels)
    }
}

/// A mistake of a pool: its place in the object, the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub kind: ProblemKind,
    pub at: String,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.text)
    }
}

/// The reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    BadRange,
    NoRanges,
    Overlap,
    /// Two systems would give from the same addresses.
    TwoSystems,
    BadSelector,
    BadValue,
}

impl ProblemKind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::BadRange => "BadRange",
            Self::NoRanges => "NoRanges",
            Self::Overlap => "Overlap",
            Self::TwoSystems => "TwoSystems",
            Self::BadSelector => "BadSelector",
            Self::BadValue => "BadValue",
        }
    }
}
