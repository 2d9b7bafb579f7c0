//! Observes a cluster through its API server.
//!
//! Called by `run`, and by `plan` without a folder. Nothing is sent until everything was listed once. While the API server is away,
//! the last state stays.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::debounce::Debouncer;
use super::leases::{LeaseObject, Leases};
use super::lookups::Task;
use super::object::{Parsed, WatchedKind};
use super::pools::PoolWatch;
use super::proofs::Proofs;
use super::reflector::{self, Event, paced};
use super::store::Store;
use super::{Earlier, Key, Lease, Node, Observed, Service, Slice, Wanted};
use crate::decide::{is_foreign, may_be_served};
use crate::lease::{Message, Versions};
use crate::settings::{Flags, Role, Settings};

/// Sends the state of the cluster after every change of it, once changes pause. Never returns; ends by being dropped.
///
/// The watched objects depend on the role: a node watches Services, EndpointSlices and its own Node, and all Nodes once a decision
/// wants them; the publisher watches Services, Nodes, Leases and address pools.
pub async fn watch(
    client: Client,
    settings: Arc<Settings>,
    earlier: Earlier,
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
) {
    let namespaces = namespaces(&settings.flags);
    let (events, mut changes) = mpsc::channel(EVENTS);
    let (slices, mut of_slices) = mpsc::channel(EVENTS);
    let mut tasks = Vec::new();
    for namespace in &namespaces {
        let api = in_namespace(&client, namespace);
        tasks.push(follow::<Service, _>(api, namespace, &events));
        if settings.role != Role::Publisher {
            let api = in_namespace(&client, namespace);
            tasks.push(follow::<Slice, _>(api, namespace, &slices));
        }
    }
    let own = &settings.own_namespace;
    if settings.role != Role::Node {
        let leases = Api::namespaced(paced(&client), own);
        tasks.push(follow::<LeaseObject, _>(
            leases,
            &Some(own.clone()),
            &events,
        ));
    }
    let (nodes, mut of_nodes) = mpsc::channel(EVENTS);
    tasks.push(follow_nodes(&client, own_node(&settings), nodes));
    let mut pools = PoolWatch::new(&client, &settings);
    let mut view = View::new(namespaces.clone(), Arc::clone(&settings));
    let mut wants = wanted.clone();
    wants.mark_changed();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut advances = interval(ADVANCE_EVERY);
    advances.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut debouncer = Debouncer::new(
        Some(client.clone()),
        settings.flags.dns_min_ttl,
        earlier,
        wanted,
        observed,
    );
    let mut is_first = true;
    let mut tell_late = pin!(sleep(LATE_AFTER));
    loop {
        let end = view.next_end_of_a_lease();
        if is_first && view.is_complete() && pools.is_complete() {
            // A list is whole: there is no burst of changes to wait for.
            is_first = false;
            debouncer.send(view.observed(&pools));
        }
        tokio::select! {
            // The channels stay open: `events` and `slices` are senders of them.
            Some(change) = changes.recv() => {
                if view.apply(change) {
                    debouncer.changed();
                }
            }
            Some(event) = of_slices.recv() => {
                if view.apply_to_slices(event) {
                    debouncer.changed();
                }
            }
            Some(event) = of_nodes.recv() => {
                if view.apply_to_nodes(event) {
                    debouncer.changed();
                }
            }
            Ok(()) = wants.changed(), if !view.wants_all_nodes => {
                if wants.borrow_and_update().nodes {
                    // The old watch ends with its channel, and the events that are still in the channel are dropped.
                    let (nodes, events) = mpsc::channel(EVENTS);
                    of_nodes = events;
                    tasks.push(follow_nodes(&client, None, nodes));
                    view.want_all_nodes();
                }
            }
            _ = looks.tick(), if settings.role == Role::Publisher => {
                if view.update_abandoned(wall_clock()) | view.update_live_leases() {
                    debouncer.changed();
                }
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                if view.update_live_leases() {
                    debouncer.changed();
                }
            }
            _ = advances.tick(), if settings.role == Role::Node => {
                if view.has_newer_versions() {
                    debouncer.changed();
                }
            }
            () = &mut tell_late, if is_first && !tell_late.is_elapsed() => {
                log_late(&view.late().union(&pools.late()).copied().collect::<Vec<_>>());
            }
            () = pools.changed() => debouncer.changed(),
            () = debouncer.due(), if view.is_complete() && pools.is_complete() => debouncer.send(view.observed(&pools)),
        }
    }
}

