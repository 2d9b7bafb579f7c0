//! haproxy's CSV: 119 columns, one header line that begins with `#`, every line ends with `-,`.

use std::sync::Arc;

use super::chunks::{Chunks, Progress};
use super::columns::{COLUMNS, Row, Rows};
use super::selection::Selection;
use super::snapshot::Snapshot;

/// The rows that are asked for.
#[must_use]
pub fn csv(snapshot: Arc<Snapshot>, selection: Selection) -> Chunks {
    let mut rows = None;
    Chunks::new(move |out| {
        let Some(rows) = &mut rows else {
            header(out);
            rows = Some(Rows::all(&snapshot, &selection));
            return Progress::GoesOn;
        };
        match rows.next(&snapshot, &selection) {
            Some(row) => {
                line(out, row, &selection);
                Progress::GoesOn
            }
            None => Progress::Over,
        }
    })
}

fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(b"# ");
    for column in &COLUMNS {
        out.extend_from_slice(column.name.as_bytes());
        out.push(b',');
    }
    out.extend_from_slice(END);
}

fn line(out: &mut Vec<u8>, row: Row<'_>, selection: &Selection) {
    for column in &COLUMNS {
        let value = row.value(column, selection);
        if !value.is_empty() {
            let start = out.len();
            value.write(out);
            if value.is_free_text() {
                quote(out, start);
            }
        }
        out.push(b',');
    }
    out.extend_from_slice(END);
}

/// Quotes what was written since `start`, if it must be. A line stays a line, whatever is in it.
fn quote(out: &mut Vec<u8>, start: usize) {
    let Some(written) = out.get_mut(start..) else {
        return;
    };
    if !written
        .iter()
        .any(|byte| matches!(byte, b'"' | b',' | 0..=31))
    {
        return;
    }
    let text = written.to_vec();
    out.truncate(start);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\"\""),
            0..=31 => out.push(b' '),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

const END: &[u8] = b"-,\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = b"a,".to_vec();
        out.extend_from_slice(text.as_bytes());
        quote(&mut out, 2);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_what_must_be_quoted_is_quoted() {
        assert_eq!(quoted(""), "a,");
        assert_eq!(quoted("UP 1/3"), "a,UP 1/3");
        assert_eq!(quoted("10.0.0.1:80"), "a,10.0.0.1:80");
        assert_eq!(quoted("a, b"), "a,\"a, b\"");
        assert_eq!(quoted("say \"no\""), "a,\"say \"\"no\"\"\"");
        assert_eq!(quoted("two\r\nlines"), "a,\"two  lines\"");
    }
}
