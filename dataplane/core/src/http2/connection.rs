//! One end of a connection: its state, its settings, and how it ends.

use std::mem;

use super::PREFACE;
use super::frame::{self, ErrorCode, MAX_PAYLOAD, MAX_WINDOW};
use super::head::Head;
use super::headers::Block;
use super::hpack;
use super::receive::{Closed, Costs, Input};
use super::stream::{Half, Key, Reset, Stream, Streams};
use crate::moment::Moment;

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) input: Input,
    /// A header block of which more is to come.
    pub(super) block: Option<Block>,
    /// When the frame or the header block that is not complete began.
    pub(super) incomplete_since: Option<Moment>,
    pub(super) decoder: hpack::Decoder,
    pub(super) encoder: hpack::Encoder,
    pub(super) streams: Streams,
    /// Streams that were closed not long ago.
    pub(super) closed: Closed,
    /// Bytes for the peer, of which the first `sent` have been sent.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    pub(super) peer: PeerSettings,
    /// Whether the peer has sent its settings, and whether it has confirmed ours.
    pub(super) has_settings: bool,
    pub(super) is_confirmed: bool,
    /// How many bytes the peer may send, and how many it accepts, on all streams together.
    pub(super) window: i64,
    pub(super) send_window: i64,
    /// The highest stream that the peer has opened.
    pub(super) last_from_peer: u32,
    /// The next stream that is opened here.
    pub(super) next_id: u32,
    pub(super) ending: Ending,
    /// The peer takes no requests above this stream.
    pub(super) peer_takes_up_to: Option<u32>,
    pub(super) costs: Costs,
    /// A head whose memory serves the next message.
    pub(super) spare: Vec<Head>,
}

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Client,
}

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The most streams that the peer may open at once.
    pub max_streams: u32,
    /// How many bytes of a body the peer may send before they have gone on.
    pub window: u32,
    /// The most bytes of a head: names, values, and 32 bytes for each field.
    pub max_head: usize,
}

/// What the peer's settings say.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) window: i64,
    pub(super) max_payload: usize,
    pub(super) max_streams: u32,
}

/// How far the end of the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    No,
    /// A GOAWAY has been sent, and the peer may have opened streams before it heard of it.
    Announced,
    /// No stream above this one is served.
    Last(u32),
    /// The connection cannot go on.
    Failed(ErrorCode),
}

/// What the peer's bytes have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The head of a request has arrived.
    Request(Key),
    /// Something has arrived for this stream, its window has grown, or it has been reset.
    Changed(Key),
    /// The windows of all streams may have grown.
    AllChanged,
}

impl Connection {
    /// The server's end of a connection whose preface has not been read.
    pub fn server(config: Config) -> Self {
        let mut connection = Self::new(Role::Server, config);
        connection.write_settings(&[
            (frame::SETTINGS_MAX_CONCURRENT_STREAMS, config.max_streams),
            (frame::SETTINGS_INITIAL_WINDOW_SIZE, config.window),
            (frame::SETTINGS_MAX_HEADER_LIST_SIZE, max_head(&config)),
        ]);
        connection
    }

    /// The client's end of a new connection.
    pub fn client(config: Config) -> Self {
        let mut connection = Self::new(Role::Client, config);
        connection.out.extend_from_slice(PREFACE);
        connection.write_settings(&[
            (frame::SETTINGS_ENABLE_PUSH, 0),
            (frame::SETTINGS_INITIAL_WINDOW_SIZE, config.window),
            (frame::SETTINGS_MAX_HEADER_LIST_SIZE, max_head(&config)),
        ]);
        connection
    }

    fn new(role: Role, config: Config) -> Self {
        Self {
            role,
            config,
            input: match role {
                Role::Server => Input::Preface { matched: 0 },
                Role::Client => Input::default(),
            },
            block: None,
            incomplete_since: None,
            decoder: hpack::Decoder::new(),
            encoder: hpack::Encoder::default(),
            streams: Streams::default(),
            closed: Closed::default(),
            out: Vec::new(),
            sent: 0,
            peer: PeerSettings {
                window: DEFAULT_WINDOW,
                max_payload: MAX_PAYLOAD,
                max_streams: STREAMS_BEFORE_SETTINGS,
            },
            has_settings: false,
            is_confirmed: false,
            window: DEFAULT_WINDOW,
            send_window: DEFAULT_WINDOW,
            last_from_peer: 0,
            next_id: 1,
            ending: Ending::No,
            peer_takes_up_to: None,
            costs: Costs::default(),
            spare: Vec::new(),
        }
    }

    fn write_settings(&mut self, settings: &[(u16, u32)]) {
        let mut payload = Vec::with_capacity(settings.len() * 6);
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(&mut self.out, frame::SETTINGS, 0, 0, &payload);
        self.open_window();
    }

