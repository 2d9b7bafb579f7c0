//! Answers one request after another: what there is at which address, and for whom.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::action::{self, Outcome};
use super::doors::Purpose;
use super::events::Events;
use super::gate::{self, Visitor};
use super::page::{self, View};
use super::viewers::Viewers;
use crate::auth::{Auth, Unproven};
use crate::stats::{self, Chunks, Form, Selection, Snapshot};
use crate::worker::Shared;

/// What all conversations of the admin side share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    auth: Option<Auth>,
    viewers: RefCell<Viewers>,
    /// For answers that are rendered while they are read.
    renderings: Arc<Semaphore>,
    listeners: Arc<Semaphore>,
    /// What listeners were told last.
    recent: RefCell<Option<(Instant, Arc<Snapshot>)>>,
}

/// Who is at the other end, and for how long still.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) from: SocketAddr,
    pub(super) purpose: Purpose,
    /// When the conversation ends at the latest.
    pub(super) until: Rc<Cell<Instant>>,
}

pub(super) type Answer = Response<Content>;

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Content {
    Whole(Full<Bytes>),
    Rendered {
        body: Chunks,
        /// Given back with the last piece, or when the reader has gone.
        _slot: OwnedSemaphorePermit,
    },
    Events(Events),
}

impl Desk {
    pub(super) fn new(shared: Arc<Shared>, auth: Option<Auth>, viewers: Viewers) -> Self {
        Self {
            shared,
            auth,
            viewers: RefCell::new(viewers),
            renderings: Arc::new(Semaphore::new(MOST_RENDERINGS)),
            listeners: Arc::new(Semaphore::new(MOST_LISTENERS)),
            recent: RefCell::new(None),
        }
    }

    /// From now on these may look.
    pub(super) fn show_to(&self, viewers: Viewers) {
        self.viewers.replace(viewers);
    }

    /// Why this address may not look; `None`: it may.
    pub(super) fn refuse(&self, client: IpAddr) -> Option<String> {
        self.viewers.borrow().refuse(client)
    }

    /// A snapshot that all who listen share, less than a second old.
    pub(super) fn recent(&self) -> Arc<Snapshot> {
        let mut recent = self.recent.borrow_mut();
        match &*recent {
            Some((taken, snapshot)) if taken.elapsed() < SHARED_FOR => Arc::clone(snapshot),
            _ => {
                let snapshot = self.shared.stats.snapshot(&self.shared);
                *recent = Some((Instant::now(), Arc::clone(&snapshot)));
                snapshot
            }
        }
    }

    pub(super) async fn answer(
        self: &Rc<Self>,
        request: Request<Incoming>,
        caller: Caller,
    ) -> Answer {
        let mut answer = self.content(request, &caller).await;
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        answer
    }

    async fn content(self: &Rc<Self>, request: Request<Incoming>, caller: &Caller) -> Answer {
        let is_reading = [Method::GET, Method::HEAD].contains(request.method());
        match request.uri().path() {
            "/healthz" if is_reading => return text(StatusCode::OK, "ok\n"),
            "/healthz" => return not_allowed("GET, HEAD"),
            _ if caller.purpose == Purpose::Health => {
                return text(
                    StatusCode::NOT_FOUND,
                    "here is /healthz, and nothing else\n",
                );
            }
            "/readyz" if is_reading => return self.readiness(),
            _ => {}
        }
        if let Some(why) = self.refuse(caller.from.ip()) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let from = caller.from.ip();
        let visitor = match gate::visitor(self.auth.as_ref(), request.headers(), from).await {
            Ok(visitor) => visitor,
            Err(Unproven::Wrong) => return who_are_you(),
            Err(Unproven::NotChecked) => return not_checked(),
        };
        let address = request.uri().path_and_query();
        let address = address.map_or("/", |address| address.as_str()).to_owned();
        let form = Form::of(&address);
        if form.is_some() && request.method() == Method::POST {
            return self.change(request, &address, &visitor, caller).await;
        }
        if !is_reading {
            let allowed = if form.is_some() {
                "GET, HEAD, POST"
            } else {
                "GET, HEAD"
            };
            return not_allowed(allowed);
        }
        match (form, request.uri().path()) {
            (Some(form), _) => self.stats_page(form, &address, &visitor).await,
            (None, "/metrics") => {
                let selection = Selection::of_metrics(request.uri().query().unwrap_or_default());
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                self.rendered(kind, |snapshot| stats::metrics(snapshot, selection))
                    .await
            }
            (None, "/api/snapshot") => {
                let selection = Selection::of_page(&address);
                self.rendered("application/json", |snapshot| {
                    stats::api(snapshot, selection)
                })
                .await
            }
            (None, "/events") => self.events(&address, &visitor, caller),
            (None, _) => text(StatusCode::NOT_FOUND, NOTHING_ELSE),
        }
    }

