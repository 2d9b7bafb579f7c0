//! The life of a TCP connection: accept, admit, PROXY header, TLS, dial, relay, account.
//!
//! `accept` takes a connection from the kernel and admits it or resets it. An admitted connection is a [`Connection`] with a
//! task of its own, which this file describes from top to bottom. [`connect`](crate::connect) finds it an endpoint; where every endpoint is
//! full, the connection waits in the service's queue. The result of the dial is an [`Upstream`]. The relay moves bytes
//! between the two until the end. Whatever ends the connection, dropping the two releases what they hold and accounts for them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::{PrefixSet, Refusal};
use ballast_core::backends::Backends;
use ballast_core::handshake::HandshakeResult;
use ballast_core::plan::{Frontend, Serves, SocketKey};
use ballast_core::route::{SniMatch, SniRoutes};
use ballast_core::service::Service;
use ballast_core::table::Protocol;

use crate::access::Progress;
use crate::connect::{Caller, Upstream, dial};
use crate::http;
use crate::net::relay::{RelayTimeouts, relay, shorter};
use crate::net::tls::HandshakeError;
use crate::worker::{Accepted, Connection, PassedOn, Stage, Worker, WorkerPlan};

mod accept;
mod admission;
mod handshake;
mod preamble;
mod reject;
#[cfg(test)]
mod tests;

pub(crate) use accept::accept_loop;
use reject::RejectReason;

/// Serves a connection that another worker accepted.
pub(crate) fn serve_passed_on(worker: &Rc<Worker>, mut passed: PassedOn) {
    let Some(accepted) = passed.take() else {
        return;
    };
    let socket = Rc::new(passed.socket.clone());
    let plan = Rc::new(Arc::clone(&passed.plan));
    spawn(worker, accepted, &socket, &plan, passed.is_trusted);
}

/// Spawns the task of a connection.
fn spawn(
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
    let at = Entrance {
        frontend: Arc::clone(frontend),
        plan: Rc::clone(plan),
    };
    let slot = connection.slot;
    let task = if let Serves::Http(_) = at.frontend.serves() {
        let socket = Rc::clone(socket);
        tokio::task::spawn_local(run_http(connection, at, socket, is_trusted))
    } else {
        let start = Start::Accepted { is_trusted };
        tokio::task::spawn_local(run(connection, at, start))
    };
    // It runs only after this.
    let mut connections = worker.connections.borrow_mut();
    connections.set_task(slot, task.abort_handle());
}

/// The frontend of a connection that has no endpoint yet, and the plan that has the frontend.
struct Entrance {
    frontend: Arc<Frontend>,
    plan: WorkerPlan,
}

impl Entrance {
    /// Goes over to the plan in force, after bytes of the client were awaited: a table that came meanwhile may refuse the client, or
    /// send it elsewhere. Where the frontend is gone, the connection goes on by the last plan that had it.
    fn follow(&mut self, connection: &Connection) -> Result<(), RejectReason> {
        let newest = connection.worker.plan();
        if Rc::ptr_eq(&self.plan, &newest) {
            return Ok(());
        }
        if let Some(frontend) = connection.frontend_in(&newest) {
            self.frontend = Arc::clone(frontend);
            self.plan = newest;
            let client = connection.key.client().ip();
            let limits = self.frontend.limits();
            limits.check_source(client).map_err(RejectReason::Refused)?;
        }
        Ok(())
    }
}

