//! The state of one endpoint while the process lives: its connections, its health, its counters.
//!
//! An [`EndpointState`] is keyed by (service, address) and survives swaps: all plans with the endpoint share it, and so do all
//! connections to it. Picking reads and counts here; dials and checks write here. Everything that workers use is atomic,
//! without a lock. Weights and limits are not here: they belong to a plan.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::counters;
use crate::counters::{Cell, Counts, PerWorker, WorkerId};
use crate::gauge::Gauge;
use crate::http::StatusClass;
use crate::moment::{Moment, whole_millis};
use crate::monitor::{ForcedHealth, Monitor};
use crate::service::ServiceState;

/// The state of an endpoint that outlives plans.
#[derive(Debug)]
pub struct EndpointState {
    service: Arc<ServiceState>,
    address: SocketAddr,
    leases: Gauge,
    /// A packed [`EjectionState`].
    ejection: AtomicU64,
    /// When its slow start began, in milliseconds; 0 if it has its full share.
    ramp_began: AtomicU64,
    verdict: AtomicU8,
    /// Workers never lock this.
    monitor: Mutex<Option<Box<Monitor>>>,
    ended: AtomicBool,
    counters: OnceLock<PerWorker<EndpointCounters>>,
}

impl EndpointState {
    /// Creates an endpoint without history: its checks count as passing, and it gets its full share.
    pub fn new(service: &Arc<ServiceState>, address: SocketAddr) -> Self {
        Self {
            service: Arc::clone(service),
            address,
            leases: Gauge::default(),
            ejection: AtomicU64::new(0),
            ramp_began: AtomicU64::new(0),
            verdict: AtomicU8::new(Verdict::Passing as u8),
            monitor: Mutex::new(None),
            ended: AtomicBool::new(false),
            counters: OnceLock::new(),
        }
    }

    /// The service that it belongs to.
    pub fn service(&self) -> &Arc<ServiceState> {
        &self.service
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of leases held now.
    pub fn in_flight(&self) -> u32 {
        self.leases.current()
    }

    /// The highest number of leases so far.
    pub fn peak(&self) -> u32 {
        self.leases.peak()
    }

    /// Resets the peak to the current number.
    pub fn forget_peak(&self) {
        self.leases.forget_peak();
    }

    /// Clears the maximum times of `worker`. Only that worker may call this.
    pub fn forget_longest(&self, worker: WorkerId) {
        if let Some(cells) = self.all_counters().and_then(|all| all.if_any(worker)) {
            cells.queue_ms_max.clear();
            cells.connect_ms_max.clear();
            cells.response_ms_max.clear();
            cells.total_ms_max.clear();
        }
    }

    pub fn counters(&self, worker: WorkerId) -> &EndpointCounters {
        self.counters
            .get_or_init(|| PerWorker::new(self.service.workers()))
            .of(worker)
    }

    /// The counters of all workers, if anything was ever counted.
    pub fn all_counters(&self) -> Option<&PerWorker<EndpointCounters>> {
        self.counters.get()
    }

    /// The sums of its counters over all workers.
    #[must_use]
    pub fn counts(&self) -> EndpointCounts {
        Counts::of(self.all_counters())
    }

    /// Counts one more connection, unless it has `max` already. The only way to a [`Lease`].
    #[must_use]
    pub fn lease(self: &Arc<Self>, max: u32) -> Option<Lease> {
        let held = self.leases.add_below(max)?;
        self.leases.note(held);
        self.service.leased();
        Some(Lease(Arc::clone(self)))
    }

    /// Marks the endpoint as ended: its connections are to end, including those that are still being established.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Whether it may have no connections any more.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Clears the mark, when a table has the endpoint again.
    pub(crate) fn begin(&self) {
        self.ended.store(false, Ordering::SeqCst);
    }

    /// Whether its active checks pass; true if it has no checks.
    pub fn is_passing(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) != Verdict::Failing as u8
    }

