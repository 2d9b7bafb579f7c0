//! What is kept of an endpoint from one reading to the next.

use std::num::NonZeroU32;
use std::sync::Arc;

use ballast_core::counters::Counts;
use ballast_core::endpoint::{EndpointCounts, EndpointState};
use ballast_core::moment::Moment;
use ballast_core::service::{Endpoint, Service};
use ballast_core::table::{self, Reuse, State};

use super::super::check::CheckStats;
use super::super::meter::{Mean, Rate, Since};
use super::super::snapshot::{EndpointStats, Means, Status, StatusKind};

/// An endpoint as it was read last.
#[derive(Debug)]
pub(super) struct ObservedEndpoint {
    pub(super) sid: u32,
    name: Arc<str>,
    pub(super) live: Arc<EndpointState>,
    pub(super) sessions: Rate,
    /// `None` before the first session: most endpoints of a large table never have one.
    means: Option<Box<[Mean; 4]>>,
    since: Since,
    /// What had been counted when an operator had the counters cleared: it is subtracted from what is shown.
    cleared: Option<Box<EndpointCounts>>,
}

impl ObservedEndpoint {
    pub(super) fn new(sid: u32, endpoint: &Endpoint, spec: &table::Endpoint, now: Moment) -> Self {
        Self {
            sid,
            name: name_of(spec),
            live: Arc::clone(endpoint.live()),
            sessions: Rate::default(),
            means: None,
            since: Since::new(
                kind(endpoint, endpoint.live().monitor().is_some(), now),
                now,
            ),
            cleared: None,
        }
    }

    pub(super) fn renamed(mut self, spec: &table::Endpoint) -> Self {
        let name = name_of(spec);
        if self.name != name {
            self.name = name;
        }
        self
    }

    pub(super) fn clear(&mut self, all: bool, endpoint: &Endpoint, now: Moment) {
        self.sessions.forget_max();
        self.live.forget_peak();
        if all {
            self.cleared = Some(Box::new(self.look(endpoint, now)));
            let means = self.means.iter_mut();
            means.flat_map(|means| &mut **means).for_each(Mean::forget);
        }
    }

    /// Reads its counters.
    pub(super) fn look(&mut self, endpoint: &Endpoint, now: Moment) -> EndpointCounts {
        let mut counts = self.live.counts();
        if counts.sessions > 0 {
            look_at_means(self.means.get_or_insert_default(), &counts);
        }
        let monitor = self.live.monitor();
        self.since.look(kind(endpoint, monitor.is_some(), now), now);
        counts.downtime = self.since.downtime(now);
        if let Some(monitor) = monitor {
            counts.downs = monitor.downs;
            counts.check_failures = monitor.failed;
        }
        counts
    }

