//! A table keyed by client, which clients can neither grow without bound, nor slow down, nor block.
//!
//! Used for affinity and for the limits per client. It has 64 shards, each behind its own lock, which is held for one look-up.
//! The hash is seeded. Expired entries are removed as new ones come: each insertion sweeps two entries. Where a shard is full,
//! one entry is evicted.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::moment::Moment;
use crate::rng::mix;

/// The canonical form of a client's address: an IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn canonical(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip().to_canonical(), client.port())
}

/// The value stored for a client.
pub(crate) trait Entry {
    /// The moment from which on the entry may be removed; [`NEVER`] while it is still needed.
    fn until(&self) -> Moment;
}

/// A moment that never comes.
pub(crate) const NEVER: Moment = Moment(u64::MAX);

/// What counts as one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    high: u64,
    low: u64,
}

impl ClientKey {
    /// Each address counts as a client.
    pub(crate) fn address(client: IpAddr) -> Self {
        let [high, low] = ipv6_halves(client);
        Self { high, low }
    }

    /// The address, if each counts as a client.
    pub(crate) fn ip(self) -> IpAddr {
        let bits = u128::from(self.high) << 64 | u128::from(self.low);
        IpAddr::from(bits.to_be_bytes()).to_canonical()
    }

    /// Each IPv4 address and each IPv6 /64 network counts as a client, because a host may use any address of its /64.
    pub(crate) fn network(client: IpAddr) -> Self {
        let key = Self::address(client);
        match client.to_canonical() {
            IpAddr::V4(_) => key,
            IpAddr::V6(_) => Self { low: 0, ..key },
        }
    }
}

/// Entries by client.
#[derive(Debug)]
pub(crate) struct Shards<V> {
    seed: Seed,
    /// The most entries of a shard, unless more than that are still needed.
    room: usize,
    shards: Box<[Mutex<Shard<V>>]>,
}

impl<V: Entry> Shards<V> {
    pub(crate) fn new(seed: [u64; 2], room: usize) -> Self {
        let seed = Seed(seed);
        Self {
            seed,
            room,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(seed))).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| open(shard).slots.len())
            .sum()
    }

    /// Calls `look` with each entry.
    pub(crate) fn each(&self, mut look: impl FnMut(ClientKey, &V)) {
        for shard in &self.shards {
            open(shard)
                .slots
                .iter()
                .for_each(|slot| look(slot.client, &slot.entry));
        }
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *open(shard) = Shard::new(self.seed);
        }
    }

    /// Calls `look` with the entry of `client`, if there is one.
    pub(crate) fn with<R>(&self, client: ClientKey, look: impl FnOnce(&mut V) -> R) -> Option<R> {
        let mut shard = self.shard(client)?;
        let slot = *shard.by_client.get(&client)?;
        shard
            .slots
            .get_mut(slot as usize)
            .map(|slot| look(&mut slot.entry))
    }

    /// Calls `look` with the entry of `client`, which `new` creates where none exists.
    pub(crate) fn with_or_new<R>(
        &self,
        client: ClientKey,
        now: Moment,
        new: impl FnOnce() -> V,
        look: impl FnOnce(&mut V) -> R,
    ) -> Option<R> {
        let mut shard = self.shard(client)?;
        let slot = match shard.by_client.get(&client) {
            Some(slot) => *slot,
            None => {
                shard.make_room(self.room, now);
                shard.insert(client, new())
            }
        };
        shard
            .slots
            .get_mut(slot as usize)
            .map(|slot| look(&mut slot.entry))
    }

    /// Calls `gone` with the entry of `client`, and removes the entry if that returns true.
    pub(crate) fn forget_if(&self, client: ClientKey, gone: impl FnOnce(&mut V) -> bool) {
        let Some(mut shard) = self.shard(client) else {
            return;
        };
        let Some(slot) = shard.by_client.get(&client).copied() else {
            return;
        };
        let entry = shard.slots.get_mut(slot as usize);
        if entry.is_some_and(|slot| gone(&mut slot.entry)) {
            shard.remove(slot as usize);
        }
    }

    fn shard(&self, client: ClientKey) -> Option<MutexGuard<'_, Shard<V>>> {
        // Uses other bits of the hash than the map within the shard.
        let which = (self.seed.hash_one(client) >> 32) as usize % SHARDS;
        self.shards.get(which).map(open)
    }
}

#[derive(Debug)]
struct Shard<V> {
    by_client: HashMap<ClientKey, u32, Seed>,
    slots: Vec<Slot<V>>,
    /// The index at which the next sweep begins.
    hand: usize,
}

impl<V: Entry> Shard<V> {
    fn new(seed: Seed) -> Self {
        Self {
            by_client: HashMap::with_hasher(seed),
            slots: Vec::new(),
            hand: 0,
        }
    }

