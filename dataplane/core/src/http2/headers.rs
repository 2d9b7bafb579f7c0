//! Header blocks: collected from their frames, decoded, and given to their streams.

use std::mem;

use super::connection::{Connection, Ending, Event, Role};
use super::frame::{self, ErrorCode, FrameHeader, MAX_PAYLOAD, number};
use super::head::{Head, Kind, Unusable};
use super::receive::COST_OF_UNANSWERED;
use super::stream::{Half, Key};
use crate::moment::Moment;

/// A header block of which fragments have come.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: u32,
    ends: bool,
    /// Whether the stream depends on itself.
    is_circular: bool,
    bytes: Vec<u8>,
}

impl Connection {
    pub(super) fn headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: Moment,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let id = header.stream;
        if id.is_multiple_of(2) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let mut fragment = payload;
        if header.has(frame::PADDED) {
            let (padding, rest) = fragment.split_first().ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
            let kept = rest.len().checked_sub(usize::from(*padding));
            fragment = kept
                .and_then(|kept| rest.get(..kept))
                .ok_or(ErrorCode::PROTOCOL_ERROR)?;
        }
        let mut is_circular = false;
        if header.has(frame::HAS_PRIORITY) {
            is_circular = number(fragment).ok_or(ErrorCode::FRAME_SIZE_ERROR)? == id;
            fragment = fragment.get(5..).ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
        }
        let block = Block {
            id,
            ends: header.has(frame::END_STREAM),
            is_circular,
            bytes: Vec::new(),
        };
        if header.has(frame::END_HEADERS) {
            return self.whole_block(&block, fragment, events);
        }
        let bytes = fragment.to_vec();
        self.block = Some(Block { bytes, ..block });
        self.incomplete_since.get_or_insert(now);
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let mut block = self.block.take().ok_or(ErrorCode::PROTOCOL_ERROR)?;
        block.bytes.extend_from_slice(payload);
        if block.bytes.len() > self.config.max_head.max(MAX_PAYLOAD) {
            // Not even as an error it can be answered: the block would have to be decoded first.
            return Err(ErrorCode::ENHANCE_YOUR_CALM);
        }
        if !header.has(frame::END_HEADERS) {
            // An empty fragment costs the peer nothing, and is of no use.
            let is_useless = payload.is_empty();
            self.block = Some(block);
            return if is_useless {
                Err(ErrorCode::ENHANCE_YOUR_CALM)
            } else {
                Ok(())
            };
        }
        let bytes = mem::take(&mut block.bytes);
        self.whole_block(&block, &bytes, events)
    }

    /// Handles a header block. Whatever becomes of it, it must be decoded, because the decoder's state follows the peer's.
    fn whole_block(
        &mut self,
        block: &Block,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let found = self.streams.find(block.id);
        let stream = found.and_then(|key| self.streams.get(key));
        let kind = match (self.role, stream.map(|stream| stream.receives)) {
            (Role::Server, None) => Kind::Request,
            (Role::Client, None | Some(Half::Head)) => Kind::Response,
            (_, Some(_)) => Kind::Trailers,
        };
        let mut head = self.spare.pop().unwrap_or_default();
        let decoded = head.decode(&mut self.decoder, bytes, kind, self.config.max_head);
        match decoded {
            Err(Unusable::Compression) => return Err(ErrorCode::COMPRESSION_ERROR),
            Err(Unusable::TooMuch) => return Err(ErrorCode::ENHANCE_YOUR_CALM),
            Ok(()) | Err(Unusable::Malformed) => {}
        }
        let head = match decoded {
            Ok(()) if !block.is_circular => Ok(head),
            _ => {
                self.recycle(head);
                Err(ErrorCode::PROTOCOL_ERROR)
            }
        };
        match (found, self.role) {
            (Some(key), _) if kind == Kind::Response => {
                self.response(key, head, block.ends, events)
            }
            (Some(key), _) => self.trailers(key, head, block.ends, events),
            (None, Role::Server) => self.request(block, head, events),
            (None, Role::Client) if self.is_idle(block.id) => Err(ErrorCode::PROTOCOL_ERROR),
            // The response to a request that was given up.
            (None, Role::Client) => Ok(()),
        }
    }

    /// The head of a new request.
    fn request(
        &mut self,
        block: &Block,
        head: Result<Head, ErrorCode>,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let id = block.id;
        if id <= self.last_from_peer {
            return match self.closed.find(id) {
                Some(true) => Ok(()),
                Some(false) => Err(ErrorCode::STREAM_CLOSED),
                // Numbers that were left out cannot be used any more.
                None => Err(ErrorCode::PROTOCOL_ERROR),
            };
        }
        self.last_from_peer = id;
        if let Ending::Last(_) = self.ending {
            // Further frames of the stream are ignored as well.
            self.closed.add(id, true);
            return Ok(());
        }
        let most = self.config.max_streams as usize;
        let is_full =
            self.streams.open_count() >= most || self.streams.len() >= most.saturating_mul(2);
        let admitted = match head {
            Ok(_) if is_full => Err(ErrorCode::REFUSED_STREAM),
            Ok(head) if block.ends && head.length().is_some_and(|length| length > 0) => {
                Err(ErrorCode::PROTOCOL_ERROR)
            }
            head => head,
        };
        let head = match admitted {
            Ok(head) => head,
            Err(code) => {
                self.write_reset(id, code);
                self.closed.add(id, true);
                // A client may send more requests than it is allowed before it has read our settings.
                if self.is_confirmed || code != ErrorCode::REFUSED_STREAM {
                    self.costs.add(COST_OF_UNANSWERED);
                }
                return Ok(());
            }
        };
        let key = self.add(id);
        if let Some(stream) = self.streams.get_mut(key) {
            stream.expected = head.length();
            stream.receives = Half::Body;
            stream.heads.push_back(head);
        }
        events.push(Event::Request(key));
        if block.ends {
            self.end_of_body(key, events);
        }
        Ok(())
    }

    /// The head of a response, or of an interim one.
    fn response(
        &mut self,
        key: Key,
        head: Result<Head, ErrorCode>,
        ends: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        let has_body = |status| !stream.is_head_request && !matches!(status, 204 | 304);
        let expected = |head: &Head| {
            if has_body(head.status()) {
                head.length()
            } else {
                Some(0)
            }
        };
        let head = head.ok().filter(|head| {
            let is_possible = match head.status() {
                101 => false,
                ..200 => !ends,
                _ => !ends || expected(head).is_none_or(|length| length == 0),
            };
            is_possible && !head.is_too_large() && stream.heads.len() < MOST_HEADS
        });
        let Some(head) = head else {
            self.fail_stream(key, ErrorCode::PROTOCOL_ERROR, events);
            return Ok(());
        };
        if head.status() >= 200 {
            stream.expected = expected(&head);
            stream.receives = Half::Body;
        }
        stream.heads.push_back(head);
        events.push(Event::Changed(key));
        if ends {
            self.end_of_body(key, events);
        }
        Ok(())
    }

    /// A header block behind the body.
    fn trailers(
        &mut self,
        key: Key,
        head: Result<Head, ErrorCode>,
        ends: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(());
        };
        let code = match head {
            _ if stream.receives == Half::Ended => ErrorCode::STREAM_CLOSED,
            Ok(head) if ends && !head.is_too_large() => {
                stream.trailers = Some(head);
                self.end_of_body(key, events);
                return Ok(());
            }
            Ok(_) | Err(_) => ErrorCode::PROTOCOL_ERROR,
        };
        self.fail_stream(key, code, events);
        Ok(())
    }
}

/// Heads of one stream that wait to be taken: interim responses, and the final one.
const MOST_HEADS: usize = 8;
