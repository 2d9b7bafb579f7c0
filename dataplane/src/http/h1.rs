//! A client's HTTP/1 connection: its requests, one after the other.
//!
//! One task serves the connection and drives both of its sides. While a connection waits for a request, it holds neither a buffer
//! nor the plan.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::task::Poll;

use ballast_core::admit::Refusal;
use ballast_core::http::{Field, Framing};
use ballast_core::http1::{Body, HeadSearch, Limits, Reject, RequestHead, parse_request};
use ballast_core::http2;
use ballast_core::moment::Moment;
use ballast_core::plan::{HttpFrontend, SocketKey};
use ballast_core::table::{HttpVersion, SendProxy};

use super::account::{Account, request_line};
use super::answers::{ReadyAnswer, Reason, SEND_TIMEOUT};
use super::exchange::{BodyExtent, Ended, Exchange};
use super::h2;
use super::idle_policy::IdlePolicy;
use super::linger::linger;
use super::peer::Peer;
use super::request::{Message, NextStep, Prepared, prepare};
use super::send_all::send_all;
use super::side::{H1, HttpSide};
use crate::net::poller::Timer;
use crate::net::relay::Extent;
use crate::os::clock::Micros;
use crate::worker::buffers::ReadBuffer;
use crate::worker::{Connection, WorkerPlan};

/// A client's connection between and during its requests.
struct Client {
    connection: Connection,
    peer: Rc<Peer>,
    /// Bytes of the client that have been read and not yet used.
    buffer: ReadBuffer,
    timer: Timer,
    /// The account of the request that is being served, if one is.
    account: Account,
}

/// What follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The client's next request.
    Request,
    /// An orderly close.
    Close,
    /// An orderly close, after what the client still sends has been read: a close with unread bytes would reset the connection
    /// and could destroy the response on its way.
    Linger,
    /// A reset, because the client did not get a whole response.
    Reset,
    /// HTTP/2: it is what the client speaks.
    Http2,
}

impl Next {
    /// What follows a whole response. `client_keeps`: the response has promised that the connection takes another request.
    /// `wants_close`: the client has asked for the close, and has sent nothing since.
    fn after_response(request_is_complete: bool, client_keeps: bool, wants_close: bool) -> Self {
        if request_is_complete && client_keeps {
            Self::Request
        } else if request_is_complete && wants_close {
            Self::Close
        } else {
            // The client may have sent its next request.
            Self::Linger
        }
    }
}

/// Serves the connection until it ends. `first` are bytes of the client that have been read.
pub(crate) async fn serve(mut connection: Connection, socket: Rc<SocketKey>, first: Vec<u8>) {
    let worker = Rc::clone(&connection.worker);
    let mut client = Client {
        timer: Timer::new(&worker.tools.poller),
        buffer: ReadBuffer::new(&worker.buffers),
        peer: Rc::new(Peer::of(&mut connection, socket)),
        connection,
        account: Account::default(),
    };
    client.buffer.push(&first);
    drop(first);
    let session = client.connection.socket.session();
    if session.is_some_and(|session| session.alpn() == Some(b"h2")) {
        return to_http2(&mut client).await;
    }
    loop {
        let next = client.next_request().await;
        client.account.close(&client.peer);
        match next {
            // Requests that are already here could keep the worker from its other tasks.
            Next::Request if !client.buffer.is_empty() => tokio::task::yield_now().await,
            Next::Request => {}
            Next::Close => {
                client.connection.socket.close();
                break;
            }
            Next::Linger => {
                client.buffer.clear();
                linger(&worker, &mut client.connection.socket).await;
                break;
            }
            Next::Reset => break,
            Next::Http2 => return to_http2(&mut client).await,
        }
    }
    worker.pool.forget(Some(client.peer.id()));
}

/// Goes on with a client that speaks HTTP/2.
async fn to_http2(client: &mut Client) {
    let first = client.buffer.held().to_vec();
    client.buffer.clear();
    let peer = Rc::clone(&client.peer);
    // Boxed, so that connections of HTTP/1 have no room for it.
    Box::pin(h2::serve(&mut client.connection, peer, first)).await;
}

enum Filled {
    More,
    Ended,
    Failed,
    TimedOut,
}

/// What the bytes of the client are.
enum Read {
    /// Not a whole head.
    More,
    Request(NextStep),
}