    fn insert(&mut self, client: ClientKey, entry: V) -> u32 {
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { client, entry });
        self.by_client.insert(client, slot);
        slot
    }

    fn remove(&mut self, slot: usize) {
        if slot >= self.slots.len() {
            return;
        }
        let gone = self.slots.swap_remove(slot);
        self.by_client.remove(&gone.client);
        if let Some(moved) = self.slots.get(slot)
            && let Some(place) = self.by_client.get_mut(&moved.client)
        {
            *place = u32::try_from(slot).unwrap_or(u32::MAX);
        }
    }

    /// Removes expired entries at the hand. If the shard is still full, evicts the entry that expires first among the next few.
    /// Entries that are still needed are never evicted; what they count bounds their number.
    fn make_room(&mut self, room: usize, now: Moment) {
        for _ in 0..SWEPT_BY_EACH {
            let slot = self.advance();
            if self
                .slots
                .get(slot)
                .is_some_and(|slot| slot.entry.until() <= now)
            {
                self.remove(slot);
            }
        }
        if self.slots.len() >= room {
            let looked_at = [(); LOOKED_AT_WHEN_FULL].map(|()| self.advance());
            let oldest = looked_at
                .into_iter()
                .filter_map(|slot| Some((self.slots.get(slot)?.entry.until(), slot)))
                .filter(|(until, _)| *until < NEVER)
                .min();
            if let Some((_, slot)) = oldest {
                self.remove(slot);
            }
        }
        if self.slots.capacity() > SMALL && self.slots.len() < self.slots.capacity() / 4 {
            let keep = self.slots.len() * 2;
            self.slots.shrink_to(keep);
            self.by_client.shrink_to(keep);
        }
    }

    fn advance(&mut self) -> usize {
        let at = if self.hand < self.slots.len() {
            self.hand
        } else {
            0
        };
        self.hand = at + 1;
        at
    }
}

#[derive(Debug)]
struct Slot<V> {
    client: ClientKey,
    entry: V,
}

/// A hash of [`ClientKey`]s with a secret seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(pub(crate) [u64; 2]);

impl BuildHasher for Seed {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        let Self([first, second]) = *self;
        SeededHasher {
            state: first,
            second,
        }
    }
}

pub(crate) struct SeededHasher {
    state: u64,
    second: u64,
}

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The rotation applies the second secret to other bits for each word.
        self.state = mix(self.state ^ word).wrapping_add(self.second);
        self.second = self.second.rotate_left(23);
    }

    fn finish(&self) -> u64 {
        mix(self.state)
    }
}

fn open<V>(shard: &Mutex<Shard<V>>) -> MutexGuard<'_, Shard<V>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The halves of an IPv6 address. An IPv4 address counts as the IPv6 address that it is mapped to.
pub(crate) fn ipv6_halves(ip: IpAddr) -> [u64; 2] {
    let bits = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
    .to_bits();
    let halves = [bits >> 64, bits & u128::from(u64::MAX)];
    halves.map(|half| u64::try_from(half).unwrap_or_default())
}

pub(crate) const SHARDS: usize = 64;
const SWEPT_BY_EACH: usize = 2;
const LOOKED_AT_WHEN_FULL: usize = 8;
const SMALL: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Until(u64);

    impl Entry for Until {
        fn until(&self) -> Moment {
            Moment(self.0)
        }
    }

    fn client(n: u32) -> ClientKey {
        ClientKey::address(IpAddr::from(n.to_be_bytes()))
    }

    fn put(shards: &Shards<Until>, n: u32, until: u64, now: u64) {
        shards.with_or_new(
            client(n),
            Moment(now),
            || Until(until),
            |entry| entry.0 = until,
        );
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
    fn what_is_over_goes_as_others_come() {
        let shards = Shards::new([1, 2], 1000);
        for n in 0..20_000 {
            put(&shards, n, 10, 0);
        }
        assert_eq!(shards.len(), 20_000);
        for n in 20_000..40_000 {
            put(&shards, n, 30, 20);
        }
        assert!(shards.len() < 21_000, "{}", shards.len());
        assert!((20_000..40_000).all(|n| shards.with(client(n), |_| ()).is_some()));
    }

    #[test]
    fn what_counts_stays_though_the_table_is_full() {
        let shards = Shards::new([1, 2], 4);
        for n in 0..5_000 {
            put(&shards, n, NEVER.0, 0);
        }
        for n in 5_000..6_000 {
            put(&shards, n, 100, 1);
        }
        assert!((0..5_000).all(|n| shards.with(client(n), |_| ()).is_some()));
        for n in 0..5_000 {
            shards.forget_if(client(n), |_| true);
        }
        assert!(shards.len() <= 1_000);
        put(&shards, 9_999, 500, 200);
        assert!(shards.with(client(9_999), |entry| entry.0) == Some(500));
    }

    #[test]
    fn memory_is_given_back() {
        let shards = Shards::new([3, 4], 100_000);
        for n in 0..100_000 {
            put(&shards, n, 10, 0);
        }
        for n in 100_000..200_000 {
            put(&shards, n, 20, 20);
        }
        let capacity: usize = shards
            .shards
            .iter()
            .map(|shard| open(shard).slots.capacity())
            .sum();
        assert!(capacity < 10_000, "{capacity}");
    }

    #[test]
    fn a_network_is_one_client() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let network = |text| ClientKey::network(ip(text));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
        assert_eq!(network("10.0.0.1"), network("::ffff:10.0.0.1"));
        assert_ne!(
            ClientKey::address(ip("2001:db8::1")),
            ClientKey::address(ip("2001:db8::2"))
        );
    }

    #[test]
    fn the_seed_changes_where_clients_go() {
        let key = client(7);
        assert_ne!(Seed([1, 2]).hash_one(key), Seed([1, 3]).hash_one(key));
        assert_ne!(Seed([1, 2]).hash_one(key), Seed([2, 2]).hash_one(key));
        let shards = Shards::new([5, 6], 10_000);
        for n in 0..64_000 {
            put(&shards, n, 10, 0);
        }
        let sizes: Vec<usize> = shards
            .shards
            .iter()
            .map(|shard| open(shard).slots.len())
            .collect();
        assert!(
            sizes.iter().all(|size| (800..1200).contains(size)),
            "{sizes:?}"
        );
    }
}
