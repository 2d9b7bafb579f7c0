//! Address pools of Ballast, MetalLB and Antrea, AddressReservations, and the labels of namespaces where a pool selects by them, for the
//! publisher and `plan`: nodes serve what was given. And the objects that say how addresses are announced, for `plan`, and for nodes
//! with an announcer. Used by `cluster`.
//!
//! A cluster may be without these kinds of objects. Then there are none, one line in the log says so, and the kind is looked for again
//! now and then. A kind that may not be read is not taken for an empty one: [`PoolObjects::denied`] names it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::ClusterResourceScope;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::Key;
use super::lookups::Task;
use super::object::{Parsed, WatchedKind};
use super::reflector::{self, Event, paced};
use super::store::Store;
use crate::pools::{Pool, Reservation, Source, read};
use crate::request::patiently;
use crate::settings::{Role, Settings};

/// What there is of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolObjects {
    pub pools: Vec<Arc<Pool>>,
    pub reservations: Vec<Arc<Reservation>>,
    /// The labels of the namespaces, by name, where a pool selects by them.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The objects that say how addresses are announced, and the pools that these select by labels. Not used by publishers.
    pub announcing: Vec<Arc<Value>>,
    /// The kinds that the API server has and does not let be read, or for which it fails.
    pub unread: BTreeSet<&'static str>,
    /// Those of them that may not be read, and hold pools or reservations: objects of them may be for any Service.
    pub denied: BTreeSet<&'static str>,
}

impl PoolObjects {
    /// Whether some pool is for Services with certain labels only.
    pub(super) fn select_services(&self) -> bool {
        let mut pools = self.pools.iter();
        pools.any(|pool| !pool.service_selectors.is_empty())
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

/// The `apiVersion` that an object of a manifest would have to have, if its kind has the name of one of [`KINDS`] and it is not of that
/// kind.
pub(super) fn expected_version(object: &Value) -> Option<String> {
    let mut kinds = KINDS.iter();
    let kind = kinds.find(|one| object["kind"] == one.kind)?;
    let expected = format!("{}/{}", kind.group, kind.version);
    // MetalLB's older version of this kind has the same fields.
    let is_older = kind.kind == "BGPPeer" && object["apiVersion"] == "metallb.io/v1beta1";
    (object["apiVersion"] != *expected && !is_older).then_some(expected)
}

/// The message about an object of a manifest that has the name of an earlier one.
pub(super) fn there_already(object: &impl Display) -> String {
    format!("{object} was there already; the first one counts: remove one, or name it otherwise")
}

/// The kinds of objects, by the number of [`Custom`]: three of pools, that of reservations, and those about announcing.
const KINDS: [PoolKind; 10] = [
    PoolKind {
        group: "ballast.dev",
        version: "v1",
        kind: "AddressPool",
        plural: "addresspools",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta1",
        kind: "IPAddressPool",
        plural: "ipaddresspools",
    },
    PoolKind {
        group: "crd.antrea.io",
        version: "v1beta1",
        kind: "ExternalIPPool",
        plural: "externalippools",
    },
    PoolKind {
        group: "ballast.dev",
        version: "v1",
        kind: "AddressReservation",
        plural: "addressreservations",
    },
    PoolKind {
        group: "ballast.dev",
        version: "v1",
        kind: "Announcement",
        plural: "announcements",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta1",
        kind: "L2Advertisement",
        plural: "l2advertisements",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta1",
        kind: "BGPAdvertisement",
        plural: "bgpadvertisements",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta2",
        kind: "BGPPeer",
        plural: "bgppeers",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta1",
        kind: "Community",
        plural: "communities",
    },
    PoolKind {
        group: "metallb.io",
        version: "v1beta1",
        kind: "BFDProfile",
        plural: "bfdprofiles",
    },
];

struct PoolKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

/// An object of one of these kinds, as the API server has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Custom<const KIND: usize>(Value, #[serde(skip)] ObjectMeta);

impl<const KIND: usize> Resource for Custom<KIND> {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KINDS[KIND].kind.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        KINDS[KIND].group.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KINDS[KIND].version.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KINDS[KIND].plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.1
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.1
    }
}

/// A pool of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PoolOf<const KIND: usize>(Arc<Pool>);

impl<const KIND: usize> WatchedKind for PoolOf<KIND> {
    type Object = Custom<KIND>;
    const NAME: &'static str = KINDS[KIND].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Custom<KIND>) -> Result<Option<Self>, String> {
        Ok(read::pool(&named(&KINDS[KIND], object.0)).map(|pool| Self(Arc::new(pool))))
    }
}

impl WatchedKind for Reservation {
    type Object = Custom<3>;
    const NAME: &'static str = KINDS[3].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Self::Object) -> Result<Option<Self>, String> {
        Ok(read::reservation(&named(&KINDS[3], object.0)))
    }
}

/// An object about announcing, or a pool whose labels such an object may select.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Announcing<const KIND: usize>(Arc<Value>);

