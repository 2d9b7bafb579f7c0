//! The message by which a member asks another one which addresses are in its file.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A question or its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Asking {
    /// "Which of these addresses are in your file, and name you?"
    Question {
        /// The name of the member that asks.
        by: String,
        addresses: Vec<IpAddr>,
    },
    /// "These are, and those are not."
    Answer {
        /// The name of the member that answers.
        by: String,
        /// The digest of its file.
        file: u64,
        has: Vec<(IpAddr, bool)>,
    },
}

/// The questions that are sent at once: what is left is asked when these are answered.
pub(super) fn parts(addresses: &[IpAddr]) -> impl Iterator<Item = Vec<IpAddr>> {
    let parts = addresses.chunks(MOST_ANSWERS).take(MOST_AT_ONCE);
    parts.map(<[IpAddr]>::to_vec)
}

/// So many answers fit into a datagram, each with an IPv6 address.
pub(super) const MOST_ANSWERS: usize = 60;
const MOST_AT_ONCE: usize = 16;
