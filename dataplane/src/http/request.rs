//! One request: from the client's bytes to the end of the response.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ballast_core::admit::Refusal;
use ballast_core::affinity::cookie::CookieValue;
use ballast_core::answer::Form;
use ballast_core::forward::{self, MapBack};
use ballast_core::http::{Field, Framing, Host, Request, Scheme, Version};
use ballast_core::http1::{HeadSearch, Limits, Reject, RequestHead, parse_request};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, HttpFrontend, Plan};
use ballast_core::route::{Matched, Route, Target};
use ballast_core::service::Service;
use ballast_core::table::{HttpVersion, MaxAge, Protocol};

use super::answers::{Answer, Own, Reason, destination};
use super::bridge::{self, EndpointHead};
use super::buffers::WriteBuffer;
use super::exchange::BodyExtent;
use super::forwarding::{self, Outbound};
use super::idle_timer::Timeouts;
use super::{Client, Next, as_seen, fields, frontend_in, h2, subject, to_h2};
use crate::clock::Micros;

/// A request whose head has been rewritten for its service.
pub(super) struct Prepared {
    pub(super) service: Arc<Service>,
    /// The head for the endpoint, and the bytes of the body that came with the client's head.
    pub(super) out: WriteBuffer,
    /// How many bytes of the client it has used so far.
    pub(super) received: u64,
    /// The part of the body that was not read yet.
    pub(super) body: BodyExtent,
    pub(super) facts: Facts,
    pub(super) timeouts: Timeouts,
}

/// Properties of a request that are needed after its head was taken out of the client's buffer.
pub(super) struct Facts {
    pub(super) is_head: bool,
    pub(super) version: Version,
    /// Whether the client will send another request on this connection.
    pub(super) keep_alive: bool,
    pub(super) upgrades: bool,
    /// Whether the request may be sent a second time: its method is idempotent, and it has no body.
    pub(super) is_repeatable: bool,
    /// What the response needs of the route and of the request, if its paths are mapped back.
    pub(super) map_back: Option<Box<MappedBack>>,
    pub(super) hsts: Option<MaxAge>,
    pub(super) is_https: bool,
    /// The affinity cookie of the service, as the client sent it.
    pub(super) cookie: Option<CookieValue>,
    /// The form of an answer of Ballast's own.
    pub(super) form: Form,
    /// When its head was complete.
    pub(super) began: Moment,
}

/// What mapping back the paths of a response needs.
pub(super) struct MappedBack {
    pub(super) route: Arc<Route>,
    pub(super) prefix: Box<str>,
    host: Option<Box<str>>,
    host_port: Option<u16>,
}

impl MappedBack {
    /// How the paths of a response of `endpoint` are mapped back.
    pub(super) fn of(&self, endpoint: SocketAddr, port: u16) -> Option<MapBack<'_>> {
        let Target::Service {
            rewrite: Some(rewrite),
            ..
        } = &self.route.target
        else {
            return None;
        };
        Some(MapBack {
            rewrite,
            prefix: &self.prefix,
            host: self.host.as_deref().map(|name| Host {
                name,
                port: self.host_port,
            }),
            port,
            endpoint,
        })
    }
}

/// What becomes of the bytes of a client.
enum Step {
    /// The head is not complete.
    More,
    Forward(Box<Prepared>),
    /// To an endpoint that speaks HTTP/2.
    ForwardToH2(Box<bridge::Prepared>),
    Answer(Answer),
}

/// Reads the next request and serves it.
pub(super) async fn serve(client: &mut Client) -> Next {
    let next = read_and_serve(client).await;
    client.close_account();
    next
}

