//! One exchange: a request of a client of either version of HTTP gets a connection to an endpoint of either version, is sent there,
//! and the client gets the response.
//!
//! Both directions, the head of the response and all timeouts are polled by the one task of the request ([`relay`]); when that task
//! ends, whatever the reason, dropping what it holds releases the endpoint and resets what has not ended. A response may begin, and
//! end, before the request has been sent whole.

use std::cell::{Cell, OnceCell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use ballast_core::admit::{Admission, Refusal};
use ballast_core::http::Framing;
use ballast_core::http1::ResponseKind;
use ballast_core::http2::ErrorCode;
use ballast_core::service::Service;
use ballast_core::table::{self, HttpVersion};

use super::account::Account;
use super::idle_policy::IdlePolicy;
use super::idle_timer::IdleTimer;
use super::peer::Peer;
use super::request::Prepared;
use super::side::{Broken, H1, H2, HttpSide};
use crate::connect::{Caller, EndpointSession, Link, Unserved, Upstream, dial_link};
use crate::net::poller::Timer;
use crate::net::relay::Side;
use crate::net::tls::MaybeTls;
use crate::worker::WorkerPlan;
use crate::worker::buffers::ReadBuffer;
use crate::worker::pool::{ENDPOINT_WINDOW, Multiplexed, Pool, Use};

mod relay;
mod rewriting;
mod transfer;
mod tunnel;

use relay::{Relay, Relayed, Tally};
use rewriting::Rewriting;
pub(super) use transfer::BodyExtent;
use transfer::Transfer;

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeFailure {
    /// The client's connection failed, or its stream was reset.
    ClientLeft,
    /// The client did not send its body, or did not read the response, in time.
    ClientTimedOut,
    /// The body of the request is malformed.
    ClientMalformed,
    /// The endpoint's connection ended or failed too early, or its stream was reset. `silent`: before a byte of the response.
    ServerLeft {
        silent: bool,
    },
    ServerTimedOut,
    /// The response is malformed.
    ServerMalformed,
    /// The time for the whole request is over.
    Expired,
    /// An order cut the endpoint's connections.
    Cut,
}

impl ExchangeFailure {
    /// The side at fault.
    pub(super) fn fault(self) -> Option<Side> {
        match self {
            Self::ClientLeft | Self::ClientTimedOut | Self::ClientMalformed => Some(Side::Client),
            Self::ServerLeft { .. } | Self::ServerTimedOut | Self::ServerMalformed => {
                Some(Side::Server)
            }
            Self::Expired | Self::Cut => None,
        }
    }
}

/// A failure, and what is sent to the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) failure: ExchangeFailure,
    /// The reason with which one side has reset its stream, for the other side.
    pub(super) reset: Option<ErrorCode>,
    /// Whether the endpoint has certainly done nothing about the request.
    is_refused: bool,
}

impl From<ExchangeFailure> for Failed {
    fn from(failure: ExchangeFailure) -> Self {
        Self {
            failure,
            reset: None,
            is_refused: false,
        }
    }
}

impl Failed {
    /// Why a request has failed, in view of what has become of the connection that it shares.
    fn in_view_of(self, link: &Use) -> Self {
        if link.is_cut() {
            return ExchangeFailure::Cut.into();
        }
        if link.is_silent() && self.failure.fault() == Some(Side::Server) {
            // It may have served the request all the same.
            return ExchangeFailure::ServerTimedOut.into();
        }
        let is_doubtful = match self.failure {
            ExchangeFailure::ServerTimedOut => true,
            // The request alone may have been slow, unless the endpoint has said nothing at all.
            ExchangeFailure::Expired => !link.has_heard(),
            _ => false,
        };
        if is_doubtful {
            link.doubt();
        }
        self
    }

    fn by_client(broken: Broken) -> Self {
        Self {
            reset: match broken {
                Broken::Reset(code) => Some(code),
                Broken::Left | Broken::Malformed | Broken::Refused => None,
            },
            ..match broken {
                Broken::Malformed => ExchangeFailure::ClientMalformed,
                Broken::Left | Broken::Reset(_) | Broken::Refused => ExchangeFailure::ClientLeft,
            }
            .into()
        }
    }

    fn by_server(broken: Broken, silent: bool) -> Self {
        Self {
            failure: match broken {
                Broken::Malformed => ExchangeFailure::ServerMalformed,
                Broken::Left | Broken::Reset(_) | Broken::Refused => {
                    ExchangeFailure::ServerLeft { silent }
                }
            },
            reset: match broken {
                Broken::Reset(code) => Some(code),
                Broken::Refused => Some(ErrorCode::REFUSED_STREAM),
                Broken::Left | Broken::Malformed => None,
            },
            is_refused: broken == Broken::Refused,
        }
    }

