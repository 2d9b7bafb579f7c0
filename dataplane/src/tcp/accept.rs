//! The accept loop of a listening socket, and the admission of each connection.
//!
//! A loop belongs to its socket, not to a frontend: for each connection it asks the plan which frontend the socket serves. A
//! connection is admitted or reset before any task or buffer exists for it.

use std::future::pending;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::admit::{Admission, Permit, Refusal};
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, SocketKey};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{SockFilter, Socket};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio::time::sleep;

use super::admission::{Reservation, room_at};
use crate::http::Refusing;
use crate::net::poller::Stream;
use crate::os::log::LogLimiter;
use crate::os::panics::{At, Vital};
use crate::os::socket_error;
use crate::worker::live::Serving;
use crate::worker::{
    Accepted, Close, Closing, Order, PassedOn, Worker, WorkerPlan, reset_on_close,
};

/// Accepts connections until the order to close.
pub(crate) async fn accept_loop(
    worker: Rc<Worker>,
    key: Rc<SocketKey>,
    listener: AsyncFd<Arc<Socket>>,
    mut closing: mpsc::Receiver<Closing>,
) {
    let _vital = Vital(At("accepting", Rc::clone(&key)));
    loop {
        let last = tokio::select! {
            biased;
            last = closing.recv() => last,
            () = accept_some(&worker, &key, &listener) => continue,
        };
        let Some(last) = last else {
            return;
        };
        if let Close::Last(plan) = last.how {
            accept_last(&worker, &key, &listener, &Rc::new(plan)).await;
        }
        drop(listener);
        last.done.send(()).ok();
        return;
    }
}

/// Accepts all connections of a socket that is closed, by the last plan that had it.
async fn accept_last(
    worker: &Rc<Worker>,
    key: &Rc<SocketKey>,
    listener: &AsyncFd<Arc<Socket>>,
    plan: &WorkerPlan,
) {
    accept_backlog(worker, key, listener, plan).await;
    // The kernel resets the handshakes that a socket has begun when it is closed. They may end first, and no others begin.
    if listener.get_ref().attach_filter(&NO_HANDSHAKES).is_ok() {
        sleep(LAST_HANDSHAKES).await;
        accept_backlog(worker, key, listener, plan).await;
    }
    // A process that hangs may have a copy, since it was to take over: nobody shall wait at it.
    listener.get_ref().shutdown(Shutdown::Both).ok();
}

/// Waits for connections and accepts one batch, so that other tasks can run in between.
async fn accept_some(worker: &Rc<Worker>, key: &Rc<SocketKey>, listener: &AsyncFd<Arc<Socket>>) {
    let Ok(mut ready) = listener.readable().await else {
        return;
    };
    let mut now = worker.shared.clock.now();
    for _ in 0..BATCH {
        let Some((plan, reservation)) = Reservation::wait(worker, key, now).await else {
            // The plan no longer has this socket: the order to close it is on its way.
            return pending().await;
        };
        now = reservation.now;
        worker.shared.accepting();
        match accept(listener) {
            Ok(Some(accepted)) => {
                let (plan, reservation) = reservation.newest(worker, key, plan);
                let room = Room::Reserved(reservation);
                admit_or_reset(worker, key, &plan, accepted, now, room);
            }
            Ok(None) => {
                ready.clear_ready();
                return;
            }
            Err(error) => {
                report_error(worker, key, &error);
                if socket_error::is_exhausted(&error) {
                    // The pause lets other connections end and release descriptors; other tasks of this worker run meanwhile.
                    drop(reservation);
                    sleep(EXHAUSTED_PAUSE).await;
                    return;
                }
            }
        }
    }
    tokio::task::yield_now().await;
}

