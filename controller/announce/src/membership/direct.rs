//! The messages of one member to another one: which addresses are in its file, and which addresses it may take.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A message for one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Direct {
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
    /// "I had these addresses, and give them up for you: no other host has them."
    Offer {
        /// The name of the member that had them.
        by: String,
        addresses: Vec<IpAddr>,
    },
}

/// The addresses of each message.
pub(super) fn parts(addresses: &[IpAddr]) -> impl Iterator<Item = Vec<IpAddr>> {
    addresses.chunks(MOST_ANSWERS).map(<[IpAddr]>::to_vec)
}

/// So many answers fit into a datagram, each with an IPv6 address.
pub(super) const MOST_ANSWERS: usize = 60;
/// So many questions are sent at once: what is left is asked when these are answered.
pub(super) const MOST_AT_ONCE: usize = 16;
