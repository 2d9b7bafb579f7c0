//! Address pools of Ballast, MetalLB and Antrea, AddressReservations, and the labels of namespaces where a pool selects by them, for the
//! publisher and `plan`: nodes serve what was given. And the objects that say how addresses are announced, for `plan`, and for nodes
//! with an announcer. Used by `cluster`.
//!
//! `kinds` reads the objects, `changes` says what changes of them, and `there` whether a kind is there.
//!
//! A cluster may be without these kinds of objects. Then there are none, one line in the log says so, and the kind is looked for again
//! now and then. A kind that cannot be read is not taken for an empty one: what was seen of it stays, and [`PoolObjects::unread`] names
//! it.

mod changes;
mod kinds;
mod there;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;

use super::lookups::Task;
use super::object::WatchedKind;
use super::reflector::Event;
use super::store::Store;
use crate::pools::{Pool, Reservation, Source, read};
use crate::settings::{Role, Settings};
use changes::{AnnouncingStore, Change};
pub(super) use kinds::expected_version;
use kinds::{Announcing, KINDS, Namespace, OF_POOLS, PoolOf};
use there::{Lack, follow_if_there};

/// What there is of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolObjects {
    pub pools: Vec<Arc<Pool>>,
    pub reservations: Vec<Arc<Reservation>>,
    /// The labels of the namespaces, by name, where a pool selects by them.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The objects that say how addresses are announced, and the pools that these select by labels. Not used by publishers.
    pub announcing: Vec<Arc<Value>>,
    /// The kinds that the API server has and does not let be read, or for which it fails, with the code of its answer.
    pub unread: BTreeMap<&'static str, u16>,
}

impl PoolObjects {
    /// Whether some pool is for Services with certain labels only.
    pub(crate) fn select_services(&self) -> bool {
        let mut pools = self.pools.iter();
        pools.any(|pool| !pool.service_selectors.is_empty())
    }

    /// Whether some pool is for namespaces with certain labels only.
    pub(crate) fn select_namespaces(&self) -> bool {
        let mut pools = self.pools.iter();
        pools.any(|pool| !pool.namespace_selectors.is_empty())
    }

    /// Those of [`Self::unread`] that hold pools or reservations: an object of them may be for any Service.
    pub(crate) fn unread_pools(&self) -> impl Iterator<Item = (&'static str, u16)> {
        let of_pools = KINDS.iter().take(OF_POOLS);
        of_pools.filter_map(|one| Some((one.kind, *self.unread.get(one.kind)?)))
    }

    /// The code of the API server's answer where the labels of namespaces cannot be read.
    pub(crate) fn unread_namespaces(&self) -> Option<u16> {
        self.unread.get(Namespace::NAME).copied()
    }

    /// Adds an object of a manifest that is of one of [`KINDS`].
    pub(super) fn take(&mut self, object: &Value) -> Result<(), String> {
        if object["kind"] != "AddressReservation" {
            self.announcing.push(Arc::new(object.clone()));
        }
        if let Some(pool) = read::pool(object) {
            let is_same = |one: &Arc<Pool>| (one.source, &one.name) == (pool.source, &pool.name);
            if self.pools.iter().any(is_same) {
                return Err(there_already(&pool));
            }
            self.pools.push(Arc::new(pool));
        } else {
            let reservation = read::reservation(object);
            self.reservations.extend(reservation.map(Arc::new));
        }
        Ok(())
    }
}

/// The message about an object of a manifest that has the name of an earlier one.
pub(super) fn there_already(object: &impl Display) -> String {
    format!("{object} was there already; the first one counts: remove one, or name it otherwise")
}

/// Follows them.
pub(super) struct PoolWatch {
    client: Client,
    events: mpsc::Sender<Change>,
    changes: mpsc::Receiver<Change>,
    tasks: Vec<Task>,
    ballast: Store<PoolOf<0>>,
    metallb: Store<PoolOf<1>>,
    antrea: Store<PoolOf<2>>,
    reservations: Store<Reservation>,
    /// `None`: no pool asks for labels of namespaces.
    namespaces: Option<Store<Namespace>>,
    announcing: AnnouncingStore,
    /// The kinds that cannot be listed.
    missing: BTreeMap<&'static str, Lack>,
    is_logged: bool,
    /// Where the rights are that this role needs, for a message.
    rights: &'static str,
}

