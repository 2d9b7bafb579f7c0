//! A client's connection: what it holds from accept to end, and how it is rejected.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::Admission;
use ballast_core::counters::WorkerId;
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, FrontendCounters, FrontendState, Plan, SocketKey};
use ballast_core::preamble::Addresses;
use socket2::SockRef;

use crate::net::poller::Stream;
use crate::net::tls::MaybeTls;
use crate::worker::live::Serving;
use crate::worker::{Entry, Shared, Worker};

/// A connection that was accepted and admitted. It has no task and no allocation yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    /// When it was accepted.
    pub(crate) began: Moment,
    pub(crate) admission: Admission,
    /// Its admission in the process.
    pub(crate) process: Admission,
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
    pub(crate) entry: Option<Box<Entry>>,
    /// Its slot in the worker's list of connections.
    pub(crate) slot: usize,
    pub(crate) admission: Admission,
    _process: Admission,
}

/// What a PROXY header says in addition to the client's address, and what the client's ClientHello says here.
#[derive(Debug, Default)]
pub(crate) struct ProxyInfo {
    /// What the client connected to.
    pub(crate) destination: Option<SocketAddr>,
    /// The host name that the client asked for.
    pub(crate) authority: Option<Box<str>>,
    /// Whether the client asked for it here, by the server name of its TLS, and not at another proxy.
    pub(crate) is_asked_here: bool,
    /// The connection's id at another proxy.
    pub(crate) unique_id: Option<Box<[u8]>>,
}

impl ProxyInfo {
    /// The server name that the client asked for here, in lower case and without a dot at the end.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.authority.as_deref().filter(|_| self.is_asked_here)
    }
}

impl Connection {
    /// Registers an accepted connection with the worker. An error means that the system cannot watch one more socket.
    pub(crate) fn begin(
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

    /// The client, and the address to which it connected from its own point of view.
    pub(crate) fn addresses(&self) -> Option<Addresses> {
        let named = self.proxy_info.as_ref().and_then(|info| info.destination);
        Some(Addresses {
            source: self.key.client(),
            destination: named.or_else(|| self.socket.local_addr().ok())?,
        })
    }

    /// The frontend that the connection came in by, in `plan`, which may have given it another socket.
    pub(crate) fn frontend_in<'p>(&self, plan: &'p Plan) -> Option<&'p Arc<Frontend>> {
        let is_its = |frontend: &&Arc<Frontend>| Arc::ptr_eq(frontend.state(), &self.frontend);
        let connections = self.worker.connections.borrow();
        let socket = connections.socket(self.slot);
        let by_socket = socket.and_then(|socket| plan.frontend(socket));
        by_socket
            .filter(is_its)
            .or_else(|| plan.frontends().iter().find(is_its))
    }

    pub(crate) fn counters(&self) -> &FrontendCounters {
        self.frontend.counters().of(self.worker.id)
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
/// connections, and at the end of the process nothing would wait for the connections in its inbox. A connection dropped before
/// it was taken is reset.
#[derive(Debug)]
pub(crate) struct PassedOn {
    accepted: Option<Accepted>,
    pub(crate) socket: SocketKey,
    /// The plan that admitted it: the next plan may lack its frontend.
    pub(crate) plan: Arc<Serving>,
    pub(crate) is_trusted: bool,
    shared: Arc<Shared>,
    to: WorkerId,
}

impl PassedOn {
    pub(crate) fn new(
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

    pub(crate) fn take(&mut self) -> Option<Accepted> {
        mem::take(&mut self.accepted)
    }
}

impl Drop for PassedOn {
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
pub(crate) fn reset_on_close(socket: &TcpStream) {
    // This fails only for a socket that is already closed.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}
