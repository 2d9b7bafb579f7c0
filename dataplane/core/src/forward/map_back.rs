//! Maps what `rewrite` has changed back in responses: the path and the host of `Location`, and the `Path` of `Set-Cookie`.

use std::net::SocketAddr;

use crate::http::{Host, Scheme};
use crate::route::Rewrite;

use super::forwarded::write_host;

/// How the paths of one answer are mapped back.
#[derive(Clone, Copy, Debug)]
pub struct MapBack<'a> {
    /// How the path and the host of the request were rewritten.
    pub rewrite: &'a Rewrite,
    /// The part of the request's path that was replaced: [`Matched::prefix`](crate::route::Matched::prefix).
    pub prefix: &'a str,
    /// The host that the client asked for.
    pub host: Option<Host<'a>>,
    /// The port that the client connected to.
    pub port: u16,
    /// The endpoint that answers.
    pub endpoint: SocketAddr,
}

impl MapBack<'_> {
    /// Appends the value of a `Location` field. The value is mapped back if it has no host, the client's host, the endpoint's
    /// address or the host that the endpoint was asked for. The client cannot use the last two, which are replaced by the
    /// client's host.
    pub(super) fn location(&self, out: &mut Vec<u8>, value: &[u8]) {
        let start = out.len();
        if self.mapped_location(out, value).is_none() {
            out.truncate(start);
            out.extend_from_slice(value);
        }
    }

    fn mapped_location(&self, out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
        let text = str::from_utf8(value).ok()?;
        let Some((scheme, rest)) = text
            .split_once("//")
            .filter(|(scheme, _)| is_scheme(scheme))
        else {
            return self.mapped_reference(out, text);
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        out.extend_from_slice(scheme.as_bytes());
        out.extend_from_slice(b"//");
        match self.owner(scheme, authority)? {
            Owner::Client => out.extend_from_slice(authority.as_bytes()),
            Owner::Endpoint => write_host(out, self.host?),
        }
        if path.starts_with('/') {
            self.mapped_reference(out, path)
        } else {
            // A URL without a path means the root.
            self.mapped_path(out, "/")?;
            out.extend_from_slice(path.as_bytes());
            Some(())
        }
    }

    /// Maps a path that a query or a fragment may follow.
    fn mapped_reference(&self, out: &mut Vec<u8>, reference: &str) -> Option<()> {
        let end = reference.find(['?', '#']).unwrap_or(reference.len());
        let (path, rest) = reference.split_at_checked(end)?;
        self.mapped_path(out, path)?;
        out.extend_from_slice(rest.as_bytes());
        Some(())
    }

    fn mapped_path(&self, out: &mut Vec<u8>, path: &str) -> Option<()> {
        let rewrite = self.rewrite;
        rewrite
            .map_back_path(out, self.prefix, path.as_bytes())
            .then_some(())
    }

    /// Whether the authority of a URL with this scheme is the client's host or the endpoint's. The scheme's usual port means
    /// the same as no port: the scheme need not be the client's, and the port then differs from the client's too.
    fn owner(&self, scheme: &str, authority: &str) -> Option<Owner> {
        let (name, port) = split_port(authority)?;
        let usual = match scheme {
            scheme if scheme.eq_ignore_ascii_case("https:") => Some(Scheme::Https.default_port()),
            scheme if scheme.eq_ignore_ascii_case("http:") => Some(Scheme::Http.default_port()),
            _ => None,
        };
        let port = port.filter(|&port| Some(port) != usual);
        let is_client = self.host.is_some_and(|host| {
            name.eq_ignore_ascii_case(host.name)
                && port.is_none_or(|port| port == host.port.unwrap_or(self.port))
        });
        if is_client {
            return Some(Owner::Client);
        }
        let is_of_endpoint = |port| port == self.endpoint.port();
        let rewritten = self.rewrite.host();
        if rewritten.is_some_and(|host| name.eq_ignore_ascii_case(host)) {
            // The endpoint was asked for this host without a port.
            return port.is_none_or(is_of_endpoint).then_some(Owner::Endpoint);
        }
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let is_endpoint =
            name.parse() == Ok(self.endpoint.ip()) && port.or(usual).is_none_or(is_of_endpoint);
        is_endpoint.then_some(Owner::Endpoint)
    }

    /// Appends the value of a `Set-Cookie` field with its `Path` mapped back. A cookie whose name begins with `__Host-` is only
    /// valid with the path `/`, and stays as it is.
    pub(super) fn set_cookie(&self, out: &mut Vec<u8>, value: &[u8]) {
        let is_bound = value
            .get(..HOST_COOKIE.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(HOST_COOKIE));
        for (index, part) in value.split(|byte| *byte == b';').enumerate() {
            if index > 0 {
                out.push(b';');
            }
            let path = path_of(part).filter(|_| index > 0 && !is_bound);
            let start = out.len();
            let is_mapped = path.is_some_and(|path| {
                out.extend_from_slice(b" Path=");
                let rewrite = self.rewrite;
                rewrite.map_back_cookie_path(out, self.prefix, path.as_bytes())
            });
            if !is_mapped {
                out.truncate(start);
                out.extend_from_slice(part);
            }
        }
    }
}

enum Owner {
    Client,
    Endpoint,
}

/// The path in an attribute of a cookie, if the attribute is `Path`.
fn path_of(attribute: &[u8]) -> Option<&str> {
    let (name, path) = str::from_utf8(attribute).ok()?.split_once('=')?;
    let is_path = name.trim().eq_ignore_ascii_case("path");
    is_path.then(|| path.trim())
}

/// Whether a URL may have this before `//`.
fn is_scheme(text: &str) -> bool {
    text.is_empty() || text.eq_ignore_ascii_case("http:") || text.eq_ignore_ascii_case("https:")
}

/// The name and the port of an authority without user.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => match port {
            "" => Some((name, None)),
            port => Some((name, Some(port.parse().ok()?))),
        },
        _ => Some((authority, None)),
    }
}

const HOST_COOKIE: &[u8] = b"__Host-";
