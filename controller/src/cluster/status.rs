//! Writes what Services publish: addresses, our condition, finalizer and annotations. Only the leader, only on difference.
//!
//! A Service whose decision, or whose observed state, differs from what is known to be settled is read and patched by a task
//! of its own, a few at a time. A request that fails is made again later; no Service waits for another.

mod back;
mod modes;
mod owned;
mod rival;
mod wish;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(super) use self::back::take_back;
use self::modes::ModeSearch;
use self::rival::Rivalry;
use self::wish::{Mode, Wish};
use self::write::{Done, Job, Written};
use super::events::{NewEvent, Recorder, marks};
use super::leader::Leading;
use super::modes::notices;
use crate::clock;
use crate::decide::{Kind, Status, Verdict};
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Service};
use crate::reconcile::{Decision, Decisions};
use crate::request;

/// The part of this process that writes to Services.
pub(crate) struct StatusWriter {
    pub(crate) client: Client,
    pub(crate) decisions: Decisions,
    pub(crate) leading: Leading,
    pub(crate) recorder: Recorder,
    /// Whether Services get a finalizer.
    pub(crate) finalizer: bool,
    /// What is published where the API server knows no `ipMode`.
    pub(crate) suffix: Option<String>,
    /// Whether people must be told that it knows none.
    pub(crate) modes: watch::Sender<Option<bool>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What is known of one Service.
#[derive(Debug, Default)]
struct Known {
    /// Another Service of this name is another Service.
    uid: String,
    /// What was written last, or found to be so.
    settled: Option<Wish>,
    /// How it was observed when it was looked at last.
    looked_at: Option<Arc<Service>>,
    is_busy: bool,
    rivalry: Rivalry,
    /// It waits because of another controller's writes.
    is_left_alone: bool,
    failures: u32,
    /// What the API server refuses, and its words.
    refused: Option<(Wish, String)>,
    /// Nothing is tried before this.
    not_before: Duration,
    /// It must be looked at, whatever is observed.
    is_due: bool,
    /// How often it was as wished, but was not observed so then: something else may have been written in between, and look
    /// the same as before.
    unseen: u32,
    /// When to look again because of that.
    again: Duration,
}

/// Services in the order in which they came: one that changes all the time waits behind those that came meanwhile.
#[derive(Debug, Default)]
struct Due {
    order: VecDeque<Key>,
    members: BTreeSet<Key>,
}

impl Due {
    fn insert(&mut self, key: Key) {
        if self.members.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    fn pop(&mut self) -> Option<Key> {
        let key = self.order.pop_front()?;
        self.members.remove(&key);
        Some(key)
    }
}

/// What has to be done, and what is known, while this process leads.
#[derive(Default)]
struct Queue {
    decision: Option<Decision>,
    /// Of what people are told, by Service.
    marks: BTreeMap<Key, String>,
    known: BTreeMap<Key, Known>,
    /// To be looked at as soon as may be.
    due: Due,
    /// To be looked at then.
    later: BTreeSet<(Duration, Key)>,
    jobs: JoinSet<Done>,
}

impl StatusWriter {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut queue = Queue::default();
        let mut modes = ModeSearch::default();
        loop {
            if !self.leading.is_now() {
                queue.rest();
                modes.rest();
                self.decisions.mark_unchanged();
            } else {
                if modes.look(&self.client).await {
                    self.keep_modes(&mut queue, modes.are_kept());
                }
                if queue.decision.is_none() || self.decisions.has_changed().unwrap_or(false) {
                    let decision = self.decisions.borrow_and_update().clone();
                    self.survey(&mut queue, decision, modes.are_kept());
                }
            }
            let next = self.begin(&mut queue, modes.are_kept());
            let next = next.into_iter().chain(modes.next_look()).min();
            let again = async {
                match next {
                    Some(at) => sleep(at.saturating_sub(clock::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Noted where it is looked at.
                changed = self.decisions.changed() => match changed {
                    Ok(()) => self.decisions.mark_changed(),
                    Err(_) => return,
                },
                () = self.leading.changed() => {}
                Some(done) = queue.jobs.join_next() => if let Ok(done) = done {
                    let kept = done.kept_modes;
                    self.finish(&mut queue, done);
                    if modes.saw(kept) {
                        self.keep_modes(&mut queue, modes.are_kept());
                    }
                },
                () = again => {}
            }
        }
    }

    /// The API server keeps modes, or it does not: everything is written, and told, in that light.
    fn keep_modes(&self, queue: &mut Queue, keeps_modes: bool) {
        self.modes.send_if_modified(|tells| {
            let now = Some(!keeps_modes && self.suffix.is_none());
            std::mem::replace(tells, now) != now
        });
        if queue.decision.is_none() {
            return;
        }
        for (key, known) in &mut queue.known {
            known.is_due = true;
            queue.due.insert(key.clone());
        }
        let decision = queue.decision.take();
        self.survey(queue, decision, keeps_modes);
    }

    /// Finds out which Services must be looked at.
    fn survey(&self, queue: &mut Queue, decision: Option<Decision>, keeps_modes: bool) {
        let Some(decision) = decision else { return };
        let services = &decision.observed.services;
        queue
            .known
            .retain(|key, known| known.is_busy || services.contains_key(key));
        let tells_modes = self.modes.borrow().unwrap_or(false);
        let notices = notices(&decision, tells_modes);
        let marks = marks(&notices).into_iter();
        queue.marks = marks.map(|(key, mark)| (key.clone(), mark)).collect();
        drop(notices);
        for status in &decision.desired.statuses {
            let mark = queue.marks.get(&status.service);
            let Some((wish, service)) = self.wish(status, mark, &decision.observed, keeps_modes)
            else {
                continue;
            };
            let known = queue.known.get(&status.service);
            if known.is_none_or(|known| known.needs(&wish, service)) {
                queue.due.insert(status.service.clone());
            }
        }
        queue.decision = Some(decision);
    }

    /// Begins what may begin now; returns when to look again.
    fn begin(&self, queue: &mut Queue, keeps_modes: bool) -> Option<Duration> {
        let now = clock::now();
        while let Some((at, _)) = queue.later.first()
            && *at <= now
            && let Some((_, key)) = queue.later.pop_first()
        {
            queue.due.insert(key);
        }
        let decision = queue.decision.clone()?;
        // The next one that is done begins another.
        while queue.jobs.len() < AT_ONCE
            && let Some(key) = queue.due.pop()
        {
            let statuses = &decision.desired.statuses;
            let found = statuses.binary_search_by(|status| status.service.cmp(&key));
            let status = found.ok().and_then(|index| statuses.get(index));
            let mark = queue.marks.get(&key);
            let found =
                status.and_then(|status| self.wish(status, mark, &decision.observed, keeps_modes));
            let Some((wish, service)) = found else {
                continue;
            };
            let known = queue.known.entry(key.clone()).or_default();
            if known.uid != service.uid && !known.is_busy {
                *known = Known {
                    uid: service.uid.clone(),
                    ..Known::default()
                };
            }
            if known.is_busy || !known.needs(&wish, service) {
                continue;
            }
            if known
                .refused
                .take_if(|(refused, _)| *refused != wish)
                .is_some()
            {
                // What is refused is left alone for long; this is something else.
                known.not_before = Duration::ZERO;
                known.failures = 0;
            }
            if wish.verdict == Verdict::Released && std::mem::take(&mut known.is_left_alone) {
                // Letting go waits for no other controller.
                known.not_before = Duration::ZERO;
            }
            let begins = match known.settled.as_ref() == Some(&wish) && !known.is_due {
                true => known.again.max(known.not_before),
                false => known.not_before,
            };
            if now < begins {
                queue.later.insert((begins, key));
                continue;
            }
            known.is_busy = true;
            known.is_due = false;
            known.looked_at = Some(Arc::clone(service));
            let job = self.job(key, wish, known, &decision.observed, keeps_modes);
            queue.jobs.spawn(job.run());
        }
        queue.later.first().map(|(at, _)| *at)
    }

    fn job(
        &self,
        key: Key,
        wish: Wish,
        known: &Known,
        observed: &Observed,
        keeps_modes: bool,
    ) -> Job {
        Job {
            client: self.client.clone(),
            leading: self.leading.clone(),
            key,
            uid: known.uid.clone(),
            before: known.settled.clone(),
            rivalry: known.rivalry.clone(),
            suffix: self.suffix.clone(),
            keeps_modes,
            nodes: nodes(&wish, observed),
            wish,
            metrics: Arc::clone(&self.metrics),
        }
    }

    fn wish<'a>(
        &self,
        status: &Status,
        mark: Option<&String>,
        observed: &'a Observed,
        keeps_modes: bool,
    ) -> Option<(Wish, &'a Arc<Service>)> {
        let service = observed.services.get(&status.service)?;
        let mode = mode(keeps_modes, self.suffix.as_deref());
        let wish = Wish::of(status, service, mark, self.finalizer, mode)?;
        Some((wish, service))
    }

    fn finish(&self, queue: &mut Queue, done: Done) {
        for said in done.said {
            self.recorder.tell(said);
        }
        let Some(one) = queue.known.get_mut(&done.key) else {
            return;
        };
        one.is_busy = false;
        one.rivalry = done.rivalry;
        one.is_left_alone = matches!(done.written, Written::Later(_));
        match done.written {
            Written::Settled(wish) => {
                let observed = queue.decision.as_ref().map(|decision| &decision.observed);
                let service = observed.and_then(|observed| observed.services.get(&done.key));
                one.unseen = match service.is_none_or(|service| wish.is_seen(service)) {
                    true => 0,
                    false => one.unseen.saturating_add(1),
                };
                let pause = FIRST_PAUSE * 2_u32.pow(one.unseen.min(9) + 1);
                one.again = clock::now() + pause.min(LONGEST_PAUSE);
                one.settled = Some(wish);
                one.failures = 0;
                one.refused = None;
                one.not_before = Duration::ZERO;
            }
            Written::Later(until) => {
                one.is_due = true;
                one.not_before = until;
            }
            Written::Failed(error, wish) => {
                if !request::is_lost_race(&error) {
                    self.metrics.api_failed(&error);
                    tracing::warn!(%error, service = %done.key, "cannot write a Service; trying again");
                }
                let why = request::refusal(&error);
                if why.is_some() && one.refused.is_none() {
                    one.failures = 0;
                }
                one.failures = one.failures.saturating_add(1);
                one.is_due = true;
                let (first, longest) = match why {
                    Some(_) => (REFUSED_PAUSE, LONGEST_REFUSED_PAUSE),
                    None => (FIRST_PAUSE, LONGEST_PAUSE),
                };
                let pause = first * 2_u32.pow(one.failures.min(9) - 1);
                one.not_before = clock::now() + pause.min(longest);
                if let Some(why) = why {
                    let is_told = one.refused.as_ref().is_some_and(|(_, told)| *told == why);
                    if !is_told {
                        self.recorder.tell_once(refused(&done.key, &one.uid, &why));
                    }
                    one.refused = Some((wish, why));
                }
            }
            Written::Gone => {
                let uid = queue.known.remove(&done.key).map(|one| one.uid);
                let observed = queue.decision.as_ref().map(|decision| &decision.observed);
                let service = observed.and_then(|observed| observed.services.get(&done.key));
                // Another one of that name came while this was looked at.
                if service.is_some_and(|service| uid.as_ref() != Some(&service.uid)) {
                    queue.due.insert(done.key);
                }
                return;
            }
        }
        // What was decided meanwhile.
        queue.due.insert(done.key);
    }
}

impl Queue {
    /// When this process leads again it looks at everything anew. Rewrites by other controllers are remembered.
    fn rest(&mut self) {
        let mut known = std::mem::take(&mut self.known);
        for known in known.values_mut() {
            known.is_busy = false;
            known.is_due = true;
        }
        *self = Self {
            known,
            ..Self::default()
        };
    }
}

impl Known {
    /// Whether it has to be looked at.
    fn needs(&self, wish: &Wish, service: &Arc<Service>) -> bool {
        let is_new = self.looked_at.as_ref() != Some(service) || self.unseen > 0;
        self.settled.as_ref() != Some(wish)
            || self.is_due
            || self.uid != service.uid
            || (is_new && !wish.is_seen(service))
    }
}

/// What its owner is told when the API server does not take what is to be written.
fn refused(key: &Key, uid: &str, why: &str) -> NewEvent {
    let message =
        format!("Error syncing load balancer: the API server refuses what is to be written: {why}");
    NewEvent::of_service(key, uid, Kind::Warning, "SyncLoadBalancerFailed", message)
}

fn mode(keeps_modes: bool, suffix: Option<&str>) -> Mode<'_> {
    match keeps_modes {
        true => Mode::Kept,
        false => Mode::Dropped(suffix),
    }
}

/// The nodes that hold the addresses that are published, by address.
fn nodes(wish: &Wish, observed: &Observed) -> BTreeMap<String, String> {
    let places = wish.places();
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

const AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What is refused for what it is will hardly be taken soon.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;
