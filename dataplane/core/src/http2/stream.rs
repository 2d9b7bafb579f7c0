//! The streams of one connection: the state of each, and where it is found.

use std::collections::VecDeque;

use super::ErrorCode;
use super::head::Head;

/// A stream's place in its connection. It names the same stream until [`Connection::release`](super::Connection::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u32);

impl Key {
    /// The place as an index. Places are used again, so indices stay small.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a stream was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    ByPeer(ErrorCode),
    /// The peer has done nothing about it, and the request may be sent again elsewhere.
    Refused,
    /// The peer's message was malformed, so that the stream was reset here.
    Malformed,
    /// The connection has ended.
    Connection,
}

/// How far one direction of a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// The head of the message is still to come; of a response also interim heads.
    Head,
    /// The body is under way.
    Body,
    /// All has been said.
    Ended,
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// The direction from the peer.
    pub(super) receives: Half,
    /// The direction to the peer.
    pub(super) sends: Half,
    pub(super) reset: Option<Reset>,
    /// Heads that were received and not taken: that of a request, or those of a response.
    pub(super) heads: VecDeque<Head>,
    /// Bytes of the body that were received and not taken.
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<Head>,
    /// The bytes of the body that `content-length` still announces.
    pub(super) expected: Option<u64>,
    /// How many bytes the peer may still send.
    pub(super) window: i64,
    /// How many bytes of the body have come, or belong to a frame that has begun, and are not yet released.
    pub(super) unreleased: i64,
    /// What `window` and `unreleased` add up to when the peer has been granted everything.
    pub(super) target: i64,
    /// How many bytes the peer accepts.
    pub(super) send_window: i64,
    /// Whether the response to a request of `HEAD`: its length announces no body.
    pub(super) is_head_request: bool,
}

impl Stream {
    pub(super) fn new(id: u32, (window, target): (i64, i64), send_window: i64) -> Self {
        Self {
            id,
            receives: Half::Head,
            sends: Half::Head,
            reset: None,
            heads: VecDeque::new(),
            body: Vec::new(),
            trailers: None,
            expected: None,
            window,
            unreleased: 0,
            target,
            send_window,
            is_head_request: false,
        }
    }

    /// Whether no frame is sent or expected any more.
    pub(super) fn is_closed(&self) -> bool {
        self.reset.is_some() || (self.receives, self.sends) == (Half::Ended, Half::Ended)
    }
}

/// The streams by place and by number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<Option<Stream>>,
    free: Vec<u32>,
    /// The numbers of streams that are not closed, in ascending order, and their places.
    by_id: Vec<(u32, Key)>,
}

impl Streams {
    /// Adds a stream. Its number is higher than those of all before it.
    pub(super) fn add(&mut self, stream: Stream) -> Key {
        let id = stream.id;
        let key = match self.free.pop() {
            Some(free) => Key(free),
            None => {
                self.places.push(None);
                Key(u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if let Some(place) = self.places.get_mut(key.index()) {
            *place = Some(stream);
        }
        self.by_id.push((id, key));
        key
    }

    pub(super) fn get(&self, key: Key) -> Option<&Stream> {
        self.places.get(key.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.places.get_mut(key.index())?.as_mut()
    }

    /// The stream with this number, unless it is closed.
    pub(super) fn find(&self, id: u32) -> Option<Key> {
        let at = self.by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.by_id.get(at).map(|(_, key)| *key)
    }

    /// The number no longer leads to the stream: it is closed.
    pub(super) fn forget_id(&mut self, id: u32) {
        if let Ok(at) = self.by_id.binary_search_by_key(&id, |(id, _)| *id) {
            self.by_id.remove(at);
        }
    }

    /// Frees the place.
    pub(super) fn remove(&mut self, key: Key) -> Option<Stream> {
        let stream = self.places.get_mut(key.index())?.take()?;
        self.free.push(key.0);
        self.forget_id(stream.id);
        Some(stream)
    }

    /// How many there are, closed ones that were not released included.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The streams that are not closed.
    pub(super) fn open(&self) -> impl Iterator<Item = Key> {
        self.by_id.iter().map(|(_, key)| *key)
    }

    pub(super) fn open_count(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = (Key, &mut Stream)> {
        let places = self.places.iter_mut().enumerate();
        places.filter_map(|(place, stream)| {
            let key = Key(u32::try_from(place).unwrap_or(u32::MAX));
            Some((key, stream.as_mut()?))
        })
    }

    /// The memory that all this takes, but for the messages.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.places.capacity() * size_of::<Option<Stream>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_id.capacity() * size_of::<(u32, Key)>()
    }

    /// Frees the memory of places that are not in use, if none is.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            *self = Self::default();
        }
    }
}
