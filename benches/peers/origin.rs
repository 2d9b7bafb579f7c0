//! The origin server behind every proxy. Two ports, one server; the first byte of a connection says what it is for: `E` gets
//! everything back as it came (also connection-per-request), `S` is read and thrown away, `Z` is sent zeros until it is closed,
//! `W` asks which of the two ports it has come to, `G` begins a request of HTTP, `P` the preface of HTTP/2 ([`origin_http2`](crate::origin_http2)).
//!
//! It must be cheap, since it may share a core with the client: discarded bytes are never copied to user space (`MSG_TRUNC`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};

use crate::poll::{self, EventFlags, Poll};
use crate::{http, origin_http2, udp_origin};

/// Serves `listen`, and the port above it, until it is killed.
pub(crate) fn run(listen: SocketAddr) -> io::Result<()> {
    let poll = Poll::new()?;
    let other = SocketAddr::new(listen.ip(), listen.port() + 1);
    let listeners = [poll::listen(listen)?, poll::listen(other)?];
    for (number, listener) in listeners.iter().enumerate() {
        poll.add(listener, FIRST_LISTENER + number, EventFlags::IN)?;
    }
    std::thread::spawn(move || udp_origin::run(listen));
    let mut origin = Origin {
        poll,
        listeners,
        connections: Vec::new(),
        free: Vec::new(),
        again: Vec::new(),
        scratch: vec![0; SCRATCH],
        chunks: http::chunk().repeat(CHUNKS_AT_ONCE),
    };
    loop {
        origin.turn()?;
    }
}

/// The first byte of a connection that wants its bytes back.
pub(crate) const ECHO: u8 = b'E';
/// The first byte of a connection whose bytes are thrown away.
pub(crate) const SINK: u8 = b'S';
/// The only byte of a connection that wants zeros.
pub(crate) const SOURCE: u8 = b'Z';
/// The only byte of a connection that wants to know the port it has come to, in two bytes.
pub(crate) const WHICH: u8 = b'W';

