//! A rendering, piece by piece, so that no answer is ever whole in memory.

use std::fmt;

use hyper::body::Bytes;

/// Pieces of a rendering of one snapshot, each of about 64 KiB. Ends by itself.
pub struct Chunks {
    more: Box<More>,
    is_over: bool,
}

/// Adds a little.
type More = dyn FnMut(&mut Vec<u8>) -> Progress + Send;

/// Whether a rendering is finished.
pub(super) enum Progress {
    GoesOn,
    Over,
}

impl Chunks {
    /// `more` adds a little, a row or so, each time that it is called.
    pub(super) fn new(more: impl FnMut(&mut Vec<u8>) -> Progress + Send + 'static) -> Self {
        Self {
            more: Box::new(more),
            is_over: false,
        }
    }
}

impl Iterator for Chunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::with_capacity(FULL + ROOM);
        while out.len() < FULL && !self.is_over {
            self.is_over = matches!((self.more)(&mut out), Progress::Over);
        }
        (!out.is_empty()).then(|| Bytes::from(out))
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
