//! Where a request, or a TLS connection that is relayed unopened, goes: by host, path and what else the table asks of a request,
//! or by server name and ALPN.
//!
//! [`compile`](crate::compile) makes the routes of a frontend. Finding one allocates nothing. Hosts and paths are in tries, so
//! the cost of a search hardly depends on the number of routes: a search reads the path twice at most for each host pattern
//! that matches, and never more bytes of it than the longest route has. Only routes of one host, path and way to match are looked
//! at one after the other, until the `when` of one holds.
//!
//! [`HttpRoutes::decide`] finds the route of a request and checks the client against its `source-ranges`; the [`backends`] of a
//! route then choose its service.
//!
//! [`backends`]: crate::backends

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::admit::PrefixSet;
use crate::backends::{Backends, BackendsContext, Spec};
use crate::counters::WorkerId;
use crate::http::Request;
use crate::records::Tally;
use crate::table::{self, File, HeaderEdits, HostPattern, Value};

mod hosts;
mod misdirected;
mod normal;
mod paths;
mod redirect;
mod rewrite;
mod sni;
mod trie;
mod when;

pub use misdirected::SecureConnection;
pub(crate) use misdirected::is_misdirected;
pub use redirect::Redirect;
pub use rewrite::Rewrite;
pub use sni::{SniMatch, SniRoute, SniRoutes};

use hosts::Hosts;
use paths::{OfHost, Paths};

/// The routes of an http or https frontend, but for those that are relayed unopened.
#[derive(Debug)]
pub struct HttpRoutes {
    /// The index of `routes` by host and path. It depends on the frontend's table alone, so plans share it even where services
    /// change.
    index: Arc<Index>,
    routes: Box<[Arc<Route>]>,
    default: Arc<Route>,
}

/// Routes by host and path.
#[derive(Debug)]
pub(crate) struct Index {
    hosts: Hosts<OfHost>,
    paths: Paths,
    /// Whether a route, or the default, has `source-ranges`.
    is_guarded: bool,
}

impl HttpRoutes {
    /// Compiles the routes of this frontend. `before` are the routes of the same frontend, with an equal table, in the
    /// previous plan: unchanged routes are shared with them.
    pub(crate) fn compile(
        frontend: &table::Frontend,
        context: &BackendsContext<'_>,
        before: Option<&Self>,
    ) -> Self {
        let routes = || frontend.routes.iter().enumerate();
        let opened = || routes().filter(|(_, route)| !route.passthrough);
        let default = frontend.default.as_deref().filter(|it| !it.passthrough);
        Self {
            index: before.map_or_else(
                || {
                    let routes = Vec::from_iter(opened().map(|(_, route)| route));
                    Arc::new(Index::new(&routes, default))
                },
                |before| Arc::clone(&before.index),
            ),
            routes: opened()
                .enumerate()
                .map(|(index, (place, route))| {
                    let before = before.and_then(|before| before.routes.get(index));
                    Route::shared(route, place, context, before)
                })
                .collect(),
            default: match default {
                Some(route) => {
                    let place = frontend.routes.len();
                    Route::shared(route, place, context, before.map(|before| &before.default))
                }
                None => Arc::new(Route::answer(404)),
            },
        }
    }

