//! The admin address: health and metrics. On a runtime of its own, so that no scrape costs a client anything.

use std::convert::Infallible;
use std::net::TcpListener as StdTcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::stats::{self, Selection};
use crate::worker::Shared;

/// Answers at all these addresses for as long as the process lives.
pub(crate) async fn serve(
    listeners: Vec<StdTcpListener>,
    shared: Arc<Shared>,
    started: oneshot::Sender<()>,
) {
    tokio::task::spawn_local(stats::watch(Arc::clone(&shared)));
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let reserve = Rc::new(std::cell::RefCell::new(Reserve::new()));
    for listener in listeners {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                let (shared, slots, reserve) =
                    (Arc::clone(&shared), Arc::clone(&slots), Rc::clone(&reserve));
                tokio::task::spawn_local(accept(listener, shared, slots, reserve));
            }
            Err(error) => tracing::error!(%error, "cannot answer at an admin address"),
        }
    }
    started.send(()).ok();
    std::future::pending::<()>().await;
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    slots: Arc<Semaphore>,
    reserve: Rc<std::cell::RefCell<Reserve>>,
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

fn answer(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
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
            let snapshot = shared.stats.snapshot(shared);
            let body: Vec<u8> = stats::metrics(snapshot, selection).flatten().collect();
            let mut answer = text(StatusCode::OK, body);
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            answer.headers_mut().insert(CONTENT_TYPE, kind);
            answer
        }
        _ => text(
            StatusCode::NOT_FOUND,
            "here are /healthz, /readyz and /metrics\n",
        ),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
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
