//! Items by slot. A slot is reused; an id (slot and serial number) is not.
//!
//! They are stored in chunks, each item at the beginning of a cache line. Growing moves nothing, and reaching an item reads
//! nothing else.

use super::key::FlowId;

#[derive(Debug)]
pub(super) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// The number of slots.
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
    item: Option<T>,
    serial: u32,
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.made - self.free.len()
    }

    pub(super) fn insert(&mut self, item: T) -> FlowId {
        let place = self.free.pop().unwrap_or_else(|| self.make());
        if let Some(slot) = self.slot_mut(place) {
            slot.item = Some(item);
        }
        self.id_at(place)
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<T> {
        let slot = self.slot_mut(place)?;
        let item = slot.item.take()?;
        slot.serial = slot.serial.wrapping_add(1);
        self.free.push(place);
        Some(item)
    }

    pub(super) fn at(&self, place: u32) -> Option<&T> {
        self.slot(place)?.item.as_ref()
    }

    pub(super) fn at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slot_mut(place)?.item.as_mut()
    }

    pub(super) fn get(&self, id: FlowId) -> Option<&T> {
        let slot = self.slot(id.place)?;
        slot.item.as_ref().filter(|_| slot.serial == id.serial)
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        let slot = self.slot_mut(id.place)?;
        slot.item.as_mut().filter(|_| slot.serial == id.serial)
    }

    /// The id of the item at `place`, if there is one.
    pub(super) fn id(&self, place: u32) -> Option<FlowId> {
        self.at(place).map(|_| self.id_at(place))
    }

    /// The id of the item at `place`.
    pub(super) fn id_at(&self, place: u32) -> FlowId {
        let serial = self.slot(place).map_or(0, |slot| slot.serial);
        FlowId { place, serial }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.chunks.iter().flatten())
            .filter_map(|(place, slot)| Some((place, slot.item.as_ref()?)))
    }

    /// The number of slots; some may be empty.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.made).unwrap_or(u32::MAX)
    }

    /// Adds a slot.
    fn make(&mut self) -> u32 {
        if self.made.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Slot {
                serial: 0,
                item: None,
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
