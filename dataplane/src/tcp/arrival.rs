//! A connection between the accept and its story: it is let in or turned away before any task or buffer exists, and
//! goes to the worker that is to serve it.

use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ballast_core::admit::Admission;
use ballast_core::counters::WorkerId;
use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{Plan, SocketKey};
use socket2::SockRef;
use tokio::sync::mpsc::error::SendError;

use super::permits::Permits;
use super::serve;
use crate::worker::{Order, Shared, Worker};

/// A connection that was let in, on its way to the worker that will serve it.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) socket: Unheard,
    pub(super) peer: SocketAddr,
    /// When it was accepted.
    pub(super) began: Moment,
    pub(super) key: Arc<SocketKey>,
    pub(super) plan: Arc<Plan>,
    pub(super) admission: Admission,
    pub(super) process: Option<Admission>,
    pub(super) trusted: bool,
    pub(super) handed_over: Option<HandedOver>,
}

/// Admits one connection, and gives it to the worker that is to serve it.
pub(super) fn arrive(
    worker: &Rc<Worker>,
    key: &Arc<SocketKey>,
    plan: Arc<Plan>,
    (socket, peer): (TcpStream, SocketAddr),
    now: Moment,
    permits: Option<Permits>,
) {
    let Some(frontend) = plan.frontend(key) else {
        return;
    };
    let counters = frontend.state().counters().of(worker.id);
    counters.connections.add(1);
    worker.counters().accepted.add(1);
    let shared = &worker.shared;
    let peer = Key::new(peer).client();
    let trusted = frontend
        .accept_proxy()
        .is_some_and(|accept| accept.trusts(peer.ip()));
    // The last ones of a socket that is closed are not counted by the process.
    let (process, permit) = match permits {
        Some(permits) => (Some(permits.process), permits.frontend),
        None => (None, None),
    };
    let admit = frontend.state().admit();
    let admitted = if trusted {
        admit.admit_peer(frontend.limits(), now, permit)
    } else {
        admit.admit(frontend.limits(), peer.ip(), now, permit)
    };
    let admitted = admitted.and_then(|admission| {
        let enter = |permit| shared.admit.admit_peer(&shared.limits(), now, permit);
        Ok((admission, process.map(enter).transpose()?))
    });
    let (admission, process) = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => {
            counters.refused[refusal.index()].add(1);
            turn_away(&socket);
            return;
        }
    };
    let arrival = Arrival {
        socket: Unheard(Some(socket)),
        peer,
        began: now,
        key: Arc::clone(key),
        plan,
        admission,
        process,
        trusted,
        handed_over: None,
    };
    if let Some(mine) = hand_over(worker, arrival) {
        serve(worker, mine);
    }
}

/// Gives it to a worker that has much less to do. What comes back is served here.
fn hand_over(worker: &Rc<Worker>, mut arrival: Arrival) -> Option<Arrival> {
    let shared = &worker.shared;
    let Some(other) = shared.less_loaded_than(worker.id) else {
        return Some(arrival);
    };
    let Some(inbox) = shared.inboxes.get(other.0) else {
        return Some(arrival);
    };
    worker.counters().handed_over.add(1);
    arrival.handed_over = Some(HandedOver::new(shared, other));
    match inbox.send(Order::Serve(arrival)) {
        // A worker that is gone gives it back.
        Err(SendError(Order::Serve(back))) => Some(back),
        Ok(()) | Err(_) => None,
    }
}

/// Makes the close of a refused connection a reset: its client learns at once.
fn turn_away(socket: &TcpStream) {
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}

/// The socket of a client whom nobody has taken on yet. Dropped, it resets.
#[derive(Debug)]
pub(super) struct Unheard(Option<TcpStream>);

impl Unheard {
    pub(super) fn heard(mut self) -> Option<TcpStream> {
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
pub(super) struct HandedOver {
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
