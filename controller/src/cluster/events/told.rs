//! Which notices are new. Pure; called by [`super`].
//!
//! Events are thrown away after an hour or so. What was told of a Service is therefore also an annotation of it: a hash of
//! all notices that stand, which `status` writes.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::NewEvent;
use crate::decide::{About, Notice, Reason};
use crate::observe::{Key, Observed};

/// What stands, and what was told before.
#[derive(Debug)]
pub(super) struct Announced {
    standing: BTreeSet<NewEvent>,
    /// UID, reason and message of what an earlier process told; until the first look.
    before: Option<BTreeSet<(String, String, String)>>,
    /// Those of them that may come to stand later, though nothing changed: what an API server does is seen by a write.
    late: BTreeSet<(String, String, String)>,
}

impl Announced {
    pub(super) fn new(before: BTreeSet<(String, String, String)>) -> Self {
        Self {
            standing: BTreeSet::new(),
            before: Some(before),
            late: BTreeSet::new(),
        }
    }

    /// What is to be told now. Notices of one kind about one object are told together.
    pub(super) fn news(&mut self, notices: &BTreeSet<Notice>, seen: &Observed) -> Vec<NewEvent> {
        let standing = gathered(notices, seen);
        let before = self.before.take();
        let marked = before.as_ref().map(|_| marked(notices, seen));
        let was_told = |said: &&NewEvent| {
            let NewEvent {
                about,
                reason,
                message,
                ..
            } = said;
            let told = (about.uid.clone(), reason.clone(), message.clone());
            match (&before, &marked) {
                (Some(before), Some(marked)) => {
                    marked.contains(about.uid.as_str()) || before.contains(&told)
                }
                _ => self.late.contains(&told),
            }
        };
        let news = standing.difference(&self.standing);
        let news = news.filter(|said| !was_told(said)).cloned().collect();
        self.standing = standing;
        if let Some(before) = before {
            let late = Reason::IPModeUnsupported.to_string();
            self.late = before;
            self.late.retain(|(_, reason, _)| *reason == late);
        }
        news
    }
}

/// A hash of all notices about each Service that has any.
pub(in crate::cluster) fn marks(notices: &BTreeSet<Notice>) -> BTreeMap<&Key, String> {
    let mut hashes: BTreeMap<&Key, Sha256> = BTreeMap::new();
    for notice in notices {
        if let About::Service(key) = &notice.about {
            hashes.entry(key).or_default().update(format!("{notice}\n"));
        }
    }
    let marks = hashes.into_iter().map(|(key, hash)| {
        let hash = hash.finalize();
        let hex = hash.iter().take(8).map(|byte| format!("{byte:02x}"));
        (key, hex.collect())
    });
    marks.collect()
}

/// The Services, by UID, whose annotation says that everything that stands was told.
fn marked<'a>(notices: &BTreeSet<Notice>, seen: &'a Observed) -> BTreeSet<&'a str> {
    let marks = marks(notices);
    let services = marks.iter().filter_map(|(key, mark)| {
        let service = seen.services.get(*key)?;
        (service.annotations.get(MARK) == Some(mark)).then_some(service.uid.as_str())
    });
    services.collect()
}

/// The annotation that says what was told.
pub(in crate::cluster) const MARK: &str = "ballast.dev/told";

