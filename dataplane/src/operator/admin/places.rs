//! The places for connections to the admin addresses, and for answers there that take long. One client has a share of them only, so that it does not keep
//! clients of other addresses out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use crate::os::threads::lock;

#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    /// The most of one client.
    share: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A place of one client, free again once this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: IpAddr,
}

impl Places {
    pub(super) fn new(most: usize, share: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            share,
            taken: Mutex::default(),
        })
    }

    /// `None`: all places are taken, or this client has its share.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Place> {
        let client = network(client);
        let mut taken = lock(&self.taken);
        let all: usize = taken.values().sum();
        let its = taken.get(&client).copied().unwrap_or_default();
        if all >= self.most || its >= self.share {
            return None;
        }
        taken.insert(client, its + 1);
        Some(Place {
            places: Arc::clone(self),
            client,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.places.taken);
        if let Some(its) = taken.get_mut(&self.client) {
            *its -= 1;
            if *its == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 /64 network, in which a host may use any address.
pub(super) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// So many clients can have their whole share of places.
pub(super) const CLIENTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_share_and_leaves_the_others_theirs() {
        let places = Places::new(5, 2);
        let take = |client: &str| places.take(client.parse().unwrap());
        let held = [take("192.0.2.1"), take("::ffff:192.0.2.1")];
        assert!(held.iter().all(Option::is_some) && take("192.0.2.1").is_none());
        // Addresses of one /64 are one client.
        let more = [take("2001:db8::1"), take("2001:db8::2")];
        assert!(more.iter().all(Option::is_some) && take("2001:db8::3").is_none());
        let last = take("192.0.2.2");
        assert!(
            last.is_some() && take("192.0.2.3").is_none(),
            "all are taken"
        );
        drop(held);
        assert!(take("192.0.2.3").is_some());
        drop((more, last));
        assert!(lock(&places.taken).is_empty());
    }
}
