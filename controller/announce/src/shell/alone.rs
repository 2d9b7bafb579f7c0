//! One announcer for a network namespace: each removes what it finds on the interfaces and does not hold, so two would remove each
//! other's addresses.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// The right to announce in this network namespace. The kernel gives it back with the process.
#[derive(Debug)]
pub(super) struct Alone(#[expect(dead_code, reason = "held, and never read")] UnixListener);

impl Alone {
    /// Waits until no other announcer runs in this network namespace.
    pub(super) async fn wait() -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(NAME)?;
        let mut was_told = false;
        loop {
            match UnixListener::bind_addr(&name) {
                Ok(listener) => return Ok(Self(listener)),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
                Err(_) => {}
            }
            if !std::mem::replace(&mut was_told, true) {
                // It has none where that one is in another pid namespace.
                tracing::error!(
                    pid = holder(&name),
                    "another announcer runs in this network namespace: this one waits until that one ends, and announces nothing; write the addresses of both into one file"
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The number of the process that has the name, where it is in this pid namespace.
fn holder(name: &SocketAddr) -> Option<i32> {
    let stream = UnixStream::connect_addr(name).ok()?;
    stream.set_nonblocking(true).ok()?;
    let stream = tokio::net::UnixStream::from_std(stream).ok()?;
    // The kernel says 0 of a process in another namespace.
    let pid = stream.peer_cred().ok()?.pid()?;
    (pid != 0).then_some(pid)
}

const NAME: &[u8] = b"ballast/announce";
const LOOK_EVERY: Duration = Duration::from_millis(100);
