//! The notices that are news. Pure; called by [`super`].
//!
//! The API server deletes events after an hour or so, and the publisher may not read them. An annotation of each Service lists
//! therefore the events of the notices that stand, as `REASON:HASH`; `status` writes it. For Nodes there is one on the leader's
//! Lease. Both list a warning only once it was written: what a process could not write, the next leader tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::NewEvent;
use crate::decide::{About, Kind, Notice, Reason, TOLD};
use crate::observe::{Key, Observed, Service};

/// The notices that stand, and those that were told by an earlier leader.
#[derive(Debug)]
pub(super) struct Announced {
    standing: BTreeSet<NewEvent>,
    /// The warnings among them that are not written yet. With a time: the warning could not be written, and is to be told again
    /// then.
    untold: BTreeMap<NewEvent, Option<Duration>>,
    /// UID and `REASON:HASH`.
    before: BTreeSet<(String, String)>,
}

/// The events of notices that came to stand.
#[derive(Debug)]
pub(super) struct News {
    pub(super) new: Vec<NewEvent>,
    /// Those that an earlier leader told.
    pub(super) known: Vec<NewEvent>,
}

impl Announced {
    /// The state of a process that begins to lead. `on_nodes` is the text of the leader's Lease.
    pub(super) fn new(observed: &Observed, on_nodes: &str) -> Self {
        let mut before = BTreeSet::new();
        for service in observed.services.values() {
            let marks = service.annotations.get(TOLD).into_iter();
            let marks = marks.flat_map(|text| text.split(' '));
            before.extend(marks.map(|mark| (service.uid.clone(), mark.to_owned())));
        }
        let nodes = on_nodes.split(' ').filter_map(|text| text.split_once('/'));
        before.extend(nodes.map(|(name, mark)| (name.to_owned(), mark.to_owned())));
        Self {
            standing: BTreeSet::new(),
            untold: BTreeMap::new(),
            before,
        }
    }

    /// The events of notices that are new. Notices of one kind about one object are one event.
    pub(super) fn news(&mut self, notices: &BTreeSet<Notice>, observed: &Observed) -> News {
        let standing = gathered(notices, observed);
        let is_told = |event: &NewEvent| {
            let told = (event.uid.clone(), mark(event));
            self.before.contains(&told)
        };
        let come = standing.difference(&self.standing).cloned();
        let (known, new): (Vec<_>, Vec<_>) = come.partition(is_told);
        self.untold.retain(|event, _| standing.contains(event));
        let warnings = new.iter().filter(|event| event.kind == Kind::Warning);
        self.untold
            .extend(warnings.map(|event| (event.clone(), None)));
        self.standing = standing;
        // This notice may come to stand later though nothing has changed: a write shows what the API server does with `ipMode`.
        let late = format!("{}:", Reason::IPModeUnsupported);
        self.before.retain(|(_, mark)| mark.starts_with(&late));
        News { new, known }
    }

    /// Takes in that an event was written. Returns whether it is a warning that stands and was not told before.
    pub(super) fn told(&mut self, event: &NewEvent) -> bool {
        self.untold.remove(event).is_some()
    }

    /// Takes in that an event was not written. A warning that stands is to be told again at this time.
    pub(super) fn lost(&mut self, event: &NewEvent, again: Duration) {
        if let Some(at) = self.untold.get_mut(event) {
            *at = Some(again);
        }
    }

    /// The time at which a warning is to be told again.
    pub(super) fn next(&self) -> Option<Duration> {
        self.untold.values().flatten().min().copied()
    }

    /// The warnings that are to be told again now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<NewEvent> {
        let again = self.untold.iter_mut();
        let again = again.filter_map(|(event, at)| {
            at.take_if(|at| *at <= now)?;
            Some(event.clone())
        });
        again.collect()
    }

    /// The events about Nodes that stand and were told, as `NAME/REASON:HASH`.
    pub(super) fn told_on_nodes(&self) -> String {
        let mut text = String::new();
        for event in &self.standing {
            if let About::Node(name) = &event.about
                && !self.untold.contains_key(event)
                && text.len() < MOST_ON_NODES
            {
                append(&mut text, &format!("{name}/{}", mark(event)));
            }
        }
        text
    }
}

/// A warning about a Service that was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cluster) struct Told {
    pub(in crate::cluster) service: Key,
    uid: String,
    mark: String,
}

impl Told {
    /// `None`: the event is no warning, or about no Service.
    pub(in crate::cluster) fn of(event: &NewEvent) -> Option<Self> {
        match (&event.about, event.kind) {
            (About::Service(key), Kind::Warning) => Some(Self {
                service: key.clone(),
                uid: event.uid.clone(),
                mark: mark(event),
            }),
            _ => None,
        }
    }
}

