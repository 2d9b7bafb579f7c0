//! The names of Leases, and the annotations by which a node's Lease says what that node serves.
//!
//! Written by `node::lease`, read by `observe`, compared by `decide`.

mod exceptions;

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use sha2::{Digest, Sha256};

pub(crate) use exceptions::UNSERVED;
pub use exceptions::{Exception, Exceptions, Message};

/// The Lease of the publisher that leads.
pub(crate) const LEADER: &str = "ballast-leader";
/// The annotation with [`Versions`].
pub(crate) const SERVED: &str = "ballast.dev/served";
/// The annotation with [`Exceptions`], as JSON.
pub(crate) const EXCEPTIONS: &str = "ballast.dev/exceptions";
/// The annotation with a hash of the settings that both roles should have in common.
pub(crate) const SETTINGS: &str = "ballast.dev/settings";
/// The annotation with the same hash of the publisher, where a node has another one. The publisher writes it.
pub(crate) const PUBLISHER_SETTINGS: &str = "ballast.dev/publisher-settings";
/// The annotation with [`crowd`], where that is more than [`SMALL_CROWD`]. The publisher writes it.
pub(crate) const NODES: &str = "ballast.dev/nodes";
/// The annotation with [`OwnPorts`].
pub(crate) const PORTS: &str = "ballast.dev/ports";
/// The label that says whose Lease it is.
pub(crate) const ROLE: &str = "ballast.dev/role";
/// The value of [`ROLE`] in a node's Lease.
pub(crate) const NODE: &str = "node";

/// The newest versions of Services that are known: every change of a Service with a version up to that one is known as well.
/// Versions of all Services of a cluster are comparable numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of the Services of all namespaces; 0: nothing is known.
    pub all: u64,
    /// Of the Services of single namespaces, where these are watched each.
    pub namespaces: BTreeMap<String, u64>,
}

impl Versions {
    /// The newest known version in a namespace.
    pub(crate) fn of(&self, namespace: &str) -> u64 {
        let own = self.namespaces.get(namespace);
        own.copied().unwrap_or(self.all)
    }

    /// Notes that all changes up to a version are known; a `None` as the namespace stands for all namespaces.
    pub(crate) fn advance(&mut self, namespace: Option<&str>, version: u64) {
        let place = self.place(namespace);
        *place = version.max(*place);
    }

    /// Notes the version of a list. Returns whether it is older than what was known: after the cluster was restored from a
    /// backup, and where the newest Service was deleted before the list.
    pub(crate) fn listed(&mut self, namespace: Option<&str>, version: u64) -> bool {
        let place = self.place(namespace);
        let before = std::mem::replace(place, version);
        version < before
    }

    fn place(&mut self, namespace: Option<&str>) -> &mut u64 {
        match namespace {
            Some(namespace) => self.namespaces.entry(namespace.to_owned()).or_default(),
            None => &mut self.all,
        }
    }

    /// Whether none of these versions is newer than those that are known here.
    pub(crate) fn are_known_to(&self, here: &Self) -> bool {
        match here.namespaces.is_empty() {
            true => self.all.max(self.newest_of_namespaces()) <= here.all,
            false => here
                .namespaces
                .iter()
                .all(|(name, newest)| self.of(name) <= *newest),
        }
    }

    fn newest_of_namespaces(&self) -> u64 {
        self.namespaces.values().copied().max().unwrap_or_default()
    }

    /// What an annotation says: `rv=N`, and where namespaces are watched each `rv.NAMESPACE=N`. Other words are skipped.
    pub(crate) fn read(text: &str) -> Self {
        let mut read = Self::default();
        for (name, value) in text
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
        {
            let Ok(version) = value.parse() else { continue };
            if name == "rv" {
                read.all = version;
            } else if let Some(namespace) = name.strip_prefix("rv.")
                && read.namespaces.len() < MOST_NAMESPACES
            {
                read.namespaces.insert(namespace.to_owned(), version);
            }
        }
        read
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = self.namespaces.values().min();
        let all = match oldest {
            Some(oldest) => *oldest,
            None => self.all,
        };
        if all == 0 && self.namespaces.is_empty() {
            return Ok(());
        }
        write!(f, "rv={all}")?;
        for (namespace, version) in &self.namespaces {
            write!(f, " rv.{namespace}={version}")?;
        }
        Ok(())
    }
}

