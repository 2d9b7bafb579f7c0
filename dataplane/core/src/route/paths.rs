//! The paths of the routes of one host.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Request;
use super::table::{PathMatch, Route};
use super::trie::{Root, Small, Tries};
use super::when;
use super::when::When;

/// The paths of the routes of all hosts. A route is an index of the frontend's.
#[derive(Debug)]
pub(super) struct Paths {
    tries: Tries<OnePath>,
    /// By route. Empty if no route has conditions.
    conditions: Box<[Conditions]>,
}

/// What must hold of a request, and the route that is looked at if that does not hold.
#[derive(Debug)]
struct Conditions {
    when: Option<When>,
    next: Small,
}

/// The paths of the routes of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfHost {
    sensitive: Root,
    /// Paths that are compared without regard to case, in lower case.
    insensitive: Root,
}

/// The routes of one path: of each way to match the one that is looked at first.
#[derive(Clone, Copy, Debug, Default)]
struct OnePath {
    exact: Small,
    segment: Small,
    begins: Small,
}

/// How good a match is: the fields decide one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_exact: bool,
    length: usize,
    ends_with_segment: bool,
    is_case_sensitive: bool,
}

/// The best match so far, and its route.
type Best = Option<(Rank, usize)>;

impl Paths {
    /// No paths, with room for those of all these routes.
    pub(super) fn new(routes: &[&Route]) -> Self {
        let any = routes.iter().any(|route| route.when.is_some());
        let routes = routes.iter().filter(|_| any);
        let conditions = routes.map(|route| Conditions {
            when: route.when.as_deref().map(When::new),
            next: Small::default(),
        });
        Self {
            tries: Tries::default(),
            conditions: conditions.collect(),
        }
    }

    /// Adds the routes of one host, each with its index.
    pub(super) fn add(&mut self, routes: &[(usize, &Route)]) -> OfHost {
        let (insensitive, sensitive): (Vec<_>, Vec<_>) =
            routes.iter().partition(|(_, route)| route.ignore_case);
        let lower = |path: &str| path.to_ascii_lowercase().into_bytes();
        let sensitive = self.keys(&sensitive, |path| path.into());
        let insensitive = self.keys(&insensitive, lower);
        OfHost {
            sensitive: self.tries.add(sensitive),
            insensitive: self.tries.add(insensitive),
        }
    }

    /// Groups routes by their paths, and by the way to match within each path: the routes of one group form a chain.
    fn keys(
        &mut self,
        routes: &[&(usize, &Route)],
        key: impl Fn(&str) -> Vec<u8>,
    ) -> Vec<(Vec<u8>, OnePath)> {
        let mut in_order = routes.to_vec();
        // Among routes of equal rank the order of the table stays.
        in_order.sort_by_key(|(_, route)| Reverse(when::Rank::of(route.when.as_deref())));
        let mut paths: BTreeMap<Vec<u8>, OnePath> = BTreeMap::new();
        // From the last one to the first one, so that each route becomes the first of its chain.
        for (index, route) in in_order.into_iter().rev() {
            let path = paths.entry(key(route.path())).or_default();
            let first = match route.r#match {
                PathMatch::Exact => &mut path.exact,
                PathMatch::Segment => &mut path.segment,
                PathMatch::Begins => &mut path.begins,
            };
            let next = std::mem::replace(first, Small::new(*index));
            if let Some(conditions) = self.conditions.get_mut(*index) {
                conditions.next = next;
            }
        }
        paths.into_iter().collect()
    }

    /// The first route of the chain that begins with `first` whose conditions hold.
    fn first_that_holds(&self, first: Small, request: &Request<'_>) -> Option<usize> {
        let mut next = first;
        while let Some(route) = next.get() {
            let conditions = self.conditions.get(route);
            match conditions.and_then(|it| Some((it.when.as_ref()?, it.next))) {
                Some((when, after)) if !when.holds(request) => next = after,
                Some(_) | None => return Some(route),
            }
        }
        None
    }

    /// The best route for this request, and the length of the part of its path that it matched; see
    /// [`super::Matched::prefix_length`].
    pub(super) fn find(&self, host: OfHost, request: &Request<'_>) -> Option<(usize, usize)> {
        let path = request.path;
        let holds = |first| self.first_that_holds(first, request);
        if path == "*" {
            return self.whole_host(host, holds);
        }
        let tries = &self.tries;
        let bytes = path.bytes();
        let mut best = None;
        tries.prefixes(host.sensitive, bytes.clone(), |length, routes| {
            best = best.max(routes.best(path, length, true, holds));
        });
        let lower = bytes.map(|byte| byte.to_ascii_lowercase());
        tries.prefixes(host.insensitive, lower, |length, routes| {
            best = best.max(routes.best(path, length, false, holds));
        });
        let (rank, route) = best?;
        let is_below = !rank.is_exact && ends_with_slash(path, rank.length);
        Some((route, rank.length - usize::from(is_below)))
    }

    /// The route of every path, for a request without a path.
    fn whole_host(
        &self,
        host: OfHost,
        holds: impl Fn(Small) -> Option<usize>,
    ) -> Option<(usize, usize)> {
        let mut best = None;
        for paths in [host.insensitive, host.sensitive] {
            self.tries.prefixes(paths, *b"/", |_, routes| {
                best = holds(routes.segment)
                    .or_else(|| holds(routes.begins))
                    .or(best);
            });
        }
        Some((best?, 0))
    }
}

impl OnePath {
    /// The best of its routes for `path`, which begins with this path of the given length.
    fn best(
        &self,
        path: &str,
        length: usize,
        is_case_sensitive: bool,
        holds: impl Fn(Small) -> Option<usize>,
    ) -> Best {
        let is_all = length == path.len();
        let ends_with_segment =
            is_all || path.as_bytes().get(length) == Some(&b'/') || ends_with_slash(path, length);
        let ways = [
            (self.exact, is_all, PathMatch::Exact),
            (self.segment, ends_with_segment, PathMatch::Segment),
            (self.begins, true, PathMatch::Begins),
        ];
        let mut ways = ways.into_iter().filter(|(_, may_match, _)| *may_match);
        let (route, way) = ways.find_map(|(first, _, way)| Some((holds(first)?, way)))?;
        let rank = Rank {
            is_exact: way == PathMatch::Exact,
            length,
            ends_with_segment: way == PathMatch::Segment,
            is_case_sensitive,
        };
        Some((rank, route))
    }
}

fn ends_with_slash(path: &str, length: usize) -> bool {
    let last = length.checked_sub(1);
    last.is_some_and(|last| path.as_bytes().get(last) == Some(&b'/'))
}
