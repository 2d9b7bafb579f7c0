//! To an endpoint: the attempt loop around `pick`.
//!
//! Every attempt takes a lease, and every failure is told to the service, which may eject the endpoint. Not a byte of
//! the client is read before a connection stands, so nothing is lost by trying elsewhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::endpoint::{EndpointState, Lease};
use ballast_core::moment::Moment;
use ballast_core::pick::{Key, Picked, Tried, Unavailable};
use ballast_core::plan::Plan;
use ballast_core::preamble::{Addresses, Checksum, Extras, Transport, encode_v1, encode_v2};
use ballast_core::service::{Failure, Service};
use ballast_core::table::{Protocol, SendProxy, State, Tlv};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::access::Dial;
use crate::log::Rarely;
use crate::preamble::destination;
use crate::sys;
#[cfg(test)]
use crate::tcp;
use crate::worker::Worker;

mod queue;
mod trial;
mod wait;

pub(crate) use wait::Waiting;

use queue::wait_in_queue;
use wait::Fault;

/// Who asks to be connected.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The client, by which endpoints are chosen.
    pub(crate) key: Key,
    /// What it connected to, where a PROXY header said so.
    pub(crate) destination: Option<SocketAddr>,
    /// The name that it asked for, where one is known.
    pub(crate) authority: Option<Box<str>>,
    /// What another proxy calls this connection.
    pub(crate) unique_id: Option<Box<[u8]>>,
}

impl Caller {
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self {
            key: Key::new(peer),
            destination: None,
            authority: None,
            unique_id: None,
        }
    }
}

/// A connection to an endpoint.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) stream: TcpStream,
    pub(crate) lease: Lease,
    /// What people call the endpoint; only where access lines are written.
    pub(crate) name: Option<Box<str>>,
    /// The outbound PROXY header, if there is one.
    pub(crate) header: Vec<u8>,
    pub(crate) server_timeout: Option<Duration>,
    pub(crate) server_fin: Duration,
}

/// Why a client got no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It was turned away.
    Refused(Refusal),
    /// It aborted while it waited.
    Left(During),
}

/// What a client waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    /// For room.
    Queue,
    /// For an endpoint to answer.
    Dial,
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Connects the client to an endpoint of this service, or says why it cannot be. How it went is in `dial`, whatever
/// the end.
pub(crate) async fn connect(
    waiting: Waiting<'_>,
    mut plan: Arc<Plan>,
    name: &str,
    caller: &Caller,
    dial: &mut Dial,
) -> Result<Dialed, Unserved> {
    let Waiting { worker, client, .. } = waiting;
    let arrived = worker.shared.clock.now();
    let mut tried = Tried::default();
    let mut queued = Duration::ZERO;
    let mut deadline = None;
    let mut left: Option<Arc<EndpointState>> = None;
    loop {
        let Some(service) = plan.service(name) else {
            return Err(Refusal::NoEndpoint.into());
        };
        let now = worker.shared.clock.now();
        let counters = service.state().counters(worker.id);
        if tried.is_empty() && queued.is_zero() {
            counters.sessions.add(1);
        }
        let picked = service.pick(&caller.key, &tried, now, &mut worker.rng.borrow_mut());
        let picked = match picked {
            Ok(picked) => picked,
            Err(Unavailable::NoEndpoint) => {
                counters.unserved.add(u64::from(tried.is_empty()));
                return Err(none_left(&tried).into());
            }
            Err(Unavailable::Full) => {
                dial.before = service.state().queue().len();
                let (newer, waited, turn) =
                    Box::pin(wait_in_queue(worker, plan, name, client, caller, &tried)).await;
                plan = newer;
                queued += waited;
                // The time to connect does not run while the client waits for room.
                deadline = deadline.map(|deadline: Instant| deadline + waited);
                turn?
            }
        };
        // After the queue this may be a newer plan's service.
        let Some(service) = plan.service(name) else {
            return Err(Refusal::NoEndpoint.into());
        };
        let deadline =
            *deadline.get_or_insert_with(|| Instant::now() + service.spec().timeouts.connect);
        if let Some(left) = left.take() {
            left.counters(worker.id).redispatches.add(1);
            dial.retries += 1;
        }
        dial.queued = Some(queued);
        let picked = trial::spare(worker, &plan, service, picked, caller, &tried);
        if picked.is_panic {
            service.state().counters(worker.id).panics.add(1);
        }
        let began = worker.shared.clock.now();
        match attempt(waiting, service, &picked, &tried, deadline).await {
            Ok(stream) => {
                let now = worker.shared.clock.now();
                dial.connecting = Some(now.since(arrived).saturating_sub(queued));
                return Ok(connected(
                    worker, service, picked, stream, client, caller, *dial,
                ));
            }
            Err(Fault::ClientLeft) => {
                let counters = picked.lease.endpoint().counters(worker.id);
                counters.client_aborts.add(1);
                return Err(Unserved::Left(During::Dial));
            }
            Err(fault) => {
                let failure = match &fault {
                    Fault::Failed(error) => {
                        note_failure(worker, &plan, service, &picked, error, began)
                    }
                    _ => Failure::Refused,
                };
                if let Some(endpoint) = service.endpoints().get(picked.index) {
                    tried.note(endpoint, failure);
                }
                dial.timed_out = failure == Failure::TimedOut;
                let spent = tried.len() > usize::from(service.spec().retries);
                if spent || Instant::now() >= deadline {
                    return Err(Refusal::Failed.into());
                }
                left = Some(Arc::clone(picked.lease.endpoint()));
                if matches!(fault, Fault::Cut) {
                    // Where its endpoint is gone, those that came instead are in a newer plan.
                    plan = worker.shared.live.plan();
                }
            }
        }
    }
}

