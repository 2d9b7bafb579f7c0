//! The zero-copy path: bytes go from socket to socket through a pipe, without being copied into this process.
//!
//! Owns the pipes of one worker. A pipe is filled only while it is empty, and drained before it is filled again. Therefore
//! `EAGAIN` is never ambiguous: when filling, the source is empty; when draining, the sink is full. A direction holds a pipe
//! only while it contains bytes.
//!
//! A sink that accepts nothing would keep its pipe. Therefore the last quarter of the pipes is only lent: a direction with a
//! lent pipe copies the bytes that the sink does not accept at once into memory, and returns the pipe. So slow readers cannot
//! use up the last quarter.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::read;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

#[derive(Debug)]
pub(crate) struct Pipes {
    spare: RefCell<Vec<Ends>>,
    made: Cell<usize>,
    limit: usize,
    /// After the kernel refused a pipe: how many more requests are answered without asking it.
    refused: Cell<u32>,
    spliced: Cell<u64>,
    counts: Arc<PipeCounts>,
}

/// The numbers of a worker's pipes. Only the worker writes them, each time it takes or returns a pipe.
#[derive(Debug, Default)]
pub(crate) struct PipeCounts {
    open: AtomicU32,
    free: AtomicU32,
}

impl PipeCounts {
    /// The numbers of pipes in use and of free pipes in the pool.
    pub(crate) fn used_and_free(&self) -> (u32, u32) {
        let (open, free) = (&self.open, &self.free);
        let free = free.load(Ordering::Relaxed);
        (open.load(Ordering::Relaxed).saturating_sub(free), free)
    }
}

impl Pipes {
    /// A pool of at most `limit` pipes of two descriptors each.
    #[must_use]
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            spare: RefCell::default(),
            made: Cell::new(0),
            limit,
            refused: Cell::new(0),
            spliced: Cell::new(0),
            counts: Arc::default(),
        })
    }

    /// The counters that other threads read.
    pub(crate) fn counts(&self) -> Arc<PipeCounts> {
        Arc::clone(&self.counts)
    }

    fn publish_counts(&self) {
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let free = small(self.spare.borrow().len());
        self.counts.free.store(free, Ordering::Relaxed);
        let open = small(self.made.get());
        self.counts.open.store(open, Ordering::Relaxed);
    }

    /// Takes an empty pipe. `None`: no pipe is available, or only one too small to be worth it; the caller copies. A lent pipe
    /// is filled with at most `lent` bytes.
    pub(super) fn empty(self: &Rc<Self>, lent: usize) -> Option<Pipe> {
        let is_lent = self.lends();
        if is_lent && lent < MIN_SIZE {
            return None;
        }
        let spare = self.spare.borrow_mut().pop();
        let ends = match spare {
            Some(ends) => ends,
            None => self.create()?,
        };
        self.publish_counts();
        Some(Pipe {
            max_fill: if is_lent {
                lent.min(ends.size)
            } else {
                ends.size
            },
            ends: Some(ends),
            held: 0,
            is_lent,
            pool: Rc::clone(self),
        })
    }

    /// Whether the next pipe would only be lent.
    pub(super) fn lends(&self) -> bool {
        let in_use = self.made.get() - self.spare.borrow().len();
        // While the kernel refuses new pipes, only the existing ones count.
        let all = match self.refused.get() {
            0 => self.limit,
            _ => self.made.get(),
        };
        all - in_use <= all.div_ceil(4)
    }

    /// Bytes that went through pipes since the last call.
    pub(crate) fn take_spliced(&self) -> u64 {
        self.spliced.take()
    }

    fn create(&self) -> Option<Ends> {
        if self.made.get() >= self.limit {
            return None;
        }
        if let Some(left) = self.refused.get().checked_sub(1) {
            self.refused.set(left);
            return None;
        }
        let wanted = if self.made.get() < self.limit / LARGE_SHARE {
            LARGE_SIZE
        } else {
            DEFAULT_SIZE
        };
        let made = Self::ask_kernel(wanted);
        match &made {
            Some(_) => self.made.set(self.made.get() + 1),
            None => self.refused.set(SKIPPED_REQUESTS),
        }
        made
    }

    fn ask_kernel(wanted: usize) -> Option<Ends> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // The kernel may grant less, since a user's pipe pages are limited. The granted size counts.
        let size = match fcntl_setpipe_size(&write, wanted) {
            Ok(size) => size,
            Err(_) => fcntl_getpipe_size(&write).unwrap_or(0),
        };
        if size < MIN_SIZE {
            return None;
        }
        Some(Ends { read, write, size })
    }
}

/// A pipe in use by one direction. Dropping an empty one returns it to its pool; dropping one that holds bytes closes it.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: Option<Ends>,
    held: usize,
    /// The most bytes to fill it with.
    max_fill: usize,
    is_lent: bool,
    pool: Rc<Pipes>,
}

