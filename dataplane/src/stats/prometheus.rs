//! `/metrics`: haproxy's own families, so that today's dashboards work, and what haproxy has no word for under `ballast_`.
//!
//! A family's series stand together, under one HELP and one TYPE; a family without series is not there at all.

use std::sync::Arc;

use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Column, Unit};
use super::selection::Selection;
use super::snapshot::{EndpointStats, FrontendStats, Mode, ServiceStats, Snapshot, StatusKind};
use super::value::{Value, number, seconds};

mod datagrams;
mod own;
mod process;

/// The families that are asked for.
#[must_use]
pub fn metrics(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let frontends = selection.frontends(&snapshot);
    let services = selection.services(&snapshot);
    let mut families = families(&selection).into_iter();
    let mut family = families.next();
    let (mut place, mut endpoint, mut is_headed) = (0, 0, false);
    Chunks::new(move |out| {
        let Some(current) = &family else {
            return Progress::Over;
        };
        let at = match current {
            Family::Process => {
                process::write(out, &snapshot.process);
                None
            }
            Family::Frontend(family) => of(&frontends, &snapshot.frontends, place)
                .map(|frontend| family.write(out, frontend, &mut is_headed)),
            Family::Service(family) => of(&services, &snapshot.services, place)
                .map(|service| family.write(out, service, &mut is_headed)),
            Family::Endpoint(family) => match of(&services, &snapshot.services, place) {
                Some(service) => match service.endpoints.get(endpoint) {
                    Some(one) => {
                        endpoint += 1;
                        if selection.takes_endpoint(one) {
                            family.write(out, service, one, &mut is_headed);
                        }
                        return Progress::GoesOn;
                    }
                    None => Some(()),
                },
                None => None,
            },
        };
        endpoint = 0;
        match at {
            Some(()) => place += 1,
            None => {
                family = families.next();
                (place, is_headed) = (0, false);
            }
        }
        Progress::GoesOn
    })
}

fn of<'a, T>(places: &[usize], all: &'a [T], place: usize) -> Option<&'a T> {
    all.get(*places.get(place)?)
}

/// In the order in which they are written.
enum Family {
    /// All that concerns the process.
    Process,
    Frontend(FrontendFamily),
    Service(ServiceFamily),
    Endpoint(EndpointFamily),
}

