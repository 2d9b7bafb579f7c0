//! Kubernetes' events: notices about Services and Nodes, and what was written. Only the leader writes them.
//!
//! A notice is an event when it comes, not as long as it stands. The name of an event is made of what it says, so the API server
//! itself records what was told: a publisher that begins to lead asks for the events of all notices that stand, and those that are
//! there already stay as they are. It does so after all that is new. A warning that could not be written is told again as long as it stands.

mod limit;
mod news;
mod queue;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::sleep;

use self::limit::{Limit, Limits};
use self::news::Announced;
use self::queue::{EventQueue, MOST_WAITING};
use super::leader::Leading;
use crate::clock;
use crate::decide::{About, Kind};
use crate::lease::shortened;
use crate::metrics::Metrics;
use crate::reconcile::{Decision, Decisions};
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
            message: limited(message),
        }
    }

    /// The same for the same words about the same object, in every process.
    fn name(&self) -> String {
        let said = [&*self.uid, self.kind.word(), &self.reason, &self.message];
        let hash = Sha256::digest(said.join("\n"));
        let hex: String = hash
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        match self.about.name() {
            name if name.len() > LONGEST_NAME => format!("{}.{hex}", shortened(name)),
            name => format!("{name}.{hex}"),
        }
    }

    /// The object to create, and its namespace.
    fn object(&self, instance: &str) -> (Event, &str) {
        let (kind, namespace) = match &self.about {
            About::Service(key) => ("Service", Some(key.namespace.as_str())),
            About::Node(_) => ("Node", None),
            About::Flag(_) => ("Flag", None),
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(self.name()),
                ..ObjectMeta::default()
            },
            type_: Some(self.kind.word().to_owned()),
            reason: Some(self.reason.clone()),
            note: Some(self.message.clone()),
            action: Some("Balance".to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            regarding: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(kind.to_owned()),
                namespace: namespace.map(str::to_owned),
                name: Some(self.about.name().to_owned()),
                uid: Some(self.uid.clone()),
                ..ObjectReference::default()
            }),
            reporting_controller: Some(REPORTER.to_owned()),
            reporting_instance: Some(instance.to_owned()),
            ..Event::default()
        };
        // Events about objects without a namespace are in this one.
        (event, namespace.unwrap_or("default"))
    }
}

