//! Writes what Services publish: addresses, our condition, finalizer and annotations. Only the leader, only on difference.
//!
//! A Service whose decision, or whose observed state, differs from what is known to be settled is read and patched by a task
//! of its own, a few at a time. A request that fails is made again later; no Service waits for another.

mod rival;
mod wish;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::rival::Rivalry;
use self::wish::{Mode, Wish};
use self::write::{Done, Job, Written};
use super::events::marks;
use super::{Decisions, Teller};
use crate::clock;
use crate::decide::Status;
use crate::leader::Leading;
use crate::metrics::Metrics;
use crate::observe::{Key, Observed, Service};

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
    /// Nothing is tried before this.
    not_before: Duration,
    /// It must be looked at, whatever is observed.
    is_due: bool,
}

impl Statuses {
    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut known: BTreeMap<Key, Known> = BTreeMap::new();
        let mut jobs: JoinSet<Done> = JoinSet::new();
        let mut keeps_modes = true;
        loop {
            let next = match self.leading.is_now() {
                true => self.begin(&mut known, &mut jobs, keeps_modes),
                false => {
                    // Whoever leads next looks at everything anew.
                    jobs.abort_all();
                    known.clear();
                    None
                }
            };
            let again = async {
                match next {
                    Some(at) => sleep(at.saturating_sub(clock::now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = self.decisions.changed() => if changed.is_err() {
                    return;
                },
                () = self.leading.changed() => {}
                Some(done) = jobs.join_next() => if let Ok(done) = done {
                    keeps_modes &= !done.dropped_modes;
                    self.finish(&mut known, done);
                },
                () = again => {}
            }
        }
    }

    /// Begins what may begin now; returns when to look again.
    fn begin(
        &mut self,
        known: &mut BTreeMap<Key, Known>,
        jobs: &mut JoinSet<Done>,
        keeps_modes: bool,
    ) -> Option<Duration> {
        let decision = self.decisions.borrow_and_update().clone()?;
        let (observed, desired) = (&decision.observed, &decision.desired);
        known.retain(|key, known| known.is_busy || observed.services.contains_key(key));
        let now = clock::now();
        let mut next: Option<Duration> = None;
        let marks = marks(&desired.notices);
        for status in &desired.statuses {
            let mark = marks.get(&status.service);
            let Some((wish, uid)) = self.wish(status, mark, observed, keeps_modes) else {
                continue;
            };
            let key = &status.service;
            let one = known.entry(key.clone()).or_default();
            if one.is_busy {
                continue;
            }
            if one.uid != uid {
                *one = Known {
                    uid: uid.to_owned(),
                    ..Known::default()
                };
            }
            let service = observed.services.get(key);
            // What was not observed yet when it was written is not looked at twice.
            let is_known = one.looked_at.as_ref() == service
                || service.is_some_and(|service| wish.is_seen(service));
            if one.settled.as_ref() == Some(&wish) && is_known && !one.is_due {
                continue;
            }
            if now < one.not_before {
                next = Some(next.map_or(one.not_before, |next| next.min(one.not_before)));
                continue;
            }
            if jobs.len() >= AT_ONCE {
                // The next one that is done begins another.
                break;
            }
            one.is_busy = true;
            one.looked_at = service.cloned();
            let job = Job {
                client: self.client.clone(),
                leading: self.leading.clone(),
                key: key.clone(),
                uid: uid.to_owned(),
                before: one.settled.clone(),
                rivalry: one.rivalry.clone(),
                suffix: self.suffix.clone(),
                keeps_modes,
                nodes: nodes(&wish, observed),
                wish,
                metrics: Arc::clone(&self.metrics),
            };
            jobs.spawn(job.run());
        }
        next
    }

    fn wish<'a>(
        &self,
        status: &Status,
        mark: Option<&String>,
        observed: &'a Observed,
        keeps_modes: bool,
    ) -> Option<(Wish, &'a str)> {
        let service = observed.services.get(&status.service)?;
        let mode = mode(keeps_modes, self.suffix.as_deref());
        let wish = Wish::of(status, service, mark, self.finalizer, mode)?;
        Some((wish, &service.uid))
    }

    fn finish(&mut self, known: &mut BTreeMap<Key, Known>, done: Done) {
        for said in done.said {
            self.teller.tell(said);
        }
        let Some(one) = known.get_mut(&done.key) else {
            return;
        };
        one.is_busy = false;
        one.is_due = false;
        one.rivalry = done.rivalry;
        match done.written {
            Written::Settled(wish) => {
                one.settled = Some(wish);
                one.failures = 0;
                one.not_before = Duration::ZERO;
            }
            Written::Later(until) => {
                one.is_due = true;
                one.not_before = until;
            }
            Written::Failed(error) => {
                if !is_usual(&error) {
                    self.metrics.api_failed(&error);
                    tracing::warn!(%error, service = %done.key, "cannot write a Service; trying again");
                }
                one.failures = one.failures.saturating_add(1);
                one.is_due = true;
                let pause = FIRST_PAUSE * 2_u32.pow(one.failures.min(9) - 1);
                one.not_before = clock::now() + pause.min(LONGEST_PAUSE);
            }
            Written::Gone => {
                known.remove(&done.key);
            }
        }
    }
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

/// Somebody else wrote in between: it is simply done again.
fn is_usual(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

const AT_ONCE: usize = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
