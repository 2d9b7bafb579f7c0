//! A wheel of deadlines: to set one, to move it and to find the next one costs the same for 100 flows as for 100,000.
//!
//! Six wheels of 64 slots turn one within the other; a slot of the first is a millisecond, one of each further wheel is a
//! whole turn of the one before. A deadline lies in the first wheel that can tell it from now, and comes down
//! when its slot is reached.

use crate::moment::Moment;

use super::chains::Chains;

#[derive(Debug)]
pub(super) struct Wheel {
    slots: Chains,
    /// A bit for each slot of a wheel that is not empty.
    taken: [u64; LEVELS],
    deadlines: Vec<u64>,
    /// Nothing is due before this.
    at: u64,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            slots: Chains::new(LEVELS * SLOTS),
            taken: [0; LEVELS],
            deadlines: Vec::new(),
            at: 0,
        }
    }

    /// When `item` is due; it has a deadline.
    pub(super) fn deadline(&self, item: u32) -> Moment {
        Moment(self.deadlines.get(item as usize).copied().unwrap_or(0))
    }

    /// Gives `item` this deadline, in place of the one that it had.
    pub(super) fn set(&mut self, item: u32, deadline: Moment) {
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

    /// `item` has no deadline any more.
    pub(super) fn remove(&mut self, item: u32) {
        if let Some(slot) = self.slots.chain_of(item) {
            self.slots.remove(item);
            self.note_if_empty(slot);
        }
    }

    /// When to look again, at the latest: nothing is due before.
    pub(super) fn next(&self) -> Option<Moment> {
        self.next_slot().map(|(_, when)| Moment(when))
    }

    /// Somebody who is due at `now`, taken off the wheel.
    pub(super) fn pop(&mut self, now: Moment) -> Option<u32> {
        while let Some((slot, when)) = self.next_slot()
            && when <= now.0
        {
            self.at = when;
            if slot < SLOTS {
                let item = self.slots.first(slot)?;
                self.remove(item);
                return Some(item);
            }
            // All at once: what stayed would lie behind those that came down.
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

    /// The slot that is reached next, and when. What lies in a further wheel lies behind all of the ones before.
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

/// The wheel and the slot of a deadline that does not lie before `at`.
fn place(at: u64, deadline: u64) -> (usize, usize) {
    let differ = at ^ deadline | (SLOTS as u64 - 1);
    let level = (u64::BITS - 1 - differ.leading_zeros()) / BITS;
    let slot = deadline >> (BITS * level) & (SLOTS as u64 - 1);
    (level as usize, usize::try_from(slot).unwrap_or(0))
}

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// All of 64 bits, so that no deadline lies beyond the last wheel.
const LEVELS: usize = 11;
/// Longer than any time that a table can ask for.
const LONGEST: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    #[test]
    fn everybody_is_due_in_time_and_nobody_before() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut wheel = Wheel::new();
            let mut plain: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = rng.below(1 << 30);
            assert_eq!(wheel.pop(Moment(now)), None);
            for _ in 0..300 {
                let item = u32::try_from(rng.below(40)).unwrap();
                match rng.below(4) {
                    0 => {
                        wheel.remove(item);
                        plain.remove(&item);
                    }
                    1 => {
                        now += rng.next_u64() >> (40 + rng.below(24));
                        let mut due: Vec<u32> =
                            std::iter::from_fn(|| wheel.pop(Moment(now))).collect();
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
                        wheel.set(item, Moment(deadline));
                        plain.insert(item, deadline);
                    }
                }
                let first = plain.values().min();
                assert_eq!(wheel.next().is_some(), first.is_some(), "seed {seed}");
                if let (Some(next), Some(first)) = (wheel.next(), first) {
                    assert!(
                        next.0 <= *first && next.0 >= now,
                        "seed {seed}: {next:?} {first} {now}"
                    );
                }
            }
        }
    }

    #[test]
    fn who_sleeps_until_the_next_deadline_wakes_few_times() {
        let mut wheel = Wheel::new();
        wheel.set(0, Moment(60_000));
        let mut wakes = 0;
        while let Some(next) = wheel.next() {
            wakes += 1;
            wheel.pop(next);
        }
        assert!(wakes <= 4, "{wakes}");
    }
}
