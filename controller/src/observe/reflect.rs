//! Follows all objects of one kind in one place: lists them, watches them, and begins again where that ends. Started by
//! `cluster`, one task for each kind and namespace; ends with it.
//!
//! An API server that is away, throttles or has forgotten is asked again, ever more slowly and never in step with others;
//! what was seen last stays meanwhile. No answer is waited for without an end: a connection that died in silence is
//! noticed within [`WATCH_FOR`] and a little.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use futures_util::StreamExt;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::mpsc;
use tokio::time::{Instant, error::Elapsed, sleep, timeout};

use super::Key;
use super::arrived::{Arrived, Kind};

/// What happened to objects of one kind.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// These are all in this place; `None`: everywhere.
    Listed(Option<String>, Vec<Arrived<T>>),
    /// One is new, or another than it was.
    Changed(Box<Arrived<T>>),
    /// One is no more.
    Gone(Key),
}

impl<T> Event<T> {
    /// The same of other objects.
    pub(super) fn change(&mut self, change: impl Fn(&mut T)) {
        let objects = match self {
            Self::Listed(_, objects) => objects.as_mut_slice(),
            Self::Changed(object) => std::slice::from_mut(&mut **object),
            Self::Gone(_) => &mut [],
        };
        for object in objects {
            if let Ok(Some(said)) = &mut object.said {
                change(said);
            }
        }
    }
}

/// Sends every event about objects that these fields select, until the receiver is gone.
pub(super) async fn follow<T: Kind, M: From<Event<T>>>(
    api: Api<Arrived<T>>,
    place: Option<String>,
    fields: Option<String>,
    events: mpsc::Sender<M>,
) {
    let fields = fields.as_deref();
    let mut trouble = Trouble::new(T::NAME, place.clone());
    let mut page = Some(PAGE);
    loop {
        let (objects, mut version) = match list(&api, fields, page).await {
            Ok(listed) => {
                page = Some(PAGE);
                listed
            }
            Err(error) => {
                // What was begun page by page is forgotten before it ends: then all at once.
                page = (!error.is_expired()).then_some(PAGE);
                trouble.wait(&error).await;
                continue;
            }
        };
        if send(&events, Event::Listed(place.clone(), objects)).await {
            return;
        }
        // Refusals in a row: a version that the server does not like has many names.
        let mut refusals = 0;
        while refusals < LIST_AGAIN_AFTER {
            let begun = Instant::now();
            let before = version.clone();
            let ended = watch(&api, fields, &mut version, &events, &mut trouble).await;
            if events.is_closed() {
                return;
            }
            if version != before || begun.elapsed() >= LASTED {
                refusals = 0;
                trouble.backoff.reset();
            }
            match ended {
                Ok(()) if begun.elapsed() >= LASTED => {}
                Ok(()) => {
                    refusals += 1;
                    trouble.wait(&Failure::EndedAtOnce).await;
                }
                Err(error) if error.is_expired() => {
                    tracing::debug!(kind = T::NAME, "the version is forgotten; listing again");
                    break;
                }
                Err(error) => {
                    refusals += u32::from(error.is_the_servers());
                    trouble.wait(&error).await;
                }
            }
        }
    }
}

/// All objects, and the version to watch from.
async fn list<T: Kind>(
    api: &Api<Arrived<T>>,
    fields: Option<&str>,
    page: Option<u32>,
) -> Result<(Vec<Arrived<T>>, String), Failure> {
    let mut objects = Vec::new();
    let mut asked = ListParams {
        limit: page,
        field_selector: fields.map(str::to_owned),
        ..ListParams::default()
    };
    loop {
        let part = timeout(LIST_WITHIN, api.list(&asked)).await??;
        objects.extend(part.items);
        match part.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => asked.continue_token = Some(token),
            None => {
                let version = part.metadata.resource_version;
                let version = version.filter(|version| !version.is_empty());
                return Ok((objects, version.ok_or(Failure::NoVersion)?));
            }
        }
    }
}

