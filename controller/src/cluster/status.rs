//! Writes the part of Services that is ours: published addresses, condition, finalizer and annotations. Only the leader writes,
//! and only what differs.
//!
//! Every decision is compared with the newest known state of each Service: the observed one, or that of the API server's answer
//! to the last write until a newer one is observed. A Service that differs gets a pass of its own (`apply`), some Services at a
//! time. A pass that fails is made again later, and delays no other Service.

mod apply;
mod desired;
mod ip_mode;
mod managed;
mod rewrites;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::sleep;

pub(super) use self::apply::release;
use self::apply::{Pass, Passed};
pub(super) use self::desired::DesiredStatus;
use self::desired::IpMode;
use self::ip_mode::IpModeSearch;
use self::rewrites::Rewrites;
use super::events::{EventSender, Marks, NewEvent, Told};
use super::ip_mode::notices;
use super::leader::Leading;
use crate::clock;
use crate::decide::{About, Kind, Verdict};
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Service};
use crate::reconcile::{Decision, Decisions};
use crate::request;

/// The task that writes to Services.
pub(crate) struct StatusWriter {
    pub(crate) client: Client,
    pub(crate) decisions: Decisions,
    pub(crate) leading: Leading,
    pub(crate) events: EventSender,
    /// Whether Services get a finalizer.
    pub(crate) finalizer: bool,
    /// The suffix of the names that are published where the API server knows no `ipMode`.
    pub(crate) suffix: Option<String>,
    /// Whether the owners of Services must be told that it knows none.
    pub(crate) lacks_ip_mode: watch::Sender<Option<bool>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The state of one Service between passes.
#[derive(Debug, Default)]
struct Tracked {
    /// A Service with another UID is another Service.
    uid: String,
    /// The answer to the last write, until it or a newer state is observed.
    answer: Option<Arc<Service>>,
    rewrites: Rewrites,
    /// Whether the addresses are left to another controller for a while.
    yields: bool,
    failures: u32,
    /// The part that the API server refuses, and its reason.
    refused: Option<(DesiredStatus, String)>,
    /// No pass begins before this time.
    not_before: Duration,
    has_pass: bool,
    /// Whether this process has given it ports.
    gave: bool,
    /// Its place in the queue.
    queued: Option<Duration>,
}

/// The work of a process that leads.
#[derive(Default)]
struct Work {
    decision: Option<Decision>,
    /// When this process began to lead.
    leads_since: Option<Duration>,
    /// The annotations that say which events the owners of Services have.
    marks: Marks,
    tracked: BTreeMap<Key, Tracked>,
    /// The Services that need a pass, by time: one that changes all the time waits behind those that came meanwhile.
    queue: BTreeSet<(Duration, Key)>,
    passes: JoinSet<Passed>,
    /// The Service of each pass.
    passing: HashMap<task::Id, Key>,
    keeps_ip_mode: bool,
}

impl StatusWriter {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut work = Work::default();
        let mut search = IpModeSearch::default();
        loop {
            if !self.leading.is_now() {
                work.rest();
                search.rest();
                self.decisions.mark_unchanged();
            } else {
                if search.look(&self.client).await {
                    self.take_ip_mode(&mut work, &search);
                }
                let begins = *work.leads_since.get_or_insert_with(clock::now) + HANDOVER;
                if clock::now() < begins {
                    // What the leader before gave last may still be on its way here.
                    sleep(begins.saturating_sub(clock::now())).await;
                    continue;
                }
                if work.decision.is_none() || self.decisions.has_changed().unwrap_or(false) {
                    let decision = self.decisions.borrow_and_update().clone();
                    self.take_decision(&mut work, decision);
                }
                self.begin_passes(&mut work);
            }
            let next = work.queue.first().map(|(at, _)| *at);
            let next = next.filter(|_| work.passes.len() < AT_ONCE);
            let next = next.into_iter().chain(search.next_look()).min();
            let pause = async {
                match next {
                    Some(at) => sleep(at.saturating_sub(clock::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The next round takes the decision in.
                changed = self.decisions.changed() => match changed {
                    Ok(()) => self.decisions.mark_changed(),
                    Err(_) => return,
                },
                () = self.leading.changed() => {}
                Some(told) = self.events.told.recv() => self.take_told(&mut work, told),
                Some((key, passed)) = work.next_pass() => match passed {
                    Ok(passed) => {
                        let keeps_ip_mode = passed.keeps_ip_mode;
                        self.end_pass(&mut work, &key, passed);
                        if search.saw(keeps_ip_mode) {
                            self.take_ip_mode(&mut work, &search);
                        }
                    }
                    Err(error) => self.lose_pass(&mut work, &key, &error),
                },
                () = pause => {}
            }
        }
    }

    /// Takes in whether the API server keeps `ipMode`: everything is written, and told, in that light.
    fn take_ip_mode(&self, work: &mut Work, search: &IpModeSearch) {
        work.keeps_ip_mode = search.is_kept();
        self.lacks_ip_mode.send_if_modified(|lacks| {
            let now = Some(!work.keeps_ip_mode && self.suffix.is_none());
            std::mem::replace(lacks, now) != now
        });
        let decision = work.decision.take();
        self.take_decision(work, decision);
    }

    fn take_decision(&self, work: &mut Work, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let before = work.decision.replace(decision.clone());
        let services = &decision.observed.services;
        if let Some(before) = before
            && Arc::ptr_eq(&before.desired, &decision.desired)
        {
            // Only versions of Services differ.
            for (key, service) in services {
                let known = before.observed.services.get(key);
                if known.is_none_or(|known| !Arc::ptr_eq(known, service)) {
                    self.compare(work, key);
                }
            }
            return;
        }
        let is_there = |key: &Key| services.contains_key(key);
        work.tracked
            .retain(|key, tracked| tracked.has_pass || is_there(key));
        work.queue.retain(|(_, key)| is_there(key));
        let lacks_ip_mode = self.lacks_ip_mode.borrow().unwrap_or(false);
        let notices = notices(&decision, lacks_ip_mode);
        work.marks.stand(&notices, &decision.observed);
        for status in &decision.desired.statuses {
            self.compare(work, &status.service);
        }
    }

    /// Takes in that a warning about a Service was written: its annotation says so from now on.
    fn take_told(&self, work: &mut Work, told: Told) {
        let key = told.service.clone();
        work.marks.add(told);
        self.compare(work, &key);
    }

    /// Queues a Service for a pass if it is not as it must be.
    fn compare(&self, work: &mut Work, key: &Key) {
        let Some((desired, service)) = self.desired(work, key) else {
            work.leave_queue(key);
            return;
        };
        let tracked = work.tracked.entry(key.clone()).or_default();
        if tracked.has_pass {
            return;
        }
        tracked.uid.clone_from(&service.uid);
        tracked.gave |= desired.gives();
        if desired.is_in(&service) {
            tracked.rewrites.written(&desired.places());
            tracked.settle();
            work.leave_queue(key);
            return;
        }
        if tracked
            .refused
            .take_if(|(refused, _)| *refused != desired)
            .is_some()
        {
            // The long pause is for the part that was refused; this is another one.
            tracked.settle();
        }
        if desired.verdict == Verdict::Released && std::mem::take(&mut tracked.yields) {
            // The end of the publication waits for no other controller.
            tracked.not_before = Duration::ZERO;
        }
        let now = clock::now();
        let soonest = match desired.lacks_marks_alone(&service) {
            // Other events of the Service may be written meanwhile, and then it is one write for all of them.
            true => now + MARKS_PAUSE,
            false => now,
        };
        // One that is in the queue keeps its place.
        let at = tracked.not_before.max(soonest);
        let at = tracked.queued.map_or(at, |queued| queued.min(at));
        work.leave_queue(key);
        work.enter_queue(key, at);
    }

    /// The part of a Service that must be, and the newest known state of the Service.
    fn desired(&self, work: &mut Work, key: &Key) -> Option<(DesiredStatus, Arc<Service>)> {
        let decision = work.decision.as_ref()?;
        let statuses = &decision.desired.statuses;
        let found = statuses.binary_search_by(|status| status.service.cmp(key));
        let status = statuses.get(found.ok()?)?;
        let observed = decision.observed.services.get(key)?;
        let service = match work.tracked.get_mut(key) {
            Some(tracked) => tracked.newest(observed),
            None => Arc::clone(observed),
        };
        if service.allocated != observed.allocated {
            // The decision knows nothing of the last write, and might take back what that gave.
            return None;
        }
        let mode = match work.keeps_ip_mode {
            true => IpMode::Kept,
            false => IpMode::Dropped(self.suffix.as_deref()),
        };
        let told = work.marks.of(&service);
        let gave = work.tracked.get(key).is_some_and(|tracked| tracked.gave);
        let finalizer = self.finalizer;
        let desired = DesiredStatus::of(status, &service, told, gave, finalizer, mode)?;
        Some((desired, service))
    }

    /// Begins the passes that may begin now.
    fn begin_passes(&self, work: &mut Work) {
        let now = clock::now();
        while work.passes.len() < AT_ONCE
            && let Some((at, key)) = work.queue.first().cloned()
            && at <= now
        {
            work.leave_queue(&key);
            let Some((desired, service)) = self.desired(work, &key) else {
                continue;
            };
            let observed = work.decision.as_ref().map(|decision| &decision.observed);
            let nodes = observed.map_or_else(BTreeMap::new, |observed| nodes(&desired, observed));
            let tracked = work.tracked.entry(key.clone()).or_default();
            tracked.has_pass = true;
            tracked.uid.clone_from(&service.uid);
            let pass = Pass {
                client: self.client.clone(),
                leading: self.leading.clone(),
                service,
                desired,
                rewrites: tracked.rewrites.clone(),
                nodes,
                metrics: Arc::clone(&self.metrics),
            };
            work.begin_pass(key, pass.run());
        }
    }

    /// A pass has panicked: a bug, over this Service alone. The Service gets another pass later, and all others go on.
    fn lose_pass(&self, work: &mut Work, key: &Key, error: &JoinError) {
        tracing::warn!(%error, service = %key, "cannot write a Service; trying again");
        let Some(tracked) = work.tracked.get_mut(key) else {
            return;
        };
        tracked.has_pass = false;
        tracked.fail(FIRST_PAUSE, LONGEST_PAUSE);
        self.compare(work, key);
    }

    fn end_pass(&self, work: &mut Work, key: &Key, passed: Passed) {
        for event in passed.events {
            self.events.send(event);
        }
        let Some(tracked) = work.tracked.get_mut(key) else {
            return;
        };
        tracked.has_pass = false;
        tracked.rewrites = passed.rewrites;
        let is_written = passed.desired.is_in(&passed.service);
        tracked.answer = Some(passed.service);
        tracked.yields = false;
        match passed.result {
            Ok(Some(until)) => {
                tracked.yields = true;
                tracked.not_before = until;
            }
            Ok(None) if is_written => tracked.settle(),
            // The API server has made something else of it.
            Ok(None) => tracked.fail(FIRST_PAUSE, LONGEST_PAUSE),
            Err(error) => self.take_error(key, tracked, &error, passed.desired),
        }
        // The decision, or the Service itself, may be another one meanwhile.
        self.compare(work, key);
    }

    fn take_error(
        &self,
        key: &Key,
        tracked: &mut Tracked,
        error: &kube::Error,
        desired: DesiredStatus,
    ) {
        if !request::is_outdated(error) {
            self.metrics.api_failed(error);
            tracing::warn!(%error, service = %key, "cannot write a Service; trying again");
        }
        let Some(why) = request::refusal(error) else {
            tracked.fail(FIRST_PAUSE, LONGEST_PAUSE);
            return;
        };
        let before = tracked.refused.replace((desired, why.clone()));
        if before.is_none() {
            tracked.failures = 0;
        }
        tracked.fail(REFUSED_PAUSE, LONGEST_REFUSED_PAUSE);
        if before.is_none_or(|(_, before)| before != why) {
            self.events.send(refused(key, &tracked.uid, &why));
        }
    }
}

impl Work {
    /// This process leads no more. When it leads again it looks at everything anew; it remembers the rewrites of other
    /// controllers, and what it told.
    fn rest(&mut self) {
        for tracked in self.tracked.values_mut() {
            *tracked = Tracked {
                uid: std::mem::take(&mut tracked.uid),
                rewrites: std::mem::take(&mut tracked.rewrites),
                ..Tracked::default()
            };
        }
        *self = Self {
            tracked: std::mem::take(&mut self.tracked),
            marks: std::mem::take(&mut self.marks),
            ..Self::default()
        };
    }

    fn begin_pass(&mut self, key: Key, pass: impl Future<Output = Passed> + Send + 'static) {
        let task = self.passes.spawn(pass);
        self.passing.insert(task.id(), key);
    }

    /// The next pass that ends, and its Service. `None`: there is no pass.
    async fn next_pass(&mut self) -> Option<(Key, Result<Passed, JoinError>)> {
        let (task, passed) = match self.passes.join_next_with_id().await? {
            Ok((task, passed)) => (task, Ok(passed)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.passing.remove(&task)?, passed))
    }

    fn enter_queue(&mut self, key: &Key, at: Duration) {
        if let Some(tracked) = self.tracked.get_mut(key) {
            tracked.queued = Some(at);
            self.queue.insert((at, key.clone()));
        }
    }

    fn leave_queue(&mut self, key: &Key) {
        let tracked = self.tracked.get_mut(key);
        if let Some(at) = tracked.and_then(|tracked| tracked.queued.take()) {
            self.queue.remove(&(at, key.clone()));
        }
    }
}

impl Tracked {
    /// The newest known state of the Service.
    fn newest(&mut self, observed: &Arc<Service>) -> Arc<Service> {
        if self.uid != observed.uid && !self.has_pass {
            *self = Self {
                uid: observed.uid.clone(),
                queued: self.queued,
                ..Self::default()
            };
        }
        let version = observed.publication.version;
        let is_newer = |answer: &Arc<Service>| answer.publication.version > version;
        match self.answer.take_if(|answer| !is_newer(answer)) {
            Some(_) => Arc::clone(observed),
            None => Arc::clone(self.answer.as_ref().unwrap_or(observed)),
        }
    }

    fn settle(&mut self) {
        self.failures = 0;
        self.refused = None;
        self.not_before = Duration::ZERO;
    }

    fn fail(&mut self, first_pause: Duration, longest: Duration) {
        self.failures = self.failures.saturating_add(1);
        let pause = first_pause * 2_u32.pow(self.failures.min(9) - 1);
        self.not_before = clock::now() + pause.min(longest);
    }
}

/// The event of a Service that the API server does not take as it must be.
fn refused(key: &Key, uid: &str, why: &str) -> NewEvent {
    let message =
        format!("Error syncing load balancer: the API server refuses what is to be written: {why}");
    let about = About::Service(key.clone());
    NewEvent::new(about, uid, Kind::Warning, "SyncLoadBalancerFailed", message)
}

/// The nodes that hold the addresses that are published, by address.
fn nodes(desired: &DesiredStatus, observed: &Observed) -> BTreeMap<String, String> {
    let places = desired.places();
    let mut nodes = BTreeMap::new();
    for node in observed.nodes.values() {
        for address in node.external.iter().chain(&node.internal) {
            let address = address.to_string();
            if places.contains(&address.as_str()) {
                nodes.entry(address).or_insert_with(|| node.name.clone());
            }
        }
    }
    nodes
}

/// The time within which a watch shows what another process wrote before. A new leader gives nothing earlier.
const HANDOVER: Duration = Duration::from_millis(500);
/// Passes at the same time.
const AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The time for which a Service waits that differs in the annotation about its events alone.
const MARKS_PAUSE: Duration = Duration::from_secs(1);
/// The API server will hardly take soon what it has refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
