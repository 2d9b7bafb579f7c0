//! The side of the next process: it asks the holder of a lock what that does, and has it give way.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use rustix::net::SocketAddrUnix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{ANSWERS_WITHIN, ENDS, FREE, READY, SERVES, TAKES_OVER, is_permitted, name, pid_of};
use crate::process::instance_lock::{LockName, unix_socket};

/// The process that holds a lock which this one needs.
#[derive(Debug)]
pub struct Predecessor {
    lock: LockName,
    connection: UnixStream,
}

/// What the holder of a lock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It serves, and nobody has told it to end.
    Serves,
    Ends,
    /// It is there, and does not answer.
    Hangs,
    /// It has just gone, or is another user's: to be asked again.
    Silent,
}

impl Predecessor {
    /// Asks the holder of a lock what it does. Must be called within a runtime.
    pub async fn ask(lock: &LockName) -> (Holder, Option<Self>) {
        let connection = match connect(lock) {
            Ok(connection) if is_permitted(&connection) => connection,
            // As many wait for its answer as may.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return (Holder::Hangs, None);
            }
            _ => return (Holder::Silent, None),
        };
        let mut holder = Self {
            lock: lock.clone(),
            connection,
        };
        match timeout(ANSWERS_WITHIN, holder.connection.read_u8()).await {
            Ok(Ok(SERVES)) => (Holder::Serves, Some(holder)),
            Ok(Ok(ENDS)) => (Holder::Ends, Some(holder)),
            Err(_) => (Holder::Hangs, Some(holder)),
            _ => (Holder::Silent, None),
        }
    }

    /// Its number, where it can be known.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        pid_of(&self.connection)
    }

    /// Waits until a process that serves is told to end, or is gone.
    pub async fn ends(&mut self) {
        self.connection.read_u8().await.ok();
    }

    /// Has a process that is ending give up what it holds. Returns when that is free.
    pub async fn take_over(&mut self) -> io::Result<()> {
        self.connection.write_all(&[TAKES_OVER]).await?;
        let free = self.connection.read_u8();
        match timeout(GIVES_UP_WITHIN, free).await?? {
            FREE => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// This process serves: the other one may close its listening sockets.
    pub async fn replace(mut self) {
        // A process that is gone has closed them.
        self.connection.write_all(&[READY]).await.ok();
    }
}

impl std::fmt::Display for Predecessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid() {
            Some(pid) => write!(f, "the process with pid {pid}")?,
            None => write!(f, "a process in another pid namespace (another container?)")?,
        }
        write!(f, ", which had {}", self.lock)
    }
}

/// Whether a process answers for the lock with this text. One that hangs counts, too.
pub(in crate::process) fn is_answered(lock: &str) -> bool {
    !connect_to(lock).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Never waits: a process that does not accept has a full backlog in the end.
fn connect(lock: &LockName) -> io::Result<UnixStream> {
    UnixStream::from_std(StdUnixStream::from(connect_to(&lock.text())?))
}

fn connect_to(lock: &str) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(name(lock).as_bytes())?;
    let socket = unix_socket()?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

/// Time for the holder of a lock to give it up.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(5);
