//! Answers of Ballast's own: to requests that no endpoint serves.

use std::time::Duration;

use ballast_core::admit::Refusal;
use ballast_core::answer::{Form, OwnAnswer, Recipient, content_type, write, write_fields};
use ballast_core::forward::Edits;
use ballast_core::http::{Request, Version};
use ballast_core::http2::Fields;
use ballast_core::plan::{Frontend, HttpFrontend};
use ballast_core::route::{self, Redirect, Route};
use ballast_core::table::{HeaderEdits, OrMap};

use super::account::Account;
use super::exchange::{Ended, ExchangeFailure};
use super::peer::{Peer, scheme};
use super::request::RequestFacts;
use crate::connect::Unserved;
use crate::worker::Worker;
use crate::worker::buffers::WriteBuffer;

/// An answer that is ready to be sent.
pub(super) struct ReadyAnswer {
    pub(super) status: u16,
    /// The status that is counted and logged.
    counted: u16,
    reason: Reason,
    /// The head, as lines of HTTP/1 or as a header block of HTTP/2, and the body behind it.
    pub(super) bytes: WriteBuffer,
    head_length: usize,
    /// Whether the client's connection serves the next request.
    pub(super) keeps_connection: bool,
}

impl ReadyAnswer {
    fn of(worker: &Worker, answer: &OwnAnswer<'_>, to: &Recipient<'_>, reason: Reason) -> Self {
        let mut bytes = worker.buffers.for_writing();
        let mut head_length = 0;
        if to.version == Version::Http2 {
            write_fields(&mut Fields::new(&mut bytes), answer, to);
            head_length = bytes.len();
            if !to.asks_for_head {
                answer.write_body(&mut bytes);
            }
        } else {
            write(&mut bytes, answer, to);
        }
        Self {
            status: answer.status(),
            counted: answer.counted_status(),
            reason,
            bytes,
            head_length,
            keeps_connection: to.keeps_connection,
        }
    }

    /// The page for this status.
    fn page(
        peer: &Peer,
        status: u16,
        form: Form,
        to: &Recipient<'_>,
        frontend: Option<&Frontend>,
        reason: Reason,
    ) -> Self {
        let worker = &peer.worker;
        with_page(worker, status, form, frontend, |answer| {
            Self::of(worker, answer, to, reason)
        })
    }

    /// The answer to a request of HTTP/1 that is refused because of its form. Where the next request begins is not known.
    pub(super) fn rejected(
        peer: &Peer,
        status: u16,
        frontend: Option<&Frontend>,
        reason: Reason,
    ) -> Self {
        let to = Recipient {
            version: Version::Http11,
            asks_for_head: false,
            keeps_connection: false,
            hsts: frontend.and_then(|frontend| frontend.spec().http().hsts),
            edits: edits_of(None, frontend),
        };
        Self::page(peer, status, Form::Text, &to, frontend, reason)
    }

    pub(super) fn own(
        peer: &Peer,
        own: Own<'_>,
        request: &Request<'_>,
        keeps_connection: bool,
        frontend: &Frontend,
        http: &HttpFrontend,
    ) -> Self {
        let to = Recipient {
            version: request.version,
            asks_for_head: request.method == "HEAD",
            keeps_connection,
            hsts: frontend.spec().http().hsts,
            edits: edits_of(own.edits(), Some(frontend)),
        };
        let worker = &peer.worker;
        own.write(worker, request, frontend, http, |answer, reason| {
            Self::of(worker, answer, &to, reason)
        })
    }

    /// The answer to a request that got no response. `keeps`: the client's next bytes are its next request. `None`: no client waits
    /// for an answer, or a part of a response was sent.
    pub(super) fn to_ended(
        peer: &Peer,
        ended: &Ended,
        facts: &RequestFacts,
        keeps: bool,
        account: &mut Account,
    ) -> Option<Self> {
        let plan = peer.worker.plan();
        let frontend = peer.frontend_in(&plan);
        let frontend = frontend.map(|(frontend, _)| frontend.as_ref());
        let (status, reason) = match ended {
            Ended::Unserved(unserved) => {
                account.unserved(*unserved, &peer.worker);
                let Unserved::Refused(refusal) = unserved else {
                    return None;
                };
                peer.counters().refused[refusal.index()].add(1);
                (status_of_refusal(*refusal, frontend), Reason::Unserved)
            }
            Ended::Failed(failed) => {
                let status = status_of_failure(failed.failure)?;
                (status, Reason::Failed(failed.failure))
            }
            Ended::Done(_) | Ended::Tunnel { .. } | Ended::Broken(_) | Ended::Outdated => {
                return None;
            }
        };
        let to = Recipient {
            version: facts.version,
            asks_for_head: facts.is_head,
            keeps_connection: facts.keep_alive && keeps && !peer.is_draining(),
            hsts: facts.hsts,
            edits: edits_of(None, frontend),
        };
        Some(Self::page(peer, status, facts.form, &to, frontend, reason))
    }

    /// Counts the answer, which is about to be sent.
    pub(super) fn account(&self, peer: &Peer, account: &mut Account) {
        let counters = peer.counters();
        account.answers_because(self.reason, counters);
        account.answers(counters, self.counted);
        account.moved(counters, 0, self.body().len() as u64);
    }

    /// The header block of an answer in HTTP/2.
    pub(super) fn head(&self) -> &[u8] {
        self.bytes.split_at(self.head_length).0
    }

    /// The body of an answer in HTTP/2; a whole answer in HTTP/1.
    pub(super) fn body(&self) -> &[u8] {
        self.bytes.split_at(self.head_length).1
    }
}

