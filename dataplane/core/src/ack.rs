//! The answer: one small file that says which table is served, which was refused and why, and what does not listen.
//!
//! The data plane writes it, the controller reads it. The names of its keys, and their order, are the product's
//! interface.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::{Bind, Name, Problem};

/// What the data plane answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ack {
    /// Of the contract: [`Ack::VERSION`].
    pub version: u32,
    /// New in every process.
    pub instance: String,
    /// The table that is served; none before the first good one.
    pub served: Option<Served>,
    /// The table that was refused last; none after a success.
    pub refused: Option<Refused>,
    /// What does not listen as it was asked for. Empty: everything listens.
    pub exceptions: Vec<Exception>,
}

impl Ack {
    /// The version of the contract that this is.
    pub const VERSION: u32 = 1;

    /// The first answer of a process: nothing is served yet.
    #[must_use]
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
    /// The label that the table had.
    pub generation: Option<u64>,
    /// Of the table and of every file that it names: `sha256:…`.
    pub digest: String,
}

/// A table that was refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// The label that the table had; none where the text did not parse.
    pub generation: Option<u64>,
    /// Of the text and of every file that it names: `sha256:…`.
    pub digest: String,
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
}

/// A bind that does not listen as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Exception {
    /// The frontend.
    pub frontend: Name,
    /// Where it should listen: one address, or `*:PORT` where it holds for all of it.
    pub bind: Bind,
    /// What it does instead.
    pub state: ExceptionState,
    /// Why.
    pub why: String,
}

/// What a bind does instead of listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExceptionState {
    /// It could not be bound, or something that it needs is missing; tried again.
    Failed,
    /// Its service has no endpoints.
    Idle,
    /// It is bound to an address that this node does not hold now.
    NotLocal,
    /// This version does not know yet how to serve it.
    NotYetServed,
}

impl ExceptionState {
    /// Every state, in the order of the contract.
    pub const ALL: [Self; 4] = [Self::Failed, Self::Idle, Self::NotLocal, Self::NotYetServed];

    /// The word for it.
    #[must_use]
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

/// A word that is none of [`ExceptionState`].
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
