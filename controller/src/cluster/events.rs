//! Kubernetes' events: what is noticed about Services and Nodes, and what was written. Only the leader writes them.
//!
//! A notice is an event when it comes, not as long as it stands, and not again when another publisher begins to lead: what was
//! told before is read from the events that are there.

mod limit;
mod record;
mod told;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::limit::Limits;
use self::record::{Record, Recorded};
use self::told::Announced;
pub(super) use self::told::{MARK, marks};
use super::leader::Leading;
use super::modes::{self, Modes};
use crate::clock;
use crate::decide::Kind;
use crate::metrics::Metrics;
use crate::observe::Key;
use crate::reconcile::Decisions;

/// One event to tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NewEvent {
    /// Which Service or Node.
    pub(crate) about: Object,
    pub(crate) kind: Kind,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Object {
    pub(crate) kind: &'static str,
    /// Of a Service.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl NewEvent {
    /// About a Service.
    pub(crate) fn of_service(
        key: &Key,
        uid: &str,
        kind: Kind,
        reason: &str,
        message: String,
    ) -> Self {
        Self {
            about: Object {
                kind: "Service",
                namespace: Some(key.namespace.clone()),
                name: key.name.clone(),
                uid: uid.to_owned(),
            },
            kind,
            reason: reason.to_owned(),
            message: shortened(message),
        }
    }

    /// About a Node. Kubelets give its name as the UID too, and `kubectl describe` looks for that.
    pub(crate) fn of_node(name: &str, kind: Kind, reason: &str, message: String) -> Self {
        Self {
            about: Object {
                kind: "Node",
                namespace: None,
                name: name.to_owned(),
                uid: name.to_owned(),
            },
            kind,
            reason: reason.to_owned(),
            message: shortened(message),
        }
    }
}