impl Client {
    /// Reads the next request and serves it.
    async fn next_request(&mut self) -> Next {
        let worker = Rc::clone(&self.peer.worker);
        let mut search = HeadSearch::default();
        let mut deadline = None;
        // When the first byte of the request was read.
        let mut began = None;
        loop {
            let plan = worker.plan();
            let Some((_, http)) = self.peer.admitted_in(&plan) else {
                return self.without_frontend(began).await;
            };
            let is_preface = self.preface(http);
            if is_preface == Some(true) {
                return Next::Http2;
            }
            if !self.buffer.is_empty() && is_preface.is_none() {
                let now = worker.shared.clock.precisely();
                let times = (*began.get_or_insert(now), now);
                match self.read(&plan, &mut search, times) {
                    Read::More => {}
                    Read::Request(NextStep::Forward(prepared)) => {
                        return self.forward(prepared, plan).await;
                    }
                    Read::Request(NextStep::Answer(answer)) => return self.send(answer).await,
                }
            }
            let options = http.options();
            let now = worker.shared.clock.soon();
            let until = if self.buffer.is_empty() && self.peer.requests.get() > 0 {
                now.after(options.keep_alive_timeout)
            } else {
                *deadline.get_or_insert_with(|| now.after(options.request_timeout))
            };
            drop(plan);
            match self.fill(until).await {
                Filled::More => {}
                Filled::TimedOut if self.buffer.is_empty() => return Next::Close,
                Filled::TimedOut => return self.reject(408, Reason::Late, began).await,
                Filled::Ended => {
                    self.left_early(began);
                    return Next::Close;
                }
                Filled::Failed => {
                    self.left_early(began);
                    return Next::Reset;
                }
            }
        }
    }

    /// The table no longer has the frontend of this client, or not for this client.
    async fn without_frontend(&mut self, began: Option<Micros>) -> Next {
        if self.buffer.is_empty() {
            return Next::Close;
        }
        let is_there = self.peer.frontend_in(&self.peer.worker.plan()).is_some();
        if is_there || self.peer.requests.get() > 0 {
            // The request has crossed the close of an idle connection: the client asks again by a new connection.
            return Next::Linger;
        }
        let worker = Rc::clone(&self.peer.worker);
        let began = began.unwrap_or_else(|| worker.shared.clock.precisely());
        let held = self.buffer.held();
        let line = |out: &mut Vec<u8>| out.extend_from_slice(request_line(held));
        self.account = Account::of(&self.peer, "", line, began, began);
        self.peer.counters().requests.add(1);
        self.count_bytes();
        self.account.unserved(Refusal::NoEndpoint.into(), &worker);
        let answer = ReadyAnswer::rejected(&self.peer, 503, None, Reason::Unserved);
        self.send(answer).await
    }

    /// Whether the first bytes of the connection are the preface of HTTP/2: `None` if they are not, `false` if they are a part
    /// of it. In TLS, a client chooses HTTP/2 by ALPN instead.
    fn preface(&self, http: &HttpFrontend) -> Option<bool> {
        let held = self.buffer.held();
        let is_first = self.peer.requests.get() == 0;
        if !is_first || held.is_empty() || http.is_https() || !http.options().http2 {
            return None;
        }
        if held.starts_with(http2::PREFACE) {
            return Some(true);
        }
        http2::PREFACE.starts_with(held).then_some(false)
    }

    /// Opens the account of a request whose head is malformed or not whole. A request that is routed anew has one.
    fn account_for_malformed(&mut self, began: Micros) {
        if !self.account.is_open() {
            self.account = Account::of_malformed(&self.peer, began);
            self.peer.counters().requests.add(1);
        }
        self.count_bytes();
    }

    /// Counts all bytes that are here.
    fn count_bytes(&mut self) {
        let bytes = self.buffer.held().len();
        self.account.received(self.peer.counters(), bytes);
    }

    /// Answers a request whose head is not whole.
    async fn reject(&mut self, status: u16, reason: Reason, began: Option<Micros>) -> Next {
        let plan = self.peer.worker.plan();
        let frontend = self.peer.frontend_in(&plan);
        let frontend = frontend.map(|(frontend, _)| frontend.as_ref());
        let answer = ReadyAnswer::rejected(&self.peer, status, frontend, reason);
        drop(plan);
        self.account_for_malformed(began.unwrap_or_default());
        self.send(answer).await
    }

    /// Counts a client that left before its request was whole, if it began one.
    fn left_early(&mut self, began: Option<Micros>) {
        if let Some(began) = began.filter(|_| !self.buffer.is_empty()) {
            self.account_for_malformed(began);
            self.account.ends(*b"CR");
            self.peer.counters().bad_requests.add(1);
        }
    }

