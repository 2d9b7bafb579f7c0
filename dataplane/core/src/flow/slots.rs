//! Things by number. A place is used again, a number is not.
//!
//! They lie in chunks, each thing at the beginning of a line of memory: nothing is moved when there are more, and nothing else is
//! looked at on the way to one.

use super::key::FlowId;

#[derive(Debug)]
pub(super) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// How many places there are.
    made: usize,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            made: 0,
            free: Vec::new(),
        }
    }
}

#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot<T> {
    thing: Option<T>,
    turn: u32,
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.made - self.free.len()
    }

    pub(super) fn insert(&mut self, thing: T) -> FlowId {
        let place = self.free.pop().unwrap_or_else(|| self.make());
        if let Some(slot) = self.slot_mut(place) {
            slot.thing = Some(thing);
        }
        self.id_at(place)
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<T> {
        let slot = self.slot_mut(place)?;
        let thing = slot.thing.take()?;
        slot.turn = slot.turn.wrapping_add(1);
        self.free.push(place);
        Some(thing)
    }

    pub(super) fn at(&self, place: u32) -> Option<&T> {
        self.slot(place)?.thing.as_ref()
    }

    pub(super) fn at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slot_mut(place)?.thing.as_mut()
    }

    pub(super) fn get(&self, id: FlowId) -> Option<&T> {
        let slot = self.slot(id.place)?;
        slot.thing.as_ref().filter(|_| slot.turn == id.turn)
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        let slot = self.slot_mut(id.place)?;
        slot.thing.as_mut().filter(|_| slot.turn == id.turn)
    }

    /// The number of what is at `place`, if anything is.
    pub(super) fn id(&self, place: u32) -> Option<FlowId> {
        self.at(place).map(|_| self.id_at(place))
    }

    /// The number of what is at `place`.
    pub(super) fn id_at(&self, place: u32) -> FlowId {
        let turn = self.slot(place).map_or(0, |slot| slot.turn);
        FlowId { place, turn }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.chunks.iter().flatten())
            .filter_map(|(place, slot)| Some((place, slot.thing.as_ref()?)))
    }

    /// How many places there are, from 0 on; some may be empty.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.made).unwrap_or(u32::MAX)
    }

    /// One place more.
    fn make(&mut self) -> u32 {
        if self.made.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Slot {
                turn: 0,
                thing: None,
            });
        }
        self.made += 1;
        u32::try_from(self.made - 1).unwrap_or(u32::MAX)
    }

    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        let place = place as usize;
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    fn slot_mut(&mut self, place: u32) -> Option<&mut Slot<T>> {
        let place = place as usize;
        self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
    }
}

const CHUNK: usize = 256;
