//! The controller's own address: `/healthz` while it lives, `/readyz` once it decided, `/metrics`. For this machine only,
//! unless a flag says otherwise. The same is answered at a socket in the table's folder, for `ballast-controller probe`.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;

/// Answers at this address for as long as the process lives. While another process has the address, it is tried again every
/// second.
pub(crate) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) {
    let mut is_told = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if is_told => tracing::debug!(%address, %error, "--admin: still not free"),
            Err(error) => {
                tracing::warn!(%address, %error, "--admin: cannot listen there; trying again every second");
                is_told = true;
            }
        }
        sleep(BIND_AGAIN).await;
    };
    if is_told {
        tracing::info!(%address, "--admin: listens");
    }
    answer_all(&Listener::Tcp(listener), metrics).await;
}

/// Answers probes at a socket in the table's folder, which no other process can take over as it can take a port.
pub(crate) async fn serve_probes(folder: PathBuf, metrics: Arc<Metrics>) {
    let path = folder.join(SOCKET);
    let mut is_told = false;
    let listener = loop {
        match listen_at(&path) {
            Ok(listener) => break listener,
            Err(error) => {
                if !is_told {
                    tracing::warn!(path = %path.display(), %error, "cannot listen for probes; trying again every second");
                    is_told = true;
                }
            }
        }
        sleep(BIND_AGAIN).await;
    };
    answer_all(&Listener::Unix(listener), metrics).await;
}

/// Listens at this path, in place of a socket that an earlier process left there.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A listener of either kind.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

async fn answer_all(listener: &Listener, metrics: Arc<Metrics>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(stream) => {
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

/// Asks the controller that writes the table in this folder, over its socket.
///
/// # Errors
/// No controller answers, or its answer is another status than 200: the reason in words.
pub fn probe(folder: &Path, path: &str) -> Result<(), String> {
    let socket = folder.join(SOCKET);
    let failed = |error: io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(&socket).map_err(failed)?;
    stream
        .set_read_timeout(Some(PROBE_TIMEOUT))
        .map_err(failed)?;
    stream
        .set_write_timeout(Some(PROBE_TIMEOUT))
        .map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream
        .take(LARGEST_ANSWER)
        .read_to_string(&mut answer)
        .map_err(failed)?;
    match answer.strip_prefix("HTTP/1.1 200 ") {
        Some(_) => Ok(()),
        None => {
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            Err(format!("{path}: {}", body.trim()))
        }
    }
}

async fn converse(stream: Box<dyn Stream>, metrics: Arc<Metrics>) {
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
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// The socket for probes, in the table's folder.
const SOCKET: &str = "controller.sock";
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const LARGEST_ANSWER: u64 = 64 << 10;
