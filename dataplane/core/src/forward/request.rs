//! The head of a request for an endpoint.

use std::net::SocketAddr;

use crate::affinity::cookie;
use crate::http::{FieldKind, Framing, Request, Scheme, Version, imitates};
use crate::route::Rewrite;
use crate::table::{FrontendHttp, HttpVersion};
use crate::text::Append;

use super::fields::{HeadWriter, Named, join, options, write_framing};
use super::forwarded::{Policy, write_host};
use super::{Edits, Sink};

/// A request on its way to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ToEndpoint<'a> {
    /// The request as the client sent it.
    pub request: &'a Request<'a>,
    /// The framing of the request's body, which is the same to the endpoint as from the client.
    pub framing: Framing,
    /// Whether the client asks for another protocol than HTTP:
    /// [`RequestHead::upgrades`](crate::http1::RequestHead::upgrades).
    pub upgrades: bool,
    /// Whether the connection to the endpoint is used again.
    pub keeps_connection: bool,
    /// The version of HTTP that the endpoint speaks.
    pub version: HttpVersion,
    /// The host of a request without one: the endpoint, or the address that the client connected to.
    pub endpoint: SocketAddr,
    /// The client.
    pub client: &'a Client<'a>,
    pub options: &'a FrontendHttp,
    /// The edits of the table: [`Edits::of_request`].
    pub edits: Edits<'a>,
    /// How the route changes the path and the host; `None`: not at all.
    pub rewrite: Option<&'a Rewrite>,
    /// The part of the client's path that the route matched: [`Matched::prefix`](crate::route::Matched::prefix).
    pub prefix: &'a str,
    /// The name of the service's affinity cookie, which endpoints never see.
    pub cookie: Option<&'a str>,
}

/// The facts about the client of a connection that endpoints learn.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether `x-forwarded-trust` holds the peer: the socket's, or the PROXY header's where one was read.
    pub peer_is_trusted: bool,
    /// The scheme of the requests of the client.
    pub scheme: Scheme,
    /// The port that the client connected to.
    pub port: u16,
    /// How endpoints learn of the client's certificate, if the frontend asks for one.
    pub subject: Option<Subject<'a>>,
}

/// The verified certificate of a client, for endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The field that holds the subject. Fields of this name that a client sends are removed.
    pub header: &'a str,
    /// The subject as in RFC 4514; `None` if the client has no certificate.
    pub name: Option<&'a str>,
}

impl ToEndpoint<'_> {
    /// Appends the target of the request: the rewritten path, and the query as it was sent.
    pub fn write_target(&self, out: &mut Vec<u8>) {
        let path = self.request.path;
        match self.rewrite {
            Some(rewrite) => rewrite.write_path(out, path, self.prefix.len()),
            None => out.extend_from_slice(path.as_bytes()),
        }
        if let Some(query) = self.request.query {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
    }
}

/// Appends the head of a request in HTTP/1.1.
pub fn request(out: &mut Vec<u8>, to: &ToEndpoint<'_>) {
    out.extend_from_slice(to.request.method.as_bytes());
    out.push(b' ');
    to.write_target(out);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    request_fields(out, to);
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields of a request. The first one is `Host`, which HTTP/2 sends as `:authority`.
pub fn request_fields(out: &mut impl Sink, to: &ToEndpoint<'_>) {
    write_own_host(out, to);
    let mut head = HeadWriter::new(out, to.edits);
    let forwarded = Policy::of(to);
    copy(&mut head, to, forwarded);
    forwarded.write(&mut head, to);
    if let Some(Subject {
        header,
        name: Some(name),
    }) = to.client.subject
    {
        head.field_with(header, |out| escape_controls(out, name));
    }
    head.edit("host");
    write_connection(head.sink(), to);
}

/// Copies the fields that are for the endpoint.
fn copy(head: &mut HeadWriter<'_, impl Sink>, to: &ToEndpoint<'_>, forwarded: Policy) {
    let fields = to.request.fields;
    let named = Named::in_fields(fields);
    let mut cookies_are_written = false;
    for field in fields {
        let subject = to.client.subject;
        if subject.is_some_and(|subject| imitates(field.name, subject.header)) {
            continue;
        }
        let kind = FieldKind::of(field.name);
        let is_copied = match kind {
            FieldKind::Connection | FieldKind::Host => false,
            FieldKind::Forwarded
            | FieldKind::ForwardedFor
            | FieldKind::ForwardedFact
            | FieldKind::ForwardedForImitation
            | FieldKind::ForwardedFactImitation => forwarded.keeps(kind, to),
            FieldKind::Trailer => to.framing == Framing::Chunked,
            // A client of HTTP/1.0 does not understand the 100 response that this field would cause.
            FieldKind::Expect => to.request.version != Version::Http10,
            FieldKind::Cookie => {
                if !cookies_are_written {
                    write_cookies(head, to);
                    cookies_are_written = true;
                }
                false
            }
            FieldKind::Other
            | FieldKind::Location
            | FieldKind::SetCookie
            | FieldKind::StrictTransportSecurity => !named.contains(field.name),
        };
        if is_copied {
            head.copy(field);
        }
    }
}

/// Writes the `Host` that the edits of the table set, else that of the route's rewriting, else the client's, else the endpoint's
/// address.
fn write_own_host(out: &mut impl Sink, to: &ToEndpoint<'_>) {
    let set = to.edits.set_value("host").map(|host| host.trim());
    let rewritten = || to.rewrite.and_then(Rewrite::host);
    out.field_with("Host", |out| {
        match (set.or_else(rewritten), to.request.host) {
            (Some(host), _) => out.extend_from_slice(host.as_bytes()),
            (None, Some(host)) => write_host(out, host),
            (None, None) => write!(out, "{}", to.endpoint),
        }
    });
}

/// Writes all cookies but the affinity cookie as one field. HTTP/2 may send them in several, HTTP/1 may not.
fn write_cookies(head: &mut HeadWriter<'_, impl Sink>, to: &ToEndpoint<'_>) {
    let kept = || cookie::all(to.request.fields).filter(|pair| !pair.is_named(to.cookie));
    if kept().next().is_some() {
        head.field_with("Cookie", |out| {
            join(out, kept().map(|pair| pair.text()), b"; ");
        });
    }
}

/// Writes the fields that concern the connection and the body.
fn write_connection(out: &mut impl Sink, to: &ToEndpoint<'_>) {
    // Servers expect these methods to have a body.
    let wants_length = matches!(to.request.method, "POST" | "PUT" | "PATCH");
    let framing = match to.framing {
        Framing::Empty if wants_length => Framing::Length(0),
        framing => framing,
    };
    if to.version == HttpVersion::H2 {
        if let Framing::Length(_) = framing {
            write_framing(out, framing);
        }
        let mut codings = options(to.request.fields, "te");
        if codings.any(|coding| coding.eq_ignore_ascii_case(b"trailers")) {
            out.field("TE", b"trailers");
        }
        return;
    }
    write_framing(out, framing);
    if to.upgrades {
        let protocols = options(to.request.fields, "upgrade");
        out.field("Connection", b"upgrade");
        out.field_with("Upgrade", |out| join(out, protocols, b", "));
    } else if !to.keeps_connection {
        out.field("Connection", b"close");
    }
}

/// Appends the text with its control characters escaped as in RFC 4514.
fn escape_controls(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_control() {
            write!(out, "\\{byte:02X}");
        } else {
            out.push(byte);
        }
    }
}
