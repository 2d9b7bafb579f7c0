//! The status that `apply` publishes: readiness, the table in force, how long swaps took.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ballast_core::ack::{Ack, Exception};
use ballast_core::plan::SocketKey;
use ballast_core::table::Name;
use tokio_util::sync::CancellationToken;

use crate::os::clock::unix_seconds;
use crate::os::threads::lock;
use crate::process::handover::TakenOver;

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
    /// Replaced plans that are still in use.
    pub retired: AtomicU64,
    /// Addresses of the table that could not be bound, and are retried.
    pub unbound: AtomicUsize,
    swaps: Mutex<Swaps>,
    listening: Mutex<Arc<BTreeMap<SocketKey, SocketAddr>>>,
    admin: Mutex<Vec<SocketAddr>>,
    ack: Mutex<Option<Arc<AckWithText>>>,
    inherited: OnceLock<TakenOver>,
    ended: CancellationToken,
    /// The number of clients that listen to events.
    pub(crate) listeners: AtomicUsize,
    /// The number of connections to the admin side.
    pub(crate) admin_connections: AtomicUsize,
    /// The number of connections to the runtime sockets.
    pub(crate) console_connections: AtomicUsize,
}

impl Status {
    /// Whether clients should be sent here.
    pub fn is_ready(&self) -> bool {
        self.why_not_ready().is_none()
    }

    /// Why clients should be sent elsewhere; `None` if they should not.
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

    /// Whether the process is ending.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Notes that the process is ending.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Tells the clients that listen to events that the process has ended.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// When the table in force was applied, in seconds since 1970; 0 before the first one.
    pub fn applied_at(&self) -> u64 {
        self.applied_at.load(Ordering::SeqCst)
    }

    /// Notes that a table is in force now, `took` after it was read.
    pub(crate) fn applied(&self, took: Duration) {
        let now = unix_seconds();
        let mut swaps = lock(&self.swaps);
        for (bound, count) in SWAP_BOUNDS.iter().zip(&mut swaps.within) {
            *count += u64::from(took.as_secs_f64() <= *bound);
        }
        swaps.count += 1;
        swaps.sum += took;
        drop(swaps);
        self.applied_at.store(now.max(1), Ordering::SeqCst);
    }

    /// How long swaps took.
    #[must_use]
    pub fn swaps(&self) -> Swaps {
        lock(&self.swaps).clone()
    }

    /// The addresses of the table's sockets. Where the table asks for port 0, this is the port that the kernel chose.
    pub fn listening(&self) -> Arc<BTreeMap<SocketKey, SocketAddr>> {
        lock(&self.listening).clone()
    }

    pub(crate) fn set_listening(&self, listening: BTreeMap<SocketKey, SocketAddr>) {
        *lock(&self.listening) = Arc::new(listening);
    }

    /// Where the admin side answers now.
    pub fn admin(&self) -> Vec<SocketAddr> {
        lock(&self.admin).clone()
    }

    pub(crate) fn set_admin(&self, addresses: Vec<SocketAddr>) {
        *lock(&self.admin) = addresses;
    }

    /// Notes what was taken over.
    pub(crate) fn inherit(&self, taken: TakenOver) {
        self.inherited.get_or_init(|| taken);
    }

    /// What was taken over; `None`: this process began by itself.
    #[must_use]
    pub fn inherited(&self) -> Option<&TakenOver> {
        self.inherited.get()
    }

    /// The current ack.
    #[must_use]
    pub fn ack(&self) -> Option<Arc<Ack>> {
        let current = lock(&self.ack).clone()?;
        Some(Arc::clone(&current.ack))
    }

    /// The current ack as text.
    pub(crate) fn ack_text(&self) -> AckText {
        let current = lock(&self.ack).clone();
        let text = current.map(|current| {
            let text = current.text.get_or_init(|| AckText::of(&current.ack));
            text.clone()
        });
        text.unwrap_or_default()
    }

    pub(crate) fn set_ack(&self, ack: Arc<Ack>) {
        let text = OnceLock::new();
        *lock(&self.ack) = Some(Arc::new(AckWithText { ack, text }));
    }
}

/// An ack, and its text, which is rendered when it is first needed.
#[derive(Debug)]
struct AckWithText {
    ack: Arc<Ack>,
    text: OnceLock<AckText>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AckText {
    /// Why the latest table was refused, if it was.
    pub(crate) refusal: Option<Arc<str>>,
    /// The exceptions, with their reasons.
    pub(crate) exceptions: Arc<[Arc<str>]>,
    /// The same by the name of the frontend.
    pub(crate) by_frontend: Arc<HashMap<Name, Vec<Exception>>>,
}

impl AckText {
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
        let mut by_frontend: HashMap<Name, Vec<Exception>> = HashMap::new();
        for exception in &ack.exceptions {
            let known = by_frontend.entry(exception.frontend.clone()).or_default();
            known.push(exception.clone());
        }
        Self {
            refusal,
            exceptions: exceptions.collect(),
            by_frontend: Arc::new(by_frontend),
        }
    }
}

/// A histogram of the durations of swaps.
#[derive(Clone, Debug, Default)]
pub struct Swaps {
    /// The number of swaps that took no longer than each of [`SWAP_BOUNDS`].
    pub within: [u64; SWAP_BOUNDS.len()],
    pub count: u64,
    pub sum: Duration,
}

/// Bounds of the histogram in seconds.
pub const SWAP_BOUNDS: [f64; 8] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0];
