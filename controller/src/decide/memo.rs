//! What a decision leaves to the next one: the plans of Services for which nothing has changed since, so that a decision costs what
//! has changed. It changes no decision: every plan is kept with all that it was made of.
//!
//! Only the publisher keeps plans: those of LoadBalancers without canaries, which read nothing of other Services. On a node they would
//! keep the endpoints a third time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::context::Context;
use super::pooled::PoolIndex;
use super::service_plan::ServicePlan;
use crate::observe::{Node, Observed, PoolObjects, Service, ServiceKind};
use crate::pools::{Pool, Pools};
use crate::settings::{Role, Settings};

/// Empty at first.
#[derive(Default)]
pub struct Memo {
    common: Option<Common>,
    /// The plans of this decision so far, in the order of the Services.
    plans: VecDeque<Known>,
    /// Those of the decision before that are not looked at yet, in the same order.
    before: VecDeque<Known>,
    /// The Services that have addresses of pools, by address.
    pub(super) index: PoolIndex,
}

/// What all plans are made of.
struct Common {
    settings: Settings,
    nodes: BTreeMap<String, Node>,
    /// Whether Leases are observed.
    has_leases: bool,
    objects: Arc<PoolObjects>,
    pools: Arc<Pools>,
}

/// The plan of one Service, and what it is made of beside that.
struct Known {
    service: Arc<Service>,
    remembered: Option<Arc<BTreeMap<String, (String, String)>>>,
    is_abandoned: bool,
    plan: Arc<ServicePlan>,
}

impl Memo {
    /// Forgets what does not hold any more for this input. Returns the pools, which are put together once.
    pub(super) fn begin(&mut self, observed: &Observed, settings: &Settings) -> Arc<Pools> {
        if settings.role != Role::Publisher {
            return Arc::new(pools(observed, settings));
        }
        self.before = std::mem::take(&mut self.plans);
        if let Some(common) = &mut self.common
            && common.settings == *settings
            && common.nodes == observed.nodes
            && common.has_leases == observed.leases.is_some()
            && is_same(&common.objects, &observed.pools)
        {
            common.objects = Arc::clone(&observed.pools);
            return Arc::clone(&common.pools);
        }
        let pools = Arc::new(pools(observed, settings));
        self.before.clear();
        self.common = Some(Common {
            settings: settings.clone(),
            nodes: observed.nodes.clone(),
            has_leases: observed.leases.is_some(),
            objects: Arc::clone(&observed.pools),
            pools: Arc::clone(&pools),
        });
        pools
    }

    /// The plan of a Service: the one that is kept, or else a new one. Services come in the order of their keys.
    pub(super) fn plan(
        &mut self,
        context: &Context<'_>,
        service: &Arc<Service>,
        make: impl FnOnce() -> Option<ServicePlan>,
    ) -> Option<Arc<ServicePlan>> {
        if !is_kept(context, service) {
            return make().map(Arc::new);
        }
        let remembered = || context.observed.remembered.get(&service.key);
        let is_abandoned = context.observed.abandoned.contains(&service.key);
        let known = self.known(service).filter(|known| {
            let is_same = || known.remembered.as_ref() == remembered();
            known.is_abandoned == is_abandoned && (!known.plan.looks_back || is_same())
        });
        let known = match known {
            Some(known) => known,
            None => Known {
                service: Arc::clone(service),
                remembered: remembered().cloned(),
                is_abandoned,
                plan: Arc::new(make()?),
            },
        };
        let plan = Arc::clone(&known.plan);
        self.plans.push_back(known);
        Some(plan)
    }

    /// The plan that the decision before made of this very object of a Service, if it made one.
    fn known(&mut self, service: &Arc<Service>) -> Option<Known> {
        while let Some(first) = self.before.front() {
            if Arc::ptr_eq(&first.service, service) {
                return self.before.pop_front();
            }
            if first.service.key > service.key {
                return None;
            }
            self.before.pop_front();
        }
        None
    }
}

fn is_kept(context: &Context<'_>, service: &Service) -> bool {
    let observed = context.observed;
    context.settings.role == Role::Publisher
        && observed.slices.is_empty()
        && service.kind == ServiceKind::LoadBalancer
        && context.canaries.of_service(&service.key).is_empty()
        && !context.left_out.contains_key(&service.key)
}

/// Whether the pools are the same, the namespaces that they select, and the kinds that cannot be read. Reservations concern no plan.
fn is_same(one: &Arc<PoolObjects>, other: &Arc<PoolObjects>) -> bool {
    Arc::ptr_eq(one, other)
        || (&one.pools, &one.namespaces, &one.unread)
            == (&other.pools, &other.namespaces, &other.unread)
}

/// Address pools; none on a node of a cluster, which serves what was given.
fn pools(observed: &Observed, settings: &Settings) -> Pools {
    let pools = observed.pools.pools.iter();
    let read = pools.filter(|pool| settings.reads_pools_of(pool.source));
    Pools::new(read.map(|pool| Pool::clone(pool)).collect())
}

#[cfg(test)]
mod tests;
