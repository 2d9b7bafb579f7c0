//! The request of a check, and the judgement of the answer.
//!
//! The data plane's `probe` creates one for each check that exchanges bytes. Nothing here waits: the caller has the deadline.

use std::net::SocketAddr;

use crate::preamble::{Addresses, encode_local, encode_v1};
use crate::table::{Health, HealthMode, SendProxy};
use crate::text::Append;

use super::Outcome;
use super::http::ResponseParser;
use super::search::Search;

/// The exchange of one check with an endpoint.
#[derive(Debug)]
pub struct CheckExchange<'a> {
    health: &'a Health,
    awaited: Awaited<'a>,
}

#[derive(Debug)]
enum Awaited<'a> {
    /// Nothing: being connected is enough.
    Nothing,
    /// Nothing, once the request has been sent.
    Sent,
    /// Any datagram.
    Any,
    /// These bytes, and the number of them that have arrived.
    Bytes(&'a [u8], usize),
    /// An answer that contains a text, and whether anything has arrived.
    Contains(Search<'a>, bool),
    Http(Box<ResponseParser<'a>>),
}

impl<'a> CheckExchange<'a> {
    /// The exchange that `health` asks for.
    pub fn new(health: &'a Health) -> Self {
        let awaited = match (health.mode, &health.answer, &health.answer_contains) {
            (HealthMode::Http | HealthMode::Https, ..) => {
                Awaited::Http(Box::new(ResponseParser::new(health)))
            }
            (_, Some(answer), _) => Awaited::Bytes(answer.bytes(), 0),
            (_, None, Some(text)) => Awaited::Contains(Search::new(text.bytes()), false),
            (HealthMode::Udp, None, None) => Awaited::Any,
            (HealthMode::Tcp | HealthMode::Off, None, None) => match health.send {
                Some(_) => Awaited::Sent,
                None => Awaited::Nothing,
            },
        };
        Self { health, awaited }
    }

    /// Whether there is a request.
    pub fn has_request(&self) -> bool {
        matches!(self.awaited, Awaited::Http(_)) || self.health.send.is_some()
    }

    /// Whether an answer is expected.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        matches!(
            self.awaited,
            Awaited::Any | Awaited::Bytes(..) | Awaited::Contains(..) | Awaited::Http(_)
        )
    }

    /// Appends the request to the endpoint at `address`.
    pub fn write_request(&self, address: SocketAddr, out: &mut Vec<u8>) {
        let Awaited::Http(_) = self.awaited else {
            let payload = self.health.send.as_ref();
            out.extend_from_slice(payload.map_or(&[], |payload| payload.bytes()));
            return;
        };
        let (method, path) = (self.health.method(), self.health.path());
        match &self.health.host {
            Some(host) => write!(out, "{method} {path} HTTP/1.1\r\nHost: {}\r\n", &**host),
            None => write!(out, "{method} {path} HTTP/1.1\r\nHost: {address}\r\n"),
        }
        out.extend_from_slice(b"User-Agent: ballast\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    }

    /// Called when the request has been sent. Returns the outcome, if that is enough.
    #[must_use]
    pub fn sent(&self) -> Option<Outcome> {
        match self.awaited {
            Awaited::Nothing => Some(Outcome::Connected),
            Awaited::Sent => Some(Outcome::Answered(None)),
            Awaited::Any | Awaited::Bytes(..) | Awaited::Contains(..) | Awaited::Http(_) => None,
        }
    }

    /// Called when more of the answer has arrived. Returns the outcome, as soon as it is known. An empty datagram is an answer
    /// too; the end of a connection is not, see [`CheckExchange::closed`].
    pub fn received(&mut self, bytes: &[u8]) -> Option<Outcome> {
        match &mut self.awaited {
            Awaited::Nothing | Awaited::Sent | Awaited::Any => Some(Outcome::Answered(None)),
            Awaited::Http(answer) => answer.received(bytes),
            Awaited::Bytes(awaited, matched) => {
                let rest = &awaited[*matched..];
                let known = rest.len().min(bytes.len());
                if rest.get(..known) != bytes.get(..known) {
                    return Some(NOT_THIS);
                }
                *matched += known;
                (known == rest.len()).then_some(Outcome::Answered(None))
            }
            Awaited::Contains(search, has_arrived) => {
                *has_arrived |= !bytes.is_empty();
                if search.found_in(bytes) {
                    Some(Outcome::Answered(None))
                } else {
                    search.is_over().then_some(LACKS)
                }
            }
        }
    }

    /// Called when the endpoint has closed, or its datagram has ended. Returns the outcome, if there was none before.
    #[must_use]
    pub fn closed(&self) -> Outcome {
        match &self.awaited {
            Awaited::Http(answer) => answer.closed(),
            Awaited::Contains(_, true) => LACKS,
            Awaited::Bytes(_, 0) | Awaited::Contains(_, false) => {
                Outcome::WrongAnswer("it closed without an answer")
            }
            _ => NOT_THIS,
        }
    }
}

/// Appends the PROXY header of a check, which names no client. Version 2 has the command `LOCAL` for that; version 1 names
/// the two ends of the check's own connection.
pub(super) fn write_proxy_header(header: SendProxy, ends: Addresses, out: &mut Vec<u8>) {
    match header {
        SendProxy::Off => {}
        SendProxy::V1 => encode_v1(ends, out),
        SendProxy::V2 => encode_local(out),
    }
}

const LACKS: Outcome = Outcome::WrongAnswer("its answer lacks the text that is looked for");
const NOT_THIS: Outcome = Outcome::WrongAnswer("its answer does not begin as it should");
