//! Why a data plane does not start: for `main`, which says it and chooses the exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::listen;

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The table, if it is a file, must be good.
    #[error("{0}")]
    Table(String),
    /// Somebody else does this already.
    #[error(
        "another ballast runs in this network namespace with the same admin port ({0}); stop it, or choose another --admin"
    )]
    SecondOne(SocketAddr),
    /// Somebody else serves this table already.
    #[error("{0}: another ballast serves this table in this network namespace; stop it first")]
    SameTable(PathBuf),
    /// The admin address cannot be had.
    #[error("admin: {}; choose another --admin", listen::explain(*.0, .1))]
    Admin(SocketAddr, io::Error),
    /// The address for health alone cannot be had.
    #[error("healthz: {}; choose another --healthz", listen::explain(*.0, .1))]
    Healthz(SocketAddr, io::Error),
    /// The file that says who may see the admin side is wrong.
    #[error("{0}")]
    Auth(String),
    /// The runtime socket cannot be had.
    #[error("socket {}: {why}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What is in the way, and what to do.
        why: String,
    },
    /// The system refuses.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}