impl PoolWatch {
    pub(super) fn new(client: &Client, settings: &Settings) -> Self {
        let (events, changes) = mpsc::channel(EVENTS);
        let follows = |source| settings.role != Role::Node && settings.reads_pools_of(source);
        let awaited = |source| follows(source).then_some(None);
        let mut watch = Self {
            client: client.clone(),
            events,
            changes,
            tasks: Vec::new(),
            ballast: Store::new(awaited(Source::Ballast)),
            metallb: Store::new(awaited(Source::MetalLb)),
            antrea: Store::new(awaited(Source::Antrea)),
            reservations: Store::new(awaited(Source::Ballast)),
            namespaces: None,
            announcing: AnnouncingStore::default(),
            missing: BTreeMap::new(),
            is_logged: false,
            rights: if settings.role == Role::Node {
                "the component announce"
            } else {
                "rc.yaml"
            },
        };
        if follows(Source::Ballast) {
            watch.follow::<PoolOf<0>>();
            watch.follow::<Reservation>();
        }
        if follows(Source::MetalLb) {
            watch.follow::<PoolOf<1>>();
        }
        if follows(Source::Antrea) {
            watch.follow::<PoolOf<2>>();
        }
        if settings.announces || settings.role == Role::Whole {
            if settings.reads_pools_of(Source::Ballast) {
                watch.follow_announcing::<0>();
                watch.follow_announcing::<4>();
            }
            if settings.reads_pools_of(Source::MetalLb) {
                watch.follow_announcing::<1>();
                watch.follow_announcing::<5>();
                watch.follow_announcing::<6>();
                watch.follow_announcing::<7>();
                watch.follow_announcing::<8>();
                watch.follow_announcing::<9>();
            }
        }
        watch
    }

    fn follow_announcing<const KIND: usize>(&mut self) {
        self.announcing.awaited.insert(KIND);
        self.follow::<Announcing<KIND>>();
    }

    fn follow<T: WatchedKind>(&mut self)
    where
        Change: From<Event<T>>,
    {
        let (client, events) = (self.client.clone(), self.events.clone());
        let follow = move || follow_if_there::<T>(client.clone(), events.clone());
        self.tasks.push(Task::start(follow));
    }

    /// Whether every kind was listed once, or is not there, or may not be read.
    pub(super) fn is_complete(&self) -> bool {
        self.late().is_empty()
    }