async fn read_and_serve(client: &mut Client) -> Next {
    let mut search = HeadSearch::default();
    let mut deadline = None;
    // When the first byte of the request was read.
    let mut began = None;
    loop {
        let worker = Rc::clone(&client.connection.worker);
        let plan = worker.plan();
        let Some((frontend, http)) = client.frontend(&plan) else {
            // The table no longer has this frontend, or not for HTTP.
            if client.buffer.is_empty() {
                return Next::Close;
            }
            let began = began.unwrap_or_else(|| worker.shared.clock.precisely());
            client.account_for_bad(began);
            client.account.unserved(Refusal::NoEndpoint.into());
            let answer = client.rejected(503, None, Reason::Unserved);
            return client.send(answer).await;
        };
        let is_preface = client.preface(http);
        if is_preface == Some(true) {
            return Next::Http2;
        }
        if !client.buffer.is_empty() && is_preface.is_none() {
            let now = worker.shared.clock.precisely();
            let times = (*began.get_or_insert(now), now);
            match prepare(client, frontend, http, &mut search, times) {
                Step::More => {}
                Step::Forward(prepared) => return forwarding::run(client, prepared, plan).await,
                Step::ForwardToH2(prepared) => return to_h2::run(client, *prepared, plan).await,
                Step::Answer(answer) => return client.send(answer).await,
            }
        }
        let options = http.options();
        let now = worker.shared.clock.soon();
        let until = match client.buffer.is_empty() {
            true if client.requests > 0 => now.after(options.keep_alive_timeout),
            _ => *deadline.get_or_insert_with(|| now.after(options.request_timeout)),
        };
        drop(plan);
        match client.fill(until).await {
            Filled::More => {}
            Filled::TimedOut if client.buffer.is_empty() => return Next::Close,
            Filled::TimedOut => {
                let plan = worker.plan();
                let frontend = client
                    .frontend(&plan)
                    .map(|(frontend, _)| frontend.as_ref());
                let answer = client.rejected(408, frontend, Reason::Late);
                drop(plan);
                client.account_for_bad(began.unwrap_or_default());
                return client.send(answer).await;
            }
            Filled::Ended => {
                client.left_early(began);
                return Next::Close;
            }
            Filled::Failed => {
                client.left_early(began);
                return Next::Reset;
            }
        }
    }
}

enum Filled {
    More,
    Ended,
    Failed,
    TimedOut,
}

impl Client {
    /// The frontend of this connection in `plan`.
    pub(super) fn frontend<'p>(
        &self,
        plan: &'p Plan,
    ) -> Option<(&'p Arc<Frontend>, &'p Arc<HttpFrontend>)> {
        frontend_in(plan, &self.socket)
    }

    /// Whether the first bytes of the connection are the preface of HTTP/2: `None` if they are not, `false` if they are a part
    /// of it. In TLS, a client chooses HTTP/2 by ALPN instead.
    fn preface(&self, http: &HttpFrontend) -> Option<bool> {
        let held = self.buffer.held();
        if self.requests > 0 || held.is_empty() || http.is_https() || !http.options().http2 {
            return None;
        }
        if held.starts_with(h2::PREFACE) {
            return Some(true);
        }
        h2::PREFACE.starts_with(held).then_some(false)
    }

    /// Whether the process is ending, so that no connection gets another request.
    pub(super) fn is_draining(&self) -> bool {
        self.connection.worker.is_draining.get()
    }

    /// Counts a client that left before its request was whole, if it began one.
    fn left_early(&mut self, began: Option<Micros>) {
        if let Some(began) = began.filter(|_| !self.buffer.is_empty()) {
            self.account_for_bad(began);
            self.account.ends(*b"CR");
            self.connection.counters().bad_requests.add(1);
        }
    }

    /// Waits for more bytes of the client.
    async fn fill(&mut self, until: Moment) -> Filled {
        self.timer.set(until);
        let Self {
            connection,
            buffer,
            timer,
            ..
        } = self;
        poll_fn(|cx| {
            match buffer.poll_fill(&mut connection.socket, cx) {
                Poll::Ready(Ok(0)) => Poll::Ready(Filled::Ended),
                Poll::Ready(Ok(_)) => Poll::Ready(Filled::More),
                Poll::Ready(Err(_)) => Poll::Ready(Filled::Failed),
                // A request that came before the end is still served.
                Poll::Pending if buffer.is_empty() && connection.worker.is_draining.get() => {
                    Poll::Ready(Filled::Ended)
                }
                Poll::Pending => timer.poll(cx).map(|()| Filled::TimedOut),
            }
        })
        .await
    }
}

/// Parses the client's bytes and decides where the request goes. Uses up its head.
fn prepare(
    client: &mut Client,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
    search: &mut HeadSearch,
    (began, now): (Micros, Micros),
) -> Step {
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
    let head = match parse_request(client.buffer.held(), search, fields, &limits) {
        Ok(Some(head)) => head,
        Ok(None) => return Step::More,
        Err(Reject { status, reason }) => {
            tracing::debug!(client = %client.connection.key.client(), reason, "bad request");
            let answer = client.rejected(status, Some(frontend), Reason::Malformed);
            client.account_for_bad(began);
            return Step::Answer(answer);
        }
    };
    let account = client.account_for(&head, began, now);
    let (step, used) = route(client, &head, frontend, http, &limits, now);
    client.requests += 1;
    client.account = account;
    let counters = client.connection.counters();
    counters.requests.add(1);
    client.account.moved(counters, used as u64, 0);
    client.buffer.consume(used);
    step
}

