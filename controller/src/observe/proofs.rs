//! What the Leases of nodes prove: up to which version of Services a node serves them. Pure; used by `cluster`.
//!
//! A Lease may say a version that is newer than all that this process knows: its own watch lags behind the node's for a moment, or
//! the cluster was restored from a backup, and the node does not know that yet. So a node counts once it has said a version that
//! is known here; after a list that went back, every node has to say one again. A node that is ahead for a minute counts as well:
//! the newest change was a deletion, of which a list says nothing, and the watch of a node does not outlive a restoration for so long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Key, Lease, Service};
use crate::lease::Versions;

#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// The nodes that have said a version which is known here.
    in_step: BTreeSet<String>,
    /// Since when each other node says a version that is not known here.
    ahead: BTreeMap<String, Instant>,
    /// What each node proves. Decisions depend on it: it changes only where that makes a difference for a Service.
    proven: BTreeMap<String, Versions>,
}

impl Proofs {
    /// After a list that went back.
    pub(super) fn begin_anew(&mut self) {
        *self = Self::default();
    }

    /// Whether a newer known version may make a node count.
    pub(super) fn wait_for_versions(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Puts what each node proves in the place of what its Lease says.
    pub(super) fn apply(
        &mut self,
        live: &mut BTreeMap<String, Arc<Lease>>,
        known: &Versions,
        services: &BTreeMap<Key, Arc<Service>>,
        now: Instant,
    ) {
        self.in_step.retain(|node| live.contains_key(node));
        self.proven.retain(|node, _| live.contains_key(node));
        self.ahead.retain(|node, _| live.contains_key(node));
        if live.is_empty() {
            return;
        }
        let mut given: Vec<u64> = services
            .values()
            .map(|service| service.publication.allocated_at)
            .collect();
        given.sort_unstable();
        for (node, lease) in live {
            let said = &lease.served;
            if !self.in_step.contains(node) {
                let is_empty = *said == Versions::default();
                let since = *self.ahead.entry(node.clone()).or_insert(now);
                let is_known = said.are_known_to(known) || now >= since + AHEAD;
                if is_empty || !is_known {
                    Arc::make_mut(lease).served = Versions::default();
                    continue;
                }
                self.ahead.remove(node);
                self.in_step.insert(node.clone());
            }
            let proven = self.proven.entry(node.clone()).or_default();
            if is_news(proven, said, &given) {
                proven.clone_from(said);
            } else if proven != said {
                Arc::make_mut(lease).served = proven.clone();
            }
        }
    }
}

/// Whether some Service may be published by a Lease that could not be by what its node has proven. `given` is sorted.
fn is_news(proven: &Versions, said: &Versions, given: &[u64]) -> bool {
    if !proven.namespaces.is_empty() || !said.namespaces.is_empty() || said.all < proven.all {
        return true;
    }
    let next = given.partition_point(|version| *version <= proven.all);
    given.get(next).is_some_and(|version| *version <= said.all)
}

/// How long a node may be ahead of this process.
const AHEAD: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observed;

    /// Services that were given their ports at these versions.
    fn services(given: &[u64]) -> BTreeMap<Key, Arc<Service>> {
        let manifests = given.iter().map(|version| {
            format!("---\nkind: Service\nmetadata: {{name: s{version}, namespace: shop, resourceVersion: '{version}'}}\nspec: {{type: LoadBalancer, ports: [{{port: 80}}]}}\n")
        });
        Observed::of(&manifests.collect::<String>()).services
    }

    fn proven(proofs: &mut Proofs, said: &str, known: u64, given: &[u64]) -> u64 {
        proven_at(proofs, said, known, given, Instant::now())
    }

    fn proven_at(proofs: &mut Proofs, said: &str, known: u64, given: &[u64], now: Instant) -> u64 {
        let lease = Lease {
            served: Versions::read(said),
            ..Lease::default()
        };
        let mut live = BTreeMap::from([("lb1".to_owned(), Arc::new(lease))]);
        let known = Versions::read(&format!("rv={known}"));
        proofs.apply(&mut live, &known, &services(given), now);
        live["lb1"].served.all
    }

    #[test]
    fn a_node_that_is_ahead_of_this_process_counts_once_it_was_in_step() {
        let mut proofs = Proofs::default();
        assert_eq!(proven(&mut proofs, "rv=20", 10, &[5]), 0);
        assert_eq!(proven(&mut proofs, "rv=20", 20, &[5]), 20);
        assert_eq!(proven(&mut proofs, "rv=30", 25, &[5, 28]), 30);
        // The cluster was restored from a backup.
        proofs.begin_anew();
        assert_eq!(proven(&mut proofs, "rv=30", 12, &[5, 11]), 0);
        assert_eq!(proven(&mut proofs, "rv=12", 12, &[5, 11]), 12);
    }

    #[test]
    fn a_node_that_stays_ahead_counts_after_a_minute() {
        let mut proofs = Proofs::default();
        let begin = Instant::now();
        let mut at = |seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            proven_at(&mut proofs, "rv=20", 10, &[5], now)
        };
        assert_eq!([at(0), at(59), at(60), at(61)], [0, 0, 20, 20]);
    }

    #[test]
    fn a_newer_version_that_publishes_no_service_changes_nothing() {
        let mut proofs = Proofs::default();
        assert_eq!(proven(&mut proofs, "rv=10", 10, &[5]), 10);
        assert_eq!(proven(&mut proofs, "rv=15", 20, &[5]), 10);
        assert_eq!(proven(&mut proofs, "rv=19", 20, &[5, 20]), 10);
        assert_eq!(proven(&mut proofs, "rv=20", 20, &[5, 20]), 20);
        assert_eq!(
            proven(&mut proofs, "rv=18", 20, &[5, 20]),
            18,
            "a new process there"
        );
    }
}
