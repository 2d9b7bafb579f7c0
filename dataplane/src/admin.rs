//! The admin address: health, and what is counted in all its forms. On a runtime of its own, so that no scrape costs a client anything.
//! Apply says with each table where it should be; nobody else opens a listening socket that is not a client's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ballast_core::table::{self, Bind};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::guard::Guard;
use crate::listen;
use crate::runtime::StartError;
use crate::stats::{self, Chunks, Form, Selection, Snapshot};
use crate::worker::Shared;

/// Where a table wants the admin side to answer.
pub(crate) fn addresses(stats: &table::Stats) -> Vec<SocketAddr> {
    let ipv6 = listen::has_ipv6();
    let wants = |bind: &Bind| {
        let wildcard = matches!(bind, Bind::Any { .. });
        bind.addresses()
            .filter(move |address| ipv6 || !wildcard || address.is_ipv4())
    };
    stats.bind().iter().flat_map(wants).collect()
}

/// Where the admin side answers, and who must not answer beside it.
#[derive(Debug)]
pub(crate) struct Doors {
    open: BTreeMap<SocketAddr, Door>,
    guards: BTreeMap<u16, Guard>,
}

/// One address.
#[derive(Debug)]
struct Door {
    bound: SocketAddr,
    listener: Option<StdTcpListener>,
    /// Ends with the listener, once it accepts.
    accepting: Option<AbortHandle>,
}

impl Doors {
    /// Takes all these addresses, or says which one cannot be had.
    pub(crate) fn take(addresses: &[SocketAddr]) -> Result<Self, StartError> {
        let mut doors = Self {
            open: BTreeMap::new(),
            guards: BTreeMap::new(),
        };
        for address in addresses {
            doors.bind(*address)?;
        }
        Ok(doors)
    }

    /// Where it answers: the port of those that asked for any.
    pub(crate) fn bound(&self) -> Vec<SocketAddr> {
        self.open.values().map(|door| door.bound).collect()
    }

    fn bind(&mut self, address: SocketAddr) -> Result<(), StartError> {
        if address.port() != 0 && !self.guards.contains_key(&address.port()) {
            let guard = Guard::of_port(address.port()).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => StartError::SecondOne(address),
                _ => StartError::System(error),
            })?;
            self.guards.insert(address.port(), guard);
        }
        let listener = listen::open_alone(address);
        let (bound, listener) = listener
            .and_then(|listener| Ok((listener.local_addr()?, listener)))
            .map_err(|error| StartError::Admin(address, error))?;
        let door = Door {
            bound,
            listener: Some(listener),
            accepting: None,
        };
        self.open.insert(address, door);
        Ok(())
    }

    /// Opens what is wanted, then closes what is not. What cannot be opened is said, and tried again later; as long as
    /// nothing of what is wanted can be, the old addresses still answer. Says whether all is as wanted.
    fn follow(&mut self, wanted: &[SocketAddr]) -> bool {
        let mut whole = true;
        for address in wanted {
            if self.open.contains_key(address) {
                continue;
            }
            match self.bind(*address) {
                Ok(()) => tracing::info!(%address, "admin address"),
                Err(error) => {
                    whole = false;
                    tracing::error!("{error}");
                }
            }
        }
        if wanted.is_empty() || wanted.iter().any(|address| self.open.contains_key(address)) {
            self.open.retain(|address, door| {
                let stays = wanted.contains(address);
                if !stays && let Some(accepting) = &door.accepting {
                    accepting.abort();
                }
                stays
            });
            let open = &self.open;
            self.guards
                .retain(|port, _| open.keys().any(|address| address.port() == *port));
        }
        whole
    }
}

