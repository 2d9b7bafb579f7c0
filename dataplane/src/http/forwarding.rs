//! A request on its way: gets a connection to an endpoint, sends the request, and sends the response to the client.

use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ballast_core::affinity::cookie::CookieValue;
use ballast_core::forward::{self, Sticky, ToClient, ToEndpoint, framing_to};
use ballast_core::http::{Field, Framing, Request, Response, Version};
use ballast_core::http1::{HeadSearch, Limits, Reject, ResponseHead, ResponseKind, parse_response};
use ballast_core::moment::Moment;
use ballast_core::plan::Frontend;
use ballast_core::route::{Matched, Target};
use ballast_core::service::Service;
use ballast_core::table::{HttpVersion, Reuse, SendProxy};

use super::account::Account;
use super::buffers::{ReadBuffer, WriteBuffer};
use super::by_owner::Owner;
use super::exchange::{Exchange, Failure};
use super::request::{Facts, Prepared};
use super::{Client, Next, Pool};
use crate::access::relay_letters;
use crate::relay::{RelayTimeouts, Side, Why, relay};
use crate::tcp::{Caller, Connection, Session, Unserved, Upstream, dial};
use crate::tls::MaybeTls;
use crate::worker::{Worker, WorkerPlan};

/// A request on its way to a service.
pub(super) struct Outbound<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) framing: Framing,
    pub(super) upgrades: bool,
    pub(super) found: &'a Matched<'a>,
    pub(super) frontend: &'a Frontend,
    pub(super) service: &'a Service,
    /// The client.
    pub(super) from: forward::Client<'a>,
    /// The address that the client connected to.
    pub(super) local: SocketAddr,
}

impl Outbound<'_> {
    /// How its head is rewritten for an endpoint.
    pub(super) fn to_endpoint(&self) -> ToEndpoint<'_> {
        let request = self.request;
        let rewrite = match &self.found.route.target {
            Target::Service { rewrite, .. } => rewrite.as_ref(),
            Target::Redirect(_) | Target::Answer(_) => None,
        };
        let http = self.service.spec().http.as_ref();
        ToEndpoint {
            request,
            framing: self.framing,
            upgrades: self.upgrades,
            keeps_connection: true,
            version: version(self.service),
            endpoint: self.local,
            client: &self.from,
            options: self.frontend.spec().http(),
            edits: http.map(|http| &http.request_headers),
            rewrite,
            prefix: self.found.prefix(request.path),
            cookie: self.service.cookie_name(),
        }
    }
}

/// What the endpoints of the service speak.
pub(super) fn version(service: &Service) -> HttpVersion {
    let http = service.spec().http.as_ref();
    http.map_or_else(HttpVersion::default, |http| http.version)
}

/// Which idle connections may serve a request.
#[derive(Clone, Copy)]
pub(super) struct IdlePolicy {
    /// To whom idle connections to the service belong.
    pub(super) owner: Owner,
    pub(super) may_use: bool,
}

impl IdlePolicy {
    /// The policy for a request of the connection `client`; `is_first`: it has sent no request before this one.
    pub(super) fn of(
        client: (usize, Moment),
        is_first: bool,
        service: &Service,
        facts: &Facts,
    ) -> Self {
        let spec = service.spec();
        let reuse = spec
            .http
            .as_ref()
            .map_or_else(Reuse::default, |http| http.reuse);
        // After a PROXY header, an endpoint takes every request of the connection for one of the client in the header.
        let is_private = spec.send_proxy != SendProxy::Off || reuse == Reuse::Never;
        Self {
            owner: is_private.then_some(client),
            may_use: is_private || reuse == Reuse::Always || !is_first || facts.is_repeatable,
        }
    }
}

/// What follows an attempt to serve a request.
enum Attempted {
    Done(Next),
    /// The endpoint closed an idle connection before it read the request. A new connection may serve it.
    ClosedIdle,
}

