//! One exchange between a client and an endpoint: the head of the response, both bodies, and the timeouts.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::task::{Context, Poll};

use ballast_core::answer::reason;
use ballast_core::forward::{ToClient, framing_to};
use ballast_core::http::{Framing, Response, Version};
use ballast_core::http1::{HeadSearch, ResponseKind};

use super::Failed;
use super::pump::{Flow, Stopped, pump};
use super::side::{Head, Side};
use crate::http::exchange::Failure;
use crate::http::fields;
use crate::http::forwarding::{LIMITS, Rewriting};
use crate::http::idle_timer::{IdleTimer, Timeouts};

/// A client and an endpoint, and the bodies between them.
pub(super) struct Exchange<'e, 'c> {
    pub(super) client: &'e mut Side<'c>,
    pub(super) server: Side<'e>,
    /// The body of the request.
    pub(super) up: Flow,
    /// The body of the response.
    pub(super) down: Flow,
    /// Whether the endpoint has refused bytes of the request. Its response is still read.
    pub(super) server_dead: bool,
    pub(super) timer: IdleTimer<'e>,
    pub(super) timeouts: Timeouts,
}

/// What the rest of the exchange needs of a response whose head was rewritten.
#[derive(Clone, Copy)]
pub(super) struct HeadFacts {
    pub(super) status: u16,
    /// How the endpoint frames the body.
    pub(super) framing: Framing,
    pub(super) server_keeps: bool,
    pub(super) client_keeps: bool,
}

impl Exchange<'_, '_> {
    /// Sends the request, reads the head of the response and gives it to the client. Interim responses go to the client at once.
    pub(super) async fn response_head(
        &mut self,
        rewriting: &Rewriting<'_>,
    ) -> Result<HeadFacts, Failed> {
        let mut search = HeadSearch::default();
        let mut server_keeps = true;
        loop {
            let (kind, facts) = match self.until_head().await? {
                Head::Bytes => match self.rewrite_bytes(rewriting, &mut search)? {
                    Some(rewritten) => rewritten,
                    None => continue,
                },
                Head::Interim(head) => {
                    let status = head.status().as_u16();
                    let sent = self.rewrite(rewriting, status, head.headers(), true)?;
                    (ResponseKind::Interim, sent)
                }
                Head::Final(head) => {
                    let status = head.status.as_u16();
                    let sent = self.rewrite(rewriting, status, &head.headers, false)?;
                    (ResponseKind::Final, sent)
                }
            };
            server_keeps &= facts.server_keeps;
            if kind == ResponseKind::Final {
                return Ok(HeadFacts {
                    server_keeps,
                    ..facts
                });
            }
            search = HeadSearch::default();
        }
    }

