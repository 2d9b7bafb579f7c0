//! haproxy's columns: what each is called, and what it holds of a frontend, a service and an endpoint.
//!
//! The one place that maps our counters to haproxy's words; CSV, JSON and Prometheus are written from it. Columns are
//! read by position everywhere: never move one, never put one in between.

use std::sync::Arc;

use super::selection::{Kinds, Selection};
use super::snapshot::{EndpointStats, FrontendStats, Mode, ServiceStats, Snapshot, StatusKind};
use super::value::{Value, small, up_or_down};

mod list;

pub(super) use list::COLUMNS;

#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Its word in CSV and JSON.
    pub(super) name: &'static str,
    /// Origin, nature and scope, as haproxy's typed output abbreviates them.
    pub(super) tags: &'static str,
    /// What its metrics are called, behind `haproxy_frontend_` and the like; empty: there are none.
    pub(super) metric: &'static str,
    /// How its metrics are written.
    pub(super) unit: Unit,
    /// What it means.
    pub(super) help: &'static str,
    pub(super) frontend: Option<OfFrontend>,
    pub(super) backend: Option<OfService>,
    pub(super) server: Option<OfEndpoint>,
}

pub(super) type OfFrontend = for<'a> fn(&'a FrontendStats) -> Value<'a>;
pub(super) type OfService = for<'a> fn(&'a ServiceStats) -> Value<'a>;
pub(super) type OfEndpoint = for<'a> fn(&'a ServiceStats, &'a EndpointStats) -> Value<'a>;

/// How a column's values become metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// As they are; what does not apply is not a number.
    Plain,
    /// As they are; what does not apply is left out.
    IfAny,
    /// Milliseconds become seconds; what does not apply is left out.
    Millis,
    /// Only where HTTP is spoken.
    Http,
    /// One for each class of HTTP responses, where HTTP is spoken.
    Classes,
    /// One for each state that there is.
    States,
}

/// One line of CSV, one object of JSON.
#[derive(Clone, Copy)]
pub(super) enum Row<'a> {
    Frontend(&'a FrontendStats),
    Endpoint(&'a ServiceStats, &'a EndpointStats),
    Service(&'a ServiceStats),
}

impl<'a> Row<'a> {
    pub(super) fn value(self, column: &Column, selection: &Selection) -> Value<'a> {
        match self {
            Row::Service(service) if selection.only_up && column.name == "status" => up_of(service),
            row => row.of(column),
        }
    }

    /// The value of a column, the same whatever is asked for.
    pub(super) fn of(self, column: &Column) -> Value<'a> {
        let value = match self {
            Row::Frontend(frontend) => column.frontend.map(|of| of(frontend)),
            Row::Endpoint(service, endpoint) => column.server.map(|of| of(service, endpoint)),
            Row::Service(service) => column.backend.map(|of| of(service)),
        };
        value.unwrap_or(Value::Empty)
    }

    /// The name of the frontend or service, and of the endpoint.
    pub(super) fn names(self) -> (&'a str, Option<&'a str>) {
        match self {
            Row::Frontend(frontend) => (&frontend.name, None),
            Row::Endpoint(service, endpoint) => (&service.name, Some(&endpoint.name)),
            Row::Service(service) => (&service.name, None),
        }
    }

    pub(super) fn mode(self) -> Mode {
        match self {
            Row::Frontend(frontend) => frontend.mode,
            Row::Endpoint(service, _) | Row::Service(service) => service.mode,
        }
    }

    /// What haproxy calls such an object, and its letter.
    pub(super) fn object(self) -> &'static str {
        match self {
            Row::Frontend(_) => "Frontend",
            Row::Endpoint(..) => "Server",
            Row::Service(_) => "Backend",
        }
    }

    /// The number of the proxy, and within it.
    pub(super) fn ids(self) -> (u32, u32) {
        match self {
            Row::Frontend(frontend) => (frontend.iid, 0),
            Row::Endpoint(service, endpoint) => (service.iid, endpoint.sid),
            Row::Service(service) => (service.iid, 0),
        }
    }
}

fn up_of(service: &ServiceStats) -> Value<'_> {
    let is_up = |kind| !matches!(kind, StatusKind::Down | StatusKind::Maintenance);
    let endpoints = &service.endpoints;
    let up = endpoints
        .iter()
        .filter(|endpoint| is_up(endpoint.status.kind))
        .count();
    Value::UpOf(service.is_up(), small(up), small(endpoints.len()))
}

/// Walks over the rows of a snapshot: frontends first, then each service's endpoints and the service itself.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    kinds: Kinds,
    frontends: Arc<[usize]>,
    services: Arc<[usize]>,
    proxy: usize,
    endpoint: usize,
}

impl Rows {
    /// All that are asked for.
    pub(super) fn all(snapshot: &Snapshot, selection: &Selection) -> Self {
        Self {
            kinds: selection.kinds(),
            frontends: selection.frontends(snapshot).into(),
            services: selection.services(snapshot).into(),
            proxy: 0,
            endpoint: 0,
        }
    }

    /// From the start again, those of these kinds alone.
    pub(super) fn only(&self, kinds: Kinds) -> Self {
        Self {
            kinds,
            proxy: 0,
            endpoint: 0,
            ..self.clone()
        }
    }

    pub(super) fn next<'a>(
        &mut self,
        snapshot: &'a Snapshot,
        selection: &Selection,
    ) -> Option<Row<'a>> {
        while let Some(place) = self.frontends.get(self.proxy) {
            self.proxy += 1;
            if self.kinds.frontend {
                return snapshot.frontends.get(*place).map(Row::Frontend);
            }
        }
        loop {
            let place = self.services.get(self.proxy - self.frontends.len())?;
            let service = snapshot.services.get(*place)?;
            while self.kinds.server
                && let Some(endpoint) = service.endpoints.get(self.endpoint)
            {
                self.endpoint += 1;
                if selection.takes_endpoint(endpoint) {
                    return Some(Row::Endpoint(service, endpoint));
                }
            }
            (self.proxy, self.endpoint) = (self.proxy + 1, 0);
            if self.kinds.backend {
                return Some(Row::Service(service));
            }
        }
    }
}

/// What the letters of tags mean, in haproxy's JSON.
pub(crate) fn words(tags: &str) -> [&'static str; 3] {
    let letter = |place| tags.as_bytes().get(place).copied().unwrap_or(b' ');
    let origin = match letter(0) {
        b'M' => "Metric",
        b'S' => "Status",
        b'K' => "Key",
        b'C' => "Config",
        b'P' => "Product",
        _ => "Unknown",
    };
    let nature = match letter(1) {
        b'G' => "Gauge",
        b'L' => "Limit",
        b'M' => "Max",
        b'R' => "Rate",
        b'C' => "Counter",
        b'D' => "Duration",
        b'P' => "Position",
        b'A' => "Age",
        b'a' => "Avg",
        b'N' => "Name",
        b'O' => "Output",
        _ => "Unknown",
    };
    let scope = match letter(2) {
        b'P' => "Process",
        b'S' => "Service",
        _ => "Unknown",
    };
    [origin, nature, scope]
}

/// What a service's status is called.
fn status_of(service: &ServiceStats) -> Value<'_> {
    Value::Text(up_or_down(service.is_up()))
}
