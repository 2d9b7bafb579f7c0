//! How HTTP is spoken with clients and with endpoints, and what happens to heads on their way.

use std::fmt;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entries::Entries;
use super::fields::{List, OrMap, Within, is, is_default};
use super::leaf::{AsText, Leaf, Wrong, leaf};
use super::span::{MaxAge, Size};
use super::text::{File, Token, Value};

/// How HTTP is spoken with the clients of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct FrontendHttp {
    /// Whether clients may speak HTTP/2, or the limits of a client that does. Default: true.
    #[serde(skip_serializing_if = "is_true")]
    pub http2: OrMap<bool, Http2>,
    /// Most bytes of a request's head, from 1KiB to 16MiB. Default: 64KiB.
    #[serde(skip_serializing_if = "is_64_kib")]
    pub max_header_bytes: Size,
    /// Most fields of a request's head. Default: 128.
    #[serde(with = "Within::<1, 10_000>", skip_serializing_if = "is::<128, _>")]
    pub max_headers: u16,
    /// What happens to X-Forwarded-For. With append and replace X-Forwarded-Proto, -Port, -Host and -Prefix are set as well.
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
    /// Edits of the header fields of all answers, after every other edit: of answers by endpoints, and of redirects, denials and error pages.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: Option<Box<HeaderEdits>>,
    /// The status for requests whose endpoints cannot be connected to, from 500 to 599. Default: 502.
    #[serde(with = "Within::<500, 599>", skip_serializing_if = "is::<502, _>")]
    pub unreachable_status: u16,
}

impl FrontendHttp {
    /// What a frontend without `http` has.
    pub const ABSENT: &Self = &Self {
        http2: OrMap::Value(true),
        max_header_bytes: Size::kib(64),
        max_headers: 128,
        x_forwarded: XForwarded::Append,
        x_forwarded_trust: None,
        forwarded: false,
        hsts: None,
        response_headers: None,
        unreachable_status: 502,
    };
}

impl Default for FrontendHttp {
    fn default() -> Self {
        Self::ABSENT.clone()
    }
}

impl FrontendHttp {
    /// The limits of HTTP/2; `None`: clients may not speak it.
    #[must_use]
    pub fn http2(&self) -> Option<Http2> {
        match self.http2 {
            OrMap::Value(speaks) => speaks.then_some(Http2::ABSENT),
            OrMap::Map(limits) => Some(limits),
        }
    }
}

/// The limits of one client's connection of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Http2 {
    /// Most requests at the same time, from 1 to 1000. Default: 100.
    #[serde(with = "Within::<1, 1000>", skip_serializing_if = "is::<100, _>")]
    pub streams: u16,
    /// Most memory for what waits in both directions, 64KiB at least. Default: 1MiB.
    #[serde(skip_serializing_if = "is_1_mib")]
    pub memory: Size,
}

impl Http2 {
    /// What `http2: true` means.
    pub const ABSENT: Self = Self {
        streams: 100,
        memory: Size::kib(1024),
    };
}

impl Default for Http2 {
    fn default() -> Self {
        Self::ABSENT
    }
}

fn is_true(value: &OrMap<bool, Http2>) -> bool {
    *value == OrMap::Value(true)
}

fn is_1_mib(size: &Size) -> bool {
    *size == Size::kib(1024)
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
    /// As append, and X-Forwarded-Proto, -Port, -Host and -Prefix are passed on as the client sent them.
    AppendFor,
    /// As replace, and X-Forwarded-Proto, -Port, -Host and -Prefix are passed on as the client sent them.
    ReplaceFor,
    /// What the client sent is passed on unchanged.
    Off,
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
    /// What is changed in the heads of requests. The edits of the route come before.
    #[serde(skip_serializing_if = "is_default")]
    pub request_headers: HeaderEdits,
    /// What is changed in the heads of answers. The edits of the route come after.
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

/// Header fields that are removed, set and added, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct HeaderEdits {
    /// Fields that are set, with their values. What was there before is replaced.
    #[serde(skip_serializing_if = "is_default")]
    pub set: Entries<Token, Value>,
    /// Fields that are added, with their values, beside those of the same name.
    #[serde(skip_serializing_if = "is_default")]
    pub add: Entries<Token, Value>,
    /// Fields that are removed.
    #[serde(skip_serializing_if = "is_default")]
    pub remove: List<Token>,
}

impl HeaderEdits {
    /// The names of all fields that they change.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let written = self.set.iter().chain(self.add.iter());
        let written = written.map(|(name, _)| &**name);
        written.chain(self.remove.iter().map(|name| &**name))
    }
}

/// An answer of Ballast's own, in place of the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct ErrorPage {
    /// The status that the client gets, from 200 to 599. Absent: that of the answer.
    #[serde(with = "Within::<200, 599>", skip_serializing_if = "is_default")]
    pub status: Option<u16>,
    /// A file with the body. Absent: the page for that status.
    #[serde(skip_serializing_if = "is_default")]
    pub body_file: Option<File>,
    /// The Content-Type of that body. Absent: by the file's name.
    #[serde(skip_serializing_if = "is_default")]
    pub content_type: Option<Value>,
    /// Edits of the header fields of the answer, before those of the frontend.
    #[serde(skip_serializing_if = "is_default")]
    pub response_headers: Option<Box<HeaderEdits>>,
}

/// The status of one of Ballast's own answers, as a key of `errors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorStatus(u16);

impl ErrorStatus {
    /// The number.
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
