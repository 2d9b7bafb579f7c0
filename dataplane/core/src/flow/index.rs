//! The places of flows by the hash of their keys.

use hashbrown::HashTable;

/// Which places have a hash. What lies at a place is not known here; the caller compares the keys.
#[derive(Debug, Default)]
pub(super) struct Index(HashTable<Cell>);

/// Keeps the hash, so that hardly any flow is looked at in vain, and none when the table grows.
#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    place: u32,
}

impl Index {
    /// The place with this hash that `is_it`.
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let is_it = |cell: &Cell| cell.hash == hash && is_it(cell.place);
        self.0.find(spread(hash), is_it).map(|cell| cell.place)
    }

    /// Notes a place that is not there yet.
    pub(super) fn insert(&mut self, hash: u32, place: u32) {
        let cell = Cell { hash, place };
        self.0
            .insert_unique(spread(hash), cell, |cell| spread(cell.hash));
    }

    /// Forgets a place, if it is there.
    pub(super) fn remove(&mut self, hash: u32, place: u32) {
        if let Ok(cell) = self.0.find_entry(spread(hash), |cell| cell.place == place) {
            cell.remove();
        }
    }
}

/// `HashTable` chooses a bucket by the lowest bits and tells its entries apart by the highest.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn places_are_found_by_their_hash_until_they_are_forgotten() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let mut index = Index::default();
            let mut plain: Vec<(u32, u32)> = Vec::new();
            for place in 0..2_000 {
                // Few hashes, so that many collide; and those that run over the end.
                let hash = u32::MAX - u32::try_from(rng.below(300)).unwrap();
                index.insert(hash, place);
                plain.push((hash, place));
                while rng.below(3) > 0 && !plain.is_empty() {
                    let which = usize::try_from(rng.below(plain.len() as u64)).unwrap();
                    let (hash, place) = plain.swap_remove(which);
                    index.remove(hash, place);
                    index.remove(hash, place);
                    assert_eq!(index.find(hash, |other| other == place), None);
                }
                if place % 50 == 0 {
                    for (hash, place) in &plain {
                        let found = index.find(*hash, |other| other == *place);
                        assert_eq!(found, Some(*place), "seed {seed}");
                    }
                }
            }
            assert_eq!(index.0.len(), plain.len());
        }
    }
}
