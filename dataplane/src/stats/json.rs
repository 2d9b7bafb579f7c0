//! JSON: haproxy's `;json` and its `;typed`, and the data of our own page.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use ballast_core::admit::Refusal;
use ballast_core::service::EjectionReason;
use serde::Serialize;

use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Place, Row, words};
use super::selection::{Columns, Selection};
use super::snapshot::Snapshot;
use super::value::{Value, number};

mod api;
mod schema;

use api::{Frontend, Info, Service};
pub use schema::schema;

/// haproxy's `;json`: a list of rows, each a list of the fields that apply.
#[must_use]
pub fn json(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let mut place = Place::start(&snapshot, &selection);
    let mut before = "[";
    Chunks::new(move |out| {
        let Some(row) = place.next(&snapshot, &selection) else {
            out.extend_from_slice(if before == "[" { b"[]\n" } else { b"]\n" });
            return Progress::Over;
        };
        out.extend_from_slice(before.as_bytes());
        before = ",";
        fields(out, row, &selection);
        Progress::GoesOn
    })
}

fn fields(out: &mut Vec<u8>, row: Row<'_>, selection: &Selection) {
    let (iid, sid) = row.ids();
    let object = row.object();
    let mut before = '[';
    for (position, column) in COLUMNS.iter().enumerate() {
        let value = row.value(column, selection);
        if value.is_empty() {
            continue;
        }
        let (name, kind) = (column.name, value.kind());
        let [origin, nature, scope] = words(column.tags);
        // Writing into a vector cannot fail.
        write!(
            out,
            r#"{before}{{"objType":"{object}","proxyId":{iid},"id":{sid},"field":{{"pos":{position},"name":"{name}"}},"processNum":1,"tags":{{"origin":"{origin}","nature":"{nature}","scope":"{scope}"}},"value":{{"type":"{kind}","value":"#
        )
        .unwrap_or_default();
        json_value(out, &value);
        out.extend_from_slice(b"}}");
        before = ',';
    }
    out.push(b']');
}

fn json_value(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        // JSON's numbers are exact up to here only.
        Value::Count(count) => number(out, (*count).min(MOST_EXACT)),
        value if value.is_text() => {
            let mut text = Vec::new();
            value.write(&mut text);
            serde_json::to_writer(out, &String::from_utf8_lossy(&text)).unwrap_or_default();
        }
        value => value.write(out),
    }
}

/// haproxy's `;typed`: a line for each field that applies.
#[must_use]
pub fn typed(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let mut place = Place::start(&snapshot, &selection);
    Chunks::new(move |out| match place.next(&snapshot, &selection) {
        Some(row) => {
            typed_lines(out, row, &selection);
            Progress::GoesOn
        }
        None => Progress::Over,
    })
}

fn typed_lines(out: &mut Vec<u8>, row: Row<'_>, selection: &Selection) {
    let (iid, sid) = row.ids();
    let letter = row.object().chars().next().unwrap_or('U');
    for (position, column) in COLUMNS.iter().enumerate() {
        let value = row.value(column, selection);
        if value.is_empty() {
            continue;
        }
        let (name, tags, kind) = (column.name, column.tags, value.kind());
        write!(
            out,
            "{letter}.{iid}.{sid}.{position}.{name}.1:{tags}{VOLATILE}:{kind}:"
        )
        .unwrap_or_default();
        value.write(out);
        if selection.columns == Columns::Described {
            write!(out, ":\"{}\"", column.help).unwrap_or_default();
        }
        out.push(b'\n');
    }
}

/// The data of the page: one object with `info`, `frontends`, and `services` with their `endpoints`.
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
            write_json(out, &Info::of(&snapshot));
            out.extend_from_slice(b",\"frontends\":[");
            return Progress::GoesOn;
        }
        if let Some(frontend) = frontends.get(at - 1) {
            separate(out, at > 1);
            if let Some(frontend) = snapshot.frontends.get(*frontend) {
                write_json(out, &Frontend::of(frontend));
            }
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
        if let Some(service) = snapshot.services.get(*service) {
            write_json(out, &Service::of(service, &selection));
        }
        Progress::GoesOn
    })
}

fn separate(out: &mut Vec<u8>, is_needed: bool) {
    if is_needed {
        out.push(b',');
    }
}

/// Nothing that is written here can fail: there are no maps with strange keys, and a vector takes all.
fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).unwrap_or_default();
}

fn refusals(counts: [u64; Refusal::ALL.len()]) -> BTreeMap<&'static str, u64> {
    Refusal::ALL
        .map(Refusal::word)
        .into_iter()
        .zip(counts)
        .collect()
}

fn ejections(counts: [u64; EjectionReason::ALL.len()]) -> BTreeMap<&'static str, u64> {
    let words = EjectionReason::ALL.map(EjectionReason::word);
    words.into_iter().zip(counts).collect()
}

/// The fourth letter of the tags: nothing of this outlives the process.
const VOLATILE: char = 'V';
const MOST_EXACT: u64 = (1 << 53) - 1;
