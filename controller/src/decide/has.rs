//! What a Service was given before this decision, and how far that is what it asks for.

use super::context::Context;
use super::grant::Grant;
use super::nodes;
use super::placement::published;
use super::service_plan::ServicePlan;
use super::site::{ListenAt, Site};
use super::status::Verdict;
use crate::allocation::{Allocation, At};
use crate::observe::ServiceKind;

/// Whether the Service is to listen at the addresses that it has.
pub(super) fn fits(has: &Allocation, grant: &Grant) -> bool {
    let at = grant.site.as_ref().map_or(At::Node, Site::at);
    has.at == at
}

/// What a Service keeps while it has no place: the ports that it still has in its spec. `None`: it asks for other addresses.
pub(super) fn kept_without_place(plan: &ServicePlan) -> Option<Allocation> {
    let has = &plan.service.allocated.as_ref()?.allocation;
    let fits = plan.asks_at.as_ref().is_none_or(|at| *at == has.at);
    fits.then(|| Allocation {
        ports: plan.unread.clone(),
        ..Allocation::clone(has)
    })
}

/// Whether a LoadBalancer that is ours cannot be served anywhere now.
pub(super) fn is_without_place(plan: &ServicePlan) -> bool {
    plan.placement.is_none()
        && plan.service.kind == ServiceKind::LoadBalancer
        && plan.status.verdict == Verdict::Pending
}

impl Grant {
    /// Lets a Service listen where it was given addresses, if it asks for others meanwhile.
    pub(super) fn stay(&mut self, context: &Context<'_>) {
        let (Some(allocated), Some(site), Some(placement)) = (
            &self.plan.service.allocated,
            &self.site,
            &self.plan.placement,
        ) else {
            return;
        };
        let at = &allocated.allocation.at;
        if *at == site.at() {
            return;
        }
        let chosen = site.chosen.clone();
        let families = &placement.families;
        let at = match at {
            At::Node => ListenAt::Wildcard,
            At::NodeInternal => {
                let nodes = context.nodes.selected(chosen.as_ref());
                let of_nodes = published(&nodes, families, |node, family| {
                    nodes::first(&node.internal, family)
                });
                ListenAt::Internal(families.clone(), of_nodes)
            }
            At::Addresses(addresses) => ListenAt::Requested(addresses.clone()),
        };
        self.site = Some(Site {
            chosen,
            at,
            pool: None,
        });
    }
}
