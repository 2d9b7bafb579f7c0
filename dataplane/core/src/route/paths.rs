//! The paths of the routes of one host.

use std::collections::BTreeMap;

use super::table::{PathMatch, Route};
use super::trie::{Root, Small, Tries};

/// The paths of the routes of all hosts. A route is an index of the frontend's.
#[derive(Debug, Default)]
pub(super) struct Paths {
    tries: Tries<OnePath>,
}

/// The paths of the routes of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfHost {
    sensitive: Root,
    /// Paths that are compared without regard to case, in lower case.
    insensitive: Root,
}

/// The routes of one path.
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
    /// Adds the routes of one host, each with its index.
    pub(super) fn add(&mut self, routes: &[(usize, &Route)]) -> OfHost {
        let (insensitive, sensitive): (Vec<_>, Vec<_>) =
            routes.iter().partition(|(_, route)| route.ignore_case);
        let lower = |path: &str| path.to_ascii_lowercase().into_bytes();
        OfHost {
            sensitive: self.tries.add(keys(&sensitive, |path| path.into())),
            insensitive: self.tries.add(keys(&insensitive, lower)),
        }
    }

    /// The best route for this path, and the length of the part that it matched; see [`super::Matched::prefix_length`].
    pub(super) fn find(&self, host: OfHost, path: &str) -> Option<(usize, usize)> {
        if path == "*" {
            return self.whole_host(host);
        }
        let tries = &self.tries;
        let bytes = path.bytes();
        let mut best = None;
        tries.prefixes(host.sensitive, bytes.clone(), |length, routes| {
            best = best.max(routes.best(path, length, true));
        });
        let lower = bytes.map(|byte| byte.to_ascii_lowercase());
        tries.prefixes(host.insensitive, lower, |length, routes| {
            best = best.max(routes.best(path, length, false));
        });
        let (rank, route) = best?;
        let is_below = !rank.is_exact && ends_with_slash(path, rank.length);
        Some((route, rank.length - usize::from(is_below)))
    }

    /// The route of every path, for a request without a path.
    fn whole_host(&self, host: OfHost) -> Option<(usize, usize)> {
        let mut best = Small::default();
        for paths in [host.insensitive, host.sensitive] {
            self.tries.prefixes(paths, *b"/", |_, routes| {
                best = routes.segment.or(routes.begins).or(best);
            });
        }
        Some((best.get()?, 0))
    }
}

fn keys(routes: &[&(usize, &Route)], key: impl Fn(&str) -> Vec<u8>) -> Vec<(Vec<u8>, OnePath)> {
    let mut paths: BTreeMap<Vec<u8>, OnePath> = BTreeMap::new();
    for (index, route) in routes {
        let path = paths.entry(key(route.path())).or_default();
        let place = match route.r#match {
            PathMatch::Exact => &mut path.exact,
            PathMatch::Segment => &mut path.segment,
            PathMatch::Begins => &mut path.begins,
        };
        *place = Small::new(*index);
    }
    paths.into_iter().collect()
}

impl OnePath {
    /// The best of its routes for `path`, which begins with this path of the given length.
    fn best(&self, path: &str, length: usize, is_case_sensitive: bool) -> Best {
        let is_all = length == path.len();
        let ends_with_segment =
            is_all || path.as_bytes().get(length) == Some(&b'/') || ends_with_slash(path, length);
        let exact = self.exact.get().filter(|_| is_all);
        let segment = self.segment.get().filter(|_| ends_with_segment);
        let route = exact.or(segment).or_else(|| self.begins.get())?;
        let rank = Rank {
            is_exact: exact.is_some(),
            length,
            ends_with_segment: segment.is_some(),
            is_case_sensitive,
        };
        Some((rank, route))
    }
}

fn ends_with_slash(path: &str, length: usize) -> bool {
    let last = length.checked_sub(1);
    last.is_some_and(|last| path.as_bytes().get(last) == Some(&b'/'))
}
