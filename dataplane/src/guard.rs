//! One `ballast` per network namespace and admin port: SO_REUSEPORT would let a second one take half of the connections
//! unnoticed. An abstract unix socket, which the kernel removes with its process, holds the name.

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::Path;

use ballast_core::rng::mix;

/// Held for as long as nobody else may have this name.
#[derive(Debug)]
pub(crate) struct Guard {
    _socket: UnixListener,
}

impl Guard {
    /// For an admin port. `AddrInUse`: another process has it.
    pub(crate) fn of_port(port: u16) -> io::Result<Self> {
        Self::take(&format!("ballast/admin/{port}"))
    }

    /// For a table, where there is no admin port.
    pub(crate) fn of_table(table: &Path) -> io::Result<Self> {
        let path = table.canonicalize().unwrap_or_else(|_| table.into());
        Self::take(&format!("ballast/table/{:016x}", hash(&path)))
    }

    /// For a runtime socket.
    pub(crate) fn of_socket(path: &Path) -> io::Result<Self> {
        // The file itself need not be there.
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let path = match (folder, path.file_name()) {
            (Some(folder), Some(name)) => folder.join(name),
            _ => path.into(),
        };
        Self::take(&format!("ballast/socket/{:016x}", hash(&path)))
    }

    fn take(name: &str) -> io::Result<Self> {
        let address = UnixAddr::from_abstract_name(name)?;
        let socket = UnixListener::bind_addr(&address)?;
        Ok(Self { _socket: socket })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_again_when_its_holder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let held = Guard::of_table(folder.path()).unwrap();
        let second = Guard::of_table(folder.path()).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(held);
        Guard::of_table(folder.path()).unwrap();
    }
}
