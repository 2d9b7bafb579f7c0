//! Client affinity: which endpoint a client had, for `affinity: {client-ip: …}`.
//!
//! Only [`Service::pick`](crate::service::Service::pick) recalls and remembers here. This module decides nothing: the pick
//! decides whether the remembered endpoint may still be used. The affinity table of a service belongs to its
//! [`ServiceState`](crate::service::ServiceState), is created for the first client, and survives swaps.
//!
//! A service remembers at most 131,072 clients, which take about 8 MB. Above that, of a few entries looked at, the one not used
//! for the longest time is evicted; its client is then assigned again by rendezvous hashing.

use std::net::IpAddr;
use std::time::Duration;

use crate::clients::{self, ClientKey, Entry, Shards};
use crate::moment::{Moment, whole_millis};
use crate::rng::Rng;

pub mod cookie;

/// The remembered endpoints of one service's clients.
#[derive(Debug)]
pub struct Affinity(Shards<RememberedEndpoint>);

impl Affinity {
    /// Creates an empty table. The seed prevents clients from choosing addresses that collide.
    #[must_use]
    pub fn new(seed: &mut Rng) -> Self {
        Self(Shards::new([seed.next_u64(), seed.next_u64()], ROOM))
    }

    /// The number of remembered clients, including expired entries that have not been swept yet.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no client is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `most` clients that are remembered, each with the hash of its endpoint and the moment when it is forgotten.
    pub fn list(&self, most: usize, now: Moment) -> Vec<(IpAddr, u64, Moment)> {
        let mut list = Vec::new();
        self.0.each(|client, remembered| {
            if remembered.until > now && list.len() < most {
                list.push((client.ip(), remembered.endpoint, remembered.until));
            }
        });
        list
    }

    /// The hash of the endpoint that this client comes back to, and the moment when it is forgotten. The entry is not renewed.
    #[must_use]
    pub fn find(&self, client: IpAddr, now: Moment) -> Option<(u64, Moment)> {
        let found = self.look_up(client, now)?;
        Some((found.endpoint, found.until))
    }

    pub fn forget(&self, client: IpAddr) {
        self.0.forget_if(ClientKey::address(client), |_| true);
    }

    /// Forgets all clients.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// The endpoint of `client`, unless the entry has expired. Renews the entry.
    pub(crate) fn recall(
        &self,
        client: IpAddr,
        keep: Duration,
        now: Moment,
    ) -> Option<RememberedEndpoint> {
        self.0
            .with(ClientKey::address(client), |remembered| {
                if remembered.until <= now {
                    return None;
                }
                remembered.until = now.after(keep);
                Some(*remembered)
            })
            .flatten()
    }

    /// The endpoint of `client`, unless the entry has expired. The entry is not renewed.
    pub(crate) fn look_up(&self, client: IpAddr, now: Moment) -> Option<RememberedEndpoint> {
        self.0
            .with(ClientKey::address(client), |remembered| *remembered)
            .filter(|remembered| remembered.until > now)
    }

    /// Remembers the endpoint of `client` by its hash and its index in the service.
    pub(crate) fn remember(
        &self,
        client: IpAddr,
        endpoint: u64,
        index: u32,
        keep: Duration,
        now: Moment,
    ) {
        let remembered = RememberedEndpoint {
            endpoint,
            index,
            until: now.after(keep),
        };
        self.0.with_or_new(
            ClientKey::address(client),
            now,
            || remembered,
            |old| *old = remembered,
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RememberedEndpoint {
    /// The endpoint's hash, which is unique within its service.
    pub(crate) endpoint: u64,
    /// Its index in the service at that time: a hint, because a swap may have moved it.
    pub(crate) index: u32,
    until: Moment,
}

impl RememberedEndpoint {
    /// When the client used it last, if the entry is kept for `keep` since then.
    pub(crate) fn last_use(&self, keep: Duration) -> Moment {
        Moment(self.until.0.saturating_sub(whole_millis(keep)))
    }
}

impl Entry for RememberedEndpoint {
    fn until(&self) -> Moment {
        self.until
    }
}

/// The most entries of a shard.
const ROOM: usize = 2048;
/// The clients that a service remembers at most.
pub const MOST_CLIENTS: usize = ROOM * clients::SHARDS;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn clients_are_listed_and_forgotten() {
        let affinity = Affinity::new(&mut Rng::new(1));
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        affinity.remember(ip(1), 10, 0, HOUR, Moment(0));
        affinity.remember(v6, 20, 1, HOUR, Moment(5));
        affinity.remember(ip(3), 30, 2, Duration::from_millis(1), Moment(0));
        let list = |most| {
            let mut list = affinity.list(most, Moment(10));
            list.sort();
            list
        };
        let hour = 3_600_000;
        let both = [(ip(1), 10, Moment(hour)), (v6, 20, Moment(hour + 5))];
        assert_eq!(list(9), both);
        assert_eq!(list(1).len(), 1);
        assert_eq!(affinity.find(v6, Moment(10)), Some((20, Moment(hour + 5))));
        assert_eq!(affinity.find(ip(3), Moment(10)), None);
        affinity.forget(ip(1));
        assert_eq!(list(9), both[1..]);
        affinity.clear();
        assert!(affinity.is_empty());
    }

    #[test]
    fn a_client_is_remembered_for_as_long_as_it_keeps_coming() {
        let affinity = Affinity::new(&mut Rng::new(1));
        assert_eq!(affinity.recall(ip(1), HOUR, Moment(0)), None);
        affinity.remember(ip(1), 77, 3, HOUR, Moment(0));
        for minutes in [50, 100, 150] {
            let now = Moment(minutes * 60_000);
            let remembered = affinity.recall(ip(1), HOUR, now).unwrap();
            assert_eq!((remembered.endpoint, remembered.index), (77, 3));
        }
        assert_eq!(affinity.recall(ip(2), HOUR, Moment(1)), None);
        assert_eq!(affinity.recall(ip(1), HOUR, Moment(210 * 60_000)), None);
    }

    #[test]
    fn a_client_goes_to_one_place() {
        let affinity = Affinity::new(&mut Rng::new(1));
        affinity.remember(ip(1), 77, 3, HOUR, Moment(0));
        affinity.remember(ip(1), 78, 4, HOUR, Moment(0));
        assert_eq!(affinity.len(), 1);
        assert_eq!(
            affinity
                .recall(ip(1), HOUR, Moment(1))
                .map(|remembered| remembered.endpoint),
            Some(78)
        );
    }

    #[test]
    fn the_number_of_clients_is_bounded_and_the_recent_ones_stay() {
        let affinity = Affinity::new(&mut Rng::new(2));
        let bound = u32::try_from(ROOM * clients::SHARDS).unwrap();
        for n in 0..2 * bound {
            affinity.remember(ip(n), 1, 0, HOUR, Moment(n.into()));
        }
        assert!(affinity.len() <= ROOM * clients::SHARDS);
        let now = Moment(u64::from(2 * bound));
        let recent = (2 * bound - 1000..2 * bound)
            .filter(|n| affinity.recall(ip(*n), HOUR, now).is_some())
            .count();
        assert!(recent > 990, "{recent}");
    }
}
