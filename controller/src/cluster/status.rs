//! Writes the part of Services that is ours: published addresses, condition, finalizer and annotations. Only the leader writes,
//! and only what differs.
//!
//! Every decision is compared with the newest known state of each Service: the observed one, or that of the API server's answer
//! to the last write until a newer one is observed. A Service that differs gets a pass of its own (`apply`), some Services at a
//! time. A pass that fails is made again later, and delays no other Service.

mod apply;
mod desired;
mod growth;
mod rewrites;
mod unseen;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::{self, JoinError, JoinSet};

pub(super) use self::apply::release;
use self::apply::{Pass, Passed};
pub(super) use self::desired::DesiredStatus;
use self::growth::Growth;
use self::rewrites::Rewrites;
use self::unseen::Unseen;
use super::events::{EventSender, NewEvent};
use super::handover;
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
    /// The namespaces of the Services that are watched; `None`: all namespaces.
    pub(crate) namespaces: Vec<Option<String>>,
    /// The namespace of this installation, which no other one has.
    pub(crate) own_namespace: String,
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
    growth: Growth,
    /// Whether the addresses are left to another controller for a while.
    yields: bool,
    failures: u32,
    /// The part that the API server refuses, and its reason.
    refused: Option<Box<(DesiredStatus, String)>>,
    /// No pass begins before this time.
    not_before: Duration,
    has_pass: bool,
    /// Its place in the queue.
    queued: Option<Duration>,
}

/// The work of a process that leads.
#[derive(Default)]
struct Work {
    decision: Option<Decision>,
    /// Whether this process has seen what the leader before wrote.
    has_caught_up: bool,
    tracked: BTreeMap<Key, Tracked>,
    /// The Services that need a pass, by time: one that changes all the time waits behind those that came meanwhile.
    queue: BTreeSet<(Duration, Key)>,
    /// Whether the next pass is for the Service that came last.
    takes_newest: bool,
    unseen: Unseen,
    /// The Services that the decision gives something, while it does not know of what others were given.
    held: BTreeSet<Key>,
    passes: JoinSet<Passed>,
    /// The Service of each pass.
    passing: HashMap<task::Id, Key>,
    /// Whether the API server was last seen to drop `ipMode`, as those before 1.30 do: the field is left out then.
    drops_ip_mode: bool,
}

