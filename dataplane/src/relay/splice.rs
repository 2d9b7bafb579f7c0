//! The zero-copy path: bytes go from socket to socket through a pipe, without passing through this process.
//!
//! Owns the pipes of one worker. A pipe is filled only while it is empty and drained before it is filled again, so
//! "try again" from the kernel never is ambiguous: on filling it means that the source is dry, on draining that the
//! sink is full. A direction holds a pipe only while bytes are in it.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// The pipes of one worker.
#[derive(Debug)]
pub(crate) struct Pipes {
    spare: RefCell<Vec<Ends>>,
    made: Cell<usize>,
    limit: usize,
    /// The kernel has refused one: so often it is not asked again.
    refused: Cell<u32>,
    spliced: Cell<u64>,
    counts: Arc<PipeCounts>,
}

/// How many pipes a worker has. Written by the worker alone, each time it takes or returns a pipe.
#[derive(Debug, Default)]
pub(crate) struct PipeCounts {
    open: AtomicU32,
    free: AtomicU32,
}

impl PipeCounts {
    /// The pipes in use, and those that wait in the pool.
    pub(crate) fn used_and_free(&self) -> (u32, u32) {
        let (open, free) = (&self.open, &self.free);
        let free = free.load(Ordering::Relaxed);
        (open.load(Ordering::Relaxed).saturating_sub(free), free)
    }
}

impl Pipes {
    /// A pool that makes at most `limit` pipes, two descriptors each.
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

    /// Where others read how many pipes there are.
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

    /// An empty pipe; `None` where none can be had, or only one too small to be worth it: copy instead.
    pub(super) fn empty(self: &Rc<Self>) -> Option<Pipe> {
        let spare = self.spare.borrow_mut().pop();
        let ends = match spare {
            Some(ends) => ends,
            None => self.make()?,
        };
        self.publish_counts();
        Some(Pipe {
            ends: Some(ends),
            held: 0,
            pool: Rc::clone(self),
        })
    }

    /// Bytes that went through pipes since the last call.
    pub(crate) fn take_spliced(&self) -> u64 {
        self.spliced.take()
    }

    fn make(&self) -> Option<Ends> {
        if self.made.get() >= self.limit {
            return None;
        }
        if let Some(left) = self.refused.get().checked_sub(1) {
            self.refused.set(left);
            return None;
        }
        let wanted = match self.made.get() < LARGE_ONES {
            true => LARGE,
            false => USUAL,
        };
        let made = Self::ask_kernel(wanted);
        match &made {
            Some(_) => self.made.set(self.made.get() + 1),
            None => self.refused.set(UNASKED),
        }
        made
    }

    fn ask_kernel(wanted: usize) -> Option<Ends> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // The kernel may refuse (a user's pages are limited): what was given is what counts.
        let size = match fcntl_setpipe_size(&write, wanted) {
            Ok(size) => size,
            Err(_) => fcntl_getpipe_size(&write).unwrap_or(0),
        };
        if size < WORTHWHILE {
            return None;
        }
        Some(Ends { read, write, size })
    }
}

/// A pipe in use by one direction. Goes back to its pool when it is dropped empty, and is closed otherwise.
#[derive(Debug)]
pub(super) struct Pipe {
    ends: Option<Ends>,
    held: usize,
    pool: Rc<Pipes>,
}

impl Pipe {
    /// Moves what `from` has into the pipe, which must be empty.
    pub(super) fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        debug_assert_eq!(self.held, 0, "a pipe is drained before it is filled again");
        let Some(ends) = &self.ends else {
            return Ok(0);
        };
        let moved = splice(from, None, &ends.write, None, ends.size, flags())?;
        // More than the nominal size may have come in: a slot holds whatever one packet held.
        self.held = moved;
        self.pool
            .spliced
            .set(self.pool.spliced.get() + moved as u64);
        Ok(moved)
    }

    /// Moves what the pipe holds to `to`, as far as it takes it.
    pub(super) fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let Some(ends) = &self.ends else {
            return Ok(0);
        };
        let moved = splice(&ends.read, None, to, None, self.held, flags())?;
        self.held -= moved.min(self.held);
        Ok(moved)
    }

    /// Bytes that are in the pipe.
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

/// A tenth cheaper a byte than [`USUAL`], but a user gets only 128 pipes of that size, for all workers together: the first
/// ones have it, which are in use most.
const LARGE: usize = 512 * 1024;
const LARGE_ONES: usize = 8;
const USUAL: usize = 256 * 1024;
/// Below this, copying is cheaper than two calls for so little.
const WORTHWHILE: usize = 64 * 1024;
/// A refusal costs several calls, and what led to it passes slowly: a user's pages are all in use.
const UNASKED: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_pipe_returns_to_the_pool() {
        let pipes = Pipes::new(1);
        drop(pipes.empty().unwrap());
        assert_eq!(pipes.spare.borrow().len(), 1);

        let mut full = pipes.empty().unwrap();
        assert!(pipes.empty().is_none(), "the limit holds");
        full.held = 3;
        drop(full);
        assert_eq!(pipes.spare.borrow().len(), 0);
        assert!(
            pipes.empty().is_some(),
            "a closed pipe makes room for another"
        );
    }

    #[test]
    fn pipes_in_use_and_in_the_pool_are_counted() {
        let pipes = Pipes::new(2);
        let counts = pipes.counts();
        assert_eq!(counts.used_and_free(), (0, 0));
        let (one, mut other) = (pipes.empty().unwrap(), pipes.empty().unwrap());
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
        pipes.refused.set(UNASKED);
        for _ in 0..UNASKED {
            assert!(pipes.empty().is_none());
        }
        assert!(pipes.empty().is_some());
    }
}
