//! From rules in an order to routes whose order means nothing: which route a request takes in haproxy, and the fewest routes
//! of a table by which it takes the same.
//!
//! haproxy takes the first rule that fits, a table the most specific route. The hosts and paths that rules name make regions
//! of requests, of which any two are disjoint or one lies in the other. So the first rule that fits a region's most
//! specific request fits all requests that lie in no smaller region. A region that would do what the next larger one does anyway
//! needs no route.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use ballast_core::table::HostPattern;

use super::condition::Alternative;
use super::pattern::{ByPath, PathKind, PathPattern};
use super::ranges::Ranges;

/// What the requests of a region come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict<A> {
    pub(super) action: A,
    pub(super) clients: Ranges,
    /// What becomes of all others, where it is not a plain 403.
    pub(super) denied: Option<A>,
}

/// A region of requests and what they come to.
#[derive(Clone, Debug)]
pub(super) struct Region<A> {
    pub(super) host: Option<HostPattern>,
    /// `Begins` with `/` is any path.
    pub(super) path: PathPattern,
    pub(super) verdict: Verdict<A>,
}

/// Hosts and paths that rules look for.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) hosts: BTreeSet<HostPattern>,
    /// All paths.
    pub(super) paths: BTreeSet<PathPattern>,
    /// Those that a rule looks for whatever the host is.
    pub(super) of_any: BTreeSet<PathPattern>,
    /// Those that rules look for beside a host.
    beside: HashMap<HostPattern, Vec<Rc<Vec<PathPattern>>>>,
}

impl Named {
    pub(super) fn add(&mut self, one: &Alternative) {
        self.add_hosts(one);
        let paths = one.all_paths().cloned();
        match one.hosts.iter().min_by_key(|list| list.len()) {
            None => self.add_paths(paths),
            Some(hosts) => {
                self.paths.extend(paths);
                for host in hosts.iter().filter(|_| one.all_paths().next().is_some()) {
                    let beside = self.beside.entry(host.clone()).or_default();
                    beside.extend(one.paths.iter().chain(&one.no_paths).cloned());
                }
            }
        }
    }

    pub(super) fn add_hosts(&mut self, one: &Alternative) {
        let hosts = one.hosts.iter().chain(&one.no_hosts);
        self.hosts
            .extend(hosts.flat_map(|list| list.iter().cloned()));
    }

    pub(super) fn add_paths(&mut self, paths: impl Iterator<Item = PathPattern>) {
        for path in paths {
            self.paths.insert(path.clone());
            self.of_any.insert(path);
        }
    }

    /// The lists of paths beside a host, or beside one that contains it.
    fn beside(&self, host: &HostPattern) -> impl Iterator<Item = &Rc<Vec<PathPattern>>> {
        around(host).flat_map(|host| self.beside.get(&host).into_iter().flatten())
    }

    /// Whether a table can have a region for each of its hosts with each of its paths and `more` paths.
    pub(super) fn fits(&self, more: usize) -> bool {
        let of_any = self.of_any.len() + more + 1;
        let hosts = self.hosts.iter();
        let count = hosts.fold(of_any, |count, host| {
            let beside: usize = self.beside(host).map(|list| list.len()).sum();
            count.saturating_add(of_any).saturating_add(beside)
        });
        let are_few = count <= (self.hosts.len() + 1).saturating_mul(FEW);
        count <= if are_few { MOST_HOSTS } else { MOST }
    }
}

pub(super) fn any_path() -> PathPattern {
    PathPattern::new(PathKind::Begins, "/", false)
}

