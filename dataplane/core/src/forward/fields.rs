//! What Ballast does with a field, by its name: the kinds of fields, the names in `Connection`, and the edits of the table.

use std::io::Write;
use std::net::IpAddr;

use crate::http::{Field, Framing};
use crate::table::{HeaderEdits, Token};

use super::Sink;

/// What kind of field this is. A name that is not known here is [`Kind::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A field for the recipient of the message.
    Other,
    /// A field for this connection, or one that frames the body.
    HopByHop,
    ContentLength,
    Cookie,
    Expect,
    Forwarded,
    ForwardedFor,
    /// `X-Forwarded-Proto`, `-Port`, `-Host` or `-Prefix`.
    ForwardedFact,
    Host,
    /// A name that programs which turn `-` into `_`, such as CGI, take for one of `X-Forwarded-`.
    Imitation,
    Location,
    SetCookie,
    StrictTransportSecurity,
    Te,
    Trailer,
    Upgrade,
}

impl Kind {
    pub(super) fn of(name: &str) -> Self {
        let candidates: &[(&str, Self)] = match name.len() {
            2 => &[("te", Self::Te)],
            4 => &[("host", Self::Host)],
            6 => &[("cookie", Self::Cookie), ("expect", Self::Expect)],
            7 => &[("upgrade", Self::Upgrade), ("trailer", Self::Trailer)],
            8 => &[("location", Self::Location)],
            9 => &[("forwarded", Self::Forwarded)],
            10 => &[
                ("connection", Self::HopByHop),
                ("keep-alive", Self::HopByHop),
                ("set-cookie", Self::SetCookie),
            ],
            14 => &[
                ("content-length", Self::ContentLength),
                ("http2-settings", Self::HopByHop),
            ],
            15 => &[("x-forwarded-for", Self::ForwardedFor)],
            16 => &[
                ("x-forwarded-port", Self::ForwardedFact),
                ("x-forwarded-host", Self::ForwardedFact),
                ("proxy-connection", Self::HopByHop),
            ],
            17 => &[
                ("x-forwarded-proto", Self::ForwardedFact),
                ("transfer-encoding", Self::HopByHop),
            ],
            18 => &[("x-forwarded-prefix", Self::ForwardedFact)],
            25 => &[("strict-transport-security", Self::StrictTransportSecurity)],
            _ => &[],
        };
        for (known, kind) in candidates {
            if name.eq_ignore_ascii_case(known) {
                return *kind;
            }
            if matches!(kind, Self::ForwardedFor | Self::ForwardedFact) && imitates(name, known) {
                return Self::Imitation;
            }
        }
        Self::Other
    }
}

/// Whether a program that turns `-` into `_` takes one name for the other.
pub(super) fn imitates(name: &str, other: &str) -> bool {
    let form = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    name.len() == other.len() && name.bytes().map(form).eq(other.bytes().map(form))
}

/// The fields that a message's `Connection` names as being for this connection only.
pub(super) struct Named<'a> {
    names: [&'a [u8]; MOST_NAMED],
    count: usize,
    /// More than there is room for: then every field of kind [`Kind::Other`] counts as named.
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
            let is_field = !KNOWN_OPTIONS
                .iter()
                .any(|known| option.eq_ignore_ascii_case(known));
            if is_field && !named.has(option) {
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

/// Appends what is displayed.
pub(super) fn show(out: &mut Vec<u8>, shown: impl std::fmt::Display) {
    // Writing into memory does not fail.
    drop(write!(out, "{shown}"));
}

/// Appends a number. Faster than [`show`], which matters in every head.
pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    let start = out.len();
    let mut rest = number;
    loop {
        out.push(b'0' + u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

/// Appends an address.
pub(super) fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (index, octet) in v4.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                number(out, octet.into());
            }
        }
        IpAddr::V6(v6) => show(out, v6),
    }
}

/// A head that is being written: what the edits of the table set or remove is left out of it.
pub(super) struct Head<'a, S> {
    out: &'a mut S,
    edits: Option<&'a HeaderEdits>,
}

impl<'a, S: Sink> Head<'a, S> {
    pub(super) fn new(out: &'a mut S, edits: Option<&'a HeaderEdits>) -> Self {
        Self { out, edits }
    }

    /// Adds a field as it was sent, unless the table sets or removes it.
    pub(super) fn copy(&mut self, field: &Field<'_>) {
        self.field(field.name, field.value);
    }

    /// Adds the fields that the table sets. Those of `not` have been written already.
    pub(super) fn set(&mut self, not: &str) {
        let set = self.edits.iter().flat_map(|edits| edits.set.iter());
        for (name, value) in set.filter(|(name, _)| !name.eq_ignore_ascii_case(not)) {
            self.out.field(name, value.trim_ascii().as_bytes());
        }
    }

    /// The sink, for fields that no edit changes.
    pub(super) fn sink(&mut self) -> &mut S {
        self.out
    }
}

/// A field is left out if the table sets or removes it.
impl<S: Sink> Sink for Head<'_, S> {
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        let edited = self.edits.is_some_and(|edits| {
            let is_this = |edited: &Token| edited.eq_ignore_ascii_case(name);
            let mut set = edits.set.iter().map(|(name, _)| name);
            set.any(is_this) || edits.remove.iter().any(is_this)
        });
        if !edited {
            self.out.field_with(name, value);
        }
    }
}

/// Writes the one field of HTTP/1 that says where the body ends.
pub(crate) fn write_framing(out: &mut impl Sink, framing: Framing) {
    match framing {
        Framing::Length(length) => out.field_with("Content-Length", |out| number(out, length)),
        Framing::Chunked => out.field("Transfer-Encoding", b"chunked"),
        Framing::Empty | Framing::UntilClose => {}
    }
}

/// Options of `Connection` that are not the names of fields, and names of fields that end here anyway.
const KNOWN_OPTIONS: [&[u8]; 5] = [
    b"close",
    b"keep-alive",
    b"upgrade",
    b"te",
    b"http2-settings",
];

/// More fields than anything but an attack names in `Connection`.
const MOST_NAMED: usize = 16;
