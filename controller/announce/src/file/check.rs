//! Mistakes of meaning: values that are well formed and cannot be meant together.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ballast_core::table::Problem;

use super::bgp::{Advertisement, Bgp, Peer};
use super::form::{Found, quoted};
use super::{Announce, Interfaces, Mode};

/// Every mistake of the file, those of form among them, in an order that is always the same.
pub(super) fn check(file: &Announce, found: Found) -> Vec<Problem> {
    let mut check = Check(found);
    check.addresses(file);
    if let Some(members) = &file.members {
        for (index, peer) in members.peers.iter().enumerate() {
            if members.peers.iter().take(index).any(|other| other == peer) {
                let at = format!("members.peers[{index}]");
                check.say(&[&at], format!("{peer} stands twice"), "keep one of them");
            }
            // A socket for all addresses of IPv6 is one for those of IPv4, too.
            let bind = members.bind.ip();
            let is_for_both = bind.is_ipv6() && bind.is_unspecified();
            if !is_for_both && peer.is_ipv4() != bind.is_ipv4() {
                let at = format!("members.peers[{index}]");
                let why = format!("no datagram goes from {} to {peer}", members.bind);
                let remedy = "expected an address of the family of members.bind";
                check.say(&[&at, "members.bind"], why, remedy);
            }
        }
    }
    if let Some(bgp) = &file.bgp {
        check.bgp(bgp);
    }
    let mut problems = check.0.problems;
    problems.truncate(KEPT);
    problems
}

struct Check(Found);

impl Check {
    /// Reports a mistake at the first place, unless a value that it is about was refused already.
    fn say(&mut self, places: &[&str], why: impl Into<String>, remedy: impl Into<String>) {
        if !places.iter().any(|at| self.0.doubts(at)) {
            let at = places.first().copied().unwrap_or_default();
            self.0.problems.push(Problem::new(at, why, remedy));
        }
    }

    fn addresses(&mut self, file: &Announce) {
        if file.addresses.len() > MOST_ADDRESSES {
            let why = format!("{} addresses", file.addresses.len());
            let remedy = format!("expected at most {MOST_ADDRESSES}: announce a network by bgp");
            self.say(&["addresses"], why, remedy);
        }
        let mut known = BTreeSet::new();
        for (index, one) in file.addresses.iter().enumerate() {
            let place = |key: &str| format!("addresses[{index}].{key}");
            let at = place("address");
            if let Some(why) = no_address_of_a_host(one.address) {
                let why = format!("{} {why}", one.address);
                self.say(&[&at], why, "expected an address that a host can hold");
            }
            if !self.0.doubts(&at) && !known.insert(one.address) {
                let why = format!("{} stands twice", one.address);
                self.say(&[&at], why, "keep one of them");
            }
            let mut names = BTreeSet::new();
            for (index, name) in one.nodes.iter().enumerate() {
                let at = format!("{}[{index}]", place("nodes"));
                if !self.0.doubts(&at) && !names.insert(name) {
                    self.say(&[&at], format!("{name} stands twice"), "keep one of them");
                }
            }
            let mode = place("mode");
            if one.mode == Mode::Bgp && file.bgp.is_none() {
                let remedy = "add bgp: with the routers that are told, or write mode: l2";
                self.say(
                    &[&mode, "bgp"],
                    "bgp is asked for, and no routers are given",
                    remedy,
                );
            }
            if one.mode == Mode::Bgp && one.interface != Interfaces::Auto {
                let remedy = "leave it out: routers are told by a session";
                let at = place("interface");
                self.say(&[&at, &mode], "means nothing with mode: bgp", remedy);
            }
        }
    }

    fn bgp(&mut self, bgp: &Bgp) {
        let mut names = BTreeSet::new();
        for (index, peer) in bgp.peers.iter().enumerate() {
            let at = format!("bgp.peers[{index}]");
            let name = format!("{at}.name");
            if !self.0.doubts(&name) && !names.insert(peer.name.as_str()) {
                let why = format!("{} is the name of another peer", peer.name);
                self.say(&[&name], why, "give each peer another name");
            }
            self.peer(&at, peer);
        }
        for (index, one) in bgp.advertisements.iter().enumerate() {
            let at = format!("bgp.advertisements[{index}]");
            for (index, name) in one.peers.iter().enumerate() {
                if !names.contains(name.as_str()) {
                    let why = format!("{} is no peer", quoted(name));
                    let known: Vec<&str> = names.iter().copied().collect();
                    let remedy = format!("known: {}", known.join(", "));
                    self.say(&[&format!("{at}.peers[{index}]"), "bgp.peers"], why, remedy);
                }
            }
            let earlier = bgp.advertisements.iter().take(index);
            if let Some(other) = earlier
                .into_iter()
                .position(|other| contradict(one, other, bgp))
            {
                let why = format!(
                    "says another local-pref than advertisements[{other}] for the same prefixes and peers"
                );
                let place = format!("{at}.local-pref");
                self.say(&[&place, &at], why, "give both the same, or other peers");
            }
        }
    }

