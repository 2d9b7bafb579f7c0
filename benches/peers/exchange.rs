//! One question and its answer on one connection, in the clear or in TLS.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags};
use rustls::HandshakeKind;
use rustls::client::ClientConnection;

use crate::load::Load;
use crate::poll::EventFlags;
use crate::protocol::Protocol;
use crate::tls::{Socket, unless_blocked};
use crate::{http, origin};

/// The request that the load client sends on every connection.
pub(crate) struct Question {
    bytes: Vec<u8>,
    is_http: bool,
}

impl Question {
    pub(crate) fn of(load: &Load) -> Self {
        match load.protocol {
            Protocol::Tcp => Self {
                bytes: vec![origin::ECHO; load.size],
                is_http: false,
            },
            _ => Self {
                bytes: http::REQUEST.to_vec(),
                is_http: true,
            },
        }
    }
}

/// A question under way on one connection.
pub(crate) struct Exchange {
    fd: OwnedFd,
    session: Option<Box<ClientConnection>>,
    /// When it was asked or, in open loop, should have been.
    pub(crate) since: Instant,
    to_send: usize,
    received: usize,
}

impl Exchange {
    /// Nothing is asked yet.
    pub(crate) fn new(fd: OwnedFd, session: Option<ClientConnection>) -> Self {
        Self {
            fd,
            session: session.map(Box::new),
            since: Instant::now(),
            to_send: 0,
            received: 0,
        }
    }

    /// One that is asked as soon as the connection stands.
    pub(crate) fn begin(
        fd: OwnedFd,
        session: Option<ClientConnection>,
        since: Instant,
        question: &Question,
    ) -> Self {
        Self {
            since,
            to_send: question.bytes.len(),
            ..Self::new(fd, session)
        }
    }

    /// Whether the session resumes an earlier one; `None`: there is none.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        let session = self.session.as_ref()?;
        Some(session.handshake_kind() == Some(HandshakeKind::Resumed))
    }

    /// Does what an event allows; `true`: the answer is complete.
    #[inline]
    pub(crate) fn work(
        &mut self,
        flags: EventFlags,
        question: &Question,
        scratch: &mut [u8],
    ) -> io::Result<bool> {
        if self.session.is_some() {
            return self.work_in_tls(question, scratch);
        }
        if self.to_send > 0 && flags.contains(EventFlags::OUT) {
            self.send(question)?;
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Ok(false);
        }
        match net::recv(&self.fd, &mut *scratch, RecvFlags::empty()) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, length)) => self.receive(&scratch[..length], question),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Asks again.
    #[inline]
    pub(crate) fn ask(&mut self, since: Instant, question: &Question) -> io::Result<()> {
        self.since = since;
        self.to_send = question.bytes.len();
        self.received = 0;
        self.send(question)
    }

    #[inline]
    fn receive(&mut self, bytes: &[u8], question: &Question) -> io::Result<bool> {
        let are_first = self.received == 0;
        self.received += bytes.len();
        if question.is_http {
            return http::is_end(bytes, are_first);
        }
        Ok(self.received >= question.bytes.len())
    }

    #[inline]
    fn send(&mut self, question: &Question) -> io::Result<()> {
        let rest = &question.bytes[question.bytes.len() - self.to_send..];
        match net::send(&self.fd, rest, SendFlags::NOSIGNAL) {
            Ok(taken) => {
                self.to_send -= taken;
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn work_in_tls(&mut self, question: &Question, scratch: &mut [u8]) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            return Ok(false);
        };
        let mut socket = Socket(&self.fd);
        while let Some(length) = unless_blocked(session.read_tls(&mut socket))? {
            session.process_new_packets().map_err(io::Error::other)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if self.to_send > 0 && !session.is_handshaking() {
            session.writer().write_all(&question.bytes)?;
            self.to_send = 0;
        }
        while session.wants_write() && unless_blocked(session.write_tls(&mut socket))?.is_some() {}
        let Some(length) = unless_blocked(session.reader().read(scratch))? else {
            return Ok(false);
        };
        self.receive(&scratch[..length], question)
    }
}
