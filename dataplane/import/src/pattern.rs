//! Hosts and paths that rules look for: which of two patterns contains the other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

    /// Whether it is every path.
    pub(super) fn is_any(&self) -> bool {
        self.kind == PathKind::Begins && self.text == "/"
    }

    /// Whether every path of `other` is one of this pattern.
    pub(super) fn contains(&self, other: &Self) -> bool {
        if other.ignore_case && !self.ignore_case && has_letters(&self.text) {
            return false;
        }
        let Some((begin, rest)) = other.text.split_at_checked(self.text.len()) else {
            return false;
        };
        let is_alike = match self.ignore_case {
            true => begin.eq_ignore_ascii_case(&self.text),
            false => begin == self.text,
        };
        if !is_alike {
            return false;
        }
        match (self.kind, other.kind) {
            (PathKind::Begins, _) => true,
            (PathKind::Exact, PathKind::Exact) => rest.is_empty(),
            (PathKind::Exact, _) => false,
            (PathKind::Segment, PathKind::Begins) => rest.starts_with('/'),
            (PathKind::Segment, _) => rest.is_empty() || rest.starts_with('/'),
        }
    }

    /// Whether some path belongs to both, and neither contains the other: routes cannot tell such patterns apart.
    fn crosses(&self, other: &Self) -> bool {
        let (one, two) = (self.in_any_case(), other.in_any_case());
        let overlap = one.contains(&two) || two.contains(&one);
        overlap
            && self.ignore_case != other.ignore_case
            && !self.contains(other)
            && !other.contains(self)
    }

    fn in_any_case(&self) -> Self {
        Self {
            ignore_case: true,
            text: self.text.to_ascii_lowercase(),
            ..self.clone()
        }
    }
}

/// Patterns of paths, of which those that contain another one are found without looking at all.
#[derive(Default)]
pub(super) struct ByPath<'p> {
    /// The patterns with their numbers, by their texts: those of one case, and those of any case.
    known: [BTreeMap<&'p str, Vec<(&'p PathPattern, usize)>>; 2],
    /// The next shorter text that a text begins with.
    shorter: [HashMap<&'p str, &'p str>; 2],
}

impl<'p> ByPath<'p> {
    pub(super) fn of(patterns: impl Iterator<Item = (&'p PathPattern, usize)>) -> Self {
        let mut index = Self::default();
        let [one_case, any_case] = &mut index.known;
        for (pattern, number) in patterns {
            let known = match pattern.ignore_case {
                true => &mut *any_case,
                false => &mut *one_case,
            };
            let of_text = known.entry(&pattern.text).or_default();
            of_text.push((pattern, number));
        }
        for (known, shorter) in index.known.iter().zip(&mut index.shorter) {
            let mut open: Vec<&str> = Vec::new();
            for text in known.keys() {
                while open.pop_if(|before| !text.starts_with(*before)).is_some() {}
                shorter.extend(open.last().map(|before| (*text, *before)));
                open.push(text);
            }
        }
        index
    }

    /// The numbers of the patterns that contain this one.
    pub(super) fn containing(&self, path: &PathPattern) -> impl Iterator<Item = usize> {
        let texts = [path.text.clone(), path.text.to_ascii_lowercase()];
        let both = self.known.iter().zip(&self.shorter).zip(texts);
        both.flat_map(move |((known, shorter), text)| {
            // All texts that this one begins with stand before it, and the last one before it begins with them, too.
            let last = known.range(..=&*text).next_back().map(|(text, _)| *text);
            let begins = std::iter::successors(last, |text| shorter.get(text).copied());
            let patterns = begins.filter_map(|text| known.get(text)).flatten();
            let around = patterns.filter(|(pattern, _)| pattern.contains(path));
            around.map(|(_, number)| *number).collect::<Vec<usize>>()
        })
    }
}

/// The patterns in any case that lie across one in a certain case.
pub(super) fn crossing(paths: &BTreeSet<PathPattern>) -> HashSet<PathPattern> {
    let mut crossing = HashSet::new();
    if !paths.iter().any(|path| path.ignore_case) {
        return crossing;
    }
    let all: Vec<(&PathPattern, PathPattern)> = paths
        .iter()
        .map(|path| (path, path.in_any_case()))
        .collect();
    let numbered = all.iter().enumerate();
    let index = ByPath::of(numbered.map(|(number, (_, any_case))| (any_case, number)));
    for (path, any_case) in &all {
        let wider = index.containing(any_case);
        for (other, _) in wider.filter_map(|number| all.get(number)) {
            if path.crosses(other) {
                let one = if path.ignore_case { path } else { other };
                crossing.insert((*one).clone());
            }
        }
    }
    crossing
}

fn has_letters(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_alphabetic())
}