/// Accepts the connections in the kernel's backlog by the last plan that had this socket. Connections still in the backlog when
/// the socket is closed are reset by the kernel.
async fn accept_backlog(
    worker: &Rc<Worker>,
    key: &Rc<SocketKey>,
    listener: &AsyncFd<Arc<Socket>>,
    plan: &WorkerPlan,
) {
    let (mut pauses, mut errors, mut waiting) = (0, 0, 0);
    while pauses < MAX_PAUSES && errors < MAX_ERRORS {
        match accept(listener) {
            Ok(Some(accepted)) => {
                let waits = plan.frontend(key).is_some_and(|frontend| frontend.waits());
                if waits && waiting < MAX_WAITING {
                    waiting += 1;
                    let (worker, key) = (Rc::clone(worker), Rc::clone(key));
                    let wait = wait_and_admit(worker, key, Rc::clone(plan), accepted);
                    tokio::task::spawn_local(wait);
                } else {
                    let now = worker.shared.clock.now();
                    admit_or_reset(worker, key, plan, accepted, now, Room::Last(None));
                }
            }
            Ok(None) => return,
            Err(error) => {
                report_error(worker, key, &error);
                if socket_error::is_exhausted(&error) {
                    pauses += 1;
                    sleep(EXHAUSTED_PAUSE).await;
                } else {
                    errors += 1;
                }
            }
        }
    }
}

/// Admits a client that has waited in the backlog for room at its frontend, once there is room. The socket that it waited at is gone.
async fn wait_and_admit(
    worker: Rc<Worker>,
    key: Rc<SocketKey>,
    plan: WorkerPlan,
    accepted: (TcpStream, SocketAddr),
) {
    let permit = match plan.frontend(&key) {
        Some(frontend) => Some(room_at(&worker, frontend).await),
        None => None,
    };
    let now = worker.shared.clock.now();
    admit_or_reset(&worker, &key, &plan, accepted, now, Room::Last(permit));
}

/// What was reserved for a connection.
enum Room {
    Reserved(Reservation),
    /// It is one of the last connections of a socket that is being closed, which do not count in the process. The permit is the
    /// frontend's.
    Last(Option<Permit>),
}

/// Admits one connection or resets it. An admitted connection is served here, or by a worker that has far fewer connections.
fn admit_or_reset(
    worker: &Rc<Worker>,
    key: &Rc<SocketKey>,
    plan: &WorkerPlan,
    (socket, peer): (TcpStream, SocketAddr),
    now: Moment,
    room: Room,
) {
    let Some(frontend) = plan.frontend(key) else {
        return;
    };
    let counters = frontend.state().counters().of(worker.id);
    counters.connections.add(1);
    worker.counters().accepted.add(1);
    let peer = Key::new(peer).client();
    let is_trusted = frontend
        .accept_proxy()
        .is_some_and(|accept| accept.trusts(peer.ip()));
    let (admission, process) = match admit(worker, frontend, peer, is_trusted, now, room) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            counters.refused[refusal.index()].add(1);
            return refuse(worker, frontend, socket, refusal, now);
        }
    };
    let accepted = Accepted {
        socket,
        peer,
        began: now,
        admission,
        process,
    };
    if let Some(accepted) = hand_over(worker, accepted, key, plan, is_trusted) {
        super::spawn(worker, accepted, key, plan, is_trusted);
    }
}

/// Answers a client of HTTP above the limit of its frontend, and resets every other one.
fn refuse(
    worker: &Rc<Worker>,
    frontend: &Arc<Frontend>,
    socket: TcpStream,
    refusal: Refusal,
    now: Moment,
) {
    let refusing = match refusal {
        Refusal::MaxConnections => Refusing::begin(worker, frontend, now),
        _ => None,
    };
    let Some(refusing) = refusing else {
        return reset_on_close(&socket);
    };
    let Ok(stream) = Stream::accepted(&worker.tools.poller, socket) else {
        return;
    };
    let frontend = Arc::clone(frontend);
    tokio::task::spawn_local(async move {
        refusing.answer(&mut stream.into(), &frontend).await;
    });
}

