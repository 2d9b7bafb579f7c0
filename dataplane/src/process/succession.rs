//! How one process gives way to the next. The next one, which finds a lock held, connects to its holder. Once the holder is
//! told to end, it gives up its admin addresses, its runtime sockets and its locks, and goes on accepting clients until the
//! next one says that it serves. Then it closes its listening sockets, and its connections finish beside the new process.
//!
//! The messages are single bytes: [`SERVES`], [`ENDS`] and [`FREE`] from the holder, [`TAKES_OVER`] and [`READY`] from the
//! next process. A process that is gone is seen by the end of the connection.

use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{
    SocketAddr as UnixAddress, UnixListener as StdUnixListener, UnixStream as StdUnixStream,
};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::SocketAddrUnix;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::process::instance_lock::{InstanceLocks, LockName, unix_socket};

/// How far this process has come in giving way, shared by its threads.
#[derive(Clone, Debug)]
pub(crate) struct Succession(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// This process was told to end.
    is_ending: bool,
    /// The next process wants what this one holds.
    is_wanted: bool,
    /// This process reads no table and writes no ack any more.
    is_quiet: bool,
    /// The locks are free, and what they stand for.
    is_free: bool,
    /// The next process serves.
    is_replaced: bool,
    /// Processes that are connected.
    waiting: usize,
}

impl Succession {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    /// This process is ending: it gives way to whoever asks.
    pub(crate) fn end(&self) {
        self.0.send_modify(|state| state.is_ending = true);
    }

    fn give_up(&self) {
        self.0.send_modify(|state| state.is_wanted = true);
    }

    /// Waits until what this process holds is wanted.
    pub(crate) async fn wanted(&self) {
        self.until(|state| state.is_wanted).await;
    }

    /// No table is read and no ack is written any more.
    pub(crate) fn set_quiet(&self) {
        self.0.send_modify(|state| state.is_quiet = true);
    }

    pub(crate) async fn quiet(&self) {
        self.until(|state| state.is_quiet).await;
    }

    /// Everything was given up.
    pub(crate) fn set_free(&self) {
        self.0.send_modify(|state| state.is_free = true);
    }

    pub(crate) async fn free(&self) {
        self.until(|state| state.is_free).await;
    }

    /// Waits until the next process serves.
    pub(crate) async fn replaced(&self) {
        self.until(|state| state.is_replaced).await;
    }

    /// Waits as long as this process, which is ending, goes on accepting: for `delay`, then for a next process that has not
    /// said yet that it serves, and no longer than until one has said so.
    pub(crate) async fn accepts(&self, delay: Duration) {
        let until = Instant::now() + delay;
        let alone = async {
            sleep_until(until).await;
            timeout(STARTS_WITHIN, self.until(|state| state.waiting == 0))
                .await
                .ok();
        };
        tokio::select! {
            () = alone => {}
            () = self.replaced() => {}
        }
    }

    async fn until(&self, is_so: impl FnMut(&State) -> bool) {
        // The sender lives in `self`.
        self.0.subscribe().wait_for(is_so).await.ok();
    }

    /// Answers the next process at each lock that is held. Runs for as long as the process lives.
    pub(crate) async fn answer(self, locks: InstanceLocks) {
        let mut answering: BTreeMap<LockName, AbortHandle> = BTreeMap::new();
        let (mut since, mut was_told) = (Instant::now(), false);
        loop {
            let held = locks.names();
            answering.retain(|name, task| {
                let stays = held.contains(name);
                if !stays {
                    task.abort();
                }
                stays
            });
            let mut whole = true;
            let is_late = since.elapsed() > ANSWERS_WITHIN;
            for name in held {
                if answering.contains_key(&name) {
                    continue;
                }
                match listen(&name) {
                    Ok(listener) => {
                        let task = tokio::task::spawn_local(self.clone().accept(listener));
                        answering.insert(name, task.abort_handle());
                    }
                    // The process before may not have closed its own yet.
                    Err(_) => whole = false,
                }
            }
            if whole {
                since = Instant::now();
            } else if is_late && !was_told {
                was_told = true;
                tracing::warn!(
                    "another program answers in place of this one (see /proc/net/unix for ballast/): the next process cannot take over, and must wait for the end"
                );
            }
            let again = match (whole, is_late) {
                (true, _) => Duration::MAX,
                (false, false) => RETRY_EVERY,
                (false, true) => RETRY_RARELY,
            };
            if timeout(again, locks.changed()).await.is_ok() {
                since = Instant::now();
            }
        }
    }

