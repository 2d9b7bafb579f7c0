//! The list of a worker's connections, for the runtime socket.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::plan::SocketKey;
use ballast_core::service::ServiceState;
use tokio::task::AbortHandle;

/// The connections of a worker, each in a numbered slot.
#[derive(Debug, Default)]
pub(crate) struct ConnectionList {
    slots: Vec<Option<ListedConnection>>,
    free: Vec<usize>,
    /// Of the last connection that was inserted.
    serial: u32,
}

#[derive(Debug)]
struct ListedConnection {
    client: SocketAddr,
    socket: Rc<SocketKey>,
    began: Moment,
    whereabouts: Option<Whereabouts>,
    /// Whether it waits for the next request of HTTP, which may go to another endpoint.
    is_idle: bool,
    /// Tells it from other connections that had the slot, or will have it.
    serial: u32,
    task: Option<AbortHandle>,
}

impl ListedConnection {
    fn number(&self, slot: usize) -> u64 {
        u64::from(self.serial) << 32 | slot as u64
    }
}

impl ConnectionList {
    pub(crate) fn insert(
        &mut self,
        client: SocketAddr,
        socket: Rc<SocketKey>,
        began: Moment,
    ) -> usize {
        self.serial = self.serial.wrapping_add(1) & MOST_SERIAL;
        let connection = Some(ListedConnection {
            client,
            socket,
            began,
            whereabouts: None,
            is_idle: false,
            serial: self.serial,
            task: None,
        });
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = connection;
                slot
            }
            None => {
                self.slots.push(connection);
                self.slots.len() - 1
            }
        }
    }

    /// Where the connection was accepted.
    pub(crate) fn socket(&self, slot: usize) -> Option<&SocketKey> {
        let connection = self.slots.get(slot)?.as_ref()?;
        Some(&connection.socket)
    }

    /// Notes the task that serves the connection.
    pub(crate) fn set_task(&mut self, slot: usize, task: AbortHandle) {
        if let Some(connection) = &mut self.slots[slot] {
            connection.task = Some(task);
        }
    }

    /// Ends the connection that is listed with this number: its task is dropped, which resets it. Returns whether there is one.
    pub(crate) fn end(&self, number: u64) -> bool {
        let slot = usize::try_from(number & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let connection = self.slots.get(slot).and_then(Option::as_ref);
        let found = connection.filter(|connection| connection.number(slot) == number);
        let task = found.and_then(|connection| connection.task.as_ref());
        task.inspect(|task| task.abort()).is_some()
    }

    /// Notes the client that a PROXY header has named.
    pub(crate) fn set_client(&mut self, slot: usize, client: SocketAddr) {
        if let Some(connection) = &mut self.slots[slot] {
            connection.client = client;
        }
    }

    /// Notes that the connection waits in the queue of this service.
    pub(crate) fn set_queued(&mut self, slot: usize, service: &Arc<ServiceState>) {
        if let Some(connection) = &mut self.slots[slot] {
            connection.is_idle = false;
            connection.whereabouts = Some(Whereabouts::Queue(Arc::clone(service)));
        }
    }

    /// Notes the endpoint that serves the connection, or is dialed for it.
    pub(crate) fn set_endpoint(&mut self, slot: usize, endpoint: &Arc<EndpointState>) {
        if let Some(connection) = &mut self.slots[slot] {
            connection.is_idle = false;
            let known = connection.whereabouts.as_ref();
            if known.is_none_or(|known| !known.is_at(endpoint)) {
                connection.whereabouts = Some(Whereabouts::Endpoint(Arc::clone(endpoint)));
            }
        }
    }

    /// Notes that the connection has no request at an endpoint.
    pub(crate) fn set_idle(&mut self, slot: usize) {
        if let Some(connection) = &mut self.slots[slot] {
            connection.is_idle = true;
        }
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.free.push(slot);
    }

    /// The first `most` connections.
    pub(crate) fn list(&self, most: usize) -> Vec<SessionInfo> {
        let slots = self.slots.iter().enumerate().take(MAX_SCANNED);
        let sessions = slots.filter_map(|(slot, connection)| {
            let connection = connection.as_ref()?;
            Some(SessionInfo {
                number: connection.number(slot),
                client: connection.client,
                key: SocketKey::clone(&connection.socket),
                whereabouts: connection
                    .whereabouts
                    .clone()
                    .filter(|_| !connection.is_idle),
                began: connection.began,
            })
        });
        sessions.take(most).collect()
    }
}

/// A connection or a UDP flow, as its worker lists it.
#[derive(Clone, Debug)]
pub(crate) struct SessionInfo {
    /// Its number in its worker, of 52 bits.
    pub(crate) number: u64,
    pub(crate) client: SocketAddr,
    /// The listening socket that it came in by.
    pub(crate) key: SocketKey,
    /// Where it is, once a service was chosen.
    pub(crate) whereabouts: Option<Whereabouts>,
    /// When it began.
    pub(crate) began: Moment,
}

/// How far a connection or a flow has come.
#[derive(Clone, Debug)]
pub(crate) enum Whereabouts {
    /// It waits in the queue of this service.
    Queue(Arc<ServiceState>),
    /// This endpoint serves it, or is dialed for it.
    Endpoint(Arc<EndpointState>),
}

impl Whereabouts {
    fn is_at(&self, endpoint: &Arc<EndpointState>) -> bool {
        matches!(self, Self::Endpoint(known) if Arc::ptr_eq(known, endpoint))
    }

    pub(crate) fn service(&self) -> &ServiceState {
        match self {
            Self::Queue(service) => service,
            Self::Endpoint(endpoint) => endpoint.service(),
        }
    }

    pub(crate) fn endpoint(&self) -> Option<&EndpointState> {
        match self {
            Self::Queue(_) => None,
            Self::Endpoint(endpoint) => Some(endpoint),
        }
    }
}

/// Serial numbers have 20 bits.
const MOST_SERIAL: u32 = 0xf_ffff;
/// The most slots to look at, so that clients do not wait for a listing.
const MAX_SCANNED: usize = 1 << 17;
