//! What is seen of a cluster, through its API server.
//!
//! Called by `run`, and by `plan` without a folder. Silent until everything was listed once; after that, whatever becomes
//! of the API server, the last state stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::arrived::{Arrived, Kind};
use super::debounce::Debouncer;
use super::leases::{Leases, Renewal};
use super::lookups::Task;
use super::reflect::{self, Event};
use super::store::Store;
use super::{Key, Lease, Node, Observed, Service, Slice, Wanted};
use crate::decide::{is_foreign, may_be_served};
use crate::lease::Message;
use crate::settings::{Role, Settings};

/// Sends what is seen of the cluster, whenever that changed and settled. Never returns; ends by being dropped.
///
/// The watched objects depend on the role: a node watches Services, EndpointSlices and its own Node, and all Nodes once a decision
/// wants them; the publisher watches Services, Nodes and Leases.
pub async fn watch(
    client: Client,
    settings: Arc<Settings>,
    wanted: watch::Receiver<Wanted>,
    observed: watch::Sender<Option<Arc<Observed>>>,
) {
    let places = places(&settings);
    let (events, mut happened) = mpsc::channel(EVENTS);
    let mut tasks = Vec::new();
    for place in &places {
        tasks.push(follow::<Service>(in_place(&client, place), place, &events));
        if settings.role != Role::Publisher {
            tasks.push(follow::<Slice>(in_place(&client, place), place, &events));
        }
    }
    let own = &settings.own_namespace;
    if settings.role != Role::Node {
        let leases = Api::namespaced(client.clone(), own);
        tasks.push(follow::<Renewal>(leases, &Some(own.clone()), &events));
    }
    let (nodes, mut of_nodes) = mpsc::channel(EVENTS);
    tasks.push(follow_nodes(&client, own_node(&settings), nodes));
    let mut view = View::new(places, Arc::clone(&settings));
    let mut wants = wanted.clone();
    wants.mark_changed();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut debouncer = Debouncer::new(Some(client.clone()), wanted, observed);
    loop {
        let end = view.next_end_of_a_lease();
        tokio::select! {
            // Never closed: `events` is here.
            Some(happened) = happened.recv() => {
                if view.take(happened) {
                    debouncer.changed();
                }
            }
            Some(event) = of_nodes.recv() => {
                if view.take_nodes(event) {
                    debouncer.changed();
                }
            }
            Ok(()) = wants.changed(), if !view.wants_all_nodes => {
                if wants.borrow_and_update().nodes {
                    // The old watch ends with its channel, and what is still in that is forgotten.
                    let (nodes, events) = mpsc::channel(EVENTS);
                    of_nodes = events;
                    tasks.push(follow_nodes(&client, None, nodes));
                    view.want_all_nodes();
                }
            }
            _ = looks.tick(), if settings.role == Role::Publisher => {
                if view.look_at_rivals(wall_clock()) {
                    debouncer.changed();
                }
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                if view.look_at_leases() {
                    debouncer.changed();
                }
            }
            () = debouncer.due(), if view.is_complete() => debouncer.send(view.seen()),
        }
    }
}

/// The only Node that is watched at first; `None`: all are.
fn own_node(settings: &Settings) -> Option<String> {
    let name = settings.flags.node_name.clone();
    name.filter(|_| settings.role == Role::Node && !settings.needs_all_nodes())
}

fn follow_nodes(client: &Client, only: Option<String>, events: mpsc::Sender<Event<Node>>) -> Task {
    let fields = only.map(|name| format!("metadata.name={name}"));
    let api = Api::all(client.clone());
    Task(tokio::spawn(reflect::follow(api, None, fields, events)))
}

/// Where Services and their slices are looked for.
fn places(settings: &Settings) -> Vec<Option<String>> {
    let named = &settings.flags.namespace;
    match named.is_empty() {
        true => vec![None],
        false => {
            let named: BTreeSet<String> = named.iter().cloned().collect();
            named.into_iter().map(Some).collect()
        }
    }
}

