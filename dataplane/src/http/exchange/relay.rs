//! The two sides of an exchange: the head of the response, both bodies, and the timeouts.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use ballast_core::answer::reason;
use ballast_core::forward::{ToClient, framing_to};
use ballast_core::http::{Framing, Response, Version};
use ballast_core::http1::{HeadSearch, ResponseKind};
use ballast_core::http2::Head;
use ballast_core::plan::FrontendCounters;

use super::rewriting::Rewriting;
use super::transfer::{BodyExtent, Stopped, Transfer};
use super::{ExchangeFailure, Failed};
use crate::connect::EndpointSession;
use crate::http::account::Account;
use crate::http::idle_timer::{Expired, IdleTimer, Timeouts};
use crate::http::request::with_fields;
use crate::http::side::{Answered, HttpSide};
use crate::net::relay::Tools;

/// A client and an endpoint, and the bodies between them.
pub(super) struct Relay<'e, 'c> {
    pub(super) client: &'e mut HttpSide<'c>,
    pub(super) server: HttpSide<'e>,
    /// The body of the request.
    pub(super) up: Transfer,
    /// The body of the response, once that has begun.
    pub(super) down: Option<Transfer>,
    /// Whether the client may wait for an interim response before it sends the body.
    pub(super) expects: bool,
    /// How many interim responses there were.
    pub(super) interims: u32,
    /// Whether the endpoint has refused bytes of the request. Its response is still read.
    pub(super) server_dead: bool,
    pub(super) timer: IdleTimer<'e>,
    pub(super) timeouts: Timeouts,
    pub(super) tools: &'e Tools,
    /// Bytes of the heads for the client, and of what was sent with them.
    pub(super) head_bytes: u64,
    pub(super) tally: Tally<'e>,
}

/// Counts the bytes of an exchange while they move: one that is cut has counted them, too.
pub(super) struct Tally<'e> {
    pub(super) account: &'e mut Account,
    pub(super) frontend: &'e FrontendCounters,
    pub(super) session: &'e EndpointSession,
    /// From the client and to it, so far.
    pub(super) counted: (u64, u64),
}

impl Tally<'_> {
    /// Counts what has moved since the last call, of these bytes from the client and to it.
    fn count(&mut self, (up, down): (u64, u64)) {
        let new = (up - self.counted.0, down - self.counted.1);
        if new != (0, 0) {
            self.counted = (up, down);
            self.account.moved(self.frontend, new.0, new.1);
            self.session.count_bytes(new.0, new.1);
        }
    }
}

/// What the rest of the exchange needs of a response whose head was rewritten.
#[derive(Clone, Copy)]
pub(super) struct HeadFacts {
    pub(super) kind: ResponseKind,
    pub(super) status: u16,
    /// How the endpoint frames the body.
    pub(super) framing: Framing,
    pub(super) server_keeps: bool,
    pub(super) client_keeps: bool,
}

/// How far a response came.
pub(super) struct Relayed {
    pub(super) head: Result<HeadFacts, Failed>,
    /// Whether the client was given its head.
    pub(super) has_begun: bool,
}

impl Relay<'_, '_> {
    /// Relays the request and its response, up to the end of the response or to the beginning of a tunnel.
    pub(super) async fn run(&mut self, rewriting: &Rewriting<'_>) -> Relayed {
        let (mut head, mut has_begun) = (self.response_head(rewriting).await, false);
        if let Ok(facts) = head {
            has_begun = true;
            let now = self.tools.clock().precisely();
            let Tally {
                account,
                frontend,
                session,
                ..
            } = &mut self.tally;
            account.responded(frontend, session, facts.status, now);
            let relayed = match facts.kind {
                ResponseKind::Upgraded => self.begin_tunnel().await,
                _ => self.bodies().await,
            };
            head = relayed.map(|()| facts);
        }
        self.return_surplus();
        self.count();
        Relayed { head, has_begun }
    }

    fn count(&mut self) {
        let bytes = self.bytes();
        self.tally.count(bytes);
    }