/// Why Ballast answers a request itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// A route asks for it.
    Asked,
    /// The source ranges of the route do not contain the client, or the request's host is not one for this connection.
    Denied,
    /// The request is malformed.
    Malformed,
    /// The head of the request was not whole in time.
    Late,
    /// There is no endpoint for the request.
    Unserved,
    /// The exchange with the endpoint failed.
    Failed(ExchangeFailure),
}

/// What Ballast itself answers to a well-formed request.
#[derive(Clone, Copy)]
pub(super) enum Own<'a> {
    Refused(u16, Reason),
    /// And how much of the path the route matched.
    Redirect(&'a Redirect, &'a Route, usize),
    /// And the edits of its header fields.
    Asked(&'a route::FixedAnswer, Option<&'a HeaderEdits>, Reason),
}

impl<'a> Own<'a> {
    /// The answer of this route itself.
    pub(super) fn of_route(answer: &'a route::FixedAnswer, route: &'a Route) -> Self {
        Self::Asked(answer, route.answer_headers.as_deref(), Reason::Asked)
    }

    /// The answer to a client that this route denies.
    pub(super) fn denied_by(route: &'a Route) -> Self {
        match route.denial.as_deref() {
            Some(denial) => Self::Asked(&denial.answer, denial.headers.as_deref(), Reason::Denied),
            None => Self::Refused(403, Reason::Denied),
        }
    }

    /// The edits of the route that asks for the answer.
    fn edits(self) -> Option<&'a HeaderEdits> {
        match self {
            Self::Refused(..) => None,
            Self::Redirect(_, route, _) => route.answer_headers.as_deref(),
            Self::Asked(_, edits, _) => edits,
        }
    }

    /// Calls `write` with the answer.
    pub(super) fn write<T>(
        self,
        worker: &Worker,
        request: &Request<'_>,
        frontend: &Frontend,
        http: &HttpFrontend,
        write: impl FnOnce(&OwnAnswer<'_>, Reason) -> T,
    ) -> T {
        let (status, reason) = match self {
            Self::Refused(status, reason) => (status, reason),
            Self::Redirect(redirect, _, matched) => {
                let mut location = worker.buffers.for_writing();
                match redirect.write_location(&mut location, request, matched, scheme(http)) {
                    Some(status) => {
                        return write(&OwnAnswer::redirect(status, &location), Reason::Asked);
                    }
                    // Without a host there is nowhere to send the client.
                    None => (400, Reason::Malformed),
                }
            }
            Self::Asked(asked, _, reason) => {
                let plan = worker.plan();
                if let Some(file) = &asked.body_file
                    && let Ok(body) = plan.files.get(file)
                {
                    let kind = asked.content_type.as_deref();
                    let kind = kind.unwrap_or_else(|| content_type(file));
                    return write(&OwnAnswer::file(asked.status, kind, body), reason);
                }
                (asked.status, reason)
            }
        };
        let form = Form::accepted_by(request.fields);
        with_page(worker, status, form, Some(frontend), |answer| {
            write(answer, reason)
        })
    }
}

/// Calls `write` with the page for this status: the table's, or the built-in one.
pub(super) fn with_page<T>(
    worker: &Worker,
    status: u16,
    form: Form,
    frontend: Option<&Frontend>,
    write: impl FnOnce(&OwnAnswer<'_>) -> T,
) -> T {
    let mut errors = frontend
        .into_iter()
        .flat_map(|frontend| frontend.spec().errors.iter());
    let page = errors.find(|(code, _)| code.code() == status);
    let plan = worker.plan();
    let body = |file| plan.files.get(file);
    let usual = OwnAnswer::page_as(status, form);
    let answer = match page {
        None => usual,
        Some((_, OrMap::Value(file))) => match body(file) {
            Ok(body) => OwnAnswer::file(status, content_type(file), body),
            Err(_) => usual,
        },
        Some((_, OrMap::Map(page))) => {
            let sent = page.status.unwrap_or(status);
            let edits = page.response_headers.as_deref();
            let answer = match &page.body_file {
                None => Some(OwnAnswer::page_as(sent, form)),
                Some(file) => body(file).ok().map(|body| {
                    let kind = page.content_type.as_deref();
                    OwnAnswer::file(sent, kind.unwrap_or_else(|| content_type(file)), body)
                }),
            };
            answer.map_or(usual, |answer| answer.instead_of(status, edits))
        }
    };
    write(&answer)
}

/// The edits of an answer of Ballast's own: the route's, and the frontend's.
pub(super) fn edits_of<'a>(
    route: Option<&'a HeaderEdits>,
    frontend: Option<&'a Frontend>,
) -> Edits<'a> {
    let of_frontend = frontend.and_then(|it| it.spec().http().response_headers.as_deref());
    Edits::of_answer(route, of_frontend)
}

/// The status for a request that got no endpoint.
fn status_of_refusal(refusal: Refusal, frontend: Option<&Frontend>) -> u16 {
    match refusal {
        Refusal::Failed => frontend.map_or(502, |it| it.spec().http().unreachable_status),
        _ => 503,
    }
}

/// The status for a request whose endpoint failed before it sent a response. `None`: no client waits for an answer.
fn status_of_failure(failure: ExchangeFailure) -> Option<u16> {
    Some(match failure {
        ExchangeFailure::ClientLeft => return None,
        ExchangeFailure::ClientTimedOut => 408,
        ExchangeFailure::ClientMalformed => 400,
        ExchangeFailure::ServerTimedOut | ExchangeFailure::Expired => 504,
        ExchangeFailure::ServerLeft { .. }
        | ExchangeFailure::ServerMalformed
        | ExchangeFailure::Cut => 502,
    })
}

/// A client that does not take the bytes of an answer for so long is gone.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(10);
