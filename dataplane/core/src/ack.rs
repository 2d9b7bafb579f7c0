//! The ack: a small file that says which table is served, which table was refused and why, and which binds do not listen.
//!
//! The data plane writes it, the controller reads it. Its keys and their order are part of the product's interface.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::{Bind, Name, Problem};

/// The ack of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ack {
    /// The version of the format: [`Ack::VERSION`].
    pub version: u32,
    /// A random id of the process.
    pub instance: String,
    /// The table that is served; `None` before the first valid one.
    pub served: Option<Served>,
    /// The table that was refused last; `None` after a table was applied.
    pub refused: Option<Refused>,
    /// The binds that do not listen as the table asks. Empty: all of them listen.
    pub exceptions: Vec<Exception>,
}

impl Ack {
    /// The version of the format that this crate reads and writes.
    pub const VERSION: u32 = 1;

    /// The first ack of a process: nothing is served yet.
    pub fn new(instance: String) -> Self {
        Self {
            version: Self::VERSION,
            instance,
            served: None,
            refused: None,
            exceptions: Vec::new(),
        }
    }
}

/// A table that is served: its sockets accept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Served {
    /// The table's generation.
    pub generation: Option<u64>,
    /// The digest of the table and of every file that it names: `sha256:…`.
    pub digest: String,
}

/// A table that was refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// The table's generation; `None` if the text did not parse.
    pub generation: Option<u64>,
    /// The digest of the text and of every file that it names: `sha256:…`.
    pub digest: String,
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
}

/// How the reason of an exception begins where the bind accepts clients, and only a part of what is behind it cannot be used.
pub const IN_PART: &str = "serves in part: ";

/// A bind that does not listen as the table asks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Exception {
    pub frontend: Name,
    /// The bind: one address, or `*:PORT` if the state holds for all of its addresses.
    pub bind: Bind,
    /// The state of the bind.
    pub state: ExceptionState,
    pub why: String,
}

/// The state of a bind that does not listen as the table asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionState {
    /// It could not be bound, or something that it needs is missing. Binding is retried.
    Failed,
    /// Its service has no endpoints.
    Idle,
    /// It is bound to an address that this node does not hold now.
    NotLocal,
    /// This version cannot serve it yet.
    NotYetServed,
}

impl ExceptionState {
    /// Every state, in the order of the contract.
    pub const ALL: [Self; 4] = [Self::Failed, Self::Idle, Self::NotLocal, Self::NotYetServed];

    /// The word in the ack.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Idle => "idle",
            Self::NotLocal => "not-local",
            Self::NotYetServed => "not-yet-served",
        }
    }
}

impl fmt::Display for ExceptionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A word that is not an [`ExceptionState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not failed, idle, not-local or not-yet-served")]
pub struct UnknownState;

impl FromStr for ExceptionState {
    type Err = UnknownState;

    fn from_str(word: &str) -> Result<Self, UnknownState> {
        Self::ALL
            .into_iter()
            .find(|state| state.word() == word)
            .ok_or(UnknownState)
    }
}

impl Serialize for ExceptionState {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for ExceptionState {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let word = String::deserialize(source)?;
        word.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the contract, with its dots filled in.
    const EXAMPLE: &str = r#"{"version":1,"instance":"5f0c","served":{"generation":42,"digest":"sha256:ab"},"refused":{"generation":43,"digest":"sha256:cd","problems":[{"at":"services[3].endpoints[0].address","why":"w","remedy":"r"}]},"exceptions":[{"frontend":"mysql","bind":"[::]:3306","state":"failed","why":"w"}]}"#;

    #[test]
    fn the_example_of_the_contract_is_read_and_written_to_the_letter() {
        let ack: Ack = serde_json::from_str(EXAMPLE).unwrap();
        assert_eq!(ack.served.as_ref().unwrap().generation, Some(42));
        assert_eq!(ack.refused.as_ref().unwrap().problems.len(), 1);
        assert_eq!(ack.exceptions[0].state, ExceptionState::Failed);
        assert_eq!(serde_json::to_string(&ack).unwrap(), EXAMPLE);
    }

    #[test]
    fn what_is_not_there_is_null_and_no_exception_is_an_empty_list() {
        let written = serde_json::to_string(&Ack::new("a".to_owned())).unwrap();
        assert_eq!(
            written,
            r#"{"version":1,"instance":"a","served":null,"refused":null,"exceptions":[]}"#
        );
    }

    #[test]
    fn a_refused_text_without_a_generation_says_null() {
        let refused = Refused {
            generation: None,
            digest: "sha256:ab".to_owned(),
            problems: Vec::new(),
        };
        assert_eq!(
            serde_json::to_string(&refused).unwrap(),
            r#"{"generation":null,"digest":"sha256:ab","problems":[]}"#
        );
    }

    #[test]
    fn every_state_has_its_word() {
        for (state, word) in
            ExceptionState::ALL
                .into_iter()
                .zip(["failed", "idle", "not-local", "not-yet-served"])
        {
            assert_eq!(
                serde_json::to_string(&state).unwrap(),
                format!("\"{word}\"")
            );
            assert_eq!(
                serde_json::from_str::<ExceptionState>(&format!("\"{word}\"")).unwrap(),
                state
            );
        }
        assert!(serde_json::from_str::<ExceptionState>("\"gone\"").is_err());
    }
}