    /// The endpoint as it is in force, and as it is in the table, are both given. `counts` is everything that was ever counted: what had been counted when the counters were cleared is subtracted.
    pub(super) fn stats(
        &self,
        mut counts: EndpointCounts,
        service: &Service,
        (index, endpoint): (usize, &Endpoint),
        (spec, table): (&table::Endpoint, &table::Endpoint),
        now: Moment,
    ) -> EndpointStats {
        // These are levels: what was cleared is no part of them.
        let level = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (idle_shared, idle_private) = (level(counts.idle_shared), level(counts.idle_private));
        let http = service.spec().http.as_ref();
        let (idle_safe, idle_unsafe) = match http.map(|http| http.reuse) {
            Some(Reuse::Always) => (idle_shared, 0),
            _ => (0, idle_shared),
        };
        if let Some(cleared) = &self.cleared {
            counts.subtract(cleared);
        }
        let check = CheckStats::of(endpoint);
        let (checks, check_port) = (service.spec().checks(), service.check_port(index));
        let moved_from = (spec.address != table.address).then_some(table.address);
        let kind = kind(endpoint, check.is_some(), now);
        // An endpoint that gets no new clients has no slow start.
        let grows = matches!(kind, StatusKind::Up | StatusKind::Unchecked);
        let growth = service.growth(endpoint, now).filter(|_| grows);
        let user_weight = u32::from(endpoint.weight());
        EndpointStats {
            name: Arc::clone(&self.name),
            address: endpoint.address(),
            sid: self.sid,
            status: status(kind, check.as_deref()),
            is_backup: match endpoint.state() {
                State::Backup => true,
                State::Ready => false,
                // It was taken out, and is one of these all the same.
                State::Disabled | State::Draining => table.state == State::Backup,
            },
            closes_loop: endpoint.closes_loop(),
            idle_safe,
            idle_unsafe,
            idle_private,
            moved_from,
            check_port: check_port.or_else(|| checks.and_then(|health| health.port)),
            is_overridden: moved_from.is_some()
                || check_port.is_some()
                || endpoint.state() != spec.state
                || endpoint.weight() != spec.weight
                || endpoint.max_connections() != spec.max_connections.map(NonZeroU32::get),
            weight: match growth {
                // An endpoint that grows has a share, be it ever so small.
                Some(percent) => (user_weight * u32::from(percent)).div_ceil(100),
                None => user_weight,
            },
            user_weight,
            growth,
            ejected: self.live.ejected_until(now).map(|until| until.since(now)),
            current: self.live.in_flight(),
            peak: self.live.peak(),
            limit: endpoint.max_connections(),
            counts,
            idle: idle(&counts, now),
            session_rate: self.sessions,
            means: self.means.as_deref().map(means).unwrap_or_default(),
            changed: self.since.lasted(now),
            check,
            node: spec.node.clone(),
            zone: spec.zone.clone(),
        }
    }
}

pub(super) fn look_at_means(means: &mut [Mean; 4], counts: &EndpointCounts) {
    let [queue, connect, response, total] = means;
    queue.look(counts.queue_ms, counts.sessions);
    connect.look(counts.connect_ms, counts.sessions);
    response.look(counts.response_ms, counts.responses.iter().sum());
    total.look(counts.total_ms, counts.ended);
}

pub(super) fn means(means: &[Mean; 4]) -> Means {
    let [queue, connect, response, total] = means.map(Mean::rounded);
    Means {
        queue,
        connect,
        response,
        total,
    }
}

/// In whole seconds: how long ago the last session began at `now`; -1: there was none.
pub(super) fn idle(counts: &EndpointCounts, now: Moment) -> i32 {
    if counts.last_session == 0 {
        return -1;
    }
    let seconds = now.0.saturating_sub(counts.last_session) / 1000;
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// What the operator said comes first, then whether it can be reached, then what checks say.
fn kind(endpoint: &Endpoint, is_checked: bool, now: Moment) -> StatusKind {
    let live = endpoint.live();
    let is_down = endpoint.closes_loop() || !live.is_passing() || live.is_ejected(now);
    match endpoint.state() {
        State::Disabled => StatusKind::Maintenance,
        State::Draining if !is_down => StatusKind::Draining,
        _ if is_down => StatusKind::Down,
        _ if live.is_stopping() => StatusKind::Stopping,
        _ if is_checked => StatusKind::Up,
        _ => StatusKind::Unchecked,
    }
}

/// A row of checks says nothing of an endpoint that is out for another reason.
fn status(kind: StatusKind, check: Option<&CheckStats>) -> Status {
    let progress = check.and_then(|check| match kind {
        StatusKind::Up | StatusKind::Draining | StatusKind::Stopping if check.is_up => {
            check.progress
        }
        StatusKind::Down if !check.is_up => check.progress,
        _ => None,
    });
    Status { kind, progress }
}

fn name_of(spec: &table::Endpoint) -> Arc<str> {
    match &spec.name {
        Some(name) => Arc::from(&**name),
        None => Arc::from(spec.address.to_string()),
    }
}
