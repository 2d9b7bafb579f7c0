//! One flow, as the table keeps it.

use std::sync::Arc;
use std::time::Duration;

use crate::admit::Admission;
use crate::endpoint::Lease;
use crate::moment::Moment;
use crate::plan::FrontendState;
use crate::service::{Failure, Service};
use crate::table::State;

use super::count::FlowEnd;
use super::key::FullKey;

/// The conversation of one client with one endpoint.
#[derive(Debug)]
pub(super) struct Flow<S> {
    pub(super) key: FullKey,
    pub(super) frontend: Arc<FrontendState>,
    pub(super) lease: Lease,
    /// Where the endpoint stands in its service: a hint, for a swap may have moved it.
    pub(super) index: usize,
    pub(super) admission: Option<Admission>,
    pub(super) standing: Standing,
    pub(super) began: Moment,
    /// The last datagram in either direction.
    pub(super) last: Moment,
    pub(super) idle: Duration,
    pub(super) requests: u32,
    pub(super) responses: u32,
    /// Answers after which it ends.
    pub(super) most_responses: u32,
    /// When it was put where it stands among those that may be evicted.
    pub(super) queued: Moment,
    /// The shell's side of it.
    pub(super) leg: Option<S>,
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

    pub(super) const fn chain(self) -> usize {
        self as usize
    }
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
        self.last.after(self.idle)
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
        if endpoint.state() == State::Disabled {
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
        match service.endpoints().get(self.index) {
            Some(endpoint) if is_it(endpoint) => Some(self.index),
            _ => service.endpoints().iter().position(is_it),
        }
    }
}