/// Answers at `doors`, and follows what is `wanted`, for as long as the process lives.
pub(crate) async fn serve(
    mut doors: Doors,
    mut wanted: watch::Receiver<Option<Vec<SocketAddr>>>,
    shared: Arc<Shared>,
) {
    tokio::task::spawn_local(stats::watch(Arc::clone(&shared)));
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let reserve = Rc::new(RefCell::new(Reserve::new()));
    loop {
        for door in doors.open.values_mut() {
            let Some(listener) = door.listener.take() else {
                continue;
            };
            match TcpListener::from_std(listener) {
                Ok(listener) => {
                    let (shared, slots, reserve) =
                        (Arc::clone(&shared), Arc::clone(&slots), Rc::clone(&reserve));
                    let accepting = accept(listener, shared, slots, reserve);
                    door.accepting = Some(tokio::task::spawn_local(accepting).abort_handle());
                }
                Err(error) => tracing::error!(%error, "cannot answer at an admin address"),
            }
        }
        shared.status.set_admin(doors.bound());
        let now = wanted.borrow_and_update().clone();
        let whole = now.is_none_or(|now| doors.follow(&now));
        if doors.open.values().any(|door| door.listener.is_some()) {
            continue;
        }
        shared.status.set_admin(doors.bound());
        let again = if whole { Duration::MAX } else { RETRY_EVERY };
        if let Ok(Err(_)) = timeout(again, wanted.changed()).await {
            // Nobody will want anything else any more.
            return std::future::pending().await;
        }
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
    reserve: Rc<RefCell<Reserve>>,
) {
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                let reserve = Rc::clone(&reserve);
                tokio::task::spawn_local(async move {
                    converse(stream, shared, slot).await;
                    reserve.borrow_mut().refill();
                });
            }
            // Out of descriptors: what is kept for this is given up, so that an operator still sees why.
            Err(_) if reserve.borrow_mut().lend() => {}
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

/// Descriptors that nobody uses, so that there are some when there are none.
#[derive(Debug)]
struct Reserve(Vec<std::fs::File>);

impl Reserve {
    fn new() -> Self {
        let mut reserve = Self(Vec::new());
        reserve.refill();
        reserve
    }

    fn lend(&mut self) -> bool {
        self.0.pop().is_some()
    }

    fn refill(&mut self) {
        while self.0.len() < RESERVED {
            match std::fs::File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return,
            }
        }
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>, _slot: OwnedSemaphorePermit) {
    let answer = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(&request, &shared)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    if let Ok(Err(error)) = timeout(CONVERSATION, connection).await {
        tracing::debug!(%error, "admin connection ended");
    }
}

type Answer = Response<Either<Full<Bytes>, Chunks>>;

fn answer(request: &Request<Incoming>, shared: &Shared) -> Answer {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are answered here\n",
        );
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if shared.status.is_ready() => text(StatusCode::OK, "ready\n"),
        "/readyz" => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: no table is applied yet, or the process is ending\n",
        ),
        "/metrics" => {
            let selection = Selection::of_metrics(request.uri().query().unwrap_or_default());
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            rendered(shared, kind, stats::metrics, selection)
        }
        _ => stats_page(request, shared),
    }
}

/// The forms of haproxy's stats page, and the data of ours.
fn stats_page(request: &Request<Incoming>, shared: &Shared) -> Answer {
    let uri = request.uri();
    let address = uri.path_and_query().map_or("/", |address| address.as_str());
    let selection = Selection::of_page(address);
    let (plain, json) = ("text/plain", "application/json");
    match Form::of(address) {
        Some(Form::Csv) => rendered(shared, plain, stats::csv, selection),
        Some(Form::Typed) => rendered(shared, plain, stats::typed, selection),
        Some(Form::Json) => rendered(shared, json, stats::json, selection),
        None if uri.path() == "/api/snapshot" => rendered(shared, json, stats::api, selection),
        Some(Form::Html) | None => text(
            StatusCode::NOT_FOUND,
            "here are /healthz, /readyz, /metrics, /;csv, /;json and /api/snapshot\n",
        ),
    }
}

/// A rendering of a snapshot, sent while it is written.
fn rendered(
    shared: &Shared,
    kind: &'static str,
    render: fn(Arc<Snapshot>, Selection) -> Chunks,
    selection: Selection,
) -> Answer {
    let chunks = render(shared.stats.snapshot(shared), selection).begun();
    let mut response = Response::new(Either::Right(chunks));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

const MOST_CONNECTIONS: usize = 64;
const RESERVED: usize = 8;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONVERSATION: Duration = Duration::from_secs(60);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
const RETRY_EVERY: Duration = Duration::from_secs(5);
