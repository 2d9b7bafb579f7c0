//! The Services that wait for their lookups. Pure: the time is an argument. Used by [`crate::reconcile`].
//!
//! A Service that names a Secret or a host for the first time *waits* for the lookup once, for a limited time, and keeps its previous
//! form meanwhile, or is not served yet. No other Service waits. If the lookup fails until then (a dead name server, an API server that
//! answers with errors), the Service is released, and does not wait for the same lookup again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::observe::{Key, Observed, Service, Wanted};

/// The Services with unfinished lookups, whether they still wait or not.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeMap<Key, Wait>);

/// The unfinished lookups of one Service.
#[derive(Debug, Default)]
struct Wait {
    /// The time since which each lookup is missing.
    since: BTreeMap<Missing, Instant>,
    /// The time since which the Service waits.
    begun: Option<Instant>,
    /// The longest time for which it waits for one lookup.
    patience: Duration,
}

/// An unfinished lookup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    Secret(Key),
    Name(String),
    Grants(String),
    Nodes,
}

/// Whether all wanted lookups are done.
pub(crate) fn is_looked_up(wanted: &Wanted, observed: &Observed) -> bool {
    missing(wanted, &observed.looked_up).is_empty()
}

fn missing(wanted: &Wanted, done: &Wanted) -> BTreeSet<Missing> {
    let secrets = wanted.secrets.difference(&done.secrets);
    let names = wanted.names.difference(&done.names);
    let grants = wanted.grants.difference(&done.grants);
    let secrets = secrets.cloned().map(Missing::Secret);
    let names = names.cloned().map(Missing::Name);
    let grants = grants.cloned().map(Missing::Grants);
    let nodes = (wanted.nodes && !done.nodes).then_some(Missing::Nodes);
    secrets.chain(names).chain(grants).chain(nodes).collect()
}

impl Waiting {
    /// The Services of `wanted` that wait, and the time until the first of them is released. The state of other Services stays.
    pub(crate) fn of(
        &mut self,
        wanted: &BTreeMap<Key, Wanted>,
        observed: &Observed,
        patience: Duration,
        now: Instant,
    ) -> (BTreeSet<Key>, Option<Duration>) {
        self.0.retain(|key, _| observed.services.contains_key(key));
        let mut waiting = BTreeSet::new();
        let mut first: Option<Duration> = None;
        for (key, wanted) in wanted {
            let missing = missing(wanted, &observed.looked_up);
            if missing.is_empty() {
                self.0.remove(key);
                continue;
            }
            let wait = self.0.entry(key.clone()).or_insert(Wait {
                since: BTreeMap::new(),
                begun: None,
                patience,
            });
            if let Some(rest) = wait.rest(missing, now) {
                waiting.insert(key.clone());
                first = Some(first.map_or(rest, |first| first.min(rest)));
            }
        }
        (waiting, first)
    }
}

impl Wait {
    /// The time for which a Service with these unfinished lookups must still wait; `None`: it is released.
    fn rest(&mut self, missing: BTreeSet<Missing>, now: Instant) -> Option<Duration> {
        let patience = match missing.contains(&Missing::Nodes) {
            // Endpoints are not chosen while their nodes are unknown. Once all Nodes are watched, they stay so.
            true => self.patience.max(NODES_WAIT),
            false => self.patience,
        };
        self.since.retain(|one, _| missing.contains(one));
        for one in missing {
            self.since.entry(one).or_insert(now);
        }
        let last = self.since.values().max()?;
        let begun = *self.begun.get_or_insert(now);
        // A Service that wants another lookup every second must be released, too.
        let until = (*last + patience).min(begun + patience * AT_MOST);
        let rest = until.saturating_duration_since(now);
        if rest.is_zero() {
            self.begun = None;
            return None;
        }
        Some(rest)
    }
}

/// Replaces Services that wait by their form in `before`, and marks those that were not served then.
pub(crate) fn with_waiting(
    observed: Arc<Observed>,
    waiting: &BTreeSet<Key>,
    before: Option<&Observed>,
) -> Arc<Observed> {
    if waiting.is_empty() {
        return observed;
    }
    let mut observed = Observed::clone(&observed);
    for key in waiting {
        let old = before.and_then(|before| form(before, key));
        let Some(new) = observed.services.get_mut(key) else {
            continue;
        };
        match old.filter(|old| old.uid == new.uid) {
            Some(old) => *new = Arc::clone(old),
            None => {
                observed.waiting.insert(key.clone());
            }
        }
    }
    Arc::new(observed)
}

/// The form in which a Service was served, or left alone; `None`: it did not exist, or waited.
pub(crate) fn form<'a>(before: &'a Observed, key: &Key) -> Option<&'a Arc<Service>> {
    let form = before.services.get(key);
    form.filter(|_| !before.waiting.contains(key))
}

