//! A client's HTTP/2 connection.
//!
//! One task moves its bytes and takes its requests. Each request has a task of its own ([`request`]), so that a panic ends one
//! request. An idle connection holds neither a buffer for bodies nor the plan.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ballast_core::moment::Moment;
use ballast_core::pick::Key;
use ballast_core::plan::{
    Frontend, FrontendCounters, FrontendState, HttpFrontend, Plan, SocketKey,
};
use ballast_core::preamble::{Addresses, Ssl};
use bytes::Bytes;
use h2::server::{Builder, Connection as H2Connection, Handshake};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{frontend_in, linger, local_address, subject};
use crate::poller::Timer;
use crate::tcp::{Connection, ProxyInfo};
use crate::tls::Session;
use crate::worker::Worker;

mod request;

/// What a client sends first (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The client of a connection, as its requests need it.
pub(crate) struct Peer {
    worker: Rc<Worker>,
    frontend: Arc<FrontendState>,
    /// The listening socket that it came in by, which names its frontend in each plan.
    socket: Rc<SocketKey>,
    key: Key,
    addresses: Option<Addresses>,
    proxy_info: Option<Box<ProxyInfo>>,
    /// The address that the client connected to, from its own point of view.
    local: SocketAddr,
    /// How it uses TLS, and whom its certificate names.
    ssl: Option<Ssl<'static>>,
    common_name: Option<Box<str>>,
    subject: Option<Box<str>>,
    slot: usize,
    began: Moment,
    /// How many requests it has sent.
    requests: Cell<u64>,
    /// How many of them are being served.
    active: Cell<usize>,
    /// When the last one ended.
    idle_since: Cell<Moment>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    InOrder,
    /// The client did not keep to HTTP/2, and was told so.
    Refused,
    /// The client's connection failed.
    Failed,
}

/// Serves a client that speaks HTTP/2. `first` are bytes of the client that have been read.
pub(super) async fn serve(connection: &mut Connection, socket: Rc<SocketKey>, first: Vec<u8>) {
    connection.counters().http2_sessions.add(1);
    let peer = Rc::new(Peer::of(connection, socket));
    let io = Prefixed {
        first,
        used: 0,
        io: &mut connection.socket,
    };
    match run(&peer, io).await {
        End::InOrder => connection.socket.close(),
        End::Refused => linger::linger(&connection.worker, &mut connection.socket).await,
        End::Failed => {}
    }
}

/// Serves the requests of `peer`, whose bytes come by `io`: its socket, or what TLS makes of it.
pub(crate) async fn run(peer: &Rc<Peer>, io: impl AsyncRead + AsyncWrite + Unpin) -> End {
    let worker = &peer.worker;
    let mut timer = Timer::new(&worker.tools.poller);
    let end = match begin(peer, io, &mut timer).await {
        Ok(connection) => serve_requests(peer, connection, &mut timer).await,
        Err(end) => end,
    };
    worker.pool.forget(Some((peer.slot, peer.began)));
    end
}

/// Waits for the preface and exchanges settings.
async fn begin<Io: AsyncRead + AsyncWrite + Unpin>(
    peer: &Rc<Peer>,
    io: Io,
    timer: &mut Timer,
) -> Result<H2Connection<Io, Bytes>, End> {
    let plan = peer.worker.plan();
    let Some((_, http)) = peer.frontend_in(&plan) else {
        return Err(End::InOrder);
    };
    let options = http.options();
    let most = u32::try_from(options.max_header_bytes).unwrap_or(u32::MAX);
    timer.set(
        peer.worker
            .shared
            .clock
            .now()
            .after(options.request_timeout),
    );
    let handshake: Handshake<Io, Bytes> = Builder::new()
        .initial_window_size(super::STREAM_WINDOW)
        .initial_connection_window_size(super::CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(most)
        .max_send_buffer_size(super::SEND_BUFFER)
        .handshake(io);
    drop(plan);
    let mut handshake = pin!(handshake);
    poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(begun) => Poll::Ready(begun.map_err(|error| End::of(&error))),
        Poll::Pending => timer.poll(cx).map(|()| Err(End::InOrder)),
    })
    .await
}

