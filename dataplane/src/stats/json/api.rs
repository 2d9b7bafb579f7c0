//! `/api/snapshot`: what the page and `ballast show` read. One object with `info`, `frontends`, and `services` with their
//! `endpoints`. Every key is here, but for the counters that their declaration shows in JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use ballast_core::certificate::Validity;
use ballast_core::counters::{Counts, Reading};
use ballast_core::endpoint::EndpointCounts;
use ballast_core::flow::{FlowEnd, UdpCounts};
use ballast_core::http::StatusClass;
use ballast_core::table;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::super::check::CheckStats;
use super::super::chunks::{Chunks, Progress};
use super::super::selection::Selection;
use super::super::snapshot::{
    Choice, EndpointStats, FrontendStats, Means, Mode, ServedCertificate, ServiceStats, Snapshot,
};
use super::super::value::up_or_down;
use super::write_json;
use crate::process::version::COMMIT;

/// The data of the page.
#[must_use]
pub fn api(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let frontends = selection.frontends(&snapshot);
    let services = selection.services(&snapshot);
    let mut step = 0;
    Chunks::new(move |out| {
        let at = step;
        step += 1;
        if at == 0 {
            out.extend_from_slice(b"{\"info\":");
            write_json(out, &Info(&snapshot));
            out.extend_from_slice(b",\"frontends\":[");
            return Progress::GoesOn;
        }
        if let Some(frontend) = frontends.get(at - 1) {
            separate(out, at > 1);
            write_json(out, &snapshot.frontends.get(*frontend));
            return Progress::GoesOn;
        }
        let at = at - 1 - frontends.len();
        if at == 0 {
            out.extend_from_slice(b"],\"services\":[");
        }
        let Some(service) = services.get(at) else {
            out.extend_from_slice(b"]}\n");
            return Progress::Over;
        };
        separate(out, at > 0);
        let service = snapshot.services.get(*service);
        write_json(out, &service.map(|service| Service(service, &selection)));
        Progress::GoesOn
    })
}

fn separate(out: &mut Vec<u8>, is_needed: bool) {
    if is_needed {
        out.push(b',');
    }
}

/// Makes a type serializable as an object: a line for each key, and `..` for what writes several.
macro_rules! object {
    ($type:ty, $of:pat => $($key:literal: $value:expr,)* $(..$several:expr, $($more:literal: $more_value:expr,)*)*) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $of = self;
                let mut map = serializer.serialize_map(None)?;
                $(map.serialize_entry($key, &$value)?;)*
                $(($several)(&mut map)?; $(map.serialize_entry($more, &$more_value)?;)*)*
                map.end()
            }
        }
    };
}

struct Info<'a>(&'a Snapshot);

object! { Info<'_>, Self(Snapshot { process: p, frontends, services, .. }) =>
    "name": "ballast",
    "version": env!("CARGO_PKG_VERSION"),
    "commit": COMMIT,
    "node": p.node,
    "pid": p.pid,
    "uptime_seconds": p.uptime.as_secs(),
    "started": p.started,
    "ready": p.is_ready,
    "stopping": p.is_stopping,
    "workers": p.workers,
    "generation": p.generation,
    "applied": (p.applied > 0).then_some(p.applied),
    "refused_tables": p.refused,
    "last_refusal": p.refusal,
    "exceptions": p.exceptions,
    "retired_plans": p.retired,
    "listening": p.listening,
    "connections": p.current,
    "max_connections": p.limit,
    "flows": p.flows,
    "max_flows": p.most_flows,
    "connections_total": p.connections,
    "connection_rate": p.connection_rate,
    "sessions_total": p.sessions,
    "requests_total": p.requests,
    "session_rate": p.session_rate,
    "bytes_out_total": p.bytes_out,
    "bytes_out_rate": p.byte_rate,
    "spliced_bytes_total": p.spliced,
    "idle_percent": p.idle,
    "task_panics": p.panics,
    "frontends": frontends.len(),
    "services": services.len(),
}

