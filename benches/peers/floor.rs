//! The floor: the least that a userspace TCP proxy can do. One thread accepts, connects and relays; there is no feature,
//! no limit, no time-out, no choice and no counter. What it costs is what the kernel costs, and so the yardstick of the bench.
//!
//! It relays as one does who wants nothing but speed: sockets are registered once, at their edges; one scratch buffer serves
//! all connections; a direction that fills 16 KiB twice in a row is spliced through a pipe from then on. Half-close is kept.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustix::pipe::{self, PipeFlags, SpliceFlags};

use crate::poll::{self, EventFlags, Poll};
use crate::udp_floor;

/// Serves `listen` by relaying to `to`, until it is killed.
pub(crate) fn run(listen: SocketAddr, to: SocketAddr) -> io::Result<()> {
    let mut floor = Floor::bind(listen, to)?;
    std::thread::spawn(move || udp_floor::run(listen, to));
    loop {
        floor.turn()?;
    }
}

struct Floor {
    poll: Poll,
    listener: OwnedFd,
    to: SocketAddr,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    /// Ended in this turn. Their numbers may still stand in this turn's events, so they are free from the next one on.
    ended: Vec<usize>,
    /// Legs whose budget ended before their bytes did.
    again: Vec<usize>,
    scratch: Vec<u8>,
}

/// A client and its connection to the origin, in this order: leg `CLIENT` and leg `ORIGIN`.
struct Pair {
    legs: [Leg; 2],
    dialing: bool,
    finished: u8,
}

struct Leg {
    fd: OwnedFd,
    /// Bytes read from this leg that the other one did not take yet.
    kept: Vec<u8>,
    pipe: Option<Box<Pipe>>,
    large_reads: u8,
    closing: bool,
    finished: bool,
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    size: usize,
    held: usize,
}

enum Outcome {
    /// Nothing more to do until the next event.
    Wait,
    /// The budget ended first.
    Again,
    /// The leg's sender has closed.
    Finished,
    Broken,
}

impl Floor {
    fn bind(listen: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let poll = Poll::new()?;
        let listener = poll::listen(listen)?;
        poll.add(&listener, LISTENER, EventFlags::IN)?;
        Ok(Self {
            poll,
            listener,
            to,
            pairs: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            again: Vec::new(),
            scratch: vec![0; SCRATCH],
        })
    }

