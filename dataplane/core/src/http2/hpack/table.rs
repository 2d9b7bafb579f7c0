//! The dynamic table (RFC 7541, sections 2.3.2 and 4): the fields that a peer may name by a number.

use std::collections::VecDeque;

/// The newest fields, as many as fit. Nothing is allocated before the first one.
#[derive(Debug)]
pub(super) struct Table {
    /// The names and values of the entries, from the oldest to the newest entry, without gaps. Bytes of removed entries may
    /// precede them.
    bytes: Vec<u8>,
    /// The newest one first.
    entries: VecDeque<Entry>,
    /// What the entries count together.
    size: usize,
    /// What they may count.
    limit: usize,
}

/// Where in `bytes` the name of an entry begins, and the lengths of its name and, right behind it, of its value.
#[derive(Debug)]
struct Entry {
    start: u16,
    name: u16,
    value: u16,
}

impl Table {
    /// The largest limit that a table may have.
    pub(super) const LARGEST: usize = 4096;

    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            limit: Self::LARGEST,
        }
    }

    /// The name and the value of an entry. The newest one has number 0.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(number)?;
        let bytes = self.bytes.get(usize::from(entry.start)..)?;
        let (name, bytes) = bytes.split_at_checked(usize::from(entry.name))?;
        Some((name, bytes.get(..usize::from(entry.value))?))
    }

    /// Adds an entry, after removing old ones until it fits. An entry that is larger than the limit is not added, but removes all
    /// others.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        let length = name.len() + value.len();
        let size = length + ENTRY;
        self.remove_above(self.limit.saturating_sub(size));
        if size > self.limit {
            return;
        }
        self.make_room(length);
        // All three are at most `LARGEST`.
        if let (Ok(start), Ok(name_length), Ok(value_length)) = (
            u16::try_from(self.bytes.len()),
            u16::try_from(name.len()),
            u16::try_from(value.len()),
        ) {
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.entries.push_front(Entry {
                start,
                name: name_length,
                value: value_length,
            });
            self.size += size;
        }
    }

    /// Sets what the entries may count, at most [`Self::LARGEST`].
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(Self::LARGEST);
        self.remove_above(self.limit);
    }

    /// Gives back the memory that the entries do not need.
    pub(super) fn shrink(&mut self) {
        self.close_gap();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The memory that the entries take, spare memory included.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Removes the oldest entries until the others count no more than `most`.
    fn remove_above(&mut self, most: usize) {
        while self.size > most
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= usize::from(entry.name) + usize::from(entry.value) + ENTRY;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Ensures that `length` more bytes fit without an allocation, and the buffer into [`Self::LARGEST`] bytes. The entries and the
    /// new bytes together do: an entry counts more than its bytes.
    fn make_room(&mut self, length: usize) {
        if self.bytes.len() + length <= self.bytes.capacity() {
            return;
        }
        self.close_gap();
        let needed = self.bytes.len() + length;
        if needed > self.bytes.capacity() {
            let capacity = needed.next_power_of_two().max(SMALLEST_BUFFER);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Moves the bytes of the entries to the beginning of the buffer.
    fn close_gap(&mut self) {
        let Some(gap) = self.entries.back().map(|oldest| oldest.start) else {
            return;
        };
        if gap > 0 {
            self.bytes.drain(..usize::from(gap));
            for entry in &mut self.entries {
                entry.start -= gap;
            }
        }
    }
}

/// What an entry counts beside its bytes.
const ENTRY: usize = 32;
/// The fewest bytes that are allocated.
const SMALLEST_BUFFER: usize = 256;
