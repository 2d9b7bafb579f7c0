//! A request whose client, or whose endpoint, speaks HTTP/2: gets a connection to an endpoint, sends the request, and sends the
//! response to the client.
//!
//! Between HTTP/1 on both sides, [`super::forwarding`] is faster. Here bodies are taken apart into frames: a frame of one side
//! is sent to the other one before the next frame is read, so a slow reader slows the sender down. Both directions, the head of
//! the response and all timeouts are polled by the one task of the request; when that task ends, whatever the reason, dropping
//! what it holds releases the endpoint and resets the streams that have not ended.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use ballast_core::admit::Refusal;
use ballast_core::http::Framing;
use ballast_core::pick::Key;
use ballast_core::plan::FrontendCounters;
use ballast_core::service::Service;
use h2::Reason;

use super::account::Account;
use super::buffers::{ReadBuffer, WriteBuffer};
use super::exchange::Failure;
use super::forwarding::{IdlePolicy, LIMITS, Rewriting, count};
use super::idle_timer::{IdleTimer, Timeouts};
use super::links::{Multiplexed, Use};
use super::pool::Pool;
use super::request::Facts;
use crate::poller::Timer;
use crate::tcp::{Caller, Link, Unserved, Upstream, dial_link};
use crate::worker::{Worker, WorkerPlan};

mod exchange;
mod pump;
mod side;

use exchange::Exchange;
use pump::Flow;
pub(super) use side::{Broken, Frame, H1, H2, Side};

/// A request whose head has been rewritten for its service.
pub(super) struct Prepared {
    pub(super) service: Arc<Service>,
    pub(super) head: EndpointHead,
    /// How the body is framed, to the endpoint as from the client.
    pub(super) framing: Framing,
    pub(super) facts: Facts,
    pub(super) timeouts: Timeouts,
}

/// The head of a request as the endpoint gets it.
pub(super) enum EndpointHead {
    H1(WriteBuffer),
    H2(http::Request<()>),
}

/// Where a request comes from.
pub(super) struct Origin<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) key: Key,
    pub(super) counters: &'a FrontendCounters,
    pub(super) account: &'a mut Account,
    /// The slot of the client's connection among the worker's connections.
    pub(super) slot: usize,
    /// The port that the client connected to.
    pub(super) port: u16,
    pub(super) policy: IdlePolicy,
    /// The PROXY header for a new connection of this service.
    pub(super) proxy_header: &'a dyn Fn(&Service) -> Vec<u8>,
}

/// How a request ended.
pub(super) enum Ended {
    /// The client got the whole response.
    Done(Done),
    Unserved(Unserved),
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

#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    /// The reason with which one side has reset its stream, for the other side.
    pub(super) reset: Option<Reason>,
    /// Whether the endpoint has certainly done nothing about the request.
    is_refused: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            reset: None,
            is_refused: false,
        }
    }
}

impl Failed {
    fn by_client(broken: Broken) -> Self {
        Self {
            failure: match broken {
                Broken::Malformed => Failure::ClientMalformed,
                Broken::Left | Broken::Reset(_) | Broken::Refused => Failure::ClientLeft,
            },
            reset: match broken {
                Broken::Reset(reason) => Some(reason),
                _ => None,
            },
            is_refused: false,
        }
    }

    fn by_server(broken: Broken, silent: bool) -> Self {
        Self {
            failure: match broken {
                Broken::Malformed => Failure::ServerMalformed,
                Broken::Left | Broken::Reset(_) | Broken::Refused => Failure::ServerLeft { silent },
            },
            reset: match broken {
                Broken::Reset(reason) => Some(reason),
                Broken::Refused => Some(Reason::REFUSED_STREAM),
                _ => None,
            },
            is_refused: broken == Broken::Refused,
        }
    }
}

