//! Follows all objects of one kind in one place with kube's watcher. `cluster` starts one task for each kind and namespace.
//!
//! The watcher lists, watches, and resumes a watch that ended. This module adds the retries: pauses that grow and vary at random, so
//! that an API server that restarts is not asked by all nodes at once; a new list where the server does not know the version any
//! more, but not where it refuses for a while; one line in the log. The objects that were seen last stay in the store meanwhile.

mod paced;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::pin::pin;
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use futures_util::StreamExt;
use kube::core::Status;
use kube::runtime::watcher::{self, Config, watcher};
use kube::{Api, Resource};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::Key;
use super::object::{Parsed, WatchedKind};
use crate::request::{self, patiently};
pub(super) use paced::paced;

/// A change of the objects of one kind.
#[derive(Debug)]
pub(super) enum Event<T> {
    /// An object of a list, or a new or changed object. In a list the version is 0: older objects may follow.
    Changed(Box<Parsed<T>>),
    /// An object was deleted, with the version of its deletion.
    Deleted(Key, u64),
    /// A list of a namespace, or of all namespaces, is complete: these are all objects, and the newest of their versions.
    Listed(Option<String>, BTreeSet<Key>, u64),
}

impl<T> Event<T> {
    /// Changes the object of the event, if it is readable.
    pub(super) fn change(&mut self, change: impl Fn(&mut T)) {
        if let Self::Changed(object) = self
            && let Ok(Some(content)) = &mut object.content
        {
            change(content);
        }
    }
}

/// Sends every event about the objects that a field selector selects, until the receiver is gone, or the API server does not have the
/// kind any more. `api` has a [`paced()`] client.
pub(super) async fn follow<T: WatchedKind, M: From<Event<T>>>(
    api: Api<Parsed<T>>,
    namespace: Option<String>,
    fields: Option<String>,
    events: mpsc::Sender<M>,
) {
    let mut reflector = Reflector {
        retry: Retry::new(T::NAME, namespace.clone()),
        api,
        namespace,
        fields,
        events,
        denied_since: None,
    };
    let mut page_size = Some(PAGE);
    while let Some(failure) = reflector.follow_until_relist(page_size).await {
        // The server dropped a list before its last page was read: the next list is one page.
        let is_list = matches!(failure.0, Some(watcher::Error::InitialListFailed(_)));
        page_size = (!(is_list && failure.is_expired())).then_some(PAGE);
    }
}

struct Reflector<T, M> {
    api: Api<Parsed<T>>,
    namespace: Option<String>,
    fields: Option<String>,
    events: mpsc::Sender<M>,
    retry: Retry,
    /// Since when the server denies the kind, or says that there is none.
    denied_since: Option<Instant>,
}

impl<T: WatchedKind, M: From<Event<T>>> Reflector<T, M> {
    /// Lists and watches until a failure after which everything must be listed again. `None`: the receiver is gone, or the kind.
    async fn follow_until_relist(&mut self, page_size: Option<u32>) -> Option<Failure> {
        let config = Config {
            field_selector: self.fields.clone(),
            timeout: Some(T::WATCH_SECONDS),
            page_size,
            ..Config::default()
        };
        let mut stream = pin!(watcher(self.api.clone(), config));
        // The names of the objects so far, while a list is read.
        let mut listed = Some((BTreeSet::new(), 0));
        let mut refusals = 0;
        loop {
            let patience = match listed {
                Some(_) => LIST_PAGE_WITHIN,
                None => STABLE_AFTER,
            };
            let failure = match timeout(patience, stream.next()).await {
                Ok(Some(Ok(event))) => {
                    let is_watch = listed.is_none();
                    let event = match event {
                        watcher::Event::Init => {
                            listed = Some((BTreeSet::new(), 0));
                            continue;
                        }
                        watcher::Event::InitApply(mut object) => {
                            let (names, newest) = listed.get_or_insert_default();
                            names.insert(object.key.clone());
                            *newest = mem::take(&mut object.version).max(*newest);
                            Event::Changed(Box::new(object))
                        }
                        watcher::Event::InitDone => {
                            let (names, newest) = mem::take(&mut listed).unwrap_or_default();
                            Event::Listed(self.namespace.clone(), names, newest)
                        }
                        watcher::Event::Apply(object) => Event::Changed(Box::new(object)),
                        watcher::Event::Delete(object) => {
                            Event::Deleted(object.key, object.version)
                        }
                    };
                    // A list that is answered does not show that a watch is.
                    if is_watch {
                        refusals = 0;
                        self.succeeded();
                    }
                    if self.events.send(M::from(event)).await.is_err() {
                        return None;
                    }
                    continue;
                }
                // A watch that has not failed for so long works, even if no object changed.
                Err(_) if listed.is_none() => {
                    refusals = 0;
                    self.succeeded();
                    if self.events.is_closed() {
                        return None;
                    }
                    continue;
                }
                Ok(Some(Err(error))) => Failure(Some(error)),
                Ok(None) | Err(_) => Failure(None),
            };
            self.retry.wait(&failure).await;
            if self.events.is_closed() || self.is_gone(&failure).await {
                return None;
            }
            refusals += u32::from(failure.is_lasting());
            // The server has many words for a version that it does not know.
            if failure.is_expired() || failure.0.is_none() || refusals == RELIST_AFTER {
                return Some(failure);
            }
        }
    }
}

