//! Kubernetes' events: notices about Services and Nodes, and what was written. Only the leader writes them.
//!
//! A notice is an event when it comes, not as long as it stands, and not again when another publisher begins to lead: an
//! annotation of each Service records the events that its owner has, and one of the leader's Lease those of Nodes.

mod limit;
mod news;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as EventObject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::limit::{Limit, Limits};
pub(super) use self::news::told;
use self::news::{Announced, told_on_nodes};
use self::queue::{EventQueue, MOST_WAITING};
use super::ip_mode::{self, LacksIpMode};
use super::leader::Leading;
use crate::clock;
use crate::decide::{About, Kind};
use crate::lease::shortened as shortened_name;
use crate::metrics::Metrics;
use crate::reconcile::Decisions;
use crate::request::{self, REPORTER, patiently};

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NewEvent {
    /// A Service or a Node.
    about: About,
    uid: String,
    kind: Kind,
    reason: String,
    message: String,
}

impl NewEvent {
    pub(super) fn new(about: About, uid: &str, kind: Kind, reason: &str, message: String) -> Self {
        Self {
            about,
            uid: uid.to_owned(),
            kind,
            reason: reason.to_owned(),
            message: shortened(message),
        }
    }

    fn reference(&self) -> ObjectReference {
        let (kind, namespace, name) = match &self.about {
            About::Service(key) => ("Service", Some(&key.namespace), key.name.as_str()),
            About::Node(name) => ("Node", None, name.as_str()),
            About::Flag(name) => ("Flag", None, *name),
        };
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            namespace: namespace.cloned(),
            name: Some(name.to_owned()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// The event as kube's Recorder takes it. The Recorder counts an event that repeats within six minutes on the first one,
    /// but does not compare the messages: two events of one reason would be one, with the first message. The action, which it
    /// does compare, tells them apart.
    fn event(&self) -> Event {
        Event {
            type_: match self.kind {
                Kind::Normal => EventType::Normal,
                Kind::Warning => EventType::Warning,
            },
            reason: self.reason.clone(),
            note: Some(self.message.clone()),
            action: format!("Balance:{}", news::hash(&self.message)),
            secondary: None,
        }
    }
}

/// A message of at most as many bytes as the API takes.
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

/// Takes events of other tasks, and never waits.
#[derive(Clone, Debug)]
pub(crate) struct EventSender(mpsc::Sender<NewEvent>, Arc<Metrics>);

impl EventSender {
    /// Has an event written soon. An event beyond the limit of those that wait is dropped, and counted.
    pub(crate) fn send(&self, event: NewEvent) {
        if self.0.try_send(event).is_err() {
            self.1.events_unsaid.inc();
        }
    }
}

/// The task that writes events, one after the other, and not too fast: the API server has more important things to do.
pub(crate) struct EventWriter {
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
    received: mpsc::Receiver<NewEvent>,
    decisions: Decisions,
    lacks_ip_mode: LacksIpMode,
    leading: Leading,
    /// The text of the Lease about events of Nodes: the leader's when this process begins to lead, ours from then on.
    told_on_nodes: watch::Sender<String>,
    metrics: Arc<Metrics>,
}

impl EventWriter {
    /// The sender for other tasks, and the task that writes what it takes. `instance` names this process.
    pub(crate) fn new(
        client: Client,
        instance: &str,
        decisions: Decisions,
        lacks_ip_mode: LacksIpMode,
        leading: Leading,
        told_on_nodes: watch::Sender<String>,
        metrics: Arc<Metrics>,
    ) -> (EventSender, Self) {
        let (send, received) = mpsc::channel(MOST_WAITING);
        let reporter = Reporter {
            controller: REPORTER.to_owned(),
            instance: Some(instance.chars().take(LONGEST_INSTANCE).collect()),
        };
        let writer = Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            client,
            reporter,
            received,
            decisions,
            lacks_ip_mode,
            leading,
            told_on_nodes,
            metrics: Arc::clone(&metrics),
        };
        (EventSender(send, metrics), writer)
    }

    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut announced: Option<Announced> = None;
        let mut limits = Limits::default();
        let mut queue = EventQueue::default();
        // An event that could not be written, which is tried again.
        let mut failed = None;
        let mut failures = 0;
        loop {
            if !self.leading.is_now() {
                announced = None;
                queue = EventQueue::default();
                (failed, failures) = (None, 0);
            }
            self.announce(&mut announced, &mut queue);
            while let Ok(event) = self.received.try_recv() {
                self.queue(&mut queue, event);
            }
            let Some(event) = failed.take().or_else(|| queue.pop()) else {
                tokio::select! {
                    changed = self.decisions.changed() => match changed {
                        Ok(()) => self.decisions.mark_changed(),
                        Err(_) => return,
                    },
                    changed = self.lacks_ip_mode.changed() => match changed {
                        Ok(()) => self.lacks_ip_mode.mark_changed(),
                        Err(_) => return,
                    },
                    Some(event) = self.received.recv() => self.queue(&mut queue, event),
                    () = self.leading.changed() => {}
                }
                continue;
            };
            if failures == 0 && limits.of(&event, clock::now()) != Limit::Allowed {
                self.metrics.events_unsaid.inc();
                continue;
            }
            // To its end: an event that is given up half way may be there.
            match self.record(&event).await {
                Ok(()) => self.metrics.events.inc(),
                Err(error) => {
                    self.metrics.api_failed(&error);
                    if is_passing(&error) && failures < MOST_FAILURES {
                        sleep(FIRST_PAUSE * 2_u32.pow(failures.min(5))).await;
                        failures += 1;
                        failed = Some(event);
                        continue;
                    }
                    self.metrics.events_unsaid.inc();
                    tracing::debug!(%error, "cannot write an event");
                }
            }
            failures = 0;
            sleep(BETWEEN_EVENTS).await;
        }
    }