/// As much as the API takes.
fn shortened(mut message: String) -> String {
    if message.len() > LONGEST {
        let mut end = LONGEST - '…'.len_utf8();
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Takes events, and never waits.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(mpsc::Sender<Queued>, Arc<Metrics>);

/// What a part of this process has to tell.
#[derive(Debug)]
struct Queued {
    said: NewEvent,
    times: Times,
}

/// How often something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// Whenever it happens.
    Always,
    /// Unless the same is there already, whichever process told it.
    Once,
}

impl Recorder {
    /// Tells what the leader did, as soon as may be. What is far too much is not told.
    pub(crate) fn tell(&self, said: NewEvent) {
        self.send(said, Times::Always);
    }

    /// Tells what stands, unless the same was told already.
    pub(crate) fn tell_once(&self, said: NewEvent) {
        self.send(said, Times::Once);
    }

    fn send(&self, said: NewEvent, times: Times) {
        if self.0.try_send(Queued { said, times }).is_err() {
            self.1.event_unsaid();
        }
    }
}

/// Writes events, one after the other.
pub(crate) struct EventWriter {
    heard: mpsc::Receiver<Queued>,
    record: Record,
    decisions: Decisions,
    modes: Modes,
    leading: Leading,
    metrics: Arc<Metrics>,
}

impl EventWriter {
    /// The recorder that others use, and the writer of what it takes. `instance` names this process.
    pub(crate) fn new(
        client: Client,
        instance: String,
        decisions: Decisions,
        modes: Modes,
        leading: Leading,
        metrics: Arc<Metrics>,
    ) -> (Recorder, Self) {
        let (tell, heard) = mpsc::channel(MOST_WAITING);
        let events = Self {
            heard,
            record: Record::new(client, instance),
            decisions,
            modes,
            leading,
            metrics: Arc::clone(&metrics),
        };
        (Recorder(tell, metrics), events)
    }

    /// Tells for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut told: Option<Announced> = None;
        let mut limits = Limits::default();
        let mut queue: VecDeque<Queued> = VecDeque::new();
        let mut failures = 0;
        loop {
            if !self.leading.is_now() {
                told = None;
                queue.clear();
                self.decisions.mark_unchanged();
            } else if told.is_none() && self.modes.borrow().is_some() {
                told = Some(Announced::new(self.before().await));
                self.notice(&mut told, &mut queue);
            }
            self.hear(None, &mut queue).await;
            let Some(Queued { said, .. }) = queue.front() else {
                if !self.wait(&mut told, &mut queue).await {
                    return;
                }
                continue;
            };
            // To its end: an event that is given up half way may be there.
            let written = match limits.allow(&said.about.uid, clock::now()) {
                true => self.record.write(said).await,
                false => Ok(Recorded::Dropped),
            };
            match written {
                Err(error) if is_passing(&error) && failures < MOST_FAILURES => {
                    self.metrics.api_failed(&error);
                    sleep(FIRST_PAUSE * 2_u32.pow(failures.min(5))).await;
                    failures += 1;
                }
                other => {
                    self.count(&other);
                    failures = 0;
                    queue.pop_front();
                }
            }
            let is_new = self.decisions.has_changed().unwrap_or(false)
                || self.modes.has_changed().unwrap_or(false);
            if is_new {
                self.notice(&mut told, &mut queue);
            }
        }
    }

    /// Waits for something to do; `false`: there will be nothing any more.
    async fn wait(&mut self, told: &mut Option<Announced>, queue: &mut VecDeque<Queued>) -> bool {
        let heard = tokio::select! {
            changed = self.decisions.changed() => {
                self.notice(told, queue);
                return changed.is_ok();
            }
            changed = self.modes.changed() => {
                self.notice(told, queue);
                return changed.is_ok();
            }
            Some(heard) = self.heard.recv() => heard,
            () = self.leading.changed() => return true,
        };
        self.hear(Some(heard), queue).await;
        true
    }

    /// Takes in everything that parts of this process have to tell now. What was told before is read at most once for all
    /// of that.
    async fn hear(&mut self, first: Option<Queued>, queue: &mut VecDeque<Queued>) {
        let mut batch: Vec<Queued> = first.into_iter().collect();
        self.drain(&mut batch);
        if batch.iter().any(|heard| heard.times == Times::Once) {
            // What a node does not serve comes all at once, and in no time.
            sleep(GATHER).await;
            self.drain(&mut batch);
            let before = self.before().await;
            batch.retain(|heard| {
                let NewEvent {
                    about,
                    reason,
                    message,
                    ..
                } = &heard.said;
                heard.times == Times::Always
                    || !before.contains(&(about.uid.clone(), reason.clone(), message.clone()))
            });
        }
        queue.extend(batch);
    }

    fn drain(&mut self, batch: &mut Vec<Queued>) {
        while batch.len() < MOST_WAITING
            && let Ok(heard) = self.heard.try_recv()
        {
            batch.push(heard);
        }
    }

    /// What is new among the notices of the newest decision.
    fn notice(&mut self, told: &mut Option<Announced>, queue: &mut VecDeque<Queued>) {
        let decision = self.decisions.borrow_and_update().clone();
        let Some(told) = told else { return };
        let Some(decision) = decision else { return };
        let drops_modes = self.modes.borrow_and_update().unwrap_or(false);
        let notices = modes::notices(&decision, drops_modes);
        for said in told.news(&notices, &decision.observed) {
            match queue.len() < MOST_WAITING {
                true => queue.push_back(Queued {
                    said,
                    times: Times::Always,
                }),
                false => self.metrics.event_unsaid(),
            }
        }
    }

    /// What was told before this process did.
    async fn before(&self) -> BTreeSet<(String, String, String)> {
        match self.record.all().await {
            Ok(all) => all,
            Err(error) => {
                self.metrics.api_failed(&error);
                tracing::warn!(%error, "cannot read which events were told before; some may be told again");
                BTreeSet::new()
            }
        }
    }

    fn count(&self, written: &Result<Recorded, kube::Error>) {
        match written {
            Ok(Recorded::Written) => self.metrics.event_told(),
            Ok(Recorded::Dropped) => self.metrics.event_unsaid(),
            Err(error) => {
                self.metrics.api_failed(error);
                self.metrics.event_unsaid();
                tracing::debug!(%error, "cannot tell an event");
            }
        }
    }
}

/// Whether another try may do.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

const MOST_WAITING: usize = 20_000;
/// What comes within so short a time is told together.
const GATHER: Duration = Duration::from_millis(200);
const MOST_FAILURES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// In bytes.
const LONGEST: usize = 1024;
