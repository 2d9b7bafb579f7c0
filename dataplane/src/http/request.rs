//! What becomes of a request: its route, its service, and its head as the endpoint gets it. The same for both versions of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use ballast_core::affinity::cookie::SentCookie;
use ballast_core::answer::Form;
use ballast_core::backends::Chosen;
use ballast_core::forward::{self, Edits, MapBack, ToEndpoint, Trailing};
use ballast_core::http::{Field, Framing, Host, Request, Scheme, Version};
use ballast_core::http2::{self, Head};
use ballast_core::moment::Moment;
use ballast_core::plan::{Frontend, HttpFrontend};
use ballast_core::route::{Decision, Forward, Matched, Route, Target};
use ballast_core::service::Service;
use ballast_core::table::{HttpVersion, MaxAge, Protocol};

use super::answers::{Own, ReadyAnswer, Reason};
use super::exchange::BodyExtent;
use super::idle_timer::Timeouts;
use super::peer::Peer;
use crate::worker::buffers::WriteBuffer;

/// A request as its client sent it.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) framing: Framing,
    /// Whether the client will send another request on this connection.
    pub(super) keep_alive: bool,
    /// Whether an answer of Ballast's own keeps the connection.
    pub(super) answer_keeps: bool,
    pub(super) upgrades: bool,
    /// When its first byte was read, and when its head was complete.
    pub(super) first_byte: Moment,
    pub(super) began: Moment,
}

/// A request whose head has been rewritten for its service.
pub(super) struct Prepared {
    pub(super) service: Arc<Service>,
    /// The places of its route and of the service among the backends of that: it counts there once it is certain that it stays.
    pub(super) place: (usize, usize),
    /// Whether it has come to the service already, and counts there.
    pub(super) has_come: bool,
    /// The version of HTTP that the endpoints speak.
    pub(super) version: HttpVersion,
    /// The head for the endpoint: lines of HTTP/1, with the bytes of the body that came with the client's head behind them, or a
    /// header block of HTTP/2.
    pub(super) head: WriteBuffer,
    /// How the body is framed, to the endpoint as from the client.
    pub(super) framing: Framing,
    /// Between two connections of HTTP/1: how much of the body has been read.
    pub(super) body: Option<BodyExtent>,
    /// Which trailers of the body pass.
    pub(super) trailing: Trailing,
    /// Whether the whole request has been read from the client.
    pub(super) request_is_read: bool,
    /// How many bytes of the client it has used so far.
    pub(super) received: usize,
    pub(super) facts: RequestFacts,
    pub(super) timeouts: Timeouts,
    /// When the time for the whole request is over; `None`: it is not limited.
    pub(super) until: Option<Moment>,
}

impl Prepared {
    /// The request as it is routed anew, which was prepared as `before` at first.
    pub(super) fn after(mut self: Box<Self>, before: &Self) -> Box<Self> {
        self.has_come =
            before.has_come && Arc::ptr_eq(self.service.state(), before.service.state());
        self
    }
}

/// Properties of a request that are needed after its head was taken out of the client's buffer.
pub(super) struct RequestFacts {
    pub(super) is_head: bool,
    pub(super) version: Version,
    /// Whether the client will send another request on this connection.
    pub(super) keep_alive: bool,
    pub(super) upgrades: bool,
    /// Whether the client may wait for an interim response before it sends the body.
    pub(super) expects: bool,
    /// Whether the request may be sent a second time: its method is idempotent, and it has no body.
    pub(super) is_repeatable: bool,
    /// What the response needs of the route and of the request, if its paths are mapped back.
    pub(super) map_back: Option<Box<MappedBack>>,
    /// The route and the place of the backend, if one of them edits the heads of responses.
    pub(super) edited_by: Option<(Arc<Route>, usize)>,
    /// The frontend, if it edits the heads of all responses.
    pub(super) edited_last_by: Option<Arc<Frontend>>,
    pub(super) hsts: Option<MaxAge>,
    pub(super) is_https: bool,
    /// The affinity cookie of the service, as the client sent it.
    pub(super) cookie: SentCookie,
    /// The form of an answer of Ballast's own.
    pub(super) form: Form,
    /// When its head was complete.
    pub(super) began: Moment,
}

