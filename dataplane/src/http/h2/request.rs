//! One request of an HTTP/2 client: from its head to the end of the response.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::answer::{OwnAnswer, Recipient, write_fields};
use ballast_core::forward;
use ballast_core::http::{Field, Framing, Host, Request, Scheme, Version};
use ballast_core::plan::{Frontend, HttpFrontend};
use ballast_core::preamble::{Ssl, Transport};
use ballast_core::route::Matched;
use ballast_core::service::Service;
use ballast_core::table::HttpVersion;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::HeaderMap;
use http::request::Parts;

use super::{Active, Peer};
use crate::http::account::Account;
use crate::http::answers::{
    Own, Reason, SEND_TIMEOUT, destination, recipient, scheme, status_of_failure,
    status_of_refusal, with_page,
};
use crate::http::as_seen;
use crate::http::bridge::{self, Ended, EndpointHead, Frame, H2, Origin, Prepared, Side};
use crate::http::fields::{self, Fields};
use crate::http::forwarding::{self, IdlePolicy, Outbound};
use crate::http::idle_timer::Timeouts;
use crate::http::request::{Facts, scheme_to};
use crate::poller::Timer;
use crate::send_proxy;
use crate::tcp::Unserved;
use crate::worker::WorkerPlan;

/// What becomes of a request.
enum Step {
    Forward(Box<Prepared>),
    Answer(Answer, Reason),
}

/// An answer of Ballast's own, ready to be sent.
struct Answer {
    status: u16,
    fields: HeaderMap,
    body: Bytes,
}

/// A request that is being served, and its account. A request that is cut has an access line too.
struct Open {
    active: Active,
    account: Account,
}

impl Drop for Open {
    fn drop(&mut self) {
        let peer = &self.active.0;
        let client = peer.key.client();
        self.account.close(&peer.worker, client, &peer.frontend);
    }
}

/// Serves the request.
pub(super) async fn serve(
    active: Active,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let peer = Rc::clone(&active.0);
    let peer = &*peer;
    let is_first = peer.requests.get() == 1;
    let plan = peer.worker.plan();
    let Some((frontend, http)) = peer.frontend_in(&plan) else {
        // The table no longer has this frontend, or not for HTTP. The client may ask again by another connection.
        return respond.send_reset(h2::Reason::REFUSED_STREAM);
    };
    let (parts, body) = request.into_parts();
    let now = peer.worker.shared.clock.precisely();
    let mut open = Open {
        account: Account::for_h2(&peer.worker, &parts, now),
        active,
    };
    let account = &mut open.account;
    peer.counters().requests.add(1);
    peer.counters().http2_requests.add(1);
    let step = prepare(peer, &parts, &body, frontend, http);
    drop(parts);
    let mut timer = Timer::new(&peer.worker.tools.poller);
    let stream = H2::of_client(body, respond);
    match step {
        Step::Answer(answer, reason) => {
            drop(plan);
            send(peer, answer, reason, stream, account, &mut timer).await;
        }
        Step::Forward(prepared) => {
            // Boxed, so that an answer of Ballast's own has no room for it.
            let forwarded = forward(peer, is_first, &prepared, stream, plan, account, &mut timer);
            Box::pin(forwarded).await;
        }
    }
}

async fn forward(
    peer: &Peer,
    is_first: bool,
    prepared: &Prepared,
    stream: H2,
    plan: WorkerPlan,
    account: &mut Account,
    timer: &mut Timer,
) {
    let (worker, facts) = (&peer.worker, &prepared.facts);
    let origin = Origin {
        worker,
        key: peer.key,
        counters: peer.counters(),
        account,
        slot: peer.slot,
        port: peer.local.port(),
        policy: IdlePolicy::of((peer.slot, peer.began), is_first, &prepared.service, facts),
        proxy_header: &|service| {
            let ssl = peer.ssl.map(|ssl| Ssl {
                common_name: peer.common_name.as_deref(),
                ..ssl
            });
            send_proxy::header(
                worker,
                service,
                Transport::Stream,
                || peer.addresses,
                peer.proxy_info.as_deref(),
                ssl,
            )
        },
    };
    let mut side = Side::H2(stream);
    let ended = bridge::run(origin, prepared, &mut side, plan, timer).await;
    if let Side::H2(stream) = side {
        finish(peer, ended, facts, stream, account, timer).await;
    }
    account.count_time(worker, &prepared.service);
}

