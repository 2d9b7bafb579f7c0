//! The entry of one flow in the table.

use std::sync::Arc;

use crate::admit::Admission;
use crate::endpoint::Lease;
use crate::moment::Moment;
use crate::plan::{Frontend, FrontendState};
use crate::service::{Failure, Service};

use super::key::Compact;
use super::ports::Taken;
use crate::udp_counters::FlowEnd;

/// One client's conversation with one endpoint. The fields that each datagram needs come before those that only the beginning
/// and the end need.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Flow<S> {
    pub(super) key: Compact,
    pub(super) frontend: Arc<FrontendState>,
    pub(super) lease: Lease,
    /// The moment of the last datagram in either direction.
    pub(super) last: Moment,
    /// When it was last moved in the lists of idle flows.
    pub(super) queued: Moment,
    /// The endpoint's index in its service: a hint, because a swap may have moved it.
    pub(super) index: u32,
    /// The idle timeout in milliseconds.
    pub(super) idle: u32,
    pub(super) requests: u32,
    pub(super) responses: u32,
    /// The number of replies after which it ends.
    pub(super) most_responses: u32,
    pub(super) status: FlowStatus,
    /// Its class in the lists of idle flows.
    pub(super) queue: Class,
    /// The caller's value.
    pub(super) attached: Option<S>,
    pub(super) began: Moment,
    pub(super) admission: Option<Admission>,
    /// The local port of its socket.
    pub(super) taken: Taken,
}

/// What happens to the client's next datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowStatus {
    /// It goes to this flow's endpoint.
    Open,
    /// It goes to another endpoint, if there is one.
    Failed(Failure),
    /// It begins another flow. This one only waits for replies.
    Over(FlowEnd),
}

/// The order in which flows are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// One request and one reply.
    Answered,
    /// One request.
    Asked,
    /// More than one request or reply.
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

    /// Whether it has had as many replies as the frontend allows a flow.
    pub(super) fn has_all_replies(&self, frontend: &Frontend) -> bool {
        let most = frontend.spec().udp().responses;
        most.is_some_and(|most| self.responses >= most.get())
    }

    /// When it ends if no datagram comes.
    pub(super) fn deadline(&self) -> Moment {
        Moment(self.last.0.saturating_add(self.idle.into()))
    }

    /// The reason to count, if `why` is what ends the flow now.
    pub(super) fn end(&self, why: FlowEnd) -> FlowEnd {
        match (self.status, why) {
            (FlowStatus::Over(before), FlowEnd::Idle | FlowEnd::Responses) => before,
            (FlowStatus::Failed(_), FlowEnd::Idle | FlowEnd::Endpoint) => FlowEnd::Refused,
            _ => why,
        }
    }

    /// The present index of its endpoint, if the flow may stay with it.
    pub(super) fn stays(&self, service: &Service) -> Option<usize> {
        let index = self.place(service)?;
        let endpoint = service.endpoints().get(index)?;
        if endpoint.is_out() {
            return None;
        }
        // If checks are ignored because all fail, they do not move flows either.
        let may =
            endpoint.live().is_passing() || (endpoint.is_eligible() && service.is_panicking());
        may.then_some(index)
    }

    /// The present index of its endpoint in `service`, if it was not removed.
    pub(super) fn place(&self, service: &Service) -> Option<usize> {
        let matches = |endpoint: &crate::service::Endpoint| {
            Arc::ptr_eq(endpoint.live(), self.lease.endpoint())
        };
        let index = self.index as usize;
        match service.endpoints().get(index) {
            Some(endpoint) if matches(endpoint) => Some(index),
            _ => service.endpoints().iter().position(matches),
        }
    }
}
