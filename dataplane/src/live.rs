//! What is being served: one pointer, swapped by `apply` and by nobody else.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use ballast_core::plan::Plan;

use crate::intake::NamedFiles;

/// Everything that one table has led to.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// The compiled table.
    pub plan: Arc<Plan>,
    /// The files that the table names, as they were when it was read.
    pub(crate) files: Arc<NamedFiles>,
}

/// What is in force.
#[derive(Debug, Default)]
pub struct Live {
    serving: Arc<ArcSwap<Serving>>,
}

/// A thread's own view of what is in force. Reading it touches no memory that other threads write to, unless there is
/// something new.
pub(crate) type LiveCache = Cache<Arc<ArcSwap<Serving>>, Arc<Serving>>;

impl Live {
    /// The plan in force now. Holding this `Arc` keeps the whole table alive; drop it when the work at hand is done. Workers
    /// have a cheaper way: `Worker::plan`.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.serving.load().plan)
    }

    /// What is in force now.
    pub(crate) fn serving(&self) -> Serving {
        Serving::clone(&self.serving.load())
    }

    pub(crate) fn cache(&self) -> LiveCache {
        Cache::new(Arc::clone(&self.serving))
    }

    /// Puts `serving` in force. The caller keeps the plan before it until nobody else does, so that no worker ever frees a
    /// plan.
    pub(crate) fn publish(&self, serving: Serving) {
        self.serving.store(Arc::new(serving));
    }
}
