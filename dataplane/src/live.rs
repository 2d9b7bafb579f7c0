//! What is being served: one pointer, swapped by `apply` and by nobody else.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ballast_core::plan::Plan;

/// The plan in force.
#[derive(Debug, Default)]
pub struct Live {
    plan: ArcSwap<Plan>,
}

impl Live {
    /// The plan in force now. Who keeps it keeps its table's memory: hold it while a connection is set up, not longer.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// Puts `plan` in force and returns the one before, for apply to free: no worker ever frees a plan.
    pub(crate) fn publish(&self, plan: Arc<Plan>) -> Arc<Plan> {
        self.plan.swap(plan)
    }
}
