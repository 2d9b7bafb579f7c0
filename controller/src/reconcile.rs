//! The reconcile loop of both roles: it decides after every change of the observed state or the settings, and sends each decision to
//! the tasks that act on it.
//!
//! The loop is paced: in the long run decisions take at most a quarter of one core.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use crate::clock;
use crate::decide::{About, Desired, Kind, Memo, Notice, Reason, decide_again, wanted_by};
use crate::leaving::Leaving;
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Remembered, Service, Wanted};
use crate::settings::{Role, Settings};
use crate::waiting::{self, Waiting, with_waiting};

/// A decision with its input.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) observed: Arc<Observed>,
    pub(crate) desired: Arc<Desired>,
    /// This node is no load balancer any more, and serves on for a while.
    pub(crate) is_leaving: bool,
}

/// The newest decision; `None` until everything was listed once.
pub(crate) type Decisions = watch::Receiver<Option<Decision>>;

pub(crate) struct Reconciler {
    pub(crate) observed: watch::Receiver<Option<Arc<Observed>>>,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) want: watch::Sender<Wanted>,
    pub(crate) decided: watch::Sender<Option<Decision>>,
    /// The Services that the table of an earlier process serves. Empty after the first decision.
    pub(crate) earlier: Arc<BTreeSet<Key>>,
    /// Whether notices go to the log, because no publisher writes events.
    pub(crate) logs_notices: bool,
    pub(crate) metrics: Arc<Metrics>,
}

/// What one pass leaves to the next.
#[derive(Debug, Default)]
struct Carried {
    waiting: Waiting,
    leaving: Leaving,
}

/// The result of one pass.
struct Outcome {
    /// `None`: the first decision waits for lookups.
    decision: Option<Decision>,
    want: Wanted,
    carried: Carried,
    /// The time until the first Service waits no longer, or this node stops serving.
    again: Option<Duration>,
    /// The processor time of the pass.
    took: Duration,
    /// Whether the decision before stands.
    is_of_before: bool,
}

impl Outcome {
    /// The decision before, for a state to which it applies too. The status writer needs that state: its versions say whether an
    /// answer to a write of its own is the newest state of a Service. A node's Lease says the versions.
    fn of_before(observed: Arc<Observed>, before: &Decision, carried: Carried) -> Self {
        let decision = Decision {
            observed,
            ..before.clone()
        };
        Self {
            want: decision.desired.wanted.clone(),
            decision: Some(decision),
            carried,
            again: None,
            took: Duration::ZERO,
            is_of_before: true,
        }
    }
}

