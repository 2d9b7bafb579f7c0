//! Where a request, or a TLS connection that is relayed unopened, goes: by host and path, or by server name and ALPN.
//!
//! [`compile`](crate::compile) makes the routes of a frontend. Finding one allocates nothing. Hosts and paths stand in tries, so
//! the cost of a search hardly depends on the number of routes: a search reads the path twice at most for each host pattern
//! that matches, and never more bytes of it than the longest route has.

use std::sync::Arc;

use crate::admit::PrefixSet;
use crate::http::Host;
use crate::service::Service;
use crate::table::{self, File, HostPattern, Name, Value};

mod hosts;
mod paths;
mod redirect;
mod rewrite;
mod sni;
mod trie;

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

#[derive(Debug)]
struct Index {
    hosts: Hosts<OfHost>,
    paths: Paths,
}

impl HttpRoutes {
    /// Compiles the routes of this frontend. `before` are the routes of the same frontend, with an equal table, in the
    /// previous plan: unchanged routes are shared with them.
    pub(crate) fn compile(
        frontend: &table::Frontend,
        services: &dyn Fn(&Name) -> Option<Arc<Service>>,
        before: Option<&Self>,
    ) -> Self {
        let opened = || frontend.routes.iter().filter(|route| !route.passthrough);
        Self {
            index: before.map_or_else(
                || Arc::new(Index::new(opened())),
                |before| Arc::clone(&before.index),
            ),
            routes: opened()
                .enumerate()
                .map(|(place, route)| {
                    Route::shared(route, services, before.and_then(|b| b.routes.get(place)))
                })
                .collect(),
            default: match frontend.default.as_deref().filter(|it| !it.passthrough) {
                Some(route) => Route::shared(route, services, before.map(|b| &b.default)),
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

    /// The best of the routes that match this host and this path: exact host, then longest wildcard host, then any host; among
    /// the routes of one host exact path, then longest path. Without a match: the table's default, or an answer with status 404.
    ///
    /// The path is compared as it was sent. The `*` of `OPTIONS *` is about the host as a whole: it goes where every path of
    /// the host goes.
    #[must_use]
    pub fn find(&self, host: Option<Host<'_>>, path: &str) -> Matched<'_> {
        let Index { hosts, paths } = self.index.as_ref();
        hosts
            .matching(host.map(|host| host.name))
            .find_map(|of_host| paths.find(*of_host, path))
            .and_then(|(route, prefix_length)| {
                Some(Matched {
                    route: self.routes.get(route)?,
                    prefix_length,
                })
            })
            .unwrap_or(Matched {
                route: &self.default,
                prefix_length: 0,
            })
    }
}

impl Index {
    /// The index of a route is its place.
    fn new<'t>(routes: impl Iterator<Item = &'t table::Route>) -> Self {
        let routes = routes
            .enumerate()
            .map(|route| (route.1.host.as_ref(), route));
        let by_host = hosts::grouped(routes);
        let mut paths = Paths::default();
        let of_hosts = by_host
            .into_iter()
            .map(|(host, routes)| (host, paths.add(&routes)));
        Self {
            hosts: Hosts::new(of_hosts),
            paths,
        }
    }
}

/// A route, and the part of the path that it matched.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'r> {
    /// The route.
    pub route: &'r Arc<Route>,
    /// The number of bytes at the beginning of the path that matched, and that `rewrite` replaces. The slash at the end of a
    /// route for a whole folder is not counted: the length is 4 for `/svc` and for `/svc/`, and 0 for `/`.
    pub prefix_length: usize,
}

impl Matched<'_> {
    /// The part of `path` that matched, as the client spelled it: the value of `X-Forwarded-Prefix`. It may be empty.
    #[must_use]
    pub fn prefix<'p>(&self, path: &'p str) -> &'p str {
        path.get(..self.prefix_length).unwrap_or_default()
    }
}

/// A compiled route of requests.
#[derive(Debug)]
pub struct Route {
    /// The target of the requests.
    pub target: Target,
    /// The clients that may use this route, beside the frontend's ranges; others are answered 403. `None`: all clients.
    pub sources: Option<PrefixSet>,
}

/// The target of a route.
#[derive(Debug)]
pub enum Target {
    /// An endpoint of a service.
    Service {
        /// The service.
        service: Arc<Service>,
        /// How the path is changed; `None`: the path is not changed.
        rewrite: Option<Rewrite>,
        /// Whether `Location` and the path of `Set-Cookie` are mapped back, where `rewrite` is set.
        maps_back: bool,
    },
    /// A redirect.
    Redirect(Redirect),
    /// An answer of Ballast's own.
    Answer(Answer),
}

/// An answer of Ballast's own that the table asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The file with the body; `None`: the page for this status.
    pub body_file: Option<File>,
    /// The Content-Type of that file.
    pub content_type: Option<Value>,
}

impl Route {
    /// An answer with this status and its usual page.
    fn answer(status: u16) -> Self {
        Self {
            target: Target::Answer(Answer {
                status,
                body_file: None,
                content_type: None,
            }),
            sources: None,
        }
    }

    /// The service that is the target, if the target is a service.
    #[must_use]
    pub fn service(&self) -> Option<&Arc<Service>> {
        match &self.target {
            Target::Service { service, .. } => Some(service),
            Target::Redirect(_) | Target::Answer(_) => None,
        }
    }

    /// Compiles the route, or shares `before`, which was compiled from an equal table.
    fn shared(
        route: &table::Route,
        services: &dyn Fn(&Name) -> Option<Arc<Service>>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let service = route.service.as_ref().map(services);
        let same = before.filter(|before| match (before.service(), &service) {
            (Some(before), Some(Some(now))) => Arc::ptr_eq(before, now),
            (Some(_), _) | (None, Some(Some(_))) => false,
            (None, Some(None) | None) => true,
        });
        same.map_or_else(|| Arc::new(Self::compile(route, service)), Arc::clone)
    }

    /// `service` is the service that the route names, if it names one.
    fn compile(route: &table::Route, service: Option<Option<Arc<Service>>>) -> Self {
        let target = match (service, &route.redirect) {
            (Some(Some(service)), _) => Target::Service {
                service,
                rewrite: route.rewrite.as_deref().map(|to| Rewrite::new(to, route)),
                maps_back: route.maps_back(),
            },
            // A valid table names no service that it lacks.
            (Some(None), _) => return Self::answer(503),
            (None, Some(redirect)) => Target::Redirect(Redirect::new(redirect)),
            (None, None) => Target::Answer(Answer {
                status: route.status.unwrap_or(404),
                body_file: route.body_file.clone(),
                content_type: route.content_type.clone(),
            }),
        };
        Self {
            target,
            sources: sources(route),
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
