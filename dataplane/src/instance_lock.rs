//! Allows one `ballast` per network namespace and admin port. Without this, SO_REUSEPORT would silently let a second process
//! take half of the connections. An abstract unix socket holds the lock's name; the kernel removes it with its process.
//!
//! The socket stays bound while the lock is held, and begins to listen once its process is ending. Therefore a second process
//! can tell two cases apart: if the name cannot be bound, the lock is held; if a connection to it also succeeds, its holder is
//! ending. The connection tells the holder's pid, and the kernel closes it when the holder is gone.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use ballast_core::rng::mix;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::sys;
use crate::threads::lock;

/// What a lock stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LockName {
    /// An admin port.
    Port(u16),
    /// A table, if there is no admin port.
    Table(PathBuf),
    /// A runtime socket.
    Socket(PathBuf),
}

/// A lock, held until it is dropped.
#[derive(Debug)]
pub(crate) struct InstanceLock {
    _socket: Arc<OwnedFd>,
}

/// All locks that a data plane holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstanceLocks(Arc<Mutex<HeldLocks>>);

#[derive(Debug, Default)]
struct HeldLocks {
    sockets: Vec<Weak<OwnedFd>>,
    is_ending: bool,
}

/// Why a lock cannot be taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it.
    Held,
    /// Another process holds it, and is ending.
    HolderEnding(EndingProcess),
    /// A system call failed.
    Failed(io::Error),
}

/// Another process that is ending and still holds a lock.
#[derive(Debug)]
pub struct EndingProcess {
    name: LockName,
    /// `None`: the other process is not visible here, for example because it is in another container.
    pid: Option<u32>,
    connection: UnixStream,
}

impl InstanceLocks {
    /// Takes a lock, which is held until the returned value is dropped.
    pub(crate) fn take(&self, name: LockName) -> Result<InstanceLock, LockError> {
        let address = name.address().map_err(failed)?;
        let socket = match bind_new(&address) {
            Err(Errno::ADDRINUSE) => match EndingProcess::of(&name, &address) {
                Ok(ending) => return Err(LockError::HolderEnding(ending)),
                // The holder may have ended after the first attempt.
                Err(Errno::CONNREFUSED) => bind_new(&address),
                Err(error) => Err(error),
            },
            tried => tried,
        };
        let socket = socket.map_err(|error| match error {
            Errno::ADDRINUSE => LockError::Held,
            error => failed(error),
        })?;
        let mut held = lock(&self.0);
        if held.is_ending {
            listen(&socket, BACKLOG).map_err(failed)?;
        }
        let socket = Arc::new(socket);
        held.sockets.retain(|socket| socket.strong_count() > 0);
        held.sockets.push(Arc::downgrade(&socket));
        Ok(InstanceLock { _socket: socket })
    }

    /// Lets other processes see that this one is ending.
    pub(crate) fn end(&self) {
        let mut held = lock(&self.0);
        held.is_ending = true;
        for socket in held.sockets.iter().filter_map(Weak::upgrade) {
            if let Err(error) = listen(&socket, BACKLOG) {
                tracing::warn!(%error, "another ballast cannot see that this one is ending");
            }
        }
    }
}

impl LockName {
    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        let name = match self {
            Self::Port(port) => format!("ballast/admin/{port}"),
            Self::Table(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.into());
                format!("ballast/table/{:016x}", hash(&path))
            }
            Self::Socket(path) => {
                // The socket file itself need not exist.
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

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "the admin port {port}"),
            Self::Table(path) => write!(f, "the table {}", path.display()),
            Self::Socket(path) => write!(f, "the runtime socket {}", path.display()),
        }
    }
}

impl EndingProcess {
    /// `CONNREFUSED`: the lock is free, or its holder is not ending.
    fn of(name: &LockName, address: &SocketAddrUnix) -> Result<Self, Errno> {
        let socket = socket()?;
        connect(&socket, address)?;
        let pid = sys::peer_pid(&socket);
        Ok(Self {
            name: name.clone(),
            pid: pid.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            connection: socket.into(),
        })
    }

    /// Waits until the process is gone. Must be called within a runtime.
    pub async fn over(&self) -> io::Result<()> {
        let connection = tokio::net::UnixStream::from_std(self.connection.try_clone()?)?;
        // No bytes are ever sent: the connection becomes readable when it is closed.
        connection.readable().await
    }
}

impl fmt::Display for EndingProcess {
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

fn bind_new(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    bind(&socket, address)?;
    Ok(socket)
}

fn failed(error: Errno) -> LockError {
    LockError::Failed(error.into())
}

fn hash(path: &Path) -> u64 {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes
        .iter()
        .fold(0, |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// The port that the process locks: the first admin port that is not 0.
pub(crate) fn lock_port(admin: &[SocketAddr]) -> Option<u16> {
    admin.iter().map(SocketAddr::port).find(|port| *port != 0)
}

/// How many processes may wait for the end of this one; the kernel may allow fewer.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_name_is_free_again_when_its_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let name = LockName::Table(folder.path().into());
        let held = InstanceLocks::default().take(name.clone()).unwrap();
        let second = InstanceLocks::default().take(name.clone());
        assert!(matches!(second, Err(LockError::Held)), "{second:?}");
        drop(held);
        InstanceLocks::default().take(name).unwrap();
    }

    #[tokio::test]
    async fn a_holder_that_is_ending_says_so_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let name = |file: &str| LockName::Socket(folder.path().join(file));
        let locks = InstanceLocks::default();
        let before = locks.take(name("before")).unwrap();
        locks.end();
        let after = locks.take(name("after")).unwrap();
        for (file, held) in [("before", before), ("after", after)] {
            let Err(LockError::HolderEnding(ending)) = InstanceLocks::default().take(name(file))
            else {
                panic!("{file} is held by one that is ending");
            };
            let words = format!("the process with pid {} is ending", std::process::id());
            assert!(ending.to_string().contains(&words), "{ending}");
            let early = timeout(Duration::from_millis(20), ending.over()).await;
            assert!(early.is_err(), "it is not over yet");
            drop(held);
            ending.over().await.unwrap();
            InstanceLocks::default().take(name(file)).unwrap();
        }
    }
}
