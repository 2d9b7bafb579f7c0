//! Heads of messages as HTTP/2 carries them: decoded, checked, and read as core's requests and responses.

use super::frame::MAX_PAYLOAD;
use super::hpack::{Decoder, HpackError};
use crate::http::Field;

/// The fields of one header block: the head of a request or of a response, or trailers.
///
/// What HTTP/2 calls malformed (RFC 9113, section 8.1.1) never gets here: names are lower case tokens, values hold no control
/// characters, no field concerns the connection, and the pseudo-header fields are those of the message's kind, once each.
#[derive(Debug, Default)]
pub struct Head {
    /// Names and values, one behind the other.
    bytes: Vec<u8>,
    fields: Vec<Span>,
    method: Option<Text>,
    scheme: Option<Text>,
    authority: Option<Text>,
    path: Option<Text>,
    status: u16,
    /// The size of the fields as `SETTINGS_MAX_HEADER_LIST_SIZE` counts it.
    size: usize,
    is_too_large: bool,
    /// The length that `content-length` states.
    length: Option<u64>,
    /// The bytes of the header block, as they came.
    received: usize,
}

/// A place in [`Head::bytes`].
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    name: Text,
    value: Text,
}

/// The kind of message that a header block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response,
    Trailers,
}

/// Why a header block gives no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The connection cannot go on.
    Compression,
    /// The block is small and decodes to far more than the limit. The rest of it is not worth the work, so the connection ends.
    TooMuch,
    /// The message is malformed, which ends its stream.
    Malformed,
}

impl From<HpackError> for Unusable {
    fn from(error: HpackError) -> Self {
        match error {
            HpackError::TooMuch => Self::TooMuch,
            _ => Self::Compression,
        }
    }
}

impl Head {
    /// Empties the head, so that its memory serves another message.
    pub(super) fn clear(&mut self) {
        let (mut bytes, mut fields) = (
            std::mem::take(&mut self.bytes),
            std::mem::take(&mut self.fields),
        );
        bytes.clear();
        fields.clear();
        *self = Self {
            bytes,
            fields,
            ..Self::default()
        };
    }

    /// The bytes of the header block, as the peer compressed them.
    pub fn received(&self) -> usize {
        self.received
    }