    /// Whether the request may be sent again if it is repeatable: its connection ended without a byte of a response. A stream that
    /// the endpoint has reset may have been served.
    fn is_silent(&self) -> bool {
        self.failure == ExchangeFailure::ServerLeft { silent: true } && self.reset.is_none()
    }
}

pub(super) enum Ended {
    /// The client got the whole response.
    Done(Done),
    /// Both sides went on with another protocol, which has ended; `in_order`: as it should.
    Tunnel {
        in_order: bool,
    },
    Unserved(Unserved),
    /// A new table has removed the service before an endpoint was connected, or asks for another head. The client's side still holds
    /// the head of the request, which is routed anew.
    Outdated,
    /// The client got no response.
    Failed(Failed),
    /// The client got a part of the response.
    Broken(Failed),
}

/// The end of a request with a response.
pub(super) struct Done {
    /// Whether the whole request was read from the client.
    pub(super) request_is_complete: bool,
    /// Whether the head of the response promised another request on the client's connection.
    pub(super) client_keeps: bool,
}

/// A request's way to its response.
pub(super) struct Exchange<'a, 'c> {
    pub(super) peer: &'a Peer,
    pub(super) account: &'a mut Account,
    pub(super) prepared: &'a mut Prepared,
    pub(super) client: &'a mut HttpSide<'c>,
    pub(super) timer: &'a mut Timer,
    /// As in [`Caller`].
    pub(super) room: Option<&'a OnceCell<Admission>>,
}

/// What follows an attempt to serve a request.
enum Attempted {
    Ended(Ended),
    /// The endpoint has done nothing about the request, and takes no more by this connection.
    Refused,
    /// The endpoint closed an idle connection before it read the request. A new connection may serve it.
    ClosedIdle,
}

impl From<Ended> for Attempted {
    fn from(ended: Ended) -> Self {
        Self::Ended(ended)
    }
}

impl Exchange<'_, '_> {
    /// Serves the request.
    pub(super) async fn run(mut self, plan: WorkerPlan, mut policy: IdlePolicy) -> Ended {
        let mut plan = Some(plan);
        for _ in 0..MOST_ATTEMPTS {
            let plan = plan.take().unwrap_or_else(|| self.peer.worker.plan());
            match self.attempt(plan, policy).await {
                Attempted::Ended(ended) => return ended,
                Attempted::Refused => {}
                Attempted::ClosedIdle => policy.may_use = false,
            }
        }
        Ended::Unserved(Refusal::Failed.into())
    }

    async fn attempt(&mut self, plan: WorkerPlan, policy: IdlePolicy) -> Attempted {
        let routed_by = Rc::clone(&plan);
        let connected = self.connect(plan, policy).await;
        if !matches!(connected, Err(Ended::Outdated)) {
            self.settle(&routed_by);
        }
        drop(routed_by);
        let (upstream, service) = match connected {
            Ok(connected) => connected,
            Err(ended) => return ended.into(),
        };
        let worker = Rc::clone(&self.peer.worker);
        let clock = worker.shared.clock;
        self.account
            .connected(&service, &upstream, clock.precisely());
        // Named before `own` and `shared`, and so dropped after them: the stream is closed before another client may come.
        let Upstream {
            session,
            stream: link,
            is_reused,
            cookie,
            ..
        } = upstream;
        let endpoint = session.lease.endpoint();
        let mut response = ReadBuffer::new(&worker.buffers);
        let mut own = None;
        // Counts at the connection of HTTP/2 until the request has ended.
        let shared: Option<Use>;
        let server = match link {
            Link::Own(stream) => {
                shared = None;
                let is_new = !is_reused;
                self.over_h1(own.insert(stream), &mut response, &service, is_new)
            }
            Link::Shared(link) => {
                let stream = self.over_h2(&link);
                shared = Some(link);
                match stream {
                    Some(side) => side,
                    // The connection has just ended, or is full.
                    None => return Attempted::Refused,
                }
            }
        };
        let up = self.request_body(&server);
        let prepared = &*self.prepared;
        let rewriting = Rewriting {
            service: &service,
            facts: &prepared.facts,
            endpoint: endpoint.address(),
            port: self.peer.local_port(),
            cookie,
            worker: &worker,
        };
        let mut relay = Relay {
            client: self.client,
            server,
            up,
            down: None,
            expects: prepared.facts.expects,
            interims: 0,
            server_dead: false,
            timer: IdleTimer::new(self.timer, clock, prepared.until),
            timeouts: prepared.timeouts,
            tools: &worker.tools,
            head_bytes: 0,
            tally: Tally {
                account: self.account,
                frontend: self.peer.counters(),
                session: &session,
                counted: (0, 0),
            },
        };
        session.count_bytes(prepared.received as u64, 0);
        let Relayed { head, has_begun } = relay.run(&rewriting).await;
        let request_is_read = relay.up.is_read;
        worker.count_spliced();
        relay.tally.account.sees(&service, endpoint);
        let head = match head {
            Ok(head) => head,
            Err(failed) => {
                let failed = match &shared {
                    Some(link) => failed.in_view_of(link),
                    None => failed,
                };
                // Not a second time: the request may be what makes endpoints close.
                let may_repeat = is_reused && policy.may_use && prepared.facts.is_repeatable;
                if !has_begun && let Some(again) = again(&relay, &failed, may_repeat) {
                    return again;
                }
                if let Some(code) = failed.reset {
                    relay.server.reset(code);
                }
                drop(relay);
                self.prepared.request_is_read = request_is_read;
                // Nothing may follow a part of an interim response.
                let has_begun = has_begun || self.client.is_stuck();
                return self.failed(failed, &session, has_begun).into();
            }
        };
        if head.kind == ResponseKind::Upgraded {
            drop(relay);
            return self.tunnel(own, &session, &service).await.into();
        }
        let is_clean = relay.server_is_clean() && head.server_keeps;
        drop(relay);
        match own {
            Some(stream) if is_clean => {
                Pool::put(&worker, stream, endpoint, service.spec(), policy.owner);
            }
            Some(stream) => stream.close_in_order(),
            None => {}
        }
        self.account.ends(*b"--");
        let done = Done {
            request_is_complete: request_is_read,
            client_keeps: head.client_keeps,
        };
        Ended::Done(done).into()
    }

