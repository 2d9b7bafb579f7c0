//! `source-ranges`: who may come at all.
//!
//! Only membership is asked, so the prefixes of each family are merged into sorted ranges that do not touch, and a binary
//! search finds the one range in which an address could be.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

/// The addresses that a list of prefixes covers. A family without a prefix is not covered at all; an IPv4 address
/// inside an IPv6 one is IPv4, as a client and as a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixSet {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl PrefixSet {
    /// Covers what any of `prefixes` covers. Bits beyond a prefix's length mean nothing.
    pub fn new(prefixes: impl IntoIterator<Item = IpNet>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            match (prefix.network(), prefix.broadcast()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((first.to_bits(), last.to_bits())),
                (IpAddr::V6(first), IpAddr::V6(last)) => match mapped(first, last) {
                    Some(range) => v4.push(range),
                    None => v6.push((first.to_bits(), last.to_bits())),
                },
                (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {}
            }
        }
        Self {
            v4: Ranges::new(v4, |last| last.checked_add(1)),
            v6: Ranges::new(v6, |last| last.checked_add(1)),
        }
    }

    /// Whether `client` is in one of the ranges.
    #[must_use]
    pub fn contains(&self, client: IpAddr) -> bool {
        match client.to_canonical() {
            IpAddr::V4(v4) => self.v4.contains(v4.to_bits()),
            IpAddr::V6(v6) => self.v6.contains(v6.to_bits()),
        }
    }
}

/// The first and the last address of each range, sorted, and with a gap between each two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges<T>(Box<[(T, T)]>);

impl<T: Copy + Ord> Ranges<T> {
    /// `next`: the address after one, if that is not the last of its family.
    fn new(mut ranges: Vec<(T, T)>, next: impl Fn(T) -> Option<T>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                // Where nothing comes after the range before, it reaches to the end of all addresses.
                Some((_, end)) if next(*end).is_none_or(|after| first <= after) => {
                    *end = last.max(*end);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged.into())
    }

    fn contains(&self, address: T) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        let range = after.checked_sub(1).and_then(|index| self.0.get(index));
        range.is_some_and(|(_, last)| address <= *last)
    }
}

/// An IPv6 range that holds nothing but IPv4 addresses.
fn mapped(first: Ipv6Addr, last: Ipv6Addr) -> Option<(u32, u32)> {
    Some((
        first.to_ipv4_mapped()?.to_bits(),
        last.to_ipv4_mapped()?.to_bits(),
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(prefixes: &[&str]) -> PrefixSet {
        PrefixSet::new(prefixes.iter().map(|prefix| prefix.parse().unwrap()))
    }

    #[test]
    fn a_client_is_in_or_out() {
        let cases: &[(&[&str], &[&str], &[&str])] = &[
            (&[], &[], &["0.0.0.0", "::", "255.255.255.255"]),
            (
                &["192.0.2.0/24"],
                &["192.0.2.0", "192.0.2.255", "::ffff:192.0.2.7"],
                &["192.0.1.255", "192.0.3.0", "::", "2001:db8::1"],
            ),
            (&["192.0.2.77/24"], &["192.0.2.1"], &["192.0.3.1"]),
            (&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255"], &["::1"]),
            (
                &["::/0"],
                &["::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"],
                &["10.0.0.1", "::ffff:10.0.0.1"],
            ),
            (
                &["::ffff:10.0.0.0/104"],
                &["10.255.0.1", "::ffff:10.0.0.1"],
                &["11.0.0.1", "::1"],
            ),
            (
                &[
                    "10.0.0.0/25",
                    "10.0.0.128/25",
                    "10.0.1.1/32",
                    "10.0.0.64/26",
                ],
                &["10.0.0.0", "10.0.0.255", "10.0.1.1"],
                &["10.0.1.0", "10.0.1.2", "9.255.255.255"],
            ),
            (
                &["128.0.0.0/1", "255.255.255.255/32", "200.0.0.0/8"],
                &["255.255.255.255", "128.0.0.0", "201.0.0.0"],
                &["127.255.255.255"],
            ),
            (
                &["2001:db8::/32", "10.0.0.1/32"],
                &["2001:db8:ffff::", "10.0.0.1"],
                &["2001:db7::", "10.0.0.2"],
            ),
        ];
        for (prefixes, within, without) in cases {
            let set = set(prefixes);
            for client in *within {
                assert!(
                    set.contains(client.parse().unwrap()),
                    "{client} in {prefixes:?}"
                );
            }
            for client in *without {
                assert!(
                    !set.contains(client.parse().unwrap()),
                    "{client} in {prefixes:?}"
                );
            }
        }
    }

    #[test]
    fn neighbours_become_one_range() {
        assert_eq!(
            set(&["10.0.0.0/25", "10.0.0.128/25"]),
            set(&["10.0.0.0/24"])
        );
        assert_eq!(set(&["::/1", "8000::/1", "ffff::/16"]), set(&["::/0"]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_says_what_the_list_says(
            v4 in prop::collection::vec((any::<u32>(), 0_u8..=32), 0..40),
            v6 in prop::collection::vec((any::<u128>(), 0_u8..=128), 0..40),
            near in prop::collection::vec((0_u32..256, 0_u8..=100, 0_u8..=32), 0..40),
            clients in prop::collection::vec((any::<u32>(), any::<u128>(), any::<prop::sample::Index>(), -1_i64..=1), 1..60),
        ) {
            let prefixes: Vec<IpNet> = v4
                .into_iter()
                .map(|(bits, len)| IpNet::new(IpAddr::V4(bits.into()), len).unwrap())
                .chain(v6.into_iter().map(|(bits, len)| IpNet::new(IpAddr::V6(bits.into()), len).unwrap()))
                // Neighbours, alone and in blocks, at every depth of both families.
                .chain(near.into_iter().flat_map(|(bits, shift, len)| [
                    IpNet::new(IpAddr::V4(bits.rotate_left(shift.into()).into()), len).unwrap(),
                    IpNet::new(IpAddr::V6((u128::from(bits) << shift).into()), 128 - shift / 2).unwrap(),
                ]))
                .collect();
            let set = PrefixSet::new(prefixes.iter().copied());
            let says = |client: IpAddr| {
                let client = client.to_canonical();
                prefixes.iter().any(|prefix| prefix.contains(&client))
            };
            for (v4, v6, near, step) in clients {
                let mut asked = vec![IpAddr::V4(v4.into()), IpAddr::V6(v6.into())];
                if !prefixes.is_empty() {
                    // The edges are where a search goes wrong.
                    let prefix = near.get(&prefixes);
                    for edge in [prefix.network(), prefix.broadcast()] {
                        asked.push(match edge {
                            IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().wrapping_add_signed(i32::try_from(step).unwrap()).into()),
                            IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().wrapping_add_signed(step.into()).into()),
                        });
                    }
                }
                for client in asked {
                    prop_assert_eq!(set.contains(client), says(client), "{}", client);
                }
            }
        }
    }
}
