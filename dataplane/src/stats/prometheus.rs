//! `/metrics`: haproxy's own families, so that today's dashboards work, and what haproxy has no word for under `ballast_`.
//!
//! A family's series are together, under one HELP and one TYPE; a family without series is not there at all.

use std::borrow::Cow;
use std::sync::Arc;

use ballast_core::http::StatusClass;
use ballast_core::table;
use ballast_core::text::Append;

use super::check::results;
use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Column, Row, Rows, Unit};
use super::selection::{Kinds, Selection};
use super::snapshot::{EndpointStats, Mode, Snapshot, StatusKind};
use super::value::{Value, seconds};

mod certificates;
mod own;
mod process;
mod request_times;
mod routes;

/// The families that are asked for.
#[must_use]
pub fn metrics(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let all = Rows::all(&snapshot, &selection);
    let mut families = families(selection.kinds()).into_iter();
    let mut current = None;
    let mut is_begun = !selection.kinds().global;
    Chunks::new(move |out| {
        if !std::mem::replace(&mut is_begun, true) {
            process::write(out, &snapshot.process);
        }
        let Some((family, rows, is_headed)) = &mut current else {
            let Some(family) = families.next() else {
                return Progress::Over;
            };
            let rows = all.only(family.kinds);
            current = Some((family, rows, false));
            return Progress::GoesOn;
        };
        match rows.next(&snapshot, &selection) {
            Some(row) => family.write(
                row,
                &mut Series {
                    family,
                    row,
                    out,
                    is_headed,
                },
            ),
            None => current = None,
        }
        Progress::GoesOn
    })
}

/// All series of one name.
struct Family {
    name: Cow<'static, str>,
    /// How each series begins, up to the value of its first label.
    begin: String,
    help: &'static str,
    /// The rows that have such series: one kind alone.
    kinds: Kinds,
    source: Source,
}

