//! One exchange with an endpoint: sends it a request, reads the head of its response, and relays both bodies.
//!
//! Bodies go through the directions of [`crate::relay`], so they are copied once or spliced, and a slow reader slows the sender
//! down. A response may begin, and end, before the request has been sent whole.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use ballast_core::http::Framing;
use ballast_core::http1::{Body, Limits, Piece};

use super::buffers::{ReadBuffer, WriteBuffer};
use super::idle_timer::{IdleTimer, Timeouts};
use crate::poller::Timer;
use crate::relay::{Direction, Extent, Phase, RelaySide, Side, Tools};
use crate::tls::MaybeTls;

/// The two connections of an exchange.
pub(super) struct Exchange<'a> {
    pub(super) client: &'a mut MaybeTls,
    pub(super) server: &'a mut MaybeTls,
    pub(super) tools: &'a Tools,
    timer: IdleTimer<'a>,
    timeouts: Timeouts,
    /// The head of the request, and the bytes of its body that came with it.
    request: &'a WriteBuffer,
    /// How many bytes of `request` have been sent.
    sent: usize,
    /// The rest of the request's body.
    up: Direction<BodyExtent>,
    /// Bytes of the response that have been read and not yet used.
    pub(super) response: &'a mut ReadBuffer,
    client_dead: bool,
    /// Whether the endpoint's connection has refused bytes of the request. Its response is still read.
    server_dead: bool,
    response_failed: bool,
    /// Bytes that were sent to the client.
    down_bytes: u64,
}

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client's connection failed.
    ClientLeft,
    /// The client did not send its body, or did not read the response, in time.
    ClientTimedOut,
    /// The body of the request is malformed.
    ClientMalformed,
    /// The endpoint's connection ended or failed too early. `silent`: before a byte of the response.
    ServerLeft {
        silent: bool,
    },
    ServerTimedOut,
    /// The body of the response is malformed.
    ServerMalformed,
    /// An order cut the endpoint's connections.
    Cut,
}

impl Failure {
    /// The side at fault.
    pub(super) fn fault(self) -> Option<Side> {
        match self {
            Self::ClientLeft | Self::ClientTimedOut | Self::ClientMalformed => Some(Side::Client),
            Self::ServerLeft { .. } | Self::ServerTimedOut | Self::ServerMalformed => {
                Some(Side::Server)
            }
            Self::Cut => None,
        }
    }
}

/// How a completed exchange leaves its connections.
#[derive(Debug)]
pub(super) struct Completed {
    /// Whether the whole request was sent and the endpoint sent nothing after its response.
    pub(super) server_is_clean: bool,
    /// Whether the whole body of the request was read from the client.
    pub(super) request_is_complete: bool,
    /// Bytes of the client that follow its request.
    pub(super) surplus: Vec<u8>,
}

impl<'a> Exchange<'a> {
    /// An exchange that will send `request`, and `body` after it.
    pub(super) fn new(
        (client, server): (&'a mut MaybeTls, &'a mut MaybeTls),
        (request, body): (&'a WriteBuffer, BodyExtent),
        response: &'a mut ReadBuffer,
        timeouts: Timeouts,
        timer: &'a mut Timer,
        tools: &'a Tools,
    ) -> Self {
        Self {
            client,
            server,
            tools,
            timer: IdleTimer::new(timer, *tools.clock()),
            timeouts,
            request,
            sent: 0,
            up: Direction::new(Vec::new(), body),
            response,
            client_dead: false,
            server_dead: false,
            response_failed: false,
            down_bytes: 0,
        }
    }

    /// Bytes of the request's body that were read from the client, and bytes of the response that were sent to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.up.bytes(), self.down_bytes)
    }

    /// Whether the whole body of the request has been read from the client.
    pub(super) fn request_is_read(&self) -> bool {
        self.up.extent().is_complete()
    }

