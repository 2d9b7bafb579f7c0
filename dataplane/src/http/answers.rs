//! Answers of Ballast's own: to requests that no endpoint serves.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::admit::Refusal;
use ballast_core::answer::{Form, OwnAnswer, Recipient, content_type, write};
use ballast_core::http::{Request, Scheme, Version};
use ballast_core::plan::{Frontend, HttpFrontend};
use ballast_core::route::{self, Matched, Redirect, Target};
use ballast_core::service::Service;

use super::buffers::WriteBuffer;
use super::exchange::{Failure, send_all};
use super::request::Facts;
use super::{Client, Next};
use crate::tcp::Unserved;
use crate::worker::Worker;

/// An answer that is ready to be sent.
pub(super) struct Answer {
    pub(super) status: u16,
    reason: Reason,
    bytes: WriteBuffer,
    /// Whether the client's connection serves the next request.
    keeps_connection: bool,
}

/// Why Ballast answers a request itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason {
    /// A route asks for it.
    Asked,
    /// The source ranges of the route do not contain the client.
    Denied,
    /// The request is malformed.
    Malformed,
    /// The head of the request was not whole in time.
    Late,
    /// There is no endpoint for the request.
    Unserved,
    /// The exchange with the endpoint failed.
    Failed(Failure),
}

/// What Ballast itself answers to a well-formed request.
#[derive(Clone, Copy)]
pub(super) enum Own<'a> {
    Refused(u16, Reason),
    Redirect(&'a Redirect),
    Asked(&'a route::Answer),
}

/// The service to which a client at this address is sent by the route that matched its request.
pub(super) fn destination<'a>(
    found: &Matched<'a>,
    client: IpAddr,
) -> Result<&'a Arc<Service>, Own<'a>> {
    let sources = found.route.sources.as_ref();
    if sources.is_some_and(|sources| !sources.contains(client)) {
        return Err(Own::Refused(403, Reason::Denied));
    }
    match &found.route.target {
        Target::Service { service, .. } => Ok(service),
        Target::Redirect(redirect) => Err(Own::Redirect(redirect)),
        Target::Answer(asked) => Err(Own::Asked(asked)),
    }
}

impl Own<'_> {
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
            Self::Redirect(redirect) => {
                let mut location = worker.buffers.for_writing();
                match redirect.write_location(&mut location, request, scheme(http)) {
                    Some(status) => {
                        return write(&OwnAnswer::redirect(status, &location), Reason::Asked);
                    }
                    // Without a host there is nowhere to send the client.
                    None => (400, Reason::Malformed),
                }
            }
            Self::Asked(asked) => {
                let plan = worker.plan();
                if let Some(file) = &asked.body_file
                    && let Ok(body) = plan.files.get(file)
                {
                    let kind = asked.content_type.as_deref();
                    let kind = kind.unwrap_or_else(|| content_type(file));
                    return write(&OwnAnswer::file(asked.status, kind, body), Reason::Asked);
                }
                (asked.status, Reason::Asked)
            }
        };
        let form = Form::accepted_by(request.fields);
        with_page(worker, status, form, Some(frontend), |answer| {
            write(answer, reason)
        })
    }
}

impl Client {
    /// The answer to a request that is refused because of its form. Where the next request begins is not known.
    pub(super) fn rejected(
        &self,
        status: u16,
        frontend: Option<&Frontend>,
        reason: Reason,
    ) -> Answer {
        let to = Recipient {
            version: Version::Http11,
            asks_for_head: false,
            keeps_connection: false,
            hsts: frontend.and_then(|frontend| frontend.spec().http().hsts),
        };
        self.page(status, Form::Text, &to, frontend, reason)
    }

    /// The page for this status.
    fn page(
        &self,
        status: u16,
        form: Form,
        to: &Recipient,
        frontend: Option<&Frontend>,
        reason: Reason,
    ) -> Answer {
        let worker = &self.connection.worker;
        with_page(worker, status, form, frontend, |answer| {
            self.written(answer, to, reason)
        })
    }

    fn written(&self, answer: &OwnAnswer<'_>, to: &Recipient, reason: Reason) -> Answer {
        let mut bytes = self.connection.worker.buffers.for_writing();
        write(&mut bytes, answer, to);
        Answer {
            status: answer.status(),
            reason,
            bytes,
            keeps_connection: to.keeps_connection,
        }
    }