impl Reconciler {
    /// Starts the loop on a thread of its own: its priority concerns no other task, and each decision is made in the memory that
    /// the one before has freed. The returned future ends with the loop.
    pub(crate) fn start(self) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let (end, ended) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("reconcile".to_owned())
            .spawn(move || {
                runtime.block_on(self.run());
                drop(end);
            })?;
        Ok(async { drop(ended.await) })
    }

    /// Decides until the observer ends.
    async fn run(mut self) {
        let mut remembered = Arc::<Remembered>::default();
        let mut logged = BTreeSet::new();
        let mut carried = Carried::default();
        let mut memo = Memo::default();
        let mut settings = None;
        loop {
            let observed = self.observed.borrow_and_update().clone();
            let mut again = None;
            let mut not_before = tokio::time::Instant::now() + SHORTEST_PAUSE;
            let outcome = observed.and_then(|seen| {
                let carried = mem::take(&mut carried);
                self.decide(seen, &remembered, carried, &mut memo, &mut settings)
            });
            if let Some(outcome) = outcome {
                carried = outcome.carried;
                again = outcome.again;
                not_before = tokio::time::Instant::now() + pause_after(outcome.took);
                self.want.send_if_modified(|want| {
                    let is_new = *want != outcome.want;
                    *want = outcome.want;
                    is_new
                });
                if let Some(decision) = outcome.decision {
                    self.log_gone(&decision);
                    self.earlier = Arc::default();
                    self.log_leaving(&decision);
                    self.log_silence(&decision);
                    remembered.clone_from(&decision.desired.remembered);
                    self.log_notices(&decision.desired, &mut logged);
                    self.decided.send_replace(Some(decision));
                }
            } else {
                // After a panic: the settings are to be decided about all the same.
                settings = None;
            }
            let patience = clock::pause(again);
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

    /// `None`: the pass panicked, which the panic hook logs and counts. The decision before stays in force until something changes.
    fn decide(
        &mut self,
        observed: Arc<Observed>,
        remembered: &Arc<Remembered>,
        carried: Carried,
        memo: &mut Memo,
        last_settings: &mut Option<Arc<Settings>>,
    ) -> Option<Outcome> {
        let settings = Arc::clone(&self.settings.borrow_and_update());
        let last = last_settings.replace(Arc::clone(&settings));
        let has_new_settings = last.is_none_or(|last| !Arc::ptr_eq(&last, &settings));
        let before = self.decided.borrow().clone();
        // The data plane has priority, but for the first table, without which it may serve nothing. Where a lower priority is not
        // permitted, both share the processor.
        if before.is_some() {
            _ = rustix::process::setpriority_process(None, NICE);
        }
        let begun = clock::of_thread();
        let pass = || {
            let observed = match observed.remembered == *remembered {
                true => observed,
                false => Arc::new(Observed {
                    remembered: Arc::clone(remembered),
                    ..(*observed).clone()
                }),
            };
            let may_stand = settings.role != Role::Whole && !has_new_settings;
            let stands = before.as_ref().filter(|before| {
                may_stand
                    && !before.is_leaving
                    && observed.differs_in_versions_alone(&before.observed)
            });
            match stands {
                Some(before) => Outcome::of_before(observed, before, carried),
                None => {
                    let before = before.as_ref();
                    reconcile(observed, &settings, before, &self.earlier, carried, memo)
                }
            }
        };
        let mut outcome = catch_unwind(AssertUnwindSafe(pass)).ok()?;
        outcome.took = clock::of_thread().saturating_sub(begun);
        if let Some(decision) = &outcome.decision
            && !outcome.is_of_before
        {
            self.metrics.decided(outcome.took, &decision.desired);
        }
        Some(outcome)
    }

    /// Logs the Services that the table of an earlier process serves, and that no manifest has now.
    fn log_gone(&self, decision: &Decision) {
        let is_gone = |key: &&Key| !decision.observed.services.contains_key(*key);
        let gone: Vec<String> = self
            .earlier
            .iter()
            .filter(is_gone)
            .map(Key::to_string)
            .collect();
        if self.logs_notices && !gone.is_empty() {
            tracing::warn!(
                services = gone.join(", "),
                "the last table serves Services that no manifest has any more; they are served no longer"
            );
        }
    }

    /// Logs that this node is no load balancer any more.
    fn log_leaving(&self, decision: &Decision) {
        let is_leaving = |before: &Decision| before.is_leaving;
        if decision.is_leaving && !self.decided.borrow().as_ref().is_some_and(is_leaving) {
            tracing::info!(
                "this node is no load balancer any more; it serves on for --shutdown-delay"
            );
        }
    }

    /// Counts the nodes whose Leases have lapsed, and logs that no node is heard of, or that one is again.
    fn log_silence(&self, decision: &Decision) {
        let silent = decision.observed.silent.len();
        self.metrics
            .silent_nodes
            .set(i64::try_from(silent).unwrap_or(i64::MAX));
        let is_silence = |decision: &Decision| {
            let live = decision.observed.leases.as_ref();
            !decision.observed.silent.is_empty() && live.is_some_and(BTreeMap::is_empty)
        };
        let before = self.decided.borrow().as_ref().is_some_and(is_silence);
        match (before, is_silence(decision)) {
            (false, true) => tracing::warn!(
                nodes = silent,
                "no load balancer node is heard of; what is published stays"
            ),
            (true, false) => tracing::info!("load balancer nodes are heard of again"),
            _ => {}
        }
    }

    /// Logs new notices; where a publisher writes events, only the notices that concern more than the owner of one Service.
    fn log_notices(&self, desired: &Desired, logged: &mut BTreeSet<Notice>) {
        let is_logged = |notice: &&Notice| {
            let is_no_event = self.logs_notices || matches!(notice.about, About::Flag(_));
            // These concern other Services, too.
            is_no_event
                || matches!(
                    notice.reason,
                    Reason::LeftOut
                        | Reason::RoutesWithdrawn
                        | Reason::SettingsDiffer
                        | Reason::TooLarge
                )
        };
        let all = desired.notices.iter().chain(&desired.report.notices);
        let now: BTreeSet<Notice> = all.filter(is_logged).cloned().collect();
        for notice in lines(&now, logged) {
            match notice.kind {
                _ if notice.reason == Reason::LeftOut => tracing::error!("{notice}"),
                Kind::Warning => tracing::warn!("{notice}"),
                Kind::Normal => tracing::info!("{notice}"),
            }
        }
        *logged = now;
    }
}

/// The notices of `now` that were not `logged`. The routes of a shared port that are withdrawn are one line, whichever Service has the
/// notice: that is always the newest one.
fn lines<'a>(
    now: &'a BTreeSet<Notice>,
    logged: &'a BTreeSet<Notice>,
) -> impl Iterator<Item = &'a Notice> {
    now.difference(logged).filter(|notice| {
        let is_same = |old: &Notice| (old.reason, &old.message) == (notice.reason, &notice.message);
        notice.reason != Reason::RoutesWithdrawn || !logged.iter().any(is_same)
    })
}

