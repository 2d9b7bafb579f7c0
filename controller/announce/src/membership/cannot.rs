//! The addresses that a member cannot hold, as its state carries them: a list while they are few, and else a map of all its
//! addresses in about 1.25 bits each, whatever the share of those that it cannot hold.
//!
//! The map is the same for every reader, and needs no list on which the members agree: an address has three places in it, by its
//! hash, and their bits, added modulo 2, say whether the member cannot hold it. It is exact for the addresses that the member had when
//! it made the map. Of any other the answer is arbitrary: a member whose file does not have the address yet says so with its next state.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::owner::hash;

/// The addresses that name a member as a node and that it cannot hold now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cannot {
    /// These, and no others.
    Listed(Vec<IpAddr>),
    /// Those of which the map says so.
    Mapped(Map),
}

impl Cannot {
    /// No address.
    #[must_use]
    pub const fn none() -> Self {
        Self::Listed(Vec::new())
    }

    /// Whether the member cannot hold the address.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        match self {
            Self::Listed(addresses) => addresses.contains(&address),
            Self::Mapped(map) => map.has(address),
        }
    }
}

/// A bit for each address of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// The hashes depend on it. Of the first ones one fits.
    seed: u8,
    bits: Vec<u8>,
}

impl Map {
    /// A map of addresses, each with its bit. `None`: no seed fits, which no set of different addresses comes to.
    #[must_use]
    pub fn of(addresses: &[(IpAddr, bool)]) -> Option<Self> {
        (0..=u8::MAX).find_map(|seed| Self::with_seed(seed, addresses))
    }

    /// Finds an order in which each address has a place that no later one has, and sets those places in the reverse order, so that
    /// each sets its own bit last ("peeling").
    fn with_seed(seed: u8, addresses: &[(IpAddr, bool)]) -> Option<Self> {
        let third = addresses.len() * 41 / 100 + 8;
        let mut map = Self {
            seed,
            bits: vec![0; (3 * third).div_ceil(8)],
        };
        let places: Vec<[usize; 3]> = addresses.iter().map(|one| map.places(one.0)).collect();
        // At each place: how many addresses have it, and their numbers, added modulo 2.
        let mut users = vec![(0_usize, 0_usize); map.bits.len() * 8];
        for (number, place) in places.iter().enumerate() {
            for at in place {
                users[*at].0 += 1;
                users[*at].1 ^= number;
            }
        }
        let mut free: Vec<usize> = (0..users.len()).filter(|at| users[*at].0 == 1).collect();
        let mut order = Vec::with_capacity(addresses.len());
        while let Some(own) = free.pop() {
            let (1, number) = users[own] else { continue };
            order.push((number, own));
            for at in places[number] {
                users[at].0 -= 1;
                users[at].1 ^= number;
                if users[at].0 == 1 {
                    free.push(at);
                }
            }
        }
        if order.len() < addresses.len() {
            return None;
        }
        for (number, own) in order.into_iter().rev() {
            let (address, bit) = addresses[number];
            if map.has(address) != bit {
                map.bits[own / 8] ^= 1 << (own % 8);
            }
        }
        Some(map)
    }

    /// The bit of an address.
    fn has(&self, address: IpAddr) -> bool {
        let bit = |at: usize| {
            let byte = self.bits.get(at / 8).copied().unwrap_or_default();
            byte >> (at % 8) & 1
        };
        self.places(address)
            .into_iter()
            .map(bit)
            .fold(0, |sum, bit| sum ^ bit)
            == 1
    }

    /// Three different places: one in each third of the map. They are the same in every build and on every machine.
    fn places(&self, address: IpAddr) -> [usize; 3] {
        let third = (self.bits.len() * 8 / 3).max(1);
        let hash = hash([self.seed, 0], address);
        [0, 1, 2].map(|number| {
            let part = usize::try_from(hash >> (21 * number) & 0x1f_ffff).unwrap_or_default();
            number * third + part % third
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn address(number: u32) -> IpAddr {
        match number % 3 {
            0 => Ipv6Addr::from((0x2001_0db8 << 96) + u128::from(number)).into(),
            _ => Ipv4Addr::from(0xc000_0200 + number).into(),
        }
    }

    #[test]
    fn it_is_exact_for_each_of_its_addresses() {
        for count in [0, 1, 2, 3, 10, 100, 1_000, 5_000] {
            for share in [0, 1, 2, 3, 10, 1_000] {
                let cannot = |number: u32| share > 0 && number.is_multiple_of(share);
                let all: Vec<_> = (0..count).map(|one| (address(one), cannot(one))).collect();
                let map = Map::of(&all).unwrap();
                for (address, bit) in &all {
                    assert_eq!(map.has(*address), *bit, "{address} of {count}");
                }
                let most = all.len() * 125 / 800 + 6;
                assert!(map.bits.len() <= most, "{} of {count}", map.bits.len());
            }
        }
    }

    #[test]
    fn a_map_without_a_bit_has_an_answer() {
        let empty = Map {
            seed: 7,
            bits: Vec::new(),
        };
        assert!(!empty.has(address(1)));
    }

    #[test]
    fn one_address_with_two_bits_has_no_map() {
        let twice = [(address(1), true), (address(1), false)];
        assert_eq!(Map::of(&twice), None);
    }

    #[test]
    fn members_of_two_versions_read_the_same_places() {
        let map = Map {
            seed: 3,
            bits: vec![0; 30],
        };
        assert_eq!(map.places("192.0.2.10".parse().unwrap()), PLACES);
    }

    /// Computed apart from this program, in Python.
    const PLACES: [usize; 3] = [46, 82, 181];
}
