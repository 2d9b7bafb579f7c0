//! The identity of a listening socket.

use std::fmt;
use std::net::SocketAddr;

use crate::table::{Name, Transport};

/// The identity of a listening socket. A socket lives as long as some applied table wants it, whichever frontend uses it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketKey {
    pub transport: Transport,
    /// Its address in the table.
    pub address: SocketAddr,
    /// The frontend of a socket with port 0, which is a different port for each frontend. `None` for all other sockets.
    pub asked_by: Option<Name>,
}

impl fmt::Display for SocketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}
