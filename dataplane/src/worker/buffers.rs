//! The buffers of one worker's HTTP connections. A connection that waits for a request holds none.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::net::relay::RelaySide;

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// All of their bytes are initialized, so that a read need not clear them.
    reads: RefCell<Vec<Vec<u8>>>,
    writes: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// An empty buffer to write to, which returns here when it is dropped.
    pub(crate) fn for_writing(self: &Rc<Self>) -> WriteBuffer {
        WriteBuffer {
            bytes: self.writes.borrow_mut().pop().unwrap_or_default(),
            pool: Rc::clone(self),
        }
    }
}

/// A buffer that a head is written to.
#[derive(Debug)]
pub(crate) struct WriteBuffer {
    bytes: Vec<u8>,
    pool: Rc<Buffers>,
}

impl Deref for WriteBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for WriteBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut spare = self.pool.writes.borrow_mut();
        if bytes.capacity() <= LARGEST_SPARE && spare.len() < MOST_SPARE_WRITES {
            bytes.clear();
            spare.push(bytes);
        }
    }
}

/// Bytes that were read from a connection and are not used yet.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    /// Not allocated while no byte is held.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    pool: Rc<Buffers>,
}

impl ReadBuffer {
    pub(crate) fn new(pool: &Rc<Buffers>) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            pool: Rc::clone(pool),
        }
    }

    pub(crate) fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.is_empty() {
            self.release();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.release();
    }

    /// Takes no more memory than the bytes that are held, for as long as no more are read.
    pub(crate) fn shrink(&mut self) {
        let held = self.held();
        if held.len() < self.bytes.len() {
            let held = held.to_vec();
            self.release();
            self.end = held.len();
            self.bytes = held;
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.make_room(bytes.len());
            if let Some(room) = self.bytes.get_mut(self.end..self.end + bytes.len()) {
                room.copy_from_slice(bytes);
                self.end += bytes.len();
            }
        }
    }

    /// Appends bytes from `source`, and returns their number; 0 once the source has ended. The buffer is allocated only when the
    /// source is readable.
    pub(crate) fn poll_fill(
        &mut self,
        source: &mut impl RelaySide,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Some(socket) = source.splice_socket() {
            ready!(socket.poll_readable(cx));
        }
        self.make_room(1);
        let room = &mut self.bytes[self.end..];
        let read = source.poll_recv(cx, room);
        if let Poll::Ready(Ok(read)) = read {
            self.end += read;
        }
        if self.is_empty() {
            self.release();
        }
        read
    }

    /// Makes room for at least `count` bytes behind those that are held.
    fn make_room(&mut self, count: usize) {
        if self.bytes.is_empty() {
            self.bytes = self.pool.reads.borrow_mut().pop().unwrap_or_default();
        }
        if self.bytes.len() - self.end >= count && !self.bytes.is_empty() {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let needed = self.end + count;
        if self.bytes.len() < needed {
            let size = needed.next_power_of_two().max(READ_SIZE);
            self.bytes.resize(size, 0);
        }
    }

    fn release(&mut self) {
        (self.start, self.end) = (0, 0);
        let bytes = std::mem::take(&mut self.bytes);
        let mut spare = self.pool.reads.borrow_mut();
        if bytes.len() == READ_SIZE && spare.len() < MOST_SPARE_READS {
            spare.push(bytes);
        }
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.release();
    }
}

/// Size of a buffer for reads: a request with its body, or a response, is often smaller.
const READ_SIZE: usize = 16 * 1024;
/// Larger buffers for writes are freed after use.
const LARGEST_SPARE: usize = 4 * 1024;
/// A buffer for reads is in use for as long as bytes are held, which is for one wake-up mostly.
const MOST_SPARE_READS: usize = 64;
/// A request's head is kept until its response begins. These buffers are small.
const MOST_SPARE_WRITES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_shrinks_keeps_what_it_holds_and_grows_again() {
        for (bytes, used) in [(0, 0), (100, 0), (100, 40), (100, 100), (READ_SIZE, 1)] {
            let pool = Rc::default();
            let mut buffer = ReadBuffer::new(&pool);
            let mut expected: Vec<u8> = (0..=u8::MAX).cycle().take(bytes).collect();
            buffer.push(&expected);
            buffer.consume(used);
            expected.drain(..used);
            for _ in 0..2 {
                buffer.shrink();
                assert_eq!(buffer.held(), expected);
                assert_eq!(buffer.bytes.len(), expected.len());
                assert!(pool.reads.borrow().len() <= 1);
            }
            for more in [b"more".as_slice(), &[7; READ_SIZE]] {
                buffer.push(more);
                expected.extend_from_slice(more);
                assert_eq!(buffer.held(), expected);
            }
        }
    }
}
