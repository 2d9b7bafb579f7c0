//! The message by which members find each other, and find each other again.

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

/// Members that see each other: a number for each name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Side(Vec<u32>);

impl Side {
    pub(super) fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut numbers: Vec<u32> = names.into_iter().map(number).collect();
        numbers.sort_unstable();
        numbers.truncate(MOST);
        Self(numbers)
    }

    /// Whether the member is one of them.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(&number(name))
    }

    /// Whether this is the larger part, compared with those of `other` that it does not see. Of two equal ones it is that with the
    /// lowest number.
    pub(super) fn beats(&self, other: &Self) -> bool {
        let rest = other.0.iter().filter(|number| !self.0.contains(number));
        let rest: Vec<u32> = rest.copied().collect();
        self.0.len() > rest.len() || self.0.len() == rest.len() && self.0 < rest
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
        let side = |names: &[&'static str]| Side::of(names.iter().copied());
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
}
