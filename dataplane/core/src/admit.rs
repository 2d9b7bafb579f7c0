//! Who may come in, and how many: decided before anything is allocated for a connection.
//!
//! A frontend has an [`AdmitState`], kept by its name across swaps, and the [`Limits`] of the served table. With
//! `on-limit: wait` an accept loop asks [`AdmitState::may_accept`] when a connection waits in the backlog, and holds the
//! [`Permit`] while it accepts; with `reject` it accepts first. Then [`AdmitState::admit`] decides by the client, and the
//! [`Admission`] counts until it is dropped. The process's own limit is the same type once more.
//!
//! A dropped [`Admission`] or [`Permit`] is the only thing that makes room, and it always wakes whoever was told to wait.
//! This module opens and closes nothing, and knows no timer: [`Accept::At`] names the moment.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use crate::affinity::shards::ClientKey;
use crate::moment::Moment;
use crate::rng::mix;

mod per_client;
mod ranges;
mod rate;

use per_client::Clients;
pub use ranges::PrefixSet;
use rate::SharedBucket;

/// What the table allows at one frontend. Everything that is absent is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `source-ranges`; absent: everybody.
    pub sources: Option<PrefixSet>,
    /// `max-connections`.
    pub connections: Option<u32>,
    /// `max-connection-rate`.
    pub rate: Option<u32>,
    /// `max-connections-per-client`.
    pub connections_per_client: Option<u32>,
    /// `max-connection-rate-per-client`.
    pub rate_per_client: Option<u32>,
}

impl Limits {
    /// Whether `source-ranges` let `client` in.
    pub fn check_source(&self, client: IpAddr) -> Result<(), Refusal> {
        match &self.sources {
            Some(sources) if !sources.contains(client) => Err(Refusal::SourceRange),
            _ => Ok(()),
        }
    }

    fn any_per_client(&self) -> bool {
        self.connections_per_client.is_some() || self.rate_per_client.is_some()
    }
}

/// What is counted at one frontend.
#[derive(Debug)]
pub struct AdmitState {
    current: AtomicU32,
    peak: AtomicU32,
    rate: SharedBucket,
    waiting: AtomicUsize,
    line: Mutex<Line>,
    clients: OnceLock<Clients>,
    seed: u64,
}

