//! Which requests a TLS connection may not carry, though it is open: a new connection for their host would have led elsewhere.
//!
//! A client that holds a connection to one host sends requests for other hosts over it, if the certificate is for them too
//! (RFC 9113, section 9.1.1). The connection's server name then says nothing about these hosts.

use std::net::Ipv4Addr;

use super::{SniMatch, SniRoutes};
use crate::http::Host;

/// A client's connection whose TLS ends at the frontend. Requests that come in the clear are never misdirected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecureConnection<'a> {
    /// The server name that the client asked for, in lower case and without a dot at the end, as [`crate::hello`] has it.
    pub server_name: Option<&'a str>,
    /// The protocol that was negotiated.
    pub alpn: Option<&'a [u8]>,
}

/// Whether a request for `host` is answered 421 on this connection: a connection that had asked for this host would have been
/// relayed unopened, by `unopened`, or refused, as `refuses` says of a server name. What the connection did ask for is never
/// misdirected, nor is a request without a host. An address is no server name: a connection for it asks for none.
///
/// Rules for client certificates need no look: they are the frontend's, and so the same for all its hosts.
pub(crate) fn is_misdirected(
    host: Host<'_>,
    connection: &SecureConnection<'_>,
    unopened: Option<&SniRoutes>,
    refuses: impl FnOnce(Option<&str>) -> bool,
) -> bool {
    let host = host.name.strip_suffix('.').unwrap_or(host.name);
    if let Some(asked) = connection.server_name
        && asked.eq_ignore_ascii_case(host)
    {
        return false;
    }
    let server_name = (!is_address(host)).then_some(host);
    if server_name.is_none() && connection.server_name.is_none() {
        return false;
    }
    let is_relayed = unopened.is_some_and(|routes| {
        let found = routes.find(server_name, connection.alpn);
        matches!(found, SniMatch::Relay(_))
    });
    is_relayed || refuses(server_name)
}

/// IPv6 addresses are in brackets.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok()
}
