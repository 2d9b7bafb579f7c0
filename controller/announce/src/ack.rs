//! The ack: which file is in force, which was refused and why, and what became of each address.
//!
//! The announcer writes it beside the file, the controller and people read it. Its keys and their order are part of the
//! product's interface.

use std::net::IpAddr;

use ballast_core::table::Problem;
use serde::{Deserialize, Serialize};

/// The ack of the announcer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ack {
    /// The version of the format: [`Ack::VERSION`].
    pub version: u32,
    /// The digest of the file that is in force: `sha256:…`. `None` before the first valid one.
    pub file_digest: Option<String>,
    /// Why the file that stands there now is refused; `None` if it is in force.
    pub refused: Option<Refused>,
    /// The state of each address, in the order of the file.
    pub addresses: Vec<Status>,
}

impl Ack {
    /// The version of the format that this crate reads and writes.
    pub const VERSION: u32 = 1;
}

/// A file that was refused whole. The last good one stays in force.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Refused {
    /// Everything that is wrong with it.
    pub problems: Vec<Wrong>,
}

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Wrong {
    /// Where it is.
    pub at: String,
    /// The mistake, and the remedy.
    pub why: String,
}

impl From<&Problem> for Wrong {
    fn from(problem: &Problem) -> Self {
        Self {
            at: problem.at.clone(),
            why: format!("{}; {}", problem.why, problem.remedy),
        }
    }
}

/// The state of an address, as the ack reports it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Status {
    /// The address.
    pub address: IpAddr,
    /// Its state on this node.
    pub state: State,
    /// The node that holds it, as this node sees it.
    pub owner: Option<String>,
    /// The milliseconds since 1970 at which the state began.
    pub since: u64,
    /// A remark for operators; often empty.
    pub detail: String,
}

/// The state of an address on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// This node holds it, or tells the routers.
    Held,
    /// Another node holds it, or is to.
    NotOurs,
    /// A host that is no member has it.
    Conflict,
    /// No interface of this node can carry it.
    NoInterface,
    /// This node cannot serve it now.
    NotReady,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"version":1,"file-digest":"sha256:ab","refused":{"problems":[{"at":"addresses[0].mode","why":"w"}]},"addresses":[{"address":"192.0.2.10","state":"no-interface","owner":"edge2","since":1700000000000,"detail":"d"}]}"#;

    #[test]
    fn it_is_written_and_read_to_the_letter() {
        let ack: Ack = serde_json::from_str(EXAMPLE).unwrap();
        assert_eq!(serde_json::to_string(&ack).unwrap(), EXAMPLE);
    }

    #[test]
    fn the_states_are_those_of_the_contract() {
        use State::{Conflict, Held, NoInterface, NotOurs, NotReady};
        let words = [Held, NotOurs, Conflict, NoInterface, NotReady]
            .map(|state| serde_json::to_value(state).unwrap());
        assert_eq!(
            words,
            ["held", "not-ours", "conflict", "no-interface", "not-ready"]
        );
    }
}
