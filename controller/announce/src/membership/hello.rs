//! The message by which members find each other, and find each other again.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::Identity;

/// A greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) from: Identity,
    /// For whom it is, where the sender knows that.
    pub(super) to: Option<String>,
    /// The members that the sender sees.
    pub(super) side: Side,
    pub(super) answer: Answer,
}

/// The question or the answer in a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// "Do you know me?"
    Ask,
    /// "I know you."
    Welcome,
    /// "Under this generation you are dead to me, or an earlier process than the one that I know."
    Dead {
        /// The generation that it is about.
        of: u64,
        /// The highest one that the sender knows.
        known: u64,
    },
}

/// Members that see each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Side {
    /// A number for each name.
    numbers: Vec<u32>,
    /// Whether the member that says this holds an address.
    holds: bool,
}

impl Side {
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>, holds: bool) -> Self {
        let mut numbers: Vec<u32> = names.into_iter().map(number).collect();
        numbers.sort_unstable();
        numbers.truncate(MOST);
        Self { numbers, holds }
    }

    /// Whether the member is one of them.
    pub(super) fn has(&self, name: &str) -> bool {
        self.numbers.contains(&number(name))
    }

    /// Whether this is the larger part, compared with those of `other` that it does not see. Of two members it is the one that holds
    /// addresses: the other one was away. Of two equal ones it is that with the lowest number.
    pub(super) fn beats(&self, other: &Self) -> bool {
        let rest = other.numbers.iter();
        let rest: Vec<u32> = rest
            .filter(|number| !self.numbers.contains(number))
            .copied()
            .collect();
        // In a larger part one may hold addresses and another one none: all of its members have to give the same answer.
        let is_of_two = self.numbers.len() == 1 && rest.len() == 1;
        match self.numbers.len().cmp(&rest.len()) {
            Ordering::Equal if is_of_two && self.holds != other.holds => self.holds,
            Ordering::Equal => self.numbers < rest,
            order => order.is_gt(),
        }
    }
}

fn number(name: &str) -> u32 {
    let byte = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, byte)
}

/// So many fit into a datagram.
const MOST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_part_wins_among_those_that_do_not_see_each_other() {
        let side = |names: &[&'static str]| Side::of(names.iter().copied(), false);
        for (one, other, wins) in [
            (side(&["b", "c"]), side(&["a"]), true),
            (side(&["a"]), side(&["b", "c"]), false),
            // A process that was frozen still sees those that gave it up.
            (side(&["b", "c"]), side(&["a", "b", "c"]), true),
            // One that came back sees nobody yet, and is seen.
            (side(&["a"]), side(&["a", "b", "c"]), false),
        ] {
            assert_eq!(one.beats(&other), wins, "{one:?} {other:?}");
        }
        let (one, other) = (side(&["a"]), side(&["b"]));
        assert_ne!(one.beats(&other), other.beats(&one));
    }

    #[test]
    fn of_two_members_the_one_that_holds_addresses_wins() {
        let side = |names: &[&'static str], holds| Side::of(names.iter().copied(), holds);
        for (one, other) in [("a", "b"), ("b", "a")] {
            let (holds, away) = (side(&[one], true), side(&[other], false));
            assert!(holds.beats(&away) && !away.beats(&holds));
            // One that was frozen sees the other one.
            let frozen = side(&[one, other], false);
            assert!(side(&[other], true).beats(&frozen));
        }
        // In larger parts the answer of all members is one.
        let parts = [["a", "b"], ["c", "d"]];
        let answers =
            [true, false].map(|holds| side(&parts[0], holds).beats(&side(&parts[1], !holds)));
        assert_eq!(answers[0], answers[1]);
    }
}