/// The TCP ports that a node keeps for itself, and the use of each: `stats=1936,controller=1937`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnPorts(BTreeMap<u16, String>);

impl OwnPorts {
    /// These ports, each with its use.
    pub fn of<'a>(ports: impl IntoIterator<Item = (&'a str, u16)>) -> Self {
        let ports = ports.into_iter();
        Self(ports.map(|(what, port)| (port, what.to_owned())).collect())
    }

    /// What an annotation says; nothing where it cannot be read.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let entries = text.split(',').filter_map(|entry| entry.split_once('='));
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        let entries = entries.filter(|(what, _)| {
            (1..=LONGEST_USE).contains(&what.len()) && what.bytes().all(is_letter)
        });
        let entries = entries.filter_map(|(what, port)| Some((what, port.parse().ok()?)));
        Self::of(entries.take(MOST_OWN_PORTS))
    }

    /// The use of a port, if the node keeps it.
    #[must_use]
    pub fn get(&self, port: u16) -> Option<&str> {
        self.0.get(&port).map(String::as_str)
    }
}

impl fmt::Display for OwnPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (port, what)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{what}={port}")?;
        }
        Ok(())
    }
}

/// What nodes are told of how many they are, where they were told `told` before: so many or more, and less than eight times as many, so
/// that a few nodes that come and go are no news.
pub(crate) fn crowd(nodes: usize, told: u32) -> u32 {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).min(MOST_NODES);
    let now = nodes.next_power_of_two().max(SMALL_CROWD);
    match now > told || now <= told / 4 {
        true => now,
        false => told,
    }
}

/// What an annotation says of how many nodes there are.
pub(crate) fn read_crowd(text: Option<&String>) -> u32 {
    let read = text.and_then(|text| text.parse().ok());
    read.unwrap_or(SMALL_CROWD).clamp(SMALL_CROWD, MOST_NODES)
}

/// A hash of settings, in hex.
pub(crate) fn hash_of_settings(text: &str) -> String {
    let hash = Sha256::digest(text);
    let first = hash.first_chunk::<8>().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}

pub(crate) fn of_node(node: &str) -> String {
    match format!("{PREFIX}{node}") {
        // A node may have any name, this one as well.
        taken if taken == LEADER => NODE_LEADER.to_owned(),
        name if name.len() > LONGEST => shortened(&name),
        name => name,
    }
}

/// The node whose Lease has this name, if it is a node's. The name alone does not tell a node whose name had to be shortened;
/// the holder of that Lease does.
pub(crate) fn node_of<'a>(lease: &'a str, holder: Option<&'a str>) -> Option<&'a str> {
    match lease {
        LEADER => None,
        NODE_LEADER => LEADER.strip_prefix(PREFIX),
        name => {
            let holder = holder.filter(|node| name.len() > SHORTENED && of_node(node) == name);
            holder.or_else(|| name.strip_prefix(PREFIX))
        }
    }
}

/// A name that is too long for an object: its beginning and a hash of the whole.
pub(crate) fn shortened(name: &str) -> String {
    // Node names are ASCII.
    let beginning = name.get(..SHORTENED).unwrap_or_default();
    // A dash may not follow a dot.
    let mut shortened = format!("{}-", beginning.trim_end_matches(['.', '-']));
    for byte in Sha256::digest(name).iter().take(HASHED) {
        // A String takes everything.
        _ = write!(shortened, "{byte:02x}");
    }
    shortened
}

