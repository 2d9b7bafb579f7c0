//! The events that wait to be written. Pure; used by [`super`].

use std::collections::VecDeque;

use super::NewEvent;
use crate::decide::Kind;

/// Waiting events, in the order in which they came, but warnings first: they say why a Service is not served.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    warnings: VecDeque<NewEvent>,
    others: VecDeque<NewEvent>,
    /// Those that an earlier leader may have told.
    repeats: VecDeque<NewEvent>,
}

impl EventQueue {
    /// Adds an event; `is_first`: its notice stood when this process began to lead, so it is probably there already. Returns the
    /// event for which there is no room: the newest of those, or else the newest one that is no warning, or else the newest warning.
    pub(super) fn push(&mut self, event: NewEvent, is_first: bool) -> Option<NewEvent> {
        match event.kind {
            _ if is_first => self.repeats.push_back(event),
            Kind::Warning => self.warnings.push_back(event),
            Kind::Normal => self.others.push_back(event),
        }
        let [warnings, others, repeats] = self.queues();
        if warnings.len() + others.len() + repeats.len() <= MOST_WAITING {
            return None;
        }
        let mut queues = self.queues().into_iter().rev();
        queues.find_map(VecDeque::pop_back)
    }

    pub(super) fn pop(&mut self) -> Option<NewEvent> {
        let mut queues = self.queues().into_iter();
        queues.find_map(VecDeque::pop_front)
    }

    /// What comes first, and what comes after it.
    fn queues(&mut self) -> [&mut VecDeque<NewEvent>; 3] {
        [&mut self.warnings, &mut self.others, &mut self.repeats]
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
            assert_eq!(queue.push(event(kind, reason), false), None);
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
            assert_eq!(queue.push(normal("EnsuringLoadBalancer"), false), None);
        }
        assert_eq!(queue.push(normal("nodeAssigned"), false), None);
        let another = normal("EnsuredLoadBalancer");
        assert_eq!(queue.push(another.clone(), false), Some(another));
        let evicted = queue.push(warning("AllocationFailed"), false);
        assert_eq!(evicted, Some(normal("nodeAssigned")));
        assert_eq!(queue.pop(), Some(warning("AllocationFailed")));
    }

    #[test]
    fn a_queue_full_of_warnings_keeps_the_oldest() {
        let mut queue = EventQueue::default();
        for _ in 0..MOST_WAITING {
            assert_eq!(queue.push(event(Kind::Warning, "NameTaken"), false), None);
        }
        let newest = event(Kind::Warning, "AllocationFailed");
        assert_eq!(queue.push(newest.clone(), false), Some(newest));
    }

    #[test]
    fn news_pass_what_an_earlier_leader_may_have_told() {
        let mut queue = EventQueue::default();
        for _ in 0..MOST_WAITING {
            let told = event(Kind::Warning, "NameTaken");
            assert_eq!(queue.push(told, true), None);
        }
        let news = [
            event(Kind::Warning, "AllocationFailed"),
            event(Kind::Normal, "EnsuredLoadBalancer"),
        ];
        for event in news {
            let evicted = queue.push(event, false).unwrap();
            assert_eq!(evicted.reason, "NameTaken");
        }
        let first = [(); 3].map(|()| queue.pop().unwrap().reason);
        assert_eq!(
            first,
            ["AllocationFailed", "EnsuredLoadBalancer", "NameTaken"]
        );
    }
}
