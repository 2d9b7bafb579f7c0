//! How a process hands its listening sockets to the next one (`--handover PATH`), so that no client is lost: both hold the same
//! sockets, and the old process goes on as before until the next one says that it can serve. [`ballast_core::handover`] has the
//! messages.
//!
//! [`next`] is the side of the process that begins, [`old`] that of the one that runs. Nothing that the next process does before
//! it has confirmed concerns a client: it accepts nobody and writes no ack, and where it ends, hangs or says nonsense, the old one
//! goes on. Its confirmation is the one moment that nobody takes back: the old one then closes its copies, and its connections
//! finish beside the next process.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ballast_core::flow::HandedFlow;
use ballast_core::handover::{Handed, PairFiles, State};
use tokio::sync::{mpsc, oneshot};

mod life;
pub(crate) mod next;
pub(crate) mod old;
mod watch;
pub(crate) mod wire;

pub use next::{Inherited, is_served};

/// A socket that is handed over, and its descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    pub(crate) handed: Handed,
    pub(crate) descriptor: Arc<dyn Descriptor>,
}

/// A descriptor of any kind of socket.
pub(crate) trait Descriptor: AsFd + fmt::Debug + Send + Sync {}

impl<T: AsFd + fmt::Debug + Send + Sync> Descriptor for T {}

/// A question to a thread for the sockets that it has.
pub(crate) type LendRequest = oneshot::Sender<Vec<Lent>>;
/// The end at which a thread is asked.
pub(crate) type LendRequests = mpsc::UnboundedReceiver<LendRequest>;

/// What this process has taken over, and from whom.
#[derive(Debug)]
pub struct TakenOver {
    /// How many sockets that somebody may wait at.
    pub sockets: usize,
    /// Of how many.
    pub of: usize,
    /// The process before; `None`: it is in another pid namespace.
    pub pid: Option<u32>,
    /// The version of its program.
    pub program: String,
}

/// A flow of a client of datagrams between two processes, and its socket.
#[derive(Debug)]
pub(crate) struct MovedFlow {
    pub(crate) flow: HandedFlow,
    pub(crate) socket: OwnedFd,
}

/// Has the workers stop reading the listening sockets with these numbers of the kernel, and give away their flows.
pub(crate) type GiveFlows = Box<dyn Fn(BTreeSet<u64>) -> Vec<oneshot::Receiver<Vec<MovedFlow>>>>;

/// An order to apply: to change nothing any more, until `until` ends.
#[derive(Debug)]
pub(crate) struct Freeze {
    /// The certificates that the next process wants.
    pub(crate) certificates: Vec<PairFiles>,
    /// Whether it wants the keys of session tickets that come from a file.
    pub(crate) tickets: bool,
    /// Notified of all that is known, when nothing changes any more.
    pub(crate) known: oneshot::Sender<Vec<State>>,
    /// Its sender is dropped where this process goes on.
    pub(crate) until: oneshot::Receiver<()>,
}

/// Whether the process that begins takes over. That is decided once, by whichever of its threads comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision(Arc<AtomicU8>);

impl Decision {
    /// It takes over. `false`: it was decided that it does not.
    pub(crate) fn take(&self) -> bool {
        self.decide(TAKES)
    }

    /// It ends without having served anybody. `false`: it was decided before.
    pub(crate) fn give_up(&self) -> bool {
        self.decide(GIVES_UP)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst) == OPEN
    }

    fn decide(&self, how: u8) -> bool {
        let decided = self
            .0
            .compare_exchange(OPEN, how, Ordering::SeqCst, Ordering::SeqCst);
        decided.is_ok()
    }
}

const OPEN: u8 = 0;
const TAKES: u8 = 1;
const GIVES_UP: u8 = 2;

/// Time for the next process to begin, and to put its table in force.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Time for the flows of clients of datagrams to go over. Meanwhile their datagrams wait in the kernel.
const FLOWS_WITHIN: Duration = Duration::from_secs(10);

/// The exit code of a process that was to take over, and did not: the one before goes on.
pub const GOES_ON: u8 = 75;

/// The number by which the kernel lists a socket.
pub(crate) fn inode(socket: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|file| file.st_ino)
}

/// The control groups of this process.
fn groups() -> Option<String> {
    fs::read_to_string("/proc/self/cgroup").ok()
}

/// The number of the pid namespace of this process.
fn pid_namespace() -> Option<u64> {
    rustix::fs::stat("/proc/self/ns/pid")
        .ok()
        .map(|file| file.st_ino)
}

/// Whether the other process has ended the connection.
#[must_use]
pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
