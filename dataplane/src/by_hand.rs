//! What operators change by hand, on its way from the admin side to apply.

use std::fmt;

use ballast_core::overrides::ByHand;
use tokio::sync::oneshot;

/// Changes by hand that belong together.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) changes: Vec<ByHand>,
    /// Told when they are in force, or why they are not.
    pub(crate) done: oneshot::Sender<Result<(), Unchanged>>,
}

/// Why changes by hand are not in force. The plan and the overrides are what they were before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// The process is ending.
    Ending,
    /// Making the new plan panicked.
    Fault,
}

impl fmt::Display for Unchanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ending => "the process is ending",
            Self::Fault => {
                "a bug in Ballast prevents this change; the log has the details, please report them"
            }
        })
    }
}