/// Where the values of a family are found.
enum Source {
    Column(&'static Column),
    /// The label that distinguishes its series of one row, if there are several; and their values.
    Own(&'static str, own::Each),
    /// When the certificates of a frontend end.
    Certificates,
    /// How long the requests of a service took.
    RequestTimes,
    /// The requests of the routes of a frontend.
    Routes,
    /// The choices among the backends of a frontend.
    Backends,
}

fn families(kinds: Kinds) -> Vec<Family> {
    let mut families = Vec::new();
    if kinds.frontend {
        let kinds = Kinds {
            frontend: true,
            ..Kinds::default()
        };
        families.extend(columns(kinds, "frontend", |one| one.frontend.is_some()));
        families.extend(own::of_frontends(kinds));
        families.push(certificates::family(kinds));
        families.extend(routes::families(kinds));
    }
    if kinds.backend {
        let kinds = Kinds {
            backend: true,
            ..Kinds::default()
        };
        families.extend(columns(kinds, "backend", |one| one.backend.is_some()));
        families.extend(own::of_services(kinds));
        families.push(request_times::family(kinds));
    }
    if kinds.server {
        let kinds = Kinds {
            server: true,
            ..Kinds::default()
        };
        families.extend(columns(kinds, "server", |one| one.server.is_some()));
        families.extend(own::of_endpoints(kinds));
    }
    families
}

/// The families of the columns that have a metric and hold something of such rows.
fn columns(
    kinds: Kinds,
    kind: &'static str,
    has: impl Fn(&Column) -> bool,
) -> impl Iterator<Item = Family> {
    let columns = COLUMNS.iter();
    let columns = columns.filter(move |column| !column.metric.is_empty() && has(column));
    columns.filter_map(move |column| {
        let metric = match (kind, column.metric) {
            ("server", "active_servers") => "active",
            ("server", "backup_servers") => "backup",
            // haproxy has this one in CSV alone.
            ("server", "http_requests_total") => return None,
            (_, metric) => metric,
        };
        let name = format!("haproxy_{kind}_{metric}");
        let help = match column.unit {
            Unit::Classes => "HTTP responses by the first digit of their status.",
            _ => column.help,
        };
        Some(Family::new(kinds, name, help, Source::Column(column)))
    })
}

impl Family {
    fn new(
        kinds: Kinds,
        name: impl Into<Cow<'static, str>>,
        help: &'static str,
        source: Source,
    ) -> Self {
        let name = name.into();
        let label = match source {
            Source::Column(_) => "proxy",
            Source::Own(..) if kinds.frontend => "frontend",
            Source::Certificates | Source::Routes | Source::Backends => "frontend",
            Source::Own(..) | Source::RequestTimes => "service",
        };
        Self {
            begin: format!("{name}{{{label}=\""),
            name,
            help,
            kinds,
            source,
        }
    }

    fn write(&self, row: Row<'_>, series: &mut Series<'_>) {
        let column = match &self.source {
            Source::Own(_, each) => return each(row, &mut |which, value| series.own(which, value)),
            Source::Certificates => {
                if let Row::Frontend(frontend) = row {
                    certificates::write(frontend, series);
                }
                return;
            }
            Source::RequestTimes => {
                if let Row::Service(service) = row {
                    request_times::write(service, series);
                }
                return;
            }
            Source::Routes | Source::Backends => {
                let Row::Frontend(frontend) = row else {
                    return;
                };
                return match self.source {
                    Source::Routes => routes::requests(frontend, series),
                    _ => routes::choices(frontend, series),
                };
            }
            Source::Column(column) => column,
        };
        match (column.unit, row) {
            (Unit::Http | Unit::Classes, _) if row.mode() != Mode::Http => {}
            (Unit::Classes, row) => {
                let counts = match row {
                    Row::Frontend(frontend) => &frontend.counts.responses,
                    Row::Service(service) => &service.counts.responses,
                    Row::Endpoint(_, endpoint) => &endpoint.counts.responses,
                };
                for (class, count) in StatusClass::ALL.iter().zip(counts) {
                    series.of_proxy(Some(("\",code=\"", class.word())));
                    series.number(*count);
                }
            }
            (Unit::States, Row::Frontend(frontend)) => {
                series.states(UP_OR_DOWN, |state| (state == "UP") == frontend.is_open);
            }
            (Unit::States, Row::Service(service)) => match column.name {
                "agg_server_status" | "agg_server_check_status" => {
                    series.counted(STATES, &service.endpoints, |one| Some(state_of(one)));
                }
                "agg_check_status" => series.counted(results(), &service.endpoints, result_of),
                _ => series.states(UP_OR_DOWN, |state| (state == "UP") == service.is_up()),
            },
            (Unit::States, Row::Endpoint(_, endpoint)) => match column.name {
                "check_status" => {
                    if let Some(result) = result_of(endpoint) {
                        series.states(results(), |state| state == result);
                    }
                }
                _ => series.states(STATES, |state| state == state_of(endpoint)),
            },
            (unit, _) => series.value(&row.of(column), unit),
        }
    }
}

/// The series of one row within a family.
struct Series<'a> {
    family: &'a Family,
    row: Row<'a>,
    out: &'a mut Vec<u8>,
    is_headed: &'a mut bool,
}

impl Series<'_> {
    fn value(&mut self, value: &Value<'_>, unit: Unit) {
        if value.is_empty() && matches!(unit, Unit::IfAny | Unit::Millis) {
            return;
        }
        self.of_proxy(None);
        match (value, unit) {
            (Value::Empty, _) => self.out.extend_from_slice(b"NaN"),
            (Value::Level(ms), Unit::Millis) => seconds(self.out, (*ms).into()),
            (Value::Count(ms), Unit::Millis) => seconds(self.out, *ms),
            (value, _) => value.write(self.out),
        }
        self.out.push(b'\n');
    }

    /// One for each state, and 1 where it is that.
    fn states(
        &mut self,
        states: impl IntoIterator<Item = &'static str>,
        is: impl Fn(&str) -> bool,
    ) {
        for state in states {
            self.of_proxy(Some((STATE, state)));
            self.out
                .extend_from_slice(if is(state) { b"1\n" } else { b"0\n" });
        }
    }