    async fn record(&mut self, event: &NewEvent) -> Result<(), kube::Error> {
        let (reference, event) = (event.reference(), event.event());
        if let Some(name) = &reference.name
            && name.len() > LONGEST_NAME
        {
            let name = shortened_name(name);
            return self.record_under(&name, event, reference).await;
        }
        match patiently(self.recorder.publish(&event, &reference)).await {
            // The event that this one repeats was deleted, which the Recorder does not notice.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                self.recorder = Recorder::new(self.client.clone(), self.reporter.clone());
                patiently(self.recorder.publish(&event, &reference)).await
            }
            result => result,
        }
    }

    /// Writes an event about a Node whose name leaves no room for what the Recorder appends to it. A repeat is another event.
    async fn record_under(
        &self,
        name: &str,
        event: Event,
        reference: ObjectReference,
    ) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        let object = EventObject {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            action: Some(event.action),
            event_time: Some(MicroTime(now)),
            note: event.note,
            reason: Some(event.reason),
            regarding: Some(reference),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: self.reporter.instance.clone(),
            type_: Some(format!("{:?}", event.type_)),
            ..EventObject::default()
        };
        // As the Recorder does for objects without a namespace.
        let events: Api<EventObject> = Api::namespaced(self.client.clone(), "default");
        let params = request::post();
        patiently(events.create(&params, &object)).await.map(drop)
    }

    /// Queues what is new among the notices of the newest decision.
    fn announce(&mut self, announced: &mut Option<Announced>, queue: &mut EventQueue) {
        let is_new = self.decisions.has_changed().unwrap_or(false)
            || self.lacks_ip_mode.has_changed().unwrap_or(false);
        let decision = self.decisions.borrow_and_update().clone();
        let lacks_ip_mode = *self.lacks_ip_mode.borrow_and_update();
        let (Some(decision), Some(lacks_ip_mode)) = (decision, lacks_ip_mode) else {
            return;
        };
        if !self.leading.is_now() || (announced.is_some() && !is_new) {
            return;
        }
        let notices = ip_mode::notices(&decision, lacks_ip_mode);
        let observed = &decision.observed;
        let before = || Announced::new(observed, &self.told_on_nodes.borrow());
        let news = announced
            .get_or_insert_with(before)
            .news(&notices, observed);
        self.told_on_nodes.send_if_modified(|text| {
            let now = told_on_nodes(&notices, observed);
            std::mem::replace(text, now.clone()) != now
        });
        for event in news {
            self.queue(queue, event);
        }
    }

    fn queue(&self, queue: &mut EventQueue, event: NewEvent) {
        if queue.push(event).is_some() {
            self.metrics.events_unsaid.inc();
        }
    }
}

/// Whether another try may succeed.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

/// At most 100 events a second: those of thousands of new Services must not delay their statuses.
const BETWEEN_EVENTS: Duration = Duration::from_millis(10);
const MOST_FAILURES: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of a message.
const LONGEST: usize = 1024;
/// Bytes of an object's name to which the Recorder's suffix, a time of 16 digits, can be appended.
const LONGEST_NAME: usize = 236;
/// Characters of the name of a process.
const LONGEST_INSTANCE: usize = 128;
