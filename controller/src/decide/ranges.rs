//! The source ranges of a port: which clients may connect.

use ballast_core::table::List;
use ipnet::IpNet;

use super::annotations::{Lookup, Reader, SOURCE_RANGES, knobs, quoted, slot};
use super::notice::Reason;
use crate::observe::Port;

/// Which clients may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ranges {
    Open,
    Only(List<IpNet>),
    /// No client, since the ranges are invalid.
    Closed,
}

impl Ranges {
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
    let name = knobs::SOURCE_RANGES.name;
    let slot = slot(name, Some(port));
    let spec = reader.service.source_ranges.join(",");
    if !spec.trim().is_empty() {
        return spec_ranges(reader, &spec, &slot);
    }
    let mut keys = vec![SOURCE_RANGES.to_owned()];
    keys.extend(reader.own_keys(name, Some(port)));
    let there = |key: &String| reader.service.annotations.contains_key(key);
    let strongest = keys.into_iter().find(there);
    match reader.first_valid(
        &knobs::SOURCE_RANGES,
        strongest.into_iter().collect(),
        &slot,
    ) {
        Lookup::Absent => Ranges::Open,
        Lookup::Value(found) => found.value.map_or(Ranges::Open, Ranges::Only),
        Lookup::Bad => {
            let message = format!(
                "port {} stays closed until its source ranges are valid",
                port.number
            );
            reader.warn(Reason::SyncLoadBalancerFailed, message);
            Ranges::Closed
        }
    }
}

fn spec_ranges(reader: &mut Reader<'_>, spec: &str, slot: &str) -> Ranges {
    const PLACE: &str = "spec.loadBalancerSourceRanges";
    let list = match reader.parse(&knobs::SOURCE_RANGES, spec) {
        Ok(list) => {
            let good = (PLACE.to_owned(), spec.to_owned());
            reader.memory.insert(slot.to_owned(), good);
            list
        }
        Err(why) => {
            let kept = reader.remembered(&knobs::SOURCE_RANGES, slot);
            let then = match kept {
                Some(_) => "the last good ranges stay",
                None => "the port stays closed",
            };
            let message = format!("{PLACE}: {} {why}; {then}", quoted(spec));
            reader.warn(Reason::InvalidAnnotation, message);
            let Some(kept) = kept else {
                return Ranges::Closed;
            };
            kept.value
        }
    };
    list.map_or(Ranges::Open, Ranges::Only)
}
