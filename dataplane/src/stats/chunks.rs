//! A rendering, piece by piece, so that no answer is ever whole in memory.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Pieces of a rendering of one snapshot, each of about 64 KiB. Ends by itself.
pub struct Chunks {
    more: Box<More>,
    ahead: Option<Bytes>,
    is_over: bool,
    /// Whether other tasks had their turn since the last piece.
    gave_way: bool,
}

/// Adds a little.
type More = dyn FnMut(&mut Vec<u8>) -> Progress + Send;

/// Whether a rendering is finished.
pub(crate) enum Progress {
    GoesOn,
    /// What was added is a piece, however small: other tasks have their turn before there is more.
    Piece,
    Over,
}

impl Chunks {
    /// `more` adds a little, a row or so, each time that it is called.
    pub(crate) fn new(more: impl FnMut(&mut Vec<u8>) -> Progress + Send + 'static) -> Self {
        Self {
            more: Box::new(more),
            ahead: None,
            is_over: false,
            gave_way: true,
        }
    }

    /// Renders the first piece at once, so that what is small has a known length.
    #[must_use]
    pub fn begun(mut self) -> Self {
        self.ahead = self.next();
        self
    }
}

/// One piece.
impl From<String> for Chunks {
    fn from(text: String) -> Self {
        Self::new(move |out| {
            out.extend_from_slice(text.as_bytes());
            Progress::Over
        })
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over || self.ahead.is_some() {
            return self.ahead.take();
        }
        let mut out = Vec::with_capacity(FULL + ROOM);
        while out.len() < FULL && !self.is_over {
            match (self.more)(&mut out) {
                Progress::GoesOn => {}
                Progress::Piece if out.is_empty() => {}
                Progress::Piece => break,
                Progress::Over => self.is_over = true,
            }
        }
        (!out.is_empty()).then(|| Bytes::from(out))
    }
}

/// The body of an answer: each piece is rendered when the one before has been taken.
impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        this.gave_way = !this.gave_way;
        if this.gave_way && !this.is_over {
            // A fast reader must not keep other tasks waiting.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(this.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.ahead.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_over {
            let length = self.ahead.as_ref().map_or(0, Bytes::len);
            SizeHint::with_exact(length as u64)
        } else {
            SizeHint::default()
        }
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks")
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

const FULL: usize = 64 * 1024;
/// For the row that makes it full.
const ROOM: usize = 4 * 1024;
