//! Connections of HTTP/2 to endpoints, each of which serves many requests at once. Each worker has its own.
//!
//! A connection has a task that moves its bytes. While no request uses it, only [`Links`] holds it; once that lets it go, the task
//! says so to the endpoint and closes the connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use ballast_core::endpoint::{EndpointState, Idling};
use ballast_core::http2::{Config, Connection};
use ballast_core::moment::Moment;
use ballast_core::service::Service;
use ballast_core::table;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use super::by_owner::{ByOwner, Owner, identity};
use super::{IDLE, Pool, is_same_service};
use crate::net::mux::{Mux, Stream};
use crate::net::poller::Timer;
use crate::net::relay::watch;
use crate::net::tls::MaybeTls;
use crate::worker::Worker;

/// How a caller of the dial uses such connections.
#[derive(Clone, Copy)]
pub(crate) struct Multiplexed {
    /// To whom connections of the service belong.
    pub(crate) owner: Owner,
}

/// The connections of one worker.
#[derive(Debug, Default)]
pub(crate) struct Links {
    open: RefCell<ByOwner<Rc<State>>>,
    connecting: RefCell<VecDeque<Rc<Connecting>>>,
}

struct State {
    mux: Rc<Mux>,
    endpoint: Arc<EndpointState>,
    /// The service as it was when the connection was made.
    service: Arc<table::Service>,
    /// Requests that use it.
    requests: Cell<usize>,
    /// When the last one of them ended.
    since: Cell<Moment>,
    /// While no request uses it.
    idling: Cell<Option<Idling>>,
    /// Whether it belongs to one client.
    is_private: bool,
    status: Rc<Status>,
}

/// The state of a connection as a whole, beside that of its streams.
#[derive(Debug, Default)]
struct Status {
    has_ended: Cell<bool>,
    is_cut: Cell<bool>,
    /// Whether a request has waited for too long: the endpoint may be gone, so it is sent no further ones.
    is_doubtful: Cell<bool>,
    /// Whether the endpoint has given no sign of life when it was asked.
    is_silent: Cell<bool>,
}

/// A connection that is being made. Further requests wait for it.
#[derive(Debug)]
pub(crate) struct Connecting {
    endpoint: usize,
    owner: Owner,
    outcome: Cell<Option<Outcome>>,
    ended: Notify,
    /// Requests that wait for it, beside its maker.
    waiting: Cell<usize>,
    deserted: Notify,
}

/// A request's wait for a connection that another one makes.
pub(crate) struct Waiter<'a>(&'a Connecting);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.waiting;
        waiting.set(waiting.get() - 1);
        if !self.0.is_awaited() {
            self.0.deserted.notify_waiters();
        }
    }
}

/// What became of an announced connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is there, or its maker no longer wants it.
    Over,
    /// It cannot be made.
    Failed,
}

/// A request's use of a connection.
pub(crate) struct Use {
    state: Rc<State>,
    worker: Rc<Worker>,
    /// When the request was sent.
    sent: Cell<Moment>,
}

pub(crate) enum Found {
    Link(Use),
    /// Its connection may soon be there.
    Connecting(Rc<Connecting>),
    Nothing,
}

impl Links {
    /// A connection to this endpoint with room for one more request. `may_idle`: it may be one that serves no request now, which
    /// the endpoint may be closing.
    pub(crate) fn find(
        &self,
        worker: &Rc<Worker>,
        endpoint: &Arc<EndpointState>,
        service: &Arc<table::Service>,
        owner: Owner,
        may_idle: bool,
    ) -> Found {
        let mut open = self.open.borrow_mut();
        if let Some(links) = open.get_mut(owner, endpoint) {
            links.retain(|link| link.is_open());
            let usable = links.iter().find(|link| {
                is_same_service(&link.service, service)
                    && link.has_room()
                    && (may_idle || link.requests.get() > 0)
            });
            if let Some(link) = usable {
                return Found::Link(Use::new(link, worker));
            }
        }
        let connecting = self.connecting.borrow();
        let coming = connecting
            .iter()
            .find(|coming| coming.endpoint == identity(endpoint) && coming.owner == owner);
        coming.map_or(Found::Nothing, |coming| {
            Found::Connecting(Rc::clone(coming))
        })
    }

