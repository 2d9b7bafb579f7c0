//! The controller's admin server: `/healthz` while the process lives, `/readyz` once it has decided, and `/metrics`. It listens at
//! `--admin`, by default for this machine only, and at a socket in the table's folder for `ballast-controller probe`.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;

/// Serves at an address. While another process has the address, listening is tried again every second.
pub(crate) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) {
    let mut is_logged = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if is_logged => tracing::debug!(%address, %error, "--admin: still not free"),
            Err(error) => {
                tracing::warn!(%address, %error, "--admin: cannot listen there; trying again every second");
                is_logged = true;
            }
        }
        sleep(BIND_AGAIN).await;
    };
    if is_logged {
        tracing::info!(%address, "--admin: listens");
    }
    serve_all(&Listener::Tcp(listener), metrics).await;
}

/// Serves at a socket in the table's folder. Other processes cannot take it over as they can take a port.
pub(crate) async fn serve_probes(folder: PathBuf, metrics: Arc<Metrics>) {
    let path = folder.join(SOCKET);
    let mut is_logged = false;
    let listener = loop {
        match listen_at(&path) {
            Ok(listener) => break listener,
            Err(error) => {
                if !is_logged {
                    tracing::warn!(path = %path.display(), %error, "cannot listen for probes; trying again every second");
                    is_logged = true;
                }
            }
        }
        sleep(BIND_AGAIN).await;
    };
    serve_all(&Listener::Unix(listener), metrics).await;
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

async fn serve_all(listener: &Listener, metrics: Arc<Metrics>) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(stream) => {
                let metrics = Arc::clone(&metrics);
                tokio::spawn(async move {
                    serve_connection(stream, metrics).await;
                    drop(slot);
                });
            }
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

/// Sends a request to the controller that writes the table in this folder, over its socket.
///
/// # Errors
/// No controller answers, or it answers with another status than 200: the reason in words.
pub fn probe(folder: &Path, path: &str) -> Result<(), String> {
    let socket = folder.join(SOCKET);
    let failed = |why: String| format!("{}: {why}", socket.display());
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(error.to_string()))?;
    let answer = runtime.block_on(async {
        timeout(PROBE_TIMEOUT, get(&socket, path))
            .await
            .map_err(|_| failed("no answer in time".to_owned()))?
            .map_err(|error| failed(error.to_string()))
    });
    match answer? {
        (StatusCode::OK, _) => Ok(()),
        (_, body) => Err(format!("{path}: {}", body.trim())),
    }
}

/// The answer to one request, over a connection of its own.
async fn get(socket: &Path, path: &str) -> Result<(StatusCode, String), BoxError> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(hyper::header::HOST, "controller");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER);
    let body = body.collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn serve_connection(stream: Box<dyn Stream>, metrics: Arc<Metrics>) {
    let answer = service_fn(move |request| {
        let metrics = Arc::clone(&metrics);
        async move { Ok::<_, Infallible>(answer(&request, &metrics)) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    // A client that does not read, or never stops sending, is disconnected.
    timeout(LONGEST_CONNECTION, connection).await.ok();
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
const LONGEST_CONNECTION: Duration = Duration::from_secs(30);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// The socket for probes, in the table's folder.
const SOCKET: &str = "controller.sock";
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const LARGEST_ANSWER: usize = 64 << 10;
