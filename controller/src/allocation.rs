//! What a Service was given: addresses and ports, as the condition `ballast.dev/Allocated` in its status says it.
//!
//! The publisher that leads gives (`decide::allocate`), `cluster::status` writes the condition, `observe` reads it, and nodes serve
//! by it. No role of a tenant may write the status of a Service.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use crate::observe::Protocol;
use crate::pools::Announce;
use crate::settings::Selector;

/// The type of the condition.
pub(crate) const ALLOCATED: &str = "ballast.dev/Allocated";

/// The word of the condition of a Service that is no LoadBalancer with the namespace of the Ballast that gave: several may give to one.
pub(crate) const GIVEN_BY: &str = "by=";

/// What a Service was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub at: At,
    /// The pool that the addresses are from.
    pub pool: Option<FromPool>,
    /// The ports that listen for the Service alone.
    pub ports: BTreeSet<NodePort>,
    /// The shared HTTP and HTTPS ports that lead to the Service, by number.
    pub routes: BTreeSet<u16>,
}

/// The pool of an allocation, and what nodes and later publishers must know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromPool {
    pub name: String,
    /// The nodes that may hold its addresses; `None`: all.
    pub nodes: Option<Selector>,
    /// Whether the Service is internal.
    pub internal: bool,
    /// How the network learns where its addresses are.
    pub announce: Announce,
}

/// The addresses at which the ports of a Service listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// All addresses of the nodes.
    Node,
    /// The internal addresses of the nodes.
    NodeInternal,
    /// These.
    Addresses(Vec<IpAddr>),
}

/// A port at which a node listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodePort {
    pub number: u16,
    pub udp: bool,
}

/// An [`Allocation`] in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    pub allocation: Allocation,
    /// When its addresses were given, in seconds of Unix time.
    pub since: i64,
}

impl Allocation {
    /// What the message of the condition says. Words that are not known are skipped. `None`: the message does not say where the
    /// Service listens.
    pub(crate) fn read(message: &str) -> Option<Self> {
        let mut at = None;
        let mut pool = None;
        let (mut nodes, mut internal) = (None, false);
        let mut announce = Announce::default();
        let mut ports = BTreeSet::new();
        let mut routes = BTreeSet::new();
        for word in message.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("addresses", text)) => at = At::read(text),
                Some(("pool", text)) => pool = Some(text.to_owned()),
                Some(("nodes", text)) => nodes = text.replace('+', " ").parse().ok(),
                Some(("internal", text)) => internal = text == "true",
                // A word of a later build stands for a way that this one does not know.
                Some(("announce", text)) => {
                    announce = Announce::read(text).unwrap_or(Announce::Nobody);
                }
                Some(("ports", text)) => ports.extend(text.split(',').filter_map(NodePort::read)),
                Some(("routes", text)) => {
                    let numbers = text.split(',').filter_map(NodePort::read);
                    routes.extend(numbers.map(|port| port.number));
                }
                _ => {}
            }
        }
        Some(Self {
            at: at?,
            pool: pool.map(|name| FromPool {
                name,
                nodes,
                internal,
                announce,
            }),
            ports,
            routes,
        })
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addresses={}", self.at)?;
        if let Some(pool) = &self.pool {
            write!(f, " pool={}", pool.name)?;
            if let Some(nodes) = &pool.nodes {
                // No label has a plus sign, and a word no space.
                write!(f, " nodes={}", nodes.to_string().replace(' ', "+"))?;
            }
            if pool.internal {
                f.write_str(" internal=true")?;
            }
            if pool.announce != Announce::default() {
                write!(f, " announce={}", pool.announce.word())?;
            }
        }
        let list = |ports: &mut dyn Iterator<Item = NodePort>| {
            let words: Vec<String> = ports.map(|port| port.to_string()).collect();
            words.join(",")
        };
        if !self.ports.is_empty() {
            write!(f, " ports={}", list(&mut self.ports.iter().copied()))?;
        }
        if !self.routes.is_empty() {
            let routes = self.routes.iter();
            write!(
                f,
                " routes={}",
                list(&mut routes.map(|port| NodePort::tcp(*port)))
            )?;
        }
        Ok(())
    }
}

impl At {
    /// These addresses, whose order means nothing.
    pub(crate) fn of(addresses: &[IpAddr]) -> Self {
        let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        Self::Addresses(addresses.into_iter().collect())
    }

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "node" => Self::Node,
            "node-internal" => Self::NodeInternal,
            list => {
                let addresses = list.split(',').map(str::parse);
                Self::of(&addresses.collect::<Result<Vec<_>, _>>().ok()?)
            }
        })
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::NodeInternal => f.write_str("node-internal"),
            Self::Addresses(addresses) => {
                let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

impl NodePort {
    pub(crate) fn of(number: u16, protocol: Protocol) -> Self {
        let udp = protocol == Protocol::Udp;
        Self { number, udp }
    }

    pub const fn tcp(number: u16) -> Self {
        Self { number, udp: false }
    }

    fn read(text: &str) -> Option<Self> {
        let (number, transport) = text.split_once('/')?;
        let udp = match transport {
            "TCP" => false,
            "UDP" => true,
            _ => return None,
        };
        Some(Self {
            number: number.parse().ok()?,
            udp,
        })
    }
}

impl fmt::Display for NodePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.udp { "UDP" } else { "TCP" };
        write!(f, "{}/{transport}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in [
            "addresses=node ports=80/TCP,443/TCP",
            "addresses=node-internal ports=53/TCP,53/UDP",
            "addresses=192.0.2.10,2001:db8::10 pool=edge ports=80/TCP",
            "addresses=192.0.2.10 pool=edge nodes=!spare,role=edge,zone+in+(a,b) internal=true ports=80/TCP",
            "addresses=192.0.2.10 pool=edge announce=bgp ports=80/TCP",
            "addresses=192.0.2.10 pool=lb internal=true announce=advertised ports=80/TCP",
            "addresses=node ports=3306/TCP routes=80/TCP,443/TCP",
            "addresses=node",
        ] {
            let read = Allocation::read(text).map(|read| read.to_string());
            assert_eq!(read.as_deref(), Some(text));
        }
    }

    #[test]
    fn words_of_later_builds_are_skipped_and_a_message_without_addresses_is_none() {
        let read = Allocation::read("addresses=node zone=a ports=80/TCP,81/SCTP,x new");
        let text = read.map(|read| read.to_string());
        assert_eq!(text.as_deref(), Some("addresses=node ports=80/TCP"));
        let other =
            Allocation::read("addresses=2001:db8::10,192.0.2.10").map(|read| read.to_string());
        assert_eq!(other.as_deref(), Some("addresses=192.0.2.10,2001:db8::10"));
        for wrong in ["", "ports=80/TCP", "addresses=", "addresses=192.0.2.10,x"] {
            assert_eq!(Allocation::read(wrong), None, "{wrong}");
        }
    }
}
