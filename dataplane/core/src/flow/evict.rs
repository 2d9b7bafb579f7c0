//! Evicts flows: for a new flow at the limit, and for one that finds no free local port.

use std::net::IpAddr;

use crate::moment::Moment;
use crate::rng::Rng;

use super::entry::Class;
use super::ports::{Local, Taken, unspecified_source};
use super::{FlowId, FlowTable};
use crate::udp_counters::FlowEnd;

impl<S> FlowTable<S> {
    /// Where to bind the socket of a new flow: a port that no other flow to its endpoint has, at `source`, or at the address
    /// that the kernel chooses. `None`: no port is free there.
    pub fn take_port(
        &mut self,
        now: Moment,
        flow: FlowId,
        source: Option<IpAddr>,
        rng: &mut Rng,
    ) -> Option<Local> {
        let endpoint = self.endpoint(flow)?.address();
        self.give_up_port(now, flow, |ports, taken| ports.release(taken));
        let source = source.unwrap_or_else(|| unspecified_source(endpoint));
        let (taken, local) = self.ports.take(now, endpoint, source, rng)?;
        self.set_port(now, flow, taken);
        Some(local)
    }

    /// Notes that another process has the port that this flow was given. The flow needs another port.
    pub fn port_is_foreign(&mut self, now: Moment, flow: FlowId) {
        self.give_up_port(now, flow, |ports, taken| ports.release_foreign(now, taken));
    }

    /// Evicts the flow that was idle for the longest time among those to the same endpoint as `flow` and from one of these
    /// sources, to free its port. Returns whether there was one.
    pub fn evict_for_port(
        &mut self,
        now: Moment,
        flow: FlowId,
        sources: impl Iterator<Item = Option<IpAddr>> + Clone,
    ) -> bool {
        let Some(endpoint) = self.endpoint(flow).map(|endpoint| endpoint.address()) else {
            return false;
        };
        // Otherwise `flow` could evict itself.
        self.give_up_port(now, flow, |ports, taken| ports.release(taken));
        let next = next_victim(|class| {
            let of_source = |source: Option<IpAddr>| {
                let source = source.unwrap_or_else(|| unspecified_source(endpoint));
                let group = self.ports.group(endpoint, source)?;
                let place = self.idle.first_of(group, class)?;
                Some((self.flows.at(place)?.queued, place))
            };
            sources.clone().filter_map(of_source).min()
        });
        self.evict_at(now, next)
    }

    /// Evicts the next flow, but not `flow`. Returns whether there was one.
    pub fn evict_for(&mut self, now: Moment, flow: FlowId) -> bool {
        let Some(known) = self.flows.get_mut(flow) else {
            return self.evict(now);
        };
        known.queued = now;
        let (group, class) = (known.taken.group, known.queue);
        self.idle.remove(flow.place);
        let evicted = self.evict(now);
        self.idle.push(group, class, flow.place, now);
        evicted
    }

    /// Evicts the next flow. Returns whether there was one.
    pub fn evict(&mut self, now: Moment) -> bool {
        let next = next_victim(|class| {
            let since = |place| Some(self.flows.at(place)?.queued);
            self.idle.first(class, since)
        });
        self.evict_at(now, next)
    }

    fn evict_at(&mut self, now: Moment, place: Option<u32>) -> bool {
        if let Some(place) = place {
            self.end_at(now, place, FlowEnd::Evicted);
        }
        place.is_some()
    }

    fn set_port(&mut self, now: Moment, flow: FlowId, taken: Taken) {
        if let Some(known) = self.flows.get_mut(flow) {
            (known.taken, known.queued) = (taken, now);
            self.idle.remove(flow.place);
            self.idle.push(taken.group, known.queue, flow.place, now);
        }
    }

    fn give_up_port(
        &mut self,
        now: Moment,
        flow: FlowId,
        how: impl FnOnce(&mut super::LocalPorts, Taken),
    ) {
        let taken = self.flows.get(flow).map(|known| known.taken);
        if let Some(taken) = taken.filter(|taken| *taken != Taken::default()) {
            self.set_port(now, flow, Taken::default());
            how(&mut self.ports, taken);
        }
    }
}

/// Flows with at most one request and one reply are evicted first, in the order of their idle time; then all others.
fn next_victim(mut longest_idle: impl FnMut(Class) -> Option<(Moment, u32)>) -> Option<u32> {
    let short = [Class::Answered, Class::Asked].map(&mut longest_idle);
    let short = short.into_iter().flatten().min();
    let next = short.or_else(|| longest_idle(Class::Established));
    next.map(|(_, place)| place)
}