    /// Whether an operator has it stop: it passes, and gets only clients that have affinity.
    pub fn is_stopping(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) == Verdict::Stopping as u8
    }

    /// Whether its health permits clients without affinity.
    #[must_use]
    pub fn takes_newcomers(&self) -> bool {
        self.verdict.load(Ordering::Relaxed) == Verdict::Passing as u8
    }

    /// Sets the verdict of its checks. An endpoint that recovers is no longer ejected, begins its slow start, and may serve
    /// waiting clients. Returns whether anything changed.
    pub fn set_passing(&self, passing: bool, now: Moment) -> bool {
        let verdict = if passing {
            Verdict::Passing
        } else {
            Verdict::Failing
        };
        self.set_verdict(verdict, now)
    }

    /// Sets its health by hand. Its checks go on from there: the next ones may say otherwise.
    pub fn force(&self, health: ForcedHealth, now: Moment) {
        self.with_monitor(|monitor| {
            if let Some(monitor) = monitor {
                monitor.force(health != ForcedHealth::Down, now);
            }
        });
        self.set_verdict(Verdict::of(health), now);
    }

    /// What its checks, or an operator, say of it.
    pub(crate) fn health(&self) -> ForcedHealth {
        if self.is_stopping() {
            ForcedHealth::Stopping
        } else if self.is_passing() {
            ForcedHealth::Up
        } else {
            ForcedHealth::Down
        }
    }

    /// Continues from what another process knows of it: nothing has changed, so that no slow start begins.
    pub(crate) fn resume(&self, health: ForcedHealth, monitor: Option<Monitor>) {
        self.verdict
            .store(Verdict::of(health) as u8, Ordering::SeqCst);
        self.with_monitor(|known| *known = monitor.map(Box::new));
    }

    fn set_verdict(&self, verdict: Verdict, now: Moment) -> bool {
        let changed = self.verdict.swap(verdict as u8, Ordering::SeqCst) != verdict as u8;
        if changed && verdict == Verdict::Passing {
            self.begin_ramp(now);
            self.restore(now);
            self.service.queue().wake_head();
        }
        changed
    }

    /// The results of its checks; `None` if it was never checked, or is not checked any more.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.with_monitor(|monitor| monitor.as_deref().copied())
    }

    /// Accesses the monitor; only the health checks do.
    pub(crate) fn with_monitor<T>(&self, act: impl FnOnce(&mut Option<Box<Monitor>>) -> T) -> T {
        act(&mut self.monitor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it is ejected at `now`.
    pub fn is_ejected(&self, now: Moment) -> bool {
        self.ejection().until > now.0
    }

    /// When its ejection ends, if it is ejected at `now`.
    pub fn ejected_until(&self, now: Moment) -> Option<Moment> {
        let until = self.ejection().until;
        (until > now.0).then_some(Moment(until))
    }

    /// Notes that a dial or a check connected. That ends an ejection and the series of failures.
    pub fn connected(&self, now: Moment) {
        let ejection = self.ejection();
        if ejection.failures == 0 && ejection.until <= now.0 && !ejection.awaits_proof {
            return;
        }
        if self.restore(now) {
            self.begin_ramp(now);
            self.service.queue().wake_head();
        }
    }

    /// Whether its ejection is over and no client has connected since. If so, the caller is to try it. Others see it as ejected
    /// for the time `trial`, so that only one client at a time tries an endpoint that may still be unreachable.
    #[must_use]
    pub fn begin_trial(&self, trial: Duration, now: Moment) -> bool {
        let ejection = self.ejection();
        if !ejection.awaits_proof || ejection.until > now.0 {
            return false;
        }
        self.change_ejection(|ejection| {
            (ejection.awaits_proof && ejection.until <= now.0).then_some(EjectionState {
                until: now.after(trial).0,
                ..ejection
            })
        })
        .is_some()
    }

    /// Ejects it again after a failed trial, for twice as long as before.
    pub(crate) fn eject_longer(
        &self,
        first: Duration,
        longest: Duration,
        now: Moment,
    ) -> Option<Moment> {
        let (_, after) = self.change_ejection(|ejection| {
            // Another connection may have succeeded meanwhile.
            ejection
                .awaits_proof
                .then(|| EjectionState::ejected(first, longest, ejection.ejections, now))
        })?;
        let until = Moment(after.until);
        self.begin_ramp(until);
        Some(until)
    }

    /// Counts a refused dial that began at `began`, and returns the number of such dials in a row. A dial that began before the
    /// end of the last ejection is not counted, and 0 is returned.
    pub(crate) fn refused(&self, began: Moment) -> u16 {
        self.change_ejection(|ejection| {
            if began.0 < ejection.until {
                return None;
            }
            Some(EjectionState {
                failures: ejection.failures.saturating_add(1),
                ..ejection
            })
        })
        .map_or(0, |(_, after)| after.failures)
    }

    /// Ejects it: for `first`, then twice as long each time, up to `longest`. If it stayed reachable for as long as its last
    /// ejection, the series begins again. `None` if it is already ejected, or if `began` lies before the end of its last
    /// ejection: such a dial gives no new information.
    pub(crate) fn eject(
        &self,
        first: Duration,
        longest: Duration,
        began: Moment,
        now: Moment,
    ) -> Option<Moment> {
        let (_, after) = self.change_ejection(|ejection| {
            if ejection.until > began.0.min(now.0) {
                return None;
            }
            // Counted until the dial began: while the dial waited, the endpoint was not reachable.
            let held_out = began.0.min(now.0) - ejection.until;
            let before = if held_out >= ejection_length(ejection.ejections, first, longest) {
                0
            } else {
                ejection.ejections
            };
            Some(EjectionState::ejected(first, longest, before, now))
        })?;
        let until = Moment(after.until);
        self.begin_ramp(until);
        Some(until)
    }

    /// Begins its slow start at `at`, where its service has `slow-start`.
    pub(crate) fn begin_ramp(&self, at: Moment) {
        self.ramp_began.store(at.0.max(1), Ordering::Relaxed);
    }

    /// The part of its share that it has reached: from 1 to [`FULL_SHARE`].
    pub(crate) fn ramp(&self, slow_start: u64, now: Moment) -> u32 {
        let began = self.ramp_began.load(Ordering::Relaxed);
        if began == 0 {
            return FULL_SHARE;
        }
        let gone = now.0.saturating_sub(began);
        if gone >= slow_start {
            return FULL_SHARE;
        }
        let reached = u128::from(gone) * u128::from(FULL_SHARE) / u128::from(slow_start);
        u32::try_from(reached).unwrap_or(FULL_SHARE).max(1)
    }

    /// Ends the series of failures, and an ejection at `now`. Returns whether it was ejected.
    fn restore(&self, now: Moment) -> bool {
        self.change_ejection(|ejection| {
            let clean = ejection.failures == 0 && ejection.until <= now.0 && !ejection.awaits_proof;
            (!clean).then_some(EjectionState {
                until: ejection.until.min(now.0),
                failures: 0,
                awaits_proof: false,
                ..ejection
            })
        })
        .is_some_and(|(before, _)| before.until > now.0)
    }

    fn ejection(&self) -> EjectionState {
        EjectionState::unpack(self.ejection.load(Ordering::Relaxed))
    }

    /// Changes the state atomically. Returns the states before and after, or `None` if `change` wants no change.
    fn change_ejection(
        &self,
        change: impl Fn(EjectionState) -> Option<EjectionState>,
    ) -> Option<(EjectionState, EjectionState)> {
        let mut before = self.ejection.load(Ordering::Relaxed);
        loop {
            let after = change(EjectionState::unpack(before))?.pack();
            let changed = self.ejection.compare_exchange_weak(
                before,
                after,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => {
                    return Some((EjectionState::unpack(before), EjectionState::unpack(after)));
                }
                Err(now) => before = now,
            }
        }
    }
}

/// What checks, or an operator, say of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Verdict {
    Failing,
    Passing,
    /// Only an operator says so.
    Stopping,
}

