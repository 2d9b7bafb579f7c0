//! What every step of a decision reads: the observed objects, the settings, the nodes, and the EndpointSlices of each Service.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ballast_core::table::no_single_host;

use super::canaries::Canaries;
use super::fault::Fault;
use super::nodes::{Nodes, ThisNode};
use super::notice::Notice;
use crate::lease::hash_of_settings;
use crate::observe::{Key, Observed, Service, Slice};
use crate::settings::Settings;

/// The input of a decision, prepared once.
pub(super) struct Context<'a> {
    pub(super) observed: &'a Observed,
    pub(super) settings: &'a Settings,
    /// Services whose part of the table the data plane would refuse, or for which a panic was caught, and the reason.
    pub(super) left_out: &'a BTreeMap<Key, Fault>,
    /// A hash of the settings by which ports are given to Services.
    pub(super) claims: String,
    pub(super) slices: Slices<'a>,
    pub(super) nodes: Nodes<'a>,
    pub(super) canaries: Canaries<'a>,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        observed: &'a Observed,
        settings: &'a Settings,
        left_out: &'a BTreeMap<Key, Fault>,
        slices: Slices<'a>,
        notices: &mut Vec<Notice>,
    ) -> Self {
        Self {
            observed,
            settings,
            left_out,
            claims: hash_of_settings(&settings.claims()),
            slices,
            nodes: Nodes::of(observed, settings, notices),
            canaries: Canaries::of(observed, settings, left_out, notices),
        }
    }

    /// Whether the name of an ExternalName Service may resolve to an address. In a cluster it must not be an address of this
    /// machine: users who may create Services must not reach what listens on the host.
    pub(super) fn may_lead_to(&self, address: IpAddr) -> bool {
        no_single_host(address).is_none() && (!self.refuses_own() || is_outside(address))
    }

    pub(super) fn refuses_own(&self) -> bool {
        self.settings.another_cluster || !matches!(self.nodes.here, ThisNode::Standalone)
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

/// Whether an address can belong to another machine, beyond the link. EndpointSlices take no other addresses either.
fn is_outside(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}