/// Logs the kinds without which nothing can be decided.
fn log_late(kinds: &[&str]) {
    if !kinds.is_empty() {
        tracing::warn!(
            "nothing is decided yet: the API server has not listed these kinds: {}; the lines before this one say why",
            kinds.join(", ")
        );
    }
}

/// The only Node that is watched at first; `None`: all Nodes are watched.
fn own_node(settings: &Settings) -> Option<String> {
    let name = settings.flags.node_name.clone();
    name.filter(|_| settings.role == Role::Node && !settings.needs_all_nodes())
}

fn follow_nodes(client: &Client, only: Option<String>, events: mpsc::Sender<Event<Node>>) -> Task {
    let fields = only.map(|name| format!("metadata.name={name}"));
    let api = Api::all(paced(client));
    Task::start(move || reflector::follow(api.clone(), None, fields.clone(), events.clone()))
}

/// The namespaces of the Services and slices that are watched; `None`: all namespaces.
pub(crate) fn namespaces(flags: &Flags) -> Vec<Option<String>> {
    let named = &flags.namespace;
    match named.is_empty() {
        true => vec![None],
        false => {
            let named: BTreeSet<String> = named.iter().cloned().collect();
            named.into_iter().map(Some).collect()
        }
    }
}

fn in_namespace<T>(client: &Client, namespace: &Option<String>) -> Api<Parsed<T>>
where
    T: WatchedKind,
    Parsed<T>: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(paced(client), namespace),
        None => Api::all(paced(client)),
    }
}

fn follow<T: WatchedKind, M: From<Event<T>> + Send + 'static>(
    api: Api<Parsed<T>>,
    namespace: &Option<String>,
    events: &mpsc::Sender<M>,
) -> Task {
    let (namespace, events) = (namespace.clone(), events.clone());
    Task::start(move || reflector::follow(api.clone(), namespace.clone(), None, events.clone()))
}

/// An event of a Service or a Lease.
enum Change {
    Service(Event<Service>),
    Lease(Event<LeaseObject>),
}

impl From<Event<Service>> for Change {
    fn from(event: Event<Service>) -> Self {
        Self::Service(event)
    }
}

impl From<Event<LeaseObject>> for Change {
    fn from(event: Event<LeaseObject>) -> Self {
        Self::Lease(event)
    }
}

/// The last known state of everything that is watched.
struct View {
    settings: Arc<Settings>,
    services: Store<Service>,
    /// The newest known versions of Services, and those that were sent last.
    versions: Versions,
    sent: Versions,
    slices: Store<Slice>,
    nodes: Store<Node>,
    lease_objects: Store<LeaseObject>,
    leases: Leases,
    /// What the Leases prove.
    proofs: Proofs,
    /// The live Leases at the last update.
    live: BTreeMap<String, Arc<Lease>>,
    /// The Leases that had lapsed then.
    silent: BTreeMap<String, Arc<Lease>>,
    /// Those of them whose addresses stay.
    excused: BTreeSet<String>,
    /// The messages of the Leases that were not live then.
    others_say: BTreeMap<String, Vec<Message>>,
    /// Whether all Nodes are watched, and whether they were listed.
    wants_all_nodes: bool,
    has_all_nodes: bool,
    /// Services that another controller published and has not written for a while.
    abandoned: BTreeSet<Key>,
}

impl View {
    fn new(namespaces: Vec<Option<String>>, settings: Arc<Settings>) -> Self {
        let own = settings.own_namespace.clone();
        let (slices, lease_objects) = match settings.role {
            Role::Whole => (namespaces.clone(), vec![Some(own)]),
            Role::Node => (namespaces.clone(), Vec::new()),
            Role::Publisher => (Vec::new(), vec![Some(own)]),
        };
        Self {
            services: Store::new(namespaces),
            versions: Versions::default(),
            sent: Versions::default(),
            slices: Store::new(slices),
            nodes: Store::new([None]),
            lease_objects: Store::new(lease_objects),
            leases: Leases::default(),
            proofs: Proofs::default(),
            live: BTreeMap::new(),
            silent: BTreeMap::new(),
            excused: BTreeSet::new(),
            others_say: BTreeMap::new(),
            wants_all_nodes: own_node(&settings).is_none(),
            has_all_nodes: false,
            abandoned: BTreeSet::new(),
            settings,
        }
    }