    /// Relays the bytes of the other protocol, which only HTTP/1 can be switched to.
    async fn tunnel(
        &mut self,
        stream: Option<MaybeTls>,
        session: &EndpointSession,
        service: &Service,
    ) -> Ended {
        match (&mut *self.client, stream) {
            (HttpSide::H1(client), Some(stream)) => {
                tunnel::run(client, stream, session, service, self.peer, self.account).await
            }
            _ => Ended::Broken(ExchangeFailure::ServerMalformed.into()),
        }
    }

    /// Accounts for a request that has failed.
    fn failed(&mut self, failed: Failed, session: &EndpointSession, has_begun: bool) -> Ended {
        let is_cut = failed.failure == ExchangeFailure::ClientLeft && self.client.is_cut();
        let failed = if is_cut {
            ExchangeFailure::Cut.into()
        } else {
            failed
        };
        self.account.fails(failed.failure);
        if has_begun {
            session.count_fault(failed.failure.fault());
            Ended::Broken(failed)
        } else {
            session.count_no_response(failed.failure.fault());
            Ended::Failed(failed)
        }
    }

    /// The request over a connection of its own.
    fn over_h1<'e>(
        &mut self,
        stream: &'e mut MaybeTls,
        response: &'e mut ReadBuffer,
        service: &Service,
        is_new: bool,
    ) -> HttpSide<'e> {
        let prepared = &mut *self.prepared;
        let mut pending = self.peer.worker.buffers.for_writing();
        // With TLS it was sent before the handshake.
        if is_new && stream.session().is_none() {
            pending.extend_from_slice(&self.peer.proxy_header(service));
        }
        if pending.is_empty() && !prepared.facts.is_repeatable {
            // It is not sent a second time.
            mem::swap(&mut pending, &mut prepared.head);
        } else {
            pending.extend_from_slice(&prepared.head);
        }
        let sends = prepared.framing;
        HttpSide::H1(H1::new(stream, response, Framing::Empty, pending, sends))
    }

    /// The request over a connection that others use, too.
    fn over_h2(&self, link: &Use) -> Option<HttpSide<'static>> {
        let prepared = &*self.prepared;
        let is_whole = !prepared.framing.has_body();
        let stream = link.request(&prepared.head, is_whole, prepared.facts.is_head)?;
        Some(HttpSide::H2(H2::new(
            stream,
            ENDPOINT_WINDOW,
            self.peer.share(),
        )))
    }

    /// How the body of the request is moved.
    fn request_body(&mut self, server: &HttpSide<'_>) -> Transfer {
        let trailing = self.prepared.trailing.clone();
        match (server, self.prepared.body.take()) {
            (HttpSide::H1(_), Some(extent)) => Transfer::of_bytes(extent, trailing),
            _ => Transfer::of_frames(self.prepared.framing.has_body(), trailing),
        }
    }

    /// Gives up the head of the request, which stays with its route and its service in this plan from now on, and counts there.
    fn settle(&mut self, plan: &WorkerPlan) {
        if !self.client.holds_head() {
            return;
        }
        self.client.drop_head();
        let (peer, prepared) = (self.peer, &*self.prepared);
        self.account.received(peer.counters(), prepared.received);
        if let Some((_, http)) = peer.frontend_in(plan) {
            http.routes()
                .count_forwarded(prepared.place, peer.worker.id);
        }
    }

    /// Gets a connection to an endpoint of the request's service.
    async fn connect(
        &mut self,
        plan: WorkerPlan,
        policy: IdlePolicy,
    ) -> Result<(Upstream<Link>, Arc<Service>), Ended> {
        let Self {
            peer,
            account,
            prepared,
            client,
            timer,
            room,
        } = self;
        let worker = &peer.worker;
        let key = peer.key.with_cookie(prepared.facts.cookie.value());
        let is_late = Cell::new(false);
        let is_outdated = Cell::new(false);
        match prepared.until {
            Some(until) => timer.set(until),
            None => timer.clear(),
        }
        let holds_head = client.holds_head();
        let client = RefCell::new(&mut **client);
        let poll_gone = |cx: &Context<'_>| {
            if timer.poll(cx).is_ready() {
                is_late.set(true);
                return Poll::Ready(());
            }
            let mut client = client.borrow_mut();
            client.waits();
            client.poll_gone(cx).map(drop)
        };
        let service_in = |plan: &WorkerPlan, before: &Service| {
            let found = service_in(plan, before, holds_head);
            is_outdated.set(holds_head && found.is_err());
            found
        };
        let caller = Caller {
            worker,
            key: &key,
            slot: peer.slot,
            began: prepared.facts.began,
            has_come: mem::replace(&mut prepared.has_come, true),
            idle: policy.may_use.then_some(policy.owner),
            keeps: policy.owner.is_none(),
            multiplexed: (prepared.version == HttpVersion::H2).then_some(Multiplexed {
                owner: policy.owner,
            }),
            proxy_header: &|service| peer.proxy_header(service),
            room: *room,
            service_in: &service_in,
            poll_gone: &poll_gone,
        };
        let service = Arc::clone(&prepared.service);
        let progress = account.dials(&service, prepared.facts.cookie, prepared.facts.began);
        match dial_link(caller, service, plan, progress).await {
            Ok(dialed) => Ok(dialed),
            Err(_) if is_late.get() => {
                account.fails(ExchangeFailure::Expired);
                Err(Ended::Failed(ExchangeFailure::Expired.into()))
            }
            Err(unserved) => {
                if is_outdated.get() {
                    return Err(Ended::Outdated);
                }
                if client.into_inner().is_cut() {
                    account.fails(ExchangeFailure::Cut);
                }
                Err(Ended::Unserved(unserved))
            }
        }
    }
}

