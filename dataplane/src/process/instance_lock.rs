//! Allows one `ballast` per network namespace and admin port. Without this, SO_REUSEPORT would silently let a second process
//! take half of the connections. An abstract unix socket holds the lock's name; the kernel removes it with its process.
//!
//! [`succession`](crate::process::succession) is how the next process asks the holder of a lock to give it up.

use std::collections::{BTreeSet, HashMap};
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

/// What a lock protects, of which only one process may have each.
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
    /// The sockets of locks that the process before handed over, by the names' texts.
    inherited: Arc<Mutex<HashMap<String, OwnedFd>>>,
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
    /// These locks are handed over to this process.
    pub(crate) fn inherit(&self, locks: HashMap<String, OwnedFd>) {
        *lock(&self.inherited) = locks;
    }

    /// Gives up the locks that were handed over and that this process does not take.
    pub(crate) fn leave_rest(&self) {
        lock(&self.inherited).clear();
    }

    /// The locks that are held now, and their sockets.
    pub(crate) fn sockets(&self) -> Vec<(LockName, Arc<OwnedFd>)> {
        let held = lock(&self.held);
        let held = held.iter();
        held.filter_map(|(name, socket)| Some((name.clone(), socket.upgrade()?)))
            .collect()
    }

    /// Takes a lock, which is held until the returned value is dropped.
    pub(crate) fn take(&self, name: LockName) -> Result<InstanceLock, LockError> {
        let failed = |error: Errno| LockError::Failed(error.into());
        let inherited = lock(&self.inherited).remove(&name.text());
        let socket = match inherited {
            Some(socket) => Arc::new(socket),
            None => match bind_new(&name.address().map_err(failed)?) {
                Err(Errno::ADDRINUSE) => return Err(LockError::Held(name)),
                bound => Arc::new(bound.map_err(failed)?),
            },
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

    /// Whether both are one lock, however their paths are written.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.text() == other.text()
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
                // The socket file itself need not exist. A relative path is of this process's folder.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
                let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
                let path = match (folder, path.file_name()) {
                    (Some(folder), Some(name)) => folder.join(name),
                    _ => path,
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

    #[test]
    fn a_relative_path_is_that_of_this_folder() {
        let here = std::env::current_dir().unwrap();
        let relative = LockName::Socket("b.sock".into());
        assert_eq!(
            relative.text(),
            LockName::Socket(here.join("b.sock")).text()
        );
        assert_ne!(relative.text(), LockName::Socket("/b.sock".into()).text());
    }

    #[test]
    fn a_lock_that_is_handed_over_is_held_by_both_and_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let name = LockName::Table(folder.path().into());
        let (old, next) = (InstanceLocks::default(), InstanceLocks::default());
        let held = old.take(name.clone()).unwrap();
        let lent = old.sockets().into_iter();
        next.inherit(
            lent.map(|(name, socket)| (name.text(), socket.try_clone().unwrap()))
                .collect(),
        );
        let of_next = next.take(name.clone()).unwrap();
        drop(held);
        let third = InstanceLocks::default().take(name.clone());
        assert!(matches!(third, Err(LockError::Held(_))), "{third:?}");
        drop(of_next);
        InstanceLocks::default().take(name.clone()).unwrap();

        // One that is not taken is given up.
        let held = old.take(name.clone()).unwrap();
        next.inherit(
            old.sockets()
                .into_iter()
                .map(|(name, socket)| (name.text(), socket.try_clone().unwrap()))
                .collect(),
        );
        next.leave_rest();
        drop(held);
        InstanceLocks::default().take(name).unwrap();
    }
}
