//! What a Service was given before this decision, and how far that is what it asks for.

use super::context::Context;
use super::grant::Grant;
use super::nodes;
use super::placement::published;
use super::service_plan::ServicePlan;
use super::site::{ListenAt, Site};
use super::status::Verdict;
use crate::allocation::{Allocated, Allocation, At, NodePort};
use crate::observe::{Service, ServiceKind};

pub(super) enum Has<'a> {
    Allocated(&'a Allocation),
    /// A build that did not say what was given has published the Service: everything that it asks for.
    Published,
}

impl<'a> Has<'a> {
    pub(super) fn of(service: &'a Service) -> Option<Self> {
        match &service.allocated {
            Some(Allocated { allocation, .. }) => Some(Self::Allocated(allocation)),
            None => service.was_published.then_some(Self::Published),
        }
    }

    /// When the Service was given what it has.
    pub(super) fn since(service: &Service) -> Option<i64> {
        match &service.allocated {
            Some(allocated) => Some(allocated.since),
            None => service.was_published.then_some(service.created).flatten(),
        }
    }

    pub(super) fn contains(&self, port: NodePort) -> bool {
        match self {
            Self::Allocated(allocation) => allocation.ports.contains(&port),
            Self::Published => true,
        }
    }

    /// Whether the Service is to listen at the addresses that it has.
    pub(super) fn fits(&self, grant: &Grant) -> bool {
        match (self, &grant.site) {
            (Self::Allocated(allocation), Some(site)) => allocation.at == site.at(),
            (Self::Allocated(allocation), None) => allocation.at == At::Node,
            (Self::Published, _) => true,
        }
    }

    /// What a Service keeps while it has no place: the ports that it still has in its spec. `None`: it asks for other addresses.
    pub(super) fn without_place(&self, plan: &ServicePlan) -> Option<Allocation> {
        let Self::Allocated(allocation) = self else {
            return None;
        };
        let fits = plan.asks_at.as_ref().is_none_or(|at| *at == allocation.at);
        fits.then(|| Allocation {
            ports: plan.unread.clone(),
            ..Allocation::clone(allocation)
        })
    }
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
