//! The EndpointSlices of a node, without the content of slices whose Service is not served. Used by `cluster`.
//!
//! A cluster may have a hundred thousand endpoints of Services that no load balancer serves. Their slices are dropped. When such a
//! Service is served later, its slices are listed once. A list is at least as new as every event before its request, and later events
//! come by the watch, so nothing is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ballast_core::backoff::Backoff;
use ballast_core::rng::Rng;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::convert::SERVICE_NAME;
use super::lookups::{AnswerSender, Lookups};
use super::object::Parsed;
use super::reflector::Event;
use super::store::Store;
use super::{Key, Slice};
use crate::request;

/// The slices, and the dropped ones.
pub(super) struct SliceStore {
    slices: Store<Slice>,
    /// The dropped slices, by name.
    dropped: BTreeMap<Key, Dropped>,
    /// The Services whose dropped slices are being listed.
    awaited: BTreeSet<Key>,
    /// The time at which the first list since the last send was requested.
    awaited_since: Option<Instant>,
    lists: Lookups<Key, SliceList>,
    client: Client,
}

/// A dropped slice.
struct Dropped {
    /// The name of its Service.
    service: String,
    /// The time of the last event of the slice.
    at: Instant,
}

/// The slices of a Service, with the time of the request.
type SliceList = (Instant, Vec<Parsed<Slice>>);

impl SliceStore {
    /// An empty store, complete once every one of `namespaces` was listed.
    pub(super) fn new(client: &Client, namespaces: Vec<Option<String>>) -> Self {
        Self {
            slices: Store::new(namespaces),
            dropped: BTreeMap::new(),
            awaited: BTreeSet::new(),
            awaited_since: None,
            lists: Lookups::new(),
            client: client.clone(),
        }
    }

    /// The slices that were not dropped.
    pub(super) fn store(&self) -> &Store<Slice> {
        &self.slices
    }

    /// Applies an event. Returns whether the store changed.
    pub(super) fn apply(
        &mut self,
        mut event: Event<Slice>,
        is_unserved: impl Fn(&Key) -> bool,
    ) -> bool {
        match &event {
            Event::Listed(namespace, listed, _) => self.dropped.retain(|key, _| {
                let is_of_list = namespace.as_ref().is_none_or(|one| key.namespace == *one);
                !is_of_list || listed.contains(key)
            }),
            Event::Changed(object) => {
                let unserved = match &object.content {
                    Ok(Some(slice)) if is_unserved(&slice.service) => Some(slice),
                    _ => None,
                };
                if let Some(slice) = unserved {
                    self.dropped.insert(object.key.clone(), Dropped::new(slice));
                    event = Event::Deleted(object.key.clone(), object.version);
                } else if object.content.is_ok() {
                    self.dropped.remove(&object.key);
                }
            }
            Event::Deleted(key, _) => {
                self.dropped.remove(key);
            }
        }
        self.slices.apply(event)
    }

    /// Drops the stored slices of Services that are not served.
    pub(super) fn drop_unserved(&mut self, is_unserved: impl Fn(&Key) -> bool) {
        let stored = self.slices.objects().iter();
        let unserved = stored.filter(|(_, slice)| is_unserved(&slice.service));
        let unserved: Vec<(Key, Dropped)> = unserved
            .map(|(key, slice)| (key.clone(), Dropped::new(slice)))
            .collect();
        for (key, dropped) in unserved {
            self.slices.apply(Event::Deleted(key.clone(), 0));
            self.dropped.insert(key, dropped);
        }
    }

    /// Lists the dropped slices of a Service, which is served now.
    pub(super) fn restore(&mut self, service: &Key) {
        let mut dropped = self.dropped.iter();
        if dropped.any(|(key, one)| one.is_of(key, service)) {
            self.awaited.insert(service.clone());
            self.awaited_since.get_or_insert_with(Instant::now);
            self.list_awaited();
        }
    }

    fn list_awaited(&mut self) {
        let client = self.client.clone();
        self.lists.want(&self.awaited, move |service, answers| {
            list(client.clone(), service, answers)
        });
    }

    /// The time until which the state is not sent, because lists are awaited.
    pub(super) fn awaited_until(&self) -> Option<Instant> {
        let until = self.awaited_since? + LONGEST_DELAY;
        (!self.awaited.is_empty() && until > Instant::now()).then_some(until)
    }

    /// Notes that the state was sent.
    pub(super) fn sent(&mut self) {
        self.awaited_since = None;
    }

    /// Returns after slices were restored. May be dropped and called again.
    pub(super) async fn restored(&mut self) {
        self.lists.changed().await;
        let mut outdated = BTreeSet::new();
        for (service, (requested, list)) in self.lists.answers() {
            for object in list {
                // A slice of which an event came while its Service was served is stored, and not dropped any more.
                let key = &object.key;
                let is_older = |one: &Dropped| one.is_of(key, service) && one.at <= *requested;
                if self.dropped.get(key).is_some_and(is_older) {
                    self.slices.apply(Event::Changed(Box::new(object.clone())));
                }
            }
            self.dropped.retain(|key, one| {
                let is_newer = one.at > *requested;
                if is_newer && one.is_of(key, service) {
                    outdated.insert(service.clone());
                }
                is_newer || !one.is_of(key, service)
            });
            self.awaited.remove(service);
        }
        self.list_awaited();
        if !outdated.is_empty() {
            self.awaited.extend(outdated);
            self.list_awaited();
        }
    }
}

impl Dropped {
    fn new(slice: &Slice) -> Self {
        Self {
            service: slice.service.name.clone(),
            at: Instant::now(),
        }
    }

    /// Whether this slice, of this name, belongs to a Service.
    fn is_of(&self, key: &Key, service: &Key) -> bool {
        key.namespace == service.namespace && self.service == service.name
    }
}

/// Sends the slices of a Service, once they can be listed.
async fn list(client: Client, service: Key, answers: AnswerSender<Key, SliceList>) {
    let api: Api<Parsed<Slice>> = Api::namespaced(client, &service.namespace);
    let selector = format!("{SERVICE_NAME}={}", service.name);
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut rng = Rng::new(RandomState::new().hash_one(&service));
    loop {
        let mut slices = Vec::new();
        let requested = Instant::now();
        let params = ListParams::default().labels(&selector);
        match request::list(&api, params, |slice| slices.push(slice)).await {
            Ok(()) => return answers.send((requested, slices)).await,
            Err(error) => tracing::debug!(%service, %error, "cannot list its EndpointSlices"),
        }
        sleep(backoff.next(&mut rng)).await;
    }
}

/// A list that fails delays other changes for so long.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
