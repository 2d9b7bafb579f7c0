//! Answers one request after another: what there is at which address, and for whom.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, LOCATION, REFERRER_POLICY, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::action::{self, Outcome};
use super::announced::{Announced, AnnouncerAck};
use super::answers::Answers;
use super::events::Events;
use super::gzip;
use super::listeners::Purpose;
use super::page::{self, View};
use super::permission::{self, User};
use super::places::Places;
use super::viewers::Viewers;
use crate::operator::admin::auth::{Auth, Unproven};
use crate::operator::target::By;
use crate::stats::{self, Chunks, Form, Selection, Snapshot, Statistics};

/// What all connections to the admin addresses share.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) stats: Arc<Statistics>,
    auth: Option<Auth>,
    viewers: RefCell<Viewers>,
    /// For answers that are rendered while they are sent.
    renderings: Arc<Places>,
    /// For readers of events.
    readers: Arc<Places>,
    /// What readers of events were sent last.
    recent: RefCell<Option<(Instant, Arc<Snapshot>)>>,
    /// The ack of the announcer beside this process, where there is one.
    announced: Option<AnnouncerAck>,
}

/// The client of a connection to the admin side, and the deadline of the connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) purpose: Purpose,
    /// When the connection is closed at the latest.
    pub(super) until: Rc<Cell<Instant>>,
    /// Cancelled where the connection gives way to another one.
    pub(super) cut: CancellationToken,
    pub(super) answers: Rc<Answers>,
}

/// The body of a reply.
type Sent = UnsyncBoxBody<Bytes, Infallible>;
type Reply = Response<Sent>;

impl Handler {
    pub(super) fn new(
        stats: Arc<Statistics>,
        auth: Option<Auth>,
        viewers: Viewers,
        announced: Option<AnnouncerAck>,
    ) -> Self {
        Self {
            stats,
            auth,
            viewers: RefCell::new(viewers),
            renderings: Places::new(MOST_RENDERINGS),
            readers: Places::new(MOST_READERS),
            recent: RefCell::new(None),
            announced,
        }
    }

    /// From now on these addresses may see the page.
    pub(super) fn show_to(&self, viewers: Viewers) {
        self.viewers.replace(viewers);
    }

    /// Why this address may not see the page; `None`: it may.
    pub(super) fn refuse(&self, client: IpAddr) -> Option<String> {
        self.viewers.borrow().refuse(client)
    }

    /// A snapshot that all readers of events share, less than a second old.
    pub(super) fn recent(&self) -> Arc<Snapshot> {
        let mut recent = self.recent.borrow_mut();
        match &*recent {
            Some((taken, snapshot)) if taken.elapsed() < SHARED_FOR => Arc::clone(snapshot),
            _ => {
                let snapshot = self.stats.snapshot();
                *recent = Some((Instant::now(), Arc::clone(&snapshot)));
                snapshot
            }
        }
    }

    /// What the announcer beside this process says now. `None`: there is none.
    pub(super) async fn announced(&self) -> Option<Arc<Announced>> {
        match &self.announced {
            Some(ack) => Some(ack.read().await),
            None => None,
        }
    }

    pub(super) async fn answer(self: &Rc<Self>, request: Request<Incoming>, peer: Peer) -> Reply {
        let reply = self.content(request, &peer).await;
        let reply = with(reply, CACHE_CONTROL, "no-cache");
        with(reply, X_CONTENT_TYPE_OPTIONS, "nosniff")
    }

