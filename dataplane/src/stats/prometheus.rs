//! `/metrics`: haproxy's own families, so that today's dashboards work, and what haproxy has no word for under `ballast_`.
//!
//! A family's series stand together, under one HELP and one TYPE; a family without series is not there at all.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Column, Row, Rows, Unit};
use super::selection::{Kinds, Selection};
use super::snapshot::{EndpointStats, Mode, Snapshot, StatusKind};
use super::value::{Value, number, seconds};

mod own;
mod process;

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
}

fn families(kinds: Kinds) -> Vec<Family> {
    let mut families = Vec::new();
    let none = Kinds::default();
    if kinds.frontend {
        let frontend = true;
        let kinds = Kinds { frontend, ..none };
        families.extend(columns(kinds, "frontend", |one| one.frontend.is_some()));
        families.extend(own::of_frontends(kinds));
    }
    if kinds.backend {
        let backend = true;
        let kinds = Kinds { backend, ..none };
        families.extend(columns(kinds, "backend", |one| one.backend.is_some()));
        families.extend(own::of_services(kinds));
    }
    if kinds.server {
        let server = true;
        let kinds = Kinds { server, ..none };
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
    columns.map(move |column| {
        let metric = match (kind, column.metric) {
            ("server", "active_servers") => "active",
            ("server", "backup_servers") => "backup",
            (_, metric) => metric,
        };
        let name = format!("haproxy_{kind}_{metric}");
        Family::new(kinds, name, column.help, Source::Column(column))
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
            Source::Own(..) => "service",
        };
        Self {
            begin: format!("{name}{{{label}=\""),
            name,
            help,
            kinds,
            source,
        }
    }

    /// All series of one row.
    fn write(&self, row: Row<'_>, series: &mut Series<'_>) {
        let column = match &self.source {
            Source::Own(_, each) => return each(row, &mut |which, value| series.own(which, value)),
            Source::Column(column) => column,
        };
        match (column.unit, row) {
            (Unit::Http, _) if row.mode() != Mode::Http => {}
            (Unit::States, Row::Frontend(frontend)) => {
                series.states(UP_OR_DOWN, |state| (state == "UP") == frontend.is_open);
            }
            (Unit::States, Row::Service(service)) => match column.name {
                "agg_server_status" => {
                    series.counted(&STATES, &service.endpoints, |one| Some(state_of(one)));
                }
                "agg_check_status" => series.counted(&RESULTS, &service.endpoints, result_of),
                _ => series.states(UP_OR_DOWN, |state| (state == "UP") == service.is_up()),
            },
            (Unit::States, Row::Endpoint(_, endpoint)) => match column.name {
                "check_status" => {
                    if let Some(result) = result_of(endpoint) {
                        series.states(&RESULTS, |state| state == result);
                    }
                }
                _ => series.states(&STATES, |state| state == state_of(endpoint)),
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
    fn states(&mut self, states: &[&str], is: impl Fn(&str) -> bool) {
        for state in states {
            self.of_proxy(Some(state));
            self.out
                .extend_from_slice(if is(state) { b"1\n" } else { b"0\n" });
        }
    }

    /// One for each state: how many endpoints are in it.
    fn counted(
        &mut self,
        states: &[&'static str],
        endpoints: &[EndpointStats],
        of: impl Fn(&EndpointStats) -> Option<&'static str>,
    ) {
        for state in states {
            let endpoints = endpoints.iter();
            let count = endpoints.filter(|one| of(one) == Some(state)).count();
            self.of_proxy(Some(state));
            self.number(count as u64);
        }
    }

    /// A series of haproxy's, up to its value.
    fn of_proxy(&mut self, state: Option<&str>) {
        let (proxy, server) = self.row.names();
        self.begin(proxy);
        for (key, value) in [("\",server=\"", server), ("\",state=\"", state)] {
            if let Some(value) = value {
                self.out.extend_from_slice(key.as_bytes());
                label(self.out, value);
            }
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
        let endpoint = endpoint.map(|endpoint| ("", "endpoint", endpoint));
        let which = which.map(|which| ("", by, which));
        let labels = labels
            .iter()
            .map(|(key, value)| ("label_", &**key, &**value));
        for (prefix, key, value) in endpoint.into_iter().chain(which).chain(labels) {
            for part in ["\",", prefix, key, "=\""] {
                self.out.extend_from_slice(part.as_bytes());
            }
            label(self.out, value);
        }
        self.out.extend_from_slice(END);
        self.number(value);
    }

    /// The series up to the closing quote of its first label, and the head of the family before its first series.
    fn begin(&mut self, value: &str) {
        let Family {
            name, help, begin, ..
        } = self.family;
        if !std::mem::replace(self.is_headed, true) {
            head(self.out, name, kind_of(name), help);
        }
        self.out.extend_from_slice(begin.as_bytes());
        label(self.out, value);
    }

    fn number(&mut self, value: u64) {
        number(self.out, value);
        self.out.push(b'\n');
    }
}

/// What a family is, and what kind of numbers it has.
fn head(out: &mut Vec<u8>, name: &str, kind: &str, help: &str) {
    // Writing into a vector cannot fail.
    write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n").unwrap_or_default();
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

/// Between the last label of a series and its value.
const END: &[u8] = b"\"} ";
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