object! { FrontendStats, f =>
    "name": *f.name,
    "iid": f.iid,
    "description": f.spec.description.as_deref(),
    "labels": labels(&f.spec.labels),
    "protocol": f.spec.protocol,
    "bind": f.spec.bind,
    "status": f.status_word(),
    "trouble": f.trouble(),
    "exceptions": f.exceptions,
    "sessions": f.current,
    "max_sessions": f.peak,
    "limit": f.limit,
    "overridden": f.is_overridden,
    "connections_total": f.counts.connections,
    "sessions_total": f.counts.sessions,
    "bytes_in": f.counts.bytes_in,
    "bytes_out": f.counts.bytes_out,
    "session_rate": f.session_rate,
    "connection_rate": f.connection_rate,
    "errors": f.errors(),
    ..declared(&f.counts),
    ..|map: &mut S::SerializeMap| match &f.certificates {
        Some(all) => map.serialize_entry("certificates", &all.each().map(Certificate::of).collect::<Vec<_>>()),
        None => Ok(()),
    },
    ..|map: &mut S::SerializeMap| routes(f, map),
    ..|map: &mut S::SerializeMap| match (&f.datagrams, f.mode) {
        (Some(datagrams), _) => map.serialize_entry("datagrams", &Datagrams(datagrams)),
        (None, Mode::Http) => map.serialize_entry("http", &Http(f)),
        (None, Mode::Tcp | Mode::Udp) => Ok(()),
    },
}

#[derive(Serialize)]
struct Certificate<'a> {
    file: &'a str,
    names: &'a [Box<str>],
    not_before: u64,
    not_after: u64,
    validity: &'static str,
}

impl<'a> Certificate<'a> {
    fn of((served, validity): (&'a ServedCertificate, Validity)) -> Self {
        Self {
            file: &served.file,
            names: &served.names,
            not_before: served.period.not_before,
            not_after: served.period.not_after,
            validity: validity.word(),
        }
    }
}

/// What only frontends have that have routes or backends.
fn routes<M: SerializeMap>(f: &FrontendStats, map: &mut M) -> Result<(), M::Error> {
    if !f.routes.requests.is_empty() {
        map.serialize_entry("routes", &f.requests_by_route())?;
    }
    if f.routes.choices.is_empty() {
        Ok(())
    } else {
        map.serialize_entry("backends", &f.routes.choices)
    }
}

object! { Choice, choice =>
    "route": choice.route.as_deref(),
    "service": *choice.service,
    "choices": choice.count,
}

struct Http<'a>(&'a FrontendStats);

object! { Http<'_>, Self(f) =>
    "requests": f.counts.requests,
    "request_rate": f.request_rate,
    "responses": classes(&f.counts.responses),
    "intercepted": f.counts.intercepted,
    "denied": f.counts.denied_requests,
    "malformed": f.counts.bad_requests,
}

/// Responses by the first digit of their status.
fn classes(responses: &[u64; StatusClass::ALL.len()]) -> BTreeMap<&'static str, u64> {
    let classes = StatusClass::ALL.iter().map(|class| class.word());
    classes.zip(responses.iter().copied()).collect()
}

/// What only endpoints and services of HTTP have.
fn http<M: SerializeMap>(
    mode: Mode,
    counts: &EndpointCounts,
    means: Means,
) -> impl FnOnce(&mut M) -> Result<(), M::Error> {
    move |map| {
        if mode != Mode::Http {
            return Ok(());
        }
        map.serialize_entry("responses", &classes(&counts.responses))?;
        map.serialize_entry("response_ms", &means.response)?;
        map.serialize_entry("response_ms_max", &counts.response_ms_max)
    }
}

struct Datagrams<'a>(&'a UdpCounts);

object! { Datagrams<'_>, Self(counts) =>
    "in": counts.datagrams_in,
    "out": counts.datagrams_out,
    ..declared(*counts),
    "flows_ended": BTreeMap::from(FlowEnd::ALL.map(|why| (why.word(), counts.ended[why.index()]))),
}

struct Service<'a>(&'a ServiceStats, &'a Selection);

object! { Service<'_>, Self(s, selection) =>
    "name": *s.name,
    "iid": s.iid,
    "description": s.spec.description.as_deref(),
    "labels": labels(&s.spec.labels),
    "mode": s.mode.word(),
    "algorithm": s.spec.algorithm,
    "status": if s.endpoints.is_empty() {
        "EMPTY"
    } else {
        up_or_down(s.is_up())
    },
    "panic": s.is_panicking,
    "usable": s.usable,
    "usable_backups": s.usable_backups,
    "weight": s.weight,
    "queue": s.queue,
    "max_queue": s.queue_peak,
    "sessions": s.current,
    "max_sessions": s.peak,
    "limit": s.limit,
    "sessions_total": s.own.sessions,
    "unserved": s.own.unserved,
    "session_rate": s.session_rate,
    "errors": s.errors(),
    ..declared(&s.own),
    "changed_seconds": s.changed,
    "downtime_seconds": s.own.downtime,
    "downs": s.own.downs,
    ..sums(&s.counts, s.means, s.idle),
    ..http(s.mode, &s.counts, s.means),
    "endpoints": Endpoints(s, selection),
}