/// The service of the same name. An error: there is none, or another head is to be written for it, and `holds_head`. Without its head
/// the request stays with the service as it was.
fn service_in(
    plan: &WorkerPlan,
    before: &Service,
    holds_head: bool,
) -> Result<Option<Arc<Service>>, Refusal> {
    let service = plan.service(before.state().name());
    let service = service.ok_or(Refusal::NoEndpoint)?;
    if takes_same_head(service.spec(), before.spec()) {
        return Ok(Some(Arc::clone(service)));
    }
    if holds_head {
        return Err(Refusal::NoEndpoint);
    }
    Ok(None)
}

/// Whether a request that was prepared for the service as it was `before` may go to it as it is now: the same head is written in the
/// same version of HTTP, its connections belong to one client or to all as before, and it may take as long.
fn takes_same_head(now: &table::Service, before: &table::Service) -> bool {
    now.http == before.http
        && now.send_proxy == before.send_proxy
        && now.tls.is_some() == before.tls.is_some()
        && now.affinity == before.affinity
        && now.timeouts == before.timeouts
}

/// Whether a request, of whose response the client has got nothing, is sent again. `may_repeat`: even if an endpoint may have read it.
fn again(relay: &Relay<'_, '_>, failed: &Failed, may_repeat: bool) -> Option<Attempted> {
    if failed.is_refused && !relay.up.is_touched {
        return Some(Attempted::Refused);
    }
    (may_repeat && failed.is_silent()).then_some(Attempted::ClosedIdle)
}

/// A request that endpoints keep refusing is answered with an error at last.
const MOST_ATTEMPTS: usize = 4;
