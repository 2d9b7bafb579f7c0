//! Connections of HTTP/2 to endpoints, each of which serves many requests at once. Each worker has its own.
//!
//! A connection has a task that moves its bytes. While nobody uses it, only [`Links`] holds it; once that lets it go, the task
//! says so to the endpoint and closes the connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::service::Service;
use ballast_core::table;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use super::by_owner::{ByOwner, Owner, identity};
use super::pool::{IDLE, Pool, is_same_service};
use crate::tls::MaybeTls;
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

/// A connection.
struct State {
    sender: SendRequest<Bytes>,
    endpoint: Arc<EndpointState>,
    /// The service as it was when the connection was made.
    service: Arc<table::Service>,
    /// Requests that use it.
    requests: Cell<usize>,
    /// When the last one of them ended.
    since: Cell<Moment>,
    status: Rc<Status>,
}

/// What the task of a connection says of it.
#[derive(Debug, Default)]
struct Status {
    has_ended: Cell<bool>,
    is_cut: Cell<bool>,
}

/// A connection that is being made. Further requests wait for it.
#[derive(Debug)]
pub(crate) struct Connecting {
    endpoint: usize,
    owner: Owner,
    outcome: Cell<Option<Outcome>>,
    ended: Notify,
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
}

/// What there is for a request.
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
        io.close_in_order();
        let status = Rc::<Status>::default();
        let io = Watched {
            io,
            status: Rc::clone(&status),
        };
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(super::STREAM_WINDOW)
            .initial_connection_window_size(super::CONNECTION_WINDOW)
            .max_send_buffer_size(super::SEND_BUFFER)
            .max_header_list_size(MAX_HEADER_LIST)
            .handshake::<_, Bytes>(io)
            .await
            .map_err(io::Error::other)?;
        let link = Rc::new(State {
            sender,
            endpoint: Arc::clone(endpoint),
            service: Arc::clone(service.spec()),
            requests: Cell::new(0),
            since: Cell::new(worker.shared.clock.soon()),
            status: Rc::clone(&status),
        });
        tokio::task::spawn_local(async move {
            let ended = connection.await;
            status.has_ended.set(true);
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to an endpoint ended");
            }
        });
        let links = &worker.pool.links;
        let mut open = links.open.borrow_mut();
        open.push(how.owner, endpoint, Rc::clone(&link));
        drop(open);
        Pool::begin_sweeping(worker);
        Ok(Use::new(&link, worker))
    }

    /// Lets go of the connections that a client connection owned.
    pub(super) fn forget(&self, owner: Owner) {
        let gone = self.open.borrow_mut().remove_owned(owner);
        drop(gone);
    }

    /// Lets go of the connections to these endpoints. Their sockets are cut by the poller.
    pub(super) fn cut(&self, endpoints: &[Arc<EndpointState>]) {
        let gone = self.open.borrow_mut().remove_of(endpoints);
        drop(gone);
    }

    /// Lets go of the connections that have ended, and of those that nobody has used for a while.
    pub(super) fn sweep(&self, now: Moment) {
        let is_gone = |link: &mut Rc<State>| {
            let is_idle = link.requests.get() == 0 && now.since(link.since.get()) >= IDLE;
            is_idle || !link.is_open()
        };
        let gone = self.open.borrow_mut().remove_if(is_gone);
        drop(gone);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }
}

impl State {
    fn is_open(&self) -> bool {
        // Not waited for: an error shows that the endpoint takes no further requests.
        let mut cx = Context::from_waker(Waker::noop());
        let ready = self.sender.clone().poll_ready(&mut cx);
        !self.status.has_ended.get()
            && !self.status.is_cut.get()
            && !self.endpoint.has_ended()
            && !matches!(ready, Poll::Ready(Err(_)))
    }

    fn has_room(&self) -> bool {
        self.requests.get() < self.sender.current_max_send_streams()
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
        Self {
            state: Rc::clone(state),
            worker: Rc::clone(worker),
        }
    }

    /// Sends the head of a request; `is_whole`: it has no body.
    pub(super) fn send(
        &self,
        head: http::Request<()>,
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.state.sender.clone().send_request(head, is_whole)
    }

    /// Whether an order has cut the connection.
    pub(super) fn is_cut(&self) -> bool {
        self.state.status.is_cut.get()
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let state = &self.state;
        state.requests.set(state.requests.get() - 1);
        state.since.set(self.worker.shared.clock.soon());
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
    /// The connection cannot be made. Whoever waits for it tries by itself.
    pub(crate) fn fail(self) {
        self.coming.outcome.set(Some(Outcome::Failed));
    }
}

impl Connecting {
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

/// A stream that fails when an order cuts its endpoint's connections.
struct Watched {
    io: MaybeTls,
    status: Rc<Status>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.io.is_cut() {
            self.io.close_by_reset();
            self.status.is_cut.set(true);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Endpoints are told so much for the head of a response, names, values and 32 bytes for each field.
const MAX_HEADER_LIST: u32 = 64 * 1024;
