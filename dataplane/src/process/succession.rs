//! How one process gives way to the next. The next one, which finds a lock held, connects to its holder. Once the holder is
//! told to end, it gives up its admin addresses, its runtime sockets and its locks, and goes on accepting clients until the
//! next one says that it serves. Then it closes its listening sockets, and its connections finish beside the new process.
//! Where the next one is gone before it serves, the holder takes its locks back, so that another one finds it.
//!
//! The messages are single bytes: [`SERVES`], [`ENDS`] and [`FREE`] from the holder, [`TAKES_OVER`] and [`READY`] from the
//! next process. A process that is gone is seen by the end of the connection.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdUnixListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::os::threads::lock;
use crate::process::handover::old::HandedSockets;
use crate::process::instance_lock::{InstanceLock, InstanceLocks, LockName};

mod predecessor;

pub(super) use predecessor::is_answered;
pub use predecessor::{Holder, Predecessor};

/// How far this process has come in giving way, shared by its threads.
#[derive(Clone, Debug)]
pub(crate) struct Succession(Arc<watch::Sender<State>>);

/// The locks of a process that gives way.
#[derive(Clone, Debug)]
struct Given {
    locks: InstanceLocks,
    /// Those that were given up.
    names: Arc<Mutex<BTreeSet<LockName>>>,
    /// Those that were taken back.
    retaken: Arc<Mutex<Vec<InstanceLock>>>,
}

#[derive(Clone, Debug, Default)]
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
    /// What the next process was handed.
    handed: Option<Arc<HandedSockets>>,
    /// What a process was offered that has not said yet what becomes of it.
    offered: Option<Arc<HandedSockets>>,
    /// Whether the sockets for an offer are being collected, or an offer holds.
    is_offering: bool,
    /// Why that offer holds no more.
    withdrawn: Option<&'static str>,
}

impl Succession {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }

    /// This process is ending: it gives way to whoever asks.
    pub(crate) fn end(&self) {
        self.0.send_modify(|state| state.is_ending = true);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.0.borrow().is_ending
    }

    fn give_up(&self) {
        self.0.send_modify(|state| state.is_wanted = true);
    }

    /// An offer begins, with the collecting of the sockets. It lasts until the returned value is dropped.
    pub(crate) fn begin_offer(&self) -> Offered<'_> {
        self.0.send_modify(|state| {
            state.is_offering = true;
            state.withdrawn = None;
        });
        Offered(self)
    }

    /// What was offered is not what this process has any more.
    pub(crate) fn withdraw(&self, why: &'static str) {
        self.0.send_if_modified(|state| {
            if state.is_offering {
                state.withdrawn = Some(why);
            }
            state.is_offering
        });
    }

    /// Waits until the offer is withdrawn. Returns why.
    pub(crate) async fn withdrawn(&self) -> &'static str {
        self.until(|state| state.withdrawn.is_some()).await;
        self.0.borrow().withdrawn.unwrap_or_default()
    }

    /// Why the offer does not hold, if so.
    pub(crate) fn why_withdrawn(&self) -> Option<&'static str> {
        self.0.borrow().withdrawn
    }

    /// What the next process has: what it was handed, or what a process has that may still begin from it.
    pub(crate) fn left(&self) -> Option<Arc<HandedSockets>> {
        let state = self.0.borrow();
        state.handed.clone().or_else(|| state.offered.clone())
    }

    /// The next process serves, and was handed this.
    pub(crate) fn hand_over(&self, handed: Arc<HandedSockets>) {
        self.0.send_modify(|state| {
            state.handed = Some(handed);
            state.is_wanted = true;
        });
    }

    /// What the next process was handed; `None`: nothing was handed over.
    pub(crate) fn handed(&self) -> Option<Arc<HandedSockets>> {
        self.0.borrow().handed.clone()
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

    /// The next process serves.
    pub(crate) fn set_replaced(&self) {
        self.0.send_modify(|state| state.is_replaced = true);
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
        let given = Given {
            locks: locks.clone(),
            names: Arc::default(),
            retaken: Arc::default(),
        };
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
                        let task =
                            tokio::task::spawn_local(self.clone().accept(listener, given.clone()));
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

    async fn accept(self, listener: UnixListener, given: Given) {
        loop {
            match listener.accept().await {
                Ok((next, _)) if is_permitted(&next) && self.has_room() => {
                    let (succession, given) = (self.clone(), given.clone());
                    tokio::task::spawn_local(async move {
                        let _waiting = Waiting::of(&succession);
                        // A process that has gone needs no answer.
                        succession.give_way(next, &given).await.ok();
                    });
                }
                Ok(_) => {}
                Err(_) => sleep(RETRY_EVERY).await,
            }
        }
    }

    /// Counts a process that is connected; `None`: there are too many.
    pub(crate) fn wait(&self) -> Option<Waiting<'_>> {
        self.has_room().then(|| Waiting::of(self))
    }

    fn has_room(&self) -> bool {
        self.0.borrow().waiting < MOST_WAITING
    }

    async fn give_way(&self, mut next: UnixStream, given: &Given) -> io::Result<()> {
        if !self.0.borrow().is_ending {
            next.write_all(&[SERVES]).await?;
            tokio::select! {
                () = self.until(|state| state.is_ending) => {}
                said = next.read_u8() => return said.map(drop),
            }
        }
        // From here on, what becomes of the next process decides what this one does.
        let takes_over = next.write_all(&[ENDS]).await.is_ok()
            && next.read_u8().await.is_ok_and(|said| said == TAKES_OVER);
        let mut is_ready = false;
        if takes_over {
            given.give_up();
            self.give_up();
            self.free().await;
            is_ready = next.write_all(&[FREE]).await.is_ok()
                && next.read_u8().await.is_ok_and(|said| said == READY);
        }
        let is_last = || given.is_given_up() && self.0.borrow().waiting == 1;
        // What this process does not get back is another one's that does not know of it: the two must not share clients.
        if is_ready || is_last() && !given.take_back().await {
            self.set_replaced();
        } else if takes_over && self.0.borrow().waiting == 1 {
            tracing::warn!(
                "the next process is gone before it served: this one gives way to another one, and accepts clients for as long as it was told to"
            );
        }
        Ok(())
    }
}