    /// Whether every route is the same one as in `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.index, &other.index)
            && Arc::ptr_eq(&self.default, &other.default)
            && self
                .routes
                .iter()
                .map(Arc::as_ptr)
                .eq(other.routes.iter().map(Arc::as_ptr))
    }

    /// Finds the route of a request, and checks whether its client, at the address `client`, may use it.
    ///
    /// Many endpoints take `//admin`, `/%61dmin` and `/x/../admin` for `/admin`. So a client must also be one that may use the route
    /// of the path that remains once unreserved characters are decoded, slashes merged and dot segments removed. What is reserved,
    /// such as `%2f`, stays as it is. The request goes to the route of its path as it came.
    #[must_use]
    pub fn decide<'r>(&'r self, request: &Request<'_>, client: IpAddr) -> Decision<'r> {
        let found = self.find(request);
        if !self.index.is_guarded {
            return Decision::To(found);
        }
        let denying = Cell::new(None);
        let is_denied = |found: Matched<'r>| {
            let sources = found.route.sources.as_ref();
            let is_denied = sources.is_some_and(|sources| !sources.contains(client));
            denying.set(is_denied.then_some(found.route));
            is_denied
        };
        let is_denied_as = |path: &str| is_denied(self.find(&Request { path, ..*request }));
        let _ = is_denied(found) || normal::other_forms(request.path, is_denied_as);
        match denying.get() {
            Some(by) => Decision::Denied(by),
            None => Decision::To(found),
        }
    }

    /// The best of the routes that match this request: exact host, then longest wildcard host, then any host; among the routes of
    /// one host exact path, then longest path; among those of one path the one whose `when` asks for more header fields, for a
    /// method, for more parameters, or that is before the others in the table. Without a match: the table's default, or an
    /// answer with status 404.
    ///
    /// The path is compared as it was sent. The `*` of `OPTIONS *` is about the host as a whole: it goes where every path of
    /// the host goes.
    #[must_use]
    pub fn find(&self, request: &Request<'_>) -> Matched<'_> {
        self.index
            .find(request)
            .and_then(|(place, prefix_length)| {
                Some(Matched {
                    route: self.routes.get(place)?,
                    place,
                    prefix_length,
                })
            })
            .unwrap_or(Matched {
                route: &self.default,
                place: self.routes.len(),
                prefix_length: 0,
            })
    }

    /// Counts a request that the route at the first place has led to the backend at the second one.
    pub fn count_forwarded(&self, (route, backend): (usize, usize), worker: WorkerId) {
        let route = self.routes.get(route).unwrap_or(&self.default);
        route.count_request(worker);
        if let Some(forward) = route.forward() {
            forward.backends.count(backend, worker);
        }
    }
}

impl Index {
    /// The index of a route is its place.
    pub(crate) fn new(routes: &[&table::Route], default: Option<&table::Route>) -> Self {
        let numbered = routes.iter().copied().enumerate();
        let by_host = hosts::grouped(numbered.map(|route| (route.1.host.as_ref(), route)));
        let mut paths = Paths::new(routes);
        let of_hosts = by_host
            .into_iter()
            .map(|(host, routes)| (host, paths.add(&routes)));
        Self {
            hosts: Hosts::new(of_hosts),
            paths,
            is_guarded: routes
                .iter()
                .copied()
                .chain(default)
                .any(|route| route.source_ranges.is_some()),
        }
    }

    /// The index of the best route for this request, and how many bytes of the path it matched.
    pub(crate) fn find(&self, request: &Request<'_>) -> Option<(usize, usize)> {
        self.hosts
            .matching(request.host.map(|host| host.name))
            .find_map(|of_host| self.paths.find(*of_host, request))
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'r> {
    /// Its client may not use this route, which is that of its path, or of a path that means the same.
    Denied(&'r Route),
    /// It goes where this route says.
    To(Matched<'r>),
}

/// A route, and the part of the path that it matched.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'r> {
    pub route: &'r Arc<Route>,
    /// Its place, by which a request is [counted](HttpRoutes::count_forwarded) later.
    pub place: usize,
    /// The number of bytes at the beginning of the path that matched, and that `rewrite` replaces. The slash at the end of a
    /// route for a whole folder is not counted: the length is 4 for `/svc` and for `/svc/`, and 0 for `/`.
    pub prefix_length: usize,
}

impl Matched<'_> {
    /// The part of `path` that matched, as the client spelled it: the value of `X-Forwarded-Prefix`. It may be empty.
    pub fn prefix<'p>(&self, path: &'p str) -> &'p str {
        path.get(..self.prefix_length).unwrap_or_default()
    }
}

/// A compiled route of requests.
#[derive(Debug)]
pub struct Route {
    pub target: Target,
    /// The clients that may use this route, in addition to the frontend's ranges; others get `denial`. `None`: all clients.
    pub sources: Option<PrefixSet>,
    /// The answer to others; `None`: 403, with its page.
    pub denial: Option<Box<Denial>>,
    /// The limit of the time from the first byte of a request to the last one of its response. `None`: no limit.
    pub timeout: Option<Duration>,
    /// The edits of an answer of Ballast's own, where the target is one.
    pub answer_headers: Option<Box<HeaderEdits>>,
    /// The count of requests of this route; `None`: an answer that is in no table is not counted.
    requests: Option<Arc<Tally>>,
}

#[derive(Debug)]
pub enum Target {
    /// An endpoint of a service.
    Forward(Forward),
    Redirect(Redirect),
    /// An answer of Ballast's own.
    Answer(FixedAnswer),
}

