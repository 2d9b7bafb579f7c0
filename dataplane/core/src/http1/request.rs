//! Parses the head of a request.

use std::mem::MaybeUninit;

use httparse::{Error, Status};
use memchr::memchr;

use crate::http::{Field, Framing, Host, Request, Version};

use super::facts::HeadFacts;
use super::search::Head;
use super::{Reject, RequestHead, fields_reject, version};

pub(super) fn parse<'h, 'b: 'h>(
    head: Head<'b>,
    fields: &'h mut [MaybeUninit<Field<'b>>],
) -> Result<RequestHead<'h>, Reject> {
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head.bytes, fields) {
        Ok(Status::Complete(length)) if length == head.bytes.len() => {}
        Ok(_) => return Err(Reject::bad("request-line")),
        Err(Error::Token) => return Err(Reject::bad("request-line")),
        Err(Error::Version) => return Err(version_reject(head.bytes)),
        Err(error) => return Err(fields_reject(error)),
    }
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Err(Reject::bad("request-line"));
    };
    if method == "CONNECT" {
        return Err(Reject::new(405, "connect"));
    }
    let version = version(parsed.version);
    let fields: &'h [Field<'b>] = parsed.headers;
    let facts = HeadFacts::read(fields, version)?;
    if facts.expects_other {
        return Err(Reject::new(417, "expectation"));
    }
    let target = Target::parse(method, target)?;
    let framing = facts.framing().unwrap_or(Framing::Empty);
    let has_body = framing != Framing::Empty;
    // Some readers of HTTP/1.0 ignore the body of such a request, and take what follows for the next one.
    let is_body_unusual =
        version == Version::Http10 && has_body && matches!(method, "GET" | "HEAD" | "DELETE");
    Ok(RequestHead {
        request: Request {
            method,
            path: target.path,
            query: target.query,
            host: host(&facts, &target, version)?,
            version,
            fields,
        },
        length: head.length,
        framing,
        keep_alive: facts.keep_alive(version) && !is_body_unusual,
        expects_continue: facts.expects_continue && has_body && version == Version::Http11,
        upgrades: facts.upgrades() && !has_body && version == Version::Http11,
    })
}

/// HTTP/0.9 names no version, or one below 1: such a request is malformed. Every other version is not supported.
fn version_reject(head: &[u8]) -> Reject {
    let line = head.split(|&byte| byte == b'\r').next();
    let version = line.and_then(|line| line.splitn(3, |&byte| byte == b' ').nth(2));
    match version {
        Some([b'H', b'T', b'T', b'P', b'/', b'1'..=b'9', b'.', b'0'..=b'9']) => {
            Reject::new(505, "version")
        }
        _ => Reject::bad("request-line"),
    }
}

/// The host of the target wins over `Host`, and must be the same.
fn host<'a>(
    facts: &HeadFacts<'a>,
    target: &Target<'a>,
    version: Version,
) -> Result<Option<Host<'a>>, Reject> {
    if facts.has_two_hosts {
        return Err(Reject::bad("host-twice"));
    }
    let field = match facts.host {
        None if version == Version::Http10 => return Ok(target.origin.map(|origin| origin.host)),
        None => return Err(Reject::bad("host-missing")),
        Some([]) => None,
        Some(value) => {
            let text = str::from_utf8(value).ok();
            let host = text.and_then(Host::parse);
            Some(host.ok_or(Reject::bad("host"))?)
        }
    };
    match (target.origin, field) {
        (None, field) => Ok(field),
        (Some(Origin { host, default_port }), Some(field)) if host.is_same(field, default_port) => {
            Ok(Some(host))
        }
        (Some(_), _) => Err(Reject::bad("host-differs")),
    }
}

struct Target<'a> {
    path: &'a str,
    query: Option<&'a str>,
    /// The scheme and the authority of an absolute target.
    origin: Option<Origin<'a>>,
}

#[derive(Clone, Copy)]
struct Origin<'a> {
    host: Host<'a>,
    /// The port of the target's scheme.
    default_port: u16,
}

impl<'a> Target<'a> {
    fn parse(method: &str, text: &'a str) -> Result<Self, Reject> {
        // httparse has refused controls and spaces.
        if !text.is_ascii() || memchr(b'#', text.as_bytes()).is_some() {
            return Err(Reject::bad("target"));
        }
        if text.starts_with('/') {
            let (path, query) = split_query(text);
            return Ok(Self {
                path,
                query,
                origin: None,
            });
        }
        if text == "*" && method == "OPTIONS" {
            return Ok(Self {
                path: text,
                query: None,
                origin: None,
            });
        }
        Self::parse_absolute(method, text).ok_or(Reject::bad("target"))
    }

    fn parse_absolute(method: &str, text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let default_port = if scheme.eq_ignore_ascii_case("http") {
            80
        } else if scheme.eq_ignore_ascii_case("https") {
            443
        } else {
            return None;
        };
        let (authority, rest) =
            rest.split_at_checked(rest.find(['/', '?']).unwrap_or(rest.len()))?;
        let (path, query) = match split_query(rest) {
            // RFC 9112, section 3.2.4: the proxy that replaces the absolute target writes `*`.
            ("", None) if method == "OPTIONS" => ("*", None),
            ("", query) => ("/", query),
            split => split,
        };
        let host = Host::parse(authority)?;
        Some(Self {
            path,
            query,
            origin: Some(Origin { host, default_port }),
        })
    }
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    match memchr(b'?', text.as_bytes()).and_then(|at| text.split_at_checked(at)) {
        Some((path, query)) => (path, query.get(1..)),
        None => (text, None),
    }
}