impl AdmitState {
    /// Nobody is in yet. The seed, a random one, keeps clients from choosing addresses that collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            current: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            rate: SharedBucket::default(),
            waiting: AtomicUsize::new(0),
            line: Mutex::default(),
            clients: OnceLock::new(),
            seed,
        }
    }

    /// How many are in now, those about to be accepted included.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    /// The most that were ever in at once.
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets that there were ever more than now.
    pub fn forget_peak(&self) {
        self.peak.store(self.current(), Ordering::Relaxed);
    }

    /// How many accept loops wait for a place.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// For `on-limit: wait`, while a connection waits to be accepted. `waker` is woken when room may have been made;
    /// ask again then. A place is reserved at once, so that two workers never accept for one place; and each place
    /// that becomes free wakes one who waits, not all: thousands may.
    pub fn may_accept(self: &Arc<Self>, limits: &Limits, now: Moment, waker: &Waker) -> Accept {
        match self.reserve(limits, now) {
            Err(Busy::Full) => {}
            Err(Busy::Until(when)) => return Accept::At(when),
            Ok(permit) => return Accept::Now(permit),
        }
        // First into the line, then a second look: who leaves in between sees the line or is seen by the look.
        let waiting = self.wait(waker);
        match self.reserve(limits, now) {
            Err(Busy::Full) => Accept::WhenReleased(waiting),
            Err(Busy::Until(when)) => Accept::At(when),
            Ok(permit) => Accept::Now(permit),
        }
    }

    /// Lets `client` in, or says why not. With `on-limit: wait` the `permit` is the one that it was accepted with;
    /// with `reject` there is none.
    pub fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        client: IpAddr,
        now: Moment,
        permit: Option<Permit>,
    ) -> Result<Admission, Refusal> {
        limits.check_source(client)?;
        // Before the frontend's own limits, so that one greedy client does not use up what is everybody's.
        let counted = self.count_client(limits, client, now)?;
        let mut admission = self.admit_peer(limits, now, permit).inspect_err(|_| {
            self.uncount_client(counted);
        })?;
        admission.client = counted;
        Ok(admission)
    }

    /// As [`AdmitState::admit`], for a peer that must first say who its client is. [`Admission::identify`] does the rest.
    pub fn admit_peer(
        self: &Arc<Self>,
        limits: &Limits,
        now: Moment,
        permit: Option<Permit>,
    ) -> Result<Admission, Refusal> {
        let permit = match permit {
            Some(permit) => permit,
            // A rate that is exceeded is a limit that is reached: it has no word of its own.
            None => self
                .reserve(limits, now)
                .map_err(|_| Refusal::MaxConnections)?,
        };
        Ok(permit.used())
    }

    /// Something other than a release may have made room, such as a new table: whoever waits asks again.
    pub fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let called = {
            let mut line = self.line();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut line.waiting)
        };
        called.into_values().for_each(Waker::wake);
    }

    fn wake_one(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let called = {
            let mut line = self.line();
            let first = line.waiting.pop_first();
            self.waiting.store(line.waiting.len(), Ordering::SeqCst);
            first
        };
        if let Some((_, waker)) = called {
            waker.wake();
        }
    }

    fn wait(self: &Arc<Self>, waker: &Waker) -> Waiting {
        let mut line = self.line();
        let place = line.next;
        line.next += 1;
        line.waiting.insert(place, waker.clone());
        self.waiting.store(line.waiting.len(), Ordering::SeqCst);
        drop(line);
        fence(Ordering::SeqCst);
        Waiting {
            state: Arc::clone(self),
            place,
            has_come: false,
        }
    }

    /// Says whether it was still there.
    fn leave_line(&self, place: u64) -> bool {
        let mut line = self.line();
        let was_there = line.waiting.remove(&place).is_some();
        self.waiting.store(line.waiting.len(), Ordering::SeqCst);
        was_there
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(self: &Arc<Self>, limits: &Limits, now: Moment) -> Result<Permit, Busy> {
        self.enter(limits.connections.unwrap_or(u32::MAX))?;
        if let Some(rate) = limits.rate
            && let Err(when) = self.rate.take(rate, now)
        {
            self.release();
            return Err(Busy::Until(when));
        }
        Ok(Permit(Admission {
            state: Arc::clone(self),
            client: None,
            unused_rate: limits.rate,
        }))
    }

    fn enter(&self, max: u32) -> Result<(), Busy> {
        let mut held = self.current.load(Ordering::Relaxed);
        loop {
            if held >= max {
                return Err(Busy::Full);
            }
            let taken = self.current.compare_exchange_weak(
                held,
                held + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match taken {
                Ok(_) => break,
                Err(now) => held = now,
            }
        }
        Ok(())
    }

    /// Only for connections that did come: a permit is taken before it is known whether there is one.
    fn note_peak(&self) {
        let current = self.current();
        if current > self.peak() {
            self.peak.fetch_max(current, Ordering::Relaxed);
        }
    }

    fn release(&self) {
        self.current.fetch_sub(1, Ordering::SeqCst);
        self.wake_one();
    }

    fn count_client(
        &self,
        limits: &Limits,
        client: IpAddr,
        now: Moment,
    ) -> Result<Option<ClientKey>, Refusal> {
        if !limits.any_per_client() {
            return Ok(None);
        }
        self.clients
            .get_or_init(|| Clients::new([self.seed, mix(self.seed)]))
            .enter(
                client,
                limits.connections_per_client,
                limits.rate_per_client,
                now,
            )
            .map(Some)
    }

    fn uncount_client(&self, client: Option<ClientKey>) {
        if let (Some(client), Some(clients)) = (client, self.clients.get()) {
            clients.leave(client);
        }
    }
}

/// What an accept loop is told.
#[derive(Debug)]
#[must_use]
pub enum Accept {
    /// Accept one, and hand the permit to [`AdmitState::admit`]. If there is none after all, drop it.
    Now(Permit),
    /// Wait to be woken, and keep this until then.
    WhenReleased(Waiting),
    /// The rate is used up until then.
    At(Moment),
}

/// Who waits for a place, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

/// A place in the line. Dropped, it leaves; and if it was called and nobody has come of it, the next one is called.
#[derive(Debug)]
#[must_use = "who drops it waits no longer"]
pub struct Waiting {
    state: Arc<AdmitState>,
    place: u64,
    has_come: bool,
}

impl Waiting {
    /// It was woken, and asks again now. `Some`: because a place became free, and nobody else was told of that one.
    #[must_use]
    pub fn over(mut self) -> Option<Call> {
        self.has_come = true;
        let was_called = !self.state.leave_line(self.place);
        was_called.then(|| Call(Some(Arc::clone(&self.state))))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.has_come {
            return;
        }
        let was_called = !self.state.leave_line(self.place);
        if was_called {
            self.state.wake_one();
        }
    }
}

/// The news that a place became free. Dropped, it goes on to the next in the line: so it does when who was called asks
/// another limit first and is told to wait there.
#[derive(Debug)]
#[must_use = "a call that is dropped goes on to the next in the line"]
pub struct Call(Option<Arc<AdmitState>>);

impl Call {
    /// The limit that called was asked again. Whatever it said, the next in the line would hear nothing else.
    pub fn heeded(mut self) {
        self.0 = None;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.wake_one();
        }
    }
}

