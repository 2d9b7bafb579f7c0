//! What a check says, and what it makes of the answer.
//!
//! Made by the data plane's `probe` for each check that talks. Nothing here waits: the deadline is the caller's.

use std::io::Write;
use std::net::SocketAddr;

use crate::preamble::{Addresses, encode_local, encode_v1};
use crate::table::{Health, HealthMode, SendProxy};

use super::Outcome;
use super::http::Answer;

/// One conversation with an endpoint.
#[derive(Debug)]
pub struct Exchange<'a> {
    health: &'a Health,
    awaited: Awaited<'a>,
}

#[derive(Debug)]
enum Awaited<'a> {
    /// To be connected is enough.
    Nothing,
    /// ... or to have said it all.
    Sent,
    /// Any datagram.
    Any,
    /// These bytes, of which so many have come.
    Bytes(&'a [u8], usize),
    Http(Box<Answer<'a>>),
}

impl<'a> Exchange<'a> {
    /// The conversation that `health` asks for.
    #[must_use]
    pub fn new(health: &'a Health) -> Self {
        let answer = health.answer.as_ref().map(|answer| answer.bytes());
        let awaited = match (health.mode, answer) {
            (HealthMode::Http | HealthMode::Https, _) => {
                Awaited::Http(Box::new(Answer::new(health)))
            }
            (_, Some(answer)) => Awaited::Bytes(answer, 0),
            (HealthMode::Udp, None) => Awaited::Any,
            (HealthMode::Tcp | HealthMode::Off, None) if health.send.is_some() => Awaited::Sent,
            (HealthMode::Tcp | HealthMode::Off, None) => Awaited::Nothing,
        };
        Self { health, awaited }
    }

    /// Whether there is a question.
    #[must_use]
    pub fn speaks(&self) -> bool {
        matches!(self.awaited, Awaited::Http(_)) || self.health.send.is_some()
    }

    /// Whether an answer is awaited.
    #[must_use]
    pub fn listens(&self) -> bool {
        matches!(
            self.awaited,
            Awaited::Any | Awaited::Bytes(..) | Awaited::Http(_)
        )
    }

    /// Appends what goes to the endpoint at `address` first.
    pub fn question(&self, address: SocketAddr, out: &mut Vec<u8>) {
        let Awaited::Http(_) = self.awaited else {
            let payload = self.health.send.as_ref();
            out.extend_from_slice(payload.map_or(&[], |payload| payload.bytes()));
            return;
        };
        let (method, path) = (self.health.method(), self.health.path());
        let written = match &self.health.host {
            Some(host) => write!(out, "{method} {path} HTTP/1.1\r\nHost: {}\r\n", &**host),
            None => write!(out, "{method} {path} HTTP/1.1\r\nHost: {address}\r\n"),
        };
        debug_assert!(written.is_ok(), "a vector takes whatever comes");
        out.extend_from_slice(b"User-Agent: ballast\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    }

    /// It is connected, and all is said. The verdict, if that is enough.
    #[must_use]
    pub fn asked(&self) -> Option<Outcome> {
        match self.awaited {
            Awaited::Nothing => Some(Outcome::Connected),
            Awaited::Sent => Some(Outcome::Answered(None)),
            Awaited::Any | Awaited::Bytes(..) | Awaited::Http(_) => None,
        }
    }

    /// More of the answer has come. The verdict, as soon as there can be one. An empty datagram is an answer too; the
    /// end of a connection is not, see [`Exchange::ended`].
    pub fn heard(&mut self, bytes: &[u8]) -> Option<Outcome> {
        match &mut self.awaited {
            Awaited::Nothing | Awaited::Sent | Awaited::Any => Some(Outcome::Answered(None)),
            Awaited::Http(answer) => answer.heard(bytes),
            Awaited::Bytes(awaited, matched) => {
                let rest = awaited.get(*matched..).unwrap_or_default();
                let known = rest.len().min(bytes.len());
                if rest.get(..known) != bytes.get(..known) {
                    return Some(NOT_THIS);
                }
                *matched += known;
                (known == rest.len()).then_some(Outcome::Answered(None))
            }
        }
    }

    /// The endpoint has closed, or its datagram is over. The verdict where there was none before.
    #[must_use]
    pub fn ended(&self) -> Outcome {
        match &self.awaited {
            Awaited::Http(answer) => answer.ended(),
            Awaited::Bytes(_, 0) => Outcome::WrongAnswer("it closed without an answer"),
            _ => NOT_THIS,
        }
    }
}

/// Appends the PROXY header with which a check introduces itself: it speaks for no client. Version 2 has a word for
/// that; version 1 names the two ends of the check's own connection.
pub(super) fn introduce(header: SendProxy, ends: Addresses, out: &mut Vec<u8>) {
    match header {
        SendProxy::Off => {}
        SendProxy::V1 => encode_v1(ends, out),
        SendProxy::V2 => encode_local(out),
    }
}

const NOT_THIS: Outcome = Outcome::WrongAnswer("its answer does not begin as it should");