/// Serves a request that has a service.
pub(super) async fn run(
    client: &mut Client,
    mut prepared: Box<Prepared>,
    plan: WorkerPlan,
) -> Next {
    let (service, facts) = (&prepared.service, &prepared.facts);
    let mut policy = IdlePolicy::of(client.key(), client.requests == 1, service, facts);
    let mut plan = Some(plan);
    let next = loop {
        match attempt(client, &mut prepared, &mut plan, policy).await {
            Attempted::Done(next) => break next,
            Attempted::ClosedIdle => policy.may_use = false,
        }
    };
    client.leave_endpoint(&prepared.service);
    next
}

async fn attempt(
    client: &mut Client,
    prepared: &mut Prepared,
    plan: &mut Option<WorkerPlan>,
    policy: IdlePolicy,
) -> Attempted {
    let plan = plan
        .take()
        .unwrap_or_else(|| client.connection.worker.plan());
    let dialed = connect(client, prepared, plan, policy).await;
    let (upstream, service) = match dialed {
        Ok(dialed) => dialed,
        Err(unserved) => {
            let body_is_read = prepared.body.body.is_complete();
            let answered = client.turn_away(unserved, &prepared.facts, body_is_read);
            return Attempted::Done(answered.await);
        }
    };
    let worker = Rc::clone(&client.connection.worker);
    let clock = worker.shared.clock;
    let has_cookie = prepared.facts.cookie.is_some();
    client
        .account
        .connected(&service, &upstream, has_cookie, clock.precisely());
    // Named before `stream`, and so dropped after it: the stream is closed before another client may come.
    let Upstream {
        session,
        mut stream,
        is_reused,
        cookie,
        ..
    } = upstream;
    // With TLS it was sent before the handshake.
    if !is_reused && stream.session().is_none() {
        add_proxy_header(client, &service, &mut prepared.out);
    }
    let port = client.local_port();
    let Client {
        connection,
        buffer,
        timer,
        account,
        ..
    } = client;
    let counters = connection.frontend.counters().of(worker.id);
    let endpoint = session.lease.endpoint();
    let mut response = ReadBuffer::new(&worker.buffers);
    let mut exchange = Exchange::new(
        (&mut connection.socket, &mut stream),
        (&prepared.out, mem::take(&mut prepared.body)),
        &mut response,
        prepared.timeouts,
        timer,
        &worker.tools,
    );
    let rewriting = Rewriting {
        service: &service,
        facts: &prepared.facts,
        endpoint: session.lease.endpoint().address(),
        port,
        cookie,
        worker: &worker,
    };
    let head = rewriting.response_head(&mut exchange).await;
    let began = head.is_ok();
    if let Ok(head) = &head {
        account.responded(counters, &session, head.status, clock.precisely());
    }
    let completed = match head {
        Ok(head) if head.kind == ResponseKind::Upgraded => {
            let sent = exchange.send_to_client(&head.out).await;
            let (up, down) = exchange.bytes();
            drop(exchange);
            account.moved(counters, up, down);
            count(&session, prepared.received + up, down);
            if let Err(failure) = sent {
                session.count_fault(failure.fault());
                account.fails(failure);
                return Attempted::Done(Next::Reset);
            }
            let first = buffer.held().to_vec();
            buffer.clear();
            let upgraded = (session, stream);
            return Attempted::Done(tunnel(connection, upgraded, &service, first, account).await);
        }
        Ok(head) => {
            let relayed = match head.framing {
                Framing::Chunked if prepared.facts.version == Version::Http10 => {
                    exchange.relay_unchunked(head.out, &LIMITS).await
                }
                framing => exchange.relay_response(head.out, framing, &LIMITS).await,
            };
            relayed.map(|completed| {
                (
                    completed,
                    head.framing,
                    head.server_keeps,
                    head.client_keeps,
                )
            })
        }
        Err(failure) => Err(failure),
    };
    let (up, down) = exchange.bytes();
    let body_is_read = exchange.request_is_read();
    if completed.is_err() {
        buffer.push(&exchange.take_surplus());
    }
    drop(exchange);
    worker.count_spliced();
    account.moved(counters, up, down);
    account.sees(&service, endpoint);
    count(&session, prepared.received + up, down);
    let (completed, framing, server_keeps, client_keeps) = match completed {
        Ok(completed) => completed,
        Err(Failure::ServerLeft { silent: true }) if is_reused && prepared.facts.is_repeatable => {
            return Attempted::ClosedIdle;
        }
        Err(failure) => {
            if began {
                session.count_fault(failure.fault());
                account.fails(failure);
                return Attempted::Done(Next::Reset);
            }
            session.count_no_response(failure.fault());
            let reported = client.report(failure, &prepared.facts, body_is_read);
            return Attempted::Done(reported.await);
        }
    };
    if framing == Framing::UntilClose && stream.is_truncated() {
        // The response may have been cut off on its way, so it does not end in order for the client either.
        session.count_fault(Some(Side::Server));
        account.fails(Failure::ServerLeft { silent: false });
        return Attempted::Done(Next::Reset);
    }
    if completed.server_is_clean && server_keeps {
        Pool::put(
            &worker,
            stream,
            session.lease.endpoint(),
            service.spec(),
            policy.owner,
        );
    } else {
        stream.close_in_order();
    }
    account.ends(*b"--");
    buffer.push(&completed.surplus);
    let wants_close = !prepared.facts.keep_alive && buffer.is_empty();
    Attempted::Done(Next::after_response(
        completed.request_is_complete,
        client_keeps,
        wants_close,
    ))
}