/// Takes requests until the connection ends.
async fn serve_requests<Io: AsyncRead + AsyncWrite + Unpin>(
    peer: &Rc<Peer>,
    mut connection: H2Connection<Io, Bytes>,
    timer: &mut Timer,
) -> End {
    let mut is_ending = false;
    poll_fn(|cx| {
        loop {
            if !is_ending && peer.should_end() {
                is_ending = true;
                connection.graceful_shutdown();
                timer.set(peer.worker.shared.clock.now().after(LAST_WORDS));
            }
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    tokio::task::spawn_local(request::serve(Active::new(peer), request, respond));
                    continue;
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(End::of(&error)),
                Poll::Ready(None) => return Poll::Ready(End::InOrder),
                Poll::Pending => {}
            }
            ready!(timer.poll(cx));
            let now = peer.worker.shared.clock.now();
            match peer.next_deadline(now) {
                Some(deadline) => timer.set(deadline),
                None if is_ending => return Poll::Ready(End::InOrder),
                None => {
                    is_ending = true;
                    connection.graceful_shutdown();
                    timer.set(now.after(LAST_WORDS));
                }
            }
        }
    })
    .await
}

impl Peer {
    /// The client of this connection. Takes what only its requests need.
    pub(crate) fn of(connection: &mut Connection, socket: Rc<SocketKey>) -> Self {
        let worker = Rc::clone(&connection.worker);
        let session = connection.socket.session();
        let ssl = session.map(Session::anonymous_ssl);
        let identity = session.and_then(Session::identity);
        let common_name = identity.and_then(|identity| identity.common_name.clone());
        Self {
            ssl,
            common_name,
            frontend: Arc::clone(&connection.frontend),
            key: connection.key,
            addresses: connection.addresses(),
            local: local_address(connection, &socket),
            subject: subject(connection).map(Into::into),
            proxy_info: connection.proxy_info.take(),
            socket,
            slot: connection.slot,
            began: connection.began,
            requests: Cell::new(0),
            active: Cell::new(0),
            idle_since: Cell::new(worker.shared.clock.soon()),
            worker,
        }
    }

    fn frontend_in<'p>(
        &self,
        plan: &'p Plan,
    ) -> Option<(&'p Arc<Frontend>, &'p Arc<HttpFrontend>)> {
        frontend_in(plan, &self.socket)
    }

    fn counters(&self) -> &FrontendCounters {
        self.frontend.counters().of(self.worker.id)
    }

    /// Whether the client is to send no further requests by this connection.
    fn should_end(&self) -> bool {
        self.worker.is_draining.get() || self.frontend_in(&self.worker.plan()).is_none()
    }

    /// When to look again whether the connection is idle for too long. `None`: it is.
    fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let plan = self.worker.plan();
        let (_, http) = self.frontend_in(&plan)?;
        let timeout = match self.requests.get() {
            0 => http.options().request_timeout,
            _ => http.options().keep_alive_timeout,
        };
        if self.active.get() > 0 {
            return Some(now.after(timeout));
        }
        let deadline = self.idle_since.get().after(timeout);
        (deadline > now).then_some(deadline)
    }
}

/// A request that is being served.
struct Active(Rc<Peer>);

impl Active {
    fn new(peer: &Rc<Peer>) -> Self {
        peer.requests.set(peer.requests.get() + 1);
        peer.active.set(peer.active.get() + 1);
        Self(Rc::clone(peer))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let peer = &self.0;
        peer.active.set(peer.active.get() - 1);
        peer.idle_since.set(peer.worker.shared.clock.soon());
    }
}

impl End {
    fn of(error: &h2::Error) -> Self {
        match error.is_io() || error.is_remote() {
            true => Self::Failed,
            false => Self::Refused,
        }
    }
}

/// A stream whose first bytes have been read already.
struct Prefixed<'a, Io> {
    first: Vec<u8>,
    used: usize,
    io: &'a mut Io,
}

impl<Io: AsyncRead + Unpin> AsyncRead for Prefixed<'_, Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let rest = this.first.get(this.used..).unwrap_or_default();
        if rest.is_empty() {
            this.first = Vec::new();
            return Pin::new(&mut *this.io).poll_read(cx, buffer);
        }
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..count).unwrap_or_default());
        this.used += count;
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Prefixed<'_, Io> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_shutdown(cx)
    }
}

/// Requests of one connection at once, as haproxy has it.
const MAX_STREAMS: u32 = 100;
/// A client that has been told of the end of the connection has so much time to confirm that, if it has no requests.
const LAST_WORDS: Duration = Duration::from_secs(2);
