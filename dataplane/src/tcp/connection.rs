//! A client's connection: what it holds from accept to end, and how it is rejected.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::counters::WorkerId;
use ballast_core::handshake::HandshakeResult;
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, FrontendCounters, FrontendState, SocketKey};
use ballast_core::preamble::{Addresses, Transport};
use ballast_core::service::Service;
use socket2::SockRef;

use super::dial::{Unserved, WaitPhase};
use super::preamble::{self, ProxyInfo};
use crate::access::Entry;
use crate::net::poller::Stream;
use crate::net::send_proxy;
use crate::net::tls::{HandshakeError, MaybeTls, Session};
use crate::worker::live::Serving;
use crate::worker::{Shared, Worker};

/// A connection that was accepted and admitted. It has no task and no allocation yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    /// When it was accepted.
    pub(super) began: Moment,
    pub(super) admission: Admission,
    /// Its admission in the process; `None` for the last connections of a closing socket.
    pub(super) process: Option<Admission>,
}

/// A client's connection. Dropping it resets the client unless [`Stream::close_in_order`] was called, releases its admissions,
/// and writes its access line. So it ends the same way after a panic.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) worker: Rc<Worker>,
    pub(crate) socket: MaybeTls,
    pub(crate) frontend: Arc<FrontendState>,
    /// The client's address, by which endpoints are chosen.
    pub(crate) key: Key,
    /// What a PROXY header said in addition to the client's address.
    pub(crate) proxy_info: Option<Box<ProxyInfo>>,
    pub(crate) began: Moment,
    pub(super) entry: Option<Box<Entry>>,
    /// Its slot in the worker's list of connections.
    pub(crate) slot: usize,
    admission: Admission,
    _process: Option<Admission>,
}

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
    /// Registers an accepted connection with the worker. An error means that the system cannot watch one more socket.
    pub(super) fn begin(
        worker: &Rc<Worker>,
        accepted: Accepted,
        socket: &Rc<SocketKey>,
        frontend: &Arc<FrontendState>,
    ) -> io::Result<Self> {
        let Accepted {
            socket: fd,
            peer,
            began,
            admission,
            process,
        } = accepted;
        let stream = Stream::accepted(&worker.tools.poller, fd)?;
        worker.load().fetch_add(1, Ordering::Relaxed);
        let slot = worker
            .connections
            .borrow_mut()
            .insert(peer, Rc::clone(socket), began);
        Ok(Self {
            worker: Rc::clone(worker),
            socket: stream.into(),
            frontend: Arc::clone(frontend),
            key: Key::new(peer),
            proxy_info: None,
            began,
            entry: Entry::begin(worker, frontend, peer, began),
            slot,
            admission,
            _process: process,
        })
    }

    /// Reads the PROXY header of a trusted peer, and admits the client that it names. Returns the client's bytes that came with
    /// the header.
    pub(super) async fn read_proxy_header(
        &mut self,
        frontend: &Frontend,
    ) -> Result<Vec<u8>, RejectReason> {
        let header = preamble::read(self.socket.stream(), frontend).await;
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
        let now = self.worker.shared.clock.now();
        self.admission
            .identify(frontend.limits(), client.ip(), now)
            .map_err(RejectReason::Refused)?;
        Ok(header.rest)
    }

    /// The client, and the address to which it connected from its own point of view.
    pub(crate) fn addresses(&self) -> Option<Addresses> {
        let named = self.proxy_info.as_ref().and_then(|info| info.destination);
        Some(Addresses {
            source: self.key.client(),
            destination: named.or_else(|| self.socket.local_addr().ok())?,
        })
    }

    /// The PROXY header for an endpoint of this service; empty if the service does not ask for one.
    pub(crate) fn proxy_header(&self, service: &Service) -> Vec<u8> {
        send_proxy::header(
            &self.worker,
            service,
            Transport::Stream,
            || self.addresses(),
            self.proxy_info.as_deref(),
            self.socket.session().map(Session::ssl),
        )
    }

    pub(crate) fn counters(&self) -> &FrontendCounters {
        self.frontend.counters().of(self.worker.id)
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

impl Drop for Connection {
    fn drop(&mut self) {
        // The access line is written while the connection still counts everywhere.
        drop(self.entry.take());
        self.worker.connections.borrow_mut().remove(self.slot);
        self.worker.load().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way to a worker that has fewer. It counts there at once. Otherwise a slow worker would be given all
/// connections, and at the end of the process nobody would wait for the connections in its inbox. A connection dropped before
/// it was taken is reset.
#[derive(Debug)]
pub(crate) struct HandedOver {
    accepted: Option<Accepted>,
    pub(super) socket: SocketKey,
    /// The plan that admitted it: the next plan may lack its frontend.
    pub(super) plan: Arc<Serving>,
    pub(super) is_trusted: bool,
    shared: Arc<Shared>,
    to: WorkerId,
}

impl HandedOver {
    pub(super) fn new(
        shared: &Arc<Shared>,
        to: WorkerId,
        accepted: Accepted,
        socket: SocketKey,
        plan: Arc<Serving>,
        is_trusted: bool,
    ) -> Self {
        if let Some(load) = shared.loads.get(to.0) {
            load.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            accepted: Some(accepted),
            socket,
            plan,
            is_trusted,
            shared: Arc::clone(shared),
            to,
        }
    }

    pub(super) fn take(&mut self) -> Option<Accepted> {
        mem::take(&mut self.accepted)
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        if let Some(accepted) = &self.accepted {
            reset_on_close(&accepted.socket);
        }
        if let Some(load) = self.shared.loads.get(self.to.0) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Makes the close of a refused connection a reset, so that its client notices at once.
pub(super) fn reset_on_close(socket: &TcpStream) {
    // This fails only for a socket that is already closed.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}
