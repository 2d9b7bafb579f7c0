//! One announcer for a network namespace: each removes what it finds on the interfaces and does not hold, so two would remove each
//! other's addresses.

use std::io;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};

/// Waits until no other announcer runs in this network namespace. The kernel frees the name with this process.
pub(super) async fn alone() -> io::Result<()> {
    let mut was_told = false;
    let mut strange = 0;
    loop {
        match listen() {
            Ok(listener) => {
                tokio::spawn(answer(listener));
                return Ok(());
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
        match holder().filter(may_announce) {
            Some(holder) if !std::mem::replace(&mut was_told, true) => {
                // The kernel says 0 of a process in another pid namespace.
                tracing::error!(
                    pid = holder.pid().filter(|pid| *pid != 0),
                    "another announcer runs in this network namespace: this one waits until that one ends, and announces nothing; write the addresses of both into one file"
                );
            }
            Some(_) => strange = 0,
            // It has just ended, or any user of this host has taken the name.
            None if strange < STRANGE => strange += 1,
            None => {
                tracing::warn!(
                    "a program that is no announcer has the socket @ballast/announce (see ss -xlp); this process goes on, and would not notice a second announcer"
                );
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn listen() -> io::Result<UnixListener> {
    let socket = socket()?;
    socket.bind(&SockAddr::unix(NAME)?)?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Lets others see whose the name is, and has nothing to say.
async fn answer(listener: UnixListener) {
    loop {
        if listener.accept().await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The process that has the name, if it listens there.
fn holder() -> Option<UCred> {
    let socket = socket().ok()?;
    socket.connect(&SockAddr::unix(NAME).ok()?).ok()?;
    UnixStream::from_std(socket.into()).ok()?.peer_cred().ok()
}

/// A socket that never waits.
fn socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether an announcer may be of this user.
fn may_announce(holder: &UCred) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&holder.uid())
}

/// In the kernel's list of abstract sockets, of which each network namespace has one.
const NAME: &str = "\0ballast/announce";
const BACKLOG: i32 = 16;
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So often it is looked again whether the name is free, where no announcer has it.
const STRANGE: u32 = 10;
