//! Chooses the local port of a flow's socket.
//!
//! The kernel distinguishes sockets by both addresses and both ports, so one local port can serve one flow to each endpoint.
//! The kernel's own choice of a port does not use that: it gives each port to one socket only. Therefore the flow table
//! chooses, from the ports that belong to its worker alone.
//!
//! Two sockets with the same four values would mix up the replies of two clients. Within a worker this module prevents that;
//! between workers the partition of the ports does. Between processes the kernel does, because the first socket at a port
//! ([`Local::is_shared`] is false) is bound without address reuse, which fails while another process has a socket there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::moment::Moment;
use crate::rng::Rng;

use super::bits::Bits;

/// Where to bind the socket of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Local {
    /// The source address and the port. The address is unspecified if the kernel is to choose it by its routes.
    pub address: SocketAddr,
    /// Whether other flows of this worker have sockets at this port. If not, the socket must be bound without address reuse,
    /// and binding fails if another process has the port.
    pub is_shared: bool,
}

/// The port of a flow, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The group of flows to the same endpoint from the same source address. 0: the flow has no port.
    pub(super) group: u32,
    /// The index of the port in [`LocalPorts::ports`].
    index: u16,
}

/// The ports of one worker, and the flows that use them.
#[derive(Debug)]
pub(super) struct LocalPorts {
    ports: Box<[u16]>,
    sources: FxHashMap<IpAddr, Source>,
    by_key: FxHashMap<(SocketAddr, IpAddr), u32>,
    /// Group 0 is the group of flows without a port.
    groups: Vec<Option<Group>>,
    free_groups: Vec<u32>,
    /// Scratch set of ports to exclude while one is chosen.
    excluded: Bits,
}

/// The use of ports at one source address.
#[derive(Debug)]
struct Source {
    /// The number of flows at each port.
    holders: Box<[u32]>,
    /// Ports with flows.
    owned: Bits,
    /// Those of them at which other workers or processes may have flows, too, so that no further flow shares them.
    alone: Bits,
    flows: usize,
    /// Ports that another process was found to have.
    foreign: Bits,
    /// When the first of these was found. All of them are tried again after [`TRY_FOREIGN_AFTER`].
    foreign_since: Moment,
}

/// The flows to one endpoint from one source address. Each has another port.
#[derive(Debug)]
struct Group {
    endpoint: SocketAddr,
    source: IpAddr,
    used: Used,
}

/// The ports of a group: a list, while that takes less memory than one bit for each port.
#[derive(Debug)]
enum Used {
    Few(Vec<u16>),
    Many { bits: Bits, count: usize },
}

impl LocalPorts {
    /// Creates the state of a worker with these ports, in ascending order. No other worker may have any of them.
    pub(super) fn new(ports: Vec<u16>) -> Self {
        Self {
            excluded: Bits::new(ports.len()),
            ports: ports.into(),
            sources: FxHashMap::default(),
            by_key: FxHashMap::default(),
            groups: vec![None],
            free_groups: Vec::new(),
        }
    }

    /// Takes a port for a flow to `endpoint` from `source`. `None`: all ports are in use towards this endpoint.
    pub(super) fn take(
        &mut self,
        now: Moment,
        endpoint: SocketAddr,
        source: IpAddr,
        rng: &mut Rng,
    ) -> Option<(Taken, Local)> {
        let used = self
            .group(endpoint, source)
            .map_or(0, |group| self.used(group));
        if used >= max_flows_per_group(self.ports.len()) {
            return None;
        }
        let from = usize::try_from(rng.below(self.ports.len() as u64)).unwrap_or(0);
        let unowned = self.unowned(now, source, from);
        let index = unowned.or_else(|| self.not_of_this_endpoint(endpoint, source, from))?;
        let local = Local {
            address: SocketAddr::new(source, *self.ports.get(index)?),
            is_shared: unowned.is_none(),
        };
        let group = self.group_for(endpoint, source);
        let index = u16::try_from(index).ok()?;
        self.hold(group, index);
        Some((Taken { group, index }, local))
    }

