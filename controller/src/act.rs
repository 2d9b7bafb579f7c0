//! Acting on decisions. Each part follows the stream of [`Decision`]s and acts only where its own share of one changed.
//!
//! Called by `run`: one task for each part.

use std::sync::Arc;

use tokio::sync::watch;

use crate::decide::Desired;
use crate::observe::Observed;

/// What was seen, and what must be.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What was seen.
    pub observed: Arc<Observed>,
    /// What must be.
    pub desired: Arc<Desired>,
}

/// The newest decision; none before everything was seen once.
pub type Decisions = watch::Receiver<Option<Decision>>;