    /// Sends the request and waits until the endpoint has sent more bytes than those held in `response`.
    pub(super) async fn more_response(&mut self) -> Result<(), Failure> {
        self.timer.begin(self.timeouts.server);
        poll_fn(|cx| self.poll_response(cx)).await
    }

    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(Failure::Cut));
        }
        self.send(cx)?;
        // An endpoint may answer and close before it has read the whole request: its response is read even if a write has failed.
        match self.response.poll_fill(self.server, cx) {
            Poll::Ready(Ok(read)) if read > 0 => return Poll::Ready(Ok(())),
            Poll::Ready(_) => {
                let silent = self.response.is_empty();
                return Poll::Ready(Err(Failure::ServerLeft { silent }));
            }
            Poll::Pending => {}
        }
        if self.up.is_ended() && self.client.poll_failed(cx).is_ready() {
            return Poll::Ready(Err(Failure::ClientLeft));
        }
        let waits_for_client = self.is_sent() && !self.up.is_ended() && self.up.held() == 0;
        let (timeout, failure) = match waits_for_client {
            true => (self.timeouts.client, Failure::ClientTimedOut),
            false => (self.timeouts.server, Failure::ServerTimedOut),
        };
        self.timer.poll(timeout, cx).map(|()| Err(failure))
    }

    fn is_sent(&self) -> bool {
        self.sent == self.request.len()
    }

    /// Sends what can be sent of the request.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        while !self.is_sent() && !self.server_dead {
            let rest = self.request.get(self.sent..).unwrap_or_default();
            match self.server.poll_send(cx, rest) {
                Poll::Ready(Ok(sent)) => self.sent += sent,
                Poll::Ready(Err(_)) => self.server_dead = true,
                Poll::Pending => return Ok(()),
            }
        }
        if self.up.is_ended() {
            return Ok(());
        }
        let before = self.up.bytes();
        self.up.pump(
            (self.client, &mut self.client_dead),
            (self.server, &mut self.server_dead),
            Phase::Open,
            cx,
            self.tools,
        );
        if self.up.bytes() != before {
            self.timer.moved();
        }
        match self.client_dead {
            true if self.up.extent().is_malformed => Err(Failure::ClientMalformed),
            true => Err(Failure::ClientLeft),
            false => Ok(()),
        }
    }

    /// Sends bytes to the client: the head of an interim response, or of one that the endpoint does not frame itself.
    pub(super) async fn send_to_client(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.down_bytes += bytes.len() as u64;
        send_all(
            self.client,
            bytes,
            self.timer.timer,
            self.timeouts.client,
            self.tools,
        )
        .await
    }

    /// Sends `head` to the client and relays the body of the response behind it, until the response has ended.
    pub(super) async fn relay_response(
        &mut self,
        mut head: WriteBuffer,
        framing: Framing,
        limits: &Limits,
    ) -> Result<Completed, Failure> {
        let mut extent = BodyExtent::new(framing, limits);
        // The bytes of the body that came with the head.
        let held = self.response.held();
        let of_body = match extent.take(held) {
            Ok(of_body) => held.get(..of_body).unwrap_or_default(),
            Err(_) => return Err(Failure::ServerMalformed),
        };
        head.extend_from_slice(of_body);
        self.down_bytes += head.len() as u64;
        self.response.clear();
        self.timer.begin(self.timeouts.of_both());
        // Most clients take the whole response at once, which then needs no memory of its own.
        let sent = poll_fn(|cx| Poll::Ready(self.client.poll_send(cx, &head))).await;
        let rest = match sent {
            Poll::Ready(Ok(sent)) => head.get(sent..).unwrap_or_default(),
            Poll::Ready(Err(_)) => return Err(Failure::ClientLeft),
            Poll::Pending => &head,
        };
        let mut down = Direction::new(rest.to_vec(), extent);
        drop(head);
        poll_fn(|cx| self.poll_bodies(&mut down, cx)).await?;
        Ok(self.completed(!down.extent().surplus.is_empty()))
    }

    /// Bytes of the client that follow its request, which has been read.
    pub(super) fn take_surplus(&mut self) -> Vec<u8> {
        self.up.take_extent().surplus
    }

    fn completed(&mut self, server_sent_more: bool) -> Completed {
        let request_is_complete = self.up.extent().body.is_complete();
        Completed {
            server_is_clean: request_is_complete
                && self.up.is_ended()
                && self.is_sent()
                && !self.server_dead
                && !server_sent_more,
            request_is_complete,
            surplus: self.take_surplus(),
        }
    }

    fn poll_bodies(
        &mut self,
        down: &mut Direction<BodyExtent>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(Failure::Cut));
        }
        self.send(cx)?;
        let before = down.bytes();
        down.pump(
            (self.server, &mut self.response_failed),
            (self.client, &mut self.client_dead),
            Phase::Open,
            cx,
            self.tools,
        );
        if down.bytes() != before {
            self.down_bytes += down.bytes() - before;
            self.timer.moved();
        }
        if self.client_dead {
            return Poll::Ready(Err(Failure::ClientLeft));
        }
        if down.is_ended() {
            return Poll::Ready(match self.response_failed {
                true if down.extent().is_malformed => Err(Failure::ServerMalformed),
                true => Err(Failure::ServerLeft { silent: false }),
                false => Ok(()),
            });
        }
        // While it is still sending, `send` sees it leave.
        if self.up.is_ended() && self.client.poll_failed(cx).is_ready() {
            return Poll::Ready(Err(Failure::ClientLeft));
        }
        let failure = match down.held() {
            0 => Failure::ServerTimedOut,
            _ => Failure::ClientTimedOut,
        };
        self.timer
            .poll(self.timeouts.of_both(), cx)
            .map(|()| Err(failure))
    }

    /// Relays the data of a chunked response to a client that knows no chunks.
    pub(super) async fn relay_unchunked(
        &mut self,
        head: WriteBuffer,
        limits: &Limits,
    ) -> Result<Completed, Failure> {
        let mut body = Body::new(Framing::Chunked, limits);
        let mut out = head;
        loop {
            let held = self.response.held();
            let mut pieces = body.pieces(held);
            for piece in &mut pieces {
                match piece {
                    Ok(Piece::Data(data)) => out.extend_from_slice(data),
                    Ok(Piece::Trailers(_)) => {}
                    Err(_) => return Err(Failure::ServerMalformed),
                }
            }
            let used = pieces.used();
            self.response.consume(used);
            self.send_to_client(&out).await?;
            out.clear();
            if body.is_complete() {
                let surplus = !self.response.is_empty();
                return Ok(self.completed(surplus));
            }
            self.more_response().await?;
        }
    }
}

