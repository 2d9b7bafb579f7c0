//! The controller's admin server: `/healthz` while the process lives, `/readyz` once it has decided, and `/metrics`. It listens at
//! `--admin`, by default for this machine only, and at a socket in the table's folder for `ballast-controller probe`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;

/// Serves at an address.
pub(crate) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) {
    let place = address.to_string();
    let listener = listen("--admin", &place, || TcpListener::bind(address)).await;
    serve_all(&Listener::Tcp(listener), metrics).await;
}

/// Serves at a socket in the table's folder. Other processes cannot take it over as they can take a port.
pub(crate) async fn serve_probes(folder: PathBuf, metrics: Arc<Metrics>) {
    let path = folder.join(SOCKET);
    let place = path.display().to_string();
    let listener = listen("probes", &place, || ready(listen_at(&path))).await;
    serve_all(&Listener::Unix(listener), metrics).await;
}

/// Listens. While another process listens there, this is tried again every second.
async fn listen<T, F>(what: &str, place: &str, bind: impl Fn() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    let mut is_logged = false;
    loop {
        match bind().await {
            Ok(listener) => {
                if is_logged {
                    tracing::info!(place, "{what}: listens");
                }
                return listener;
            }
            Err(error) if is_logged => tracing::debug!(place, %error, "{what}: still not free"),
            Err(error) => {
                tracing::warn!(place, %error, "{what}: cannot listen there; trying again every second");
                is_logged = true;
            }
        }
        sleep(BIND_AGAIN).await;
    }
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

/// Accepts every connection at once. One that is too many ends the oldest: a kubelet asks as soon as it is connected, and must be
/// answered beside any number of connections that ask nothing.
async fn serve_all(listener: &Listener, metrics: Arc<Metrics>) {
    // The oldest first.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= MOST_CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let connection = serve_connection(stream, Arc::clone(&metrics));
                open.push_back(tokio::spawn(connection).abort_handle());
            }
            Err(_) => sleep(EXHAUSTED_PAUSE).await,
        }
    }
}

/// Sends a request to the controller that writes the table in this folder, over its socket.
pub fn probe(folder: &Path, path: &str) -> anyhow::Result<()> {
    let socket = folder.join(SOCKET);
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let answer = runtime.context("cannot begin")?.block_on(async {
        let answer = timeout(PROBE_TIMEOUT, get(&socket, path)).await;
        answer.context("no answer in time")?
    });
    match answer.with_context(|| socket.display().to_string())? {
        (StatusCode::OK, _) => Ok(()),
        (_, body) => bail!("{path}: {}", body.trim()),
    }
}

/// The answer to one request, over a connection of its own.
async fn get(socket: &Path, path: &str) -> anyhow::Result<(StatusCode, String)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(path).header(HOST, "controller");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER);
    let body = body
        .collect()
        .await
        .map_err(anyhow::Error::from_boxed)?
        .to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

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
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, body) = match request.uri().path() {
        _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if metrics.has_decided() => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not everything was seen yet\n".to_owned(),
        ),
        "/metrics" => (StatusCode::OK, metrics.render()),
        _ => (
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz and /metrics\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

const MOST_CONNECTIONS: usize = 64;
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_CONNECTION: Duration = Duration::from_secs(30);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
const BIND_AGAIN: Duration = Duration::from_secs(1);
/// The socket for probes, in the table's folder.
const SOCKET: &str = "controller.sock";
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const LARGEST_ANSWER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// The answer of this server to one request, within a second.
    fn asked(address: SocketAddr, path: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_probe_is_answered_within_a_second_beside_200_connections_that_ask_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async move { serve_all(&Listener::Tcp(listener), Arc::default()).await };
        let server = tokio::spawn(server);
        let probed = tokio::task::spawn_blocking(move || {
            let idle = (0..200).map(|_| TcpStream::connect(address));
            let idle: io::Result<Vec<TcpStream>> = idle.collect();
            let answer = asked(address, "/healthz");
            drop(idle.unwrap());
            answer
        });
        let answer = probed.await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        server.abort();
    }
}
