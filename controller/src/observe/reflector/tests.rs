use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::interval;
use tower::service_fn;

use super::super::store::Store;
use super::*;

/// A watch that was answered so.
fn refused(code: u16, causes: &Value) -> Failure {
    let status = json!({"code": code, "details": {"causes": causes}});
    let status: Status = serde_json::from_value(status).unwrap();
    Failure(Some(watcher::Error::WatchStartFailed(kube::Error::Api(
        status.boxed(),
    ))))
}

#[test]
fn only_a_refusal_that_does_not_pass_leads_to_a_list() {
    for (code, is_lasting) in [
        (400, true),
        (401, false),
        (403, false),
        (408, false),
        (410, true),
        (422, true),
        (429, false),
        (500, false),
        (503, false),
        (504, false),
    ] {
        let failure = refused(code, &json!([]));
        assert_eq!(failure.is_lasting(), is_lasting, "{code}");
    }
    let to_come = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large"}]);
    assert!(refused(504, &to_come).is_lasting());
    assert!(!Failure(None).is_lasting(), "no answer");
}

/// A kind of which an API server may come to be without.
#[derive(Clone, Debug, PartialEq)]
struct Spec(Option<String>);

impl WatchedKind for Spec {
    type Object = core::Service;
    const NAME: &'static str = "Service";
    const GOES_AFTER: Option<Duration> = Some(Duration::from_millis(500));
    fn convert(object: core::Service) -> Result<Option<Self>, String> {
        let spec = object.spec.unwrap_or_default();
        Ok(Some(Self(spec.external_name)))
    }
}

/// What an API server has, and how it behaves.
#[derive(Default)]
struct Server {
    version: u64,
    objects: BTreeMap<String, Value>,
    log: Vec<(u64, Value)>,
    /// Versions below this one are forgotten.
    oldest: u64,
    /// The answer to everything but the list of kinds.
    refuses: Option<u16>,
    /// It takes no connection.
    is_away: bool,
    /// Every watch that began before ends.
    cuts: u64,
    /// It has the kind no more.
    lost_kind: bool,
    lists: usize,
}

type Shared = Arc<Mutex<Server>>;

fn lock(server: &Shared) -> MutexGuard<'_, Server> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn put(&mut self, name: u8, value: u32) {
        self.version += 1;
        let name = format!("s{name}");
        let object = json!({
            "metadata": {"name": name, "namespace": "shop", "resourceVersion": self.version.to_string()},
            "spec": {"externalName": value.to_string()},
        });
        let is_new = self.objects.insert(name, object.clone()).is_none();
        let kind = if is_new { "ADDED" } else { "MODIFIED" };
        let event = json!({"type": kind, "object": object});
        self.log.push((self.version, event));
    }

    fn delete(&mut self, name: u8) {
        if let Some(mut object) = self.objects.remove(&format!("s{name}")) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let event = json!({"type": "DELETED", "object": object});
            self.log.push((self.version, event));
        }
    }

    /// It is as it was so many versions ago, and goes on from there otherwise.
    fn restore(&mut self, versions: u64) {
        self.version = self.version.saturating_sub(versions).max(1);
        let version = self.version;
        self.log.retain(|(at, _)| *at <= version);
        let is_old = |object: &Value| {
            let at = object["metadata"]["resourceVersion"].as_str();
            at.and_then(|text| text.parse::<u64>().ok()) <= Some(version)
        };
        self.objects.retain(|_, object| is_old(object));
        self.cuts += 1;
    }

    /// The events after a version.
    fn news(&self, from: u64) -> Vec<String> {
        let news = self.log.iter().filter(|(at, _)| *at > from);
        news.map(|(_, event)| format!("{event}\n")).collect()
    }

    fn values(&self) -> BTreeMap<String, Option<String>> {
        let objects = self.objects.iter();
        let value = |object: &Value| object["spec"]["externalName"].as_str().map(str::to_owned);
        objects
            .map(|(name, object)| (name.clone(), value(object)))
            .collect()
    }
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

fn answer(code: u16, value: &Value) -> Response<Answer> {
    let mut answer = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    *answer.status_mut() = hyper::StatusCode::from_u16(code).unwrap();
    answer
}

fn status(code: u16) -> Response<Answer> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "reason": "", "code": code});
    answer(code, &status)
}

/// The events after a version, as they come, until the connection is cut.
fn events(server: &Shared, from: u64) -> Response<Answer> {
    let (server, begun) = (Arc::clone(server), lock(server).cuts);
    let looks = interval(Duration::from_millis(20));
    let events = stream::unfold((looks, from), move |(mut looks, from)| {
        let server = Arc::clone(&server);
        async move {
            looks.tick().await;
            let server = lock(&server);
            if server.cuts != begun || server.is_away {
                return None;
            }
            let text = match from < server.oldest {
                true => format!(
                    "{}\n",
                    json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "", "reason": "Expired", "code": 410}})
                ),
                false => server.news(from).concat(),
            };
            let frame = Frame::data(Bytes::from(text));
            let next = server.version.max(from);
            drop(server);
            Some((Ok::<_, Infallible>(frame), (looks, next)))
        }
    });
    Response::new(StreamBody::new(events).boxed_unsync())
}

