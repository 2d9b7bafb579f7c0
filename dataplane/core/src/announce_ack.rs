//! The announcer's ack: which file is in force, which was refused and why, and what became of each address.
//!
//! The announcer writes it beside the file; the controller, the data plane's page and people read it. Its keys and their order are
//! part of the product's interface.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::table::Problem;
use crate::words;

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
    /// The file is older only if its announcer does not run.
    pub const OLDEST: Duration = Duration::from_secs(20);
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
    /// How the network learns it. `None`: the announcer is of a version that did not write it.
    #[serde(default)]
    pub mode: Option<Mode>,
}

words! {
    /// The state of an address on a node.
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum State {
        /// This node holds it, or tells the routers.
        Held = "held",
        /// Another node holds it, or is to.
        NotOurs = "not-ours",
        /// A host that is no member has it.
        Conflict = "conflict",
        /// No interface of this node can carry it.
        NoInterface = "no-interface",
        /// This node cannot serve it now.
        NotReady = "not-ready",
    }
}

words! {
    /// How the network learns where an address is.
    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mode {
        /// One node holds it and answers ARP or neighbour discovery.
        L2 = "l2",
        /// Routers learn it from every node that can serve it.
        Bgp = "bgp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"version":1,"file-digest":"sha256:ab","refused":{"problems":[{"at":"addresses[0].mode","why":"w"}]},"addresses":[{"address":"192.0.2.10","state":"no-interface","owner":"edge2","since":1700000000000,"detail":"d","mode":"l2"}]}"#;

    #[test]
    fn it_is_written_and_read_to_the_letter() {
        let ack: Ack = serde_json::from_str(EXAMPLE).unwrap();
        assert_eq!(serde_json::to_string(&ack).unwrap(), EXAMPLE);
    }

    #[test]
    fn one_of_a_version_without_modes_is_read() {
        let ack: Ack = serde_json::from_str(&EXAMPLE.replace(r#","mode":"l2""#, "")).unwrap();
        assert_eq!(ack.addresses[0].mode, None);
    }

    #[test]
    fn the_words_are_those_of_the_file() {
        for state in State::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        for mode in Mode::ALL {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.word());
        }
    }
}