/// Sends as much of `bytes`, whatever they are, as `to` takes in one call; `None`: it takes nothing now.
pub(crate) fn supply(to: &OwnedFd, bytes: &[u8]) -> io::Result<Option<usize>> {
    match net::send(to, &bytes[..bytes.len().min(PORTION)], SendFlags::NOSIGNAL) {
        Ok(length) => Ok(Some(length)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads and forgets; `None`: nothing is there now. `Some(0)`: closed.
pub(crate) fn discard(from: &OwnedFd, scratch: &mut [u8]) -> io::Result<Option<usize>> {
    match net::recv(from, scratch, RecvFlags::TRUNC) {
        Ok((_, length)) => Ok(Some(length)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The first byte of a connection of HTTP, of `GET`.
const HTTP: u8 = b'G';
/// The first byte of a connection of HTTP/2, of its preface.
const HTTP2: u8 = b'P';
/// What a connection becomes that asked for chunks. Nobody begins with it.
const CHUNKS: u8 = 0;

struct Origin {
    poll: Poll,
    listeners: [OwnedFd; 2],
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    again: Vec<usize>,
    scratch: Vec<u8>,
    /// Whole chunks of HTTP/1.
    chunks: Vec<u8>,
}

struct Connection {
    fd: OwnedFd,
    purpose: Option<u8>,
    /// Echoed bytes that the client did not take yet.
    kept: Vec<u8>,
    /// The beginning of a request of HTTP that is not whole.
    head: Vec<u8>,
    http2: Option<Box<origin_http2::Session>>,
    /// How far into the chunks it is that are sent again and again.
    sent: usize,
    closing: bool,
}

enum Outcome {
    Wait,
    Again,
    Ended,
}

impl Origin {
    fn turn(&mut self) -> io::Result<()> {
        let patience = if self.again.is_empty() {
            None
        } else {
            Some(Duration::ZERO)
        };
        let ready = self.poll.wait(patience)?;
        for index in 0..ready {
            let (token, flags) = self.poll.event(index);
            match token.checked_sub(FIRST_LISTENER) {
                Some(number) => self.accept(number)?,
                None => self.serve(token, flags),
            }
        }
        for token in std::mem::take(&mut self.again) {
            self.serve(token, EventFlags::empty());
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        let Some(listener) = self.listeners.get(listener) else {
            return Ok(());
        };
        for _ in 0..ACCEPTS {
            let fd = match net::accept_with(listener, poll::NONBLOCKING) {
                Ok(fd) => fd,
                Err(Errno::AGAIN) => break,
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let token = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.add_stream(&fd, token)?;
            if let Some(slot) = self.connections.get_mut(token) {
                *slot = Some(Connection {
                    fd,
                    purpose: None,
                    kept: Vec::new(),
                    head: Vec::new(),
                    http2: None,
                    sent: 0,
                    closing: false,
                });
            }
        }
        Ok(())
    }

    fn serve(&mut self, token: usize, flags: EventFlags) {
        let Some(slot) = self.connections.get_mut(token) else {
            return;
        };
        let Some(connection) = slot else {
            return;
        };
        connection.closing |= poll::is_closing(flags);
        match connection.work(&mut self.scratch, &self.chunks) {
            Ok(Outcome::Wait) => {}
            Ok(Outcome::Again) => self.again.push(token),
            Ok(Outcome::Ended) | Err(_) => {
                *slot = None;
                self.free.push(token);
            }
        }
    }
}

impl Connection {
    fn work(&mut self, scratch: &mut [u8], chunks: &[u8]) -> io::Result<Outcome> {
        for _ in 0..BUDGET {
            let outcome = match self.purpose {
                Some(SINK) => match discard(&self.fd, scratch)? {
                    Some(0) => Some(Outcome::Ended),
                    Some(_) => None,
                    None => Some(Outcome::Wait),
                },
                Some(SOURCE | CHUNKS) if self.closing => Some(Outcome::Ended),
                Some(CHUNKS) => Some(self.send_chunks(chunks)?),
                Some(SOURCE) => supply(&self.fd, scratch)?
                    .is_none()
                    .then_some(Outcome::Wait),
                _ => self.echo(scratch)?,
            };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Again)
    }

    fn echo(&mut self, scratch: &mut [u8]) -> io::Result<Option<Outcome>> {
        if !self.kept.is_empty() {
            let taken = send(&self.fd, &self.kept)?;
            self.kept.drain(..taken);
            return Ok((!self.kept.is_empty()).then_some(Outcome::Wait));
        }
        let length = match net::recv(&self.fd, &mut *scratch, RecvFlags::empty()) {
            Ok((_, 0)) => return Ok(Some(Outcome::Ended)),
            Ok((_, length)) => length,
            Err(Errno::AGAIN) => return Ok(Some(Outcome::Wait)),
            Err(Errno::INTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let purpose = *self.purpose.get_or_insert(scratch[0]);
        if purpose == SINK || purpose == SOURCE {
            return Ok(None);
        }
        if purpose == WHICH {
            send(&self.fd, &self.port()?.to_be_bytes())?;
            return Ok((!self.closing).then_some(Outcome::Wait));
        }
        let told;
        let answer = match purpose {
            HTTP => self.answer_to(&scratch[..length]),
            HTTP2 => {
                let session = self.http2.get_or_insert_with(Box::default);
                told = session.answer(&scratch[..length])?;
                &told
            }
            _ => &scratch[..length],
        };
        let taken = send(&self.fd, answer)?;
        self.kept.extend_from_slice(&answer[taken..]);
        if matches!(self.purpose, Some(SOURCE | CHUNKS)) {
            return Ok(None);
        }
        // A short read has emptied the socket; a FIN that was announced with these bytes has no edge of its own.
        let emptied = length < scratch.len() && !self.closing;
        Ok((emptied || taken < answer.len()).then_some(Outcome::Wait))
    }
}

impl Connection {
    /// The answer to these bytes of a request; nothing while its head is not whole.
    fn answer_to(&mut self, bytes: &[u8]) -> &'static [u8] {
        let kept;
        let head = if self.head.is_empty() && http::is_whole(bytes) {
            bytes
        } else {
            self.head.extend_from_slice(bytes);
            if !http::is_whole(&self.head) {
                return &[];
            }
            kept = std::mem::take(&mut self.head);
            &kept
        };
        if http::is_endless(head) {
            self.purpose = Some(SOURCE);
            return http::ENDLESS_HEAD;
        }
        if http::is_for_chunks(head) {
            self.purpose = Some(CHUNKS);
            return http::CHUNKS_HEAD;
        }
        http::ANSWER
    }

    /// One call in a turn: others, whose latency is measured, do not wait for it.
    fn send_chunks(&mut self, chunks: &[u8]) -> io::Result<Outcome> {
        let Some(sent) = supply(&self.fd, &chunks[self.sent..])? else {
            return Ok(Outcome::Wait);
        };
        self.sent = (self.sent + sent) % chunks.len();
        Ok(Outcome::Again)
    }

    fn port(&self) -> io::Result<u16> {
        let local = net::getsockname(&self.fd)?;
        let local = SocketAddr::try_from(local).map_err(io::Error::from)?;
        Ok(local.port())
    }
}

fn send(to: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    match net::send(to, bytes, SendFlags::NOSIGNAL) {
        Ok(taken) => Ok(taken),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

const FIRST_LISTENER: usize = usize::MAX - 1;
const SCRATCH: usize = 1024 * 1024;
const PORTION: usize = 256 * 1024;
/// 64 KiB of them.
const CHUNKS_AT_ONCE: usize = 64;
const BUDGET: usize = 16;
const ACCEPTS: usize = 64;
