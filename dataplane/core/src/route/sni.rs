//! Where TLS connections go that are relayed unopened: by the server name and the protocols of the ClientHello.

use std::sync::Arc;

use super::hosts::{self, Hosts};
use super::{Backends, BackendsContext, PrefixSet, Spec, Tally, WorkerId, sources, table};
use crate::table::{Alpn, Protocol};

/// The routes of a tls frontend, or those of an https frontend that decide which connections are relayed unopened.
#[derive(Debug)]
pub struct SniRoutes {
    /// The index of `routes` by server name. It depends on the frontend's table alone, so plans share it even where services
    /// change.
    index: Arc<Hosts<OneName>>,
    /// In the order of the table, the default last. `None`: TLS ends here.
    routes: Box<[Option<Arc<SniRoute>>]>,
    otherwise: Otherwise,
}

/// A route of connections that are relayed unopened.
#[derive(Debug)]
pub struct SniRoute {
    /// The services that get the connections.
    pub backends: Backends,
    /// The clients that may use this route, in addition to the frontend's ranges. `None`: all clients.
    pub sources: Option<PrefixSet>,
    connections: Option<Arc<Tally>>,
}

/// The decision about a TLS connection.
#[derive(Clone, Copy, Debug)]
pub enum SniMatch<'r> {
    /// The connection is relayed unopened.
    Relay(&'r Arc<SniRoute>),
    /// TLS ends here. https only.
    Terminate,
    /// No route matches: the connection is reset. tls only.
    Reset,
}

/// The routes of one name.
#[derive(Debug, Default)]
struct OneName {
    /// Each protocol that routes ask for, with one of them.
    by_alpn: Vec<(Alpn, usize)>,
    /// The route of clients that offer none of these.
    without_alpn: Option<usize>,
}

/// The decision about connections that match no route.
#[derive(Clone, Copy, Debug)]
enum Otherwise {
    Terminate,
    Reset,
}

impl SniRoutes {
    /// Compiles the routes of this frontend. `before` are the routes of the same frontend, with an equal table, in the previous
    /// plan: unchanged routes are shared with them.
    pub(crate) fn compile(
        frontend: &table::Frontend,
        context: &BackendsContext<'_>,
        before: Option<&Self>,
    ) -> Self {
        let is_tls = frontend.protocol == Protocol::Tls;
        Self {
            index: before.map_or_else(
                || Arc::new(index(frontend)),
                |before| Arc::clone(&before.index),
            ),
            routes: frontend
                .all_routes()
                .enumerate()
                .map(|(place, route)| {
                    let before = before.and_then(|before| before.routes.get(place)?.as_ref());
                    // A valid table has no other target here, and names no service that it lacks.
                    let is_relayed = is_tls || route.passthrough;
                    is_relayed
                        .then(|| SniRoute::shared(route, place, context, before))
                        .flatten()
                })
                .collect(),
            otherwise: if is_tls {
                Otherwise::Reset
            } else {
                Otherwise::Terminate
            },
        }
    }

    /// The same, or `before` itself if no route has changed.
    pub(crate) fn shared(
        frontend: &table::Frontend,
        context: &BackendsContext<'_>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let compiled = Self::compile(frontend, context, before.map(Arc::as_ref));
        match before {
            Some(before) if compiled.is_same(before) => Arc::clone(before),
            Some(_) | None => Arc::new(compiled),
        }
    }

    /// Whether every route is the same one as in `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let pointer = |route: &Option<Arc<SniRoute>>| route.as_ref().map(Arc::as_ptr);
        Arc::ptr_eq(&self.index, &other.index)
            && self
                .routes
                .iter()
                .map(pointer)
                .eq(other.routes.iter().map(pointer))
    }

    /// The route of a client that asks for the name `sni` and offers the protocols `alpn`: exact name, then longest wildcard,
    /// then any name; among the routes of one name those for a protocol that the client offers, in the client's order, then
    /// those for all clients.
    #[must_use]
    pub fn find(
        &self,
        sni: Option<&str>,
        alpn: impl IntoIterator<Item: AsRef<[u8]>> + Clone,
    ) -> SniMatch<'_> {
        let found = self
            .index
            .matching(sni)
            .find_map(|name| name.find(alpn.clone()));
        let otherwise = match self.otherwise {
            Otherwise::Terminate => SniMatch::Terminate,
            Otherwise::Reset => SniMatch::Reset,
        };
        found
            .and_then(|route| self.routes.get(route)?.as_ref())
            .map_or(otherwise, SniMatch::Relay)
    }
}

impl SniRoute {
    /// Counts a connection that goes where this route says.
    pub fn count_connection(&self, worker: WorkerId) {
        if let Some(connections) = &self.connections {
            connections.count(worker);
        }
    }

    /// Compiles the route at `place` among all of its frontend, or shares `before`, which was compiled from an equal table.
    fn shared(
        route: &table::Route,
        place: usize,
        context: &BackendsContext<'_>,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
        let now = || route.services().filter_map(|name| (context.services)(name));
        let same = before.filter(|before| {
            let services = before.backends.services();
            services
                .map(Arc::as_ptr)
                .eq(now().map(|now| Arc::as_ptr(&now)))
        });
        if let Some(same) = same {
            return Some(Arc::clone(same));
        }
        Some(Arc::new(Self {
            backends: Backends::compile(&Spec::of_route(route, place), context)?,
            sources: sources(route),
            connections: context.requests_of(place),
        }))
    }
}

fn index(frontend: &table::Frontend) -> Hosts<OneName> {
    let numbered = frontend.all_routes().enumerate();
    let by_name = hosts::grouped(numbered.map(|route| (route.1.host.as_ref(), route)));
    let names = by_name.into_iter();
    Hosts::new(names.map(|(name, routes)| (name, OneName::new(routes))))
}

impl OneName {
    fn new(routes: Vec<(usize, &table::Route)>) -> Self {
        let mut by_alpn: Vec<(&[Alpn], usize)> = Vec::new();
        let mut without_alpn = None;
        for (place, route) in routes {
            match &route.alpn {
                Some(alpn) => by_alpn.push((alpn, place)),
                // Of the routes that https opens there may be many, by path.
                None => without_alpn = Some(place),
            }
        }
        // Two routes may ask for the same protocol. The order of the file means nothing, so the protocols decide.
        by_alpn.sort_unstable();
        let mut one = Self {
            by_alpn: Vec::new(),
            without_alpn,
        };
        for (alpn, place) in by_alpn {
            for protocol in alpn {
                if !one.by_alpn.iter().any(|(known, _)| known == protocol) {
                    one.by_alpn.push((protocol.clone(), place));
                }
            }
        }
        one
    }

    fn find(&self, offered: impl IntoIterator<Item: AsRef<[u8]>>) -> Option<usize> {
        let of_protocol = |offered: &[u8]| {
            let mut known = self.by_alpn.iter();
            known.find(|(alpn, _)| alpn.as_bytes() == offered)
        };
        let mut offered = offered.into_iter();
        offered
            .find_map(|offered| of_protocol(offered.as_ref()))
            .map(|(_, place)| *place)
            .or(self.without_alpn)
    }
}
