//! `X-Forwarded-For`, its relatives and `Forwarded` (RFC 7239): how an endpoint learns who the client is.

use std::net::IpAddr;

use crate::http::{Field, FieldKind, Host};
use crate::route::Rewrite;
use crate::table::XForwarded;
use crate::text::Append;

use super::Sink;
use super::fields::{HeadWriter, join, values};
use super::request::ToEndpoint;

/// How `X-Forwarded-` fields and `Forwarded` of a client are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    /// Whether Ballast writes `X-Forwarded-For`.
    writes_address: bool,
    /// Whether Ballast writes `X-Forwarded-Proto` and the other facts.
    writes_facts: bool,
    /// Whether the list that the client sent is kept, and the client's address appended.
    appends: bool,
}

impl Policy {
    pub(super) fn of(to: &ToEndpoint<'_>) -> Self {
        let mode = to.options.x_forwarded;
        let is_trusted = to.options.x_forwarded_trust.is_none() || to.client.peer_is_trusted;
        Self {
            writes_address: mode != XForwarded::Off,
            writes_facts: matches!(mode, XForwarded::Append | XForwarded::Replace),
            appends: !matches!(mode, XForwarded::Replace | XForwarded::ReplaceFor) && is_trusted,
        }
    }

    /// Whether a field that the client sent is passed on unchanged. `Forwarded` is removed where Ballast writes all the facts and the
    /// client's list is not trusted, because many programs prefer `Forwarded` to `X-Forwarded-For`.
    pub(super) fn keeps(self, kind: FieldKind, to: &ToEndpoint<'_>) -> bool {
        match kind {
            FieldKind::Forwarded => !to.options.forwarded && (!self.writes_facts || self.appends),
            FieldKind::ForwardedFor | FieldKind::ForwardedForImitation => !self.writes_address,
            _ => !self.writes_facts,
        }
    }

    /// Writes Ballast's own fields.
    pub(super) fn write(self, head: &mut HeadWriter<'_, impl Sink>, to: &ToEndpoint<'_>) {
        let fields = to.request.fields;
        let before = if self.appends { fields } else { &[] };
        let client = to.client.address.ip().to_canonical();
        let scheme = to.client.scheme.name();
        if self.writes_address {
            head.field_with("X-Forwarded-For", |out| {
                append_to(out, before, "x-forwarded-for");
                out.ip(client);
            });
        }
        if self.writes_facts {
            head.field("X-Forwarded-Proto", scheme.as_bytes());
            head.field_with("X-Forwarded-Port", |out| out.number(to.client.port.into()));
            if let Some(host) = to.request.host {
                head.field_with("X-Forwarded-Host", |out| write_host(out, host));
            }
            let prefix = to.prefix.trim_end_matches('/');
            let is_replaced = to.rewrite.is_some_and(Rewrite::changes_path);
            if is_replaced && !prefix.is_empty() {
                head.field("X-Forwarded-Prefix", prefix.as_bytes());
            }
        }
        if to.options.forwarded {
            head.field_with("Forwarded", |out| {
                append_to(out, before, "forwarded");
                match client {
                    IpAddr::V4(ip) => write!(out, "for={ip}"),
                    IpAddr::V6(ip) => write!(out, "for=\"[{ip}]\""),
                }
                write!(out, ";proto={scheme}");
                if let Some(host) = to.request.host {
                    out.extend_from_slice(b";host=\"");
                    let start = out.len();
                    write_host(out, host);
                    escape_quotes(out, start);
                    out.push(b'"');
                }
            });
        }
    }
}

/// Writes the host as a client asked for it.
pub(super) fn write_host(out: &mut Vec<u8>, host: Host<'_>) {
    out.extend_from_slice(host.name.as_bytes());
    if let Some(port) = host.port {
        out.push(b':');
        out.number(port.into());
    }
}

/// Writes the elements that a client sent in fields of this name, as the beginning of a list that goes on.
fn append_to(out: &mut Vec<u8>, fields: &[Field<'_>], name: &'static str) {
    let is_list = |value: &&[u8]| !value.is_empty();
    let start = out.len();
    join(out, values(fields, name).filter(is_list), b", ");
    if out.len() > start {
        out.extend_from_slice(b", ");
    }
}

/// Puts a backslash before each quote and backslash from `start` on.
fn escape_quotes(out: &mut Vec<u8>, start: usize) {
    let mut at = start;
    while let Some(byte) = out.get(at) {
        if matches!(byte, b'"' | b'\\') {
            out.insert(at, b'\\');
            at += 1;
        }
        at += 1;
    }
}
