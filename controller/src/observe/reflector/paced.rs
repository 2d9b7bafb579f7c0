//! The client of a reflector. kube's watcher waits for an answer without an end, ignores `Retry-After`, and begins the next watch at
//! once where a server ends every watch as soon as it began: this client bounds all three.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::RETRY_AFTER;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, sleep_until, timeout};
use tower::service_fn;

/// The earliest times of the next requests.
struct Pace {
    request: Instant,
    watch: Instant,
}

/// The same client, with pauses and a limited wait for answers. To be used by one reflector only.
pub(in super::super) fn paced(client: &Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let now = Instant::now();
    let pace = Arc::new(Mutex::new(Pace {
        request: now,
        watch: now,
    }));
    let service = service_fn(move |request: Request<Body>| {
        let (client, pace) = (client.clone(), Arc::clone(&pace));
        async move {
            let query = request.uri().query().unwrap_or_default();
            let begin = begin(&pace, query.contains("watch=true"));
            sleep_until(begin).await;
            let answer = timeout(ANSWER_WITHIN, client.send(request)).await;
            let answer = answer
                .map_err(|_| kube::Error::Service("no answer in time".into()))
                .flatten()?;
            if let Some(pause) = retry_after(&answer) {
                lock(&pace).request = Instant::now() + pause;
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
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

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
