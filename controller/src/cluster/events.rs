//! Kubernetes' events: notices about Services and Nodes, and what was written. Only the leader writes them.
//!
//! A notice is an event when it comes, not as long as it stands, and not again when another publisher begins to lead: an
//! annotation of each Service records the events that its owner has, and one of the leader's Lease those of Nodes. A warning that
//! could not be written is told again as long as it stands.

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
use self::news::Announced;
pub(super) use self::news::{Marks, Told};
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

/// Takes events of another task, and never waits; and says which warnings were written.
#[derive(Debug)]
pub(crate) struct EventSender {
    events: mpsc::Sender<NewEvent>,
    pub(super) told: mpsc::UnboundedReceiver<Told>,
    metrics: Arc<Metrics>,
}

impl EventSender {
    /// Has an event written soon. An event beyond the limit of those that wait is dropped, and counted.
    pub(crate) fn send(&self, event: NewEvent) {
        if self.events.try_send(event).is_err() {
            self.metrics.events_unsaid.inc();
        }
    }
}

/// The work of a process that leads.
#[derive(Default)]
struct Work {
    /// `None`: it has only just begun to lead.
    announced: Option<Announced>,
    queue: EventQueue,
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
    /// For the annotations of Services. Nobody waits for room in it: there are never more than warnings were written.
    told: mpsc::UnboundedSender<Told>,
    metrics: Arc<Metrics>,
}

