//! Which hosts the routes of a frontend are for: exact names, wildcards, and any host.

use std::collections::BTreeMap;
use std::iter;

use super::HostPattern;
use super::trie::{Root, Small, Tries};

/// A map from host patterns to values.
#[derive(Debug)]
pub(super) struct Hosts<T> {
    /// The names from their last byte to their first.
    names: Tries<Name>,
    root: Root,
    entries: Box<[Entry<T>]>,
    /// The entry of any host.
    any: Small,
}

/// The entries of a name: of itself, and of the hosts below it (`*.NAME`).
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    exact: Small,
    under: Small,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    /// The next less specific entry, which matches every host that this entry matches.
    wider: Small,
}

/// The longest name that DNS has.
const LONGEST_NAME: usize = 253;

impl<T> Hosts<T> {
    /// `None` means any host. No host may come twice.
    pub(super) fn new<'t>(hosts: impl IntoIterator<Item = (Option<&'t HostPattern>, T)>) -> Self {
        let mut any = Small::default();
        let mut names: BTreeMap<&str, Name> = BTreeMap::new();
        let mut patterns = Vec::new();
        let mut entries = Vec::new();
        for (pattern, value) in hosts {
            let place = Small::new(entries.len());
            match pattern {
                None => any = place,
                Some(HostPattern::Exact(name)) => {
                    names.entry(name).or_default().exact = place;
                }
                Some(HostPattern::Under(name)) => {
                    names.entry(name).or_default().under = place;
                }
            }
            patterns.push(pattern);
            entries.push(Entry {
                value,
                wider: Small::default(),
            });
        }
        let keys = names
            .iter()
            .map(|(name, own)| (name.bytes().rev().collect(), *own));
        let mut hosts = Self {
            root: Root::default(),
            names: Tries::default(),
            entries: Box::default(),
            any,
        };
        hosts.root = hosts.names.add(keys.collect());
        for (entry, pattern) in entries.iter_mut().zip(patterns) {
            entry.wider = match pattern {
                None => Small::default(),
                Some(HostPattern::Exact(name) | HostPattern::Under(name)) => {
                    hosts.look_up(name).under.or(any)
                }
            };
        }
        hosts.entries = entries.into();
        hosts
    }

    /// The values of the patterns that match this host, most specific first. Case, and a dot at the end of the name, are ignored.
    /// Without a host, or with one that is longer than a DNS name, only the entry of any host matches.
    pub(super) fn matching(&self, host: Option<&str>) -> impl Iterator<Item = &T> {
        let most_specific = host
            .map(|host| host.strip_suffix('.').unwrap_or(host))
            .filter(|host| host.len() <= LONGEST_NAME)
            .map(|host| self.look_up(host))
            .map_or(self.any, |found| found.exact.or(found.under).or(self.any));
        let entry = |place: Small| self.entries.get(place.get()?);
        iter::successors(entry(most_specific), move |here| entry(here.wider))
            .map(|entry| &entry.value)
    }

    /// The entry of exactly this host, and that of the longest wildcard that matches it.
    fn look_up(&self, host: &str) -> Name {
        let mut best = Name::default();
        let bytes = host.as_bytes();
        let from_the_end = bytes.iter().rev().map(u8::to_ascii_lowercase);
        self.names
            .prefixes(self.root, from_the_end, |length, name| {
                if length == bytes.len() {
                    best.exact = name.exact;
                }
                // A wildcard matches one label at least, and for whole labels.
                let before = bytes.len().checked_sub(length + 1);
                if before.is_some_and(|dot| dot > 0 && bytes.get(dot) == Some(&b'.')) {
                    best.under = name.under.or(best.under);
                }
            });
        best
    }
}

pub(super) fn grouped<'t, T>(
    parts: impl Iterator<Item = (Option<&'t HostPattern>, T)>,
) -> BTreeMap<Option<&'t HostPattern>, Vec<T>> {
    let mut grouped: BTreeMap<_, Vec<T>> = BTreeMap::new();
    for (host, part) in parts {
        grouped.entry(host).or_default().push(part);
    }
    grouped
}
