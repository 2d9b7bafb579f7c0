//! One request of an HTTP/2 client: from its head to the end of the response.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ballast_core::admit::Refusal;
use ballast_core::http::{Field, Framing, Host, Request, Scheme, Version};
use ballast_core::http2::{ErrorCode, Head, Reset};
use ballast_core::plan::{Frontend, HttpFrontend};

use super::Active;
use crate::http::account::Account;
use crate::http::answers::{Own, ReadyAnswer, Reason, SEND_TIMEOUT};
use crate::http::exchange::{Ended, Exchange};
use crate::http::idle_policy::IdlePolicy;
use crate::http::peer::{Peer, scheme};
use crate::http::request::{Message, NextStep, Prepared, prepare, with_fields};
use crate::http::side::{H2, HttpSide};
use crate::net::mux::Stream;
use crate::net::poller::Timer;
use crate::os::clock::Micros;
use crate::worker::WorkerPlan;

/// A request that is being served, and its account. A request that is cut has an access line too.
struct Open {
    active: Active,
    account: Account,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.account.close(&self.active.client.peer);
    }
}

/// Serves the request.
pub(super) async fn serve_request(active: Active, stream: Stream) {
    let peer = Rc::clone(&active.client.peer);
    let window = active.client.window;
    peer.requests.set(peer.requests.get() + 1);
    let is_first = peer.requests.get() == 1;
    // The client may have given the request up already.
    let Some(head) = stream.take_head().filter(|_| !stream.is_reset()) else {
        return;
    };
    let plan = peer.worker.plan();
    let Some((frontend, http)) = peer.admitted_in(&plan) else {
        // The table no longer has this frontend, or not for this client. The client may ask again by another connection.
        return stream.reset(ErrorCode::REFUSED_STREAM);
    };
    let now = peer.worker.shared.clock.precisely();
    let mut open = Open {
        account: account(&peer, &head, now),
        active,
    };
    peer.counters().requests.add(1);
    peer.counters().http2_requests.add(1);
    let received = head.received();
    open.account.received(peer.counters(), received);
    let step = read(&peer, &head, &stream, frontend, http, (now, now));
    let mut timer = Timer::new(&peer.worker.tools.poller);
    let Open { account, active } = &mut open;
    match step {
        NextStep::Answer(answer) => {
            drop(plan);
            stream.recycle(head);
            send(&peer, &answer, &stream, account, &mut timer).await;
        }
        NextStep::Forward(mut prepared) => {
            prepared.received = received;
            let has_body = prepared.framing.has_body();
            let window = if has_body { window } else { 0 };
            let mut client = H2::new(stream, window, peer.share()).holding(head);
            client.expect_body();
            let forwarded = forward(
                active, prepared, client, is_first, plan, account, &mut timer,
            );
            // Boxed, so that an answer of Ballast's own has no room for it.
            Box::pin(forwarded).await;
        }
    }
}

/// Serves a request that has a service. Where a table removes or changes that while the request waits, it is routed anew.
async fn forward(
    active: &Active,
    mut prepared: Box<Prepared>,
    client: H2,
    is_first: bool,
    mut plan: WorkerPlan,
    account: &mut Account,
    timer: &mut Timer,
) {
    let peer = &*active.client.peer;
    let mut side = HttpSide::H2(client);
    let mut room = OnceCell::new();
    let ended = loop {
        let policy = IdlePolicy::of(peer, is_first, &prepared.service, &prepared.facts);
        let needs_room = needs_room(active, &prepared);
        if !needs_room {
            // The service before may have needed it.
            room.take();
        }
        let exchange = Exchange {
            peer,
            account,
            room: needs_room.then_some(&room),
            prepared: &mut prepared,
            client: &mut side,
            timer,
        };
        let ended = exchange.run(plan, policy).await;
        let HttpSide::H2(client) = &side else { return };
        if !matches!(ended, Ended::Outdated) {
            break ended;
        }
        match route_anew(peer, client, account) {
            Some((NextStep::Forward(mut again), in_force)) => {
                again.received = prepared.received;
                (prepared, plan) = (again.after(&prepared), in_force);
            }
            Some((NextStep::Answer(answer), _)) => {
                return send(peer, &answer, &client.stream, account, timer).await;
            }
            None => break Ended::Unserved(Refusal::NoEndpoint.into()),
        }
    };
    if let HttpSide::H2(client) = side {
        finish(peer, &ended, &prepared, &client.stream, account, timer).await;
    }
    account.count_time(&peer.worker, &prepared.service);
}

/// Decides anew where a request goes. `None`: the table no longer has the frontend for this client.
fn route_anew(peer: &Peer, client: &H2, account: &mut Account) -> Option<(NextStep, WorkerPlan)> {
    let head = client.head()?;
    let plan = peer.worker.plan();
    let (frontend, http) = peer.admitted_in(&plan)?;
    let times = (account.routes_anew(), peer.worker.shared.clock.precisely());
    let step = read(peer, head, &client.stream, frontend, http, times);
    Some((step, plan))
}

