//! Admission: which clients may connect, and how many. Decided before anything is allocated for a connection.
//!
//! A frontend has an [`AdmitState`], kept by its name across swaps, and the [`Limits`] of the served table. With
//! `on-limit: wait` an accept loop asks [`AdmitState::may_accept`] when a connection waits in the backlog, and holds the
//! [`Permit`] while it accepts; with `reject` it accepts first. Then [`AdmitState::admit`] decides by the client's address, and
//! the [`Admission`] counts until it is dropped. The process's own limit uses the same types, and counts requests, too, that take as
//! much as a connection ([`AdmitState::admit_request`]).
//!
//! Only dropping an [`Admission`] or a [`Permit`] makes room, and it always wakes a waiter. This module opens and closes
//! nothing and has no timer: [`Accept::At`] returns the moment to wait for.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use crate::clients::ClientKey;
use crate::gauge::Gauge;
use crate::moment::Moment;
use crate::rng::mix;

mod per_client;
mod ranges;
mod rate;

use per_client::Clients;
pub use ranges::PrefixSet;
use rate::SharedBucket;

/// The limits of one frontend in the table. An absent limit means unlimited.
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
    /// Checks `client` against the `source-ranges`.
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

/// The counts of one frontend.
#[derive(Debug)]
pub struct AdmitState {
    /// The connections, and the requests that take as much as one.
    connections: Gauge,
    /// ... of those, the requests.
    requests: Gauge,
    rate: SharedBucket,
    waiting: AtomicUsize,
    wait_list: Mutex<WaitList>,
    clients: OnceLock<Clients>,
    seed: u64,
}

impl AdmitState {
    /// Creates a state without connections. The random seed prevents clients from choosing addresses that collide.
    pub fn new(seed: u64) -> Self {
        Self {
            connections: Gauge::default(),
            requests: Gauge::default(),
            rate: SharedBucket::default(),
            waiting: AtomicUsize::new(0),
            wait_list: Mutex::default(),
            clients: OnceLock::new(),
            seed,
        }
    }

    /// The number of connections now, including those about to be accepted.
    pub fn current(&self) -> u32 {
        self.connections.current()
    }

    /// The highest number of connections so far.
    pub fn peak(&self) -> u32 {
        self.connections.peak()
    }

    /// Resets the peak to the current number.
    pub fn forget_peak(&self) {
        self.connections.forget_peak();
    }

    /// The number of waiting accept loops and requests.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// For `on-limit: wait`, when a connection waits to be accepted. `waker` is woken when room may have been made; the caller
    /// then asks again. Room is reserved at once, so that two workers never accept for the same room. Each release wakes one
    /// waiter, not all of possibly thousands.
    pub fn may_accept(self: &Arc<Self>, limits: &Limits, now: Moment, waker: &Waker) -> Accept {
        match self.reserve(limits, now) {
            Err(Busy::Full) => {}
            Err(Busy::Until(when)) => return Accept::At(when),
            Ok(permit) => return Accept::Now(permit),
        }
        // Enters the wait list first and then checks again: a release in between either sees the entry or is seen by the second
        // check.
        let waiting = self.wait(WaitClass::Connection, waker);
        match self.reserve(limits, now) {
            Err(Busy::Full) => Accept::WhenReleased(waiting),
            Err(Busy::Until(when)) => Accept::At(when),
            Ok(permit) => Accept::Now(permit),
        }
    }

    /// Like [`AdmitState::may_accept`], for a connection that does not wait.
    pub fn accept_now(self: &Arc<Self>, limits: &Limits, now: Moment) -> Option<Permit> {
        self.reserve(limits, now).ok()
    }