/// Nobody can be picked: from the beginning, or because all have been tried.
fn none_left(tried: &Tried) -> Refusal {
    if tried.is_empty() {
        Refusal::NoEndpoint
    } else {
        Refusal::Failed
    }
}

/// One attempt: short while there is somebody else to try, else as long as is left.
async fn attempt(
    waiting: Waiting<'_>,
    service: &Service,
    picked: &Picked,
    tried: &Tried,
    deadline: Instant,
) -> Result<TcpStream, Fault> {
    let Waiting { worker, seat, .. } = waiting;
    let endpoint = picked.lease.endpoint();
    // From now on an order to cut its connections finds this one. One that came before has left its mark.
    worker.seats.borrow_mut().at_endpoint(seat, endpoint);
    if endpoint.has_ended() {
        worker.seats.borrow_mut().dialed_in_vain(seat);
        return Err(Fault::Cut);
    }
    let counters = endpoint.counters(worker.id);
    counters.picked.add(1);
    counters.dials.add(1);
    #[cfg(test)]
    tcp::tests::come_by(tcp::tests::DIALING, waiting.client.peer_addr().ok());
    let spec = service.spec();
    let last = tried.len() >= usize::from(spec.retries) || !has_another(service, tried.len() + 1);
    let until = if last {
        deadline
    } else {
        deadline.min(Instant::now() + short_attempt(service))
    };
    let reached = reach(
        worker,
        service,
        picked.lease.address(),
        until,
        Some(waiting),
    )
    .await;
    let mut seats = worker.seats.borrow_mut();
    match &reached {
        Ok(_) => seats.dialed(seat),
        Err(_) => seats.dialed_in_vain(seat),
    }
    drop(seats);
    reached
}

fn short_attempt(service: &Service) -> Duration {
    FIRST_ATTEMPTS.min(service.spec().timeouts.connect / 2)
}

/// Dials from one of the service's own addresses, if it has any.
async fn reach(
    worker: &Worker,
    service: &Service,
    address: SocketAddr,
    until: Instant,
    waiting: Option<Waiting<'_>>,
) -> Result<TcpStream, Fault> {
    let spec = service.spec();
    if spec.source.is_empty() {
        return dial(address, None, until, waiting).await;
    }
    let turn = worker.next_source();
    let mut result = Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    for step in 0..spec.source.len() {
        let source = spec.source[(turn + step) % spec.source.len()];
        if source.is_ipv4() != address.is_ipv4() {
            continue;
        }
        result = dial(address, Some(source), until, waiting).await;
        let full = |error: &io::Error| error.kind() == io::ErrorKind::AddrNotAvailable;
        if !matches!(&result, Err(Fault::Failed(error)) if full(error)) {
            break;
        }
    }
    result
}

/// Whether more endpoints than `known` may be tried at all.
fn has_another(service: &Service, known: usize) -> bool {
    service
        .endpoints()
        .iter()
        .filter(|endpoint| {
            endpoint.weight() > 0 && matches!(endpoint.state(), State::Ready | State::Backup)
        })
        .nth(known)
        .is_some()
}

