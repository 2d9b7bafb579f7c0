//! The events that wait to be written. Pure; used by [`super`].

use std::collections::VecDeque;

use super::NewEvent;
use crate::decide::Kind;

/// Waiting events, in the order in which they came, but warnings first: they say why a Service is not served.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    warnings: VecDeque<NewEvent>,
    others: VecDeque<NewEvent>,
}

impl EventQueue {
    /// Adds an event, unless the queue is full. Returns whether there was room.
    pub(super) fn push(&mut self, event: NewEvent) -> bool {
        if self.is_full() {
            return false;
        }
        match event.kind {
            Kind::Warning => self.warnings.push_back(event),
            Kind::Normal => self.others.push_back(event),
        }
        true
    }

    pub(super) fn pop(&mut self) -> Option<NewEvent> {
        self.warnings
            .pop_front()
            .or_else(|| self.others.pop_front())
    }

    pub(super) fn is_full(&self) -> bool {
        self.warnings.len() + self.others.len() >= MOST_WAITING
    }
}

/// The events that may wait: those of 5,000 Services that are published at once.
pub(super) const MOST_WAITING: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::About;
    use crate::observe::Key;

    fn event(kind: Kind, reason: &str) -> NewEvent {
        let about = About::Service(Key::new("shop", "web"));
        NewEvent::new(about, "uid", kind, reason, String::new())
    }

    #[test]
    fn warnings_pass_the_events_of_services_that_are_served() {
        let mut queue = EventQueue::default();
        for (kind, reason) in [
            (Kind::Normal, "EnsuringLoadBalancer"),
            (Kind::Normal, "EnsuredLoadBalancer"),
            (Kind::Warning, "AllocationFailed"),
            (Kind::Warning, "InvalidAnnotation"),
        ] {
            assert!(queue.push(event(kind, reason)));
        }
        let reasons = std::iter::from_fn(|| queue.pop()).map(|event| event.reason);
        let expected = [
            "AllocationFailed",
            "InvalidAnnotation",
            "EnsuringLoadBalancer",
            "EnsuredLoadBalancer",
        ];
        assert_eq!(reasons.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_full_queue_takes_no_more() {
        let mut queue = EventQueue::default();
        for _ in 0..MOST_WAITING {
            assert!(queue.push(event(Kind::Normal, "EnsuredLoadBalancer")));
        }
        assert!(!queue.push(event(Kind::Warning, "AllocationFailed")));
        queue.pop();
        assert!(queue.push(event(Kind::Warning, "AllocationFailed")));
    }
}
