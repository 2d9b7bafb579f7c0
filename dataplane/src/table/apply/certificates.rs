//! Warns of certificates in the log: each warning once, and again only after something else was to be said.

use std::collections::HashSet;

use ballast_core::plan::Plan;

use crate::net::tls;

/// What was logged of certificates, and still holds.
#[derive(Debug, Default)]
pub(super) struct Warned(HashSet<String>);

impl Warned {
    /// Warns of what is new `now`, in seconds since 1970: a table, a file, or the time may have changed.
    pub(super) fn follow(&mut self, plan: &Plan, tls: &tls::Configs, now: u64) {
        let mut warned = HashSet::new();
        let mut new = 0;
        for frontend in plan.frontends() {
            for warning in tls.warnings(frontend.name(), now) {
                if warned.contains(&warning) {
                    continue;
                }
                if !self.0.contains(&warning) {
                    new += 1;
                    if new <= MAX_LINES {
                        tracing::warn!("{warning}");
                    }
                }
                warned.insert(warning);
            }
        }
        if new > MAX_LINES {
            let omitted = new - MAX_LINES;
            tracing::warn!(
                "... and {omitted} more certificates; /metrics and /api/snapshot have them all"
            );
        }
        self.0 = warned;
    }
}

/// The most lines at once.
const MAX_LINES: usize = 20;
