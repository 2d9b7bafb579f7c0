//! What the peer sends: from bytes to frames, and what each frame does.

use std::mem;
use std::time::Duration;

use super::PREFACE;
use super::connection::{Connection, DEFAULT_WINDOW, Ending, Event, Role};
use super::frame::{self, ErrorCode, FrameHeader, HEADER, MAX_PAYLOAD, MAX_WINDOW};
use super::stream::{Half, Key, Reset};
use crate::moment::Moment;

/// Where the next byte of the peer belongs.
#[derive(Debug)]
pub(super) enum Input {
    /// To the client's preface, of which `matched` bytes have come.
    Preface { matched: usize },
    /// To the header of a frame, of which `have` bytes have come.
    Header { bytes: [u8; HEADER], have: usize },
    /// To the payload of a frame that is handled as a whole.
    Payload { header: FrameHeader, bytes: Vec<u8> },
    /// To the payload of a DATA frame, which is handled as it comes.
    Data(DataFrame),
    /// To a payload that is ignored.
    Skip { left: usize },
}

impl Default for Input {
    fn default() -> Self {
        Self::Header {
            bytes: [0; HEADER],
            have: 0,
        }
    }
}

/// A DATA frame that is being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataFrame {
    id: u32,
    /// Bytes of the payload that are still to come, those of the padding included.
    left: usize,
    /// The length of the padding; `None`: the byte that states it is still to come.
    padding: Option<usize>,
    /// Bytes of the payload that belong to no body: the padding and its length.
    unused: i64,
    ends: bool,
}

/// The streams that were closed last.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Those that were reset here, so that frames of them may still be on their way.
    reset_here: Recent,
    others: Recent,
}

/// The last numbers of streams.
#[derive(Debug, Default)]
struct Recent {
    numbers: Vec<u32>,
    /// The place of the next one.
    next: usize,
}

impl Recent {
    fn add(&mut self, id: u32, most: usize) {
        match self.numbers.get_mut(self.next) {
            Some(oldest) => *oldest = id,
            None => self.numbers.push(id),
        }
        self.next = (self.next + 1) % most;
    }
}

impl Closed {
    pub(super) fn add(&mut self, id: u32, is_reset_here: bool) {
        if is_reset_here {
            self.reset_here.add(id, MOST_RESET_HERE);
        } else {
            self.others.add(id, MOST_CLOSED);
        }
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let numbers = self.reset_here.numbers.capacity() + self.others.numbers.capacity();
        numbers * size_of::<u32>()
    }

    /// Whether the stream was reset here; `None`: it is not known.
    pub(super) fn find(&self, id: u32) -> Option<bool> {
        match id {
            id if self.reset_here.numbers.contains(&id) => Some(true),
            id if self.others.numbers.contains(&id) => Some(false),
            _ => None,
        }
    }
}

/// What frames of the peer cost beyond their bytes, in a short time.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// That of the last frame.
    new: u32,
    sum: u32,
    since: Moment,
}

impl Costs {
    pub(super) fn add(&mut self, cost: u32) {
        self.new += cost;
    }

    /// Adds up what was added. The error: it is too much.
    fn check(&mut self, now: Moment) -> Result<(), ErrorCode> {
        if self.new == 0 {
            return Ok(());
        }
        if now.since(self.since) >= COSTS_IN {
            (self.sum, self.since) = (0, now);
        }
        self.sum += mem::take(&mut self.new);
        if self.sum > MOST_COSTS {
            Err(ErrorCode::ENHANCE_YOUR_CALM)
        } else {
            Ok(())
        }
    }
}

