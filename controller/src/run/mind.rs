//! Decides anew whenever something else is seen, or told. Begun by [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

use crate::act::Decision;
use crate::decide::{About, Desired, Kind, Notice, Reason, decide};
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Remembered, Wanted};
use crate::settings::Settings;

/// The loop between seeing and acting.
pub(super) struct Mind {
    pub(super) observed: watch::Receiver<Option<Arc<Observed>>>,
    pub(super) settings: watch::Receiver<Arc<Settings>>,
    pub(super) want: watch::Sender<Wanted>,
    pub(super) decided: watch::Sender<Option<Decision>>,
    /// There is no cluster: notices go to the log alone.
    pub(super) is_alone: bool,
    pub(super) metrics: Arc<Metrics>,
}

impl Mind {
    /// Decides for as long as anything is seen.
    pub(super) async fn run(mut self) {
        let mut remembered = Remembered::new();
        let mut said = BTreeSet::new();
        let mut waiting = Waiting::default();
        loop {
            let seen = self.observed.borrow_and_update().clone();
            let mut again = None;
            let decision = match seen {
                Some(seen) => match self.decide(seen, &remembered).await {
                    Ok(decision) => Some(decision),
                    // It is logged and counted. The decision before stays in force until something changes.
                    Err(error) if error.is_panic() => None,
                    Err(_) => return,
                },
                None => None,
            };
            if let Some(decision) = decision {
                remembered.clone_from(&decision.desired.remembered);
                let wanted = decision.desired.wanted.clone();
                let missing = missing(&wanted, &decision.observed.looked_up);
                self.want.send_if_modified(|want| {
                    let is_new = *want != wanted;
                    *want = wanted;
                    is_new
                });
                let patience = match self.decided.borrow().is_some() {
                    true => SHORT_WAIT,
                    // What clients see must not change because this process began anew.
                    false => LONG_WAIT,
                };
                again = waiting.rest(missing, patience, Instant::now());
                if again.is_none() {
                    self.say(&decision.desired, &mut said);
                    self.decided.send_replace(Some(decision));
                }
            }
            let patience = async {
                match again {
                    Some(rest) => sleep(rest).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.observed.changed() => if changed.is_err() {
                    return;
                },
                changed = self.settings.changed() => if changed.is_err() {
                    return;
                },
                () = patience => {}
            }
        }
    }

    async fn decide(
        &mut self,
        seen: Arc<Observed>,
        remembered: &Remembered,
    ) -> Result<Decision, JoinError> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let remembered = remembered.clone();
        let table = self
            .decided
            .borrow()
            .as_ref()
            .and_then(|before| before.desired.table.clone());
        let begun = Instant::now();
        let decision = spawn_blocking(move || {
            let observed = match seen.remembered == remembered {
                true => seen,
                false => Arc::new(Observed {
                    remembered,
                    ..(*seen).clone()
                }),
            };
            let mut desired = decide(&observed, &settings);
            if desired.table == table {
                desired.table = table;
            }
            let desired = Arc::new(desired);
            Decision { observed, desired }
        });
        let decision = decision.await?;
        self.metrics.decided(begun.elapsed(), &decision.desired);
        Ok(decision)
    }

    /// Logs what is new; where there is a cluster, only what no event tells.
    fn say(&self, desired: &Desired, said: &mut BTreeSet<Notice>) {
        let told = |notice: &&Notice| {
            let is_no_event = self.is_alone || matches!(notice.about, About::Flag(_));
            is_no_event || notice.reason == Reason::LeftOut
        };
        let now: BTreeSet<Notice> = desired.notices.iter().filter(told).cloned().collect();
        for notice in now.difference(said) {
            match notice.kind {
                _ if notice.reason == Reason::LeftOut => tracing::error!("{notice}"),
                Kind::Warning => tracing::warn!("{notice}"),
                Kind::Normal => tracing::info!("{notice}"),
            }
        }
        *said = now;
    }
}

/// Whether all of it was looked up.
pub(super) fn is_looked_up(wanted: &Wanted, seen: &Observed) -> bool {
    missing(wanted, &seen.looked_up).is_empty()
}