/// So few nodes are not told how many they are.
pub(crate) const SMALL_CROWD: u32 = 2;
const MOST_NODES: u32 = 1 << 16;
const PREFIX: &str = "ballast-";
const NODE_LEADER: &str = "ballast.leader";
/// Namespaces in the annotation [`SERVED`].
const MOST_NAMESPACES: usize = 1000;
/// Ports in the annotation [`PORTS`], and the bytes of the use of one.
const MOST_OWN_PORTS: usize = 8;
const LONGEST_USE: usize = 20;
/// The most bytes that the name of an object has; the name of a Node may have as many.
const LONGEST: usize = 253;
/// How much of a name that is too long stays, in bytes.
const SHORTENED: usize = 180;
/// Bytes of the hash.
const HASHED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_lease_of_its_own_and_none_is_the_leaders() {
        for node in ["edge-1", "leader", "leader.example.com", "a.b"] {
            let lease = of_node(node);
            assert_ne!(lease, LEADER, "{node}");
            for holder in [None, Some(""), Some(node), Some("another")] {
                assert_eq!(node_of(&lease, holder), Some(node));
            }
        }
        for other in [LEADER, "kube-scheduler", "ballast", "ballast.other"] {
            assert_eq!(node_of(other, None), None, "{other}");
        }
    }

    #[test]
    fn versions_are_read_as_they_were_written() {
        let mut versions = Versions::default();
        assert_eq!(versions.to_string(), "");
        versions.advance(None, 7);
        versions.advance(None, 5);
        assert_eq!(versions.to_string(), "rv=7");
        assert_eq!(Versions::read("rv=7"), versions);
        let mut each = Versions::default();
        each.advance(Some("shop"), 9);
        each.advance(Some("bank"), 4);
        assert_eq!(each.to_string(), "rv=4 rv.bank=4 rv.shop=9");
        let read = Versions::read(&each.to_string());
        let of = ["shop", "bank", "other"].map(|name| read.of(name));
        assert_eq!(of, [9, 4, 4]);
        for bad in ["", "abc", "rv=", "rv=-1", &"0".repeat(1024)] {
            assert_eq!(Versions::read(bad), Versions::default(), "{bad}");
        }
    }

    #[test]
    fn versions_of_the_time_before_a_backup_was_restored_are_not_known() {
        let here = Versions::read("rv=3000");
        for (there, is_known) in [("rv=2999", true), ("rv=3000", true), ("rv=5000", false)] {
            assert_eq!(
                Versions::read(there).are_known_to(&here),
                is_known,
                "{there}"
            );
        }
        let each = Versions::read("rv=1 rv.shop=10");
        assert!(Versions::read("rv=9").are_known_to(&each));
        assert!(!Versions::read("rv=11").are_known_to(&each));
        let mut newest = here;
        assert!(!newest.listed(None, 4000) && newest.listed(None, 3000));
    }

    #[test]
    fn nodes_that_come_and_go_change_little_of_what_nodes_are_told() {
        for (nodes, told, expected) in [
            (0, 2, 2),
            (2, 2, 2),
            (3, 2, 4),
            (50, 2, 64),
            (64, 64, 64),
            (65, 64, 128),
            (33, 128, 128),
            (32, 128, 32),
            (1, 64, 2),
            (usize::MAX, 2, MOST_NODES),
        ] {
            assert_eq!(crowd(nodes, told), expected, "{nodes}, {told}");
        }
        for (text, expected) in [("64", 64), ("0", 2), ("x", 2), ("4294967295", MOST_NODES)] {
            assert_eq!(read_crowd(Some(&text.to_owned())), expected, "{text}");
        }
        assert_eq!(read_crowd(None), 2);
    }

    #[test]
    fn own_ports_are_read_as_they_were_written() {
        let ports = OwnPorts::of([("stats", 1936), ("controller", 5000)]);
        assert_eq!(ports.to_string(), "stats=1936,controller=5000");
        assert_eq!(OwnPorts::read(&ports.to_string()), ports);
        assert_eq!(ports.get(5000), Some("controller"));
        assert_eq!(ports.get(80), None);
        for bad in ["", "80", "=80", "stats=x", "stats=70000", "St ats=80"] {
            assert_eq!(OwnPorts::read(bad), OwnPorts::default(), "{bad}");
        }
        let many = (1..1000_u16).map(|port| format!("a={port}"));
        let many = many.collect::<Vec<_>>().join(",");
        assert_eq!(OwnPorts::read(&many).0.len(), MOST_OWN_PORTS);
    }

    #[test]
    fn a_node_with_a_name_of_any_length_has_a_lease() {
        let node = |last: &str| format!("{}{last}", "a.".repeat(125));
        let names = [node("b"), node("c"), "x".repeat(253), "x".repeat(245)];
        let mut seen = Vec::new();
        for node in &names {
            let lease = of_node(node);
            assert!(lease.len() <= 253, "{} bytes", lease.len());
            let is_label =
                |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
            assert!(lease.split('.').all(is_label), "{lease}");
            assert_eq!(node_of(&lease, Some(node)), Some(&**node));
            assert!(!seen.contains(&lease), "{lease}");
            seen.push(lease);
        }
        assert_eq!(
            of_node(&"x".repeat(245)).len(),
            253,
            "as it is, while it fits"
        );
    }
}