impl<const KIND: usize> WatchedKind for Announcing<KIND> {
    type Object = Custom<KIND>;
    const NAME: &'static str = KINDS[KIND].kind;
    const GOES_AFTER: Option<Duration> = Some(PATIENCE);
    fn convert(object: Custom<KIND>) -> Result<Option<Self>, String> {
        let mut object = named(&KINDS[KIND], object.0);
        // What changes without a meaning.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| ["name", "namespace", "labels"].contains(&&**key));
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        Ok(Some(Self(Arc::new(object))))
    }
}

/// The object with its kind, which a list does not repeat for each of its objects.
fn named(kind: &PoolKind, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert(
            "apiVersion".into(),
            format!("{}/{}", kind.group, kind.version).into(),
        );
        map.insert("kind".into(), kind.kind.into());
    }
    object
}

/// The labels of a namespace.
#[derive(Clone, Debug, PartialEq)]
struct Namespace(BTreeMap<String, String>);

impl WatchedKind for Namespace {
    type Object = core::Namespace;
    const NAME: &'static str = "Namespace";
    fn convert(object: core::Namespace) -> Result<Option<Self>, String> {
        Ok(Some(Self(object.metadata.labels.unwrap_or_default())))
    }
}

/// An event of one of these kinds, or that the kind is not there.
enum Change {
    Ballast(Event<PoolOf<0>>),
    MetalLb(Event<PoolOf<1>>),
    Antrea(Event<PoolOf<2>>),
    Reservation(Event<Reservation>),
    Namespace(Event<Namespace>),
    /// The kind, by its number, and the change.
    Announcing(usize, Announced),
    Absent {
        kind: &'static str,
        code: u16,
        /// The event by which there are no objects; `None`: what was seen last stays.
        none: Option<Box<Self>>,
    },
}

/// A change of an object about announcing.
enum Announced {
    Listed(BTreeSet<Key>),
    Changed(Key, Arc<Value>),
    Deleted(Key),
    /// It cannot be read: its last good form stays.
    Unreadable,
}

impl<const KIND: usize> From<Event<Announcing<KIND>>> for Change {
    fn from(event: Event<Announcing<KIND>>) -> Self {
        let change = match event {
            Event::Listed(_, all, _) => Announced::Listed(all),
            Event::Deleted(key, _) => Announced::Deleted(key),
            Event::Changed(object) => match object.content {
                Ok(Some(content)) => Announced::Changed(object.key, content.0),
                Ok(None) | Err(_) => Announced::Unreadable,
            },
        };
        Self::Announcing(KIND, change)
    }
}

/// The objects about announcing.
#[derive(Default)]
struct AnnouncingStore {
    /// The kinds that were not listed yet.
    awaited: BTreeSet<usize>,
    objects: BTreeMap<(usize, Key), Arc<Value>>,
}

impl AnnouncingStore {
    /// Applies a change. Returns whether something differs.
    fn apply(&mut self, kind: usize, change: Announced) -> bool {
        match change {
            Announced::Listed(all) => {
                let before = self.objects.len();
                let stays = |(of, key): &(usize, Key)| *of != kind || all.contains(key);
                self.objects.retain(|key, _| stays(key));
                self.awaited.remove(&kind) || self.objects.len() != before
            }
            Announced::Changed(key, object) => {
                let before = self.objects.insert((kind, key), Arc::clone(&object));
                before != Some(object)
            }
            Announced::Deleted(key) => self.objects.remove(&(kind, key)).is_some(),
            Announced::Unreadable => false,
        }
    }
}

macro_rules! changes {
    ($($kind:ty => $change:ident),+) => {
        $(impl From<Event<$kind>> for Change {
            fn from(event: Event<$kind>) -> Self {
                Self::$change(event)
            }
        })+
    };
}

