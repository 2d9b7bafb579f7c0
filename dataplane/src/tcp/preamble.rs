//! Reads the PROXY header that a trusted peer owes.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use ballast_core::plan::{AcceptProxy, Frontend, FrontendCounters};
use ballast_core::preamble::{Reason, Step, Transport, step};
use tokio::time::timeout;

use crate::access::Entry;
use crate::poller::Stream;

/// What a header said, and what came behind it.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The client's address; `None`: the peer is the client.
    pub(super) client: Option<SocketAddr>,
    pub(super) introduced: Option<Box<Introduced>>,
    /// The first of the client's own bytes.
    pub(super) rest: Vec<u8>,
}

/// What a PROXY header says beside the client's address.
#[derive(Debug, Default)]
pub(super) struct Introduced {
    /// What the client connected to.
    pub(super) destination: Option<SocketAddr>,
    /// The name that the client asked for.
    pub(super) authority: Option<Box<str>>,
    /// What another proxy calls this connection.
    pub(super) unique_id: Option<Box<[u8]>>,
}

/// Why there is no header.
#[derive(Debug)]
pub(super) enum End {
    /// Connected, said nothing, left, by an end or a reset: somebody looked whether the port is open.
    PortProbe,
    /// Bytes that are no header.
    Bad(Reason),
    /// Left within the header.
    Cut,
    /// Took too long.
    Late,
}

/// Reads the header.
pub(super) async fn read(client: &Stream, frontend: &Frontend) -> Result<Header, End> {
    timeout(frontend.preamble_timeout(), read_header(client, frontend))
        .await
        .unwrap_or(Err(End::Late))
}

async fn read_header(client: &Stream, frontend: &Frontend) -> Result<Header, End> {
    let accept = frontend.accept_proxy();
    let versions = accept.map(AcceptProxy::versions).unwrap_or_default();
    let mut bytes = Vec::new();
    loop {
        let need = match step(&bytes, versions, Transport::Stream) {
            Step::Need(need) => need,
            Step::Reject(reason) => return Err(End::Bad(reason)),
            Step::Local { length } => {
                return Ok(Header {
                    rest: bytes.split_off(length.min(bytes.len())),
                    ..Header::default()
                });
            }
            Step::Header(header) => {
                let addresses = header.addresses.canonical();
                let introduced = Introduced {
                    destination: Some(addresses.destination),
                    authority: header.tlvs.authority().map(Into::into),
                    unique_id: header.tlvs.unique_id().map(Into::into),
                };
                let length = header.length.min(bytes.len());
                return Ok(Header {
                    client: Some(addresses.source),
                    introduced: Some(Box::new(introduced)),
                    rest: bytes.split_off(length),
                });
            }
        };
        // Never more than the header needs: what follows it stays in the socket, ready to be spliced.
        match receive(client, &mut bytes, need).await {
            Ok(0) | Err(_) if bytes.is_empty() => return Err(End::PortProbe),
            Ok(0) | Err(_) => return Err(End::Cut),
            Ok(_) => {}
        }
    }
}

async fn receive(client: &Stream, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    let before = bytes.len();
    bytes.resize(before + most, 0);
    let received =
        poll_fn(|cx| client.poll_take(cx, bytes.get_mut(before..).unwrap_or_default())).await;
    bytes.truncate(before + received.as_ref().map_or(0, |received| *received));
    received
}

/// Counts a connection that had no header.
pub(super) fn account(
    end: End,
    client: &Stream,
    counters: &FrontendCounters,
    entry: Option<Box<Entry>>,
) {
    let letters = match end {
        End::PortProbe => {
            counters.port_probes.add(1);
            client.close_in_order();
            if let Some(entry) = entry {
                entry.forget();
            }
            return;
        }
        End::Late => {
            counters.late_headers.add(1);
            b"cR"
        }
        End::Bad(reason) => {
            counters.bad_headers.add(1);
            tracing::debug!(peer = ?client.peer_addr().ok(), %reason, "no PROXY header");
            b"PR"
        }
        End::Cut => {
            counters.bad_headers.add(1);
            b"CR"
        }
    };
    if let Some(mut entry) = entry {
        entry.end(letters);
    }
}