    async fn until_head(&mut self) -> Result<Head, Failed> {
        // Bytes that came together with those of an interim response.
        if matches!(&self.server, Side::H1(side) if side.has_unseen()) {
            return Ok(Head::Bytes);
        }
        self.timer.begin(self.timeouts.server);
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Failed>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(Failure::Cut.into()));
        }
        self.pump_up(cx)?;
        if let Poll::Ready(head) = self.server.poll_head(cx) {
            let silent = match &self.server {
                Side::H1(side) => side.buffer_is_empty(),
                Side::H2(_) => true,
            };
            return Poll::Ready(head.map_err(|broken| Failed::by_server(broken, silent)));
        }
        // An interim response may not have been sent whole.
        if let Poll::Ready(Err(broken)) = self.client.poll_room(cx) {
            return Poll::Ready(Err(Failed::by_client(broken)));
        }
        if let Poll::Ready(gone) = self.client.poll_gone(cx) {
            return Poll::Ready(Err(Failed::by_client(gone)));
        }
        let (timeout, failure) = match self.up.is_waiting {
            true => (self.timeouts.client, Failure::ClientTimedOut),
            false => (self.timeouts.server, Failure::ServerTimedOut),
        };
        self.timer
            .poll(timeout, cx)
            .map(|()| Err(Failed::from(failure)))
    }

    /// Sends what can be sent of the request.
    fn pump_up(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if self.server_dead {
            return Ok(());
        }
        let before = self.up.bytes;
        match pump(self.client, &mut self.server, &mut self.up, cx) {
            Poll::Pending | Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Stopped::Source(broken))) => return Err(Failed::by_client(broken)),
            Poll::Ready(Err(Stopped::Sink(_))) => self.server_dead = true,
        }
        if self.up.bytes != before {
            self.timer.moved();
        }
        Ok(())
    }

    /// Rewrites the head of a response of HTTP/1, if it is there.
    fn rewrite_bytes(
        &mut self,
        rewriting: &Rewriting<'_>,
        search: &mut HeadSearch,
    ) -> Result<Option<(ResponseKind, HeadFacts)>, Failed> {
        let Side::H1(server) = &mut self.server else {
            return Ok(None);
        };
        let mut fields = [const { MaybeUninit::uninit() }; LIMITS.fields];
        let Some(head) = rewriting.parse(server.buffer.held(), search, &mut fields)? else {
            server.see(false);
            return Ok(None);
        };
        if head.kind == ResponseKind::Upgraded {
            // No request by this way asks for another protocol.
            return Err(Failure::ServerMalformed.into());
        }
        let is_final = head.kind == ResponseKind::Final;
        let is_empty = !head.framing.has_body();
        let framing = framing_to(rewriting.facts.version, head.framing);
        let client_keeps =
            rewriting.keeps_client() && framing != Framing::UntilClose && self.up.is_read;
        let to = rewriting.to_client(&head.response, framing, client_keeps || !is_final);
        give(self.client, &to, is_final, is_empty)?;
        let facts = HeadFacts {
            status: head.response.status,
            framing: head.framing,
            server_keeps: head.keep_alive,
            client_keeps,
        };
        let (kind, framing, length) = (head.kind, head.framing, head.length);
        server.buffer.consume(length);
        server.see(!server.buffer.is_empty());
        if is_final {
            server.expect(framing, &LIMITS);
            self.down.is_read = is_empty;
        }
        Ok(Some((kind, facts)))
    }

    /// Rewrites the head of a response of HTTP/2.
    fn rewrite(
        &mut self,
        rewriting: &Rewriting<'_>,
        status: u16,
        headers: &http::HeaderMap,
        is_interim: bool,
    ) -> Result<HeadFacts, Failed> {
        let fields = fields::of(headers);
        let response = Response {
            status,
            reason: reason(status),
            version: Version::Http2,
            fields: &fields,
        };
        let is_empty = !is_interim && self.server.has_ended();
        let has_no_body =
            is_empty || rewriting.facts.is_head || matches!(status, 100..200 | 204 | 304);
        let framing = match has_no_body {
            true => Framing::Empty,
            false => fields::length(headers).map_or(Framing::Chunked, Framing::Length),
        };
        let framing = framing_to(rewriting.facts.version, framing);
        let client_keeps =
            rewriting.keeps_client() && framing != Framing::UntilClose && self.up.is_read;
        let to = rewriting.to_client(&response, framing, client_keeps || is_interim);
        give(self.client, &to, !is_interim, is_empty)?;
        if !is_interim {
            self.down.is_read = is_empty;
        }
        Ok(HeadFacts {
            status,
            framing,
            server_keeps: true,
            client_keeps,
        })
    }

    /// Relays both bodies until the response has ended.
    pub(super) async fn relay(&mut self) -> Result<(), Failed> {
        self.timer.begin(self.timeouts.of_both());
        poll_fn(|cx| self.poll_bodies(cx)).await
    }

    fn poll_bodies(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        if self.server.is_cut() {
            return Poll::Ready(Err(Failure::Cut.into()));
        }
        self.pump_up(cx)?;
        let before = self.down.bytes;
        let pumped = pump(&mut self.server, self.client, &mut self.down, cx);
        if self.down.bytes != before {
            self.timer.moved();
        }
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
        if let Poll::Ready(gone) = self.client.poll_gone(cx) {
            return Poll::Ready(Err(Failed::by_client(gone)));
        }
        let failure = match self.down.is_waiting {
            true => Failure::ServerTimedOut,
            false => Failure::ClientTimedOut,
        };
        self.timer
            .poll(self.timeouts.of_both(), cx)
            .map(|()| Err(Failed::from(failure)))
    }

    /// Whether the whole request was sent and the whole response read.
    pub(super) fn server_is_clean(&self) -> bool {
        self.up.is_done && !self.server_dead && self.server.has_ended()
    }
}

/// Gives the client the head of a response.
fn give(
    client: &mut Side<'_>,
    to: &ToClient<'_>,
    is_final: bool,
    is_empty: bool,
) -> Result<(), Failed> {
    let given = match is_final {
        true => client.send_final(to, is_empty),
        false => client.send_interim(to),
    };
    given.map_err(Failed::by_client)
}
