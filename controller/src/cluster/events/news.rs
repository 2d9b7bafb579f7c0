//! The notices that are news. Pure; called by [`super`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::NewEvent;
use crate::decide::{About, Kind, Notice};
use crate::observe::Observed;

/// The notices that stand, as events.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// `None`: this process has only just begun to lead.
    standing: Option<BTreeSet<NewEvent>>,
    /// Those that stood already when this process began to lead, until they are written.
    first: BTreeSet<NewEvent>,
    /// The warnings that could not be written, and when they are to be told again.
    again: BTreeMap<NewEvent, Duration>,
}

impl Announced {
    /// The events of notices that are new. Notices of one kind about one object are one event.
    pub(super) fn news(
        &mut self,
        notices: &BTreeSet<Notice>,
        observed: &Observed,
    ) -> Vec<NewEvent> {
        let standing = gathered(notices, observed);
        let new: Vec<NewEvent> = match &self.standing {
            Some(before) => standing.difference(before).cloned().collect(),
            None => {
                self.first.clone_from(&standing);
                standing.iter().cloned().collect()
            }
        };
        self.first.retain(|event| standing.contains(event));
        self.again.retain(|event, _| standing.contains(event));
        self.standing = Some(standing);
        new
    }

    /// Whether the notice of an event stood when this process began to lead, and still stands, and the event is not written yet.
    pub(super) fn is_first(&self, event: &NewEvent) -> bool {
        self.first.contains(event)
    }

    /// Whether the event is of a notice that stands, which is told again if it is not written.
    pub(super) fn stands(&self, event: &NewEvent) -> bool {
        self.standing
            .as_ref()
            .is_some_and(|all| all.contains(event))
    }

    /// Takes in that an event was written.
    pub(super) fn told(&mut self, event: &NewEvent) {
        self.first.remove(event);
    }

    /// Takes in that an event was not written. A warning that stands is to be told again at this time.
    pub(super) fn lost(&mut self, event: &NewEvent, again: Duration) {
        if self.stands(event) && event.kind == Kind::Warning {
            self.again.insert(event.clone(), again);
        }
    }

    /// The time at which a warning is to be told again.
    pub(super) fn next(&self) -> Option<Duration> {
        self.again.values().min().copied()
    }

    /// The warnings that are to be told again now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<NewEvent> {
        let due = self.again.iter().filter(|(_, at)| **at <= now);
        let due: Vec<NewEvent> = due.map(|(event, _)| event.clone()).collect();
        self.again.retain(|_, at| *at > now);
        due
    }
}

/// One event for each object and reason.
fn gathered(notices: &BTreeSet<Notice>, observed: &Observed) -> BTreeSet<NewEvent> {
    let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for notice in notices {
        let group = (&notice.about, notice.kind, notice.reason);
        groups.entry(group).or_default().push(&notice.message);
    }
    let events = groups.into_iter();
    let events = events.filter_map(|((about, kind, reason), messages)| {
        let uid = match about {
            About::Flag(_) => return None,
            // Kubelets give a Node's name as the UID of its events, and `kubectl describe` looks for that.
            About::Node(name) => name,
            About::Service(key) => &observed.services.get(key)?.uid,
        };
        let (reason, message) = (reason.to_string(), messages.join("; "));
        Some(NewEvent::new(about.clone(), uid, kind, &reason, message))
    });
    events.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Reason;
    use crate::observe::Key;

    fn seen() -> Observed {
        Observed::of("kind: Service\nmetadata: {name: shop, namespace: default, uid: u-1}\n")
    }

    fn about(reason: Reason, message: &str) -> Notice {
        Notice {
            about: About::Service(Key::new("default", "shop")),
            kind: Kind::Warning,
            reason,
            message: message.to_owned(),
        }
    }

    /// The messages of what is news now.
    fn messages(announced: &mut Announced, notices: &BTreeSet<Notice>) -> Vec<String> {
        let news = announced.news(notices, &seen());
        news.into_iter().map(|event| event.message).collect()
    }

    #[test]
    fn a_warning_that_could_not_be_written_is_told_again_while_it_stands() {
        let at = Duration::from_secs;
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        let mut announced = Announced::default();
        let warnings = announced.news(&bad, &seen());
        assert_eq!(announced.next(), None);
        announced.lost(&warnings[0], at(60));
        assert_eq!(announced.next(), Some(at(60)));
        assert_eq!(announced.due(at(59)), []);
        assert_eq!(announced.due(at(60)), warnings);
        assert_eq!((announced.due(at(61)), announced.next()), (vec![], None));
        announced.lost(&warnings[0], at(120));
        announced.news(&BTreeSet::new(), &seen());
        assert_eq!(announced.due(at(120)), [], "it stands no more");
        announced.lost(&warnings[0], at(180));
        assert_eq!(announced.next(), None);
    }

    #[test]
    fn a_notice_is_told_when_it_comes_and_again_only_after_it_went() {
        let mut announced = Announced::default();
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        assert_eq!(messages(&mut announced, &bad), ["bad"]);
        assert_eq!(messages(&mut announced, &bad), [""; 0]);
        let none = BTreeSet::new();
        assert_eq!(messages(&mut announced, &none), [""; 0]);
        assert_eq!(messages(&mut announced, &bad), ["bad"]);
    }

    #[test]
    fn notices_of_one_kind_are_one_event() {
        let mut announced = Announced::default();
        let mut notices = BTreeSet::from([
            about(Reason::InvalidAnnotation, "a"),
            about(Reason::InvalidAnnotation, "b"),
            about(Reason::NameTaken, "c"),
        ]);
        assert_eq!(messages(&mut announced, &notices), ["a; b", "c"]);
        notices.insert(about(Reason::InvalidAnnotation, "d"));
        assert_eq!(messages(&mut announced, &notices), ["a; b; d"]);
    }

    #[test]
    fn what_stood_at_the_beginning_may_have_been_told_by_an_earlier_leader_until_it_goes() {
        let mut announced = Announced::default();
        let mut notices = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        let first = announced.news(&notices, &seen());
        assert!(announced.is_first(&first[0]));
        let bad = notices.replace(about(Reason::NameTaken, "new"));
        assert_eq!(bad, None);
        let new = announced.news(&notices, &seen());
        assert!(!announced.is_first(&new[0]) && announced.is_first(&first[0]));
        // It went, and came again.
        announced.news(&BTreeSet::new(), &seen());
        let again = announced.news(&notices, &seen());
        assert_eq!(again.len(), 2);
        assert!(!again.iter().any(|event| announced.is_first(event)));
        // What was written is told.
        let mut announced = Announced::default();
        announced.news(&notices, &seen());
        announced.told(&first[0]);
        assert!(!announced.is_first(&first[0]));
    }

    #[test]
    fn remarks_on_flags_are_no_events() {
        let notice = Notice {
            about: About::Flag("--tcp-services"),
            ..about(Reason::NoSuchService, "x")
        };
        let mut announced = Announced::default();
        assert_eq!(messages(&mut announced, &BTreeSet::from([notice])), [""; 0]);
    }
}