const NODES_WAIT: Duration = Duration::from_secs(10);
/// A Service waits for at most so many times the patience in a row.
const AT_MOST: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// One Service, and the time at which its test began.
    struct Case {
        begin: Instant,
        wait: Wait,
    }

    impl Case {
        fn new() -> Self {
            Self {
                begin: Instant::now(),
                wait: Wait {
                    since: BTreeMap::new(),
                    begun: None,
                    patience: PATIENCE,
                },
            }
        }

        fn rest(&mut self, millis: u64, names: &[&str]) -> Option<u64> {
            let missing = names.iter().map(|&name| Missing::Name(name.to_owned()));
            let now = self.begin + Duration::from_millis(millis);
            let rest = self.wait.rest(missing.collect(), now)?;
            u64::try_from(rest.as_millis()).ok()
        }
    }

    #[test]
    fn what_is_wanted_newly_is_waited_for_once_and_never_again() {
        let mut case = Case::new();
        assert_eq!(case.rest(100, &["dead"]), Some(1000));
        assert_eq!(case.rest(600, &["dead"]), Some(500));
        assert_eq!(case.rest(1100, &["dead"]), None);
        assert_eq!(case.rest(1101, &["dead"]), None, "another change");
        assert_eq!(case.rest(90_000, &["dead"]), None);
        assert_eq!(case.rest(90_100, &["dead", "new"]), Some(1000));
        assert_eq!(case.rest(90_200, &["dead"]), None, "the new one came");
    }

    #[test]
    fn a_service_that_wants_something_else_all_the_time_does_not_wait_for_ever() {
        let mut case = Case::new();
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let mut released = Vec::new();
        for (number, _) in names.iter().enumerate() {
            let wanted: Vec<&str> = names[..=number].iter().map(String::as_str).collect();
            let millis = u64::try_from(number).unwrap() * 900;
            if case.rest(millis, &wanted).is_none() {
                released.push(millis);
            }
        }
        assert_eq!(released, [3600, 8100]);
    }

    #[test]
    fn only_the_service_that_misses_something_waits_in_the_form_that_it_had() {
        let manifests = |port: u16| {
            let manifests = ["a", "b", "new"].map(|name| {
                format!("---\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{ports: [{{port: {port}}}]}}\n")
            });
            Observed::of(&manifests.concat())
        };
        let key = |name: &str| Key::new("shop", name);
        let mut before = manifests(80);
        before.services.remove(&key("new"));
        let seen = manifests(81);
        let wants = |name: &str| Wanted {
            secrets: BTreeSet::from([key(name)]),
            ..Wanted::default()
        };
        let wanted = BTreeMap::from([
            (key("a"), wants("cert")),
            (key("b"), Wanted::default()),
            (key("new"), wants("cert")),
        ]);
        let mut waiting = Waiting::default();
        let now = Instant::now();
        let (wait, rest) = waiting.of(&wanted, &seen, PATIENCE, now);
        assert_eq!(wait, BTreeSet::from([key("a"), key("new")]));
        assert_eq!(rest, Some(PATIENCE));
        let seen = Arc::new(seen);
        let with = with_waiting(Arc::clone(&seen), &wait, Some(&before));
        let ports = with
            .services
            .iter()
            .map(|(key, service)| (&*key.name, service.ports[0].number));
        assert_eq!(
            ports.collect::<Vec<_>>(),
            [("a", 80), ("b", 81), ("new", 81)]
        );
        assert_eq!(with.waiting, BTreeSet::from([key("new")]));

        // The state of a Service that is not in `wanted` stays, and the state of a deleted Service goes.
        let later = now + PATIENCE;
        assert_eq!(
            waiting.of(&BTreeMap::new(), &seen, PATIENCE, later),
            (BTreeSet::new(), None)
        );
        assert_eq!(
            waiting.of(&wanted, &seen, PATIENCE, later),
            (BTreeSet::new(), None)
        );
        waiting.of(&BTreeMap::new(), &Observed::default(), PATIENCE, later);
        assert_eq!(
            waiting.of(&wanted, &seen, PATIENCE, later).0,
            wait,
            "new ones of their names"
        );
    }

    #[test]
    fn everything_is_missing_until_it_was_looked_up() {
        let wanted = Wanted {
            secrets: BTreeSet::from([Key::new("a", "cert")]),
            names: BTreeSet::from(["db.example.com".to_owned()]),
            grants: BTreeSet::from(["a".to_owned()]),
            nodes: true,
        };
        assert_eq!(missing(&wanted, &Wanted::default()).len(), 4);
        assert_eq!(missing(&wanted, &wanted), BTreeSet::new());
    }
}