    fn peer(&mut self, at: &str, peer: &Peer) {
        let place = |key: &str| format!("{at}.{key}");
        let (address, source) = (place("peer-address"), place("source-address"));
        if let Some(why) = no_address_of_a_host(peer.peer_address) {
            let why = format!("{} {why}", peer.peer_address);
            self.say(&[&address], why, "expected the address of the router");
        }
        let is_link_local =
            matches!(peer.peer_address, IpAddr::V6(address) if address.is_unicast_link_local());
        if is_link_local && peer.interface.is_none() {
            let remedy = "add interface, which leads to it";
            self.say(
                &[&address, &place("interface")],
                "a link-local address says nothing without an interface",
                remedy,
            );
        }
        if peer.multihop && peer.interface.is_some() {
            let why = "a router more than one hop away is not on an interface";
            let remedy = "leave interface out, or multihop";
            self.say(&[&place("interface"), &place("multihop")], why, remedy);
        }
        if let Some(from) = peer.source_address
            && from.is_ipv4() != peer.peer_address.is_ipv4()
        {
            let why = format!("{from} and {} are of two families", peer.peer_address);
            let remedy = "expected an address of the family of peer-address";
            self.say(&[&source, &address], why, remedy);
        }
        let hold = place("hold-time");
        let has_end = !peer.hold_time.is_zero();
        if has_end && !is_seconds(peer.hold_time, 3..=65_535) {
            let remedy = "expected whole seconds, 3s to 65535s, or 0s for a session that silence does not end";
            self.say(&[&hold], "is no hold time that BGP has", remedy);
        }
        if let Some(time) = peer.keepalive_time {
            let at = place("keepalive-time");
            if !is_seconds(time, 1..=65_535) {
                self.say(
                    &[&at],
                    "is no time that BIRD has",
                    "expected whole seconds, from 1s",
                );
            } else if has_end && time > peer.hold_time {
                let remedy = "expected a third of hold-time, or less";
                self.say(&[&at, &hold], "is longer than hold-time", remedy);
            }
        }
        if let Some(time) = peer.connect_time
            && !is_seconds(time, 1..=65_535)
        {
            let at = place("connect-time");
            self.say(
                &[&at],
                "is no time that BIRD has",
                "expected whole seconds, 1s to 65535s",
            );
        }
        for (key, time) in peer.bfd.iter().flat_map(|bfd| {
            [
                ("bfd.receive-interval", bfd.receive_interval),
                ("bfd.transmit-interval", bfd.transmit_interval),
            ]
        }) {
            if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&time) {
                self.say(&[&place(key)], "is out of range", "expected 10ms to 60s");
            }
        }
    }
}

/// Whether the two say different preferences of the same prefix to the same peer, which has prefixes of one family.
fn contradict(one: &Advertisement, other: &Advertisement, bgp: &Bgp) -> bool {
    let same_prefixes = |peer: &Peer| match peer.peer_address {
        IpAddr::V4(_) => one.aggregation_length == other.aggregation_length,
        IpAddr::V6(_) => one.aggregation_length_v6 == other.aggregation_length_v6,
    };
    let mut peers = bgp.peers.iter();
    one.local_pref != other.local_pref
        && one.may_share_with(other)
        && peers
            .any(|peer| one.is_for(&peer.name) && other.is_for(&peer.name) && same_prefixes(peer))
}

fn is_seconds(time: Duration, range: std::ops::RangeInclusive<u64>) -> bool {
    time.subsec_nanos() == 0 && range.contains(&time.as_secs())
}

/// Why no host can hold the address.
fn no_address_of_a_host(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("stands for all addresses"),
        _ if address.is_loopback() => Some("never leaves its host"),
        _ if address.is_multicast() => Some("belongs to a group of hosts"),
        IpAddr::V4(address) if address.is_broadcast() => Some("belongs to all hosts"),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Some("is an IPv4 address in the form of IPv6")
        }
        _ => None,
    }
}

/// One process probes and announces each of them.
pub const MOST_ADDRESSES: usize = 10_000;
/// The most mistakes that are reported.
const KEPT: usize = 1000;
