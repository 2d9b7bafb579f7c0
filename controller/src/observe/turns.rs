//! When a name may be looked up: at most so many lookups begin in a second, of all names and of those of one namespace. Used by
//! `names`.
//!
//! A lookup waits for its namespace first, and keeps that place while it waits for the node. So a namespace has at most one lookup
//! that waits for the node, and those of other namespaces come in turn, however many names it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select_all;
use tokio::time::{Instant, sleep_until};

/// Shared by the lookups of all names.
#[derive(Clone)]
pub(super) struct Turns {
    /// The time in which so many lookups may begin: a second, or less in tests.
    within: Duration,
    node: Arc<Lane>,
    namespaces: Arc<Mutex<Namespaces>>,
}

/// The namespaces with Services that wait for names.
#[derive(Default)]
struct Namespaces {
    of_name: BTreeMap<String, BTreeSet<String>>,
    lanes: BTreeMap<String, Arc<Lane>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self::within(SECOND)
    }
}

impl Turns {
    fn within(within: Duration) -> Self {
        Self {
            within,
            node: Arc::new(Lane::new(OF_NODE, within)),
            namespaces: Arc::default(),
        }
    }

    /// Replaces the namespaces whose Services have each name.
    pub(super) fn set_namespaces(&self, of_name: BTreeMap<String, BTreeSet<String>>) {
        let mut known = self.namespaces();
        if known.of_name == of_name {
            return;
        }
        let all: BTreeSet<&String> = of_name.values().flatten().collect();
        known.lanes.retain(|namespace, _| all.contains(namespace));
        for namespace in all {
            let lane = known.lanes.entry(namespace.clone());
            lane.or_insert_with(|| Arc::new(Lane::new(OF_NAMESPACE, self.within)));
        }
        known.of_name = of_name;
    }

    /// Returns when a lookup of this name may begin. It counts for one of the namespaces that have the name.
    pub(super) async fn turn(&self, name: &str) {
        let lanes = self.lanes(name);
        let waits = lanes.iter().map(|lane| Box::pin(lane.turn()));
        let waits: Vec<_> = waits.collect();
        let of_namespace = match waits.is_empty() {
            true => None,
            false => Some(select_all(waits).await.0),
        };
        let of_node = self.node.turn().await;
        for begun in of_namespace.into_iter().chain([of_node]) {
            begun.begin();
        }
    }

    fn lanes(&self, name: &str) -> Vec<Arc<Lane>> {
        let known = self.namespaces();
        let namespaces = known.of_name.get(name).into_iter().flatten();
        let lanes = namespaces.filter_map(|namespace| known.lanes.get(namespace));
        lanes.cloned().collect()
    }

    fn namespaces(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lookups of which at most so many begin within this time, in the order in which they ask.
struct Lane {
    most: usize,
    within: Duration,
    /// When the last ones began, at most [`Lane::most`] of them.
    begun: tokio::sync::Mutex<VecDeque<Instant>>,
}

/// The place of a lookup that may begin now.
struct Turn<'a> {
    most: usize,
    begun: tokio::sync::MutexGuard<'a, VecDeque<Instant>>,
}

impl Lane {
    fn new(most: usize, within: Duration) -> Self {
        Self {
            most,
            within,
            begun: tokio::sync::Mutex::default(),
        }
    }

    async fn turn(&self) -> Turn<'_> {
        let begun = self.begun.lock().await;
        if begun.len() >= self.most
            && let Some(first) = begun.front()
        {
            sleep_until(*first + self.within).await;
        }
        Turn {
            most: self.most,
            begun,
        }
    }
}

impl Turn<'_> {
    fn begin(mut self) {
        if self.begun.len() >= self.most {
            self.begun.pop_front();
        }
        self.begun.push_back(Instant::now());
    }
}

/// The most lookups in a second.
const OF_NODE: usize = 20;
/// The most lookups in a second for the Services of one namespace.
const OF_NAMESPACE: usize = 2;
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    /// The names of this many namespaces, with so many names each.
    fn asked(namespaces: usize, names: usize) -> BTreeMap<String, BTreeSet<String>> {
        let of_namespace = |space: usize| {
            (0..names).map(move |name| {
                let namespace = format!("n{space}");
                (format!("{name}.{namespace}"), BTreeSet::from([namespace]))
            })
        };
        (0..namespaces).flat_map(of_namespace).collect()
    }

    /// When the lookup of each name began, in order.
    async fn begun(of_name: BTreeMap<String, BTreeSet<String>>) -> Vec<(Instant, String)> {
        let turns = Turns::within(WITHIN);
        let names: Vec<String> = of_name.keys().cloned().collect();
        turns.set_namespaces(of_name);
        let turns = &turns;
        let all = names.into_iter().map(|name| async move {
            turns.turn(&name).await;
            (Instant::now(), name)
        });
        let mut all = join_all(all).await;
        all.sort();
        all
    }

    /// Within the time no more than this many began. The clock may stop between a turn and its note here.
    fn assert_at_most(most: usize, all: &[(Instant, String)]) {
        for pair in all.windows(2 * most + 1) {
            assert!(pair[2 * most].0 - pair[0].0 >= WITHIN, "{pair:?}");
        }
    }

    #[tokio::test]
    async fn two_lookups_of_a_namespace_begin_in_a_second() {
        let all = begun(asked(1, 9)).await;
        assert_at_most(OF_NAMESPACE, &all);
        assert!(all[8].0 - all[0].0 >= WITHIN * 3);
    }

    #[tokio::test]
    async fn twenty_lookups_of_a_node_begin_in_a_second() {
        let all = begun(asked(50, 2)).await;
        assert_at_most(OF_NODE, &all);
        assert!(all[99].0 - all[0].0 >= WITHIN * 3);
    }

    #[tokio::test]
    async fn a_namespace_with_many_names_delays_no_other() {
        let mut names = asked(1, 30);
        let one = |name: &str| (name.to_owned(), BTreeSet::from([name.to_owned()]));
        names.extend([one("x"), one("y")]);
        // A name that both have is looked up for the one that has room.
        let both = BTreeSet::from(["n0".to_owned(), "c".to_owned()]);
        names.insert("z".to_owned(), both);
        let all = begun(names).await;
        let of_others = ["x", "y", "z"];
        let mut first: Vec<&str> = all.iter().take(5).map(|(_, name)| &**name).collect();
        first.retain(|name| of_others.contains(name));
        assert_eq!(first.len(), 3, "{all:?}");
    }

    const WITHIN: Duration = Duration::from_millis(100);
}