enum FrontendFamily {
    Column(Named),
    Own(&'static own::Own<FrontendStats>),
}

enum ServiceFamily {
    Column(Named),
    Own(&'static own::Own<ServiceStats>),
}

struct EndpointFamily(Named);

/// A column and what its family is called.
struct Named {
    name: String,
    column: &'static Column,
}

fn families(selection: &Selection) -> Vec<Family> {
    let kinds = selection.kinds();
    let mut families = Vec::new();
    if kinds.global {
        families.push(Family::Process);
    }
    if kinds.frontend {
        let columns = named("frontend", |column| column.frontend.is_some());
        families.extend(columns.map(|named| Family::Frontend(FrontendFamily::Column(named))));
        let own = own::FRONTEND.iter().chain(&datagrams::DATAGRAMS);
        let own = own.map(FrontendFamily::Own);
        families.extend(own.map(Family::Frontend));
    }
    if kinds.backend {
        let columns = named("backend", |column| column.backend.is_some());
        families.extend(columns.map(|named| Family::Service(ServiceFamily::Column(named))));
        let own = own::SERVICE.iter().map(ServiceFamily::Own);
        families.extend(own.map(Family::Service));
    }
    if kinds.server {
        let columns = named("server", |column| column.server.is_some());
        families.extend(columns.map(|named| Family::Endpoint(EndpointFamily(named))));
    }
    families
}

fn named(kind: &'static str, has: impl Fn(&Column) -> bool) -> impl Iterator<Item = Named> {
    let columns = COLUMNS
        .iter()
        .filter(move |column| !column.metric.is_empty() && has(column));
    columns.map(move |column| {
        let metric = match (kind, column.metric) {
            ("server", "active_servers") => "active",
            ("server", "backup_servers") => "backup",
            (_, metric) => metric,
        };
        Named {
            name: format!("haproxy_{kind}_{metric}"),
            column,
        }
    })
}

impl FrontendFamily {
    fn write(&self, out: &mut Vec<u8>, frontend: &FrontendStats, is_headed: &mut bool) {
        match self {
            Self::Own(own) => own.write(
                out,
                &frontend.name,
                &frontend.spec.labels,
                frontend,
                is_headed,
            ),
            Self::Column(named) => {
                let value = named
                    .column
                    .frontend
                    .map_or(Value::Empty, |of| of(frontend));
                let mut series = named.series(out, is_headed, &frontend.name, None);
                match named.column.unit {
                    Unit::States => {
                        series.states(UP_OR_DOWN, |state| (state == "UP") == frontend.is_open);
                    }
                    Unit::Http if frontend.mode != Mode::Http => {}
                    unit => series.value(&value, unit),
                }
            }
        }
    }
}

impl ServiceFamily {
    fn write(&self, out: &mut Vec<u8>, service: &ServiceStats, is_headed: &mut bool) {
        match self {
            Self::Own(own) => {
                own.write(out, &service.name, &service.spec.labels, service, is_headed);
            }
            Self::Column(named) => {
                let value = named.column.backend.map_or(Value::Empty, |of| of(service));
                let mut series = named.series(out, is_headed, &service.name, None);
                match (named.column.unit, named.column.name) {
                    (Unit::States, "agg_server_status") => {
                        series.counted(&STATES, &service.endpoints, |endpoint, state| {
                            state_of(endpoint) == state
                        });
                    }
                    (Unit::States, "agg_check_status") => {
                        series.counted(&RESULTS, &service.endpoints, |endpoint, result| {
                            result_of(endpoint) == Some(result)
                        });
                    }
                    (Unit::States, _) => {
                        series.states(UP_OR_DOWN, |state| (state == "UP") == service.is_up());
                    }
                    (Unit::Http, _) if service.mode != Mode::Http => {}
                    (unit, _) => series.value(&value, unit),
                }
            }
        }
    }
}

impl EndpointFamily {
    fn write(
        &self,
        out: &mut Vec<u8>,
        service: &ServiceStats,
        endpoint: &EndpointStats,
        is_headed: &mut bool,
    ) {
        let Self(named) = self;
        let value = named
            .column
            .server
            .map_or(Value::Empty, |of| of(service, endpoint));
        let mut series = named.series(out, is_headed, &service.name, Some(&endpoint.name));
        match (named.column.unit, named.column.name) {
            (Unit::States, "check_status") => {
                if let Some(result) = result_of(endpoint) {
                    series.states(&RESULTS, |state| state == result);
                }
            }
            (Unit::States, _) => series.states(&STATES, |state| state == state_of(endpoint)),
            (Unit::Http, _) if service.mode != Mode::Http => {}
            (unit, _) => series.value(&value, unit),
        }
    }
}

impl Named {
    fn series<'a>(
        &'a self,
        out: &'a mut Vec<u8>,
        is_headed: &'a mut bool,
        proxy: &'a str,
        server: Option<&'a str>,
    ) -> Series<'a> {
        Series {
            named: self,
            out,
            is_headed,
            proxy,
            server,
        }
    }
}

/// The series of one proxy or endpoint within a family.
struct Series<'a> {
    named: &'a Named,
    out: &'a mut Vec<u8>,
    is_headed: &'a mut bool,
    proxy: &'a str,
    server: Option<&'a str>,
}