    async fn content(self: &Rc<Self>, request: Request<Incoming>, peer: &Peer) -> Reply {
        let is_reading = [Method::GET, Method::HEAD].contains(request.method());
        match request.uri().path() {
            "/healthz" if is_reading => return text(StatusCode::OK, "ok\n"),
            "/healthz" => return not_allowed("GET, HEAD"),
            _ if peer.purpose == Purpose::Health => {
                return text(
                    StatusCode::NOT_FOUND,
                    "here is /healthz, and nothing else\n",
                );
            }
            "/readyz" if is_reading => return self.readiness(),
            _ => {}
        }
        if let Some(why) = self.refuse(peer.address.ip()) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let user = permission::user(self.auth.as_ref(), request.headers(), peer.address);
        let user = match user.await {
            Ok(user) => user,
            Err(Unproven::Wrong) => return who_are_you(),
            Err(Unproven::NotChecked) => return not_checked(),
        };
        let address = request.uri().path_and_query();
        let address = address.map_or("/", |address| address.as_str()).to_owned();
        let form = Form::of(&address);
        if form.is_some() && request.method() == Method::POST {
            return self.change(request, &address, &user, peer).await;
        }
        if !is_reading {
            let allowed = if form.is_some() {
                "GET, HEAD, POST"
            } else {
                "GET, HEAD"
            };
            return not_allowed(allowed);
        }
        let gzip = gzip::is_accepted(request.headers());
        match (form, request.uri().path()) {
            (Some(form), _) => self.stats_page(form, &address, &user, (peer, gzip)).await,
            (None, "/metrics") => {
                let selection = Selection::of_metrics(request.uri().query().unwrap_or_default());
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                self.rendered(peer, kind, gzip, |all| stats::metrics(all, selection))
                    .await
            }
            (None, "/api/snapshot") => {
                let selection = Selection::of_page(&address);
                self.rendered(peer, JSON, gzip, |all| stats::api(all, selection))
                    .await
            }
            (None, "/events") => self.events(&address, &user, peer),
            (None, _) => text(StatusCode::NOT_FOUND, NOTHING_ELSE),
        }
    }

    fn readiness(&self) -> Reply {
        match self.stats.shared.status.why_not_ready() {
            None => text(StatusCode::OK, "ready\n"),
            Some(why) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: {why}\n"),
            ),
        }
    }

    /// The forms of haproxy's stats page.
    async fn stats_page(
        &self,
        form: Form,
        address: &str,
        user: &User,
        (peer, gzip): (&Peer, bool),
    ) -> Reply {
        let selection = Selection::of_page(address);
        let (kind, render): (_, fn(_, _) -> _) = match form {
            Form::Csv => ("text/plain", stats::csv),
            Form::Typed => ("text/plain", stats::typed),
            Form::Json => (JSON, stats::json),
            Form::Schema => return with(text(StatusCode::OK, stats::schema()), CONTENT_TYPE, JSON),
            Form::Html => {
                return self
                    .page(View::of(address, user.may_change), (peer, gzip))
                    .await;
            }
        };
        self.rendered(peer, kind, gzip, |all| render(all, selection))
            .await
    }

    async fn page(&self, view: View, (peer, gzip): (&Peer, bool)) -> Reply {
        let announced = self.announced().await;
        let page = |snapshot| page::page(&self.stats, snapshot, announced, view);
        let mut reply = self
            .rendered(peer, "text/html; charset=utf-8", gzip, page)
            .await;
        for (name, value) in [
            // Posts must say where they come from.
            (REFERRER_POLICY, "same-origin"),
            (X_FRAME_OPTIONS, "DENY"),
            (SAME_ORIGIN, "same-origin"),
        ] {
            reply = with(reply, name, value);
        }
        let headers = reply.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, page::policy());
        reply
    }

    /// A rendering of a snapshot, sent while it is written.
    async fn rendered(
        &self,
        peer: &Peer,
        kind: &'static str,
        gzip: bool,
        render: impl FnOnce(Arc<Snapshot>) -> Chunks,
    ) -> Reply {
        let place = self.renderings.wait(PATIENCE, peer.address, &peer.cut);
        let Some(place) = place.await else {
            return busy();
        };
        peer.answers.hold(place);
        let plain = render(self.stats.snapshot());
        let body = if gzip { gzip::compressed(plain) } else { plain };
        let reply = Response::new(body.begun().boxed_unsync());
        let reply = with(with(reply, CONTENT_TYPE, kind), VARY, "accept-encoding");
        if gzip {
            with(reply, CONTENT_ENCODING, "gzip")
        } else {
            reply
        }
    }

    fn events(self: &Rc<Self>, address: &str, user: &User, peer: &Peer) -> Reply {
        let place = self.readers.take(peer.address, true, peer.cut.clone());
        let Some(place) = place else {
            return busy();
        };
        peer.answers.hold(place);
        peer.until.set(Instant::now() + LISTENING);
        let view = View::of(address, user.may_change);
        let events = Events::begin(self, view, peer.address.ip());
        let reply = Response::new(events.boxed_unsync());
        with(reply, CONTENT_TYPE, "text/event-stream")
    }

    /// A form of the page, or of a script that knows haproxy's.
    async fn change(
        &self,
        request: Request<Incoming>,
        address: &str,
        user: &User,
        peer: &Peer,
    ) -> Reply {
        if self.auth.is_none() {
            return text(StatusCode::FORBIDDEN, READ_ONLY);
        }
        if !user.may_change {
            return who_are_you();
        }
        let outcome = if permission::is_same_origin(request.headers()) {
            match body(request).await {
                Ok(body) => self.perform(body, user, peer.address).await,
                Err(outcome) => outcome,
            }
        } else {
            tracing::warn!(by = user.name.as_deref(), from = %peer.address, "a form that this page did not send was denied");
            Outcome::Denied
        };
        let view = View::of(address, user.may_change);
        let mut reply = text(StatusCode::SEE_OTHER, "");
        // It is made of letters that are allowed there.
        if let Ok(place) = HeaderValue::from_str(&view.address(Some(outcome))) {
            reply.headers_mut().insert(LOCATION, place);
        }
        reply
    }

    /// Executes a form to its end, though its client may leave meanwhile: the log says who has changed something.
    async fn perform(&self, form: String, user: &User, from: SocketAddr) -> Outcome {
        let (stats, user) = (Arc::clone(&self.stats), user.name.clone());
        let performing = tokio::task::spawn_local(async move {
            let user = user.as_deref();
            let snapshot = stats.snapshot();
            action::perform(&stats.shared, &snapshot, &form, By::Page { user, from }).await
        });
        performing.await.unwrap_or(Outcome::Fault)
    }
}