/// Decides where the request goes. Returns also how many bytes of the client's buffer it used.
fn route(
    client: &Client,
    head: &RequestHead<'_>,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
    limits: &Limits,
    now: Micros,
) -> (Step, usize) {
    let RequestHead { request, .. } = head;
    let mut body = BodyExtent::new(head.framing, limits);
    let behind = client.buffer.held().get(head.length..).unwrap_or_default();
    let Ok(decoded) = body.body.decode(behind) else {
        let answer = client.rejected(400, Some(frontend), Reason::Malformed);
        return (Step::Answer(answer), head.length);
    };
    let used = head.length + decoded.used;
    let found = http.routes().find(request.host, request.path);
    let keeps = head.keep_alive && body.body.is_complete() && !client.is_draining();
    let answer = |own: Own<'_>| {
        let answer = client.own(own, request, keeps, frontend, http);
        (Step::Answer(answer), used)
    };
    let service = match destination(&found, client.connection.key.client().ip()) {
        Ok(service) => service,
        Err(own) => return answer(own),
    };
    let facts = Facts::of(
        request,
        head.framing,
        head.keep_alive,
        &found,
        frontend,
        service,
        now.moment(),
    );
    let timeouts = Timeouts::of(frontend, service);
    let outbound = Outbound {
        request,
        framing: head.framing,
        upgrades: head.upgrades,
        found: &found,
        frontend,
        service,
        from: as_seen(
            client.connection.key.client(),
            client.local_port(),
            subject(&client.connection),
            frontend,
            http,
        ),
        local: client.local_address(),
    };
    if forwarding::version(service) == HttpVersion::H2 {
        let Some(to_endpoint) = fields::request(&outbound.to_endpoint(), scheme_to(service)) else {
            return answer(Own::Refused(400, Reason::Malformed));
        };
        let prepared = bridge::Prepared {
            service: Arc::clone(service),
            head: EndpointHead::H2(to_endpoint),
            framing: head.framing,
            facts,
            timeouts,
        };
        // The body is read frame by frame.
        return (Step::ForwardToH2(Box::new(prepared)), head.length);
    }
    let mut out = client.connection.worker.buffers.for_writing();
    forward::request(&mut out, &outbound.to_endpoint());
    out.extend_from_slice(behind.get(..decoded.used).unwrap_or_default());
    let prepared = Prepared {
        service: Arc::clone(service),
        out,
        timeouts,
        facts: Facts {
            upgrades: head.upgrades,
            ..facts
        },
        received: used as u64,
        body,
    };
    (Step::Forward(Box::new(prepared)), used)
}

impl Facts {
    /// The properties of this request, which began at `began` and is no upgrade.
    pub(super) fn of(
        request: &Request<'_>,
        framing: Framing,
        keep_alive: bool,
        found: &Matched<'_>,
        frontend: &Frontend,
        service: &Service,
        began: Moment,
    ) -> Self {
        let maps_back = matches!(
            &found.route.target,
            Target::Service {
                maps_back: true,
                rewrite: Some(_),
                ..
            }
        );
        Self {
            is_head: request.method == "HEAD",
            version: request.version,
            keep_alive,
            upgrades: false,
            is_repeatable: !framing.has_body() && IDEMPOTENT.contains(&request.method),
            map_back: maps_back.then(|| {
                Box::new(MappedBack {
                    route: Arc::clone(found.route),
                    prefix: found.prefix(request.path).into(),
                    host: request.host.map(|host| host.name.into()),
                    host_port: request.host.and_then(|host| host.port),
                })
            }),
            hsts: frontend.spec().http().hsts,
            is_https: frontend.spec().protocol == Protocol::Https,
            cookie: service
                .cookie_name()
                .and_then(|name| CookieValue::find(request.fields, name)),
            form: Form::accepted_by(request.fields),
            began,
        }
    }
}

/// The scheme by which endpoints of the service are asked.
pub(super) fn scheme_to(service: &Service) -> Scheme {
    match service.spec().tls {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    }
}

/// Methods that may be repeated (RFC 9110, section 9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
/// Fields of a head that fit on the stack.
const USUAL_FIELDS: usize = 128;
