//! Scans all flows, some at a time, so that datagrams need not wait for the end of a scan.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::EndpointState;
use crate::moment::Moment;
use crate::plan::Frontend;

use super::decide::idle_of;
use super::{FlowTable, Key, Listener};

impl<S> FlowTable<S> {
    /// Counts the active flows among the next ones from `from` on: those with a datagram in the last 2 s. Also returns where to
    /// go on, if there are more flows.
    pub fn count_active(&self, now: Moment, from: u32) -> (usize, Option<u32>) {
        let (places, next) = self.next_places(from);
        let flows = places.filter_map(|place| self.flows.at(place));
        let active = flows.filter(|flow| now.since(flow.last) < ACTIVE);
        (active.count(), next)
    }

    /// Gives the next flows from `from` on the present idle timeouts of their frontends, and has `revise` do the same for the
    /// caller's values. Returns where to go on, if there are more flows. `frontend` returns the present frontend of a listening
    /// socket.
    pub fn revise<'p>(
        &mut self,
        from: u32,
        frontend: impl Fn(Listener) -> Option<&'p Arc<Frontend>>,
        mut revise: impl FnMut(&Frontend, Key, &EndpointState, &mut S),
    ) -> Option<u32> {
        let (places, next) = self.next_places(from);
        for place in places {
            let Some(flow) = self.flows.at_mut(place) else {
                continue;
            };
            let key = flow.key.key();
            let frontend = frontend(key.listener);
            let same = frontend.filter(|now| Arc::ptr_eq(&flow.frontend, now.state()));
            if let Some(frontend) = same {
                flow.idle = idle_of(frontend);
                if let Some(attached) = &mut flow.attached {
                    revise(frontend, key, flow.lease.endpoint(), attached);
                }
                self.bring_forward(place);
            }
        }
        next
    }

    fn next_places(&self, from: u32) -> (Range<u32>, Option<u32>) {
        let last = self.flows.places();
        let until = from.saturating_add(PLACES_PER_STEP).min(last);
        (from..until, (until < last).then_some(until))
    }
}

/// A flow counts as active for this time after a datagram, while the process ends.
const ACTIVE: Duration = Duration::from_secs(2);
/// Slots scanned before datagrams are handled.
const PLACES_PER_STEP: u32 = 1_024;
