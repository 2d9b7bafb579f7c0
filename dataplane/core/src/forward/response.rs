//! The head of a response for a client.

use crate::affinity::cookie;
use crate::http::{Field, FieldKind, Framing, Response, Version};
use crate::table::MaxAge;
use crate::text::Append;

use super::fields::{HeadWriter, Named, join, options, values, write_framing};
use super::map_back::MapBack;
use super::{Edits, Sink};

/// A response on its way to a client.
#[derive(Clone, Copy, Debug)]
pub struct ToClient<'a> {
    /// The response as the endpoint sent it.
    pub response: &'a Response<'a>,
    /// The framing of its body for this client: [`framing_to`].
    pub framing: Framing,
    /// Whether it answers a `HEAD` request.
    pub answers_head: bool,
    /// The version of the client's request.
    pub version: Version,
    /// Whether the client's connection is used again. It is not if the body ends with it.
    pub keeps_connection: bool,
    /// The edits of the table: [`Edits::of_response`].
    pub edits: Edits<'a>,
    /// The frontend's `hsts`.
    pub hsts: Option<MaxAge>,
    /// The affinity cookie of the service.
    pub sticky: Option<Sticky<'a>>,
    /// How paths are mapped back, if the route does so.
    pub map_back: Option<MapBack<'a>>,
}

/// The affinity cookie of a service.
#[derive(Clone, Copy, Debug)]
pub struct Sticky<'a> {
    /// The name of the cookie. A cookie of this name that the endpoint sets is removed.
    pub name: &'a str,
    /// The value that the client is given; `None` if it has the right one.
    pub value: Option<cookie::CookieValue>,
    /// Whether clients send it over https only.
    pub secure: bool,
}

/// The framing, for a client of this version, of a body that an endpoint frames as `framing`. HTTP/1.0 has no chunks.
#[must_use]
pub fn framing_to(version: Version, framing: Framing) -> Framing {
    match framing {
        Framing::Chunked if version == Version::Http10 => Framing::UntilClose,
        framing => framing,
    }
}

/// Appends the head of a response in HTTP/1.1, which is also how a client of HTTP/1.0 is answered.
pub fn response(out: &mut Vec<u8>, to: &ToClient<'_>) {
    write_status(out, to.response.status, to.response.reason);
    response_fields(out, to);
    out.extend_from_slice(b"\r\n");
}

