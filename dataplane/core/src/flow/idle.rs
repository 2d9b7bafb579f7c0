//! Which flow was idle for the longest time: of each group, and of all.
//!
//! Flows of one group (those that compete for the same ports) and of one [`Class`] are in one list, in the order in which they were
//! last moved. To move one costs the same however many there are; the longest idle of all groups is found by
//! a heap of the lists, which is brought up to date only when it is asked.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::moment::Moment;

use super::entry::Class;
use crate::chains::Chains;

#[derive(Debug)]
pub(super) struct Idle {
    /// The list of a group and a class has the number that [`list`] says.
    lists: Chains,
    /// By class, the lists that are not empty, and perhaps some that are. The moment is when the first flow of the list was
    /// moved there, or an earlier one.
    heaps: [BinaryHeap<Reverse<(Moment, u32)>>; Class::ALL.len()],
    /// Whether a list is in its heap.
    in_heap: Vec<bool>,
}

impl Idle {
    pub(super) fn new() -> Self {
        Self {
            lists: Chains::new(0),
            heaps: Default::default(),
            in_heap: Vec::new(),
        }
    }

    /// Puts a flow, which is in no list, behind all others of its group and class. `now` is never before that of an earlier call.
    pub(super) fn push(&mut self, group: u32, class: Class, place: u32, now: Moment) {
        let list = list(group, class);
        if self.in_heap.len() <= list {
            self.in_heap.resize(list + 1, false);
            self.lists.have(list + 1);
        }
        self.lists.push(list, place);
        if let Some(in_heap) = self.in_heap.get_mut(list)
            && !std::mem::replace(in_heap, true)
            && let Some(heap) = self.heaps.get_mut(class as usize)
        {
            heap.push(Reverse((now, group)));
        }
    }

    /// Puts a flow behind all others of its group and of this class.
    pub(super) fn renew(&mut self, place: u32, class: Class, now: Moment) {
        let list = self.lists.chain_of(place).unwrap_or(0);
        let group = u32::try_from(list / Class::ALL.len()).unwrap_or(0);
        self.remove(place);
        self.push(group, class, place, now);
    }

    /// Takes a flow out of the list that it is in.
    pub(super) fn remove(&mut self, place: u32) {
        self.lists.remove(place);
    }

    /// The longest idle flow of a group and class.
    pub(super) fn first_of(&self, group: u32, class: Class) -> Option<u32> {
        self.lists.first(list(group, class))
    }

    /// The longest idle flow of a class, and since when it is. `since` says for each flow when it was put where it is.
    pub(super) fn first(
        &mut self,
        class: Class,
        since: impl Fn(u32) -> Option<Moment>,
    ) -> Option<(Moment, u32)> {
        let heap = self.heaps.get_mut(class as usize)?;
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((known, group)) = *top;
            let list = list(group, class);
            let first = self.lists.first(list);
            match first.and_then(|place| Some((since(place)?, place))) {
                Some(found) if found.0 == known => return Some(found),
                Some((later, _)) => *top = Reverse((later, group)),
                None => {
                    PeekMut::pop(top);
                    if let Some(in_heap) = self.in_heap.get_mut(list) {
                        *in_heap = false;
                    }
                }
            }
        }
        None
    }
}

fn list(group: u32, class: Class) -> usize {
    group as usize * Class::ALL.len() + class as usize
}