impl EventWriter {
    /// The sender for another task, and the task that writes what it takes. `instance` names this process.
    pub(crate) fn new(
        client: Client,
        instance: &str,
        decisions: Decisions,
        lacks_ip_mode: LacksIpMode,
        leading: Leading,
        told_on_nodes: watch::Sender<String>,
        metrics: Arc<Metrics>,
    ) -> (EventSender, Self) {
        let (events, received) = mpsc::channel(MOST_WAITING);
        let (tell, told) = mpsc::unbounded_channel();
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
            told: tell,
            metrics: Arc::clone(&metrics),
        };
        let sender = EventSender {
            events,
            told,
            metrics,
        };
        (sender, writer)
    }

    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut work = Work::default();
        let mut limits = Limits::default();
        // An event that could not be written, which is tried again.
        let mut failed = None;
        let mut failures = 0;
        loop {
            if !self.leading.is_now() {
                work = Work::default();
                (failed, failures) = (None, 0);
            }
            self.announce(&mut work);
            while let Ok(event) = self.received.try_recv() {
                self.queue(&mut work, event);
            }
            let Some(event) = failed.take().or_else(|| work.queue.pop()) else {
                let again = work.announced.as_ref().and_then(Announced::next);
                tokio::select! {
                    changed = self.decisions.changed() => match changed {
                        Ok(()) => self.decisions.mark_changed(),
                        Err(_) => return,
                    },
                    changed = self.lacks_ip_mode.changed() => match changed {
                        Ok(()) => self.lacks_ip_mode.mark_changed(),
                        Err(_) => return,
                    },
                    Some(event) = self.received.recv() => self.queue(&mut work, event),
                    () = self.leading.changed() => {}
                    () = until(again) => self.queue_again(&mut work),
                }
                continue;
            };
            if failures == 0 {
                match limits.of(&event, clock::now()) {
                    Limit::Allowed => {}
                    Limit::TooMany => {
                        self.lose(&mut work, &event);
                        continue;
                    }
                    Limit::ToldElsewhere => {
                        self.metrics.events_unsaid.inc();
                        self.settle(&mut work, &event);
                        continue;
                    }
                }
            }
            // To its end: an event that is given up half way may be there.
            match self.record(&event).await {
                Ok(()) => {
                    self.metrics.events.inc();
                    self.settle(&mut work, &event);
                }
                Err(error) => {
                    self.metrics.api_failed(&error);
                    if is_passing(&error) && failures < MOST_FAILURES {
                        sleep(FIRST_PAUSE * 2_u32.pow(failures.min(5))).await;
                        failures += 1;
                        failed = Some(event);
                        continue;
                    }
                    self.lose(&mut work, &event);
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
    fn announce(&mut self, work: &mut Work) {
        let is_new = self.decisions.has_changed().unwrap_or(false)
            || self.lacks_ip_mode.has_changed().unwrap_or(false);
        let decision = self.decisions.borrow_and_update().clone();
        let lacks_ip_mode = *self.lacks_ip_mode.borrow_and_update();
        let (Some(decision), Some(lacks_ip_mode)) = (decision, lacks_ip_mode) else {
            return;
        };
        if !self.leading.is_now() || (work.announced.is_some() && !is_new) {
            return;
        }
        let notices = ip_mode::notices(&decision, lacks_ip_mode);
        let observed = &decision.observed;
        let before = || Announced::new(observed, &self.told_on_nodes.borrow());
        let announced = work.announced.get_or_insert_with(before);
        let news = announced.news(&notices, observed);
        self.note_nodes(announced);
        for known in news.known.iter().filter_map(Told::of) {
            self.told.send(known).ok();
        }
        for event in news.new {
            self.queue(work, event);
        }
    }

    fn queue(&self, work: &mut Work, event: NewEvent) {
        if let Some(event) = work.queue.push(event) {
            self.lose(work, &event);
        }
    }

    /// Queues the warnings that could not be written a while ago.
    fn queue_again(&self, work: &mut Work) {
        let announced = work.announced.as_mut();
        let due = announced.map(|announced| announced.due(clock::now()));
        for event in due.into_iter().flatten() {
            self.queue(work, event);
        }
    }

    /// Takes in that an event was not written.
    fn lose(&self, work: &mut Work, event: &NewEvent) {
        self.metrics.events_unsaid.inc();
        if let Some(announced) = &mut work.announced {
            announced.lost(event, clock::now() + AGAIN);
        }
    }

    /// Takes in that an event was written, or need not be.
    fn settle(&self, work: &mut Work, event: &NewEvent) {
        if let Some(announced) = &mut work.announced
            && announced.told(event)
        {
            match Told::of(event) {
                Some(told) => {
                    self.told.send(told).ok();
                }
                None => self.note_nodes(announced),
            }
        }
    }

    /// Has the leader's Lease say at its next renewal what was told of Nodes.
    fn note_nodes(&self, announced: &Announced) {
        let now = announced.told_on_nodes();
        self.told_on_nodes
            .send_if_modified(|text| std::mem::replace(text, now.clone()) != now);
    }
}

async fn until(at: Option<Duration>) {
    match at {
        Some(at) => sleep(at.saturating_sub(clock::now())).await,
        None => std::future::pending().await,
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
/// A warning that could not be written is told again after this time.
const AGAIN: Duration = Duration::from_secs(300);
/// Bytes of a message.
const LONGEST: usize = 1024;
/// Bytes of an object's name to which the Recorder's suffix, a time of 16 digits, can be appended.
const LONGEST_NAME: usize = 236;
/// Characters of the name of a process.
const LONGEST_INSTANCE: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use hyper::{Request, Response};
    use kube::client::Body;
    use tokio::time::timeout;
    use tower::service_fn;

    use super::*;
    use crate::decide::{Desired, Notice, Reason};
    use crate::observe::{Key, Observed};
    use crate::reconcile::Decision;

    /// A decision with one warning about a Service.
    fn decision() -> Decision {
        let service = "kind: Service\nmetadata: {name: web, namespace: shop, uid: u-1}\n";
        let warning = Notice {
            about: About::Service(Key::new("shop", "web")),
            kind: Kind::Warning,
            reason: Reason::InvalidAnnotation,
            message: "bad".to_owned(),
        };
        Decision {
            observed: Arc::new(Observed::of(service)),
            desired: Arc::new(Desired {
                notices: BTreeSet::from([warning]),
                ..Desired::default()
            }),
            is_leaving: false,
        }
    }

    /// What a writer says that it told, before an API server that gives this answer to each event, with the writer's count of
    /// events that it did not write.
    async fn told(code: u16, answer: &'static str) -> (Option<Told>, u64) {
        let server = service_fn(move |_: Request<Body>| async move {
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.as_bytes().to_vec()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        let (_decide, decisions) = watch::channel(Some(decision()));
        let (_know, lacks_ip_mode) = watch::channel(Some(false));
        let (told_on_nodes, _) = watch::channel(String::new());
        let metrics = Arc::new(Metrics::default());
        let (mut sender, writer) = EventWriter::new(
            Client::new(server, "shop"),
            "me",
            decisions,
            lacks_ip_mode,
            Leading::always(),
            told_on_nodes,
            Arc::clone(&metrics),
        );
        let writer = tokio::spawn(writer.run());
        let answered = async {
            while metrics.events.get() + metrics.events_unsaid.get() == 0 {
                sleep(BETWEEN_EVENTS).await;
            }
        };
        timeout(Duration::from_secs(10), answered).await.unwrap();
        let told = timeout(Duration::from_millis(100), sender.told.recv()).await;
        writer.abort();
        (told.ok().flatten(), metrics.events_unsaid.get())
    }

    #[tokio::test]
    async fn a_warning_is_told_only_if_the_api_server_took_it() {
        let taken = r#"{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}, "eventTime": null}"#;
        let (told_of, unsaid) = told(201, taken).await;
        assert_eq!(told_of.unwrap().service, Key::new("shop", "web"));
        assert_eq!(unsaid, 0);
        let refused = r#"{"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}"#;
        assert_eq!(told(403, refused).await, (None, 1));
    }
}
