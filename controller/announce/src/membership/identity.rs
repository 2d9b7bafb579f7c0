//! The identity of a member: its name, its address, and a number that each start of its process raises.

use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serialize, de};

/// The identity of a member: its name, its address, and which of its processes it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Its name, which no other member has.
    #[serde(deserialize_with = "name")]
    pub name: String,
    /// Where its datagrams go.
    pub at: SocketAddr,
    /// Of two identities with one name the newer generation counts (`is_newer`).
    pub generation: u64,
}

impl foca::Identity for Identity {
    type Addr = String;

    fn renew(&self) -> Option<Self> {
        Some(self.next(self.generation))
    }

    fn addr(&self) -> String {
        self.name.clone()
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        is_newer(self.generation, other.generation)
            || self.generation == other.generation && self.at > other.at
    }
}

impl Identity {
    /// The identity that counts before this one, and before that of the generation `known`.
    pub(super) fn next(&self, known: u64) -> Self {
        let last = match is_newer(known, self.generation) {
            true => known,
            false => self.generation,
        };
        Self {
            generation: last.wrapping_add(1),
            ..self.clone()
        }
    }
}

/// Whether `one` is a newer generation than `other`. They go round like the sequence numbers of TCP: none is the highest one, so
/// whatever a member says of another one, that one has a next generation.
pub(super) const fn is_newer(one: u64, other: u64) -> bool {
    let ahead = one.wrapping_sub(other);
    ahead != 0 && ahead < 1 << 63
}

/// A name as a file may have it. With longer ones what foca says of three members would not fit into a datagram.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    match name.len() {
        1..=LONGEST_NAME => Ok(name),
        length => Err(de::Error::invalid_length(
            length,
            &"a name of 1 to 253 bytes",
        )),
    }
}

const LONGEST_NAME: usize = 253;

#[cfg(test)]
mod tests {
    use foca::Identity as _;

    use super::*;

    fn of(name: &str, generation: u64) -> Identity {
        Identity {
            name: name.to_owned(),
            at: ([10, 0, 0, 1], 1).into(),
            generation,
        }
    }

    #[test]
    fn each_generation_has_a_next_one_that_counts_before_it() {
        const HALF: u64 = 1 << 63;
        for own in [0, 1, HALF - 1, HALF, u64::MAX - 1, u64::MAX] {
            let renewed = of("a", own).renew().unwrap();
            assert!(renewed.win_addr_conflict(&of("a", own)), "{own}");
            assert!(!of("a", own).win_addr_conflict(&renewed), "{own}");
            for known in [0, 1, 2, HALF - 1, HALF, HALF + 1, u64::MAX - 1, u64::MAX] {
                // A member that is told again what another one knows is taken in after two answers.
                let once = of("a", own).next(known);
                assert_ne!(once.generation, own);
                let is_taken = |one: &Identity| !of("a", known).win_addr_conflict(one);
                assert!(
                    is_taken(&once) || is_taken(&once.next(known)),
                    "{own} {known}"
                );
            }
        }
    }

    #[test]
    fn a_name_is_as_long_as_that_of_a_file_at_most() {
        for (length, is_good) in [
            (0, false),
            (1, true),
            (253, true),
            (254, false),
            (1300, false),
        ] {
            let bytes = postcard::to_allocvec(&of(&"n".repeat(length), 1)).unwrap();
            let read = postcard::from_bytes::<Identity>(&bytes);
            assert_eq!(read.is_ok(), is_good, "{length}");
        }
    }
}
