//! What outlives a plan of a frontend's routes: what was counted of them, and whose turn it is among backends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustc_hash::FxHashMap;

use crate::counters::{Cell, PerWorker, WorkerId};
use crate::table::{self, Backend, Name, Reach, Route};

/// The records of one frontend. Plans with an equal frontend share them; the next plan takes over what is the same there.
#[derive(Debug, Default)]
pub struct RouteRecords {
    /// The requests of each route, in the order of the table, the default last.
    requests: Box<[Arc<Tally>]>,
    /// The choices of each service, by the name of the route. Routes without a name count together, under `None`.
    choices: BTreeMap<(Option<Name>, Name), Arc<Tally>>,
    /// How many choices by weight there were since the weights changed, by the place of the route.
    turns: FxHashMap<Option<usize>, Arc<AtomicU64>>,
}

/// A number that each worker counts for itself.
#[derive(Debug)]
pub struct Tally(PerWorker<Cell>);

impl Tally {
    fn new(workers: usize) -> Self {
        Self(PerWorker::new(workers))
    }

    pub fn count(&self, worker: WorkerId) {
        self.0.of(worker).add(1);
    }

    /// The sum over all workers.
    pub fn sum(&self) -> u64 {
        self.0.sum(|cell| cell)
    }
}

impl RouteRecords {
    /// The records of this frontend, which takes over from its table and its records in the previous plan. `None`: it has nothing
    /// to record.
    pub(crate) fn new(
        frontend: &table::Frontend,
        before: Option<(&table::Frontend, &Self)>,
        workers: usize,
    ) -> Option<Arc<Self>> {
        let none = Self::default();
        let known = before.map_or(&none, |(_, records)| records);
        let mut records = Self::default();
        let new = || Arc::new(Tally::new(workers));
        let mut counted = before.map_or_else(FxHashMap::default, |(before, records)| {
            owners(before).zip(&records.requests).collect()
        });
        records.requests = owners(frontend)
            .map(|owner| counted.remove(&owner).map_or_else(new, Arc::clone))
            .collect();
        let mut turns = before.map_or_else(FxHashMap::default, |(before, records)| {
            let lists = Shared::all(before);
            lists
                .filter_map(|list| Some((list.identity(), records.turns.get(&list.place)?)))
                .collect()
        });
        for list in Shared::all(frontend) {
            for backend in list.backends {
                let key = (list.name().cloned(), backend.service.clone());
                let tally = known.choices.get(&key).map_or_else(new, Arc::clone);
                records.choices.insert(key, tally);
            }
            let turn = turns
                .remove(&list.identity())
                .map_or_else(Arc::default, Arc::clone);
            records.turns.insert(list.place, turn);
        }
        let is_empty = records.requests.is_empty() && records.choices.is_empty();
        (!is_empty).then(|| Arc::new(records))
    }

    pub(crate) fn requests_of(&self, place: usize) -> Option<&Arc<Tally>> {
        self.requests.get(place)
    }

    pub(crate) fn choices_of(&self, route: Option<&Name>, service: &Name) -> Option<&Arc<Tally>> {
        self.choices.get(&(route.cloned(), service.clone()))
    }

    pub(crate) fn turns_of(&self, place: Option<usize>) -> Arc<AtomicU64> {
        self.turns.get(&place).map_or_else(Arc::default, Arc::clone)
    }

    /// The requests of each route, in the order of the table, the default last. Of a route whose connections stay unopened: its
    /// connections.
    pub fn requests(&self) -> &[Arc<Tally>] {
        &self.requests
    }

    /// How often each service was chosen, by the name of the route, if it has one, and that of the service.
    pub fn choices(&self) -> impl Iterator<Item = (Option<&Name>, &Name, &Arc<Tally>)> {
        let choices = self.choices.iter();
        choices.map(|((route, service), tally)| (route.as_ref(), service, tally))
    }
}

/// A list of backends in a table.
struct Shared<'t> {
    backends: &'t [Backend],
    place: Option<usize>,
    route: Option<&'t Route>,
    is_default: bool,
}

impl<'t> Shared<'t> {
    /// All lists of this frontend.
    fn all(frontend: &'t table::Frontend) -> impl Iterator<Item = Self> {
        let own = Self {
            backends: &frontend.backends,
            place: None,
            route: None,
            is_default: false,
        };
        let routes = frontend.all_routes().enumerate();
        let of_routes = routes.map(|(place, route)| Self {
            backends: &route.backends,
            place: Some(place),
            route: Some(route),
            is_default: place >= frontend.routes.len(),
        });
        let all = [own].into_iter().chain(of_routes);
        all.filter(|list| !list.backends.is_empty())
    }

    fn name(&self) -> Option<&'t Name> {
        self.route?.name.as_ref()
    }

    /// By what it is the same list in two tables: whose it is, and its weights.
    fn identity(&self) -> (Owner<'t>, Vec<(&'t Name, u32)>) {
        let owner = self.route.map_or(Owner::Frontend, |route| {
            Owner::of_route(route, self.is_default)
        });
        let backends = self.backends.iter();
        let weights = backends.map(|backend| (&backend.service, backend.weight));
        (owner, weights.collect())
    }
}

/// The routes of this frontend, the default last.
fn owners(frontend: &table::Frontend) -> impl Iterator<Item = Owner<'_>> {
    let routes = frontend.all_routes().enumerate();
    routes.map(|(place, route)| Owner::of_route(route, place >= frontend.routes.len()))
}

/// What it is in the table whose counts or list of backends these are.
#[derive(PartialEq, Eq, Hash)]
enum Owner<'t> {
    Frontend,
    Default,
    Named(&'t Name),
    For(Reach<'t>),
}

impl<'t> Owner<'t> {
    fn of_route(route: &'t Route, is_default: bool) -> Self {
        match &route.name {
            Some(name) => Self::Named(name),
            None if is_default => Self::Default,
            None => Self::For(Reach::of(route)),
        }
    }
}