/// Serves a request that has a service.
pub(super) async fn run(
    mut origin: Origin<'_>,
    prepared: &Prepared,
    client: &mut Side<'_>,
    plan: WorkerPlan,
    timer: &mut Timer,
) -> Ended {
    let mut plan = Some(plan);
    for _ in 0..MOST_REPEATS {
        let plan = plan.take().unwrap_or_else(|| origin.worker.plan());
        match attempt(&mut origin, prepared, client, plan, timer).await {
            Attempted::Ended(ended) => return ended,
            Attempted::Refused => {}
            Attempted::ClosedIdle => origin.policy.may_use = false,
        }
    }
    Ended::Unserved(Refusal::Failed.into())
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

async fn attempt(
    origin: &mut Origin<'_>,
    prepared: &Prepared,
    client: &mut Side<'_>,
    plan: WorkerPlan,
    timer: &mut Timer,
) -> Attempted {
    let worker = origin.worker;
    let clock = worker.shared.clock;
    let upstream = match connect(origin, prepared, client, plan).await {
        Ok(upstream) => upstream,
        Err(unserved) => return Ended::Unserved(unserved).into(),
    };
    let (upstream, service) = upstream;
    let facts = &prepared.facts;
    let has_body = prepared.framing.has_body();
    let account = &mut *origin.account;
    account.connected(
        &service,
        &upstream,
        facts.cookie.is_some(),
        clock.precisely(),
    );
    // Dropped after `own` and `used`, which are declared below: the stream is closed before another client may come.
    let session = upstream.session;
    let is_reused = upstream.is_reused;
    let cookie = upstream.cookie;
    let endpoint = session.lease.endpoint();
    let mut response = ReadBuffer::new(&worker.buffers);
    let mut own = None;
    // Counts at the connection of HTTP/2 until the request has ended.
    let used: Option<Use>;
    let server = match (upstream.stream, &prepared.head) {
        (Link::Own(stream), EndpointHead::H1(head)) => {
            let stream = own.insert(stream);
            used = None;
            let mut pending = worker.buffers.for_writing();
            // With TLS it was sent before the handshake.
            if !is_reused && stream.session().is_none() {
                pending.extend_from_slice(&(origin.proxy_header)(&service));
            }
            pending.extend_from_slice(head);
            let none = (Framing::Empty, &LIMITS);
            let sends = prepared.framing;
            Side::H1(H1::new(stream, &mut response, none, pending, sends))
        }
        (Link::Shared(link), EndpointHead::H2(head)) => {
            let sent = link.send(head.clone(), !has_body);
            used = Some(link);
            match sent {
                Ok((response, send)) => Side::H2(H2::of_endpoint(response, send)),
                // The connection has just ended.
                Err(_) => return Attempted::Refused,
            }
        }
        // The dial returns what the head is for.
        _ => return Ended::Unserved(Refusal::Failed.into()).into(),
    };
    let mut exchange = Exchange {
        client,
        server,
        up: Flow::new(has_body),
        down: Flow::new(true),
        server_dead: false,
        timer: IdleTimer::new(timer, clock),
        timeouts: prepared.timeouts,
    };
    let rewriting = Rewriting {
        service: &service,
        facts,
        endpoint: session.lease.endpoint().address(),
        port: origin.port,
        cookie,
        worker,
    };
    let head = exchange.response_head(&rewriting).await;
    let began = head.is_ok();
    if let Ok(head) = &head {
        account.responded(origin.counters, &session, head.status, clock.precisely());
    }
    let relayed = match head {
        Ok(head) => exchange.relay().await.map(|()| head),
        Err(failed) => Err(failed),
    };
    let (up, down) = (exchange.up.bytes, exchange.down.bytes);
    account.moved(origin.counters, up, down);
    account.sees(&service, endpoint);
    count(&session, up, down);
    let is_cut = used.as_ref().is_some_and(Use::is_cut);
    let head = match relayed {
        Ok(head) => head,
        Err(failed) => {
            let failed = match is_cut {
                true => Failed::from(Failure::Cut),
                false => failed,
            };
            let is_silent = failed.failure == Failure::ServerLeft { silent: true };
            let is_untouched = !exchange.up.is_touched;
            if !began && is_untouched && failed.is_refused {
                return Attempted::Refused;
            }
            if !began && is_silent && is_reused && facts.is_repeatable {
                return Attempted::ClosedIdle;
            }
            match began {
                true => session.count_fault(failed.failure.fault()),
                false => session.count_no_response(failed.failure.fault()),
            }
            account.fails(failed.failure);
            if let Some(reason) = failed.reset {
                exchange.server.reset(reason);
            }
            let ended = match began {
                true => Ended::Broken(failed),
                false => Ended::Failed(failed),
            };
            return ended.into();
        }
    };
    let done = Done {
        request_is_complete: exchange.up.is_read,
        client_keeps: head.client_keeps,
    };
    let is_clean = head.server_keeps && exchange.server_is_clean();
    drop(exchange);
    if let Some(stream) = own {
        if head.framing == Framing::UntilClose && stream.is_truncated() {
            // The response may have been cut off on its way, so it does not end in order for the client either.
            session.count_fault(Some(crate::relay::Side::Server));
            let failed = Failed::from(Failure::ServerLeft { silent: false });
            account.fails(failed.failure);
            return Ended::Broken(failed).into();
        }
        if is_clean && response.is_empty() {
            let (endpoint, owner) = (session.lease.endpoint(), origin.policy.owner);
            Pool::put(worker, stream, endpoint, service.spec(), owner);
        } else {
            stream.close_in_order();
        }
    }
    account.ends(*b"--");
    Ended::Done(done).into()
}

/// Gets a connection to an endpoint of the request's service.
async fn connect(
    origin: &mut Origin<'_>,
    prepared: &Prepared,
    client: &mut Side<'_>,
    plan: WorkerPlan,
) -> Result<(Upstream<Link>, Arc<Service>), Unserved> {
    let worker = origin.worker;
    let key = origin.key.with_cookie(prepared.facts.cookie);
    let client = RefCell::new(client);
    let caller = Caller {
        worker,
        key: &key,
        began: prepared.facts.began,
        idle: origin.policy.may_use.then_some(origin.policy.owner),
        multiplexed: match prepared.head {
            EndpointHead::H1(_) => None,
            EndpointHead::H2(_) => Some(Multiplexed {
                owner: origin.policy.owner,
            }),
        },
        preface: origin.proxy_header,
        poll_gone: &|cx| {
            let mut cx = Context::from_waker(cx.waker());
            client.borrow_mut().poll_gone(&mut cx).map(drop)
        },
    };
    let service = Arc::clone(&prepared.service);
    let progress = origin.account.dials(&service);
    let (upstream, service) = dial_link(caller, service, plan, progress).await?;
    let mut connections = worker.connections.borrow_mut();
    connections.set_endpoint(origin.slot, upstream.session.lease.endpoint());
    drop(connections);
    Ok((upstream, service))
}

/// A request that endpoints keep refusing is answered with an error at last.
const MOST_REPEATS: usize = 4;
