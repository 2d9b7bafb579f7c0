//! The shape of `/api/snapshot`: what the page and `ballast show` read.

use std::collections::BTreeMap;

use ballast_core::flow::{Dropped, FlowEnd};
use ballast_core::table;
use serde::{Serialize, Serializer};

use super::super::meter::Rate;
use super::super::selection::Selection;
use super::super::snapshot::{Counts, EndpointStats, FrontendStats, Means, ServiceStats, Snapshot};

#[derive(Serialize)]
pub(super) struct Info<'a> {
    name: &'static str,
    version: &'static str,
    node: &'a str,
    pid: u32,
    uptime_seconds: u64,
    started: u64,
    ready: bool,
    stopping: bool,
    workers: u32,
    generation: Option<u64>,
    /// In seconds since 1970.
    applied: Option<u64>,
    refused_tables: u64,
    last_refusal: Option<&'a str>,
    /// What does not listen as it was asked for.
    exceptions: &'a [std::sync::Arc<str>],
    retired_plans: u64,
    listening: u32,
    connections: u32,
    max_connections: u32,
    flows: u32,
    max_flows: u32,
    connections_total: u64,
    connection_rate: PerSecond,
    sessions_total: u64,
    session_rate: PerSecond,
    bytes_out_total: u64,
    bytes_out_rate: PerSecond,
    spliced_bytes_total: u64,
    idle_percent: u32,
    task_panics: u64,
    frontends: usize,
    services: usize,
}

impl<'a> Info<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let process = &snapshot.process;
        Self {
            name: "ballast",
            version: env!("CARGO_PKG_VERSION"),
            node: &process.node,
            pid: process.pid,
            uptime_seconds: process.uptime.as_secs(),
            started: process.started,
            ready: process.is_ready,
            stopping: process.is_stopping,
            workers: process.workers,
            generation: process.generation,
            applied: (process.applied > 0).then_some(process.applied),
            refused_tables: process.refused,
            last_refusal: process.refusal.as_deref(),
            exceptions: &process.exceptions,
            retired_plans: process.retired,
            listening: process.listening,
            connections: process.current,
            max_connections: process.limit,
            flows: process.flows,
            max_flows: process.most_flows,
            connections_total: process.connections,
            connection_rate: process.connection_rate.into(),
            sessions_total: process.sessions,
            session_rate: process.session_rate.into(),
            bytes_out_total: process.bytes_out,
            bytes_out_rate: process.byte_rate.into(),
            spliced_bytes_total: process.spliced,
            idle_percent: process.idle,
            task_panics: process.panics,
            frontends: snapshot.frontends.len(),
            services: snapshot.services.len(),
        }
    }
}

#[derive(Serialize)]
struct PerSecond {
    now: u32,
    max: u32,
}

