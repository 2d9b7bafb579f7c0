//! The notices that are news. Pure; called by [`super`].
//!
//! The API server deletes events after an hour or so, and the publisher may not read them. An annotation of each Service lists
//! therefore the events of the notices that stand, as `REASON:HASH`; `status` writes it. For Nodes there is one on the leader's
//! Lease.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::NewEvent;
use crate::decide::{About, Notice, Reason, TOLD};
use crate::observe::{Key, Observed};

/// The notices that stand, and those that were told by an earlier leader.
#[derive(Debug)]
pub(super) struct Announced {
    standing: BTreeSet<NewEvent>,
    /// UID and `REASON:HASH`.
    before: BTreeSet<(String, String)>,
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
            before,
        }
    }

    /// The events of notices that are new. Notices of one kind about one object are one event.
    pub(super) fn news(
        &mut self,
        notices: &BTreeSet<Notice>,
        observed: &Observed,
    ) -> Vec<NewEvent> {
        let standing = gathered(notices, observed);
        let is_told = |event: &&NewEvent| {
            let told = (event.uid.clone(), mark(event));
            self.before.contains(&told)
        };
        let news = standing.difference(&self.standing);
        let news = news.filter(|event| !is_told(event)).cloned().collect();
        self.standing = standing;
        // This notice may come to stand later though nothing has changed: a write shows what the API server does with `ipMode`.
        let late = format!("{}:", Reason::IPModeUnsupported);
        self.before.retain(|(_, mark)| mark.starts_with(&late));
        news
    }
}

/// The values of the annotation [`TOLD`] of each Service that has any notice.
pub(in crate::cluster) fn told(
    notices: &BTreeSet<Notice>,
    observed: &Observed,
) -> BTreeMap<Key, String> {
    let mut texts: BTreeMap<Key, String> = BTreeMap::new();
    for event in gathered(notices, observed) {
        if let About::Service(key) = &event.about {
            append(texts.entry(key.clone()).or_default(), &mark(&event));
        }
    }
    texts
}

/// The same of all Nodes, as `NAME/REASON:HASH`.
pub(super) fn told_on_nodes(notices: &BTreeSet<Notice>, observed: &Observed) -> String {
    let mut text = String::new();
    for event in gathered(notices, observed) {
        if let About::Node(name) = &event.about
            && text.len() < MOST_ON_NODES
        {
            append(&mut text, &format!("{name}/{}", mark(&event)));
        }
    }
    text
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

    fn messages(events: &[NewEvent]) -> Vec<&str> {
        events.iter().map(|event| event.message.as_str()).collect()
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
        let text = told(&before, &seen())[&Key::new("default", "shop")].clone();
        let manifest = format!(
            "kind: Service\nmetadata: {{name: shop, namespace: default, uid: u-1, annotations: {{{TOLD}: \"{text}\"}}}}\n"
        );
        let seen = Observed::of(&manifest);
        assert_eq!(Announced::new(&seen, "").news(&before, &seen), []);
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
        let text = told_on_nodes(&before, &seen());
        let news = |notices| Announced::new(&seen(), &text).news(&notices, &seen());
        assert_eq!(news(before), []);
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
        assert_eq!(announced.news(&BTreeSet::from([notice]), &seen()), []);
    }
}