    fn readiness(&self) -> Answer {
        match self.shared.status.why_not_ready() {
            None => text(StatusCode::OK, "ready\n"),
            Some(why) => text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: {why}\n"),
            ),
        }
    }

    /// The forms of haproxy's stats page.
    async fn stats_page(&self, form: Form, address: &str, visitor: &Visitor) -> Answer {
        let selection = Selection::of_page(address);
        match form {
            Form::Csv => {
                self.rendered("text/plain", |snapshot| stats::csv(snapshot, selection))
                    .await
            }
            Form::Typed => {
                self.rendered("text/plain", |snapshot| stats::typed(snapshot, selection))
                    .await
            }
            Form::Json => {
                self.rendered("application/json", |snapshot| {
                    stats::json(snapshot, selection)
                })
                .await
            }
            Form::Schema => {
                let mut answer = text(StatusCode::OK, stats::schema());
                let kind = HeaderValue::from_static("application/json");
                answer.headers_mut().insert(CONTENT_TYPE, kind);
                answer
            }
            Form::Html => {
                let view = View::of(address, visitor.may_change);
                let page = |snapshot| page::page(&self.shared, snapshot, view);
                let mut answer = self.rendered("text/html; charset=utf-8", page).await;
                let headers = answer.headers_mut();
                headers.insert(CONTENT_SECURITY_POLICY, page::policy());
                // Posts must say where they come from.
                headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
                headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
                headers.insert(SAME_ORIGIN, HeaderValue::from_static("same-origin"));
                answer
            }
        }
    }

    /// A rendering of a snapshot, sent while it is written.
    async fn rendered(
        &self,
        kind: &'static str,
        render: impl FnOnce(Arc<Snapshot>) -> Chunks,
    ) -> Answer {
        let slot = Arc::clone(&self.renderings).acquire_owned();
        let Ok(Ok(slot)) = timeout(SLOT_PATIENCE, slot).await else {
            return busy();
        };
        let body = render(self.shared.stats.snapshot(&self.shared)).begun();
        let mut answer = Response::new(Content::Rendered { body, _slot: slot });
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }

    fn events(self: &Rc<Self>, address: &str, visitor: &Visitor, caller: &Caller) -> Answer {
        let Ok(slot) = Arc::clone(&self.listeners).try_acquire_owned() else {
            return busy();
        };
        caller.until.set(Instant::now() + LISTENING);
        let view = View::of(address, visitor.may_change);
        let mut answer = Response::new(Content::Events(Events::begin(
            self,
            view,
            caller.from.ip(),
            slot,
        )));
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer
    }

    /// A form of the page, or of a script that knows haproxy's.
    async fn change(
        &self,
        request: Request<Incoming>,
        address: &str,
        visitor: &Visitor,
        caller: &Caller,
    ) -> Answer {
        if self.auth.is_none() {
            return text(StatusCode::FORBIDDEN, READ_ONLY);
        }
        if !visitor.may_change {
            return who_are_you();
        }
        let outcome = if gate::is_own_post(request.headers()) {
            match body(request).await {
                Ok(body) => {
                    let snapshot = self.shared.stats.snapshot(&self.shared);
                    action::perform(&self.shared, &snapshot, &body, visitor, caller.from).await
                }
                Err(outcome) => outcome,
            }
        } else {
            tracing::warn!(by = visitor.name.as_deref(), from = %caller.from, "a form that this page did not send was denied");
            Outcome::Denied
        };
        let view = View::of(address, visitor.may_change);
        let mut answer = text(StatusCode::SEE_OTHER, "");
        // It is made of letters that may stand there.
        if let Ok(place) = HeaderValue::from_str(&view.address(Some(outcome))) {
            answer.headers_mut().insert(LOCATION, place);
        }
        answer
    }
}

/// What a form says; it must come at once, and say before how long it is.
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

fn who_are_you() -> Answer {
    let words =
        "this needs a name and a secret of --stats-auth-file; changes need those of an admin\n";
    let mut answer = text(StatusCode::UNAUTHORIZED, words);
    let realm = HeaderValue::from_static(r#"Basic realm="Ballast", charset="UTF-8""#);
    answer.headers_mut().insert(WWW_AUTHENTICATE, realm);
    answer
}

fn not_checked() -> Answer {
    let words = "too many secrets from your address, or from many others, wait to be checked; come again in a second\n";
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, words);
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

fn not_allowed(allowed: &'static str) -> Answer {
    let words = format!("only {allowed} are answered here\n");
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, words);
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn busy() -> Answer {
    let words = "too many read at once; come again later\n";
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, words);
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Content::Whole(Full::new(body.into())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    answer
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Rendered { body, .. } => Pin::new(body).poll_frame(cx),
            Self::Events(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Rendered { body, .. } => body.is_end_stream(),
            Self::Events(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Rendered { body, .. } => Body::size_hint(body),
            Self::Events(body) => body.size_hint(),
        }
    }
}

const SAME_ORIGIN: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const NOTHING_ELSE: &str = "here are / (and haproxy's /;csv, /;json, /;typed), /metrics, /healthz, /readyz, /api/snapshot and /events\n";
const READ_ONLY: &str = "this page is read-only: changes need credentials, and there are none; start ballast with --stats-auth-file\n";
const MOST_RENDERINGS: usize = 48;
const MOST_LISTENERS: usize = 16;
const SHARED_FOR: Duration = Duration::from_millis(500);
const SLOT_PATIENCE: Duration = Duration::from_secs(5);
/// After that a listener comes again by itself.
const LISTENING: Duration = Duration::from_secs(3600);
/// As long as haproxy's usual buffer, less its reserve.
const LONGEST_FORM: u64 = 15 * 1024;
const MOST_READ: usize = 16 * 1024;
const FORM_PATIENCE: Duration = Duration::from_secs(5);
