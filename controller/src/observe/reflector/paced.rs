//! The client of a reflector. kube's watcher waits for an answer without an end, ignores `Retry-After`, and begins the next watch at
//! once where a server ends every watch as soon as it began: this client bounds all three.
//!
//! An API server whose store was restored from a backup is at an earlier version than the watcher. It may take a watch from a version
//! that it has not reached, and say nothing until it has. So before the first watch of a server that was away this client asks for
//! the server's version, and answers in its place that the watcher's is gone: then everything is listed again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::{ACCEPT, RETRY_AFTER};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};
use tower::service_fn;

/// The earliest times of the next requests.
struct Pace {
    request: Instant,
    watch: Instant,
    /// Whether the server did not answer, or as one that begins: then it may deny for a moment what it grants.
    was_away: bool,
    /// When the last watch is to end by itself. One that ends earlier was cut, as by a server that goes away.
    lasts: Option<Instant>,
}

/// The same client, with pauses and a limited wait for answers. To be used by one reflector only.
pub(in super::super) fn paced(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let now = Instant::now();
    let pace = Arc::new(Mutex::new(Pace {
        request: now,
        watch: now,
        was_away: false,
        lasts: None,
    }));
    let service = service_fn(move |request: Request<Body>| {
        let (client, pace) = (client.clone(), Arc::clone(&pace));
        async move {
            let query = request.uri().query().unwrap_or_default();
            let begin = begin(&pace, query.contains("watch=true"));
            sleep_until(begin).await;
            let from = watched_from(&request).filter(|_| may_have_been_away(&pace));
            let lasts = watch_time(&request);
            let answer = match from {
                None => send(&client, request).await,
                Some(from) => match version(&client, question(&request)?).await {
                    Ok(Ok(version)) if version < from => Ok(gone()),
                    Ok(Ok(_)) => send(&client, request).await,
                    Ok(Err(refusal)) => Ok(refusal),
                    Err(error) => Err(error),
                },
            };
            let code = answer.as_ref().map(|answer| answer.status().as_u16());
            lock(&pace).was_away = matches!(code, Err(_) | Ok(401 | 403 | 500..));
            let answer = answer?;
            if answer.status().is_success() {
                lock(&pace).lasts = lasts.map(|lasts| Instant::now() + lasts);
            }
            if let Some(pause) = retry_after(&answer) {
                lock(&pace).request = Instant::now() + pause;
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
}

async fn send(client: &Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let answer = timeout(ANSWER_WITHIN, client.send(request)).await;
    let answer = answer.map_err(|_| kube::Error::Service("no answer in time".into()));
    answer.flatten()
}

/// The version from which a request watches.
fn watched_from(request: &Request<Body>) -> Option<u64> {
    let query = request.uri().query()?;
    let mut words = query.split('&');
    let version = words.find_map(|word| word.strip_prefix("resourceVersion="))?;
    let version = version.parse().ok()?;
    query.contains("watch=true").then_some(version)
}

/// How long a watch lasts at least, if nothing ends it: a server counts from an earlier moment.
fn watch_time(request: &Request<Body>) -> Option<Duration> {
    watched_from(request)?;
    let mut words = request.uri().query()?.split('&');
    let seconds = words.find_map(|word| word.strip_prefix("timeoutSeconds="))?;
    let seconds = Duration::from_secs(seconds.parse().ok()?);
    Some(seconds * 9 / 10)
}

/// Whether the server did not answer, or ended the last watch before its time.
fn may_have_been_away(pace: &Mutex<Pace>) -> bool {
    let pace = lock(pace);
    pace.was_away || pace.lasts.is_some_and(|lasts| Instant::now() < lasts)
}

/// The request for the version of the server's store, in the place where a request watches.
fn question(watch: &Request<Body>) -> Result<Request<Body>, kube::Error> {
    let query = watch.uri().query().unwrap_or_default().split('&');
    // The right to read may be for one name only.
    let fields = query.filter(|word| word.starts_with("fieldSelector="));
    let fields: String = fields.map(|word| format!("&{word}")).collect();
    let request = Request::get(format!("{}?limit=1{fields}", watch.uri().path()));
    let request = request.header(ACCEPT, METADATA).body(Body::empty());
    request.map_err(kube::Error::HttpError)
}

/// The version of the server's store; or the answer that refuses it.
async fn version(
    client: &Client,
    question: Request<Body>,
) -> Result<Result<u64, Response<Body>>, kube::Error> {
    let answer = send(client, question).await?;
    if !answer.status().is_success() {
        return Ok(Err(answer));
    }
    let body = timeout(ANSWER_WITHIN, answer.into_body().collect()).await;
    let body = body.map_err(|_| kube::Error::Service("no answer in time".into()));
    let list: Value =
        serde_json::from_slice(&body.flatten()?.to_bytes()).map_err(kube::Error::SerdeError)?;
    let version = list.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str);
    // A version that is no number is not compared.
    let version = version.and_then(|version| version.parse().ok());
    Ok(Ok(version.unwrap_or(u64::MAX)))
}

/// What a server answers that does not know a version any more.
fn gone() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "the API server is at an earlier version than it was",
    });
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = hyper::StatusCode::GONE;
    answer
}

/// The time at which a request may begin.
fn begin(pace: &Mutex<Pace>, is_watch: bool) -> Instant {
    let mut pace = lock(pace);
    let begin = pace.request.max(Instant::now());
    if !is_watch {
        return begin;
    }
    let begin = begin.max(pace.watch);
    pace.watch = begin + BETWEEN_WATCHES;
    begin
}

fn lock(pace: &Mutex<Pace>) -> std::sync::MutexGuard<'_, Pace> {
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pause that the server asks for.
fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    let pause = Duration::from_secs(seconds.parse().ok()?);
    Some(pause.min(LONGEST_PAUSE))
}

/// The form of a list that has no more of the objects than their metadata.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
