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
/// their ports; `None`: they are too many.
pub(super) fn groups<'p>(proxy: &'p Proxy, led_to: &[&'p Proxy]) -> Option<Vec<Group<'p>>> {
    let sections = led_to.iter().copied().chain([proxy]);
    let words = sections.flat_map(Proxy::conditions);
    let tests: Vec<_> = words.flat_map(tests).collect();
    let binds: usize = proxy.binds.iter().map(|line| line.binds.len()).sum();
    if binds.saturating_mul(tests.len()) > MOST_ANSWERS {
        return None;
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    for line in &proxy.binds {
        for bind in &line.binds {
            // The rules treat ports alike that have the same answers.
            let answers = tests.iter().map(|ranges| has(ranges, bind.port()));
            let answers: Vec<bool> = answers.collect();
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
    (groups.len() <= MOST_GROUPS).then_some(groups)
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

/// What a condition asks of the port: each item is one `dst_port` with its patterns.
fn tests(words: &[String]) -> impl Iterator<Item = Vec<(u16, u16)>> {
    let behind = |at: usize| words.get(at + 1..).unwrap_or_default();
    let criteria = words.iter().enumerate();
    let criteria = criteria.filter(|(_, word)| is_criterion(word));
    criteria.filter_map(move |(at, _)| {
        let patterns = behind(at).split(|word| word == "}").next();
        patterns.and_then(ports)
    })
}

/// Whether this asks for the port to which a client connected.
pub(super) fn is_criterion(word: &str) -> bool {
    word.eq_ignore_ascii_case("dst_port")
}

/// Frontends of one section.
const MOST_GROUPS: usize = 256;
/// Tests of ports of one section, each with each of its binds.
const MOST_ANSWERS: usize = 10_000_000;
