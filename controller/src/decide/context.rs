//! What every step of a decision reads: the observed objects, the settings, the nodes, and the EndpointSlices of each Service.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canaries::Canaries;
use super::fault::Fault;
use super::nodes::Nodes;
use super::notice::Notice;
use super::permitted::Permitted;
use crate::lease::hash_of_settings;
use crate::observe::{Key, Observed, Service, Slice};
use crate::pools::Pools;
use crate::settings::{Role, Settings};

/// The input of a decision, prepared once.
pub(super) struct Context<'a> {
    pub(super) observed: &'a Observed,
    pub(super) settings: &'a Settings,
    /// Services whose part of the table the data plane would refuse, or for which a panic was caught, and the reason.
    pub(super) left_out: &'a BTreeMap<Key, Fault>,
    /// A hash of the settings that nodes and the publisher have in common.
    pub(super) common: String,
    pub(super) slices: Slices<'a>,
    pub(super) nodes: Nodes<'a>,
    /// Address pools; none on a node of a cluster, which serves what was given.
    pub(super) pools: Arc<Pools>,
    pub(super) permitted: Permitted<'a>,
    pub(super) canaries: Canaries<'a>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        observed: &'a Observed,
        settings: &'a Settings,
        left_out: &'a BTreeMap<Key, Fault>,
        slices: Slices<'a>,
        pools: Arc<Pools>,
        notices: &mut Vec<Notice>,
    ) -> Self {
        let nodes = Nodes::of(observed, settings, notices);
        Self {
            observed,
            settings,
            left_out,
            common: hash_of_settings(&settings.in_common()),
            slices,
            pools,
            permitted: Permitted::of(observed, settings, &nodes),
            nodes,
            canaries: Canaries::of(observed, settings, left_out, notices),
        }
    }
}

impl Context<'_> {
    /// Whether what a Service becomes in a table must be known: the publisher writes none, and tells what is wrong with canaries.
    pub(super) fn needs_parts(&self, service: &Key) -> bool {
        self.settings.role != Role::Publisher || !self.canaries.of_service(service).is_empty()
    }
}

/// The EndpointSlices of each Service.
#[derive(Default)]
pub(super) struct Slices<'a>(BTreeMap<&'a Key, Vec<&'a Slice>>);

impl<'a> Slices<'a> {
    pub(super) fn of(observed: &'a Observed) -> Self {
        let mut slices: BTreeMap<&Key, Vec<&Slice>> = BTreeMap::new();
        for slice in observed.slices.values() {
            slices.entry(&slice.service).or_default().push(slice);
        }
        Self(slices)
    }

    pub(super) fn of_service(&self, key: &Key) -> &[&'a Slice] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }
}

impl Service {
    /// The key by which Services are ordered, oldest first. Services from manifests have no date: they come last, by name.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (self.created.is_none(), self.created, &self.uid, &self.key)
    }
}
