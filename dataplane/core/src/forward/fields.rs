//! Reading and writing fields: the names in `Connection`, lists, numbers and addresses, and the edits of the table.

use super::{Edits, Sink};
use crate::http::{Field, FieldKind, Framing};
use crate::text::Append;

/// The fields that a message's `Connection` names as being for this connection only.
pub(super) struct Named<'a> {
    names: [&'a [u8]; MOST_NAMED],
    count: usize,
    /// Whether `Connection` names more fields than there is room for: then every field of kind [`FieldKind::Other`] counts as
    /// named.
    too_many: bool,
}

impl<'a> Named<'a> {
    pub(super) fn in_fields(fields: &'a [Field<'a>]) -> Self {
        let mut named = Self {
            names: [b""; MOST_NAMED],
            count: 0,
            too_many: false,
        };
        for option in options(fields, "connection") {
            if names_field(option) && !named.has(option) {
                match named.names.get_mut(named.count) {
                    Some(room) => {
                        *room = option;
                        named.count += 1;
                    }
                    None => named.too_many = true,
                }
            }
        }
        named
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.too_many || self.has(name.as_bytes())
    }

    fn has(&self, name: &[u8]) -> bool {
        let names = self.names.iter().take(self.count);
        names
            .into_iter()
            .any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Whether this option of `Connection` is the name of a field that would be forwarded otherwise.
fn names_field(option: &[u8]) -> bool {
    let is_of_connection = |name| FieldKind::of(name).is_of_connection();
    !option.eq_ignore_ascii_case(b"close") && !str::from_utf8(option).is_ok_and(is_of_connection)
}

/// The values of all fields of this name, in the order in which they were sent.
pub(super) fn values<'a>(
    fields: &'a [Field<'a>],
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value.trim_ascii())
}

/// The elements of a list in all fields of this name. None is empty.
pub(super) fn options<'a>(
    fields: &'a [Field<'a>],
    name: &'static str,
) -> impl Iterator<Item = &'a [u8]> {
    values(fields, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}

/// Appends the elements with `separator` between them.
pub(super) fn join<'a>(
    out: &mut Vec<u8>,
    elements: impl IntoIterator<Item = &'a [u8]>,
    separator: &[u8],
) {
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(element);
    }
}

/// A head that is being written. Fields that the edits of the table set or remove are left out.
pub(crate) struct HeadWriter<'a, S> {
    out: &'a mut S,
    edits: Edits<'a>,
    has_edits: bool,
}

impl<'a, S: Sink> HeadWriter<'a, S> {
    pub(crate) fn new(out: &'a mut S, edits: Edits<'a>) -> Self {
        Self {
            out,
            edits,
            has_edits: !edits.is_empty(),
        }
    }

    /// Adds a field as it was sent, unless the table sets or removes it.
    pub(super) fn copy(&mut self, field: &Field<'_>) {
        self.field(field.name, field.value);
    }

    /// Adds the fields that the table sets and adds, but for the field `not`, which has been written already.
    pub(crate) fn edit(&mut self, not: &str) {
        if self.has_edits {
            self.edits.write(self.out, not);
        }
    }

    /// The sink, for fields that no edit changes.
    pub(crate) fn sink(&mut self) -> &mut S {
        self.out
    }
}

/// A field is left out if the table sets or removes it.
impl<S: Sink> Sink for HeadWriter<'_, S> {
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if !self.has_edits || !self.edits.take_out(name) {
            self.out.field_with(name, value);
        }
    }
}

/// Writes the one field of HTTP/1 that says where the body ends.
pub(crate) fn write_framing(out: &mut impl Sink, framing: Framing) {
    match framing {
        Framing::Length(length) => out.field_with("Content-Length", |out| out.number(length)),
        Framing::Chunked => out.field("Transfer-Encoding", b"chunked"),
        Framing::Empty | Framing::UntilClose => {}
    }
}

/// The most fields that `Connection` may name one by one. Only an attacker names more.
const MOST_NAMED: usize = 16;