changes!(PoolOf<0> => Ballast, PoolOf<1> => MetalLb, PoolOf<2> => Antrea, Reservation => Reservation, Namespace => Namespace);

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
    /// The kinds that are not there, with the code of the API server's answer.
    absent: BTreeMap<&'static str, u16>,
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
            absent: BTreeMap::new(),
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
        late.filter(|kind| !self.absent.contains_key(kind))
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
            self.log_absent();
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
                return store.is_some_and(|store| store.apply(event));
            }
            Change::Announcing(kind, change) => {
                (KINDS[kind].kind, self.announcing.apply(kind, change))
            }
            Change::Absent { kind, code, none } => {
                let is_changed = none.is_some_and(|none| self.put(*none));
                let is_news = self.absent.insert(kind, code) != Some(code);
                if self.is_logged && is_news {
                    self.log_lost(kind, code);
                }
                return is_changed || is_news;
            }
        };
        self.absent.remove(kind).is_some() || is_changed
    }

    /// Logs the kinds that the first decision is without.
    fn log_absent(&self) {
        let (missing, unread): (Vec<_>, Vec<_>) =
            self.absent.iter().partition(|(_, code)| **code == 404);
        if !missing.is_empty() {
            let words: Vec<&str> = missing.into_iter().map(|(kind, _)| *kind).collect();
            tracing::info!(
                "of address pools and announcements, these kinds are not there: {}; they are looked for again",
                words.join(", ")
            );
        }
        if !unread.is_empty() {
            let words = unread
                .into_iter()
                .map(|(kind, code)| format!("{kind} ({})", self.why_unread(*code)));
            tracing::warn!(
                "of address pools and announcements, these kinds cannot be read: {}; it is tried again",
                words.collect::<Vec<_>>().join(", ")
            );
        }
    }

    /// Logs a kind that cannot be read any more.
    fn log_lost(&self, kind: &str, code: u16) {
        match code {
            404 => tracing::warn!(kind, "is not there any more; it is looked for again"),
            _ => tracing::warn!(
                kind,
                "cannot be read: {}; it is tried again",
                self.why_unread(code)
            ),
        }
    }

    fn why_unread(&self, code: u16) -> String {
        match code {
            403 => format!("may not be read: apply the rights of {}", self.rights),
            code => format!("the API server answers {code}"),
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
                let unread = self.absent.iter().filter(|(_, code)| **code != 404);
                unread.map(|(kind, _)| *kind).collect()
            },
            denied: {
                let of_pools = KINDS[..OF_POOLS].iter().map(|one| one.kind);
                let is_denied = |kind: &&str| self.absent.get(kind) == Some(&DENIED);
                of_pools.filter(is_denied).collect()
            },
        }
    }
}

/// Follows the objects of a kind whenever the API server has it and lets it be read.
async fn follow_if_there<T: WatchedKind>(client: Client, events: mpsc::Sender<Change>)
where
    Change: From<Event<T>>,
{
    let api: Api<Parsed<T>> = Api::all(paced(&client));
    while !events.is_closed() {
        if until_there(&api, &events).await {
            tracing::info!(kind = T::NAME, "is there now");
        }
        reflector::follow(api.clone(), None, None, events.clone()).await;
    }
}

/// Waits until the API server has the kind and lets it be read. While it has none, there are no objects. Returns whether the kind was
/// not there, or not to be read.
async fn until_there<T: WatchedKind>(api: &Api<Parsed<T>>, events: &mpsc::Sender<Change>) -> bool
where
    Change: From<Event<T>>,
{
    let mut told = None;
    let mut failing_since = None;
    let mut pauses = LOOK_SOON.into_iter();
    while !events.is_closed() {
        let one = ListParams::default().limit(1);
        let code = match patiently(api.list_metadata(&one)).await {
            Ok(_) => break,
            // What the server does not have it denies as well.
            Err(kube::Error::Api(status))
                if status.code == DENIED && reflector::is_unlisted(api).await =>
            {
                404
            }
            Err(kube::Error::Api(status)) => status.code,
            Err(_) => {
                // The API server is away, for the Services too.
                failing_since = None;
                sleep(SOON).await;
                continue;
            }
        };
        let failing = failing_since.get_or_insert_with(Instant::now).elapsed();
        let is_believed = match code {
            404 => true,
            DENIED => failing >= DENIED_FOR,
            _ => failing >= PATIENCE,
        };
        if told.is_none() && !is_believed {
            sleep(SOON).await;
            continue;
        }
        if is_believed && told != Some(code) {
            told = Some(code);
            // Objects that may not be read are there all the same.
            let none = (code != DENIED).then(|| {
                let none = Event::<T>::Listed(None, BTreeSet::new(), 0);
                Box::new(Change::from(none))
            });
            let kind = T::NAME;
            // After an error, the task is about to end.
            drop(events.send(Change::Absent { kind, code, none }).await);
        }
        let pause = match code {
            DENIED => LOOK_FOR_RIGHTS,
            _ => pauses.next().unwrap_or(LOOK_AGAIN),
        };
        sleep(pause).await;
    }
    told.is_some()
}

/// The pause before a kind is asked for again, while the API server is away or fails.
const SOON: Duration = Duration::from_secs(1);
/// A kind that cannot be read for so long counts as not there, or may be found to be gone: another system's kind that fails by a
/// webhook of its own, for example, must not keep everything waiting.
const PATIENCE: Duration = Duration::from_secs(60);
/// A kind that the API server has and denies for so long may not be read. A server that has just begun denies for a moment what it
/// grants.
const DENIED_FOR: Duration = Duration::from_secs(10);
/// The first pauses before a kind is looked for that was not there: a server that has just begun may not have all kinds yet.
const LOOK_SOON: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];
/// The later pauses: nothing else is read at rest.
const LOOK_AGAIN: Duration = Duration::from_secs(120);
/// The pause before a kind is looked for that may not be read: Services wait for it.
const LOOK_FOR_RIGHTS: Duration = Duration::from_secs(15);
/// The API server's code for a missing right.
const DENIED: u16 = 403;
/// How many of [`KINDS`], from the first one, are pools and reservations.
const OF_POOLS: usize = 4;
/// The events that may be queued. Watches wait while the queue is full.
const EVENTS: usize = 256;