/// Counts the bytes of a request and of its response at the endpoint.
pub(super) fn count(session: &Session, up: u64, down: u64) {
    let endpoint = session.counters();
    endpoint.bytes_in.add(up);
    endpoint.bytes_out.add(down);
}

/// Gets a connection to an endpoint of the request's service.
async fn connect(
    client: &mut Client,
    prepared: &Prepared,
    plan: WorkerPlan,
    policy: IdlePolicy,
) -> Result<(Upstream, Arc<Service>), Unserved> {
    let Client {
        connection,
        account,
        ..
    } = client;
    let socket = &connection.socket;
    let key = connection.key.with_cookie(prepared.facts.cookie);
    let caller = Caller {
        worker: &connection.worker,
        key: &key,
        began: prepared.facts.began,
        idle: policy.may_use.then_some(policy.owner),
        multiplexed: None,
        preface: &|service| connection.proxy_header(service),
        poll_gone: &|cx| socket.poll_failed(cx),
    };
    let service = Arc::clone(&prepared.service);
    let progress = account.dials(&service);
    let (upstream, service) = dial(caller, service, plan, progress).await?;
    let mut connections = connection.worker.connections.borrow_mut();
    connections.set_endpoint(connection.slot, upstream.session.lease.endpoint());
    drop(connections);
    Ok((upstream, service))
}

/// Puts the PROXY header in front of the first request of a new connection, if the service asks for one.
fn add_proxy_header(client: &Client, service: &Service, out: &mut WriteBuffer) {
    out.splice(0..0, client.connection.proxy_header(service));
}

/// How heads of responses are rewritten for one client.
pub(super) struct Rewriting<'a> {
    pub(super) service: &'a Service,
    pub(super) facts: &'a Facts,
    pub(super) endpoint: SocketAddr,
    /// The port that the client connected to.
    pub(super) port: u16,
    /// The affinity cookie that the client is given.
    pub(super) cookie: Option<CookieValue>,
    pub(super) worker: &'a Worker,
}