fn in_place<T>(client: &Client, place: &Option<String>) -> Api<Arrived<T>>
where
    T: Kind,
    Arrived<T>: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match place {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn follow<T: Kind>(
    api: Api<Arrived<T>>,
    place: &Option<String>,
    events: &mpsc::Sender<Happened>,
) -> Task
where
    Happened: From<Event<T>>,
{
    let followed = reflect::follow(api, place.clone(), None, events.clone());
    Task(tokio::spawn(followed))
}

/// An event of any kind.
enum Happened {
    Service(Event<Service>),
    Slice(Event<Slice>),
    Lease(Event<Renewal>),
}

impl From<Event<Service>> for Happened {
    fn from(event: Event<Service>) -> Self {
        Self::Service(event)
    }
}

impl From<Event<Slice>> for Happened {
    fn from(event: Event<Slice>) -> Self {
        Self::Slice(event)
    }
}

impl From<Event<Renewal>> for Happened {
    fn from(event: Event<Renewal>) -> Self {
        Self::Lease(event)
    }
}

/// Everything that is watched.
struct View {
    settings: Arc<Settings>,
    services: Store<Service>,
    slices: Store<Slice>,
    nodes: Store<Node>,
    renewals: Store<Renewal>,
    leases: Leases,
    /// Those that lived when they were last looked at.
    live: BTreeMap<String, Lease>,
    /// What the others said of their nodes then.
    others_say: BTreeMap<String, Vec<Message>>,
    /// Whether all Nodes are watched, and whether they were listed.
    wants_all_nodes: bool,
    has_all_nodes: bool,
    /// Services that another controller has published, and does not any more.
    abandoned: BTreeSet<Key>,
}

impl View {
    fn new(places: Vec<Option<String>>, settings: Arc<Settings>) -> Self {
        let own = settings.own_namespace.clone();
        let (slices, renewals) = match settings.role {
            Role::Whole => (places.clone(), vec![Some(own)]),
            Role::Node => (places.clone(), Vec::new()),
            Role::Publisher => (Vec::new(), vec![Some(own)]),
        };
        Self {
            services: Store::new(places),
            slices: Store::new(slices),
            nodes: Store::new([None]),
            renewals: Store::new(renewals),
            leases: Leases::default(),
            live: BTreeMap::new(),
            others_say: BTreeMap::new(),
            wants_all_nodes: own_node(&settings).is_none(),
            has_all_nodes: false,
            abandoned: BTreeSet::new(),
            settings,
        }
    }

    /// Whether everything was listed once.
    fn is_complete(&self) -> bool {
        self.services.is_complete()
            && self.slices.is_complete()
            && self.nodes.is_complete()
            && self.renewals.is_complete()
    }

    /// Takes in what happened; says whether it changed anything.
    fn take(&mut self, happened: Happened) -> bool {
        match happened {
            Happened::Service(mut event) => {
                if self.settings.role == Role::Node {
                    event.change(Service::forget_publication);
                }
                self.services.take(event)
            }
            Happened::Slice(event) => {
                let counts = self.counts(&event);
                self.slices.take(event) && counts
            }
            Happened::Lease(event) => {
                let was_complete = self.renewals.is_complete();
                self.renewals.take(event);
                let all = self.renewals.objects();
                self.leases.heard(all, Instant::now(), wall_clock());
                self.look_at_leases() || !was_complete
            }
        }
    }

    /// The same, of Nodes.
    fn take_nodes(&mut self, event: Event<Node>) -> bool {
        let is_first = self.wants_all_nodes && !self.has_all_nodes;
        let is_list = matches!(event, Event::Listed(..));
        self.has_all_nodes |= is_first && is_list;
        self.nodes.take(event) || (is_first && is_list)
    }

    /// All Nodes are watched from now on. Those that are known stay until they are listed.
    fn want_all_nodes(&mut self) {
        self.wants_all_nodes = true;
    }

    /// Whether an event is about endpoints that may have a part in a table: those of other Services cause no decision.
    fn counts(&self, event: &Event<Slice>) -> bool {
        let stored = |key: &Key| self.slices.objects().get(key).map(|slice| &slice.service);
        let service = match event {
            Event::Listed(..) => return true,
            Event::Changed(object) => match &object.said {
                Ok(Some(slice)) => Some(&slice.service),
                _ => stored(&object.key),
            },
            Event::Gone(key) => stored(key),
        };
        service.is_some_and(|service| self.may_be_served(service))
    }

    fn may_be_served(&self, service: &Key) -> bool {
        // What `--cfg` says may change.
        if self.settings.role != Role::Node || self.settings.flags.cfg.is_some() {
            return true;
        }
        let service = self.services.objects().get(service);
        service.is_some_and(|service| may_be_served(service, &self.settings))
    }

    /// Finds out which Services another controller has not written for a while; says whether they are others than before.
    fn look_at_rivals(&mut self, wall: i64) -> bool {
        let is_abandoned = |service: &&Arc<Service>| {
            let written = service.rival.as_ref().and_then(|rival| rival.written);
            // Nothing says when it was written: long ago, or by a server that keeps no such record.
            written.is_none_or(|written| wall / 1_000_000 >= written + SILENCE)
                && is_foreign(service)
        };
        let services = self.services.objects().values();
        let abandoned = services.filter(is_abandoned).map(|one| one.key.clone());
        let abandoned: BTreeSet<Key> = abandoned.collect();
        let differs = abandoned != self.abandoned;
        self.abandoned = abandoned;
        differs
    }

    /// Says whether others live than did.
    fn look_at_leases(&mut self) -> bool {
        let now = Instant::now();
        let (live, others_say) = (self.leases.live(now), self.leases.others_say(now));
        let differs = live != self.live || others_say != self.others_say;
        self.live = live;
        self.others_say = others_say;
        differs
    }

    fn next_end_of_a_lease(&self) -> Option<Instant> {
        self.leases.next_end(Instant::now())
    }

    fn seen(&self) -> Observed {
        let nodes = self.nodes.objects().values();
        let slices = self.slices.objects().iter();
        let slices = slices.filter(|(_, slice)| self.may_be_served(&slice.service));
        Observed {
            services: self.services.objects().clone(),
            slices: slices
                .map(|(key, slice)| (key.clone(), Arc::clone(slice)))
                .collect(),
            nodes: nodes
                .map(|node| (node.name.clone(), Node::clone(node)))
                .collect(),
            abandoned: self.abandoned.clone(),
            others_say: self.others_say.clone(),
            leases: (self.settings.role != Role::Node).then(|| self.live.clone()),
            looked_up: Arc::new(Wanted {
                nodes: self.has_all_nodes,
                ..Wanted::default()
            }),
            ..Observed::default()
        }
    }
}

/// In microseconds of Unix time.
fn wall_clock() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// How often Services that another controller publishes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Seconds after which a controller that wrote nothing is taken for gone.
const SILENCE: i64 = 60;
/// How many wait to be taken in, before watching waits, too.
const EVENTS: usize = 256;
