//! The client of a datagram: its peer, or another client that a trusted peer names in a PROXY header.

use std::net::SocketAddr;

use ballast_core::flow::{Dropped, FlowTable, Key};
use ballast_core::preamble::{Parsed, Reason, Transport, Versions, step};

/// A datagram without its PROXY header.
#[derive(Debug)]
pub(super) struct ClientDatagram<'a> {
    pub(super) client: SocketAddr,
    /// The address that the client sent to, if the header names it.
    pub(super) destination: Option<SocketAddr>,
    pub(super) payload: &'a [u8],
}

/// Reads the PROXY header of a trusted peer. `key` has the peer as the client. A peer may omit the header where an earlier
/// datagram of the same flow had one.
pub(super) fn read_client<'a, S>(
    bytes: &'a [u8],
    key: &Key,
    flows: &FlowTable<S>,
) -> Result<ClientDatagram<'a>, Dropped> {
    let plain = |client| ClientDatagram {
        client,
        destination: None,
        payload: bytes,
    };
    // Version 1 does not support datagrams.
    match step(bytes, Versions::V2, Transport::Udp) {
        Parsed::Header(header) => {
            let addresses = header.addresses.canonical();
            Ok(ClientDatagram {
                client: addresses.source,
                destination: Some(addresses.destination),
                payload: bytes.split_at(header.length).1,
            })
        }
        Parsed::Local { length } => Ok(ClientDatagram {
            payload: bytes.split_at(length).1,
            ..plain(key.client)
        }),
        Parsed::Need(_) | Parsed::Reject(Reason::Truncated) if bytes.len() >= SIGNATURE => {
            Err(Dropped::ProxyHeader)
        }
        // Some protocols keep a flow alive with datagrams that could be the beginning of a header.
        Parsed::Need(_)
        | Parsed::Reject(Reason::Signature | Reason::VersionNotAccepted | Reason::Truncated) => {
            flows
                .client_of_peer(key.listener, key.peer, key.local)
                .map(plain)
                .ok_or(Dropped::ProxyHeader)
        }
        Parsed::Reject(_) => Err(Dropped::ProxyHeader),
    }
}

/// A datagram with this many bytes of the header's signature is a header.
const SIGNATURE: usize = 12;
