//! Why a data plane does not start. `main` prints it and chooses the exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::net::listen;
use crate::os::listening;
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
    #[error(
        "{0}: another ballast serves this table in this network namespace; stop it first, or have this one wait for its end with --wait"
    )]
    SameTable(PathBuf),
    /// The admin address cannot be bound.
    #[error("admin: {}; choose another --admin", taken(*.0, .1))]
    Admin(SocketAddr, io::Error),
    /// The address for health only cannot be bound.
    #[error("healthz: {}; choose another --healthz", taken(*.0, .1))]
    Healthz(SocketAddr, io::Error),
    /// The auth file has mistakes.
    #[error("{0}")]
    Auth(String),
    /// The rights that were asked for cannot be had, or do not suffice.
    #[error("{0}")]
    Rights(String),
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

/// Why an address cannot be bound; where another process has it, which one that is.
fn taken(address: SocketAddr, error: &io::Error) -> String {
    let holder = match error.kind() {
        io::ErrorKind::AddrInUse => listening::holder(address),
        _ => None,
    };
    match holder {
        Some(holder) => {
            format!("bind {address}: address in use by {holder}, which would have to end")
        }
        None => listen::explain(address, error),
    }
}

impl StartError {
    /// Whether an address or a socket is in use, which its holder may release soon.
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