    /// Waits for more bytes of the client.
    async fn fill(&mut self, until: Moment) -> Filled {
        self.timer.set(until);
        let Self {
            connection,
            buffer,
            timer,
            peer,
            ..
        } = self;
        let mut has_looked = false;
        poll_fn(|cx| {
            match buffer.poll_fill(&mut connection.socket, cx) {
                Poll::Ready(Ok(0)) => Poll::Ready(Filled::Ended),
                Poll::Ready(Ok(_)) => Poll::Ready(Filled::More),
                Poll::Ready(Err(_)) => Poll::Ready(Filled::Failed),
                // A client that has just connected is answered, and so is a request that has just been sent.
                Poll::Pending
                    if buffer.is_empty()
                        && (peer.ends_idle() && peer.requests.get() > 0 || peer.is_shut_out())
                        && connection.socket.is_idle() =>
                {
                    if has_looked {
                        return Poll::Ready(Filled::Ended);
                    }
                    // The kernel may not have reported the request yet.
                    has_looked = true;
                    connection.socket.look_again();
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => timer.poll(cx).map(|()| Filled::TimedOut),
            }
        })
        .await
    }

    /// Parses the client's bytes and decides where the request goes, which may not be for the first time. Uses up the head of a
    /// request that is answered; one that is forwarded [holds](H1::holding) it.
    fn read(
        &mut self,
        plan: &WorkerPlan,
        search: &mut HeadSearch,
        (began, now): (Micros, Micros),
    ) -> Read {
        let Some((frontend, http)) = self.peer.frontend_in(plan) else {
            return Read::More;
        };
        let options = http.options();
        let limits = Limits {
            bytes: options.max_header_bytes,
            fields: options.max_headers,
        };
        let mut few = [const { MaybeUninit::uninit() }; USUAL_FIELDS];
        let mut many;
        let fields: &mut [MaybeUninit<Field<'_>>] = match limits.fields {
            ..=USUAL_FIELDS => &mut few,
            most => {
                many = vec![MaybeUninit::uninit(); most];
                &mut many
            }
        };
        let held = self.buffer.held();
        let head = match parse_request(held, search, fields, &limits) {
            Ok(Some(head)) => head,
            Ok(None) => return Read::More,
            Err(Reject { status, reason }) => {
                let client = self.peer.key.client();
                tracing::debug!(%client, reason, "bad request");
                let last = &self.peer.worker.shared.last_bad_request;
                last.note(frontend.name(), client, reason, held);
                let frontend = Some(frontend.as_ref());
                let answer = ReadyAnswer::rejected(&self.peer, status, frontend, Reason::Malformed);
                self.account_for_malformed(began);
                return Read::Request(NextStep::Answer(answer));
            }
        };
        let host = head.request.host.map_or("", |host| host.name);
        let line = |out: &mut Vec<u8>| out.extend_from_slice(request_line(held));
        let is_new = !self.account.is_open();
        if is_new {
            self.account = Account::of(&self.peer, host, line, began, now);
        }
        let behind = held.split_at(head.length).1;
        let times = (began.moment(), now.moment());
        let (step, used) = self.route(&head, behind, plan, times);
        let used = head.length + used;
        let counters = self.peer.counters();
        if is_new {
            self.peer.requests.set(self.peer.requests.get() + 1);
            counters.requests.add(1);
        }
        Read::Request(match step {
            NextStep::Forward(mut prepared) => {
                // The part of the body that came with the head is counted when an endpoint is connected: until then, the request may be
                // routed to a service with another version of HTTP, for which another part of it is read.
                self.account.received(counters, head.length);
                prepared.received = used;
                NextStep::Forward(prepared)
            }
            answer => {
                self.account.received(counters, used);
                self.buffer.consume(used);
                answer
            }
        })
    }

    /// Decides anew where the request goes that is being served. `None`: the table no longer has the frontend for this client.
    fn route_anew(&mut self) -> Option<(NextStep, WorkerPlan)> {
        let plan = self.peer.worker.plan();
        self.peer.admitted_in(&plan)?;
        let now = self.peer.worker.shared.clock.precisely();
        let times = (self.account.routes_anew(), now);
        match self.read(&plan, &mut HeadSearch::default(), times) {
            Read::Request(step) => Some((step, plan)),
            Read::More => None,
        }
    }

    /// Decides where the request goes. Returns also how many of the bytes `behind` its head were used.
    fn route(
        &self,
        head: &RequestHead<'_>,
        behind: &[u8],
        plan: &WorkerPlan,
        (first_byte, began): (Moment, Moment),
    ) -> (NextStep, usize) {
        let peer = &self.peer;
        let Some((frontend, http)) = peer.frontend_in(plan) else {
            let answer = ReadyAnswer::rejected(peer, 503, None, Reason::Unserved);
            return (NextStep::Answer(answer), 0);
        };
        let malformed = || {
            let answer = ReadyAnswer::rejected(peer, 400, Some(frontend), Reason::Malformed);
            (NextStep::Answer(answer), 0)
        };
        let Ok(decoded) = Body::new(head.framing, &Limits::default()).decode(behind) else {
            return malformed();
        };
        if head.request.host.is_none() || peer.local_port() == 0 {
            peer.learn_local_address(&self.connection.socket);
        }
        let message = Message {
            request: &head.request,
            framing: head.framing,
            keep_alive: head.keep_alive,
            answer_keeps: head.keep_alive && decoded.is_complete && !peer.is_draining(),
            upgrades: head.upgrades,
            first_byte,
            began,
        };
        match prepare(peer, &message, frontend, http) {
            NextStep::Forward(mut prepared) => {
                if prepared.service.spec().send_proxy != SendProxy::Off {
                    peer.learn_local_address(&self.connection.socket);
                }
                if prepared.version == HttpVersion::H2 {
                    // The body is read frame by frame.
                    return (NextStep::Forward(prepared), 0);
                }
                let mut body = BodyExtent::new(head.framing);
                match body.begin(behind, &mut prepared.head, &prepared.trailing) {
                    Ok(used) => {
                        prepared.request_is_read = body.is_complete();
                        prepared.body = Some(body);
                        (NextStep::Forward(prepared), used)
                    }
                    Err(_) => malformed(),
                }
            }
            answer => (answer, decoded.used),
        }
    }

    /// Serves a request that has a service. Where a table removes or changes that while the request waits, it is routed anew.
    async fn forward(&mut self, mut prepared: Box<Prepared>, mut plan: WorkerPlan) -> Next {
        let ended = loop {
            let ended = self.exchange(&mut prepared, plan).await;
            if !matches!(ended, Ended::Outdated) {
                break ended;
            }
            match self.route_anew() {
                Some((NextStep::Forward(again), in_force)) => {
                    (prepared, plan) = (again.after(&prepared), in_force);
                }
                Some((NextStep::Answer(answer), _)) => {
                    self.peer.leave_endpoint();
                    return self.send(answer).await;
                }
                None => {
                    self.account
                        .received(self.peer.counters(), prepared.received);
                    self.buffer.consume(prepared.received);
                    break Ended::Unserved(Refusal::NoEndpoint.into());
                }
            }
        };
        let next = self.finish(&ended, &prepared).await;
        self.peer.leave_endpoint();
        self.account
            .count_time(&self.peer.worker, &prepared.service);
        next
    }

    async fn exchange(&mut self, prepared: &mut Prepared, plan: WorkerPlan) -> Ended {
        let is_first = self.peer.requests.get() == 1;
        let policy = IdlePolicy::of(&self.peer, is_first, &prepared.service, &prepared.facts);
        let worker = &self.peer.worker;
        let framing = match prepared.body {
            Some(_) => Framing::Empty,
            None => prepared.framing,
        };
        let pending = worker.buffers.for_writing();
        let socket = &mut self.connection.socket;
        let side = H1::new(socket, &mut self.buffer, framing, pending, Framing::Empty);
        let mut side = HttpSide::H1(side.holding(prepared.received));
        let exchange = Exchange {
            peer: &self.peer,
            account: &mut self.account,
            prepared,
            client: &mut side,
            timer: &mut self.timer,
            // Its connection has reserved it.
            room: None,
        };
        exchange.run(plan, policy).await
    }

    /// Sends the client what it was not sent yet.
    async fn finish(&mut self, ended: &Ended, prepared: &Prepared) -> Next {
        let (facts, keeps) = (&prepared.facts, prepared.request_is_read);
        match ended {
            Ended::Done(done) => {
                let wants_close = !facts.keep_alive && self.buffer.is_empty();
                Next::after_response(done.request_is_complete, done.client_keeps, wants_close)
            }
            Ended::Tunnel { in_order: true } => Next::Close,
            Ended::Tunnel { in_order: false } | Ended::Broken(_) => Next::Reset,
            ended => {
                let answer =
                    ReadyAnswer::to_ended(&self.peer, ended, facts, keeps, &mut self.account);
                match answer {
                    Some(answer) => self.send(answer).await,
                    None => Next::Reset,
                }
            }
        }
    }

    async fn send(&mut self, answer: ReadyAnswer) -> Next {
        answer.account(&self.peer, &mut self.account);
        let sent = send_all(
            &mut self.connection.socket,
            answer.body(),
            &mut self.timer,
            SEND_TIMEOUT,
            &self.peer.worker.tools,
        )
        .await;
        match sent {
            Err(_) => Next::Reset,
            Ok(()) if answer.keeps_connection => Next::Request,
            Ok(()) => Next::Linger,
        }
    }
}

/// A request that is cut with its connection has an access line too.
impl Drop for Client {
    fn drop(&mut self) {
        self.account.close(&self.peer);
    }
}

/// Fields of a head that fit on the stack.
const USUAL_FIELDS: usize = 128;