    /// Sends the request, reads the head of the response and gives it to the client. Interim responses go to the client at once.
    async fn response_head(&mut self, rewriting: &Rewriting<'_>) -> Result<HeadFacts, Failed> {
        let mut search = HeadSearch::default();
        let mut server_keeps = true;
        self.timer.begin(self.timeouts.server);
        loop {
            // Bytes that came together with those of an interim response, or nothing.
            let facts = match self.rewrite_bytes(rewriting, &mut search)? {
                Some(facts) => facts,
                None => match poll_fn(|cx| self.poll_head(cx)).await? {
                    Answered::Bytes => continue,
                    Answered::Head(head) => {
                        let facts = self.rewrite_head(rewriting, &head)?;
                        if let HttpSide::H2(server) = &self.server {
                            server.stream.recycle(head);
                        }
                        facts
                    }
                },
            };
            server_keeps &= facts.server_keeps;
            if facts.kind != ResponseKind::Interim {
                return Ok(HeadFacts {
                    server_keeps,
                    ..facts
                });
            }
            self.interims += 1;
            if self.interims > MOST_INTERIMS {
                return Err(ExchangeFailure::ServerMalformed.into());
            }
            self.timer.begin(self.timeouts.server);
            search = HeadSearch::default();
            // Others get their turn.
            tokio::task::yield_now().await;
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Failed>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(ExchangeFailure::Cut.into()));
        }
        self.pump_up(cx)?;
        self.count();
        // An interim response goes to the client before more is read.
        let unsent = self.client.unsent();
        let flushed = self.client.poll_takes_head(cx);
        if let Poll::Ready(Err(broken)) = flushed {
            return Poll::Ready(Err(Failed::by_client(broken)));
        }
        if self.client.unsent() != unsent {
            self.timer.moved();
        }
        // An endpoint may answer and close before it has read the whole request: its response is read even if a write has failed.
        if flushed.is_ready()
            && let Poll::Ready(answered) = self.server.poll_answer(cx)
        {
            let silent = self.interims == 0 && self.server.has_sent_nothing();
            return Poll::Ready(answered.map_err(|broken| Failed::by_server(broken, silent)));
        }
        if let Poll::Ready(gone) = self.client.poll_gone(cx) {
            return Poll::Ready(Err(Failed::by_client(gone)));
        }
        // The client has sent `Expect: 100-continue`, and may wait until the endpoint asks for the body.
        let awaits_endpoint = self.expects && self.interims == 0 && !self.up.is_touched;
        let is_slow = self.up.is_waiting && !awaits_endpoint;
        let (timeout, failure) = if is_slow || flushed.is_pending() {
            (self.timeouts.client, ExchangeFailure::ClientTimedOut)
        } else {
            (self.timeouts.server, ExchangeFailure::ServerTimedOut)
        };
        let expired = self.timer.poll(timeout, cx);
        expired.map(|expired| Err(failure.unless_expired(expired).into()))
    }

    /// Sends what can be sent of the request.
    fn pump_up(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if self.server_dead {
            return Ok(());
        }
        let before = self.up.bytes;
        let pumped = self.up.pump(self.client, &mut self.server, self.tools, cx);
        match pumped {
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Stopped::Source(broken))) => return Err(Failed::by_client(broken)),
            Poll::Ready(Err(Stopped::Sink(_))) => self.server_dead = true,
        }
        if self.up.bytes != before {
            self.timer.moved();
        }
        Ok(())
    }

    /// Rewrites the head of a response of HTTP/1, if it has arrived whole.
    fn rewrite_bytes(
        &mut self,
        rewriting: &Rewriting<'_>,
        search: &mut HeadSearch,
    ) -> Result<Option<HeadFacts>, Failed> {
        let HttpSide::H1(server) = &mut self.server else {
            return Ok(None);
        };
        let held = server.buffer.held();
        if held.is_empty() {
            return Ok(None);
        }
        let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let Some(head) = rewriting.parse(held, search, &mut fields)? else {
            return Ok(None);
        };
        let framing = framing_to(rewriting.facts.version, head.framing);
        let client_keeps =
            rewriting.keeps_client() && framing != Framing::UntilClose && self.up.is_read;
        let keeps = client_keeps || head.kind != ResponseKind::Final;
        let to = rewriting.to_client(&head.response, framing, keeps);
        let is_whole = head.kind == ResponseKind::Final && !head.framing.has_body();
        let facts = HeadFacts {
            kind: head.kind,
            status: head.response.status,
            framing: head.framing,
            server_keeps: head.keep_alive,
            client_keeps,
        };
        if facts.kind == ResponseKind::Upgraded && !rewriting.facts.upgrades {
            return Err(ExchangeFailure::ServerMalformed.into());
        }
        rewriting.check_body(head.framing, held.split_at(head.length).1)?;
        let written = self.client.respond(&to, is_whole);
        self.head_bytes += written.map_err(Failed::by_client)? as u64;
        let length = head.length;
        server.buffer.consume(length);
        if facts.kind == ResponseKind::Final {
            self.begin_down(rewriting, facts.framing, is_whole)?;
        }
        Ok(Some(facts))
    }

    /// Rewrites the head of a response of HTTP/2.
    fn rewrite_head(
        &mut self,
        rewriting: &Rewriting<'_>,
        head: &Head,
    ) -> Result<HeadFacts, Failed> {
        let status = head.status();
        let is_interim = status < 200;
        let is_whole = !is_interim && self.server.has_ended();
        let has_no_body =
            is_whole || rewriting.facts.is_head || matches!(status, 100..200 | 204 | 304);
        let framing = if has_no_body {
            Framing::Empty
        } else {
            head.length().map_or(Framing::Chunked, Framing::Length)
        };
        let framing = framing_to(rewriting.facts.version, framing);
        let client_keeps =
            rewriting.keeps_client() && framing != Framing::UntilClose && self.up.is_read;
        let client = &mut *self.client;
        let written = with_fields(head, |fields| {
            let response = Response {
                status,
                reason: reason(status),
                version: Version::Http2,
                fields,
            };
            let to: ToClient<'_> =
                rewriting.to_client(&response, framing, client_keeps || is_interim);
            client.respond(&to, is_whole)
        });
        self.head_bytes += written.map_err(Failed::by_client)? as u64;
        if !is_interim {
            self.begin_down(rewriting, framing, is_whole)?;
        }
        Ok(HeadFacts {
            kind: if is_interim {
                ResponseKind::Interim
            } else {
                ResponseKind::Final
            },
            status,
            framing,
            server_keeps: true,
            client_keeps,
        })
    }

    /// Prepares the body of the response, whose head is about to be sent to the client.
    fn begin_down(
        &mut self,
        rewriting: &Rewriting<'_>,
        framing: Framing,
        is_whole: bool,
    ) -> Result<(), Failed> {
        let version = match &self.server {
            HttpSide::H1(_) => Version::Http11,
            HttpSide::H2(_) => Version::Http2,
        };
        let trailing = rewriting.trailing(framing, version);
        let is_unchunked =
            framing == Framing::Chunked && rewriting.facts.version == Version::Http10;
        self.down = Some(match (&mut self.server, &mut *self.client) {
            (HttpSide::H1(server), HttpSide::H1(client)) if !is_unchunked => {
                let mut extent = BodyExtent::new(framing);
                // The bytes of the body that came with the head are sent with it.
                let begun = extent.begin(server.buffer.held(), &mut client.pending, &trailing);
                let used = begun.map_err(|broken| Failed::by_server(broken, false))?;
                server.buffer.consume(used);
                self.head_bytes += used as u64;
                Transfer::of_bytes(extent, trailing)
            }
            (HttpSide::H1(server), _) => {
                server.expect(framing);
                Transfer::of_frames(!is_whole, trailing)
            }
            (HttpSide::H2(_), _) => Transfer::of_frames(!is_whole, trailing),
        });
        Ok(())
    }

    /// Relays both bodies until the response has ended.
    async fn bodies(&mut self) -> Result<(), Failed> {
        self.timer.begin(self.timeouts.of_both());
        poll_fn(|cx| self.poll_bodies(cx)).await
    }

    fn poll_bodies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(ExchangeFailure::Cut.into()));
        }
        self.pump_up(cx)?;
        let Some(down) = &mut self.down else {
            return Poll::Ready(Ok(()));
        };
        let before = down.bytes;
        let pumped = down.pump(&mut self.server, self.client, self.tools, cx);
        if down.bytes != before {
            self.timer.moved();
        }
        self.count();
        match pumped {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(Stopped::Source(broken))) => {
                return Poll::Ready(Err(Failed::by_server(broken, false)));
            }
            Poll::Ready(Err(Stopped::Sink(broken))) => {
                return Poll::Ready(Err(Failed::by_client(broken)));
            }
            Poll::Pending => {}
        }
        let is_waiting = self.down.as_ref().is_some_and(|down| down.is_waiting);
        let failure = if is_waiting {
            ExchangeFailure::ServerTimedOut
        } else {
            ExchangeFailure::ClientTimedOut
        };
        if let Poll::Ready(gone) = self.client.poll_gone(cx) {
            return Poll::Ready(Err(Failed::by_client(gone)));
        }
        let expired = self.timer.poll(self.timeouts.of_both(), cx);
        expired.map(|expired| Err(failure.unless_expired(expired).into()))
    }

    /// Whether the whole request was sent and the whole response read, and the endpoint has sent nothing behind it.
    pub(super) fn server_is_clean(&mut self) -> bool {
        let down = self.down.as_mut();
        let has_surplus = match &self.server {
            HttpSide::H1(server) => {
                !server.buffer.is_empty()
                    || down.is_some_and(|down| !down.take_surplus().is_empty())
            }
            HttpSide::H2(_) => false,
        };
        self.up.is_done && !self.server_dead && !has_surplus
    }

    /// Bytes from the client and to it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let down = self.down.as_ref().map_or(0, |down| down.bytes);
        (self.up.bytes, self.head_bytes + down)
    }

    /// Gives the client's connection back what was read behind the request.
    fn return_surplus(&mut self) {
        let surplus = self.up.take_surplus();
        if let HttpSide::H1(client) = &mut *self.client {
            client.buffer.push(&surplus);
        }
    }
}

impl ExchangeFailure {
    /// This failure, unless the time for the whole request is over.
    fn unless_expired(self, expired: Expired) -> Self {
        match expired {
            Expired::Idle => self,
            Expired::Whole => Self::Expired,
        }
    }
}

/// An endpoint that sends more interim responses than this to one request will never answer it.
const MOST_INTERIMS: u32 = 1_000;
/// Fields of a response of HTTP/1.
const MOST_FIELDS: usize = 128;