impl StatusWriter {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut work = Work::default();
        // What this process waits for before it gives anything.
        let mut handover = JoinSet::new();
        loop {
            if !self.leading.is_now() {
                work.rest();
                handover = JoinSet::new();
                self.decisions.mark_unchanged();
            } else if !work.has_caught_up {
                self.catch_up(&mut handover);
            } else {
                if work.decision.is_none() || self.decisions.has_changed().unwrap_or(false) {
                    let decision = self.decisions.borrow_and_update().clone();
                    self.take_decision(&mut work, decision);
                }
                // Decisions may be rare, and no write holds the others for longer than it may.
                if work.unseen.expire(clock::now()) {
                    self.compare_held(&mut work);
                }
                self.begin_passes(&mut work);
            }
            let next = work.queue.first().map(|(at, _)| *at);
            let next = next.filter(|_| work.passes.len() < AT_ONCE);
            let next = next.into_iter().chain(work.unseen.deadline()).min();
            let pause = clock::pause_until(next);
            tokio::select! {
                // The next round takes the decision in.
                changed = self.decisions.changed(), if handover.is_empty() => match changed {
                    Ok(()) => self.decisions.mark_changed(),
                    Err(_) => return,
                },
                () = self.leading.changed() => {}
                Some(ended) = handover.join_next() => work.has_caught_up = ended.is_ok(),
                Some((key, passed)) = work.next_pass() => match passed {
                    Ok(passed) => self.end_pass(&mut work, &key, passed),
                    Err(error) => self.lose_pass(&mut work, &key, &error),
                },
                () = pause => {}
            }
        }
    }

    /// Begins to wait until everything is seen that the leader before has given.
    fn catch_up(&self, handover: &mut JoinSet<()>) {
        if handover.is_empty() {
            let (client, decisions) = (self.client.clone(), self.decisions.clone());
            let caught_up = handover::caught_up(client, self.namespaces.clone(), decisions);
            handover.spawn(caught_up);
        }
    }

    fn take_decision(&self, work: &mut Work, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let before = work.decision.replace(decision.clone());
        let services = &decision.observed.services;
        let is_there = |key: &Key| services.contains_key(key);
        work.tracked
            .retain(|key, tracked| tracked.has_pass || is_there(key));
        work.queue.retain(|(_, key)| is_there(key));
        work.unseen.observe(services, clock::now());
        let mut known = before
            .iter()
            .flat_map(|one| &one.desired.statuses)
            .peekable();
        for status in &decision.desired.statuses {
            let key = &status.service;
            while known.next_if(|known| known.service < *key).is_some() {}
            let is_same = known.next_if(|known| *known == status).is_some()
                && before.as_ref().is_some_and(|before| {
                    let known = before.observed.services.get(key);
                    let now = services.get(key);
                    known.map(Arc::as_ptr) == now.map(Arc::as_ptr)
                });
            // One that was compared already, and is the same, is where it was: settled, in the queue, or in a pass.
            if !is_same {
                self.compare(work, key);
            }
        }
        self.compare_held(work);
    }

    /// Queues the Services that waited for a decision which knows of the last writes.
    fn compare_held(&self, work: &mut Work) {
        for key in std::mem::take(&mut work.held) {
            self.compare(work, &key);
        }
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
        if desired.is_in(&service) {
            tracked.rewrites.written(&desired.places());
            tracked.rewrites.left(&service.publication);
            tracked.settle();
            work.leave_queue(key);
            return;
        }
        if tracked
            .refused
            .take_if(|refused| refused.0 != desired)
            .is_some()
        {
            // The long pause is for the part that was refused; this is another one.
            tracked.settle();
        }
        if desired.verdict == Verdict::Released && std::mem::take(&mut tracked.yields) {
            // The end of the publication waits for no other controller.
            tracked.not_before = Duration::ZERO;
        }
        // One that is in the queue keeps its place.
        let mut at = tracked.not_before.max(clock::now());
        if desired.only_grows(&service) {
            at = at.max(tracked.growth.due());
        }
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
        let has_ip_mode = !work.drops_ip_mode;
        let desired = DesiredStatus::of(
            status,
            &service,
            &self.own_namespace,
            self.finalizer,
            has_ip_mode,
        )?;
        Some((desired, service))
    }

    /// Begins the passes that may begin now.
    fn begin_passes(&self, work: &mut Work) {
        let now = clock::now();
        while work.passes.len() < AT_ONCE
            && let Some(key) = work.take_from_queue(now)
        {
            let Some((desired, service)) = self.desired(work, &key) else {
                continue;
            };
            let Some(decision) = &work.decision else {
                continue;
            };
            let nodes = nodes(&desired, &decision.observed);
            if let Some(given) = desired.gives(&service) {
                if !work.unseen.agree_with(&decision.desired.statuses, &key) {
                    work.held.insert(key);
                    continue;
                }
                work.unseen.begin(key.clone(), given.clone(), now);
            }
            let tracked = work.tracked.entry(key.clone()).or_default();
            tracked.has_pass = true;
            tracked.uid.clone_from(&service.uid);
            if desired.grows(&service) {
                tracked.growth.written(now);
            }
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
        work.unseen.end(key, &passed.service, &passed.result);
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
        if let Some(drops) = passed.drops_ip_mode
            && drops != work.drops_ip_mode
        {
            self.note_ip_mode(work, drops);
        }
        // The decision, or the Service itself, may be another one meanwhile.
        self.compare(work, key);
        self.compare_held(work);
    }

    /// Takes in that the API server drops `ipMode`, or that it does no more: it was replaced.
    fn note_ip_mode(&self, work: &mut Work, drops: bool) {
        work.drops_ip_mode = drops;
        match drops {
            true => tracing::warn!(
                "the API server drops ipMode: it is older than 1.30; kube-proxy keeps connections from inside the cluster to published addresses for itself"
            ),
            false => tracing::info!("the API server keeps ipMode now: it is written again"),
        }
        // Everything is compared again in that light.
        let decision = work.decision.take();
        self.take_decision(work, decision);
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
        let before = tracked.refused.replace(Box::new((desired, why.clone())));
        if before.is_none() {
            tracked.failures = 0;
        }
        tracked.fail(REFUSED_PAUSE, LONGEST_REFUSED_PAUSE);
        if before.is_none_or(|before| before.1 != why) {
            self.events.send(refused(key, &tracked.uid, &why));
        }
    }
}

impl Work {
    /// This process leads no more. When it leads again it looks at everything anew; it remembers the rewrites of other
    /// controllers.
    fn rest(&mut self) {
        for tracked in self.tracked.values_mut() {
            tracked.rewrites.rest();
            *tracked = Tracked {
                uid: std::mem::take(&mut tracked.uid),
                rewrites: std::mem::take(&mut tracked.rewrites),
                ..Tracked::default()
            };
        }
        *self = Self {
            tracked: std::mem::take(&mut self.tracked),
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

    /// The Service whose pass is next of those that may begin now. Every second one is that which came last: a new Service does not wait
    /// until thousands are published, and those are published half as fast at worst.
    fn take_from_queue(&mut self, now: Duration) -> Option<Key> {
        let after = (now + Duration::from_nanos(1), Key::new("", ""));
        let mut due = self.queue.range(..after);
        let next = match self.takes_newest {
            true => due.next_back(),
            false => due.next(),
        };
        let key = next?.1.clone();
        self.takes_newest = !self.takes_newest;
        self.leave_queue(&key);
        Some(key)
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

/// Passes at the same time.
const AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The API server will hardly take soon what it has refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
