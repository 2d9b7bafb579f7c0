//! One `ballast` per network namespace and admin port: SO_REUSEPORT would let a second one take half of the connections
//! unnoticed. An abstract unix socket, which the kernel removes with its process, holds the name.
//!
//! The socket is bound for as long as the name is held, and listens once its process is ending. So a second process learns
//! both: the name is taken when it cannot be bound, and its holder is ending when a connection to it succeeds. That connection
//! says the holder's pid, and it is closed by the kernel when the holder is gone.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ballast_core::rng::mix;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::sys;

/// A name that a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// An admin port.
    Port(u16),
    /// A table, where there is no admin port.
    Table(PathBuf),
    /// A runtime socket.
    Socket(PathBuf),
}

/// Held for as long as nobody else may have this name.
#[derive(Debug)]
pub(crate) struct Guard {
    _socket: Arc<OwnedFd>,
}

/// All names that a data plane holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    sockets: Vec<Weak<OwnedFd>>,
    is_ending: bool,
}

/// Why a name cannot be had.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Another process has it.
    ByAnother,
    /// Another process has it, and is ending.
    UntilTheEnd(Ending),
    /// The system refuses.
    Failed(io::Error),
}

/// Another process that is ending, and still has a name.
#[derive(Debug)]
pub struct Ending {
    name: Name,
    /// `None`: this process cannot see it, because it is in another container, for example.
    pid: Option<u32>,
    connection: UnixStream,
}

impl Guards {
    /// Takes a name for as long as the guard is kept.
    pub(crate) fn take(&self, name: Name) -> Result<Guard, Taken> {
        let address = name.address().map_err(failed)?;
        let socket = match bound(&address) {
            Err(Errno::ADDRINUSE) => match Ending::of(&name, &address) {
                Ok(ending) => return Err(Taken::UntilTheEnd(ending)),
                // The holder may have gone after the first attempt.
                Err(Errno::CONNREFUSED) => bound(&address),
                Err(error) => Err(error),
            },
            tried => tried,
        };
        let socket = socket.map_err(|error| match error {
            Errno::ADDRINUSE => Taken::ByAnother,
            error => failed(error),
        })?;
        let mut held = self.held();
        if held.is_ending {
            listen(&socket, BACKLOG).map_err(failed)?;
        }
        let socket = Arc::new(socket);
        held.sockets.retain(|socket| socket.strong_count() > 0);
        held.sockets.push(Arc::downgrade(&socket));
        Ok(Guard { _socket: socket })
    }

    /// Lets other processes know that this one is ending.
    pub(crate) fn end(&self) {
        let mut held = self.held();
        held.is_ending = true;
        for socket in held.sockets.iter().filter_map(Weak::upgrade) {
            if let Err(error) = listen(&socket, BACKLOG) {
                tracing::warn!(%error, "another ballast cannot see that this one is ending");
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Name {
    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        let name = match self {
            Self::Port(port) => format!("ballast/admin/{port}"),
            Self::Table(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.into());
                format!("ballast/table/{:016x}", hash(&path))
            }
            Self::Socket(path) => {
                // The file itself need not be there.
                let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
                let path = match (folder, path.file_name()) {
                    (Some(folder), Some(name)) => folder.join(name),
                    _ => path.into(),
                };
                format!("ballast/socket/{:016x}", hash(&path))
            }
        };
        SocketAddrUnix::new_abstract_name(name.as_bytes())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "the admin port {port}"),
            Self::Table(path) => write!(f, "the table {}", path.display()),
            Self::Socket(path) => write!(f, "the runtime socket {}", path.display()),
        }
    }
}

impl Ending {
    /// CONNREFUSED: nobody has the name, or whoever has it is not ending.
    fn of(name: &Name, address: &SocketAddrUnix) -> Result<Self, Errno> {
        let socket = socket()?;
        connect(&socket, address)?;
        let pid = sys::peer_pid(&socket);
        Ok(Self {
            name: name.clone(),
            pid: pid.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            connection: socket.into(),
        })
    }

    /// Waits until the process is gone. Within a runtime only.
    pub async fn over(&self) -> io::Result<()> {
        let connection = tokio::net::UnixStream::from_std(self.connection.try_clone()?)?;
        // Nothing is ever sent: the connection is readable when it is closed.
        connection.readable().await
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "the process with pid {pid} is ending")?,
            None => write!(
                f,
                "a process in another pid namespace (another container?) is ending"
            )?,
        }
        write!(f, ", and has {} until then", self.name)
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn bound(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    bind(&socket, address)?;
    Ok(socket)
}

fn failed(error: Errno) -> Taken {
    Taken::Failed(error.into())
}

fn hash(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes
        .iter()
        .fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// The port that names the process: the first one that is not "any".
pub(crate) fn port(admin: &[SocketAddr]) -> Option<u16> {
    admin.iter().map(SocketAddr::port).find(|port| *port != 0)
}

/// Processes that may wait for the end of this one: as many as the kernel lets.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_name_is_free_again_when_its_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let name = Name::Table(folder.path().into());
        let held = Guards::default().take(name.clone()).unwrap();
        let second = Guards::default().take(name.clone());
        assert!(matches!(second, Err(Taken::ByAnother)), "{second:?}");
        drop(held);
        Guards::default().take(name).unwrap();
    }

    #[tokio::test]
    async fn a_holder_that_is_ending_says_so_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let name = |file: &str| Name::Socket(folder.path().join(file));
        let guards = Guards::default();
        let before = guards.take(name("before")).unwrap();
        guards.end();
        let after = guards.take(name("after")).unwrap();
        for (file, held) in [("before", before), ("after", after)] {
            let Err(Taken::UntilTheEnd(ending)) = Guards::default().take(name(file)) else {
                panic!("{file} is held by one that is ending");
            };
            let words = format!("the process with pid {} is ending", std::process::id());
            assert!(ending.to_string().contains(&words), "{ending}");
            let early = timeout(Duration::from_millis(20), ending.over()).await;
            assert!(early.is_err(), "it is not over yet");
            drop(held);
            ending.over().await.unwrap();
            Guards::default().take(name(file)).unwrap();
        }
    }
}
