//! A hash index of flows: finding a flow reads one cache line here, and then the flow itself.
//!
//! Open addressing with cells of eight bytes. The index does not store keys. The caller compares them, and hardly ever without
//! success, because a cell keeps 32 bits of the hash.

/// Maps hashes to slots.
#[derive(Debug)]
pub(super) struct Index {
    cells: Vec<Cell>,
    count: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    hash: u32,
    place: u32,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            cells: vec![Cell::EMPTY; FEWEST],
            count: 0,
        }
    }

    /// The slot with this hash that `matches`.
    pub(super) fn find(&self, hash: u32, matches: impl FnMut(u32) -> bool) -> Option<u32> {
        let cell = self.position(hash, matches)?;
        self.cells.get(cell).map(|cell| cell.place)
    }

    /// Adds a slot that is not in the index yet.
    pub(super) fn insert(&mut self, hash: u32, place: u32) {
        if (self.count + 1) * FULL.1 > self.cells.len() * FULL.0 {
            self.grow();
        }
        self.put(Cell { hash, place });
        self.count += 1;
    }

    /// Removes a slot, if it is in the index.
    pub(super) fn remove(&mut self, hash: u32, place: u32) {
        let Some(mut hole) = self.position(hash, |other| other == place) else {
            return;
        };
        self.count -= 1;
        // A cell farther from its home than the hole moves into the hole, so that no search ends too early.
        let mut next = self.after(hole);
        while let Some(cell) = self.cells.get(next).copied().filter(|cell| cell.is_taken()) {
            let home = self.home(cell.hash);
            if self.distance(home, next) >= self.distance(hole, next) {
                self.write(hole, cell);
                hole = next;
            }
            next = self.after(next);
        }
        self.write(hole, Cell::EMPTY);
    }

    fn position(&self, hash: u32, mut matches: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let cell = self.cells.get(at).filter(|cell| cell.is_taken())?;
            if cell.hash == hash && matches(cell.place) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    fn put(&mut self, cell: Cell) {
        let mut at = self.home(cell.hash);
        while self.cells.get(at).is_some_and(|cell| cell.is_taken()) {
            at = self.after(at);
        }
        self.write(at, cell);
    }

    fn grow(&mut self) {
        let larger = vec![Cell::EMPTY; self.cells.len() * 2];
        for cell in std::mem::replace(&mut self.cells, larger) {
            if cell.is_taken() {
                self.put(cell);
            }
        }
    }

    fn write(&mut self, at: usize, cell: Cell) {
        if let Some(there) = self.cells.get_mut(at) {
            *there = cell;
        }
    }

    /// The cell at which the search for a hash begins. The number of cells is a power of two.
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.cells.len() - 1)
    }

    /// The number of steps from one cell to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.cells.len() - 1)
    }
}

impl Cell {
    const EMPTY: Self = Self {
        hash: 0,
        place: NOWHERE,
    };

    fn is_taken(self) -> bool {
        self.place != NOWHERE
    }
}

const NOWHERE: u32 = u32::MAX;
const FEWEST: usize = 64;
/// At most two thirds full: most entries are found within the first cache line.
const FULL: (usize, usize) = (2, 3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn places_are_found_by_their_hash_until_they_are_forgotten() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let mut index = Index::new();
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
            assert_eq!(index.count, plain.len());
        }
    }
}
