//! Health while the first table is read, which may take long: answered at the addresses that the command line gives.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::listeners::{CommandLine, Listeners};
use super::places::Places;
use crate::process::config::Config;
use crate::process::instance_lock::InstanceLocks;

/// The admin addresses of a process that has no table yet, and the locks of their ports.
#[derive(Debug)]
pub struct EarlyAdmin {
    locks: InstanceLocks,
    listeners: Listeners,
}

impl EarlyAdmin {
    /// `None`: the command line gives no address, or another process has one of them. The start says so, once the table is read.
    #[must_use]
    pub fn claim(config: &Config) -> Option<Self> {
        let given = CommandLine::of(config).given();
        if given.is_empty() {
            return None;
        }
        let (locks, mut listeners) = (InstanceLocks::default(), Listeners::default());
        listeners.take(&given, &locks).ok()?;
        Some(Self { locks, listeners })
    }

    /// Answers until `until` is ready: `/healthz` is well, and nothing else is there yet. Must be called within a runtime. Who
    /// connects later is answered by the process that has begun.
    pub async fn answer<T>(&self, until: impl Future<Output = T>) -> T {
        let over = CancellationToken::new();
        let mut answering = JoinSet::new();
        let places = Places::new(MOST_CLIENTS);
        for listener in self.listeners.copies().unwrap_or_default() {
            if let Ok(listener) = TcpListener::from_std(listener) {
                answering.spawn(accept(listener, Arc::clone(&places), over.clone()));
            }
        }
        let ready = until.await;
        over.cancel();
        let all = async { while answering.join_next().await.is_some() {} };
        timeout(LAST_ANSWERS, all).await.ok();
        ready
    }

    pub(crate) fn into_parts(self) -> (InstanceLocks, Listeners) {
        (self.locks, self.listeners)
    }
}

/// Accepts until it is over, then waits for those that were accepted.
async fn accept(listener: TcpListener, places: Arc<Places>, over: CancellationToken) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, from)) => {
                    let cut = CancellationToken::new();
                    let place = places.take(from, false, cut.clone());
                    clients.spawn(async move {
                        let answered = timeout(PATIENCE, answer_one(client));
                        cut.run_until_cancelled(answered).await;
                        drop(place);
                    });
                    // A request that has come is read before another client is accepted.
                    yield_now().await;
                }
                Err(_) => sleep(RETRY_EVERY).await,
            },
            Some(_) = clients.join_next() => {}
            () = over.cancelled() => break,
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

/// Answers one request. A client that has gone needs no answer.
async fn answer_one(mut client: TcpStream) {
    let mut head = Vec::new();
    let mut bytes = [0; 512];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST {
        match client.read(&mut bytes).await {
            Ok(read @ 1..) => head.extend_from_slice(bytes.split_at(read).0),
            _ => return,
        }
    }
    if client.write_all(answer_to(&head).as_bytes()).await.is_ok() {
        client.shutdown().await.ok();
    }
}

/// The answer to a request with this head.
fn answer_to(head: &[u8]) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next());
    let is_head = method == b"HEAD";
    let path = target.and_then(|target| target.split(|byte| *byte == b'?').next());
    let (status, body) = match path {
        Some(b"/healthz") if is_head || method == b"GET" => ("200 OK", "ok\n"),
        _ => ("503 Service Unavailable", NOT_READY),
    };
    let body_sent = if is_head { "" } else { body };
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-cache\r\nconnection: close\r\n\r\n{body_sent}",
        body.len()
    )
}

const NOT_READY: &str = "not ready: the first table is being read\n";
/// Clients at once. Beyond these the oldest one of the client that has the most is cut.
const MOST_CLIENTS: usize = 16;
/// For those that were accepted before the table was read.
const LAST_ANSWERS: Duration = Duration::from_millis(100);
/// For a request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// After an accept that failed.
const RETRY_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a request that are read.
const LONGEST: usize = 8192;

#[cfg(test)]
mod tests {
    use super::answer_to;

    #[test]
    fn health_is_well_and_nothing_else_is_there() {
        for (request, status, body) in [
            ("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK", "ok\n"),
            ("GET /healthz?x HTTP/1.0\r\n\r\n", "200 OK", "ok\n"),
            ("HEAD /healthz HTTP/1.1\r\n\r\n", "200 OK", ""),
            (
                "POST /healthz HTTP/1.1\r\n\r\n",
                "503 Service Unavailable",
                super::NOT_READY,
            ),
            (
                "GET /readyz HTTP/1.1\r\n\r\n",
                "503 Service Unavailable",
                super::NOT_READY,
            ),
            (
                "GET /healthzz HTTP/1.1\r\n\r\n",
                "503 Service Unavailable",
                super::NOT_READY,
            ),
            ("GET", "503 Service Unavailable", super::NOT_READY),
            ("", "503 Service Unavailable", super::NOT_READY),
        ] {
            let answer = answer_to(request.as_bytes());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{request}: {answer}"
            );
            let (_, sent) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(sent, body, "{request}");
        }
    }
}
