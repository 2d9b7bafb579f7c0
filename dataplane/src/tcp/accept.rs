//! The accept loop of a listening socket, and the admission of each connection.
//!
//! A loop belongs to its socket, not to a frontend: for each connection it asks the plan which frontend the socket serves. A
//! connection is admitted or reset before any task or buffer exists for it.

use std::future::pending;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::{Admission, Limits, Permit, Refusal};
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Frontend, SocketKey};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{SockFilter, Socket};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio::time::{sleep, timeout};

use super::admission::{Place, Reservation, is_trusted, room_at};
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
                admit_or_reset(worker, key, &plan, accepted, now, Ok(reservation));
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

/// Accepts the connections in the kernel's backlog. Connections still in the backlog when the socket is closed are reset by the
/// kernel. A client belongs to the frontend of the same name in the plan in force. Where none listens, only who finds room at once
/// is admitted, by the last plan that had the socket.
async fn accept_backlog(
    worker: &Rc<Worker>,
    key: &Rc<SocketKey>,
    listener: &AsyncFd<Arc<Socket>>,
    plan: &WorkerPlan,
) {
    let last = Place {
        plan: Rc::clone(plan),
        key: Rc::clone(key),
    };
    let mut next = last.after(worker);
    let (mut pauses, mut errors) = (0, 0);
    while pauses < MAX_PAUSES && errors < MAX_ERRORS {
        match accept(listener) {
            Ok(Some(accepted)) => admit_last(worker, &last, next.as_ref(), accepted),
            Ok(None) => return,
            Err(error) => {
                report_error(worker, key, &error);
                if socket_error::is_exhausted(&error) {
                    pauses += 1;
                    sleep(EXHAUSTED_PAUSE).await;
                    next = last.after(worker);
                } else {
                    errors += 1;
                }
            }
        }
    }
}

/// Admits one of the last clients of a closing socket, refuses it, or has it wait for room at the frontend that it has `next`. It
/// counts in the process from now on.
fn admit_last(
    worker: &Rc<Worker>,
    last: &Place,
    next: Option<&Place>,
    (socket, peer): (TcpStream, SocketAddr),
) {
    let (shared, place) = (&worker.shared, next.unwrap_or(last));
    let Some(frontend) = place.frontend() else {
        return;
    };
    let (now, most) = (shared.clock.now(), shared.most.load(Ordering::Relaxed));
    let in_process = |most| {
        let limits = Limits {
            connections: Some(most),
            ..Limits::default()
        };
        let permit = shared.admit.accept_now(&limits, now);
        permit.ok_or(Refusal::MaxConnections)
    };
    let at_frontend = || frontend.state().admit().accept_now(frontend.limits(), now);
    let room = match frontend.waits().then(at_frontend) {
        Some(None) if next.is_some() => match in_process(most - most / 4) {
            Ok(process) => {
                let wait =
                    wait_and_admit(Waits::new(worker), place.clone(), (socket, peer), process);
                tokio::task::spawn_local(wait);
                return;
            }
            Err(refusal) => Err(refusal),
        },
        Some(None) => Err(Refusal::MaxConnections),
        permit => in_process(most.saturating_add(MOST_ABOVE)).map(|process| Reservation {
            process: Some(process),
            frontend: permit.flatten(),
            now,
        }),
    };
    admit_or_reset(worker, &place.key, &place.plan, (socket, peer), now, room);
}

/// Admits a client that has waited in the backlog for room at its frontend, once there is room, or refuses it. The socket that it
/// waited at is gone.
async fn wait_and_admit(
    waits: Waits,
    mut place: Place,
    (socket, peer): (TcpStream, SocketAddr),
    process: Permit,
) {
    let worker = &waits.0;
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else {
        return;
    };
    let peer = Key::new(peer).client();
    let room = tokio::select! {
        room = timeout(LONGEST_WAIT, room_at(worker, &mut place, peer)) => room,
        _ = socket.ready(Interest::ERROR) => return,
    };
    let now = worker.shared.clock.now();
    let room = room.unwrap_or(Err(Refusal::MaxConnections));
    let room = room.map(|frontend| Reservation {
        process: Some(process),
        frontend,
        now,
    });
    if let Ok(socket) = socket.into_std() {
        let accepted = (socket, peer);
        admit_or_reset(worker, &place.key, &place.plan, accepted, now, room);
    }
}

/// A client of a closed socket that waits. It counts among its worker's connections, for which the end of the process waits.
struct Waits(Rc<Worker>);

impl Waits {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.load().fetch_add(1, Ordering::Relaxed);
        Self(Rc::clone(worker))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.load().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Admits one connection or resets it. An admitted connection is served here, or by a worker that has far fewer connections.
fn admit_or_reset(
    worker: &Rc<Worker>,
    key: &Rc<SocketKey>,
    plan: &WorkerPlan,
    (socket, peer): (TcpStream, SocketAddr),
    now: Moment,
    room: Result<Reservation, Refusal>,
) {
    let Some(frontend) = plan.frontend(key) else {
        return;
    };
    let counters = frontend.state().counters().of(worker.id);
    counters.connections.add(1);
    worker.counters().accepted.add(1);
    let peer = Key::new(peer).client();
    let is_trusted = is_trusted(frontend, peer);
    let admitted = room.and_then(|room| admit(worker, frontend, peer, is_trusted, now, room));
    let (admission, process) = match admitted {
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
    room: Reservation,
) -> Result<(Admission, Admission), Refusal> {
    let permit = room.frontend;
    let (admit, limits) = (frontend.state().admit(), frontend.limits());
    let admission = if is_trusted {
        admit.admit_peer(limits, now, permit)
    } else {
        admit.admit(limits, peer.ip(), now, permit)
    }?;
    let shared = &worker.shared;
    let process = shared
        .admit
        .admit_peer(&shared.limits(), now, room.process)?;
    Ok((admission, process))
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
/// How many connections above the limit of the process closing sockets may admit: their clients cannot wait in a backlog.
const MOST_ABOVE: u32 = 32;
/// How long a client of a closed socket waits for room at its frontend.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Errors after which a closing socket gives up: connections that ended before they were accepted, at most as many as the
/// backlog holds.
const MAX_ERRORS: u32 = 4_096;
