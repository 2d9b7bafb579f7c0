//! How heads of responses are rewritten for a client.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use ballast_core::affinity::cookie::CookieValue;
use ballast_core::forward::{Edits, Sticky, ToClient, Trailing};
use ballast_core::http::{Field, Framing, Response, Version};
use ballast_core::http1::{Body, HeadSearch, Limits, Reject, ResponseHead, parse_response};
use ballast_core::service::Service;

use super::ExchangeFailure;
use crate::http::request::RequestFacts;
use crate::worker::Worker;

/// How heads of responses are rewritten for one client.
pub(super) struct Rewriting<'a> {
    pub(super) service: &'a Service,
    pub(super) facts: &'a RequestFacts,
    pub(super) endpoint: SocketAddr,
    /// The port that the client connected to.
    pub(super) port: u16,
    /// The affinity cookie that the client is given.
    pub(super) cookie: Option<CookieValue>,
    pub(super) worker: &'a Worker,
}

impl Rewriting<'_> {
    /// Whether the client's connection may serve another request.
    pub(super) fn keeps_client(&self) -> bool {
        self.facts.keep_alive && !self.worker.is_draining.get()
    }

    /// How the head of this response is rewritten.
    pub(super) fn to_client<'r>(
        &'r self,
        response: &'r Response<'r>,
        framing: Framing,
        keeps_connection: bool,
    ) -> ToClient<'r> {
        let facts = self.facts;
        ToClient {
            response,
            framing,
            answers_head: facts.is_head,
            version: facts.version,
            keeps_connection,
            edits: self.edits(),
            hsts: facts.hsts,
            sticky: self.service.cookie_name().map(|name| Sticky {
                name,
                value: self.cookie,
                secure: facts.is_https,
            }),
            map_back: facts
                .map_back
                .as_deref()
                .and_then(|mapped| mapped.of(self.endpoint, self.port)),
        }
    }

    /// Which trailers of a response in this version of HTTP pass.
    pub(super) fn trailing(&self, framing: Framing, version: Version) -> Trailing {
        if Trailing::may_follow(framing, version) {
            Trailing::beside(None, &self.edits())
        } else {
            Trailing::default()
        }
    }

    /// The edits of the table to heads of responses.
    fn edits(&self) -> Edits<'_> {
        let route = self.facts.edited_by.as_ref();
        let route = route.and_then(|(route, place)| Some((route.forward()?, *place)));
        let frontend = self.facts.edited_last_by.as_ref();
        let frontend = frontend.and_then(|it| it.spec().http().response_headers.as_deref());
        Edits::of_response(self.service, route, frontend)
    }

    /// Parses the head of a response of HTTP/1, if it has arrived whole.
    pub(super) fn parse<'r>(
        &self,
        held: &'r [u8],
        search: &mut HeadSearch,
        fields: &'r mut [MaybeUninit<Field<'r>>],
    ) -> Result<Option<ResponseHead<'r>>, ExchangeFailure> {
        let method = if self.facts.is_head { "HEAD" } else { "GET" };
        parse_response(held, search, fields, &Limits::default(), method)
            .map_err(|Reject { reason, .. }| self.malformed(reason))
    }

    /// Checks what has arrived behind the head of a response, while that can still be replaced by an error.
    pub(super) fn check_body(
        &self,
        framing: Framing,
        behind: &[u8],
    ) -> Result<(), ExchangeFailure> {
        let decoded = Body::new(framing, &Limits::default()).decode(behind);
        decoded
            .map(drop)
            .map_err(|error| self.malformed(error.reason))
    }

    fn malformed(&self, reason: &'static str) -> ExchangeFailure {
        tracing::debug!(endpoint = %self.endpoint, reason, "bad response");
        ExchangeFailure::ServerMalformed
    }
}