/// Decides. A new or changed Service whose lookups are not done keeps its form of `before` for a while; no other Service waits. But
/// the first decision waits for the lookups of Services that the table of an `earlier` process serves: a restart of this process must
/// not change what clients see.
fn reconcile(
    observed: Arc<Observed>,
    settings: &Settings,
    before: Option<&Decision>,
    earlier: &BTreeSet<Key>,
    mut carried: Carried,
    memo: &mut Memo,
) -> Outcome {
    let known = before.map(|before| &*before.observed);
    let (observed, leaves) = carried
        .leaving
        .hold(observed, known, settings, Instant::now());
    let is_new = |service: &&Arc<Service>| {
        let known = known.and_then(|known| waiting::form(known, &service.key));
        known != Some(service)
    };
    let new = observed.services.values().filter(is_new);
    let mut wanted = wanted_by(new, &observed, settings);
    let patience = match before {
        Some(_) => SHORT_WAIT,
        None => LONG_WAIT,
    };
    let (waiting, again) = carried
        .waiting
        .of(&wanted, &observed, patience, Instant::now());
    let mut want = Wanted::default();
    if before.is_none() && !waiting.is_disjoint(earlier) {
        wanted.into_values().for_each(|wanted| want.extend(wanted));
        return Outcome {
            decision: None,
            want,
            carried,
            again,
            took: Duration::ZERO,
            is_of_before: false,
        };
    }
    let observed = with_waiting(observed, &waiting, known);
    let mut desired = decide_again(memo, &observed, settings);
    let table = before.and_then(|before| before.desired.table.as_ref());
    if desired.table.as_ref() == table {
        desired.table = table.cloned();
    }
    want.clone_from(&desired.wanted);
    let of_waiting = waiting.iter().filter_map(|key| wanted.remove(key));
    of_waiting.for_each(|wanted| want.extend(wanted));
    Outcome {
        decision: Some(Decision {
            observed,
            desired: Arc::new(desired),
            is_leaving: leaves.is_some(),
        }),
        want,
        carried,
        again: again.into_iter().chain(leaves).min(),
        took: Duration::ZERO,
        is_of_before: false,
    }
}

/// The pause after a pass that took so long.
fn pause_after(took: Duration) -> Duration {
    (took * 3).max(SHORTEST_PAUSE)
}

/// The shortest pause between two decisions.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const NICE: i32 = 10;
const SHORT_WAIT: Duration = Duration::from_secs(1);
const LONG_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