/// The task of one connection whose client speaks HTTP, unless its TLS is relayed unopened.
async fn run_http(
    mut connection: Connection,
    mut at: Entrance,
    socket: Rc<SocketKey>,
    is_trusted: bool,
) {
    let first = match Box::pin(open(&mut connection, &mut at, is_trusted)).await {
        // The frontend may have another protocol by now.
        Ok(Opened::Plain(_)) if !matches!(at.frontend.serves(), Serves::Http(_)) => {
            return connection.reject(RejectReason::Refused(Refusal::NoEndpoint));
        }
        Ok(Opened::Plain(first)) => first,
        Ok(Opened::Relay(unopened)) => {
            let relayed = run(connection, at, Start::Opened(unopened));
            return Box::pin(relayed).await;
        }
        Err(reason) => return connection.reject(reason),
    };
    // From now on each request has an access line of its own.
    if let Some(entry) = connection.entry.take() {
        entry.forget();
    }
    let counters = connection.counters();
    counters.sessions.add(1);
    counters.http_sessions.add(1);
    drop(at);
    http::serve(connection, socket, first).await;
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
async fn run(mut connection: Connection, at: Entrance, start: Start) {
    // Boxed, so that its memory is freed here, and taken apart at once: an idle connection keeps only what the relay needs.
    // `session` is named before `stream`, and so is dropped after it: the stream is closed before another client may come.
    let Connected {
        upstream: Upstream {
            session,
            mut stream,
            ..
        },
        first,
        client_bytes,
        timeouts,
        client_is_stricter,
    } = match Box::pin(find_endpoint(&mut connection, at, start)).await {
        Ok(connected) => connected,
        Err(reason) => return connection.reject(reason),
    };
    let worker = Rc::clone(&connection.worker);
    worker
        .shared
        .reached(Stage::Relaying, connection.key.client());
    let frontend = connection.frontend.counters().of(worker.id);
    let endpoint = session.counters();
    // A local variable, so that the entry is dropped and its line written while the connection still counts everywhere.
    let mut entry = connection.entry.take();
    let mut moved = |up, down| {
        frontend.bytes_in.add(up);
        frontend.bytes_out.add(down);
        endpoint.bytes_in.add(up);
        endpoint.bytes_out.add(down);
        worker.count_spliced();
        if let Some(entry) = &mut entry {
            entry.moved(up, down);
        }
    };
    if client_bytes > 0 {
        moved(client_bytes, 0);
    }
    let client = &mut connection.socket;
    let closed = relay(client, &mut stream, first, timeouts, &worker.tools, moved).await;
    let fault = closed.fault(client_is_stricter);
    if let Some(mut entry) = entry {
        entry.closed(closed.why, fault);
    }
    session.count_fault(fault);
}

/// Connects an accepted connection to an endpoint, or returns why that is not possible.
async fn find_endpoint(
    connection: &mut Connection,
    mut at: Entrance,
    start: Start,
) -> Result<Connected, RejectReason> {
    let opened = match start {
        Start::Accepted { is_trusted } => open(connection, &mut at, is_trusted).await?,
        Start::Opened(unopened) => Opened::Relay(unopened),
    };
    let Unopened { service, first } = match opened {
        Opened::Relay(unopened) => *unopened,
        Opened::Plain(first) => match at.frontend.serves() {
            Serves::Tcp(backends) => Unopened {
                service: choose(connection, backends),
                first,
            },
            // The protocol of the frontend has changed, or it has no service any more.
            Serves::Udp(_) | Serves::Http(_) | Serves::Tls(_) | Serves::Nothing => {
                return Err(RejectReason::Refused(Refusal::NoEndpoint));
            }
        },
    };
    relay_to(connection, at, service, first).await
}

/// What the first bytes of a connection have led to, with the client's bytes that were read.
enum Opened {
    /// The client's bytes are plain: it speaks no TLS, or TLS ends here.
    Plain(Vec<u8>),
    /// The client's TLS is relayed unopened.
    Relay(Box<Unopened>),
}

/// A connection that is relayed as it is: the service, and the client's bytes that were read.
struct Unopened {
    service: Arc<Service>,
    first: Vec<u8>,
}

/// How far a connection has come before its task relays it.
enum Start {
    /// Nothing was read.
    Accepted { is_trusted: bool },
    /// Its ClientHello was read.
    Opened(Box<Unopened>),
}

/// Reads what precedes the client's own bytes: the PROXY header of a trusted peer, and the TLS handshake.
async fn open(
    connection: &mut Connection,
    at: &mut Entrance,
    is_trusted: bool,
) -> Result<Opened, RejectReason> {
    let mut first = Vec::new();
    if is_trusted {
        first = connection.read_proxy_header(at).await?;
    }
    if !reads_hello(&at.frontend) {
        return Ok(Opened::Plain(first));
    }
    let hello = connection.read_hello(&at.frontend, &mut first).await?;
    at.follow(connection)?;
    if !reads_hello(&at.frontend) {
        return Ok(Opened::Plain(first));
    }
    let routes = unopened(&at.frontend);
    match routes.map(|routes| routes.find(hello.sni.as_deref(), &hello.alpn)) {
        Some(SniMatch::Relay(route)) => {
            let client = connection.key.client().ip();
            let is_admitted = |sources: &PrefixSet| sources.contains(client);
            if !route.sources.as_ref().is_none_or(is_admitted) {
                return Err(RejectReason::Refused(Refusal::SourceRange));
            }
            route.count_connection(connection.worker.id);
            Ok(Opened::Relay(Box::new(Unopened {
                service: choose(connection, &route.backends),
                first,
            })))
        }
        Some(SniMatch::Reset) => Err(RejectReason::Handshake(HandshakeError::of(
            HandshakeResult::UnknownName,
            "no route is for the name that it asks for",
        ))),
        Some(SniMatch::Terminate) | None => {
            connection.accept_tls(at, first).await?;
            Ok(Opened::Plain(Vec::new()))
        }
    }
}

/// The routes by which TLS of clients of this frontend is relayed unopened.
fn unopened(frontend: &Frontend) -> Option<&SniRoutes> {
    match frontend.serves() {
        Serves::Tls(routes) => Some(routes),
        Serves::Http(http) => http.unopened(),
        Serves::Tcp(_) | Serves::Udp(_) | Serves::Nothing => None,
    }
}

/// Whether a client of this frontend is to send a ClientHello.
fn reads_hello(frontend: &Frontend) -> bool {
    unopened(frontend).is_some() || frontend.spec().tls.is_some()
}

/// The service of a connection that is relayed as it is.
fn choose(connection: &Connection, backends: &Backends) -> Arc<Service> {
    let (key, worker) = (&connection.key, connection.worker.id);
    let chosen = backends.choose(key, &[], connection.began);
    backends.count(chosen.place, worker);
    Arc::clone(chosen.service)
}

/// Where the connection's frontend sends clients now: to the same service as before, if that is one of its services.
fn service_in(
    connection: &Connection,
    plan: &WorkerPlan,
    before: &Service,
) -> Result<Option<Arc<Service>>, Refusal> {
    let of_it = connection.frontend_in(plan).filter(|frontend| {
        let client = connection.key.client().ip();
        frontend.limits().check_source(client).is_ok()
    });
    let service = match of_it.map(|frontend| frontend.serves()) {
        Some(Serves::Tcp(backends)) => {
            let mut services = backends.services();
            let same = services.find(|service| Arc::ptr_eq(service.state(), before.state()));
            Some(same.map_or_else(|| choose(connection, backends), Arc::clone))
        }
        // The frontend is gone or shuts the client out, which came in before that, or the client's server name has decided, which
        // is not kept.
        _ => plan.service(before.state().name()).map(Arc::clone),
    };
    service.map(Some).ok_or(Refusal::NoEndpoint)
}

/// Connects to an endpoint of this service. `first` are bytes of the client.
async fn relay_to(
    connection: &mut Connection,
    at: Entrance,
    service: Arc<Service>,
    mut first: Vec<u8>,
) -> Result<Connected, RejectReason> {
    connection.counters().sessions.add(1);
    let timeouts = FrontendTimeouts::of(&at.frontend);
    drop(at.frontend);
    let (upstream, service) = dial_service(connection, service, at.plan).await?;
    let client_bytes = first.len() as u64;
    if upstream.stream.session().is_none() {
        let mut header = connection.proxy_header(&service);
        header.append(&mut first);
        first = header;
    }
    let timeouts = timeouts.with(&service);
    Ok(Connected {
        upstream,
        first,
        client_bytes,
        client_is_stricter: timeouts.1,
        timeouts: timeouts.0,
    })
}

async fn dial_service(
    connection: &mut Connection,
    service: Arc<Service>,
    plan: WorkerPlan,
) -> Result<(Upstream, Arc<Service>), RejectReason> {
    let mut unread = Progress::default();
    // The dial updates the entry while it reads the rest of the connection.
    let mut entry = connection.entry.take();
    let progress = match &mut entry {
        Some(entry) => entry.begin_dial(&service),
        None => &mut unread,
    };
    let caller = Caller {
        worker: &connection.worker,
        key: &connection.key,
        slot: connection.slot,
        began: connection.began,
        has_come: false,
        idle: None,
        keeps: false,
        multiplexed: None,
        proxy_header: &|service| connection.proxy_header(service),
        room: None,
        service_in: &|plan, before| service_in(connection, plan, before),
        // A client that has ended only its own direction still waits for the answer.
        poll_gone: &|cx| connection.socket.poll_failed(cx),
    };
    let dialed = dial(caller, service, plan, progress).await;
    connection.entry = entry;
    let (upstream, service) = dialed?;
    if let Some(entry) = &mut connection.entry {
        entry.connected(&service, upstream.session.lease.endpoint());
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
        let idle = shorter(self.idle, spec.server(Protocol::Tcp));
        let timeouts = RelayTimeouts {
            idle,
            half_closed: self.fin.min(spec.server_fin),
            abort: self.fin,
        };
        (timeouts, self.idle.is_some() && idle == self.idle)
    }
}
