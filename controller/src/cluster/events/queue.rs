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
    /// Adds an event. Returns the event for which there is no room: the newest one that is no warning, or else the newest warning.
    pub(super) fn push(&mut self, event: NewEvent) -> Option<NewEvent> {
        match event.kind {
            Kind::Warning => self.warnings.push_back(event),
            Kind::Normal => self.others.push_back(event),
        }
        if self.warnings.len() + self.others.len() <= MOST_WAITING {
            return None;
        }
        self.others.pop_back().or_else(|| self.warnings.pop_back())
    }

    pub(super) fn pop(&mut self) -> Option<NewEvent> {
        self.warnings
            .pop_front()
            .or_else(|| self.others.pop_front())
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
            assert_eq!(queue.push(event(kind, reason)), None);
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
    fn a_full_queue_takes_a_warning_in_the_place_of_the_newest_event_that_is_none() {
        let mut queue = EventQueue::default();
        let normal = |reason: &str| event(Kind::Normal, reason);
        let warning = |reason: &str| event(Kind::Warning, reason);
        for _ in 1..MOST_WAITING {
            assert_eq!(queue.push(normal("EnsuringLoadBalancer")), None);
        }
        assert_eq!(queue.push(normal("nodeAssigned")), None);
        let another = normal("EnsuredLoadBalancer");
        assert_eq!(queue.push(another.clone()), Some(another));
        let evicted = queue.push(warning("AllocationFailed"));
        assert_eq!(evicted, Some(normal("nodeAssigned")));
        assert_eq!(queue.pop(), Some(warning("AllocationFailed")));
    }

    #[test]
    fn a_queue_full_of_warnings_keeps_the_oldest() {
        let mut queue = EventQueue::default();
        for _ in 0..MOST_WAITING {
            assert_eq!(queue.push(event(Kind::Warning, "NameTaken")), None);
        }
        let newest = event(Kind::Warning, "AllocationFailed");
        assert_eq!(queue.push(newest.clone()), Some(newest));
    }
}
