//! The settings of the process, from the command line. They never change; everything else comes from the table.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use super::socket_file::Access;

/// Settings of [`crate::start`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The table: a file, or a folder with `table.json` or `table.yaml`.
    pub table: PathBuf,
    /// Where to write the ack; `None`: `ack.json` in the table's folder if `table` is a folder, else nowhere.
    pub ack: Option<PathBuf>,
    /// Worker threads; `None`: one for each core that this process may use.
    pub threads: Option<usize>,
    /// The admin addresses.
    pub admin: Admin,
    /// Where only `/healthz` is served; from the table: its `stats.healthz`.
    pub healthz: Admin,
    /// The file of users who may see the admin side and change things there; `None`: the table's `stats.source-ranges` say who
    /// may see it, and no user may change anything.
    pub stats_auth_file: Option<PathBuf>,
    /// The ack of the announcer beside this process, for the page; `None`: there is no announcer.
    pub announce_ack: Option<PathBuf>,
    /// The runtime socket; `None`: no socket.
    pub socket: Option<PathBuf>,
    /// The mode and the group of the runtime socket's file.
    pub socket_access: Access,
    /// A second runtime socket, at which fewer commands are taken; `None`: no socket.
    pub monitor_socket: Option<(PathBuf, Access, Level)>,
    /// Where this process hands its sockets over to the next one, and asks the one before for them; `None`: nowhere.
    pub handover: Option<PathBuf>,
    /// The most connections at once; `None`: derived from the limits of the process.
    pub max_connections: Option<u32>,
    /// Active checks a second.
    pub max_checks: u32,
    /// How long accepting goes on after the order to stop.
    pub shutdown_delay: Duration,
    /// How long connections may take to finish after that.
    pub drain_timeout: Duration,
}

impl Config {
    /// Defaults for everything but the table.
    pub fn new(table: PathBuf) -> Self {
        Self {
            table,
            ack: None,
            threads: None,
            admin: Admin::FromTable,
            healthz: Admin::FromTable,
            stats_auth_file: None,
            announce_ack: None,
            socket: None,
            socket_access: Access::OWNER,
            monitor_socket: None,
            handover: None,
            max_connections: None,
            max_checks: MAX_CHECKS,
            shutdown_delay: Duration::ZERO,
            drain_timeout: DRAIN_TIMEOUT,
        }
    }
}

/// Where page, metrics and health are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// At the addresses of the table.
    FromTable,
    /// At these addresses, whatever the table says; nowhere if there are none.
    At(Vec<SocketAddr>),
}

/// The default of `max_checks`.
pub const MAX_CHECKS: u32 = 2000;
/// The default of `drain_timeout`.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The rights of a runtime socket's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Level {
    /// May see everything but single clients (show sess, show errors), and change nothing
    User,
    /// May see everything, clear maxima and the affinity of clients, and change nothing else
    Operator,
    /// Does everything
    #[value(skip)]
    Admin,
}