/// What mapping back the paths of a response needs.
pub(super) struct MappedBack {
    route: Arc<Route>,
    prefix: Box<str>,
    host: Option<Box<str>>,
    host_port: Option<u16>,
}

impl MappedBack {
    /// How the paths of a response of `endpoint` are mapped back.
    pub(super) fn of(&self, endpoint: SocketAddr, port: u16) -> Option<MapBack<'_>> {
        Some(MapBack {
            rewrite: self.route.forward()?.rewrite.as_ref()?,
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

/// What becomes of a request.
pub(super) enum NextStep {
    Forward(Box<Prepared>),
    Answer(ReadyAnswer),
}

/// Decides where the request goes.
pub(super) fn prepare(
    peer: &Peer,
    message: &Message<'_>,
    frontend: &Arc<Frontend>,
    http: &Arc<HttpFrontend>,
) -> NextStep {
    let request = message.request;
    if peer.is_misdirected(request.host, frontend, http) {
        let own = Own::Refused(421, Reason::Denied);
        return NextStep::own(peer, own, message, frontend, http);
    }
    let to = match destination(peer, message, http) {
        Ok(to) => to,
        Err(own) => return NextStep::own(peer, own, message, frontend, http),
    };
    let service = to.chosen.service;
    let client = peer.as_seen(frontend, http);
    let to_endpoint = to.to_endpoint(peer, message, frontend, &client);
    let mut head = peer.worker.buffers.for_writing();
    match to_endpoint.version {
        HttpVersion::H1 => forward::request(&mut head, &to_endpoint),
        HttpVersion::H2 => http2::request_block(&mut head, &to_endpoint, scheme_to(service)),
    }
    let trailing = if Trailing::may_follow(message.framing, request.version) {
        let subject = client.subject.map(|subject| subject.header);
        Trailing::beside(subject, &to_endpoint.edits)
    } else {
        Trailing::default()
    };
    let timeout = to.found.route.timeout;
    NextStep::Forward(Box::new(Prepared {
        place: (to.found.place, to.chosen.place),
        has_come: false,
        version: to_endpoint.version,
        head,
        framing: message.framing,
        body: None,
        trailing,
        request_is_read: !message.framing.has_body(),
        received: 0,
        facts: RequestFacts::of(message, &to, frontend),
        timeouts: Timeouts::of(frontend, service),
        until: timeout.map(|timeout| message.first_byte.after(timeout)),
        service: Arc::clone(service),
    }))
}

/// Where a request goes.
struct Destination<'a> {
    found: Matched<'a>,
    forward: &'a Forward,
    chosen: Chosen<'a>,
}

/// Finds the route of the request, and chooses among its backends.
fn destination<'a>(
    peer: &Peer,
    message: &Message<'_>,
    http: &'a HttpFrontend,
) -> Result<Destination<'a>, Own<'a>> {
    let request = message.request;
    let worker = &peer.worker;
    let found = match http.routes().decide(request, peer.key.client().ip()) {
        Decision::To(found) => found,
        Decision::Denied(by) => return Err(Own::denied_by(by)),
    };
    match &found.route.target {
        Target::Forward(forward) => {
            let backends = &forward.backends;
            let chosen = backends.choose(&peer.key, request.fields, message.began);
            Ok(Destination {
                found,
                forward,
                chosen,
            })
        }
        Target::Redirect(redirect) => {
            found.route.count_request(worker.id);
            Err(Own::Redirect(redirect, found.route, found.prefix_length))
        }
        Target::Answer(asked) => {
            found.route.count_request(worker.id);
            Err(Own::of_route(asked, found.route))
        }
    }
}

impl NextStep {
    /// An answer of Ballast's own to this request.
    pub(super) fn own(
        peer: &Peer,
        own: Own<'_>,
        message: &Message<'_>,
        frontend: &Frontend,
        http: &HttpFrontend,
    ) -> Self {
        let keeps = message.answer_keeps;
        Self::Answer(ReadyAnswer::own(
            peer,
            own,
            message.request,
            keeps,
            frontend,
            http,
        ))
    }
}

impl Destination<'_> {
    /// How the head of the request is rewritten for an endpoint.
    fn to_endpoint<'a>(
        &'a self,
        peer: &Peer,
        message: &Message<'a>,
        frontend: &'a Frontend,
        client: &'a forward::Client<'a>,
    ) -> ToEndpoint<'a> {
        let service = self.chosen.service;
        ToEndpoint {
            request: message.request,
            framing: message.framing,
            upgrades: message.upgrades,
            keeps_connection: true,
            version: service.spec().http_version(),
            endpoint: peer.local_address(),
            client,
            options: frontend.spec().http(),
            edits: Edits::of_request(self.forward, self.chosen.place, service),
            rewrite: self.forward.rewrite.as_ref(),
            prefix: self.found.prefix(message.request.path),
            cookie: service.cookie_name(),
        }
    }
}

