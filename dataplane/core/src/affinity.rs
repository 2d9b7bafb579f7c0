//! Who a client is, and where it went: `affinity: {client-ip: …}`.
//!
//! [`Service::pick`](crate::service::Service::pick) recalls and remembers here; nobody else does. It decides nothing: whether the
//! remembered endpoint may still be reached is the pick's business. The table of a service belongs to its
//! [`ServiceState`](crate::service::ServiceState), is made when the first client comes, and survives swaps.
//!
//! It is bounded: a service remembers at most 131,072 clients, some 8 MB. Beyond that whoever was not seen for the longest
//! time, of a few that are looked at, is forgotten, and chosen for anew by rendezvous.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::moment::Moment;
use crate::rng::Rng;

pub(crate) mod shards;

use shards::{ClientKey, Entry, Shards};

/// The one form of a client's address: an IPv4 address inside an IPv6 one is taken out.
#[must_use]
pub fn canonical(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip().to_canonical(), client.port())
}

/// Where the clients of one service went.
#[derive(Debug)]
pub struct Affinity(Shards<Place>);

impl Affinity {
    /// Remembers nobody yet. The seed keeps clients from choosing addresses that collide.
    #[must_use]
    pub fn new(seed: &mut Rng) -> Self {
        Self(Shards::new([seed.next_u64(), seed.next_u64()], ROOM))
    }

    /// How many clients are remembered, the expired ones included that nobody has swept yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where `client` went, if that is not longer ago than it was to be remembered. Starts its time again.
    pub(crate) fn recall(&self, client: IpAddr, keep: Duration, now: Moment) -> Option<Place> {
        self.0
            .with(ClientKey::address(client), |place| {
                if place.until <= now {
                    return None;
                }
                place.until = now.after(keep);
                Some(*place)
            })
            .flatten()
    }

    /// `client` goes to the endpoint with this hash, which stood at `index` in its service.
    pub(crate) fn remember(
        &self,
        client: IpAddr,
        endpoint: u64,
        index: u32,
        keep: Duration,
        now: Moment,
    ) {
        let place = Place {
            endpoint,
            index,
            until: now.after(keep),
        };
        self.0.with_or_new(
            ClientKey::address(client),
            now,
            || place,
            |old| *old = place,
        );
    }
}

/// Where one client went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The endpoint's hash, which tells it from every other of its service.
    pub(crate) endpoint: u64,
    /// Where it stood in its service then: a hint, for a swap may have moved it.
    pub(crate) index: u32,
    until: Moment,
}

impl Entry for Place {
    fn until(&self) -> Moment {
        self.until
    }
}

/// In each shard.
const ROOM: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ip(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn an_address_has_one_form() {
        let cases = [
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("[::ffff:10.0.0.1]:7", "10.0.0.1:7"),
            ("[2001:db8::1]:7", "[2001:db8::1]:7"),
            ("[::10.0.0.1]:7", "[::10.0.0.1]:7"),
        ];
        for (given, form) in cases {
            assert_eq!(canonical(given.parse().unwrap()), form.parse().unwrap());
        }
    }

    #[test]
    fn a_client_is_remembered_for_as_long_as_it_keeps_coming() {
        let affinity = Affinity::new(&mut Rng::new(1));
        assert_eq!(affinity.recall(ip(1), HOUR, Moment(0)), None);
        affinity.remember(ip(1), 77, 3, HOUR, Moment(0));
        for minutes in [50, 100, 150] {
            let now = Moment(minutes * 60_000);
            let place = affinity.recall(ip(1), HOUR, now).unwrap();
            assert_eq!((place.endpoint, place.index), (77, 3));
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
                .map(|place| place.endpoint),
            Some(78)
        );
    }

    #[test]
    fn the_number_of_clients_is_bounded_and_the_recent_ones_stay() {
        let affinity = Affinity::new(&mut Rng::new(2));
        let bound = u32::try_from(ROOM * shards::SHARDS).unwrap();
        for n in 0..2 * bound {
            affinity.remember(ip(n), 1, 0, HOUR, Moment(n.into()));
        }
        assert!(affinity.len() <= ROOM * shards::SHARDS);
        let now = Moment(u64::from(2 * bound));
        let recent = (2 * bound - 1000..2 * bound)
            .filter(|n| affinity.recall(ip(*n), HOUR, now).is_some())
            .count();
        assert!(recent > 990, "{recent}");
    }
}
