//! The reconcile loop of both roles: what is observed is decided upon, and every decision goes to those that act on it.
//!
//! It is paced: in the long run deciding takes at most a quarter of one core, whatever changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, sleep_until};

use crate::clock;
use crate::decide::{About, Desired, Kind, Notice, Reason, decide};
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Remembered, Wanted};
use crate::settings::Settings;

/// What was observed, and what was decided upon it.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    /// What was observed.
    pub(crate) observed: Arc<Observed>,
    /// What must be.
    pub(crate) desired: Arc<Desired>,
}

/// The newest decision; none before everything was listed once.
pub(crate) type Decisions = watch::Receiver<Option<Decision>>;

/// The loop from observing to acting.
pub(crate) struct Reconciler {
    pub(crate) observed: watch::Receiver<Option<Arc<Observed>>>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) want: watch::Sender<Wanted>,
    pub(crate) decided: watch::Sender<Option<Decision>>,
    /// No publisher writes events: notices go to the log.
    pub(crate) logs_notices: bool,
    pub(crate) metrics: Arc<Metrics>,
}

impl Reconciler {
    /// Decides for as long as anything is observed.
    pub(crate) async fn run(mut self) {
        let mut remembered = Remembered::new();
        let mut said = BTreeSet::new();
        let mut waiting = Waiting::default();
        loop {
            let seen = self.observed.borrow_and_update().clone();
            let mut again = None;
            let mut not_before = tokio::time::Instant::now();
            if let Some(seen) = seen {
                let Some((decision, took)) = self.decide(seen, &remembered).await else {
                    return;
                };
                not_before = tokio::time::Instant::now() + pause_after(took);
                remembered.clone_from(&decision.desired.remembered);
                let wanted = decision.desired.wanted.clone();
                let missing = missing(&wanted, &decision.observed.looked_up);
                self.want.send_if_modified(|want| {
                    let is_new = *want != wanted;
                    *want = wanted;
                    is_new
                });
                let is_first = self.decided.borrow().is_none();
                let patience = match is_first || missing.contains(&Missing::Nodes) {
                    // What clients see must not change because this process began anew, or because it does not know the nodes that
                    // a Service chooses among. Once all Nodes are watched, they stay so.
                    true => LONG_WAIT,
                    false => SHORT_WAIT,
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
            sleep_until(not_before).await;
        }
    }

    /// A decision, and the processor time that it took.
    async fn decide(
        &mut self,
        seen: Arc<Observed>,
        remembered: &Remembered,
    ) -> Option<(Decision, Duration)> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let remembered = remembered.clone();
        let table = self
            .decided
            .borrow()
            .as_ref()
            .and_then(|before| before.desired.table.clone());
        let decision = spawn_blocking(move || {
            // Clients' connections come first. Where this is not permitted, they share the processor.
            _ = rustix::process::setpriority_process(None, NICE);
            let begun = clock::of_thread();
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
            let took = clock::of_thread().saturating_sub(begun);
            (Decision { observed, desired }, took)
        });
        let (decision, took) = decision.await.ok()?;
        self.metrics.decided(took, &decision.desired);
        Some((decision, took))
    }

    /// Logs what is new; where events tell people, only what no event tells.
    fn say(&self, desired: &Desired, said: &mut BTreeSet<Notice>) {
        let told = |notice: &&Notice| {
            let is_no_event = self.logs_notices || matches!(notice.about, About::Flag(_));
            is_no_event || notice.reason == Reason::LeftOut
        };
        let all = desired.notices.iter().chain(&desired.report.notices);
        let now: BTreeSet<Notice> = all.filter(told).cloned().collect();
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
pub(crate) fn is_looked_up(wanted: &Wanted, seen: &Observed) -> bool {
    missing(wanted, &seen.looked_up).is_empty()
}

/// What decisions wait for before they are acted upon: each thing that is wanted newly for a while, once. What never comes,
/// because a name server is dead or a Secret is answered by errors, delays no decision again.
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
    Nodes,
}

fn missing(wanted: &Wanted, done: &Wanted) -> BTreeSet<Missing> {
    let secrets = wanted.secrets.difference(&done.secrets);
    let names = wanted.names.difference(&done.names);
    let secrets = secrets.cloned().map(Missing::Secret);
    let nodes = (wanted.nodes && !done.nodes).then_some(Missing::Nodes);
    secrets
        .chain(names.cloned().map(Missing::Name))
        .chain(nodes)
        .collect()
}

/// How long to wait after a decision that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * 3).max(SHORTEST_PAUSE)
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
            // A Service that wants something else every second delays decisions for a bounded time.
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

/// Between two decisions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const NICE: i32 = 10;
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
    fn deciding_takes_at_most_a_quarter_of_a_core() {
        let at = Duration::from_millis;
        for (took, pause) in [(0, 50), (10, 50), (20, 60), (400, 1200)] {
            assert_eq!(pause_after(at(took)), at(pause), "{took} ms");
        }
    }

    #[test]
    fn secrets_and_names_are_missing_until_they_were_looked_up() {
        let wanted = Wanted {
            secrets: BTreeSet::from([Key::new("a", "cert")]),
            names: BTreeSet::from(["db.example.com".to_owned()]),
            nodes: true,
        };
        assert_eq!(missing(&wanted, &Wanted::default()).len(), 3);
        assert_eq!(missing(&wanted, &wanted), BTreeSet::new());
    }
}