/// Those of a service that are asked for: made while they are written, for there may be many.
struct Endpoints<'a>(&'a ServiceStats, &'a Selection);

impl Serialize for Endpoints<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(service, selection) = self;
        let endpoints = service.endpoints.iter();
        let taken = endpoints.filter(|endpoint| selection.takes_endpoint(endpoint));
        serializer.collect_seq(taken.map(|endpoint| Endpoint(endpoint, service.mode)))
    }
}

struct Endpoint<'a>(&'a EndpointStats, Mode);

object! { Endpoint<'_>, Self(e, mode) =>
    "name": *e.name,
    "sid": e.sid,
    "address": e.address,
    "node": e.node.as_deref(),
    "zone": e.zone.as_deref(),
    "status": e.status.to_string(),
    "backup": e.is_backup,
    "overridden": e.is_overridden,
    "weight": e.weight,
    "user_weight": e.user_weight,
    "growth_percent": e.growth,
    "ejected_ms": e.ejected.map(|rest| rest.as_millis()),
    "closes_loop": e.closes_loop,
    "sessions": e.current,
    "max_sessions": e.peak,
    "limit": e.limit,
    "sessions_total": e.counts.sessions,
    "session_rate": e.session_rate,
    "changed_seconds": e.changed,
    "downtime_seconds": e.counts.downtime,
    ..sums(&e.counts, e.means, e.idle),
    ..http(*mode, &e.counts, e.means),
    "check": e.check.as_deref().map(|check| Checked(check, &e.counts)),
}

struct Checked<'a>(&'a CheckStats, &'a EndpointCounts);

object! { Checked<'_>, Self(check, counts) =>
    "result": check.result,
    "running": check.is_running,
    "code": check.code,
    "took_ms": check.took,
    "meaning": check.meaning,
    "said": *check.said,
    "rise": check.rise,
    "fall": check.fall,
    "health": check.health,
    "failures": counts.check_failures,
    "downs": counts.downs,
}

/// What endpoints and services count alike.
fn sums<M: SerializeMap>(
    counts: &EndpointCounts,
    means: Means,
    idle: i32,
) -> impl FnOnce(&mut M) -> Result<(), M::Error> {
    move |map| {
        declared(counts)(map)?;
        map.serialize_entry("queue_ms", &means.queue)?;
        map.serialize_entry("queue_ms_max", &counts.queue_ms_max)?;
        map.serialize_entry("connect_ms", &means.connect)?;
        map.serialize_entry("connect_ms_max", &counts.connect_ms_max)?;
        map.serialize_entry("total_ms", &means.total)?;
        map.serialize_entry("total_ms_max", &counts.total_ms_max)?;
        map.serialize_entry("last_session_seconds", &(idle >= 0).then_some(idle))
    }
}

/// The counters whose declaration says that JSON has them.
fn declared<C: Counts, M: SerializeMap>(counts: &C) -> impl FnOnce(&mut M) -> Result<(), M::Error> {
    move |map| {
        let mut shown = C::COUNTERS.iter().filter(|counter| counter.in_json);
        shown.try_for_each(|counter| {
            map.serialize_entry(counter.name, &Read((counter.read)(counts)))
        })
    }
}

/// A number, or a map of numbers by reason.
struct Read<'a>(Reading<'a>);

impl Serialize for Read<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0.reason, self.0.counts) {
            (None, [count]) => count.serialize(serializer),
            _ => self
                .0
                .each("")
                .collect::<BTreeMap<_, _>>()
                .serialize(serializer),
        }
    }
}

fn labels(labels: &table::Entries<table::LabelKey, table::Text>) -> BTreeMap<&str, &str> {
    let labels = labels.iter();
    labels.map(|(key, value)| (&**key, &**value)).collect()
}