/// A response whose head has been rewritten for the client.
struct RewrittenHead {
    out: WriteBuffer,
    kind: ResponseKind,
    status: u16,
    /// How the endpoint frames the body.
    framing: Framing,
    /// Whether the endpoint's connection may serve another request.
    server_keeps: bool,
    /// Whether the client's connection may.
    client_keeps: bool,
    length: usize,
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
        let http = self.service.spec().http.as_ref();
        ToClient {
            response,
            framing,
            answers_head: facts.is_head,
            version: facts.version,
            keeps_connection,
            edits: http.map(|http| &http.response_headers),
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

    /// Parses the head of a response, if it has arrived whole.
    pub(super) fn parse<'r>(
        &self,
        held: &'r [u8],
        search: &mut HeadSearch,
        fields: &'r mut [MaybeUninit<Field<'r>>],
    ) -> Result<Option<ResponseHead<'r>>, Failure> {
        let method = if self.facts.is_head { "HEAD" } else { "GET" };
        parse_response(held, search, fields, &LIMITS, method).map_err(
            |Reject { reason, .. }| {
                tracing::debug!(endpoint = %self.endpoint, reason, "bad response");
                Failure::ServerMalformed
            },
        )
    }

    /// Sends the request and reads the head of the response. Interim responses go to the client at once.
    async fn response_head(&self, exchange: &mut Exchange<'_>) -> Result<RewrittenHead, Failure> {
        let mut server_keeps = true;
        loop {
            let mut search = HeadSearch::default();
            let mut head = loop {
                match self.rewrite(exchange, &mut search)? {
                    Some(head) => break head,
                    None => exchange.more_response().await?,
                }
            };
            exchange.response.consume(head.length);
            server_keeps &= head.server_keeps;
            match head.kind {
                ResponseKind::Interim => {
                    // HTTP/1.0 has no interim responses.
                    if self.facts.version != Version::Http10 {
                        exchange.send_to_client(&head.out).await?;
                    }
                }
                ResponseKind::Upgraded if !self.facts.upgrades => {
                    return Err(Failure::ServerMalformed);
                }
                ResponseKind::Upgraded => {
                    head.out.extend_from_slice(exchange.response.held());
                    return Ok(head);
                }
                ResponseKind::Final => {
                    head.server_keeps = server_keeps;
                    return Ok(head);
                }
            }
        }
    }

    /// Writes the head for the client, if the endpoint's has arrived whole.
    fn rewrite(
        &self,
        exchange: &Exchange<'_>,
        search: &mut HeadSearch,
    ) -> Result<Option<RewrittenHead>, Failure> {
        let held = exchange.response.held();
        if held.is_empty() {
            return Ok(None);
        }
        let mut fields = [const { MaybeUninit::uninit() }; LIMITS.fields];
        let Some(head) = self.parse(held, search, &mut fields)? else {
            return Ok(None);
        };
        let version = self.facts.version;
        let framing = framing_to(version, head.framing);
        let is_final = head.kind == ResponseKind::Final;
        let client_keeps =
            self.keeps_client() && framing != Framing::UntilClose && exchange.request_is_read();
        let to = self.to_client(&head.response, framing, client_keeps || !is_final);
        let mut out = self.worker.buffers.for_writing();
        forward::response(&mut out, &to);
        Ok(Some(RewrittenHead {
            out,
            kind: head.kind,
            status: head.response.status,
            framing: head.framing,
            server_keeps: head.keep_alive,
            client_keeps,
            length: head.length,
        }))
    }
}

/// Relays the bytes of another protocol, to which both sides have switched.
async fn tunnel(
    connection: &mut Connection,
    (session, mut stream): (Session, MaybeTls),
    service: &Service,
    first: Vec<u8>,
    account: &mut Account,
) -> Next {
    let spec = &service.spec().timeouts;
    let timeouts = RelayTimeouts {
        idle: Some(spec.tunnel),
        half_closed: spec.server_fin,
        abort: spec.server_fin,
    };
    let worker = Rc::clone(&connection.worker);
    let frontend = connection.frontend.counters().of(worker.id);
    let moved = |up, down| {
        account.moved(frontend, up, down);
        count(&session, up, down);
        worker.count_spliced();
    };
    let client = &mut connection.socket;
    let closed = relay(client, &mut stream, first, timeouts, &worker.tools, moved).await;
    let fault = closed.fault(true);
    session.count_fault(fault);
    account.ends(relay_letters(closed.why, fault));
    account.sees(service, session.lease.endpoint());
    match closed.why {
        Why::Finished => Next::Close,
        _ => Next::Reset,
    }
}

/// The limits of responses.
pub(super) const LIMITS: Limits = Limits {
    bytes: 64 * 1024,
    fields: 128,
};
