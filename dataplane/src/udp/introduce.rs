//! Whose a datagram is: its peer's, or another client's whom a trusted peer names in a PROXY header.

use std::net::SocketAddr;

use ballast_core::flow::{Dropped, FlowTable, Key};
use ballast_core::pick;
use ballast_core::plan::Frontend;
use ballast_core::preamble::{Reason, Step, Transport, Versions, step};

/// A datagram without its header.
#[derive(Debug)]
pub(super) struct Introduced<'a> {
    pub(super) client: SocketAddr,
    /// What the client spoke to, where the header says so.
    pub(super) destination: Option<SocketAddr>,
    pub(super) payload: &'a [u8],
}

/// Reads the header of a trusted peer. `key` has the peer as the client. A peer may leave the header away where an earlier
/// datagram of the same flow had one.
pub(super) fn introduce<'a, S>(
    bytes: &'a [u8],
    key: &Key,
    frontend: &Frontend,
    flows: &FlowTable<S>,
) -> Result<Introduced<'a>, Dropped> {
    let plain = |client| Introduced {
        client,
        destination: None,
        payload: bytes,
    };
    let peer = pick::Key::new(key.peer).client();
    let is_trusted = frontend
        .accept_proxy()
        .is_some_and(|accept| accept.trusts(peer.ip()));
    if !is_trusted {
        return Ok(plain(peer));
    }
    // Version 1 knows no datagrams.
    match step(bytes, Versions::V2, Transport::Datagram) {
        Step::Header(header) => {
            let addresses = header.addresses.canonical();
            Ok(Introduced {
                client: addresses.source,
                destination: Some(addresses.destination),
                payload: bytes.get(header.length..).unwrap_or_default(),
            })
        }
        Step::Local { length } => Ok(Introduced {
            payload: bytes.get(length..).unwrap_or_default(),
            ..plain(peer)
        }),
        Step::Need(_) | Step::Reject(Reason::Truncated) if bytes.len() >= SIGNATURE => {
            Err(Dropped::ProxyHeader)
        }
        // Some protocols keep a flow alive with what could be the beginning of a header.
        Step::Need(_)
        | Step::Reject(Reason::Signature | Reason::VersionNotAccepted | Reason::Truncated) => flows
            .introduced(key.listener, key.peer, key.local)
            .map(plain)
            .ok_or(Dropped::ProxyHeader),
        Step::Reject(_) => Err(Dropped::ProxyHeader),
    }
}

/// What has so many bytes of a header can be nothing else.
const SIGNATURE: usize = 12;
