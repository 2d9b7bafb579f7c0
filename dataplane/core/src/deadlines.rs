//! A hierarchical timer wheel: setting, moving and removing a deadline, and finding the next one, cost the same for 100
//! items as for 100,000.
//!
//! There are 11 levels of 64 slots. A slot of the first level lasts one millisecond, and a slot of each further level as long
//! as the whole level below it. A deadline lies in the lowest level that can distinguish it from the present, and moves down
//! when time reaches its slot. Items are small numbers that the caller assigns, such as slots of a slab.
//!
//! A worker has one of these for its UDP flows and one for its TCP connections.

use crate::chains::Chains;
use crate::moment::Moment;

/// Deadlines of numbered items.
#[derive(Debug)]
pub struct Deadlines {
    slots: Chains,
    /// For each level, one bit for each slot that is not empty.
    taken: [u64; LEVELS],
    deadlines: Vec<u64>,
    /// No deadline lies before this.
    at: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadlines {
    /// No deadlines yet.
    pub fn new() -> Self {
        Self {
            slots: Chains::new(LEVELS * SLOTS),
            taken: [0; LEVELS],
            deadlines: Vec::new(),
            at: 0,
        }
    }

    /// Whether `item` has a deadline.
    #[must_use]
    pub fn has(&self, item: u32) -> bool {
        self.slots.chain_of(item).is_some()
    }

    /// When `item` is due. The item must have a deadline.
    pub fn deadline(&self, item: u32) -> Moment {
        Moment(self.deadlines.get(item as usize).copied().unwrap_or(0))
    }

    /// Sets the deadline of `item`, replacing any earlier one.
    pub fn set(&mut self, item: u32, deadline: Moment) {
        self.remove(item);
        let place = item as usize;
        if self.deadlines.len() <= place {
            self.deadlines.resize(place + 1, 0);
        }
        let deadline = deadline.0.clamp(self.at, self.at.saturating_add(LONGEST));
        if let Some(known) = self.deadlines.get_mut(place) {
            *known = deadline;
        }
        self.put(item, deadline);
    }

    /// Removes the deadline of `item`, if there is one.
    pub fn remove(&mut self, item: u32) {
        if let Some(slot) = self.slots.chain_of(item) {
            self.slots.remove(item);
            self.note_if_empty(slot);
        }
    }

    /// A moment before which no deadline lies; `None` if there are no deadlines. It may be earlier than the next deadline: then
    /// nothing is popped, and the next call returns a later moment.
    pub fn next(&self) -> Option<Moment> {
        self.next_slot().map(|(_, when)| Moment(when))
    }

    /// Removes and returns an item whose deadline is not after `now`.
    pub fn pop(&mut self, now: Moment) -> Option<u32> {
        while let Some((slot, when)) = self.next_slot()
            && when <= now.0
        {
            self.at = when;
            if slot < SLOTS {
                let item = self.slots.first(slot)?;
                self.remove(item);
                return Some(item);
            }
            // All items of the slot move down at once; an item that stayed would lie in the past.
            while let Some(item) = self.slots.first(slot) {
                self.remove(item);
                self.put(item, self.deadline(item).0);
            }
        }
        self.at = self.at.max(now.0);
        None
    }

    fn put(&mut self, item: u32, deadline: u64) {
        let (level, slot) = place(self.at, deadline);
        self.slots.push(level * SLOTS + slot, item);
        if let Some(taken) = self.taken.get_mut(level) {
            *taken |= 1 << slot;
        }
    }

    fn note_if_empty(&mut self, slot: usize) {
        if self.slots.first(slot).is_none()
            && let Some(taken) = self.taken.get_mut(slot / SLOTS)
        {
            *taken &= !(1 << (slot % SLOTS));
        }
    }

    /// The slot that time reaches next, and when. All deadlines of a level lie before those of the levels above.
    fn next_slot(&self) -> Option<(usize, u64)> {
        let (level, taken) = (0..).zip(self.taken).find(|(_, taken)| *taken != 0)?;
        let slot = taken.trailing_zeros();
        let shift = BITS * level;
        let turn = self.at >> shift >> BITS << BITS << shift;
        let when = turn + (u64::from(slot) << shift);
        let index = level as usize * SLOTS + slot as usize;
        Some((index, when.max(self.at)))
    }
}

/// The level and the slot of a deadline that is not before `at`.
fn place(at: u64, deadline: u64) -> (usize, usize) {
    let differ = at ^ deadline | (SLOTS as u64 - 1);
    let level = (u64::BITS - 1 - differ.leading_zeros()) / BITS;
    let slot = deadline >> (BITS * level) & (SLOTS as u64 - 1);
    (level as usize, usize::try_from(slot).unwrap_or(0))
}

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Enough for all 64 bits of a moment.
const LEVELS: usize = 11;
/// Longer than any time in a table.
const LONGEST: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn every_item_is_popped_when_due_and_none_before() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut deadlines = Deadlines::new();
            let mut plain: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = rng.below(1 << 30);
            assert_eq!(deadlines.pop(Moment(now)), None);
            for _ in 0..300 {
                let item = u32::try_from(rng.below(40)).unwrap();
                match rng.below(4) {
                    0 => {
                        deadlines.remove(item);
                        plain.remove(&item);
                    }
                    1 => {
                        now += rng.next_u64() >> (40 + rng.below(24));
                        let mut due: Vec<u32> =
                            std::iter::from_fn(|| deadlines.pop(Moment(now))).collect();
                        due.sort_unstable();
                        let expected: Vec<u32> = plain
                            .iter()
                            .filter(|(_, deadline)| **deadline <= now)
                            .map(|(item, _)| *item)
                            .collect();
                        assert_eq!(due, expected, "seed {seed}");
                        plain.retain(|_, deadline| *deadline > now);
                    }
                    _ => {
                        let deadline = now + (rng.next_u64() >> (30 + rng.below(34)));
                        deadlines.set(item, Moment(deadline));
                        plain.insert(item, deadline);
                    }
                }
                let first = plain.values().min();
                assert_eq!(deadlines.next().is_some(), first.is_some(), "seed {seed}");
                if let (Some(next), Some(first)) = (deadlines.next(), first) {
                    assert!(
                        next.0 <= *first && next.0 >= now,
                        "seed {seed}: {next:?} {first} {now}"
                    );
                }
            }
        }
    }

    #[test]
    fn sleeping_until_the_next_moment_wakes_a_few_times_only() {
        let mut deadlines = Deadlines::new();
        deadlines.set(0, Moment(60_000));
        let mut wakes = 0;
        while let Some(next) = deadlines.next() {
            wakes += 1;
            deadlines.pop(next);
        }
        assert!(wakes <= 4, "{wakes}");
    }
}
