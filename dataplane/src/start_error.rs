//! Why a data plane does not start: for `main`, which says it and chooses the exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::guard::{Ending, Taken};
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
    /// Another process has what this one needs, and will not for long.
    #[error("{0}; with --wait this process waits for that, and then begins")]
    Ending(Ending),
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

impl StartError {
    /// Whether an address or a socket is in the way, which whoever has it may give up soon.
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

    /// For a name that cannot be had; `error` says that another process has it.
    pub(crate) fn taken(taken: Taken, error: impl FnOnce() -> Self) -> Self {
        match taken {
            Taken::ByAnother => error(),
            Taken::UntilTheEnd(ending) => Self::Ending(ending),
            Taken::Failed(error) => Self::System(error),
        }
    }
}
