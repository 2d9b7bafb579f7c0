//! The status of each pool: how many addresses it has, how many are used, and its mistakes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

use super::pool::Problem;
use super::set::{Conflict, Entry, Pools};
use super::taken::Taken;
use crate::observe::Key;

/// The status of a pool, as an AddressPool has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// The addresses that it gives.
    #[serde(serialize_with = "capped")]
    pub total: u128,
    /// Those of them that a Service or a reservation has.
    #[serde(serialize_with = "capped")]
    pub used: u128,
    #[serde(serialize_with = "capped")]
    pub free: u128,
    /// Listed ranges that an older pool has, each with that pool; the first ones.
    pub conflicts: Vec<String>,
    pub conditions: Vec<Condition>,
}

/// A condition without the time of its last change, which depends on the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(serialize_with = "word")]
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    /// Whether it says that something is to be done.
    pub fn is_wrong(&self) -> bool {
        self.status == (self.kind == RANGES_IN_USE)
    }
}

impl Pools {
    /// Each pool with its status.
    pub fn statuses(&self, taken: &Taken) -> Vec<(&Entry, PoolStatus)> {
        let mut kept: BTreeMap<&str, Vec<(IpAddr, &Key)>> = BTreeMap::new();
        for (service, held) in taken.iter() {
            for address in &held.addresses {
                let owner = self
                    .of(*address)
                    .filter(|entry| entry.gives(*address).is_ok());
                if owner.is_none_or(|entry| entry.pool.name != held.pool) {
                    kept.entry(&held.pool)
                        .or_default()
                        .push((*address, service));
                }
            }
        }
        let mut foreign: BTreeMap<(&str, _), Vec<(IpAddr, &Key)>> = BTreeMap::new();
        for (address, service) in taken.of_other_systems() {
            if let Some(entry) = self.of(address) {
                let pool = (&*entry.pool.name, entry.pool.source);
                foreign.entry(pool).or_default().push((address, service));
            }
        }
        let status = |entry: &Entry| {
            let name = &*entry.pool.name;
            let foreign = foreign.get(&(name, entry.pool.source));
            let kept = kept.get(name).filter(|_| {
                let first = self.named(name).next();
                first.is_some_and(|first| first.pool.source == entry.pool.source)
            });
            let of = |list: Option<&Vec<_>>| list.map_or(Vec::new(), Clone::clone);
            entry.status(taken, &of(kept), &of(foreign))
        };
        self.iter().map(|entry| (entry, status(entry))).collect()
    }
}

impl Entry {
    fn status(
        &self,
        taken: &Taken,
        kept: &[(IpAddr, &Key)],
        foreign: &[(IpAddr, &Key)],
    ) -> PoolStatus {
        let (total, used) = (self.total(), self.used(taken.addresses()));
        let conflict = |one: &Conflict| format!("{} of {}", one.range, one.with);
        PoolStatus {
            total,
            used,
            free: total - used.min(total),
            conflicts: self.conflicts.iter().take(SHOWN).map(conflict).collect(),
            conditions: vec![
                self.ready(total),
                self.valid(foreign),
                Condition {
                    kind: RANGES_IN_USE,
                    status: !kept.is_empty(),
                    reason: match kept.is_empty() {
                        true => "NoneTakenAway",
                        false => "RangesInUse",
                    },
                    message: match kept.is_empty() {
                        true => String::new(),
                        false => format!(
                            "Services keep addresses that the pool does not give any more: {}; add them again, or make these Services anew",
                            shown(
                                kept.iter()
                                    .map(|(address, service)| format!("{address} ({service})"))
                            )
                        ),
                    },
                },
            ],
        }
    }

    /// Whether there is anything to give, used or not.
    fn ready(&self, total: u128) -> Condition {
        let (status, reason, message) = match (total, self.pool.problems.first()) {
            (1.., _) => (true, "Ready", String::new()),
            (0, Some(first)) => (false, first.kind.word(), shown(self.pool.problems.iter().map(Problem::to_string))),
            (0, None) => (
                false,
                "NoRanges",
                "the ranges have no address that may be given (reserve, avoidBuggyIPs, ends of a CIDR); add a larger range".to_owned(),
            ),
        };
        Condition {
            kind: "Ready",
            status,
            reason,
            message,
        }
    }

    /// Whether everything that the object says is in effect.
    fn valid(&self, foreign: &[(IpAddr, &Key)]) -> Condition {
        let mut texts: Vec<String> = self.pool.problems.iter().map(Problem::to_string).collect();
        let mut reason = self.pool.problems.first().map(|first| first.kind.word());
        if !foreign.is_empty() {
            reason = reason.or(Some("TwoSystems"));
            let addresses = shown(
                foreign
                    .iter()
                    .map(|(address, service)| format!("{address} ({service})")),
            );
            texts.insert(0, format!("another system gave addresses of this pool to Services: {addresses}; let one system alone give from it"));
        }
        Condition {
            kind: "Valid",
            status: reason.is_none(),
            reason: reason.unwrap_or("Valid"),
            message: shown(texts.into_iter()),
        }
    }
}

/// The first ones, and how many more there are.
pub(super) fn shown(mut texts: impl ExactSizeIterator<Item = String>) -> String {
    let first: Vec<String> = texts.by_ref().take(SHOWN).collect();
    match texts.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A schema's integer has 63 bits.
fn capped<S: Serializer>(number: &u128, sink: S) -> Result<S::Ok, S::Error> {
    sink.serialize_i64(i64::try_from(*number).unwrap_or(i64::MAX))
}

fn word<S: Serializer>(status: &bool, sink: S) -> Result<S::Ok, S::Error> {
    sink.serialize_str(match status {
        true => "True",
        false => "False",
    })
}

const RANGES_IN_USE: &str = "RangesInUse";
const SHOWN: usize = 8;