async fn dial(
    address: SocketAddr,
    source: Option<IpAddr>,
    until: Instant,
    waiting: Option<Waiting<'_>>,
) -> Result<TcpStream, Fault> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        None,
    )?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        sys::bind_address_without_port(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    let at_once = match socket.connect(&SockAddr::from(address)) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => false,
        Err(error) => return Err(error.into()),
    };
    let stream = TcpStream::from_std(socket.into())?;
    if !at_once {
        let answer = async {
            timeout_at(until, stream.ready(Interest::WRITABLE | Interest::ERROR))
                .await
                .map_err(|_| io::ErrorKind::TimedOut)?
        };
        let ready = match waiting {
            Some(waiting) => waiting.wait(answer).await?,
            None => answer.await?,
        };
        // Only a socket that says that something is wrong is asked what.
        if (ready.is_error() || ready.is_write_closed())
            && let Some(error) = stream.take_error()?
        {
            return Err(error.into());
        }
    }
    Ok(stream)
}

fn connected(
    worker: &Worker,
    service: &Service,
    picked: Picked,
    stream: TcpStream,
    client: &TcpStream,
    caller: &Caller,
    dial: Dial,
) -> Dialed {
    let now = worker.shared.clock.now();
    service.connected(picked.index, now);
    picked.lease.endpoint().counters(worker.id).session(
        now,
        dial.queued.unwrap_or_default(),
        dial.connecting.unwrap_or_default(),
    );
    let name = worker.shared.access.is_on().then(|| {
        let endpoint = service.spec().endpoints.get(picked.index);
        match endpoint.and_then(|endpoint| endpoint.name.as_deref()) {
            Some(name) => name.into(),
            None => picked.lease.address().to_string().into(),
        }
    });
    Dialed {
        stream,
        lease: picked.lease,
        name,
        header: header(worker, service, client, caller),
        server_timeout: service.spec().timeouts.server(Protocol::Tcp),
        server_fin: service.spec().timeouts.server_fin,
    }
}

/// The outbound PROXY header; empty where none is asked for.
fn header(worker: &Worker, service: &Service, client: &TcpStream, caller: &Caller) -> Vec<u8> {
    let spec = service.spec();
    let mut header = Vec::new();
    if spec.send_proxy == SendProxy::Off {
        return header;
    }
    let Ok(destination) = destination(client, caller) else {
        return header;
    };
    let addresses = Addresses {
        source: caller.key.client(),
        destination: Key::new(destination).client(),
    };
    if spec.send_proxy == SendProxy::V1 {
        encode_v1(addresses, &mut header);
        return header;
    }
    let wants = |tlv| match &spec.send_proxy_tlvs {
        Some(tlvs) => tlvs.contains(&tlv),
        None => tlv == Tlv::Authority,
    };
    let fresh_id = worker.fresh_id();
    let extras = Extras {
        authority: caller
            .authority
            .as_deref()
            .filter(|_| wants(Tlv::Authority)),
        unique_id: wants(Tlv::UniqueId).then(|| caller.unique_id.as_deref().unwrap_or(&fresh_id)),
        ssl: None,
        checksum: if wants(Tlv::Crc32c) {
            Checksum::Crc32c
        } else {
            Checksum::Absent
        },
    };
    encode_v2(addresses, Transport::Stream, &extras, &mut header);
    header
}

/// Tells the service of a failed attempt. An attempt that failed for want of something of our own says nothing
/// about the endpoint.
fn note_failure(
    worker: &Worker,
    plan: &Plan,
    service: &Service,
    picked: &Picked,
    error: &io::Error,
    began: Moment,
) -> Failure {
    picked
        .lease
        .endpoint()
        .counters(worker.id)
        .connect_errors
        .add(1);
    let failure = match error.kind() {
        io::ErrorKind::TimedOut => Failure::TimedOut,
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Failure::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Failure::Unreachable,
        _ => {
            static SAID: Rarely = Rarely::new();
            if let Some(unsaid) = SAID.say(worker.shared.clock.now()) {
                tracing::warn!(endpoint = %picked.lease.address(), %error, unsaid, "cannot dial");
            }
            return Failure::Unreachable;
        }
    };
    let now = worker.shared.clock.now();
    let news = service.failed(picked.index, failure, began, now);
    if let Some(ejection) = news.ejection {
        tracing::info!(
            service = service.state().name(),
            endpoint = %picked.lease.address(),
            reason = ejection.reason.word(),
            for_ms = ejection.until.since(now).as_millis(),
            "endpoint ejected"
        );
    }
    if let Some(node) = news.silent_node {
        let ejected = plan.eject_node(&node, now);
        tracing::warn!(
            node = node.name(),
            ejected,
            "node is silent; its endpoints are ejected"
        );
    }
    failure
}

/// Long enough for one lost SYN to be repeated.
const FIRST_ATTEMPTS: Duration = Duration::from_millis(1_250);
