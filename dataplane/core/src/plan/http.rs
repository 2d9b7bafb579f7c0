//! A compiled http or https frontend: its routes, and how HTTP is spoken with its clients.

use std::sync::Arc;
use std::time::Duration;

use crate::admit::PrefixSet;
use crate::backends::BackendsContext;
use crate::http::Host;
use crate::route::{HttpRoutes, SecureConnection, SniRoutes, is_misdirected};
use crate::table::{self, Http2, Protocol};

/// The compiled routes and options of an http or https frontend.
#[derive(Debug)]
pub struct HttpFrontend {
    routes: HttpRoutes,
    unopened: Option<SniRoutes>,
    options: Arc<HttpOptions>,
}

impl HttpFrontend {
    /// Compiles this frontend. `before` is its compiled form in the previous plan, if its table is the same: unchanged parts are
    /// shared.
    pub(crate) fn compile(
        frontend: &table::Frontend,
        context: &BackendsContext<'_>,
        before: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let has_unopened = frontend.all_routes().any(|route| route.passthrough);
        let unopened_before = before.and_then(|before| before.unopened.as_ref());
        let compiled = Self {
            routes: HttpRoutes::compile(frontend, context, before.map(|before| &before.routes)),
            unopened: has_unopened.then(|| SniRoutes::compile(frontend, context, unopened_before)),
            options: match before {
                Some(before) => Arc::clone(&before.options),
                None => Arc::new(HttpOptions::of(frontend)),
            },
        };
        match before {
            Some(before) if compiled.is_same(before) => Arc::clone(before),
            Some(_) | None => Arc::new(compiled),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let unopened = match (&self.unopened, &other.unopened) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        unopened && self.routes.is_same(&other.routes)
    }

    /// The routes of requests: those whose connections are not relayed unopened.
    pub fn routes(&self) -> &HttpRoutes {
        &self.routes
    }

    /// https: which connections are relayed unopened. `None`: TLS ends here for all.
    pub fn unopened(&self) -> Option<&SniRoutes> {
        self.unopened.as_ref()
    }

    /// Whether a request for `host` that came by `connection` is to be answered 421 (RFC 9110, section 15.5.20): a connection
    /// that had asked for this host would have been relayed unopened, or refused. `refuses` says of a server name, or of none,
    /// whether a handshake with it is refused now; it is called only where the rest does not decide.
    pub fn is_misdirected(
        &self,
        host: Option<Host<'_>>,
        connection: &SecureConnection<'_>,
        refuses: impl FnOnce(Option<&str>) -> bool,
    ) -> bool {
        match host {
            Some(host) if self.is_https() => {
                is_misdirected(host, connection, self.unopened(), refuses)
            }
            // A frontend that has become one of plain HTTP has no other way to any host.
            Some(_) | None => false,
        }
    }

    /// How HTTP is spoken with clients.
    pub fn options(&self) -> &Arc<HttpOptions> {
        &self.options
    }

    /// Whether TLS ends here.
    pub fn is_https(&self) -> bool {
        self.options.is_https
    }
}

/// How HTTP is spoken with the clients of a frontend: the table's `http` block and timeouts, as requests need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Whether TLS ends at the frontend.
    pub is_https: bool,
    /// Whether clients may speak HTTP/2.
    pub http2: bool,
    /// Most requests of HTTP/2 of one client at the same time.
    pub http2_streams: u32,
    /// Most bytes that wait for one client of HTTP/2, in both directions.
    pub http2_memory: usize,
    /// Most bytes of the head of a request.
    pub max_header_bytes: usize,
    /// Most fields of the head of a request.
    pub max_headers: usize,
    /// The peers whose `X-Forwarded-For` may be appended to. `None`: all.
    pub x_forwarded_trust: Option<PrefixSet>,
    /// The timeout for the whole head of a request.
    pub request_timeout: Duration,
    /// The timeout between two requests.
    pub keep_alive_timeout: Duration,
}

impl HttpOptions {
    fn of(frontend: &table::Frontend) -> Self {
        let http = frontend.http();
        let bytes = |size: table::Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
        let http2 = http.http2().unwrap_or(Http2::ABSENT);
        Self {
            is_https: frontend.protocol == Protocol::Https,
            http2: http.http2().is_some(),
            http2_streams: http2.streams.into(),
            http2_memory: bytes(http2.memory),
            max_header_bytes: bytes(http.max_header_bytes),
            max_headers: usize::from(http.max_headers),
            x_forwarded_trust: http
                .x_forwarded_trust
                .as_ref()
                .map(|peers| PrefixSet::new(peers.iter().copied())),
            request_timeout: frontend.timeouts.request,
            keep_alive_timeout: frontend.timeouts.keep_alive,
        }
    }
}
