//! What is seen of a cluster, through its API server.
//!
//! Called by `run`, and by `plan` without a folder. Silent until everything was listed once; after that, whatever becomes
//! of the API server, the last state stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::arrived::{Arrived, Kind};
use super::leases::{Leases, Renewal};
use super::lookout::Lookout;
use super::lookups::Task;
use super::reflect::{self, Event};
use super::store::Store;
use super::{Lease, Node, Observed, Service, Slice, Wanted};
use crate::settings::Settings;

/// Sends what is seen of the cluster, whenever that changed and settled. Never returns; ends by being dropped.
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
        tasks.push(follow::<Slice>(in_place(&client, place), place, &events));
    }
    let own = &settings.own_namespace;
    tasks.push(follow::<Node>(Api::all(client.clone()), &None, &events));
    let leases = Api::namespaced(client.clone(), own);
    tasks.push(follow::<Renewal>(leases, &Some(own.clone()), &events));
    let mut view = View::new(places, own.clone());
    let mut lookout = Lookout::new(Some(client), wanted, observed);
    loop {
        let end = view.next_end_of_a_lease();
        tokio::select! {
            // Never closed: `events` is here.
            Some(happened) = happened.recv() => {
                if view.take(happened) {
                    lookout.changed();
                }
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {
                if view.look_at_leases() {
                    lookout.changed();
                }
            }
            () = lookout.due(), if view.is_complete() => lookout.send(view.seen()),
        }
    }
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
    let followed = reflect::follow(api, place.clone(), events.clone());
    Task(tokio::spawn(followed))
}

/// An event of any kind.
enum Happened {
    Service(Event<Service>),
    Slice(Event<Slice>),
    Node(Event<Node>),
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

impl From<Event<Node>> for Happened {
    fn from(event: Event<Node>) -> Self {
        Self::Node(event)
    }
}

impl From<Event<Renewal>> for Happened {
    fn from(event: Event<Renewal>) -> Self {
        Self::Lease(event)
    }
}

/// Everything that is watched.
struct View {
    services: Store<Service>,
    slices: Store<Slice>,
    nodes: Store<Node>,
    renewals: Store<Renewal>,
    leases: Leases,
    /// Those that lived when they were last looked at.
    live: BTreeMap<String, Lease>,
}

impl View {
    fn new(places: Vec<Option<String>>, own: String) -> Self {
        Self {
            services: Store::new(places.clone()),
            slices: Store::new(places),
            nodes: Store::new([None]),
            renewals: Store::new([Some(own)]),
            leases: Leases::default(),
            live: BTreeMap::new(),
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
            Happened::Service(event) => self.services.take(event),
            Happened::Slice(event) => self.slices.take(event),
            Happened::Node(event) => self.nodes.take(event),
            Happened::Lease(event) => {
                let was_complete = self.renewals.is_complete();
                self.renewals.take(event);
                let all = self.renewals.objects();
                self.leases.heard(all, Instant::now(), wall_clock());
                self.look_at_leases() || !was_complete
            }
        }
    }

    /// Says whether others live than did.
    fn look_at_leases(&mut self) -> bool {
        let live = self.leases.live(Instant::now());
        let differs = live != self.live;
        self.live = live;
        differs
    }

    fn next_end_of_a_lease(&self) -> Option<Instant> {
        self.leases.next_end(Instant::now())
    }

    fn seen(&self) -> Observed {
        let nodes = self.nodes.objects().values();
        Observed {
            services: self.services.objects().clone(),
            slices: self.slices.objects().clone(),
            nodes: nodes
                .map(|node| (node.name.clone(), Node::clone(node)))
                .collect(),
            leases: Some(self.live.clone()),
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

/// How many wait to be taken in, before watching waits, too.
const EVENTS: usize = 256;
