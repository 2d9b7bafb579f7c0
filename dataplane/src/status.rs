//! What apply says of itself, for whoever looks: readiness, the table in force, how swaps went.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ballast_core::ack::{Ack, Exception};
use ballast_core::plan::SocketKey;
use tokio_util::sync::CancellationToken;

/// Written by apply, read by the admin side and by tests.
#[derive(Debug, Default)]
pub struct Status {
    stopping: AtomicBool,
    /// Why no client can be accepted, if none can.
    not_accepting: Mutex<Option<Arc<str>>>,
    /// In seconds since 1970; 0 before the first table.
    applied_at: AtomicU64,
    /// Tables that were refused.
    pub refused: AtomicU64,
    /// Plans that somebody still uses.
    pub retired: AtomicU64,
    swaps: Mutex<Swaps>,
    listening: Mutex<Arc<BTreeMap<SocketKey, SocketAddr>>>,
    admin: Mutex<Vec<SocketAddr>>,
    answer: Mutex<Option<Arc<Answer>>>,
    ended: CancellationToken,
    /// Who listens to events now.
    pub(crate) listeners: AtomicUsize,
}

impl Status {
    /// Whether clients should be sent here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.why_not_ready().is_none()
    }

    /// Why clients should be sent elsewhere; `None`: they should not.
    #[must_use]
    pub fn why_not_ready(&self) -> Option<Arc<str>> {
        if self.is_stopping() {
            return Some("the process is ending".into());
        }
        if self.applied_at() == 0 {
            return Some("no table is applied yet".into());
        }
        lock(&self.not_accepting).clone()
    }

    /// Why no client can be accepted now, if none can.
    pub(crate) fn set_not_accepting(&self, why: Option<String>) {
        *lock(&self.not_accepting) = why.map(Into::into);
    }

    /// Whether the end has begun.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The end has begun.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Nothing more will happen here: whoever listens to events is told.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits for [`end`](Self::end).
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// When the table in force was applied, in seconds since 1970; 0 before the first one.
    #[must_use]
    pub fn applied_at(&self) -> u64 {
        self.applied_at.load(Ordering::SeqCst)
    }

    /// A table is in force since now, and this long after it was read.
    pub(crate) fn applied(&self, took: Duration) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut swaps = lock(&self.swaps);
        for (bound, count) in SWAP_BOUNDS.iter().zip(&mut swaps.within) {
            *count += u64::from(took.as_secs_f64() <= *bound);
        }
        swaps.count += 1;
        swaps.sum += took;
        drop(swaps);
        self.applied_at
            .store(now.as_secs().max(1), Ordering::SeqCst);
    }

    /// How long swaps took.
    #[must_use]
    pub fn swaps(&self) -> Swaps {
        lock(&self.swaps).clone()
    }

    /// Where the sockets that the table asks for really are: the port of those that asked for any.
    #[must_use]
    pub fn listening(&self) -> Arc<BTreeMap<SocketKey, SocketAddr>> {
        lock(&self.listening).clone()
    }

    pub(crate) fn set_listening(&self, listening: BTreeMap<SocketKey, SocketAddr>) {
        *lock(&self.listening) = Arc::new(listening);
    }

    /// Where the admin side answers now.
    #[must_use]
    pub fn admin(&self) -> Vec<SocketAddr> {
        lock(&self.admin).clone()
    }

    pub(crate) fn set_admin(&self, addresses: Vec<SocketAddr>) {
        *lock(&self.admin) = addresses;
    }

    /// The last answer.
    #[must_use]
    pub fn ack(&self) -> Option<Arc<Ack>> {
        let answer = lock(&self.answer).clone()?;
        Some(Arc::clone(&answer.ack))
    }

    /// What the last answer says, for people.
    pub(crate) fn words(&self) -> Words {
        let answer = lock(&self.answer).clone();
        let words =
            answer.map(|answer| answer.words.get_or_init(|| Words::of(&answer.ack)).clone());
        words.unwrap_or_default()
    }

    pub(crate) fn set_ack(&self, ack: Arc<Ack>) {
        let words = OnceLock::new();
        *lock(&self.answer) = Some(Arc::new(Answer { ack, words }));
    }
}

/// An answer. Its words are made once, for who asks first.
#[derive(Debug)]
struct Answer {
    ack: Arc<Ack>,
    words: OnceLock<Words>,
}

/// What an answer says, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Why the latest table was refused, if it was.
    pub(crate) refusal: Option<Arc<str>>,
    /// What does not listen as it was asked for, and why.
    pub(crate) exceptions: Arc<[Arc<str>]>,
}

impl Words {
    fn of(ack: &Ack) -> Self {
        let refusal = ack.refused.as_ref().map(|refused| {
            let problems = refused.problems.iter().map(ToString::to_string);
            problems.collect::<Vec<_>>().join("\n").into()
        });
        let exceptions = ack.exceptions.iter().map(|exception| {
            let Exception {
                frontend,
                bind,
                state,
                why,
            } = exception;
            format!("{frontend} {bind} {state}: {why}").into()
        });
        Self {
            refusal,
            exceptions: exceptions.collect(),
        }
    }
}

/// A histogram of how long swaps took.
#[derive(Clone, Debug, Default)]
pub struct Swaps {
    /// How many took no longer than each of [`SWAP_BOUNDS`].
    pub within: [u64; SWAP_BOUNDS.len()],
    /// How many there were.
    pub count: u64,
    /// How long they took together.
    pub sum: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In seconds.
pub const SWAP_BOUNDS: [f64; 8] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0];
