//! Finds the flow that was idle for the longest time: of each group, and of all flows.
//!
//! Flows of one group (those that compete for the same ports) and of one [`Class`] are in one list, in the order in which they
//! were last moved. Moving a flow takes constant time. A heap of the lists finds the longest idle flow of all groups; it is
//! updated only when it is read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::moment::Moment;

use super::entry::Class;
use crate::chains::Chains;

#[derive(Debug)]
pub(super) struct Idle {
    /// The lists; [`list`] computes the number of the list of a group and a class.
    lists: Chains,
    /// For each class, a heap of the non-empty lists, and possibly of empty ones. The moment is when the first flow of the list
    /// was moved there, or an earlier one.
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

    /// Appends a flow, which is in no list, to the list of its group and class. `now` must not be before that of an earlier
    /// call.
    pub(super) fn push(&mut self, group: u32, class: Class, place: u32, now: Moment) {
        let list = list(group, class);
        if self.in_heap.len() <= list {
            self.in_heap.resize(list + 1, false);
            self.lists.ensure(list + 1);
        }
        self.lists.push(list, place);
        if let Some(in_heap) = self.in_heap.get_mut(list)
            && !std::mem::replace(in_heap, true)
            && let Some(heap) = self.heaps.get_mut(class as usize)
        {
            heap.push(Reverse((now, group)));
        }
    }

    /// Moves a flow to the end of the list of its group and of this class.
    pub(super) fn renew(&mut self, place: u32, class: Class, now: Moment) {
        let list = self.lists.chain_of(place).unwrap_or(0);
        let group = u32::try_from(list / Class::ALL.len()).unwrap_or(0);
        self.remove(place);
        self.push(group, class, place, now);
    }

    /// Removes a flow from its list.
    pub(super) fn remove(&mut self, place: u32) {
        self.lists.remove(place);
    }

    /// The longest idle flow of a group and class.
    pub(super) fn first_of(&self, group: u32, class: Class) -> Option<u32> {
        self.lists.first(list(group, class))
    }

    /// The longest idle flow of a class, and since when it is idle. `since` returns when a flow was last moved.
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
