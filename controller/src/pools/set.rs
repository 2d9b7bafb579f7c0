//! All pools together: which of them has an address, and in which order a Service tries them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::ask::Ask;
use super::give::remaining;
use super::pool::{Pool, Problem, ProblemKind};
use super::range::{AddressRange, AddressSet, is_buggy};
use super::refusal::Refusal;
use super::taken::Held;
use crate::observe::Family;

/// Pools in the order of their age.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    entries: Vec<Entry>,
    /// The pool of each listed range, by family and first address. The ranges are disjoint.
    claims: BTreeMap<IpAddr, (AddressRange, usize)>,
}

/// A pool beside the others.
#[derive(Clone, Debug)]
pub struct Entry {
    pub pool: Pool,
    /// The addresses that it gives, without those of older pools and those in reserve.
    pub(super) gives: AddressSet,
    pub conflicts: Vec<Conflict>,
}

/// Listed addresses that this pool does not give, because an older one lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub range: AddressRange,
    /// The kind and the name of the older pool.
    pub with: String,
}

impl Pools {
    /// Of pools that overlap, the older one has the addresses.
    pub fn new(mut pools: Vec<Pool>) -> Self {
        pools.sort_by(|one, other| one.age().cmp(&other.age()));
        let mut all = Self::default();
        for pool in pools {
            let entry = all.beside_the_older(pool);
            all.entries.push(entry);
        }
        all
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The older pools first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Whether a Service is to have an address of a pool, or be refused one. It has none of a node then, unless settings say so.
    /// Requested addresses that no pool lists may be those of nodes.
    pub fn are_for(&self, ask: &Ask) -> bool {
        match (&*ask.pools, &*ask.requested) {
            ([], []) => !self.automatic(ask).concat().is_empty(),
            ([], requested) => requested.iter().any(|address| self.of(*address).is_some()),
            _ => !self.is_empty(),
        }
    }

    /// What a Service keeps of what it has.
    pub fn kept(&self, held: &Held, ask: &Ask) -> Option<Held> {
        remaining(self, held, ask)
    }

    /// The pool that lists an address, whether it gives it or not.
    pub fn of(&self, address: IpAddr) -> Option<&Entry> {
        let (_, (range, index)) = self.claims.range(..=address).next_back()?;
        let entry = self.entries.get(*index)?;
        range.contains(address).then_some(entry)
    }

    /// The pools of a name: one of each system at most.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Entry> + use<'_> {
        let mut found: Vec<&Entry> = self.iter().filter(|one| one.pool.name == name).collect();
        found.sort_by_key(|entry| entry.pool.source);
        found.into_iter()
    }

    /// The pools of which a Service may be given addresses, in groups of one rank: those that it names, or those that are pinned to
    /// it and then those for all.
    pub(super) fn candidates(&self, ask: &Ask) -> Result<Vec<Vec<&Entry>>, Refusal> {
        if ask.pools.is_empty() {
            return Ok(self.automatic(ask));
        }
        let named = ask.pools.iter().flat_map(|name| self.named(name));
        let (mut may, mut refused) = (Vec::new(), Vec::new());
        for entry in named {
            match entry.pool.is_for(ask) {
                Ok(()) => may.push(entry),
                Err(why) => refused.push(Refusal::NotForService(entry.pool.to_string(), why)),
            }
        }
        let known = || self.iter().map(|entry| entry.pool.name.clone()).collect();
        match (may.is_empty(), refused.into_iter().next()) {
            (false, _) => Ok(vec![may]),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::UnknownPool(ask.pools.clone(), known())),
        }
    }

    fn automatic(&self, ask: &Ask) -> Vec<Vec<&Entry>> {
        let entries = self.entries.iter();
        let mut found: Vec<&Entry> = entries
            .filter(|entry| entry.pool.auto_assign && entry.pool.is_for(ask).is_ok())
            .collect();
        // Pools of one priority stay in the order of their age.
        found.sort_by_key(|entry| (entry.pool.priority.is_none(), entry.pool.priority));
        let (pinned, others) = found.into_iter().partition(|entry| entry.pool.is_pinned());
        vec![pinned, others]
    }

    /// A pool with what the pools before it leave to it, and its claim on that.
    fn beside_the_older(&mut self, mut pool: Pool) -> Entry {
        let mut gives = AddressSet::default();
        let mut conflicts = Vec::new();
        for listed in std::mem::take(&mut pool.ranges) {
            let mut free = vec![listed.range];
            for (claimed, index) in self.claims_on(listed.range) {
                let older = self.entries.get(index).map(|entry| &entry.pool);
                free = free
                    .iter()
                    .flat_map(|range| range.without(claimed))
                    .collect();
                pool.problems
                    .push(overlap(&pool, &listed.at, &listed.text, claimed, older));
                conflicts.extend(older.and_then(|older| {
                    Some(Conflict {
                        range: claimed.common(listed.range)?,
                        with: older.to_string(),
                    })
                }));
            }
            for range in free {
                self.claims
                    .insert(range.first(), (range, self.entries.len()));
                let given = listed.given.and_then(|given| given.common(range));
                given.into_iter().for_each(|range| gives.add(range));
            }
            pool.ranges.push(listed);
        }
        for range in &pool.reserve {
            gives.remove(*range);
        }
        Entry {
            pool,
            gives,
            conflicts,
        }
    }

    /// The claims that have addresses of a range, each with its pool.
    fn claims_on(&self, range: AddressRange) -> Vec<(AddressRange, usize)> {
        let before = self.claims.range(..range.first()).next_back();
        let within = self.claims.range(range.first()..=range.last());
        let claims = before.into_iter().chain(within).map(|(_, claim)| *claim);
        claims
            .filter(|(claimed, _)| claimed.common(range).is_some())
            .collect()
    }
}

