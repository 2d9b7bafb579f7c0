//! Allows one `ballast` per network namespace and admin port. Without this, SO_REUSEPORT would silently let a second process
//! take half of the connections. An abstract unix socket holds the lock's name; the kernel removes it with its process.
//!
//! [`succession`](crate::process::succession) is how the next process asks the holder of a lock to give it up.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use ballast_core::rng::mix;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use tokio::sync::Notify;

use crate::os::threads::lock;

/// What a lock stands for, of which only one process may have each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockName {
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
    changed: Arc<Notify>,
}

/// All locks that a data plane holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstanceLocks {
    held: Arc<Mutex<Vec<HeldLock>>>,
    changed: Arc<Notify>,
}

/// A name, and the socket that is bound to it while the lock is held.
type HeldLock = (LockName, Weak<OwnedFd>);

/// Why a lock cannot be taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds it.
    Held(LockName),
    /// A system call failed.
    Failed(io::Error),
}

impl InstanceLocks {
    /// Takes a lock, which is held until the returned value is dropped.
    pub(crate) fn take(&self, name: LockName) -> Result<InstanceLock, LockError> {
        let failed = |error: Errno| LockError::Failed(error.into());
        let address = name.address().map_err(failed)?;
        let socket = match bind_new(&address) {
            Err(Errno::ADDRINUSE) => return Err(LockError::Held(name)),
            bound => Arc::new(bound.map_err(failed)?),
        };
        let mut held = lock(&self.held);
        held.retain(|(_, socket)| socket.strong_count() > 0);
        held.push((name, Arc::downgrade(&socket)));
        drop(held);
        self.changed.notify_one();
        Ok(InstanceLock {
            _socket: socket,
            changed: Arc::clone(&self.changed),
        })
    }

    /// The locks that are held now.
    pub(crate) fn names(&self) -> BTreeSet<LockName> {
        let held = lock(&self.held);
        let held = held.iter().filter(|(_, socket)| socket.strong_count() > 0);
        held.map(|(name, _)| name.clone()).collect()
    }

    /// Waits until a lock is taken or dropped.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for InstanceLock {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl LockName {
    fn address(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(self.text().as_bytes())
    }

    /// The name in the kernel's list of abstract sockets.
    pub(crate) fn text(&self) -> String {
        match self {
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
        }
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

/// A unix socket that never waits.
pub(crate) fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn bind_new(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = unix_socket()?;
    bind(&socket, address)?;
    Ok(socket)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_again_when_its_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let name = LockName::Table(folder.path().into());
        let locks = InstanceLocks::default();
        let held = locks.take(name.clone()).unwrap();
        assert_eq!(locks.names(), BTreeSet::from([name.clone()]));
        let second = InstanceLocks::default().take(name.clone());
        assert!(matches!(second, Err(LockError::Held(_))), "{second:?}");
        drop(held);
        assert_eq!(locks.names(), BTreeSet::new());
        InstanceLocks::default().take(name).unwrap();
    }
}