    /// Whether everything was listed once.
    fn is_complete(&self) -> bool {
        self.late().is_empty()
    }

    /// The kinds that were not listed yet.
    fn late(&self) -> BTreeSet<&'static str> {
        let stores = [
            (Service::NAME, self.services.is_complete()),
            (Slice::NAME, self.slices.is_complete()),
            (Node::NAME, self.nodes.is_complete()),
            (LeaseObject::NAME, self.lease_objects.is_complete()),
        ];
        let late = stores.into_iter().filter(|(_, is_complete)| !is_complete);
        late.map(|(kind, _)| kind).collect()
    }

    /// Applies an event. Returns whether a decision may depend on it.
    fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Service(mut event) => {
                if self.settings.role == Role::Node {
                    event.change(Service::forget_publication);
                }
                self.note_version(&event);
                let is_unreadable = self.settings.role != Role::Node
                    && matches!(&event, Event::Changed(object) if object.content.is_err());
                let is_list = matches!(&event, Event::Listed(..));
                let is_of_list = matches!(&event, Event::Changed(object) if object.version == 0);
                let changed = match &event {
                    Event::Changed(object) => Some(object.key.clone()),
                    Event::Listed(..) | Event::Deleted(..) => None,
                };
                let before = self.allocated_at(changed.as_ref());
                let is_changed = self.services.apply(event) | is_unreadable;
                // Leases may prove more or less by a Service that says more than was known when they came. Most events of Services
                // change no such thing, and need no look at all Leases.
                let is_new = self.allocated_at(changed.as_ref()) != before;
                let matters = is_list || !is_of_list && (self.proofs.wait_for_versions() || is_new);
                is_changed | (matters && self.update_live_leases())
            }
            Change::Lease(event) => {
                let was_complete = self.lease_objects.is_complete();
                self.lease_objects.apply(event);
                let all = self.lease_objects.objects();
                self.leases.observe(all, Instant::now(), wall_clock());
                self.update_live_leases() || !was_complete
            }
        }
    }

    /// The version of a Service by which it has what it was given, as this observer knows it.
    fn allocated_at(&self, key: Option<&Key>) -> Option<u64> {
        let service = self.services.objects().get(key?)?;
        Some(service.publication.allocated_at)
    }

    fn note_version(&mut self, event: &Event<Service>) {
        let of = |namespace| match self.settings.flags.namespace.is_empty() {
            true => None,
            false => Some(namespace),
        };
        let versions = &mut self.versions;
        match event {
            Event::Listed(namespace, _, version) => {
                if versions.listed(namespace.as_deref(), *version) {
                    self.proofs.begin_anew();
                }
            }
            Event::Changed(object) if object.version > 0 => {
                versions.advance(of(&*object.key.namespace), object.version);
            }
            Event::Deleted(key, version) if *version > 0 => {
                versions.advance(of(&*key.namespace), *version);
            }
            Event::Changed(_) | Event::Deleted(..) => {}
        }
    }

    /// Whether newer versions of Services are known than those that were sent.
    fn has_newer_versions(&self) -> bool {
        self.versions != self.sent
    }

    /// Applies an event of slices, with the same result.
    fn apply_to_slices(&mut self, event: Event<Slice>) -> bool {
        let counts = self.counts(&event);
        self.slices.apply(event) && counts
    }

    /// Applies an event of Nodes, with the same result.
    fn apply_to_nodes(&mut self, event: Event<Node>) -> bool {
        let is_first = self.wants_all_nodes && !self.has_all_nodes;
        let is_list = matches!(event, Event::Listed(..));
        self.has_all_nodes |= is_first && is_list;
        self.nodes.apply(event) || (is_first && is_list)
    }

    /// All Nodes are watched from now on. The known Nodes stay until all are listed.
    fn want_all_nodes(&mut self) {
        self.wants_all_nodes = true;
    }

    /// Whether an event concerns endpoints of a Service that may be served: other endpoints cause no decision.
    fn counts(&self, event: &Event<Slice>) -> bool {
        let (key, new) = match event {
            Event::Listed(..) => return true,
            Event::Changed(object) => (&object.key, object.content.as_ref().ok()),
            Event::Deleted(key, _) => (key, None),
        };
        // A slice may move from one Service to another.
        let stored = self.slices.objects().get(key).map(|slice| &slice.service);
        let new = new.and_then(Option::as_ref).map(|slice| &slice.service);
        let mut owners = stored.into_iter().chain(new);
        owners.any(|service| self.may_be_served(service))
    }

    fn may_be_served(&self, service: &Key) -> bool {
        if !selects_slices(&self.settings) {
            return true;
        }
        let service = self.services.objects().get(service);
        service.is_some_and(|service| may_be_served(service, &self.settings))
    }

    /// Finds the published Services that another controller has not written for a while. Returns whether the set changed.
    fn update_abandoned(&mut self, wall: i64) -> bool {
        let is_abandoned = |service: &&Arc<Service>| {
            let written = service.rival.as_ref().and_then(|rival| rival.written);
            // Without a time, the Service was written long ago, or the server keeps no such record.
            written.is_none_or(|written| wall / 1_000_000 >= written + ABANDONED_AFTER)
                && is_foreign(service)
        };
        let services = self.services.objects().values();
        let abandoned = services.filter(is_abandoned).map(|one| one.key.clone());
        let abandoned: BTreeSet<Key> = abandoned.collect();
        let differs = abandoned != self.abandoned;
        self.abandoned = abandoned;
        differs
    }

    /// Returns whether other Leases are live than at the last update.
    fn update_live_leases(&mut self) -> bool {
        let now = Instant::now();
        let mut live = self.leases.live(now);
        self.proofs
            .apply(&mut live, &self.versions, self.services.objects(), now);
        let others_say = self.leases.others_say(now);
        let silent = self.leases.silent(now);
        let excused = self.leases.excused(now);
        let before = (&self.live, &self.silent, &self.excused, &self.others_say);
        let differs = (&live, &silent, &excused, &others_say) != before;
        self.live = live;
        self.silent = silent;
        self.excused = excused;
        self.others_say = others_say;
        differs
    }

    fn next_end_of_a_lease(&self) -> Option<Instant> {
        self.leases.next_end(Instant::now())
    }

    fn observed(&mut self, pools: &PoolWatch) -> Observed {
        self.sent.clone_from(&self.versions);
        let nodes = self.nodes.objects().values();
        let slices = self.slices.objects().iter();
        let slices = slices.filter(|(_, slice)| self.may_be_served(&slice.service));
        Observed {
            services: self.services.objects().clone(),
            // Only nodes say in their Leases what they know.
            versions: match self.settings.role {
                Role::Node => self.versions.clone(),
                Role::Whole | Role::Publisher => Versions::default(),
            },
            slices: slices
                .map(|(key, slice)| (key.clone(), Arc::clone(slice)))
                .collect(),
            nodes: nodes
                .map(|node| (node.name.clone(), Node::clone(node)))
                .collect(),
            pools: Arc::new(pools.objects()),
            unreadable: match self.settings.role {
                Role::Node => BTreeMap::new(),
                Role::Whole | Role::Publisher => {
                    let unreadable = self.services.unreadable();
                    unreadable.map(|(key, at)| (key.clone(), at)).collect()
                }
            },
            abandoned: self.abandoned.clone(),
            others_say: self.others_say.clone(),
            silent: self.silent.clone(),
            excused: self.excused.clone(),
            leases: (self.settings.role != Role::Node).then(|| self.live.clone()),
            looked_up: Arc::new(Wanted {
                nodes: self.has_all_nodes,
                ..Wanted::default()
            }),
            ..Observed::default()
        }
    }
}

/// Whether only the slices of Services that may be served matter.
fn selects_slices(settings: &Settings) -> bool {
    // The settings of `--cfg` may change.
    settings.role == Role::Node && settings.flags.cfg.is_none()
}

/// The time of day, in microseconds of Unix time.
fn wall_clock() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// After so long the log names the kinds that were not listed yet. Pools that may not be read count as such before.
const LATE_AFTER: Duration = Duration::from_secs(15);
/// How often the Services of other controllers are checked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often versions of Services are sent that change nothing else.
const ADVANCE_EVERY: Duration = Duration::from_secs(3);
/// The seconds without a write after which another controller counts as gone.
const ABANDONED_AFTER: i64 = 60;
/// The events that may be queued. Watches wait while the queue is full.
const EVENTS: usize = 256;