/// The notices that stand about Services, and the warnings of them that were written: what the annotations [`TOLD`] say.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Marks {
    /// The kind of each event, and `REASON:HASH`.
    standing: BTreeMap<Key, Vec<(Kind, String)>>,
    told: BTreeSet<Told>,
}

impl Marks {
    /// Takes in the notices that stand now.
    pub(in crate::cluster) fn stand(&mut self, notices: &BTreeSet<Notice>, observed: &Observed) {
        self.standing.clear();
        let mut told = BTreeSet::new();
        for event in gathered(notices, observed) {
            if let About::Service(key) = &event.about {
                let stood = Told::of(&event).and_then(|warning| self.told.take(&warning));
                told.extend(stood);
                let marks = self.standing.entry(key.clone()).or_default();
                marks.push((event.kind, mark(&event)));
            }
        }
        self.told = told;
    }

    pub(in crate::cluster) fn add(&mut self, told: Told) {
        self.told.insert(told);
    }

    /// The value of the annotation; `None`: the Service has none. A warning that it lists already was written by an earlier leader.
    pub(in crate::cluster) fn of(&self, service: &Service) -> Option<String> {
        let standing = self.standing.get(&service.key)?;
        let there = service.annotations.get(TOLD).map(String::as_str);
        let there: BTreeSet<&str> = there.unwrap_or_default().split(' ').collect();
        let is_told = |mark: &str| {
            self.told.contains(&Told {
                service: service.key.clone(),
                uid: service.uid.clone(),
                mark: mark.to_owned(),
            })
        };
        let mut text = String::new();
        for (kind, mark) in standing {
            if *kind == Kind::Normal || there.contains(&**mark) || is_told(mark) {
                append(&mut text, mark);
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

fn append(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}

/// `REASON:HASH`
fn mark(event: &NewEvent) -> String {
    format!("{}:{}", event.reason, hash(&event.message))
}

/// A short hash of a message. Other processes compute the same.
pub(super) fn hash(message: &str) -> String {
    let hash = Sha256::digest(message);
    let hex = hash.iter().take(4).map(|byte| format!("{byte:02x}"));
    hex.collect()
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

/// Bytes about Nodes: a Lease that is too large could not be renewed.
const MOST_ON_NODES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Kind;
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

    fn messages(news: &News) -> Vec<&str> {
        let events = news.new.iter();
        events.map(|event| event.message.as_str()).collect()
    }

    /// The annotation of the Service `shop`, if these notices stand and these warnings were written.
    fn annotation(notices: &BTreeSet<Notice>, written: &[NewEvent]) -> Option<String> {
        let mut marks = Marks::default();
        marks.stand(notices, &seen());
        written
            .iter()
            .filter_map(Told::of)
            .for_each(|told| marks.add(told));
        marks.of(&seen().services[&Key::new("default", "shop")])
    }

    #[test]
    fn a_warning_is_listed_only_once_it_was_written() {
        let mut notices = BTreeSet::from([
            about(Reason::InvalidAnnotation, "bad"),
            about(Reason::NameTaken, "taken"),
        ]);
        let warnings = Announced::new(&seen(), "").news(&notices, &seen()).new;
        assert_eq!(annotation(&notices, &[]), None);
        let [bad, taken] = &warnings[..] else {
            panic!("{warnings:?}");
        };
        assert_eq!(annotation(&notices, &warnings[..1]), Some(mark(bad)));
        let both = format!("{} {}", mark(bad), mark(taken));
        assert_eq!(annotation(&notices, &warnings), Some(both));
        // A Normal event is listed before it is written.
        notices = BTreeSet::from([Notice {
            kind: Kind::Normal,
            ..about(Reason::NoActiveCheck, "none")
        }]);
        assert!(annotation(&notices, &[]).is_some());
    }

    #[test]
    fn a_warning_that_was_written_is_no_other_services_and_is_forgotten_when_it_goes() {
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        let warnings = Announced::new(&seen(), "").news(&bad, &seen()).new;
        let mut marks = Marks::default();
        marks.add(Told::of(&warnings[0]).unwrap());
        marks.stand(&bad, &seen());
        let service = (*seen().services[&Key::new("default", "shop")]).clone();
        assert!(marks.of(&service).is_some());
        let another = Service {
            uid: "u-2".to_owned(),
            ..service.clone()
        };
        assert_eq!(marks.of(&another), None);
        marks.stand(&BTreeSet::new(), &seen());
        marks.stand(&bad, &seen());
        assert_eq!(marks.of(&service), None);
    }

    #[test]
    fn a_warning_that_could_not_be_written_is_told_again_while_it_stands() {
        let at = Duration::from_secs;
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        let mut announced = Announced::new(&seen(), "");
        let warnings = announced.news(&bad, &seen()).new;
        assert_eq!(announced.next(), None);
        announced.lost(&warnings[0], at(60));
        assert_eq!(announced.next(), Some(at(60)));
        assert_eq!(announced.due(at(59)), []);
        assert_eq!(announced.due(at(60)), warnings);
        assert_eq!((announced.due(at(61)), announced.next()), (vec![], None));
        announced.lost(&warnings[0], at(120));
        announced.news(&BTreeSet::new(), &seen());
        assert_eq!(announced.due(at(120)), [], "it stands no more");
        announced.news(&bad, &seen());
        announced.told(&warnings[0]);
        announced.lost(&warnings[0], at(180));
        assert_eq!(announced.next(), None);
    }

    #[test]
    fn a_notice_is_told_when_it_comes_and_again_only_after_it_went() {
        let mut announced = Announced::new(&seen(), "");
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        assert_eq!(messages(&announced.news(&bad, &seen())), ["bad"]);
        assert_eq!(messages(&announced.news(&bad, &seen())), [""; 0]);
        let none = BTreeSet::new();
        assert_eq!(messages(&announced.news(&none, &seen())), [""; 0]);
        assert_eq!(messages(&announced.news(&bad, &seen())), ["bad"]);
    }

    #[test]
    fn notices_of_one_kind_are_one_event() {
        let mut announced = Announced::new(&seen(), "");
        let mut notices = BTreeSet::from([
            about(Reason::InvalidAnnotation, "a"),
            about(Reason::InvalidAnnotation, "b"),
            about(Reason::NameTaken, "c"),
        ]);
        assert_eq!(messages(&announced.news(&notices, &seen())), ["a; b", "c"]);
        notices.insert(about(Reason::InvalidAnnotation, "d"));
        assert_eq!(messages(&announced.news(&notices, &seen())), ["a; b; d"]);
    }

    #[test]
    fn what_an_earlier_leader_told_is_not_told_again_at_the_start() {
        let bad = about(Reason::InvalidAnnotation, "bad");
        let before = BTreeSet::from([bad.clone()]);
        let written = Announced::new(&seen(), "").news(&before, &seen()).new;
        let text = annotation(&before, &written).unwrap();
        let manifest = format!(
            "kind: Service\nmetadata: {{name: shop, namespace: default, uid: u-1, annotations: {{{TOLD}: \"{text}\"}}}}\n"
        );
        let seen = Observed::of(&manifest);
        let news = Announced::new(&seen, "").news(&before, &seen);
        assert_eq!((news.new, news.known), (vec![], written));
        let mut announced = Announced::new(&seen, "");
        let now = BTreeSet::from([bad, about(Reason::NameTaken, "new")]);
        assert_eq!(messages(&announced.news(&now, &seen)), ["new"]);
        assert_eq!(messages(&announced.news(&BTreeSet::new(), &seen)), [""; 0]);
        let again = announced.news(&now, &seen);
        assert_eq!(messages(&again), ["bad", "new"], "it went, and came again");
        let other = BTreeSet::from([about(Reason::InvalidAnnotation, "worse")]);
        let mut announced = Announced::new(&seen, "");
        assert_eq!(messages(&announced.news(&other, &seen)), ["worse"]);
    }

    #[test]
    fn what_an_earlier_leader_told_of_a_node_is_not_told_again_at_the_start() {
        let notice = |message: &str| Notice {
            about: About::Node("edge-1".to_owned()),
            ..about(Reason::TableRefused, message)
        };
        let before = BTreeSet::from([notice("bad")]);
        let mut announced = Announced::new(&seen(), "");
        let warnings = announced.news(&before, &seen()).new;
        assert_eq!(announced.told_on_nodes(), "", "it is not written yet");
        announced.told(&warnings[0]);
        let text = announced.told_on_nodes();
        let news = |notices| Announced::new(&seen(), &text).news(&notices, &seen());
        assert_eq!(news(before).new, []);
        let worse = BTreeSet::from([notice("worse")]);
        assert_eq!(messages(&news(worse)), ["worse"]);
    }

    #[test]
    fn remarks_on_flags_are_no_events() {
        let notice = Notice {
            about: About::Flag("--tcp-services"),
            ..about(Reason::NoSuchService, "x")
        };
        let mut announced = Announced::new(&seen(), "");
        let news = announced.news(&BTreeSet::from([notice]), &seen());
        assert_eq!(news.new, []);
    }
}
