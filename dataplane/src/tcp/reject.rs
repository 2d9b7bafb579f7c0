//! Why a client gets no endpoint, and how its connection ends then: its PROXY header, its handshake, a refusal, or because it left.

use ballast_core::admit::Refusal;
use ballast_core::handshake::HandshakeResult;
use ballast_core::pick::Key;

use super::admission::is_trusted;
use super::{Entrance, preamble};
use crate::access::WaitPhase;
use crate::connect::Unserved;
use crate::net::tls::HandshakeError;
use crate::worker::Connection;

/// Why a client gets no endpoint.
#[derive(Debug)]
pub(crate) enum RejectReason {
    /// There was no valid PROXY header.
    Header(preamble::HeaderError),
    /// The TLS handshake failed.
    Handshake(HandshakeError),
    Refused(Refusal),
    /// The client aborted while it waited.
    ClientLeft(WaitPhase),
}

impl From<Unserved> for RejectReason {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Refused(refusal) => Self::Refused(refusal),
            Unserved::ClientLeft(phase) => Self::ClientLeft(phase),
        }
    }
}

impl Connection {
    /// Reads the PROXY header of a trusted peer, and admits the client that it names. Returns the client's bytes that came with
    /// the header.
    pub(super) async fn read_proxy_header(
        &mut self,
        at: &mut Entrance,
    ) -> Result<Vec<u8>, RejectReason> {
        let peer = self.key.client();
        let header = preamble::read(self.socket.stream(), &at.frontend).await;
        let header = header.map_err(RejectReason::Header)?;
        if let Some(client) = header.client {
            self.key = Key::new(client);
        }
        self.proxy_info = header.proxy_info;
        let client = self.key.client();
        if let Some(entry) = &mut self.entry {
            entry.client(client);
        }
        self.worker
            .connections
            .borrow_mut()
            .set_client(self.slot, client);
        at.follow(self)?;
        if !is_trusted(&at.frontend, peer) {
            // A table has taken away the trust by which the header was read.
            return Err(RejectReason::Refused(Refusal::SourceRange));
        }
        let now = self.worker.shared.clock.now();
        self.admission
            .identify(at.frontend.limits(), client.ip(), now)
            .map_err(RejectReason::Refused)?;
        Ok(header.rest)
    }

    /// Ends a connection that gets no endpoint: with a reset, and counted by its reason.
    pub(super) fn reject(mut self, reason: RejectReason) {
        let counters = self.frontend.counters().of(self.worker.id);
        match reason {
            RejectReason::Header(error) => {
                preamble::account(error, self.socket.stream(), counters, self.entry.take());
            }
            RejectReason::Handshake(error) => {
                counters.handshakes[error.result.index()].add(1);
                if error.has_alert {
                    // The client is to hear it.
                    self.socket.close_in_order();
                }
                tracing::debug!(client = %self.key.client(), why = error.why, "no TLS");
                if let Some(entry) = &mut self.entry {
                    entry.end(match error.result {
                        HandshakeResult::Timeout => b"cR",
                        HandshakeResult::Closed => b"CR",
                        _ => b"PR",
                    });
                }
            }
            RejectReason::Refused(refusal) => {
                counters.refused[refusal.index()].add(1);
                if let Some(entry) = &mut self.entry {
                    entry.refused(refusal);
                }
            }
            RejectReason::ClientLeft(phase) => {
                if let Some(entry) = &mut self.entry {
                    entry.client_left(phase);
                }
            }
        }
    }
}