/// Sends the client what it was not sent yet.
async fn finish(
    peer: &Peer,
    ended: &Ended,
    prepared: &Prepared,
    stream: &Stream,
    account: &mut Account,
    timer: &mut Timer,
) {
    let reset = match ended {
        Ended::Broken(failed) => Some(failed.reset.unwrap_or(ErrorCode::INTERNAL_ERROR)),
        Ended::Failed(failed) => failed.reset,
        Ended::Done(_) | Ended::Tunnel { .. } | Ended::Unserved(_) | Ended::Outdated => None,
    };
    if let Some(code) = reset {
        return stream.reset(code);
    }
    if let Some(answer) = ReadyAnswer::to_ended(peer, ended, &prepared.facts, true, account) {
        send(peer, &answer, stream, account, timer).await;
    }
}

async fn send(
    peer: &Peer,
    answer: &ReadyAnswer,
    stream: &Stream,
    account: &mut Account,
    timer: &mut Timer,
) {
    answer.account(peer, account);
    let mut rest = answer.body();
    let head = |out: &mut Vec<u8>| out.extend_from_slice(answer.head());
    let Ok(length) = stream.respond(answer.status, rest.is_empty(), head) else {
        return;
    };
    account.moved(peer.counters(), 0, length as u64);
    timer.set(peer.worker.shared.clock.now().after(SEND_TIMEOUT));
    poll_fn(|cx| match poll_send(stream, &mut rest, cx) {
        Poll::Pending => timer.poll(cx),
        Poll::Ready(_) => Poll::Ready(()),
    })
    .await;
}

/// Sends a body. Ready when all of it has been sent.
fn poll_send(stream: &Stream, rest: &mut &[u8], cx: &Context<'_>) -> Poll<Result<(), Reset>> {
    while !rest.is_empty() {
        let room = ready!(stream.poll_room(cx))?;
        let (part, behind) = rest.split_at_checked(room).unwrap_or((rest, &[]));
        stream.send(part, behind.is_empty())?;
        *rest = behind;
    }
    Poll::Ready(Ok(()))
}

fn account(peer: &Peer, head: &Head, now: Micros) -> Account {
    let authority = head.authority().unwrap_or_default();
    let host = Host::parse(authority).map_or("", |host| host.name);
    let line = |out: &mut Vec<u8>| {
        // The absolute URL, as haproxy has it.
        for part in [head.method(), " "] {
            out.extend_from_slice(part.as_bytes());
        }
        if !authority.is_empty() {
            for part in [head.scheme(), "://", authority] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        for part in [head.path(), " HTTP/2.0"] {
            out.extend_from_slice(part.as_bytes());
        }
    };
    Account::of(peer, host, line, now, now)
}

/// Whether the request counts among the connections of the process: one request of a connection uses what the connection itself has
/// reserved.
fn needs_room(active: &Active, prepared: &Prepared) -> bool {
    let shared = &active.client.peer.worker.shared;
    shared.counts_stream(prepared.version) && !active.takes_share()
}

/// Decides what becomes of the request, which was read at the first of these times.
fn read(
    peer: &Peer,
    head: &Head,
    stream: &Stream,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
    (first_byte, now): (Micros, Micros),
) -> NextStep {
    let (path, query) = match head.path().split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (head.path(), None),
    };
    with_fields(head, |fields| {
        let host = host(head, fields, scheme(http));
        let request = Request {
            method: head.method(),
            path,
            query,
            host: host.ok().flatten(),
            version: Version::Http2,
            fields,
        };
        let message = Message {
            request: &request,
            framing: match head.length() {
                _ if stream.is_read() => Framing::Empty,
                Some(length) => Framing::Length(length),
                None => Framing::Chunked,
            },
            keep_alive: true,
            answer_keeps: true,
            upgrades: false,
            first_byte: first_byte.moment(),
            began: now.moment(),
        };
        match host.and_then(|_| check(head, &request, http)) {
            Ok(()) => prepare(peer, &message, frontend, http),
            Err(status) => {
                let own = Own::Refused(status, Reason::Malformed);
                NextStep::own(peer, own, &message, frontend, http)
            }
        }
    })
}

/// The host that the client asks for. `:authority` and `Host` must not differ. The error is a status.
fn host<'h>(head: &'h Head, fields: &[Field<'h>], scheme: Scheme) -> Result<Option<Host<'h>>, u16> {
    let mut hosts = fields.iter().filter(|field| field.name == "host");
    let field = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(parsed(str::from_utf8(host.value).map_err(|_| 400_u16)?)?),
        (Some(_), Some(_)) => return Err(400),
        (None, _) => None,
    };
    let authority = match head.authority() {
        Some(authority) => parsed(authority)?,
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
fn check(head: &Head, request: &Request<'_>, http: &HttpFrontend) -> Result<(), u16> {
    let is_visible = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'!'..=b'~') && byte != b'#')
    };
    if request.method == "CONNECT" {
        return Err(405);
    }
    if head.is_too_large() || request.fields.len() > http.options().max_headers {
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
    if is_path && is_visible(request.path) && request.query.is_none_or(is_visible) {
        Ok(())
    } else {
        Err(400)
    }
}
