//! What is kept of the counts of a frontend's routes and backends: what had been counted when the counters were cleared.

use std::collections::HashMap;
use std::sync::Arc;

use ballast_core::plan::{Frontend, RouteRecords, Tally};

use super::super::snapshot::{Choice, RouteStats};

/// The counts that were cleared, by the address of the tally. A tally that is held keeps its address for itself.
#[derive(Debug, Default)]
pub(super) struct Cleared(HashMap<usize, (Arc<Tally>, u64)>);

impl Cleared {
    /// Everything that was counted until now.
    pub(super) fn of(frontend: &Frontend) -> Self {
        let records = frontend.records().into_iter();
        let tallies = records.flat_map(|records| {
            let requests = records.requests().iter();
            requests.chain(records.choices().map(|(_, _, tally)| tally))
        });
        Self(
            tallies
                .map(|tally| (key(tally), (Arc::clone(tally), tally.sum())))
                .collect(),
        )
    }

    /// What was counted since.
    pub(super) fn stats(&self, records: &RouteRecords) -> RouteStats {
        let since = |tally: &Arc<Tally>| {
            let cleared = self.0.get(&key(tally)).map_or(0, |(_, count)| *count);
            tally.sum().saturating_sub(cleared)
        };
        let choices = records.choices();
        RouteStats {
            requests: records.requests().iter().map(since).collect(),
            choices: choices
                .map(|(route, service, tally)| Choice {
                    route: route.cloned(),
                    service: service.clone(),
                    count: since(tally),
                })
                .collect(),
        }
    }
}

fn key(tally: &Arc<Tally>) -> usize {
    Arc::as_ptr(tally).addr()
}
