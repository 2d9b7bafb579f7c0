//! The announcer's file: the addresses that this node may hold, who else may, and how the network is told.
//!
//! [`parse()`] returns a file without a mistake, or every mistake at once. People write it by hand in YAML, the controller in JSON,
//! which is YAML as well. The form of the file is `spec`; from it come the strict reading (`form`) and the JSON Schema
//! ([`schema()`]). What the values mean together is checked by `check`.

mod bgp;
mod check;
mod form;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ballast_core::table::Problem;
use serde::{Deserialize, Serialize};

pub use ballast_core::announce_ack::Mode;
pub use bgp::{Advertisement, Bfd, Bgp, Bird, Community, Password, Peer};
pub use check::MOST_ADDRESSES;
pub use form::LARGEST;
pub use schema::schema;
pub use values::{Interfaces, Pattern};

/// The content of the announcer's file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Announce {
    /// The version of the file's form.
    pub version: u32,
    /// The name of this node among the members.
    pub node: String,
    /// The other nodes that may hold addresses. `None`: there are none.
    #[serde(default)]
    pub members: Option<Members>,
    /// The data plane that has to be ready. `None`: it is not looked at.
    #[serde(default)]
    pub data_plane: Option<DataPlane>,
    /// The addresses.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// The routers that are told, by BIRD.
    #[serde(default)]
    pub bgp: Option<Bgp>,
    /// When a node that was away gets its addresses back.
    #[serde(default)]
    pub r#return: Return,
}

/// How this node talks to the others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Members {
    /// Where datagrams of the others arrive.
    pub bind: SocketAddr,
    /// Some of the others; they tell the rest.
    #[serde(default)]
    pub peers: Vec<SocketAddr>,
    /// The file with the keys that seal the datagrams.
    pub key_file: PathBuf,
}

/// How the data plane is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DataPlane {
    /// Its runtime socket. A connection to it ends when the data plane does.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// The URL that says whether it is ready.
    #[serde(default)]
    pub ready: Option<String>,
}

/// An address that one node is to hold, or that routers are to know.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// How the network learns it.
    pub mode: Mode,
    /// The nodes that may hold it, by name.
    pub nodes: Vec<String>,
    /// The interfaces that may carry it.
    #[serde(default)]
    pub interface: Interfaces,
    /// Whether this node can serve it.
    #[serde(default = "yes")]
    pub ready: bool,
}

impl Address {
    /// Whether the node of this name may hold it.
    #[must_use]
    pub fn names(&self, node: &str) -> bool {
        self.nodes.iter().any(|name| name == node)
    }

    /// Whether it is held by one node at a time, and the node of this name may be that one.
    #[must_use]
    pub fn may_be_held_by(&self, node: &str) -> bool {
        self.mode == Mode::L2 && self.names(node)
    }
}

const fn yes() -> bool {
    true
}

/// When a node that was away gets its addresses back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// After [`Return::DELAY`] of good health.
    #[default]
    Delayed,
    /// When no other node can hold them.
    Never,
    /// As soon as it is back.
    AtOnce,
}

impl Return {
    /// The good health that [`Return::Delayed`] asks for.
    pub const DELAY: Duration = Duration::from_secs(30);
}

/// Reads a file. It is returned only if there is no mistake in it; otherwise all mistakes are, each with its place, the reason and
/// the remedy.
pub fn parse(text: &[u8]) -> Result<Announce, Vec<Problem>> {
    let mut tree = form::tree(text).map_err(|problem| vec![problem])?;
    let found = form::mend(&mut tree);
    match Announce::deserialize(&tree) {
        Ok(file) => {
            let problems = check::check(&file, found);
            match problems.is_empty() {
                true => Ok(file),
                false => Err(problems),
            }
        }
        // The form allows a value that the types refuse: a bug, which must not be silent.
        Err(error) => {
            let mut problems = found.problems;
            problems.push(Problem::new("", error.to_string(), form::A_FILE));
            Err(problems)
        }
    }
}
