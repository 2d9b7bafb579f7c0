//! The owner of an address: a pure function of what a node knows about the members.

use std::net::IpAddr;

/// The standing of a member as an owner. A higher standing comes first, whatever the hash says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// The member was declared dead while it lived, and waits before it may hold addresses again.
    Flapping,
    /// The member came back, and takes addresses only where no settled member can.
    Returning,
    /// The member is one of those that share the addresses.
    Settled,
}

/// A member that can hold an address now.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'m> {
    /// Its name.
    pub name: &'m str,
    /// Its standing.
    pub standing: Standing,
}

impl<'m> Candidate<'m> {
    /// The owner is the candidate of the highest rank.
    pub fn rank(&self, address: IpAddr) -> (Standing, u64, &'m str) {
        (self.standing, weight(self.name, address), self.name)
    }
}

/// The owner of the address among those who can hold it.
pub fn owner<'m>(
    address: IpAddr,
    candidates: impl IntoIterator<Item = Candidate<'m>>,
) -> Option<&'m str> {
    let owner = candidates.into_iter().max_by_key(|one| one.rank(address));
    owner.map(|candidate| candidate.name)
}

/// The weight of a node for an address (rendezvous hashing). It is the same in every build and on every machine: nodes of two
/// versions must agree.
fn weight(node: &str, address: IpAddr) -> u64 {
    hash(node.bytes().chain([0]), address)
}

/// The hash of some bytes and an address, the same in every build and on every machine.
pub(crate) fn hash(before: impl IntoIterator<Item = u8>, address: IpAddr) -> u64 {
    let octets = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let bytes = before.into_iter().chain(octets);
    // FNV-1a, then the finalizer of MurmurHash3: FNV alone leaves the last bytes in the low bits.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use super::*;

    const NODES: [&str; 5] = ["edge1", "edge2", "edge3", "edge4", "edge5"];

    fn owners(nodes: &[&str]) -> Vec<String> {
        let owner_of = |last: u32| {
            let address = Ipv4Addr::from(0xc000_0200 + last).into();
            let candidates = nodes.iter().map(|name| Candidate {
                name,
                standing: Standing::Settled,
            });
            owner(address, candidates).unwrap().to_owned()
        };
        (0..1000).map(owner_of).collect()
    }

    #[test]
    fn only_the_addresses_of_a_node_that_died_move_and_they_spread_over_all_others() {
        let before = owners(&NODES);
        let after = owners(&NODES[1..]);
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        for (before, after) in before.iter().zip(&after) {
            match before == "edge1" {
                true => *taken.entry(after).or_default() += 1,
                false => assert_eq!(before, after),
            }
        }
        assert_eq!(taken.len(), 4, "{taken:?}");
        assert!(
            taken.values().all(|count| (25..=75).contains(count)),
            "{taken:?}"
        );
    }

    #[test]
    fn nodes_have_equal_shares() {
        let owners = owners(&NODES);
        for node in NODES {
            let share = owners.iter().filter(|owner| *owner == node).count();
            assert!((150..=250).contains(&share), "{node}: {share}");
        }
    }

    #[test]
    fn a_higher_standing_comes_first_and_without_any_the_hash_decides() {
        let address = "192.0.2.10".parse().unwrap();
        let all = |standing: fn(&str) -> Standing| {
            let candidates = NODES.iter().map(move |name| Candidate {
                name,
                standing: standing(name),
            });
            owner(address, candidates)
        };
        let first = all(|_| Standing::Settled).unwrap();
        assert_eq!(all(|_| Standing::Flapping), Some(first));
        for name in NODES {
            let one = |other: &str| match other == name {
                true => Standing::Settled,
                false => Standing::Returning,
            };
            let candidates = NODES.iter().map(|&name| Candidate {
                name,
                standing: one(name),
            });
            assert_eq!(owner(address, candidates), Some(name));
        }
        assert_eq!(owner(address, []), None);
    }

    #[test]
    fn the_weights_never_change() {
        assert_eq!(weight("edge1", "192.0.2.10".parse().unwrap()), WEIGHTS[0]);
        assert_eq!(weight("edge1", "2001:db8::10".parse().unwrap()), WEIGHTS[1]);
    }

    /// Computed apart from this program, in Python.
    const WEIGHTS: [u64; 2] = [0x1c82_9cb4_cca3_6c15, 0x80b4_a9f8_e1fe_70fe];
}