impl<T: WatchedKind, M: From<Event<T>>> Reflector<T, M> {
    fn succeeded(&mut self) {
        self.retry.succeeded();
        self.denied_since = None;
    }

    /// Whether the API server does not have the kind any more. One that has just begun does not know for a while which kinds it has,
    /// and one that denies the kind does so whether it has it or not: so the list of kinds is asked, and only after a while.
    async fn is_gone(&mut self, failure: &Failure) -> bool {
        if !matches!(failure.status().map(|status| status.code), Some(403 | 404)) {
            self.denied_since = None;
            return false;
        }
        let since = *self.denied_since.get_or_insert_with(Instant::now);
        if T::GOES_AFTER.is_none_or(|after| since.elapsed() < after) {
            return false;
        }
        is_unlisted(&self.api).await
    }
}

/// Whether the API server's list of kinds is without this one. It shows the list to everybody, whatever they may read.
pub(super) async fn is_unlisted<T: WatchedKind>(api: &Api<Parsed<T>>) -> bool {
    let version = T::Object::api_version(&());
    let client = api.clone().into_client();
    match patiently(client.list_api_group_resources(&version)).await {
        Ok(kinds) => !kinds
            .resources
            .iter()
            .any(|one| one.name == T::Object::plural(&())),
        Err(kube::Error::Api(status)) => status.code == 404,
        Err(_) => false,
    }
}

/// An error of the watcher; `None`: a page of a list did not come in time.
#[derive(Debug)]
struct Failure(Option<watcher::Error>);

impl Failure {
    /// The error with all its causes: "client error (Connect)" alone says little.
    fn words(&self) -> String {
        let Some(error) = &self.0 else {
            return "a list was not answered in time".to_owned();
        };
        request::words(error)
    }

    /// The server's answer, if it answered.
    fn status(&self) -> Option<&Status> {
        match self.0.as_ref()? {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the server does not know the version, or the page, any more.
    fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// Whether the server refuses the request itself. Other refusals pass: an API server that has just started answers any request
    /// so, and all nodes at the same time, which must not list everything for it.
    fn is_lasting(&self) -> bool {
        self.status().is_some_and(|status| match status.code {
            401 | 403 | 408 | 429 => false,
            400..500 => true,
            _ => is_to_come(status),
        })
    }
}

/// Whether the server has not reached the version yet: it may have been set back.
fn is_to_come(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut reasons = causes.map(|cause| cause.reason.as_str());
    reasons.any(|reason| reason == "ResourceVersionTooLarge")
}

/// The pauses between retries, and their line in the log.
struct Retry {
    kind: &'static str,
    namespace: Option<String>,
    backoff: Backoff,
    rng: Rng,
    is_logged: bool,
}

impl Retry {
    fn new(kind: &'static str, namespace: Option<String>) -> Self {
        Self {
            kind,
            namespace,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            rng: Rng::new(RandomState::new().hash_one(kind)),
            is_logged: false,
        }
    }

    async fn wait(&mut self, failure: &Failure) {
        let mut pause = self.backoff.next(&mut self.rng);
        let (kind, namespace) = (self.kind, self.namespace.as_deref().unwrap_or("all"));
        let why = failure.words();
        if failure.is_expired() {
            tracing::debug!(kind, namespace, why, "listing again");
            // The watches of all nodes expire together: their lists must not.
            let millis = u64::try_from(RELIST_SPREAD.as_millis()).unwrap_or(u64::MAX);
            pause = pause.max(Duration::from_millis(self.rng.below(millis)));
        } else if self.is_logged {
            tracing::debug!(kind, namespace, why, "still cannot be watched");
        } else {
            tracing::warn!(
                kind,
                namespace,
                why,
                "cannot be watched; what was seen last stays"
            );
            self.is_logged = true;
        }
        sleep(pause).await;
    }

    fn succeeded(&mut self) {
        self.backoff.reset();
        if mem::take(&mut self.is_logged) {
            let (kind, namespace) = (self.kind, self.namespace.as_deref().unwrap_or("all"));
            tracing::info!(kind, namespace, "watched again");
        }
    }
}

/// Objects in a page.
const PAGE: u32 = 500;
const LIST_PAGE_WITHIN: Duration = Duration::from_secs(30);
/// Longer than a request may take with its pause.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Refusals that do not pass, in a row, after which everything is listed again.
const RELIST_AFTER: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const RELIST_SPREAD: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
