//! Reads the PROXY header that a trusted peer owes us.

use std::io;
use std::net::SocketAddr;

use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, FrontendCounters};
use ballast_core::preamble::{Reason, Step, Transport, step};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::access::Entry;
use crate::dial::Caller;
use crate::relay;

/// Why there is no header.
#[derive(Debug)]
pub(crate) enum End {
    /// Connected, said nothing, left, by an end or a reset: somebody looked whether the port is open.
    PortProbe,
    /// Bytes that are no header.
    Bad(Reason),
    /// Left within the header.
    Cut,
    /// Took too long.
    Late,
}

/// Reads the header, and puts what it says into `caller`. Returns the client's bytes that came with it.
pub(crate) async fn read(
    client: &TcpStream,
    frontend: &Frontend,
    caller: &mut Caller,
) -> Result<Vec<u8>, End> {
    timeout(
        frontend.preamble_timeout(),
        read_header(client, frontend, caller),
    )
    .await
    .unwrap_or(Err(End::Late))
}

async fn read_header(
    client: &TcpStream,
    frontend: &Frontend,
    caller: &mut Caller,
) -> Result<Vec<u8>, End> {
    let versions = frontend
        .accept_proxy()
        .map(ballast_core::plan::AcceptProxy::versions)
        .unwrap_or_default();
    let mut bytes = Vec::new();
    loop {
        let need = match step(&bytes, versions, Transport::Stream) {
            Step::Need(need) => need,
            Step::Reject(reason) => return Err(End::Bad(reason)),
            Step::Local { length } => return Ok(bytes.split_off(length.min(bytes.len()))),
            Step::Header(header) => {
                let addresses = header.addresses.canonical();
                caller.key = Key::new(addresses.source);
                caller.destination = Some(addresses.destination);
                caller.authority = header.tlvs.authority().map(Into::into);
                caller.unique_id = header.tlvs.unique_id().map(Into::into);
                let length = header.length.min(bytes.len());
                return Ok(bytes.split_off(length));
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

async fn receive(client: &TcpStream, bytes: &mut Vec<u8>, most: usize) -> io::Result<usize> {
    loop {
        client.readable().await?;
        let before = bytes.len();
        bytes.resize(before + most, 0);
        let received = client.try_read(bytes.get_mut(before..).unwrap_or_default());
        bytes.truncate(before + received.as_ref().map_or(0, |received| *received));
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// Counts a connection that had no header, and makes its close a reset.
pub(crate) fn account(
    end: End,
    client: &TcpStream,
    counters: &FrontendCounters,
    entry: Option<Box<Entry>>,
) {
    let letters = match end {
        End::PortProbe => {
            counters.port_probes.add(1);
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
    relay::reset_on_close(client);
}

/// Where the client believes to be connected to.
pub(crate) fn destination(client: &TcpStream, caller: &Caller) -> io::Result<SocketAddr> {
    caller.destination.map_or_else(|| client.local_addr(), Ok)
}
