//! From rules in an order to routes whose order means nothing: which route a request takes in haproxy, and the fewest routes
//! of a table by which it takes the same.
//!
//! haproxy takes the first rule that fits, a table the most specific route. The hosts and paths that rules name make regions
//! of requests, of which any two are disjoint or one lies in the other. So the first rule that fits a region's most
//! specific request fits all requests that lie in no smaller region. A region that would do what the next larger one does anyway
//! needs no route.

use std::collections::{BTreeSet, HashMap};

use ballast_core::table::HostPattern;

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
    pub(super) paths: BTreeSet<PathPattern>,
}

impl Named {
    /// Whether a table can have a region for each of its hosts with each of its paths and `more` paths.
    pub(super) fn fits(&self, more: usize) -> bool {
        let paths = self.paths.len() + more + 1;
        let most = if paths <= FEW { MOST_HOSTS } else { MOST };
        (self.hosts.len() + 1).saturating_mul(paths) <= most
    }
}

pub(super) fn any_path() -> PathPattern {
    PathPattern::new(PathKind::Begins, "/", false)
}

/// The routes that are needed, the one for all requests first.
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

    let mut kept: HashMap<(usize, usize), usize> = HashMap::new();
    let mut regions: Vec<Region<A>> = Vec::new();
    let paths_in_order = in_order(&wider_paths);
    for (host_index, host_chain) in in_order(&wider_hosts) {
        for (path_index, path_chain) in &paths_in_order {
            let path_index = *path_index;
            let (Some(host), Some(path)) = (hosts.get(host_index), paths.get(path_index)) else {
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
                kept.insert((host_index, path_index), regions.len());
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

/// Paths that are few.
const FEW: usize = 4;
