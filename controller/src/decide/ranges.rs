//! The source ranges of a port: which clients may connect.

use ballast_core::table::List;
use ipnet::IpNet;

use super::annotations::{Knob, Lookup, Reader, SOURCE_RANGES, quoted, slot, values};
use super::notice::Reason;
use crate::observe::Port;

/// Which clients may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    /// All clients.
    Open,
    /// Clients in these ranges.
    Only(List<IpNet>),
    /// No client, since the ranges are invalid.
    Closed,
}

impl Ranges {
    /// The number of ranges.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Only(list) => list.len(),
            Self::Open | Self::Closed => 0,
        }
    }

    pub(super) fn list(&self) -> Option<List<IpNet>> {
        match self {
            Self::Only(list) => Some(list.clone()),
            Self::Open | Self::Closed => None,
        }
    }
}

/// Reads the ranges of a port: those of the spec, else of the annotation of Kubernetes, else of our own. Invalid ranges close the
/// port.
pub(super) fn ranges(reader: &mut Reader<'_>, port: &Port) -> Ranges {
    let slot = slot(SOURCES.name, Some(port));
    let spec = reader.service.source_ranges.join(",");
    if !spec.trim().is_empty() {
        return spec_ranges(reader, &spec, &slot);
    }
    let mut keys = vec![SOURCE_RANGES.to_owned()];
    keys.extend(reader.own_keys(SOURCES.name, Some(port)));
    let strongest = keys
        .into_iter()
        .find(|key| reader.service.annotations.contains_key(key));
    match reader.first_valid(&SOURCES, strongest.into_iter().collect(), &slot) {
        Lookup::Absent => Ranges::Open,
        Lookup::Value(found) => found.value.map_or(Ranges::Open, Ranges::Only),
        Lookup::Bad => closed(reader, port),
    }
}

fn spec_ranges(reader: &mut Reader<'_>, spec: &str, slot: &str) -> Ranges {
    const PLACE: &str = "spec.loadBalancerSourceRanges";
    match reader.parse(&SOURCES, spec) {
        Ok(list) => {
            reader
                .memory
                .insert(slot.to_owned(), (PLACE.to_owned(), spec.to_owned()));
            list.map_or(Ranges::Open, Ranges::Only)
        }
        Err(why) => {
            let kept = reader.remembered(&SOURCES, slot);
            let then = if kept.is_some() {
                "the last good ranges stay"
            } else {
                "the port stays closed"
            };
            reader.warn(
                Reason::InvalidAnnotation,
                format!("{PLACE}: {} {why}; {then}", quoted(spec)),
            );
            kept.map_or(Ranges::Closed, |found| {
                found.value.map_or(Ranges::Open, Ranges::Only)
            })
        }
    }
}

fn closed(reader: &mut Reader<'_>, port: &Port) -> Ranges {
    let message = format!(
        "port {} stays closed until its source ranges are valid",
        port.number
    );
    reader.warn(Reason::SyncLoadBalancerFailed, message);
    Ranges::Closed
}

/// [`ranges`] has its order of precedence, which is not that of other knobs.
const SOURCES: Knob<Option<List<IpNet>>> = Knob {
    name: "source-ranges",
    aliases: &[],
    parse: values::ranges,
};
