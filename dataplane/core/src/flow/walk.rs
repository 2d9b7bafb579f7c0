//! Looks at all flows, some at a time, so that datagrams need not wait for the end of a look.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::plan::Frontend;

use super::decide::idle_of;
use super::{FlowTable, Listener};

impl<S> FlowTable<S> {
    /// How many of the next flows from place `from` on have had a datagram in the last 2 s, and where to go on, if
    /// there are more.
    #[must_use]
    pub fn count_active(&self, now: Moment, from: u32) -> (usize, Option<u32>) {
        let (places, next) = self.next_places(from);
        let flows = places.filter_map(|place| self.flows.at(place));
        let active = flows.filter(|flow| now.since(flow.last) < ACTIVE);
        (active.count(), next)
    }

    /// Gives the next flows from place `from` on the idle time that their frontends have now, and says where to go on, if
    /// there are more. `frontend` says who a listening socket belongs to now.
    pub fn follow_idle_times<'p>(
        &mut self,
        from: u32,
        frontend: impl Fn(Listener) -> Option<&'p Arc<Frontend>>,
    ) -> Option<u32> {
        let (places, next) = self.next_places(from);
        for place in places {
            let Some(flow) = self.flows.at_mut(place) else {
                continue;
            };
            let frontend = frontend(flow.key.key().listener);
            let same = frontend.filter(|now| Arc::ptr_eq(&flow.frontend, now.state()));
            if let Some(frontend) = same {
                flow.idle = idle_of(frontend);
                self.bring_forward(place);
            }
        }
        next
    }

    fn next_places(&self, from: u32) -> (Range<u32>, Option<u32>) {
        let last = self.flows.places();
        let until = from.saturating_add(AT_A_TIME).min(last);
        (from..until, (until < last).then_some(until))
    }
}

/// For so long after a datagram a flow counts as active when the process is to end.
const ACTIVE: Duration = Duration::from_secs(2);
/// Places that are looked at before datagrams have their turn.
const AT_A_TIME: u32 = 1_024;