    /// Admits `client` or returns the refusal. With `on-limit: wait`, `permit` is the one with which the connection was
    /// accepted; with `reject` none waits.
    pub fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        client: IpAddr,
        now: Moment,
        permit: Option<Permit>,
    ) -> Result<Admission, Refusal> {
        limits.check_source(client)?;
        // Checked before the frontend's own limits, so that one greedy client does not use up the capacity of all.
        let counted = self.count_client(limits, client, now)?;
        let mut admission = self.admit_peer(limits, now, permit).inspect_err(|_| {
            self.uncount_client(counted);
        })?;
        admission.client = counted;
        Ok(admission)
    }

    /// Counts a connection that another process has admitted, even beyond the limits.
    pub(crate) fn resume(
        self: &Arc<Self>,
        limits: &Limits,
        client: IpAddr,
        now: Moment,
    ) -> Result<Admission, Refusal> {
        let unlimited = Limits {
            connections_per_client: limits.any_per_client().then_some(u32::MAX),
            ..Limits::default()
        };
        self.admit(&unlimited, client, now, None)
    }

    /// Admits a peer that must first name its client. [`Admission::identify`] does the rest.
    pub fn admit_peer(
        self: &Arc<Self>,
        limits: &Limits,
        now: Moment,
        permit: Option<Permit>,
    ) -> Result<Admission, Refusal> {
        let permit = match permit {
            Some(permit) => permit,
            // An exceeded rate counts as a reached limit; it has no refusal of its own.
            None => self
                .reserve(limits, now)
                .map_err(|_| Refusal::MaxConnections)?,
        };
        Ok(permit.used())
    }

    /// Admits a request that takes as much as a connection, on a connection that counts already. Of the room that connections
    /// leave, requests get three quarters: a client may have many of them, and another client shall still be able to connect.
    pub fn admit_request(self: &Arc<Self>, most: u32) -> Option<Admission> {
        let connections = self.current().saturating_sub(self.requests.current());
        let free = most.saturating_sub(connections);
        self.requests.add_below(free - free / 4)?;
        if self.connections.add_below(most).is_none() {
            self.requests.subtract(Ordering::SeqCst);
            return None;
        }
        self.note_peak();
        Some(Admission {
            state: Arc::clone(self),
            client: None,
            also: Also::Request,
        })
    }

    /// Like [`AdmitState::admit_request`], for a request that waits until there is room. `waker` is woken as in
    /// [`AdmitState::may_accept`], after the accept loops: what requests may use is a part of what they may use.
    pub fn may_request(self: &Arc<Self>, most: u32, waker: &Waker) -> Result<Admission, Waiting> {
        if let Some(admission) = self.admit_request(most) {
            return Ok(admission);
        }
        let waiting = self.wait(WaitClass::Request, waker);
        self.admit_request(most).ok_or(waiting)
    }

    /// Wakes all waiters, because something other than a release may have made room, such as a new table.
    pub fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let called = {
            let mut wait_list = self.wait_list();
            self.waiting.store(0, Ordering::SeqCst);
            std::mem::take(&mut wait_list.waiting)
        };
        called.into_values().for_each(Waker::wake);
    }

    fn wake_one(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let called = {
            let mut wait_list = self.wait_list();
            let first = wait_list.waiting.pop_first();
            self.waiting
                .store(wait_list.waiting.len(), Ordering::SeqCst);
            first
        };
        if let Some((_, waker)) = called {
            waker.wake();
        }
    }

    fn wait(self: &Arc<Self>, class: WaitClass, waker: &Waker) -> Waiting {
        let mut wait_list = self.wait_list();
        let position = (class, wait_list.next);
        wait_list.next += 1;
        wait_list.waiting.insert(position, waker.clone());
        self.waiting
            .store(wait_list.waiting.len(), Ordering::SeqCst);
        drop(wait_list);
        fence(Ordering::SeqCst);
        Waiting {
            state: Arc::clone(self),
            position,
            is_finished: false,
        }
    }

    /// Leaves the wait list. Returns whether the entry was still there.
    fn leave_wait_list(&self, position: Position) -> bool {
        let mut wait_list = self.wait_list();
        let was_there = wait_list.waiting.remove(&position).is_some();
        self.waiting
            .store(wait_list.waiting.len(), Ordering::SeqCst);
        was_there
    }

    fn wait_list(&self) -> MutexGuard<'_, WaitList> {
        self.wait_list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(self: &Arc<Self>, limits: &Limits, now: Moment) -> Result<Permit, Busy> {
        let most = limits.connections.unwrap_or(u32::MAX);
        self.connections.add_below(most).ok_or(Busy::Full)?;
        if let Some(rate) = limits.rate
            && let Err(when) = self.rate.take(rate, now)
        {
            self.release();
            return Err(Busy::Until(when));
        }
        Ok(Permit(Admission {
            state: Arc::clone(self),
            client: None,
            also: limits.rate.map_or(Also::Nothing, Also::UnusedRate),
        }))
    }

    /// Called only for accepted connections: a permit is taken before it is known whether there is a connection.
    fn note_peak(&self) {
        self.connections.note(self.current());
    }

    fn release(&self) {
        self.connections.subtract(Ordering::SeqCst);
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

/// The answer to an accept loop.
#[derive(Debug)]
#[must_use]
pub enum Accept {
    /// Accept a connection, and pass the permit to [`AdmitState::admit`]. If there is no connection, drop the permit.
    Now(Permit),
    /// Wait to be woken, and keep this value until then.
    WhenReleased(Waiting),
    /// The rate limit is reached until then.
    At(Moment),
}

/// The waiting accept loops and requests, in the order in which they are woken.
#[derive(Debug, Default)]
struct WaitList {
    next: u64,
    waiting: BTreeMap<Position, Waker>,
}

/// A place in the wait list. Within a class the order is that of arrival.
type Position = (WaitClass, u64);

/// What an entry of the wait list waits for. The first class is woken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaitClass {
    /// An accept loop, for a connection.
    Connection,
    /// A request.
    Request,
}

