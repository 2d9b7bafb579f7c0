//! A TCP connection's story: accept, admit, PROXY header, dial, relay, account.
//!
//! The accept loop belongs to a socket, not to a frontend: whose client has come is asked of the plan for each
//! connection. Who is refused is refused before any task or buffer exists.

use std::future::Future;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::{Admission, Refusal};
use ballast_core::counters::WorkerId;
use ballast_core::endpoint::{EndpointCounters, Lease};
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{FrontendState, Plan, Serves, SocketKey};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{SockRef, Socket};
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, error::SendError};
use tokio::time::sleep;

use crate::access::{Dial, Entry};
use crate::dial::{self, Caller, Dialed, Unserved, Waiting};
use crate::log::Rarely;
use crate::preamble;
use crate::relay::{self, Patience, Side, relay};
use crate::worker::{Closing, Order, Shared, Worker};

mod permits;
#[cfg(test)]
pub(crate) mod tests;

use permits::Permits;

/// Accepts until it is told to close.
pub(crate) async fn accept_loop(
    worker: Rc<Worker>,
    key: Arc<SocketKey>,
    listener: AsyncFd<Socket>,
    mut closing: mpsc::Receiver<Closing>,
) {
    loop {
        let last = tokio::select! {
            biased;
            last = closing.recv() => last,
            () = accept_some(&worker, &key, &listener) => continue,
        };
        let Some(last) = last else {
            return;
        };
        // What the kernel has accepted already is served by the last plan that knew this socket.
        while let Ok(Some((socket, peer))) = accept(&listener) {
            arrive(&worker, &key, Arc::clone(&last.plan), socket, peer, None);
        }
        drop(listener);
        last.done.send(()).ok();
        return;
    }
}

/// Waits for connections and takes in a batch of them, so that other tasks have their turn in between.
async fn accept_some(worker: &Rc<Worker>, key: &Arc<SocketKey>, listener: &AsyncFd<Socket>) {
    let Ok(mut ready) = listener.readable().await else {
        return;
    };
    for _ in 0..BATCH {
        let Some((plan, permits)) = Permits::wait(worker, key).await else {
            // No table wants this socket any more: the order to close it is on its way.
            return std::future::pending().await;
        };
        match accept(listener) {
            Ok(Some((socket, peer))) => arrive(worker, key, plan, socket, peer, Some(permits)),
            Ok(None) => {
                ready.clear_ready();
                return;
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                worker.shared.count_accept_error(errno);
                if is_exhausted(&error) {
                    static SAID: Rarely = Rarely::new();
                    if let Some(unsaid) = SAID.say(worker.shared.clock.now()) {
                        tracing::warn!(address = %key, %error, unsaid, "cannot accept; waiting for connections to end");
                    }
                    // Time for what is open to end; and nothing else of this worker waits meanwhile.
                    drop(permits);
                    sleep(EXHAUSTED_PAUSE).await;
                    return;
                }
            }
        }
    }
    tokio::task::yield_now().await;
}

/// The next connection; `None` if there is none.
fn accept(listener: &AsyncFd<Socket>) -> io::Result<Option<(StdTcpStream, SocketAddr)>> {
    match acceptfrom_with(
        listener.get_ref(),
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
    ) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            // Without an address there is nobody to serve; the kernel never does that for TCP.
            Ok(peer.map(|peer| (StdTcpStream::from(socket), peer)))
        }
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A connection that was let in, on its way to the worker that will serve it.
#[derive(Debug)]
pub struct Arrival {
    socket: Unheard,
    peer: SocketAddr,
    key: Arc<SocketKey>,
    plan: Arc<Plan>,
    admission: Admission,
    process: Option<Admission>,
    trusted: bool,
    handed_over: Option<HandedOver>,
}

/// The socket of a client whom nobody has taken on yet. Dropped, it resets.
#[derive(Debug)]
struct Unheard(Option<StdTcpStream>);

impl Unheard {
    fn heard(mut self) -> Option<StdTcpStream> {
        self.0.take()
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.iter().for_each(turn_away);
    }
}

/// Counts a connection on the worker that it is on its way to, until that one counts it itself. Else a worker that is slow
/// to look would be given all of them, and at the end nobody would wait for those in its inbox.
#[derive(Debug)]
struct HandedOver {
    shared: Arc<Shared>,
    to: WorkerId,
}

