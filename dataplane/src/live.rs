//! What is being served: one pointer, swapped by `apply` and by nobody else.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use ballast_core::plan::Plan;

/// The plan in force.
#[derive(Debug, Default)]
pub struct Live {
    plan: Arc<ArcSwap<Plan>>,
}

impl Live {
    /// The plan in force now. Holding this `Arc` keeps the whole table alive; drop it when the work at hand is done. Workers
    /// have a cheaper way: `Worker::plan`.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// A handle that reads the plan without touching its reference count, until there is a new one.
    pub(crate) fn cache(&self) -> Cache<Arc<ArcSwap<Plan>>, Arc<Plan>> {
        Cache::new(Arc::clone(&self.plan))
    }

    /// Puts `plan` in force and returns the one before, for `apply` to free: no worker ever frees a plan.
    pub(crate) fn publish(&self, plan: Arc<Plan>) -> Arc<Plan> {
        self.plan.swap(plan)
    }
}