/// An entry of the wait list. Dropping it leaves the list; if it was woken and [`Waiting::finish`] was not called, the next
/// waiter is woken.
#[derive(Debug)]
#[must_use = "dropping it ends the wait"]
pub struct Waiting {
    state: Arc<AdmitState>,
    position: Position,
    is_finished: bool,
}

impl Waiting {
    /// Ends the wait, in order to ask again. `Some` if it was woken by a release, of which no other waiter was notified.
    #[must_use]
    pub fn finish(mut self) -> Option<Wakeup> {
        self.is_finished = true;
        let was_called = !self.state.leave_wait_list(self.position);
        was_called.then(|| Wakeup(Some(Arc::clone(&self.state))))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let was_called = !self.state.leave_wait_list(self.position);
        if was_called {
            self.state.wake_one();
        }
    }
}

/// The wake-up for one release. Dropping it wakes the next waiter. That is right when the woken loop asks another limit first
/// and has to wait there.
#[derive(Debug)]
#[must_use = "a wake-up that is dropped goes on to the next waiter"]
pub struct Wakeup(Option<Arc<AdmitState>>);

impl Wakeup {
    /// Consumes the wake-up: the limit that sent it was asked again, so the next waiter would learn nothing new.
    pub fn consume(mut self) {
        self.0 = None;
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.wake_one();
        }
    }
}

/// Room reserved for a connection that is about to be accepted. Dropping it unused gives everything back.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its room back"]
pub struct Permit(Admission);

impl Permit {
    /// Turns the permit into an admission, when there is nothing more to check, as for the process's own limit.
    pub fn used(self) -> Admission {
        let Self(mut admission) = self;
        admission.also = Also::Nothing;
        admission.state.note_peak();
        admission
    }
}

/// One admitted connection or request, counted until this is dropped.
#[derive(Debug)]
#[must_use = "an admission that is dropped counts no longer"]
pub struct Admission {
    state: Arc<AdmitState>,
    /// The client's entry in the limits per client.
    client: Option<ClientKey>,
    also: Also,
}

/// What an admission has taken beside the room of a connection. An admission is a part of every UDP flow, so it is small.
#[derive(Debug)]
enum Also {
    Nothing,
    /// A token of this rate, for a connection that has not been accepted yet.
    UnusedRate(u32),
    /// Room of requests.
    Request,
}

impl Admission {
    /// Admits the client that the peer named, as [`AdmitState::admit`] would have.
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
        match self.also {
            Also::Nothing => {}
            Also::UnusedRate(rate) => self.state.rate.give_back(rate),
            Also::Request => self.state.requests.subtract(Ordering::SeqCst),
        }
        self.state.release();
    }
}

/// Why a client was refused. The word is the metric's label and the log's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its address is in none of the `source-ranges`.
    SourceRange,
    /// The frontend's `max-connections` are reached, or its `max-connection-rate`.
    MaxConnections,
    /// The client has reached `max-connections-per-client`.
    MaxConnectionsPerClient,
    /// The client has reached `max-connection-rate-per-client`.
    MaxConnectionRatePerClient,
    /// The service has no endpoint that may be picked.
    NoEndpoint,
    /// Every endpoint is full, and the queue is full or off.
    QueueFull,
    /// No endpoint had room within the queue timeout.
    QueueTimeout,
    /// Every attempt to connect failed.
    Failed,
    /// The service's remaining endpoints would lead the client back to the service.
    Loop,
}

impl Refusal {
    /// All refusals, in the order of [`Refusal::index`].
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

    /// Its word in the table's reference.
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

    /// Its index in an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Why there is no room now.
enum Busy {
    Full,
    Until(Moment),
}

#[cfg(test)]
mod tests;
