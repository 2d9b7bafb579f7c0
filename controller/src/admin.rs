//! The controller's own address: `/healthz` while it lives, `/readyz` once it decided, `/metrics`. For this machine only,
//! unless a flag says otherwise.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;

/// Listens there.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers for as long as the process lives.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    converse(stream, metrics).await;
                    drop(slot);
                });
            }
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

async fn converse(stream: TcpStream, metrics: Arc<Metrics>) {
    let answer = service_fn(move |request| {
        let metrics = Arc::clone(&metrics);
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever does not listen, or talks for too long, is left.
    timeout(CONVERSATION, connection).await.ok();
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match metrics.has_decided() {
            true => (StatusCode::OK, "ok\n".to_owned()),
            false => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not everything was seen yet\n".to_owned(),
            ),
        },
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, metrics.render()),
        (&Method::GET | &Method::HEAD, _) => (
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz and /metrics\n".to_owned(),
        ),
        _ => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

const MOST_CONNECTIONS: usize = 16;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const CONVERSATION: Duration = Duration::from_secs(30);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
