//! A stream of HTTP/2 as a side of an exchange.

use std::cell::Cell;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use ballast_core::forward::Sink;
use ballast_core::http2::Head;

use super::{Broken, Frame};
use crate::net::mux::{Arrived, Stream};

pub(in crate::http) struct H2 {
    pub(in crate::http) stream: Stream,
    /// The head of the request, until an endpoint is connected.
    head: Option<Head>,
    /// Bytes that have arrived, of which the first `passed` have gone on.
    chunk: Vec<u8>,
    passed: usize,
    /// Whether nothing follows the chunk.
    chunk_is_last: bool,
    /// Boxed, because few bodies have trailers.
    trailers: Option<Box<Head>>,
    has_ended: bool,
    window: Window,
}

/// The window of a stream, and the share of memory that it is taken from.
#[derive(Debug)]
struct Window {
    share: Rc<Share>,
    /// The window that every stream begins with, even if nothing is left of the share.
    base: usize,
    /// Bytes by which the window was widened.
    widened: usize,
    /// Bytes of the share that belong to this stream: for both, as far as the share went.
    taken: usize,
    /// Bytes that have gone on since the window was widened last.
    moved: usize,
}

/// The memory that the bodies of one client's requests and responses may take. The first windows of streams are taken even if nothing is
/// left, and no window is widened then.
#[derive(Debug)]
pub(in crate::http) struct Share {
    left: Cell<usize>,
}

impl Share {
    pub(in crate::http) fn new(bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            left: Cell::new(bytes),
        })
    }
}

impl Window {
    fn new(base: usize, share: &Rc<Share>) -> Self {
        let left = share.left.get();
        let taken = base.min(left);
        share.left.set(left - taken);
        Self {
            share: Rc::clone(share),
            base,
            widened: 0,
            taken,
            moved: 0,
        }
    }

    fn size(&self) -> usize {
        self.base + self.widened
    }

    /// Takes as much again as the stream has, if that is left and not too much. Returns the new window.
    fn widen(&mut self) -> Option<u32> {
        let now = self.size();
        let more = now.min(LARGEST_WINDOW.saturating_sub(now));
        let left = self.share.left.get();
        if more == 0 || more > left / 2 {
            return None;
        }
        self.share.left.set(left - more);
        self.widened += more;
        self.taken += more;
        self.moved = 0;
        u32::try_from(now + more).ok()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.share.left.set(self.share.left.get() + self.taken);
    }
}

impl H2 {
    /// A side whose body comes with a window of `base` bytes, which may be widened from `share`. 0: it has no body.
    pub(in crate::http) fn new(stream: Stream, base: usize, share: &Rc<Share>) -> Self {
        Self {
            stream,
            head: None,
            chunk: Vec::new(),
            passed: 0,
            chunk_is_last: false,
            trailers: None,
            has_ended: false,
            window: Window::new(base, share),
        }
    }

    /// The side of a client whose request has this head.
    pub(in crate::http) fn holding(self, head: Head) -> Self {
        Self {
            head: Some(head),
            ..self
        }
    }

    pub(in crate::http) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    pub(super) fn drop_head(&mut self) {
        if let Some(head) = self.head.take() {
            self.stream.recycle(head);
        }
    }

    /// Lets the peer send more before anything of its body has gone on: a client is far away.
    pub(in crate::http) fn expect_body(&mut self) {
        while self.window.size() < FIRST_WINDOW
            && let Some(window) = self.window.widen()
        {
            self.stream.widen(window);
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        most: usize,
        cx: &Context<'_>,
    ) -> Poll<Result<Frame<'_>, Broken>> {
        if self.chunk.is_empty() {
            if self.has_ended {
                return Poll::Ready(Ok(Frame::End));
            }
            match ready!(self.stream.poll_body(cx))? {
                Arrived::Data { bytes, is_last } => {
                    (self.chunk, self.passed, self.chunk_is_last) = (bytes, 0, is_last);
                }
                Arrived::End => {
                    self.has_ended = true;
                    return Poll::Ready(Ok(Frame::End));
                }
                Arrived::Trailers(trailers) => {
                    self.has_ended = true;
                    let trailers = self.trailers.insert(Box::new(trailers));
                    return Poll::Ready(Ok(Frame::Trailers(trailers.fields().collect())));
                }
            }
        }
        let rest = self.chunk.split_at(self.passed).1;
        let bytes = rest.get(..most).unwrap_or(rest);
        let is_last = self.chunk_is_last && bytes.len() == rest.len();
        Poll::Ready(Ok(Frame::Data { bytes, is_last }))
    }

    pub(super) fn passed(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.passed += bytes;
        self.window.moved += bytes;
        if self.passed >= self.chunk.len() {
            self.chunk = Vec::new();
            self.has_ended |= mem::take(&mut self.chunk_is_last);
        }
        self.stream.release(bytes);
        // The other side takes what comes: a larger window lets more of it be on its way.
        if !self.has_ended
            && self.window.moved >= self.window.size()
            && let Some(window) = self.window.widen()
        {
            self.stream.widen(window);
        }
    }

    pub(super) fn push(&self, frame: &Frame<'_>) -> Result<(), Broken> {
        let sent = match frame {
            Frame::Data { bytes, is_last } if bytes.is_empty() && !is_last => Ok(()),
            Frame::Data { bytes, is_last } => self.stream.send(bytes, *is_last),
            Frame::Trailers(trailers) => self.stream.send_trailers(|out| {
                for field in trailers {
                    out.field(field.name, field.value);
                }
            }),
            Frame::End => self.stream.send(&[], true),
        };
        sent.map_err(Broken::from)
    }

    pub(super) fn is_read(&self) -> bool {
        self.has_ended || self.chunk.is_empty() && self.stream.is_read()
    }
}

/// The window of a request's body, if the client's share has room for it.
const FIRST_WINDOW: usize = 64 * 1024;
/// The largest window of a stream.
const LARGEST_WINDOW: usize = 256 * 1024;