impl Pipe {
    /// Moves at most `most` bytes from `from` into the pipe, which must be empty.
    pub(super) fn fill(&mut self, from: impl AsFd, most: usize) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0, "a pipe is drained before it is filled again");
        let Some(ends) = &self.ends else {
            return Ok(0);
        };
        let moved = splice(
            from,
            None,
            &ends.write,
            None,
            self.max_fill.min(most),
            flags(),
        )?;
        // This may exceed the nominal size: a slot of the pipe holds a whole packet, whatever its size.
        self.held = moved;
        Ok(moved)
    }

    /// Moves bytes from the pipe to `to`, as many as `to` accepts.
    pub(super) fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let Some(ends) = &self.ends else {
            return Ok(0);
        };
        let moved = splice(&ends.read, None, to, None, self.held, flags())?;
        self.held -= moved.min(self.held);
        let spliced = &self.pool.spliced;
        spliced.set(spliced.get() + moved as u64);
        Ok(moved)
    }

    /// Reads the bytes out of a lent pipe, so that it can be returned. `None`: the pipe is not lent and may be kept.
    pub(super) fn take_out(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(ends) = self.ends.as_ref().filter(|_| self.is_lent) else {
            return Ok(None);
        };
        let mut bytes = vec![0; self.held];
        let mut rest = &mut bytes[..];
        while !rest.is_empty() {
            match read(&ends.read, &mut *rest)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => rest = rest.get_mut(count..).unwrap_or_default(),
            }
        }
        self.held = 0;
        Ok(Some(bytes))
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else {
            return;
        };
        if self.held == 0 {
            self.pool.spare.borrow_mut().push(ends);
        } else {
            self.pool.made.set(self.pool.made.get() - 1);
        }
        self.pool.publish_counts();
    }
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    size: usize,
}

fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

/// A tenth cheaper per byte than [`DEFAULT_SIZE`]. One user gets only 128 pipes of this size for all workers together, so only a
/// worker's first pipes, which are used the most, have it.
const LARGE_SIZE: usize = 512 * 1024;
/// The share of a worker's pipes with the size [`LARGE_SIZE`]: one in this many.
const LARGE_SHARE: usize = 8;
const DEFAULT_SIZE: usize = 256 * 1024;
/// Below this size, copying is cheaper than two system calls.
const MIN_SIZE: usize = 64 * 1024;
/// How many requests are answered without asking the kernel after a refusal. A refused attempt costs several calls, and a
/// user's pipe pages stay in use for a while.
const SKIPPED_REQUESTS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_an_empty_pipe_returns_to_the_pool() {
        let pipes = Pipes::new(1);
        drop(pipes.empty(MIN_SIZE).unwrap());
        assert_eq!(pipes.spare.borrow().len(), 1);

        let mut full = pipes.empty(MIN_SIZE).unwrap();
        assert!(pipes.empty(MIN_SIZE).is_none(), "the limit holds");
        full.held = 3;
        drop(full);
        assert_eq!(pipes.spare.borrow().len(), 0);
        assert!(
            pipes.empty(MIN_SIZE).is_some(),
            "a closed pipe makes room for another"
        );
    }

    #[test]
    fn pipes_in_use_and_in_the_pool_are_counted() {
        let pipes = Pipes::new(2);
        let counts = pipes.counts();
        assert_eq!(counts.used_and_free(), (0, 0));
        let (one, mut other) = (
            pipes.empty(MIN_SIZE).unwrap(),
            pipes.empty(MIN_SIZE).unwrap(),
        );
        assert_eq!(counts.used_and_free(), (2, 0));
        drop(one);
        assert_eq!(counts.used_and_free(), (1, 1));
        other.held = 3;
        drop(other);
        assert_eq!(counts.used_and_free(), (0, 1), "a full one is closed");
    }

    #[test]
    fn a_kernel_that_has_refused_a_pipe_is_left_alone_for_a_while() {
        let pipes = Pipes::new(1);
        pipes.refused.set(SKIPPED_REQUESTS);
        for _ in 0..SKIPPED_REQUESTS {
            assert!(pipes.empty(MIN_SIZE).is_none());
        }
        assert!(pipes.empty(MIN_SIZE).is_some());
    }

    #[test]
    fn the_last_quarter_of_the_pipes_is_only_lent() {
        for (limit, kept) in [(1, 0), (2, 1), (3, 2), (4, 3), (8, 6), (12, 9), (64, 48)] {
            let pipes = Pipes::new(limit);
            let taken: Vec<Pipe> = std::iter::from_fn(|| pipes.empty(MIN_SIZE)).collect();
            assert_eq!(taken.len(), limit);
            assert!(taken[..kept].iter().all(|pipe| !pipe.is_lent), "{limit}");
            assert!(taken[kept..].iter().all(|pipe| pipe.is_lent), "{limit}");
            drop(taken);
            let small = std::iter::from_fn(|| pipes.empty(MIN_SIZE - 1));
            assert_eq!(small.collect::<Vec<_>>().len(), kept, "{limit}");
        }
    }

    #[test]
    fn what_a_lent_pipe_holds_can_be_taken_out_and_is_not_counted_as_spliced() {
        let pipes = Pipes::new(1);
        let mut lent = pipes.empty(MIN_SIZE).unwrap();
        let (from, to) = std::os::unix::net::UnixStream::pair().unwrap();
        (&from).write_all(b"twelve bytes").unwrap();
        assert_eq!(lent.fill(&to, usize::MAX).unwrap(), 12);
        assert_eq!(lent.take_out().unwrap().unwrap(), b"twelve bytes");
        assert_eq!(lent.held(), 0);
        assert_eq!(pipes.take_spliced(), 0);
        drop(lent);
        assert_eq!(pipes.spare.borrow().len(), 1, "it is given back");
    }
}