impl Verdict {
    fn of(health: ForcedHealth) -> Self {
        match health {
            ForcedHealth::Up => Self::Passing,
            ForcedHealth::Stopping => Self::Stopping,
            ForcedHealth::Down => Self::Failing,
        }
    }
}

/// One connection counted on an endpoint, until this is dropped.
#[derive(Debug)]
#[must_use = "a lease that is dropped counts no longer"]
pub struct Lease(Arc<EndpointState>);

impl Lease {
    pub fn endpoint(&self) -> &Arc<EndpointState> {
        &self.0
    }

    /// The endpoint's address.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.service.released();
        self.0.leases.subtract(Ordering::SeqCst);
        self.0.service.queue().wake_head();
    }
}

counters! {
    /// The counters of one worker for one endpoint. The names in brackets are haproxy's columns.
    pub EndpointCounters,
    /// The sums over all workers, for one endpoint or for all endpoints of a service.
    EndpointCounts {
        /// Times it was picked (`lbtot`).
        picked: Sum => json();
        /// Dials begun (`connect`).
        dials: Sum => json();
        /// Requests that were sent over an idle connection to the endpoint (`reuse`).
        reuses: Sum => json();
        /// Dials that failed (`econ`).
        connect_errors: Sum => json();
        /// Further attempts at it by clients whose previous attempt it had just failed (`wretr`).
        retries: Sum => json();
        /// Clients that went on to another endpoint (`wredis`).
        redispatches: Sum => json();
        /// Sessions that failed on its side (`eresp`).
        response_errors: Sum => json();
        /// Sessions that the client cut (`cli_abrt`).
        client_aborts: Sum => json();
        /// Sessions that the endpoint cut (`srv_abrt`).
        server_aborts: Sum => json();
        /// Bytes from clients to it (`bin`).
        bytes_in: Sum => json();
        /// Bytes from it to clients (`bout`).
        bytes_out: Sum => json();
        /// Established connections (`stot`).
        sessions: Sum;
        /// When its last session began, in milliseconds and never 0 (`lastsess`).
        last_session: Most;
        /// Milliseconds that its sessions waited in the queue, in sum (`qtime` is their mean).
        queue_ms: Sum;
        /// The longest of them (`qtime_max`).
        queue_ms_max: Most;
        /// Milliseconds until it was connected, in sum (`ctime`).
        connect_ms: Sum;
        /// The longest of them (`ctime_max`).
        connect_ms_max: Most;
        /// Responses of HTTP, by [`StatusClass::index`] (`hrsp_1xx` and so on).
        responses: Sum[StatusClass];
        /// Milliseconds from connect to the head of the response, in sum over the responses (`rtime` is their mean).
        response_ms: Sum;
        /// The longest of these times (`rtime_max`).
        response_ms_max: Most;
        /// Milliseconds from accept to end, in sum over the sessions that ended (`ttime`).
        total_ms: Sum;
        /// The longest of them (`ttime_max`).
        total_ms_max: Most;
        /// Sessions that ended.
        ended: Sum;
        /// Idle connections to it that all clients share: a level (`srv_icur`).
        idle_shared: Sum;
        /// Idle connections to it that belong to one client: a level (`priv_idle_cur`).
        idle_private: Sum;
    }
    besides {
        /// Seconds that it was down (`downtime`).
        downtime: Sum;
        /// How often it went down (`chkdown`).
        downs: Sum;
        /// Checks that failed while it was up (`chkfail`).
        check_failures: Sum;
    }
}