/// Tells the client what it was not told yet.
async fn finish(
    peer: &Peer,
    ended: Ended,
    facts: &Facts,
    mut stream: H2,
    account: &mut Account,
    timer: &mut Timer,
) {
    let (status, reason) = match ended {
        Ended::Done(_) => return,
        Ended::Unserved(unserved) => {
            account.unserved(unserved);
            let Unserved::Refused(refusal) = unserved else {
                return;
            };
            peer.counters().refused[refusal.index()].add(1);
            (status_of_refusal(refusal), Reason::Unserved)
        }
        Ended::Broken(failed) => {
            return stream.reset(failed.reset.unwrap_or(h2::Reason::INTERNAL_ERROR));
        }
        Ended::Failed(failed) => match (failed.reset, status_of_failure(failed.failure)) {
            (Some(reason), _) => return stream.reset(reason),
            (None, None) => return,
            (None, Some(status)) => (status, Reason::Failed(failed.failure)),
        },
    };
    let answer = failed(peer, status, facts);
    send(peer, answer, reason, stream, account, timer).await;
}

/// The answer to a request whose endpoint failed, or that got none.
fn failed(peer: &Peer, status: u16, facts: &Facts) -> Answer {
    let to = Recipient {
        version: Version::Http2,
        asks_for_head: facts.is_head,
        keeps_connection: true,
        hsts: facts.hsts,
    };
    let plan = peer.worker.plan();
    let frontend = peer.frontend_in(&plan);
    let frontend = frontend.map(|(frontend, _)| frontend.as_ref());
    with_page(&peer.worker, status, facts.form, frontend, |answer| {
        Answer::of(answer, &to)
    })
}

/// Sends an answer.
async fn send(
    peer: &Peer,
    answer: Answer,
    reason: Reason,
    mut stream: H2,
    account: &mut Account,
    timer: &mut Timer,
) {
    let Answer {
        status,
        fields,
        body,
    } = answer;
    let counters = peer.counters();
    account.answers_because(reason, counters);
    account.answers(counters, status);
    account.moved(counters, 0, body.len() as u64);
    if stream.respond(status, fields, body.is_empty()).is_err() || body.is_empty() {
        return;
    }
    let mut side = Side::H2(stream);
    let frame = Frame::Data {
        bytes: body,
        is_last: true,
    };
    if side.push(frame).is_ok() {
        timer.set(peer.worker.shared.clock.now().after(SEND_TIMEOUT));
        poll_fn(|cx| match side.poll_room(cx).is_ready() {
            true => std::task::Poll::Ready(()),
            false => timer.poll(cx),
        })
        .await;
    }
}

impl Answer {
    fn of(answer: &OwnAnswer<'_>, to: &Recipient) -> Self {
        let mut fields = Fields::default();
        write_fields(&mut fields, answer, to);
        let mut body = Vec::new();
        if !to.asks_for_head {
            answer.write_body(&mut body);
        }
        Self {
            status: answer.status(),
            fields: fields.map,
            body: body.into(),
        }
    }
}

/// Decides where the request goes.
fn prepare(
    peer: &Peer,
    parts: &Parts,
    body: &RecvStream,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
) -> Step {
    let fields = fields::of(&parts.headers);
    let request = Request {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query(),
        host: None,
        version: Version::Http2,
        fields: &fields,
    };
    let host = host(parts, scheme(http));
    let request = Request {
        host: host.ok().flatten(),
        ..request
    };
    if let Err(status) = host.and_then(|_| check(&request, http)) {
        let own = Own::Refused(status, Reason::Malformed);
        return owned(peer, own, &request, frontend, http);
    }
    let found = http.routes().find(request.host, request.path);
    match destination(&found, peer.key.client().ip()) {
        Ok(service) => {
            let framing = match fields::length(&parts.headers) {
                _ if body.is_end_stream() => Framing::Empty,
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            };
            forwarded(peer, &request, framing, &found, frontend, http, service)
        }
        Err(own) => owned(peer, own, &request, frontend, http),
    }
}

