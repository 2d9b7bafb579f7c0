//! What operators change by hand, on its way from the admin side to apply.

use ballast_core::overrides::ByHand;
use tokio::sync::oneshot;

/// Changes by hand that belong together.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) changes: Vec<ByHand>,
    /// Told when they are in force.
    pub(crate) done: oneshot::Sender<()>,
}
