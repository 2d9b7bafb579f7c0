//! Accepts connections at the admin addresses. Where there is no room, a connection is closed for the new one, so that a client
//! that says nothing, or reads slowly, keeps no other client waiting.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::answers::Answers;
use super::handler::{Handler, Peer};
use super::listeners::Purpose;
use super::places::Places;
use crate::os::log::LogLimiter;
use crate::os::panics::vital;

/// The limits of connections, which all admin addresses share.
#[derive(Debug)]
pub(super) struct Connections {
    handler: Rc<Handler>,
    everybody: Arc<Places>,
    /// At the addresses where only health is answered.
    health: Arc<Places>,
    reserve: RefCell<Reserve>,
    full: LogLimiter,
    leaving: CancellationToken,
}

impl Connections {
    pub(super) fn new(handler: Rc<Handler>) -> Rc<Self> {
        let connections = Rc::new(Self {
            handler,
            everybody: Places::new(MOST_CONNECTIONS),
            health: Places::new(MOST_FOR_HEALTH),
            reserve: RefCell::new(Reserve::new()),
            full: LogLimiter::new(),
            leaving: CancellationToken::new(),
        });
        let keeping = vital(
            "the admin side's reserve",
            Rc::clone(&connections).keep_reserve(),
        );
        tokio::task::spawn_local(keeping);
        connections
    }

    /// Accepts connections at one address for as long as the process lives.
    pub(super) async fn accept(self: Rc<Self>, listener: Arc<TcpListener>, purpose: Purpose) {
        loop {
            let accepted = match listener.accept().await {
                Ok(accepted) => Poll::Ready(Ok(accepted)),
                // Out of descriptors: what is kept for this is given up, so that an operator still sees why.
                Err(_) => self.reserve.borrow_mut().accept(&listener),
            };
            match accepted {
                Poll::Ready(Ok((stream, from))) => {
                    self.receive(stream, from, purpose);
                    // A request that has come is read before another connection is accepted: it keeps its place then.
                    yield_now().await;
                }
                Poll::Ready(Err(_)) => sleep(EXHAUSTED_PAUSE).await,
                // Without a free descriptor the kernel does not even report that no client waits.
                Poll::Pending => {}
            }
        }
    }

    /// Accepts who waits at a listener that is about to be closed.
    pub(super) fn accept_rest(self: &Rc<Self>, listener: &TcpListener, purpose: Purpose) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok((stream, from))) = listener.poll_accept(&mut context) {
            self.receive(stream, from, purpose);
        }
    }

    /// Each connection ends after the reply that its client waits for.
    pub(super) fn close(&self) {
        self.leaving.cancel();
    }

    fn receive(self: &Rc<Self>, stream: TcpStream, from: SocketAddr, purpose: Purpose) {
        let places = match purpose {
            Purpose::Everything => &self.everybody,
            Purpose::Health => &self.health,
        };
        let cut = CancellationToken::new();
        let place = places.take(from, false, cut.clone());
        let closed = place.as_ref().map_or(Some(from), |place| place.instead_of);
        if let Some(from) = closed
            && let Some(suppressed) = self.full.allow(self.handler.stats.shared.clock.now())
        {
            tracing::warn!(%from, suppressed, "too many connections to the admin side: one of the client that has the most is closed");
        }
        let Some(place) = place else {
            drop(stream);
            self.reserve.borrow_mut().refill();
            return;
        };
        let peer = Peer {
            address: from,
            purpose,
            until: Rc::new(Cell::new(Instant::now() + super::LONGEST)),
            cut,
            answers: Answers::new(place),
        };
        let connections = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let handler = Rc::clone(&connections.handler);
            let leaving = connections.leaving.clone();
            let count = &handler.stats.shared.status.admin_connections;
            count.fetch_add(1, Ordering::SeqCst);
            super::serve_connection(stream, Rc::clone(&handler), peer, leaving).await;
            count.fetch_sub(1, Ordering::SeqCst);
            connections.reserve.borrow_mut().refill();
        });
    }

    /// Refills the reserve as soon as descriptors are free again.
    async fn keep_reserve(self: Rc<Self>) {
        loop {
            sleep(REFILL_EVERY).await;
            self.reserve.borrow_mut().refill();
        }
    }
}

/// Open descriptors that are given up when the process has no other left.
#[derive(Debug)]
struct Reserve(Vec<File>);

impl Reserve {
    fn new() -> Self {
        let mut reserve = Self(Vec::new());
        reserve.refill();
        reserve
    }

    /// Accepts by a descriptor of the reserve, at once: the workers want it too.
    fn accept(&mut self, listener: &TcpListener) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let mut accepted = Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        while matches!(accepted, Poll::Ready(Err(_))) && self.0.pop().is_some() {
            accepted = listener.poll_accept(&mut Context::from_waker(Waker::noop()));
        }
        self.refill();
        accepted
    }

    fn refill(&mut self) {
        while self.0.len() < RESERVED {
            match File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return,
            }
        }
    }
}

/// At once, at all addresses where everything is answered.
const MOST_CONNECTIONS: usize = 128;
const MOST_FOR_HEALTH: usize = 32;
const RESERVED: usize = 8;
const REFILL_EVERY: Duration = Duration::from_millis(250);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