/// A place reserved for a connection that is about to be accepted. Dropped unused, it gives back all that it took.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its place back"]
pub struct Permit(Admission);

impl Permit {
    /// It was accepted, and there is nothing more to ask: the process's own limit, for example.
    pub fn used(self) -> Admission {
        let Self(mut admission) = self;
        admission.unused_rate = None;
        admission.state.note_peak();
        admission
    }
}

/// One connection that is in, for as long as this is held.
#[derive(Debug)]
#[must_use = "an admission that is dropped counts no longer"]
pub struct Admission {
    state: Arc<AdmitState>,
    /// Where the limits per client count it.
    client: Option<ClientKey>,
    /// The rate that one was taken at for a connection that has not come yet.
    unused_rate: Option<u32>,
}

impl Admission {
    /// The peer said who its client is: decides by the client as [`AdmitState::admit`] would have.
    pub fn identify(
        &mut self,
        limits: &Limits,
        client: IpAddr,
        now: Moment,
    ) -> Result<(), Refusal> {
        limits.check_source(client)?;
        let counted = self.state.count_client(limits, client, now)?;
        self.state.uncount_client(self.client.take());
        self.client = counted;
        Ok(())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.state.uncount_client(self.client.take());
        if let Some(rate) = self.unused_rate {
            self.state.rate.give_back(rate);
        }
        self.state.release();
    }
}

/// Why a client was turned away. The word is the metric's label and the log's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its address is in none of the `source-ranges`.
    SourceRange,
    /// The frontend's `max-connections` are reached, or its `max-connection-rate`.
    MaxConnections,
    /// The client has as many connections as one may have.
    MaxConnectionsPerClient,
    /// The client makes connections faster than one may.
    MaxConnectionRatePerClient,
    /// The service has no endpoint that may be picked.
    NoEndpoint,
    /// Every endpoint is full, and so is the queue, or there is none.
    QueueFull,
    /// No endpoint had room in time.
    QueueTimeout,
    /// Every attempt to connect failed.
    Failed,
    /// What is left of the service's endpoints would lead the client back to it.
    Loop,
}

impl Refusal {
    /// All of them, in the order of [`Refusal::index`].
    pub const ALL: [Self; 9] = [
        Self::SourceRange,
        Self::MaxConnections,
        Self::MaxConnectionsPerClient,
        Self::MaxConnectionRatePerClient,
        Self::NoEndpoint,
        Self::QueueFull,
        Self::QueueTimeout,
        Self::Failed,
        Self::Loop,
    ];

    /// Its word, as the table's reference has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SourceRange => "source-range",
            Self::MaxConnections => "max-connections",
            Self::MaxConnectionsPerClient => "max-connections-per-client",
            Self::MaxConnectionRatePerClient => "max-connection-rate-per-client",
            Self::NoEndpoint => "no-endpoint",
            Self::QueueFull => "queue-full",
            Self::QueueTimeout => "queue-timeout",
            Self::Failed => "failed",
            Self::Loop => "loop",
        }
    }

    /// Its place in an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why there is no place just now.
enum Busy {
    Full,
    Until(Moment),
}

#[cfg(test)]
mod tests;
