//! A client's connection: what it holds from its accept to its end, and how it is turned away.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::counters::WorkerId;
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, FrontendCounters, FrontendState, Plan, SocketKey};
use socket2::SockRef;

use super::dial::{During, Unserved};
use super::preamble::{self, Introduced};
use crate::access::Entry;
use crate::poller::Stream;
use crate::worker::{Shared, Worker};

/// A connection that was accepted and admitted. There is no task for it yet, and nothing is allocated.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    /// When it was accepted.
    pub(super) began: Moment,
    pub(super) admission: Admission,
    /// Its place among the connections of the process.
    pub(super) process: Option<Admission>,
}

/// A client's connection. Dropping it resets the client unless [`Stream::close_in_order`] was called, frees its places, and writes its
/// access line: so it ends the same way after a panic.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) worker: Rc<Worker>,
    pub(super) socket: Stream,
    pub(super) frontend: Arc<FrontendState>,
    /// The client's address, by which endpoints are chosen.
    pub(super) key: Key,
    /// What a PROXY header said beside the address.
    pub(super) introduced: Option<Box<Introduced>>,
    pub(super) began: Moment,
    pub(super) entry: Option<Box<Entry>>,
    /// Its place in the worker's list of connections.
    pub(super) seat: usize,
    admission: Admission,
    _process: Option<Admission>,
}

/// Why a client gets no endpoint.
#[derive(Debug)]
pub(super) enum Ending {
    /// There was no valid PROXY header.
    Header(preamble::End),
    Refused(Refusal),
    /// The client aborted while it waited.
    Left(During),
}

impl From<Unserved> for Ending {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Refused(refusal) => Self::Refused(refusal),
            Unserved::Left(during) => Self::Left(during),
        }
    }
}

impl Connection {
    /// Takes an accepted connection on. An error means that this system has no room to watch one more socket.
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
        let seat = worker
            .seats
            .borrow_mut()
            .take(peer, Rc::clone(socket), began);
        Ok(Self {
            worker: Rc::clone(worker),
            socket: stream,
            frontend: Arc::clone(frontend),
            key: Key::new(peer),
            introduced: None,
            began,
            entry: Entry::begin(worker, frontend, peer, began),
            seat,
            admission,
            _process: process,
        })
    }

    /// Reads the PROXY header that a trusted peer owes, and admits the client that it names. Returns the client's bytes that came
    /// with the header.
    pub(super) async fn introduce(&mut self, frontend: &Frontend) -> Result<Vec<u8>, Ending> {
        let header = preamble::read(&self.socket, frontend).await;
        let header = header.map_err(Ending::Header)?;
        if let Some(client) = header.client {
            self.key = Key::new(client);
        }
        self.introduced = header.introduced;
        let client = self.key.client();
        if let Some(entry) = &mut self.entry {
            entry.client(client);
        }
        self.worker.seats.borrow_mut().is_for(self.seat, client);
        let now = self.worker.shared.clock.now();
        self.admission
            .identify(frontend.limits(), client.ip(), now)
            .map_err(Ending::Refused)?;
        Ok(header.rest)
    }

    /// Where the client believes to be connected to.
    pub(super) fn destination(&self) -> io::Result<SocketAddr> {
        let introduced = self.introduced.as_ref();
        match introduced.and_then(|introduced| introduced.destination) {
            Some(destination) => Ok(destination),
            None => self.socket.local_addr(),
        }
    }

    pub(super) fn counters(&self) -> &FrontendCounters {
        self.frontend.counters().of(self.worker.id)
    }

    /// Ends a connection that gets no endpoint: with a reset, and counted by its reason.
    pub(super) fn turn_away(mut self, ending: Ending) {
        let counters = self.frontend.counters().of(self.worker.id);
        match ending {
            Ending::Header(end) => {
                preamble::account(end, &self.socket, counters, self.entry.take());
            }
            Ending::Refused(refusal) => {
                counters.refused[refusal.index()].add(1);
                if let Some(entry) = &mut self.entry {
                    entry.refused(refusal);
                }
            }
            Ending::Left(during) => {
                if let Some(entry) = &mut self.entry {
                    entry.left(during);
                }
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The line is written while the connection still counts everywhere.
        drop(self.entry.take());
        self.worker.seats.borrow_mut().leave(self.seat);
        self.worker.load().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way to a worker that has fewer. It counts there at once: a worker that is slow to look would otherwise be
/// given all of them, and at the end of the process nobody would wait for those in its inbox. Dropped before it was taken, it is
/// reset.
#[derive(Debug)]
pub(crate) struct HandedOver {
    accepted: Option<Accepted>,
    pub(super) socket: SocketKey,
    /// The plan that admitted it: the next one may not have its frontend any more.
    pub(super) plan: Arc<Plan>,
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
        plan: Arc<Plan>,
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

/// Makes the coming close of a refused connection a reset: its client learns at once.
pub(super) fn reset_on_close(socket: &TcpStream) {
    // It fails only for a socket that is gone already: there is nobody left to tell.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}