impl Series<'_> {
    fn value(&mut self, value: &Value<'_>, unit: Unit) {
        match (value, unit) {
            (Value::Empty, Unit::IfAny | Unit::Millis) => return,
            (Value::Empty, _) => {
                self.begin(None);
                self.out.extend_from_slice(b"NaN");
            }
            (Value::Level(ms), Unit::Millis) => {
                self.begin(None);
                seconds(self.out, (*ms).into());
            }
            (Value::Count(ms), Unit::Millis) => {
                self.begin(None);
                seconds(self.out, *ms);
            }
            (value, _) => {
                self.begin(None);
                value.write(self.out);
            }
        }
        self.out.push(b'\n');
    }

    /// One for each state, and 1 where it is that.
    fn states(&mut self, states: &[&str], is: impl Fn(&str) -> bool) {
        for state in states {
            self.begin(Some(state));
            self.out
                .extend_from_slice(if is(state) { b"1\n" } else { b"0\n" });
        }
    }

    /// One for each state: how many endpoints are in it.
    fn counted(
        &mut self,
        states: &[&str],
        endpoints: &[EndpointStats],
        is: impl Fn(&EndpointStats, &str) -> bool,
    ) {
        for state in states {
            let count = endpoints.iter().filter(|one| is(one, state)).count();
            self.begin(Some(state));
            number(self.out, count as u64);
            self.out.push(b'\n');
        }
    }

    /// Everything before the value.
    fn begin(&mut self, state: Option<&str>) {
        let Named { name, column } = self.named;
        if !std::mem::replace(self.is_headed, true) {
            head(self.out, name, kind_of(name), column.help);
        }
        let out = &mut *self.out;
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"{proxy=\"");
        label(out, self.proxy);
        if let Some(server) = self.server {
            out.extend_from_slice(b"\",server=\"");
            label(out, server);
        }
        if let Some(state) = state {
            out.extend_from_slice(b"\",state=\"");
            label(out, state);
        }
        out.extend_from_slice(b"\"} ");
    }
}

/// What a family is, and what kind of numbers it has.
fn head(out: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    for part in [
        "# HELP ",
        name,
        " ",
        help,
        "\n# TYPE ",
        name,
        " ",
        kind,
        "\n",
    ] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// haproxy's names say it, but for one.
fn kind_of(name: &str) -> &'static str {
    if name.ends_with("_total") || name.ends_with("_failed_resolutions") {
        "counter"
    } else {
        "gauge"
    }
}

/// The value of a label, with its three special letters escaped.
fn label(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest
        .iter()
        .position(|byte| matches!(byte, b'\\' | b'"' | b'\n'))
    {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        out.push(b'\\');
        out.push(match special.first() {
            Some(b'\n') | None => b'n',
            Some(byte) => *byte,
        });
        rest = special.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

fn state_of(endpoint: &EndpointStats) -> &'static str {
    match endpoint.status.kind {
        StatusKind::Unchecked | StatusKind::Up => "UP",
        StatusKind::Down => "DOWN",
        StatusKind::Draining => "DRAIN",
        StatusKind::Maintenance => "MAINT",
    }
}

fn result_of(endpoint: &EndpointStats) -> Option<&'static str> {
    let result = endpoint.check.as_deref()?.result;
    (!result.is_empty()).then_some(result)
}

const UP_OR_DOWN: &[&str] = &["DOWN", "UP"];
const STATES: [&str; 5] = ["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];
const RESULTS: [&str; 16] = [
    "HANA", "SOCKERR", "L4OK", "L4TOUT", "L4CON", "L6OK", "L6TOUT", "L6RSP", "L7TOUT", "L7RSP",
    "L7OK", "L7OKC", "L7STS", "PROCERR", "PROCTOUT", "PROCOK",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        for (text, escaped) in [
            ("plain", "plain"),
            ("a\"b", "a\\\"b"),
            ("a\\b", "a\\\\b"),
            ("a\nb\n", "a\\nb\\n"),
            ("\"", "\\\""),
            ("", ""),
        ] {
            let mut out = Vec::new();
            label(&mut out, text);
            assert_eq!(out, escaped.as_bytes());
        }
    }
}