    /// Announces a connection, until the guard is dropped.
    pub(crate) fn announce(
        worker: &Rc<Worker>,
        endpoint: &Arc<EndpointState>,
        owner: Owner,
    ) -> Announced {
        let coming = Rc::new(Connecting {
            endpoint: identity(endpoint),
            owner,
            outcome: Cell::new(None),
            ended: Notify::new(),
            waiting: Cell::new(0),
            deserted: Notify::new(),
        });
        let links = &worker.pool.links;
        links.connecting.borrow_mut().push_back(Rc::clone(&coming));
        Announced {
            coming,
            worker: Rc::clone(worker),
        }
    }

    /// Begins HTTP/2 on a new connection, and keeps it for the requests to come. `header` is sent first.
    pub(crate) async fn begin(
        worker: &Rc<Worker>,
        mut io: MaybeTls,
        header: Vec<u8>,
        endpoint: &Arc<EndpointState>,
        service: &Arc<Service>,
        how: Multiplexed,
    ) -> io::Result<Use> {
        if !header.is_empty() {
            io.write_all(&header).await?;
        }
        // The endpoint may be gone without a word, and take no bytes any more.
        watch(io.stream());
        io.close_in_order();
        let status = Rc::<Status>::default();
        let mux = Mux::new(Connection::client(config()), worker.shared.clock.now());
        let link = Rc::new(State {
            mux: Rc::clone(&mux),
            endpoint: Arc::clone(endpoint),
            service: Arc::clone(service.spec()),
            requests: Cell::new(0),
            since: Cell::new(worker.shared.clock.soon()),
            idling: Cell::default(),
            is_private: how.owner.is_some(),
            status: Rc::clone(&status),
        });
        let driver = drive(Rc::clone(worker), io, mux, Rc::downgrade(&link), status);
        tokio::task::spawn_local(driver);
        let links = &worker.pool.links;
        let mut open = links.open.borrow_mut();
        open.push(how.owner, endpoint, Rc::clone(&link));
        drop(open);
        Pool::begin_sweeping(worker);
        Ok(Use::new(&link, worker))
    }

    /// Lets go of the connections that a client connection owned.
    pub(crate) fn forget(&self, owner: Owner) {
        let gone = self.open.borrow_mut().remove_owned(owner);
        drop(gone);
    }

    /// Lets go of the connections to these endpoints. Their sockets are cut by the poller.
    pub(crate) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        let gone = self.open.borrow_mut().remove_of(endpoints);
        drop(gone);
    }

    /// Lets go of the connections that have ended, and of those that were not used for a while.
    pub(crate) fn sweep(&self, now: Moment) {
        let is_gone = |link: &mut Rc<State>| {
            let is_idle = link.requests.get() == 0 && now.since(link.since.get()) >= IDLE;
            is_idle || !link.is_open()
        };
        let gone = self.open.borrow_mut().remove_if(is_gone);
        drop(gone);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }
}

impl State {
    fn is_open(&self) -> bool {
        let status = &self.status;
        !status.has_ended.get()
            && !status.is_cut.get()
            && !status.is_doubtful.get()
            && !self.endpoint.has_ended()
            && self.mux.with(Connection::takes_requests)
    }

    fn has_room(&self) -> bool {
        self.mux.with(Connection::has_room)
    }
}

/// Its driver closes the connection, once no request uses it.
impl Drop for State {
    fn drop(&mut self) {
        self.mux.wake_driver();
    }
}

/// Moves the bytes of a connection until it ends, or until nothing holds it any more.
async fn drive(
    worker: Rc<Worker>,
    mut io: MaybeTls,
    mux: Rc<Mux>,
    link: Weak<State>,
    status: Rc<Status>,
) {
    let mut timer = Timer::new(&worker.tools.poller);
    let clock = worker.shared.clock;
    // When the endpoint was asked for a sign of life.
    let mut asked: Option<Moment> = None;
    poll_fn(|cx| {
        loop {
            if io.is_cut() {
                io.close_by_reset();
                status.is_cut.set(true);
                return Poll::Ready(());
            }
            if mux.poll(&mut io, &worker.tools, cx, &mut drop).is_ready() {
                return Poll::Ready(());
            }
            if link.strong_count() == 0 {
                io.close();
                return Poll::Ready(());
            }
            if mux.with(|core| core.streams() == 0) {
                asked = None;
                timer.clear();
                return Poll::Pending;
            }
            let (heard, now) = (mux.heard(), clock.soon());
            asked = asked.filter(|_| !mux.is_alive());
            let deadline = match asked {
                Some(asked) => asked.after(PING_TIMEOUT),
                None => heard.after(SILENCE),
            };
            if now < deadline {
                timer.set(deadline);
                ready!(timer.poll(cx));
                continue;
            }
            if asked.is_some() {
                tracing::debug!(local = ?io.local_addr(), "an endpoint does not answer PING");
                status.is_silent.set(true);
                io.close_by_reset();
                return Poll::Ready(());
            }
            mux.ping();
            asked = Some(now);
        }
    })
    .await;
    status.has_ended.set(true);
    if let Some(link) = link.upgrade() {
        link.idling.set(None);
    }
    mux.end();
}

