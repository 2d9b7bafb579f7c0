//! Starts beside a process that holds what this one needs: an ending one gives way, and `--wait` waits for one to end.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ballast::{
    EarlyAdmin, Holder, Inherited, LockName, Predecessor, RELEASES_WITHIN, StartError, is_end,
};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::signals::Signals;

/// How long to wait for the end of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    For(Duration),
}

impl Wait {
    pub(crate) fn parse(word: &str) -> Result<Self, String> {
        if word == FOREVER {
            return Ok(Self::Forever);
        }
        crate::cli::duration(word).map(Self::For)
    }

    fn left(self, began: Instant) -> Duration {
        match self {
            Self::Forever => Duration::MAX,
            Self::For(limit) => limit.saturating_sub(began.elapsed()),
        }
    }
}

/// What was begun, and the processes that gave way to it: they go on accepting until they are notified that it serves.
pub(crate) struct Begun<T> {
    pub(crate) what: T,
    pub(crate) predecessors: Vec<Predecessor>,
}

/// How something begins.
pub(crate) trait Begin {
    /// The table, or whatever else must be read before the beginning.
    type Read: Send + 'static;
    /// What has begun.
    type What;

    /// Reads, on a thread of its own.
    fn reader(&self) -> impl FnOnce() -> Result<Self::Read, StartError> + Send + 'static;

    /// Whether what was read is still what would be read.
    fn is_current(&self, read: &Self::Read) -> bool;

    /// What answers for the process while it reads.
    fn early(&self) -> Option<EarlyAdmin>;

    /// Where the process before hands over its sockets.
    fn handover(&self) -> Option<&Path>;

    /// Whether the process stays until SIGTERM once the next one has its sockets.
    fn stays(&self) -> bool {
        false
    }

    /// Begins. Where another process is in the way, `read` stays as it is.
    fn begin(
        &mut self,
        read: &mut Self::Read,
        early: Option<EarlyAdmin>,
        inherited: Option<Inherited>,
    ) -> Result<Self::What, StartError>;
}

