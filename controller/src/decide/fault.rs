//! Why a Service is left out of the table.

use super::notice::Reason;

/// The reason for which a Service is left out of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The table would be too large, and the Service is of the namespace with the largest share of it.
    TooLarge,
    /// A fault of Ballast, in words.
    Ours(String),
}

impl Fault {
    pub(super) fn why(&self) -> &str {
        match self {
            Self::TooLarge => {
                "the table would be larger than 48 MiB, and this namespace has the largest share of it: give this Service, or others of the namespace, fewer ports, routes, source ranges or endpoints"
            }
            Self::Ours(why) => why,
        }
    }

    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::TooLarge => Reason::TooLarge,
            Self::Ours(_) => Reason::LeftOut,
        }
    }
}