    async fn accept(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((next, _)) if is_permitted(&next) && self.has_room() => {
                    let succession = self.clone();
                    tokio::task::spawn_local(async move {
                        let _waiting = Waiting::of(&succession);
                        // A process that has gone needs no answer.
                        succession.give_way(next).await.ok();
                    });
                }
                Ok(_) => {}
                Err(_) => sleep(RETRY_EVERY).await,
            }
        }
    }

    fn has_room(&self) -> bool {
        self.0.borrow().waiting < MOST_WAITING
    }

    async fn give_way(&self, mut next: UnixStream) -> io::Result<()> {
        if !self.0.borrow().is_ending {
            next.write_all(&[SERVES]).await?;
            tokio::select! {
                () = self.until(|state| state.is_ending) => {}
                said = next.read_u8() => return said.map(drop),
            }
        }
        next.write_all(&[ENDS]).await?;
        if next.read_u8().await? != TAKES_OVER {
            return Ok(());
        }
        self.give_up();
        self.free().await;
        next.write_all(&[FREE]).await?;
        let is_ready = next.read_u8().await.is_ok_and(|said| said == READY);
        self.0.send_modify(|state| {
            // A next process that is gone before it serves leaves the locks to one that does not know of this process: the
            // two must not share clients.
            state.is_replaced |= is_ready || state.waiting == 1;
        });
        Ok(())
    }
}

/// Counts a process that is connected.
struct Waiting<'a>(&'a Succession);

impl<'a> Waiting<'a> {
    fn of(succession: &'a Succession) -> Self {
        succession.0.send_modify(|state| state.waiting += 1);
        Self(succession)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.waiting -= 1);
    }
}

/// Whether the other process may have what this one holds, or is to be believed: abstract sockets have no mode that would say
/// so.
fn is_permitted(other: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    other
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// The process that holds a lock which this one needs.
#[derive(Debug)]
pub struct Predecessor {
    lock: LockName,
    connection: UnixStream,
}

/// What the holder of a lock does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It serves, and nobody has told it to end.
    Serves,
    /// It is ending.
    Ends,
    /// It has just gone, or answers nobody: to be asked again.
    Silent,
}

impl Predecessor {
    /// Asks the holder of a lock what it does. Must be called within a runtime.
    pub async fn ask(lock: &LockName) -> (Holder, Option<Self>) {
        let connection = match connect(lock) {
            Ok(connection) if is_permitted(&connection) => connection,
            _ => return (Holder::Silent, None),
        };
        let mut holder = Self {
            lock: lock.clone(),
            connection,
        };
        match timeout(ANSWERS_WITHIN, holder.connection.read_u8()).await {
            Ok(Ok(SERVES)) => (Holder::Serves, Some(holder)),
            Ok(Ok(ENDS)) => (Holder::Ends, Some(holder)),
            _ => (Holder::Silent, None),
        }
    }

    /// Waits until a process that serves is told to end, or is gone.
    pub async fn ends(&mut self) {
        self.connection.read_u8().await.ok();
    }

    /// Has a process that is ending give up what it holds. Returns when that is free.
    pub async fn take_over(&mut self) -> io::Result<()> {
        self.connection.write_all(&[TAKES_OVER]).await?;
        let free = self.connection.read_u8();
        match timeout(GIVES_UP_WITHIN, free).await?? {
            FREE => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// This process serves: the other one may close its listening sockets.
    pub async fn replace(mut self) {
        // A process that is gone has closed them.
        self.connection.write_all(&[READY]).await.ok();
    }
}

impl std::fmt::Display for Predecessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The kernel says 0 of a process in another namespace.
        let pid = self.connection.peer_cred().ok().and_then(|peer| peer.pid());
        match pid.filter(|pid| *pid != 0) {
            Some(pid) => write!(f, "the process with pid {pid}")?,
            None => write!(f, "a process in another pid namespace (another container?)")?,
        }
        write!(f, ", which had {}", self.lock)
    }
}

/// The abstract socket at which the holder of a lock answers.
fn name(lock: &LockName) -> String {
    format!("{}/successor", lock.text())
}

fn listen(lock: &LockName) -> io::Result<UnixListener> {
    let address = UnixAddress::from_abstract_name(name(lock))?;
    let listener = StdUnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Never waits: a process that does not accept has a full backlog in the end.
fn connect(lock: &LockName) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name(lock).as_bytes())?;
    let socket = unix_socket()?;
    rustix::net::connect(&socket, &address)?;
    UnixStream::from_std(StdUnixStream::from(socket))
}

/// The holder serves, and nobody has told it to end.
const SERVES: u8 = b'S';
/// The holder is ending.
const ENDS: u8 = b'E';
/// The holder has given up what it held.
const FREE: u8 = b'F';
/// The next process wants what the holder has.
const TAKES_OVER: u8 = b'T';
/// The next process serves.
const READY: u8 = b'R';

/// Time for the next process to serve, during which the old one goes on accepting.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// Time for the holder of a lock to say what it does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Time for the holder of a lock to give it up.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(5);
/// Each one takes a descriptor.
const MOST_WAITING: usize = 16;
const RETRY_EVERY: Duration = Duration::from_millis(50);
const RETRY_RARELY: Duration = Duration::from_secs(5);
