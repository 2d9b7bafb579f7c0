//! The result of a dial, and its progress.

use std::rc::Rc;

use ballast_core::admit::Refusal;
use ballast_core::affinity::cookie::CookieValue;
use ballast_core::endpoint::{EndpointCounters, Lease};
use ballast_core::moment::Moment;

use crate::access::WaitPhase;
use crate::net::relay::Side;
use crate::net::tls::MaybeTls;
use crate::worker::Worker;
use crate::worker::pool::Use;

/// The result of a dial. By default its stream is a connection of the caller's own. The stream must be closed before the session
/// ends, because the endpoint may be sent another client from then on. The fields are in the order in which they are dropped.
#[derive(Debug)]
pub(crate) struct Upstream<S = MaybeTls> {
    pub(crate) stream: S,
    pub(crate) session: EndpointSession,
    /// Whether the connection has served an earlier request.
    pub(crate) is_reused: bool,
    /// The place of the endpoint in the service.
    pub(crate) index: usize,
    /// The affinity cookie that the client is given.
    pub(crate) cookie: Option<CookieValue>,
}

/// A connection of the caller's own, or a part in one that serves many requests.
#[derive(Debug)]
pub(crate) enum Link {
    Own(MaybeTls),
    Shared(Use),
}

/// One session at an endpoint: a client's connection, or a request. It counts there until it is dropped.
#[derive(Debug)]
pub(crate) struct EndpointSession {
    pub(crate) lease: Lease,
    worker: Rc<Worker>,
    /// When the client's connection was accepted, or its request began.
    began: Moment,
}

impl EndpointSession {
    pub(super) fn new(lease: Lease, worker: &Rc<Worker>, began: Moment) -> Self {
        Self {
            lease,
            worker: Rc::clone(worker),
            began,
        }
    }

    pub(crate) fn counters(&self) -> &EndpointCounters {
        self.lease.endpoint().counters(self.worker.id)
    }

    /// Counts bytes from the client and to it.
    pub(crate) fn count_bytes(&self, up: u64, down: u64) {
        let counters = self.counters();
        counters.bytes_in.add(up);
        counters.bytes_out.add(down);
    }

    /// Counts the end of the session at the side that was at fault.
    pub(crate) fn count_fault(&self, fault: Option<Side>) {
        match fault {
            Some(Side::Client) => self.counters().client_aborts.add(1),
            Some(Side::Server) => {
                self.counters().server_aborts.add(1);
                self.counters().response_errors.add(1);
            }
            None => {}
        }
    }

    /// Counts a response that did not begin because of this side.
    pub(crate) fn count_no_response(&self, fault: Option<Side>) {
        match fault {
            Some(Side::Server) => self.counters().response_errors.add(1),
            fault => self.count_fault(fault),
        }
    }
}

impl Drop for EndpointSession {
    fn drop(&mut self) {
        let now = self.worker.shared.clock.now();
        self.counters().ended(now.since(self.began));
    }
}

/// Why a client got no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    Refused(Refusal),
    /// The client aborted while it waited.
    ClientLeft(WaitPhase),
}

impl From<Refusal> for Unserved {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