/// Sends all of `bytes`, unless the client accepts none for the length of `timeout`.
pub(super) async fn send_all(
    client: &mut MaybeTls,
    bytes: &[u8],
    timer: &mut Timer,
    timeout: Option<Duration>,
    tools: &Tools,
) -> Result<(), Failure> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match timeout {
            Some(timeout) => timer.set(tools.clock().soon().after(timeout)),
            None => timer.clear(),
        }
        let sent = poll_fn(|cx| {
            if let Poll::Ready(sent) = RelaySide::poll_send(client, cx, rest) {
                return Poll::Ready(sent.map_err(|_| Failure::ClientLeft));
            }
            timer.poll(cx).map(|()| Err(Failure::ClientTimedOut))
        });
        rest = rest.get(sent.await?..).unwrap_or_default();
    }
    Ok(())
}

/// The bytes of one message's body.
#[derive(Debug)]
pub(super) struct BodyExtent {
    pub(super) body: Body,
    /// Bytes that were read behind the body.
    pub(super) surplus: Vec<u8>,
    pub(super) is_malformed: bool,
}

impl BodyExtent {
    pub(super) fn new(framing: Framing, limits: &Limits) -> Self {
        Self {
            body: Body::new(framing, limits),
            surplus: Vec::new(),
            is_malformed: false,
        }
    }
}

impl Default for BodyExtent {
    fn default() -> Self {
        Self::new(Framing::Empty, &Limits::default())
    }
}

impl Extent for BodyExtent {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.body.decode(bytes) {
            Ok(decoded) => {
                let rest = bytes.get(decoded.used..).unwrap_or_default();
                self.surplus.extend_from_slice(rest);
                Ok(decoded.used)
            }
            Err(error) => {
                self.is_malformed = true;
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
        }
    }

    fn most_spliced(&self) -> usize {
        match self.body.remaining() {
            Some(left) if left >= SPLICED_AT_LEAST => usize::try_from(left).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    fn spliced(&mut self, bytes: usize) {
        self.body.pass(bytes as u64);
    }

    fn is_complete(&self) -> bool {
        self.body.is_complete()
    }

    fn may_end(&self) -> bool {
        self.body.may_close()
    }
}

/// The end of a body is copied: the two calls of a pipe cost more.
const SPLICED_AT_LEAST: u64 = 16 * 1024;
