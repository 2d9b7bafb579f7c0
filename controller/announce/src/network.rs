//! The interfaces of this host, and which of them carries an address.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::file::Interfaces;
use crate::frames::Mac;

/// The interfaces and routes of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The interfaces that could carry an address.
    pub interfaces: Vec<Interface>,
    /// The routes of the main table that lead to neighbours or everywhere, the narrowest ones first.
    routes: Vec<Route>,
}

/// An interface that is up, on a network where hosts ask for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: Mac,
}

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The number of its interface.
    pub interface: u32,
    /// Where it leads.
    pub to: IpNet,
    /// Whether the hosts there are neighbours.
    pub is_link: bool,
}

impl Network {
    /// The interfaces that could carry an address, and the routes of the main table.
    #[must_use]
    pub fn new(interfaces: Vec<Interface>, mut routes: Vec<Route>) -> Self {
        let usable = interfaces.iter().filter(|one| may_carry(&one.name));
        let usable: BTreeSet<u32> = usable.map(|one| one.index).collect();
        routes.retain(|route| {
            let is_of_use = route.is_link || route.to.prefix_len() == 0;
            is_of_use && usable.contains(&route.interface)
        });
        routes.sort_by_key(|route| Reverse((route.is_link, route.to.prefix_len())));
        Self { interfaces, routes }
    }

    /// The interface that is to carry the address.
    #[must_use]
    pub fn choose(&self, address: IpAddr, which: &Interfaces) -> Option<&Interface> {
        let patterns = match which {
            Interfaces::Named(patterns) => patterns,
            Interfaces::Auto => return self.by_route(address),
        };
        let mut patterns = patterns.iter();
        patterns.find_map(|pattern| self.usable().find(|one| pattern.matches(&one.name)))
    }

    /// The interfaces that may carry addresses for others.
    pub fn usable(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|one| may_carry(&one.name))
    }

    fn by_route(&self, address: IpAddr) -> Option<&Interface> {
        let mut routes = self.routes.iter();
        let route = routes.find(|route| route.to.contains(&address))?;
        let mut all = self.interfaces.iter();
        all.find(|one| one.index == route.interface)
    }
}

/// Interfaces that lead to containers and virtual machines on this host never carry an address for others.
fn may_carry(name: &str) -> bool {
    !NEVER.iter().any(|begin| name.starts_with(begin)) && name != "lo"
}

const NEVER: [&str; 6] = ["docker", "veth", "cali", "cni", "flannel", "kube-ipvs"];

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let names = ["eth0", "veth1", "bond0", "lo", "eth1", "bond0.7"];
        let numbered = names.iter().zip(1..);
        let route = |interface, to: &str, is_link| Route {
            interface,
            to: to.parse().unwrap(),
            is_link,
        };
        let interfaces = numbered.map(|(name, index)| Interface {
            index,
            name: (*name).to_owned(),
            mac: [2; 6],
        });
        Network::new(
            interfaces.collect(),
            vec![
                route(2, "192.0.2.0/28", true),
                route(1, "0.0.0.0/0", false),
                route(3, "192.0.2.0/24", true),
                route(5, "192.0.2.128/25", true),
                route(5, "203.0.113.0/24", false),
                route(3, "2001:db8::/64", true),
                route(5, "::/0", false),
            ],
        )
    }

    #[test]
    fn auto_is_the_network_with_the_address_else_the_default_route() {
        for (address, expected) in [
            ("192.0.2.10", "bond0"),
            ("192.0.2.130", "eth1"),
            ("203.0.113.5", "eth0"),
            ("198.51.100.1", "eth0"),
            ("2001:db8::10", "bond0"),
            ("2001:db8:1::10", "eth1"),
        ] {
            let network = network();
            let found = network.choose(address.parse().unwrap(), &Interfaces::Auto);
            assert_eq!(found.map(|one| &*one.name), Some(expected), "{address}");
        }
        let nothing = Network::default();
        assert_eq!(
            nothing.choose("192.0.2.1".parse().unwrap(), &Interfaces::Auto),
            None
        );
    }

    #[test]
    fn names_and_patterns_are_tried_in_order_and_some_interfaces_never_carry_one() {
        for (patterns, expected) in [
            (&["eth1", "eth0"][..], Some("eth1")),
            (&["eth9", "bond*"], Some("bond0")),
            (&["*.7"], Some("bond0.7")),
            (&["lo"], None),
            (&["veth*"], None),
            (&["*"], Some("eth0")),
        ] {
            let patterns = patterns.iter().map(|one| one.parse().unwrap()).collect();
            let network = network();
            let found = network.choose("192.0.2.10".parse().unwrap(), &Interfaces::Named(patterns));
            assert_eq!(found.map(|one| &*one.name), expected);
        }
    }
}
