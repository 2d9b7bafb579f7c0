//! JSON: haproxy's `;json` and its `;typed`, and the data of our own page.

use std::sync::Arc;

use ballast_core::text::Append;

use serde::Serialize;

use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Row, Rows, words};
use super::selection::Selection;
use super::snapshot::Snapshot;

mod api;
mod schema;

pub use api::api;
pub use schema::schema;

/// haproxy's `;json`: a list of rows, each a list of the fields that apply.
#[must_use]
pub fn json(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let mut rows = Rows::all(&snapshot, &selection);
    let mut before = "[";
    Chunks::new(move |out| {
        let Some(row) = rows.next(&snapshot, &selection) else {
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
        write!(
            out,
            r#"{before}{{"objType":"{object}","proxyId":{iid},"id":{sid},"field":{{"pos":{position},"name":"{name}"}},"processNum":1,"tags":{{"origin":"{origin}","nature":"{nature}","scope":"{scope}"}},"value":{{"type":"{kind}","value":"#
        );
        write_json(out, &value);
        out.extend_from_slice(b"}}");
        before = ',';
    }
    out.push(b']');
}

/// haproxy's `;typed`: a line for each field that applies.
#[must_use]
pub fn typed(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let mut rows = Rows::all(&snapshot, &selection);
    Chunks::new(move |out| match rows.next(&snapshot, &selection) {
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
        );
        value.write(out);
        if selection.described {
            write!(out, ":\"{}\"", column.help);
        }
        out.push(b'\n');
    }
}

/// Cannot fail: no map has a key that is no text, and a vector takes everything.
fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).unwrap_or_default();
}

/// The fourth letter of the tags: nothing of this outlives the process.
pub(super) const VOLATILE: char = 'V';
