//! Operator overrides on their way from the admin side to `apply`.

use std::fmt;

use ballast_core::overrides::{OverrideChange, OverrideRefusal};
use tokio::sync::oneshot;

/// Overrides that are put in force together.
#[derive(Debug)]
pub(crate) struct OverrideRequest {
    pub(crate) changes: Vec<OverrideChange>,
    /// Notified when they are in force, or why they are not.
    pub(crate) done: oneshot::Sender<Result<(), OverrideError>>,
}

/// Why overrides are not in force. The plan and the earlier overrides are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideError {
    /// The process is ending.
    Ending,
    /// Compiling the new plan panicked.
    Panicked,
    /// The table in force does not permit one of them.
    Refused(OverrideRefusal),
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ending => "Nothing was changed: the process is ending.",
            Self::Panicked => {
                "Nothing was changed: a bug in Ballast prevents this change; the log has the details, please report them."
            }
            Self::Refused(why) => return why.fmt(f),
        })
    }
}
