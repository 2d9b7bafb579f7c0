//! The last ten minutes of a frontend or a service, second by second, for the page's small graphs.
//!
//! Bounded in memory: a second is ten bytes, only a frontend or service that had traffic in the last ten minutes has a ring at all, and no
//! more than [`MOST_RINGS`] have one at once.

use super::meter::fresh;

/// What is known of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Sessions that began.
    pub sessions: u64,
    /// Sessions at its end.
    pub current: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Clients and dials that failed.
    pub errors: u64,
}

impl Second {
    /// One of the seconds since `before`. Both are sums over all seconds so far.
    pub(super) fn one_since(self, before: Self, current: u32, elapsed: u64) -> Self {
        let each = |now, before| (fresh(now, before) * 1000).div_ceil(elapsed.max(1));
        Self {
            current: current.into(),
            ..self.with(before, each)
        }
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        self.with(other, |one, other| one + other)
    }

    fn with(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        let (one, other) = (self.numbers(), other.numbers());
        Self::of(std::array::from_fn(|place| each(one[place], other[place])))
    }

    fn numbers(self) -> [u64; 5] {
        [
            self.sessions,
            self.current,
            self.bytes_in,
            self.bytes_out,
            self.errors,
        ]
    }

    fn of([sessions, current, bytes_in, bytes_out, errors]: [u64; 5]) -> Self {
        Self {
            sessions,
            current,
            bytes_in,
            bytes_out,
            errors,
        }
    }
}

/// The seconds of one frontend or service.
#[derive(Debug, Default)]
pub(super) struct History {
    ring: Option<Box<Ring>>,
    /// Seconds in a row without anything.
    quiet: usize,
}

impl History {
    /// The last `seconds` seconds went like this. `rings` is how many rings there are in all.
    pub(super) fn push(&mut self, second: Second, seconds: usize, rings: &mut usize) {
        let is_quiet = second == Second::default();
        self.quiet = if is_quiet { self.quiet + seconds } else { 0 };
        if self.quiet >= SECONDS {
            self.forget(rings);
        } else if self.ring.is_none() && !is_quiet && *rings < MOST_RINGS {
            *rings += 1;
            self.ring = Some(Box::default());
        }
        if let Some(ring) = &mut self.ring {
            (0..seconds.min(SECONDS)).for_each(|_| ring.push(second));
        }
    }

    /// Gives the ring back.
    pub(super) fn forget(&mut self, rings: &mut usize) {
        if self.ring.take().is_some() {
            *rings -= 1;
        }
    }

    /// The last `seconds` of them, the oldest first.
    pub(super) fn last(&self, seconds: usize) -> Vec<Second> {
        let seconds = seconds.min(SECONDS);
        match &self.ring {
            Some(ring) => ring.read().skip(SECONDS - seconds).collect(),
            None => vec![Second::default(); seconds],
        }
    }
}

#[derive(Debug)]
struct Ring {
    next: usize,
    slots: [[Compact; 5]; SECONDS],
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            next: 0,
            slots: [[Compact::default(); 5]; SECONDS],
        }
    }
}

impl Ring {
    fn push(&mut self, second: Second) {
        if let Some(slot) = self.slots.get_mut(self.next) {
            *slot = second.numbers().map(Compact::of);
        }
        self.next = (self.next + 1) % SECONDS;
    }

    fn read(&self) -> impl Iterator<Item = Second> {
        let (newer, older) = self.slots.split_at(self.next);
        let slots = older.iter().chain(newer);
        slots.map(|slot| Second::of(slot.map(Compact::value)))
    }
}

/// A number to three digits, in two bytes: 11 bits, and by how many they are shifted. Exact below 2,048.
#[derive(Clone, Copy, Debug, Default)]
struct Compact(u16);

impl Compact {
    fn of(value: u64) -> Self {
        let shift = (u64::BITS - value.leading_zeros()).saturating_sub(11);
        if shift > 31 {
            return Self(u16::MAX);
        }
        let digits = u16::try_from(value >> shift).unwrap_or(0x7ff);
        Self(u16::try_from(shift).unwrap_or(31) << 11 | digits)
    }

    fn value(self) -> u64 {
        u64::from(self.0 & 0x7ff) << (self.0 >> 11)
    }
}

/// Ten minutes.
pub(super) const SECONDS: usize = 600;
/// 6 KB each: at most 24 MB.
pub(super) const MOST_RINGS: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn second(sessions: u64) -> Second {
        Second {
            sessions,
            ..Second::default()
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        for value in (0..2048).chain((11..42).map(|bit| 1 << bit)) {
            assert_eq!(Compact::of(value).value(), value);
        }
        for value in [2049, 123_456, 9_999_999_999, 4_000_000_000_000] {
            let kept = Compact::of(value).value();
            assert!(
                kept <= value && value - kept <= value / 1000,
                "{value} {kept}"
            );
        }
        assert_eq!(Compact::of(u64::MAX).value(), 2047 << 31);
    }

    #[test]
    fn the_oldest_second_gives_way() {
        let (mut history, mut rings) = (History::default(), 0);
        for count in 1..=700 {
            history.push(second(count), 1, &mut rings);
        }
        let kept: Vec<u64> = history
            .last(SECONDS)
            .iter()
            .map(|one| one.sessions)
            .collect();
        assert_eq!(kept, (101..=700).collect::<Vec<_>>());
        assert_eq!(history.last(2), [second(699), second(700)]);
        assert_eq!(rings, 1);
    }

    #[test]
    fn seconds_that_were_missed_are_filled() {
        let (mut history, mut rings) = (History::default(), 0);
        history.push(second(1), 1, &mut rings);
        history.push(second(7), 3, &mut rings);
        assert_eq!(
            history.last(4),
            [second(1), second(7), second(7), second(7)]
        );
    }

    #[test]
    fn who_is_idle_needs_no_memory() {
        let (mut history, mut rings) = (History::default(), 0);
        history.push(second(0), 1, &mut rings);
        assert_eq!(rings, 0);
        history.push(second(1), 1, &mut rings);
        assert_eq!(rings, 1);
        for _ in 0..SECONDS {
            history.push(second(0), 1, &mut rings);
        }
        assert_eq!(rings, 0);
        assert_eq!(history.last(3), [second(0); 3]);
    }

    #[test]
    fn there_are_only_so_many_rings() {
        let (mut history, mut rings) = (History::default(), MOST_RINGS);
        history.push(second(1), 1, &mut rings);
        assert_eq!(rings, MOST_RINGS);
        assert_eq!(history.last(1), [second(0)]);
    }
}