impl HandedOver {
    fn new(shared: &Arc<Shared>, to: WorkerId) -> Self {
        if let Some(load) = shared.loads.get(to.0) {
            load.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            shared: Arc::clone(shared),
            to,
        }
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        if let Some(load) = self.shared.loads.get(self.to.0) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Admits one connection, and gives it to the worker that is to serve it.
fn arrive(
    worker: &Rc<Worker>,
    key: &Arc<SocketKey>,
    plan: Arc<Plan>,
    socket: StdTcpStream,
    peer: SocketAddr,
    permits: Option<Permits>,
) {
    let Some(frontend) = plan.frontend(key) else {
        return;
    };
    let counters = frontend.state().counters().of(worker.id);
    counters.connections.add(1);
    worker.counters().accepted.add(1);
    let (process, permit) = match permits {
        Some(permits) => (Some(permits.process.used()), permits.frontend),
        None => (None, None),
    };
    let peer = Key::new(peer).client();
    let trusted = frontend
        .accept_proxy()
        .is_some_and(|accept| accept.trusts(peer.ip()));
    let now = worker.shared.clock.now();
    let admit = frontend.state().admit();
    let admitted = if trusted {
        admit.admit_peer(frontend.limits(), now, permit)
    } else {
        admit.admit(frontend.limits(), peer.ip(), now, permit)
    };
    let admission = match admitted {
        Ok(admission) => admission,
        Err(refusal) => {
            counters.refused[refusal.index()].add(1);
            turn_away(&socket);
            return;
        }
    };
    let mut arrival = Arrival {
        socket: Unheard(Some(socket)),
        peer,
        key: Arc::clone(key),
        admission,
        process,
        trusted,
        handed_over: None,
        plan: Arc::clone(&plan),
    };
    let shared = &worker.shared;
    if let Some(other) = shared.less_loaded_than(worker.id)
        && let Some(inbox) = shared.inboxes.get(other.0)
    {
        worker.counters().handed_over.add(1);
        arrival.handed_over = Some(HandedOver::new(shared, other));
        // A worker that is gone gives it back.
        match inbox.send(Order::Serve(arrival)) {
            Err(SendError(Order::Serve(back))) => arrival = back,
            Ok(()) | Err(_) => return,
        }
    }
    serve(worker, arrival);
}

/// Makes the close of a refused connection a reset: its client learns at once.
fn turn_away(socket: &StdTcpStream) {
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}

/// Begins the story of one connection.
pub(crate) fn serve(worker: &Rc<Worker>, arrival: Arrival) {
    let seat = Seat::take(worker);
    let index = seat.index;
    // In a box of its own, which ends with it: an idle connection needs no room for what led to it.
    let reached = Box::pin(reach(Rc::clone(worker), index, arrival));
    let task = tokio::task::spawn_local(story(seat, reached));
    worker.seats.borrow_mut().occupy(index, task.abort_handle());
}

/// A connection's place in its worker, which counts it there however it ends.
struct Seat {
    worker: Rc<Worker>,
    index: usize,
}

impl Seat {
    fn take(worker: &Rc<Worker>) -> Self {
        worker.load().fetch_add(1, Ordering::Relaxed);
        Self {
            index: worker.seats.borrow_mut().reserve(),
            worker: Rc::clone(worker),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.worker.seats.borrow_mut().leave(self.index);
        self.worker.load().fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client, and the endpoint that was found for it.
struct Reached {
    client: TcpStream,
    admission: Admission,
    process: Option<Admission>,
    frontend: Arc<FrontendState>,
    began: Moment,
    entry: Option<Box<Entry>>,
    endpoint: TcpStream,
    lease: Lease,
    /// What the endpoint hears before the client's own bytes.
    first: Vec<u8>,
    patience: Patience,
    /// The client's idle time is not longer than the endpoint's.
    client_is_stricter: bool,
}

/// The story of one connection: an endpoint is reached, and bytes go both ways until the end.
async fn story(seat: Seat, reached: Pin<Box<impl Future<Output = Option<Reached>>>>) {
    // Taken apart at once: a name for the whole would keep its room.
    let Some(Reached {
        client,
        admission: _admission,
        process: _process,
        frontend,
        began,
        mut entry,
        endpoint,
        lease,
        first,
        patience,
        client_is_stricter,
    }) = reached.await
    else {
        return;
    };
    let worker = &*seat.worker;
    let session = Session {
        worker,
        lease,
        began,
    };
    #[cfg(test)]
    let peer = client.peer_addr().ok();
    let moved = |up, down| {
        #[cfg(test)]
        tests::come_by(tests::RELAYING, peer);
        let (frontend, endpoint) = (frontend.counters().of(worker.id), session.counters());
        frontend.bytes_in.add(up);
        frontend.bytes_out.add(down);
        endpoint.bytes_in.add(up);
        endpoint.bytes_out.add(down);
        if let Some(entry) = &mut entry {
            entry.moved(up, down);
        }
    };
    let closed = relay(client, endpoint, first, patience, &worker.tools, moved).await;
    let fault = closed.fault(client_is_stricter);
    if let Some(mut entry) = entry {
        entry.closed(closed.why, fault);
    }
    session.account(fault);
}

/// From the accepted socket to an endpoint; `None` if there is none for it, which then was counted and told.
async fn reach(worker: Rc<Worker>, seat: usize, arrival: Arrival) -> Option<Reached> {
    let worker = &worker;
    let Arrival {
        socket,
        peer,
        key,
        plan,
        mut admission,
        process,
        trusted,
        handed_over,
    } = arrival;
    drop(handed_over);
    let began = worker.shared.clock.now();
    let frontend = plan.frontend(&key)?;
    let state = Arc::clone(frontend.state());
    let Ok(client) = TcpStream::from_std(socket.heard()?) else {
        // It cannot be watched: this system has no room for one more.
        refuse(Refusal::Failed, worker, &state, None, Dial::default());
        return None;
    };
    // However this ends, also by being cut: a client who gets no endpoint gets a reset.
    let unserved = Unserving(&client);
    let mut entry = Entry::begin(worker, &state, peer, began);
    let mut caller = Caller::new(peer);
    let seats = &worker.seats;
    seats.borrow_mut().came(seat, peer, key, began);
    let mut first = Vec::new();
    if trusted {
        match Box::pin(preamble::read(&client, frontend, &mut caller)).await {
            Ok(rest) => first = rest,
            Err(end) => {
                // Not each of them: who said nothing is told nothing.
                mem::forget(unserved);
                preamble::account(end, &client, state.counters().of(worker.id), entry);
                return None;
            }
        }
        if let Some(entry) = &mut entry {
            entry.client(caller.key.client());
        }
        let client_ip = caller.key.client().ip();
        seats.borrow_mut().is_for(seat, caller.key.client());
        if let Err(refusal) =
            admission.identify(frontend.limits(), client_ip, worker.shared.clock.now())
        {
            refuse(refusal, worker, &state, entry, Dial::default());
            return None;
        }
    }
    state.counters().of(worker.id).sessions.add(1);
    let Serves::Tcp(service) = frontend.serves() else {
        let refusal = Refusal::NoEndpoint;
        refuse(refusal, worker, &state, entry, Dial::default());
        return None;
    };
    if let Some(entry) = &mut entry {
        entry.service(service);
    }
    let service_name = service.spec().name.clone();
    let (client_timeout, client_fin) = (frontend.client_timeout(), frontend.client_fin());
    let mut dial = Dial::default();
    let waiting = Waiting {
        worker,
        seat,
        client: &client,
    };
    let dialed = dial::connect(waiting, plan, &service_name, &caller, &mut dial).await;
    let dialed = match dialed {
        Ok(dialed) => dialed,
        Err(Unserved::Refused(refusal)) => {
            refuse(refusal, worker, &state, entry, dial);
            return None;
        }
        Err(Unserved::Left(during)) => {
            if let Some(entry) = &mut entry {
                entry.left(during, dial);
            }
            return None;
        }
    };
    mem::forget(unserved);
    let Dialed {
        stream,
        lease,
        name,
        mut header,
        server_timeout,
        server_fin,
    } = dialed;
    header.append(&mut first);
    if let Some(entry) = &mut entry {
        entry.connected(name.unwrap_or_default(), lease.endpoint(), dial);
    }
    let patience = Patience {
        idle: shorter(client_timeout, server_timeout),
        half_closed: client_fin.min(server_fin),
        abort: client_fin,
    };
    Some(Reached {
        client_is_stricter: client_timeout.is_some() && patience.idle == client_timeout,
        client,
        admission,
        process,
        frontend: state,
        began,
        entry,
        endpoint: stream,
        lease,
        first: header,
        patience,
    })
}

/// A client who has no endpoint yet. Unless it is forgotten, its close is a reset.
struct Unserving<'a>(&'a TcpStream);

impl Drop for Unserving<'_> {
    fn drop(&mut self) {
        relay::reset_on_close(self.0);
    }
}

fn refuse(
    refusal: Refusal,
    worker: &Worker,
    state: &FrontendState,
    entry: Option<Box<Entry>>,
    dial: Dial,
) {
    if let Some(mut entry) = entry {
        entry.refused(refusal, dial);
    }
    state.counters().of(worker.id).refused[refusal.index()].add(1);
}

/// A connection that an endpoint has, counted there however it ends: also by a panic, or by being cut.
struct Session<'a> {
    worker: &'a Worker,
    lease: Lease,
    began: Moment,
}

impl Session<'_> {
    fn counters(&self) -> &EndpointCounters {
        self.lease.endpoint().counters(self.worker.id)
    }

    /// Counts whose fault its end was, as the letters of its access line say.
    fn account(self, fault: Option<Side>) {
        match fault {
            Some(Side::Client) => self.counters().client_aborts.add(1),
            Some(Side::Server) => {
                self.counters().server_aborts.add(1);
                self.counters().response_errors.add(1);
            }
            None => {}
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let worker = self.worker;
        self.counters()
            .ended(worker.shared.clock.now().since(self.began));
        worker
            .counters()
            .spliced
            .add(worker.tools.pipes.take_spliced());
    }
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Connections taken in a row before other tasks have their turn.
const BATCH: usize = 32;
/// How long nothing is accepted when descriptors or memory have run out.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
