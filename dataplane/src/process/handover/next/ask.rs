//! The question to the process that runs, and its answer.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ballast_core::handover::{Message, Offer, Request};
use rustix::net::SocketAddrUnix;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::Inherited;
use crate::os::limits::Budget;
use crate::process::handover::{is_end, wire};
use crate::process::instance_lock::unix_socket;
use crate::process::start_error::StartError;
use crate::process::succession::is_permitted;
use crate::process::version::VERSION;

impl Inherited {
    /// Asks the process that listens at `path` for its sockets. `None`: there is none. Must be called within a runtime.
    pub async fn ask(path: &Path) -> Result<Option<Self>, StartError> {
        let failed = |why: String| StartError::Socket {
            flag: FLAG,
            path: path.into(),
            why,
        };
        let began = Instant::now();
        let mut until = began + ASKS_AGAIN_WITHIN;
        loop {
            let asked = Instant::now();
            let Some(mut connection) = connect(path).await.map_err(failed)? else {
                return Ok(None);
            };
            let received = timeout(OFFERS_WITHIN, receive(&mut connection)).await;
            let received = received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let now = Instant::now();
            if now - asked > ASK_AGAIN_EVERY {
                // This process waited for its turn, and may ask the one whose turn it was.
                until = (now + ASKS_AGAIN_WITHIN).min(began + LONGEST);
            }
            return match received {
                // It has just ended, or was replaced by the one that answers there now.
                Ok(Answer::Closed) if now < until => {
                    sleep(ASK_AGAIN_EVERY).await;
                    continue;
                }
                Ok(Answer::Closed | Answer::Ending) => Ok(None),
                Ok(Answer::Refused(why)) => Err(failed(format!("not handed over: {why}"))),
                Ok(Answer::Offer(offer, descriptors)) => Self::of(connection, offer, descriptors)
                    .map(Some)
                    .map_err(|error| failed(broken(&error))),
                Err(error) => Err(failed(broken(&error))),
            };
        }
    }
}

/// What the process that runs answers.
enum Answer {
    Offer(Offer, Vec<OwnedFd>),
    Refused(String),
    /// It was told to end: it gives way by its locks.
    Ending,
    /// It has closed the connection.
    Closed,
}

/// Connects to the process that listens at `path`. `None`: there is none.
async fn connect(path: &Path) -> Result<Option<UnixStream>, String> {
    let connection = match UnixStream::connect(path).await {
        Ok(connection) => connection,
        Err(error) if is_nobody(&error) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(
                "the process there does not answer, and as many wait for it as may: it is stopped or hangs; let it go on (kill -CONT), or end it, then start the next one again".into(),
            );
        }
        Err(error) => {
            return Err(format!(
                "the process there cannot be asked: {error}; start the next one as the user of the one that runs"
            ));
        }
    };
    if !is_permitted(&connection) {
        return Err(
            "the process there is another user's; choose a path in a folder that only the user of this process may write to".into(),
        );
    }
    Ok(Some(connection))
}

/// Whether a process listens at `path` that this one was to take over from.
#[must_use]
pub fn is_served(path: &Path) -> bool {
    // One that hangs has as many waiting as may, and counts, too.
    let connected = SocketAddrUnix::new(path)
        .and_then(|address| rustix::net::connect(unix_socket()?, &address));
    !connected.is_err_and(|error| is_nobody(&error.into()))
}

async fn receive(connection: &mut UnixStream) -> io::Result<Answer> {
    let request = Message::Request(Request::own(&VERSION));
    match wire::send(connection, &request).await {
        Err(error) if is_end(&error) => return Ok(Answer::Closed),
        sent => sent?,
    }
    let offer = match wire::receive(connection).await {
        Ok(Message::Offer(offer)) => offer,
        Ok(Message::Refused(why)) => return Ok(Answer::Refused(why)),
        Ok(Message::Ending) => return Ok(Answer::Ending),
        Ok(other) => return Err(wire::invalid(format!("is a message {}", other.kind()))),
        Err(error) if is_end(&error) => return Ok(Answer::Closed),
        Err(error) => return Err(error),
    };
    if let Err(why) = offer.is_understood() {
        return Ok(Answer::Refused(why));
    }
    // The descriptors come before anything else raises the limit.
    Budget::claim();
    let descriptors = wire::receive_descriptors(connection, offer.sockets.len()).await?;
    Ok(Answer::Offer(offer, descriptors))
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn broken(error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::TimedOut => format!("did not come within {OFFERS_WITHIN:?}"),
        _ if is_end(error) => "breaks off".to_owned(),
        _ => error.to_string(),
    };
    format!(
        "what the process there hands over {why}; it goes on as before: start the next one again, or end that one first"
    )
}

/// The flag that names the path.
const FLAG: &str = "--handover";
/// Time for the process that runs to send all its sockets. Another process may have its turn before, and it may be applying a large table.
const OFFERS_WITHIN: Duration = Duration::from_secs(45);
/// For so long this process asks one after the other that take over before it.
const LONGEST: Duration = Duration::from_secs(60);
/// Time for another process to answer at the path, where one has just ended or was replaced.
const ASKS_AGAIN_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::handover::wire::has_no_room;

    #[tokio::test]
    async fn one_that_hangs_with_as_many_waiting_as_may_is_known_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handover");
        assert!(!is_served(&path));
        let listener = unix_socket().unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            let next = unix_socket().unwrap();
            match rustix::net::connect(&next, &address) {
                Ok(()) => waiting.push(next),
                Err(error) => break io::Error::from(error),
            }
        };
        assert!(has_no_room(&error), "{error}");
        assert!(is_served(&path));
        let why = connect(&path).await.unwrap_err();
        assert!(why.contains("is stopped or hangs"), "{why}");
        drop((listener, waiting));
        assert!(!is_served(&path));
    }
}
