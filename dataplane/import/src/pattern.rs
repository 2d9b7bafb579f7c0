//! Hosts and paths that rules look for: which of two patterns contains the other.

use ballast_core::table::HostPattern;

/// The requests that a rule looks for by their path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathPattern {
    pub(super) kind: PathKind,
    pub(super) text: String,
    pub(super) ignore_case: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PathKind {
    /// Everything that begins with the text.
    Begins,
    /// The text, and what lies below it. The text does not end with a slash.
    Segment,
    /// The text alone.
    Exact,
}

impl PathPattern {
    pub(super) fn new(kind: PathKind, text: &str, ignore_case: bool) -> Self {
        let ignore_case = ignore_case && text.bytes().any(|byte| byte.is_ascii_alphabetic());
        let text = match ignore_case {
            true => text.to_ascii_lowercase(),
            false => text.into(),
        };
        Self {
            kind,
            text,
            ignore_case,
        }
    }

    /// Whether every path of `other` is one of this pattern.
    pub(super) fn contains(&self, other: &Self) -> bool {
        if other.ignore_case && !self.ignore_case && has_letters(&self.text) {
            return false;
        }
        let lower = other.text.to_ascii_lowercase();
        let theirs = if self.ignore_case {
            &lower
        } else {
            &other.text
        };
        let Some(rest) = theirs.strip_prefix(&self.text) else {
            return false;
        };
        match (self.kind, other.kind) {
            (PathKind::Begins, _) => true,
            (PathKind::Exact, PathKind::Exact) => rest.is_empty(),
            (PathKind::Exact, _) => false,
            (PathKind::Segment, PathKind::Begins) => rest.starts_with('/'),
            (PathKind::Segment, _) => rest.is_empty() || rest.starts_with('/'),
        }
    }

    /// Whether some path belongs to both, and neither contains the other: routes cannot tell such patterns apart.
    pub(super) fn crosses(&self, other: &Self) -> bool {
        let either = |pattern: &Self| Self {
            ignore_case: true,
            text: pattern.text.to_ascii_lowercase(),
            ..pattern.clone()
        };
        let (one, two) = (either(self), either(other));
        let overlap = one.contains(&two) || two.contains(&one);
        overlap
            && self.ignore_case != other.ignore_case
            && !self.contains(other)
            && !other.contains(self)
    }
}

fn has_letters(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether every host of `inner` is one of `outer`; `None` is any host.
pub(super) fn host_contains(outer: Option<&HostPattern>, inner: Option<&HostPattern>) -> bool {
    let Some(outer) = outer else { return true };
    let Some(inner) = inner else { return false };
    let lies_under = |name: &str, folder: &str| {
        name.strip_suffix(folder)
            .is_some_and(|rest| rest.ends_with('.'))
    };
    match (outer, inner) {
        (HostPattern::Exact(outer), HostPattern::Exact(inner)) => outer == inner,
        (HostPattern::Exact(_), HostPattern::Under(_)) => false,
        (HostPattern::Under(outer), HostPattern::Exact(inner)) => lies_under(inner, outer),
        (HostPattern::Under(outer), HostPattern::Under(inner)) => {
            outer == inner || lies_under(inner, outer)
        }
    }
}
