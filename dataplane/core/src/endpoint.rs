//! What is known of one endpoint while the process lives: its connections, its health, its counts.
//!
//! An [`EndpointState`] is keyed by (service, address) and survives swaps: every plan that has the endpoint shares the one
//! state, and so does every connection that is still open to it. Picking reads and counts here, dials and checks
//! write here; all of it is atomics, and nothing that a worker needs is behind a lock. It knows nothing of weights and limits: those belong to a plan.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::counters;
use crate::counters::{Cell, Counts, PerWorker, WorkerId};
use crate::health::Monitor;
use crate::moment::{Moment, whole_millis};
use crate::service::ServiceState;

/// The live side of an endpoint.
#[derive(Debug)]
pub struct EndpointState {
    service: Arc<ServiceState>,
    address: SocketAddr,
    in_flight: AtomicU32,
    peak: AtomicU32,
    /// A packed [`Standing`].
    standing: AtomicU64,
    /// When its share began to grow, in milliseconds; 0 where it has its full share.
    ramp_began: AtomicU64,
    passing: AtomicBool,
    /// No worker looks at it.
    monitor: Mutex<Option<Box<Monitor>>>,
    ended: AtomicBool,
    counters: OnceLock<PerWorker<EndpointCounters>>,
}

impl EndpointState {
    /// An endpoint of which nothing is known yet: it counts as well, and gets its full share.
    #[must_use]
    pub fn new(service: &Arc<ServiceState>, address: SocketAddr) -> Self {
        Self {
            service: Arc::clone(service),
            address,
            in_flight: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            standing: AtomicU64::new(0),
            ramp_began: AtomicU64::new(0),
            passing: AtomicBool::new(true),
            monitor: Mutex::new(None),
            ended: AtomicBool::new(false),
            counters: OnceLock::new(),
        }
    }

    /// The service that it belongs to.
    #[must_use]
    pub fn service(&self) -> &Arc<ServiceState> {
        &self.service
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many leases are held on it now.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The most leases that were ever held at once.
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets that there were ever more than now.
    pub fn forget_peak(&self) {
        self.peak.store(self.in_flight(), Ordering::Relaxed);
    }

    /// Forgets the longest times that `worker` has seen. For that worker alone.
    pub fn forget_longest(&self, worker: WorkerId) {
        if let Some(cells) = self.all_counters().and_then(|all| all.if_any(worker)) {
            cells.queue_ms_max.clear();
            cells.connect_ms_max.clear();
            cells.total_ms_max.clear();
        }
    }

    /// What `worker` counts here.
    #[must_use]
    pub fn counters(&self, worker: WorkerId) -> &EndpointCounters {
        self.counters
            .get_or_init(|| PerWorker::new(self.service.workers()))
            .of(worker)
    }

    /// All workers' counters, where anything was ever counted.
    #[must_use]
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
        let mut held = self.in_flight.load(Ordering::Relaxed);
        loop {
            if held >= max {
                return None;
            }
            let taken = self.in_flight.compare_exchange_weak(
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
        if held >= self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(held + 1, Ordering::Relaxed);
        }
        self.service.leased();
        Some(Lease(Arc::clone(self)))
    }

    /// It has left the table, and so do its connections: one that was still being made must not stay either.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Whether it may have no connections any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// A table has it again.
    pub(crate) fn begin(&self) {
        self.ended.store(false, Ordering::SeqCst);
    }

    /// Whether its active checks pass; true where it has none.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
    }

    /// A check's verdict. An endpoint that recovers is no longer ejected, grows into its share again, and may serve
    /// who waits. Says whether anything changed.
    pub fn set_passing(&self, passing: bool, now: Moment) -> bool {
        let changed = self.passing.swap(passing, Ordering::SeqCst) != passing;
        if changed && passing {
            self.begin_ramp(now);
            self.restore(now);
            self.service.queue().wake_head();
        }
        changed
    }