impl Entry {
    /// Whether it gives an address; if not, the reason.
    pub(super) fn gives(&self, address: IpAddr) -> Result<(), String> {
        let in_reserve = |range: &AddressRange| range.contains(address);
        if self.pool.reserve.iter().any(in_reserve) {
            return Err("is in its reserve".to_owned());
        }
        if !self.gives.contains(address) {
            return Err("is an end of a CIDR, which an ExternalIPPool does not give".to_owned());
        }
        match self.pool.avoid_buggy && is_buggy(address) {
            true => Err("ends with .0 or .255, which its avoidBuggyIPs leaves out".to_owned()),
            false => Ok(()),
        }
    }

    /// The smallest address of a family that is given and not taken, and that suits.
    pub(super) fn first_free(
        &self,
        family: Family,
        taken: &AddressSet,
        suits: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        self.gives
            .ranges()
            .filter(|range| range.family() == family)
            .find_map(|range| {
                let mut rest = Some(range);
                while let Some(free) = taken.first_outside(rest?) {
                    let first = free.first();
                    if !(self.pool.avoid_buggy && is_buggy(first)) && suits(first) {
                        return Some(first);
                    }
                    rest = free.without(AddressRange::of(free.first())).next();
                }
                None
            })
    }

    /// How many addresses it gives, taken or not.
    pub fn total(&self) -> u128 {
        self.gives
            .ranges()
            .fold(0, |sum, range| sum.saturating_add(self.count(range)))
    }

    /// How many of the addresses that it gives are in a set.
    pub(super) fn used(&self, taken: &AddressSet) -> u128 {
        let used = self.gives.ranges().flat_map(|range| taken.within(range));
        used.fold(0, |sum, range| sum.saturating_add(self.count(range)))
    }

    /// The older pools that have addresses of a family which this one lists, each once.
    pub(super) fn older(&self, family: Family) -> Vec<String> {
        let conflicts = self.conflicts.iter();
        let of_family = conflicts.filter(|one| one.range.family() == family);
        let older: BTreeSet<&String> = of_family.map(|one| &one.with).collect();
        older.into_iter().cloned().collect()
    }

    /// How many addresses of a family it gives, and how many of those are in a set.
    pub(super) fn count_of(&self, family: Family, taken: &AddressSet) -> (u128, u128) {
        let ranges = || self.gives.ranges().filter(|range| range.family() == family);
        let sum = |sum: u128, range| sum.saturating_add(self.count(range));
        let used = ranges().flat_map(|range| taken.within(range));
        (ranges().fold(0, sum), used.fold(0, sum))
    }

    fn count(&self, range: AddressRange) -> u128 {
        match self.pool.avoid_buggy {
            true => range.count() - range.count_buggy(),
            false => range.count(),
        }
    }
}

fn overlap(
    pool: &Pool,
    at: &str,
    text: &str,
    claimed: AddressRange,
    older: Option<&Pool>,
) -> Problem {
    let Some(older) = older else {
        return Problem {
            kind: ProblemKind::Overlap,
            at: at.to_owned(),
            text: format!(
                "{text:?} overlaps with already defined CIDR {claimed} of this pool, and counts once; take one of the two away"
            ),
        };
    };
    let (kind, why) = match older.source == pool.source {
        true => (ProblemKind::Overlap, "is older and has these addresses"),
        false => (
            ProblemKind::TwoSystems,
            "belongs to another system, is older and has these addresses",
        ),
    };
    Problem {
        kind,
        at: at.to_owned(),
        text: format!(
            "{text:?} overlaps with already defined CIDR {claimed} of {older}, which {why}; take them out of one of the two"
        ),
    }
}