    /// The kinds that were not listed yet, though nothing says that they cannot be.
    pub(super) fn late(&self) -> BTreeSet<&'static str> {
        let namespaces = self.namespaces.as_ref();
        let stores = [
            (PoolOf::<0>::NAME, self.ballast.is_complete()),
            (PoolOf::<1>::NAME, self.metallb.is_complete()),
            (PoolOf::<2>::NAME, self.antrea.is_complete()),
            (Reservation::NAME, self.reservations.is_complete()),
            (Namespace::NAME, namespaces.is_none_or(Store::is_complete)),
        ];
        let late = stores.into_iter().filter(|(_, is_complete)| !is_complete);
        let announcing = self.announcing.awaited.iter().map(|kind| KINDS[*kind].kind);
        let late = late.map(|(kind, _)| kind).chain(announcing);
        late.filter(|kind| !self.missing.contains_key(kind))
            .collect()
    }

    /// Returns once something has changed. May be dropped and called again.
    pub(super) async fn changed(&mut self) {
        // The channel stays open: `self.events` is a sender of it.
        while let Some(change) = self.changes.recv().await {
            if self.apply(change) {
                return;
            }
        }
    }

    fn apply(&mut self, change: Change) -> bool {
        let is_changed = self.put(change);
        let mut pools = self.pools().into_iter();
        if self.namespaces.is_none() && pools.any(|pool| !pool.namespace_selectors.is_empty()) {
            self.namespaces = Some(Store::new([None]));
            self.follow::<Namespace>();
        }
        if !self.is_logged && self.is_complete() {
            self.is_logged = true;
            self.log_missing();
        }
        is_changed
    }

    fn put(&mut self, change: Change) -> bool {
        let (kind, is_changed) = match change {
            Change::Ballast(event) => (KINDS[0].kind, self.ballast.apply(event)),
            Change::MetalLb(event) => (KINDS[1].kind, self.metallb.apply(event)),
            Change::Antrea(event) => (KINDS[2].kind, self.antrea.apply(event)),
            Change::Reservation(event) => (KINDS[3].kind, self.reservations.apply(event)),
            Change::Namespace(event) => {
                let store = self.namespaces.as_mut();
                let is_changed = store.is_some_and(|store| store.apply(event));
                (Namespace::NAME, is_changed)
            }
            Change::Announcing(kind, change) => {
                (KINDS[kind].kind, self.announcing.apply(kind, change))
            }
            Change::Missing { kind, lack, none } => {
                let is_changed = none.is_some_and(|none| self.put(*none));
                let is_news = self.missing.insert(kind, lack) != Some(lack);
                if self.is_logged && is_news {
                    self.log_lost(kind, lack);
                }
                return is_changed || is_news;
            }
        };
        self.missing.remove(kind).is_some() || is_changed
    }

    /// Logs the kinds that the first decision is without.
    fn log_missing(&self) {
        let (absent, unread): (Vec<_>, Vec<_>) = self
            .missing
            .iter()
            .partition(|(_, lack)| **lack == Lack::Absent);
        if !absent.is_empty() {
            let words: Vec<&str> = absent.into_iter().map(|(kind, _)| *kind).collect();
            tracing::info!(
                "of address pools and announcements, these kinds are not there: {}; they are looked for again",
                words.join(", ")
            );
        }
        if !unread.is_empty() {
            let words = unread
                .into_iter()
                .map(|(kind, lack)| format!("{kind} ({})", self.why_unread(*lack)));
            tracing::warn!(
                "of address pools and announcements, these kinds cannot be read: {}; it is tried again",
                words.collect::<Vec<_>>().join(", ")
            );
        }
    }

    /// Logs a kind that cannot be read any more.
    fn log_lost(&self, kind: &str, lack: Lack) {
        match lack {
            Lack::Absent => tracing::warn!(kind, "is not there any more; it is looked for again"),
            _ => tracing::warn!(
                kind,
                "cannot be read: {}; it is tried again",
                self.why_unread(lack)
            ),
        }
    }

    fn why_unread(&self, lack: Lack) -> String {
        match lack {
            Lack::Denied => format!("may not be read: apply the rights of {}", self.rights),
            lack => format!("the API server answers {}", lack.code()),
        }
    }

    fn pools(&self) -> Vec<&Arc<Pool>> {
        let ballast = self.ballast.objects().values().map(|one| &one.0);
        let metallb = self.metallb.objects().values().map(|one| &one.0);
        let antrea = self.antrea.objects().values().map(|one| &one.0);
        ballast.chain(metallb).chain(antrea).collect()
    }

    pub(super) fn objects(&self) -> PoolObjects {
        let reservations = self.reservations.objects().values();
        let namespaces = self.namespaces.iter().flat_map(|store| store.objects());
        PoolObjects {
            pools: self.pools().into_iter().cloned().collect(),
            reservations: reservations.cloned().collect(),
            namespaces: namespaces
                .map(|(key, namespace)| (key.name.clone(), namespace.0.clone()))
                .collect(),
            announcing: self.announcing.objects.values().cloned().collect(),
            unread: {
                let missing = self.missing.iter();
                let unread = missing.filter(|(_, lack)| **lack != Lack::Absent);
                unread.map(|(kind, lack)| (*kind, lack.code())).collect()
            },
        }
    }
}

/// The events that may be queued. Watches wait while the queue is full.
const EVENTS: usize = 256;

#[cfg(test)]
mod tests;