/// What decisions wait for before they are acted upon: each thing that is wanted newly for a while, once. What never comes,
/// because a name server is dead or a Secret is answered by errors, holds up nobody again.
#[derive(Debug, Default)]
struct Waiting {
    /// What is missing, and since when.
    since: BTreeMap<Missing, Instant>,
    /// Since when a decision is held back.
    held: Option<Instant>,
}

/// Something that was not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    Secret(Key),
    Name(String),
    Grants(String),
}

fn missing(wanted: &Wanted, done: &Wanted) -> BTreeSet<Missing> {
    let secrets = wanted.secrets.difference(&done.secrets);
    let names = wanted.names.difference(&done.names);
    let grants = wanted.grants.difference(&done.grants);
    let secrets = secrets.cloned().map(Missing::Secret);
    let names = names.cloned().map(Missing::Name);
    let grants = grants.cloned().map(Missing::Grants);
    secrets.chain(names).chain(grants).collect()
}

impl Waiting {
    /// How long a decision that misses these must wait; `None`: no longer.
    fn rest(
        &mut self,
        missing: BTreeSet<Missing>,
        patience: Duration,
        now: Instant,
    ) -> Option<Duration> {
        self.since.retain(|one, _| missing.contains(one));
        for one in missing {
            self.since.entry(one).or_insert(now);
        }
        let last = self.since.values().max();
        let held = *self.held.get_or_insert(now);
        let rest = last.and_then(|since| {
            // Whoever wants something else every second holds up nobody for ever.
            let until = (*since + patience).min(held + patience * AT_MOST);
            let rest = until.saturating_duration_since(now);
            (!rest.is_zero()).then_some(rest)
        });
        if rest.is_none() {
            self.held = None;
        }
        rest
    }
}

/// Patiences in a row.
const AT_MOST: u32 = 3;
const SHORT_WAIT: Duration = Duration::from_secs(1);
const LONG_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// What is missing, by names, `millis` after the beginning; and how long to wait then.
    struct Case {
        begin: Instant,
        waiting: Waiting,
    }

    impl Case {
        fn new() -> Self {
            Self {
                begin: Instant::now(),
                waiting: Waiting::default(),
            }
        }

        fn rest(&mut self, millis: u64, names: &[&str]) -> Option<u64> {
            let missing = names.iter().map(|&name| Missing::Name(name.to_owned()));
            let now = self.begin + Duration::from_millis(millis);
            let rest = self.waiting.rest(missing.collect(), SHORT_WAIT, now)?;
            u64::try_from(rest.as_millis()).ok()
        }
    }

    #[test]
    fn what_is_wanted_newly_is_waited_for_once_and_never_again() {
        let mut case = Case::new();
        assert_eq!(case.rest(0, &[]), None);
        assert_eq!(case.rest(100, &["dead"]), Some(1000));
        assert_eq!(case.rest(600, &["dead"]), Some(500));
        assert_eq!(case.rest(1100, &["dead"]), None);
        assert_eq!(
            case.rest(1101, &["dead"]),
            None,
            "a change of somebody else's"
        );
        assert_eq!(case.rest(90_000, &["dead"]), None);
        assert_eq!(case.rest(90_100, &["dead", "new"]), Some(1000));
        assert_eq!(case.rest(90_200, &["dead"]), None, "the new one came");
    }

    #[test]
    fn what_was_not_wanted_meanwhile_is_new() {
        let mut case = Case::new();
        assert_eq!(case.rest(0, &["a"]), Some(1000));
        assert_eq!(case.rest(1000, &["a"]), None);
        assert_eq!(case.rest(2000, &[]), None);
        assert_eq!(case.rest(3000, &["a"]), Some(1000));
    }

    #[test]
    fn whoever_wants_something_else_all_the_time_holds_up_nobody_for_ever() {
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
    fn secrets_and_names_are_missing_until_they_were_looked_up() {
        let wanted = Wanted {
            secrets: BTreeSet::from([Key::new("a", "cert")]),
            names: BTreeSet::from(["db.example.com".to_owned()]),
            grants: BTreeSet::from(["a".to_owned()]),
        };
        assert_eq!(missing(&wanted, &Wanted::default()).len(), 3);
        assert_eq!(missing(&wanted, &wanted), BTreeSet::new());
    }
}