impl Given {
    /// Gives up what was taken back, and notes which locks are given up.
    fn give_up(&self) {
        lock(&self.names).extend(self.locks.names());
        lock(&self.retaken).clear();
    }

    fn is_given_up(&self) -> bool {
        !lock(&self.names).is_empty() && lock(&self.retaken).is_empty()
    }

    /// Takes all locks back. `false`: another process has one of them.
    async fn take_back(&self) -> bool {
        let names = lock(&self.names).clone();
        let until = Instant::now() + RELEASES_WITHIN;
        for name in names {
            let retaken = loop {
                match self.locks.take(name.clone()) {
                    Ok(retaken) => break retaken,
                    Err(_) if Instant::now() >= until => {
                        lock(&self.retaken).clear();
                        return false;
                    }
                    // The kernel closes the descriptors of an ended process one after the other.
                    Err(_) => sleep(RETRY_SOON).await,
                }
            };
            lock(&self.retaken).push(retaken);
        }
        true
    }
}

/// An offer that is being made.
#[derive(Debug)]
pub(crate) struct Offered<'a>(&'a Succession);

impl Offered<'_> {
    /// Forgets that the offer was withdrawn: the sockets are collected again, as they are now.
    pub(crate) fn begin_again(&self) {
        self.0.0.send_modify(|state| state.withdrawn = None);
    }

    /// A process is being offered this.
    pub(crate) fn is(&self, offered: HandedSockets) {
        let offered = Some(Arc::new(offered));
        self.0.0.send_modify(|state| state.offered = offered);
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| {
            state.is_offering = false;
            state.offered = None;
            state.withdrawn = None;
        });
    }
}

/// Counts a process that is connected.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Succession);

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
pub(super) fn is_permitted(other: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    other
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

/// The number of the other process; `None`: it is not in this process's pid namespace.
pub(super) fn pid_of(other: &UnixStream) -> Option<u32> {
    let pid = other.peer_cred().ok()?.pid()?;
    // The kernel says 0 of a process in another namespace.
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

/// The abstract socket at which the holder of a lock answers.
fn name(lock: &str) -> String {
    format!("{lock}/successor")
}

fn listen(lock: &LockName) -> io::Result<UnixListener> {
    let address = UnixAddress::from_abstract_name(name(&lock.text()))?;
    let listener = StdUnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
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
/// Time for the kernel to close all descriptors of an ended process.
pub const RELEASES_WITHIN: Duration = Duration::from_secs(1);
const RETRY_SOON: Duration = Duration::from_millis(10);
/// Each one takes a descriptor.
const MOST_WAITING: usize = 16;
const RETRY_EVERY: Duration = Duration::from_millis(50);
const RETRY_RARELY: Duration = Duration::from_secs(5);