    /// Notes the port of a flow of another process. A port that belongs to another worker is not noted: nothing here uses it.
    pub(super) fn adopt(
        &mut self,
        endpoint: SocketAddr,
        source: IpAddr,
        port: u16,
        is_alone: bool,
    ) -> Taken {
        let index = self.ports.binary_search(&port).ok();
        let Some(index) = index.and_then(|index| u16::try_from(index).ok()) else {
            return Taken::default();
        };
        let group = self.group_for(endpoint, source);
        self.hold(group, index);
        if is_alone && let Some(source) = self.sources.get_mut(&source) {
            source.alone.insert(index.into());
        }
        Taken { group, index }
    }

    /// Where the socket of a flow was bound, and whether no further flow may share that port.
    pub(super) fn of(&self, taken: Taken) -> Option<(SocketAddr, bool)> {
        let group = self.groups.get(taken.group as usize)?.as_ref()?;
        let port = *self.ports.get(usize::from(taken.index))?;
        let of_source = self.sources.get(&group.source)?;
        let is_alone = of_source.alone.contains(taken.index.into());
        Some((SocketAddr::new(group.source, port), is_alone))
    }

    /// Releases the port of a flow.
    pub(super) fn release(&mut self, taken: Taken) {
        let Taken { group, index } = taken;
        let Some(Some(of_group)) = self.groups.get_mut(group as usize) else {
            return;
        };
        let source = of_group.source;
        of_group.used.remove(index);
        if of_group.used.len() == 0 {
            self.by_key.remove(&(of_group.endpoint, source));
            self.groups[group as usize] = None;
            self.free_groups.push(group);
        }
        if let Some(of_source) = self.sources.get_mut(&source) {
            of_source.release(index.into());
            if of_source.flows == 0 && of_source.foreign.is_empty() {
                self.sources.remove(&source);
            }
        }
    }

    /// Releases a port that another process has; it is not tried again for a while.
    pub(super) fn release_foreign(&mut self, now: Moment, taken: Taken) {
        if let Some(Some(group)) = self.groups.get(taken.group as usize)
            && let Some(source) = self.sources.get_mut(&group.source)
        {
            if source.foreign.is_empty() {
                source.foreign_since = now;
            }
            source.foreign.insert(taken.index.into());
        }
        self.release(taken);
    }

    /// The group of this endpoint and source address, if it has flows.
    pub(super) fn group(&self, endpoint: SocketAddr, source: IpAddr) -> Option<u32> {
        self.by_key.get(&(endpoint, source)).copied()
    }

    fn used(&self, group: u32) -> usize {
        let group = self.groups.get(group as usize).and_then(Option::as_ref);
        group.map_or(0, |group| group.used.len())
    }

    /// A port at which this worker has no socket that could conflict with a socket at `source`.
    fn unowned(&mut self, now: Moment, source: IpAddr, from: usize) -> Option<usize> {
        self.exclude_foreign(now, source);
        for (other, of_other) in &self.sources {
            if overlap(*other, source) {
                self.excluded.add(&of_other.owned);
            }
        }
        self.excluded.first_missing(from)
    }

    /// A port that is used only by flows to other endpoints.
    fn not_of_this_endpoint(
        &mut self,
        endpoint: SocketAddr,
        source: IpAddr,
        from: usize,
    ) -> Option<usize> {
        self.excluded.clear();
        if let Some(of_source) = self.sources.get(&source) {
            self.excluded.add(&of_source.foreign);
        }
        for (other, of_other) in &self.sources {
            if !overlap(*other, source) {
                continue;
            }
            self.excluded.add(&of_other.alone);
            let group = self.by_key.get(&(endpoint, *other));
            if let Some(Some(group)) = group.and_then(|group| self.groups.get(*group as usize)) {
                group.used.add_to(&mut self.excluded);
            }
        }
        self.excluded.first_missing(from)
    }

