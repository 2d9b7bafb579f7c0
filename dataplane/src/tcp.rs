//! The life of a TCP connection: accept, admit, PROXY header, dial, relay, account.
//!
//! `accept` takes a connection from the kernel and admits it or resets it. An admitted connection is a [`Connection`] with a
//! task of its own, which this file describes from top to bottom. `dial` connects it to an endpoint; where every endpoint is
//! full, the connection waits in the service's `queue`. The result of the dial is an [`Upstream`]. The relay moves bytes
//! between the two until the end. Whatever ends the connection, dropping the two releases what they hold and accounts for them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::plan::{Frontend, Serves, SocketKey};
use ballast_core::preamble::Transport;
use ballast_core::service::Service;
use ballast_core::table::Protocol;

use crate::relay::{RelayTimeouts, relay};
use crate::send_proxy;
use crate::worker::{Stage, Worker, WorkerPlan};

mod accept;
mod admission;
mod connection;
mod dial;
mod preamble;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use accept::accept_loop;
pub(crate) use connection::HandedOver;
use connection::{Accepted, Connection, RejectReason};
pub(crate) use dial::{Progress, Upstream, WaitPhase};
pub(crate) use preamble::ProxyInfo;

/// Serves a connection that another worker accepted.
pub(crate) fn serve_handed_over(worker: &Rc<Worker>, mut handed: HandedOver) {
    let Some(accepted) = handed.take() else {
        return;
    };
    let socket = Rc::new(handed.socket.clone());
    let plan = Rc::new(Arc::clone(&handed.plan));
    serve(worker, accepted, &socket, &plan, handed.is_trusted);
}

/// Spawns the task of a connection.
fn serve(
    worker: &Rc<Worker>,
    accepted: Accepted,
    socket: &Rc<SocketKey>,
    plan: &WorkerPlan,
    is_trusted: bool,
) {
    let Some(frontend) = plan.frontend(socket) else {
        return;
    };
    let Ok(connection) = Connection::begin(worker, accepted, socket, frontend.state()) else {
        let counters = frontend.state().counters().of(worker.id);
        counters.refused[Refusal::Failed.index()].add(1);
        return;
    };
    let (frontend, plan) = (Arc::clone(frontend), Rc::clone(plan));
    tokio::task::spawn_local(run(connection, frontend, plan, is_trusted));
}

/// What the relay needs.
struct Connected {
    upstream: Upstream,
    /// Bytes to send to the endpoint before the client's next bytes.
    first: Vec<u8>,
    /// How many bytes of `first` came from the client, together with its PROXY header.
    client_bytes: u64,
    timeouts: RelayTimeouts,
    /// Whether the client's idle timeout is not longer than the endpoint's.
    client_is_stricter: bool,
}

/// The task of one connection.
async fn run(
    mut connection: Connection,
    frontend: Arc<Frontend>,
    plan: WorkerPlan,
    is_trusted: bool,
) {
    // Boxed, so that its memory is freed here: an idle connection keeps none of it.
    let connected = Box::pin(find_endpoint(&mut connection, frontend, plan, is_trusted)).await;
    let Connected {
        mut upstream,
        first,
        client_bytes,
        timeouts,
        client_is_stricter,
    } = match connected {
        Ok(connected) => connected,
        Err(reason) => return connection.reject(reason),
    };
    let worker = Rc::clone(&connection.worker);
    worker
        .shared
        .reached(Stage::Relaying, connection.key.client());
    let frontend = connection.frontend.counters().of(worker.id);
    let Upstream { stream, lease, .. } = &mut upstream;
    let endpoint = lease.endpoint().counters(worker.id);
    // A local variable, so that the entry is dropped and its line written while the connection still counts everywhere.
    let mut entry = connection.entry.take();
    let mut moved = |up, down| {
        frontend.bytes_in.add(up);
        frontend.bytes_out.add(down);
        endpoint.bytes_in.add(up);
        endpoint.bytes_out.add(down);
        let spliced = worker.tools.pipes.take_spliced();
        if spliced > 0 {
            worker.counters().spliced.add(spliced);
        }
        if let Some(entry) = &mut entry {
            entry.moved(up, down);
        }
    };
    if client_bytes > 0 {
        moved(client_bytes, 0);
    }
    let closed = relay(
        &mut connection.socket,
        stream,
        first,
        timeouts,
        &worker.tools,
        moved,
    )
    .await;
    let fault = closed.fault(client_is_stricter);
    if let Some(mut entry) = entry {
        entry.closed(closed.why, fault);
    }
    upstream.count_fault(fault);
}