/// One for each object and reason.
fn gathered(notices: &BTreeSet<Notice>, seen: &Observed) -> BTreeSet<NewEvent> {
    let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for notice in notices {
        let group = (&notice.about, notice.kind, notice.reason);
        groups.entry(group).or_default().push(&notice.message);
    }
    let said = groups.into_iter().filter_map(|(group, messages)| {
        let (about, kind, reason) = group;
        let (reason, message) = (reason.to_string(), messages.join("; "));
        match about {
            About::Flag(_) => None,
            About::Node(name) => Some(NewEvent::of_node(name, kind, &reason, message)),
            About::Service(key) => {
                let uid = &seen.services.get(key)?.uid;
                Some(NewEvent::of_service(key, uid, kind, &reason, message))
            }
        }
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Kind;
    use crate::observe::Key;

    fn seen() -> Observed {
        let mut seen = Observed::default();
        let manifest = "kind: Service\nmetadata: {name: shop, namespace: default, uid: u-1}\n";
        assert_eq!(seen.take_file("a.yaml", manifest), []);
        seen
    }

    fn about(reason: Reason, message: &str) -> Notice {
        Notice {
            about: About::Service(Key::new("default", "shop")),
            kind: Kind::Warning,
            reason,
            message: message.to_owned(),
        }
    }

    fn messages(said: &[NewEvent]) -> Vec<&str> {
        said.iter().map(|said| said.message.as_str()).collect()
    }

    #[test]
    fn a_notice_is_told_when_it_comes_and_again_only_after_it_went() {
        let mut told = Announced::new(BTreeSet::new());
        let bad = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        assert_eq!(messages(&told.news(&bad, &seen())), ["bad"]);
        assert_eq!(messages(&told.news(&bad, &seen())), [""; 0]);
        assert_eq!(messages(&told.news(&BTreeSet::new(), &seen())), [""; 0]);
        assert_eq!(messages(&told.news(&bad, &seen())), ["bad"]);
    }

    #[test]
    fn notices_of_one_kind_are_one_event() {
        let mut told = Announced::new(BTreeSet::new());
        let mut notices = BTreeSet::from([
            about(Reason::InvalidAnnotation, "a"),
            about(Reason::InvalidAnnotation, "b"),
            about(Reason::NameTaken, "c"),
        ]);
        assert_eq!(messages(&told.news(&notices, &seen())), ["a; b", "c"]);
        notices.insert(about(Reason::InvalidAnnotation, "d"));
        assert_eq!(messages(&told.news(&notices, &seen())), ["a; b; d"]);
    }

    #[test]
    fn what_an_earlier_process_told_is_not_told_again_at_the_start() {
        let before = ["u-1", "InvalidAnnotation", "bad"].map(str::to_owned);
        let mut told = Announced::new(BTreeSet::from([before.into()]));
        let bad = BTreeSet::from([
            about(Reason::InvalidAnnotation, "bad"),
            about(Reason::NameTaken, "new"),
        ]);
        assert_eq!(messages(&told.news(&bad, &seen())), ["new"]);
        assert_eq!(messages(&told.news(&BTreeSet::new(), &seen())), [""; 0]);
        assert_eq!(told.news(&bad, &seen()).len(), 2, "it went, and came again");
    }

    #[test]
    fn what_a_services_mark_says_was_told_even_if_the_event_is_gone() {
        let told_before = BTreeSet::from([about(Reason::InvalidAnnotation, "bad")]);
        let key = Key::new("default", "shop");
        let mark = marks(&told_before)[&key].clone();
        let mut seen = Observed::default();
        let manifest = format!(
            "kind: Service\nmetadata: {{name: shop, namespace: default, uid: u-1, annotations: {{{MARK}: \"{mark}\"}}}}\n"
        );
        assert_eq!(seen.take_file("a.yaml", &manifest), []);
        let mut told = Announced::new(BTreeSet::new());
        assert_eq!(told.news(&told_before, &seen), []);
        let more = about(Reason::NameTaken, "more");
        let now: BTreeSet<Notice> = told_before.iter().cloned().chain([more]).collect();
        assert_eq!(messages(&told.news(&now, &seen)), ["more"]);
        assert_eq!(
            messages(&Announced::new(BTreeSet::new()).news(&now, &seen)),
            ["bad", "more"],
            "another mark says nothing of the parts"
        );
    }

    #[test]
    fn remarks_on_flags_are_no_events() {
        let notice = Notice {
            about: About::Flag("--tcp-services"),
            ..about(Reason::NoSuchService, "x")
        };
        let mut told = Announced::new(BTreeSet::new());
        assert_eq!(told.news(&BTreeSet::from([notice]), &seen()), []);
    }
}
