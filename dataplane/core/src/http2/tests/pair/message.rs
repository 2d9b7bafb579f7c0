//! A request and its response: what was said of them, and what was heard.

use super::*;
use crate::forward::Sink;

/// A request and its response.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) client: Held,
    pub(super) server: Held,
    pub(super) up: Way,
    pub(super) down: Way,
}

/// A stream as one of the owners has it.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) key: Option<Key>,
    /// Bytes that were taken and not released.
    pub(super) unreleased: usize,
    /// The largest window that was ever allowed.
    pub(super) widest: usize,
}

/// A message on its way.
#[derive(Debug, Default)]
pub(super) struct Way {
    pub(super) heads: Vec<String>,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<String>,
    /// The bytes that the stated length still announces.
    pub(super) announced: Option<usize>,
    /// The final head has been sent.
    pub(super) has_begun: bool,
    /// Bytes of the body that were sent.
    pub(super) sent: usize,
    pub(super) finish: Option<Finish>,
    /// Its end has been sent.
    pub(super) is_sent: bool,
    /// It need not arrive as a whole.
    pub(super) is_cut: bool,
    pub(super) heard_heads: Vec<String>,
    pub(super) heard_body: Vec<u8>,
    pub(super) heard_trailers: Option<String>,
    pub(super) is_heard: bool,
}

impl Exchange {
    pub(super) fn held(&mut self, by: End) -> &mut Held {
        match by {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// The message that this end sends.
    pub(super) fn from(&mut self, by: End) -> &mut Way {
        match by {
            End::Client => &mut self.up,
            End::Server => &mut self.down,
        }
    }
}

impl Exchange {
    pub(super) fn progress(&self) -> [usize; 4] {
        let of = |way: &Way| way.sent + usize::from(way.is_sent) + way.heads.len();
        let heard =
            |way: &Way| way.heard_body.len() + way.heard_heads.len() + usize::from(way.is_heard);
        [
            of(&self.up),
            of(&self.down),
            heard(&self.up),
            heard(&self.down),
        ]
    }
}

impl Way {
    pub(super) fn has_arrived(&self, at: usize, name: &str) {
        if self.is_cut {
            assert!(self.heads.starts_with(&self.heard_heads), "{name} {at}");
            return;
        }
        assert!(
            self.is_sent,
            "{name} {at} is stuck behind {} bytes",
            self.sent
        );
        assert!(self.is_heard, "{name} {at} was not heard");
        assert_eq!(self.heads, self.heard_heads, "{name} {at}");
        assert!(self.body == self.heard_body, "{name} {at}");
        assert_eq!(self.trailers, self.heard_trailers, "{name} {at}");
    }
}

/// Writes fields, and returns them as [`text`] has them. The first one is long where the other end accepts that.
pub(super) fn write(
    out: &mut crate::http2::Fields<'_>,
    fields: &Fields,
    length: Option<usize>,
    most: usize,
) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        out.field(name, value.as_bytes());
        text += &format!(" {name}={value}");
    };
    if let Some(length) = length {
        field("content-length", &length.to_string());
    }
    for (at, (name, length)) in fields.iter().enumerate() {
        let is_long = at == 0 && *name > 240 && most > 60_000;
        let length = if is_long { 100 * length } else { *length };
        let value = ["v", "w x", "~"][length % 3].repeat(length / 3 + 1);
        let known = ["accept", "cookie", "set-cookie", "etag", "grpc-status"];
        match known.get(usize::from(*name)) {
            Some(known) => field(known, &value),
            None => field(&format!("x-{name}"), &value),
        }
    }
    text
}