    fn turn(&mut self) -> io::Result<()> {
        let patience = if self.again.is_empty() {
            None
        } else {
            Some(Duration::ZERO)
        };
        let ready = self.poll.wait(patience)?;
        for index in 0..ready {
            let (token, flags) = self.poll.event(index);
            if token == LISTENER {
                self.accept()?;
            } else {
                self.serve(token, flags);
            }
        }
        for token in std::mem::take(&mut self.again) {
            self.relay(token);
        }
        self.free.append(&mut self.ended);
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTS {
            match net::accept_with(&self.listener, poll::NONBLOCKING) {
                Ok(client) => self.dial(client)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn dial(&mut self, client: OwnedFd) -> io::Result<()> {
        let origin = poll::stream_socket(&self.to)?;
        net::sockopt::set_tcp_nodelay(&origin, true)?;
        poll::start_connect(&origin, &self.to)?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.pairs.push(None);
            self.pairs.len() - 1
        });
        self.poll.add_stream(&origin, index * 2 + ORIGIN)?;
        if let Some(slot) = self.pairs.get_mut(index) {
            *slot = Some(Pair::new(client, origin));
        }
        Ok(())
    }

    fn serve(&mut self, token: usize, flags: EventFlags) {
        let side = token % 2;
        let Some(Some(pair)) = self.pairs.get_mut(token / 2) else {
            return;
        };
        if pair.dialing {
            if flags.intersects(EventFlags::ERR.union(EventFlags::HUP)) {
                return self.end(token / 2);
            }
            pair.dialing = false;
            // Registered only now: what the client has already sent is reported by the next turn.
            if self
                .poll
                .add_stream(&pair.legs[CLIENT].fd, token - side + CLIENT)
                .is_err()
            {
                return self.end(token / 2);
            }
        }
        let other_has_bytes = pair.legs[1 - side].holds_bytes();
        pair.legs[side].closing |= poll::is_closing(flags);
        let readable = flags.contains(EventFlags::IN) || pair.legs[side].closing;
        if readable {
            self.relay(token);
        }
        if other_has_bytes && flags.contains(EventFlags::OUT) {
            self.relay(token ^ 1);
        }
    }

    /// Moves what leg `token` has to its other side.
    #[inline]
    fn relay(&mut self, token: usize) {
        let Some(Some(pair)) = self.pairs.get_mut(token / 2) else {
            return;
        };
        let [client, origin] = &mut pair.legs;
        let (from, to) = if token % 2 == CLIENT {
            (client, origin)
        } else {
            (origin, client)
        };
        match from.pour_into(&to.fd, &mut self.scratch) {
            Outcome::Wait => {}
            Outcome::Again => self.again.push(token),
            Outcome::Finished => {
                pair.finished += 1;
                if pair.finished == 2 || net::shutdown(&to.fd, net::Shutdown::Write).is_err() {
                    self.end(token / 2);
                }
            }
            Outcome::Broken => self.end(token / 2),
        }
    }

    fn end(&mut self, index: usize) {
        if let Some(slot) = self.pairs.get_mut(index)
            && slot.take().is_some()
        {
            self.ended.push(index);
        }
    }
}

impl Pair {
    fn new(client: OwnedFd, origin: OwnedFd) -> Self {
        Self {
            legs: [Leg::new(client), Leg::new(origin)],
            dialing: true,
            finished: 0,
        }
    }
}

impl Leg {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            kept: Vec::new(),
            pipe: None,
            large_reads: 0,
            closing: false,
            finished: false,
        }
    }

    #[inline]
    fn holds_bytes(&self) -> bool {
        !self.kept.is_empty() || self.pipe.as_ref().is_some_and(|pipe| pipe.held > 0)
    }

    #[inline]
    fn pour_into(&mut self, to: &OwnedFd, scratch: &mut [u8]) -> Outcome {
        if self.finished {
            return Outcome::Wait;
        }
        for _ in 0..BUDGET {
            let step = match &mut self.pipe {
                Some(pipe) if self.kept.is_empty() => pipe.step(&self.fd, to),
                _ => self.copy_step(to, scratch),
            };
            match step {
                None => {}
                Some(Outcome::Finished) => {
                    self.finished = true;
                    return Outcome::Finished;
                }
                Some(outcome) => return outcome,
            }
        }
        Outcome::Again
    }

    /// Reads once and writes what was read; `None`: there may be more.
    #[inline]
    fn copy_step(&mut self, to: &OwnedFd, scratch: &mut [u8]) -> Option<Outcome> {
        if !self.kept.is_empty() {
            return self.send_kept(to);
        }
        let length = match net::recv(&self.fd, &mut *scratch, RecvFlags::empty()) {
            Ok((_, 0)) => return Some(Outcome::Finished),
            Ok((_, length)) => length,
            Err(Errno::AGAIN) => return Some(Outcome::Wait),
            Err(Errno::INTR) => return None,
            Err(_) => return Some(Outcome::Broken),
        };
        let taken = match net::send(to, &scratch[..length], SendFlags::NOSIGNAL) {
            Ok(taken) => taken,
            Err(Errno::AGAIN) => 0,
            Err(_) => return Some(Outcome::Broken),
        };
        self.count_large(length);
        if taken < length {
            self.kept.extend_from_slice(&scratch[taken..length]);
            return Some(Outcome::Wait);
        }
        // A short read has emptied the socket: the next byte is a new edge. A FIN that was announced already is not.
        (length < scratch.len() && !self.closing && self.pipe.is_none()).then_some(Outcome::Wait)
    }

    fn send_kept(&mut self, to: &OwnedFd) -> Option<Outcome> {
        match net::send(to, &self.kept, SendFlags::NOSIGNAL) {
            Ok(taken) if taken == self.kept.len() => {
                self.kept = Vec::new();
                None
            }
            Ok(taken) => {
                self.kept.drain(..taken);
                Some(Outcome::Wait)
            }
            Err(Errno::AGAIN) => Some(Outcome::Wait),
            Err(_) => Some(Outcome::Broken),
        }
    }

    #[inline]
    fn count_large(&mut self, length: usize) {
        if length < LARGE {
            self.large_reads = 0;
            return;
        }
        self.large_reads += 1;
        if self.large_reads == LARGE_READS {
            self.pipe = Pipe::new().ok().map(Box::new);
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe::pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        let size = pipe::fcntl_setpipe_size(&writer, PIPE)
            .or_else(|_| pipe::fcntl_getpipe_size(&writer))?;
        Ok(Self {
            reader,
            writer,
            size,
            held: 0,
        })
    }

    /// Splices once into the pipe and all of it out again; `None`: there may be more.
    fn step(&mut self, from: &OwnedFd, to: &OwnedFd) -> Option<Outcome> {
        if self.held == 0 {
            match pipe::splice(from, None, &self.writer, None, self.size, SPLICE) {
                Ok(0) => return Some(Outcome::Finished),
                Ok(length) => self.held = length,
                Err(Errno::AGAIN) => return Some(Outcome::Wait),
                Err(Errno::INTR) => return None,
                Err(_) => return Some(Outcome::Broken),
            }
        }
        while self.held > 0 {
            match pipe::splice(&self.reader, None, to, None, self.held, SPLICE) {
                Ok(length) => self.held -= length,
                Err(Errno::AGAIN) => return Some(Outcome::Wait),
                Err(Errno::INTR) => {}
                Err(_) => return Some(Outcome::Broken),
            }
        }
        None
    }
}

const CLIENT: usize = 0;
const ORIGIN: usize = 1;
const LISTENER: usize = usize::MAX;

const SCRATCH: usize = 64 * 1024;
const LARGE: usize = 16 * 1024;
const LARGE_READS: u8 = 2;
const PIPE: usize = 512 * 1024;
const SPLICE: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
/// Reads of one leg before the others get their turn.
const BUDGET: usize = 16;
/// Accepted at most before the connections that stand get their turn.
const ACCEPTS: usize = 16;
