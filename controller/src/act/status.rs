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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

pub(crate) use self::back::take_back;
use self::modes::ModeSearch;
use self::rival::Rivalry;
use self::wish::{Mode, Wish};
use self::write::{Done, Job, Written};
use super::events::{Said, marks};
use super::modes::notices;
use super::{Decision, Decisions, Teller};
use crate::clock;
use crate::decide::{Kind, Status};
use crate::leader::Leading;
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Service};
use crate::request;

/// The part of this process that writes to Services.
pub(crate) struct Statuses {
    pub(crate) client: Client,
    pub(crate) decisions: Decisions,
    pub(crate) leading: Leading,
    pub(crate) teller: Teller,
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

/// Everything that this part remembers while it leads.
#[derive(Default)]
struct Desk {
    decision: Option<Decision>,
    /// Of what people are told, by Service.
    marks: BTreeMap<Key, String>,
    known: BTreeMap<Key, Known>,
    /// To be looked at as soon as may be.
    due: BTreeSet<Key>,
    /// To be looked at then.
    later: BTreeSet<(Duration, Key)>,
    jobs: JoinSet<Done>,
}

impl Statuses {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut desk = Desk::default();
        let mut modes = ModeSearch::default();
        loop {
            if !self.leading.is_now() {
                desk.rest();
                modes.rest();
                self.decisions.mark_unchanged();
            } else {
                if modes.look(&self.client).await {
                    self.keep_modes(&mut desk, modes.are_kept());
                }
                if desk.decision.is_none() || self.decisions.has_changed().unwrap_or(false) {
                    let decision = self.decisions.borrow_and_update().clone();
                    self.survey(&mut desk, decision, modes.are_kept());
                }
            }
            let next = self.begin(&mut desk, modes.are_kept());
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
                Some(done) = desk.jobs.join_next() => if let Ok(done) = done {
                    let kept = done.kept_modes;
                    self.finish(&mut desk, done);
                    if modes.saw(kept) {
                        self.keep_modes(&mut desk, modes.are_kept());
                    }
                },
                () = again => {}
            }
        }
    }

    /// The API server keeps modes, or it does not: everything is written, and told, in that light.
    fn keep_modes(&self, desk: &mut Desk, keeps_modes: bool) {
        self.modes.send_if_modified(|tells| {
            let now = Some(!keeps_modes && self.suffix.is_none());
            std::mem::replace(tells, now) != now
        });
        if desk.decision.is_none() {
            return;
        }
        for (key, known) in &mut desk.known {
            known.is_due = true;
            desk.due.insert(key.clone());
        }
        let decision = desk.decision.take();
        self.survey(desk, decision, keeps_modes);
    }

    /// Finds out which Services must be looked at.
    fn survey(&self, desk: &mut Desk, decision: Option<Decision>, keeps_modes: bool) {
        let Some(decision) = decision else { return };
        let services = &decision.observed.services;
        desk.known
            .retain(|key, known| known.is_busy || services.contains_key(key));
        let tells_modes = self.modes.borrow().unwrap_or(false);
        let notices = notices(&decision, tells_modes);
        let marks = marks(&notices).into_iter();
        desk.marks = marks.map(|(key, mark)| (key.clone(), mark)).collect();
        drop(notices);
        for status in &decision.desired.statuses {
            let mark = desk.marks.get(&status.service);
            let Some((wish, service)) = self.wish(status, mark, &decision.observed, keeps_modes)
            else {
                continue;
            };
            let known = desk.known.get(&status.service);
            if known.is_none_or(|known| known.needs(&wish, service)) {
                desk.due.insert(status.service.clone());
            }
        }
        desk.decision = Some(decision);
    }

    /// Begins what may begin now; returns when to look again.
    fn begin(&self, desk: &mut Desk, keeps_modes: bool) -> Option<Duration> {
        let now = clock::now();
        while let Some((at, _)) = desk.later.first()
            && *at <= now
            && let Some((_, key)) = desk.later.pop_first()
        {
            desk.due.insert(key);
        }
        let decision = desk.decision.clone()?;
        // The next one that is done begins another.
        while desk.jobs.len() < AT_ONCE
            && let Some(key) = desk.due.pop_first()
        {
            let statuses = &decision.desired.statuses;
            let found = statuses.binary_search_by(|status| status.service.cmp(&key));
            let status = found.ok().and_then(|index| statuses.get(index));
            let mark = desk.marks.get(&key);
            let found =
                status.and_then(|status| self.wish(status, mark, &decision.observed, keeps_modes));
            let Some((wish, service)) = found else {
                continue;
            };
            let known = desk.known.entry(key.clone()).or_default();
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
            let begins = match known.settled.as_ref() == Some(&wish) && !known.is_due {
                true => known.again.max(known.not_before),
                false => known.not_before,
            };
            if now < begins {
                desk.later.insert((begins, key));
                continue;
            }
            known.is_busy = true;
            known.is_due = false;
            known.looked_at = Some(Arc::clone(service));
            let job = self.job(key, wish, known, &decision.observed, keeps_modes);
            desk.jobs.spawn(job.run());
        }
        desk.later.first().map(|(at, _)| *at)
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

    fn finish(&self, desk: &mut Desk, done: Done) {
        for said in done.said {
            self.teller.tell(said);
        }
        let Some(one) = desk.known.get_mut(&done.key) else {
            return;
        };
        one.is_busy = false;
        one.rivalry = done.rivalry;
        match done.written {
            Written::Settled(wish) => {
                let observed = desk.decision.as_ref().map(|decision| &decision.observed);
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
                        self.teller.tell_once(refused(&done.key, &one.uid, &why));
                    }
                    one.refused = Some((wish, why));
                }
            }
            Written::Gone => {
                let uid = desk.known.remove(&done.key).map(|one| one.uid);
                let observed = desk.decision.as_ref().map(|decision| &decision.observed);
                let service = observed.and_then(|observed| observed.services.get(&done.key));
                // Another one of that name came while this was looked at.
                if service.is_some_and(|service| uid.as_ref() != Some(&service.uid)) {
                    desk.due.insert(done.key);
                }
                return;
            }
        }
        // What was decided meanwhile.
        desk.due.insert(done.key);
    }
}

impl Desk {
    /// Whoever leads next looks at everything anew. A rival is remembered.
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
fn refused(key: &Key, uid: &str, why: &str) -> Said {
    let message =
        format!("Error syncing load balancer: the API server refuses what is to be written: {why}");
    Said::of_service(key, uid, Kind::Warning, "SyncLoadBalancerFailed", message)
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
