//! Redirects: the URL to which a client is sent.

use std::num::NonZeroU16;

use super::rewrite::joined;
use super::table::{self, HostPattern};
use crate::http::{Request, Scheme};

/// The URL to which a client is sent. Absent parts are those of the client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The whole `Location`, in place of all parts.
    location: Option<Box<str>>,
    scheme: Option<Scheme>,
    host: Option<Box<str>>,
    port: Option<u16>,
    path: Option<Box<str>>,
    prefix: Option<Box<str>>,
    drops_query: bool,
    /// Whether scheme and host are left out.
    is_relative: bool,
    status: Option<u16>,
}

impl Redirect {
    pub(crate) fn new(redirect: &table::Redirect) -> Self {
        Self {
            location: redirect.location.as_deref().map(|text| text.trim().into()),
            scheme: redirect.scheme.as_deref().map(|scheme| match scheme {
                "https" => Scheme::Https,
                _ => Scheme::Http,
            }),
            host: match &redirect.host {
                Some(HostPattern::Exact(host)) => Some(host.clone()),
                // A valid table has no wildcard here.
                Some(HostPattern::Under(_)) | None => None,
            },
            port: redirect.port.map(NonZeroU16::get),
            path: redirect.path.as_deref().map(Into::into),
            prefix: redirect.prefix.as_deref().map(Into::into),
            drops_query: redirect.drop_query,
            is_relative: redirect.relative,
            status: redirect.status,
        }
    }

    /// Writes the value of `Location` for a request that came by `scheme` and of whose path the route matched `prefix_length`
    /// bytes ([`Matched`](super::Matched)), and returns the status of the answer. `None`: the
    /// request names no host and the redirect none either, so there is nowhere to send the client.
    ///
    /// Without a host of the redirect, the host is the request's, as it was sent. Bytes of the path and the query that URLs may
    /// not contain are written as `%XX`, so that the value is ASCII without spaces and control characters.
    #[must_use]
    pub fn write_location(
        &self,
        out: &mut Vec<u8>,
        request: &Request<'_>,
        prefix_length: usize,
        scheme: Scheme,
    ) -> Option<u16> {
        match &self.location {
            Some(location) => write_encoded(out, location.as_bytes()),
            None => {
                if !self.is_relative {
                    self.write_origin(out, request, scheme)?;
                }
                self.write_path(out, request, prefix_length);
            }
        }
        Some(self.status.unwrap_or(match request.method {
            "GET" | "HEAD" => 301,
            // The method stays, and the body is sent again.
            _ => 308,
        }))
    }

    /// Writes scheme, host and port. `None`: there is no host.
    fn write_origin(&self, out: &mut Vec<u8>, request: &Request<'_>, scheme: Scheme) -> Option<()> {
        let host = self
            .host
            .as_deref()
            .or_else(|| request.host.map(|host| host.name))?;
        let new_scheme = self.scheme.unwrap_or(scheme);
        let port = self.port.unwrap_or_else(|| match self.scheme {
            Some(new) => new.default_port(),
            None => request
                .host
                .and_then(|host| host.port)
                .unwrap_or_else(|| scheme.default_port()),
        });
        out.extend_from_slice(new_scheme.name().as_bytes());
        out.extend_from_slice(b"://");
        write_encoded(out, host.as_bytes());
        if port != new_scheme.default_port() {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
        Some(())
    }

    /// Writes the path and the query.
    fn write_path(&self, out: &mut Vec<u8>, request: &Request<'_>, prefix_length: usize) {
        let start = out.len();
        match (&self.path, &self.prefix, request.path) {
            (Some(path), _, _) => write_encoded(out, path.as_bytes()),
            (None, _, "*") => out.push(b'/'),
            (None, Some(prefix), path) => {
                let rest = path.get(prefix_length..).unwrap_or_default();
                for part in joined(prefix.as_bytes(), rest.as_bytes()) {
                    write_encoded(out, part);
                }
            }
            (None, None, path) => write_encoded(out, path.as_bytes()),
        }
        // Browsers take the word behind two slashes for a host, and a client chooses its path.
        if self.is_relative && matches!(out[start..], [b'/', b'/' | b'\\', ..]) {
            out.splice(start..start, *b"/.");
        }
        if let Some(query) = request.query
            && !self.drops_query
        {
            out.push(b'?');
            write_encoded(out, query.as_bytes());
        }
    }
}

fn write_encoded(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        if byte.is_ascii_graphic() {
            out.push(*byte);
        } else {
            let digit = |half: u8| HEX[usize::from(half)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests;