/// Counts the connection at its frontend and in the process. A trusted peer is not the client: its client is admitted once the
/// PROXY header has been read.
fn admit(
    worker: &Worker,
    frontend: &Frontend,
    peer: SocketAddr,
    is_trusted: bool,
    now: Moment,
    room: Room,
) -> Result<(Admission, Option<Admission>), Refusal> {
    let (process, permit) = match room {
        Room::Reserved(reservation) => (Some(reservation.process), reservation.frontend),
        Room::Last(permit) => (None, permit),
    };
    let (admit, limits) = (frontend.state().admit(), frontend.limits());
    let admission = if is_trusted {
        admit.admit_peer(limits, now, permit)
    } else {
        admit.admit(limits, peer.ip(), now, permit)
    }?;
    let shared = &worker.shared;
    let enter = |permit| shared.admit.admit_peer(&shared.limits(), now, permit);
    Ok((admission, process.map(enter).transpose()?))
}

/// Hands the connection over to a worker that has far fewer connections. Returns it if there is no such worker.
fn hand_over(
    worker: &Rc<Worker>,
    accepted: Accepted,
    key: &SocketKey,
    plan: &Arc<Serving>,
    is_trusted: bool,
) -> Option<Accepted> {
    let shared = &worker.shared;
    let Some(other) = shared.less_loaded_than(worker.id) else {
        return Some(accepted);
    };
    let Some(inbox) = shared.inboxes.get(other.0) else {
        return Some(accepted);
    };
    worker.counters().handed_over.add(1);
    let (key, plan) = (key.clone(), Arc::clone(plan));
    let passed = PassedOn::new(shared, other, accepted, key, plan, is_trusted);
    match inbox.send(Order::Serve(passed)) {
        // A worker that has ended returns the connection.
        Err(SendError(Order::Serve(mut back))) => back.take(),
        Ok(()) | Err(_) => None,
    }
}

/// The next connection; `None` if the backlog is empty.
fn accept(listener: &AsyncFd<Arc<Socket>>) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match acceptfrom_with(
        listener.get_ref(),
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
    ) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // For TCP, the kernel always gives an address.
            Ok(peer.map(|peer| (TcpStream::from(socket), peer)))
        }
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn report_error(worker: &Worker, key: &SocketKey, error: &io::Error) {
    worker
        .shared
        .count_accept_error(error.raw_os_error().unwrap_or(0));
    if socket_error::is_exhausted(error) {
        static LIMITER: LogLimiter = LogLimiter::new();
        if let Some(suppressed) = LIMITER.allow(worker.shared.clock.now()) {
            tracing::warn!(address = %key, %error, suppressed, "cannot accept; waiting for connections to end");
        }
    }
}

/// A program for the kernel that drops segments with SYN and without ACK. A client sends them again after a second: by then
/// another socket may listen at the address.
const NO_HANDSHAKES: [SockFilter; 5] = [
    // The 14th byte of the TCP header, and of that the bits of ACK and SYN.
    SockFilter::new(0x30, 0, 0, 13),
    SockFilter::new(0x54, 0, 0, 0x12),
    // Is it SYN alone? Then nothing of the segment is kept, and otherwise all.
    SockFilter::new(0x15, 0, 1, 0x02),
    SockFilter::new(0x06, 0, 0, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
];
/// How long handshakes that have begun may take. The application of the table waits meanwhile.
const LAST_HANDSHAKES: Duration = Duration::from_millis(50);
/// Connections accepted in a row before other tasks run.
const BATCH: usize = 32;
/// Pause after descriptors or memory have run out.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// How often a closing socket pauses for descriptors. The application of the table waits meanwhile.
const MAX_PAUSES: u32 = 10;
/// Clients of a closing socket that go on waiting for room at their frontend. Each takes a descriptor.
const MAX_WAITING: usize = 1_024;
/// Errors after which a closing socket gives up: connections that ended before they were accepted, at most as many as the
/// backlog holds.
const MAX_ERRORS: u32 = 4_096;