impl RequestFacts {
    fn of(message: &Message<'_>, to: &Destination<'_>, frontend: &Arc<Frontend>) -> Self {
        let request = message.request;
        let Destination {
            found,
            forward,
            chosen,
        } = to;
        let maps_back = forward.maps_back && forward.rewrite.is_some();
        let edits = forward.edits_responses(chosen.place);
        Self {
            is_head: request.method == "HEAD",
            version: request.version,
            keep_alive: message.keep_alive,
            upgrades: message.upgrades,
            expects: message.framing.has_body()
                && request.version != Version::Http10
                && request
                    .fields
                    .iter()
                    .any(|field| field.name.eq_ignore_ascii_case("expect")),
            is_repeatable: !message.framing.has_body() && IDEMPOTENT.contains(&request.method),
            map_back: maps_back.then(|| {
                Box::new(MappedBack {
                    route: Arc::clone(found.route),
                    prefix: found.prefix(request.path).into(),
                    host: request.host.map(|host| host.name.into()),
                    host_port: request.host.and_then(|host| host.port),
                })
            }),
            edited_by: edits.then(|| (Arc::clone(found.route), chosen.place)),
            edited_last_by: {
                let edits = frontend.spec().http().response_headers.is_some();
                edits.then(|| Arc::clone(frontend))
            },
            hsts: frontend.spec().http().hsts,
            is_https: frontend.spec().protocol == Protocol::Https,
            cookie: chosen
                .service
                .cookie_name()
                .map_or(SentCookie::None, |name| {
                    SentCookie::find(request.fields, name)
                }),
            form: Form::accepted_by(request.fields),
            began: message.began,
        }
    }
}

/// Calls `read` with the fields of a head of HTTP/2.
pub(super) fn with_fields<T>(head: &Head, read: impl FnOnce(&[Field<'_>]) -> T) -> T {
    let mut few = [NO_FIELD; USUAL_FIELDS];
    let Some(room) = few.get_mut(..head.len()) else {
        let fields: Vec<_> = head.fields().collect();
        return read(&fields);
    };
    for (place, field) in room.iter_mut().zip(head.fields()) {
        *place = field;
    }
    read(room)
}

/// The scheme by which endpoints of the service are asked.
fn scheme_to(service: &Service) -> Scheme {
    match service.spec().tls {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    }
}

/// Methods that may be repeated (RFC 9110, section 9.2.2).
const IDEMPOTENT: [&str; 6] = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
/// Fields of a head of HTTP/2 that fit on the stack.
const USUAL_FIELDS: usize = 32;
const NO_FIELD: Field<'static> = Field {
    name: "",
    value: b"",
};
