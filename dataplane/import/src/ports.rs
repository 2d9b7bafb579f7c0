//! `dst_port`: the ports of a section's binds, divided into classes that its rules treat alike.

use ballast_core::table::Bind;

use super::bind::{BindLine, Way};
use super::proxy::Proxy;

/// Binds of a section that become one frontend.
pub(super) struct Group<'p> {
    pub(super) way: &'p Way,
    /// What the tests of `dst_port` say of their ports.
    answers: Vec<bool>,
    pub(super) binds: Vec<(&'p BindLine, Bind)>,
}

/// The binds of a section by how their connections begin, and by what its rules, and those of the sections that it leads to, ask of
/// their ports.
pub(super) fn groups<'p>(
    proxy: &'p Proxy,
    led_to: impl Iterator<Item = &'p Proxy>,
) -> Vec<Group<'p>> {
    let tests = Tests::of(led_to.chain([proxy]));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in &proxy.binds {
        for bind in &line.binds {
            let answers = tests.answers(bind.port());
            let group = groups
                .iter_mut()
                .find(|group| *group.way == line.way && group.answers == answers);
            match group {
                Some(group) => group.binds.push((line, *bind)),
                None => groups.push(Group {
                    way: &line.way,
                    answers,
                    binds: vec![(line, *bind)],
                }),
            }
        }
    }
    groups
}

/// Ranges of ports, of which one must hold: the patterns of `dst_port`. `None`: they are not understood.
pub(super) fn ports(patterns: &[String]) -> Option<Vec<(u16, u16)>> {
    let mut ranges = Vec::new();
    let mut operator = "eq";
    for pattern in patterns {
        if matches!(pattern.as_str(), "eq" | "ge" | "gt" | "le" | "lt") {
            operator = pattern;
            continue;
        }
        let (first, last) = pattern.split_once(':').unwrap_or((pattern, pattern));
        let first = match first {
            "" => 0,
            first => first.parse::<u16>().ok()?,
        };
        let last = match last {
            "" => u16::MAX,
            last => last.parse::<u16>().ok()?,
        };
        let range = match operator {
            "ge" => Some((first, u16::MAX)),
            "gt" => last.checked_add(1).map(|first| (first, u16::MAX)),
            "le" => Some((0, last)),
            "lt" => first.checked_sub(1).map(|last| (0, last)),
            _ => Some((first, last)),
        };
        ranges.extend(range);
    }
    Some(ranges)
}

/// Whether a port lies in one of the ranges.
pub(super) fn has(ranges: &[(u16, u16)], port: u16) -> bool {
    let mut ranges = ranges.iter();
    ranges.any(|(first, last)| (*first..=*last).contains(&port))
}

/// What the rules of some sections ask of the port: each item is one `dst_port` with its patterns.
#[derive(Default)]
struct Tests(Vec<Vec<(u16, u16)>>);

impl Tests {
    /// All that the rules of these sections ask.
    fn of<'p>(sections: impl Iterator<Item = &'p Proxy>) -> Self {
        let mut tests = Self::default();
        for proxy in sections {
            proxy.conditions().for_each(|words| tests.add(words));
        }
        tests
    }

    fn add(&mut self, words: &[String]) {
        let mut rest = words;
        while let Some(at) = rest.iter().position(|word| is_criterion(word)) {
            rest = rest.get(at + 1..).unwrap_or_default();
            let end = rest.iter().position(|word| word == "}");
            let patterns = rest.get(..end.unwrap_or(rest.len()));
            self.0.extend(patterns.and_then(ports));
        }
    }

    /// What each test says of a port: the rules treat ports alike that have the same answers.
    fn answers(&self, port: u16) -> Vec<bool> {
        self.0.iter().map(|ranges| has(ranges, port)).collect()
    }
}

/// Whether this asks for the port to which a client connected.
pub(super) fn is_criterion(word: &str) -> bool {
    word.eq_ignore_ascii_case("dst_port")
}