/// Appends the first line of a response.
pub(crate) fn write_status(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.number(status.into());
    out.push(b' ');
    out.extend_from_slice(reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields of a response. An interim response (1xx) loses only the fields that concern the connection. A switch to another
/// protocol is the last answer to its request, and no interim one.
pub fn response_fields(out: &mut impl Sink, to: &ToClient<'_>) {
    let status = to.response.status;
    let switches = status == SWITCHING_PROTOCOLS;
    if status < 200 && !switches {
        copy(&mut HeadWriter::new(out, Edits::default()), to, true);
        return;
    }
    let mut head = HeadWriter::new(out, to.edits);
    copy(&mut head, to, false);
    if let Some(max_age) = to.hsts {
        write_hsts(&mut head, max_age);
    }
    head.edit("");
    let out = head.sink();
    if let Some(Sticky {
        name,
        value: Some(value),
        secure,
    }) = to.sticky
    {
        let secure = if secure { "; Secure" } else { "" };
        out.field_with("Set-Cookie", |out| {
            write!(out, "{name}={value}; Path=/; HttpOnly{secure}");
        });
        // In addition to the endpoint's: the strictest directive counts.
        out.field("Cache-Control", b"private");
    }
    if !switches {
        write_body(out, to);
    }
    write_connection(out, to);
}

/// Writes the field that tells browsers to use https only.
pub(crate) fn write_hsts(out: &mut impl Sink, max_age: MaxAge) {
    let seconds = max_age.seconds();
    out.field_with("Strict-Transport-Security", |out| {
        write!(out, "max-age={seconds}");
    });
}

/// Copies the fields that are for the client.
fn copy(head: &mut HeadWriter<'_, impl Sink>, to: &ToClient<'_>, is_interim: bool) {
    let fields = to.response.fields;
    let named = Named::in_fields(fields);
    for field in fields {
        match FieldKind::of(field.name) {
            FieldKind::Connection => {}
            FieldKind::StrictTransportSecurity if to.hsts.is_some() => {}
            FieldKind::Trailer if to.framing != Framing::Chunked => {}
            FieldKind::Location if !is_interim => {
                head.field_with(field.name, |out| match to.map_back {
                    Some(map_back) => map_back.location(out, field.value),
                    None => out.extend_from_slice(field.value),
                });
            }
            FieldKind::SetCookie if !is_interim => copy_cookie(head, to, field),
            FieldKind::Other => {
                if !named.contains(field.name) {
                    head.copy(field);
                }
            }
            FieldKind::Location
            | FieldKind::SetCookie
            | FieldKind::StrictTransportSecurity
            | FieldKind::Trailer
            | FieldKind::Cookie
            | FieldKind::Expect
            | FieldKind::Forwarded
            | FieldKind::ForwardedFor
            | FieldKind::ForwardedFact
            | FieldKind::ForwardedForImitation
            | FieldKind::ForwardedFactImitation
            | FieldKind::Host => head.copy(field),
        }
    }
}

/// Copies a cookie that the endpoint sets, unless it has the name of the affinity cookie.
fn copy_cookie(head: &mut HeadWriter<'_, impl Sink>, to: &ToClient<'_>, field: &Field<'_>) {
    if cookie::pair(field.value).is_named(to.sticky.map(|sticky| sticky.name)) {
        return;
    }
    head.field_with(field.name, |out| match to.map_back {
        Some(map_back) => map_back.set_cookie(out, field.value),
        None => out.extend_from_slice(field.value),
    });
}

/// Writes the field that frames the body. Where the rules of HTTP forbid a body, the endpoint's `Content-Length` is kept: it may
/// state the length that the body would have.
fn write_body(out: &mut impl Sink, to: &ToClient<'_>) {
    let is_h2 = to.version == Version::Http2;
    match to.framing {
        Framing::Chunked if is_h2 => {}
        Framing::Empty if to.answers_head || to.response.status == NOT_MODIFIED => {
            let mut lengths = values(to.response.fields, "content-length");
            let is_number =
                |value: &&[u8]| !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            if let Some(length) = lengths.find(is_number) {
                out.field("Content-Length", length);
            }
        }
        Framing::Empty if to.response.status != NO_CONTENT => {
            write_framing(out, Framing::Length(0));
        }
        framing => write_framing(out, framing),
    }
}

/// Writes `Connection` as the client's version needs it, and `Upgrade` where that belongs to the answer.
fn write_connection(out: &mut impl Sink, to: &ToClient<'_>) {
    let fields = to.response.fields;
    let status = to.response.status;
    let upgrades = to.version != Version::Http2
        && matches!(status, SWITCHING_PROTOCOLS | UPGRADE_REQUIRED)
        && options(fields, "upgrade").next().is_some();
    let keeps = to.keeps_connection && to.framing != Framing::UntilClose;
    if !upgrades {
        if status != SWITCHING_PROTOCOLS {
            write_persistence(out, to.version, keeps);
        }
        return;
    }
    let persistence = persistence(to.version, keeps).filter(|_| status != SWITCHING_PROTOCOLS);
    let both = [&b"upgrade"[..]].into_iter().chain(persistence);
    out.field_with("Connection", |out| join(out, both, b", "));
    out.field_with("Upgrade", |out| {
        join(out, options(fields, "upgrade"), b", ");
    });
}

/// Writes `Connection` if the client's version needs it.
pub(crate) fn write_persistence(out: &mut impl Sink, version: Version, keeps: bool) {
    if let Some(option) = persistence(version, keeps) {
        out.field("Connection", option);
    }
}

/// The value of `Connection` for a client of this version; `keeps`: the connection is used again.
fn persistence(version: Version, keeps: bool) -> Option<&'static [u8]> {
    match (version, keeps) {
        (Version::Http2, _) | (Version::Http11, true) => None,
        (Version::Http10, true) => Some(b"keep-alive"),
        (Version::Http10 | Version::Http11, false) => Some(b"close"),
    }
}

const SWITCHING_PROTOCOLS: u16 = 101;
const NO_CONTENT: u16 = 204;
const NOT_MODIFIED: u16 = 304;
const UPGRADE_REQUIRED: u16 = 426;
