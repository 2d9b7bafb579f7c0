//! Requests and responses of HTTP, as routing and forwarding see them: without their version's syntax on the wire.
//!
//! [`crate::http1`] reads them from the bytes of HTTP/1, [`crate::http2`] from those of HTTP/2. Both are
//! routed by [`crate::route`] and rewritten by [`crate::forward`].

use std::net::Ipv6Addr;

use memchr::memchr;

use crate::words;

mod field_kind;

pub use field_kind::concerns_connection;
pub(crate) use field_kind::{FieldKind, imitates};

/// A header field: its name, which is a token in the case in which it was sent, and its value, whose bytes may be any but
/// control characters other than the tab.
pub use httparse::Header as Field;

/// The version of HTTP in which a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method, a token in the case in which it was sent.
    pub method: &'a str,
    /// The path as the client sent it, nothing decoded or normalized. It begins with `/`, but for the `*` of `OPTIONS *`.
    pub path: &'a str,
    /// The query without its question mark; `None` if the target has no question mark.
    pub query: Option<&'a str>,
    /// The host that the client asked for.
    pub host: Option<Host<'a>>,
    /// The version in which the request was sent.
    pub version: Version,
    /// The header fields in the order in which they were sent. `Host` is among them in HTTP/1 only.
    pub fields: &'a [Field<'a>],
}

/// The host that a client asked for: from the target of the request, from `Host`, or from `:authority`. Its syntax has been
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// A name or an address, in the case in which it was sent. An IPv6 address is in brackets. Never empty.
    pub name: &'a str,
    /// The port, if one was sent.
    pub port: Option<u16>,
}

impl<'a> Host<'a> {
    /// Parses `NAME`, `NAME:` or `NAME:PORT`, as `Host` and `:authority` hold it. Returns `None` if the text is empty or
    /// malformed. Stricter than RFC 3986: a name consists of letters, digits, `-`, `_` and single dots, which are the
    /// characters of hosts in routes, and the port 0 is refused.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let name_length = if text.starts_with('[') {
            text.find(']')? + 1
        } else {
            memchr(b':', text.as_bytes()).unwrap_or(text.len())
        };
        let (name, port) = text.split_at_checked(name_length)?;
        let is_valid = match name.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None => is_name(name),
        };
        let port = match port.strip_prefix(':') {
            None if !port.is_empty() => return None,
            None | Some("") => None,
            Some(digits) => Some(parse_port(digits)?),
        };
        is_valid.then_some(Self { name, port })
    }

    /// Whether both are the same host and port, if a missing one is `default_port`. Names are compared without regard
    /// to case.
    pub fn is_same(self, other: Host<'_>, default_port: u16) -> bool {
        self.name.eq_ignore_ascii_case(other.name)
            && self.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
    }
}

fn is_name(text: &str) -> bool {
    let mut previous = b'.';
    for byte in text.bytes() {
        let is_allowed = match byte {
            b'.' => previous != b'.',
            b'-' | b'_' => true,
            _ => byte.is_ascii_alphanumeric(),
        };
        if !is_allowed {
            return false;
        }
        previous = byte;
    }
    !text.is_empty()
}

fn parse_port(digits: &str) -> Option<u16> {
    let are_digits = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|&port| are_digits && port > 0)
}

#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status, from 100 to 999.
    pub status: u16,
    /// The reason phrase. It may be empty.
    pub reason: &'a str,
    /// The version in which the response was sent.
    pub version: Version,
    /// The header fields in the order in which they were sent.
    pub fields: &'a [Field<'a>],
}

words! {
    /// The first digit of a status, by which responses are counted. The word is the metric's label.
    pub enum StatusClass {
        /// 100 to 199
        Informational = "1xx",
        /// 200 to 299
        Successful = "2xx",
        /// 300 to 399
        Redirection = "3xx",
        /// 400 to 499
        ClientError = "4xx",
        /// 500 to 599
        ServerError = "5xx",
        /// 600 to 999
        Other = "other",
    }
}

impl StatusClass {
    /// The class of this status.
    pub const fn of(status: u16) -> Self {
        match status {
            100..=199 => Self::Informational,
            200..=299 => Self::Successful,
            300..=399 => Self::Redirection,
            400..=499 => Self::ClientError,
            500..=599 => Self::ServerError,
            _ => Self::Other,
        }
    }
}

/// How the end of a message's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    Empty,
    /// The body has this number of bytes.
    Length(u64),
    /// The body is in chunks (`Transfer-Encoding: chunked`).
    Chunked,
    /// The body ends when the connection is closed. Responses of HTTP/1 only.
    UntilClose,
}

impl Framing {
    /// Whether a body may follow the head.
    pub fn has_body(self) -> bool {
        !matches!(self, Self::Empty | Self::Length(0))
    }
}

/// The scheme of a URL: whether HTTP is spoken in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// As it is written in a URL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of URLs that name none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

#[cfg(test)]
mod tests;
