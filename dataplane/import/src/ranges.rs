//! Sets of client addresses: lists of `accept` and `reject` come to the ranges that remain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Subnets};

/// A set of addresses: of IPv4, then of IPv6, sorted ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges([Rc<Vec<(u128, u128)>>; 2]);

/// The last address of each family.
const LAST: [u128; 2] = [0xffff_ffff, u128::MAX];

impl Ranges {
    /// A set of the ranges that each family has, by its place.
    fn each(ranges: impl Fn(usize) -> Vec<(u128, u128)>) -> Self {
        Self(std::array::from_fn(|family| Rc::new(ranges(family))))
    }

    pub(super) fn none() -> Self {
        Self::default()
    }

    pub(super) fn all() -> Self {
        Self::each(|family| vec![(0, LAST[family])])
    }

    pub(super) fn of(nets: &[IpNet]) -> Self {
        let mut ranges = [Vec::new(), Vec::new()];
        for net in nets {
            match net {
                IpNet::V4(net) => ranges[0].push((
                    net.network().to_bits().into(),
                    net.broadcast().to_bits().into(),
                )),
                IpNet::V6(net) => {
                    ranges[1].push((net.network().to_bits(), net.broadcast().to_bits()));
                }
            }
        }
        Self(ranges.map(|ranges| Rc::new(merged(ranges))))
    }

    pub(super) fn this_host() -> Self {
        let nets = ["127.0.0.0/8", "::1/128"];
        Self::of(&nets.map(net).into_iter().flatten().collect::<Vec<_>>())
    }

    /// The addresses of IPv6 that haproxy takes for the ones of IPv4 inside of them: 2002:V4::/48 (6to4), and ::V4.
    pub(super) fn around_ipv4(&self) -> Self {
        let six_to_four = |bits: u128| 0x2002_u128 << 112 | bits << 80;
        let [v4, _] = &self.0;
        let around = v4.iter().flat_map(|&(first, last)| {
            let end = six_to_four(last) | ((1 << 80) - 1);
            [(first, last), (six_to_four(first), end)]
        });
        Self([Rc::default(), Rc::new(merged(around.collect()))])
    }

    pub(super) fn is_all(&self) -> bool {
        let mut families = self.0.iter().zip(LAST);
        families.all(|(ranges, last)| ranges[..] == [(0, last)])
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.iter().all(|ranges| ranges.is_empty())
    }

    /// How many ranges of a table it comes to, about; none where it is all.
    pub(super) fn count(&self) -> usize {
        match self.is_all() {
            true => 0,
            false => self.0.iter().map(|ranges| ranges.len()).sum(),
        }
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        if self.is_none() || other.is_all() {
            return other.clone();
        }
        if other.is_none() || self.is_all() {
            return self.clone();
        }
        Self::each(|family| merged([&self.0[family][..], &other.0[family]].concat()))
    }

    /// All that lie in one of these sets.
    pub(super) fn any_of(sets: &[Self]) -> Self {
        let all = |family: usize| sets.iter().flat_map(move |set| set.0[family].iter());
        Self::each(|family| merged(all(family).copied().collect()))
    }

    pub(super) fn not(&self) -> Self {
        Self::each(|family| without(&self.0[family], LAST[family]))
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        if self.is_none() || other.is_all() {
            return self.clone();
        }
        if other.is_none() || self.is_all() {
            return other.clone();
        }
        self.not().or(&other.not()).not()
    }

    pub(super) fn and_not(&self, other: &Self) -> Self {
        self.and(&other.not())
    }

    /// As ranges of a table; `None`: more of them than anybody would want.
    pub(super) fn nets(&self) -> Option<Vec<IpNet>> {
        let [v4, v6] = &self.0;
        let v4 = v4.iter().flat_map(|&(first, last)| {
            Ipv4Subnets::new(address4(first), address4(last), 0).map(IpNet::V4)
        });
        let v6 = v6.iter().flat_map(|&(first, last)| {
            let (first, last) = (Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last));
            Ipv6Subnets::new(first, last, 0).map(IpNet::V6)
        });
        let nets: Vec<IpNet> = v4.chain(v6).take(MOST + 1).collect();
        (nets.len() <= MOST).then_some(nets)
    }
}

fn address4(bits: u128) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))
}

fn merged(mut ranges: Vec<(u128, u128)>) -> Vec<(u128, u128)> {
    // Two sorted lists behind one another are merged in linear time.
    ranges.sort();
    let mut merged: Vec<(u128, u128)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn without(ranges: &[(u128, u128)], end: u128) -> Vec<(u128, u128)> {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for &(first, last) in ranges {
        if let Some(begin) = next.filter(|begin| *begin < first) {
            gaps.push((begin, first - 1));
        }
        next = last.checked_add(1).filter(|next| *next <= end);
    }
    gaps.extend(next.map(|begin| (begin, end)));
    gaps
}

/// An address or a network as an ACL names it: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`.
pub(super) fn net(text: &str) -> Option<IpNet> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(IpNet::from(address.to_canonical()));
    }
    if let Ok(net) = text.parse::<IpNet>() {
        return Some(net.trunc());
    }
    let (address, mask) = text.split_once('/')?;
    let (address, mask): (Ipv4Addr, Ipv4Addr) = (address.parse().ok()?, mask.parse().ok()?);
    let net = Ipv4Net::with_netmask(address, mask).ok()?;
    Some(IpNet::V4(net.trunc()))
}

/// Ranges that one rule comes to at most.
const MOST: usize = 10_000;