fn client(server: &Shared) -> Client {
    let server = Arc::clone(server);
    let service = service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let of_query = |name: &str| {
                let mut words = query.split('&').filter_map(|word| word.split_once('='));
                words.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
            };
            let watched = of_query("watch").and_then(|_| of_query("resourceVersion"));
            let mut now = lock(&server);
            if now.is_away {
                return Err::<_, std::io::Error>(std::io::ErrorKind::ConnectionRefused.into());
            }
            if request.uri().path() == "/apis/v1" {
                let name = if now.lost_kind { "others" } else { "services" };
                let kinds = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": name, "singularName": "", "namespaced": true, "kind": "Any", "verbs": []}]});
                return Ok(answer(200, &kinds));
            }
            if let Some(code) = now.refuses {
                return Ok(status(code));
            }
            let Some(from) = watched.and_then(|text| text.parse::<u64>().ok()) else {
                now.lists += 1;
                let items: Vec<Value> = now.objects.values().cloned().collect();
                let version = now.version.to_string();
                let list = json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items});
                return Ok(answer(200, &list));
            };
            let is_forgotten = from < now.oldest;
            drop(now);
            Ok(match is_forgotten {
                true => status(410),
                false => events(&server, from),
            })
        }
    });
    Client::new(service, "shop")
}

/// What a reflector has sent so far.
struct Follower {
    store: Store<Spec>,
    events: mpsc::Receiver<Event<Spec>>,
    task: tokio::task::JoinHandle<()>,
}

impl Follower {
    fn of(server: &Shared) -> Self {
        let (sender, events) = mpsc::channel(4);
        let api = Api::all(paced(&client(server)));
        Self {
            store: Store::new([None]),
            events,
            task: tokio::spawn(follow::<Spec, Event<Spec>>(api, None, None, sender)),
        }
    }

    /// Takes events for so long. Whether the reflector goes on.
    async fn take(&mut self, during: Duration) -> bool {
        let end = Instant::now() + during;
        loop {
            match tokio::time::timeout_at(end, self.events.recv()).await {
                Ok(Some(event)) => drop(self.store.apply(event)),
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn values(&self) -> BTreeMap<String, Option<String>> {
        let objects = self.store.objects().iter();
        objects
            .map(|(key, spec)| (key.name.clone(), spec.0.clone()))
            .collect()
    }

    /// Waits until the store has what the server has.
    async fn agrees(&mut self, server: &Shared, what: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.store.is_complete() || self.values() != lock(server).values() {
            assert!(Instant::now() < end, "{what}: {:?}", self.values());
            assert!(self.take(Duration::from_millis(100)).await, "{what}");
        }
    }
}

/// Whatever fails and whenever, in the end everything is known as it is.
#[tokio::test]
async fn no_change_is_lost_however_watches_end() {
    let histories = (0..48).map(|seed| async move {
        let mut rng = Rng::new(seed);
        let server = Shared::default();
        lock(&server).version = 10_000;
        let mut follower = Follower::of(&server);
        let mut history = Vec::new();
        for _ in 0..24 {
            let step = rng.below(16);
            history.push(step);
            let (name, value) = (rng.below(6), rng.below(1000));
            let (name, value) = (u8::try_from(name).unwrap(), u32::try_from(value).unwrap());
            {
                let mut server = lock(&server);
                match step {
                    0..7 => server.put(name, value),
                    7..9 => server.delete(name),
                    9 => server.cuts += 1,
                    10 => server.oldest = server.version + 1,
                    11 => {
                        // Forgotten while nobody watches.
                        server.cuts += 1;
                        server.put(name, value);
                        server.version += 1;
                        server.oldest = server.version;
                    }
                    12 => {
                        let code = [401, 403, 429, 500, 503];
                        server.refuses = code.get(usize::from(name)).copied();
                        server.cuts += 1;
                    }
                    13 => server.is_away = !server.is_away,
                    // It does not reach the versions that it had before. It is away meanwhile, as any server that is restored.
                    14 => {
                        server.restore(100);
                        server.is_away = true;
                    }
                    _ => server.refuses = None,
                }
            }
            follower.take(Duration::from_millis(rng.below(400))).await;
        }
        {
            let mut server = lock(&server);
            (server.refuses, server.is_away) = (None, false);
        }
        let what = format!("{seed}: {history:?}");
        follower.agrees(&server, &what).await;
        lock(&server).put(9, 9);
        follower.agrees(&server, &what).await;
        follower.task.abort();
    });
    futures_util::future::join_all(histories).await;
}

#[tokio::test]
async fn a_kind_that_is_denied_is_left_when_the_server_has_it_no_more() {
    let server = Shared::default();
    lock(&server).put(1, 1);
    let mut follower = Follower::of(&server);
    follower.agrees(&server, "at first").await;
    {
        let mut server = lock(&server);
        server.refuses = Some(403);
        server.cuts += 1;
    }
    assert!(
        follower.take(Duration::from_secs(4)).await,
        "it has the kind"
    );
    lock(&server).lost_kind = true;
    assert!(!follower.take(Duration::from_secs(40)).await, "it is gone");
}
