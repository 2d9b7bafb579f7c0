//! What goes to the peer: heads, bodies, and the ends of streams.

use super::connection::{Connection, Role};
use super::frame::{self, ErrorCode, FrameHeader, HEADER};
use super::hpack;
use super::stream::{Half, Key, Reset};
use crate::forward::{self, Sink, ToEndpoint};
use crate::http::{FieldKind, Scheme};

/// The fields of a header block that is being written.
#[derive(Debug)]
pub struct Fields<'a> {
    out: &'a mut Vec<u8>,
    /// Whether `Host` is `:authority`. That is so in requests, whose first field it is.
    needs_authority: bool,
}

impl<'a> Fields<'a> {
    /// Fields of a response, or trailers, that are appended to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            needs_authority: false,
        }
    }
}

impl Sink for Fields<'_> {
    fn field_with(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if self.needs_authority && FieldKind::of(name) == FieldKind::Host {
            self.needs_authority = false;
            let mut host = Vec::new();
            value(&mut host);
            return hpack::encode_authority(self.out, host.trim_ascii());
        }
        hpack::encode_field_with(self.out, name, value);
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        if self.needs_authority {
            self.field_with(name, |out| out.extend_from_slice(value));
        } else {
            hpack::encode_field(self.out, name, value);
        }
    }
}

/// Appends the header block of a request for an endpoint. It is the same for every connection.
pub fn request_block(out: &mut Vec<u8>, to: &ToEndpoint<'_>, scheme: Scheme) {
    hpack::encode_method(out, to.request.method.as_bytes());
    hpack::encode_scheme(out, scheme.name().as_bytes());
    hpack::encode_path(out, |out| to.write_target(out));
    // The first field is the host, so `:authority` is next to the other pseudo-header fields.
    let mut fields = Fields {
        out,
        needs_authority: true,
    };
    forward::request_fields(&mut fields, to);
}

impl Connection {
    /// Client: sends the head of a request, whose header block is [`request_block`]; `ends`: it has no body. `None`: the endpoint
    /// takes no request now.
    pub fn request_stream(&mut self, block: &[u8], ends: bool, asks_for_head: bool) -> Option<Key> {
        if !self.has_room() {
            return None;
        }
        let id = self.next_id;
        self.next_id += 2;
        let key = self.add(id);
        self.write_block(id, ends, |out| out.extend_from_slice(block));
        if let Some(stream) = self.streams.get_mut(key) {
            stream.is_head_request = asks_for_head;
            stream.sends = if ends { Half::Ended } else { Half::Body };
        }
        Some(key)
    }

    /// Server: sends the head of a response, whose fields `write` appends as [`Fields`]; `ends`: it has no body. An interim response
    /// is followed by another one.
    pub fn respond(
        &mut self,
        key: Key,
        status: u16,
        ends: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<usize, Reset> {
        let id = self.sendable(key, Half::Head)?;
        let mut length = 0;
        self.write_block(id, ends, |out| {
            let start = out.len();
            hpack::encode_status(out, status);
            write(out);
            length = out.len() - start;
        });
        if status >= 200 {
            self.has_sent(key, if ends { Half::Ended } else { Half::Body });
        }
        Ok(length)
    }

    /// Ends a body with trailers.
    pub fn send_trailers(
        &mut self,
        key: Key,
        write: impl FnOnce(&mut Fields<'_>),
    ) -> Result<(), Reset> {
        let id = self.sendable(key, Half::Body)?;
        self.write_block(id, true, |out| write(&mut Fields::new(out)));
        self.has_sent(key, Half::Ended);
        Ok(())
    }

    /// How many bytes of a body the peer accepts now on this stream.
    pub fn room(&self, key: Key) -> Result<usize, Reset> {
        let Some(stream) = self.streams.get(key) else {
            return Err(Reset::Connection);
        };
        match stream.reset {
            Some(reset) => Err(reset),
            None => {
                let room = stream.send_window.min(self.send_window).max(0);
                Ok(usize::try_from(room).unwrap_or_default())
            }
        }
    }

    /// Sends bytes of a body: not more than [`room`](Self::room). `ends`: they are the last ones.
    pub fn send_body(&mut self, key: Key, bytes: &[u8], ends: bool) -> Result<(), Reset> {
        let id = self.sendable(key, Half::Body)?;
        debug_assert!(self.room(key).is_ok_and(|room| bytes.len() <= room));
        let mut pieces = bytes.chunks(self.peer.max_payload).peekable();
        if bytes.is_empty() && ends {
            frame::write(&mut self.out, frame::DATA, frame::END_STREAM, id, &[]);
        }
        while let Some(piece) = pieces.next() {
            let is_last = ends && pieces.peek().is_none();
            let flags = if is_last { frame::END_STREAM } else { 0 };
            frame::write(&mut self.out, frame::DATA, flags, id, piece);
        }
        let count = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        self.send_window -= count;
        if let Some(stream) = self.streams.get_mut(key) {
            stream.send_window -= count;
        }
        if ends {
            self.has_sent(key, Half::Ended);
        }
        Ok(())
    }

    pub fn reset(&mut self, key: Key, code: ErrorCode) {
        if let Some(stream) = self.streams.get(key)
            && !stream.is_closed()
        {
            let id = stream.id;
            self.write_reset(id, code);
            self.close(key, Reset::Connection);
        }
    }

    /// Frees the stream's place. If it has not ended, the peer is sent a reset.
    pub fn release(&mut self, key: Key) {
        let code = match self.streams.get(key) {
            // The response is whole, and the rest of the request is not needed.
            Some(stream) if stream.sends == Half::Ended && self.role == Role::Server => {
                ErrorCode::NO_ERROR
            }
            _ => ErrorCode::CANCEL,
        };
        self.reset(key, code);
        if let Some(stream) = self.streams.remove(key) {
            for head in stream.heads.into_iter().chain(stream.trailers) {
                self.recycle(head);
            }
        }
    }

    pub(super) fn write_reset(&mut self, id: u32, code: ErrorCode) {
        let payload = code.0.to_be_bytes();
        frame::write(&mut self.out, frame::RST_STREAM, 0, id, &payload);
    }

    /// The number of the stream, if its direction to the peer has come this far.
    fn sendable(&self, key: Key, half: Half) -> Result<u32, Reset> {
        match self.streams.get(key) {
            Some(stream) => match stream.reset {
                Some(reset) => Err(reset),
                None if stream.sends == half => Ok(stream.id),
                None => Err(Reset::Connection),
            },
            None => Err(Reset::Connection),
        }
    }

    fn has_sent(&mut self, key: Key, half: Half) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.sends = half;
        }
        self.close_if_ended(key);
    }

    /// Appends a header block, in as many frames as the peer's limit asks for.
    fn write_block(&mut self, id: u32, ends: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        let header = FrameHeader {
            length: 0,
            kind: frame::HEADERS,
            flags: 0,
            stream: id,
        };
        header.write(&mut self.out);
        debug_assert_eq!(self.out.len(), start + HEADER);
        self.encoder.begin(&mut self.out);
        write(&mut self.out);
        frame::finish_block(&mut self.out, start, self.peer.max_payload, id, ends);
    }
}
