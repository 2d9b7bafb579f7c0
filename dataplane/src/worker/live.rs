//! What is in force: one pointer, which only `apply` swaps.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arc_swap::cache::Cache;
use ballast_core::plan::Plan;

use crate::net::tls;
use crate::os::files::NamedFiles;

/// The plan in force, and what belongs to it.
#[derive(Debug, Default)]
pub struct Serving {
    /// The compiled table.
    pub plan: Arc<Plan>,
    /// The files that the table names, as they were when the table was read.
    pub(crate) files: Arc<NamedFiles>,
    /// The TLS of the plan's frontends and services.
    pub(crate) tls: Arc<tls::Configs>,
}

impl Deref for Serving {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

/// Holds what is in force.
#[derive(Debug, Default)]
pub struct Live {
    serving: Arc<ArcSwap<Serving>>,
}

/// A thread's cached view of what is in force. Reading it touches no memory that other threads write, except after a change.
pub(crate) type LiveCache = Cache<Arc<ArcSwap<Serving>>, Arc<Serving>>;

impl Live {
    /// The plan in force now. Holding this `Arc` keeps the whole table alive; drop it when the work at hand is done. Workers
    /// use the cheaper `Worker::plan`.
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.serving.load().plan)
    }

    /// All that is in force now.
    pub(crate) fn serving(&self) -> Arc<Serving> {
        self.serving.load_full()
    }

    pub(crate) fn cache(&self) -> LiveCache {
        Cache::new(Arc::clone(&self.serving))
    }

    /// Puts `serving` in force, and returns what was in force before. The caller keeps that until nothing else uses it, so that no
    /// worker ever frees a plan.
    pub(crate) fn publish(&self, serving: Serving) -> Arc<Serving> {
        self.serving.swap(Arc::new(serving))
    }
}