fn config() -> Config {
    Config {
        // An endpoint opens none.
        max_streams: 0,
        window: u32::try_from(ENDPOINT_WINDOW).unwrap_or(u32::MAX),
        max_head: MAX_HEAD,
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("endpoint", &self.endpoint.address())
            .field("requests", &self.requests)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl Use {
    fn new(state: &Rc<State>, worker: &Rc<Worker>) -> Self {
        state.requests.set(state.requests.get() + 1);
        state.idling.set(None);
        Self {
            state: Rc::clone(state),
            worker: Rc::clone(worker),
            sent: Cell::default(),
        }
    }

    /// Sends the head of a request; `is_whole`: it has no body. `None`: the endpoint takes no request by this connection now.
    pub(crate) fn request(
        &self,
        block: &[u8],
        is_whole: bool,
        asks_for_head: bool,
    ) -> Option<Stream> {
        let now = self.worker.shared.clock.soon();
        self.sent.set(now);
        self.state.mux.request(block, is_whole, asks_for_head, now)
    }

    /// Whether an order has cut the connection.
    pub(crate) fn is_cut(&self) -> bool {
        self.state.status.is_cut.get()
    }

    /// Whether the endpoint has given no sign of life when it was asked.
    pub(crate) fn is_silent(&self) -> bool {
        self.state.status.is_silent.get()
    }

    /// Whether the endpoint has sent something by this connection since the request was sent.
    pub(crate) fn has_heard(&self) -> bool {
        self.state.mux.last_read() > self.sent.get()
    }

    /// The endpoint may be gone: the connection gets no further requests.
    pub(crate) fn doubt(&self) {
        self.state.status.is_doubtful.set(true);
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let state = &self.state;
        state.requests.set(state.requests.get() - 1);
        state.since.set(self.worker.shared.clock.soon());
        if state.requests.get() == 0 && !state.status.has_ended.get() {
            let idling = Idling::begin(&state.endpoint, self.worker.id, state.is_private);
            state.idling.set(Some(idling));
        }
    }
}

/// A connection that its maker has announced. Dropping this wakes those who wait for it.
pub(crate) struct Announced {
    coming: Rc<Connecting>,
    worker: Rc<Worker>,
}

impl Drop for Announced {
    fn drop(&mut self) {
        let mut connecting = self.worker.pool.links.connecting.borrow_mut();
        connecting.retain(|coming| !Rc::ptr_eq(coming, &self.coming));
        drop(connecting);
        if self.coming.outcome.get().is_none() {
            self.coming.outcome.set(Some(Outcome::Over));
        }
        self.coming.ended.notify_waiters();
    }
}

impl Announced {
    pub(crate) fn coming(&self) -> Rc<Connecting> {
        Rc::clone(&self.coming)
    }

    /// The connection cannot be made. Whoever waits for it tries by itself.
    pub(crate) fn fail(self) {
        self.coming.outcome.set(Some(Outcome::Failed));
    }
}

impl Connecting {
    /// Counts a request that waits for the connection, until the guard is dropped.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        self.waiting.set(self.waiting.get() + 1);
        Waiter(self)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.get() > 0
    }

    /// Waits until no request waits for the connection.
    pub(crate) async fn deserted(&self) {
        let mut deserted = pin!(self.deserted.notified());
        poll_fn(|cx| {
            if self.is_awaited() {
                deserted.as_mut().poll(cx)
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    /// Waits until the connection is there, or cannot be made.
    pub(crate) async fn ended(&self) -> Outcome {
        let mut ended = pin!(self.ended.notified());
        poll_fn(|cx| match self.outcome.get() {
            Some(outcome) => Poll::Ready(outcome),
            None => ended.as_mut().poll(cx).map(|()| Outcome::Over),
        })
        .await
    }
}

/// The window of a response's stream at an endpoint that speaks HTTP/2, before the client has taken anything of it.
pub(crate) const ENDPOINT_WINDOW: usize = 16 * 1024;
/// The most bytes of the head of a response: names, values, and 32 bytes for each field.
const MAX_HEAD: usize = 64 * 1024;
/// An endpoint with requests under way that has sent nothing for this time is asked for a sign of life.
const SILENCE: Duration = Duration::from_secs(10);
/// Without an answer for this time, the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
