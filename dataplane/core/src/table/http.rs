//! HTTP: routes, and what happens to heads on their way.

use std::fmt;
use std::num::NonZeroU16;

use ipnet::IpNet;

use super::entries::Entries;
use super::fields::List;
use super::host::{HostPattern, Scheme, UrlPath};
use super::record::{Leaf, Wrong, leaf, parsed, record, serde_by_field, words};
use super::span::{MaxAge, Size};
use super::text::{Alpn, File, Name, Token, Value};

record! {
    /// How an http or https frontend speaks.
    pub struct FrontendHttp {
        /// Whether clients may speak HTTP/2.
        http2: bool = true;
        /// Heads above this are refused.
        max_header_bytes: Size = Size::kib(64), in Size::kib(1)..=Size::kib(16 * 1024);
        /// Heads with more fields are refused.
        max_headers: u16 = 128, in 1..=10_000;
        /// X-Forwarded-For, and -Proto, -Port, -Host, -Prefix.
        x_forwarded: XForwarded = XForwarded::Append;
        /// Append for these peers, replace for others. Absent: append for all.
        x_forwarded_trust: Option<List<IpNet>> = None;
        /// RFC 7239 as well.
        forwarded: bool = false;
        /// https only.
        hsts: Option<MaxAge> = None;
    }
}

impl FrontendHttp {
    /// What a frontend without `http` has.
    pub const ABSENT: &Self = &Self {
        http2: true,
        max_header_bytes: Size::kib(64),
        max_headers: 128,
        x_forwarded: XForwarded::Append,
        x_forwarded_trust: None,
        forwarded: false,
        hsts: None,
    };
}

words! {
    /// What happens to X-Forwarded-For.
    pub enum XForwarded: "a way with X-Forwarded-For" {
        /// The client's address is added.
        Append = "append",
        /// What the client sent is thrown away.
        Replace = "replace",
        /// What the client sent passes untouched.
        Off = "off",
    }
}

record! {
    /// Which requests, or TLS connections, go where. The default of a frontend is one without `host` and `path`.
    pub struct Route {
        /// Absent: any host.
        host: Option<HostPattern> = None;
        /// Absent: `/`, see [`Route::path`].
        path: Option<UrlPath> = None;
        /// How `path` is meant.
        r#match: PathMatch = PathMatch::Segment;
        /// Whether `/Shop` is `/shop`.
        ignore_case: bool = false;
        /// Beside the frontend's. Absent: everybody.
        source_ranges: Option<List<IpNet>> = None;
        /// Unopened connections: what the client must offer.
        alpn: Option<List<Alpn>> = None;
        /// https: relayed unopened.
        passthrough: bool = false;
        /// Where to. Exactly one of `service`, `redirect` and `status` is there.
        service: Option<Name> = None;
        /// What replaces that part of the path which matched. Absent: the path is untouched.
        rewrite: Option<UrlPath> = None;
        /// Absent: where `rewrite` is set, see [`Route::maps_back`].
        map_back: Option<bool> = None;
        /// Sends the client elsewhere.
        redirect: Option<Box<Redirect>> = None;
        /// Answers so.
        status: Option<u16> = None, in 200..=599;
        /// The body of that answer.
        body_file: Option<File> = None;
        /// What that body is.
        content_type: Option<Value> = None;
    }
}

impl Route {
    /// The path that requests must match.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// Whether Location and the Path of Set-Cookie are mapped back in answers.
    #[must_use]
    pub fn maps_back(&self) -> bool {
        self.map_back.unwrap_or_else(|| self.rewrite.is_some())
    }
}

words! {
    /// How the path of a route is meant.
    pub enum PathMatch: "a way to match" {
        /// It and everything below it.
        Segment = "segment",
        /// It alone.
        Exact = "exact",
        /// Everything that begins so (haproxy's path_beg).
        Begins = "begins",
    }
}

record! {
    /// Where a client is sent instead. What is absent stays as it was asked for.
    pub struct Redirect {
        /// `http` or `https`.
        scheme: Option<Scheme> = None;
        /// Another host.
        host: Option<HostPattern> = None;
        /// Absent: the default of `scheme` where that is given.
        port: Option<NonZeroU16> = None;
        /// Replaces the whole path; the query stays.
        path: Option<UrlPath> = None;
        /// Absent: 301 for GET and HEAD, else 308.
        status: Option<u16> = None;
    }
}

record! {
    /// How a service's endpoints are spoken to in HTTP.
    pub struct ServiceHttp {
        /// The version.
        version: HttpVersion = HttpVersion::H1;
        /// When an idle connection serves another client.
        reuse: Reuse = Reuse::Safe;
        /// On the way to the endpoint.
        request_headers: HeaderEdits = HeaderEdits::default();
        /// On the way back.
        response_headers: HeaderEdits = HeaderEdits::default();
    }
}

impl ServiceHttp {
    /// What a service without `http` has.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            version: HttpVersion::H1,
            reuse: Reuse::Safe,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
        }
    }
}

words! {
    /// The version of HTTP that endpoints speak.
    pub enum HttpVersion: "a version of HTTP" {
        /// HTTP/1.1
        H1 = "h1",
        /// HTTP/2, with prior knowledge or, with TLS, by ALPN.
        H2 = "h2",
    }
}

words! {
    /// When an idle connection to an endpoint serves another client (haproxy's http-reuse).
    pub enum Reuse: "a way of reuse" {
        /// For requests that may be repeated.
        Safe = "safe",
        /// For every request.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

record! {
    /// Header fields that are set and removed.
    #[derive(Default)]
    pub struct HeaderEdits {
        /// Set, in place of what was there.
        set: Entries<Token, Value> = Entries::default();
        /// Removed.
        remove: List<Token> = List::default();
    }
}

/// The status of one of Ballast's own answers, as a key of `errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorStatus(u16);

impl ErrorStatus {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }
}

impl Leaf for ErrorStatus {
    const WHAT: &'static str = "the status of an error";
    const FORM: &'static str = "400 to 599";

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(code @ 400..=599) if text.len() == 3 => Ok(Self(code)),
            _ => Err(Wrong::form::<Self>()),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self.0
    }

    fn stand_in() -> Self {
        Self(500)
    }
}

leaf!(ErrorStatus);
serde_by_field!(ErrorStatus);
parsed!(ErrorStatus);
