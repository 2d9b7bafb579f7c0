//! Items by slot: flows, and health checks. A slot is reused; an id (slot and serial number) is not.
//!
//! They are stored in chunks, each item at the beginning of a cache line. Growing moves nothing, and reaching an item reads
//! nothing else.

#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
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
pub(crate) struct Slot<T> {
    item: Option<T>,
    serial: u32,
}

impl<T> Slots<T> {
    pub(crate) fn len(&self) -> usize {
        self.made - self.free.len()
    }

    pub(crate) fn insert(&mut self, item: T) -> SlotId {
        let place = self.free.pop().unwrap_or_else(|| self.make());
        if let Some(slot) = self.slot_mut(place) {
            slot.item = Some(item);
        }
        self.id_at(place)
    }

    pub(crate) fn remove(&mut self, place: u32) -> Option<T> {
        let slot = self.slot_mut(place)?;
        let item = slot.item.take()?;
        slot.serial = slot.serial.wrapping_add(1);
        self.free.push(place);
        Some(item)
    }

    pub(crate) fn at(&self, place: u32) -> Option<&T> {
        self.slot(place)?.item.as_ref()
    }

    pub(crate) fn at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slot_mut(place)?.item.as_mut()
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&T> {
        let slot = self.slot(id.place)?;
        slot.item.as_ref().filter(|_| slot.serial == id.serial)
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        let slot = self.slot_mut(id.place)?;
        slot.item.as_mut().filter(|_| slot.serial == id.serial)
    }

    pub(crate) fn id_at(&self, place: u32) -> SlotId {
        let serial = self.slot(place).map_or(0, |slot| slot.serial);
        SlotId { place, serial }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.chunks.iter().flatten())
            .filter_map(|(place, slot)| Some((place, slot.item.as_ref()?)))
    }

    /// The number of slots; some may be empty.
    pub(crate) fn places(&self) -> u32 {
        u32::try_from(self.made).unwrap_or(u32::MAX)
    }

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

/// The id of an item. Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    pub(crate) place: u32,
    pub(crate) serial: u32,
}

impl SlotId {
    /// The id as one number, for the kernel to return.
    pub fn bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.place)
    }

    /// A number for people, of 52 bits: after a million other items in its place, another one has it.
    pub fn short(self) -> u64 {
        u64::from(self.serial & 0xf_ffff) << 32 | u64::from(self.place)
    }

    /// The id from the number that [`SlotId::bits`] returned.
    pub fn from_bits(bits: u64) -> Self {
        let [a, b, c, d, rest @ ..] = bits.to_be_bytes();
        Self {
            place: u32::from_be_bytes(rest),
            serial: u32::from_be_bytes([a, b, c, d]),
        }
    }
}

const CHUNK: usize = 256;