/// The body of a form. It must have a length, and come at once.
async fn body(request: Request<Incoming>) -> Result<String, Outcome> {
    let length = request.body().size_hint().exact().ok_or(Outcome::Invalid)?;
    if length > LONGEST_FORM {
        return Err(Outcome::TooMuch);
    }
    let body = Limited::new(request.into_body(), MOST_READ).collect();
    let body = timeout(FORM_PATIENCE, body).await;
    let body = body.map_err(|_| Outcome::Invalid)?;
    let body = body.map_err(|_| Outcome::Invalid)?.to_bytes();
    String::from_utf8(body.into()).map_err(|_| Outcome::Invalid)
}

fn who_are_you() -> Reply {
    let words =
        "this needs a name and a secret of --stats-auth-file; changes need those of an admin\n";
    let realm = r#"Basic realm="Ballast", charset="UTF-8""#;
    with(
        text(StatusCode::UNAUTHORIZED, words),
        WWW_AUTHENTICATE,
        realm,
    )
}

fn not_checked() -> Reply {
    let words = "too many secrets from your address, or from many others, wait to be checked; come again in a second\n";
    with(text(StatusCode::TOO_MANY_REQUESTS, words), RETRY_AFTER, "1")
}

fn not_allowed(allowed: &'static str) -> Reply {
    let words = format!("only {allowed} are answered here\n");
    with(text(StatusCode::METHOD_NOT_ALLOWED, words), ALLOW, allowed)
}

fn busy() -> Reply {
    let words = "too many read at once; come again later\n";
    with(
        text(StatusCode::SERVICE_UNAVAILABLE, words),
        RETRY_AFTER,
        "5",
    )
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()).boxed_unsync());
    *reply.status_mut() = status;
    with(reply, CONTENT_TYPE, "text/plain; charset=utf-8")
}

fn with(mut reply: Reply, name: HeaderName, value: &'static str) -> Reply {
    reply
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    reply
}

const JSON: &str = "application/json";
const SAME_ORIGIN: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const NOTHING_ELSE: &str = "here are / (and haproxy's /;csv, /;json, /;typed), /metrics, /healthz, /readyz, /api/snapshot and /events\n";
const READ_ONLY: &str = "this page is read-only: changes need credentials, and there are none; start ballast with --stats-auth-file\n";
const MOST_RENDERINGS: usize = 48;
const MOST_READERS: usize = 16;
const SHARED_FOR: Duration = Duration::from_millis(500);
/// For a place to render an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// After that a listener comes again by itself.
const LISTENING: Duration = Duration::from_secs(3600);
/// As long as haproxy's usual buffer, less its reserve.
const LONGEST_FORM: u64 = 15 * 1024;
const MOST_READ: usize = 16 * 1024;
const FORM_PATIENCE: Duration = Duration::from_secs(5);
