//! One flow, as the table keeps it.

use std::sync::Arc;

use crate::admit::Admission;
use crate::endpoint::Lease;
use crate::moment::Moment;
use crate::plan::FrontendState;
use crate::service::{Failure, Service};

use super::count::FlowEnd;
use super::key::Compact;
use super::ports::Taken;

/// The conversation of one client with one endpoint. What a datagram needs stands before what only the beginning and the end need.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Flow<S> {
    pub(super) key: Compact,
    pub(super) frontend: Arc<FrontendState>,
    pub(super) lease: Lease,
    /// The last datagram in either direction.
    pub(super) last: Moment,
    /// When it was put where it stands among those that may be evicted.
    pub(super) queued: Moment,
    /// Where the endpoint stands in its service: a hint, for a swap may have moved it.
    pub(super) index: u32,
    /// How long it may be idle, in milliseconds.
    pub(super) idle: u32,
    pub(super) requests: u32,
    pub(super) responses: u32,
    /// Answers after which it ends.
    pub(super) most_responses: u32,
    pub(super) standing: Standing,
    /// Among whom it stands of those that may be evicted.
    pub(super) queue: Class,
    /// The shell's side of it.
    pub(super) leg: Option<S>,
    pub(super) began: Moment,
    pub(super) admission: Option<Admission>,
    /// The local port of its socket.
    pub(super) taken: Taken,
}

/// What becomes of a client's next datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes this way.
    Open,
    /// It goes to another endpoint, if there is one.
    Failed(Failure),
    /// It finds another flow: this one only waits for answers.
    Over(FlowEnd),
}

/// In what order flows make room for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// One question, and its one answer.
    Answered,
    /// One question.
    Asked,
    /// More than that.
    Established,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Answered, Self::Asked, Self::Established];
}

impl<S> Flow<S> {
    pub(super) fn class(&self) -> Class {
        match (self.requests, self.responses) {
            (0 | 1, 0) => Class::Asked,
            (1, 1) => Class::Answered,
            _ => Class::Established,
        }
    }

    /// When it is over if nothing more comes.
    pub(super) fn deadline(&self) -> Moment {
        Moment(self.last.0.saturating_add(self.idle.into()))
    }

    /// Why it is over, if `why` is what ends it at last.
    pub(super) fn end(&self, why: FlowEnd) -> FlowEnd {
        match (self.standing, why) {
            (Standing::Over(before), FlowEnd::Idle | FlowEnd::Responses) => before,
            (Standing::Failed(_), FlowEnd::Idle | FlowEnd::Endpoint) => FlowEnd::Refused,
            _ => why,
        }
    }

    /// Whether it may stay with its endpoint, and where that stands now.
    pub(super) fn stays(&self, service: &Service) -> Option<usize> {
        let index = self.place(service)?;
        let endpoint = service.endpoints().get(index)?;
        if endpoint.is_out() {
            return None;
        }
        // Where checks are ignored because all fail, they move nobody either.
        let may =
            endpoint.live().is_passing() || (endpoint.is_eligible() && service.is_panicking());
        may.then_some(index)
    }

    /// Where its endpoint stands in `service` now, if it has not left.
    pub(super) fn place(&self, service: &Service) -> Option<usize> {
        let is_it = |endpoint: &crate::service::Endpoint| {
            Arc::ptr_eq(endpoint.live(), self.lease.endpoint())
        };
        let index = self.index as usize;
        match service.endpoints().get(index) {
            Some(endpoint) if is_it(endpoint) => Some(index),
            _ => service.endpoints().iter().position(is_it),
        }
    }
}