/// The routes that are needed, the one for all requests first. Of a host those paths make regions that some rule looks for there.
pub(super) fn regions<A: Clone + PartialEq>(
    named: &Named,
    decide: &mut dyn FnMut(Option<&HostPattern>, &PathPattern) -> Verdict<A>,
) -> Vec<Region<A>> {
    let mut hosts: Vec<Option<&HostPattern>> = vec![None];
    hosts.extend(named.hosts.iter().map(Some));
    let any = any_path();
    let mut paths: Vec<&PathPattern> = vec![&any];
    paths.extend(named.paths.iter().filter(|path| **path != any));
    let wider_hosts = host_chains(&hosts);
    let wider_paths = path_chains(&paths);
    // The paths, the widest first.
    let paths_in_order = in_order(&wider_paths);
    let placed = paths_in_order.iter().enumerate();
    let places: HashMap<&PathPattern, usize> = placed
        .filter_map(|(place, (index, _))| Some((*paths.get(*index)?, place)))
        .collect();
    let place = |path: &PathPattern| places.get(path).copied();
    let of_any: BTreeSet<usize> = named
        .of_any
        .iter()
        .chain([&any])
        .filter_map(place)
        .collect();

    let mut kept: HashMap<(usize, usize), usize> = HashMap::new();
    let mut regions: Vec<Region<A>> = Vec::new();
    for (host_index, host_chain) in in_order(&wider_hosts) {
        let Some(host) = hosts.get(host_index) else {
            continue;
        };
        let beside = host.iter().flat_map(|host| named.beside(host));
        let beside = beside.flat_map(|list| list.iter().filter_map(place));
        let mut here = of_any.clone();
        here.extend(beside);
        for (path_index, path_chain) in here.iter().filter_map(|at| paths_in_order.get(*at)) {
            let Some(path) = paths.get(*path_index) else {
                continue;
            };
            let verdict = decide(*host, path);
            // What these requests would take if this region had no route: the narrowest host first, then the narrowest path.
            let otherwise = host_chain.iter().find_map(|host| {
                let mut paths = path_chain.iter();
                paths.find_map(|path| kept.get(&(*host, *path)))
            });
            let same = otherwise
                .and_then(|index| regions.get(*index))
                .is_some_and(|region| region.verdict == verdict);
            if !same {
                kept.insert((host_index, *path_index), regions.len());
                regions.push(Region {
                    host: host.cloned(),
                    path: (*path).clone(),
                    verdict,
                });
            }
        }
    }
    regions
}

/// For each host: itself, then the patterns that contain it, the narrowest first. The first host is any.
fn host_chains(hosts: &[Option<&HostPattern>]) -> Vec<Vec<usize>> {
    let known = hosts.iter().enumerate();
    let known: HashMap<&HostPattern, usize> = known
        .filter_map(|(index, host)| Some(((*host)?, index)))
        .collect();
    let chain = |host: &Option<&HostPattern>| {
        let wider = host.iter().flat_map(|host| around(host));
        let mut chain: Vec<usize> = wider.filter_map(|host| known.get(&host).copied()).collect();
        chain.push(0);
        chain
    };
    hosts.iter().map(chain).collect()
}

/// The patterns that contain this one, itself first, then the narrowest.
pub(super) fn around(host: &HostPattern) -> impl Iterator<Item = HostPattern> {
    let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
    let name: &str = name;
    let dots = name.match_indices('.');
    let below = dots.filter_map(move |(at, _)| name.get(at + 1..));
    let wider = below.map(|name| HostPattern::Under(name.into()));
    std::iter::once(host.clone()).chain(wider)
}

/// For each pattern: itself, then the patterns that contain it, the narrowest first.
fn path_chains(paths: &[&PathPattern]) -> Vec<Vec<usize>> {
    let numbered = paths.iter().enumerate();
    let index = ByPath::of(numbered.map(|(number, path)| (*path, number)));
    let around = |path: &&PathPattern| index.containing(path).collect();
    let mut chains: Vec<Vec<usize>> = paths.iter().map(around).collect();
    // Each pattern lies in all those that contain a wider one: the more contain it, the narrower it is.
    let depths: Vec<usize> = chains.iter().map(Vec::len).collect();
    for chain in &mut chains {
        chain.sort_by_key(|index| std::cmp::Reverse(depths.get(*index).copied()));
    }
    chains
}

/// The chains, the widest pattern first.
fn in_order(chains: &[Vec<usize>]) -> Vec<(usize, &Vec<usize>)> {
    let mut order: Vec<(usize, &Vec<usize>)> = chains.iter().enumerate().collect();
    order.sort_by_key(|(_, chain)| chain.len());
    order
}

/// Regions of one frontend: what a table of many hosts and paths comes to at most.
pub(super) const MOST: usize = 20_000;

/// Regions of one frontend where paths are few.
const MOST_HOSTS: usize = 200_000;

/// Paths of a host that are few.
const FEW: usize = 4;
