//! Which requests a route is for: two routes for the same requests have an equal [`Reach`].

use std::borrow::Cow;

use super::{HeaderMatch, HostPattern, PathMatch, Route, When};

/// Which requests, or TLS connections, a route is for.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reach<'t> {
    host: Option<&'t HostPattern>,
    path: Cow<'t, str>,
    kind: PathMatch,
    ignore_case: bool,
    alpn: Vec<&'t str>,
    when: Option<Conditions<'t>>,
}

impl<'t> Reach<'t> {
    pub(crate) fn of(route: &'t Route) -> Self {
        let alpn = route.alpn.iter().flat_map(|offers| offers.iter());
        let path = route.path();
        // "/" has no letters, and everything below it begins with it.
        let root = path == "/";
        Self {
            host: route.host.as_ref(),
            path: if route.ignore_case {
                path.to_ascii_lowercase().into()
            } else {
                path.into()
            },
            kind: match route.r#match {
                PathMatch::Begins if root => PathMatch::Segment,
                kind => kind,
            },
            ignore_case: route.ignore_case && !root,
            alpn: sorted(alpn.map(|offer| &**offer)),
            when: route.when.as_deref().map(Conditions::of),
        }
    }
}

/// What must hold of a request beside its host and path, in an order of its own.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Conditions<'t> {
    method: Vec<&'t str>,
    headers: Vec<Header<'t>>,
    query: Vec<(&'t str, &'t str)>,
}

impl<'t> Conditions<'t> {
    fn of(when: &'t When) -> Self {
        let query = when.query.iter();
        Self {
            method: sorted(when.method.iter().map(|method| &**method)),
            headers: sorted(when.headers.iter().map(Header::of)),
            query: sorted(query.map(|one| (&*one.name, &*one.value))),
        }
    }
}

/// What must hold of the fields of one name. Two that ask for the same are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Header<'t> {
    name: String,
    value: Option<&'t str>,
    prefix: Option<&'t str>,
    present: bool,
    absent: bool,
}

impl<'t> Header<'t> {
    pub(super) fn of(written: &'t HeaderMatch) -> Self {
        Self {
            name: written.name.to_ascii_lowercase(),
            value: written.value.as_deref().map(str::trim),
            prefix: written.prefix.as_deref().map(str::trim),
            present: written.present,
            absent: written.absent,
        }
    }
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items = Vec::from_iter(items);
    items.sort_unstable();
    items.dedup();
    items
}
