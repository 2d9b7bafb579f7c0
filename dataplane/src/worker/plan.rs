//! A worker's own handle on the plan in force.

use std::rc::Rc;
use std::sync::Arc;

use ballast_core::plan::Plan;

use crate::live::{Live, LiveCache};

/// A worker's own reference to a plan, cheap to clone within the worker. Holding it keeps the whole table alive; drop it once a
/// connection is set up.
pub(crate) type WorkerPlan = Rc<Arc<Plan>>;

/// The plan as this worker last read it. If workers cloned the shared `Arc` for each connection, all of them would write to its
/// one reference count. Cloning the `Rc` stays within the worker.
#[derive(Debug)]
pub(super) struct CachedPlan {
    live: LiveCache,
    plan: WorkerPlan,
}

impl CachedPlan {
    pub(super) fn new(live: &Live) -> Self {
        let mut live = live.cache();
        let plan = Rc::new(Arc::clone(&live.load().plan));
        Self { live, plan }
    }

    /// The plan in force now.
    pub(super) fn get(&mut self) -> WorkerPlan {
        let now = &self.live.load().plan;
        if !Arc::ptr_eq(now, &self.plan) {
            self.plan = Rc::new(Arc::clone(now));
        }
        Rc::clone(&self.plan)
    }
}