impl From<Rate> for PerSecond {
    fn from(rate: Rate) -> Self {
        Self {
            now: rate.now,
            max: rate.max,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Frontend<'a> {
    name: &'a str,
    iid: u32,
    description: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    protocol: table::Protocol,
    bind: &'a [table::Bind],
    status: &'static str,
    sessions: u32,
    max_sessions: u32,
    limit: u32,
    overridden: bool,
    connections_total: u64,
    sessions_total: u64,
    bytes_in: u64,
    bytes_out: u64,
    session_rate: PerSecond,
    connection_rate: PerSecond,
    errors: u64,
    refused: BTreeMap<&'static str, u64>,
    bad_headers: u64,
    late_headers: u64,
    /// Where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams: Option<Datagrams>,
}

impl<'a> Frontend<'a> {
    pub(super) fn of(frontend: &'a FrontendStats) -> Self {
        let spec = &frontend.spec;
        Self {
            name: &frontend.name,
            iid: frontend.iid,
            description: spec.description.as_deref(),
            labels: labels(&spec.labels),
            protocol: spec.protocol,
            bind: &spec.bind,
            status: if frontend.is_open { "OPEN" } else { "STOP" },
            sessions: frontend.current,
            max_sessions: frontend.peak,
            limit: frontend.limit,
            overridden: frontend.is_overridden,
            connections_total: frontend.connections,
            sessions_total: frontend.sessions,
            bytes_in: frontend.bytes_in,
            bytes_out: frontend.bytes_out,
            session_rate: frontend.session_rate.into(),
            connection_rate: frontend.connection_rate.into(),
            errors: frontend.errors(),
            refused: super::refusals(frontend.refused),
            bad_headers: frontend.bad_headers,
            late_headers: frontend.late_headers,
            datagrams: frontend.datagrams.as_deref().map(Datagrams::of),
        }
    }
}

#[derive(Serialize)]
struct Datagrams {
    #[serde(rename = "in")]
    from_clients: u64,
    #[serde(rename = "out")]
    to_clients: u64,
    dropped: BTreeMap<&'static str, u64>,
    kernel_drops: u64,
    unsent: u64,
    flows_ended: BTreeMap<&'static str, u64>,
}

impl Datagrams {
    fn of(datagrams: &super::super::datagrams::Datagrams) -> Self {
        let dropped = Dropped::ALL.map(|why| (why.word(), datagrams.dropped(why)));
        let ended = FlowEnd::ALL.map(|why| (why.word(), datagrams.ended(why)));
        Self {
            from_clients: datagrams.from_clients,
            to_clients: datagrams.to_clients,
            dropped: dropped.into(),
            kernel_drops: datagrams.kernel_drops,
            unsent: datagrams.unsent,
            flows_ended: ended.into(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Service<'a> {
    name: &'a str,
    iid: u32,
    description: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    mode: &'static str,
    algorithm: table::Algorithm,
    status: &'static str,
    panic: bool,
    usable: u32,
    usable_backups: u32,
    weight: u32,
    queue: u32,
    max_queue: u32,
    sessions: u32,
    max_sessions: u32,
    sessions_total: u64,
    unserved: u64,
    session_rate: PerSecond,
    errors: u64,
    ejections: BTreeMap<&'static str, u64>,
    changed_seconds: u32,
    downtime_seconds: u32,
    downs: u32,
    #[serde(flatten)]
    counts: Sums,
    endpoints: Endpoints<'a>,
}

impl<'a> Service<'a> {
    pub(super) fn of(service: &'a ServiceStats, selection: &'a Selection) -> Self {
        let spec = &service.spec;
        Self {
            name: &service.name,
            iid: service.iid,
            description: spec.description.as_deref(),
            labels: labels(&spec.labels),
            mode: service.mode.word(),
            algorithm: spec.algorithm,
            status: if service.is_up() { "UP" } else { "DOWN" },
            panic: service.is_panicking,
            usable: service.usable,
            usable_backups: service.usable_backups,
            weight: service.weight,
            queue: service.queue,
            max_queue: service.queue_peak,
            sessions: service.current,
            max_sessions: service.peak,
            sessions_total: service.sessions,
            unserved: service.unserved,
            session_rate: service.session_rate.into(),
            errors: service.errors(),
            ejections: super::ejections(service.ejections),
            changed_seconds: service.changed,
            downtime_seconds: service.downtime,
            downs: service.downs,
            counts: Sums::of(&service.counts, service.means, service.idle),
            endpoints: Endpoints(service, selection),
        }
    }
}

/// Those of a service that are asked for: made while they are written, for there may be many.
struct Endpoints<'a>(&'a ServiceStats, &'a Selection);

impl Serialize for Endpoints<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(service, selection) = self;
        let endpoints = service.endpoints.iter();
        let taken = endpoints.filter(|endpoint| selection.takes_endpoint(endpoint));
        serializer.collect_seq(taken.map(Endpoint::of))
    }
}

#[derive(Serialize)]
struct Endpoint<'a> {
    name: &'a str,
    sid: u32,
    address: std::net::SocketAddr,
    node: Option<&'a str>,
    zone: Option<&'a str>,
    status: String,
    backup: bool,
    overridden: bool,
    weight: u32,
    user_weight: u32,
    growth_percent: Option<u8>,
    ejected_ms: Option<u128>,
    closes_loop: bool,
    sessions: u32,
    max_sessions: u32,
    limit: Option<u32>,
    sessions_total: u64,
    session_rate: PerSecond,
    changed_seconds: u32,
    downtime_seconds: u32,
    #[serde(flatten)]
    counts: Sums,
    check: Option<Check<'a>>,
}

impl<'a> Endpoint<'a> {
    fn of(endpoint: &'a EndpointStats) -> Self {
        Self {
            name: &endpoint.name,
            sid: endpoint.sid,
            address: endpoint.address,
            node: endpoint.node.as_deref(),
            zone: endpoint.zone.as_deref(),
            status: endpoint.status.to_string(),
            backup: endpoint.is_backup,
            overridden: endpoint.is_overridden,
            weight: endpoint.weight,
            user_weight: endpoint.user_weight,
            growth_percent: endpoint.growth,
            ejected_ms: endpoint.ejected.map(|rest| rest.as_millis()),
            closes_loop: endpoint.closes_loop,
            sessions: endpoint.current,
            max_sessions: endpoint.peak,
            limit: endpoint.limit,
            sessions_total: endpoint.counts.sessions,
            session_rate: endpoint.session_rate.into(),
            changed_seconds: endpoint.changed,
            downtime_seconds: endpoint.downtime,
            counts: Sums::of(&endpoint.counts, endpoint.means, endpoint.idle),
            check: endpoint.check.as_deref().map(Check::of),
        }
    }
}

#[derive(Serialize)]
struct Check<'a> {
    result: &'static str,
    running: bool,
    code: Option<u16>,
    took_ms: u64,
    meaning: &'static str,
    said: &'a str,
    rise: u8,
    fall: u8,
    health: u8,
    failures: u64,
    downs: u64,
}

impl<'a> Check<'a> {
    fn of(check: &'a super::super::check::Check) -> Self {
        Self {
            result: check.result,
            running: check.is_running,
            code: check.code,
            took_ms: check.took,
            meaning: check.meaning,
            said: &check.said,
            rise: check.rise,
            fall: check.fall,
            health: check.health,
            failures: check.failures,
            downs: check.downs,
        }
    }
}

/// What endpoints and services count alike.
#[derive(Serialize)]
struct Sums {
    picked: u64,
    dials: u64,
    connect_errors: u64,
    retries: u64,
    redispatches: u64,
    response_errors: u64,
    client_aborts: u64,
    server_aborts: u64,
    bytes_in: u64,
    bytes_out: u64,
    queue_ms: u32,
    queue_ms_max: u64,
    connect_ms: u32,
    connect_ms_max: u64,
    total_ms: u32,
    total_ms_max: u64,
    last_session_seconds: Option<i32>,
}

impl Sums {
    fn of(counts: &Counts, means: Means, idle: i32) -> Self {
        Self {
            picked: counts.picked,
            dials: counts.dials,
            connect_errors: counts.connect_errors,
            retries: counts.retries,
            redispatches: counts.redispatches,
            response_errors: counts.response_errors,
            client_aborts: counts.client_aborts,
            server_aborts: counts.server_aborts,
            bytes_in: counts.bytes_in,
            bytes_out: counts.bytes_out,
            queue_ms: means.queue,
            queue_ms_max: counts.queue_ms_max,
            connect_ms: means.connect,
            connect_ms_max: counts.connect_ms_max,
            total_ms: means.total,
            total_ms_max: counts.total_ms_max,
            last_session_seconds: (idle >= 0).then_some(idle),
        }
    }
}

fn labels(labels: &table::Entries<table::LabelKey, table::Text>) -> BTreeMap<&str, &str> {
    labels
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect()
}