/// Reads what `beginning` needs and begins it, until no other process is in its way. It is read once, and again where it has
/// changed. `None`: a signal asked for the end meanwhile. Reading may take long: neither a signal nor health waits for it.
pub(crate) fn begin<B: Begin>(
    signals: &mut Signals,
    wait: Option<Wait>,
    mut beginning: B,
) -> anyhow::Result<Option<Begun<B::What>>> {
    let began = Instant::now();
    let mut known: Option<B::Read> = None;
    let mut predecessors = Vec::new();
    let mut released: Option<Instant> = None;
    let mut silent: Option<Instant> = None;
    let mut was_told = false;
    let is_recent = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < RELEASES_WITHIN);
    loop {
        let (mut read, early) = match known.take().filter(|read| beginning.is_current(read)) {
            Some(read) => (read, None),
            None => match signals.wait_for(read(&beginning)) {
                Some(read) => read?,
                None => return Ok(None),
            },
        };
        let Some(inherited) = signals.wait_for(inherit(&beginning)).transpose()? else {
            return Ok(None);
        };
        let has_inherited = inherited.is_some();
        let outcome = beginning.begin(&mut read, early, inherited);
        known = Some(read);
        let (lock, why) = match outcome {
            Ok(what) => return Ok(Some(Begun { what, predecessors })),
            // The process that offered its sockets goes on. What is in the way is a third one's.
            Err(error) if has_inherited => return Err(error.into()),
            Err(StartError::Held { lock, why }) => (lock, why),
            // The kernel closes the descriptors of an ended process one after the other.
            Err(error) if error.may_pass() && is_recent(released) => {
                thread::sleep(RETRY_INTERVAL);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let left = wait.map(|wait| wait.left(began));
        let Some(way) = signals.wait_for(give_way(&lock, left)) else {
            return Ok(None);
        };
        match way {
            Way::Free(predecessor) => {
                predecessors.push(predecessor);
                released = Some(Instant::now());
                silent = None;
            }
            Way::Gone => {
                released = Some(Instant::now());
                silent = None;
            }
            Way::Unknown => {
                let since = *silent.get_or_insert_with(Instant::now);
                let is_short = since.elapsed() < RELEASES_WITHIN;
                if !is_short && left.is_none_or(|left| left.is_zero()) {
                    return Err((*why).into());
                }
                if !is_short && !was_told {
                    was_told = true;
                    tracing::info!("waiting: {why}");
                }
                // It may be gone now.
                released = Some(Instant::now());
                if signals.wait_for(pause(is_short)).is_none() {
                    return Ok(None);
                }
            }
            Way::Held => return Err((*why).into()),
            Way::HeldTooLong(other) => {
                bail!("{other}, does not end; that took longer than --wait allows")
            }
        }
    }
}

/// The pause between two questions to a process that does not answer.
async fn pause(is_short: bool) {
    let interval = if is_short {
        RETRY_INTERVAL
    } else {
        LONG_INTERVAL
    };
    sleep(interval).await;
}

/// What the process before offers. `None`: there is no such process, or none that is asked.
async fn inherit<B: Begin>(beginning: &B) -> Result<Option<Inherited>, StartError> {
    match beginning.handover() {
        Some(path) => Inherited::ask(path).await,
        None => Ok(None),
    }
}

/// Reads on a thread of its own. Where that takes long, health is answered meanwhile.
async fn read<B: Begin>(beginning: &B) -> anyhow::Result<(B::Read, Option<EarlyAdmin>)> {
    let mut reading = pin!(apart(beginning.reader())?);
    let mut early = None;
    let read = match timeout(SHORT_READ, &mut reading).await {
        Ok(read) => read,
        Err(_) => {
            early = beginning.early();
            match &early {
                Some(early) => early.answer(reading).await,
                None => reading.await,
            }
        }
    };
    let read = read.context("the thread that reads the table has ended by a bug")??;
    Ok((read, early))
}

/// Runs `work` on a thread of its own, which ends with the process.
fn apart<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    let thread = thread::Builder::new().name("first-read".into());
    thread.spawn(move || {
        // A process that is ending does not wait for it.
        done.send(work()).ok();
    })?;
    Ok(result)
}

/// What became of the question to the holder of a lock.
enum Way {
    /// The lock is free. The process that had it waits to hear that this one serves.
    Free(Predecessor),
    /// Its holder goes on.
    Held,
    /// Its holder went on for longer than this process may wait.
    HeldTooLong(Predecessor),
    /// Its holder has gone, after it had answered.
    Gone,
    /// Its holder did not answer.
    Unknown,
}

/// Waits, for the time that is left, until the holder of a lock is ending; then takes over from it.
async fn give_way(lock: &LockName, left: Option<Duration>) -> Way {
    let (holder, predecessor) = Predecessor::ask(lock).await;
    let Some(mut predecessor) = predecessor.filter(|_| holder != Holder::Hangs) else {
        return Way::Unknown;
    };
    if holder == Holder::Serves {
        let Some(left) = left else {
            return Way::Held;
        };
        tracing::info!("waiting for the end of {predecessor}");
        if timeout(left, predecessor.ends()).await.is_err() {
            return Way::HeldTooLong(predecessor);
        }
    }
    match predecessor.take_over().await {
        Ok(()) => {
            tracing::info!("taking over from {predecessor}, and finishes its connections");
            Way::Free(predecessor)
        }
        Err(error) if is_end(&error) => Way::Gone,
        Err(_) => Way::Unknown,
    }
}

/// What `--wait` without a value means.
pub(crate) const FOREVER: &str = "forever";
/// A table that is read within this time keeps no reader waiting.
const SHORT_READ: Duration = Duration::from_millis(200);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Between questions to a process that does not answer.
const LONG_INTERVAL: Duration = Duration::from_secs(1);