    /// The memory that it holds.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.fields.capacity() * size_of::<Span>()
    }

    /// Decodes a whole header block into this head, which is empty. Fields beyond `most` bytes are not kept, but the whole block is
    /// decoded, because the state of the decoder must follow the peer's; unless it is far too much.
    pub(super) fn decode(
        &mut self,
        decoder: &mut Decoder,
        block: &[u8],
        kind: Kind,
        most: usize,
    ) -> Result<(), Unusable> {
        self.received = block.len();
        let mut is_malformed = false;
        let far_too_much = most.max(MAX_PAYLOAD).saturating_mul(FAR_TOO_MUCH);
        decoder.decode(block, |name, value| {
            self.size = self.size.saturating_add(name.len() + value.len() + 32);
            if self.size > far_too_much {
                return Err(HpackError::TooMuch);
            }
            if self.size > most {
                self.is_too_large = true;
            }
            // A head that is too large is answered by its pseudo-header fields alone.
            let is_kept = !self.is_too_large || name.first() == Some(&b':');
            if is_kept && !is_malformed && self.size <= most.saturating_mul(2) {
                is_malformed = self.add(name, value, kind).is_none();
            }
            Ok(())
        })?;
        if is_malformed || !self.is_complete(kind) {
            Err(Unusable::Malformed)
        } else {
            Ok(())
        }
    }

    /// Adds a field. `None`: it makes the message malformed.
    fn add(&mut self, name: &[u8], value: &[u8], kind: Kind) -> Option<()> {
        if !is_value(value) {
            return None;
        }
        if name.first() == Some(&b':') {
            return self.add_pseudo(name, value, kind);
        }
        if !is_name(name) || is_of_connection(name, value) {
            return None;
        }
        if name == b"content-length" && kind != Kind::Trailers {
            let length = number(value)?;
            if self.length.is_some_and(|known| known != length) {
                return None;
            }
            // Equal ones are written as one.
            if self.length.replace(length).is_some() {
                return Some(());
            }
        }
        let (name, value) = (self.keep(name), self.keep(value));
        self.fields.push(Span { name, value });
        Some(())
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8], kind: Kind) -> Option<()> {
        // They come before all others.
        if !self.fields.is_empty() {
            return None;
        }
        if (kind, name) == (Kind::Response, b":status") {
            let is_new = self.status == 0;
            self.status = number(value)
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| is_new && value.len() == 3 && *status >= 100)?;
            return Some(());
        }
        let kept = self.keep(value);
        let place = match (kind, name) {
            (Kind::Request, b":method") => &mut self.method,
            (Kind::Request, b":scheme") => &mut self.scheme,
            (Kind::Request, b":authority") => &mut self.authority,
            (Kind::Request, b":path") => &mut self.path,
            _ => return None,
        };
        match place.replace(kept) {
            None if !value.is_empty() => Some(()),
            _ => None,
        }
    }

    /// Whether the pseudo-header fields of the message are all there.
    fn is_complete(&self, kind: Kind) -> bool {
        match kind {
            // A tunnel has no path. It is a request that is refused by its method.
            Kind::Request if self.method() == "CONNECT" => self.authority.is_some(),
            Kind::Request => {
                is_name_of_method(self.method()) && is_scheme(self.scheme()) && self.path.is_some()
            }
            Kind::Response => self.status > 0,
            Kind::Trailers => true,
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Text {
        let start = place(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        let end = place(self.bytes.len());
        Text { start, end }
    }

    fn bytes(&self, text: Text) -> &[u8] {
        &self.bytes[text.start as usize..text.end as usize]
    }

    /// Text that is ASCII; empty if it is not.
    fn text(&self, text: Option<Text>) -> &str {
        let bytes = text.map(|text| self.bytes(text)).unwrap_or_default();
        str::from_utf8(bytes).unwrap_or_default()
    }

    pub fn method(&self) -> &str {
        self.text(self.method)
    }

    pub fn scheme(&self) -> &str {
        self.text(self.scheme)
    }

    /// The host of a request as `:authority` states it. `Some("")`: it is not text.
    pub fn authority(&self) -> Option<&str> {
        self.authority.map(|authority| self.text(Some(authority)))
    }

    /// The path of a request and its query. Empty: it is not text, or the request has none.
    pub fn path(&self) -> &str {
        self.text(self.path)
    }

    pub fn status(&self) -> u16 {
        self.status
    }

    /// The length of the body, if `content-length` states it.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether it exceeds the limit. Not all of its fields are here then.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// How many fields there are, without pseudo-header fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The fields in the order in which they were sent, without pseudo-header fields.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.fields.iter().map(|span| Field {
            name: self.text(Some(span.name)),
            value: self.bytes(span.value),
        })
    }
}

/// A place in the bytes of a head, whose size is limited far below 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Whether this is the name of a field: a token in lower case.
fn is_name(name: &[u8]) -> bool {
    let is_allowed = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => true,
        byte => b"!#$%&'*+.^`|~".contains(byte),
    };
    !name.is_empty() && name.iter().all(is_allowed)
}

fn is_name_of_method(method: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !method.is_empty() && method.bytes().all(is_allowed)
}

/// RFC 3986: a letter, then letters, digits and three signs. Anything else would be a URL of the client's making in access lines.
fn is_scheme(scheme: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.bytes().all(is_allowed)
}

/// Whether this may be the value of a field: no control characters, and no blanks at its ends.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_allowed = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    !is_blank(value.first()) && !is_blank(value.last()) && value.iter().all(is_allowed)
}

/// Whether this field concerns one connection, so that it makes a message malformed.
fn is_of_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            true
        }
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// A number as `content-length` and `:status` hold it.
fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = str::from_utf8(value).ok()?.parse().ok()?;
    (is_number && number <= u64::MAX >> 1).then_some(number)
}

/// How many times the limit the fields of a block may count before the connection ends.
const FAR_TOO_MUCH: usize = 16;