#[derive(Debug)]
pub struct Forward {
    /// The services that they go to.
    pub backends: Backends,
    /// What endpoints are asked for instead; `None`: nothing is changed.
    pub rewrite: Option<Rewrite>,
    /// Whether `Location` and the path of `Set-Cookie` are mapped back, where `rewrite` is set.
    pub maps_back: bool,
    pub request_headers: Option<Box<HeaderEdits>>,
    pub response_headers: Option<Box<HeaderEdits>>,
}

impl Forward {
    fn new(backends: Backends, route: &table::Route) -> Self {
        Self {
            backends,
            rewrite: route.rewrite().map(|to| Rewrite::new(&to, route)),
            maps_back: route.maps_back(),
            request_headers: route.request_headers.clone(),
            response_headers: route.response_headers.clone(),
        }
    }

    /// Whether the route, or the backend at this place, edits the heads of responses.
    #[must_use]
    pub fn edits_responses(&self, place: usize) -> bool {
        self.response_headers.is_some() || self.backends.response_headers(place).is_some()
    }
}

/// An answer of Ballast's own that the table asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedAnswer {
    pub status: u16,
    /// The file with the body; `None`: the page for this status.
    pub body_file: Option<File>,
    pub content_type: Option<Value>,
}

/// The answer to clients that a route denies.
#[derive(Debug)]
pub struct Denial {
    pub answer: FixedAnswer,
    pub headers: Option<Box<HeaderEdits>>,
}

impl Denial {
    fn new(page: &table::ErrorPage) -> Self {
        Self {
            answer: FixedAnswer {
                status: page.status.unwrap_or(403),
                body_file: page.body_file.clone(),
                content_type: page.content_type.clone(),
            },
            headers: page.response_headers.clone(),
        }
    }
}

impl Route {
    /// An answer with this status and its usual page.
    fn answer(status: u16) -> Self {
        Self {
            target: Target::Answer(FixedAnswer {
                status,
                body_file: None,
                content_type: None,
            }),
            sources: None,
            denial: None,
            timeout: None,
            answer_headers: None,
            requests: None,
        }
    }

    /// How requests are forwarded, if they are.
    pub fn forward(&self) -> Option<&Forward> {
        match &self.target {
            Target::Forward(forward) => Some(forward),
            Target::Redirect(_) | Target::Answer(_) => None,
        }
    }

    /// Counts a request that goes where this route says.
    pub fn count_request(&self, worker: WorkerId) {
        if let Some(requests) = &self.requests {
            requests.count(worker);
        }
    }

    /// Compiles the route at `place` among all of its frontend, or shares `before`, which was compiled from an equal table.
    fn shared(
        route: &table::Route,
        place: usize,
        context: &BackendsContext<'_>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let now = || route.services().filter_map(|name| (context.services)(name));
        let same = before.filter(|before| {
            let forward = before.forward().into_iter();
            let services = forward.flat_map(|forward| forward.backends.services());
            services
                .map(Arc::as_ptr)
                .eq(now().map(|now| Arc::as_ptr(&now)))
        });
        same.map_or_else(
            || Arc::new(Self::compile(route, place, context)),
            Arc::clone,
        )
    }

    fn compile(route: &table::Route, place: usize, context: &BackendsContext<'_>) -> Self {
        let backends = Backends::compile(&Spec::of_route(route, place), context);
        let target = match (backends, &route.redirect) {
            (Some(backends), _) => Target::Forward(Forward::new(backends, route)),
            // A valid table names no service that it lacks.
            (None, _) if route.services().next().is_some() => return Self::answer(503),
            (None, Some(redirect)) => Target::Redirect(Redirect::new(redirect)),
            (None, None) => Target::Answer(FixedAnswer {
                status: route.status.unwrap_or(404),
                body_file: route.body_file.clone(),
                content_type: route.content_type.clone(),
            }),
        };
        Self {
            sources: sources(route),
            denial: route.denied.as_deref().map(Denial::new).map(Box::new),
            timeout: route.timeout,
            answer_headers: match target {
                Target::Forward(_) => None,
                Target::Redirect(_) | Target::Answer(_) => route.response_headers.clone(),
            },
            requests: context.requests_of(place),
            target,
        }
    }
}

fn sources(route: &table::Route) -> Option<PrefixSet> {
    route
        .source_ranges
        .as_ref()
        .map(|ranges| PrefixSet::new(ranges.iter().copied()))
}

#[cfg(test)]
mod tests;
