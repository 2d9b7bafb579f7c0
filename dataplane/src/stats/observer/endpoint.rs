//! What is remembered of an endpoint.

use std::sync::Arc;

use ballast_core::endpoint::EndpointState;
use ballast_core::moment::Moment;
use ballast_core::service::{Endpoint, Service};
use ballast_core::table::{self, State};

use super::super::check::Check;
use super::super::meter::{Mean, Rate, Since};
use super::super::snapshot::{Counts, EndpointStats, Means, Status, StatusKind};
use super::cleared::OfEndpoint;

/// What is remembered of an endpoint.
#[derive(Debug)]
pub(super) struct End {
    sid: u32,
    name: Arc<str>,
    pub(super) live: Arc<EndpointState>,
    pub(super) sessions: Rate,
    /// Not before somebody has come: most endpoints of a large table never see anybody.
    means: Option<Box<[Mean; 3]>>,
    since: Since,
    cleared: Option<Box<OfEndpoint>>,
}

impl End {
    pub(super) fn new(sid: u32, endpoint: &Endpoint, spec: &table::Endpoint, now: Moment) -> Self {
        let check = Check::of(endpoint);
        Self {
            sid,
            name: name_of(spec),
            live: Arc::clone(endpoint.live()),
            sessions: Rate::default(),
            means: None,
            since: Since::new(status(endpoint, check.as_deref(), now).kind, now),
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
        if !all {
            return;
        }
        let (counts, _, check) = self.look(endpoint, now);
        self.means
            .iter_mut()
            .flat_map(|means| means.iter_mut())
            .for_each(Mean::forget);
        self.cleared = Some(Box::new(OfEndpoint {
            counts,
            downtime: self.since.downtime(now),
            failures: check.as_ref().map_or(0, |check| check.failures),
            downs: check.as_ref().map_or(0, |check| check.downs),
        }));
    }

    /// Takes off what was cleared.
    pub(super) fn take_off(&self, stats: &mut EndpointStats) {
        if let Some(cleared) = &self.cleared {
            cleared.take_off(stats);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        if let Some(counters) = self.live.all_counters() {
            for cells in counters.each() {
                counts.merge(&Counts::of_worker(cells));
            }
        }
        counts
    }

    pub(super) fn look(
        &mut self,
        endpoint: &Endpoint,
        now: Moment,
    ) -> (Counts, Status, Option<Box<Check>>) {
        let (counts, check) = (self.counts(), Check::of(endpoint));
        let status = status(endpoint, check.as_deref(), now);
        if counts.sessions > 0 {
            look_at_means(self.means.get_or_insert_default(), &counts);
        }
        self.since.look(status.kind, now);
        (counts, status, check)
    }

    pub(super) fn stats(
        &mut self,
        service: &Service,
        endpoint: &Endpoint,
        spec: &table::Endpoint,
        now: Moment,
    ) -> EndpointStats {
        let (counts, status, check) = self.look(endpoint, now);
        let growth = service.growth(endpoint, now);
        let user_weight = u32::from(endpoint.weight());
        EndpointStats {
            name: Arc::clone(&self.name),
            address: endpoint.address(),
            sid: self.sid,
            status,
            is_backup: endpoint.state() == State::Backup,
            closes_loop: endpoint.closes_loop(),
            is_overridden: endpoint.state() != spec.state || endpoint.weight() != spec.weight,
            weight: match growth {
                // Whoever grows has a share, be it ever so small.
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
            idle: counts.idle(now),
            session_rate: self.sessions,
            means: self.means.as_deref().map(means).unwrap_or_default(),
            changed: self.since.lasted(now),
            downtime: self.since.downtime(now),
            check,
            node: spec.node.clone(),
            zone: spec.zone.clone(),
        }
    }
}

pub(super) fn look_at_means(means: &mut [Mean; 3], counts: &Counts) {
    let [queue, connect, total] = means;
    queue.look(counts.queue_ms, counts.sessions);
    connect.look(counts.connect_ms, counts.sessions);
    total.look(counts.total_ms, counts.ended);
}

pub(super) fn means([queue, connect, total]: &[Mean; 3]) -> Means {
    Means {
        queue: queue.rounded(),
        connect: connect.rounded(),
        total: total.rounded(),
    }
}

/// What the operator said comes first, then whether it can be reached, then what checks say.
fn status(endpoint: &Endpoint, check: Option<&Check>, now: Moment) -> Status {
    let is_down =
        endpoint.closes_loop() || !endpoint.live().is_passing() || endpoint.live().is_ejected(now);
    let kind = match endpoint.state() {
        State::Disabled => StatusKind::Maintenance,
        State::Draining if !is_down => StatusKind::Draining,
        _ if is_down => StatusKind::Down,
        _ if check.is_some() => StatusKind::Up,
        _ => StatusKind::Unchecked,
    };
    // A row of checks says nothing of an endpoint that is out for another reason.
    let progress = check.and_then(|check| match kind {
        StatusKind::Up | StatusKind::Draining if check.is_up() => check.progress(),
        StatusKind::Down if !check.is_up() => check.progress(),
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
