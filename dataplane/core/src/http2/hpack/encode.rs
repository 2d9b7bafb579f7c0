//! Encodes header blocks.

use super::form::{
    INDEXED, INDEXED_PREFIX, NEVER_ADDED, NOT_ADDED, NOT_ADDED_PREFIX, STRING_PREFIX, TABLE_SIZE,
};
use super::{integer, statics};

/// What the next header block to one peer begins with. There is no other state, because no dynamic table is used.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// Whether the peer must be sent the size of the dynamic table.
    is_size_due: bool,
}

impl Encoder {
    /// Notes that the peer's SETTINGS named a size of the dynamic table: the next block says that the size is 0.
    pub(crate) fn peer_set_table_size(&mut self) {
        self.is_size_due = true;
    }

    /// Begins a header block at the end of `out`.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_size_due) {
            // The five lowest bits are the size: 0.
            out.push(TABLE_SIZE);
        }
    }
}

/// Appends `:status`, a number of three digits.
pub(crate) fn encode_status(out: &mut Vec<u8>, status: u16) {
    let entry = match status {
        200 => statics::STATUS_200,
        204 => statics::STATUS_204,
        206 => statics::STATUS_206,
        304 => statics::STATUS_304,
        400 => statics::STATUS_400,
        404 => statics::STATUS_404,
        500 => statics::STATUS_500,
        _ => {
            let digits =
                [status / 100, status / 10, status].map(|number| b'0' + (number % 10) as u8);
            return named(out, statics::STATUS_200, &digits);
        }
    };
    indexed(out, entry);
}

pub(crate) fn encode_method(out: &mut Vec<u8>, method: &[u8]) {
    match method {
        b"GET" => indexed(out, statics::METHOD_GET),
        b"POST" => indexed(out, statics::METHOD_POST),
        _ => named(out, statics::METHOD_GET, method),
    }
}

pub(crate) fn encode_scheme(out: &mut Vec<u8>, scheme: &[u8]) {
    match scheme {
        b"http" => indexed(out, statics::SCHEME_HTTP),
        b"https" => indexed(out, statics::SCHEME_HTTPS),
        _ => named(out, statics::SCHEME_HTTP, scheme),
    }
}

/// Appends `:path`, whose value `write` appends to the bytes that it gets.
pub(crate) fn encode_path(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    integer::write(out, NOT_ADDED, NOT_ADDED_PREFIX, statics::PATH_ROOT);
    let value = begin_string(out);
    write(out);
    match out.get(value..) {
        Some(b"/") => {
            out.truncate(start);
            indexed(out, statics::PATH_ROOT);
        }
        _ => end_string(out, value),
    }
}

pub(crate) fn encode_authority(out: &mut Vec<u8>, value: &[u8]) {
    named(out, statics::AUTHORITY, value);
}

/// Appends a field, like [`encode_field()`], whose value `value` appends to the bytes that it gets.
pub(crate) fn encode_field_with(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    begin_field(out, name);
    let start = begin_string(out);
    value(out);
    while out.len() > start && out.last().is_some_and(is_blank) {
        out.pop();
    }
    let blanks = out[start..]
        .iter()
        .take_while(|byte| is_blank(byte))
        .count();
    if blanks > 0 {
        out.drain(start..start + blanks);
    }
    end_string(out, start);
}

/// Appends a field. Upper case letters of the name are written in lower case. Spaces and tabs around the value are left out.
///
/// Fields with credentials are marked as never to be added to a dynamic table, by no proxy behind the peer either.
pub(crate) fn encode_field(out: &mut Vec<u8>, name: &str, mut value: &[u8]) {
    while let Some((_, rest)) = value.split_first().filter(|(byte, _)| is_blank(byte)) {
        value = rest;
    }
    while let Some((_, rest)) = value.split_last().filter(|(byte, _)| is_blank(byte)) {
        value = rest;
    }
    begin_field(out, name);
    string(out, value);
}

/// Appends what precedes the value of a field.
fn begin_field(out: &mut Vec<u8>, name: &str) {
    let Some(index) = statics::index_of(name.as_bytes()) else {
        out.push(NOT_ADDED);
        integer::write(out, 0, STRING_PREFIX, name.len());
        out.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        return;
    };
    let flags = match index {
        statics::AUTHORIZATION
        | statics::COOKIE
        | statics::PROXY_AUTHORIZATION
        | statics::SET_COOKIE => NEVER_ADDED,
        _ => NOT_ADDED,
    };
    integer::write(out, flags, NOT_ADDED_PREFIX, index);
}

/// Appends a field that equals an entry of the static table.
fn indexed(out: &mut Vec<u8>, index: usize) {
    integer::write(out, INDEXED, INDEXED_PREFIX, index);
}

/// Appends a field with the name of an entry of the static table.
fn named(out: &mut Vec<u8>, index: usize, value: &[u8]) {
    integer::write(out, NOT_ADDED, NOT_ADDED_PREFIX, index);
    string(out, value);
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    integer::write(out, 0, STRING_PREFIX, bytes.len());
    out.extend_from_slice(bytes);
}

/// Begins a string whose length is not known yet. Returns where its bytes begin.
fn begin_string(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Writes the length of the string whose bytes begin at `start` and end with `out`. A length that takes more than the one byte
/// before the string moves the string.
fn end_string(out: &mut Vec<u8>, start: usize) {
    let end = out.len();
    let length = end.saturating_sub(start);
    let short = u8::try_from(length).ok();
    let short = short.filter(|length| *length < STRING_PREFIX);
    if let Some(first) = start.checked_sub(1).and_then(|first| out.get_mut(first)) {
        *first = short.unwrap_or(STRING_PREFIX);
    }
    if short.is_none() {
        integer::write_rest(out, length - usize::from(STRING_PREFIX));
        let more = out.len() - end;
        if let Some(moved) = out.get_mut(start..) {
            moved.rotate_right(more);
        }
    }
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