    /// One for each state: how many endpoints are in it.
    fn counted(
        &mut self,
        states: impl IntoIterator<Item = &'static str>,
        endpoints: &[EndpointStats],
        of: impl Fn(&EndpointStats) -> Option<&'static str>,
    ) {
        for state in states {
            let endpoints = endpoints.iter();
            let count = endpoints.filter(|one| of(one) == Some(state)).count();
            self.of_proxy(Some((STATE, state)));
            self.number(count as u64);
        }
    }

    /// A series of haproxy's, up to its value. `last` is its last label, if it has one in addition to its names.
    fn of_proxy(&mut self, last: Option<(&str, &str)>) {
        let (proxy, server) = self.row.names();
        self.begin(proxy);
        let server = server.map(|server| ("\",server=\"", server));
        for (key, value) in server.into_iter().chain(last) {
            self.out.extend_from_slice(key.as_bytes());
            label(self.out, value);
        }
        self.out.extend_from_slice(END);
    }

    /// A series of ours, with the labels that the table gives its frontend or service.
    fn own(&mut self, which: Option<&str>, value: u64) {
        let (name, endpoint) = self.row.names();
        let labels = match self.row {
            Row::Frontend(frontend) => &frontend.spec.labels,
            Row::Service(service) | Row::Endpoint(service, _) => &service.spec.labels,
        };
        let Source::Own(by, _) = self.family.source else {
            return;
        };
        self.begin(name);
        if let Some(endpoint) = endpoint {
            self.label("", "endpoint", endpoint);
        }
        if let Some(which) = which {
            self.label("", by, which);
        }
        self.table_labels(labels);
        self.out.extend_from_slice(END);
        self.number(value);
    }

    /// The labels that the table gives a frontend or service.
    fn table_labels(&mut self, labels: &table::Entries<table::LabelKey, table::Text>) {
        for (key, value) in labels.iter() {
            self.label("label_", key, value);
        }
    }

    /// A label behind another one.
    fn label(&mut self, prefix: &str, key: &str, value: &str) {
        for part in ["\",", prefix, key, "=\""] {
            self.out.extend_from_slice(part.as_bytes());
        }
        label(self.out, value);
    }

    /// The series up to the closing quote of its first label, and the head of the family before its first series.
    fn begin(&mut self, value: &str) {
        self.head();
        self.out.extend_from_slice(self.family.begin.as_bytes());
        label(self.out, value);
    }

    /// The head of the family before its first series.
    fn head(&mut self) {
        let Family {
            name, help, source, ..
        } = self.family;
        if !std::mem::replace(self.is_headed, true) {
            let kind = match source {
                Source::RequestTimes => "histogram",
                Source::Column(_)
                | Source::Own(..)
                | Source::Certificates
                | Source::Routes
                | Source::Backends => kind_of(name),
            };
            head(self.out, name, kind, help);
        }
    }

    fn number(&mut self, value: u64) {
        self.out.number(value);
        self.out.push(b'\n');
    }
}

/// What a family is, and what kind of numbers it has.
fn head(out: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
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
        out.extend_from_slice(&rest[..at]);
        out.push(b'\\');
        out.push(match rest[at] {
            b'\n' => b'n',
            byte => byte,
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn state_of(endpoint: &EndpointStats) -> &'static str {
    match endpoint.status.kind {
        StatusKind::Unchecked => StatusKind::Up.word(),
        kind => kind.word(),
    }
}

fn result_of(endpoint: &EndpointStats) -> Option<&'static str> {
    let result = endpoint.check.as_deref()?.result;
    (!result.is_empty()).then_some(result)
}

/// Before the value of the label `state`.
const STATE: &str = "\",state=\"";
/// Between the last label of a series and its value.
const END: &[u8] = b"\"} ";
const UP_OR_DOWN: [&str; 2] = ["DOWN", "UP"];
const STATES: [&str; 5] = ["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];

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
