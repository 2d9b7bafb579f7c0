//! A set of small numbers with one bit for each.

/// A set of numbers below a fixed length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    words: Box<[u64]>,
    length: usize,
}

impl Bits {
    /// Creates an empty set for the numbers below `length`.
    pub(super) fn new(length: usize) -> Self {
        Self {
            words: vec![0; length.div_ceil(WORD)].into(),
            length,
        }
    }

    pub(super) fn insert(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / WORD) {
            *word |= 1 << (number % WORD);
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(word) = self.words.get_mut(number / WORD) {
            *word &= !(1 << (number % WORD));
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        let word = self.words.get(number / WORD);
        word.is_some_and(|word| word >> (number % WORD) & 1 == 1)
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Adds all numbers of `other`, which has the same length.
    pub(super) fn add(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// The first number that is not in the set, from `from` upwards and then from 0.
    pub(super) fn first_missing(&self, from: usize) -> Option<usize> {
        let count = self.words.len();
        let (first, bit) = (from / WORD, from % WORD);
        // The word that contains `from` is visited first, for its upper bits, and again last, for its lower bits.
        (0..=count).find_map(|step| {
            let index = (first + step) % count.max(1);
            let mut missing = !self.words.get(index)?;
            if step == 0 {
                missing &= u64::MAX << bit;
            } else if step == count {
                missing &= !(u64::MAX << bit);
            }
            let number = index * WORD + missing.trailing_zeros() as usize;
            (missing != 0 && number < self.length).then_some(number)
        })
    }
}

const WORD: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn it_does_as_a_plain_set_does() {
        for seed in 0..64 {
            let mut rng = Rng::new(seed);
            let length = usize::try_from(rng.below(200)).unwrap();
            let mut bits = Bits::new(length);
            let mut plain = BTreeSet::new();
            for _ in 0..400 {
                let mut number = || usize::try_from(rng.below(length as u64)).unwrap();
                let (added, removed, from) = (number(), number(), number());
                if length > 0 {
                    bits.insert(added);
                    plain.insert(added);
                    if seed % 2 == 0 {
                        bits.remove(removed);
                        plain.remove(&removed);
                    }
                }
                let expected = (from..length)
                    .chain(0..from)
                    .find(|number| !plain.contains(number));
                assert_eq!(bits.first_missing(from), expected, "seed {seed}");
                assert_eq!(bits.is_empty(), plain.is_empty());
            }
        }
    }
}
