//! Ranges of addresses, and sets of them: written, counted and searched without a step for each address.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::observe::Family;

/// The addresses of one family from the first to the last one, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    family: Family,
    first: u128,
    last: u128,
}

impl AddressRange {
    /// `None`: of two families, or the last one is below the first one.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        let ((family, first), (other, last)) = (number(first), number(last));
        (family == other && first <= last).then_some(Self {
            family,
            first,
            last,
        })
    }

    pub fn of(address: IpAddr) -> Self {
        let (family, number) = number(address);
        Self {
            family,
            first: number,
            last: number,
        }
    }

    /// Reads `IP/LENGTH`. Bits behind the length are masked, as MetalLB and Antrea do.
    pub fn from_cidr(text: &str) -> Result<Self, String> {
        let wrong = || "is not a CIDR; write one such as 192.0.2.0/26 or 2001:db8::/120".to_owned();
        let net: IpNet = text.trim().parse().map_err(|_| wrong())?;
        Self::new(net.network(), net.broadcast()).ok_or_else(wrong)
    }

    /// The range between two addresses that are written.
    pub fn from_ends(first: &str, last: &str) -> Result<Self, String> {
        let address = |text: &str| {
            let text = text.trim();
            text.parse::<IpAddr>()
                .map_err(|_| format!("contains {text:?}, which is not an address; write one such as 192.0.2.10 or 2001:db8::10"))
        };
        let (first, last) = (address(first)?, address(last)?);
        Self::new(first, last).ok_or_else(|| {
            match Family::of(first.to_canonical()) == Family::of(last.to_canonical()) {
                true => {
                    format!("ends before it starts; write the lower address first: {last}-{first}")
                }
                false => "mixes IPv4 and IPv6; write a range for each family".to_owned(),
            }
        })
    }

    /// Reads `IP/LENGTH`, `IP-IP`, or one address.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Self::from_cidr(text);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Self::from_ends(first, last)
    }

    pub const fn family(self) -> Family {
        self.family
    }

    pub fn first(self) -> IpAddr {
        address(self.family, self.first)
    }

    pub fn last(self) -> IpAddr {
        address(self.family, self.last)
    }

    /// The number of its addresses; one less for all of IPv6.
    pub const fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let (family, number) = number(address);
        self.family == family && (self.first..=self.last).contains(&number)
    }

    /// The addresses that both have.
    pub fn common(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (self.family == other.family && first <= last).then_some(Self {
            first,
            last,
            ..self
        })
    }

    /// The parts of this range that the other one does not have.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let parts = match self.common(other) {
            None => [Some(self), None],
            Some(common) => [
                (self.first < common.first).then(|| Self {
                    last: common.first - 1,
                    ..self
                }),
                (common.last < self.last).then(|| Self {
                    first: common.last + 1,
                    ..self
                }),
            ],
        };
        parts.into_iter().flatten()
    }

    /// Antrea's rule for a CIDR: its first address is never given, and of IPv4 nor is its last one.
    pub fn without_ends(self) -> Option<Self> {
        let last = match self.family {
            Family::V4 => self.last.checked_sub(1)?,
            Family::V6 => self.last,
        };
        let first = self.first.checked_add(1)?;
        (first <= last).then_some(Self {
            first,
            last,
            ..self
        })
    }

    /// How many of its addresses [`is_buggy`] is true for.
    pub fn count_buggy(self) -> u128 {
        // Below a number: those that end with .0, and those that end with .255.
        let below = |number: u128| number.div_ceil(256) + number / 256;
        match self.family {
            Family::V4 => below(self.last + 1) - below(self.first),
            Family::V6 => 0,
        }
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first()),
            false => write!(f, "{}-{}", self.first(), self.last()),
        }
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether old devices take an address for that of a network or a broadcast: x.x.x.0 and x.x.x.255.
pub fn is_buggy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => [0, 255].contains(&address.octets()[3]),
        IpAddr::V6(_) => false,
    }
}

/// A set of addresses, kept as ranges with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// The last number of each range, by family and first number.
    ranges: BTreeMap<(Family, u128), u128>,
}

impl AddressSet {
    pub fn add(&mut self, range: AddressRange) {
        let AddressRange {
            family,
            mut first,
            mut last,
        } = range;
        if let Some((start, end)) = self.at_or_before(family, first)
            && end.saturating_add(1) >= first
        {
            (first, last) = (start, last.max(end));
        }
        let until = (family, last.saturating_add(1));
        let reached = self.ranges.range((family, first)..=until);
        let reached: Vec<_> = reached.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in reached {
            self.ranges.remove(&start);
            last = last.max(end);
        }
        self.ranges.insert((family, first), last);
    }

    pub fn remove(&mut self, range: AddressRange) {
        for part in self.within(range).collect::<Vec<_>>() {
            let Some((start, end)) = self.at_or_before(part.family, part.first) else {
                continue;
            };
            let whole = AddressRange {
                family: part.family,
                first: start,
                last: end,
            };
            self.ranges.remove(&(part.family, start));
            for rest in whole.without(part) {
                self.ranges.insert((rest.family, rest.first), rest.last);
            }
        }
    }

    /// Its parts within a range, in order.
    pub fn within(&self, range: AddressRange) -> impl Iterator<Item = AddressRange> {
        let family = range.family;
        let start = self.at_or_before(family, range.first);
        let from = start.map_or(range.first, |(start, _)| start);
        let found = self.ranges.range((family, from)..=(family, range.last));
        found.filter_map(move |((_, first), last)| {
            range.common(AddressRange {
                family,
                first: *first,
                last: *last,
            })
        })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.within(AddressRange::of(address)).next().is_some()
    }

    /// The first address of a range that is not in the set: one search, however many are.
    pub fn first_outside(&self, range: AddressRange) -> Option<AddressRange> {
        let begin = match self.at_or_before(range.family, range.first) {
            Some((_, end)) if end >= range.first => end.checked_add(1)?,
            _ => range.first,
        };
        (begin <= range.last).then_some(AddressRange {
            first: begin,
            ..range
        })
    }

    pub fn ranges(&self) -> impl Iterator<Item = AddressRange> {
        let ranges = self.ranges.iter();
        ranges.map(|((family, first), last)| AddressRange {
            family: *family,
            first: *first,
            last: *last,
        })
    }

    /// The range that begins at a number or before it.
    fn at_or_before(&self, family: Family, number: u128) -> Option<(u128, u128)> {
        let mut before = self.ranges.range((family, 0)..=(family, number));
        before.next_back().map(|((_, first), last)| (*first, *last))
    }
}

fn number(address: IpAddr) -> (Family, u128) {
    match address.to_canonical() {
        IpAddr::V4(address) => (Family::V4, u32::from(address).into()),
        IpAddr::V6(address) => (Family::V6, address.into()),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}