/// Counts an idle connection to an endpoint, until this is dropped. It belongs to one worker.
#[derive(Debug)]
pub struct Idling {
    endpoint: Arc<EndpointState>,
    worker: WorkerId,
    is_private: bool,
}

impl Idling {
    /// Counts one more; `is_private`: it belongs to one client.
    pub fn begin(endpoint: &Arc<EndpointState>, worker: WorkerId, is_private: bool) -> Self {
        let this = Self {
            endpoint: Arc::clone(endpoint),
            worker,
            is_private,
        };
        this.cell().add(1);
        this
    }

    pub fn endpoint(&self) -> &Arc<EndpointState> {
        &self.endpoint
    }

    fn cell(&self) -> &Cell {
        let counters = self.endpoint.counters(self.worker);
        if self.is_private {
            &counters.idle_private
        } else {
            &counters.idle_shared
        }
    }
}

impl Drop for Idling {
    fn drop(&mut self) {
        self.cell().take(1);
    }
}

impl EndpointCounters {
    /// Counts a session that begins at `now`, after `queued` in the queue and `connecting` to connect.
    pub fn session(&self, now: Moment, queued: Duration, connecting: Duration) {
        self.sessions.add(1);
        raise(&self.last_session, now.0.max(1));
        add_time(&self.queue_ms, &self.queue_ms_max, queued);
        add_time(&self.connect_ms, &self.connect_ms_max, connecting);
    }