    /// What its checks have shown; `None` where it was never checked, or is not to be any more.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.with_monitor(|monitor| monitor.as_deref().copied())
    }

    /// For those who check.
    pub(crate) fn with_monitor<T>(&self, act: impl FnOnce(&mut Option<Box<Monitor>>) -> T) -> T {
        act(&mut self.monitor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether failed dials keep it out at `now`.
    #[must_use]
    pub fn is_ejected(&self, now: Moment) -> bool {
        self.standing().until > now.0
    }

    /// When its ejection ends, if it is ejected at `now`.
    #[must_use]
    pub fn ejected_until(&self, now: Moment) -> Option<Moment> {
        let until = self.standing().until;
        (until > now.0).then_some(Moment(until))
    }

    /// A dial or a check reached it: that ends an ejection and the row of failures.
    pub fn connected(&self, now: Moment) {
        let standing = self.standing();
        if standing.failures == 0 && standing.until <= now.0 && !standing.is_unproven {
            return;
        }
        if self.restore(now) {
            self.begin_ramp(now);
            self.service.queue().wake_head();
        }
    }

    /// Whether its ejection is over and nobody has reached it since. Then who asks is to try it: others find it ejected
    /// for as long as a `trial` takes, so that only one at a time pays for it if it is not back.
    #[must_use]
    pub fn begin_trial(&self, trial: Duration, now: Moment) -> bool {
        let standing = self.standing();
        if !standing.is_unproven || standing.until > now.0 {
            return false;
        }
        self.change_standing(|standing| {
            (standing.is_unproven && standing.until <= now.0).then_some(Standing {
                until: now.after(trial).0,
                ..standing
            })
        })
        .is_some()
    }

    /// It was tried in vain, and stays out for twice as long as before.
    pub(crate) fn eject_longer(
        &self,
        first: Duration,
        longest: Duration,
        now: Moment,
    ) -> Option<Moment> {
        let (_, after) = self.change_standing(|standing| {
            // Somebody else may have reached it meanwhile.
            standing
                .is_unproven
                .then(|| Standing::ejected(first, longest, standing.ejections, now))
        })?;
        let until = Moment(after.until);
        self.begin_ramp(until);
        Some(until)
    }

    /// One more refused dial, begun at `began`: how many in a row that makes. A dial from before the end of the
    /// last ejection says nothing new, and makes none.
    pub(crate) fn refused(&self, began: Moment) -> u16 {
        self.change_standing(|standing| {
            if began.0 < standing.until {
                return None;
            }
            Some(Standing {
                failures: standing.failures.saturating_add(1),
                ..standing
            })
        })
        .map_or(0, |(_, after)| after.failures)
    }

    /// Keeps it out of the choice for a while: `first`, then twice as long each time, up to `longest`. One that held
    /// out for as long as it was kept out begins anew. `None` if it is ejected already, or if `began` lies before the
    /// end of its last ejection: such a dial says nothing new.
    pub(crate) fn eject(
        &self,
        first: Duration,
        longest: Duration,
        began: Moment,
        now: Moment,
    ) -> Option<Moment> {
        let (_, after) = self.change_standing(|standing| {
            if standing.until > began.0.min(now.0) {
                return None;
            }
            // Until the dial began, that is: while it waited in vain, the endpoint did not hold out.
            let held_out = began.0.min(now.0) - standing.until;
            let before = if held_out >= ejection_length(standing.ejections, first, longest) {
                0
            } else {
                standing.ejections
            };
            Some(Standing::ejected(first, longest, before, now))
        })?;
        let until = Moment(after.until);
        self.begin_ramp(until);
        Some(until)
    }

    /// Its share grows from nothing, beginning at `at`, where its service has `slow-start`.
    pub(crate) fn begin_ramp(&self, at: Moment) {
        self.ramp_began.store(at.0.max(1), Ordering::Relaxed);
    }

    /// How much of its share it has reached: from 1 to [`FULL_SHARE`].
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

    /// Ends the row of failures, and an ejection at `now`. Says whether there was one.
    fn restore(&self, now: Moment) -> bool {
        self.change_standing(|standing| {
            let clean = standing.failures == 0 && standing.until <= now.0 && !standing.is_unproven;
            (!clean).then_some(Standing {
                until: standing.until.min(now.0),
                failures: 0,
                is_unproven: false,
                ..standing
            })
        })
        .is_some_and(|(before, _)| before.until > now.0)
    }

    fn standing(&self) -> Standing {
        Standing::unpack(self.standing.load(Ordering::Relaxed))
    }

    /// One change as a whole: what it was and what it became, or `None` where `change` wants none.
    fn change_standing(
        &self,
        change: impl Fn(Standing) -> Option<Standing>,
    ) -> Option<(Standing, Standing)> {
        let mut before = self.standing.load(Ordering::Relaxed);
        loop {
            let after = change(Standing::unpack(before))?.pack();
            let changed = self.standing.compare_exchange_weak(
                before,
                after,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            match changed {
                Ok(_) => return Some((Standing::unpack(before), Standing::unpack(after))),
                Err(now) => before = now,
            }
        }
    }
}

/// One connection counted on an endpoint, for as long as it is held.
#[derive(Debug)]
#[must_use = "a lease that is dropped counts no longer"]
pub struct Lease(Arc<EndpointState>);

impl Lease {
    /// The endpoint that it is held on.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<EndpointState> {
        &self.0
    }

    /// Where to connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.service.released();
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
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
        /// Milliseconds from accept to end, in sum over the sessions that ended (`ttime`).
        total_ms: Sum;
        /// The longest of them (`ttime_max`).
        total_ms_max: Most;
        /// Sessions that ended.
        ended: Sum;
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

impl EndpointCounters {
    /// Counts a session that begins at `now`, after it waited in the queue and to be connected for so long.
    pub fn session(&self, now: Moment, queued: Duration, connecting: Duration) {
        self.sessions.add(1);
        raise(&self.last_session, now.0.max(1));
        add_time(&self.queue_ms, &self.queue_ms_max, queued);
        add_time(&self.connect_ms, &self.connect_ms_max, connecting);
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

/// Makes a cell hold the largest value that it was ever given.
pub(crate) fn raise(cell: &Cell, to: u64) {
    cell.add(to.saturating_sub(cell.value()));
}

/// How dials have fared: small enough for one atomic, so that it changes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// The end of the latest ejection, in milliseconds; 0 where there was none.
    until: u64,
    /// Refused dials in a row.
    failures: u16,
    /// Ejections without a pause between them; 7 bits.
    ejections: u8,
    /// Nobody has reached it since it was ejected.
    is_unproven: bool,
}

impl Standing {
    /// Once more, after so many times.
    fn ejected(first: Duration, longest: Duration, before: u8, now: Moment) -> Self {
        let times = (before + 1).min(MOST_EJECTIONS);
        let length = ejection_length(times, first, longest).max(1);
        Self {
            until: now.0.saturating_add(length),
            failures: 0,
            ejections: times,
            is_unproven: true,
        }
    }

    fn pack(self) -> u64 {
        self.until.min(LAST_MOMENT) << 24
            | u64::from(self.failures) << 8
            | u64::from(self.is_unproven) << 7
            | u64::from(self.ejections)
    }

    fn unpack(packed: u64) -> Self {
        let [.., high, low, last] = packed.to_be_bytes();
        Self {
            until: packed >> 24,
            failures: u16::from_be_bytes([high, low]),
            ejections: last & MOST_EJECTIONS,
            is_unproven: last > MOST_EJECTIONS,
        }
    }
}

/// In milliseconds: the `times`-th ejection in a row.
fn ejection_length(times: u8, first: Duration, longest: Duration) -> u64 {
    let doublings = u32::from(times.saturating_sub(1));
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    whole_millis(first)
        .saturating_mul(factor)
        .min(whole_millis(longest))
        .min(LAST_MOMENT)
}

/// A share that has grown to its end.
pub(crate) const FULL_SHARE: u32 = 1 << 16;

/// More are not told apart: the longest ejection is reached long before.
const MOST_EJECTIONS: u8 = 0x7f;

/// The end of what a [`Standing`] can hold: 34 years.
const LAST_MOMENT: u64 = (1 << 40) - 1;

#[cfg(test)]
mod tests;