/// Connects an accepted connection to an endpoint, or returns why that is not possible.
async fn find_endpoint(
    connection: &mut Connection,
    frontend: Arc<Frontend>,
    plan: WorkerPlan,
    is_trusted: bool,
) -> Result<Connected, RejectReason> {
    let mut first = Vec::new();
    if is_trusted {
        first = connection.read_proxy_header(&frontend).await?;
    }
    connection.counters().sessions.add(1);
    let service = choose_service(&frontend)?;
    let timeouts = FrontendTimeouts::of(&frontend);
    drop(frontend);
    let (upstream, service) = connect(connection, service, plan).await?;
    let client_bytes = first.len() as u64;
    let mut header = send_proxy::header(
        &connection.worker,
        &service,
        Transport::Stream,
        || connection.addresses(),
        connection.proxy_info.as_deref(),
    );
    header.append(&mut first);
    let timeouts = timeouts.with(&service);
    Ok(Connected {
        upstream,
        first: header,
        client_bytes,
        client_is_stricter: timeouts.1,
        timeouts: timeouts.0,
    })
}

/// The service of this connection. A protocol whose service depends on the client's first bytes would read them here.
fn choose_service(frontend: &Frontend) -> Result<Arc<Service>, RejectReason> {
    match frontend.serves() {
        Serves::Tcp(service) => Ok(Arc::clone(service)),
        Serves::Udp(_) | Serves::NotYet(_) => Err(RejectReason::Refused(Refusal::NoEndpoint)),
    }
}

async fn connect(
    connection: &mut Connection,
    service: Arc<Service>,
    plan: WorkerPlan,
) -> Result<(Upstream, Arc<Service>), RejectReason> {
    let mut unread = Progress::default();
    let progress = match &mut connection.entry {
        Some(entry) => entry.begin_dial(&service),
        None => &mut unread,
    };
    let socket = &connection.socket;
    let caller = dial::Caller {
        worker: &connection.worker,
        key: &connection.key,
        began: connection.began,
        // A client that has ended only its own direction still waits for the answer.
        poll_gone: &|cx| socket.poll_failed(cx),
    };
    let (upstream, service) = dial::dial(caller, service, plan, progress).await?;
    let endpoint = upstream.lease.endpoint();
    let mut connections = connection.worker.connections.borrow_mut();
    connections.set_endpoint(connection.slot, endpoint);
    if let Some(entry) = &mut connection.entry {
        entry.connected(&service, endpoint);
    }
    Ok((upstream, service))
}

/// The timeouts of a frontend, kept until the service is known.
struct FrontendTimeouts {
    idle: Option<Duration>,
    fin: Duration,
}

impl FrontendTimeouts {
    fn of(frontend: &Frontend) -> Self {
        Self {
            idle: frontend.client_timeout(),
            fin: frontend.client_fin(),
        }
    }

    /// The timeouts of both sides combined, and whether the client's idle timeout is the effective one.
    fn with(self, service: &Service) -> (RelayTimeouts, bool) {
        let spec = &service.spec().timeouts;
        let idle = match (self.idle, spec.server(Protocol::Tcp)) {
            (Some(client), Some(server)) => Some(client.min(server)),
            (client, server) => client.or(server),
        };
        let timeouts = RelayTimeouts {
            idle,
            half_closed: self.fin.min(spec.server_fin),
            abort: self.fin,
        };
        (timeouts, self.idle.is_some() && idle == self.idle)
    }
}