impl Connection {
    /// Takes in the peer's next bytes, all of them, and appends to `events` what they mean. After an error the connection is to be
    /// closed, once the output has been sent.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: Moment,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        if let Ending::Failed(code) = self.ending {
            return Err(code);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = self.step(rest, now, events);
            match step.and_then(|used| self.costs.check(now).map(|()| used)) {
                Ok(used) => rest = rest.split_at(used).1,
                Err(code) => {
                    self.fail(code, events);
                    return Err(code);
                }
            }
        }
        let is_incomplete = match &self.input {
            Input::Header { have, .. } => *have > 0 || self.block.is_some(),
            Input::Preface { .. } | Input::Payload { .. } => true,
            Input::Data(_) | Input::Skip { .. } => false,
        };
        if is_incomplete {
            _ = self.incomplete_since.get_or_insert(now);
        } else {
            self.incomplete_since = None;
        }
        Ok(())
    }

    /// Takes in some of the bytes, at least one, and returns how many.
    fn step(
        &mut self,
        bytes: &[u8],
        now: Moment,
        events: &mut Vec<Event>,
    ) -> Result<usize, ErrorCode> {
        match &mut self.input {
            Input::Preface { matched } => {
                let expected = &PREFACE[*matched..];
                let count = expected.len().min(bytes.len());
                if bytes.get(..count) != expected.get(..count) {
                    return Err(ErrorCode::PROTOCOL_ERROR);
                }
                *matched += count;
                if *matched == PREFACE.len() {
                    self.input = Input::default();
                    self.incomplete_since = None;
                }
                Ok(count)
            }
            Input::Header { bytes: room, have } => {
                let missing = &mut room[*have..];
                let count = missing.len().min(bytes.len());
                for (place, byte) in missing.iter_mut().zip(bytes) {
                    *place = *byte;
                }
                *have += count;
                if *have < HEADER {
                    return Ok(count);
                }
                let header = FrameHeader::parse(*room);
                let behind = bytes.split_at(count).1;
                Ok(count + self.begin_frame(header, behind, now, events)?)
            }
            Input::Payload {
                header,
                bytes: held,
            } => {
                let count = (header.length - held.len()).min(bytes.len());
                held.extend_from_slice(bytes.split_at(count).0);
                if held.len() == header.length {
                    let (header, payload) = (*header, mem::take(held));
                    self.input = Input::default();
                    self.whole_frame(header, &payload, now, events)?;
                }
                Ok(count)
            }
            Input::Data(data) => {
                let data = *data;
                self.data(data, bytes, events)
            }
            Input::Skip { left } => {
                let count = (*left).min(bytes.len());
                *left -= count;
                if *left == 0 {
                    self.input = Input::default();
                }
                Ok(count)
            }
        }
    }

    /// Begins a frame. Returns how many of the bytes behind its header were used.
    fn begin_frame(
        &mut self,
        header: FrameHeader,
        behind: &[u8],
        now: Moment,
        events: &mut Vec<Event>,
    ) -> Result<usize, ErrorCode> {
        if header.length > MAX_PAYLOAD {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let continues = header.kind == frame::CONTINUATION;
        let is_expected = match &self.block {
            Some(block) => continues && block.id == header.stream,
            None => !continues,
        };
        if !is_expected {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let is_settings = header.kind == frame::SETTINGS && !header.has(frame::ACK);
        if !mem::replace(&mut self.has_settings, true) && !is_settings {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        self.input = Input::default();
        match header.kind {
            frame::DATA => {
                self.incomplete_since = None;
                self.begin_data(header, events).map(|()| 0)
            }
            frame::HEADERS..=frame::CONTINUATION => match behind.get(..header.length) {
                Some(payload) => {
                    self.whole_frame(header, payload, now, events)?;
                    Ok(header.length)
                }
                None => {
                    let bytes = Vec::with_capacity(header.length);
                    self.input = Input::Payload { header, bytes };
                    Ok(0)
                }
            },
            // RFC 9113, section 5.5: frames of unknown kinds are ignored.
            _ => {
                self.incomplete_since = None;
                if header.length > 0 {
                    let left = header.length;
                    self.input = Input::Skip { left };
                }
                Ok(0)
            }
        }
    }

    fn whole_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        now: Moment,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let handled = match header.kind {
            frame::HEADERS => self.headers(header, payload, now, events),
            frame::CONTINUATION => self.continuation(header, payload, events),
            frame::PRIORITY => self.priority(header, payload, events),
            frame::RST_STREAM => self.rst_stream(header, payload, events),
            frame::SETTINGS => self.settings(header, payload, events),
            frame::PING => self.pinged(header, payload),
            frame::GOAWAY => self.goaway(header, payload, events),
            frame::WINDOW_UPDATE => self.window_update(header, payload, events),
            // PUSH_PROMISE: Ballast does not allow it.
            _ => Err(ErrorCode::PROTOCOL_ERROR),
        };
        if self.block.is_none() {
            self.incomplete_since = None;
        }
        handled
    }

    /// Whether no frame can belong to this stream yet.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        let is_from_peer = (id % 2 == 1) == (self.role == Role::Server);
        if is_from_peer {
            id > self.last_from_peer
        } else {
            self.role == Role::Server || id >= self.next_id
        }
    }

    fn begin_data(
        &mut self,
        header: FrameHeader,
        events: &mut Vec<Event>,
    ) -> Result<(), ErrorCode> {
        let (id, length) = (header.stream, header.length);
        if id == 0 || self.is_idle(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let is_padded = header.has(frame::PADDED);
        if is_padded && length == 0 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let counted = i64::try_from(length).unwrap_or(MAX_WINDOW);
        self.window -= counted;
        if self.window < 0 {
            return Err(ErrorCode::FLOW_CONTROL_ERROR);
        }
        if MAX_WINDOW - self.window > DEFAULT_WINDOW {
            // The peer knows of a window that was stated behind our settings, so it has read them, too.
            self.confirmed();
        }
        if self.window < MAX_WINDOW / 2 {
            self.open_window();
        }
        if let Err(code) = self.admit_data(id, counted) {
            match self.streams.find(id) {
                Some(key) => self.fail_stream(key, code, events),
                // The peer may not know yet that it was reset here.
                None if self.closed.find(id) == Some(true) => {}
                None => self.write_reset(id, code),
            }
            if length > 0 {
                self.input = Input::Skip { left: length };
            }
            return Ok(());
        }
        let data = DataFrame {
            id,
            left: length,
            padding: (!is_padded).then_some(0),
            unused: 0,
            ends: header.has(frame::END_STREAM),
        };
        if !is_padded {
            self.count_body(id, length, events);
        }
        if length == 0 {
            self.end_data(data, events);
        } else {
            self.input = Input::Data(data);
        }
        Ok(())
    }

    /// Counts the length of a DATA frame against the window of its stream. Bytes that are still to come are not released either.
    fn admit_data(&mut self, id: u32, length: i64) -> Result<(), ErrorCode> {
        let key = self.streams.find(id).ok_or(ErrorCode::STREAM_CLOSED)?;
        let stream = self.streams.get_mut(key).ok_or(ErrorCode::STREAM_CLOSED)?;
        match stream.receives {
            Half::Head => return Err(ErrorCode::PROTOCOL_ERROR),
            Half::Ended => return Err(ErrorCode::STREAM_CLOSED),
            Half::Body => {}
        }
        // A frame without bytes needs no window, not even one that our settings have made negative.
        if length > 0 && stream.window < length {
            return Err(ErrorCode::FLOW_CONTROL_ERROR);
        }
        stream.window -= length;
        stream.unreleased += length;
        Ok(())
    }

    /// Takes in bytes of a DATA frame, at least one, and returns how many.
    fn data(
        &mut self,
        mut data: DataFrame,
        bytes: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<usize, ErrorCode> {
        let mut used = 0;
        let padding = match data.padding {
            Some(padding) => padding,
            None => {
                let padding = usize::from(bytes.first().copied().unwrap_or_default());
                used = 1;
                data.left -= 1;
                if padding > data.left {
                    return Err(ErrorCode::PROTOCOL_ERROR);
                }
                data.padding = Some(padding);
                data.unused = i64::try_from(padding).unwrap_or(MAX_WINDOW) + 1;
                self.count_body(data.id, data.left - padding, events);
                padding
            }
        };
        let behind = bytes.split_at(used).1;
        let count = data.left.saturating_sub(padding).min(behind.len());
        if count > 0 {
            self.body(data.id, behind.split_at(count).0, events);
            data.left -= count;
            used += count;
        }
        if data.left == padding {
            // The rest are padding bytes.
            let skipped = data.left.min(bytes.len() - used);
            data.left -= skipped;
            used += skipped;
            data.padding = Some(data.left);
        }
        self.input = Input::Data(data);
        if data.left == 0 {
            self.input = Input::default();
            self.end_data(data, events);
        }
        Ok(used)
    }

    /// Counts the bytes of the body that a frame brings against the length that the head has stated. More than that end the stream
    /// before any of them counts, so that it does not matter in which pieces the frame comes.
    fn count_body(&mut self, id: u32, count: usize, events: &mut Vec<Event>) {
        let Some(key) = self.streams.find(id) else {
            return;
        };
        let stream = self.streams.get_mut(key);
        let Some(expected) = stream.and_then(|stream| stream.expected.as_mut()) else {
            return;
        };
        match expected.checked_sub(count as u64) {
            Some(left) => *expected = left,
            None => self.fail_stream(key, ErrorCode::PROTOCOL_ERROR, events),
        }
    }

    /// Adds bytes to the body of a stream.
    fn body(&mut self, id: u32, bytes: &[u8], events: &mut Vec<Event>) {
        let Some(key) = self.streams.find(id) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        stream.body.extend_from_slice(bytes);
        events.push(Event::Changed(key));
    }

    fn end_data(&mut self, data: DataFrame, events: &mut Vec<Event>) {
        let Some(key) = self.streams.find(data.id) else {
            return;
        };
        if data.ends {
            self.end_of_body(key, events);
        } else if let Some(stream) = self.streams.get_mut(key) {
            // Padding counts against the window, and has gone on already.
            stream.unreleased -= data.unused;
            self.update_window(key);
        }
    }

    /// The peer has said all on this stream.
    pub(super) fn end_of_body(&mut self, key: Key, events: &mut Vec<Event>) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        if stream.expected.is_some_and(|left| left > 0) {
            return self.fail_stream(key, ErrorCode::PROTOCOL_ERROR, events);
        }
        stream.receives = Half::Ended;
        events.push(Event::Changed(key));
        self.close_if_ended(key);
    }

    /// Resets a stream because of what the peer has sent on it.
    pub(super) fn fail_stream(&mut self, key: Key, code: ErrorCode, events: &mut Vec<Event>) {
        if let Some(id) = self.streams.get(key).map(|stream| stream.id) {
            self.count_given_up(key);
            self.write_reset(id, code);
            self.close(key, Reset::Malformed);
            events.push(Event::Changed(key));
        }
    }

    /// Counts a stream that the client has ended, by a reset of its own or by having it reset here, before its answer has ended.
    pub(super) fn count_given_up(&mut self, key: Key) {
        let stream = self.streams.get(key);
        if let Some(stream) = stream.filter(|_| self.role == Role::Server) {
            self.costs.add(match stream.sends {
                Half::Head => COST_OF_UNANSWERED,
                Half::Body => COST_OF_HALF_ANSWERED,
                Half::Ended => 0,
            });
        }
    }
}

/// Closed streams that are remembered. Frames of older ones are answered as if the peer knew that they are closed.
const MOST_CLOSED: usize = 64;
/// The same of streams that were reset here: as many as there may be at once, whose last frames may all be on their way.
const MOST_RESET_HERE: usize = 1_000;
/// What frames may cost in [`COSTS_IN`].
const MOST_COSTS: u32 = 1_000;
const COSTS_IN: Duration = Duration::from_secs(10);
/// A request that the client gives up before it is answered. It may have cost a connection to an endpoint.
pub(super) const COST_OF_UNANSWERED: u32 = 5;
/// One whose answer has begun, as when somebody leaves a page that is still loading.
const COST_OF_HALF_ANSWERED: u32 = 1;