/// Follows what happens after `version`, and moves that on. `Ok`: the server ended it in order, or was not heard.
async fn watch<T: Kind, M: From<Event<T>>>(
    api: &Api<Arrived<T>>,
    fields: Option<&str>,
    version: &mut String,
    events: &mpsc::Sender<M>,
    trouble: &mut Trouble,
) -> Result<(), Failure> {
    let seconds = u32::try_from(WATCH_FOR.as_secs()).unwrap_or(30);
    let asked = WatchParams {
        field_selector: fields.map(str::to_owned),
        ..WatchParams::default().timeout(seconds)
    };
    let mut stream = pin!(timeout(ANSWER_WITHIN, api.watch(&asked, version)).await??);
    trouble.is_over();
    let mut patience = WATCH_FOR + ANSWER_WITHIN;
    while let Ok(Some(event)) = timeout(patience, stream.next()).await {
        patience = T::BEATS.unwrap_or(patience);
        let event = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                object.version().clone_into(version);
                Event::Changed(Box::new(object))
            }
            WatchEvent::Deleted(object) => {
                object.version().clone_into(version);
                Event::Gone(object.key)
            }
            WatchEvent::Bookmark(mark) => {
                *version = mark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        };
        if send(events, event).await {
            break;
        }
    }
    Ok(())
}

/// Whether nobody listens any more.
async fn send<T, M: From<Event<T>>>(events: &mpsc::Sender<M>, event: Event<T>) -> bool {
    events.send(M::from(event)).await.is_err()
}

/// Why nothing is seen.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer in time")]
    Silence(#[from] Elapsed),
    #[error("a list without a version")]
    NoVersion,
    #[error("the watch ended as soon as it began")]
    EndedAtOnce,
}

impl Failure {
    /// With everything that led to it: "client error (Connect)" alone says little.
    fn words(&self) -> String {
        let first = Error::source(self);
        let causes = std::iter::successors(first, |error| (*error).source());
        causes.fold(self.to_string(), |mut words, cause| {
            let cause = cause.to_string();
            if !words.contains(&cause) {
                words.push_str(": ");
                words.push_str(&cause);
            }
            words
        })
    }

    /// Whether the server does not know the version, or the page, any more.
    fn is_expired(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 410)
    }

    /// Whether it is a server that does not answer as it should, and not the way to it. A client that repeats refused
    /// requests by itself makes silence of a refusal.
    fn is_the_servers(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(_)) | Self::Silence(_))
    }

    /// How long the server wants to be left alone.
    fn retry_after(&self) -> Duration {
        let Self::Api(kube::Error::Api(status)) = self else {
            return Duration::ZERO;
        };
        let seconds = status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        Duration::from_secs(seconds.into()).min(LONGEST)
    }
}

/// What to do about failures: wait, and say so once.
struct Trouble {
    kind: &'static str,
    place: Option<String>,
    backoff: Backoff,
    rng: Rng,
    is_said: bool,
}

impl Trouble {
    fn new(kind: &'static str, place: Option<String>) -> Self {
        Self {
            kind,
            place,
            backoff: Backoff::new(FIRST, LONGEST),
            rng: Rng::new(RandomState::new().hash_one(kind)),
            is_said: false,
        }
    }

    async fn wait(&mut self, error: &Failure) {
        let (kind, namespace) = (self.kind, self.place.as_deref().unwrap_or("all"));
        let why = error.words();
        if self.is_said {
            tracing::debug!(kind, namespace, why, "still cannot be watched");
        } else {
            tracing::warn!(
                kind,
                namespace,
                why,
                "cannot be watched; what was seen last stays"
            );
            self.is_said = true;
        }
        let wait = self.backoff.next(&mut self.rng);
        sleep(wait.max(error.retry_after())).await;
    }

    /// There is an answer, though it may be that it does not hold.
    fn is_over(&mut self) {
        if self.is_said {
            let (kind, namespace) = (self.kind, self.place.as_deref().unwrap_or("all"));
            tracing::info!(kind, namespace, "watched again");
            self.is_said = false;
        }
    }
}

/// Objects a page.
const PAGE: u32 = 500;
/// For one page, on a bad day.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Then the server ends a watch, and another one begins: a connection of which nothing is left is so found out.
const WATCH_FOR: Duration = Duration::from_secs(30);
/// A watch that held so long was none that failed at once.
const LASTED: Duration = Duration::from_secs(1);
/// Watches that were refused one after the other, before everything is listed again.
const LIST_AGAIN_AFTER: u32 = 3;
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(15);