    /// Lets the peer send as much as the protocol can express, on all streams together.
    pub(super) fn open_window(&mut self) {
        let more = u32::try_from(MAX_WINDOW - self.window).unwrap_or_default();
        self.window = MAX_WINDOW;
        self.write_window_update(0, more);
    }

    pub(super) fn write_window_update(&mut self, id: u32, more: u32) {
        let payload = more.to_be_bytes();
        frame::write(&mut self.out, frame::WINDOW_UPDATE, 0, id, &payload);
    }

    /// The bytes that wait to be sent.
    pub fn output(&self) -> &[u8] {
        self.out.split_at(self.sent).1
    }

    /// Notes that the first `count` bytes of the output have been sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.out.len() {
            self.sent = 0;
            match self.streams.len() {
                0 => self.out = Vec::new(),
                _ => self.out.clear(),
            }
        } else if self.sent >= self.out.len() / 2 {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// How many streams there are, those included that have ended and were not released.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// When the frame or the head began of which the peer has sent a part; `None`: nothing is incomplete.
    pub fn incomplete_since(&self) -> Option<Moment> {
        self.incomplete_since
    }

    /// Whether the peer has begun to speak HTTP/2.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Server: tells the client to open no further streams. Those that it opens before it has heard of it are served.
    pub fn shut_down(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Announced;
            self.write_goaway((1 << 31) - 1, ErrorCode::NO_ERROR);
            frame::write(&mut self.out, frame::PING, 0, 0, &LAST_PING);
        }
    }

    /// Whether the peer has heard that the connection ends, so that all streams that it will ever open are known.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.ending, Ending::Last(_) | Ending::Failed(_))
    }

    /// The client has confirmed that it knows of the end.
    pub(super) fn confirm_end(&mut self) {
        if self.ending == Ending::Announced {
            self.ending = Ending::Last(self.last_from_peer);
            self.write_goaway(self.last_from_peer, ErrorCode::NO_ERROR);
        }
    }

    /// Ends the connection with an error. All its streams have failed.
    pub fn fail(&mut self, code: ErrorCode, events: &mut Vec<Event>) {
        let last = match self.ending {
            Ending::No | Ending::Announced => Some(self.last_from_peer),
            // A number that was stated is never raised.
            Ending::Last(last) => Some(last),
            Ending::Failed(_) => None,
        };
        if let Some(last) = last {
            self.ending = Ending::Failed(code);
            self.write_goaway(last, code);
        }
        // Nothing more is read, so nothing waits for the rest of a frame.
        self.incomplete_since = None;
        self.lose_streams(events);
    }

    /// The connection has ended. All its streams that had not ended have failed.
    pub fn end(&mut self, events: &mut Vec<Event>) {
        self.ending = Ending::Failed(ErrorCode::NO_ERROR);
        self.lose_streams(events);
    }

    fn lose_streams(&mut self, events: &mut Vec<Event>) {
        let open: Vec<_> = self.streams.open().collect();
        for key in open {
            self.close(key, Reset::Connection);
            events.push(Event::Changed(key));
        }
    }

    fn write_goaway(&mut self, last: u32, code: ErrorCode) {
        let mut payload = [0; 8];
        let (first, second) = payload.split_at_mut(4);
        first.copy_from_slice(&last.to_be_bytes());
        second.copy_from_slice(&code.0.to_be_bytes());
        frame::write(&mut self.out, frame::GOAWAY, 0, 0, &payload);
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self) {
        frame::write(&mut self.out, frame::PING, 0, 0, &[0; 8]);
    }

    /// Client: whether the endpoint takes another request by this connection.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.ending == Ending::No && self.peer_takes_up_to.is_none() && self.next_id < LAST_ID
    }

    /// Client: whether the endpoint takes another request now.
    pub fn has_room(&self) -> bool {
        self.takes_requests() && self.streams.open_count() < self.peer.max_streams as usize
    }

    /// The head that has arrived for a stream, and why there will be none. There is none where what has come behind it is malformed:
    /// an answer of another kind can still take its place.
    pub fn take_head(&mut self, key: Key) -> Result<Option<Head>, Reset> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Err(Reset::Connection);
        };
        match (stream.heads.pop_front(), stream.reset) {
            (_, Some(Reset::Malformed)) => Err(Reset::Malformed),
            (Some(head), _) => Ok(Some(head)),
            (None, None) => Ok(None),
            (None, Some(reset)) => Err(reset),
        }
    }

    /// Gives back a head that is no longer needed, for its memory.
    pub fn recycle(&mut self, mut head: Head) {
        if self.spare.len() < MOST_SPARE && head.capacity() <= LARGEST_SPARE {
            head.clear();
            self.spare.push(head);
        }
    }

    /// The bytes of the body that have arrived, with the buffer that holds them. They count against the stream's window until
    /// they are [released](Self::release).
    pub fn take_body(&mut self, key: Key) -> Vec<u8> {
        let stream = self.streams.get_mut(key);
        stream
            .map(|stream| mem::take(&mut stream.body))
            .unwrap_or_default()
    }

    /// Whether the body has ended, once all its bytes were taken.
    pub fn body_end(&self, key: Key) -> Result<bool, Reset> {
        let Some(stream) = self.streams.get(key) else {
            return Err(Reset::Connection);
        };
        match (stream.receives, stream.reset) {
            (Half::Ended, _) => Ok(true),
            (_, None) => Ok(false),
            (_, Some(reset)) => Err(reset),
        }
    }

    /// Whether nothing is left to take: neither bytes nor trailers, and no more will come.
    pub fn is_read(&self, key: Key) -> bool {
        self.streams.get(key).is_none_or(|stream| {
            let is_taken = stream.body.is_empty() && stream.trailers.is_none();
            stream.receives == Half::Ended && is_taken
        })
    }

    /// Whether trailers are behind the body.
    pub fn has_trailers(&self, key: Key) -> bool {
        let stream = self.streams.get(key);
        stream.is_some_and(|stream| stream.trailers.is_some())
    }

    /// The trailers behind the body.
    pub fn take_trailers(&mut self, key: Key) -> Option<Head> {
        self.streams.get_mut(key)?.trailers.take()
    }

    /// Bytes of a body have gone on: the peer may send as many more.
    pub fn release_body(&mut self, key: Key, count: usize) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.unreleased -= i64::try_from(count).unwrap_or_default();
            self.update_window(key);
        }
    }

    /// Lets the peer send `target` bytes before they have gone on.
    pub fn widen(&mut self, key: Key, target: u32) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.target = stream.target.max(target.into());
            self.update_window(key);
        }
    }

    /// Tells the peer of a larger window, if that is worth a frame.
    pub(super) fn update_window(&mut self, key: Key) {
        // What the peer's window grows by as soon as it has read our settings.
        let is_coming = if self.is_confirmed {
            0
        } else {
            (i64::from(self.config.window) - DEFAULT_WINDOW).max(0)
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let due = stream.target - stream.window - stream.unreleased - is_coming;
        if stream.receives == Half::Ended || stream.reset.is_some() {
            return;
        }
        // A peer may wait until it can send a whole frame.
        let is_low = stream.unreleased == 0 && stream.window < WHOLE_FRAME;
        // Before the peer has confirmed our settings, its window may be larger than the target. A window is never made smaller.
        if due <= 0 || due * 2 < stream.target && !is_low {
            return;
        }
        stream.window += due;
        let (id, due) = (stream.id, u32::try_from(due).unwrap_or_default());
        self.write_window_update(id, due);
    }

    /// Why the stream has been reset, if it has.
    #[must_use]
    pub fn reset_reason(&self, key: Key) -> Option<Reset> {
        match self.streams.get(key) {
            Some(stream) => stream.reset,
            None => Some(Reset::Connection),
        }
    }

    /// Closes the stream for the peer. Its place stays until it is released.
    pub(super) fn close(&mut self, key: Key, reset: Reset) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.reset.get_or_insert(reset);
            let id = stream.id;
            self.streams.forget_id(id);
            self.closed.add(id, !matches!(reset, Reset::ByPeer(_)));
        }
    }

    /// Notes the end of one direction.
    pub(super) fn close_if_ended(&mut self, key: Key) {
        if let Some(stream) = self.streams.get(key)
            && stream.is_closed()
        {
            let id = stream.id;
            self.streams.forget_id(id);
            self.closed.add(id, false);
        }
    }

    pub(super) fn add(&mut self, id: u32) -> Key {
        let target = self.config.window.into();
        let window = if self.is_confirmed {
            target
        } else {
            DEFAULT_WINDOW
        };
        let stream = Stream::new(id, (window, target), self.peer.window);
        self.streams.add(stream)
    }

    /// Gives back the memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.spare = Vec::new();
        self.decoder.shrink();
        self.streams.shrink();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }
}

fn max_head(config: &Config) -> u32 {
    u32::try_from(config.max_head).unwrap_or(u32::MAX)
}

/// Every connection and every stream begins with this window, unless settings say otherwise.
pub(super) const DEFAULT_WINDOW: i64 = 65_535;
/// The longest frame that a peer may send.
const WHOLE_FRAME: i64 = MAX_PAYLOAD as i64;
/// A server that has not stated its limit takes this number of requests at once.
const STREAMS_BEFORE_SETTINGS: u32 = 100;
/// Streams above this one are not opened: the next connection begins with the first one.
const LAST_ID: u32 = (1 << 31) - 1;
/// Heads whose memory is kept for the next messages.
const MOST_SPARE: usize = 8;
/// A head that holds more memory is not kept.
const LARGEST_SPARE: usize = 4 * 1024;
/// The client's answer to this PING shows that it has read the GOAWAY before it.
pub(super) const LAST_PING: [u8; 8] = *b"goodbye.";