    /// Excludes the ports of other processes, and no others.
    fn exclude_foreign(&mut self, now: Moment, source: IpAddr) {
        self.excluded.clear();
        let Some(of_source) = self.sources.get_mut(&source) else {
            return;
        };
        if now.since(of_source.foreign_since) >= TRY_FOREIGN_AFTER {
            of_source.foreign.clear();
        }
        self.excluded.add(&of_source.foreign);
    }

    fn group_for(&mut self, endpoint: SocketAddr, source: IpAddr) -> u32 {
        *self.by_key.entry((endpoint, source)).or_insert_with(|| {
            let group = Some(Group {
                endpoint,
                source,
                used: Used::Few(Vec::new()),
            });
            match self.free_groups.pop() {
                Some(number) => {
                    self.groups[number as usize] = group;
                    number
                }
                None => {
                    self.groups.push(group);
                    u32::try_from(self.groups.len() - 1).unwrap_or(0)
                }
            }
        })
    }

    fn hold(&mut self, group: u32, index: u16) {
        let count = self.ports.len();
        let Some(Some(group)) = self.groups.get_mut(group as usize) else {
            return;
        };
        group.used.insert(index, count);
        self.sources
            .entry(group.source)
            .or_insert_with(|| Source::new(count))
            .hold(index.into());
    }
}

impl Source {
    fn new(ports: usize) -> Self {
        Self {
            holders: vec![0; ports].into(),
            owned: Bits::new(ports),
            alone: Bits::new(ports),
            flows: 0,
            foreign: Bits::new(ports),
            foreign_since: Moment(0),
        }
    }

    fn hold(&mut self, port: usize) {
        if let Some(holders) = self.holders.get_mut(port) {
            *holders += 1;
            self.owned.insert(port);
            self.flows += 1;
        }
    }

    fn release(&mut self, port: usize) {
        if let Some(holders) = self.holders.get_mut(port).filter(|holders| **holders > 0) {
            *holders -= 1;
            self.flows -= 1;
            if *holders == 0 {
                self.owned.remove(port);
                self.alone.remove(port);
            }
        }
    }
}

impl Used {
    fn len(&self) -> usize {
        match self {
            Self::Few(list) => list.len(),
            Self::Many { count, .. } => *count,
        }
    }

    fn insert(&mut self, port: u16, of: usize) {
        match self {
            Self::Few(list) if list.len() < of / 16 => list.push(port),
            Self::Few(list) => {
                let mut bits = Bits::new(of);
                let all = list.iter().chain([&port]);
                all.for_each(|port| bits.insert((*port).into()));
                let count = list.len() + 1;
                *self = Self::Many { bits, count };
            }
            Self::Many { bits, count } => {
                bits.insert(port.into());
                *count += 1;
            }
        }
    }

    fn remove(&mut self, port: u16) {
        match self {
            Self::Few(list) => {
                if let Some(place) = list.iter().position(|other| *other == port) {
                    list.swap_remove(place);
                }
            }
            Self::Many { bits, count } => {
                bits.remove(port.into());
                *count -= 1;
            }
        }
    }

    fn add_to(&self, excluded: &mut Bits) {
        match self {
            Self::Few(list) => list.iter().for_each(|port| excluded.insert((*port).into())),
            Self::Many { bits, .. } => excluded.add(bits),
        }
    }
}

/// The unspecified address, which means the source address that the kernel chooses towards this endpoint.
pub(super) fn unspecified_source(endpoint: SocketAddr) -> IpAddr {
    match endpoint {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Whether sockets bound to these addresses may end up with the same address. IPv6 sockets do not accept IPv4.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    one.is_ipv4() == other.is_ipv4()
        && (one == other || one.is_unspecified() || other.is_unspecified())
}

/// The most flows to one endpoint from one source address with this many ports. A sixteenth of the ports stays unused, so that
/// a port rests after its flow has ended: a late reply to that flow would reach the next one.
pub(super) fn max_flows_per_group(ports: usize) -> usize {
    ports - ports / 16
}

/// How long a port of another process is not tried again.
const TRY_FOREIGN_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
