//! The plan in force: one pointer, which only `apply` swaps.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use ballast_core::plan::Plan;

/// Holds the plan in force.
#[derive(Debug, Default)]
pub struct Live {
    plan: Arc<ArcSwap<Plan>>,
}

impl Live {
    /// The plan in force now. Holding this `Arc` keeps the whole table alive; drop it when the work at hand is done. Workers
    /// use the cheaper `Worker::plan`.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// A handle that reads the plan without touching its reference count while the plan stays the same.
    pub(crate) fn cache(&self) -> Cache<Arc<ArcSwap<Plan>>, Arc<Plan>> {
        Cache::new(Arc::clone(&self.plan))
    }

    /// Puts `plan` in force and returns the previous one. `apply` frees it, so that no worker ever does.
    pub(crate) fn publish(&self, plan: Arc<Plan>) -> Arc<Plan> {
        self.plan.swap(plan)
    }
}
