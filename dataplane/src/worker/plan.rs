//! A worker's own handle on what is in force.

use std::rc::Rc;
use std::sync::Arc;

use crate::worker::live::{Live, LiveCache, Serving};

/// A worker's own reference to a plan and what belongs to it, cheap to clone within the worker. Holding it keeps the whole table alive; drop it once a
/// connection is set up.
pub(crate) type WorkerPlan = Rc<Arc<Serving>>;

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
        let plan = Rc::new(Arc::clone(live.load()));
        Self { live, plan }
    }

    /// The plan in force now.
    pub(super) fn get(&mut self) -> WorkerPlan {
        let now = self.live.load();
        if !Arc::ptr_eq(now, &self.plan) {
            self.plan = Rc::new(Arc::clone(now));
        }
        Rc::clone(&self.plan)
    }
}
