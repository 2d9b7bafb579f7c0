//! Things by number. A place is used again, a number is not.

use super::key::FlowId;

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    turn: u32,
    thing: Option<Box<T>>,
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, thing: T) -> FlowId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                turn: 0,
                thing: None,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = self.slots.get_mut(place as usize) {
            slot.thing = Some(Box::new(thing));
        }
        self.id_at(place)
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<T> {
        let slot = self.slots.get_mut(place as usize)?;
        let thing = slot.thing.take()?;
        slot.turn = slot.turn.wrapping_add(1);
        self.free.push(place);
        Some(*thing)
    }

    pub(super) fn at(&self, place: u32) -> Option<&T> {
        self.slots.get(place as usize)?.thing.as_deref()
    }

    pub(super) fn at_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slots.get_mut(place as usize)?.thing.as_deref_mut()
    }

    pub(super) fn get(&self, id: FlowId) -> Option<&T> {
        let slot = self.slots.get(id.place as usize)?;
        slot.thing.as_deref().filter(|_| slot.turn == id.turn)
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.place as usize)?;
        slot.thing.as_deref_mut().filter(|_| slot.turn == id.turn)
    }

    /// The number of what is at `place`, if anything is.
    pub(super) fn id(&self, place: u32) -> Option<FlowId> {
        self.at(place).map(|_| self.id_at(place))
    }

    /// The number of what is at `place`.
    pub(super) fn id_at(&self, place: u32) -> FlowId {
        let turn = self.slots.get(place as usize).map_or(0, |slot| slot.turn);
        FlowId { place, turn }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(place, slot)| Some((place, slot.thing.as_deref()?)))
    }
}
