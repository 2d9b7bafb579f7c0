//! A socket that may have a TLS session. Relays and HTTP read from it and write to it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Session;
use crate::net::poller::Stream;
use crate::net::relay::RelaySide;

/// A socket, with a TLS session whose handshake is complete, or without one.
///
/// A peer that closes the connection without a close notification has ended its direction all the same, as with other proxies:
/// many clients do so. [`Session::is_truncated`] tells the two cases apart, for messages that end with the connection.
#[derive(Debug)]
pub(crate) struct MaybeTls {
    stream: Stream,
    session: Option<Box<Session>>,
}

impl From<Stream> for MaybeTls {
    fn from(stream: Stream) -> Self {
        Self {
            stream,
            session: None,
        }
    }
}

impl MaybeTls {
    /// Encrypts and decrypts from now on.
    pub(crate) fn secure(&mut self, session: Box<Session>) {
        self.session = Some(session);
    }

    /// The session, if there is one.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// The socket itself, for its options and its state.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Ready when the connection is broken.
    pub(crate) fn poll_failed(&self, cx: &Context<'_>) -> Poll<()> {
        self.stream.poll_failed(cx)
    }

    /// Whether an order has cut the connection.
    pub(crate) fn is_cut(&self) -> bool {
        self.stream.is_cut()
    }

    /// Lets the next read ask the kernel, even if that has reported nothing.
    pub(crate) fn look_again(&self) {
        self.stream.look_again();
    }

    /// Makes dropping it an ordinary close from now on.
    pub(crate) fn close_in_order(&self) {
        self.stream.close_in_order();
    }

    /// Makes dropping it a reset from now on.
    pub(crate) fn close_by_reset(&self) {
        self.stream.close_by_reset();
    }

    /// Sends a close notification, if there is a session and the socket accepts it at once, and makes dropping it an ordinary
    /// close.
    pub(crate) fn close(&mut self) {
        if let Some(session) = &mut self.session {
            let cx = &Context::from_waker(Waker::noop());
            // Nothing more can be done for a peer that does not accept it.
            drop(session.poll_shutdown(&self.stream, cx));
        }
        self.stream.close_in_order();
    }

    /// Whether the peer has neither sent a byte nor ended the connection since everything was read. What concerns the session
    /// alone, such as a ticket, is read here.
    pub(crate) fn is_idle(&mut self) -> bool {
        let Some(session) = &mut self.session else {
            return self.stream.is_idle();
        };
        while !self.stream.is_idle() {
            let cx = &Context::from_waker(Waker::noop());
            if session.poll_recv(&self.stream, cx, &mut [0]).is_ready() {
                return false;
            }
        }
        !session.has_plaintext()
    }

    /// Reads into `buffer`, which is not empty. Returns 0 once the peer has ended its direction.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.session {
            None => self.stream.poll_recv(cx, buffer),
            Some(session) => session.poll_recv(&self.stream, cx, buffer),
        }
    }

    /// Writes some of `bytes`. After `Pending`, the next call must begin with the same bytes: a session has encrypted them.
    pub(crate) fn poll_send(&mut self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.session {
            None => self.stream.poll_send(cx, bytes),
            Some(session) => session.poll_send(&self.stream, cx, bytes),
        }
    }
}

impl AsyncRead for MaybeTls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Self::poll_recv(&mut self, cx, buffer.initialize_unfilled()))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MaybeTls {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_send(&mut self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.session {
            None => Poll::Ready(Ok(())),
            Some(session) => session.poll_flush(&this.stream, cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.session {
            None => Poll::Ready(this.stream.end_writing()),
            Some(session) => session.poll_shutdown(&this.stream, cx),
        }
    }
}

impl RelaySide for MaybeTls {
    fn splice_socket(&self) -> Option<&Stream> {
        self.session.is_none().then_some(&self.stream)
    }

    fn socket(&self) -> Option<&Stream> {
        Some(&self.stream)
    }

    fn is_truncated(&self) -> bool {
        self.session().is_some_and(Session::is_truncated)
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Self::poll_recv(self, cx, buffer)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_send(self, cx, bytes)
    }
}