/// A message of at most as many bytes as the API takes.
fn limited(mut message: String) -> String {
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

/// Takes events of another task, and never waits.
#[derive(Debug)]
pub(crate) struct EventSender {
    events: mpsc::Sender<NewEvent>,
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
    announced: Announced,
    queue: EventQueue,
    /// How often this process has written the events that came again, by name.
    repeats: HashMap<String, i32>,
}

/// The task that writes events, one after the other, and not too fast: the API server has more important things to do.
pub(crate) struct EventWriter {
    client: Client,
    /// The name of this process.
    instance: String,
    received: mpsc::Receiver<NewEvent>,
    decisions: Decisions,
    leading: Leading,
    metrics: Arc<Metrics>,
}

impl EventWriter {
    /// The sender for another task, and the task that writes what it takes. `instance` names this process.
    pub(crate) fn new(
        client: Client,
        instance: &str,
        decisions: Decisions,
        leading: Leading,
        metrics: Arc<Metrics>,
    ) -> (EventSender, Self) {
        let (events, received) = mpsc::channel(MOST_WAITING);
        let writer = Self {
            client,
            instance: instance.chars().take(LONGEST_INSTANCE).collect(),
            received,
            decisions,
            leading,
            metrics: Arc::clone(&metrics),
        };
        (EventSender { events, metrics }, writer)
    }

    /// Writes for as long as the process lives.
    pub(crate) async fn run(mut self) {
        let mut work = Work::default();
        let mut limits = Limits::default();
        // An event that could not be written, which is tried again.
        let mut failed = None;
        let mut failures = 0;
        let mut denial_is_logged = false;
        self.decisions.mark_changed();
        loop {
            if !self.leading.is_now() {
                work = Work::default();
                (failed, failures) = (None, 0);
                self.decisions.mark_changed();
            } else if self.decisions.has_changed().unwrap_or(false) {
                self.announce(&mut work);
            }
            while let Ok(event) = self.received.try_recv() {
                self.queue(&mut work, event);
            }
            let event = failed.take().or_else(|| work.queue.pop());
            let summary = || {
                let leads = self.leading.is_now();
                leads.then(|| limits.summary(clock::now())).flatten()
            };
            let Some(event) = event.or_else(summary) else {
                if self.wait(&mut work, limits.next()).await {
                    continue;
                }
                return;
            };
            if failures == 0 {
                // What an earlier leader has told is there, and is only counted up.
                let told = &work.announced;
                let comes_again = told.stands(&event) && !told.is_first(&event);
                match limits.of(&event, comes_again, clock::now()) {
                    Limit::Allowed => {}
                    Limit::TooMany => {
                        self.lose(&mut work, &event);
                        continue;
                    }
                    Limit::ToldElsewhere => {
                        self.metrics.events_unsaid.inc();
                        continue;
                    }
                }
            }
            // To its end: an event that is given up half way may be there.
            match self.write(&mut work, &event, failures > 0).await {
                Ok(()) => {
                    self.metrics.events.inc();
                    work.announced.told(&event);
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
                    if request::is_denied(&error) && !denial_is_logged {
                        denial_is_logged = true;
                        tracing::warn!(
                            %error,
                            "cannot write events, so owners of Services are not told: apply the rights of rc.yaml; conditions and `ballast-controller plan` say what is wrong meanwhile"
                        );
                    } else {
                        tracing::debug!(%error, "cannot write an event");
                    }
                }
            }
            failures = 0;
            sleep(BETWEEN_EVENTS).await;
        }
    }

    /// Waits until there may be something to write: a summary is due at this time. Returns whether there ever can be.
    async fn wait(&mut self, work: &mut Work, summary: Option<Duration>) -> bool {
        let leads = self.leading.is_now();
        let again = work.announced.next().into_iter();
        let again = again.chain(summary.filter(|_| leads)).min();
        tokio::select! {
            changed = self.decisions.changed(), if leads => match changed {
                Ok(()) => self.decisions.mark_changed(),
                Err(_) => return false,
            },
            Some(event) = self.received.recv() => self.queue(work, event),
            () = self.leading.changed() => {}
            () = clock::pause_until(again) => for event in work.announced.due(clock::now()) {
                self.queue(work, event);
            },
        }
        true
    }

    /// Creates an event. One that is there already is counted up, unless a request before this one has created it, or its notice
    /// stood when this process began to lead: then an earlier leader told it.
    async fn write(
        &self,
        work: &mut Work,
        event: &NewEvent,
        was_tried: bool,
    ) -> Result<(), kube::Error> {
        let (object, namespace) = event.object(&self.instance);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = request::post();
        match patiently(events.create(&params, &object)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                if was_tried || work.announced.is_first(event) {
                    return Ok(());
                }
                if work.repeats.len() >= MOST_WAITING {
                    work.repeats.clear();
                }
                let name = event.name();
                let count = work
                    .repeats
                    .get(&name)
                    .map_or(2, |count| count.saturating_add(1));
                let now = MicroTime(Timestamp::now());
                let series = json!({"series": {"count": count, "lastObservedTime": now}});
                let (params, patch) = (request::patch(), Patch::Merge(series));
                patiently(events.patch(&name, &params, &patch)).await?;
                work.repeats.insert(name, count);
                Ok(())
            }
            created => created.map(drop),
        }
    }

    /// Queues what is new among the notices of the newest decision.
    fn announce(&mut self, work: &mut Work) {
        let Some(decision) = self.decisions.borrow_and_update().clone() else {
            return;
        };
        let Decision {
            observed, desired, ..
        } = &decision;
        for event in work.announced.news(&desired.notices, observed) {
            self.queue(work, event);
        }
    }

    fn queue(&self, work: &mut Work, event: NewEvent) {
        let is_first = work.announced.is_first(&event);
        if let Some(event) = work.queue.push(event, is_first) {
            self.lose(work, &event);
        }
    }

    /// Takes in that an event was not written.
    fn lose(&self, work: &mut Work, event: &NewEvent) {
        self.metrics.events_unsaid.inc();
        work.announced.lost(event, clock::now() + AGAIN);
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
/// Bytes of an object's name to which a hash can be appended.
const LONGEST_NAME: usize = 236;
/// Bytes of a message.
const LONGEST: usize = 1024;
/// Characters of the name of a process.
const LONGEST_INSTANCE: usize = 128;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::sync::Mutex;

    use hyper::{Request, Response};
    use kube::client::Body;
    use tokio::sync::watch;
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

    /// What an API server was asked that gives this answer to each event, and the counts of events that were written and that
    /// were not.
    async fn asked(code: u16) -> (Vec<String>, u64, u64) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        let server = service_fn(move |request: Request<Body>| {
            let line = format!("{} {}", request.method(), request.uri().path());
            notes.lock().unwrap().push(line);
            let body = format!(
                r#"{{"kind": "Status", "status": "Failure", "message": "no", "code": {code}}}"#
            );
            let body = match code {
                201 => r#"{"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {}, "eventTime": null}"#.to_owned(),
                _ => body,
            };
            let answer = Response::builder()
                .status(code)
                .body(Body::from(body.into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        let (_decide, decisions) = watch::channel(Some(decision()));
        let metrics = Arc::new(Metrics::default());
        let (_sender, writer) = EventWriter::new(
            Client::new(server, "shop"),
            "me",
            decisions,
            Leading::always(),
            Arc::clone(&metrics),
        );
        let writer = tokio::spawn(writer.run());
        let answered = async {
            while metrics.events.get() + metrics.events_unsaid.get() == 0 {
                sleep(BETWEEN_EVENTS).await;
            }
        };
        timeout(Duration::from_secs(10), answered).await.unwrap();
        writer.abort();
        let asked = asked.lock().unwrap().clone();
        (asked, metrics.events.get(), metrics.events_unsaid.get())
    }

    #[tokio::test]
    async fn an_event_that_is_there_already_was_told_by_an_earlier_leader() {
        let create = ["POST /apis/events.k8s.io/v1/namespaces/shop/events".to_owned()];
        for (code, written, unsaid) in [(201, 1, 0), (409, 1, 0), (403, 0, 1)] {
            let found = asked(code).await;
            assert_eq!(found, (create.to_vec(), written, unsaid), "{code}");
        }
    }

    #[test]
    fn an_event_has_the_same_name_in_every_process_and_another_one_for_other_words() {
        let name = |uid: &str, reason: &str, message: &str| {
            let about = About::Service(Key::new("shop", "web"));
            NewEvent::new(about, uid, Kind::Warning, reason, message.to_owned()).name()
        };
        let one = name("u-1", "InvalidAnnotation", "bad");
        assert_eq!(one, "web.45db3be03821b20c");
        let others = [
            name("u-2", "InvalidAnnotation", "bad"),
            name("u-1", "NameTaken", "bad"),
            name("u-1", "InvalidAnnotation", "worse"),
        ];
        assert!(!others.contains(&one), "{others:?}");
        let long = About::Node("x".repeat(253));
        let long = NewEvent::new(long, "x", Kind::Warning, "NodeExcluded", String::new());
        assert!(long.name().len() <= 253, "{}", long.name().len());
    }
}