    /// Counts the head of a response that arrived `took` after the connection was there.
    pub fn responded(&self, status: u16, took: Duration) {
        self.responses[StatusClass::of(status).index()].add(1);
        add_time(&self.response_ms, &self.response_ms_max, took);
    }

    /// Counts the end of a session that took `total` from accept to end.
    pub fn ended(&self, total: Duration) {
        self.ended.add(1);
        add_time(&self.total_ms, &self.total_ms_max, total);
    }
}

/// Adds `took` to a sum and keeps the longest.
pub(crate) fn add_time(sum: &Cell, longest: &Cell, took: Duration) {
    let ms = whole_millis(took);
    sum.add(ms);
    raise(longest, ms);
}

/// Raises a cell to `to`, if it is smaller.
pub(crate) fn raise(cell: &Cell, to: u64) {
    cell.add(to.saturating_sub(cell.value()));
}

/// The ejection state. It is small enough for one atomic, so that it changes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EjectionState {
    /// The end of the latest ejection, in milliseconds; 0 where there was none.
    until: u64,
    /// Refused dials in a row.
    failures: u16,
    /// Ejections in a row; 7 bits.
    ejections: u8,
    /// Whether no client has connected since the ejection.
    awaits_proof: bool,
}

impl EjectionState {
    /// The state after one more ejection, following `before` ejections in a row.
    fn ejected(first: Duration, longest: Duration, before: u8, now: Moment) -> Self {
        let times = (before + 1).min(MOST_EJECTIONS);
        let length = ejection_length(times, first, longest).max(1);
        Self {
            until: now.0.saturating_add(length),
            failures: 0,
            ejections: times,
            awaits_proof: true,
        }
    }

    fn pack(self) -> u64 {
        self.until.min(LAST_MOMENT) << 24
            | u64::from(self.failures) << 8
            | u64::from(self.awaits_proof) << 7
            | u64::from(self.ejections)
    }

    fn unpack(packed: u64) -> Self {
        let [.., high, low, last] = packed.to_be_bytes();
        Self {
            until: packed >> 24,
            failures: u16::from_be_bytes([high, low]),
            ejections: last & MOST_EJECTIONS,
            awaits_proof: last > MOST_EJECTIONS,
        }
    }
}

/// The length of the `times`-th ejection in a row, in milliseconds.
fn ejection_length(times: u8, first: Duration, longest: Duration) -> u64 {
    let doublings = u32::from(times.saturating_sub(1));
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    whole_millis(first)
        .saturating_mul(factor)
        .min(whole_millis(longest))
        .min(LAST_MOMENT)
}

/// The full share of an endpoint.
pub(crate) const FULL_SHARE: u32 = 1 << 16;

/// More ejections are not counted: the longest ejection is reached long before.
const MOST_EJECTIONS: u8 = 0x7f;

/// The largest moment that an [`EjectionState`] can hold: 34 years.
const LAST_MOMENT: u64 = (1 << 40) - 1;

#[cfg(test)]
mod tests;