/// Rewrites the head of a request for its service.
fn forwarded(
    peer: &Peer,
    request: &Request<'_>,
    framing: Framing,
    found: &Matched<'_>,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
    service: &Arc<Service>,
) -> Step {
    let outbound = Outbound {
        request,
        framing,
        upgrades: false,
        found,
        frontend,
        service,
        from: as_seen(
            peer.key.client(),
            peer.local.port(),
            peer.subject.as_deref(),
            frontend,
            http,
        ),
        local: peer.local,
    };
    let to_endpoint = outbound.to_endpoint();
    let head = match forwarding::version(service) {
        HttpVersion::H1 => {
            let mut out = peer.worker.buffers.for_writing();
            forward::request(&mut out, &to_endpoint);
            EndpointHead::H1(out)
        }
        HttpVersion::H2 => match fields::request(&to_endpoint, scheme_to(service)) {
            Some(head) => EndpointHead::H2(head),
            None => {
                let own = Own::Refused(400, Reason::Malformed);
                return owned(peer, own, request, frontend, http);
            }
        },
    };
    let began = peer.worker.shared.clock.soon();
    let facts = Facts::of(request, framing, true, found, frontend, service, began);
    Step::Forward(Box::new(Prepared {
        service: Arc::clone(service),
        head,
        framing,
        facts,
        timeouts: Timeouts::of(frontend, service),
    }))
}

/// The answer of Ballast's own to this request.
fn owned(
    peer: &Peer,
    own: Own<'_>,
    request: &Request<'_>,
    frontend: &Frontend,
    http: &HttpFrontend,
) -> Step {
    let to = recipient(request, true, frontend);
    own.write(&peer.worker, request, frontend, http, |answer, reason| {
        Step::Answer(Answer::of(answer, &to), reason)
    })
}

/// The host that the client asks for. `:authority` and `Host` must not differ. The error is a status.
fn host(parts: &Parts, scheme: Scheme) -> Result<Option<Host<'_>>, u16> {
    let mut hosts = parts.headers.get_all(http::header::HOST).iter();
    let field = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(parsed(host.to_str().map_err(|_| 400_u16)?)?),
        (Some(_), Some(_)) => return Err(400),
        (None, _) => None,
    };
    let authority = match parts.uri.authority() {
        Some(authority) => parsed(authority.as_str())?,
        None => return Ok(field),
    };
    match field {
        Some(field) if !authority.is_same(field, scheme.default_port()) => Err(400),
        _ => Ok(Some(authority)),
    }
}

fn parsed(host: &str) -> Result<Host<'_>, u16> {
    Host::parse(host).ok_or(400)
}

/// Whether the request is one that may be forwarded. The error is a status.
fn check(request: &Request<'_>, http: &HttpFrontend) -> Result<(), u16> {
    let is_visible = |text: &str| text.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    if request.method == "CONNECT" {
        return Err(405);
    }
    if request.fields.len() > http.options().max_headers {
        return Err(431);
    }
    let is_continue = |field: &Field<'_>| field.value.eq_ignore_ascii_case(b"100-continue");
    let mut expectations = request.fields.iter().filter(|field| field.name == "expect");
    if !expectations.all(is_continue) {
        return Err(417);
    }
    let is_path = match request.path {
        "*" => request.method == "OPTIONS",
        path => path.starts_with('/'),
    };
    match is_path && is_visible(request.path) && request.query.is_none_or(is_visible) {
        true => Ok(()),
        false => Err(400),
    }
}
