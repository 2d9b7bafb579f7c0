//! Whether the data plane of this host serves: a connection to its runtime socket, which ends when it does, and the question whether
//! it is ready.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::node::DataPlane;

/// The answer of /readyz.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Several times in a row nothing came.
    Nothing,
}

/// Follows the data plane for ever. `known` says what is known of it; at first, that it is not known to serve. Its first change is what
/// was found out, also if that is the same.
pub(super) async fn follow(
    socket: Option<PathBuf>,
    url: Option<String>,
    known: watch::Sender<DataPlane>,
) {
    let (is_there, there) = watch::channel(socket.is_none().then_some(true));
    let connection = async {
        match &socket {
            Some(socket) => connect(socket, &is_there).await,
            None => std::future::pending().await,
        }
    };
    let (answers, answering) = watch::channel(url.is_none().then_some(Answer::Yes));
    let question = async {
        match &url {
            Some(url) => ask(url, &answers).await,
            None => std::future::pending().await,
        }
    };
    let both = async {
        let (mut there, mut answering) = (there, answering);
        let mut was_found = false;
        loop {
            let (now, is_found) = match (*there.borrow_and_update(), *answering.borrow_and_update())
            {
                (Some(false), _) | (_, Some(Answer::Nothing)) => (DataPlane::Gone, true),
                (Some(true), Some(Answer::Yes)) => (DataPlane::Ready, true),
                (there, answer) => (DataPlane::Unready, there.is_some() && answer.is_some()),
            };
            let is_first = is_found && !std::mem::replace(&mut was_found, true);
            known.send_if_modified(|known| std::mem::replace(known, now) != now || is_first);
            tokio::select! {
                _ = there.changed() => {}
                _ = answering.changed() => {}
            }
        }
    };
    tokio::join!(connection, question, both);
}

/// Keeps a connection to the runtime socket. After its end it is tried again at once: a data plane that is upgraded has left its
/// socket to the next one.
async fn connect(socket: &Path, is_there: &watch::Sender<Option<bool>>) {
    loop {
        let begun = Instant::now();
        if let Ok(mut stream) = UnixStream::connect(socket).await
            && keep(&mut stream, is_there).await.is_ok()
            // One that ends every connection at once would be asked without a pause.
            && begun.elapsed() >= CONNECT_EVERY
            && UnixStream::connect(socket).await.is_ok()
        {
            continue;
        }
        is_there.send_replace(Some(false));
        sleep(CONNECT_EVERY).await;
    }
}

/// Until the connection ends. `prompt` keeps it open after a command.
async fn keep(stream: &mut UnixStream, is_there: &watch::Sender<Option<bool>>) -> io::Result<()> {
    stream.write_all(b"prompt\n").await?;
    let mut buffer = [0; 256];
    loop {
        match timeout(SPEAK_EVERY, stream.read(&mut buffer)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => {
                is_there.send_replace(Some(true));
            }
            Ok(Err(error)) => return Err(error),
            // The socket ends a connection that is silent for long.
            Err(_) => stream.write_all(b"\n").await?,
        }
    }
}

async fn ask(url: &str, answers: &watch::Sender<Option<Answer>>) {
    let mut failures = 0;
    let mut turns = interval(ASK_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let answer = match timeout(ASK_EVERY, get(url)).await {
            Ok(Ok(true)) => Answer::Yes,
            Ok(Ok(false)) => Answer::No,
            Ok(Err(_)) | Err(_) => Answer::Nothing,
        };
        failures = match answer {
            Answer::Nothing => failures + 1,
            _ => 0,
        };
        if failures == 0 || failures >= MISSES {
            answers.send_replace(Some(answer));
        }
    }
}

/// Whether the answer is 200.
async fn get(url: &str) -> io::Result<bool> {
    let bad = || io::Error::other("no URL");
    let (host, path) = url
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(bad)?;
    let address: SocketAddr = host.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await?;
    Ok(begin.starts_with(b"HTTP/1.") && begin.ends_with(b" 200"))
}

const CONNECT_EVERY: Duration = Duration::from_millis(100);
const SPEAK_EVERY: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(200);
const MISSES: u32 = 3;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn block_on(work: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work);
    }

    #[test]
    fn one_that_hangs_is_known_after_three_questions() {
        block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/readyz", listener.local_addr().unwrap());
            let (known, mut knows) = watch::channel(DataPlane::Unready);
            let (begun, began) = tokio::sync::oneshot::channel();
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                drop(stream);
                // The next ones wait in the queue of the socket for ever.
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            };
            let watcher = async {
                knows
                    .wait_for(|known| *known == DataPlane::Ready)
                    .await
                    .unwrap();
                began.await.unwrap();
                let at = Instant::now();
                knows
                    .wait_for(|known| *known == DataPlane::Gone)
                    .await
                    .unwrap();
                at.elapsed()
            };
            tokio::select! {
                () = follow(None, Some(url), known) => {}
                () = server => {}
                took = watcher => assert!(took < Duration::from_millis(980), "{took:?}"),
            }
        });
    }

    /// Answers every question by "not ready".
    async fn unready(listener: &tokio::net::TcpListener) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    }

    #[test]
    fn what_is_found_first_is_told_though_it_is_nothing_new() {
        block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/readyz", listener.local_addr().unwrap());
            let (known, mut knows) = watch::channel(DataPlane::Unready);
            tokio::select! {
                () = follow(None, Some(url), known) => {}
                () = unready(&listener) => {}
                changed = knows.changed() => changed.unwrap(),
            }
            assert_eq!(*knows.borrow(), DataPlane::Unready);
        });
    }

    #[test]
    fn one_that_says_that_it_is_not_ready_is_still_there() {
        block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/readyz", listener.local_addr().unwrap());
            let (known, mut knows) = watch::channel(DataPlane::Gone);
            tokio::select! {
                () = follow(None, Some(url), known) => {}
                () = unready(&listener) => {}
                known = knows.wait_for(|known| *known == DataPlane::Unready) => {
                    known.unwrap();
                }
            }
        });
    }
}
