//! HTTP: routes, and what happens to heads on their way.

use std::fmt;
use std::num::NonZeroU16;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entries::Entries;
use super::fields::{List, Within, is, is_default, shown_as_written};
use super::host::{HostPattern, Scheme, UrlPath};
use super::leaf::{AsText, Leaf, Wrong, leaf};
use super::span::{MaxAge, Size};
use super::text::{Alpn, File, Name, Token, Value};

/// How HTTP is spoken with the clients of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct FrontendHttp {
    /// Whether clients may speak HTTP/2. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub http2: bool,
    /// Most bytes of a request's head, from 1KiB to 16MiB. Default: 64KiB.
    #[serde(skip_serializing_if = "is_64_kib")]
    pub max_header_bytes: Size,
    /// Most fields of a request's head. Default: 128.
    #[serde(with = "Within::<1, 10_000>", skip_serializing_if = "is::<128, _>")]
    pub max_headers: u16,
    /// What happens to X-Forwarded-For. Unless off, X-Forwarded-Proto, -Port, -Host and -Prefix are set as well.
    /// Default: append.
    #[serde(skip_serializing_if = "is_default")]
    pub x_forwarded: XForwarded,
    /// Peers whose X-Forwarded-For is appended to; that of others is replaced. Absent: it is appended to for all.
    #[serde(
        with = "AsText::<Option<List<IpNet>>>",
        skip_serializing_if = "is_default"
    )]
    pub x_forwarded_trust: Option<List<IpNet>>,
    /// Whether the Forwarded field (RFC 7239) is set as well. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub forwarded: bool,
    /// https: browsers are told to use nothing but https for so long. Absent: they are not told.
    #[serde(skip_serializing_if = "is_default")]
    pub hsts: Option<MaxAge>,
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

impl Default for FrontendHttp {
    fn default() -> Self {
        Self::ABSENT.clone()
    }
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_64_kib(size: &Size) -> bool {
    *size == Size::kib(64)
}

/// What happens to X-Forwarded-For.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way with X-Forwarded-For")]
pub enum XForwarded {
    /// The client's address is added to what the client sent.
    #[default]
    Append,
    /// The client's address replaces what the client sent.
    Replace,
    /// What the client sent is passed on unchanged.
    Off,
}

/// Which requests, or TLS connections, go where. Exactly one of `service`, `redirect` and `status` must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Route {
    /// The host of the requests. Absent: any host.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<HostPattern>,
    /// The path of the requests. Default: /.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<UrlPath>,
    /// How `path` is compared. Default: segment.
    #[serde(skip_serializing_if = "is_default")]
    pub r#match: PathMatch,
    /// Whether upper and lower case are the same in `path`. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub ignore_case: bool,
    /// Clients that may use this route, beside the frontend's own ranges. Absent: everybody.
    #[serde(
        with = "AsText::<Option<List<IpNet>>>",
        skip_serializing_if = "is_default"
    )]
    pub source_ranges: Option<List<IpNet>>,
    /// For connections that are passed on unopened: the client must offer one of these protocols (ALPN).
    #[serde(skip_serializing_if = "is_default")]
    pub alpn: Option<List<Alpn>>,
    /// https: the connection is passed on unopened. Default: false.
    #[serde(skip_serializing_if = "is_default")]
    pub passthrough: bool,
    /// The name of the service that gets the requests.
    #[serde(skip_serializing_if = "is_default")]
    pub service: Option<Name>,
    /// What replaces the part of the path that matched. Absent: the path is not changed.
    #[serde(skip_serializing_if = "is_default")]
    pub rewrite: Option<UrlPath>,
    /// Whether Location and the Path of Set-Cookie are changed back in answers. Default: true where `rewrite` is set.
    #[serde(skip_serializing_if = "is_default")]
    pub map_back: Option<bool>,
    /// The client is sent elsewhere.
    #[serde(skip_serializing_if = "is_default")]
    pub redirect: Option<Box<Redirect>>,
    /// Ballast answers by itself, with this status.
    #[serde(with = "Within::<200, 599>", skip_serializing_if = "is_default")]
    pub status: Option<u16>,
    /// A file with the body of that answer.
    #[serde(skip_serializing_if = "is_default")]
    pub body_file: Option<File>,
    /// The Content-Type of that body.
    #[serde(skip_serializing_if = "is_default")]
    pub content_type: Option<Value>,
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

/// How the path of a route is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way to match")]
pub enum PathMatch {
    /// This path and everything below it.
    #[default]
    Segment,
    /// This path alone.
    Exact,
    /// Everything that begins with this text (haproxy's path_beg).
    Begins,
}

shown_as_written!(PathMatch);

/// Where a client is sent instead. What is absent stays as the client asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Redirect {
    /// http or https.
    #[serde(skip_serializing_if = "is_default")]
    pub scheme: Option<Scheme>,
    /// Another host, without *.
    #[serde(skip_serializing_if = "is_default")]
    pub host: Option<HostPattern>,
    /// Another port. Default: the usual one of `scheme`, where that is given.
    #[serde(skip_serializing_if = "is_default")]
    pub port: Option<NonZeroU16>,
    /// What replaces the whole path. The query stays.
    #[serde(skip_serializing_if = "is_default")]
    pub path: Option<UrlPath>,
    /// One of 301, 302, 303, 307 and 308. Default: 301 for GET and HEAD, else 308.
    #[serde(skip_serializing_if = "is_default")]
    pub status: Option<u16>,
}

/// How HTTP is spoken with the endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServiceHttp {
    /// The version of HTTP. Default: h1.
    #[serde(skip_serializing_if = "is_default")]
    pub version: HttpVersion,
    /// When an idle connection serves another client (haproxy's http-reuse). Default: safe.
    #[serde(skip_serializing_if = "is_default")]
    pub reuse: Reuse,
    /// Fields that are set in requests and removed from them.
    #[serde(skip_serializing_if = "is_default")]
    pub request_headers: HeaderEdits,
    /// Fields that are set in answers and removed from them.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: HeaderEdits,
}

/// The version of HTTP that endpoints speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a version of HTTP")]
pub enum HttpVersion {
    /// HTTP/1.1
    #[default]
    H1,
    /// HTTP/2: with TLS by ALPN, else with prior knowledge.
    H2,
}

/// When an idle connection to an endpoint serves another client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "a way of reuse")]
pub enum Reuse {
    /// For requests that may be repeated.
    #[default]
    Safe,
    /// For every request.
    Always,
    /// Never.
    Never,
}

/// Header fields that are set and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct HeaderEdits {
    /// Fields that are set, with their values. What was there before is replaced.
    #[serde(skip_serializing_if = "is_default")]
    pub set: Entries<Token, Value>,
    /// Fields that are removed.
    #[serde(skip_serializing_if = "is_default")]
    pub remove: List<Token>,
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
    const NAME: &'static str = "ErrorStatus";
    const WHAT: &'static str = "the status of an error";
    const FORM: &'static str = "400 to 599";
    const PATTERN: &'static str = r"^[45][0-9][0-9]$";
    const EXAMPLE: &'static str = "503";

    fn parse(text: &str) -> Result<Self, Wrong> {
        match text.parse() {
            Ok(code @ 400..=599) if text.len() == 3 => Ok(Self(code)),
            _ => Err(Wrong::form::<Self>()),
        }
    }

    fn text(&self) -> impl fmt::Display {
        self.0
    }
}

leaf!(ErrorStatus);
