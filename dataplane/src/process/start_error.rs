//! Why a data plane does not start. `main` prints it and chooses the exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::net::listen;
use crate::process::instance_lock::{LockError, LockName};

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The table, if it is a file, has problems.
    #[error("{0}")]
    Table(String),
    /// Another process uses the same admin port.
    #[error(
        "another ballast runs in this network namespace with the same admin port ({0}); stop it, choose another --admin, or have this one wait for its end with --wait"
    )]
    SecondOne(SocketAddr),
    /// Another process holds a lock. It can be asked to give way, by [`Predecessor`](crate::Predecessor).
    #[error("{why}")]
    Held {
        /// What it holds.
        lock: LockName,
        /// What this process cannot have therefore.
        why: Box<Self>,
    },
    /// Another process serves this table.
    #[error(
        "{0}: another ballast serves this table in this network namespace; stop it first, or have this one wait for its end with --wait"
    )]
    SameTable(PathBuf),
    /// The admin address cannot be bound.
    #[error("admin: {}; choose another --admin", listen::explain(*.0, .1))]
    Admin(SocketAddr, io::Error),
    /// The address for health only cannot be bound.
    #[error("healthz: {}; choose another --healthz", listen::explain(*.0, .1))]
    Healthz(SocketAddr, io::Error),
    /// The auth file has mistakes.
    #[error("{0}")]
    Auth(String),
    /// The runtime socket cannot be created.
    #[error("{flag} {}: {why}", path.display())]
    Socket {
        /// The flag that names it.
        flag: &'static str,
        path: PathBuf,
        /// The reason and the remedy.
        why: String,
    },
    /// A system call failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    /// Whether an address or a socket is in use, which its holder may release soon.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Admin(_, error) | Self::Healthz(_, error) => {
                error.kind() == io::ErrorKind::AddrInUse
            }
            Self::Socket { .. } => true,
            _ => false,
        }
    }

    /// The error for a lock that cannot be taken. `if_held` makes the error for a lock that another process holds.
    pub(crate) fn lock_failed(error: LockError, if_held: impl FnOnce() -> Self) -> Self {
        match error {
            LockError::Held(lock) => Self::Held {
                lock,
                why: Box::new(if_held()),
            },
            LockError::Failed(error) => Self::System(error),
        }
    }
}
