//! Decides anew whenever something else is seen, or told. Begun by [`super`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::act::Decision;
use crate::decide::{About, Desired, Kind, Notice, Reason, decide};
use crate::metrics::Metrics;
use crate::observe::{Observed, Remembered, Wanted};
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
        // Since when decisions wait for what they want to be looked up.
        let mut waits: Option<Instant> = None;
        loop {
            let seen = self.observed.borrow_and_update().clone();
            let mut again = None;
            if let Some(seen) = seen {
                let Some(decision) = self.decide(seen, &remembered).await else {
                    return;
                };
                remembered.clone_from(&decision.desired.remembered);
                let wanted = decision.desired.wanted.clone();
                let is_last_word = is_looked_up(&wanted, &decision.observed);
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
                let waited = waits.get_or_insert_with(Instant::now).elapsed();
                if is_last_word || waited >= patience {
                    waits = None;
                    self.say(&decision.desired, &mut said);
                    self.decided.send_replace(Some(decision));
                } else {
                    again = Some(patience - waited);
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

    async fn decide(&mut self, seen: Arc<Observed>, remembered: &Remembered) -> Option<Decision> {
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
        let decision = decision.await.ok()?;
        self.metrics.decided(begun.elapsed(), &decision.desired);
        Some(decision)
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
    let done = &seen.looked_up;
    wanted.secrets.is_subset(&done.secrets) && wanted.names.is_subset(&done.names)
}

const SHORT_WAIT: Duration = Duration::from_secs(1);
const LONG_WAIT: Duration = Duration::from_secs(10);