    /// The answer of Ballast's own to this request.
    pub(super) fn own(
        &self,
        own: Own<'_>,
        request: &Request<'_>,
        keeps_connection: bool,
        frontend: &Frontend,
        http: &HttpFrontend,
    ) -> Answer {
        let to = recipient(request, keeps_connection, frontend);
        let worker = &self.connection.worker;
        own.write(worker, request, frontend, http, |answer, reason| {
            self.written(answer, &to, reason)
        })
    }

    /// Answers a request that got no endpoint.
    pub(super) async fn turn_away(
        &mut self,
        unserved: Unserved,
        facts: &Facts,
        body_is_read: bool,
    ) -> Next {
        self.account.unserved(unserved);
        let refusal = match unserved {
            Unserved::ClientLeft(_) => return Next::Reset,
            Unserved::Refused(refusal) => refusal,
        };
        let counters = self.connection.counters();
        counters.refused[refusal.index()].add(1);
        let status = status_of_refusal(refusal);
        self.fail(status, facts, body_is_read, Reason::Unserved)
            .await
    }

    /// Answers a request whose endpoint failed before it sent a response.
    pub(super) async fn report(
        &mut self,
        failure: Failure,
        facts: &Facts,
        body_is_read: bool,
    ) -> Next {
        self.account.fails(failure);
        let Some(status) = status_of_failure(failure) else {
            return Next::Reset;
        };
        self.fail(status, facts, body_is_read, Reason::Failed(failure))
            .await
    }

    /// `body_is_read`: the client's next bytes are its next request.
    async fn fail(
        &mut self,
        status: u16,
        facts: &Facts,
        body_is_read: bool,
        reason: Reason,
    ) -> Next {
        let plan = self.connection.worker.plan();
        let frontend = self.frontend(&plan).map(|(frontend, _)| frontend.as_ref());
        let to = Recipient {
            version: facts.version,
            asks_for_head: facts.is_head,
            keeps_connection: facts.keep_alive && body_is_read && !self.is_draining(),
            hsts: facts.hsts,
        };
        let answer = self.page(status, facts.form, &to, frontend, reason);
        drop(plan);
        self.send(answer).await
    }

    /// Sends an answer.
    pub(super) async fn send(&mut self, answer: Answer) -> Next {
        let worker = Rc::clone(&self.connection.worker);
        let counters = self.connection.counters();
        self.account.answers_because(answer.reason, counters);
        self.account.answers(counters, answer.status);
        let length = answer.bytes.len() as u64;
        self.account.moved(counters, 0, length);
        let sent = send_all(
            &mut self.connection.socket,
            &answer.bytes,
            &mut self.timer,
            Some(SEND_TIMEOUT),
            &worker.tools,
        )
        .await;
        match sent {
            Err(_) => Next::Reset,
            Ok(()) if answer.keeps_connection => Next::Request,
            Ok(()) => Next::Linger,
        }
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
    if let Some((_, file)) = errors.find(|(code, _)| code.code() == status)
        && let Ok(body) = worker.plan().files.get(file)
    {
        return write(&OwnAnswer::file(status, content_type(file), body));
    }
    write(&OwnAnswer::page_as(status, form))
}

/// The status for a request that got no endpoint.
pub(super) fn status_of_refusal(refusal: Refusal) -> u16 {
    match refusal {
        Refusal::Failed => 502,
        _ => 503,
    }
}

/// The status for a request whose endpoint failed before it sent a response. `None`: nobody waits for an answer.
pub(super) fn status_of_failure(failure: Failure) -> Option<u16> {
    Some(match failure {
        Failure::ClientLeft => return None,
        Failure::ClientTimedOut => 408,
        Failure::ClientMalformed => 400,
        Failure::ServerTimedOut => 504,
        Failure::ServerLeft { .. } | Failure::ServerMalformed | Failure::Cut => 502,
    })
}

pub(super) fn recipient(
    request: &Request<'_>,
    keeps_connection: bool,
    frontend: &Frontend,
) -> Recipient {
    Recipient {
        version: request.version,
        asks_for_head: request.method == "HEAD",
        keeps_connection,
        hsts: frontend.spec().http().hsts,
    }
}

/// The scheme that the clients of a frontend use.
pub(super) fn scheme(http: &HttpFrontend) -> Scheme {
    match http.is_https() {
        true => Scheme::Https,
        false => Scheme::Http,
    }
}

/// A client that does not take the bytes of an answer for so long is gone.
pub(super) const SEND_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
