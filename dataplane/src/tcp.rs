//! The story of a TCP connection: accept, admit, PROXY header, dial, relay, account.
//!
//! `accept` takes a connection from the kernel and admits it or resets it. From then on it is a [`Connection`], with a task of
//! its own, which this file tells from top to bottom. `dial` connects it to an endpoint, waiting in the service's `queue` where every
//! endpoint is full: the result is an [`Upstream`]. The relay moves bytes between the two until the end. Whatever that end
//! is, dropping the two gives back what they hold and accounts for them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::plan::{Frontend, Serves, SocketKey};
use ballast_core::service::Service;
use ballast_core::table::Protocol;

use crate::relay::{Patience, relay};
use crate::worker::{Stage, Worker, WorkerPlan};

mod accept;
mod admission;
mod connection;
mod dial;
mod header;
mod preamble;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use accept::accept_loop;
pub(crate) use connection::HandedOver;
use connection::{Accepted, Connection, Ending};
pub(crate) use dial::{During, Progress, Upstream};

/// Serves a connection that another worker accepted.
pub(crate) fn serve_handed_over(worker: &Rc<Worker>, mut handed: HandedOver) {
    let Some(accepted) = handed.take() else {
        return;
    };
    let socket = Rc::new(handed.socket.clone());
    let plan = Rc::new(Arc::clone(&handed.plan));
    serve(worker, accepted, &socket, &plan, handed.is_trusted);
}

/// Serves a connection in a task of its own.
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
    let arrival = Arrival {
        frontend: Arc::clone(frontend),
        plan: Rc::clone(plan),
        is_trusted,
    };
    tokio::task::spawn_local(story(connection, arrival));
}

/// What a connection needs only until it has an endpoint. It keeps a whole table alive.
struct Arrival {
    frontend: Arc<Frontend>,
    plan: WorkerPlan,
    is_trusted: bool,
}

/// What the relay needs.
struct Connected {
    upstream: Upstream,
    /// What the endpoint is sent before the client's next bytes.
    first: Vec<u8>,
    /// How many bytes of `first` are the client's: they came with its PROXY header.
    carried: u64,
    patience: Patience,
    /// The client's idle time is not longer than the endpoint's.
    client_is_stricter: bool,
}

async fn story(mut connection: Connection, arrival: Arrival) {
    // In a box of its own, which ends here: an idle connection needs no memory for what led to it.
    let connected = Box::pin(find_endpoint(&mut connection, arrival)).await;
    let Connected {
        mut upstream,
        first,
        carried,
        patience,
        client_is_stricter,
    } = match connected {
        Ok(connected) => connected,
        Err(ending) => return connection.turn_away(ending),
    };
    let worker = Rc::clone(&connection.worker);
    worker
        .shared
        .reach(Stage::Relaying, connection.key.client());
    let frontend = connection.frontend.counters().of(worker.id);
    let Upstream { stream, lease, .. } = &mut upstream;
    let endpoint = lease.endpoint().counters(worker.id);
    // A local of its own, so that it is dropped, and its line written, while the connection still counts everywhere.
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
    if carried > 0 {
        moved(carried, 0);
    }
    let closed = relay(
        &mut connection.socket,
        stream,
        first,
        patience,
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

/// From the accepted connection to an endpoint, or why there is none.
async fn find_endpoint(connection: &mut Connection, arrival: Arrival) -> Result<Connected, Ending> {
    let Arrival {
        frontend,
        plan,
        is_trusted,
    } = arrival;
    let mut first = Vec::new();
    if is_trusted {
        first = connection.introduce(&frontend).await?;
    }
    connection.counters().sessions.add(1);
    let service = choose_service(&frontend)?;
    let patience = Timeouts::of(&frontend);
    drop(frontend);
    let (upstream, service) = connect(connection, service, plan).await?;
    let carried = first.len() as u64;
    let mut header = header::header(&service, connection);
    header.append(&mut first);
    let patience = patience.with(&service);
    Ok(Connected {
        upstream,
        first: header,
        carried,
        client_is_stricter: patience.1,
        patience: patience.0,
    })
}

/// The service that this connection is for. A protocol whose service depends on the client's first bytes reads them here.
fn choose_service(frontend: &Frontend) -> Result<Arc<Service>, Ending> {
    match frontend.serves() {
        Serves::Tcp(service) => Ok(Arc::clone(service)),
        Serves::Udp(_) | Serves::NotYet(_) => Err(Ending::Refused(Refusal::NoEndpoint)),
    }
}

async fn connect(
    connection: &mut Connection,
    service: Arc<Service>,
    plan: WorkerPlan,
) -> Result<(Upstream, Arc<Service>), Ending> {
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
        // A client that has only finished sending still waits for its answer.
        poll_gone: &|cx| socket.poll_failed(cx),
    };
    let (upstream, service) = dial::dial(caller, service, plan, progress).await?;
    let endpoint = upstream.lease.endpoint();
    let mut seats = connection.worker.seats.borrow_mut();
    seats.is_served_by(connection.seat, endpoint);
    if let Some(entry) = &mut connection.entry {
        entry.connected(&service, endpoint);
    }
    Ok((upstream, service))
}

/// A frontend's timeouts, for as long as the endpoint's are not known.
struct Timeouts {
    idle: Option<Duration>,
    fin: Duration,
}

impl Timeouts {
    fn of(frontend: &Frontend) -> Self {
        Self {
            idle: frontend.client_timeout(),
            fin: frontend.client_fin(),
        }
    }

    /// Both sides' together, and whether the client's idle time is the one that counts.
    fn with(self, service: &Service) -> (Patience, bool) {
        let spec = &service.spec().timeouts;
        let idle = match (self.idle, spec.server(Protocol::Tcp)) {
            (Some(client), Some(server)) => Some(client.min(server)),
            (client, server) => client.or(server),
        };
        let patience = Patience {
            idle,
            half_closed: self.fin.min(spec.server_fin),
            abort: self.fin,
        };
        (patience, self.idle.is_some() && idle == self.idle)
    }
}
